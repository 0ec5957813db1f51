"""Cells of a table as they are written: what is a number, what is missing, where a cell stands."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Int

_MISSING = frozenset(("", "?", "na", "n/a", "nan", "null"))
_SHOWN = 30  # names in a message


@dataclasses.dataclass(frozen=True)
class Column:
    """The cells of a column as they are written, and the place of each, for messages."""

    name: str
    cells: tuple[str, ...]
    places: tuple[str, ...]

    @staticmethod
    def of_numbers(name: str, values: Iterable[float]) -> "Column":
        """Numbers as cells, with all their digits."""
        cells = tuple(repr(float(value)) for value in values)
        return Column(name, cells, tuple(f"row {i + 1}" for i in range(len(cells))))

    @functools.cached_property
    def first_text(self) -> str | None:
        """The place and text of the first cell that is no number; None if all are, or are empty."""
        for cell, place in zip(self.cells, self.places):
            if _is_text(cell):
                return f"{place}: {quoted(cell)} is not a number"
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
        """How many cells that are not missing are numbers, or are meant to be."""
        return sum(as_number(cell) is not None or _has_comma(cell) for cell in self.present)

    def rows(self, chosen: Int[np.ndarray, " m"]) -> "Column":
        """Some of the rows, by their indices."""
        cells = tuple(self.cells[row] for row in chosen)
        return Column(self.name, cells, tuple(self.places[row] for row in chosen))


def is_missing(cell: str) -> bool:
    """Whether a cell says that its value is not known: it is empty, NA, N/A, NaN, null or ?."""
    return cell.strip().lower() in _MISSING


def number(cell: str, place: str) -> float:
    """The number in a cell. Raises ValueError, with the place of the cell, where there is none."""
    if not cell.strip():
        raise ValueError(f"{place}: the cell is empty: remove such rows, or fill them in")
    value = as_number(cell)
    if value is None:
        raise ValueError(f"{place}: {quoted(cell)} is not a number{_hint_on_commas(cell)}")
    if not math.isfinite(value):
        raise ValueError(
            f"{place}: {quoted(cell)} is not a finite number: remove such rows, or fill them in"
        )
    return value


def _hint_on_commas(cell: str) -> str:
    """How to write a number that has a comma in it; nothing for other texts."""
    hint = ": write a point before decimals, and nothing between thousands"
    return hint if _has_comma(cell) else ""


def _has_comma(cell: str) -> bool:
    """Whether a cell is a number but for a comma in it."""
    digits = cell.replace(",", "", 1).replace(".", "").strip().lstrip("+-")
    return "," in cell and digits.isdigit()


def _is_text(cell: str) -> bool:
    """Whether a cell is neither empty nor a number."""
    return bool(cell) and as_number(cell) is None


def as_number(cell: str) -> float | None:
    """A number as other programs read it; None for any other text."""
    try:
        # Python reads 1_000 as a thousand, other programs do not.
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
    """Names beside each other, the first thirty of them."""
    shown = ", ".join(names[:_SHOWN])
    return f"{shown}, ..." if len(names) > _SHOWN else shown


def quoted(text: str) -> str:
    """A text in quotes on one line, cut to 40 letters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
