"""Conversion and checks of matrices that users pass to a kernel."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from kernax.core.base.parameters import as_floats
from kernax.core.operators.memory import check_numbers


def as_matrix(value: Any, name: str) -> Array:
    """A matrix as an array of floats.

    Raises MemoryBudgetError for a view of NumPy, such as one that repeats a row, whose numbers do
    not fit into memory.
    """
    if isinstance(value, np.ndarray):
        is_float = np.issubdtype(value.dtype, np.floating)
        check_numbers(
            value.size,
            jax.dtypes.canonicalize_dtype(value.dtype if is_float else float),
            function_name="Precomputed",
            what=f"a matrix of shape {value.shape}",
            instead="take fewer points",
        )
    return as_floats(value, name)


def matrix_or_none(value: Any, name: str) -> Array | None:
    """`as_matrix`, or None."""
    return None if value is None else as_matrix(value, name)


def check_symmetric(K: np.ndarray, name: str, tolerance: float) -> None:
    """Raises ValueError unless a square matrix is symmetric, to a fraction of its largest entry."""
    apart = np.abs(K - K.T).max()
    if apart > tolerance * np.abs(K).max():
        raise ValueError(
            f"{name} must be symmetric, but {name} and {name}.T differ by up to {apart:.3g}: its "
            f"symmetric part is ({name} + {name}.T) / 2"
        )
