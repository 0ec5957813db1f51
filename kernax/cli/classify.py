"""`kernax fit` for classes: learns a kernel and a penalty by gradients through the fit itself, and scores what was held out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from kernax.cli.job import Report, Split, first_of_each, kernel_of, rows_of
from kernax.cli.predictor import LOGISTIC, SVM, Classifier, parameter_rows
from kernax.cli.priors import Priors
from kernax.cli.stages import LEAST_OF_A_CLASS, MOST_ROWS, Together, choose
from kernax.cli.table import quoted
from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel
from kernax.core.parameters import positive
from kernax.core.solution import RESULTS, Solution
from kernax.errors import NonFiniteError
from kernax.selection.folds import Folds
from kernax.supervised.calibration import platt
from kernax.supervised.logistic import kernel_logistic
from kernax.supervised.softmax import kernel_softmax
from kernax.supervised.svm import svm


class LogisticModel(eqx.Module):
    """A kernel and the ridge that goes with it."""

    kernel: AbstractKernel
    ridge: Float[Array, ""] = positive(default=1.0)


class MachineModel(eqx.Module):
    """A kernel, the price of an error, and the slope by which decision values become log odds while they are learned."""

    kernel: AbstractKernel
    C: Float[Array, ""] = positive(default=1.0)
    slope: Float[Array, ""] = positive(default=1.0)


def fitted(
    model: LogisticModel | MachineModel, X: PyTree, Y: Array, weights: Array | None = None, throw: bool = True
) -> Solution[KernelExpansion]:
    """The function of a model for classes in one-hot columns: of one value for two of them, of one each for several."""
    two = Y.shape[1] == 2
    if isinstance(model, MachineModel):
        return svm(model.kernel, X, _signs(Y), model.C, weights=weights, throw=throw)
    verb, targets = (kernel_logistic, _signs(Y)) if two else (kernel_softmax, Y)
    return verb(model.kernel, X, targets, model.ridge, weights=weights, throw=throw)


@eqx.filter_jit
def fold_values(model: LogisticModel | MachineModel, X: PyTree, Y: Array, fold: Folds) -> Array:
    """Values at the rows that a fold scores, of the function that its other rows make."""
    function = fitted(model, rows_of(X, fold.learn), Y[fold.learn], fold.learn_weights, throw=False).value
    return function.values(rows_of(X, fold.score))


def fold_loss(
    model: LogisticModel | MachineModel, X: PyTree, Y: Array, folds: Folds, priors: Priors, together: Together
) -> Array:
    """Cross-validated log loss of a row, and the priors' share: smooth in the parameters, for both models.

    The values of a machine are no log odds, and their size says nothing: a slope, which is learned with the kernel, makes them
    some (Platt 2000). Without it a larger C, which makes values larger, would seem to be better.
    """
    model = together(model)

    def of_one(fold: Folds) -> Array:
        values = fold_values(model, X, Y, fold)
        values = values * model.slope if isinstance(model, MachineModel) else values
        return jnp.sum(fold.score_weights * log_losses(values, Y[fold.score]))

    return (jnp.sum(lax.map(of_one, folds)) + priors.penalty(model)) / jnp.sum(folds.score_weights)


def log_losses(values: Array, Y: Array) -> Float[Array, " n"]:
    """Minus the log probability of each row's class, for log odds of two classes or a value for each of several."""
    if values.ndim == 1:
        return jax.nn.softplus(-_signs(Y) * values)
    return -jnp.sum(Y * jax.nn.log_softmax(values), 1)


def calibrated_losses(values: Array, Y: Array) -> Float[Array, " n"]:
    """The same of decision values of machines, through Platt's sigmoid of each column."""
    signs = _signs(Y)
    columns = [(values, signs)] if values.ndim == 1 else zip(values.T, signs.T)
    losses = []
    for column, sign in columns:
        finite = jnp.all(jnp.isfinite(column))  # not where the fit of a fold failed
        sigmoid = platt(jnp.where(finite, column, 0), sign, throw=False)
        known = finite & (sigmoid.result == RESULTS.successful)
        losses.append(jnp.where(known, jax.nn.softplus(-sign * sigmoid.value.log_odds(column)), jnp.nan))
    return jnp.mean(jnp.stack(losses), 0)


