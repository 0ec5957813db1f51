"""Assertions with words."""

from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree


def require(condition: Any, message: str) -> None:
    """Raises AssertionError with a message unless a condition holds."""
    if not condition:
        raise AssertionError(message)


def closeness(dtype: Any) -> float:
    """How far two ways to compute one number may be apart, as a fraction of the largest number around."""
    return 1e-10 if dtype == np.float64 else 1e-4


def require_close(a: Any, b: Any, what: str, dtype: Any = None) -> None:
    """Raises AssertionError unless two arrays agree up to rounding in their precision."""
    a, b, dtype = np.asarray(a), np.asarray(b), np.asarray(b).dtype if dtype is None else dtype
    require(a.shape == b.shape, f"{what} have shapes {a.shape} and {b.shape}")
    error, size = np.max(np.abs(a - b), initial=0.0), np.max(np.abs(b), initial=0.0)
    require(error <= closeness(dtype) * size, f"{what} differ by {error:.3g} in values up to {size:.3g}")  # NaN fails too


def point(X: PyTree, place: int = 0) -> PyTree:
    """One point of a stack."""
    return jax.tree.map(lambda leaf: leaf[place], X)
