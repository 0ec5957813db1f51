"""Input columns as points: standardised numbers and encoded text, for learning and predicting."""

import dataclasses
import enum
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, PyTree

from kernax.errors import FeaturelessWarning
from kernax.kernels.texts import Strings, encode
from kernax.preparation.standards import Standards


class Tokens(enum.StrEnum):
    """The tokens that a string kernel counts."""

    LETTERS = "letters"
    WORDS = "words"


@dataclasses.dataclass(frozen=True)
class Text:
    """A column of text: its name, the kind of its tokens, and all tokens that were learned from."""

    name: str
    tokens: Tokens
    alphabet: tuple[str, ...]

    def strings(self, cells: Sequence[str]) -> Strings:
        """The cells as a stack; tokens outside the alphabet match nothing."""
        return encode(_split(cells, self.tokens), self.alphabet, unknown="gap")

    def warn_of_strangers(self, cells: Sequence[str]) -> None:
        """Warns of cells without a token of the alphabet, which a string kernel cannot compare."""
        known = set(self.alphabet)
        strange = sum(known.isdisjoint(tokens) for tokens in _split(cells, self.tokens))
        if strange:
            seen = f"of the {len(self.alphabet)} {self.tokens} that were learned from"
            message = (
                f"{strange} of {len(cells)} cells of {self.name!r} hold none {seen}, which tells "
                "the model nothing"
            )
            warnings.warn(message, FeaturelessWarning, stacklevel=2)


def learned_text(name: str, cells: Sequence[str], tokens: Tokens) -> Text:
    """A column of text whose alphabet holds every token of these cells."""
    alphabet = {token for row in _split(cells, tokens) for token in row}
    return Text(name, tokens, tuple(sorted(alphabet)))


@dataclasses.dataclass(frozen=True, eq=False)
class Inputs:
    """How the columns of a table become points.

    Attributes:
        columns: the names of the d columns of numbers.
        target: the name of the target.
        standards: means and deviations of the columns of numbers.
        text: the column of text, if any.
    """

    columns: tuple[str, ...]
    target: str
    standards: Standards
    text: Text | None = None

    def points(self, X: Float[np.ndarray, "n d"], cells: Sequence[str] = ()) -> PyTree:
        """Standardised numbers, strings where there are no numbers, or the pair of both.

        Arguments:
            X: the columns of numbers, in the order of their names.
            cells: the cells of the column of text.
        """
        if self.text is None:
            return self.standards.standardised(X)
        strings = self.text.strings(cells)
        return (self.standards.standardised(X), strings) if self.columns else strings

    def __str__(self) -> str:
        parts = []
        if self.columns:
            parts.append(", ".join(map(repr, self.columns)))
        if self.text is not None:
            parts.append(f"the {self.text.tokens} of {self.text.name!r}")
        return " and ".join(parts)

    def notes(self) -> dict[str, Any]:
        """All fields, as values that JSON can hold."""
        return {
            "columns": list(self.columns),
            "target": self.target,
            "centre": self.standards.centre.tolist(),
            "scale": self.standards.scale.tolist(),
            "text": None if self.text is None else dataclasses.asdict(self.text),
        }


def inputs_from_notes(notes: dict[str, Any]) -> Inputs:
    """The inverse of `Inputs.notes`. Raises KeyError, TypeError or ValueError for other notes."""
    centre = np.asarray(notes["centre"], float)
    scale = np.asarray(notes["scale"], float)
    text = notes.get("text")
    if text is not None:
        text = Text(str(text["name"]), Tokens(text["tokens"]), tuple(map(str, text["alphabet"])))
    columns = tuple(notes["columns"])
    return Inputs(columns, str(notes["target"]), Standards(centre, scale), text)


def _split(cells: Sequence[str], tokens: Tokens) -> list[Any]:
    """The tokens of each cell."""
    return [cell.split() for cell in cells] if tokens == Tokens.WORDS else list(cells)
