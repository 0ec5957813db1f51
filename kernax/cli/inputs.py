"""Input columns as points: numbers standardised, text encoded, alike for what is learned from and for what is predicted."""

import dataclasses
import enum
import shlex
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from kernax.cli.expression import parse_kernel
from kernax.cli.table import Column, Table, as_number, listed, number
from kernax.cli.vocabulary import NUMBERS, TEXT, compared
from kernax.core.kernel import AbstractKernel
from kernax.errors import FeaturelessWarning
from kernax.kernels import On
from kernax.kernels.strings import Strings, encode

_EXAMPLE = "--kernel 'normalised(spectrum(3))'"
_WORTH_COMPARING = 6  # letters: shorter cells share too few substrings of three


class Tokens(enum.StrEnum):
    """What a string kernel counts."""

    LETTERS = "letters"
    WORDS = "words"


@dataclasses.dataclass(frozen=True)
class Text:
    """A column of text: its name, what its tokens are, and those of them that were learned from."""

    name: str
    tokens: Tokens
    alphabet: tuple[str, ...]

    def strings(self, cells: Sequence[str]) -> Strings:
        """The cells as a stack; other tokens match nothing."""
        return encode(_split(cells, self.tokens), self.alphabet, unknown="gap")

    def warn_of_strangers(self, cells: Sequence[str]) -> None:
        """Warns of cells without any token that was learned from: a string kernel cannot tell them apart."""
        strange = sum(set(tokens).isdisjoint(self.alphabet) for tokens in _split(cells, self.tokens))
        if strange:
            seen = f"of the {len(self.alphabet)} {self.tokens} that were learned from"
            message = f"{strange} of {len(cells)} cells of {self.name!r} hold none {seen}, which tells the model nothing"
            warnings.warn(message, FeaturelessWarning, stacklevel=2)


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The names of the input columns and of the target, means and deviations that standardise numbers, and the text, if any."""

    columns: tuple[str, ...]
    target: str
    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    text: Text | None = None

    def standardised(self, X: Any) -> Any:
        """Rows of numbers, or a row, in standardised units."""
        return (X - self.centre) / self.scale

    def points(self, X: Float[np.ndarray, "n d"], cells: Sequence[str]) -> PyTree:
        """Standardised numbers, strings where there are no numbers, or the pair of both."""
        if self.text is None:
            return self.standardised(X)
        strings = self.text.strings(cells)
        return (self.standardised(X), strings) if self.columns else strings

    def kernel(self, expression: str, *, per_column: bool) -> AbstractKernel:
        """The kernel that an expression describes, on the points that `points` makes."""
        kernel = parse_kernel(expression, len(self.columns), per_column=per_column)
        return _on_parts(kernel) if self.columns and self.text else kernel

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.columns))
        if self.text is None:
            return names
        return f"{names}{' and ' if names else ''}the {self.text.tokens} of {self.text.name!r}"


def learned_inputs(table: Table, rows: np.ndarray, tokens: Tokens) -> Inputs:
    """Means, deviations and an alphabet from some rows of a table alone."""
    X = table.X[rows]
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.where(X.min(0) == X.max(0), 1.0, X.std(0))
    for name, size in zip(table.columns, scale):
        check_size(name, size)
    text = None
    for column in table.texts:
        tokenised = _split([column.cells[row] for row in rows], tokens)
        text = Text(column.name, tokens, tuple(sorted({token for row in tokenised for token in row})))
    return Inputs(table.columns, table.target.name, X.mean(0), scale, text)


def check_size(name: str, size: float) -> None:
    """Raises ValueError for a deviation that nothing can be divided by."""
    if not 0 < size < np.inf:
        raise ValueError(f"column {name!r} cannot be standardised: its numbers are too large, or too close together")


def compared_columns(table: Table, expression: str, tokens: Tokens | None) -> Table:
    """The table without the columns that a kernel does not look at: it has text only for a string kernel, and one column of it.

    Raises ValueError for a column that no part of the kernel can compare, and a part that finds no column.
    """
    kinds = compared(parse_kernel(expression))
    if TEXT not in kinds:
        for column in table.texts:
            _refuse_text(column, table)
        if tokens is not None:
            raise ValueError(f"--tokens {tokens} is for string kernels, such as {_EXAMPLE}")
        parse_kernel(expression, len(table.columns))
        return table
    names = listed([column.name for column in table.texts])
    if not names:
        raise ValueError(f"the kernel compares text, but all input columns are numbers: {listed(table.columns)}")
    if len(table.texts) > 1:
        places = "; ".join(str(column.first_text) for column in table.texts[:2])
        raise ValueError(
            f"string kernels compare one column, but {names} hold text: leave the others out with --ignore; {places}"
        )
    if NUMBERS not in kinds:
        return dataclasses.replace(table, columns=(), X=table.X[:, :0])
    if not table.columns:
        raise ValueError(f"part of the kernel compares numbers, but the only input column, {names}, is text")
    parse_kernel(expression, len(table.columns))
    return table


def _refuse_text(column: Column, table: Table) -> None:
    try:
        for cell, place in zip(column.cells, column.places):
            number(cell, place)
    except ValueError as problem:
        raise ValueError(f"{problem} ({_advice(column, table)})") from None


def _advice(column: Column, table: Table) -> str:
    """What to do with a column of text where the kernel compares numbers: something that works, and suits what is in it."""
    leave_out = lambda columns: " ".join(f"--ignore {shlex.quote(column.name)}" for column in columns)
    cells = [cell for cell in column.cells if cell]
    without = f"or leave the column out: {leave_out([column])}"
    if 2 * sum(as_number(cell) is not None for cell in cells) > len(cells):
        return f"mend the cell, {without}"
    if 2 * len(set(cells)) <= len(cells):  # words for groups of rows
        return f"write a column of 0 and 1 for each of its {len(set(cells))} words, {without}"
    if 2 * sum(len(cell) >= _WORTH_COMPARING for cell in cells) < len(cells):
        return without.removeprefix("or ")
    kernel = "--kernel 'rbf + normalised(spectrum(3))'" if table.columns else _EXAMPLE
    others = [other for other in table.texts if other is not column]
    return f"{kernel} compares text; {without}" if not others else f"{kernel} {leave_out(others)} compares this text; {without}"


def _on_parts(kernel: AbstractKernel) -> AbstractKernel:
    """The same kernel of pairs: whatever compares numbers alone sees the first part, and text alone the second."""
    place = {frozenset([NUMBERS]): 0, frozenset([TEXT]): 1}
    alone = lambda node: isinstance(node, AbstractKernel) and compared(node) in place
    return jax.tree.map(lambda node: On(node, place[compared(node)]) if alone(node) else node, kernel, is_leaf=alone)


def _split(cells: Sequence[str], tokens: Tokens) -> list[Any]:
    return [cell.split() for cell in cells] if tokens == Tokens.WORDS else list(cells)
