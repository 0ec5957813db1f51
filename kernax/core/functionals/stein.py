"""Langevin Stein kernels, whose functions have mean zero under a density."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import as_point
from kernax.core.base.compiled import compiled
from kernax.core.base.functions import as_module
from kernax.core.base.numerics import dot, vectors
from kernax.core.functionals.linear_functionals import check_smooth
from kernax.core.kernel.kernel import AbstractKernel, as_kernel


def _as_log_density(log_density: Any) -> Any:
    """A module, or a function as a module. Raises ValueError for anything else."""
    if isinstance(log_density, type) or not callable(log_density):
        raise ValueError(
            "log_density must be a function of one point, written with jax.numpy, or a module, but "
            f"is of type {type(log_density).__name__}"
        )
    return as_module(log_density, "log_density")


class SteinKernel(AbstractKernel):
    """`k_0(x, z) = sum_a (d/dx_a + s_a(x)) (d/dz_a + s_a(z)) k(x, z)`, s the score `grad log p`.

    Expanded it is `tr(d^2 k / dx dz) + s(x) . dk/dz + s(z) . dk/dx + k s(x) . s(z)`, the Langevin
    Stein kernel (Liu, Lee & Jordan 2016; Chwialkowski, Strathmann & Gretton 2016; Gorham & Mackey
    2017). `E k_0(x, .) = 0` for x from p, so the mean embedding of p is zero, and the norm of the
    embedding of a sample, `mean_embedding(SteinKernel(k, log_p), X).norm`, measures its distance
    from p. Its unit is that of k divided by that of x squared.

    Points are vectors. The log density is a function of one point and need not be normalised; k_0
    is NaN where it is not finite. If it is a module, its parameters are learned. Derivatives of k
    are exact, by automatic differentiation, at the cost of d evaluations with two tangents for each
    pair. k times p must vanish at infinity. With a kernel with heavy tails, such as the inverse
    multiquadric `RationalQuadratic(lengthscale, 0.5)`, the norm does not vanish for samples that
    escape to infinity if log p is concave far from its mode; with RBF and Matern in d >= 3 it may
    (Gorham & Mackey 2017).

    Raises ValueError for kernels whose functions have no derivative (`rough` ones: Matern 1/2, ...)
    and for a log density that is not a scalar. If this depends on a traced parameter, the value is
    NaN.

    Examples:
        >>> k = kernax.kernels.SteinKernel(kernax.RBF(1.0), log_density=lambda x: -0.5 * x @ x)
        >>> k.score(jnp.array([2.0]))
        Array([-2.], dtype=float64)
        >>> round(float(k(jnp.array([2.0]), jnp.array([2.0]))), 3)  # 1 + 2^2
        5.0
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    log_density: Callable = eqx.field(converter=_as_log_density)

    def __call__(self, x, z):
        x, z = vectors(x, z)
        return ScoredSteinKernel(self.kernel)((x, self.score(x)), (z, self.score(z)))

    def score(self, x: PyTree) -> Float[Array, " d"]:
        """`grad log p(x)`."""
        x = as_point(x)
        value, pulled_back = jax.vjp(self.log_density, x)
        dtype = jnp.result_type(value)
        if jnp.shape(value) != () or not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(
                "log_density must return a scalar, log p(x) of one point x, but returns "
                f"{dtype} of shape {jnp.shape(value)}"
            )
        # Where the density is zero or unknown, its derivative may be a plausible number.
        return jnp.where(jnp.isfinite(value), pulled_back(jnp.ones_like(value))[0], jnp.nan)

    def check_points(self, X):
        if not eqx.is_inexact_array(X) or X.ndim != 2:
            advice = ""
            if eqx.is_array(X):
                of_numbers = "; one-dimensional points must have shape (n, 1); pass X[:, None]"
                advice = f", but has shape {X.shape}{of_numbers if X.ndim == 1 else ''}"
            raise ValueError(
                "a Stein kernel takes gradients of a density of vectors: X must be a batch of "
                f"vectors, of shape (n, d){advice}"
            )
        check_smooth(self.kernel)
        self.kernel.check_points(X)


class ScoredSteinKernel(AbstractKernel):
    """A `SteinKernel` of points together with their scores, pairs (x, s(x)).

    Functions that compute Gram matrices in tiles use it, because the scores would be computed again
    for each tile.
    """

    kernel: AbstractKernel

    def __call__(self, x, z):
        (x, of_x) = x
        (z, of_z) = z
        value, (in_x, in_z) = jax.value_and_grad(self.kernel, (0, 1))(x, z)
        # tr(d^2 k / dx dz) + s(x) . dk/dz + s(z) . dk/dx + k s(x) . s(z).
        slopes = dot(of_x, in_z) + dot(of_z, in_x)
        # `sum_a d^2 k / dx_a dz_a`.
        # It takes two derivatives in each direction, so that a pair needs d numbers and not a
        # matrix.

        def along(a: Float[Array, " d"]) -> Array:
            # a^T (d^2 k / dx dz) a for a unit vector a.
            in_x = lambda z: jax.jvp(lambda x: self.kernel(x, z), (x,), (a,))[1]
            return jax.jvp(in_x, (z,), (a,))[1]

        trace = jnp.sum(jax.vmap(along)(jnp.eye(len(x), dtype=x.dtype)))
        total = trace + slopes + value * dot(of_x, of_z)
        return jnp.where(check_smooth(self.kernel), total, jnp.nan)


@compiled
def with_scores(kernel: Any, X: Float[Array, "n d"]) -> tuple[AbstractKernel, PyTree]:
    """A `SteinKernel` and its points, both from `prepare`, with the scores of the points."""
    return ScoredSteinKernel(kernel.kernel), (X, jax.vmap(kernel.score)(X))
