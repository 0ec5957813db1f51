"""`kernax fit` for classes: learns a kernel and a penalty by gradients through the fit itself, and scores what was held out."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from kernax.cli.job import Report, Split, kernel_of, quarter_of_each, rows_of
from kernax.cli.predictor import LOGISTIC, SVM, Classifier, parameter_rows
from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel
from kernax.core.parameters import interior, positive
from kernax.core.solution import RESULTS, Solution
from kernax.errors import NonFiniteError
from kernax.selection.minimise import minimise
from kernax.supervised.logistic import kernel_logistic, kernel_softmax
from kernax.supervised.svm import svm

# Few short steps, on purpose: a validation loss of some dozen rows can be fitted too well. On breast cancer L-BFGS drives
# that of logistic regression to zero, and the ridge with it.
_OPTIMISER, _STEPS = optax.adam(0.1), 40


class LogisticModel(eqx.Module):
    """A kernel and the ridge that goes with it."""

    kernel: AbstractKernel
    ridge: Float[Array, ""] = positive(default=1.0)


class MachineModel(eqx.Module):
    """A kernel and the price of an error."""

    kernel: AbstractKernel
    C: Float[Array, ""] = positive(default=1.0)


def fitted(
    model: LogisticModel | MachineModel, X: PyTree, Y: Array, weights: Array | None = None, throw: bool = True
) -> Solution[KernelExpansion]:
    """The function of a model for classes in one-hot columns: of one value for two of them, of one each for several."""
    two = Y.shape[1] == 2
    if isinstance(model, MachineModel):
        return svm(model.kernel, X, _signs(Y), model.C, weights=weights, throw=throw)
    verb, targets = (kernel_logistic, _signs(Y)) if two else (kernel_softmax, Y)
    return verb(model.kernel, X, targets, model.ridge, weights=weights, throw=throw)


def validation_loss(
    model: LogisticModel | MachineModel, X: PyTree, Y: Array, weights: Array, X_new: PyTree, Y_new: Array
) -> Array:
    """Logistic loss, at rows of weight zero, of the function that the other rows make: smooth, for both models."""
    values = fitted(model, X, Y, weights, throw=False).value.values(X_new)
    if isinstance(model, MachineModel) or values.ndim == 1:
        return jnp.mean(jax.nn.softplus(-_signs(Y_new) * values))
    return -jnp.mean(jnp.sum(Y_new * jax.nn.log_softmax(values), 1))


def classify(parts: Split, kernel: str, model: str) -> Report:
    """Learns a kernel from its expression, and scores it as written and as learned; needs 64-bit mode."""
    start = {LOGISTIC: LogisticModel, SVM: MachineModel}[model](kernel_of(parts, kernel))
    Y, aside = _one_hot(parts, parts.y), quarter_of_each(parts.y)
    data = (parts.X, Y, np.where(aside, 0.0, 1.0), rows_of(parts.X, aside), Y[aside])
    as_written = _scored(_classifier(start, parts, Y), parts)
    solution = minimise(
        validation_loss, start, _OPTIMISER, _STEPS, args=data, trainable=interior(start), progress=True, throw=False
    )
    learned = _classifier(solution.value, parts, Y)
    scores = {
        "most frequent class": _frequency_scores(parts, Y, model),
        f"{model} as written": as_written,
        f"{model} learned": _scored(learned, parts),
    }
    remarks = ()
    if not bool(solution.result == RESULTS.successful):
        remarks = (f"learning stopped early: {RESULTS[solution.result]} These are the best parameters before that.",)
    if model == SVM:
        remarks += (f"{learned.support.sum()} of {len(parts.y)} rows are support vectors",)
    rows = parameter_rows(solution.value, parts.inputs.columns)
    return Report("held-out scores", _measures(parts, model), scores, rows, learned, remarks)


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
