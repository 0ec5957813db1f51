"""The job behind `kernax fit`: hold rows out, standardise, learn a kernel, and score on what was held out."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from kernax.cli.expression import parse_kernel
from kernax.cli.predictor import GP, RIDGE, Predictor, Standards, parameter_rows
from kernax.cli.table import Table
from kernax.core.kernel import AbstractKernel
from kernax.core.parameters import interior, positive
from kernax.core.solution import NonFiniteError, Solution
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition, log_marginal_likelihood
from kernax.selection.minimise import minimise
from kernax.selection.multi_start import multi_start, random_starts
from kernax.supervised.ridge import kernel_ridge, leave_one_out

_HELD_OUT = 0.25
_OPTIMISER = optax.lbfgs()


class RidgeModel(eqx.Module):
    """A kernel and the ridge that goes with it: all that kernel ridge regression has to learn."""

    kernel: AbstractKernel
    ridge: Float[Array, ""] = positive(default=1.0)


class ProcessModel(eqx.Module):
    """A kernel and the variance of the noise: all that a Gaussian process has to learn."""

    kernel: AbstractKernel
    noise: Float[Array, ""] = positive(default=0.1)


def leave_one_out_loss(model: RidgeModel, X: Array, y: Array) -> Array:
    """The mean squared leave-one-out residual, in closed form."""
    return jnp.mean(leave_one_out(model.kernel, X, y, model.ridge) ** 2)


def evidence_loss(model: ProcessModel, X: Array, y: Array) -> Array:
    """Minus the log marginal likelihood, for each row."""
    return -log_marginal_likelihood(model.kernel, X, y, model.noise) / len(y)


@dataclasses.dataclass(frozen=True)
class Split:
    """Standardised rows to learn from, held-out rows in the same units, and the standards."""

    X: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    X_held_out: Float[np.ndarray, "m d"]
    y_held_out: Float[np.ndarray, " m"]  # in the target's own units
    standards: Standards


@dataclasses.dataclass(frozen=True)
class Report:
    """What a fit found: held-out scores by name, worst idea first, a table of parameters, and what predicts.

    A score is a root mean square error, and the mean negative log density where a model has one.
    """

    scores: dict[str, tuple[float, float | None]]
    parameters: tuple[tuple[str, ...], ...]
    predictor: Predictor
    solution: Solution


def split(table: Table, seed: int) -> Split:
    """Shuffles the rows, holds out a quarter, and standardises by the mean and deviation of the others alone."""
    order = np.random.default_rng(seed).permutation(len(table.y))
    count = max(1, round(_HELD_OUT * len(order)))
    held_out, kept = order[:count], order[count:]
    X, y = table.X[kept], table.y[kept]
    if y.min() == y.max():
        raise ValueError(f"target column {table.target!r} is constant in the rows to learn from: another --seed may help")
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.where(X.min(0) == X.max(0), 1.0, X.std(0))
        standards = Standards(table.columns, table.target, X.mean(0), scale, float(y.mean()), float(y.std()))
        inputs, targets = standards.inputs(X), (y - standards.mean) / standards.deviation
    for name, size in zip((*table.columns, table.target), (*scale, standards.deviation)):
        if not 0 < size < np.inf:
            raise ValueError(f"column {name!r} cannot be standardised: its numbers are too large, or too close together")
    return Split(inputs, targets, standards.inputs(table.X[held_out]), table.y[held_out], standards)


def one_per_column(parts: Split) -> bool:
    """Whether there are rows enough to learn a lengthscale for each column: fewer than twenty rows a column overfit."""
    return len(parts.y) >= 20 * parts.X.shape[1]


def fit(parts: Split, kernel: str, model: str, restarts: int, seed: int) -> Report:
    """Learns a kernel from its expression, and scores it as written and as learned; needs 64-bit mode."""
    parsed = parse_kernel(kernel, parts.X.shape[1], per_column=one_per_column(parts))
    # Few steps for ridge, on purpose: with a lengthscale per column the leave-one-out error can be fitted too well (Cawley &
    # Talbot 2010). Twenty do slightly worse than ten on diabetes (54.9 against 54.7, ten seeds), far better on yacht.
    start, loss, steps = {
        RIDGE: (RidgeModel(parsed), leave_one_out_loss, 20),
        GP: (ProcessModel(parsed), evidence_loss, 60),
    }[model]
    free, data, as_written = interior(start), (parts.X, parts.y), _scored(_predictor(start, parts), parts)
    if restarts == 1:
        solution = minimise(loss, start, _OPTIMISER, steps, args=data, trainable=free, progress=True)
    else:
        starts = random_starts(start, restarts, key=jax.random.key(seed), trainable=free)
        solution = multi_start(loss, starts, _OPTIMISER, steps, args=data, trainable=free, progress=True)
    learned = _predictor(solution.value, parts)
    scores: dict[str, tuple[float, float | None]] = {
        "mean of the target": _score(parts, np.full(len(parts.y_held_out), parts.standards.mean), parts.standards.deviation),
        f"{model} as written": as_written,
        f"{model} learned": _scored(learned, parts),
    }
    if model == RIDGE:
        scores = {name: (error, None) for name, (error, _) in scores.items()}
    return Report(scores, parameter_rows(solution.value, parts.standards.columns), learned, solution)


def _predictor(model: RidgeModel | ProcessModel, parts: Split) -> Predictor:
    if isinstance(model, RidgeModel):
        f = kernel_ridge(model.kernel, parts.X, parts.y, model.ridge).value
        return Predictor(parts.standards, RIDGE, f, float(model.ridge))
    process = condition(GaussianProcess(model.kernel), parts.X, parts.y, model.noise).value
    return Predictor(parts.standards, GP, process, float(model.noise))


def _scored(predictor: Predictor, parts: Split) -> tuple[float, float | None]:
    mean, deviation = predictor.at_standardised(parts.X_held_out)
    if not np.all(np.isfinite(mean)):
        raise NonFiniteError("held-out rows are predicted as NaN or inf: this kernel grows too fast for them")
    return _score(parts, mean, deviation)


def _score(parts: Split, mean: np.ndarray, deviation: np.ndarray | float | None) -> tuple[float, float | None]:
    residual = parts.y_held_out - mean
    error = float(np.sqrt(np.mean(residual**2)))
    if deviation is None:
        return error, None
    density = 0.5 * np.log(2 * math.pi * np.square(deviation)) + 0.5 * (residual / deviation) ** 2
    return error, float(np.mean(density))
