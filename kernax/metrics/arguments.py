"""Helpers of all scores: checks of arguments, their common dtype, and the mean over rows."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_scalar, as_targets, as_weights
from kernax.core.base.intervals import REAL, Interval
from kernax.core.base.numerics import is_concrete
from kernax.core.base.weights import AbstractWeights

Score = Float[Array, ""]


def mean_of_rows(values: Array, weights: AbstractWeights) -> Array:
    """The weighted mean of one value for each row."""
    return jnp.sum(weights.times(values)) / jnp.sum(weights.values)


def as_targets_and_weights(
    y: ArrayLike, *others: ArrayLike, weights: ArrayLike | None, name: str = "y"
) -> tuple[Float[Array, " n"], AbstractWeights, Any]:
    """Targets and weights as arrays, and the dtype in which everything is computed."""
    dtype = common_dtype(y, *others)
    y = as_targets(y, row_count(y, name), dtype, name)
    if y.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), but has shape {y.shape}: score one column")
    return finite_or_nan(y), as_weights(weights, len(y), dtype), dtype


def known_targets(y: Array, weights: AbstractWeights) -> np.ndarray | None:
    """The targets of rows with positive weight; None while tracing."""
    kept = weights.kept()
    if kept is None or not is_concrete(y):
        return None
    return np.asarray(y)[kept]


def as_one_per_row(value: ArrayLike, name: str, n: int, dtype: Any) -> Float[Array, " n"]:
    """A number for each row, or one for all."""
    if not isinstance(value, list) and np.ndim(value) == 0:
        return jnp.full(n, as_scalar(value, dtype, name, REAL))
    array = as_targets(value, n, dtype, name)
    if array.ndim != 1:
        raise ValueError(f"{name} must have shape ({n},), but has shape {array.shape}")
    return finite_or_nan(array)


def finite_or_nan(values: Array) -> Array:
    """Checked values: concrete values are finite, traced ones have NaN in place of inf."""
    return values if is_concrete(values) else REAL.guarded(values)


def as_inside(values: Array, name: str, interval: Interval) -> Array:
    """The values. Raises ValueError for one outside the interval, or makes it NaN while tracing."""
    if not is_concrete(values):
        return interval.guarded(values)
    known = np.asarray(values)
    if not interval.contains(known):
        outside = [not interval.contains(value) for value in known.flat]
        first = np.unravel_index(np.argmax(outside), known.shape)
        place = ", ".join(map(str, first))
        raise ValueError(f"{name} must be in {interval}, but {name}[{place}] is {known[first]:g}")
    return values


def row_count(y: Any, name: str) -> int:
    """The number of rows. Raises ValueError if there are none."""
    shape = (len(y),) if isinstance(y, (list, tuple)) else np.shape(y)
    if not shape or not shape[0]:
        raise ValueError(f"{name} must have shape (n,) with n >= 1, but has shape {shape}")
    return shape[0]


def common_dtype(*values: Any) -> Any:
    """The widest dtype of the arrays of floats, at least float32; without any, JAX's default."""
    dtypes = [value.dtype for value in values if eqx.is_inexact_array(value)]
    if not dtypes:
        return jnp.result_type(float)
    return jax.dtypes.canonicalize_dtype(np.result_type(*dtypes, np.float32))
