"""`kernax fit` for numbers: learns a kernel and scores it on what was held out, by regression."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from kernax.cli.job import Report, Split, kernel_of
from kernax.cli.predictor import GP, RIDGE, Regressor, parameter_rows
from kernax.cli.priors import Priors, priors_around
from kernax.core.kernel import AbstractKernel
from kernax.core.parameters import interior, positive
from kernax.core.solution import Solution
from kernax.errors import NonFiniteError
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition, log_marginal_likelihood
from kernax.selection.minimise import minimise
from kernax.selection.multi_start import multi_start, random_starts
from kernax.supervised.ridge import kernel_ridge, leave_one_out

_OPTIMISER = optax.lbfgs()


class RidgeModel(eqx.Module):
    """A kernel and the ridge that goes with it: all that kernel ridge regression has to learn."""

    kernel: AbstractKernel
    ridge: Float[Array, ""] = positive(default=1.0)


class ProcessModel(eqx.Module):
    """A kernel and the variance of the noise: all that a Gaussian process has to learn."""

    kernel: AbstractKernel
    noise: Float[Array, ""] = positive(default=0.1)


def leave_one_out_loss(model: RidgeModel, X: PyTree, y: Array) -> Array:
    """The mean squared leave-one-out residual, in closed form."""
    return jnp.mean(leave_one_out(model.kernel, X, y, model.ridge) ** 2)


def evidence_loss(model: ProcessModel, X: PyTree, y: Array, priors: Priors | None) -> Array:
    """Minus the log marginal likelihood, and the log density of the priors if there are any, for each row."""
    penalty = 0.0 if priors is None else priors.penalty(model)
    return (penalty - log_marginal_likelihood(model.kernel, X, y, model.noise)) / len(y)


def fit(parts: Split, kernel: str, model: str, restarts: int, seed: int, with_priors: bool = True) -> Report:
    """Learns a kernel from its expression, and scores it as written and as learned; needs 64-bit mode."""
    parsed = kernel_of(parts, kernel)
    # Few steps for ridge, on purpose: with a lengthscale per column the leave-one-out error can be fitted too well (Cawley &
    # Talbot 2010). Twenty do slightly worse than ten on diabetes (54.9 against 54.7, ten seeds), far better on yacht.
    start, loss, steps = {
        RIDGE: (RidgeModel(parsed), leave_one_out_loss, 20),
        GP: (ProcessModel(parsed), evidence_loss, 60),
    }[model]
    mean, deviation = float(parts.y.mean()), float(parts.y.std())
    free, data = interior(start), (parts.X, (parts.y - mean) / deviation)
    if model == GP:
        data += (priors_around(start, floored=["noise"]) if with_priors else None,)
    as_written = _scored(_regressor(start, parts), parts)
    if restarts == 1:
        solution = minimise(loss, start, _OPTIMISER, steps, args=data, trainable=free, progress=True)
    else:
        starts = random_starts(start, restarts, key=jax.random.key(seed), trainable=free)
        solution = multi_start(loss, starts, _OPTIMISER, steps, args=data, trainable=free, progress=True)
    learned = _regressor(solution.value, parts)
    scores = {
        "mean of the target": _score(parts, np.full(len(parts.y_held_out), mean), deviation),
        f"{model} as written": as_written,
        f"{model} learned": _scored(learned, parts),
    }
    title, measures = f"held-out RMSE, in units of {parts.inputs.target}", ("RMSE", "NLPD")
    if model == RIDGE:
        measures, scores = measures[:1], {name: score[:1] for name, score in scores.items()}
    else:
        title += ", and mean negative log density"
    remarks = () if restarts == 1 else (_starts(solution, restarts),)
    return Report(title, measures, scores, parameter_rows(solution.value, parts.inputs.columns), learned, remarks)


def _starts(solution: Solution, restarts: int) -> str:
    losses = np.asarray(solution.stats["start_losses"])
    losses = losses[np.isfinite(losses)]
    failed = int(np.sum(solution.stats["failed"]))
    return f"{restarts} starts, {failed} failed; losses from {losses.min():.5g} to {losses.max():.5g}"


def _regressor(model: RidgeModel | ProcessModel, parts: Split) -> Regressor:
    mean, deviation = float(parts.y.mean()), float(parts.y.std())
    y = (parts.y - mean) / deviation
    if isinstance(model, RidgeModel):
        f = kernel_ridge(model.kernel, parts.X, y, model.ridge).value
        return Regressor(parts.inputs, RIDGE, f, float(model.ridge), mean, deviation)
    process = condition(GaussianProcess(model.kernel), parts.X, y, model.noise).value
    return Regressor(parts.inputs, GP, process, float(model.noise), mean, deviation)


def _scored(regressor: Regressor, parts: Split) -> tuple[str, ...]:
    mean, deviation = regressor.at(parts.X_held_out)
    if not np.all(np.isfinite(mean)):
        raise NonFiniteError("held-out rows are predicted as NaN or inf: this kernel grows too fast for them")
    return _score(parts, mean, deviation)


def _score(parts: Split, mean: np.ndarray, deviation: np.ndarray | float | None) -> tuple[str, ...]:
    """Root mean square error, and the mean negative log density where there is one."""
    residual = parts.y_held_out - mean
    error = f"{np.sqrt(np.mean(residual**2)):.5g}"
    if deviation is None:
        return (error,)
    density = 0.5 * np.log(2 * math.pi * np.square(deviation)) + 0.5 * (residual / deviation) ** 2
    return error, f"{np.mean(density):.4f}"
