"""Order statistics for conformal prediction."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import is_concrete


def smallest(values: Float[Array, "m n"], count: Int[Array, ""] | int) -> Float[Array, " m"]:
    """The count-th smallest entry of each row; -inf and inf beyond the first and the last."""
    n = values.shape[1]
    count = jnp.asarray(count, jnp.int32)
    inside = jnp.sort(values, 1)[:, jnp.clip(count - 1, 0, n - 1)]
    return jnp.where(count < 1, -jnp.inf, jnp.where(count > n, jnp.inf, inside))


def checked_coverage(coverage: Any) -> float:
    """Raises ValueError unless the coverage is a concrete number between 0 and 1."""
    is_number = eqx.is_array_like(coverage) and np.ndim(coverage) == 0
    if not is_number or not is_concrete(coverage) or not 0 < float(coverage) < 1:
        raise ValueError(f"coverage must be a known number between 0 and 1, but is {coverage!r}")
    return float(coverage)


def rank_for(coverage: Any, n: int) -> int:
    """`ceil(coverage (n + 1))`, at least 1. Raises ValueError for an invalid coverage."""
    # Of n + 1 exchangeable scores the last is among the r smallest with probability r / (n + 1), or
    # more if there are ties: r >= coverage (n + 1). Rounding may make 0.9 * 20 larger than 18.
    return max(1, math.ceil(checked_coverage(coverage) * (n + 1) - 1e-9))
