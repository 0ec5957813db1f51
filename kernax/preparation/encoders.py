"""Encoders turn columns of cells into columns of floats, or into strings: one encoder for each kind
of column.

An encoder learns from the cells of some rows, turns the cells of any rows into numbers, and can be
saved as notes, from which it can be restored.
"""

import abc
import collections
import dataclasses
import difflib
import math
import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from kernax.kernels.texts import Strings, encode
from kernax.preparation.cells import (
    Column,
    as_number,
    bare,
    is_missing,
    numbers,
    plural,
    quoted,
    shortened,
)
from kernax.preparation.tokens import Tokens

MOST_CATEGORIES = 50
_NAME_OF_NAMES = re.compile(r"(.*[ _.-])?(id|index|row|nr|no|key)", re.IGNORECASE)
_MUCH_ALIKE = 0.74  # two of four letters exchanged, or one of five missing
_LIKE_A_DATE = re.compile(r"((?:1[89]|20)\d\d)(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")


class AbstractEncoder(abc.ABC):
    """The encoder of one column of a table. Subclasses are frozen dataclasses of plain values."""

    kind: ClassVar[str]  # its name in notes
    name: str  # of the column

    @classmethod
    @abc.abstractmethod
    def suits(cls, column: Column) -> bool:
        """Whether the cells of a column are of this kind."""

    @classmethod
    @abc.abstractmethod
    def learned(cls, column: Column, rows: Int[np.ndarray, " m"]) -> "AbstractEncoder":
        """The encoder learned from some of the rows; all cells decide how they are parsed."""

    @property
    @abc.abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of its columns of floats."""

    @property
    def measured(self) -> tuple[bool, ...]:
        """Which of these columns to standardise. The others are not scaled: two categories are as
        far apart as two rows of a standardised column are on average.
        """
        return (True,) * len(self.columns)

    @abc.abstractmethod
    def encoded(self, column: Column) -> Float[np.ndarray, "n d"]:
        """The columns of floats. Raises ValueError, with its place, for a cell of another kind."""

    def announcement(self, column: Column) -> str | None:
        """A line on the treatment of the column; None if nothing had to be decided."""
        return None

    def strangers(self, column: Column) -> tuple[str, ...]:
        """Lines on cells with values that do not occur in the training rows, one for each kind."""
        return ()

    @property
    def remark(self) -> str | None:
        """A line on the treatment of new cells; None if they are used unchanged."""
        return None

    def notes(self) -> dict[str, Any]:
        """All fields, as values that JSON supports."""
        return {"kind": self.kind} | vars(self)

    @classmethod
    def from_notes(cls, notes: dict[str, Any]) -> "AbstractEncoder":
        """The inverse of `notes`. Raises KeyError, TypeError or ValueError for other notes."""
        fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        return cls(**{field.name: _checked(notes[field.name], field) for field in fields})


def _checked(value: Any, field: dataclasses.Field) -> Any:
    """A value from notes. Raises TypeError or ValueError unless it has the type of the field."""
    if field.type == tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
            raise TypeError(f"{field.name} must be a list of strings, but is {str(value)[:60]!r}")
        return tuple(value)
    if field.type is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{field.name} must be a number, but is {str(value)[:60]!r}")
        if not math.isfinite(value):
            raise ValueError(f"{field.name} must be finite, but is {value}")
        return float(value)
    if not isinstance(value, str):
        raise TypeError(f"{field.name} must be a string, but is {str(value)[:60]!r}")
    return field.type(value) if isinstance(field.type, type) else value


@dataclasses.dataclass(frozen=True)
class Number(AbstractEncoder):
    """Encodes numbers as they are."""

    name: str
    kind: ClassVar[str] = "number"

    @classmethod
    def suits(cls, column):
        return all(as_number(cell) is not None and not is_missing(cell) for cell in column.cells)

    @classmethod
    def learned(cls, column, rows):
        return cls(column.name)

    @property
    def columns(self):
        return (self.name,)

    def encoded(self, column):
        return numbers(column)[:, None]

    def announcement(self, column):
        cells = column.cells
        are_names = len(set(cells)) == len(cells) and all(cell.isdigit() for cell in cells)
        if _NAME_OF_NAMES.fullmatch(self.name) and are_names:
            return (
                f"{self.name!r} holds a different whole number in each row: if these only name the "
                "rows, leave the column out"
            )
        if not all(_LIKE_A_DATE.fullmatch(cell) for cell in cells):
            return None
        date = _LIKE_A_DATE.sub(r"\1-\2-\3", cells[0])
        return (
            f"{self.name!r} was read as numbers such as {cells[0]}: if they are dates, write {date}"
        )


@dataclasses.dataclass(frozen=True)
class FilledNumber(AbstractEncoder):
    """Encodes numbers with missing values: these are filled with the median of the others, and a
    second column is 1 where a value was missing and 0 elsewhere.
    """

    name: str
    median: float
    kind: ClassVar[str] = "filled number"

    @classmethod
    def suits(cls, column):
        return all(as_number(cell) is not None for cell in column.present)

    @classmethod
    def learned(cls, column, rows):
        known = numbers(column.rows(rows).known)
        if not len(known):
            raise ValueError(
                f"all cells of {column.name!r} are empty in the training rows: leave the column out"
            )
        with np.errstate(over="ignore"):  # numbers this large are refused when standardised
            return cls(column.name, float(np.median(known)))

    @property
    def columns(self):
        return (self.name, f"{self.name} missing")

    @property
    def measured(self):
        return (True, False)

    def encoded(self, column):
        missing = np.array([is_missing(cell) for cell in column.cells], float)
        return np.stack([numbers(column, self.median), missing], 1)

    def announcement(self, column):
        cells = plural(column.missing, "empty cell")
        verb = "was" if column.missing == 1 else "were"
        return (
            f"{cells} of {self.name!r} {verb} filled with its median {self.median:.6g}, and "
            f"{self.columns[1]!r} says which"
        )

    @property
    def remark(self):
        return f"empty cells are filled with {self.median:.6g}, and {self.columns[1]!r} says which"


@dataclasses.dataclass(frozen=True)
class Category(AbstractEncoder):
    """Encodes categories: a column for each word, 1 where the cell is that word and 0 elsewhere.

    Missing cells are a category of their own if there were some in the training rows.
    """

    name: str
    words: tuple[str, ...]
    kind: ClassVar[str] = "category"

    @classmethod
    def suits(cls, column):
        words = len(set(column.present))
        return words <= MOST_CATEGORIES and 2 * words <= len(column.present)

    @classmethod
    def learned(cls, column, rows):
        known = column.rows(rows)
        words = sorted(set(known.present))
        return cls(column.name, (*words, "") if known.missing else tuple(words))

    @property
    def columns(self):
        return tuple(
            f"{self.name}={word}" if word else f"{self.name} missing" for word in self.words
        )

    @property
    def measured(self):
        return (False,) * len(self.words)

    def encoded(self, column):
        places = {word: place for place, word in enumerate(self.words)}
        columns = np.zeros((len(column.cells), len(self.words)))
        for row, cell in enumerate(column.cells):
            place = places.get("" if is_missing(cell) else cell)
            if place is not None:
                columns[row, place] = 1
        return columns

    def announcement(self, column):
        words = [word for word in self.words if word]
        what = plural(len(words), "category", "categories")
        verb = "became a column" if len(words) == 1 else "became columns"
        text = f"{what} of {self.name!r} {verb}: {shortened([bare(word) for word in words])}"
        empty = f"; {plural(column.missing, 'empty cell')} of it became {self.columns[-1]!r}"
        lines = self.strangers(column)
        strange = "".join(f"; outside the training rows, {line}" for line in lines)
        return text + (empty if "" in self.words else "") + self._doubts(column) + strange

    def _doubts(self, column: Column) -> str:
        """Words that may be misspelt: those of a single cell that resemble another word, and those
        that only differ in capitals.
        """
        counts = collections.Counter(column.present)
        words = sorted(counts)
        pairs = []
        for word in words:
            others = [other for other in words if other.casefold() == word.casefold()]
            if counts[word] == 1:
                others += difflib.get_close_matches(word, words, n=2, cutoff=_MUCH_ALIKE)
            pairs += [{word, other} for other in others if other != word]
        if not pairs:
            return ""
        first, second = sorted(pairs[0], key=lambda word: counts[word])
        return f" (is {quoted(first)} meant to be {quoted(second)}? they count as different)"

    def strangers(self, column):
        known = set(self.words)
        strange = [cell for cell in column.cells if not is_missing(cell) and cell not in known]
        lines = []
        if strange:
            what = f"a category that the training rows do not have, such as {quoted(strange[0])}"
            lines.append(self._stranger(len(strange), column, what))
        if column.missing and "" not in known:
            what = "nothing, unlike every cell of the training rows"
            lines.append(self._stranger(column.missing, column, what))
        return tuple(lines)

    def _stranger(self, count: int, column: Column, what: str) -> str:
        """A line that says how many cells contain such a value, and how they are encoded."""
        verb = "holds" if count == 1 else "hold"
        return (
            f"{count} of {plural(len(column.cells), 'cell')} of {self.name!r} {verb} {what}: all "
            f"columns of {self.name!r} are 0 there"
        )

    @property
    def remark(self):
        words = [bare(word) for word in self.words if word]
        empty = ", and one for empty cells" if "" in self.words else ""
        return f"a column for each of {shortened(words)}{empty}; all are 0 for any other word"


@dataclasses.dataclass(frozen=True)
class Text(AbstractEncoder):
    """Encodes text as strings: the name of the column, the kind of its tokens, and all tokens of
    the training rows.

    It becomes a batch of strings, not columns of floats.
    """

    name: str
    tokens: Tokens
    alphabet: tuple[str, ...]
    kind: ClassVar[str] = "text"

    @classmethod
    def suits(cls, column):
        return any(as_number(cell) is None for cell in column.present)

    @classmethod
    def learned(cls, column, rows):
        return learned_text(column.name, column.rows(rows).cells, Tokens.LETTERS)

    @property
    def columns(self):
        return ()

    def encoded(self, column):
        return np.zeros((len(column.cells), 0))

    def strings(self, cells: Sequence[str]) -> Strings:
        """The cells as a batch of strings; tokens outside the alphabet match nothing."""
        return encode(_split(cells, self.tokens), self.alphabet, unknown="gap")

    def strangers(self, column):
        known = set(self.alphabet)
        cells = column.cells
        strange = sum(known.isdisjoint(tokens) for tokens in _split(cells, self.tokens))
        if not strange:
            return ()
        seen = f"of the {len(self.alphabet)} {self.tokens} of the training rows"
        return (
            f"{strange} of {len(cells)} cells of {self.name!r} hold none {seen}, which tells the "
            "model nothing",
        )


def learned_text(name: str, cells: Sequence[str], tokens: Tokens) -> Text:
    """A column of text with an alphabet of all tokens of these cells."""
    alphabet = {token for row in _split(cells, tokens) for token in row}
    return Text(name, tokens, tuple(sorted(alphabet)))


def _split(cells: Sequence[str], tokens: Tokens) -> list[Any]:
    return [cell.split() for cell in cells] if tokens == Tokens.WORDS else list(cells)
