"""The loss over two parameters, with the path of an optimiser."""

from typing import TYPE_CHECKING, Any

import numpy as np

from kernax.core.base.annotations import ArrayLike
from kernax.plot.style import (
    COLOURS,
    INK,
    MUTED,
    axes_or,
    check_names,
    legend_above,
    name_axes,
    plain,
    quieten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BANDS = 12
_SMOOTH = 8  # values along each axis, from which on there are contours


def loss_surface(
    first: ArrayLike,
    second: ArrayLike,
    losses: ArrayLike,
    *,
    path: ArrayLike | None = None,
    names: tuple[str, str] = ("parameter 1", "parameter 2"),
    log: bool | tuple[bool, bool] = False,
    loss: str = "loss",
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws the losses on a grid of two parameters as bands of colour, and the path of an
    optimiser.

    The bands are quantiles of the losses, narrower towards the lowest, since losses may differ by
    powers of ten. Cells with a loss of NaN or inf are hatched. The best cell has a square, the
    start of the path an open circle and its end a star.

    Arguments:
        first, second: (a,) and (b,), the values of the parameters, increasing; those along the
            horizontal axis first.
        losses: (a, b), such as `stats["losses"]` of `kernax.grid_search`.
        path: (steps, 2), the values of both parameters at the start and at each step, such as a
            callback of `minimise` records, which gets the best model so far. Rows of NaN, for steps
            that were not taken, are left out.
        names: the names of the parameters.
        log: whether the axes are logarithmic: one value for both, or one for each.
        loss: the name of the losses, for the colour bar.
        title: the title above the legend.
        ax: matplotlib axes to draw on; default, the axes of a new figure.

    Raises ValueError for other shapes, values that do not increase or, on a logarithmic axis, are
    not positive, and losses without a finite value.
    """
    from matplotlib.figure import Figure

    check_names(names, "of the two parameters")
    logs = (log, log) if isinstance(log, bool) else tuple(log)
    grid = (_axis(first, "first", logs[0]), _axis(second, "second", logs[1]))
    # Losses (a, b), NaN where they are not finite.
    array = np.asarray(losses, float)
    shape = tuple(map(len, grid))
    if array.shape != shape:
        raise ValueError(
            f"losses must have shape {shape}, a row for each value of the first parameter, but "
            f"have shape {array.shape}"
        )
    losses = np.where(np.isfinite(array), array, np.nan)
    if np.all(np.isnan(losses)):
        raise ValueError("losses must hold a finite value, but all are NaN or infinite")
    steps = None if path is None else _checked_path(path, logs)
    # A new figure has room for a colour bar.
    new = lambda: Figure(figsize=(5.4, 4.6), dpi=160, layout="constrained").subplots()
    ax = axes_or(ax, new)
    quieten(ax)
    ax.grid(visible=False)
    across, up = logs
    if across:
        ax.set_xscale("log")
    if up:
        ax.set_yscale("log")
    levels = _levels(losses)
    _draw_bands(ax, [_edges(*axis) for axis in zip(grid, logs)], losses, levels, loss)
    # Thin contours between the bands, where the grid is fine enough for smooth ones.
    inner = levels[1:-1]
    if len(inner) > 0 and min(losses.shape) >= _SMOOTH:
        masked = np.ma.masked_invalid(losses.T)
        style: dict[str, Any] = {"linewidths": 0.5, "linestyles": "solid", "alpha": 0.7}
        ax.contour(*grid, masked, levels=inner.tolist(), colors=["white"], **style)
    if steps is not None:
        _draw_path(ax, steps)
    # A square around the cell with the lowest loss.
    i, j = np.unravel_index(np.nanargmin(losses), losses.shape)
    square: dict[str, Any] = {"s": 52, "marker": "s", "facecolors": "none", "edgecolors": INK}
    best = f"best cell, {losses[i, j]:.4g}"
    ax.scatter(grid[0][i], grid[1][j], linewidths=1.3, zorder=6, label=best, **square)
    name_axes(ax, *names)
    legend_above(ax, title)
    return ax


def _axis(values: ArrayLike, name: str, log: bool) -> np.ndarray:
    axis = np.asarray(values, float)
    if axis.ndim != 1 or len(axis) < 2 or not np.all(np.diff(axis) > 0):
        raise ValueError(
            f"{name} must be two or more increasing values, but has shape {axis.shape}: {axis}"
        )
    if not np.all(np.isfinite(axis)) or (log and axis[0] <= 0):
        kind = "positive and finite on a logarithmic axis" if log else "finite"
        raise ValueError(f"{name} must be {kind}, but is {axis}")
    return axis


def _checked_path(path: ArrayLike, logs: tuple[bool, ...]) -> np.ndarray:
    steps = np.asarray(path, float)
    if steps.ndim != 2 or steps.shape[1] != 2:
        raise ValueError(
            f"path must have shape (steps, 2), both parameters at each step, but has shape "
            f"{steps.shape}"
        )
    taken = steps[np.all(np.isfinite(steps), 1)]
    if len(taken) == 0 or np.any(taken[:, np.array(logs)] <= 0):
        raise ValueError(
            "path must hold a step without NaN, and positive values on logarithmic axes"
        )
    return taken


def _edges(axis: np.ndarray, log: bool) -> np.ndarray:
    """The edges of cells around the values of an axis: half way between them."""
    places = np.log(axis) if log else axis
    middles = (places[1:] + places[:-1]) / 2
    first = 2 * places[0] - middles[0]
    last = 2 * places[-1] - middles[-1]
    edges = np.concatenate([[first], middles, [last]])
    return np.exp(edges) if log else edges


def _levels(losses: np.ndarray) -> np.ndarray:
    """The ends of bands: quantiles of the finite losses, closer together near the lowest."""
    finite = losses[np.isfinite(losses)]
    shares = np.linspace(0, 1, _BANDS + 1) ** 1.5
    levels = np.unique(np.quantile(finite, shares))
    if len(levels) == 1:
        room = abs(levels[0]) or 1.0
        return np.array([levels[0], levels[0] + room])
    return levels


def _draw_bands(
    ax: "Axes", edges: list[np.ndarray], losses: np.ndarray, levels: np.ndarray, name: str
) -> None:
    """Each cell in the colour of its band, with a colour bar; hatched where there is no loss."""
    from matplotlib import colormaps
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import BoundaryNorm

    tints = colormaps["cividis_r"]
    norm = BoundaryNorm(levels, tints.N)
    mesh = ax.pcolormesh(*edges, losses.T, cmap=tints, norm=norm, rasterized=True, linewidth=0)
    # Hatched rectangles where there is no loss, with one entry in the legend.
    corners = []
    for i, j in np.argwhere(np.isnan(losses)):
        left, right = edges[0][i : i + 2]
        low, high = edges[1][j : j + 2]
        corners.append([(left, low), (right, low), (right, high), (left, high)])
    if corners:
        style: dict[str, Any] = {"facecolors": "#f1f1f4", "edgecolors": "#a8a8b2", "linewidths": 0}
        ax.add_collection(PolyCollection(corners, hatch="////", label="not finite", **style))
    ax.set(xlim=(edges[0][0], edges[0][-1]), ylim=(edges[1][0], edges[1][-1]))
    # The colour bar has a number at every other end of a band.
    figure = ax.figure
    bar = figure.colorbar(mesh, ax=ax, shrink=0.9, spacing="uniform", ticks=levels[::2].tolist())
    bar.ax.set_yticklabels(_few_digits(levels[::2]))
    bar.ax.minorticks_off()
    bar.ax.tick_params(colors=MUTED, labelsize="small", length=3)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.set_label(plain(name), color=INK)


def _few_digits(values: np.ndarray) -> list[str]:
    """Numbers with as many digits as neighbours need to differ, at least three."""
    for digits in range(3, 9):
        texts = [f"{value:.{digits}g}" for value in values]
        if len(set(texts)) == len(texts):
            return texts
    return [f"{value:.9g}" for value in values]


def _draw_path(ax: "Axes", steps: np.ndarray) -> None:
    """The path as a line with a dot for each step, its start and its end."""
    from matplotlib.patheffects import Normal, Stroke

    outline = [Stroke(linewidth=3.0, foreground="white"), Normal()]
    ax.plot(*steps.T, color=COLOURS[1], linewidth=1.4, path_effects=outline, zorder=4)
    marks: dict[str, Any] = {"edgecolors": INK, "linewidths": 0.9}
    ax.scatter(*steps.T, s=7, color=COLOURS[1], zorder=5, linewidths=0)
    ax.scatter(*steps[:1].T, s=42, facecolors="white", zorder=6, label="start", **marks)
    star = {"s": 130, "marker": "*", "color": COLOURS[1], "label": "end of the path"}
    ax.scatter(*steps[-1:].T, zorder=7, **star, **marks)
    ax.set_xlim(_widened(ax.get_xlim(), steps[:, 0], ax.get_xscale() == "log"))
    ax.set_ylim(_widened(ax.get_ylim(), steps[:, 1], ax.get_yscale() == "log"))


def _widened(limits: tuple[float, float], values: np.ndarray, log: bool) -> tuple[float, float]:
    """The limits of an axis, and a margin beyond those that values leave."""
    to_places = np.log if log else np.asarray
    low, high = to_places(np.array(limits))
    places = to_places(values)
    margin = 0.04 * (high - low)
    if places.min() < low:
        low = places.min() - margin
    if places.max() > high:
        high = places.max() + margin
    ends = np.array([low, high])
    first, last = np.exp(ends) if log else ends
    return float(first), float(last)
