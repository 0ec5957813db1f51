"""What goes into a fit, rows to learn from and rows held out, and what comes out of it."""

import dataclasses

import numpy as np
from jaxtyping import Float

from kernax.cli.predictor import Predictor, Standards
from kernax.cli.table import Table
from kernax.cli.target import labels, numbers

_HELD_OUT = 0.25


@dataclasses.dataclass(frozen=True)
class Split:
    """Standardised rows to learn from, held-out rows in the same units, and the standards.

    Targets are numbers in their own units, or the names of classes; `classes` are all of them in order, none for numbers.
    """

    X: Float[np.ndarray, "n d"]
    y: np.ndarray
    X_held_out: Float[np.ndarray, "m d"]
    y_held_out: np.ndarray
    standards: Standards
    classes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Report:
    """What a fit found: a table of held-out scores, worst idea first, a table of parameters, remarks, and what predicts."""

    title: str
    measures: tuple[str, ...]
    scores: dict[str, tuple[str, ...]]
    parameters: tuple[tuple[str, ...], ...]
    predictor: Predictor
    remarks: tuple[str, ...] = ()


def split_numbers(table: Table, seed: int) -> Split:
    """Shuffles the rows, holds out a quarter, and standardises inputs by the mean and deviation of the others alone."""
    y = numbers(table)
    order = np.random.default_rng(seed).permutation(len(y))
    count = max(1, round(_HELD_OUT * len(order)))
    kept = y[order[count:]]
    if kept.min() == kept.max():
        raise ValueError(f"target column {table.target!r} is constant in the rows to learn from: another --seed may help")
    with np.errstate(over="ignore", invalid="ignore"):
        _check_size(table.target, kept.std())
    return _split(table, y, order[count:], order[:count])


def split_classes(table: Table, seed: int) -> Split:
    """The same for classes, of each of which a quarter is held out."""
    names, classes = labels(table)
    order = np.random.default_rng(seed).permutation(len(names))
    held_out = quarter_of_each(names[order])
    return _split(table, names, order[~held_out], order[held_out], classes)


def quarter_of_each(names: np.ndarray) -> np.ndarray:
    """Which rows to hold out: the first quarter of each class, at least one of a class of two rows or more, never all."""
    chosen = np.zeros(len(names), bool)
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        chosen[rows[: max(round(_HELD_OUT * len(rows)), int(len(rows) > 1))]] = True
    return chosen


def _split(table: Table, y: np.ndarray, kept: np.ndarray, held_out: np.ndarray, classes: tuple[str, ...] = ()) -> Split:
    X = table.X[kept]
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.where(X.min(0) == X.max(0), 1.0, X.std(0))
        standards = Standards(table.columns, table.target, X.mean(0), scale)
        inputs = standards.inputs(X)
    for name, size in zip(table.columns, scale):
        _check_size(name, size)
    return Split(inputs, y[kept], standards.inputs(table.X[held_out]), y[held_out], standards, classes)


def _check_size(name: str, size: float) -> None:
    if not 0 < size < np.inf:
        raise ValueError(f"column {name!r} cannot be standardised: its numbers are too large, or too close together")


def one_per_column(parts: Split) -> bool:
    """Whether there are rows enough to learn a lengthscale for each column: fewer than twenty rows a column overfit."""
    return len(parts.y) >= 20 * parts.X.shape[1]
