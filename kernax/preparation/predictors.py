"""Fitted models with the preparation of their inputs and targets.

They take points from `Inputs`, and return values in the user's units.
"""

import dataclasses
import statistics
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.gp.approximation import ApproximatePosterior
from kernax.gp.laplace_classes import CategoricalPosterior
from kernax.gp.posterior import without_observations
from kernax.gp.process import GaussianProcess
from kernax.preparation.classifier import Classifier, index_of, labels_at, log_probabilities_of
from kernax.preparation.counts import quantile_of_counts
from kernax.preparation.inputs import Inputs, inputs_from_notes
from kernax.preparation.model_names import GP, IVM, LOGISTIC, RIDGE, RVM, SVM
from kernax.preparation.standards import Standards
from kernax.sparse.relevance_vectors import RelevanceVectors

_REGRESSIONS = {RIDGE: KernelExpansion, GP: GaussianProcess, RVM: RelevanceVectors}
_CLASSIFIERS = {
    LOGISTIC: KernelExpansion,
    SVM: KernelExpansion,
    IVM: KernelExpansion,
    RVM: KernelExpansion,
    GP: ApproximatePosterior | CategoricalPosterior,
}
_COUNTS = {GP: ApproximatePosterior}
# Points at a time, so that memory does not grow with the table. String kernels need more of it.
_VECTORS_AT_ONCE = 1000
_STRINGS_AT_ONCE = 20
_LONGEST_REASON = 200  # letters of the reason why a model cannot predict


