"""Pictures. Needs matplotlib (`pip install 'kernax-toolkit[plot]'`), which is imported when a picture is drawn, not before.

Every function draws on the `ax` it is given, or on a figure of its own that no global state knows of, and returns the axes:
`predicted_against_true(y, f).figure.savefig("fit.png")`.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INK, _DOT, _LINE = "#2b2b33", "#3a6ea5", "#c8553d"


def predicted_against_true(true: ArrayLike, predicted: ArrayLike, *, name: str = "target", ax: "Axes | None" = None) -> "Axes":
    """Predictions over true values, with the diagonal on which perfect ones lie and the root mean square error as the title.

    Arguments:
        true, predicted: shape (n,), n >= 1, in the same units.
        name: what the values are, for the labels of both axes.
        ax: matplotlib axes to draw on; default, the axes of a new square figure.

    Raises ValueError for shapes that differ or values that are not finite.
    """
    true, predicted = np.asarray(true, float), np.asarray(predicted, float)
    if true.ndim != 1 or true.shape != predicted.shape or not len(true):
        raise ValueError(f"true and predicted must have one shape (n,), but have shapes {true.shape} and {predicted.shape}")
    if not (np.all(np.isfinite(true)) and np.all(np.isfinite(predicted))):
        raise ValueError("true and predicted must be finite")
    ax = _square_axes() if ax is None else ax
    low, high = _limits(true, predicted)
    ax.plot([low, high], [low, high], color=_LINE, linewidth=1.2, zorder=1)
    size = float(np.clip(2400 / len(true), 6, 32))
    ax.scatter(true, predicted, s=size, color=_DOT, alpha=0.65, edgecolors="white", linewidths=0.5, zorder=2)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    label = name.replace("$", r"\$")  # a column's name is not mathematics
    error = np.sqrt(np.mean((predicted - true) ** 2))
    ax.set_xlabel(f"true {label}", color=_INK)
    ax.set_ylabel(f"predicted {label}", color=_INK)
    ax.set_title(f"{len(true)} points, RMSE {error:.4g}", color=_INK, fontsize="medium", loc="left")
    _quieten(ax)
    return ax


def _square_axes() -> "Axes":
    from matplotlib.figure import Figure

    return Figure(figsize=(4.6, 4.6), dpi=160, layout="constrained").subplots()


def _limits(true: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """One range for both axes, with a margin; wider than nothing even for a single perfect prediction."""
    low, high = min(true.min(), predicted.min()), max(true.max(), predicted.max())
    margin = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return float(low - margin), float(high + margin)


def _quieten(ax: "Axes") -> None:
    """The same round ticks on both axes, a faint grid, no box."""
    from matplotlib.ticker import MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    ax.grid(color="#e6e6ea", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#a0a0a8")
    ax.tick_params(colors="#6a6a74", labelsize="small", length=3)
