"""Learns a kernel for regression.

Ridge regression learns by its leave-one-out error, a Gaussian process by its evidence.

Both expect standardised targets: the starts and the priors are of order one.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key, PyTree

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.parameters import Trainable, interior, positive
from kernax.core.base.printing import Printed
from kernax.core.base.solution import Solution
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.model import Model
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.operators.gram import gram_diagonal
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition, log_marginal_likelihood
from kernax.selection.choose.folds import Folds
from kernax.selection.optimise.minimise import minimise
from kernax.selection.optimise.weak_priors import DEVIATION, FLOOR, WeakPriors
from kernax.selection.recipes.data_starts import LBFGS, learned_from_data
from kernax.selection.recipes.stages import (
    Learning,
    Stage,
    StageChoice,
    Together,
    choose,
    everyone,
    weights_of,
)
from kernax.sparse.relevance import relevance_vector_machine
from kernax.supervised.ridge.ridge import kernel_ridge, leave_one_out

# Few steps for ridge, on purpose: with a lengthscale for each column the leave-one-out error can be
# fitted too well (Cawley & Talbot 2010). Twenty do slightly worse than ten on diabetes (54.9
# against 54.7, ten seeds), far better on yacht.
_STEPS_OF_RIDGE = 20
_STEPS_OF_PROCESS = 60
_LEAST_TO_JUDGE = 8  # rows, so that nested folds are not empty


class ProcessModel(Printed):
    """A kernel and the variance of the noise: the parameters of a Gaussian process.

    It is not a `Model`, which names its number ridge: messages must name the noise.
    """

    kernel: AbstractKernel
    noise: Float[ParameterArray, ""] = positive(default=0.1)


def fitted(
    model: Model | ProcessModel, X: PyTree, y: Array
) -> Solution[KernelExpansion] | Solution[GaussianProcess]:
    """The function, or the process, that a model makes of points X and targets y (n,)."""
    if isinstance(model, Model):
        return kernel_ridge(model.kernel, X, y, model.ridge)
    return condition(GaussianProcess(model.kernel), X, y, model.noise)


def leave_one_out_loss(
    model: Model,
    X: PyTree,
    y: Array,
    weights: Array | None = None,
    floor: float = FLOOR,
) -> Float[Array, ""]:
    """The mean squared leave-one-out residual, in closed form, with a weak floor under the ridge.

    A row is left out with all of its weight, which counts in the mean. `floor` is the floor of the
    noise of a process (`WeakPriors`), in units of the mean of k(x, x); zero means no floor.
    """
    residuals = leave_one_out(model.kernel, X, y, model.ridge, weights=weights)
    error = jnp.average(residuals**2, weights=weights)
    if floor == 0:
        return error
    # At its best variance the density of n normal errors is exp(-n/2 log error), and the prior of
    # the ridge v is exp(-floor / v): together error exp(2 floor / (n v)), here to first order.
    count = len(y) if weights is None else jnp.sum(weights)
    scale = jnp.average(gram_diagonal(model.kernel, X), weights=weights)
    return error * (1 + 2 * floor * scale / (count * model.ridge))


def evidence_loss(
    model: ProcessModel,
    X: PyTree,
    y: Array,
    priors: WeakPriors | None,
    weights: Array | None = None,
) -> Float[Array, ""]:
    """Minus the log marginal likelihood, divided by the sum of the weights.

    It includes the log density of the priors, if there are any.
    """
    # 1/n (-log p(y | theta) - log p(theta)), n the sum of the weights.
    penalty = 0.0 if priors is None else priors.penalty(model)
    evidence = log_marginal_likelihood(model.kernel, X, y, model.noise, weights=weights)
    return (penalty - evidence) / (len(y) if weights is None else jnp.sum(weights))


def ridge_stage_loss(
    model: Model, X: PyTree, y: Array, folds: Folds, priors: WeakPriors, together: Together
) -> Float[Array, ""]:
    """`leave_one_out_loss` of the rows in any of the folds, without priors except for the floor."""
    floor = FLOOR if "ridge" in priors.floored else 0.0
    return leave_one_out_loss(together(model), X, y, weights_of(folds, y), floor)


def process_stage_loss(
    model: ProcessModel, X: PyTree, y: Array, folds: Folds, priors: WeakPriors, together: Together
) -> Float[Array, ""]:
    """`evidence_loss` of the rows in any of the folds, with priors."""
    return evidence_loss(together(model), X, y, priors, weights_of(folds, y))


@eqx.filter_jit
def ridge_fold(model: Model, X: PyTree, y: Array, fold: Folds) -> Float[Array, " v"]:
    """Squared errors at the rows that a fold scores, from the function fitted to its other rows."""
    X_learn = points_at(X, fold.learn)
    weights = fold.learn_weights
    solution = kernel_ridge(
        model.kernel, X_learn, y[fold.learn], model.ridge, weights=weights, throw=False
    )
    # (f(x_i) - y_i)^2, f the function fitted to the other rows.
    return (_by_rows(solution.value, points_at(X, fold.score)) - y[fold.score]) ** 2


@eqx.filter_jit
def process_fold(model: ProcessModel, X: PyTree, y: Array, fold: Folds) -> Float[Array, "v 2"]:
    """Minus the log density at the rows that a fold scores, and their squared errors, under the
    process given its other rows.
    """
    prior = GaussianProcess(model.kernel)
    X_learn = points_at(X, fold.learn)
    weights = fold.learn_weights
    process = condition(
        prior, X_learn, y[fold.learn], model.noise, weights=weights, throw=False
    ).value
    points = points_at(X, fold.score)
    # The variance of a target is that of the function and of the noise.
    variance = _by_rows(process.variance, points) + model.noise
    return _densities_and_errors(y[fold.score], _by_rows(process.mean, points), variance)


@eqx.filter_jit
def relevance_fold(model: ProcessModel, X: PyTree, y: Array, fold: Folds) -> Float[Array, "v 2"]:
    """The same for the relevance vector machine fitted to the other rows, with its own noise."""
    X_learn = points_at(X, fold.learn)
    weights = fold.learn_weights
    rvm = relevance_vector_machine(
        model.kernel, X_learn, y[fold.learn], weights=weights, throw=False
    ).value
    points = points_at(X, fold.score)
    variance = _by_rows(rvm.variance, points) + rvm.noise
    return _densities_and_errors(y[fold.score], _by_rows(rvm, points), variance)


_AT_ONCE = 100  # points: string kernels need much memory for each


def _by_rows(function: Callable, points: PyTree) -> Array:
    """The values of a function at every point, some at a time."""
    return lax.map(function, points, batch_size=_AT_ONCE)


def _densities_and_errors(y: Array, mean: Array, variance: Array) -> Float[Array, "v 2"]:
    """`-log N(y | mean, variance)` and `(y - mean)^2`."""
    squares = (y - mean) ** 2
    return jnp.stack([(squares / variance + jnp.log(2 * jnp.pi * variance)) / 2, squares], 1)


def learn_in_stages(
    start: Model | ProcessModel,
    X: PyTree,
    y: Array,
    *,
    most: int,
    sparse: bool = False,
    groups: np.ndarray | None = None,
    with_priors: bool = True,
    starts: int = 1,
    key: Key[Array, ""],
    progress: Callable[[Sequence[Folds]], Iterable[Folds]] = iter,
    bar: bool = False,
) -> StageChoice:
    """Learns as `learn_ridge` and `learn_process` do, but in stages: first with a common
    lengthscale, then with one for each column.

    A stage is kept only if it predicts unseen rows better: by their log density under a process,
    without larger errors, and by their squared error under ridge regression.

    Arguments:
        start: the user's model.
        X, y: points in a random order, and standardised targets (n,).
        most: the largest number of rows to learn and compare stages on; if there are more, the
            stage that is kept is learned once more from all rows; with fewer than eight rows
            nothing is learned.
        sparse: whether a relevance vector machine is fitted with the kernel that the evidence
            gives.
        groups: (d,) which columns of points share a lengthscale, as for `Learning`.
        with_priors: weak priors around the start, which keep the noise away from zero.
        starts, key: as for `learned_from_data`.
        progress: as for `choose`.
        bar: whether to draw a bar while the stage that is kept is learned from all rows.
    """
    n = len(y)
    if n < _LEAST_TO_JUDGE:
        written = Stage("as written", start, np.zeros(n))
        return StageChoice(written, (written,), ())
    rows = np.arange(min(n, most))
    is_ridge = isinstance(start, Model)
    loss = ridge_stage_loss if is_ridge else process_stage_loss
    of_process = relevance_fold if sparse else process_fold
    values = ridge_fold if is_ridge else of_process
    steps = _STEPS_OF_RIDGE if is_ridge else _STEPS_OF_PROCESS
    learn = functools.partial(_learned_together, steps=steps, starts=starts, key=key)
    learning = Learning(
        learn=learn,
        groups=groups,
        with_priors=with_priors,
        of_each=DEVIATION,
        floored=("ridge",) if is_ridge else ("noise",),
    )
    choice = choose(
        start,
        points_at(X, rows),
        y[rows],
        np.zeros(len(rows), int),
        loss,
        values,
        lambda scored, _: scored,
        shared="ridge, scales" if is_ridge else "noise, scales",
        learning=learning,
        progress=progress,
    )
    place = [stage is choice.kept for stage in choice.stages].index(True)
    if place == 0 or len(rows) == n:
        return choice
    priors, together = learning.setting(choice.stages[place - 1].model, place)
    args = (X, y, everyone(n), priors, together)
    solution = learn(loss, choice.kept.model, args, interior(start), progress=bar)
    kept = dataclasses.replace(choice.kept, model=solution.value, stats=solution.stats)
    return dataclasses.replace(choice, kept=kept)


def _learned_together(
    loss: Callable[..., Array],
    start: Any,
    args: tuple,
    free: Trainable,
    *,
    steps: int,
    starts: int,
    key: Key[Array, ""],
    progress: bool = False,
) -> Solution:
    """A stage, from one start or several, with common factors of elements that move together."""
    solution = learned_from_data(
        loss,
        start,
        steps,
        args,
        args[1],
        starts=starts,
        key=key,
        trainable=free,
        progress=progress,
        throw=False,
    )
    *_, together = args
    return Solution(together(solution.value), solution.result, solution.stats)


def learn_ridge(
    start: Model, X: PyTree, y: Array, *, weights: Array | None, trainable: Trainable
) -> Solution[Model]:
    """Minimises the mean squared leave-one-out residual over the kernel and the ridge.

    It takes a few steps of L-BFGS. The ridge is kept away from zero (`leave_one_out_loss`).

    Arguments:
        start: the model to start from.
        X, y: points, and standardised targets (n,).
        weights: (n,) >= 0, the weights of rows; two is a row repeated, and left out with its copy.
        trainable: says what is learned, as for `minimise`.

    Returns and raises what `minimise` does.
    """
    args = (X, y, weights)
    loss = leave_one_out_loss
    return minimise(loss, start, LBFGS, _STEPS_OF_RIDGE, args=args, trainable=trainable)


def learn_process(
    start: ProcessModel,
    X: PyTree,
    y: Array,
    *,
    weights: Array | None,
    starts: int,
    key: Key[Array, ""],
    trainable: Trainable,
) -> Solution[ProcessModel]:
    """Maximises the evidence over the kernel's parameters and the noise, by L-BFGS.

    Arguments:
        start, X, y, weights, trainable: as for `learn_ridge`.
        starts, key: as for `learned_from_data`.
    """
    args = (X, y, None, weights)
    steps = _STEPS_OF_PROCESS
    return learned_from_data(
        evidence_loss, start, steps, args, y, starts=starts, key=key, trainable=trainable
    )
