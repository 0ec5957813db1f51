"""The common parts of all pictures: colours, new axes, ticks and legends, and checks of columns."""

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import described

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#2b2b33"
MUTED = "#6a6a74"
DOT = "#3a6ea5"
LINE = "#c8553d"
# Any two are told apart by people who lack one of the three kinds of cones: simulated as by Machado
# et al. (2009), they are 18 units or more apart in CIELAB, of the first five 28 or more.
COLOURS = (
    "#3a6ea5",
    "#c8553d",
    "#e0a93b",
    "#6a1a52",
    "#45bda8",
    "#b08be0",
    "#3a3f14",
    "#9cc776",
    "#96736e",
    "#1d3180",
)
_SMALL = 8.3  # points, the size of small letters
_WIDTH_OF_A_LETTER = 0.56  # of the default font, as a share of its size
# A group has a shape as well as a colour, so that a picture can be understood without colours.
MARKERS = ("o", "D", "s", "^", "v", "P", "X", "<", ">", "p")


def colour_of(i: int) -> str:
    """The colour of the i-th of several groups; beyond ten they repeat."""
    return COLOURS[i % len(COLOURS)]


def marker_of(i: int) -> str:
    """The marker of the i-th group; if colours repeat, the marker differs."""
    return MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]


def labels_of(labels: Any, n: int) -> np.ndarray:
    """Labels as an array (n,). Raises ValueError for another shape."""
    labels = np.asarray(labels)
    if labels.shape != (n,):
        raise ValueError(
            f"labels must have shape ({n},), one per point, but have shape {labels.shape}"
        )
    return labels


def columns(**values: Any) -> tuple[np.ndarray, ...]:
    """Vectors as arrays. Raises ValueError unless they are finite and of one length n >= 1."""
    arrays = {name: _numbers(value, name) for name, value in values.items()}
    first, *others = (array.shape for array in arrays.values())
    if len(first) != 1 or first[0] == 0 or any(shape != first for shape in others):
        shapes = ", ".join(f"{name} has {array.shape}" for name, array in arrays.items())
        flat = [f"{name}[:, 0]" for name, array in arrays.items() if array.shape[1:] == (1,)]
        advice = f": pass {', '.join(flat)}" if flat else ""
        names = " and ".join(arrays)
        raise ValueError(f"{names} must have one shape (n,), n >= 1, but {shapes}{advice}")
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(f"{name} must be finite")
    return tuple(arrays.values())


def _numbers(value: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(value, float)
    except (TypeError, ValueError):
        if not is_concrete(value):
            raise
        raise ValueError(f"{name} must be numbers, but is {described(value)}") from None


def check_names(names: Sequence[str], what: str) -> None:
    """Raises ValueError unless there are two names; a string is not two letters."""
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"names must be two, {what}, but is {names!r}")


def name_axes(ax: "Axes", x: str, y: str) -> None:
    """Names both axes."""
    ax.set_xlabel(plain(x), color=INK)
    ax.set_ylabel(plain(y), color=INK)


def title_axes(ax: "Axes", title: str) -> None:
    """A title above the left end of the axes, on as many lines as it takes."""
    text = _wrapped(title, characters_across(ax))
    ax.set_title(text, color=INK, fontsize="medium", loc="left")


def _wrapped(title: str, width: int) -> str:
    """A title on lines of about so many characters, broken after a comma or a colon where possible,
    so that a score stays with its name.
    """
    lines = [""]
    for clause in re.split(r"(?<=[,:]) ", plain(title)):
        joined = f"{lines[-1]} {clause}".strip()
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines += textwrap.wrap(clause, width, break_on_hyphens=False, break_long_words=False)
    return "\n".join(line for line in lines if line)


def score_title(scores: Mapping[str, ArrayLike | str], rows: int) -> str:
    """A title such as `110 rows held out: RMSE 53.07, NLPD 5.386`.

    Arguments:
        scores: a dictionary from names to numbers, shown with four digits, or to text.
        rows: the number of held-out rows.

    Raises ValueError for an empty dictionary, and for fewer rows than one.

    Examples:
        >>> kernax.plot.score_title({"RMSE": 53.07}, 110)
        '110 rows held out: RMSE 53.07'
    """
    check_count(rows, "rows")
    if not scores:
        raise ValueError("scores must name at least one score, but is empty")
    texts = [
        f"{name} {score if isinstance(score, str) else f'{float(np.asarray(score)):.4g}'}"
        for name, score in scores.items()
    ]
    held_out = "1 row" if rows == 1 else f"{rows} rows"
    return f"{held_out} held out: {', '.join(texts)}"


