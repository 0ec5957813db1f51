"""Posteriors of processes whose observations are not normal, as normal approximations: what their
verbs check, and what they return.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import as_point, as_scalar, cast
from kernax.core.factors import AbstractFactor
from kernax.core.intervals import REAL
from kernax.core.labels import as_targets_of
from kernax.core.likelihoods import Shifted
from kernax.core.linalg import WeightedSystem
from kernax.core.losses import AbstractLikelihood
from kernax.core.operators import AbstractGram
from kernax.core.parameters import data
from kernax.core.preparation import guarded
from kernax.core.quadrature import log_normaliser, predicted_moments
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, void_unless_known
from kernax.core.task import Task, check_task
from kernax.core.weights import PointWeights, UnitWeights
from kernax.gp.means import means_at, updated_mean
from kernax.gp.posterior import point_for, posterior_kernel
from kernax.gp.process import GaussianProcess, check_process

ADVICE = "targets that the likelihood allows, a mean near them or a smaller variance"
MOST_ROUNDING = 0.01  # nats of the log evidence


class ApproximatePosterior(eqx.Module):
    """A process over the latent function f, and the likelihood of y given f.

    Its methods take one point; `jax.vmap(posterior.predict)(X)` takes a stack. They integrate over
    f(x) in closed form, or by the trapezoid rule, and can be differentiated.

    Attributes:
        process: the approximation of the posterior of f, a `GaussianProcess`.
        likelihood: p(y | f).
        log_evidence: the approximation of `log p(y | X)`; maximise it to learn hyperparameters.
    """

    process: GaussianProcess
    likelihood: AbstractLikelihood
    log_evidence: Float[Array, ""] = data()

    def predict(self, x: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean and the variance of y at x; signs have the mean `p(+1) - p(-1)`."""
        return _moments(self.likelihood, *self._latent(x))

    def log_density(self, x: PyTree, y: ArrayLike) -> Float[Array, ""]:
        """`log p(y | x)`, the logarithm of the mean of p(y | f(x))."""
        mean, variance = self._latent(x)
        targets = jnp.asarray(as_scalar(y, mean.dtype, "y", REAL))[None]
        unit = UnitWeights(1, mean.dtype)
        y = as_targets_of(self.likelihood, targets, 1, mean.dtype, unit, both_signs=False)[0]
        return _log_density(self.likelihood, y, mean, variance)

    def probability(self, x: PyTree) -> Float[Array, ""]:
        """The probability of +1 at x. Raises ValueError where targets are not signs."""
        if self.likelihood.targets != "signs":
            raise ValueError(
                f"{type(self.likelihood).__name__} is no likelihood of -1 and +1: predict(x) gives "
                "the mean and the variance of y, log_density(x, y) the logarithm of its density"
            )
        return jnp.exp(self.log_density(x, 1.0))

    def _latent(self, x: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean and the variance of f(x)."""
        x = point_for(self.process.covariance, as_point(x))
        return self.process.mean(x), self.process.variance(x)


@compiled
def _moments(likelihood, mean, variance):
    return predicted_moments(likelihood, mean, variance)


@compiled
def _log_density(likelihood, y, mean, variance):
    return log_normaliser(likelihood, y, mean, variance)


def check_observations(
    verb: str,
    process: Any,
    X: PyTree,
    y: ArrayLike,
    likelihood: Any,
    weights: ArrayLike | None,
    *,
    in_features: bool = False,
) -> tuple[Task, Callable, AbstractLikelihood]:
    """The task of a verb, and the mean and the likelihood in its dtype.

    Raises ValueError for what does not fit, by name.
    """
    check_process(process)
    _check_likelihood(likelihood)
    task = check_task(
        verb,
        process.covariance,
        X,
        y,
        weights,
        targets=partial(as_targets_of, likelihood, both_signs=False),
        one_column="one process for each column, or jax.vmap over them",
        in_features=in_features,
    )
    likelihood = guarded(cast(likelihood, task.dtype))
    return task, cast(process.mean, task.dtype), likelihood


def _check_likelihood(likelihood: Any) -> None:
    """Raises ValueError for what is no likelihood."""
    if not isinstance(likelihood, AbstractLikelihood):
        came = f"the class {likelihood.__name__}" if isinstance(likelihood, type) else likelihood
        raise ValueError(
            f"likelihood must be one of kernax.likelihoods, such as Bernoulli(), but is {came}"
        )


def shifted(likelihood: AbstractLikelihood, mean: Callable, task: Task) -> Shifted:
    """The likelihood of a task's targets given what the process adds to its mean."""
    return Shifted(likelihood, means_at(mean, task)[:, 0])


class NormalAtPoints(eqx.Module):
    """A normal distribution of f at the points: the prior given observations of precisions W.

    Attributes:
        system: `W K + I`.
        factor: of its symmetric form.
        coefficients: a, with the mean `m + K a`.
    """

    system: WeightedSystem
    factor: AbstractFactor
    coefficients: Float[Array, " n"]


def system_of_precisions(gram: AbstractGram, precisions: Float[Array, " n"]) -> WeightedSystem:
    """`W K + I`."""
    return WeightedSystem.of(gram, PointWeights(precisions), jnp.ones_like(precisions[0]))


def solution_of(
    task: Task,
    mean: Callable,
    likelihood: AbstractLikelihood,
    normal: NormalAtPoints,
    log_evidence: Float[Array, ""],
    result: Any,
    stats: dict[str, Array],
) -> Solution[ApproximatePosterior]:
    """What a verb returns: the posterior process of the normal distribution that it found."""
    # Jitter is noise beside the precisions: what was found is another model's.
    kept = (normal.factor.jitter == 0) | (result != RESULTS.successful)
    result = RESULTS.where(kept, result, RESULTS.inaccurate)
    log_evidence, coefficients = void_unless_known((log_evidence, normal.coefficients), result)
    covariance = posterior_kernel(normal.factor, task.kernel, task.X, normal.system, result)
    process = GaussianProcess(covariance, updated_mean(mean, task, coefficients))
    posterior = ApproximatePosterior(process, likelihood, log_evidence)
    return Solution(posterior, result, stats | {"log_evidence": log_evidence})
