"""Pictures of fits to numbers: predictions, bands, and the loss while learning."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import ArrayLike

from kernax.plot.style import (
    DOT,
    INK,
    LINE,
    check_names,
    columns,
    dot_size,
    legend_inside,
    limits,
    name_axes,
    quieten,
    square_axes,
    title_axes,
    wide_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def predicted_against_true(
    true: ArrayLike, predicted: ArrayLike, *, name: str = "target", ax: "Axes | None" = None
) -> "Axes":
    """Predictions over true values, with the diagonal; the title has the root mean square error.

    Arguments:
        true, predicted: shape (n,), n >= 1, in the same units.
        name: that of the values, for the labels of both axes.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for shapes that differ or values that are not finite.
    """
    true, predicted = columns(true=true, predicted=predicted)
    ax = square_axes() if ax is None else ax
    low, high = limits(true, predicted)
    ax.plot([low, high], [low, high], color=LINE, linewidth=1.2, zorder=1)
    _draw_predictions(ax, true, predicted)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    error = np.sqrt(np.mean((predicted - true) ** 2))
    name_axes(ax, f"true {name}", f"predicted {name}")
    title_axes(ax, f"{len(true)} points, RMSE {error:.4g}")
    quieten(ax)
    return ax


def _draw_predictions(ax: "Axes", true: np.ndarray, predicted: np.ndarray) -> None:
    """A dot for each prediction over its true value."""
    size = dot_size(len(true), total=2400.0, least=6.0, most=32.0)
    style: dict[str, Any] = {"alpha": 0.65, "edgecolors": "white", "linewidths": 0.5}
    ax.scatter(true, predicted, s=size, color=DOT, zorder=2, **style)


def posterior_band(
    x: ArrayLike,
    mean: ArrayLike,
    deviation: ArrayLike,
    *,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
    names: tuple[str, str] = ("x", "y"),
    ax: "Axes | None" = None,
) -> "Axes":
    """A mean over one input, with a band of two standard deviations on either side.

    Arguments:
        x, mean, deviation: shape (n,), x in any order. The deviation of targets is
            `sqrt(variance + noise)`.
        observed, held_out: points to draw, pairs (x, y): those the fit is conditioned on, and
            others.
        names: of the input and the output, for the axes.
        ax: matplotlib axes to draw on; default, the axes of a new figure.

    Raises ValueError for shapes that differ or values that are not finite.
    """
    check_names(names, "of the input and the output, such as ('x', 'y')")
    x, mean, deviation = columns(x=x, mean=mean, deviation=deviation)
    ax = wide_axes() if ax is None else ax
    order = np.argsort(x)
    _draw_band(ax, x[order], mean[order], deviation[order])
    if observed is not None:
        _draw_points(ax, observed, INK, "observed")
    if held_out is not None:
        _draw_points(ax, held_out, LINE, "held out")
    name_axes(ax, *names)
    legend_inside(ax)
    quieten(ax)
    return ax


def _draw_band(ax: "Axes", x: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> None:
    """The mean as a line, and two deviations on either side as an area; x is sorted."""
    low = mean - 2 * deviation
    high = mean + 2 * deviation
    ax.fill_between(x, low, high, color=DOT, alpha=0.18, linewidth=0, label="two sigma")
    ax.plot(x, mean, color=DOT, linewidth=1.4, label="mean")


def _draw_points(ax: "Axes", points: tuple[ArrayLike, ArrayLike], colour: str, label: str) -> None:
    """A dot for each of the points (x, y), smaller where there are many."""
    x, y = columns(x=points[0], y=points[1])
    size = dot_size(len(x), total=1200.0, least=3.0, most=20.0)
    ax.scatter(x, y, s=size, color=colour, linewidths=0, zorder=3, label=label)


def learning_curve(losses: ArrayLike, *, name: str = "loss", ax: "Axes | None" = None) -> "Axes":
    """The loss at every step, and the smallest so far.

    Losses are `solution.stats["losses"]` of `minimise`, NaN for steps that were not taken.
    """
    losses = np.asarray(losses, float)
    if losses.ndim != 1 or not np.any(np.isfinite(losses)):
        raise ValueError(
            f"losses must have shape (steps,) and hold a finite one, but have shape {losses.shape}"
        )
    ax = wide_axes() if ax is None else ax
    steps = np.flatnonzero(np.isfinite(losses))
    ax.plot(steps, losses[steps], ".", color=DOT, markersize=4, label="each step")
    best = np.minimum.accumulate(losses[steps])
    ax.plot(steps, best, color=LINE, linewidth=1.2, label="best so far")
    name_axes(ax, "step", name)
    legend_inside(ax)
    quieten(ax)
    return ax
