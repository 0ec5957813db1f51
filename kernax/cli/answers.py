"""Predictions as columns, and descriptions of predictors: for `kernax predict` and `kernax
describe`.
"""

import csv
import io
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import PyTree

from kernax.core.losses.loss_functions import Bernoulli, Poisson
from kernax.core.losses.observation_likelihoods import Categorical, NegativeBinomial, Probit
from kernax.gp.laplace_classes import CategoricalPosterior
from kernax.preparation.predictors import (
    GP,
    IVM,
    LOGISTIC,
    RIDGE,
    RVM,
    SVM,
    ClassPredictor,
    CountRegressor,
    Predictor,
    Regressor,
)
from kernax.selection.recipes.latent_choices import Inference, Likelihood

INTERVAL = 0.95
_WORDS = {
    GP: "Gaussian process",
    RIDGE: "kernel ridge regression",
    LOGISTIC: "kernel logistic regression",
    SVM: "support vector machine",
    IVM: "import vector machine",
    RVM: "relevance vector machine",
}
_INFERENCES = {
    Inference.LAPLACE: "Laplace's approximation",
    Inference.EP: "expectation propagation",
    Inference.VARIATIONAL: "variational inference",
}
_LIKELIHOODS = {
    Bernoulli: Likelihood.BERNOULLI,
    Probit: Likelihood.PROBIT,
    Poisson: Likelihood.POISSON,
    NegativeBinomial: Likelihood.NEGATIVE_BINOMIAL,
    Categorical: "categorical, the softmax of a process for each class",
}


def answer_columns(
    predictor: Predictor, points: PyTree, interval: float | None = None
) -> dict[str, np.ndarray]:
    """Predictions at points: columns to write, by their names.

    Intervals of numbers and counts contain the target with a probability, 0.95 by default. Raises
    ValueError for an interval if the model predicts none.
    """
    if interval is not None:
        upper = (1 + interval) / 2  # the share of targets below the upper end
        if not (interval > 0 and upper < 1):
            raise ValueError(f"--interval must be between 0 and 1, but is {interval:g}")
        if isinstance(predictor, ClassPredictor):
            raise ValueError(f"--interval {interval:g}: the model predicts classes, not numbers")
        if predictor.kind == RIDGE:
            raise ValueError(
                f"--interval {interval:g}: the model is kernel ridge regression, which predicts no "
                "intervals; --model gp does"
            )
    if isinstance(predictor, ClassPredictor):
        # The class of each point, with probabilities or decision values.
        values = predictor.values(points)
        # NaN gets some class here; the caller, which knows the row, raises ValueError.
        decided = {predictor.inputs.target: predictor.decide(np.nan_to_num(values))}
        if predictor.kind != SVM:
            probabilities = np.exp(predictor.log_probabilities(values))
            return decided | _one_for_each("p", predictor.classes, probabilities.T)
        if values.ndim == 1:
            return decided | _one_for_each("f", predictor.classes[1:], [values])
        return decided | _one_for_each("f", predictor.classes, values.T)
    name = predictor.inputs.target
    share = INTERVAL if interval is None else interval
    mean, deviation = predictor.at(points)
    if isinstance(predictor, CountRegressor):
        low, high = predictor.interval(points, share)
    elif deviation is not None:
        low, high = predictor.interval(mean, deviation, share)
    else:  # of ridge regression
        return {name: mean}
    return {name: mean, f"{name} low": low, f"{name} high": high}


def _one_for_each(
    letter: str, classes: Iterable[str], columns: Iterable[np.ndarray]
) -> dict[str, np.ndarray]:
    """Columns under names such as `p(class)`."""
    return {f"{letter}({name})": column for name, column in zip(classes, columns)}


def summary(predictor: Predictor) -> tuple[str, ...]:
    """A description of the predictor, line by line."""
    inputs = predictor.inputs
    title = f"{_WORDS[predictor.kind]} for {inputs.target!r}, from {inputs}"
    lines = (title, *inputs.remarks())
    if isinstance(predictor, ClassPredictor):
        return *lines, *_summary_of_classes(predictor)
    if isinstance(predictor, CountRegressor):
        return *lines, _summary_of_process(predictor)
    noise = "ridge" if predictor.kind == RIDGE else "noise variance"
    size = f"{noise} {predictor.noise:.6g}, for a target of mean 0 and variance 1"
    return (*lines, size, relevant(predictor)) if predictor.kind == RVM else (*lines, size)


def _summary_of_classes(predictor: ClassPredictor) -> tuple[str, ...]:
    classes = f"classes {', '.join(map(repr, predictor.classes))}"
    if predictor.kind == GP:
        return classes, _summary_of_process(predictor)
    if predictor.kind == RVM:
        return classes, vectors(predictor)
    penalty = f"{predictor.penalty:.6g}"
    if predictor.kind == LOGISTIC:
        return classes, f"ridge {penalty}"
    name = "C" if predictor.kind == SVM else "ridge"
    return classes, f"{name} {penalty}", vectors(predictor)


def _summary_of_process(predictor: ClassPredictor | CountRegressor) -> str:
    posterior: Any = predictor.model
    likelihood = posterior.likelihood
    words = str(_LIKELIHOODS[type(likelihood)])
    if isinstance(likelihood, NegativeBinomial):
        words += f" of dispersion {float(likelihood.dispersion):.6g}"
    # The constant prior mean, for several classes one for each.
    mean = posterior.process.mean
    if isinstance(posterior, CategoricalPosterior):
        mean = mean.of_all
    means = ", ".join(f"{number:.6g}" for number in np.atleast_1d(mean.bias))
    method = _INFERENCES[Inference(predictor.inference)]
    return f"likelihood {words}, constant mean {means}, posterior by {method}"


def vectors(predictor: ClassPredictor) -> str:
    """How many rows are vectors of a sparse model."""
    support = predictor.support
    if predictor.kind == SVM:
        return f"{support.sum()} of {len(support)} rows are support vectors"
    name = "import" if predictor.kind == IVM else "relevance"
    return f"{support.sum()} rows are {name} vectors"


def relevant(predictor: Regressor) -> str:
    """How many rows are relevance vectors of a model for numbers."""
    return f"{int(predictor.model.count)} rows are relevance vectors"


def as_csv(columns: dict[str, list[str]]) -> str:
    """Columns of cells as the text of a CSV file with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values()))
    return text.getvalue()


def cells_of(column: np.ndarray) -> list[str]:
    """Text unchanged, and numbers in ten significant digits: more are rounding."""
    if column.dtype.kind != "f":
        return list(map(str, column.tolist()))
    return [f"{cell:.10g}" for cell in column.tolist()]
