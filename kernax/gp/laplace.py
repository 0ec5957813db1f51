"""Laplace's approximation of the posterior of a Gaussian process with any likelihood."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import cast
from kernax.core.density import factor_of, log_determinant
from kernax.core.labels import as_targets_of
from kernax.core.linalg import WeightedSystem
from kernax.core.losses import AbstractLikelihood, AbstractSmoothLoss, Values
from kernax.core.misfit import values_of
from kernax.core.modes import newton_fit
from kernax.core.numerics import matmul
from kernax.core.preparation import guarded
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, finish, void_unless_known
from kernax.core.task import check_task
from kernax.core.weights import PointWeights
from kernax.gp.approximation import ApproximatePosterior
from kernax.gp.means import means_at, updated_mean
from kernax.gp.posterior import posterior_kernel
from kernax.gp.process import GaussianProcess, check_process


def laplace(
    process: GaussianProcess,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    weights: ArrayLike | None = None,
    rtol: float | None = None,
    max_steps: int = 100,
    throw: bool = True,
) -> Solution[ApproximatePosterior]:
    """The posterior of a process as the normal distribution about its mode.

    The mode of f at X minimises `sum_i w_i L(y_i, f_i) + (f - m) K^-1 (f - m) / 2` with
    `L = -log p(y | f)`; it is `f = m + K a` for the a of `regularised_risk` with ridge 1. With the
    curvatures `W = w L''(y, f)` there, the covariance is that given observations of precision W,
    and the evidence `-sum_i w_i L(y_i, f_i) - a.K a / 2 - log |I + W K| / 2` (Rasmussen & Williams
    2006, section 3.4, algorithms 3.1 and 3.2; no inverse of K is taken). The evidence's derivatives
    include those of the mode.

    Arguments:
        process: the prior of f: a kernel, and a mean m.
        X: a stack of n points.
        y: targets (n,): -1 and +1 for `Bernoulli` and `Probit`, counts for `Poisson` and
            `NegativeBinomial`, else numbers.
        likelihood: one of `kernax.likelihoods`, or your own; its parameters may be learned. It must
            be log-concave.
        weights: (n,) >= 0, powers of the likelihood: two is the observation repeated, zero the
            observation removed.
        rtol, max_steps: of Newton's method, as for `regularised_risk`.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is an `ApproximatePosterior`, differentiable in the process, X,
        numbers y, the likelihood's parameters and weights, to any order. Stats: `log_evidence`,
        and `steps`, `objective` and the relative `residual` of the mode.

    Raises:
        ValueError: bad shapes or values, a likelihood that is not log-concave.
        MaxStepsError, NonFiniteError, BreakdownError: the mode was not found.
        MemoryBudgetError: the dense matrices would not fit.
    """
    check_process(process)
    _check_log_concave(likelihood)
    task = check_task(
        "laplace",
        process.covariance,
        X,
        y,
        weights,
        targets=partial(as_targets_of, likelihood, both_signs=False),
        one_column="one process for each column, or jax.vmap over them",
        in_features=True,
    )
    mean = cast(process.mean, task.dtype)
    solution = _laplace(task, mean, guarded(cast(likelihood, task.dtype)), rtol, max_steps)
    hint = f"laplace with {task.kernel_name}: a smaller variance or rescaled inputs may help."
    return finish(solution, throw, hint)


def _check_log_concave(likelihood: Any) -> None:
    """Raises ValueError for what is no likelihood, or has no single mode."""
    if not isinstance(likelihood, AbstractLikelihood):
        raise ValueError(
            "likelihood must be one of kernax.likelihoods, such as Bernoulli(), but is "
            f"{likelihood!r}"
        )
    if not likelihood.log_concave:
        raise ValueError(
            f"{type(likelihood).__name__} is not log-concave: its posterior may have several "
            "modes, and curvatures that are no precisions"
        )


class _Shifted(AbstractSmoothLoss):
    """`L(y, f + mean)`: a loss as a function of what a process adds to its mean."""

    loss: AbstractLikelihood
    mean: Float[Array, " n"]

    def __call__(self, y: Values, f: Values) -> Values:
        return self.loss(y, f + self.mean)

    def derivative(self, y: Values, f: Values) -> Values:
        return self.loss.derivative(y, f + self.mean)

    def curvature(self, y: Values, f: Values) -> Values:
        return self.loss.curvature(y, f + self.mean)

    def response(self, f: Values) -> Values:
        return self.loss.response(f + self.mean)


@compiled
def _laplace(task, mean, likelihood, rtol, max_steps):
    """The approximation, with its evidence and how Newton's method ended."""
    gram = task.gram()
    y = task.y
    weights = task.weights.values
    one = jnp.ones((), task.dtype)
    loss = _Shifted(likelihood, means_at(mean, task)[:, 0])
    mode = newton_fit(gram, y, loss, one, task.weights, False, rtol=rtol, max_steps=max_steps)
    a = mode.coefficients
    f = values_of(gram, a)
    precisions = PointWeights(weights * loss.curvature(y, f))
    system = WeightedSystem.of(gram, precisions, one)
    factor, of_factor, _ = factor_of(system)
    result = RESULTS.where(mode.result == RESULTS.successful, of_factor, mode.result)
    half_norm = (matmul(a, f) + log_determinant(system, factor)) / 2
    log_evidence = void_unless_known(-jnp.sum(weights * loss(y, f)) - half_norm, result)
    covariance = posterior_kernel(factor, task.kernel, task.X, system, result)
    posterior = GaussianProcess(covariance, updated_mean(mean, task, a))
    stats = mode.stats | {"log_evidence": log_evidence} | task.figures(gram)
    return Solution(ApproximatePosterior(posterior, likelihood, log_evidence), result, stats)
