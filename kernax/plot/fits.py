"""Pictures of fits to numbers: predictions, bands, and how the loss went down."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import ArrayLike

from kernax.plot.style import DOT, INK, LINE, check_names, columns, limits, name_axes, quieten, square_axes, wide_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def predicted_against_true(true: ArrayLike, predicted: ArrayLike, *, name: str = "target", ax: "Axes | None" = None) -> "Axes":
    """Predictions over true values, with the diagonal on which perfect ones lie and the root mean square error as the title.

    Arguments:
        true, predicted: shape (n,), n >= 1, in the same units.
        name: what the values are, for the labels of both axes.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for shapes that differ or values that are not finite.
    """
    true, predicted = columns(true=true, predicted=predicted)
    ax = square_axes() if ax is None else ax
    low, high = limits(true, predicted)
    ax.plot([low, high], [low, high], color=LINE, linewidth=1.2, zorder=1)
    size = float(np.clip(2400 / len(true), 6, 32))
    ax.scatter(true, predicted, s=size, color=DOT, alpha=0.65, edgecolors="white", linewidths=0.5, zorder=2)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    error = np.sqrt(np.mean((predicted - true) ** 2))
    name_axes(ax, f"true {name}", f"predicted {name}")
    ax.set_title(f"{len(true)} points, RMSE {error:.4g}", color=INK, fontsize="medium", loc="left")
    quieten(ax)
    return ax


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
        x, mean, deviation: shape (n,), x in any order. For targets the deviation is `sqrt(variance + noise)`.
        observed, held_out: pairs (x, y) of points to draw: what was learned from, and what was not.
        names: of the input and the output, for the axes.
        ax: matplotlib axes to draw on; default, the axes of a new figure.

    Raises ValueError for shapes that differ or values that are not finite.
    """
    check_names(names, "of the input and the output, such as ('x', 'y')")
    x, mean, deviation = columns(x=x, mean=mean, deviation=deviation)
    order = np.argsort(x)
    x, mean, deviation = x[order], mean[order], deviation[order]
    ax = wide_axes() if ax is None else ax
    ax.fill_between(x, mean - 2 * deviation, mean + 2 * deviation, color=DOT, alpha=0.18, linewidth=0, label="two sigma")
    ax.plot(x, mean, color=DOT, linewidth=1.4, label="mean")
    for points, colour, label in ((observed, INK, "observed"), (held_out, LINE, "held out")):
        if points is not None:
            a, b = columns(x=points[0], y=points[1])
            ax.scatter(a, b, s=float(np.clip(1200 / len(a), 3, 20)), color=colour, linewidths=0, zorder=3, label=label)
    name_axes(ax, *names)
    ax.legend(frameon=False, fontsize="small", labelcolor=INK)
    quieten(ax)
    return ax


def learning_curve(losses: ArrayLike, *, name: str = "loss", ax: "Axes | None" = None) -> "Axes":
    """The loss at every step, and the best so far: `solution.stats["losses"]` of `minimise`, NaN where not reached."""
    losses = np.asarray(losses, float)
    if losses.ndim != 1 or not np.any(np.isfinite(losses)):
        raise ValueError(f"losses must have shape (steps,) and hold a finite one, but have shape {losses.shape}")
    ax = wide_axes() if ax is None else ax
    steps = np.flatnonzero(np.isfinite(losses))
    ax.plot(steps, losses[steps], ".", color=DOT, markersize=4, label="each step")
    ax.plot(steps, np.minimum.accumulate(losses[steps]), color=LINE, linewidth=1.2, label="best so far")
    name_axes(ax, "step", name)
    ax.legend(frameon=False, fontsize="small", labelcolor=INK)
    quieten(ax)
    return ax
