"""Variational inference for noise, the log variance of which is a Gaussian process of its own."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_point, as_scalar, cast
from kernax.core.base.compiled import compiled, compiled_call
from kernax.core.base.derivatives import at_stationary_point
from kernax.core.base.intervals import REAL
from kernax.core.base.numerics import matmul, stop_gradient
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution, void_unless_known
from kernax.core.learner.learner_problem import check_problem
from kernax.core.linalg.density import factor_of
from kernax.core.linalg.factorisation import AbstractFactor
from kernax.core.linalg.solves import solve_by_lu
from kernax.core.losses.observation_likelihoods import Powered, Shifted
from kernax.core.operators.memory import Footprint
from kernax.core.operators.operators import AbstractGram
from kernax.gp.approximation import posterior_process, status_of, system_of_precisions
from kernax.gp.heteroscedastic_likelihood import HeteroscedasticGaussian, ResidualOfLogNoise
from kernax.gp.means import means_at
from kernax.gp.posterior import point_for
from kernax.gp.process import GaussianProcess
from kernax.gp.sites import (
    AbstractSiteRule,
    Marginals,
    Observations,
    Sites,
    divergence_from_prior,
    fixed_point,
    moments,
    normal_of,
    variances_of,
)

_FOOTPRINT = Footprint("variational of HeteroscedasticGaussian", 11.3)


class HeteroscedasticPosterior(Printed):
    """An approximate posterior of two latent functions: f, and the log variance g of its noise.

    Its methods take one point; `jax.vmap(posterior.predict)(X)` takes a batch of points. They are
    differentiable.

    Attributes:
        process: the approximation of the posterior of f, a `GaussianProcess`.
        log_noise: the approximation of the posterior of g, a `GaussianProcess`.
        log_evidence: a lower bound of `log p(y | X)`; maximise it to learn hyperparameters.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([0.0, 0.1, 0.0, 1.0, -1.0])
        >>> log_noise = kernax.GaussianProcess(kernax.RBF(1.0), mean=-2.0)
        >>> likelihood = kernax.likelihoods.HeteroscedasticGaussian(log_noise)
        >>> posterior = kernax.variational(kernax.RBF(1.0), X, y, likelihood).value
        >>> mean, variance = posterior.predict(jnp.array([0.9]))
        >>> bool(variance > posterior.process.variance(jnp.array([0.9])))  # it includes the noise
        True
    """

    process: GaussianProcess
    log_noise: GaussianProcess
    log_evidence: Float[Array, ""] = data()

    def noise(self, x: PyTree) -> Float[Array, ""]:
        """The mean of the variance of the noise at x, `E exp(g(x))`."""
        # E exp(g) for g ~ N(mean, variance).
        mean, variance = _latent(self.log_noise, x)
        return jnp.exp(mean + variance / 2)

    def predict(self, x: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean and the variance of y at x, noise included."""
        mean, variance = _latent(self.process, x)
        return mean, variance + self.noise(x)

    def log_density(self, x: PyTree, y: ArrayLike) -> Float[Array, ""]:
        """`log p(y | x)`, with the integral over f(x) in closed form and that over g(x) by the
        trapezoid rule.
        """
        mean, variance = _latent(self.process, x)
        y = as_scalar(y, mean.dtype, "y", REAL)
        # log E N(y - mean | 0, variance + exp(g)).
        normaliser = ResidualOfLogNoise(variance).log_normaliser
        return compiled_call(normaliser, y - mean, *_latent(self.log_noise, x))


