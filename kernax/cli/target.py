"""What a target column means: numbers to predict, or the names of classes."""

import collections

import numpy as np
from jaxtyping import Float

from kernax.cli.table import LEAST_ROWS, Column, Table, as_number, number, plural, quoted

_MOST_CLASSES = 50


def numbers(table: Table) -> Float[np.ndarray, " n"]:
    """The target of a regression. Raises ValueError for text, naming its place, and for a constant."""
    target, y = table.target, []
    for cell, place in zip(target.cells, target.places):
        try:
            y.append(number(cell, place))
        except ValueError as problem:
            raise ValueError(f"{problem}{' (--model logistic or svm takes classes)' if _are_classes(table) else ''}") from None
    _check_rows(len(y), "numbers")
    y = np.array(y)
    if y.min() == y.max():
        raise ValueError(
            f"target column {target.name!r} is constant: it is {y[0]:g} in every row, so there is nothing to learn"
        )
    return y


def why_classes(target: Column) -> str | None:
    """Why a target is taken for classes, as 0 and 1 are, if no model is asked for; None where it is numbers."""
    if target.first_text:
        return f"{target.first_text}: {target.name} is a class, and the model logistic regression"
    values = {as_number(cell) for cell in target.cells if cell}
    if values not in ({0, 1}, {-1, 1}):
        return None
    other = "0" if 0 in values else "-1"
    return (
        f"{target.name} is {other} or 1 in every row: {target.name} is a class, and the model logistic regression "
        "(--model gp would take it for a number)"
    )


def labels(table: Table) -> tuple[np.ndarray, tuple[str, ...]]:
    """The class of each row and all classes, as text: numbers in their order, other text in alphabetical order.

    Raises ValueError for an empty cell or a fraction, naming its place, for one class only, for more than 50, for about as many
    classes as rows, and for a class of a single row.
    """
    target = table.target
    for cell, place in zip(target.cells, target.places):
        if not cell:
            raise ValueError(f"{place}: the cell is empty: remove such rows, or fill them in")
    names, order = (target.cells, str) if target.first_text else (_whole(target), float)
    counts, what = collections.Counter(names), f"target column {target.name!r}"
    classes = tuple(sorted(counts, key=order))
    _check_rows(len(names), "classes")
    if len(classes) == 1:
        raise ValueError(f"{what} holds one class only, {quoted(classes[0])}: there is nothing to tell apart")
    if len(classes) > _MOST_CLASSES or 2 * len(classes) > len(names):
        text = f"; {target.first_text}" if target.first_text else ""
        raise ValueError(f"{what} holds {len(classes)} classes in {plural(len(names), 'row')}: is this a regression?{text}")
    single = next((name for name in classes if counts[name] == 1), None)
    if single is not None:
        place = target.places[names.index(single)]
        raise ValueError(f"{place}: class {quoted(single)} has a single row: one to learn from and one to hold out are needed")
    return np.array(names), classes


def _are_classes(table: Table) -> bool:
    try:
        labels(table)
    except ValueError:
        return False
    return True


def _whole(target: Column) -> tuple[str, ...]:
    """Whole numbers, written in one way: 1, 1.0 and 1e0 are the same class."""
    names = []
    for cell, place in zip(target.cells, target.places):
        value = number(cell, place)
        if value != round(value):
            raise ValueError(
                f"{place}: {quoted(cell)} is a fraction, no class: is this a regression? --model gp or ridge takes numbers"
            )
        names.append(f"{value + 0.0:.15g}")
    return tuple(names)


def _check_rows(count: int, what: str) -> None:
    if count < LEAST_ROWS:
        raise ValueError(f"there are {plural(count, 'row')} of {what}, but at least {LEAST_ROWS} are needed")
