"""Laplace's approximation of the posterior of a Gaussian process with any likelihood."""

from typing import overload

import jax.numpy as jnp
from jaxtyping import PyTree

from kernax._advice import IN_FEATURES
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import matmul
from kernax.core.base.parameters import as_stopping
from kernax.core.base.solution import OF_EVIDENCE, RESULTS, Solution, finish
from kernax.core.kernel.kernel import AbstractKernel, name_of
from kernax.core.linalg.density import factor_of, log_determinant
from kernax.core.losses.loss_functions import AbstractLikelihood
from kernax.core.losses.modes import newton_fit
from kernax.core.losses.observation_likelihoods import Categorical
from kernax.core.losses.stationarity import values_at_points
from kernax.core.operators.memory import Footprint
from kernax.gp.approximation import (
    ADVICE,
    ApproximatePosterior,
    NormalAtPoints,
    check_observations,
    shifted,
    solution_of,
    system_of_precisions,
)
from kernax.gp.laplace_classes import CategoricalPosterior, laplace_of_classes
from kernax.gp.process import GaussianProcess, as_process

_FOOTPRINT = Footprint("laplace", 6.4, IN_FEATURES)


@overload
def laplace(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    weights: ArrayLike | None = None,
    rtol: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[ApproximatePosterior]: ...


@overload
def laplace(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: Categorical,
    *,
    weights: ArrayLike | None = None,
    rtol: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[CategoricalPosterior]: ...


def laplace(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood | Categorical,
    *,
    weights: ArrayLike | None = None,
    rtol: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[ApproximatePosterior] | Solution[CategoricalPosterior]:
    """Laplace's approximation of the posterior: the normal distribution around its mode.

    The mode of f at X minimises `sum_i w_i L(y_i, f_i) + (f - m) K^-1 (f - m) / 2` with
    `L = -log p(y | f)`; it is `f = m + K a` for the a of `regularised_risk` with ridge 1. With the
    curvatures `W = w L''(y, f)` there, the covariance is that given observations of precision W,
    and the log evidence is `-sum_i w_i L(y_i, f_i) - a.K a / 2 - log |I + W K| / 2` (Rasmussen &
    Williams 2006, section 3.4, algorithms 3.1 and 3.2; K is not inverted). Derivatives of the
    evidence include those of the mode.

    For several classes (`Categorical`) each class has a latent function with the same prior, and
    the joint Hessian is used (algorithm 3.3). A step then takes about `classes + 1` factorisations
    of size n.

    Arguments:
        process: the prior of f, with its kernel and mean m.
        X: a batch of n points.
        y: targets (n,): -1 and +1 for `Bernoulli` and `Probit`, counts for `Poisson` and
            `NegativeBinomial`, classes 0, 1, ... for `Ordinal`, else numbers; for `Categorical`
            one-hot rows (n, classes), as `one_hot` makes them.
        likelihood: one of `kernax.likelihoods`, or your own; its parameters may be learned.
        weights: (n,) >= 0, powers of the likelihood: two is the observation repeated, zero the
            observation removed.
        rtol, max_steps: the tolerance and the largest number of steps of Newton's method, as for
            `regularised_risk`.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is an `ApproximatePosterior` (for `Categorical` a
        `CategoricalPosterior`), differentiable in the process, X,
        numerical y, the likelihood's parameters and weights, to any order. Stats: `log_evidence`
        and its `rounding` error; `steps`, `objective` and the relative `residual` of the mode; and
        the number of `features`, if the kernel has fewer explicit features than there are points.

    Raises:
        ValueError: bad shapes or values.
        MaxStepsError, NonFiniteError, BreakdownError: the mode was not found, or `I + W K` is
            nearly singular, or a curvature is negative.
        MemoryBudgetError: the dense matrices would not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> prior = kernax.GaussianProcess(4.0 * kernax.RBF(0.3))
        >>> posterior = kernax.laplace(prior, X, y, kernax.likelihoods.Bernoulli()).value
        >>> round(float(posterior.probability(jnp.array([0.9]))), 2)  # of class +1
        0.77
    """
    process = as_process(process)
    stopping = as_stopping(rtol, max_steps)
    if isinstance(likelihood, Categorical):
        solution = laplace_of_classes(process, X, y, likelihood, weights, *stopping, throw)
    else:
        problem, mean, likelihood = check_observations(
            "laplace",
            process,
            X,
            y,
            likelihood,
            weights,
            footprint=_FOOTPRINT,
            in_features=True,
            throw=throw,
        )
        solution = _laplace(problem, mean, likelihood, *stopping)
    hint = f"laplace with {name_of(process.covariance)}: {ADVICE} may help."
    return finish(solution, throw, hint, digits=OF_EVIDENCE)


@compiled
def _laplace(problem, mean, likelihood, rtol, max_steps):
    """The approximation, with its evidence and the status of Newton's method."""
    gram = problem.gram()
    one = jnp.ones((), problem.dtype)
    loss = shifted(likelihood, mean, problem)
    mode = newton_fit(
        gram, problem.y, loss, one, problem.weights, False, rtol=rtol, max_steps=max_steps
    )
    a = mode.coefficients
    f = values_at_points(gram, a)
    weights = problem.weights.values
    # The curvatures; NaN where they are negative, as for a likelihood that is not log-concave.
    curvatures = loss.curvature(problem.y, f)
    precisions = jnp.where(curvatures < 0, jnp.nan, curvatures)
    # W K + I with W = w L''(y, f).
    system = system_of_precisions(gram, weights * precisions)
    factor, of_factor, figures = factor_of(system)
    result = RESULTS.where(mode.result == RESULTS.successful, of_factor, mode.result)
    # log p(y) is about -sum_i w_i L_i - a.K a / 2 - log |I + W K| / 2 (Rasmussen & Williams 2006,
    # eq. 3.32). Here f = K a excludes the mean m, which is part of the loss.
    half_norm = (matmul(a, f) + log_determinant(system, factor)) / 2
    log_evidence = -jnp.sum(weights * loss(problem.y, f)) - half_norm
    normal = NormalAtPoints(system, factor, a)
    stats = mode.stats | figures | problem.figures(gram)
    return solution_of(problem, mean, likelihood, normal, log_evidence, result, stats)
