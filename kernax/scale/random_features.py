"""Random features: a kernel replaced by a scalar product of vectors that has it as its mean."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from kernax.core.boundary import check_key, dtype_of
from kernax.core.features import FeatureMap
from kernax.core.kernel import AbstractKernel, Scaled, Sum
from kernax.core.numerics import matmul, safe_sqrt, vectors
from kernax.core.parameters import check_count, data
from kernax.core.preparation import prepare_stacks
from kernax.core.spectral_densities import AbstractSpectral


class FourierFeatures(eqx.Module):
    """`phi(x) = sqrt(weights) [cos(2 pi w_i.x), sin(2 pi w_i.x)]`, the cosines first: a vector of
    two features per frequency.

    Attributes:
        frequencies: w (count, d), in cycles per unit of x.
        weights: (count,) >= 0; `phi(x).phi(x)` is their sum.
    """

    frequencies: Float[Array, "count d"] = data()
    weights: Float[Array, " count"] = data()

    def __call__(self, x):
        x, _ = vectors(x, x, self.frequencies[0])
        angles = 2 * jnp.pi * matmul(self.frequencies, x)
        roots = safe_sqrt(self.weights)
        return jnp.concatenate([roots * jnp.cos(angles), roots * jnp.sin(angles)])


def random_fourier_features(
    kernel: AbstractKernel, count: int, dim: int, *, key: PRNGKeyArray
) -> FeatureMap:
    """`sum_i a_i cos(2 pi w_i.(x - z))` in place of `k(x, z)`, frequencies w_i drawn from its
    spectral density (Bochner).

    Exact at x = z, unbiased elsewhere, with a standard error of at most `k(x, x) / sqrt(count)`
    (Rahimi & Recht 2007, with the pair of a cosine and a sine in place of a random phase). The T
    terms of a sum or a `SpectralMixture` share the frequencies evenly: there it is at most `sqrt(T
    sum_t k_t(x, x)^2 / count)`.

    Arguments:
        kernel: one with a spectral density (RBF, Matern12, Matern32, Matern52, Matern,
            RationalQuadratic, SpectralMixture), or sums and non-negative multiples of such.
        count: how many frequencies: phi has `2 count` features.
        dim: the dimension d of the points.
        key: the frequencies depend on it and on the kernel, smoothly on the latter.

    Returns:
        A `FeatureMap`, itself a kernel; `jax.vmap(features.phi)(X)` are the features (n, 2 count).
        Its frequencies are data: they are not learned. To learn the parameters of `kernel`, build
        the map inside the loss, with one fixed key.

    Raises ValueError for any other kernel, a lengthscale of another dimension, or fewer frequencies
    than terms.
    """
    for name, value in (("count", count), ("dim", dim)):
        check_count(value, name)
    check_key(key)
    # All parts in one dtype.
    one_point = jnp.zeros((1, dim), dtype_of(kernel))
    kernel, _, _ = prepare_stacks(kernel, one_point)
    frequencies, weights = _frequencies(kernel, count, dim, key)
    return FeatureMap(FourierFeatures(frequencies, weights))


def _frequencies(kernel: Any, count: int, dim: int, key: Array) -> tuple[Array, Array]:
    if isinstance(kernel, AbstractSpectral):
        return kernel.sample_frequencies(count, dim, key=key)
    if isinstance(kernel, Scaled):
        frequencies, weights = _frequencies(kernel.kernel, count, dim, key)
        return frequencies, kernel.scale * weights
    if isinstance(kernel, Sum):
        return _frequencies_of_sum(kernel.terms, count, dim, key)
    raise ValueError(
        f"{type(kernel).__name__} has no spectral density here: random Fourier features are for "
        "RBF, Matern12, Matern32, "
        "Matern52, Matern, RationalQuadratic and SpectralMixture, and for sums and multiples of "
        "these"
    )


def _equal_shares(count: int, terms: int) -> list[int]:
    """How many of `count` frequencies each term has; the first ones have the remainder."""
    return [count // terms + (i < count % terms) for i in range(terms)]


def _frequencies_of_sum(terms: tuple, count: int, dim: int, key: Array) -> tuple[Array, Array]:
    if count < len(terms):
        raise ValueError(
            f"count must be at least {len(terms)}, one frequency for every term of a sum, but is "
            f"{count}"
        )
    shares = _equal_shares(count, len(terms))
    keys = jax.random.split(key, len(terms))
    parts = [_frequencies(term, share, dim, k) for term, share, k in zip(terms, shares, keys)]
    frequencies, weights = zip(*parts)
    return jnp.concatenate(frequencies), jnp.concatenate(weights)
