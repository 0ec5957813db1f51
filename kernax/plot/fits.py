"""Pictures of regression: predictions against true values, and bands."""

from typing import TYPE_CHECKING, Any

import numpy as np

from kernax.core.base.annotations import ArrayLike
from kernax.metrics import negative_log_predictive_density, root_mean_square_error
from kernax.plot.style import (
    DOT,
    INK,
    LINE,
    axes_or,
    check_names,
    columns,
    dot_size,
    legend_above,
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
    true: ArrayLike,
    predicted: ArrayLike,
    *,
    deviation: ArrayLike | None = None,
    name: str = "target",
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws predictions against true values, with the diagonal.

    With deviations each prediction has a bar of two deviations on either side; if it does not reach
    the diagonal, the prediction is a diamond in another colour. The legend counts these: with
    normal distributions and the right deviations they are one in twenty.

    Arguments:
        true, predicted: shape (n,), n >= 1, in the same units.
        deviation: (n,), the standard deviations of targets; for a process, `sqrt(variance +
            noise)`.
        name: the name of the values, for the labels of both axes.
        title: a title, such as that of `score_title`; default, the number of points and the root
            mean square error, and with deviations the mean negative log predictive density.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for shapes that differ, values that are not finite, and deviations that are
    not positive.
    """
    true, predicted = columns(true=true, predicted=predicted)
    spread = None
    if deviation is not None:
        _, spread = columns(true=true, deviation=deviation)
        if np.any(spread <= 0):
            raise ValueError(f"deviation must be positive, but the least is {spread.min():g}")
    ax = axes_or(ax, square_axes)
    ends = predicted
    if spread is not None:
        # One in twenty of the bars may lie outside of the axes.
        low = np.quantile(predicted - 2 * spread, 0.05)
        high = np.quantile(predicted + 2 * spread, 0.95)
        ends = np.append(predicted, [low, high])
    low, high = limits(true, ends)
    ax.plot([low, high], [low, high], color=LINE, linewidth=1.2, zorder=1)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    if spread is None:
        ax.scatter(true, predicted, color=DOT, zorder=2, **_dots(len(true)))
    else:
        # Predictions with a bar that does not reach the diagonal are diamonds.
        reach = 2 * spread
        beyond = np.abs(true - predicted) > reach
        groups = (("o", DOT, ~beyond, "within two sigma"), ("D", LINE, beyond, "beyond two sigma"))
        faint = float(np.clip(60 / len(true), 0.15, 0.45))
        for marker, colour, chosen, label in groups:
            x = true[chosen]
            y = predicted[chosen]
            bars = {"color": colour, "linewidth": 1.0, "alpha": faint, "zorder": 1.5}
            ax.vlines(x, y - reach[chosen], y + reach[chosen], **bars)
            text = f"{label} ({len(x)})"
            ax.scatter(x, y, color=colour, marker=marker, label=text, zorder=2, **_dots(len(true)))
    name_axes(ax, f"true {name}", f"predicted {name}")
    quieten(ax)
    if title is None:
        error = root_mean_square_error(true, predicted)
        title = f"{len(true)} points, RMSE {float(error):.4g}"
        if spread is not None:
            density = negative_log_predictive_density(true, predicted, np.square(spread))
            title = f"{title}, NLPD {float(density):.4g}"
    if spread is None:
        title_axes(ax, title)
    else:
        legend_above(ax, title)
    return ax


def _dots(n: int) -> dict[str, Any]:
    size = dot_size(n, total=2400.0, least=6.0, most=32.0)
    return {"s": size, "alpha": 0.65, "edgecolors": "white", "linewidths": 0.5}


def posterior_band(
    x: ArrayLike,
    mean: ArrayLike,
    deviation: ArrayLike,
    *,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
    learned_until: float | int | None = None,
    names: tuple[str, str] = ("x", "y"),
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws a mean over one input, with a band of two standard deviations on either side.

    Arguments:
        x, mean, deviation: shape (n,), x in any order. The deviation of targets is
            `sqrt(variance + noise)`.
        observed, held_out: points to draw, pairs (x, y): those the fit is conditioned on, and
            others.
        learned_until: where the training data end and the forecast begins. A dashed line marks it,
            the forecast has a grey background, and both sides are named above the axes.
        names: the names of the input and the output, for the axes.
        title: a title, such as that of `score_title`.
        ax: matplotlib axes to draw on; default, the axes of a new figure.

    Raises ValueError for shapes that differ, values that are not finite, and a `learned_until` that
    is not between the smallest and the largest x.
    """
    check_names(names, "of the input and the output, such as ('x', 'y')")
    x, mean, deviation = columns(x=x, mean=mean, deviation=deviation)
    order = np.argsort(x)
    x, mean, deviation = (values[order] for values in (x, mean, deviation))
    if learned_until is not None and not x[0] < learned_until < x[-1]:
        raise ValueError(
            f"learned_until must lie between the smallest and the largest x, {x[0]:g} and "
            f"{x[-1]:g}, but is {learned_until!r}: draw the band beyond it as well"
        )
    ax = axes_or(ax, wide_axes)
    band = {"color": DOT, "alpha": 0.22, "linewidth": 0, "label": "two sigma"}
    ax.fill_between(x, mean - 2 * deviation, mean + 2 * deviation, **band)
    ax.plot(x, mean, color=DOT, linewidth=1.4, label="mean")
    if observed is not None:
        _draw_points(ax, observed, INK, "observed")
    if held_out is not None:
        _draw_points(ax, held_out, LINE, "held out", marker="D")
    if learned_until is not None:
        # A line where the forecast begins, grey beyond it, and the names of both sides.
        place = float(learned_until)
        ends = ax.get_xlim()
        ax.axvspan(place, ends[1], color=INK, alpha=0.06, linewidth=0, zorder=0)
        ax.axvline(place, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), zorder=2.5)
        ax.set_xlim(ends)
        across = ax.get_xaxis_transform()
        for text, side, gap in (("learned", "right", -4), ("forecast", "left", 4)):
            ax.annotate(
                text,
                (place, 1.0),
                xycoords=across,
                xytext=(gap, 3),
                textcoords="offset points",
                horizontalalignment=side,
                verticalalignment="bottom",
                fontsize="small",
                color=INK,
            )
    name_axes(ax, *names)
    quieten(ax)
    legend_above(ax, title, room=2.0 if learned_until is None else 15.0)
    return ax


def _draw_points(
    ax: "Axes", points: tuple[ArrayLike, ArrayLike], colour: str, label: str, marker: str = "o"
) -> None:
    """A mark for each of the points (x, y), smaller where there are many."""
    x, y = columns(x=points[0], y=points[1])
    size = dot_size(len(x), total=1200.0, least=3.0, most=20.0)
    ax.scatter(x, y, s=size, color=colour, marker=marker, linewidths=0, zorder=3, label=label)
