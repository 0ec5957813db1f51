"""`kernax fit` for classes: learns a kernel and a penalty, and scores the held-out rows."""

from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from rich.console import Console
from rich.progress import track

from kernax.cli.answers import support_vectors
from kernax.cli.job import Report, Split, kernel_of
from kernax.cli.naming import parameter_rows
from kernax.cli.table import quoted
from kernax.core.model import Model
from kernax.errors import NonFiniteError
from kernax.metrics import accuracy, area_under_curve, log_loss
from kernax.preparation import LOGISTIC, SVM, Classifier, columns_of_classes
from kernax.selection.classification import (
    MachineModel,
    fitted,
    learn_classifier,
    signs_of_columns,
)
from kernax.selection.folds import Folds
from kernax.selection.rows import first_of_each, rows_of
from kernax.selection.stages import LEAST_OF_A_CLASS, MOST_ROWS


def classify(parts: Split, kernel: str, model: str) -> Report:
    """Learns a kernel from its expression, and scores it as written and as learned.

    Needs 64-bit mode.
    """
    start_class = {LOGISTIC: Model, SVM: MachineModel}[model]
    start = start_class(kernel_of(parts, kernel))
    as_written = _scored(_classifier(start, parts), parts)
    chosen, remarks = _learned(start, parts)
    learned = _classifier(chosen, parts)
    if model == SVM:
        remarks = (*remarks, support_vectors(learned))
    return Report(
        title="held-out scores",
        measures=_measures(parts, model),
        scores={
            "most frequent class": _scores_of_frequencies(parts, model),
            f"{model} as written": as_written,
            f"{model} learned": _scored(learned, parts),
        },
        parameters=_rows_without_slope(chosen, parts),
        predictor=learned,
        remarks=remarks,
    )


def _rows_without_slope(model: Model | MachineModel, parts: Split) -> tuple[tuple[str, ...], ...]:
    """The parameters of a model, less the slope of Platt's sigmoid, which only learning uses."""
    rows = parameter_rows(model, parts.inputs.columns)
    return tuple(row for row in rows if row[0] != "slope")


def _learned(
    start: Model | MachineModel, parts: Split
) -> tuple[Model | MachineModel, tuple[str, ...]]:
    """The model that is kept, and remarks on why."""
    rows = first_of_each(parts.y, MOST_ROWS)
    names = parts.y[rows]
    too_few = _too_few_for_folds(names, parts.classes)
    if too_few is not None:
        return start, (f"{too_few}: nothing was learned, and the model is as written",)
    X = jax.tree.map(jnp.asarray, rows_of(parts.X, rows))
    Y = jnp.asarray(columns_of_classes(names, parts.classes))
    choice = learn_classifier(start, X, Y, names, progress=_with_a_bar)
    is_machine = isinstance(start, MachineModel)
    measure = "log loss, through Platt's sigmoid," if is_machine else "log loss"
    return choice.kept.model, choice.account(measure)


def _too_few_for_folds(names: np.ndarray, classes: Sequence[str]) -> str | None:
    """A clause on a class that has too few rows for folds; None if all have enough."""
    counts = {name: int(np.sum(names == name)) for name in classes}
    rarest = min(classes, key=lambda name: counts[name])
    if counts[rarest] >= LEAST_OF_A_CLASS:
        return None
    return (
        f"class {quoted(rarest)} has {counts[rarest]} of the rows to learn from, and folds need "
        f"{LEAST_OF_A_CLASS}"
    )


def _with_a_bar(jobs: Sequence[Folds]) -> Iterable[Folds]:
    """The folds, with a progress bar on stderr."""
    return track(jobs, "learning on folds", console=Console(stderr=True), transient=True)


def _classifier(model: Model | MachineModel, parts: Split) -> Classifier:
    """The classifier that a model fits to the rows to learn from."""
    Y = columns_of_classes(parts.y, parts.classes)
    function = fitted(model, parts.X, jnp.asarray(Y)).value
    if isinstance(model, Model):
        return Classifier(parts.inputs, LOGISTIC, function, float(model.ridge), parts.classes)
    return Classifier(parts.inputs, SVM, function, float(model.C), parts.classes)


def _measures(parts: Split, model: str) -> tuple[str, ...]:
    """The names of the scores of a model."""
    measures = ["accuracy"]
    if model == LOGISTIC:
        measures.append("log loss")
    if len(parts.classes) == 2:
        measures.append("AUC")
    return tuple(measures)


def _scored(classifier: Classifier, parts: Split) -> tuple[str, ...]:
    """The scores of a classifier on the held-out rows."""
    values = classifier.values(parts.X_held_out)
    if not np.all(np.isfinite(values)):
        raise NonFiniteError(
            "held-out rows are predicted as NaN or inf: this kernel grows too fast for them"
        )
    return _scores(parts, classifier.kind, values)


def _scores_of_frequencies(parts: Split, model: str) -> tuple[str, ...]:
    """The scores of a constant prediction: the frequencies of the classes to learn from."""
    logarithms = np.log(columns_of_classes(parts.y, parts.classes).mean(0))
    everywhere = np.ones(len(parts.y_held_out))
    if len(parts.classes) == 2:
        return _scores(parts, model, (logarithms[1] - logarithms[0]) * everywhere)
    return _scores(parts, model, everywhere[:, None] * logarithms)


def _scores(parts: Split, model: str, values: Float[np.ndarray, "n *c"]) -> tuple[str, ...]:
    """The scores that `_measures` names, of values at the held-out rows."""
    Y = columns_of_classes(parts.y_held_out, parts.classes)
    y = signs_of_columns(Y) if len(parts.classes) == 2 else Y
    found = [accuracy(y, values)]
    if model == LOGISTIC:
        found.append(log_loss(y, values))
    if len(parts.classes) == 2:
        found.append(area_under_curve(y, values))
    return tuple(f"{score:.4f}" for score in found)
