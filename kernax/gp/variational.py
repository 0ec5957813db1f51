"""Variational inference for Gaussian processes with any likelihood."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.losses import AbstractLikelihood
from kernax.core.quadrature import expectation, expected_loss
from kernax.core.sharding import compiled
from kernax.core.solution import Solution, finish
from kernax.gp.approximation import (
    ApproximatePosterior,
    check_observations,
    observed,
    solution_of,
)
from kernax.gp.process import GaussianProcess
from kernax.gp.sites import (
    AbstractSiteRule,
    Moments,
    Observations,
    Sites,
    fixed_point,
    moments,
)


def variational(
    process: GaussianProcess,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    weights: ArrayLike | None = None,
    rtol: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> Solution[ApproximatePosterior]:
    """The normal distribution closest to the posterior of a process.

    q(f) maximises `sum_i w_i E[log p(y_i | f_i)] - KL(q | prior)`, which is at most the log
    evidence, over all normal distributions. The best has the covariance `(K^-1 + D)^-1` with `D =
    diag(w E[L''(y, f)])`, `L = -log p`, and the mean `m - K w E[L'(y, f)]`: 2 n numbers (Opper &
    Archambeau 2009), found by damped natural gradients (Khan & Lin 2017).

    Arguments are those of `laplace`, and:
        rtol: the largest change of a factor that is accepted, in the units of the marginals;
            default 100 eps sqrt(n).
        max_steps: updates of all factors, at most; each takes a Cholesky factor and a solve.

    Returns:
        A `Solution` whose `value` is an `ApproximatePosterior`, differentiable as that of
        `laplace`; its `log_evidence` is the bound. Stats: `log_evidence`, `steps`, and `residual`,
        the largest change that is left.

    Raises:
        ValueError: bad shapes or values.
        MaxStepsError, NonFiniteError, BreakdownError: no fixed point was found.
        MemoryBudgetError: the dense matrices would not fit.
    """
    task, mean, likelihood = check_observations("variational", process, X, y, likelihood, weights)
    solution = _variational(task, mean, likelihood, rtol, max_steps)
    hint = f"variational with {task.kernel_name}: a smaller variance may help."
    return finish(solution, throw, hint)


@compiled
def _variational(task, mean, likelihood, rtol, max_steps):
    """The approximation, with its bound and how the iteration ended."""
    observations = Observations(task.gram(), task.y, observed(likelihood, mean, task))
    sites, result, stats = fixed_point(observations, _NaturalGradient(), rtol, max_steps)
    q = moments(observations.gram, sites)
    bound = _bound(observations, q)
    return solution_of(task, mean, likelihood, q.normal, bound, result, stats)


class _NaturalGradient(AbstractSiteRule):
    """The site of precision `E[L'']` and shift `E[L''] m - E[L']`: the bound is stationary where it
    does not change.
    """

    def updated(self, likelihood, y, site, marginal):
        mean = marginal.mean
        variance = marginal.variance
        slope = expectation(lambda g: likelihood.derivative(y, g), mean, variance)
        curvature = expectation(lambda g: likelihood.curvature(y, g), mean, variance)
        return Sites(curvature, curvature * mean - slope)


def _bound(observations: Observations, q: Moments) -> Float[Array, ""]:
    """`-E[L] - KL(q | prior)`, the divergence being `(tr P - n + a.K a + log |B|) / 2`."""
    y = observations.y
    losses = expected_loss(observations.likelihood, y, q.marginal.mean, q.marginal.variance)
    squared_norm = jnp.sum(q.normal.coefficients * q.marginal.mean)
    divergence = (q.trace - len(y) + squared_norm + q.log_determinant) / 2
    return -jnp.sum(losses) - divergence
