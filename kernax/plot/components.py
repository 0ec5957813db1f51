"""Pictures of components: fields of functions over the plane, and points in a space of two."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from kernax.plot.style import (
    COLOURS,
    INK,
    check_names,
    colour_of,
    columns,
    dot_size,
    draw_levels,
    labels_of,
    legend_inside,
    marker_of,
    name_axes,
    plain,
    quieten,
    square_axes,
    title_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = 120  # places along each axis at which a function is evaluated
_LEVELS = 13  # bands of a field


def component_fields(
    f: Callable[[Array], Array],
    X: ArrayLike,
    *,
    labels: Any = None,
    names: tuple[str, str] = ("x1", "x2"),
    title: str = "component",
) -> "list[Axes]":
    """The values of each output of f over the plane, side by side, with the points.

    Arguments:
        f: a function of one point with several outputs, such as the projections of kernel principal
            components, at most four of which are drawn.
        X: shape (n, 2).
        labels: (n,), which decide the colours of the points; default, one colour.
        names: of the two inputs.
        title: of each picture, before its number.

    Returns:
        The axes, one for each output, on a new figure.

    Raises ValueError for other shapes.
    """
    check_names(names, "of the two inputs")
    points = two_columns(X)
    grid = [_margined(column) for column in points.T]
    values = _values_on(f, grid)
    axes = _row_of_axes(min(values.shape[-1], 4))
    for j, ax in enumerate(axes):
        _draw_field(ax, grid, values[..., j])
        _draw_groups(ax, points, labels)
        name_axes(ax, *names)
        title_axes(ax, f"{title} {j + 1}")
    return axes


def embedding(
    points: ArrayLike,
    *,
    labels: Any = None,
    names: tuple[str, str] = ("component 1", "component 2"),
    ax: "Axes | None" = None,
) -> "Axes":
    """Points in a space of two components, in the colours of their labels.

    Arguments:
        points: shape (n, 2), such as `f.values(X)` of two kernel principal components, or two
            columns of the embedding of spectral clustering.
        labels: (n,), numbers or words; default, one colour. Beyond ten different ones, colours
            come again with another mark.
        names: of the two axes.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for other shapes, and points that are not finite.
    """
    check_names(names, "of the two components")
    points = two_columns(points)
    ax = square_axes() if ax is None else ax
    _draw_groups(ax, points, labels)
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


def _margined(column: np.ndarray) -> np.ndarray:
    """Places along an axis, a little beyond all values."""
    margin = 0.1 * float(np.ptp(column)) or 1.0
    return np.linspace(column.min() - margin, column.max() + margin, _GRID)


def _values_on(f: Callable, grid: list[np.ndarray]) -> np.ndarray:
    """f at every place of a grid, (rows, columns, outputs)."""
    places = jnp.asarray(np.stack(np.meshgrid(*grid), -1).reshape(-1, 2))
    values = np.asarray(jax.lax.map(f, places, batch_size=1000))
    return values.reshape(_GRID, _GRID, -1)


def _row_of_axes(count: int) -> "list[Axes]":
    """Axes side by side on a new figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * count, 3.2), dpi=160, layout="constrained")
    return list(figure.subplots(1, count, squeeze=False)[0])


def _draw_field(ax: "Axes", grid: list[np.ndarray], values: np.ndarray) -> None:
    """Bands of equal value, blue below zero and red above, and the line where it is zero."""
    from matplotlib.colors import LinearSegmentedColormap

    most = float(np.max(np.abs(values))) or 1.0
    tints = LinearSegmentedColormap.from_list("field", [COLOURS[0], "white", COLOURS[1]])
    levels = np.linspace(-most, most, _LEVELS).tolist()
    ax.contourf(*grid, values, levels=levels, cmap=tints, alpha=0.75)
    draw_levels(ax, grid, values, [0.0], linewidths=0.9)
    quieten(ax)
    ax.grid(visible=False)


def _draw_groups(ax: "Axes", points: np.ndarray, labels: Any) -> None:
    """A mark for each point, in the shape and the colour of its label."""
    style = _dots(len(points))
    if labels is None:
        ax.scatter(*points.T, color=INK, **style)
        return
    labels = labels_of(labels, len(points))
    for i, name in enumerate(np.unique(labels)):
        of_group = points[labels == name]
        mark = {"color": colour_of(i), "marker": marker_of(i), "label": plain(str(name))}
        ax.scatter(*of_group.T, **mark, **style)


def _dots(n: int) -> dict[str, Any]:
    """How n dots are drawn."""
    size = dot_size(n, total=2000.0, least=6.0, most=26.0)
    return {"s": size, "edgecolors": "white", "linewidths": 0.4, "zorder": 3}
