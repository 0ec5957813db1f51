"""Spectra of kernels: eigenfunctions (Mercer) and, for stationary kernels, densities (Bochner)."""

import abc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import floored, vectors
from kernax.core.kernel.kernel import AbstractKernel, AbstractStationary
from kernax.core.kernel.spectra import SpectralPart
from kernax.core.kernel.standard_normals import normal_draw


class Eigenpairs(NamedTuple):
    """Eigenvalues (count,), descending, and their eigenfunctions, from a point to (count,)."""

    values: Float[Array, " count"]
    functions: Callable


Frequencies = tuple[Float[Array, "count dim"], Float[Array, " count"]]


def frequencies_of_parts(
    parts: Sequence[SpectralPart],
    count: int,
    dim: int,
    *,
    key: PRNGKeyArray,
    draw: str = "independent",
) -> Frequencies:
    """Frequencies of all parts, at most `count`, and their weights, which sum to those of the
    parts. They are smooth in the parts for a fixed key, because the part of a frequency is not
    random.

    Raises ValueError for fewer frequencies than parts, or an unknown draw.
    """
    vectors_of = normal_draw(draw)
    if count < len(parts):
        raise ValueError(
            f"n_frequencies must be at least {len(parts)}, one frequency for each term of the "
            f"spectrum, but is {count}"
        )
    # The number of frequencies of each part: one where that is enough, otherwise by shares.
    moving = [part.share for part in parts if not part.is_fixed]
    left = count - len(parts)
    total = sum(moving)
    shares = [0.0 if part.is_fixed else left * part.share / total for part in parts]
    counts = [int(share) for share in shares]
    missing = left - sum(counts) if moving else 0
    # The largest fractions come first, and among equal ones the first.
    by_fraction = sorted(range(len(parts)), key=lambda i: (counts[i] - shares[i], i))
    chosen = by_fraction[:missing]
    counts = [1 + number + (i in chosen) for i, number in enumerate(counts)]
    frequencies = []
    weights = []
    for part, number, its_key in zip(parts, counts, jax.random.split(key, len(parts))):
        # centre + deviation normal, in the columns of the part; all with equal weights.
        dtype = part.weight.dtype
        columns = len(part.columns)
        normal = vectors_of(its_key, number, columns, part.n_normals, dtype)
        centres, deviations = part.law(normal[:, columns:])
        inside = centres + deviations * normal[:, :columns]
        places = np.asarray(part.columns, int)
        frequencies.append(jnp.zeros((number, dim), dtype).at[:, places].set(inside))
        weights.append(jnp.broadcast_to(part.weight / number, (number,)))
    return jnp.concatenate(frequencies), jnp.concatenate(weights)


class AbstractSpectral(AbstractKernel):
    """A kernel with a known spectral density S: `k(x, z) = integral S(w) exp(2 pi i w.(x - z)) dw`.

    Frequencies w (d,) are in cycles per unit of x. S is symmetric, not negative, and integrates to
    `k(x, x)`.

    Examples:
        >>> isinstance(kernax.RBF(0.3), kernax.kernels.AbstractSpectral)
        True
        >>> density = kernax.RBF(0.3).spectral_density(jnp.array([0.5]))
        >>> round(float(density), 3)
        0.482
    """

    @abc.abstractmethod
    def spectral_density(self, w: Float[Array, " d"]) -> Float[Array, ""]:
        """`S(w)` at one frequency; its unit is that of k times the volume of d units of x."""

    @abc.abstractmethod
    def spectral_parts(self, dim: int) -> tuple[SpectralPart, ...]:
        """S in d dimensions as a sum of mixtures of normal distributions, from which frequencies
        are drawn. Raises ValueError for parameters of another dimension.
        """

    @renamed(count="n_frequencies")
    def sample_frequencies(
        self, n_frequencies: int, dim: int, *, key: PRNGKeyArray, draw: str = "independent"
    ) -> tuple[Float[Array, "count dim"], Float[Array, " count"]]:
        """Frequencies w_i, drawn from S, and weights a_i that sum to `k(x, x)`.

        `sum_i a_i cos(2 pi w_i.(x - z))` has the mean k(x, z). Both are differentiable in the
        kernel's parameters for a fixed key. `draw` is as in `random_fourier_features`.
        """
        return frequencies_of_parts(
            self.spectral_parts(dim), n_frequencies, dim, key=key, draw=draw
        )


class AbstractScaleMixture(AbstractStationary, AbstractSpectral):
    """`k = E[exp(-tau s / 2)]` over random precisions tau: a mixture of RBFs.

    Here `s = |(x - z) / lengthscale|^2`. Given tau, frequencies are Gaussian with standard
    deviation `sqrt(tau) / (2 pi lengthscale)` in every dimension.
    """

    @abc.abstractmethod
    def unit_density(self, f: Float[Array, ""], dim: int) -> Float[Array, ""]:
        """The spectral density for lengthscale 1 in `dim` dimensions, at `f = |w|^2`."""

    @property
    @abc.abstractmethod
    def n_normals(self) -> int:
        """The number of standard normal numbers from which a precision is computed."""

    @abc.abstractmethod
    def precisions(self, normal: Float[Array, "count m"]) -> Float[Array, " count"]:
        """tau as a function of standard normal numbers, differentiable in the parameters."""

    def spectral_density(self, w):
        # S(w) = prod_d l_d S_1(|l w|^2), l the lengthscales and S_1 the density for lengthscale 1.
        w, _ = vectors(w, w, self.lengthscale)
        lengthscale = jnp.broadcast_to(floored(self.lengthscale), w.shape)
        return jnp.prod(lengthscale) * self.unit_density(jnp.sum((lengthscale * w) ** 2), len(w))

    def spectral_parts(self, dim):
        x = jnp.zeros(dim, self.lengthscale.dtype)
        vectors(x, x, self.lengthscale)  # which refuses lengthscales of another dimension
        lengthscale = jnp.broadcast_to(floored(self.lengthscale), (1, dim))

        def law(normal):
            # w | tau ~ N(0, tau / (2 pi l)^2).
            tau = self.precisions(normal)
            deviations = jnp.sqrt(tau)[:, None] / (2 * jnp.pi * lengthscale)
            return jnp.zeros_like(deviations), deviations

        weight = jnp.ones_like(lengthscale, shape=())  # k(x, x)
        return (SpectralPart(weight, tuple(range(dim)), self.n_normals, law),)
