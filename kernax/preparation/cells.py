"""Cells of a table as text: which are numbers, which are missing, and where a cell is."""

import dataclasses
import difflib
import functools
import math
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

_MISSING = frozenset(("", "?", "na", "n/a", "nan", "null"))
# Marks of missing values among numbers, which may be categories of other columns.
_LIKE_MISSING = frozenset(("-", "--", "\u2013", "\u2014", ".", "none", "unknown"))
_SHOWN = 30  # names in a message
_MORE_SHOWN = 4  # cells with a mistake, after the first
_EMPTY = "the cell is empty: remove such rows, or fill them in"
_COMMA_BEFORE_DECIMALS = re.compile(r"[+-]?(?:\d+,\d*|,\d+)(?:[eE][+-]?\d+)?")
# Groups of three digits divided by commas, spaces (also those that do not break) or apostrophes.
_BETWEEN_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:[, \u00a0\u2009\u202f'\u2019]\d{3})+(?:\.\d*)?")
_COMMA_BETWEEN_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


@dataclasses.dataclass(frozen=True)
class Column:
    """The cells of a column as text, and the place of each, for messages.

    Attributes:
        places: the places of the cells, such as `line 2` in a file.
        file: the name of the file; without one, places name the row.
        written: the original cells, if `cells` have points in place of decimal commas.
    """

    name: str
    cells: tuple[str, ...]
    places: tuple[str, ...]
    file: str = ""
    written: tuple[str, ...] | None = None

    @staticmethod
    def of_numbers(name: str, values: Iterable[float]) -> "Column":
        """Numbers as cells, with all their digits."""
        cells = tuple(repr(float(value)) for value in values)
        return Column(name, cells, tuple(f"row {i + 1}" for i in range(len(cells))))

    @functools.cached_property
    def first_text(self) -> str | None:
        """The place and text of the first cell that is not a number, such as NA; None if all cells
        are numbers or empty.
        """
        for row, cell in enumerate(self.cells):
            if cell and as_number(cell) is None:
                remedy = remedy_of(cell)
                way_out = f" ({remedy})" if remedy else ""
                return f"{self.place(row)}: {quoted(cell)} is not a number{way_out}"
        return None

    @functools.cached_property
    def present(self) -> tuple[str, ...]:
        """The cells that are not missing."""
        return tuple(cell for cell in self.cells if not is_missing(cell))

    @property
    def missing(self) -> int:
        """How many cells are missing."""
        return len(self.cells) - len(self.present)

    @functools.cached_property
    def numeric(self) -> int:
        """How many of the present cells are numbers, or are meant to be."""
        return sum(as_number(cell) is not None or _has_comma(cell) for cell in self.present)

    @property
    def known(self) -> "Column":
        """The rows with cells that are not missing."""
        return self.rows(np.flatnonzero([not is_missing(cell) for cell in self.cells]))

    @property
    def as_written(self) -> "Column":
        """The same column with its original decimal commas."""
        if self.written is None:
            return self
        return dataclasses.replace(self, cells=self.written, written=None)

    def place(self, row: int) -> str:
        """The place of a cell, with its file and its column."""
        short = self.places[row]
        return f"{self.file}, {short}, column {quoted(self.name)}" if self.file else short

    def rows(self, chosen: Int[np.ndarray, " m"]) -> "Column":
        """Some of the rows, by their indices."""
        cells = tuple(self.cells[row] for row in chosen)
        places = tuple(self.places[row] for row in chosen)
        written = self.written
        if written is not None:
            written = tuple(written[row] for row in chosen)
        return Column(self.name, cells, places, self.file, written)


def is_missing(cell: str) -> bool:
    """Whether a cell marks a missing value: it is empty, NA, N/A, NaN, null or ?."""
    return cell.strip().lower() in _MISSING


def numbers(column: Column, missing: float | None = None) -> Float[np.ndarray, " n"]:
    """The numbers in the cells of a column; missing cells get the given number, if any.

    Raises ValueError, with their places, for cells that are not numbers, and for numbers with a
    point among decimal commas.
    """
    check_points(column)

    def problem(cell: str) -> str | None:
        return None if missing is not None and is_missing(cell) else no_number(cell)

    check_cells(column, problem)
    values = [missing if missing is not None and is_missing(c) else float(c) for c in column.cells]
    return np.array(values, float)


def no_number(cell: str) -> str | None:
    """The problem of a cell that is not a finite number, for `check_cells`; None for any other."""
    if not cell.strip():
        return _EMPTY
    value = as_number(cell)
    if value is None:
        remedy = remedy_of(cell)
        return f"{{cell}} is not a number: {remedy}" if remedy else "{cell} is not a number"
    if not math.isfinite(value):
        return "{cell} is not a finite number: remove such rows, or fill them in"
    return None


def no_empty_cell(cell: str) -> str | None:
    """The problem of an empty cell, for `check_cells`; None for any other."""
    return None if cell else _EMPTY


def check_cells(column: Column, problem: Callable[[str], str | None]) -> None:
    """Raises ValueError for cells with a problem: the first, and others with the same one.

    Arguments:
        problem: a function that returns what is wrong with a cell, with `{cell}` in place of its
            text; None for a correct cell.
    """
    message = message_of_cells(column, problem)
    if message is not None:
        raise ValueError(message)


def message_of_cells(column: Column, problem: Callable[[str], str | None]) -> str | None:
    """The message of `check_cells`; None if all cells are correct."""
    found = [(row, what) for row, cell in enumerate(column.cells) if (what := problem(cell))]
    if not found:
        return None
    first, what = found[0]
    others = []
    for row, other in found[1:]:
        if other == what:
            cell = column.cells[row]
            others.append(f"{column.places[row]} ({quoted(cell)})" if cell else column.places[row])
    sentence = what.replace("{cell}", quoted(column.cells[first]))
    return f"{column.place(first)}: {sentence}{likewise(others)}"


def likewise(places: Sequence[str]) -> str:
    """A clause that lists more places with the same mistake: `; likewise in a, b and 3 more lines`.

    The first few are named; nothing for no places.
    """
    if not places:
        return ""
    shown = list(places[:_MORE_SHOWN])
    if len(places) > len(shown):
        shown.append(plural(len(places) - len(shown), "more line"))
    *others, last = shown
    return f"; likewise in {', '.join(others)} and {last}" if others else f"; likewise in {last}"


def with_decimal_commas(column: Column) -> Column:
    """The column with points in place of decimal commas, if its numbers are written with commas.

    This is assumed if more cells contain a comma before decimals than contain a point, and at most
    half of the cells, which are mistakes, are not numbers. Other columns are returned unchanged.
    `check_points` finds the cells with a point.
    """
    commas = sum(_is_decimal_comma(cell) for cell in column.present)
    others = sum(as_number(cell) is not None for cell in column.present)
    points = sum(_has_point(cell) for cell in column.present)
    if commas <= points or 2 * (commas + others) < len(column.present):
        return column
    cells = tuple(c.replace(",", ".") if _is_decimal_comma(c) else c for c in column.cells)
    return dataclasses.replace(column, cells=cells, written=column.cells)


def check_points(column: Column) -> None:
    """Raises ValueError, with their places, for numbers with a point in a column whose decimal
    commas were converted: a point may be a mistake there, or a thousands separator.
    """
    if column.written is None:
        return
    commas = sum(map(_is_decimal_comma, column.written))
    point = f"{{cell}} has a point, but {commas} numbers of the column have commas before decimals"
    check_cells(column.as_written, lambda cell: point if _has_point(cell) else None)


def _has_point(cell: str) -> bool:
    """Whether a cell is a number with a point."""
    return "." in cell and as_number(cell) is not None


def _is_decimal_comma(cell: str) -> bool:
    return _COMMA_BEFORE_DECIMALS.fullmatch(cell) is not None


def announcement_of_commas(column: Column) -> str | None:
    """A line that says that decimal commas were converted; None if there were none."""
    if column.written is None:
        return None
    written = [cell for cell in column.written if _is_decimal_comma(cell)]
    if not written:
        return None
    cell = written[0]
    name = quoted(column.name)
    line = f"decimal commas of {name} were converted: {cell} is {cell.replace(',', '.')}"
    if all(map(_COMMA_BETWEEN_THOUSANDS.fullmatch, written)):
        return f"{line} (if such commas are between thousands, leave them out)"
    return line


def remedy_of(cell: str) -> str:
    """Advice on a number with marks that are not parsed; empty for other texts."""
    if _has_comma(cell) or _BETWEEN_THOUSANDS.fullmatch(cell):
        return "write a point before decimals, and nothing between thousands"
    if cell.strip().lower() in _LIKE_MISSING:
        return "leave the cell empty if the value is missing"
    number = cell.removesuffix("%").rstrip()
    if cell.endswith("%") and (as_number(number) is not None or _has_comma(number)):
        return "write it without the percent sign, for one unit in the whole column"
    return ""


def _has_comma(cell: str) -> bool:
    """Whether a cell would be a number without its commas."""
    digits = cell.replace(",", "", 1).replace(".", "").strip().lstrip("+-")
    return "," in cell and digits.isdigit()


def as_number(cell: str) -> float | None:
    """The number in a text as other programs parse it; None for any other text."""
    try:
        # Python parses 1_000 as a thousand, other programs do not.
        return float(cell.replace("_", "?"))
    except ValueError:
        return None


def plural(number: int, noun: str, several: str | None = None) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}" if number == 1 else f"{number} {several or noun + 's'}"


def listed(names: Sequence[str]) -> str:
    """Names in quotes, the first thirty of them."""
    return shortened(list(map(quoted, names)))


def shortened(names: Sequence[str]) -> str:
    """A list of names, the first thirty of them."""
    shown = ", ".join(names[:_SHOWN])
    return f"{shown}, ..." if len(names) > _SHOWN else shown


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """`did you mean 'weight'? ` with the most similar of some names; empty if none is similar."""
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {quoted(near[0])}? " if near else ""


def quoted(text: str) -> str:
    """A text in quotes on one line, cut to 40 letters."""
    return repr(short(text))


def bare(text: str) -> str:
    """A text as it is, in quotes if it contains a comma or unusual spaces and marks, or is long."""
    plain = text.isprintable() and text == " ".join(text.split())
    return text if plain and "," not in text and len(text) <= 40 else quoted(text)


def short(text: str) -> str:
    """A text cut to 40 letters, for messages."""
    return text if len(text) <= 40 else text[:37] + "..."
