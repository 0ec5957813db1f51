"""What goes into a fit, rows to learn from and rows held out, and what comes out of it."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Array, PyTree

from kernax.cli.inputs import Inputs, Tokens, check_size, learned_inputs
from kernax.cli.predictor import Predictor
from kernax.cli.table import Table
from kernax.cli.target import labels, numbers
from kernax.core.kernel import AbstractKernel

_HELD_OUT = 0.25


@dataclasses.dataclass(frozen=True)
class Split:
    """Points to learn from, held-out points in the same units, and how columns became points.

    Targets are numbers in their own units, or the names of classes; `classes` are all of them in order, none for numbers.
    """

    X: PyTree
    y: np.ndarray
    X_held_out: PyTree
    y_held_out: np.ndarray
    inputs: Inputs
    classes: tuple[str, ...] = ()
    unused: int = 0  # rows that are neither learned from nor held out


@dataclasses.dataclass(frozen=True)
class Report:
    """What a fit found: a table of held-out scores, worst idea first, a table of parameters, remarks, and what predicts."""

    title: str
    measures: tuple[str, ...]
    scores: dict[str, tuple[str, ...]]
    parameters: tuple[tuple[str, ...], ...]
    predictor: Predictor
    remarks: tuple[str, ...] = ()


def split_numbers(table: Table, seed: int, tokens: Tokens, most: int | None = None) -> Split:
    """Shuffles the rows, holds out a quarter, and standardises inputs by the mean and deviation of the others alone.

    Of the others, at most `most` are learned from.
    """
    y = numbers(table)
    order = np.random.default_rng(seed).permutation(len(y))
    count = max(1, round(_HELD_OUT * len(order)))
    rest = order[count:]
    kept = rest[:most]
    if y[kept].min() == y[kept].max():
        raise ValueError(f"target column {table.target.name!r} is constant in the rows to learn from: another --seed may help")
    with np.errstate(over="ignore", invalid="ignore"):
        check_size(table.target.name, y[kept].std())
    return split_rows(table, tokens, y, kept, order[:count], unused=len(rest) - len(kept))


def split_classes(table: Table, seed: int, tokens: Tokens, most: int | None = None) -> Split:
    """The same for classes, of each of which a quarter is held out, and as large a part of the others learned from."""
    names, classes = labels(table)
    order = np.random.default_rng(seed).permutation(len(names))
    held_out = quarter_of_each(names[order])
    rest = order[~held_out]
    kept = rest if most is None else rest[first_of_each(names[rest], most)]
    if len(kept) < len(classes):
        raise ValueError(f"--rows {most} is fewer than the {len(classes)} classes of {table.target.name!r}")
    return split_rows(table, tokens, names, kept, order[held_out], classes, unused=len(rest) - len(kept))


def first_of_each(names: np.ndarray, most: int) -> np.ndarray:
    """The first rows of each class, in its proportion, in all `most`; the very first of each class before any second."""
    share = np.zeros(len(names))
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        share[rows] = np.arange(len(rows)) / len(rows)
    return np.sort(np.argsort(share, kind="stable")[:most])


def quarter_of_each(names: np.ndarray) -> np.ndarray:
    """Which rows to hold out: the first quarter of each class, at least one of a class of two rows or more, never all."""
    chosen = np.zeros(len(names), bool)
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        chosen[rows[: max(round(_HELD_OUT * len(rows)), int(len(rows) > 1))]] = True
    return chosen


def split_rows(
    table: Table,
    tokens: Tokens,
    y: np.ndarray,
    kept: np.ndarray,
    held_out: np.ndarray,
    classes: tuple[str, ...] = (),
    unused: int = 0,
) -> Split:
    """Rows to learn from and rows held out, by number; columns are standardised, and letters known, by the former alone."""
    inputs = learned_inputs(table, kept, tokens)
    points = inputs.points(table.X, table.texts[0].cells if table.texts else ())
    return Split(rows_of(points, kept), y[kept], rows_of(points, held_out), y[held_out], inputs, classes, unused)


def rows_of(points: PyTree, rows: np.ndarray | Array) -> PyTree:
    """Some of a stack of points, by their indices or a mask."""
    return jax.tree.map(lambda leaf: leaf[rows], points)


def one_per_column(parts: Split) -> bool:
    """Whether there are rows enough to learn a lengthscale for each column: fewer than twenty rows a column overfit."""
    return len(parts.y) >= 20 * len(parts.inputs.columns)


def kernel_of(parts: Split, expression: str) -> AbstractKernel:
    """The kernel that an expression describes, for the points of a split."""
    return parts.inputs.kernel(expression, per_column=one_per_column(parts))
