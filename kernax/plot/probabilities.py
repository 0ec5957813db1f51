"""Pictures of predicted probabilities against observed frequencies."""

from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_count
from kernax.metrics import calibration_curve
from kernax.plot.style import (
    DOT,
    LINE,
    axes_or,
    columns,
    name_axes,
    quieten,
    square_axes,
    title_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@renamed(bins="n_bins")
def reliability(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    n_bins: int = 10,
    name: str | None = None,
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """Draws a reliability diagram: the frequency of events against the predicted probability, in
    bins.

    Each bin of probabilities has a dot, which is on the diagonal if they are calibrated; dots grow
    with the number of points. Bars are Wilson's intervals of 95 %. The expected calibration error
    is the mean distance from the diagonal, over all points.

    Arguments:
        probabilities: (n,), between 0 and 1.
        outcomes: (n,), 1 or True where the event occurred, otherwise 0.
        n_bins: the number of bins, which have the same width.
        name: the name of the event, for the axes.
        title: a title, such as that of `score_title`; default, the number of points. The expected
            calibration error follows.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for shapes that differ, and for other values.
    """
    check_count(n_bins, "n_bins")
    p, y = columns(probabilities=probabilities, outcomes=outcomes)
    if p.min() < 0 or p.max() > 1:
        raise ValueError(
            f"probabilities must lie between 0 and 1, but go from {p.min():g} to {p.max():g}"
        )
    others = y[~np.isin(y, (0, 1))]
    if others.size:
        raise ValueError(f"outcomes must be 0 or 1, but hold {others[0]:g}")
    curve = calibration_curve(jnp.asarray(y), jnp.asarray(p), n_bins=n_bins)
    ax = axes_or(ax, square_axes)
    ax.plot([0, 1], [0, 1], color=LINE, linewidth=1.2, zorder=1)
    # Each bin that has points is a dot and an interval.
    weight = np.asarray(curve.weight)
    kept = weight > 0
    n = weight[kept]
    predicted = np.asarray(curve.probability)[kept]
    observed = np.asarray(curve.frequency)[kept]
    # Wilson's interval of 95 % for a probability, given a rate among n (Wilson 1927).
    z = 1.96
    centre = (observed + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(observed * (1 - observed) / n + z * z / (4 * n * n))
    low = centre - half
    high = centre + half
    ax.vlines(predicted, low, high, color=DOT, linewidth=1.4, alpha=0.55, zorder=2)
    sizes = np.clip(160 * np.sqrt(n / n.max()), 14, None)
    ax.scatter(
        predicted, observed, s=sizes, color=DOT, edgecolors="white", linewidths=0.6, zorder=3
    )
    ax.set(xlim=(-0.04, 1.04), ylim=(-0.04, 1.04), aspect="equal")
    of = "" if name is None else f" of {name}"
    name_axes(ax, f"predicted probability{of}", f"observed frequency{of}")
    counted = f"{len(p)} points" if title is None else title
    title_axes(ax, f"{counted}, calibration error {float(curve.error):.3g}")
    quieten(ax)
    return ax
