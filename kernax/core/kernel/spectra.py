"""The spectra of composed kernels: those of sums, products, powers and multiples."""

import functools

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.numerics import safe_sqrt
from kernax.core.kernel.kernel import AbstractKernel, Constant, Power, Product, Scaled, Sum
from kernax.core.kernel.spectral_densities import AbstractSpectral, SpectralPart

Parts = tuple[SpectralPart, ...]


@functools.singledispatch
def spectrum(kernel: AbstractKernel, dim: int) -> Parts:
    """The spectrum of a kernel of points (dim,), a sum of parts from which frequencies are drawn.

    The spectrum of a sum is the sum, that of a product the convolution: frequencies of a product
    are sums of independent frequencies of its factors. For kernels of one's own:
    `spectrum.register(MyKernel)(function)`.

    Raises ValueError for a kernel without a spectrum that is known.
    """
    if isinstance(kernel, AbstractSpectral):
        return kernel.spectral_parts(dim)
    raise ValueError(
        f"{type(kernel).__name__} has no spectral density here: random Fourier features are for "
        "RBF, Matern12, Matern32, Matern52, Matern, RationalQuadratic, SpectralMixture, Cosine, "
        "Periodic along one column and Constant, and for sums, products, powers and multiples of "
        "these, also On some of the columns"
    )


@spectrum.register
def _(kernel: Constant, dim: int) -> Parts:
    return (fixed_part(kernel.value, (), jnp.zeros(0, kernel.value.dtype)),)


@spectrum.register
def _(kernel: Scaled, dim: int) -> Parts:
    parts = spectrum(kernel.kernel, dim)
    return tuple(part._replace(weight=kernel.scale * part.weight) for part in parts)


@spectrum.register
def _(kernel: Sum, dim: int) -> Parts:
    return tuple(part for term in kernel.terms for part in spectrum(term, dim))


@spectrum.register
def _(kernel: Product, dim: int) -> Parts:
    return functools.reduce(_convolved, [spectrum(term, dim) for term in kernel.terms])


@spectrum.register
def _(kernel: Power, dim: int) -> Parts:
    return functools.reduce(_convolved, [spectrum(kernel.kernel, dim)] * kernel.degree)


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


def _convolved(first: Parts, second: Parts) -> Parts:
    """Every part of one spectrum convolved with every part of another."""
    return tuple(part for a in first for b in second for part in _convolved_parts(a, b))


def _convolved_parts(a: SpectralPart, b: SpectralPart) -> Parts:
    """Of two parts that both stand for their mirror images as well there are two, as in `cos a cos
    b = (cos(a + b) + cos(a - b)) / 2`.
    """
    if a.is_symmetric or b.is_symmetric:
        return (_sum_of_frequencies(a, b),)
    halved = a._replace(weight=a.weight / 2)

    def mirrored(normal):
        centres, deviations = b.law(normal)
        return -centres, deviations

    return _sum_of_frequencies(halved, b), _sum_of_frequencies(halved, b._replace(law=mirrored))


def _sum_of_frequencies(a: SpectralPart, b: SpectralPart) -> SpectralPart:
    """Sums of independent frequencies: given their further numbers they are normal, and means and
    variances add up.
    """
    columns = tuple(sorted({*a.columns, *b.columns}))

    def law(normal):
        centre, deviation = _spread(a, normal[:, : a.further], columns)
        other_centre, other_deviation = _spread(b, normal[:, a.further :], columns)
        return centre + other_centre, safe_sqrt(deviation**2 + other_deviation**2)

    return SpectralPart(
        weight=a.weight * b.weight,
        columns=columns,
        further=a.further + b.further,
        law=law,
        share=a.share * b.share,
        is_fixed=a.is_fixed and b.is_fixed,
        is_symmetric=a.is_symmetric and b.is_symmetric,
    )


def _spread(
    part: SpectralPart, normal: Float[Array, "count further"], columns: tuple[int, ...]
) -> tuple[Array, Array]:
    """Centres and deviations of a part over more columns, where those that it lacks are zero."""
    places = jnp.asarray([columns.index(column) for column in part.columns], int)

    def over_all(inside: Float[Array, "count some"]) -> Float[Array, "count all"]:
        return jnp.zeros((len(inside), len(columns)), inside.dtype).at[:, places].set(inside)

    centres, deviations = part.law(normal)
    return over_all(centres), over_all(deviations)
