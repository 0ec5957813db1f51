"""Learning a kernel for numbers.

Ridge regression learns by its leave-one-out error, a Gaussian process by its evidence.

Both expect standardised targets: the starts and the priors are of order one.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Key, PyTree

from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel
from kernax.core.model import Model
from kernax.core.parameters import Trainable, interior, positive
from kernax.core.solution import Solution
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition, log_marginal_likelihood
from kernax.selection.data_starts import data_starts
from kernax.selection.minimise import minimise
from kernax.selection.multi_start import multi_start
from kernax.selection.weak_priors import WeakPriors, weak_priors_around
from kernax.supervised.ridge import kernel_ridge, leave_one_out

_OPTIMISER = optax.lbfgs()
# Few steps for ridge, on purpose: with a lengthscale for each column the leave-one-out error can be
# fitted too well (Cawley & Talbot 2010). Twenty do slightly worse than ten on diabetes (54.9
# against 54.7, ten seeds), far better on yacht.
_STEPS_OF_RIDGE = 20
_STEPS_OF_PROCESS = 60


class ProcessModel(eqx.Module):
    """A kernel and the variance of the noise: all that a Gaussian process has to learn.

    It is no `Model`, whose number is a ridge by name: what is printed and warned of is the noise.
    """

    kernel: AbstractKernel
    noise: Float[Array, ""] = positive(default=0.1)


def fitted(
    model: Model | ProcessModel, X: PyTree, y: Array
) -> Solution[KernelExpansion] | Solution[GaussianProcess]:
    """The function, or the process, that a model makes of points X and targets y (n,)."""
    if isinstance(model, Model):
        return kernel_ridge(model.kernel, X, y, model.ridge)
    return condition(GaussianProcess(model.kernel), X, y, model.noise)


def leave_one_out_loss(
    model: Model, X: PyTree, y: Array, weights: Array | None = None
) -> Float[Array, ""]:
    """The mean squared leave-one-out residual, in closed form.

    A row is left out with all of its weight, which counts in the mean.
    """
    residuals = leave_one_out(model.kernel, X, y, model.ridge, weights=weights)
    return jnp.average(residuals**2, weights=weights)


def evidence_loss(
    model: ProcessModel,
    X: PyTree,
    y: Array,
    priors: WeakPriors | None,
    weights: Array | None = None,
    known_noise: ArrayLike = 0.0,
) -> Float[Array, ""]:
    """Minus the log marginal likelihood, for each row by weight.

    With the log density of the priors if there are any. The known noise is added to the model's.
    """
    penalty = 0.0 if priors is None else priors.penalty(model)
    noise = model.noise + known_noise
    evidence = log_marginal_likelihood(model.kernel, X, y, noise, weights=weights)
    return (penalty - evidence) / (len(y) if weights is None else jnp.sum(weights))


def learn_ridge(
    start: Model,
    X: PyTree,
    y: Array,
    *,
    weights: Array | None = None,
    starts: int = 1,
    key: Key[Array, ""],
    trainable: Trainable | None = None,
    progress: bool = False,
) -> Solution[Model]:
    """Minimises the mean squared leave-one-out residual over the kernel and the ridge.

    Takes a few steps of L-BFGS.

    Arguments:
        start: where to start; what is at the end of its interval is not learned.
        X, y: points, and standardised targets (n,).
        weights: (n,) >= 0, of the rows; two is a row repeated, and left out with its copy.
        starts: how many starts to learn from: this one, and random ones (`data_starts`).
        key: draws the random ones.
        trainable: says what is learned, as for `minimise`; None is everything that is not at the
            end of its interval.
        progress: as for `minimise`.

    Returns and raises what `minimise`, or `multi_start` for several starts, does.
    """
    args = (X, y, weights)
    return _learned(
        leave_one_out_loss, start, _STEPS_OF_RIDGE, args, starts, key, progress, trainable
    )


def learn_process(
    start: ProcessModel,
    X: PyTree,
    y: Array,
    *,
    weights: Array | None = None,
    known_noise: ArrayLike = 0.0,
    with_priors: bool = True,
    starts: int = 1,
    key: Key[Array, ""],
    trainable: Trainable | None = None,
    progress: bool = False,
) -> Solution[ProcessModel]:
    """Maximises the evidence over the kernel's parameters and the noise, by L-BFGS.

    `with_priors` adds weak priors around the start and keeps the noise away from zero
    (`weak_priors_around`). `known_noise` is a variance beside the model's. The other arguments are
    those of `learn_ridge`.
    """
    priors = weak_priors_around(start, floored=["noise"]) if with_priors else None
    args = (X, y, priors, weights, known_noise)
    return _learned(evidence_loss, start, _STEPS_OF_PROCESS, args, starts, key, progress, trainable)


def _learned(
    loss: Callable[..., Array],
    start: Any,
    steps: int,
    args: tuple,
    starts: int,
    key: Key[Array, ""],
    progress: bool,
    trainable: Trainable | None = None,
) -> Solution:
    """From one start or several."""
    free = interior(start) if trainable is None else trainable
    if starts == 1:
        return minimise(
            loss, start, _OPTIMISER, steps, args=args, trainable=free, progress=progress
        )
    models = data_starts(start, args[0], args[1], starts, key=key, trainable=free)
    return multi_start(
        loss, models, _OPTIMISER, steps, args=args, trainable=free, progress=progress
    )
