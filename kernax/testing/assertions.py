"""Assertions with messages, and their tolerance."""

from typing import Any

import numpy as np
from jaxtyping import PyTree

from kernax.core.base.stacks import points_at


def require(condition: Any, message: str) -> None:
    """Raises AssertionError with a message unless a condition holds."""
    if not condition:
        raise AssertionError(message)


def closeness(dtype: Any) -> float:
    """The tolerance between two computations of one array, relative to its largest entry."""
    return 1e-10 if dtype == np.float64 else 1e-4


def require_close(a: Any, b: Any, what: str) -> None:
    """Raises AssertionError unless two arrays agree up to rounding in their precision."""
    a = np.asarray(a)
    b = np.asarray(b)
    require(a.shape == b.shape, f"{what} have shapes {a.shape} and {b.shape}")
    error = largest(a - b)
    size = largest(b)
    agrees = error <= closeness(b.dtype) * size  # false for NaN
    require(agrees, f"{what} differ by {error:.3g} in values up to {size:.3g}")


def require_equal(a: np.ndarray, b: np.ndarray) -> None:
    """Raises AssertionError unless two arrays are equal to the last bit."""
    if not np.array_equal(a, b):
        raise AssertionError(f"they differ by {largest(a - b):.3g}")


def largest(array: Any) -> float:
    """The largest absolute value, zero for no entries."""
    return float(np.max(np.abs(array), initial=0.0))


def point(X: PyTree, index: int = 0) -> PyTree:
    """One point of a batch."""
    return points_at(X, index)
