"""Makes sparse tables of SciPy dense if they fit into memory, whole or a block at a time."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from scipy.sparse import issparse

from kernax.core.operators.memory import available_memory, in_gib
from kernax.errors import MemoryBudgetError
from kernax.sklearn.rows import padded_size

_COPIES = 3  # of a dense table: as it is made, padded, and on the device
_SMALL = 2**30  # bytes that any machine has
_BLOCK = 2**28  # bytes of the rows that are made dense at a time for predictions


def dense(X: Any, dtype: Any) -> np.ndarray:
    """The rows of a table as a dense array of a dtype.

    Raises MemoryBudgetError, before anything is allocated, for a sparse table that would not fit.
    """
    if not issparse(X):
        return np.asarray(X, dtype)
    needed = _COPIES * padded_size(X.shape[0]) * X.shape[1] * np.dtype(dtype).itemsize
    available = available_memory(jax.devices()[:1]) if needed > _SMALL else needed
    if needed > available:
        raise MemoryBudgetError(
            f"{in_gib(needed)} needed to make the sparse X of shape {X.shape} dense, "
            f"{in_gib(available)} available; take kernax.sklearn.Nystroem(kernel, "
            "n_components=1000) before an estimator with kernel='linear', which makes only those "
            "rows dense, or fewer columns, as by sklearn.decomposition.TruncatedSVD"
        )
    return X.toarray().astype(dtype, copy=False)


def canonical(X: Any) -> Any:
    """A sparse table without duplicate entries; any other table unchanged."""
    if not issparse(X) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def variance_of(X: Any) -> float:
    """The variance of all entries of a table; absent entries of a sparse table are zero."""
    if not issparse(X):
        return float(np.asarray(X, float).var())
    # sum_ij (x_ij - m)^2 = sum of (x - m)^2 over the entries that are there + m^2 for each other
    values = X.data.astype(float)
    count = X.shape[0] * X.shape[1]
    mean = values.sum() / count
    return float((np.sum((values - mean) ** 2) + (count - len(values)) * mean**2) / count)


def in_blocks(of_rows: Callable[[Any], Any], X: Any) -> Any:
    """The results of a function for all rows of a table, in NumPy.

    Rows of a sparse table that would be large as an array are processed a block at a time.
    """
    if not issparse(X) or X.ndim != 2:
        return of_rows(X)
    count = max(1, _BLOCK // max(1, X.shape[1] * 8))
    if X.shape[0] <= count:
        return of_rows(X)
    rows = X.tocsr()
    parts = [of_rows(rows[start : start + count]) for start in range(0, X.shape[0], count)]
    return jax.tree.map(lambda *values: np.concatenate(values), *parts)
