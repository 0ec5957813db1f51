"""Random Fourier features: a kernel approximated by the inner product of random feature vectors."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_point, check_key, dtype_of
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import is_concrete, requested_matmul, safe_sqrt, vectors
from kernax.core.base.parameters import check_count, data, shown
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare_stacks
from kernax.core.kernel.spectral_densities import frequencies_of_parts
from kernax.core.operators.feature_map import FeatureMap
from kernax.core.operators.memory import check_numbers

# Numbers in memory for each number that is returned, in float64 and float32.
HELD_FOR_EACH = (3.9, 5.8)


class FourierFeatures(eqx.Module):
    """Random Fourier features `phi(x) = sqrt(weights) [cos(2 pi w_i.(x - c)), sin(2 pi w_i.(x -
    c))]`: the cosines first, two features for each frequency.

    Attributes:
        frequencies: w (count, d), in cycles per unit of x.
        weights: (count,) >= 0; `phi(x).phi(x)` is their sum.
        origin: c (d,); products of features depend on it only by rounding.
    """

    frequencies: Float[Array, "count d"] = data()
    weights: Float[Array, " count"] = data()
    origin: Float[Array, " d"] = data()

    def __call__(self, x):
        x, _ = vectors(x, x, self.origin)
        # Subtract first: the rounding of an angle grows with its size, and whole turns are lost.
        angles = 2 * jnp.pi * requested_matmul(self.frequencies, x - self.origin)
        # cos s cos t + sin s sin t = cos(s - t), so that
        # phi(x).phi(z) = sum_i weights_i cos(2 pi w_i.(x - z)).
        roots = safe_sqrt(self.weights)
        return jnp.concatenate([roots * jnp.cos(angles), roots * jnp.sin(angles)])


@renamed(count="n_frequencies")
def random_fourier_features(
    kernel: AbstractKernel,
    n_frequencies: int,
    dim: int,
    *,
    key: PRNGKeyArray,
    draw: str = "independent",
    origin: ArrayLike | None = None,
) -> FeatureMap:
    """Random Fourier features: approximates `k(x, z)` by `sum_i a_i cos(2 pi w_i.(x - z))`, with
    frequencies w_i drawn from the spectral density of the kernel (Bochner's theorem).

    The approximation is exact at x = z and unbiased elsewhere. Independent draws have a standard
    error of at most `k(x, x) / sqrt(n_frequencies)` (Rahimi & Recht 2007, with a cosine and a sine
    in place of a random phase). The T terms of a sum or a `SpectralMixture`, and all pairs of terms
    of a product of such, share the frequencies evenly: their standard error is at most `sqrt(T
    sum_t k_t(x, x)^2 / n_frequencies)`.

    Arguments:
        kernel: a kernel with a spectral density: RBF, Matern12, Matern32, Matern52, Matern,
            RationalQuadratic, SpectralMixture; Cosine, Constant, and along one column Periodic and
            ZeroMeanPeriodic, which have exact terms that take one frequency each; or sums,
            products, integer powers and non-negative multiples of such, also `On` some columns.
        n_frequencies: the largest number of frequencies; phi has two features for each.
        dim: the dimension d of the points.
        key: a random key. The frequencies depend on it, and smoothly on the kernel.
        draw: the joint distribution of the normal vectors behind the frequencies:
            - "independent";
            - "orthogonal", in groups of d (Yu et al. 2016): a smaller error for pairs of points
                that are close, the more so the larger d;
            - "quasi_random", from a scrambled Sobol sequence (Avron, Sindhwani, Yang & Mahoney
              2016): a much smaller error in few dimensions, and never much larger. Best with
              powers of two.
            Estimate the error of the last two by repetition with several keys.
        origin: (dim,), a point near those of X, such as their mean; default zero. Angles of points
            far from it lose digits: in float32 about `1e-7 |x - origin| / lengthscale` of a turn.

    Returns:
        A `FeatureMap`, itself a kernel; `jax.vmap(features.phi)(X)` are the features
        (n, 2 n_frequencies). Its frequencies are data: they are not learned. To learn the
        parameters of `kernel`, build the map inside the loss, with one fixed key.

    Raises ValueError for any other kernel, a lengthscale of another dimension or too short for the
    harmonics of a periodic kernel, an unknown draw, fewer frequencies than terms, or an origin of
    another shape.

    Examples:
        >>> k = kernax.RBF(0.3)
        >>> features = kernax.random_fourier_features(k, 200, 1, key=jax.random.key(0))
        >>> x, z = jnp.array([0.4]), jnp.array([0.6])
        >>> features.features(x).shape  # a cosine and a sine for each frequency
        (400,)
        >>> bool(abs(features(x, z) - k(x, z)) < 0.2)
        True
    """
    for name, value in (("n_frequencies", n_frequencies), ("dim", dim)):
        check_count(value, name)
    check_key(key)
    # All parts in one dtype.
    one_point = jnp.zeros((1, dim), dtype_of(kernel))
    kernel, _, _ = prepare_stacks(kernel, one_point)
    # A point as given; zero for none.
    dtype = dtype_of(one_point)
    if origin is None:
        centre = jnp.zeros(dim, dtype)
    else:
        centre = jnp.asarray(as_point(origin)).astype(dtype)
        if centre.shape != (dim,):
            raise ValueError(f"origin must have shape ({dim},), but has shape {centre.shape}")
        if is_concrete(centre) and not jnp.all(jnp.isfinite(centre)):
            raise ValueError(f"origin must be finite, but is {shown(np.asarray(centre))}")
    parts = kernel.spectral_parts(dim)
    check_numbers(
        n_frequencies * (dim + 1),
        centre.dtype,
        function_name="random_fourier_features",
        for_each=HELD_FOR_EACH,
        what=f"{n_frequencies} frequencies in {dim} dimensions",
        instead="take fewer",
    )
    frequencies, weights = frequencies_of_parts(parts, n_frequencies, dim, key=key, draw=draw)
    if is_concrete(weights) and not jnp.all(jnp.isfinite(weights)):
        raise ValueError(
            "kernel has a periodic term whose lengthscale is too short for its harmonics: the 24 "
            "that are available suffice for lengthscales from 0.3 on"
        )
    return FeatureMap(FourierFeatures(frequencies, weights, centre))
