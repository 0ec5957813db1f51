"""The factor of the Gram matrix of a few points that stand for many: inducing points, centres."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.density import cholesky
from kernax.core.factors import cholesky_factor
from kernax.core.gram import gram_of_prepared
from kernax.core.kernel import AbstractKernel
from kernax.core.numerics import stopped
from kernax.core.operators import DenseGram
from kernax.core.solution import RESULTS


class FactorAtPoints(eqx.Module):
    """The Cholesky factor L of `k(Z, Z) + jitter I`, (m, m), and whether there is one.

    Jitter is only there where k(Z, Z) is singular to working precision.
    """

    lower: Float[Array, "m m"]
    jitter: Float[Array, ""]
    result: Any


def factor_at(kernel: AbstractKernel, Z: PyTree) -> FactorAtPoints:
    """L, differentiable."""
    K = gram_of_prepared(kernel, Z)
    factor = cholesky_factor(DenseGram(stopped(K)))
    finite = jnp.all(jnp.isfinite(K))
    result = RESULTS.where(finite, factor.result, RESULTS.nonfinite)
    return FactorAtPoints(cholesky(K, factor), factor.jitter, result)
