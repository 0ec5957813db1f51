"""The training rows and the held-out rows of a fit, and the report of its results."""

import dataclasses

import numpy as np
from jaxtyping import PyTree

from kernax.cli.compared_columns import kernel_of_inputs, learned_inputs
from kernax.cli.options import DEFAULT_KERNEL
from kernax.cli.table import InputTable
from kernax.cli.target import labels, numbers
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.errors import NonFiniteError
from kernax.preparation.inputs import Inputs
from kernax.preparation.predictors import Predictor
from kernax.preparation.standards import standards_of_target
from kernax.preparation.tokens import Tokens
from kernax.selection.recipes.held_out_rows import first_of_each, held_out_of_each

RMSE = "RMSE"
_HELD_OUT = 0.25


@dataclasses.dataclass(frozen=True)
class Split:
    """Training points and held-out points, with their targets, and the preparation of columns as
    points.

    Targets are numbers in their own units, or the names of classes; `classes` are the names of all
    classes in order, empty for numbers.
    """

    X: PyTree
    y: np.ndarray
    X_held_out: PyTree
    y_held_out: np.ndarray
    inputs: Inputs
    classes: tuple[str, ...] = ()
    unused: int = 0  # rows that are neither learned from nor held out


@dataclasses.dataclass(frozen=True)
class FitReport:
    """The results of a fit: scores, parameters, remarks, and the predictor.

    Scores are those on the held-out rows, each by its measure: of a constant prediction, of the
    kernel as written, and of the learned kernel. For numbers and counts, `excess` has for each
    measure the losses of the predictor at the held-out rows (n,), squares for the RMSE, minus those
    of the constant prediction.
    """

    title: str
    scores: dict[str, dict[str, float]]
    parameters: tuple[tuple[str, ...], ...]
    predictor: Predictor
    remarks: tuple[str, ...] = ()
    excess: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def check_finite_scores(*figures: np.ndarray) -> None:
    """Raises NonFiniteError for predictions of the held-out rows that are NaN or inf."""
    if not all(np.all(np.isfinite(figure)) for figure in figures):
        raise NonFiniteError(
            "held-out rows are predicted as NaN or inf: this kernel grows too fast for them"
        )


def in_digits(measure: str, score: float) -> str:
    """A score as text: errors in the target's own units with significant digits."""
    return f"{score:.5g}" if measure == RMSE else f"{score:.4f}"


def excess_of(
    saved: dict[str, np.ndarray], constant: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The losses of a predictor minus those of a constant prediction, row by row."""
    return {measure: saved[measure] - losses for measure, losses in constant.items()}


def remark_on_baseline(report: FitReport, kernel: str) -> tuple[str, ...]:
    """A warning that the held-out rows are predicted worse than by a constant; empty if they are
    not, by more than the standard error over rows and in the digits that are printed.
    """
    worse = [measure for measure, excess in report.excess.items() if _is_positive(excess)]
    (name, constant), *_, (_, saved) = report.scores.items()
    figures = []
    for measure in worse:
        after = in_digits(measure, saved[measure])
        before = in_digits(measure, constant[measure])
        if after != before:
            figures.append(f"{measure} {after} against {before}")
    if not figures:
        return ()
    # The default kernel compares numbers only.
    has_default = kernel != DEFAULT_KERNEL and not report.predictor.inputs.texts
    other = "the default kernel (leave out --kernel)" if has_default else "other inputs"
    return (
        f"warning: the saved model predicts the held-out rows worse than the {name}: "
        f"{' and '.join(figures)}, by more than a standard error; try another kernel, or {other}",
    )


def _is_positive(excess: np.ndarray) -> bool:
    """Whether a mean is positive by more than its standard error, if there is one."""
    if len(excess) < 2 or not np.all(np.isfinite(excess)):
        return bool(np.mean(excess) > 0)
    return bool(np.mean(excess) > np.std(excess, ddof=1) / np.sqrt(len(excess)))


def split_numbers(table: InputTable, seed: int, tokens: Tokens, most: int | None = None) -> Split:
    """Shuffles the rows of numbers, holds out a quarter, and standardises the inputs.

    Means and deviations are those of the training rows, which are at most `most` of the others.
    """
    y = numbers(table)
    order = np.random.default_rng(seed).permutation(len(y))
    count = max(1, round(_HELD_OUT * len(order)))
    rest = order[count:]
    kept = rest[:most]
    name = table.target.name
    if y[kept].min() == y[kept].max():
        raise ValueError(
            f"target column {name!r} is constant in the training rows: another --seed may help"
        )
    standards_of_target(y[kept], name)  # which refuses what cannot be standardised
    return split_rows(table, tokens, y, kept, order[:count], unused=len(rest) - len(kept))


def split_classes(table: InputTable, seed: int, tokens: Tokens, most: int | None = None) -> Split:
    """Shuffles the rows, holds out a quarter of each class, and standardises the inputs.

    At most `most` of the others are training rows, the same share of each class.
    """
    names, classes = labels(table)
    order = np.random.default_rng(seed).permutation(len(names))
    held_out = held_out_of_each(names[order], _HELD_OUT)
    rest = order[~held_out]
    kept = rest if most is None else rest[first_of_each(names[rest], most)]
    if len(kept) < len(classes):
        raise ValueError(
            f"--rows {most} is fewer than the {len(classes)} classes of {table.target.name!r}"
        )
    unused = len(rest) - len(kept)
    return split_rows(table, tokens, names, kept, order[held_out], classes, unused)


def split_rows(
    table: InputTable,
    tokens: Tokens,
    y: np.ndarray,
    kept: np.ndarray,
    held_out: np.ndarray,
    classes: tuple[str, ...] = (),
    unused: int = 0,
) -> Split:
    """Training rows and held-out rows, given by their numbers.

    Means, deviations and the alphabet are those of the training rows.
    """
    inputs = learned_inputs(table, kept, tokens)
    points = inputs.points(table.inputs)
    return Split(
        X=points_at(points, kept),
        y=y[kept],
        X_held_out=points_at(points, held_out),
        y_held_out=y[held_out],
        inputs=inputs,
        classes=classes,
        unused=unused,
    )


def one_per_column(parts: Split) -> bool:
    """Whether there are at least twenty rows for each column; with fewer, separate lengthscales
    overfit.
    """
    return len(parts.y) >= 20 * len(parts.inputs.columns)


def kernel_of(parts: Split, expression: str) -> AbstractKernel:
    """The kernel that an expression describes, for the points of a split."""
    return kernel_of_inputs(parts.inputs, expression, per_column=one_per_column(parts))
