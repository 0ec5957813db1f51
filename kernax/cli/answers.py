"""Predictions as columns, and predictors in words: for `kernax predict` and `kernax describe`."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import PyTree

from kernax.preparation import GP, LOGISTIC, RIDGE, SVM, Classifier, Predictor, Regressor
from kernax.preparation.predictors import INTERVAL

_WORDS = {
    GP: "Gaussian process",
    RIDGE: "kernel ridge regression",
    LOGISTIC: "kernel logistic regression",
    SVM: "support vector machine",
}


def answer_columns(predictor: Predictor, points: PyTree) -> dict[str, np.ndarray]:
    """Predictions at points: columns to write, by their names."""
    if isinstance(predictor, Classifier):
        return _of_classes(predictor, points)
    return _of_numbers(predictor, points)


def _of_numbers(predictor: Regressor, points: PyTree) -> dict[str, np.ndarray]:
    """The mean, and for a process the ends of an interval."""
    name = predictor.inputs.target
    mean, deviation = predictor.at(points)
    if deviation is None:
        return {name: mean}
    return {
        name: mean,
        f"{name} low": mean - INTERVAL * deviation,
        f"{name} high": mean + INTERVAL * deviation,
    }


def _of_classes(predictor: Classifier, points: PyTree) -> dict[str, np.ndarray]:
    """The class of each point, with probabilities or decision values.

    Logistic regression gives a probability for each class, a support vector machine a decision
    value for each; of two classes only that of the second.
    """
    values = predictor.values(points)
    decided = {predictor.inputs.target: predictor.decide(values)}
    if predictor.kind == LOGISTIC:
        probabilities = np.exp(predictor.log_probabilities(values))
        return decided | _one_for_each("p", predictor.classes, probabilities.T)
    if values.ndim == 1:
        return decided | _one_for_each("f", predictor.classes[1:], [values])
    return decided | _one_for_each("f", predictor.classes, values.T)


def _one_for_each(
    letter: str, classes: Iterable[str], columns: Iterable[np.ndarray]
) -> dict[str, np.ndarray]:
    """Columns under names such as `p(class)`."""
    return {f"{letter}({name})": column for name, column in zip(classes, columns)}


def summary(predictor: Predictor) -> tuple[str, ...]:
    """A description of the predictor, line by line."""
    inputs = predictor.inputs
    title = f"{_WORDS[predictor.kind]} for {inputs.target!r}, from {inputs}"
    if isinstance(predictor, Classifier):
        return title, *_summary_of_classes(predictor)
    noise = "noise variance" if predictor.kind == GP else "ridge"
    return title, f"{noise} {predictor.noise:.6g}, for a target of mean 0 and variance 1"


def _summary_of_classes(predictor: Classifier) -> tuple[str, ...]:
    """Lines on the classes, the penalty, and the support vectors."""
    classes = f"classes {', '.join(map(repr, predictor.classes))}"
    if predictor.kind == LOGISTIC:
        return classes, f"ridge {predictor.penalty:.6g}"
    return classes, f"C {predictor.penalty:.6g}", support_vectors(predictor)


def support_vectors(predictor: Classifier) -> str:
    """How many of the rows that a machine was fitted to are support vectors."""
    support = predictor.support
    return f"{support.sum()} of {len(support)} rows are support vectors"
