"""Points in a space of two components."""

from typing import TYPE_CHECKING, Any

import numpy as np

from kernax.core.base.annotations import ArrayLike
from kernax.plot.style import (
    INK,
    axes_or,
    check_names,
    columns,
    dot_size,
    draw_groups,
    labels_of,
    legend_inside,
    name_axes,
    quieten,
    square_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def embedding(
    points: ArrayLike,
    *,
    labels: Any = None,
    names: tuple[str, str] = ("component 1", "component 2"),
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws points in a space of two components, in the colours of their labels.

    Arguments:
        points: shape (n, 2), such as `f.values(X)` of two kernel principal components, or two
            columns of the embedding of spectral clustering.
        labels: (n,), numbers or strings; default, one colour. Beyond ten labels, colours repeat
            with another marker.
        names: the names of the two axes.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for other shapes, and points that are not finite.
    """
    check_names(names, "of the two components")
    points = two_columns(points)
    ax = axes_or(ax, square_axes)
    size = dot_size(len(points), total=2000.0, least=6.0, most=26.0)
    style = {"s": size, "edgecolors": "white", "linewidths": 0.4, "zorder": 3}
    if labels is None:
        ax.scatter(*points.T, color=INK, **style)
    else:
        draw_groups(ax, points, labels_of(labels, len(points)), **style)
    name_axes(ax, *names)
    quieten(ax)
    if labels is not None:
        legend_inside(ax)
    return ax


def two_columns(X: ArrayLike) -> np.ndarray:
    """X as an array (n, 2). Raises ValueError for another shape and for values not finite."""
    X = np.asarray(X, float)
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"X must have shape (n, 2), two inputs a point, but has shape {X.shape}")
    return np.stack(columns(x1=X[:, 0], x2=X[:, 1]), 1)
