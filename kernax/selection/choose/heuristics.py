"""Heuristics for where to start learning."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import as_stack, count

_MOST = 1000  # the largest number of points for distances


def median_lengthscale(X: PyTree, *, per_dimension: bool = False) -> Float[Array, "*d"]:
    """The median heuristic: the median distance between two different points of X (n, d), as a
    lengthscale to start from (Garreau et al. 2017).

    It is one number, or with `per_dimension` the median of `|x_j - z_j|` for each dimension j,
    times `sqrt(d)`, so that the squared distance in these lengthscales is of order one in both.
    Points that coincide are left out, and a constant dimension has the median 1. Of more than 1000
    points, or vectors of series, 1000 evenly spaced ones are used.

    For time series, X (n, L, d) or what `kernels.GlobalAlignment.pad` returns, it is the median
    distance between two vectors of the series, times the root of the median length: the lengthscale
    that Cuturi (2011) suggests for the kernel in a `GlobalAlignment`.

    X must be concrete: call it outside of `jit`.

    Raises ValueError for fewer than two points, or points that are neither vectors nor series.

    Examples:
        >>> X = jnp.array([[0.0], [1.0], [3.0]])
        >>> float(kernax.selection.median_lengthscale(X))  # of the distances 1, 2 and 3
        2.0
    """
    points: Any = as_stack(X, "X")
    # A pair of series and their lengths.
    is_padded = (
        isinstance(points, tuple)
        and len(points) == 2
        and np.ndim(points[1]) == 1
        and jnp.issubdtype(points[1].dtype, jnp.integer)
    )
    values: Any = points[0] if is_padded else points
    lengths: Any = points[1] if is_padded else None
    is_array = hasattr(points, "shape")
    shape: tuple[int, ...] = getattr(values, "shape", ())
    of_vectors = not is_padded and len(shape) == 2
    of_series = len(shape) == 3
    if not (of_vectors or of_series) or count(points) < 2:
        came = f"has shape {shape}" if is_array else f"is of type {type(points).__name__}"
        raise ValueError(
            "X must be an array of at least two vectors (n, d), or time series: an array (n, L, d) "
            f"or what kernax.kernels.GlobalAlignment.pad returns, but {came}"
        )
    dtype = values.dtype
    root_of_length = 1.0
    if of_series:
        lengths = np.full(shape[0], shape[1]) if lengths is None else np.asarray(lengths)
        # The distance of two series of L steps is about sqrt(L) times that of two steps.
        values = np.asarray(values)[np.arange(shape[1]) < lengths[:, None]]
        root_of_length = np.sqrt(np.median(lengths))
    n, d = values.shape
    places = np.linspace(0, n - 1, min(n, _MOST)).astype(int)
    rows = np.asarray(values, float)[places]
    upper = np.triu_indices(len(rows), 1)
    # One column at a time: the gaps of many columns together would take gigabytes.
    gaps = (np.abs(column[:, None] - column)[upper] for column in rows.T)
    if per_dimension:
        # l_j = sqrt(d) median |x_j - z_j|.
        medians = [root_of_length * _median(gap) * np.sqrt(d) for gap in gaps]
        return jnp.asarray(medians, dtype)
    # l = median |x - z|, |x - z|^2 = sum_j (x_j - z_j)^2.
    distances = np.sqrt(sum(gap**2 for gap in gaps))
    return jnp.asarray(root_of_length * _median(distances), dtype)


def _median(gaps: np.ndarray) -> float:
    """The median of the gaps that are not zero; 1 if all are."""
    positive = gaps[gaps > 0]
    return float(np.median(positive)) if len(positive) else 1.0
