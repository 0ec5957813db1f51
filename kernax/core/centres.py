"""The factor of the Gram matrix of a few points that stand for many: inducing points, centres."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from kernax.core.density import cholesky
from kernax.core.factors import CholeskyFactor, cholesky_factor, range_of_jitter
from kernax.core.gram import gram_of_prepared
from kernax.core.kernel import AbstractKernel
from kernax.core.numerics import eps_of, stopped
from kernax.core.operators import DenseGram
from kernax.core.solution import RESULTS
from kernax.core.solves import inverse_of_lower


def wide(dtype: Any) -> Any:
    """The precision of matrices of a few points and of sums over many: float64 where it is on."""
    return np.promote_types(dtype, jnp.result_type(float))


class FactorAtPoints(eqx.Module):
    """The Cholesky factor L of `k(Z, Z) + jitter I`, (m, m), and whether there is one.

    Jitter is only there where k(Z, Z) is singular to working precision.
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

    `beside` is the precision of `k(Z, x)`, where products of `L^-1 k(Z, x)` are wanted, which
    divide the rounding of k(Z, x) by the smallest pivots. Then jitter is there where k(Z, Z) is
    singular to that precision, or where that is the one of K, nearly so; or where the squares of
    the entries of `L^-1` have a sum above `most`.
    """
    factor = cholesky_factor(DenseGram(stopped(K)))
    if beside is not None:
        sound = _is_sound(stopped(K), factor, beside, most)
        factor = _for_precision(stopped(K), factor, beside, sound)
    finite = jnp.all(jnp.isfinite(K))
    result = RESULTS.where(finite, factor.result, RESULTS.nonfinite)
    return FactorAtPoints(cholesky(K, factor), factor.jitter, result)


def _is_sound(
    K: Float[Array, "m m"], factor: CholeskyFactor, dtype: Any, most: ArrayLike | None
) -> Bool[Array, ""]:
    """Whether no pivot is the rounding of a precision, and the inverse of L no larger than that."""
    # Sums of n products round by some eps, and are divided by pivots once or twice.
    rounding = eps_of(dtype) if eps_of(dtype) > eps_of(K) else eps_of(dtype) ** (2 / 3)
    sound = jnp.all(jnp.diagonal(factor.lower) ** 2 > rounding * jnp.diagonal(K))
    if most is None:
        return sound
    return sound & (jnp.sum(inverse_of_lower(factor.lower) ** 2) <= stopped(most))


def _for_precision(
    K: Float[Array, "m m"], factor: CholeskyFactor, dtype: Any, sound: Bool[Array, ""]
) -> CholeskyFactor:
    """The factor where it is sound, else that with the jitter of a lower precision."""
    first, _ = range_of_jitter(jnp.mean(jnp.diagonal(K)).astype(dtype))
    jitter = jnp.maximum(first.astype(K.dtype), factor.jitter)

    def again(K):
        jittered = cholesky_factor(DenseGram(K + jitter * jnp.eye(len(K), dtype=K.dtype)))
        return CholeskyFactor(jittered.packed, jittered.jitter + jitter, jittered.exists)

    return lax.cond(sound, lambda K: factor, again, K)
