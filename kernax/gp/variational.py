"""Variational inference for Gaussian processes with any likelihood."""

from typing import overload

import jax.numpy as jnp
from jaxtyping import PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.parameters import as_stopping
from kernax.core.base.solution import OF_EVIDENCE, Solution, finish
from kernax.core.kernel.kernel import AbstractKernel, name_of
from kernax.core.losses.loss_functions import AbstractLikelihood
from kernax.core.losses.quadrature import bounded_slopes
from kernax.core.operators.memory import Footprint
from kernax.gp.approximation import ADVICE, ApproximatePosterior, check_observations
from kernax.gp.heteroscedastic import HeteroscedasticPosterior, variational_of_two
from kernax.gp.heteroscedastic_likelihood import HeteroscedasticGaussian
from kernax.gp.process import GaussianProcess, as_process
from kernax.gp.sites import (
    AbstractPointwiseRule,
    Sites,
    divergence_from_prior,
    posterior_by_sites,
)

_FOOTPRINT = Footprint(
    "variational",
    9.7,
    "kernax.svgp(process, X, y, likelihood, Z, ...) through inducing points Z",
)


@overload
def variational(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    weights: ArrayLike | None = None,
    rtol: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> Solution[ApproximatePosterior]: ...


@overload
def variational(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: HeteroscedasticGaussian,
    *,
    weights: ArrayLike | None = None,
    rtol: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> Solution[HeteroscedasticPosterior]: ...


def variational(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood | HeteroscedasticGaussian,
    *,
    weights: ArrayLike | None = None,
    rtol: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> Solution[ApproximatePosterior] | Solution[HeteroscedasticPosterior]:
    """Variational inference: the normal distribution closest to the posterior of a process.

    q(f) maximises `sum_i w_i E[log p(y_i | f_i)] - KL(q | prior)`, a lower bound of the log
    evidence, over all normal distributions. The optimum has the covariance `(K^-1 + D)^-1` with `D
    = diag(w E[L''(y, f)])`, `L = -log p`, and the mean `m - K w E[L'(y, f)]`, so 2 n numbers
    describe it (Opper & Archambeau 2009). Damped natural gradient steps compute them (Khan & Lin
    2017).

    For Student's t, which is not log-concave, the expected loss is replaced by a bound from
    Jensen's inequality, `E[L] <= L` at the mean of `(y - f)^2` (Tipping & Lawrence 2005), so that D
    > 0; the q found is then a local optimum.

    For `HeteroscedasticGaussian`, normal noise with a log variance g that is a process of its own,
    q is a product q(f) q(g), and the expectations have a closed form (Lazaro-Gredilla & Titsias
    2011). Given q(g), q(f) is the posterior of regression with precisions `w E[exp(-g)]`; natural
    gradient steps of q(g) follow. They start at the mode of g, with f fitted to noise of variance
    exp(prior mean of g). This q, too, is a local optimum.

    Arguments are those of `laplace`, and:
        rtol: stop when the largest change of a factor, in the units of the marginals, is at most
            this. The default is 100 eps sqrt(n), or sqrt(eps) where no step lowers the change
            further.
        max_steps: the largest number of updates of all factors; each takes a Cholesky factorisation
            and a solve. Derivatives of predictions, and second derivatives of the bound, also
            factorise a matrix of 2 n rows. For `HeteroscedasticGaussian` an update takes two
            factorisations and an inverse, and such derivatives a matrix of n rows.

    Returns:
        A `Solution` whose `value` is an `ApproximatePosterior` (for `HeteroscedasticGaussian` a
        `HeteroscedasticPosterior`), differentiable like that of `laplace`; its `log_evidence` is
        the bound. Stats: `log_evidence`, `steps`, and `residual`, the largest change of a factor in
        the last step.

    Raises:
        ValueError: bad shapes or values.
        MaxStepsError, NonFiniteError, BreakdownError: no fixed point was found.
        MemoryBudgetError: the dense matrices would not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([0.0, 1.0, 1.0, 3.0, 6.0])  # counts
        >>> prior = kernax.GaussianProcess(kernax.RBF(0.3))
        >>> solution = kernax.variational(prior, X, y, kernax.likelihoods.Poisson())
        >>> round(float(solution.stats["log_evidence"]), 2)  # a lower bound of the log evidence
        -9.56
    """
    stopping = as_stopping(rtol, max_steps)
    process = as_process(process)
    if isinstance(likelihood, HeteroscedasticGaussian):
        solution = variational_of_two(process, X, y, likelihood, weights, *stopping, throw)
        advice = (
            "a mean of log_noise near the logarithm of the variance of the noise, or smaller "
            "variances of both processes,"
        )
    else:
        advice = ADVICE
        problem, mean, likelihood = check_observations(
            "variational",
            process,
            X,
            y,
            likelihood,
            weights,
            footprint=_FOOTPRINT,
            convex=False,
            throw=throw,
        )
        solution = posterior_by_sites(problem, mean, likelihood, _NaturalGradient(), *stopping)
    hint = f"variational with {name_of(process.covariance)}: {advice} may help."
    return finish(solution, throw, hint, digits=OF_EVIDENCE)


class _NaturalGradient(AbstractPointwiseRule):
    """The site with precision `E[L'']` and shift `E[L''] m - E[L']`; the bound is stationary where
    an update does not change it.
    """

    def updated(self, likelihood, y, site, marginal):
        # E[L'] and E[L''] under the marginal, or those of the bound on E[L].
        slope, curvature = bounded_slopes(likelihood, y, marginal.mean, marginal.variance)
        precision = jnp.where(curvature < 0, jnp.nan, curvature)
        return Sites(precision, curvature * marginal.mean - slope)

    def log_evidence(self, observations, sites, q):
        # -E[L] - KL(q | prior).
        y = observations.y
        losses = observations.likelihood.bounded_loss(y, q.marginal.mean, q.marginal.variance)
        return -jnp.sum(losses) - divergence_from_prior(q)
