"""What `kernax fit` writes and `kernax predict` reads: a fitted model with the columns that it expects and their units."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel
from kernax.core.parameters import describe, interior, parameters
from kernax.files import KernaxFileError, load, load_notes, save
from kernax.gp.process import GaussianProcess

RIDGE, GP = "ridge", "gp"
INTERVAL = 1.959963984540054  # deviations on either side that hold 95 %


@dataclasses.dataclass(frozen=True)
class Standards:
    """The names of the input columns and of the target, and the means and deviations that standardise them."""

    columns: tuple[str, ...]
    target: str
    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    mean: float
    deviation: float

    def inputs(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        """Rows in standardised units."""
        return (X - self.centre) / self.scale


@dataclasses.dataclass(frozen=True)
class Predictor:
    """A function or process over standardised rows, and its noise variance, or ridge."""

    standards: Standards
    kind: str
    model: Any
    noise: float

    @property
    def kernel(self) -> AbstractKernel:
        """What was learned: of a process the prior's kernel."""
        return self.model.kernel if self.kind == RIDGE else self.model.covariance.prior

    def __call__(self, X: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray | None]:
        """Means, and for a process deviations of a target, noise included, all in the target's own units."""
        return self.at_standardised(self.standards.inputs(X))

    def at_standardised(self, X: Float[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray | None]:
        """The same for rows that are standardised already."""
        units = self.standards
        if self.kind == RIDGE:
            return units.mean + units.deviation * _by_rows(self.model, X), None
        mean, variance = _by_rows(self.model.mean, X), _by_rows(self.model.variance, X)
        return units.mean + units.deviation * mean, units.deviation * np.sqrt(variance + self.noise)

    def save(self, path: Path) -> None:
        """Writes everything to one file."""
        units = dataclasses.asdict(self.standards) | {
            "centre": self.standards.centre.tolist(),
            "scale": self.standards.scale.tolist(),
        }
        save(path, self.model, notes={"kind": self.kind, "noise": self.noise, "standards": units})


def _by_rows(function: Callable, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
    """A function of a point at every row, a thousand at a time: memory does not grow with the table."""
    return np.asarray(jax.lax.map(function, jnp.asarray(X), batch_size=1000))


def load_predictor(path: Path) -> Predictor:
    """The opposite of `Predictor.save`. Raises KernaxFileError for any other file."""
    model, notes = load(path), load_notes(path)
    if set(notes) != {"kind", "noise", "standards"}:
        raise KernaxFileError(f"{path} holds a model, but not one that 'kernax fit --out' wrote: load it with kernax.load")
    try:
        units = notes["standards"]
        if not isinstance(model, {RIDGE: KernelExpansion, GP: GaussianProcess}[notes["kind"]]):
            raise ValueError(f"a {type(model).__name__} is no {notes['kind']}")
        centre, scale = np.asarray(units["centre"], float), np.asarray(units["scale"], float)
        numbers = [float(number) for number in (units["mean"], units["deviation"], notes["noise"])]
        standards = Standards(tuple(units["columns"]), str(units["target"]), centre, scale, *numbers[:2])
    except (KeyError, TypeError, ValueError) as problem:
        raise KernaxFileError(f"{path} is not what 'kernax fit --out' writes: {problem}") from problem
    return Predictor(standards, notes["kind"], model, numbers[2])


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
