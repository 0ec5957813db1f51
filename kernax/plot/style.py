"""What all pictures share: colours, axes of their own, checked columns."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, DOT, LINE = "#2b2b33", "#3a6ea5", "#c8553d"
COLOURS = (
    "#3a6ea5", "#c8553d", "#4f9d69", "#8a5a9e", "#c79a3b", "#4aa3a8", "#7a7a85", "#c06c9b", "#8c6d46", "#9aab3f",
)  # fmt: skip


def columns(**values: ArrayLike) -> tuple[np.ndarray, ...]:
    """Vectors of one length, finite."""
    arrays = {name: np.asarray(value, float) for name, value in values.items()}
    if len({array.shape for array in arrays.values()}) > 1 or any(a.ndim != 1 or not len(a) for a in arrays.values()):
        shapes = ", ".join(f"{name} has {array.shape}" for name, array in arrays.items())
        raise ValueError(f"{' and '.join(arrays)} must have one shape (n,), n >= 1, but {shapes}")
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must be finite")
    return tuple(arrays.values())


def check_names(names: tuple[str, str], what: str) -> None:
    """Two of them, not the letters of one."""
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"names must be two, {what}, but is {names!r}")


def name_axes(ax: "Axes", x: str, y: str) -> None:
    """Names both axes."""
    ax.set_xlabel(plain(x), color=INK)
    ax.set_ylabel(plain(y), color=INK)


def plain(text: str) -> str:
    """A text that matplotlib prints as it is."""
    return text.replace("$", r"\$")  # a column's name is not mathematics


def wide_axes() -> "Axes":
    """Of a new figure, for a curve."""
    from matplotlib.figure import Figure

    return Figure(figsize=(7.2, 3.6), dpi=160, layout="constrained").subplots()


def two_axes() -> "tuple[Axes, Axes]":
    """Of a new figure, side by side."""
    from matplotlib.figure import Figure

    return tuple(Figure(figsize=(7.6, 3.0), dpi=160, layout="constrained").subplots(1, 2))


def square_axes() -> "Axes":
    """Of a new figure, for two inputs, or two things to compare."""
    from matplotlib.figure import Figure

    return Figure(figsize=(4.6, 4.6), dpi=160, layout="constrained").subplots()


def limits(true: np.ndarray, predicted: np.ndarray) -> tuple[float, float]:
    """One range for both axes, with a margin; wider than nothing even for a single perfect prediction."""
    low, high = min(true.min(), predicted.min()), max(true.max(), predicted.max())
    margin = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return float(low - margin), float(high + margin)


def quieten(ax: "Axes") -> None:
    """The same round ticks on both axes, a faint grid, no box."""
    from matplotlib.ticker import MaxNLocator

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    ax.grid(color="#e6e6ea", linewidth=0.7)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color("#a0a0a8")
    ax.tick_params(colors="#6a6a74", labelsize="small", length=3)
