"""Learning a kernel for classes and counts by the approximate evidence of a Gaussian process.

The process is a latent function f: its values are log odds, or logarithms of rates.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Key, PyTree

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.parameters import Trainable, real
from kernax.core.base.printing import Printed
from kernax.core.base.solution import Solution
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.losses.loss_functions import AbstractLikelihood, Bernoulli, Poisson
from kernax.core.losses.observation_likelihoods import Categorical, NegativeBinomial, Probit
from kernax.gp.approximation import ApproximatePosterior
from kernax.gp.expectation_propagation import expectation_propagation
from kernax.gp.laplace import laplace
from kernax.gp.laplace_classes import CategoricalPosterior
from kernax.gp.means import FixedMean
from kernax.gp.process import GaussianProcess
from kernax.gp.variational import variational
from kernax.selection.choose.folds import Folds
from kernax.selection.optimise.weak_priors import WeakPriors
from kernax.selection.recipes.data_starts import learned_from_data
from kernax.selection.recipes.latent_choices import Inference, Likelihood
from kernax.selection.recipes.stages import (
    MOST_ROWS,
    Learning,
    StageChoice,
    Together,
    choose,
    weights_of,
)

Posterior = ApproximatePosterior | CategoricalPosterior
_INFERENCES = {
    Inference.LAPLACE: laplace,
    Inference.EP: expectation_propagation,
    Inference.VARIATIONAL: variational,
}
# A step of Laplace's approximation takes some ten factorisations, the others take dozens.
_MOST_ROWS_OF_SITES = 400
_LEAST_DISPERSION = 0.01
_STEPS = 40


class LatentModel(Printed):
    """A kernel, the constant mean of the process, and a likelihood with its parameters, all of
    which are learned.

    For several classes the mean has one value for each.
    """

    kernel: AbstractKernel
    likelihood: AbstractLikelihood | Categorical
    mean: Float[ParameterArray, "*classes"] = real(default=0.0)
    inference: Inference = eqx.field(static=True, default=Inference.LAPLACE)


def most_rows(inference: Inference) -> int:
    """The largest number of rows to learn a kernel from."""
    return MOST_ROWS if inference == Inference.LAPLACE else _MOST_ROWS_OF_SITES


def start_of(
    kernel: AbstractKernel, likelihood: Likelihood, inference: Inference, y: np.ndarray
) -> LatentModel:
    """A model with a process that has no effect: its constant mean predicts the mean of y.

    Arguments:
        y: -1 and +1 of both kinds, or counts that are not all zero (n,); or one-hot columns of
            several classes (n, c), none of them empty.
    """
    if y.ndim == 2:
        # softmax(log p) = p: the shares of the classes. Below, the inverse of each likelihood's
        # mean.
        return _model(kernel, Categorical(), np.log(np.mean(y, 0)), inference)
    of_mean = np.mean(y)
    if likelihood == Likelihood.BERNOULLI:
        share = (1 + of_mean) / 2
        return _model(kernel, Bernoulli(), np.log(share / (1 - share)), inference)
    if likelihood == Likelihood.PROBIT:
        share = (1 + of_mean) / 2
        return _model(kernel, Probit(), jax.scipy.special.ndtri(share), inference)
    if likelihood == Likelihood.POISSON:
        return _model(kernel, Poisson(), np.log(of_mean), inference)
    if likelihood != Likelihood.NEGATIVE_BINOMIAL:
        raise ValueError(f"likelihood must be of signs, counts or classes, but is {likelihood}")
    # By moments: the variance is `mean + dispersion mean^2`.
    dispersion = max((np.var(y) - of_mean) / of_mean**2, _LEAST_DISPERSION)
    counts = NegativeBinomial(jnp.asarray(dispersion))
    return _model(kernel, counts, np.log(of_mean), inference)


def _model(kernel: AbstractKernel, likelihood: Any, mean: Any, inference: Inference) -> LatentModel:
    return LatentModel(kernel, likelihood, jnp.asarray(mean), inference)


def constant_log_densities(model: LatentModel, y: Array) -> Float[Array, " n"]:
    """`log p(y_i | f)` if f is the mean of the process everywhere."""
    return -model.likelihood(y, jnp.full_like(y, model.mean))


def posterior_of(
    model: LatentModel,
    X: PyTree,
    y: Array,
    weights: Array | None = None,
    throw: bool = True,
) -> Solution[Posterior]:
    """The posterior of points X and targets y: -1 and +1 or counts (n,), or one-hot (n, c)."""
    process = GaussianProcess(model.kernel, FixedMean(model.mean))
    infer: Callable = _INFERENCES[model.inference]
    return infer(process, X, y, model.likelihood, weights=weights, throw=throw)


def latent_evidence_loss(
    model: LatentModel,
    X: PyTree,
    y: Array,
    folds: Folds,
    priors: WeakPriors,
    together: Together,
) -> Array:
    """Minus the log evidence of the rows in any of the folds, with the priors, divided by the
    number of rows.
    """
    model = together(model)
    weights = weights_of(folds, y)
    posterior = posterior_of(model, X, y, weights, throw=False).value
    # 1/n (-log q(y | theta) - log p(theta)), log q the evidence of the approximation.
    return (priors.penalty(model) - posterior.log_evidence) / jnp.sum(weights)


def learn_evidence(
    start: LatentModel,
    X: PyTree,
    targets: Array,
    *,
    weights: Array | None,
    starts: int,
    key: Key[Array, ""],
    trainable: Trainable,
) -> Solution[LatentModel]:
    """Maximises the approximate evidence over the trainable parameters, by L-BFGS.

    Arguments:
        start: the model to start from.
        X: points.
        targets: those of several processes with one model and the sum of their evidences: (p, n),
            or one-hot columns (p, n, c).
        weights: (n,) >= 0, powers of the likelihoods of the rows.
        starts, key: as for `learned_from_data`.
        trainable: as for `minimise`.

    Returns and raises what `minimise` does, or `multi_start` for several starts.
    """
    args = (X, targets, weights)
    # Values of the process are of order one, as log odds of classes are.
    size = jnp.ones(())
    return learned_from_data(
        _summed_loss, start, _STEPS, args, size, starts=starts, key=key, trainable=trainable
    )


def minus_evidences(
    model: LatentModel, X: PyTree, targets: Array, weights: Array | None
) -> Float[Array, ""]:
    """Minus the log evidence of all processes."""

    def of_one(y: Array) -> Array:
        return posterior_of(model, X, y, weights, throw=False).value.log_evidence

    return -jnp.sum(lax.map(of_one, targets))


def _summed_loss(
    model: LatentModel, X: PyTree, targets: Array, weights: Array | None
) -> Float[Array, ""]:
    """Minus the log evidence of all processes, divided by the sum of the weights."""
    # -1/n sum_p log q(y_p | theta): the processes are independent, given theta.
    rows = targets.shape[1] if weights is None else jnp.sum(weights)
    return minus_evidences(model, X, targets, weights) / rows


def fold_losses(model: LatentModel, X: PyTree, y: Array, fold: Folds) -> Float[Array, " v"]:
    """`-log p(y_i)` of each row that a fold scores, under the posterior given its other rows."""
    X_learn = points_at(X, fold.learn)
    posterior = _traced_posterior(model, X_learn, y[fold.learn], fold.learn_weights)
    return _losses(posterior, points_at(X, fold.score), y[fold.score])


# Two programs, which compile in half of the time of one that does both.
@eqx.filter_jit
def _traced_posterior(model: LatentModel, X: PyTree, y: Array, weights: Array) -> Posterior:
    """The posterior, without the warnings, which do not matter for a fold."""
    return posterior_of(model, X, y, weights, throw=False).value


@eqx.filter_jit
def _losses(posterior: Posterior, X: PyTree, y: Array) -> Float[Array, " v"]:
    # -log E p(y | f), f normal with the mean and variance of the posterior at the point.
    return -jax.vmap(posterior.log_density)(X, y)


def learn_latent(
    start: LatentModel,
    X: PyTree,
    y: Array,
    labels: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    with_priors: bool = True,
    progress: Callable[[Sequence[Folds]], Iterable[Folds]] = iter,
) -> StageChoice:
    """Maximises the approximate evidence over kernel, mean and likelihood, in stages.

    A stage is kept only if it improves the log density of rows that it has not seen.

    Arguments:
        start: the user's model.
        X, y: points, and -1 and +1 or counts (n,), or one-hot columns (n, c).
        labels: names (n,), to balance folds; one name for all counts.
        groups: (d,) which columns of points share a lengthscale, as for `Learning`.
        with_priors: weak priors, as for `learn_process`.
        progress: as for `choose`.
    """
    return choose(
        start,
        X,
        y,
        labels,
        latent_evidence_loss,
        fold_losses,
        lambda losses, _: losses,
        shared="mean, scales",
        learning=Learning(groups=groups, with_priors=with_priors),
        progress=progress,
    )
