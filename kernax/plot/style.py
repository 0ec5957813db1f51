"""What all pictures share: colours, new axes, ticks and legends, and checks of columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#2b2b33"
DOT = "#3a6ea5"
LINE = "#c8553d"
COLOURS = (
    "#3a6ea5",
    "#c8553d",
    "#4f9d69",
    "#8a5a9e",
    "#c79a3b",
    "#4aa3a8",
    "#7a7a85",
    "#c06c9b",
    "#8c6d46",
    "#9aab3f",
)


def columns(**values: ArrayLike) -> tuple[np.ndarray, ...]:
    """Vectors as arrays. Raises ValueError unless they are finite and of one length n >= 1."""
    arrays = {name: np.asarray(value, float) for name, value in values.items()}
    _check_shapes(arrays)
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must be finite")
    return tuple(arrays.values())


def _check_shapes(arrays: dict[str, np.ndarray]) -> None:
    """Raises ValueError unless all arrays have one shape (n,), n >= 1."""
    first, *others = (array.shape for array in arrays.values())
    if len(first) != 1 or first[0] == 0 or any(shape != first for shape in others):
        shapes = ", ".join(f"{name} has {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{' and '.join(arrays)} must have one shape (n,), n >= 1, but {shapes}")


def check_names(names: Sequence[str], what: str) -> None:
    """Raises ValueError unless there are two names; a string is not two letters."""
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"names must be two, {what}, but is {names!r}")


def name_axes(ax: "Axes", x: str, y: str) -> None:
    """Names both axes."""
    ax.set_xlabel(plain(x), color=INK)
    ax.set_ylabel(plain(y), color=INK)


def title_axes(ax: "Axes", title: str) -> None:
    """A title above the left end of the axes."""
    ax.set_title(title, color=INK, fontsize="medium", loc="left")


def plain(text: str) -> str:
    """A text that matplotlib prints unchanged: a dollar sign in it begins no formula."""
    return text.replace("$", r"\$")


def dot_size(n: int, total: float, least: float, most: float) -> float:
    """The area of each of n dots, which together have an area of `total`, within limits."""
    return float(np.clip(total / n, least, most))


def legend_inside(ax: "Axes") -> None:
    """A legend without a box, where matplotlib finds room."""
    ax.legend(frameon=False, fontsize="small", labelcolor=INK)


def wide_axes() -> "Axes":
    """The axes of a new figure, for a curve."""
    from matplotlib.figure import Figure

    return Figure(figsize=(7.2, 3.6), dpi=160, layout="constrained").subplots()


def two_axes() -> "tuple[Axes, Axes]":
    """Two axes of a new figure, side by side."""
    from matplotlib.figure import Figure

    return tuple(Figure(figsize=(7.6, 3.0), dpi=160, layout="constrained").subplots(1, 2))


def square_axes() -> "Axes":
    """The axes of a new square figure, for two quantities in the same units."""
    from matplotlib.figure import Figure

    return Figure(figsize=(4.6, 4.6), dpi=160, layout="constrained").subplots()


def limits(true: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """One range for both axes, with a margin, which is positive even if all values are equal."""
    low = min(true.min(), predicted.min())
    high = max(true.max(), predicted.max())
    margin = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return float(low - margin), float(high + margin)


def quieten(ax: "Axes") -> None:
    """A few round ticks on both axes, a faint grid, no box."""
    from matplotlib.ticker import MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    ax.grid(color="#e6e6ea", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#a0a0a8")
    ax.tick_params(colors="#6a6a74", labelsize="small", length=3)
