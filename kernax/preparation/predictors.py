"""Fitted models with the preparation of their inputs and targets.

They take points as `Inputs` makes them, and return values in the user's units.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, PyTree

from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel
from kernax.gp.process import GaussianProcess
from kernax.preparation.inputs import Inputs, inputs_from_notes
from kernax.preparation.standards import Standards

RIDGE = "ridge"
GP = "gp"
LOGISTIC = "logistic"
SVM = "svm"
_MODELS = {
    RIDGE: KernelExpansion,
    GP: GaussianProcess,
    LOGISTIC: KernelExpansion,
    SVM: KernelExpansion,
}
INTERVAL = 1.959963984540054  # deviations on either side of a mean, for 95 %
# Points at a time, so that memory does not grow with the table. String kernels need more of it.
_VECTORS_AT_ONCE = 1000
_STRINGS_AT_ONCE = 20


@dataclasses.dataclass(frozen=True, eq=False)
class Regressor:
    """A function (`RIDGE`) or a process (`GP`), and the units of its target.

    `noise` is the noise variance of a process, or the ridge, of the standardised target. Raises
    ValueError for a model that is not of the class for `kind`.
    """

    inputs: Inputs
    kind: str
    model: Any
    noise: float
    target: Standards

    def __post_init__(self):
        _check_model(self.model, self.kind, (RIDGE, GP))

    @property
    def kernel(self) -> AbstractKernel:
        """The learned kernel: of a process, that of the prior."""
        return self.model.kernel if self.kind == RIDGE else self.model.covariance.prior

    def at(self, points: PyTree) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"] | None]:
        """Means (n,), and for a process deviations of a target (n,), in the target's own units.

        Deviations include the noise, and are None for ridge.
        """
        if self.kind == RIDGE:
            return self.target.restored(_by_rows(self.model, points)), None
        mean = _by_rows(self.model.mean, points)
        variance = _by_rows(self.model.variance, points)
        deviation = np.sqrt(variance + self.noise)
        return self.target.restored(mean), self.target.scale * deviation

    def notes(self) -> dict[str, Any]:
        """All fields but the model, as values that JSON can hold."""
        return {
            "kind": self.kind,
            "noise": self.noise,
            "mean": float(self.target.centre),
            "deviation": float(self.target.scale),
            "inputs": self.inputs.notes(),
        }


@dataclasses.dataclass(frozen=True, eq=False)
class Classifier:
    """A function whose values decide between classes, and the names of the classes in order.

    It has one value for two classes, and one for each of several. `penalty` is the ridge of a
    logistic regression (`LOGISTIC`), or the C of a support vector machine (`SVM`). Raises
    ValueError for a model that is not of the class for `kind`, or has another number of values.
    """

    inputs: Inputs
    kind: str
    model: KernelExpansion
    penalty: float
    classes: tuple[str, ...]

    def __post_init__(self):
        _check_model(self.model, self.kind, (LOGISTIC, SVM))
        expected = () if len(self.classes) == 2 else (len(self.classes),)
        if self.model.bias.shape != expected:
            raise ValueError(
                f"a function of shape {self.model.bias.shape} cannot tell {len(self.classes)} "
                "classes apart"
            )

    @property
    def kernel(self) -> AbstractKernel:
        """The learned kernel."""
        return self.model.kernel

    @property
    def support(self) -> Bool[np.ndarray, " n"]:
        """Whether each row that it was fitted to has a coefficient that is not zero."""
        coefficients = np.asarray(self.model.coefficients)
        return np.any(coefficients.reshape(len(coefficients), -1) != 0, 1)

    def values(self, points: PyTree) -> Float[np.ndarray, "n *c"]:
        """Values of the function, (n,) for two classes or (n, classes).

        They are positive for the second of two classes, or largest for the likeliest of several.
        """
        return _by_rows(self.model, points)

    def decide(self, values: Float[np.ndarray, "n *c"]) -> np.ndarray:
        """The names of the classes (n,) that values predict."""
        places = (values > 0).astype(int) if values.ndim == 1 else values.argmax(1)
        return np.array(self.classes)[places]

    def log_probabilities(self, values: Float[np.ndarray, "n *c"]) -> Float[np.ndarray, "n c"]:
        """Log probabilities of all classes for values of a logistic regression."""
        odds = np.stack([np.zeros_like(values), values], 1) if values.ndim == 1 else values
        return odds - np.logaddexp.reduce(odds, 1, keepdims=True)

    def notes(self) -> dict[str, Any]:
        """All fields but the model, as values that JSON can hold."""
        return {
            "kind": self.kind,
            "penalty": self.penalty,
            "classes": list(self.classes),
            "inputs": self.inputs.notes(),
        }


Predictor = Regressor | Classifier


def predictor_from_notes(model: Any, notes: dict[str, Any]) -> Predictor:
    """The predictor that has a model and `notes`: the inverse of their methods `notes`.

    Raises AttributeError, KeyError, TypeError or ValueError for other notes.
    """
    inputs = inputs_from_notes(notes["inputs"])
    kind = notes["kind"]
    if "classes" in notes:
        classes = tuple(map(str, notes["classes"]))
        return Classifier(inputs, kind, model, float(notes["penalty"]), classes)
    target = Standards(np.asarray(notes["mean"], float), np.asarray(notes["deviation"], float))
    return Regressor(inputs, kind, model, float(notes["noise"]), target)


def _by_rows(function: Callable, points: PyTree) -> np.ndarray:
    """The values of a function at every point, computed for some points at a time."""
    at_once = _VECTORS_AT_ONCE if isinstance(points, np.ndarray) else _STRINGS_AT_ONCE
    return np.asarray(jax.lax.map(function, jax.tree.map(jnp.asarray, points), batch_size=at_once))


def _check_model(model: Any, kind: str, kinds: tuple[str, ...]) -> None:
    """Raises ValueError for another kind, or a model that is not of its class."""
    if kind not in kinds:
        raise ValueError(f"{kind!r} is none of {', '.join(kinds)}")
    if not isinstance(model, _MODELS[kind]):
        raise ValueError(f"a {type(model).__name__} is no {kind}")
