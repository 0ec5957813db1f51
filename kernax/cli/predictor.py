"""What `kernax fit` writes and `kernax predict` reads: a fitted model with the columns that it expects and their units."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel
from kernax.core.parameters import describe, interior, parameters
from kernax.files import KernaxFileError, load, load_notes, save
from kernax.gp.process import GaussianProcess

RIDGE, GP, LOGISTIC, SVM = "ridge", "gp", "logistic", "svm"
INTERVAL = 1.959963984540054  # deviations on either side that hold 95 %


@dataclasses.dataclass(frozen=True)
class Standards:
    """The names of the input columns and of the target, and the means and deviations that standardise the inputs."""

    columns: tuple[str, ...]
    target: str
    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]

    def inputs(self, X: Any) -> Any:
        """Rows, or a row, in standardised units."""
        return (X - self.centre) / self.scale


class Predictor(Protocol):
    """A fitted model of some kind over standardised rows."""

    @property
    def standards(self) -> Standards:
        """Of the columns that it expects."""
        ...

    @property
    def model(self) -> Any:
        """What a file holds besides the notes."""
        ...

    @property
    def kernel(self) -> AbstractKernel:
        """What was learned."""
        ...

    def columns(self, X: Float[np.ndarray, "n d"]) -> dict[str, np.ndarray]:
        """What there is to say about rows in their own units, by the names of the columns to write."""
        ...

    def summary(self) -> str:
        """What it is, in a line or two."""
        ...

    def notes(self) -> dict[str, Any]:
        """What it takes besides the model and the standards to make it again."""
        ...


@dataclasses.dataclass(frozen=True)
class Regressor:
    """A function or process over standardised rows, its noise variance, or ridge, and the units of the target."""

    standards: Standards
    kind: str
    model: Any
    noise: float
    mean: float
    deviation: float

    def __post_init__(self):
        _check_model(self.model, {RIDGE: KernelExpansion, GP: GaussianProcess}[self.kind], self.kind)

    @property
    def kernel(self) -> AbstractKernel:
        """Of a process the prior's kernel."""
        return self.model.kernel if self.kind == RIDGE else self.model.covariance.prior

    def columns(self, X: Float[np.ndarray, "n d"]) -> dict[str, np.ndarray]:
        """The mean, and for a process the ends of an interval."""
        name, (mean, deviation) = self.standards.target, self.at_standardised(self.standards.inputs(X))
        if deviation is None:
            return {name: mean}
        return {name: mean, f"{name} low": mean - INTERVAL * deviation, f"{name} high": mean + INTERVAL * deviation}

    def at_standardised(self, X: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray | None]:
        """Means, and for a process deviations of a target, noise included, all in the target's own units."""
        if self.kind == RIDGE:
            return self.mean + self.deviation * _by_rows(self.model, X), None
        mean, variance = _by_rows(self.model.mean, X), _by_rows(self.model.variance, X)
        return self.mean + self.deviation * mean, self.deviation * np.sqrt(variance + self.noise)

    def summary(self) -> str:
        what, noise = {GP: ("Gaussian process", "noise variance"), RIDGE: ("kernel ridge regression", "ridge")}[self.kind]
        return f"{what} for {_names(self.standards)}\n{noise} {self.noise:.6g}, for a target of mean 0 and variance 1"

    def notes(self) -> dict[str, Any]:
        return {"kind": self.kind, "noise": self.noise, "mean": self.mean, "deviation": self.deviation}


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A function over standardised rows, of one value for two classes and of one for each of several, and its penalty.

    The penalty is the ridge of a logistic regression, the C of a support vector machine.
    """

    standards: Standards
    kind: str
    model: KernelExpansion
    penalty: float
    classes: tuple[str, ...]

    def __post_init__(self):
        _check_model(self.model, {LOGISTIC: KernelExpansion, SVM: KernelExpansion}[self.kind], self.kind)
        if self.model.bias.shape != (() if len(self.classes) == 2 else (len(self.classes),)):
            raise ValueError(f"a function of shape {self.model.bias.shape} cannot tell {len(self.classes)} classes apart")

    @property
    def kernel(self) -> AbstractKernel:
        return self.model.kernel

    @property
    def support(self) -> np.ndarray:
        """Which rows it was made from have a coefficient that is not zero."""
        coefficients = np.asarray(self.model.coefficients)
        return np.any(coefficients.reshape(len(coefficients), -1) != 0, 1)

    def values(self, X: Float[np.ndarray, "n d"]) -> np.ndarray:
        """At standardised rows: (n,), positive for the second of two classes, or (n, classes), largest for the likeliest."""
        return _by_rows(self.model, X)

    def decide(self, values: np.ndarray) -> np.ndarray:
        """The names of the classes that values speak for."""
        return np.array(self.classes)[(values > 0).astype(int) if values.ndim == 1 else values.argmax(1)]

    def log_probabilities(self, values: np.ndarray) -> np.ndarray:
        """(n, classes), for logistic regression."""
        odds = np.stack([np.zeros_like(values), values], 1) if values.ndim == 1 else values
        return odds - np.logaddexp.reduce(odds, 1, keepdims=True)

    def columns(self, X: Float[np.ndarray, "n d"]) -> dict[str, np.ndarray]:
        """The class, and for logistic regression a probability of each class, otherwise decision values."""
        values = self.values(self.standards.inputs(X))
        figures = np.exp(self.log_probabilities(values)) if self.kind == LOGISTIC else values.reshape(len(X), -1)
        sign = "p" if self.kind == LOGISTIC else "f"
        names = [f"{sign}({name})" for name in self.classes[-figures.shape[1] :]]
        return {self.standards.target: self.decide(values)} | dict(zip(names, figures.T))

    def summary(self) -> str:
        what = {LOGISTIC: "kernel logistic regression", SVM: "support vector machine"}[self.kind]
        penalty = f"{'C' if self.kind == SVM else 'ridge'} {self.penalty:.6g}"
        vectors = f"\n{self.support.sum()} of {len(self.support)} rows are support vectors" if self.kind == SVM else ""
        return f"{what} for {_names(self.standards)}\nclasses {', '.join(map(repr, self.classes))}\n{penalty}{vectors}"

    def notes(self) -> dict[str, Any]:
        return {"kind": self.kind, "penalty": self.penalty, "classes": list(self.classes)}


def save_predictor(predictor: Predictor, path: Path) -> None:
    """Writes everything to one file."""
    arrays = {"centre": predictor.standards.centre.tolist(), "scale": predictor.standards.scale.tolist()}
    save(path, predictor.model, notes=predictor.notes() | {"standards": dataclasses.asdict(predictor.standards) | arrays})


def load_predictor(path: Path) -> Predictor:
    """The opposite of `save_predictor`. Raises KernaxFileError for any other file."""
    model, notes = load(path), load_notes(path)
    if not {"kind", "standards"} <= set(notes):
        raise KernaxFileError(f"{path} holds a model, but not one that 'kernax fit --out' wrote: load it with kernax.load")
    try:
        units, kind = notes["standards"], notes["kind"]
        centre, scale = np.asarray(units["centre"], float), np.asarray(units["scale"], float)
        standards = Standards(tuple(units["columns"]), str(units["target"]), centre, scale)
        if "classes" in notes:
            return Classifier(standards, kind, model, float(notes["penalty"]), tuple(map(str, notes["classes"])))
        return Regressor(standards, kind, model, *(float(notes[name]) for name in ("noise", "mean", "deviation")))
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise KernaxFileError(f"{path} is not what 'kernax fit --out' writes: {problem}") from problem


def parameter_rows(model: PyTree, columns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Parameter, value, support and state as `describe` has them, but a value for each column on a row of its own."""
    rows = []
    for entry, row in zip(parameters(model), describe(model, interior(model)).rows):
        if entry.value.shape != (len(columns),):
            rows.append(row)
            continue
        for name, value in zip(columns, np.asarray(entry.value)):
            rows.append((f"{row[0]}[{name}]", f"{value:.4g}", *row[2:]))
    return tuple(rows)


def _by_rows(function: Callable, X: Float[np.ndarray, "n d"]) -> np.ndarray:
    """A function of a point at every row, a thousand at a time: memory does not grow with the table."""
    return np.asarray(jax.lax.map(function, jnp.asarray(X), batch_size=1000))


def _check_model(model: Any, wanted: type, kind: str) -> None:
    if not isinstance(model, wanted):
        raise ValueError(f"a {type(model).__name__} is no {kind}")


def _names(standards: Standards) -> str:
    return f"{standards.target!r}, from {', '.join(map(repr, standards.columns))}"