def classify(parts: Split, kernel: str, model: str) -> Report:
    """Learns a kernel from its expression, and scores it as written and as learned; needs 64-bit mode."""
    start = {LOGISTIC: LogisticModel, SVM: MachineModel}[model](kernel_of(parts, kernel))
    Y = _one_hot(parts, parts.y)
    as_written = _scored(_classifier(start, parts, Y), parts)
    chosen, remarks = _learned(start, parts, Y)
    learned = _classifier(chosen, parts, Y)
    scores = {
        "most frequent class": _frequency_scores(parts, Y, model),
        f"{model} as written": as_written,
        f"{model} learned": _scored(learned, parts),
    }
    if model == SVM:
        remarks += (f"{learned.support.sum()} of {len(parts.y)} rows are support vectors",)
    rows = [row for row in parameter_rows(chosen, parts.inputs.columns) if row[0] != "slope"]
    return Report("held-out scores", _measures(parts, model), scores, tuple(rows), learned, remarks)


def _learned(
    start: LogisticModel | MachineModel, parts: Split, Y: np.ndarray
) -> tuple[LogisticModel | MachineModel, tuple[str, ...]]:
    """The model that is kept, and why."""
    rows = first_of_each(parts.y, MOST_ROWS)
    names = parts.y[rows]
    rarest = min(parts.classes, key=lambda name: np.sum(names == name))
    if (count := np.sum(names == rarest)) < LEAST_OF_A_CLASS:
        few = f"class {quoted(rarest)} has {count} of the rows to learn from, and folds need {LEAST_OF_A_CLASS}"
        return start, (f"{few}: nothing was learned, and the model is as written",)
    X = jax.tree.map(jnp.asarray, rows_of(parts.X, rows))
    losses = calibrated_losses if isinstance(start, MachineModel) else log_losses
    choice = choose(start, X, jnp.asarray(Y[rows]), names, fold_loss, fold_values, losses)
    measure = "log loss" if losses is log_losses else "log loss, through Platt's sigmoid,"
    return choice.kept.model, choice.account(measure)


def _one_hot(parts: Split, names: np.ndarray) -> Float[np.ndarray, "n c"]:
    return np.where(names[:, None] == np.array(parts.classes), 1.0, 0.0)


def _signs(Y: Array) -> Array:
    """-1 and +1: of two classes whether it is the second, of several a column for each."""
    return 2 * Y[:, 1] - 1 if Y.shape[1] == 2 else 2 * Y - 1


def _classifier(model: LogisticModel | MachineModel, parts: Split, Y: np.ndarray) -> Classifier:
    kind, penalty = (SVM, model.C) if isinstance(model, MachineModel) else (LOGISTIC, model.ridge)
    f = fitted(model, parts.X, jnp.asarray(Y)).value
    return Classifier(parts.inputs, kind, f, float(penalty), parts.classes)


def _measures(parts: Split, model: str) -> tuple[str, ...]:
    return ("accuracy", *["log loss"] * (model == LOGISTIC), *["AUC"] * (len(parts.classes) == 2))


def _scored(classifier: Classifier, parts: Split) -> tuple[str, ...]:
    """What `_measures` names."""
    values = classifier.values(parts.X_held_out)
    if not np.all(np.isfinite(values)):
        raise NonFiniteError("held-out rows are predicted as NaN or inf: this kernel grows too fast for them")
    scores = [np.mean(classifier.decide(values) == parts.y_held_out)]
    if classifier.kind == LOGISTIC:
        scores.append(-np.mean(np.sum(_one_hot(parts, parts.y_held_out) * classifier.log_probabilities(values), 1)))
    if values.ndim == 1:
        scores.append(_area(values, parts.y_held_out == parts.classes[1]))
    return tuple(f"{score:.4f}" for score in scores)


def _frequency_scores(parts: Split, Y: np.ndarray, model: str) -> tuple[str, ...]:
    """The same of a guess that looks at no column: the frequencies of the classes among the rows to learn from."""
    frequencies, held_out = Y.mean(0), _one_hot(parts, parts.y_held_out)
    scores = [held_out.mean(0)[frequencies.argmax()]]
    if model == LOGISTIC:
        scores.append(-np.sum(held_out.mean(0) * np.log(frequencies)))
    if len(parts.classes) == 2:
        scores.append(0.5)
    return tuple(f"{score:.4f}" for score in scores)


def _area(values: np.ndarray, positive: np.ndarray) -> float:
    """The area under the curve of true over false positives: how often a positive lies above a negative, ties half."""
    negative = np.sort(values[~positive])
    below = np.searchsorted(negative, values[positive], "left") + np.searchsorted(negative, values[positive], "right")
    return float(np.mean(below / 2) / len(negative))
