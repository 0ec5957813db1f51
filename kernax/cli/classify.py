"""`kernax fit` for classes: learns a kernel and a penalty, and scores the held-out rows."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kernax.cli.answers import vectors
from kernax.cli.console import waiting, with_a_bar
from kernax.cli.fixed_texts import with_fixed_texts, with_texts
from kernax.cli.job import FitReport, Split, check_finite_scores, kernel_of
from kernax.cli.latent_fits import evidences, learned_latent
from kernax.cli.notation import parameter_rows
from kernax.cli.plan import Plan
from kernax.core.base.stacks import points_at
from kernax.core.kernel.model import Model
from kernax.core.losses.loss_functions import Bernoulli
from kernax.core.losses.observation_likelihoods import Categorical
from kernax.metrics import accuracy, area_under_curve, log_loss
from kernax.preparation.cells import quoted
from kernax.preparation.one_hot import columns_of_classes
from kernax.preparation.predictors import GP, IVM, RVM, SVM, ClassPredictor
from kernax.selection.recipes.classification import (
    SVMModel,
    fitted,
    learn_classifier,
    signs_of_columns,
)
from kernax.selection.recipes.held_out_rows import first_of_each
from kernax.selection.recipes.latent import (
    LatentModel,
    Posterior,
    most_rows,
    posterior_of,
    start_of,
)
from kernax.selection.recipes.stages import LEAST_OF_A_CLASS, MOST_ROWS
from kernax.sparse.import_vectors import import_vector_machine
from kernax.sparse.relevance import relevance_vector_machine

_MOST_VECTORS = 300  # import vectors

_Learned = Model | SVMModel | LatentModel


def classify(parts: Split, kernel: str, plan: Plan, with_priors: bool) -> FitReport:
    """Learns a kernel from its expression, and scores it as written and as learned.

    Needs 64-bit mode.
    """
    model = plan.model
    k = kernel_of(parts, kernel)
    start: _Learned
    if model == GP:
        start = start_of(k, plan.likelihood, plan.inference, _targets(parts))
    else:
        start = SVMModel(k) if model == SVM else Model(k)
    with waiting("fitting the kernel as written"):
        written = _classifier(start, parts, model)
        as_written = scores_of_classifier(written, parts)
    chosen, remarks = _learned(start, parts, with_priors)
    learned = _classifier(chosen, parts, model)
    # Some parameters are used by learning only: the slope of Platt's sigmoid, and the ridge if
    # relevance vectors are fitted in the end.
    unused = {"slope", "ridge"} if model == RVM else {"slope"}
    rows = parameter_rows(chosen, parts.inputs.columns)
    before = written.model
    after = learned.model
    if model in (SVM, IVM, RVM):
        remarks = (*remarks, vectors(learned))
    elif isinstance(before, Posterior) and isinstance(after, Posterior):
        remarks = (*remarks, evidences(plan.inference, len(parts.y), before, after))
    return FitReport(
        title="held-out scores",
        scores={
            "most frequent class": _scores_of_frequencies(parts, model),
            f"{model} as written": as_written,
            f"{model} learned": scores_of_classifier(learned, parts),
        },
        parameters=tuple(row for row in rows if row[0] not in unused),
        predictor=learned,
        remarks=remarks,
    )


def _targets(parts: Split) -> Float[np.ndarray, "n *c"]:
    """The targets of the training rows: -1 and +1 (the second class) for two classes, one-hot
    columns for several.
    """
    columns = columns_of_classes(parts.y, parts.classes)
    return signs_of_columns(columns) if len(parts.classes) == 2 else columns


def _learned(start: _Learned, parts: Split, with_priors: bool) -> tuple[_Learned, tuple[str, ...]]:
    """The model that is kept, and remarks on why."""
    is_latent = isinstance(start, LatentModel)
    rows = first_of_each(parts.y, most_rows(start.inference) if is_latent else MOST_ROWS)
    names = parts.y[rows]
    counts = {name: int(np.sum(names == name)) for name in parts.classes}
    rarest = min(parts.classes, key=lambda name: counts[name])
    if counts[rarest] < LEAST_OF_A_CLASS:
        few = (
            f"class {quoted(rarest)} has {counts[rarest]} of the training rows, but folds need "
            f"{LEAST_OF_A_CLASS}: nothing was learned, and the model is as written"
        )
        return start, (few,)
    if is_latent:
        return learned_latent(start, parts, _targets(parts), parts.y, with_priors)
    fixed, X = with_fixed_texts(start, jax.tree.map(jnp.asarray, points_at(parts.X, rows)))
    Y = jnp.asarray(columns_of_classes(names, parts.classes))
    groups = parts.inputs.groups
    choice = learn_classifier(fixed, X, Y, names, groups=groups, progress=with_a_bar)
    is_svm = isinstance(start, SVMModel)
    measure = "log loss, through Platt's sigmoid," if is_svm else "log loss"
    return with_texts(choice.kept.model, start), choice.account(measure)


def _classifier(model: _Learned, parts: Split, kind: str) -> ClassPredictor:
    X = jax.tree.map(jnp.asarray, parts.X)
    y = jnp.asarray(_targets(parts))
    if isinstance(model, LatentModel):
        posterior = posterior_of(model, X, y).value
        return ClassPredictor(
            parts.inputs, GP, posterior, None, parts.classes, str(model.inference)
        )
    if kind == RVM:
        likelihood = Bernoulli() if y.ndim == 1 else Categorical()
        fit = relevance_vector_machine(model.kernel, X, y, likelihood=likelihood)
        return ClassPredictor(parts.inputs, RVM, fit.value.function, None, parts.classes)
    penalty = model.C if isinstance(model, SVMModel) else model.ridge
    if kind == IVM:
        fit = import_vector_machine(model.kernel, X, y, penalty, max_vectors=_MOST_VECTORS)
        function = fit.value.function
    else:
        Y = columns_of_classes(parts.y, parts.classes)
        function = fitted(model, X, jnp.asarray(Y)).value
    return ClassPredictor(parts.inputs, kind, function, float(penalty), parts.classes)


def scores_of_classifier(classifier: ClassPredictor, parts: Split) -> dict[str, float]:
    """The scores of a classifier on the held-out rows."""
    values = classifier.values(parts.X_held_out)
    check_finite_scores(values)
    return _scores(parts, classifier.kind, values)


def _scores_of_frequencies(parts: Split, model: str) -> dict[str, float]:
    """The scores of a constant prediction: the frequencies of the classes in the training rows."""
    logarithms = np.log(columns_of_classes(parts.y, parts.classes).mean(0))
    everywhere = np.ones(len(parts.y_held_out))
    if len(parts.classes) == 2:
        return _scores(parts, model, (logarithms[1] - logarithms[0]) * everywhere)
    return _scores(parts, model, everywhere[:, None] * logarithms)


def _scores(parts: Split, model: str, values: Float[np.ndarray, "n *c"]) -> dict[str, float]:
    """The scores of a model for values at the held-out rows, by their measures."""
    Y = columns_of_classes(parts.y_held_out, parts.classes)
    y = signs_of_columns(Y) if len(parts.classes) == 2 else Y
    scores = {"accuracy": accuracy(y, values)}
    if model != SVM:
        scores["log loss"] = log_loss(y, values)
    if len(parts.classes) == 2:
        scores["AUC"] = area_under_curve(y, values)
    return {measure: float(score) for measure, score in scores.items()}
