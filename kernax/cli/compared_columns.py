"""The columns of a table that a kernel compares, as inputs, and the kernel on them."""

import dataclasses
import functools
import operator
import shlex
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import PyTree

from kernax.cli.expression import parse_kernel
from kernax.cli.notation import NUMBERS, TEXT, compared, is_named, text_names
from kernax.cli.table import InputTable
from kernax.core.kernel.kernel import AbstractKernel
from kernax.kernels import On
from kernax.preparation.cells import Column, did_you_mean, listed, quoted, remedy_of
from kernax.preparation.dates import Date, unclear_dates
from kernax.preparation.encoders import Category, Text, Tokens
from kernax.preparation.inputs import Inputs
from kernax.preparation.inputs import learned_inputs as inputs_of_columns
from kernax.preparation.kinds import is_mostly_numbers, kind_of

_EXAMPLE = "--kernel 'normalised(spectrum(3))'"
_MOST_TEXTS = 30  # columns, each of which adds a kernel to what is compiled
_WORTH_COMPARING = 6  # letters: shorter cells share too few substrings of length three


def learned_inputs(table: InputTable, rows: np.ndarray, tokens: Tokens) -> Inputs:
    """The preparation of columns as points, learned from some rows only."""
    return inputs_of_columns(
        table.inputs, table.target.name, rows, texts=table.texts, tokens=tokens
    )


def kernel_of_inputs(inputs: Inputs, expression: str, *, per_column: bool) -> AbstractKernel:
    """The kernel that an expression describes, on points from `inputs`."""
    kernel = parse_kernel(expression, len(inputs.columns), per_column=per_column)
    if not inputs.texts:
        return kernel
    # Points are tuples of parts. What compares only numbers gets the numbers, and what compares
    # text the column that it names, or else becomes a sum over all columns of text.
    place = functools.partial(_placed, inputs=inputs)
    return jax.tree.map(place, kernel, is_leaf=_sees_one_part)


def compared_columns(table: InputTable, expression: str, tokens: Tokens | None) -> InputTable:
    """The table with only the columns that a kernel compares.

    It has text only for a string kernel: the columns that the expression names, or else those with
    words that are not categories, or else all columns of words. Raises ValueError for a column that
    no part of the kernel can compare, and for a part without a column.
    """
    kernel = parse_kernel(expression)
    kinds = compared(kernel)
    if TEXT not in kinds and tokens is not None:
        raise ValueError(f"--tokens {tokens} is for string kernels, such as {_EXAMPLE}")
    texts = _texts(table, kernel) if TEXT in kinds else ()
    others = [column for column in table.inputs if column.name not in texts]
    if texts and NUMBERS not in kinds:
        others = []
    _check_kinds(others, table)
    if texts and NUMBERS in kinds and not others:
        raise ValueError(
            f"part of the kernel compares numbers, but the only input column, {listed(texts)}, is "
            "text"
        )
    names = {column.name for column in others}.union(texts)
    kept = [column for column in table.inputs if column.name in names]
    return dataclasses.replace(table, inputs=tuple(kept), texts=texts)


def _texts(table: InputTable, kernel: AbstractKernel) -> tuple[str, ...]:
    named = text_names(kernel)
    if not named:
        # The columns of words that are not categories; all columns of words if all are.
        words = [column for column in table.inputs if _holds_words(column)]
        if not words:
            raise ValueError(
                "the kernel compares text, but all input columns are numbers: "
                f"{listed(table.columns)}"
            )
        free = [column.name for column in words if not Category.suits(column)]
        names = tuple(free or [column.name for column in words])
        if len(names) > _MOST_TEXTS:
            raise ValueError(
                f"the kernel would compare {len(names)} columns of text, and at most {_MOST_TEXTS} "
                "are allowed unless the kernel names them: write text('name', spectrum(3)) for "
                "each, or leave columns out by --ignore"
            )
        return names
    for name in named:
        if name not in table.columns:
            raise ValueError(
                f"text({quoted(name)}, ...): there is no such input: "
                f"{did_you_mean(name, table.columns)}inputs are {listed(table.columns)}"
            )
    return tuple(name for name in table.columns if name in named)


def _holds_words(column: Column) -> bool:
    """Whether cells are text, rather than numbers or dates with some mistakes."""
    if is_mostly_numbers(column) or unclear_dates(column) is not None:
        return False
    return Text.suits(column) and not Date.suits(column)


def _check_kinds(columns: Sequence[Column], table: InputTable) -> None:
    problems = {}
    for column in columns:
        try:
            kind_of(column)
        except ValueError as problem:
            problems[column] = problem
    if not problems:
        return
    first, *others = problems
    names = listed([other.name for other in others])
    more = f"; neither can {names} become numbers: {_ignoring(others)}"
    advice = _advice(first, table) + (more if others else "")
    raise ValueError(f"{problems[first]} ({advice})")


def _ignoring(columns: Sequence[Column]) -> str:
    return " ".join(f"--ignore {shlex.quote(column.name)}" for column in columns)


def _advice(column: Column, table: InputTable) -> str:
    cells = column.present
    long = sum(len(cell) >= _WORTH_COMPARING for cell in cells)
    leave_out = f"leave the column out: {_ignoring([column])}"
    if not cells:
        return leave_out
    are_numbers = is_mostly_numbers(column) or remedy_of(cells[0])
    if are_numbers or unclear_dates(column) is not None:
        return f"correct such cells, or {leave_out}"
    if not _holds_words(column) or 2 * long < len(cells):
        return leave_out
    if len(table.columns) == 1:
        return f"{_EXAMPLE} compares text; or {leave_out}"
    name = column.name.replace("\\", "\\\\").replace('"', '\\"')
    kernel = f'rbf + text("{name}", normalised(spectrum(3)))'
    return f"--kernel {shlex.quote(kernel)} compares this text; or {leave_out}"


def _sees_one_part(node: PyTree) -> bool:
    """Whether a node is a kernel that compares only numbers, or one column, or all of them."""
    if not isinstance(node, AbstractKernel):
        return False
    if is_named(node) or compared(node) == {NUMBERS}:
        return True
    return compared(node) == {TEXT} and not text_names(node)


def _placed(node: PyTree, inputs: Inputs) -> PyTree:
    """Such a kernel on the parts of points that it compares; any other node unchanged."""
    if not _sees_one_part(node):
        return node
    if compared(node) == {NUMBERS}:
        return On(node, 0)
    if is_named(node):
        return _on_column(node.kernel, inputs, node.where)
    kernels = [_on_column(node, inputs, text.name) for text in inputs.texts]
    return functools.reduce(operator.add, kernels)


def _on_column(kernel: AbstractKernel, inputs: Inputs, name: str) -> AbstractKernel:
    """A string kernel on the strings of a column."""
    place = inputs.place_of(name)
    return kernel if place is None else On(kernel, place)
