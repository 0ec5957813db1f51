"""`kernax fit` for numbers: learns a kernel by regression, and scores the held-out rows."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from kernax.cli.answers import relevant
from kernax.cli.console import waiting, with_a_bar
from kernax.cli.fixed_texts import with_fixed_texts, with_texts
from kernax.cli.job import (
    RMSE,
    FitReport,
    Split,
    check_finite_scores,
    excess_of,
    in_digits,
    kernel_of,
)
from kernax.cli.notation import parameter_rows
from kernax.cli.route import is_along_line
from kernax.core.kernel.model import Model
from kernax.metrics import negative_log_predictive_density, root_mean_square_error
from kernax.preparation.predictors import GP, RIDGE, RVM, Regressor
from kernax.preparation.standards import Standards, standards_of_target
from kernax.selection.recipes.regression_recipe import ProcessModel, fitted, learn_in_stages
from kernax.selection.recipes.stages import MOST_ROWS, StageChoice
from kernax.sparse.relevance import relevance_vector_machine

_MOST_OF_TEXTS = 200
_MOST_ALONG_A_LINE = 3000


def fit(
    parts: Split, kernel: str, model: str, restarts: int, seed: int, with_priors: bool = True
) -> FitReport:
    """Learns a kernel from its expression, and scores it as written and as learned.

    Needs 64-bit mode.
    """
    written = kernel_of(parts, kernel)
    start = Model(written) if model == RIDGE else ProcessModel(written)
    with waiting("fitting the kernel as written"):
        as_written, _ = judged(_regressor(start, parts, model), parts)
    # Stages are learned from standardised targets, and one of them is kept.
    fixed, X = with_fixed_texts(start, jax.tree.map(jnp.asarray, parts.X))
    choice = learn_in_stages(
        fixed,
        X,
        jnp.asarray(_units(parts).standardised(parts.y)),
        most=_rows_to_judge_by(start, parts),
        sparse=model == RVM,
        groups=parts.inputs.groups,
        with_priors=with_priors,
        starts=restarts,
        key=jax.random.key(seed),
        progress=with_a_bar,
        bar=True,
    )
    kept = with_texts(choice.kept.model, start)
    learned = _regressor(kept, parts, model)
    after, excess = judged(learned, parts)
    *_, measure = after
    no_gain = remark_on_no_gain(measure, as_written[measure], after[measure])
    error = f"held-out RMSE, in units of {parts.inputs.target}"
    rows = parameter_rows(kept, parts.inputs.columns)
    if model == RVM:  # which has a noise of its own
        rows = tuple(row for row in rows if row[0] != "noise")
    remarks = []
    stats = choice.kept.stats
    if restarts > 1 and stats:
        losses = np.asarray(stats["start_losses"])
        losses = losses[np.isfinite(losses)]
        failed = int(np.sum(stats["failed"]))
        span = f"from {losses.min():.5g} to {losses.max():.5g}"
        remarks.append(f"{restarts} starts, {failed} failed; losses {span}")
    if learned.kind == RVM:
        remarks.append(relevant(learned))
    return FitReport(
        title=error if model == RIDGE else f"{error}, and mean negative log density",
        scores={
            "mean of the target": _scores(parts, *_constant(learned, parts)),
            f"{model} as written": as_written,
            f"{model} learned": after,
        },
        parameters=rows,
        predictor=learned,
        remarks=(*_account(choice, parts, model), *no_gain, *remarks),
        excess=excess,
    )


def _account(choice: StageChoice, parts: Split, model: str) -> tuple[str, ...]:
    """The validation error of each stage, and which of them is saved, one line each."""
    if len(choice.stages) == 1:
        few = f"{len(parts.y)} training rows are too few for cross-validation"
        return (f"{few}: nothing was learned, and the model is as written",)
    measure = "mean squared error" if model == RIDGE else "negative log density"
    lines = choice.account(f"{measure}, of the standardised target,")
    judged = len(choice.kept.losses)
    if judged == len(parts.y) or choice.kept is choice.stages[0]:
        return lines
    return (*lines, f"which was then learned from all {len(parts.y)} rows")


def remark_on_no_gain(measure: str, as_written: float, learned: float) -> tuple[str, ...]:
    """A remark that held-out rows are predicted worse after learning; empty if they are not, in the
    digits that are printed.
    """
    before = in_digits(measure, as_written)
    after = in_digits(measure, learned)
    if learned <= as_written or before == after:
        return ()
    return (
        f"learning did not improve the held-out rows: {measure} {before} as written, {after} "
        "learned, which is saved",
    )


def _units(parts: Split) -> Standards:
    return standards_of_target(parts.y, parts.inputs.target)


def _rows_to_judge_by(start: Model | ProcessModel, parts: Split) -> int:
    """How many rows choose between stages: few if a comparison of two rows takes long."""
    if parts.inputs.texts:
        return _MOST_OF_TEXTS
    if isinstance(start, ProcessModel) and is_along_line(start.kernel, parts.X):
        return _MOST_ALONG_A_LINE
    return MOST_ROWS


def _regressor(model: Model | ProcessModel, parts: Split, kind: str) -> Regressor:
    target = _units(parts)
    if kind == RVM:
        y = jnp.asarray(target.standardised(parts.y))
        X = jax.tree.map(jnp.asarray, parts.X)
        rvm = relevance_vector_machine(model.kernel, X, y).value
        return Regressor(parts.inputs, RVM, rvm, float(rvm.noise), target)
    function = fitted(model, parts.X, target.standardised(parts.y)).value
    if isinstance(model, Model):
        return Regressor(parts.inputs, RIDGE, function, float(model.ridge), target)
    return Regressor(parts.inputs, GP, function, float(model.noise), target)


def judged(regressor: Regressor, parts: Split) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The scores of a regressor on the held-out rows, and the excess of its losses there over those
    of a constant, as in `FitReport`.
    """
    mean, deviation = regressor.at(parts.X_held_out)
    check_finite_scores(mean, mean if deviation is None else deviation)
    losses = _losses(parts, mean, deviation)
    excess = excess_of(losses, _losses(parts, *_constant(regressor, parts)))
    return _scores(parts, mean, deviation), excess


def _constant(regressor: Regressor, parts: Split) -> tuple[np.ndarray, np.ndarray | None]:
    """The mean of the training rows and their deviation, as predictions of the held-out rows."""
    count = len(parts.y_held_out)
    target = regressor.target
    deviation = None if regressor.kind == RIDGE else np.full(count, target.scale)
    return np.full(count, target.centre), deviation


def _losses(parts: Split, mean: np.ndarray, deviation: np.ndarray | None) -> dict[str, np.ndarray]:
    """The squared error and, given deviations, the negative log density of each held-out row."""
    with np.errstate(over="ignore"):
        squares = np.square(parts.y_held_out - mean)
    if deviation is None:
        return {RMSE: squares}
    density = norm.logpdf(parts.y_held_out, mean, deviation)
    return {RMSE: squares, "NLPD": -np.asarray(density)}


def _scores(parts: Split, mean: np.ndarray, deviation: np.ndarray | None) -> dict[str, float]:
    error = {RMSE: float(root_mean_square_error(parts.y_held_out, mean))}
    if deviation is None:
        return error
    density = negative_log_predictive_density(parts.y_held_out, mean, np.square(deviation))
    return error | {"NLPD": float(density)}
