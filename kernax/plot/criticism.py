"""Pictures of the calibration of predicted distributions and intervals."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from kernax.core.base.annotations import ArrayLike
from kernax.metrics import coverage_curve, interval_coverage, standardised_residuals
from kernax.plot.style import (
    COLOURS,
    DOT,
    INK,
    LINE,
    axes_or,
    columns,
    dot_size,
    name_axes,
    quieten,
    square_axes,
    title_axes,
    wide_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def coverage(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike, *, ax: "Axes | None" = None
) -> "Axes":
    """Draws the share of targets in central intervals against the probability of the intervals.

    On the diagonal the predicted variances are right; below it they are too small, above it too
    large. The title has the mean distance from the diagonal.

    Arguments:
        y, mean, variance: (n,), of held-out targets; variances with the noise.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for shapes that differ and values that are not finite.
    """
    y, mean, variance = columns(y=y, mean=mean, variance=variance)
    curve = coverage_curve(*map(jnp.asarray, (y, mean, variance)))
    ax = axes_or(ax, square_axes)
    ax.plot([0, 1], [0, 1], color=LINE, linewidth=1.2, zorder=1)
    level = np.concatenate([[0], curve.level, [1]])
    inside = np.concatenate([[0], curve.coverage, [1]])
    ax.plot(level, inside, "o-", color=DOT, markersize=4, linewidth=1.4)
    ax.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
    name_axes(ax, "probability of the interval", "share of targets inside")
    title_axes(ax, f"{len(y)} points, mean distance {float(curve.error):.3g}")
    quieten(ax)
    return ax


def residual_quantiles(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike, *, ax: "Axes | None" = None
) -> "Axes":
    """Draws a Q-Q plot: sorted standardised residuals against the quantiles of the standard normal
    distribution.

    On the diagonal the predicted distributions are right; if the points are steeper, the variances
    are too small; points far from the diagonal at the ends are tails that a normal distribution
    does not have.

    Arguments and errors are those of `coverage`.
    """
    y, mean, variance = columns(y=y, mean=mean, variance=variance)
    residuals = np.sort(standardised_residuals(*map(jnp.asarray, (y, mean, variance))))
    n = len(residuals)
    expected = np.asarray(ndtri(jnp.asarray((np.arange(n) + 0.5) / n)))
    ax = axes_or(ax, square_axes)
    ends = [expected[0], expected[-1]]
    ax.plot(ends, ends, color=LINE, linewidth=1.2, zorder=1)
    size = dot_size(n, total=2400.0, least=6.0, most=32.0)
    ax.scatter(expected, residuals, s=size, color=DOT, linewidths=0, alpha=0.65, zorder=2)
    name_axes(ax, "normal quantile", "standardised residual")
    title_axes(ax, f"{n} points, standard deviation {np.std(residuals):.3g}")
    quieten(ax)
    return ax


def intervals(y: ArrayLike, low: ArrayLike, high: ArrayLike, *, ax: "Axes | None" = None) -> "Axes":
    """Draws the interval and the target of each point, in the order of the middle of the intervals.

    Targets outside are drawn in another colour; the title has the share that is inside.

    Arguments:
        y: (n,), targets.
        low, high: (n,), the ends of their intervals; infinite ones are drawn just beyond the rest.
        ax: matplotlib axes to draw on; default, the axes of a new figure.

    Raises ValueError for shapes that differ, NaN, and targets that are not finite.
    """
    # An infinite end lies a little beyond all finite values.
    values = np.concatenate([np.ravel(part) for part in (y, low, high)]).astype(float)
    finite = values[np.isfinite(values)]
    least, most = (np.min(finite), np.max(finite)) if finite.size else (0.0, 0.0)
    room = 0.05 * ((most - least) or 1.0)
    within = lambda ends: np.clip(ends, least - room, most + room)
    y, low, high = columns(y=y, low=within(low), high=within(high))
    order = np.argsort(low + high)
    y, low, high = (values[order] for values in (y, low, high))
    inside = (low <= y) & (y <= high)
    place = np.arange(len(y))
    ax = axes_or(ax, wide_axes)
    ax.vlines(place, low, high, color=DOT, linewidth=1.2, alpha=0.35, zorder=1)
    size = dot_size(len(y), total=1600.0, least=4.0, most=24.0)
    colours = np.where(inside, INK, COLOURS[1])
    ax.scatter(place, y, s=size, c=list(colours), linewidths=0, zorder=2)
    share = interval_coverage(*map(jnp.asarray, (y, low, high)))
    name_axes(ax, "point, by the middle of its interval", "target")
    title_axes(ax, f"{len(y)} points, {100 * float(share):.1f} % inside")
    quieten(ax)
    return ax
