"""The factor of the Gram matrix of a few points, such as inducing points or centres."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import eps_of, stop_gradient
from kernax.core.base.solution import RESULTS
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.linalg.cholesky import CholeskyFactor, cholesky_factor
from kernax.core.linalg.density import cholesky
from kernax.core.linalg.jitter import range_of_jitter
from kernax.core.linalg.solves import inverse_of_lower
from kernax.core.operators.gram import gram_of_prepared
from kernax.core.operators.operators import DenseGram


def wide(dtype: Any) -> Any:
    """The dtype for matrices of a few points and for sums over many: float64 if enabled."""
    return np.promote_types(dtype, jnp.result_type(float))


class FactorAtPoints(eqx.Module):
    """The Cholesky factor L of `k(Z, Z) + jitter I`, (m, m), and whether there is one.

    Jitter is positive only if k(Z, Z) is singular to working precision, or if `factor_of_gram`
    needs more accuracy.
    """

    lower: Float[Array, "m m"]
    jitter: Float[Array, ""]
    result: Any


def factor_at(kernel: AbstractKernel, Z: PyTree) -> FactorAtPoints:
    """L, differentiable."""
    return factor_of_gram(gram_of_prepared(kernel, Z))


def factor_of_gram(
    K: Float[Array, "m m"], cross_dtype: Any = None, most: ArrayLike | None = None
) -> FactorAtPoints:
    """L for `K = k(Z, Z)`, differentiable.

    Products `L^-1 k(Z, x)` divide the rounding of k(Z, x) by the smallest pivots. For these, jitter
    is also added if K is too close to singular.

    Arguments:
        cross_dtype: the dtype of `k(Z, x)`. Jitter is added if a squared pivot is within the
            rounding of that dtype, eps of the diagonal, or eps^(2/3) if K has the same dtype.
        most: jitter is also added if the squares of the entries of `L^-1` sum to more than this.
    """
    fixed = stop_gradient(K)
    plain = cholesky_factor(DenseGram(fixed))
    factor = plain
    if cross_dtype is not None:
        # L_ii^2 > rounding K_ii: sums of n products have a rounding error of a few eps, and are
        # divided by pivots once or twice.
        eps = eps_of(cross_dtype)
        rounding = eps if eps > eps_of(K) else eps ** (2 / 3)
        sound = jnp.all(jnp.diagonal(plain.lower) ** 2 > rounding * jnp.diagonal(fixed))
        if most is not None:
            # sum_ij (L^-1)_ij^2 <= most.
            squares = jnp.sum(inverse_of_lower(plain.lower) ** 2)
            sound = sound & (squares <= stop_gradient(most))
        # Otherwise L L^T = K + jitter I, with the jitter of the lower precision.
        first, _ = range_of_jitter(jnp.mean(jnp.diagonal(fixed)).astype(cross_dtype))
        jitter = jnp.maximum(first.astype(K.dtype), plain.jitter)

        def with_jitter(K: Float[Array, "m m"]) -> CholeskyFactor:
            jittered = cholesky_factor(DenseGram(K + jitter * jnp.eye(len(K), dtype=K.dtype)))
            return CholeskyFactor(jittered.upper, jittered.jitter + jitter, jittered.exists)

        factor = lax.cond(sound, lambda K: plain, with_jitter, fixed)
    finite = jnp.all(jnp.isfinite(K))
    result = RESULTS.where(finite, factor.result, RESULTS.nonfinite)
    return FactorAtPoints(cholesky(K, factor), factor.jitter, result)
