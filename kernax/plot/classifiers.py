"""Pictures of classifiers: decision regions, and histograms of decision values."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_count
from kernax.plot.components import two_columns
from kernax.plot.style import (
    INK,
    axes_or,
    check_names,
    colour_of,
    columns,
    dot_size,
    draw_groups,
    draw_levels,
    labels_of,
    legend_above,
    name_axes,
    plain,
    quieten,
    square_axes,
    wide_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID = 200  # points along each axis at which a classifier is evaluated


def decision_regions(
    f: Callable[[Array], Array],
    X: ArrayLike,
    labels: Any,
    *,
    support: ArrayLike | None = None,
    marked: ArrayLike | None = None,
    marked_as: str = "vector",
    classes: Sequence[Any] | None = None,
    names: tuple[str, str] = ("x1", "x2"),
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws the class that a classifier predicts at each point of the plane, and the data.

    Arguments:
        f: a function of one point, such as a `KernelExpansion`. Its value is a number with a sign
            that decides between two classes, or one number for each class, the largest of which
            decides, as in the function of `KernelClusters`.
        X: shape (n, 2).
        labels: (n,), numbers or strings.
        support: (n,) booleans, true for support vectors. They get rings, and there are dashed lines
            where `f = -1` and `f = 1`.
        marked: (n,) booleans, true for other points that get rings, such as relevance vectors;
            marked_as: their name.
        classes: all classes in the order of the values of f; default, sorted, as `signs` and
            `one_hot` sort.
        names: the names of the two inputs.
        title: a title, such as that of `score_title`.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for other shapes, labels that are not among the classes, and a function of
    another number of classes.
    """
    check_names(names, "of the two inputs")
    points = two_columns(X)
    labels = labels_of(labels, len(points))
    classes = list(np.unique(labels)) if classes is None else list(classes)
    strangers = sorted(set(labels.tolist()) - set(classes), key=str)
    if strangers:
        raise ValueError(
            f"labels hold {strangers[0]!r}, which is not among the classes "
            f"{', '.join(map(str, classes))}"
        )
    ax = axes_or(ax, square_axes)
    # The regions of the classes around the points.
    across = _range(points[:, 0])
    up = _range(points[:, 1])
    grid = np.linspace(*across, _GRID), np.linspace(*up, _GRID)
    # f at every point of a grid: (rows, columns), or (rows, columns, classes).
    number = len(classes)
    of_grid = jnp.asarray(np.stack(np.meshgrid(*grid), -1).reshape(-1, 2))
    values = np.asarray(jax.lax.map(f, of_grid, batch_size=1000)).reshape(_GRID, _GRID, -1)
    if values.shape[-1] == 1 and number == 2:
        values = values[..., 0]
    elif values.shape[-1] != number or number < 2:
        raise ValueError(
            f"f must have a value for each of {number} classes, or one for two, but has "
            f"{values.shape[-1]}"
        )
    # Regions in the colours of the classes, and lines between them.
    if values.ndim == 2:
        _tint(ax, grid, (values > 0).astype(int), 2)
        draw_levels(ax, grid, values, [0.0], linewidths=1.3)
    else:
        _tint(ax, grid, values.argmax(-1), number)
        for i in range(number):
            # The boundary of a class is where its value equals the largest of the others.
            lead = values[..., i] - np.delete(values, i, axis=-1).max(-1)
            draw_levels(ax, grid, lead, [0.0], linewidths=0.9)
    if support is not None and values.ndim == 2:
        # Dashed lines show the margins, where the values are -1 and 1.
        draw_levels(ax, grid, values, [-1.0, 1.0], linewidths=0.8, linestyles="dashed")
    ax.set(xlim=across, ylim=up)
    # Each point has the shape and the colour of its class.
    size = _size(len(points))
    style: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.5, "zorder": 3}
    draw_groups(ax, points, labels, classes, s=size, **style)
    if support is not None:
        _draw_rings(ax, points, _mask(support, len(points), "support"), "support vector")
    if marked is not None:
        _draw_rings(ax, points, _mask(marked, len(points), "marked"), marked_as)
    name_axes(ax, *names)
    quieten(ax)
    ax.grid(visible=False)
    legend_above(ax, title)
    return ax


def _draw_rings(ax: "Axes", points: np.ndarray, chosen: np.ndarray, name: str) -> None:
    size = 3.2 * _size(len(points))
    style: dict[str, Any] = {"facecolors": "none", "edgecolors": INK, "linewidths": 0.9}
    ax.scatter(*points[chosen].T, s=size, zorder=4, label=plain(name), **style)


@renamed(bins="n_bins")
def values_of_classes(
    values: ArrayLike,
    labels: Any,
    *,
    n_bins: int = 24,
    name: str = "decision value",
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws the distribution of decision values, as stacked histograms of the classes.

    A line marks zero, where the decision changes.

    Arguments:
        values: (n,), the decision values.
        labels: (n,), numbers or strings.
        n_bins: the number of bins; there may be one more, because zero is an edge.
        name: the name of the values.
        title: a title, such as that of `score_title`.
        ax: matplotlib axes to draw on; default, the axes of a new figure.

    Raises ValueError for shapes that differ, or values that are not finite.
    """
    check_count(n_bins, "n_bins")
    (values,) = columns(values=values)
    labels = labels_of(labels, len(values))
    ax = axes_or(ax, wide_axes)
    groups = {label: values[labels == label] for label in np.unique(labels)}
    texts = [f"{plain(str(label))} ({len(group)})" for label, group in groups.items()]
    colours = [colour_of(i) for i in range(len(groups))]
    style: dict[str, Any] = {"alpha": 0.75, "edgecolor": "white", "linewidth": 0.6}
    bars = list(groups.values())
    # Edges of bins of equal width; zero is an edge, so that no bar covers both signs.
    span = max(values.max(), 0.0) - min(values.min(), 0.0)
    width = span / n_bins or 1.0
    first = np.floor(values.min() / width)
    last = max(np.ceil(values.max() / width), first + 1)
    edges = width * np.arange(first, last + 0.5)
    ax.hist(bars, edges.tolist(), stacked=True, color=colours, label=texts, **style)
    ax.axvline(0, color=INK, linewidth=1.2)
    name_axes(ax, name, "points")
    quieten(ax)
    legend_above(ax, title)
    return ax


def _tint(ax: "Axes", grid: tuple[np.ndarray, np.ndarray], place: np.ndarray, count: int) -> None:
    """Every point of a grid in the colour of its class; `count` is the number of classes."""
    from matplotlib.colors import ListedColormap

    tints = ListedColormap([colour_of(i) for i in range(count)])
    limits: dict[str, Any] = {"vmin": -0.5, "vmax": count - 0.5}
    style: dict[str, Any] = {"alpha": 0.16, "rasterized": True, "linewidth": 0}
    ax.pcolormesh(*grid, place, cmap=tints, shading="nearest", **limits, **style)


def _mask(chosen: ArrayLike, n: int, name: str) -> np.ndarray:
    mask = np.asarray(chosen)
    if mask.shape != (n,) or mask.dtype != bool:
        raise ValueError(
            f"{name} must be ({n},) booleans, one per point, but is {mask.dtype} of shape "
            f"{mask.shape}"
        )
    return mask


def _size(n: int) -> float:
    return dot_size(n, total=2400.0, least=8.0, most=30.0)


def _range(values: np.ndarray) -> tuple[float, float]:
    """The range of an axis: that of the values, and a margin."""
    margin = 0.08 * float(np.ptp(values)) or 1.0
    return float(values.min()) - margin, float(values.max()) + margin