@dataclasses.dataclass(frozen=True, eq=False)
class Regressor:
    """A fitted model for regression: a function (`RIDGE`), a process (`GP`) or a relevance vector
    machine (`RVM`), and the units of its target.

    `noise` is the noise variance, or the ridge, of the standardised target. Raises ValueError for a
    model of another class than that of `kind`.
    """

    inputs: Inputs
    kind: str
    model: Any
    noise: float
    target: Standards

    def __post_init__(self):
        _check_model(self.model, self.kind, _REGRESSIONS)

    @property
    def kernel(self) -> AbstractKernel:
        """The learned kernel; for a process, that of the prior."""
        if self.kind == GP:
            return self.model.covariance.prior
        return self.model.kernel if self.kind == RIDGE else self.model.function.kernel

    def at(self, points: PyTree) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"] | None]:
        """Means (n,), and deviations (n,) of a target, in the target's own units.

        Deviations include the noise, and are None for ridge.
        """
        if self.kind == RIDGE:
            return self.target.restored(_by_rows(self.model, points)), None
        mean = _by_rows(self._mean, points)
        variance = _by_rows(self.model.variance, points)
        deviation = np.sqrt(variance + self.noise)
        return self.target.restored(mean), self.target.scale * deviation

    @property
    def _mean(self) -> Callable:
        return self.model.mean if self.kind == GP else self.model

    def outputs(self, x: PyTree) -> tuple[Array, ...]:
        """The numbers at one point that predictions and descriptions are computed from."""
        if self.kind == RIDGE:
            return (self._mean(x),)
        moments = (self._mean(x), self.model.variance(x))
        return (*moments, self.model.count) if self.kind == RVM else moments

    def interval(
        self, mean: np.ndarray, deviation: np.ndarray, share: float
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """The ends of central intervals that contain targets with a probability, such as 0.95."""
        half = statistics.NormalDist().inv_cdf((1 + share) / 2) * deviation
        return mean - half, mean + half

    def notes(self) -> dict[str, Any]:
        """All fields except the model, as values that JSON supports."""
        return {
            "kind": self.kind,
            "noise": self.noise,
            "mean": float(self.target.centre),
            "deviation": float(self.target.scale),
            "inputs": self.inputs.notes(),
        }


@dataclasses.dataclass(frozen=True, eq=False)
class CountRegressor:
    """A fitted model for counts: the posterior of a process, the exponential of which is the rate.

    `inference` says how it was computed. Raises ValueError for a model that is not such a
    posterior.
    """

    inputs: Inputs
    kind: str
    model: ApproximatePosterior
    inference: str

    def __post_init__(self):
        _check_model(self.model, self.kind, _COUNTS)
        if self.model.likelihood.targets != "counts":
            raise ValueError(
                f"{type(self.model.likelihood).__name__} is not a likelihood of counts"
            )

    @property
    def kernel(self) -> AbstractKernel:
        """The learned kernel: that of the prior."""
        return without_observations(self.model.process.covariance)

    def at(self, points: PyTree) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """The means and the deviations of counts (n,)."""
        mean, variance = _by_rows(self.model.predict, points)
        return mean, np.sqrt(variance)

    def interval(
        self, points: PyTree, share: float
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """The quantiles of counts that leave at most (1 - share) / 2 on either side (n,)."""
        latent = _by_rows(self.model.process.mean, points)
        variance = _by_rows(self.model.process.variance, points)
        moments = _by_rows(self.model.predict, points)
        likelihood = self.model.likelihood
        tail = (1 - share) / 2
        low = quantile_of_counts(likelihood, tail, latent, variance, moments)
        return low, quantile_of_counts(likelihood, 1 - tail, latent, variance, moments)

    def outputs(self, x: PyTree) -> tuple[Array, ...]:
        """The numbers at one point that predictions are computed from."""
        process = self.model.process
        return (*self.model.predict(x), process.mean(x), process.variance(x))

    def log_densities(self, points: PyTree, y: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """The logarithms of the probabilities of counts y (n,)."""
        return _by_rows(eqx.Partial(_log_density, self.model), (points, y))

    def notes(self) -> dict[str, Any]:
        """All fields except the model, as values that JSON supports."""
        return {"kind": self.kind, "inference": self.inference, "inputs": self.inputs.notes()}


@dataclasses.dataclass(frozen=True, eq=False)
class ClassPredictor:
    """A fitted model for classes: a `Classifier` of points from `Inputs`, and how it was fitted.

    `penalty` is the ridge of a logistic regression, on all points (`LOGISTIC`) or on few (`IVM`),
    or the C of a support vector machine (`SVM`). A relevance vector machine (`RVM`), here with its
    most probable weights, has none. Neither has a process (`GP`), which has an `inference`: how its
    posterior was computed. Raises ValueError for a model of another class than that of `kind`, or
    with another number of values than there are classes.
    """

    inputs: Inputs
    kind: str
    model: KernelExpansion | ApproximatePosterior | CategoricalPosterior
    penalty: float | None
    classes: tuple[str, ...]
    inference: str | None = None

    def __post_init__(self):
        _check_model(self.model, self.kind, _CLASSIFIERS)
        _ = self.classifier  # which checks the number of values

    @property
    def classifier(self) -> Classifier:
        """The function with the decision values, and its classes."""
        return Classifier(self.model, self.classes, log_odds=self.kind != SVM)

    @property
    def kernel(self) -> AbstractKernel:
        """The learned kernel; for a process, that of the prior."""
        if isinstance(self.model, KernelExpansion):
            return self.model.kernel
        posterior: Any = self.model.process.covariance
        return without_observations(posterior.prior)

    @property
    def support(self) -> Bool[np.ndarray, " n"]:
        """Whether each point of the function has a coefficient that is not zero."""
        assert isinstance(self.model, KernelExpansion)
        coefficients = np.asarray(self.model.coefficients)
        return np.any(coefficients.reshape(len(coefficients), -1) != 0, 1)

    def value(self, x: PyTree) -> Any:
        """The decision value at one point, as `Classifier` defines it."""
        return self.classifier(x)

    def outputs(self, x: PyTree) -> tuple[Array, ...]:
        """The numbers at one point that predictions are computed from: one for two classes, as many
        as classes for several.
        """
        return tuple(jnp.atleast_1d(self.value(x)))

    def values(self, points: PyTree) -> Float[np.ndarray, "n *c"]:
        """Values of the function, (n,) for two classes or (n, classes).

        They are positive for the second of two classes, or largest for the likeliest of several.
        """
        return _by_rows(self.classifier, points)

    def decide(self, values: Float[np.ndarray, "n *c"]) -> np.ndarray:
        """The names (n,) of the classes that values predict. Raises ValueError for NaN."""
        indices = jax.vmap(index_of)(jnp.asarray(values))
        return np.array(labels_at(self.classes, np.asarray(indices)))

    def log_probabilities(self, values: Float[np.ndarray, "n *c"]) -> Float[np.ndarray, "n c"]:
        """Log probabilities of all classes for values of any classifier except `SVM`."""
        return np.asarray(jax.vmap(log_probabilities_of)(jnp.asarray(values)))

    def notes(self) -> dict[str, Any]:
        """All fields except the model, as values that JSON supports."""
        return {
            "kind": self.kind,
            "penalty": self.penalty,
            "inference": self.inference,
            "classes": list(self.classes),
            "inputs": self.inputs.notes(),
        }


Predictor = Regressor | CountRegressor | ClassPredictor


def predictor_from_notes(model: Any, notes: dict[str, Any]) -> Predictor:
    """The predictor with a model and `notes`: the inverse of their methods `notes`.

    Raises AttributeError, KeyError, TypeError or ValueError for other notes.
    """
    inputs = inputs_from_notes(notes["inputs"])
    kind = notes["kind"]
    if "classes" in notes:
        # The classifier; older files do not state the inference.
        classes = tuple(map(str, notes["classes"]))
        if kind == GP:
            return ClassPredictor(inputs, kind, model, None, classes, str(notes["inference"]))
        penalty = notes["penalty"]
        penalty = None if penalty is None else float(penalty)
        return ClassPredictor(inputs, kind, model, penalty, classes)
    if isinstance(model, ApproximatePosterior):
        return CountRegressor(inputs, kind, model, str(notes["inference"]))
    target = Standards(np.asarray(notes["mean"], float), np.asarray(notes["deviation"], float))
    return Regressor(inputs, kind, model, float(notes["noise"]), target)


def check_outputs(predictor: Predictor) -> None:
    """Raises ValueError unless predictions at a point are numbers; only types and shapes are
    computed, no values.
    """
    point = jax.tree.map(lambda leaf: jnp.asarray(leaf)[0], predictor.inputs.blank())
    try:
        outputs = jax.eval_shape(predictor.outputs, point)
    except Exception as problem:  # arrays of other types and shapes may raise anything
        reason = str(problem).strip().partition("\n")[0][:_LONGEST_REASON]
        raise ValueError(f"its arrays cannot be used for predictions: {reason}") from problem
    for output in outputs:
        if output.shape != ():
            raise ValueError(f"it predicts arrays of shape {output.shape} in place of numbers")


def _by_rows(function: Callable, points: PyTree) -> Any:
    """The values of a function at every point, computed for some points at a time."""
    parts = points if isinstance(points, tuple) else (points,)
    are_vectors = all(isinstance(part, np.ndarray) for part in parts)
    at_once = _VECTORS_AT_ONCE if are_vectors else _STRINGS_AT_ONCE
    values = _mapped(function, jax.tree.map(jnp.asarray, points), at_once)
    return jax.tree.map(np.asarray, values)


@eqx.filter_jit
def _mapped(function: Callable, points: PyTree, at_once: int) -> Any:
    """The values of a function at all points, in one program; `lax.map` alone would compile a loop
    and its remainder each time.
    """
    return jax.lax.map(function, points, batch_size=at_once)


def _log_density(model: ApproximatePosterior, pair: tuple[PyTree, Array]) -> Float[Array, ""]:
    return model.log_density(*pair)


def _check_model(model: Any, kind: str, kinds: dict[str, Any]) -> None:
    if kind not in kinds:
        raise ValueError(f"{kind!r} is none of {', '.join(kinds)}")
    if not isinstance(model, kinds[kind]):
        raise ValueError(f"a {type(model).__name__} is not a {kind}")
