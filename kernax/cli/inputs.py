"""Columns of a table as inputs: those that a kernel compares, and the kernel for them."""

import dataclasses
import shlex
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import PyTree

from kernax.cli.expression import parse_kernel
from kernax.cli.table import Column, Table, as_number, listed, number
from kernax.cli.vocabulary import NUMBERS, TEXT, compared
from kernax.core.kernel import AbstractKernel
from kernax.kernels import On
from kernax.preparation import Inputs, Tokens, learned_text, standards_of_columns

_EXAMPLE = "--kernel 'normalised(spectrum(3))'"
_WORTH_COMPARING = 6  # letters: shorter cells share too few substrings of three


def learned_inputs(table: Table, rows: np.ndarray, tokens: Tokens) -> Inputs:
    """How columns become points, with means, deviations and the alphabet of some rows alone."""
    standards = standards_of_columns(table.X[rows], table.columns)
    text = None
    for column in table.texts:
        text = learned_text(column.name, [column.cells[row] for row in rows], tokens)
    return Inputs(table.columns, table.target.name, standards, text)


def kernel_of_inputs(inputs: Inputs, expression: str, *, per_column: bool) -> AbstractKernel:
    """The kernel that an expression describes, on the points that `inputs` makes."""
    kernel = parse_kernel(expression, len(inputs.columns), per_column=per_column)
    return _on_parts(kernel) if inputs.columns and inputs.text else kernel


def compared_columns(table: Table, expression: str, tokens: Tokens | None) -> Table:
    """The table without the columns that a kernel does not compare.

    It has text only for a string kernel, and then one column of it. Raises ValueError for a column
    that no part of the kernel can compare, and for a part that no column suits.
    """
    kinds = compared(parse_kernel(expression))
    if TEXT in kinds:
        _check_text(table, NUMBERS in kinds)
    else:
        _check_numbers(table, tokens)
    if NUMBERS not in kinds and TEXT in kinds:
        return dataclasses.replace(table, columns=(), X=table.X[:, :0])
    parse_kernel(expression, len(table.columns))  # lists of lengthscales have one for each column
    return table


def _check_numbers(table: Table, tokens: Tokens | None) -> None:
    """Raises ValueError for text, which a kernel of numbers cannot compare."""
    for column in table.texts:
        _refuse_text(column, table)
    if tokens is not None:
        raise ValueError(f"--tokens {tokens} is for string kernels, such as {_EXAMPLE}")


def _check_text(table: Table, with_numbers: bool) -> None:
    """Raises ValueError unless there is one column of text, and one of numbers if asked for."""
    names = listed([column.name for column in table.texts])
    if not names:
        raise ValueError(
            f"the kernel compares text, but all input columns are numbers: {listed(table.columns)}"
        )
    if len(table.texts) > 1:
        places = "; ".join(str(column.first_text) for column in table.texts[:2])
        raise ValueError(
            f"string kernels compare one column, but {names} hold text: leave the others out with "
            f"--ignore; {places}"
        )
    if with_numbers and not table.columns:
        raise ValueError(
            f"part of the kernel compares numbers, but the only input column, {names}, is text"
        )


def _refuse_text(column: Column, table: Table) -> None:
    """Raises ValueError for the first cell that is no number."""
    try:
        for cell, place in zip(column.cells, column.places):
            number(cell, place)
    except ValueError as problem:
        raise ValueError(f"{problem} ({_advice(column, table)})") from None


def _advice(column: Column, table: Table) -> str:
    """What to do with a column of text, by its contents, where the kernel compares numbers."""
    cells = [cell for cell in column.cells if cell]
    words = set(cells)
    numbers = sum(as_number(cell) is not None for cell in cells)
    long = sum(len(cell) >= _WORTH_COMPARING for cell in cells)
    leave_out = f"leave the column out: {_ignoring([column])}"
    # Numbers with some mistakes, then words that name groups, then words too short to compare.
    if 2 * numbers > len(cells):
        return f"mend the cell, or {leave_out}"
    if 2 * len(words) <= len(cells):
        return f"write a column of 0 and 1 for each of its {len(words)} words, or {leave_out}"
    if 2 * long < len(cells):
        return leave_out
    return f"{_how_to_compare(column, table)}; or {leave_out}"


def _how_to_compare(column: Column, table: Table) -> str:
    """The options with which a string kernel compares a column."""
    kernel = "--kernel 'rbf + normalised(spectrum(3))'" if table.columns else _EXAMPLE
    others = [other for other in table.texts if other is not column]
    return (
        f"{kernel} {_ignoring(others)} compares this text" if others else f"{kernel} compares text"
    )


def _ignoring(columns: Sequence[Column]) -> str:
    """The options that leave columns out."""
    return " ".join(f"--ignore {shlex.quote(column.name)}" for column in columns)


_PLACES = {frozenset([NUMBERS]): 0, frozenset([TEXT]): 1}  # in a pair of numbers and text


def _on_parts(kernel: AbstractKernel) -> AbstractKernel:
    """The same kernel on pairs of numbers and text.

    Parts that compare numbers alone get the first entry, parts that compare text alone the second.
    """
    return jax.tree.map(_on_its_part, kernel, is_leaf=_sees_one_part)


def _sees_one_part(node: PyTree) -> bool:
    """Whether a node is a kernel that compares numbers alone, or text alone."""
    return isinstance(node, AbstractKernel) and compared(node) in _PLACES


def _on_its_part(node: PyTree) -> PyTree:
    """Such a kernel on the entry of pairs that it compares; any other node unchanged."""
    return On(node, _PLACES[compared(node)]) if _sees_one_part(node) else node
