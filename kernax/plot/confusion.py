"""The confusion matrix of several classes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernax.plot.style import DOT, INK, letters_in, name_axes, shortened, size_in_points, title_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

_WITH_SHARES = 8  # classes, beyond which a cell has room for its count alone
_NAMES = 8.3  # points, the size of names that fit
_SMALLEST = 3.5  # points, the size of the smallest text that is printed


def confusion_matrix(
    true: Any,
    predicted: Any,
    *,
    classes: Sequence[Any] | None = None,
    name: str = "class",
    title: str | None = None,
    ax: "Axes | None" = None,
) -> "Axes":
    """How many points of each class (rows) are predicted as each class (columns).

    The colour of a cell is its share of its row, so that the diagonal shows the share of each class
    that is found. Up to eight classes, cells have the share as a number as well; empty ones have
    nothing. Rows say how many points their class has.

    Arguments:
        true, predicted: (n,), n >= 1, numbers or strings.
        classes: all classes in order; default, those that occur, sorted.
        name: that of what is predicted, for the axes.
        title: such as that of `score_title`; default, the number of points and the accuracy.
        ax: matplotlib axes to draw on; default, the axes of a new figure, which grows with the
            number of classes. Where cells are too small for numbers there are none.

    Raises ValueError for other shapes, for a label that is not among the classes, and for fewer
    classes than two.
    """
    true, predicted = _checked(true, predicted)
    occurring = np.unique(np.concatenate([true, predicted])).tolist()
    of_rows: list[Any] = occurring if classes is None else list(classes)
    rows = _places(true, of_rows, "true")
    counts = _counts(rows, _places(predicted, of_rows, "predicted"), len(of_rows))
    ax = _new_axes(len(of_rows)) if ax is None else ax
    if title is None:
        title = f"{len(true)} points, accuracy {np.mean(true == predicted):.4g}"
    name_axes(ax, f"predicted {name}", f"true {name}")
    _draw_cells(ax, counts)
    names = [str(label) for label in of_rows]
    _name_rows(ax, names, counts.sum(1))
    title_axes(ax, title)
    _name_columns(ax, names)
    _print_numbers(ax, counts)
    return ax


def _checked(true: Any, predicted: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both as arrays (n,). Raises ValueError for other shapes."""
    true = np.asarray(true)
    predicted = np.asarray(predicted)
    if true.ndim != 1 or true.shape != predicted.shape or true.size == 0:
        raise ValueError(
            "true and predicted must have one shape (n,), n >= 1, but true has "
            f"{true.shape}, predicted has {predicted.shape}"
        )
    return true, predicted


def _places(labels: np.ndarray, classes: list[Any], what: str) -> np.ndarray:
    """The place of each label among the classes. Raises ValueError for one that is not there."""
    places = {label: place for place, label in enumerate(classes)}
    if len(places) < max(2, len(classes)):
        raise ValueError(f"classes must be two or more different ones, but are {classes!r}")
    for label in labels.tolist():
        if label not in places:
            raise ValueError(
                f"{what} holds {label!r}, which is not among the classes "
                f"{', '.join(map(str, classes))}"
            )
    return np.array([places[label] for label in labels.tolist()])


def _counts(rows: np.ndarray, cells: np.ndarray, size: int) -> np.ndarray:
    """How often each pair of places occurs."""
    counts = np.zeros((size, size), int)
    np.add.at(counts, (rows, cells), 1)
    return counts


def _new_axes(count: int) -> "Axes":
    """The axes of a new figure, with cells in which numbers can be read."""
    from matplotlib.figure import Figure

    side = float(np.clip(2.4 + 0.36 * count, 4.6, 10.0))
    return Figure(figsize=(side, side), dpi=160, layout="compressed").subplots()


def _name_rows(ax: "Axes", names: list[str], sizes: np.ndarray) -> None:
    """The classes on the left, with their numbers of points."""
    rows = [f"{shortened(name)} ({n})" for name, n in zip(names, sizes)]
    ax.set_yticks(range(len(names)), rows, fontsize=_NAMES, color=INK)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    _shrink(ax.get_yticklabels(), _points_of_a_cell(ax, len(names)))


def _name_columns(ax: "Axes", names: list[str]) -> None:
    """The classes below, upright where they do not fit side by side."""
    below = [shortened(name) for name in names]
    cell = _points_of_a_cell(ax, len(names))
    fits = letters_in(cell, _NAMES) > max(map(len, below))
    rotation = 0 if fits else 90
    ax.set_xticks(range(len(names)), below, fontsize=_NAMES, color=INK, rotation=rotation)
    # The names below take room from the cells, and so from the names of the rows.
    cell = _points_of_a_cell(ax, len(names))
    _shrink([*ax.get_xticklabels(), *ax.get_yticklabels()], cell)


def _shrink(texts: "list[Text]", room: float) -> None:
    """Lines of text as large as fits into so much room for each, in points."""
    for text in texts:
        text.set_fontsize(float(np.clip(0.72 * room, _SMALLEST, _NAMES)))


def _draw_cells(ax: "Axes", counts: np.ndarray) -> None:
    """The colours, and lines between the cells."""
    from matplotlib.colors import LinearSegmentedColormap

    tints = LinearSegmentedColormap.from_list("shares", ["white", DOT])
    ax.imshow(_shares(counts), cmap=tints, vmin=0, vmax=1, interpolation="nearest")
    ends = np.arange(len(counts) + 1) - 0.5
    ax.hlines(ends, ends[0], ends[-1], color="#d4d4da", linewidth=0.6)
    ax.vlines(ends, ends[0], ends[-1], color="#d4d4da", linewidth=0.6)


def _shares(counts: np.ndarray) -> np.ndarray:
    """The share of each cell of its row; zero in a row of no points."""
    return counts / np.maximum(1, counts.sum(1, keepdims=True))


def _print_numbers(ax: "Axes", counts: np.ndarray) -> None:
    """The counts that are not zero, of few classes with their shares, as large as they fit."""
    shares = _shares(counts)
    cell = _points_of_a_cell(ax, len(counts))
    with_shares = len(counts) <= _WITH_SHARES
    widest = max(4 if with_shares else 2, len(str(counts.max())))
    size = min(9.0, 1.4 * cell / widest, cell / 3 if with_shares else cell / 1.4)
    if size < _SMALLEST:
        return
    for i, j in np.argwhere(counts):
        share = f"\n{100 * shares[i, j]:.0f} %" if with_shares else ""
        ax.text(
            j,
            i,
            f"{counts[i, j]}{share}",
            horizontalalignment="center",
            verticalalignment="center",
            fontsize=size,
            color="white" if shares[i, j] > 0.55 else INK,
        )


def _points_of_a_cell(ax: "Axes", count: int) -> float:
    """The side of a cell in points."""
    return min(size_in_points(ax)) / count