def characters_across(ax: "Axes") -> int:
    """About how many characters of a title fit above the axes as they are."""
    from matplotlib import rcParams

    width, _ = size_in_points(ax)
    return max(12, int(letters_in(width, rcParams["font.size"])))


def size_in_points(ax: "Axes") -> tuple[float, float]:
    """The width and the height of axes, once everything else on the figure has its place."""
    figure = _figure_of(ax)
    figure.draw_without_rendering()
    extent = ax.get_window_extent()
    return 72 * extent.width / figure.dpi, 72 * extent.height / figure.dpi


def letters_in(points: float, size: float) -> float:
    """How many letters of a size in points fit into a length."""
    return points / (_WIDTH_OF_A_LETTER * size)


def _figure_of(ax: "Axes") -> "Figure":
    figure = ax.get_figure(root=True)
    assert figure is not None  # axes are made by a figure
    return figure


def shortened(name: str, most: int = 22) -> str:
    """A name cut to so many characters: a longer one keeps its beginning and its end."""
    if len(name) <= most:
        return plain(name)
    tail = most // 3
    head = most - tail - 1
    return plain(f"{name[:head]}\N{HORIZONTAL ELLIPSIS}{name[-tail:]}")


def plain(text: str) -> str:
    """A text that matplotlib prints unchanged: a dollar sign in it does not begin a formula."""
    return text.replace("$", r"\$")


def dot_size(n: int, total: float, least: float, most: float) -> float:
    """The area of each of n dots, which together have an area of `total`, within limits."""
    return float(np.clip(total / n, least, most))


def draw_groups(
    ax: "Axes",
    points: np.ndarray,
    labels: np.ndarray,
    classes: Sequence[Any] | None = None,
    **style: Any,
) -> None:
    """A mark for each point (n, 2), in the shape and the colour of its class; by default the
    classes are the different labels, sorted.
    """
    for i, name in enumerate(np.unique(labels) if classes is None else classes):
        mark = {"color": colour_of(i), "marker": marker_of(i), "label": plain(str(name))}
        ax.scatter(*points[labels == name].T, **mark, **style)


def legend_inside(ax: "Axes") -> None:
    """A legend without a box, where matplotlib finds space."""
    ax.legend(frameon=False, fontsize="small", labelcolor=INK)


def legend_above(ax: "Axes", title: str | None = None, room: float = 2.0) -> None:
    """A legend in columns above the axes, with a title on top if there is one, and some space below
    it, in points.
    """
    from matplotlib.transforms import ScaledTranslation

    above = ScaledTranslation(0, room / 72, _figure_of(ax).dpi_scale_trans)
    _, names = ax.get_legend_handles_labels()
    # In each entry, the mark and the space around it take seven letters.
    longest = 7 + max(map(len, names), default=0)
    width, _ = size_in_points(ax)
    across = min(4, max(1, int(letters_in(width, _SMALL) / longest)))
    legend = ax.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        bbox_transform=ax.transAxes + above,
        ncols=across,
        borderpad=0.1,
        borderaxespad=0.0,
        handletextpad=0.3,
        columnspacing=1.2,
        frameon=False,
        fontsize="small",
        labelcolor=INK,
        title=None if title is None else _wrapped(title, characters_across(ax)),
        title_fontproperties={"size": "medium"},
        alignment="left",
    )
    legend.get_title().set_color(INK)


def draw_levels(
    ax: "Axes",
    grid: Sequence[np.ndarray],
    values: np.ndarray,
    levels: Sequence[float],
    **style: Any,
) -> None:
    """Lines where values on a grid equal one of the levels; levels outside the range of values are
    left out, since matplotlib warns of them.
    """
    known = values[np.isfinite(values)]
    crossed = [level for level in levels if np.any(known < level) and np.any(known > level)]
    if crossed:
        ax.contour(*grid, values, levels=crossed, colors=[INK], **style)


def axes_or(ax: "Axes | None", new: "Callable[[], Axes]") -> "Axes":
    """The given axes, or new ones. Raises ValueError for anything but axes of matplotlib."""
    from matplotlib.axes import Axes

    if ax is None:
        return new()
    if not isinstance(ax, Axes):
        raise ValueError(
            "ax must be axes of matplotlib, such as the second value of plt.subplots(), but is "
            f"{described(ax)}"
        )
    return ax


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

    return Figure(figsize=(4.6, 4.6), dpi=160, layout="compressed").subplots()


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
    ax.tick_params(colors=MUTED, labelsize="small", length=3)
