"""Heuristics for where to start learning."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack

_MOST = 1000  # the largest number of points for distances


def median_lengthscale(X: ArrayLike, *, per_dimension: bool = False) -> Float[Array, "*d"]:
    """The median heuristic: the median distance between two different points of X (n, d), as a
    lengthscale to start from (Garreau et al. 2017).

    It is one number, or with `per_dimension` the median of `|x_j - z_j|` for each dimension j,
    times `sqrt(d)`, so that the squared distance in these lengthscales is of order one in both.
    Points that coincide are left out, and a constant dimension has the median 1. For more than 1000
    points, 1000 evenly spaced rows are used.

    X must be concrete: call it outside of `jit`.

    Raises ValueError for fewer than two points, or points that are not vectors.

    Examples:
        >>> X = jnp.array([[0.0], [1.0], [3.0]])
        >>> float(kernax.selection.median_lengthscale(X))  # of the distances 1, 2 and 3
        2.0
    """
    points = as_stack(X, "X")
    shape = getattr(points, "shape", None)
    if shape is None or len(shape) != 2 or len(points) < 2:
        came = f"is of type {type(points).__name__}" if shape is None else f"has shape {shape}"
        raise ValueError(f"X must be an array of at least two vectors (n, d), but {came}")
    n, d = points.shape
    places = np.linspace(0, n - 1, min(n, _MOST)).astype(int)
    rows = np.asarray(points, float)[places]
    upper = np.triu_indices(len(rows), 1)
    # One column at a time: the gaps of many columns together would take gigabytes.
    gaps = (np.abs(column[:, None] - column)[upper] for column in rows.T)
    if per_dimension:
        # l_j = sqrt(d) median |x_j - z_j|.
        medians = [_median(gap) * np.sqrt(d) for gap in gaps]
        return jnp.asarray(medians, points.dtype)
    # l = median |x - z|, |x - z|^2 = sum_j (x_j - z_j)^2.
    distances = np.sqrt(sum(gap**2 for gap in gaps))
    return jnp.asarray(_median(distances), points.dtype)


def _median(gaps: np.ndarray) -> float:
    """The median of the gaps that are not zero; 1 if all are."""
    positive = gaps[gaps > 0]
    return float(np.median(positive)) if len(positive) else 1.0
