"""Expectation propagation for Gaussian processes with any likelihood."""

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import eps_of
from kernax.core.base.parameters import as_stopping
from kernax.core.base.solution import OF_EVIDENCE, Solution, finish
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.losses.loss_functions import AbstractLikelihood
from kernax.core.operators.memory import Footprint
from kernax.gp.approximation import ADVICE, ApproximatePosterior, check_observations
from kernax.gp.process import GaussianProcess
from kernax.gp.sites import AbstractPointwiseRule, Sites, posterior_by_sites

_FOOTPRINT = Footprint(
    "expectation_propagation",
    9.1,
    "kernax.svgp(process, X, y, likelihood, Z, ...) through inducing points Z",
)


def expectation_propagation(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    likelihood: AbstractLikelihood,
    *,
    weights: ArrayLike | None = None,
    rtol: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> Solution[ApproximatePosterior]:
    """The posterior of a process by expectation propagation (Minka 2001).

    Each likelihood is replaced by a normal factor (site). At the fixed point, replacing the i-th
    factor by the likelihood itself does not change the mean and the variance of f_i (Rasmussen &
    Williams 2006, section 3.6; all sites are updated at once, with damping). The evidence is that
    of eq. 3.65. Derivatives of the evidence and of predictions are those of the fixed point.

    A weight is a power of the likelihood, and one factor approximates that power. A point that
    occurs twice in X has two factors, which is not quite the same.

    Arguments are those of `laplace`, and:
        rtol: stop when the largest change of a factor, in the units of the marginals, is at most
            this. The default is 100 eps sqrt(n), or sqrt(eps) where no step lowers the change
            further.
        max_steps: the largest number of updates of all factors; each takes a Cholesky factorisation
            and a solve. Derivatives of predictions, and second derivatives of the evidence, also
            factorise a matrix of 2 n rows.

    Returns:
        A `Solution` whose `value` is an `ApproximatePosterior`, differentiable like that of
        `laplace`. Stats: `log_evidence`, `steps`, and `residual`, the largest change of a factor in
        the last step.

    Raises:
        ValueError: bad shapes or values.
        MaxStepsError, NonFiniteError, BreakdownError: no fixed point was found.
        MemoryBudgetError: the dense matrices would not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> prior = kernax.GaussianProcess(4.0 * kernax.RBF(0.3))
        >>> probit = kernax.likelihoods.Probit()
        >>> posterior = kernax.expectation_propagation(prior, X, y, probit).value
        >>> round(float(posterior.probability(jnp.array([0.9]))), 2)
        0.89
    """
    stopping = as_stopping(rtol, max_steps)
    problem, mean, likelihood = check_observations(
        "expectation_propagation",
        process,
        X,
        y,
        likelihood,
        weights,
        footprint=_FOOTPRINT,
        throw=throw,
    )
    solution = posterior_by_sites(problem, mean, likelihood, _MatchedMoments(), *stopping)
    hint = f"expectation_propagation with {problem.kernel_name}: {ADVICE} may help."
    return finish(solution, throw, hint, digits=OF_EVIDENCE)


class _MatchedMoments(AbstractPointwiseRule):
    """The site with which the marginal has the mean and the variance of the tilted distribution."""

    def updated(self, likelihood, y, site, marginal):
        # The mean m and the variance v of the cavity, the marginal of each value without its own
        # site.
        # 1 / v = 1 / variance - precision and m / v = mean / variance - shift.
        left = 1 - site.precision * marginal.variance
        mean = (marginal.mean - marginal.variance * site.shift) / left
        variance = marginal.variance / left
        # With the slope g and the curvature h of log Z in the mean of the cavity, the tilted
        # distribution has the mean m + v g and the variance v + v^2 h.
        log_z = lambda mean: jnp.sum(likelihood.log_normaliser(y, mean, variance))
        g, h = jax.jvp(jax.grad(log_z), (mean,), (jnp.ones_like(mean),))
        # The new site is the tilted distribution divided by the cavity. It has the precision
        # 1 / (v + v^2 h) - 1 / v = -h / (1 + v h) and the shift
        # (m + v g) / (v + v^2 h) - m / v = (g - m h) / (1 + v h).
        shrinkage = 1 + variance * h
        precision = -h / shrinkage
        # Clip negative rounding, but keep the derivative at zero, where weights are zero. A tilted
        # distribution wider than the cavity belongs to a likelihood that is not log-concave.
        wider = variance * h > eps_of(h) ** 0.5
        precision = jnp.where(wider | ~(shrinkage > 0), jnp.nan, precision)
        precision = jnp.where(precision < 0, 0, precision)
        return Sites(precision, (g - mean * h) / shrinkage)

    def log_evidence(self, observations, sites, q):
        # With m and v of the marginals, m' and v' of the cavities, it is the sum of log Z(m', v') +
        # log(v' / v) / 2 + m'^2 / (2 v') - m^2 / (2 v), and shift.m / 2 - log |B| / 2. The squares
        # reduce to a^2 v' / 2 - a m / 2 with a = shift - precision m, which stays moderate for
        # precise and for weak sites.
        m = q.marginal.mean
        v = q.marginal.variance
        a = q.coefficients
        explained = sites.precision * v
        wider = v / (1 - explained)
        normalisers = observations.likelihood.log_normaliser(observations.y, m - wider * a, wider)
        of_sites = normalisers + (a**2 * wider - a * m - jnp.log1p(-explained)) / 2
        return jnp.sum(of_sites) - q.log_determinant / 2
