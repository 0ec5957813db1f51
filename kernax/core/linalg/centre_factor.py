"""The factor of the Gram matrix of a few points, such as inducing points or centres."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

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
    K: Float[Array, "m m"], beside: Any = None, most: ArrayLike | None = None
) -> FactorAtPoints:
    """L for `K = k(Z, Z)`, differentiable.

    Products `L^-1 k(Z, x)` divide the rounding of k(Z, x) by the smallest pivots. For these, jitter
    is also added if K is too close to singular.

    Arguments:
        beside: the dtype of `k(Z, x)`. Jitter is added if a squared pivot is within the rounding of
            that dtype, eps of the diagonal, or eps^(2/3) if K has the same dtype.
        most: jitter is also added if the squares of the entries of `L^-1` sum to more than this.
    """
    factor = cholesky_factor(DenseGram(stop_gradient(K)))
    if beside is not None:
        sound = _is_sound(stop_gradient(K), factor, beside, most)
        factor = _for_precision(stop_gradient(K), factor, beside, sound)
    finite = jnp.all(jnp.isfinite(K))
    result = RESULTS.where(finite, factor.result, RESULTS.nonfinite)
    return FactorAtPoints(cholesky(K, factor), factor.jitter, result)


def _is_sound(
    K: Float[Array, "m m"], factor: CholeskyFactor, dtype: Any, most: ArrayLike | None
) -> Bool[Array, ""]:
    """Whether all pivots are above the rounding of a dtype, and the squares of the entries of L^-1
    sum to at most `most`.
    """
    # Sums of n products have a rounding error of a few eps, and are divided by pivots once or
    # twice.
    rounding = eps_of(dtype) if eps_of(dtype) > eps_of(K) else eps_of(dtype) ** (2 / 3)
    sound = jnp.all(jnp.diagonal(factor.lower) ** 2 > rounding * jnp.diagonal(K))
    if most is None:
        return sound
    return sound & (jnp.sum(inverse_of_lower(factor.lower) ** 2) <= stop_gradient(most))


def _for_precision(
    K: Float[Array, "m m"], factor: CholeskyFactor, dtype: Any, sound: Bool[Array, ""]
) -> CholeskyFactor:
    """The factor if it is sound, otherwise the factor with the jitter of a lower precision."""
    first, _ = range_of_jitter(jnp.mean(jnp.diagonal(K)).astype(dtype))
    jitter = jnp.maximum(first.astype(K.dtype), factor.jitter)

    def again(K):
        jittered = cholesky_factor(DenseGram(K + jitter * jnp.eye(len(K), dtype=K.dtype)))
        return CholeskyFactor(jittered.packed, jittered.jitter + jitter, jittered.exists)

    return lax.cond(sound, lambda K: factor, again, K)
