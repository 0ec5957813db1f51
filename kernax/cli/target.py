"""The target column as numbers to predict, or as the names of classes."""

import collections
import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from kernax.cli.table import LEAST_ROWS, InputTable
from kernax.preparation.cells import (
    Column,
    as_number,
    check_cells,
    check_points,
    message_of_cells,
    no_empty_cell,
    no_number,
    plural,
    quoted,
)
from kernax.preparation.cells import numbers as numbers_in
from kernax.preparation.kinds import is_mostly_numbers

_MOST_CLASSES = 50


def numbers(table: InputTable) -> Float[np.ndarray, " n"]:
    """The target of a regression. Raises ValueError for text, at its place, and for a constant."""
    target = table.target
    try:
        y = numbers_in(target)
    except ValueError as problem:
        advice = " (--model logistic or svm takes classes)" if _are_classes(table) else ""
        raise ValueError(f"{problem}{advice}") from None
    _check_rows(table, "numbers")
    if y.min() == y.max():
        raise ValueError(
            f"target column {target.name!r} is constant: it is {y[0]:g} in every row, so there is "
            "nothing to learn"
        )
    return y


def check_counts(target: Column, likelihood: str) -> None:
    """Raises ValueError, with their places, for cells that are not whole numbers >= 0."""
    no_count = f"{{cell}} is not a count: --likelihood {likelihood} takes 0, 1, 2, ..."
    _check_numbers(target, lambda value: value >= 0 and value == round(value), no_count)


def _check_numbers(target: Column, is_right: Callable[[float], bool], wrong: str) -> None:
    """Raises ValueError, with their places, for cells that are not numbers, or not the right ones.

    Arguments:
        wrong: what is wrong with the latter, for `check_cells`.
    """

    check_points(target)

    def problem(cell: str) -> str | None:
        return no_number(cell) or (None if is_right(float(cell)) else wrong)

    check_cells(target, problem)


def why_classes(target: Column, consequence: str, otherwise: str) -> str | None:
    """The reason why a target is treated as classes by default; None if it holds numbers.

    Text, 0 and 1, and -1 and 1 are classes.

    Arguments:
        consequence: a clause on the choice for classes.
        otherwise: the options that treat 0 and 1 as numbers.
    """
    if target.first_text:
        return f"{target.name} is a column of classes ({target.first_text}): {consequence}"
    values = {as_number(cell) for cell in target.cells if cell}
    if values not in ({0, 1}, {-1, 1}):
        return None
    other = "0" if 0 in values else "-1"
    return (
        f"{target.name} is a column of classes ({other} or 1 in every row): {consequence}; "
        f"{otherwise} treats it as numbers"
    )


def labels(table: InputTable) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each row, and all classes in order, as text.

    Numbers are ordered by value, other text alphabetically. Raises ValueError for an empty cell or
    a fraction, with its place, for a single class, for more than 50 classes, for more classes than
    half the rows, and for a class with a single row.
    """
    target = table.target
    check_cells(target, no_empty_cell)
    if target.first_text:
        names = target.cells
        classes = tuple(sorted(set(names)))
    else:
        # Whole numbers in one spelling: 1, 1.0 and 1e0 are the same class.
        fraction = (
            "{cell} is a fraction, no class: is this a regression? --model gp or ridge takes "
            "numbers"
        )
        _check_numbers(target, lambda value: value == round(value), fraction)
        names = tuple(f"{float(cell) + 0.0:.0f}" for cell in target.cells)
        classes = tuple(sorted(set(names), key=float))
    _check_rows(table, "classes")
    what = f"target column {target.name!r}"
    if len(classes) == 1:
        raise ValueError(
            f"{what} holds one class only, {quoted(classes[0])}: at least two are needed"
        )
    if len(classes) > _MOST_CLASSES or 2 * len(classes) > len(names):
        # Text among numbers is a mistake, and each is named; other text is named once.
        mistakes = message_of_cells(target, no_number) if is_mostly_numbers(target) else None
        text = mistakes or target.first_text
        raise ValueError(
            f"{what} holds {len(classes)} classes in {plural(len(names), 'row')}: is this a "
            f"regression?{f'; {text}' if text else ''}"
        )
    target = dataclasses.replace(target, cells=names)
    counts = collections.Counter(target.cells)
    single = "class {cell} has a single row: one to learn from and one to hold out are needed"
    check_cells(target, lambda name: single if counts[name] == 1 else None)
    return np.array(names), classes


def _are_classes(table: InputTable) -> bool:
    try:
        labels(table)
    except ValueError:
        return False
    return True


def _check_rows(table: InputTable, what: str) -> None:
    count = table.count
    if count < LEAST_ROWS:
        left_out = table.announcement_of_rows
        raise ValueError(
            f"there are {plural(count, 'row')} of {what}, but at least {LEAST_ROWS} are needed"
            + (f": {left_out}" if left_out else "")
        )
