"""Turns columns of a table into points: encoded and standardised numbers, and strings."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, PyTree

from kernax.errors import FeaturelessWarning
from kernax.kernels.texts import Strings
from kernax.preparation.cells import Column, announcement_of_commas
from kernax.preparation.encoders import AbstractEncoder, Number, Text, Tokens, learned_text
from kernax.preparation.kinds import KINDS, kind_of
from kernax.preparation.standards import Standards, standards_of_columns


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs:
    """The preparation of the columns of a table as points.

    Attributes:
        encoders: one for each used column of the table.
        target: the name of the target.
        standards: means and deviations of the d columns of numbers from the encoders.
        commas: the names of columns with decimal commas.
    """

    encoders: tuple[AbstractEncoder, ...]
    target: str
    standards: Standards
    commas: tuple[str, ...] = ()

    def __post_init__(self):
        for array in (self.standards.centre, self.standards.scale):
            if array.shape != (len(self.columns),):
                raise ValueError(
                    f"standards are of shape {array.shape}, but there are {len(self.columns)} "
                    "columns of numbers"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of the table."""
        return tuple(encoder.name for encoder in self.encoders)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the d columns of numbers."""
        return tuple(name for encoder in self.encoders for name in encoder.columns)

    @property
    def groups(self) -> Int[np.ndarray, " d"]:
        """The number of the column of the table that each of the d columns of numbers comes from;
        the columns of one category share it.
        """
        sizes = [len(encoder.columns) for encoder in self.encoders]
        return np.repeat(np.arange(len(sizes)), sizes)

    @property
    def texts(self) -> tuple[Text, ...]:
        """The columns that string kernels compare."""
        return tuple(encoder for encoder in self.encoders if isinstance(encoder, Text))

    def numbers(self, columns: Sequence[Column]) -> Float[np.ndarray, "n d"]:
        """The columns of numbers, in their own units.

        Raises ValueError, with its place, for a cell of another kind than those of the training
        rows.
        """
        return _joined(self.encoders, self._own(columns))

    def points(self, columns: Sequence[Column]) -> PyTree:
        """Standardised numbers (n, d), or strings if there are no numbers and one column of text;
        otherwise the tuple of the numbers, if any, and the strings of each column of text.

        Arguments:
            columns: those of the table, in any order; others are ignored. Raises as `numbers` does.
        """
        own = self._own(columns)
        Z = self.standards.standardised(_joined(self.encoders, own))
        pairs = zip(self.encoders, own)
        strings = [text.strings(cells.cells) for text, cells in pairs if isinstance(text, Text)]
        return self._as_points(Z, strings)

    def _as_points(self, Z: Float[np.ndarray, "n d"], strings: list[Strings]) -> PyTree:
        """Numbers and strings together: in a tuple if there is more than one batch."""
        parts = ([Z] if self.columns or not strings else []) + strings
        return parts[0] if len(parts) == 1 else tuple(parts)

    def blank(self) -> PyTree:
        """A batch of one point, as `points` makes them: zeros, and strings without tokens."""
        strings = [text.strings(("",)) for text in self.texts]
        return self._as_points(np.zeros((1, len(self.columns))), strings)

    def place_of(self, text: str) -> int | None:
        """The index of the strings of a column in the tuple of points; None if they are alone."""
        if len(self.texts) + bool(self.columns) == 1:
            return None
        return bool(self.columns) + [one.name for one in self.texts].index(text)

    def announcements(self, columns: Sequence[Column]) -> tuple[str, ...]:
        """One line for each column whose treatment had to be decided; none for plain numbers."""
        lines = []
        for encoder, column in zip(self.encoders, self._own(columns)):
            lines += [announcement_of_commas(column), encoder.announcement(column)]
        return tuple(line for line in lines if line is not None)

    def remarks(self) -> tuple[str, ...]:
        """One line for each column on the treatment of its cells; none for plain numbers."""
        lines = [(name, "numbers, written with decimal commas") for name in self.commas]
        lines += [(encoder.name, encoder.remark) for encoder in self.encoders]
        return tuple(f"{name!r}: {remark}" for name, remark in lines if remark is not None)

    def warn_of_strangers(self, columns: Sequence[Column]) -> None:
        """Warns of cells with tokens or categories that do not occur in the training rows, and of
        decimal commas in columns that had none.
        """
        for encoder, column in zip(self.encoders, self._own(columns)):
            commas = announcement_of_commas(column)
            if commas is not None and column.name not in self.commas:
                warnings.warn(commas, UserWarning, stacklevel=2)
            for line in encoder.strangers(column):
                warnings.warn(line, FeaturelessWarning, stacklevel=2)

    def _own(self, columns: Sequence[Column]) -> list[Column]:
        by_name = {column.name: column for column in columns}
        lacking = [encoder.name for encoder in self.encoders if encoder.name not in by_name]
        if lacking:
            raise ValueError(f"there is no column {lacking[0]!r}, which the model requires")
        own = []
        for encoder in self.encoders:
            column = by_name[encoder.name]
            own.append(column.as_written if isinstance(encoder, Text) else column)
        return own

    def __str__(self) -> str:
        others = [encoder.name for encoder in self.encoders if not isinstance(encoder, Text)]
        parts = [", ".join(map(repr, others))] if others else []
        parts += [f"the {text.tokens} of {text.name!r}" for text in self.texts]
        return " and ".join(parts)

    def notes(self) -> dict[str, Any]:
        """All fields, as values that JSON can hold."""
        return {
            "encoders": [encoder.notes() for encoder in self.encoders],
            "target": self.target,
            "centre": self.standards.centre.tolist(),
            "scale": self.standards.scale.tolist(),
            "commas": list(self.commas),
        }


def _joined(
    encoders: Sequence[AbstractEncoder], columns: Sequence[Column]
) -> Float[np.ndarray, "n d"]:
    rows = len(columns[0].cells) if columns else 0
    parts = [encoder.encoded(column) for encoder, column in zip(encoders, columns)]
    return np.concatenate([np.zeros((rows, 0)), *parts], 1)


def learned_inputs(
    columns: Sequence[Column],
    target: str,
    rows: Int[np.ndarray, " m"],
    *,
    texts: Sequence[str] = (),
    tokens: Tokens = Tokens.LETTERS,
) -> Inputs:
    """Learns the preparation of columns as points: means, medians, categories and alphabets, from
    some rows.

    Arguments:
        columns: all cells, which decide the kind of each column.
        target: the name of the target.
        rows: the indices of the training rows.
        texts: the names of columns that string kernels compare, by their `tokens`.

    Raises ValueError as `kind_of` does, for columns that cannot be standardised, and for a column
    that is empty in all training rows.
    """
    encoders = []
    commas = []
    for column in columns:
        if column.name in texts:
            cells = column.as_written.rows(rows).cells
            encoders.append(learned_text(column.name, cells, tokens))
        else:
            encoders.append(kind_of(column).learned(column, rows))
            commas += [] if column.written is None else [column.name]
    X = _joined(encoders, [column.rows(rows) for column in columns])
    standards = standards_of_columns(X, [name for each in encoders for name in each.columns])
    # Only measured columns are scaled.
    measured = [flag for encoder in encoders for flag in encoder.measured]
    standards = Standards(standards.centre, np.where(measured, standards.scale, 1.0))
    return Inputs(tuple(encoders), target, standards, tuple(commas))


def inputs_from_notes(notes: dict[str, Any]) -> Inputs:
    """The inverse of `Inputs.notes`. Raises KeyError, TypeError or ValueError for other notes.

    Notes from versions without encoders name columns of numbers, and one of text; notes from
    versions without decimal commas do not mention them.
    """
    centre = np.asarray(notes["centre"], float)
    scale = np.asarray(notes["scale"], float)
    if "encoders" in notes:
        encoders = tuple(map(_encoder_from_notes, notes["encoders"]))
    else:
        # Notes from before there were encoders: columns of numbers, then one of text, if any.
        numbers = tuple(Number(str(name)) for name in notes["columns"])
        text = notes.get("text")
        encoders = numbers if text is None else (*numbers, Text.from_notes(text))
    if not (np.all(np.isfinite(centre)) and np.all((scale > 0) & (scale < np.inf))):
        raise ValueError("means and deviations must be finite, and deviations positive")
    commas = tuple(map(str, notes.get("commas", ())))
    return Inputs(encoders, str(notes["target"]), Standards(centre, scale), commas)


def _encoder_from_notes(notes: dict[str, Any]) -> AbstractEncoder:
    kind = notes["kind"]
    if kind not in KINDS:
        raise ValueError(f"{str(kind)[:60]!r} is not a kind of column that this version supports")
    return KINDS[kind].from_notes(notes)
