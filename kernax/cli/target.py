"""The target column as numbers to predict, or as the names of classes."""

import collections

import numpy as np
from jaxtyping import Float

from kernax.cli.table import LEAST_ROWS, Table
from kernax.preparation.cells import Column, as_number, number, plural, quoted

_MOST_CLASSES = 50


def numbers(table: Table) -> Float[np.ndarray, " n"]:
    """The target of a regression. Raises ValueError for text, at its place, and for a constant."""
    target = table.target
    try:
        y = np.array([number(cell, place) for cell, place in zip(target.cells, target.places)])
    except ValueError as problem:
        advice = " (--model logistic or svm takes classes)" if _are_classes(table) else ""
        raise ValueError(f"{problem}{advice}") from None
    _check_rows(len(y), "numbers")
    if y.min() == y.max():
        raise ValueError(
            f"target column {target.name!r} is constant: it is {y[0]:g} in every row, so there is "
            "nothing to learn"
        )
    return y


def check_counts(target: Column, likelihood: str) -> None:
    """Raises ValueError, with its place, for a cell that is no whole number of zero or more."""
    for cell, place in zip(target.cells, target.places):
        value = number(cell, place)
        if value < 0 or value != round(value):
            raise ValueError(
                f"{place}: {quoted(cell)} is no count: --likelihood {likelihood} takes 0, 1, 2, ..."
            )


def why_classes(target: Column, consequence: str) -> str | None:
    """The reason why a target is taken for classes by default; None where it is numbers.

    Text, 0 and 1, and -1 and 1 are classes. The consequence is what is chosen for them.
    """
    if target.first_text:
        return f"{target.first_text}: {target.name} is a class, and {consequence}"
    values = {as_number(cell) for cell in target.cells if cell}
    if values not in ({0, 1}, {-1, 1}):
        return None
    other = "0" if 0 in values else "-1"
    return (
        f"{target.name} is {other} or 1 in every row: {target.name} is a class, and {consequence} "
        "(--likelihood gaussian would take it for a number)"
    )


def labels(table: Table) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each row, and all classes in order, as text.

    Numbers are ordered by value, other text alphabetically. Raises ValueError for an empty cell or
    a fraction, with its place, for one class only, for more than 50, for more classes than half the
    rows, and for a class of a single row.
    """
    target = table.target
    _check_no_cell_is_empty(target)
    if target.first_text:
        names = target.cells
        classes = tuple(sorted(set(names)))
    else:
        names = _whole(target)
        classes = tuple(sorted(set(names), key=float))
    _check_rows(len(names), "classes")
    _check_classes(target, names, classes)
    return np.array(names), classes


def _check_no_cell_is_empty(target: Column) -> None:
    """Raises ValueError, with its place, for an empty cell."""
    for cell, place in zip(target.cells, target.places):
        if not cell:
            raise ValueError(f"{place}: the cell is empty: remove such rows, or fill them in")


def _check_classes(target: Column, names: tuple[str, ...], classes: tuple[str, ...]) -> None:
    """Raises ValueError for one class only, for too many, and for a class of a single row."""
    what = f"target column {target.name!r}"
    if len(classes) == 1:
        raise ValueError(
            f"{what} holds one class only, {quoted(classes[0])}: there is nothing to tell apart"
        )
    if len(classes) > _MOST_CLASSES or 2 * len(classes) > len(names):
        text = f"; {target.first_text}" if target.first_text else ""
        raise ValueError(
            f"{what} holds {len(classes)} classes in {plural(len(names), 'row')}: is this a "
            f"regression?{text}"
        )
    _check_no_class_has_a_single_row(target, names, classes)


def _check_no_class_has_a_single_row(
    target: Column, names: tuple[str, ...], classes: tuple[str, ...]
) -> None:
    """Raises ValueError, with the place of the row, for a class of a single row."""
    counts = collections.Counter(names)
    for name in classes:
        if counts[name] == 1:
            place = target.places[names.index(name)]
            raise ValueError(
                f"{place}: class {quoted(name)} has a single row: one to learn from and one to "
                "hold out are needed"
            )


def _are_classes(table: Table) -> bool:
    """Whether the target can be read as classes."""
    try:
        labels(table)
    except ValueError:
        return False
    return True


def _whole(target: Column) -> tuple[str, ...]:
    """Whole numbers in one spelling: 1, 1.0 and 1e0 are the same class."""
    names = []
    for cell, place in zip(target.cells, target.places):
        value = number(cell, place)
        if value != round(value):
            raise ValueError(
                f"{place}: {quoted(cell)} is a fraction, no class: is this a regression? --model "
                "gp or ridge takes numbers"
            )
        names.append(f"{value + 0.0:.15g}")
    return tuple(names)


def _check_rows(count: int, what: str) -> None:
    """Raises ValueError for too few rows."""
    if count < LEAST_ROWS:
        raise ValueError(
            f"there are {plural(count, 'row')} of {what}, but at least {LEAST_ROWS} are needed"
        )