def _latent(process: GaussianProcess, x: PyTree) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean and the variance of a function at x."""
    x = point_for(process.covariance, as_point(x))
    return process.mean(x), process.variance(x)


def variational_of_two(
    process: GaussianProcess,
    X: PyTree,
    y: ArrayLike,
    likelihood: HeteroscedasticGaussian,
    weights: ArrayLike | None,
    rtol: ArrayLike | None,
    max_steps: ArrayLike,
    throw: bool,
) -> Solution[HeteroscedasticPosterior]:
    """The approximation for noise with a process of its own. Raises ValueError as `variational`
    does.
    """
    problem = check_problem(
        "variational",
        process.covariance,
        X,
        y,
        weights,
        footprint=_FOOTPRINT,
        one_column="one process for each column, or jax.vmap over them",
        throw=throw,
    )
    log_noise = likelihood.log_noise
    # Only the first problem has weights and refuses matrices that do not fit.
    of_noise = check_problem(
        "variational", log_noise.covariance, problem.X, None, holds_gram=False, throw=throw
    )
    mean, mean_of_log = cast((process.mean, log_noise.mean), problem.dtype)
    return _variational_of_two(problem, of_noise, mean, mean_of_log, rtol, max_steps)


class _LogNoiseRule(AbstractSiteRule):
    """The sites of g at the maximum of the bound in q(f), which has a closed form.

    With weights w, and p = w E exp(-g), q(f) is the posterior of regression with precisions p, and
    the expected loss of g at point i is `(w E g + p S) / 2` with `S = E (y - f)^2`. The
    precision of its site, twice the derivative in the variance of g, is `p S / 2`; its slope is
    `w / 2 - p S / 2` (Lazaro-Gredilla & Titsias 2011).

    Attributes:
        gram: of f.
        residuals: y minus the prior mean of f.
        offset: the prior mean of g.
    """

    gram: AbstractGram
    residuals: Float[Array, " n"]
    offset: Float[Array, " n"]
    weights: Float[Array, " n"]

    def precisions(self, marginal: Marginals) -> Float[Array, " n"]:
        """The precisions of the observations of f, `w E exp(-g)`; marginals are those of g minus
        its prior mean.
        """
        return self.weights * jnp.exp(marginal.variance / 2 - marginal.mean - self.offset)

    def sites_of_f(self, precisions: Float[Array, " n"]) -> Sites:
        """Observations of f with these precisions."""
        return Sites(precisions, precisions * self.residuals)

    def off(
        self, precisions: Float[Array, " n"], coefficients: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """`y - E f`, from the coefficients of q(f), which are the precisions times it. Where they
        are large, a difference would lose digits.
        """
        is_precise = precisions * self.gram.diagonal() > 1
        divisor = jnp.where(is_precise, precisions, 1)
        return jnp.where(
            is_precise, coefficients / divisor, self.residuals - self.gram.mv(coefficients)
        )

    def squares(self, precisions: Float[Array, " n"]) -> Float[Array, " n"]:
        """`E (y - f)^2`, for the q(f) of these precisions, without derivatives."""
        system = system_of_precisions(self.gram, precisions)
        factor, _, _ = factor_of(system)
        P = factor.inverse_of(system)
        of_covariance = jnp.sum(self.gram.as_matrix() * P.as_matrix().T, 1)
        variances = variances_of(self.gram, precisions, P.diagonal(), of_covariance)
        # (diag(p) K + I) a = p (y - m).
        shift = self.sites_of_f(precisions).shift
        coefficients = system.solve(factor, shift[:, None])[:, 0]
        # Rounding may make a variance negative.
        return self.off(precisions, coefficients) ** 2 + jnp.maximum(variances, 0)

    def updated(self, likelihood, y, site, marginal):
        precisions = self.precisions(marginal)
        halves = precisions * self.squares(precisions) / 2
        return self.site_of_g(halves, marginal.mean)

    def site_of_g(self, precision: Float[Array, " n"], mean: Float[Array, " n"]) -> Sites:
        """The site of that precision for a mean of g, minus its prior mean."""
        # precision m - slope of the expected loss, w / 2 - precision.
        return Sites(precision, precision * (mean + 1) - self.weights / 2)

    def newton_step(self, sites, observations):
        # The precisions t are the unknowns: at the fixed point the mean of g is K (t - w / 2).
        K = observations.gram.as_matrix()
        t = sites.precision
        mean = matmul(K, t - self.weights / 2)
        factor, _, _ = factor_of(system_of_precisions(observations.gram, t))
        of_g = moments(observations.gram, self.site_of_g(t, mean), factor)
        p = self.precisions(Marginals(mean, of_g.marginal.variance))
        factor, _, _ = factor_of(system_of_precisions(self.gram, p))
        of_f = moments(self.gram, self.sites_of_f(p), factor)
        e = self.off(p, of_f.coefficients)
        updated = p * (e**2 + of_f.marginal.variance) / 2
        # With the covariances C of f and V of g, and e = y - E f, squared entry by entry,
        # dS = -M dp, M = 2 diag(e) C diag(e) + C^2, dp = p (d variance / 2 - d mean), and
        # d mean = K dt, d variance = -V^2 dt. So d updated = -H (K + V^2 / 2) dt with
        # H = diag(updated) - diag(p) M diag(p) / 2.
        C = of_f.covariance
        M = 2 * e[:, None] * C * e[None, :] + C**2
        H = jnp.diag(updated) - p[:, None] * M * p[None, :] / 2
        jacobian = -matmul(H, K + of_g.covariance**2 / 2)
        # (I - J) step = updated - t.
        step = solve_by_lu(jnp.eye(len(t), dtype=t.dtype) - jacobian, (updated - t)[:, None])
        moved = t + step[:, 0]
        return self.site_of_g(moved, matmul(K, moved - self.weights / 2))


@compiled
def _variational_of_two(problem, of_noise, mean, mean_of_log, rtol, max_steps):
    """The posteriors of both functions, with the bound and the status of the iteration."""
    gram = problem.gram()
    gram_of_g = of_noise.gram()
    residuals = problem.y - means_at(mean, problem)[:, 0]
    offset = means_at(mean_of_log, of_noise)[:, 0]
    rule = _LogNoiseRule(gram, residuals, offset, problem.weights.values)
    # Start from residuals that are the roots of E (y - f)^2, with f fitted to noise of variance
    # exp(prior mean of g).
    nothing = jnp.zeros_like(offset)
    of_prior = rule.precisions(Marginals(nothing, nothing))
    roots = jnp.sqrt(stop_gradient(rule.squares(of_prior)))
    weighted = Powered(Shifted(ResidualOfLogNoise(), offset), rule.weights)
    observations = Observations(gram_of_g, roots, weighted)
    sites = fixed_point(observations, rule, rtol, max_steps)
    of_g, of_normal, figures = normal_of(gram_of_g, sites.sites)
    result = RESULTS.where(sites.result == RESULTS.successful, of_normal, sites.result)
    marginal = moments(gram_of_g, sites.sites, of_g.factor).marginal
    sites_of_f = rule.sites_of_f(rule.precisions(marginal))
    of_f, of_normal, figures_of_f = normal_of(gram, sites_of_f)
    result = RESULTS.where(result == RESULTS.successful, of_normal, result)
    given = rule, gram_of_g, of_f.factor, of_g.factor
    bound = at_stationary_point(_bound, sites.sites, given)
    jitter = jnp.maximum(figures["jitter"], figures_of_f["jitter"])
    result = status_of(result, bound, jitter)
    bound = void_unless_known(bound, result)
    posterior = HeteroscedasticPosterior(
        posterior_process(problem, mean, of_f, result),
        posterior_process(of_noise, mean_of_log, of_g, result),
        bound,
    )
    # The errors of both determinants count as independent: squares add up.
    rounding = jnp.sqrt(figures["rounding"] ** 2 + figures_of_f["rounding"] ** 2)
    stats = sites.stats | {"jitter": jitter, "rounding": rounding, "log_evidence": bound}
    return Solution(posterior, result, stats)


def _bound(
    sites: Sites, given: tuple[_LogNoiseRule, AbstractGram, AbstractFactor, AbstractFactor]
) -> Float[Array, ""]:
    """`sum_i w_i E log N(y_i | f_i, exp(g_i))` minus the divergences from both priors, for the
    sites of g and the best q(f).
    """
    rule, gram_of_g, factor_of_f, factor_of_g = given
    of_g = moments(gram_of_g, sites, factor_of_g)
    p = rule.precisions(of_g.marginal)
    of_f = moments(rule.gram, rule.sites_of_f(p), factor_of_f)
    squares = rule.off(p, of_f.coefficients) ** 2 + of_f.marginal.variance
    # E log N(y | f, exp(g)) = -(log 2 pi + E g + E exp(-g) E (y - f)^2) / 2.
    log_noise = math.log(2 * math.pi) + rule.offset + of_g.marginal.mean
    losses = (rule.weights * log_noise + p * squares) / 2
    return -jnp.sum(losses) - divergence_from_prior(of_f) - divergence_from_prior(of_g)
