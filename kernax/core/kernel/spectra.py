"""Spectra as sums of mixtures of normal distributions, and spectra of products of kernels."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.numerics import safe_sqrt


class SpectralPart(NamedTuple):
    """A part of a spectrum, a mixture of normal distributions: frequencies are `centre + deviation
    z` with z standard normal, and centre and deviation are functions of further normal
    numbers.

    Attributes:
        weight: the integral over this part, ().
        columns: the entries of a point with nonzero frequencies.
        n_normals: the number of standard normal numbers, in addition to z, that a frequency needs.
        law: a function from those numbers (count, n_normals) to centres and deviations, each
            (count, columns).
        share: the number of frequencies of this part, relative to others.
        is_fixed: whether all frequencies are the same, so that one is enough.
        is_symmetric: whether w and -w are equally likely.
    """

    weight: Float[Array, ""]
    columns: tuple[int, ...]
    n_normals: int
    law: Callable[[Array], tuple[Array, Array]]
    share: float = 1.0
    is_fixed: bool = False
    is_symmetric: bool = True


Parts = tuple[SpectralPart, ...]


def fixed_part(
    weight: Float[Array, ""],
    columns: tuple[int, ...],
    frequency: Float[Array, " columns"],
    share: float = 1.0,
) -> SpectralPart:
    """A single frequency: `weight cos(2 pi w.(x - z))`."""

    def law(normal):
        centres = jnp.broadcast_to(frequency[None, :], (len(normal), len(columns)))
        return centres, jnp.zeros_like(centres)

    return SpectralPart(weight, columns, 0, law, share, is_fixed=True, is_symmetric=not columns)


def convolved(first: Parts, second: Parts) -> Parts:
    """The spectrum of a product: every part of one spectrum convolved with every part of another.
    Frequencies of a product are sums of independent frequencies of its factors.
    """
    return tuple(part for a in first for b in second for part in _convolved_parts(a, b))


def _convolved_parts(a: SpectralPart, b: SpectralPart) -> Parts:
    """The convolution of two parts. If both also represent their mirror images, it has two parts,
    as in `cos a cos b = (cos(a + b) + cos(a - b)) / 2`.
    """
    if a.is_symmetric or b.is_symmetric:
        return (_sum_of_frequencies(a, b),)
    halved = a._replace(weight=a.weight / 2)

    def mirrored(normal):
        centres, deviations = b.law(normal)
        return -centres, deviations

    return _sum_of_frequencies(halved, b), _sum_of_frequencies(halved, b._replace(law=mirrored))


def _sum_of_frequencies(a: SpectralPart, b: SpectralPart) -> SpectralPart:
    """Sums of independent frequencies. Given the normal numbers of both, they are normal, and
    means and variances add up.
    """
    columns = tuple(sorted({*a.columns, *b.columns}))

    def law(normal):
        centre, deviation = _spread(a, normal[:, : a.n_normals], columns)
        other_centre, other_deviation = _spread(b, normal[:, a.n_normals :], columns)
        # The sum of independent N(c, s^2) and N(c', s'^2) is N(c + c', s^2 + s'^2).
        return centre + other_centre, safe_sqrt(deviation**2 + other_deviation**2)

    return SpectralPart(
        weight=a.weight * b.weight,
        columns=columns,
        n_normals=a.n_normals + b.n_normals,
        law=law,
        share=a.share * b.share,
        is_fixed=a.is_fixed and b.is_fixed,
        is_symmetric=a.is_symmetric and b.is_symmetric,
    )


def _spread(
    part: SpectralPart, normal: Float[Array, "count n_normals"], columns: tuple[int, ...]
) -> tuple[Array, Array]:
    """Centres and deviations of a part over more columns, zero in the columns that it lacks."""
    places = jnp.asarray([columns.index(column) for column in part.columns], int)

    def over_all(inside: Float[Array, "count some"]) -> Float[Array, "count all"]:
        return jnp.zeros((len(inside), len(columns)), inside.dtype).at[:, places].set(inside)

    centres, deviations = part.law(normal)
    return over_all(centres), over_all(deviations)
