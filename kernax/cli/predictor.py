"""What `kernax fit` writes and `kernax predict` reads: a fitted model with the columns that it expects and their units."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kernax.cli.inputs import Inputs, Text, Tokens
from kernax.cli.naming import parameter_names
from kernax.core.description import describe
from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel
from kernax.core.parameters import interior
from kernax.files import KernaxFileError, load, load_notes, save
from kernax.gp.process import GaussianProcess

RIDGE, GP, LOGISTIC, SVM = "ridge", "gp", "logistic", "svm"
INTERVAL = 1.959963984540054  # deviations on either side that hold 95 %


class Predictor(Protocol):
    """A fitted model of some kind."""

    @property
    def inputs(self) -> Inputs:
        """The columns that it expects, and the points that they make."""
        ...

    @property
    def model(self) -> Any:
        """What a file holds besides the notes."""
        ...

    @property
    def kernel(self) -> AbstractKernel:
        """What was learned."""
        ...

    def columns(self, points: PyTree) -> dict[str, np.ndarray]:
        """What there is to say about points, by the names of the columns to write."""
        ...

    def summary(self) -> str:
        """What it is, in a line or two."""
        ...

    def notes(self) -> dict[str, Any]:
        """What it takes besides the model and the inputs to make it again."""
        ...


@dataclasses.dataclass(frozen=True)
class Regressor:
    """A function or process, its noise variance, or ridge, and the units of the target."""

    inputs: Inputs
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

    def columns(self, points: PyTree) -> dict[str, np.ndarray]:
        """The mean, and for a process the ends of an interval."""
        name, (mean, deviation) = self.inputs.target, self.at(points)
        if deviation is None:
            return {name: mean}
        return {name: mean, f"{name} low": mean - INTERVAL * deviation, f"{name} high": mean + INTERVAL * deviation}

    def at(self, points: PyTree) -> tuple[np.ndarray, np.ndarray | None]:
        """Means, and for a process deviations of a target, noise included, all in the target's own units."""
        if self.kind == RIDGE:
            return self.mean + self.deviation * _by_rows(self.model, points), None
        mean, variance = _by_rows(self.model.mean, points), _by_rows(self.model.variance, points)
        return self.mean + self.deviation * mean, self.deviation * np.sqrt(variance + self.noise)

    def summary(self) -> str:
        what, noise = {GP: ("Gaussian process", "noise variance"), RIDGE: ("kernel ridge regression", "ridge")}[self.kind]
        return f"{what} for {_names(self.inputs)}\n{noise} {self.noise:.6g}, for a target of mean 0 and variance 1"

    def notes(self) -> dict[str, Any]:
        return {"kind": self.kind, "noise": self.noise, "mean": self.mean, "deviation": self.deviation}


@dataclasses.dataclass(frozen=True)
class Classifier:
    """A function of one value for two classes and of one for each of several, and its penalty.

    The penalty is the ridge of a logistic regression, the C of a support vector machine.
    """

    inputs: Inputs
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

    def values(self, points: PyTree) -> np.ndarray:
        """(n,), positive for the second of two classes, or (n, classes), largest for the likeliest."""
        return _by_rows(self.model, points)

    def decide(self, values: np.ndarray) -> np.ndarray:
        """The names of the classes that values speak for."""
        return np.array(self.classes)[(values > 0).astype(int) if values.ndim == 1 else values.argmax(1)]

    def log_probabilities(self, values: np.ndarray) -> np.ndarray:
        """(n, classes), for logistic regression."""
        odds = np.stack([np.zeros_like(values), values], 1) if values.ndim == 1 else values
        return odds - np.logaddexp.reduce(odds, 1, keepdims=True)

    def columns(self, points: PyTree) -> dict[str, np.ndarray]:
        """The class, and for logistic regression a probability of each class, otherwise decision values."""
        values = self.values(points)
        figures = np.exp(self.log_probabilities(values)) if self.kind == LOGISTIC else values.reshape(len(values), -1)
        sign = "p" if self.kind == LOGISTIC else "f"
        names = [f"{sign}({name})" for name in self.classes[-figures.shape[1] :]]
        return {self.inputs.target: self.decide(values)} | dict(zip(names, figures.T))

    def summary(self) -> str:
        what = {LOGISTIC: "kernel logistic regression", SVM: "support vector machine"}[self.kind]
        penalty = f"{'C' if self.kind == SVM else 'ridge'} {self.penalty:.6g}"
        vectors = f"\n{self.support.sum()} of {len(self.support)} rows are support vectors" if self.kind == SVM else ""
        return f"{what} for {_names(self.inputs)}\nclasses {', '.join(map(repr, self.classes))}\n{penalty}{vectors}"

    def notes(self) -> dict[str, Any]:
        return {"kind": self.kind, "penalty": self.penalty, "classes": list(self.classes)}


def save_predictor(predictor: Predictor, path: Path) -> None:
    """Writes everything to one file."""
    arrays = {"centre": predictor.inputs.centre.tolist(), "scale": predictor.inputs.scale.tolist()}
    save(path, predictor.model, notes=predictor.notes() | {"standards": dataclasses.asdict(predictor.inputs) | arrays})


def load_predictor(path: Path) -> Predictor:
    """The opposite of `save_predictor`. Raises KernaxFileError for any other file."""
    model, notes = load(path), load_notes(path)
    if not {"kind", "standards"} <= set(notes):
        raise KernaxFileError(f"{path} holds a model, but not one that 'kernax fit --out' wrote: load it with kernax.load")
    try:
        inputs, kind = _inputs(notes["standards"]), notes["kind"]
        if "classes" in notes:
            return Classifier(inputs, kind, model, float(notes["penalty"]), tuple(map(str, notes["classes"])))
        return Regressor(inputs, kind, model, *(float(notes[name]) for name in ("noise", "mean", "deviation")))
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise KernaxFileError(f"{path} is not what 'kernax fit --out' writes: {problem}") from problem


def _inputs(notes: dict[str, Any]) -> Inputs:
    centre, scale, text = np.asarray(notes["centre"], float), np.asarray(notes["scale"], float), notes.get("text")
    if text is not None:
        text = Text(str(text["name"]), Tokens(text["tokens"]), tuple(map(str, text["alphabet"])))
    return Inputs(tuple(notes["columns"]), str(notes["target"]), centre, scale, text)


def parameter_rows(model: PyTree, columns: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The rows of `describe`, with a value for each column on a row of its own, by the names of the kernel's expression."""
    names = parameter_names(model) if isinstance(model, AbstractKernel) else parameter_names(model.kernel, "kernel.")
    rows = []
    for path, *rest in describe(model, interior(model), columns).rows:
        known = next((known for known in names if path == known or path.startswith(f"{known}[")), None)
        rows.append((path if known is None else names[known] + path[len(known) :], *rest))
    return tuple(rows)


def _by_rows(function: Callable, points: PyTree) -> np.ndarray:
    """A function at every point, so many at a time that memory does not grow with the table: string kernels take more of it."""
    at_once = 1000 if isinstance(points, np.ndarray) else 20
    return np.asarray(jax.lax.map(function, jax.tree.map(jnp.asarray, points), batch_size=at_once))


def _check_model(model: Any, wanted: type, kind: str) -> None:
    if not isinstance(model, wanted):
        raise ValueError(f"a {type(model).__name__} is no {kind}")


def _names(inputs: Inputs) -> str:
    return f"{inputs.target!r}, from {inputs}"
