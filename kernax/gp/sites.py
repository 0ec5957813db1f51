"""Sites: normal factors that replace the likelihoods of single points, computed as a fixed point.

Expectation propagation and variational inference differ only in how they update the sites. With g =
f - m(X) the approximation is `q(g) ~ N(g | 0, K) prod_i exp(shift_i g_i - precision_i g_i^2 / 2)`.
Its moments follow from a factor of `B = I + S K S`, where S holds the roots of the precisions, or
from `P = (S^2 K + I)^-1`; K is not inverted.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.derivatives import at_stationary_point, implicit
from kernax.core.base.numerics import eps_of, matmul
from kernax.core.base.solution import RESULTS, first_that_holds
from kernax.core.base.weights import UnitWeights
from kernax.core.linalg.density import factor_of, log_determinant
from kernax.core.linalg.factorisation import AbstractFactor
from kernax.core.linalg.linear_solvers import JitteredCholesky
from kernax.core.linalg.solves import solve_by_lu
from kernax.core.linalg.weighted_solve import weighted_solve
from kernax.core.losses.loss_functions import AbstractLikelihood
from kernax.core.losses.modes import newton_fit
from kernax.core.losses.observation_likelihoods import Powered
from kernax.core.operators.operators import AbstractGram
from kernax.gp.approximation import NormalAtPoints, shifted, solution_of, system_of_precisions

_LEAST_DAMPING = 1e-3


class Sites(eqx.Module):
    """`exp(shift g - precision g^2 / 2)`, up to a factor; precision >= 0."""

    precision: Float[Array, "*n"]
    shift: Float[Array, "*n"]


class Marginals(eqx.Module):
    """The mean and the variance of each g_i under q."""

    mean: Float[Array, "*n"]
    variance: Float[Array, "*n"]


class AbstractSiteRule(eqx.Module):
    """A rule that updates a site, given the marginal of its point."""

    @abc.abstractmethod
    def updated(
        self, likelihood: AbstractLikelihood, y: Array, site: Sites, marginal: Marginals
    ) -> Sites:
        """The updated sites; at the fixed point they equal the given sites."""

    @abc.abstractmethod
    def newton_step(self, sites: Sites, observations: "Observations") -> Sites:
        """The sites after an exact Newton step for `updated(sites) = sites`, differentiable."""


class AbstractPointwiseRule(AbstractSiteRule):
    """A rule that updates each site given the marginal of its own point alone."""

    def newton_step(self, sites, observations):
        factor, _, _ = factor_of(system_of_precisions(observations.gram, sites.precision))
        q = moments(observations.gram, sites, factor)
        arguments = (sites.precision, sites.shift, q.marginal.mean, q.marginal.variance)

        def update(*arguments: Array) -> Array:
            site = Sites(*arguments[:2])
            marginal = Marginals(*arguments[2:])
            updated = self.updated(observations.likelihood, observations.y, site, marginal)
            return jnp.stack([updated.precision, updated.shift])

        # With J the derivative of the update in the sites, (I - J) step = updated - sites.
        left = (update(*arguments) - jnp.stack(arguments[:2])).reshape(-1)
        # The updated precision (k = 0) or shift (k = 1) of point i depends on the i-th entry of
        # each argument alone: one tangent of ones gives the derivatives of all points in an
        # argument.

        def along(index: int) -> Array:
            tangents = list(map(jnp.zeros_like, arguments))
            tangents[index] = jnp.ones_like(arguments[index])
            _, slopes = jax.jvp(update, arguments, tuple(tangents))
            return slopes

        # The derivative of the updated sites in the sites, m = 2 n, from its slopes point by point.
        # With the covariance C of q, the marginals change by `d mean = C (d shift - mean d
        # precision)` and `d variance = -C^2 d precision`, squared entry by entry (Opper & Winther
        # 2005).
        by_precision, by_shift, by_mean, by_variance = [
            along(index) for index in range(len(arguments))
        ]
        C = q.covariance

        def rows(k: int) -> list[Array]:
            # The derivatives of the updated precisions (k = 0) or shifts (k = 1):
            # d updated_k = (by_precision - by_mean C diag(mean) - by_variance C^2) d precision
            #     + (by_shift + by_mean C) d shift, with all by_... as diagonal matrices.
            through_mean = by_mean[k][:, None] * C
            through_variance = by_variance[k][:, None] * C**2
            in_precision = -through_mean * q.marginal.mean[None, :] - through_variance
            return [jnp.diag(by_precision[k]) + in_precision, jnp.diag(by_shift[k]) + through_mean]

        jacobian = jnp.block([rows(0), rows(1)])
        step = solve_by_lu(jnp.eye(len(left), dtype=left.dtype) - jacobian, left).reshape(2, -1)
        return Sites(sites.precision + step[0], sites.shift + step[1])

    @abc.abstractmethod
    def log_evidence(
        self, observations: "Observations", sites: Sites, q: "Moments"
    ) -> Float[Array, ""]:
        """The approximation of `log p(y)`.

        Its derivative in the sites must be zero at the fixed point; it is not computed.
        """


class Observations(eqx.Module):
    """The data of the sites: the Gram matrix, the targets and their likelihood."""

    gram: AbstractGram
    y: Float[Array, " n"]
    likelihood: AbstractLikelihood


class Moments(eqx.Module):
    """The moments of q, and the quantities that the evidence needs.

    Attributes:
        coefficients: a, with the mean `K a`.
        covariance: the covariance of all values; its diagonal holds the variances of the marginals.
        trace: `tr P`.
        log_determinant: `log |B|`.
    """

    coefficients: Float[Array, " n"]
    covariance: Float[Array, "n n"]
    marginal: Marginals
    trace: Float[Array, ""]
    log_determinant: Float[Array, ""]


def divergence_from_prior(q: Moments) -> Float[Array, ""]:
    """The Kullback-Leibler divergence of q from the prior."""
    # (tr P - n + a.K a + log |B|) / 2.
    squared_norm = jnp.sum(q.coefficients * q.marginal.mean)
    return (q.trace - len(q.coefficients) + squared_norm + q.log_determinant) / 2


def moments(gram: AbstractGram, sites: Sites, factor: AbstractFactor) -> Moments:
    """The moments of q by a factor of B, differentiable to every order; NaN without a factor."""
    system = system_of_precisions(gram, sites.precision)
    P = factor.inverse_of(system)
    K = gram.as_matrix()
    # (K^-1 + S^2)^-1 = K (S^2 K + I)^-1 = K P. Its mean is K a with (S^2 K + I) a = shift.
    covariance = matmul(K, P.as_matrix())
    # A solve is more accurate than a product with P, because the shifts of precise sites are large.
    shift = sites.shift[:, None]
    solved, _, _ = weighted_solve(system, shift, JitteredCholesky(), factor=factor)
    coefficients = solved[:, 0]
    variances = variances_of(gram, sites.precision, P.diagonal(), jnp.diagonal(covariance))
    return Moments(
        coefficients=coefficients,
        covariance=covariance,
        marginal=Marginals(matmul(K, coefficients), variances),
        trace=jnp.sum(P.diagonal()),
        log_determinant=log_determinant(system, factor),
    )


def variances_of(
    gram: AbstractGram,
    precision: Float[Array, " n"],
    of_inverse: Float[Array, " n"],
    of_covariance: Float[Array, " n"],
) -> Float[Array, " n"]:
    """The variances of the marginals: the diagonal of the covariance `K P`, or from that of P,
    `P_ii = 1 - precision v`, where this loses fewer digits.
    """
    is_precise = precision * gram.diagonal() > 1
    divisor = jnp.where(is_precise, precision, 1)
    return jnp.where(is_precise, (1 - of_inverse) / divisor, of_covariance)


class _SitesState(eqx.Module):
    """The state of the iteration: the sites, their update, and the distance between the two."""

    sites: Sites
    updated: Sites
    change: Float[Array, ""]
    damping: Float[Array, ""]
    steps: Int[Array, ""]


class SiteSolution(NamedTuple):
    """The sites, the status of the iteration, and stats."""

    sites: Sites
    result: Any
    stats: dict[str, Array]


def fixed_point(
    observations: Observations, rule: AbstractSiteRule, rtol: ArrayLike | None, max_steps: ArrayLike
) -> SiteSolution:
    """The sites at the fixed point, by parallel damped updates; differentiable to every order.

    A change is measured in the units of the marginals, `|d precision| variance` and `|d shift - d
    precision mean| sqrt(variance)`; the change of a step is the largest over the points. The
    iteration stops when it is at most rtol, by default 100 eps sqrt(n). The damping halves the step
    where the change grows, and recovers. Where shorter steps do not help either, a change of at
    most rtol, by default sqrt(eps), counts as success. If a likelihood is not log-concave, steps
    have full length, because each raises the bound.
    """

    def solve(args: Any) -> SiteSolution:
        # By damped updates.
        rule, observations, rtol, max_steps = args
        eps = eps_of(observations.y)
        goal = 100 * eps * len(observations.y) ** 0.5 if rtol is None else rtol
        bar = max(goal, eps**0.5) if rtol is None else rtol

        # Start from the sites of Laplace's approximation, which is near a fixed point, or from none
        # where there may be several modes.
        nothing = jnp.zeros_like(observations.y)
        convex = observations.likelihood.convex
        sites = _sites_at_mode(observations) if convex else Sites(nothing, nothing)
        updated, change = _updated(sites, observations, rule)
        start = _SitesState(sites, updated, change, jnp.ones_like(change), jnp.zeros((), jnp.int32))

        def go_on(now: _SitesState) -> Bool[Array, ""]:
            useful = jnp.isfinite(now.change) & (now.damping > _LEAST_DAMPING)
            far = (now.change > goal) | (now.steps == 0)
            return far & useful & (now.steps < max_steps)

        def one_step(now: _SitesState) -> _SitesState:
            # A damped step to the updated sites, and the damping of the next one.
            sites = jax.tree.map(lambda a, b: a + now.damping * (b - a), now.sites, now.updated)
            updated, change = _updated(sites, observations, rule)
            damping = now.damping
            if convex:
                longer = jnp.minimum(1.2 * damping, 1)
                damping = jnp.where(change < now.change, longer, damping / 2)
            return _SitesState(sites, updated, change, damping, now.steps + 1)

        end = lax.while_loop(go_on, one_step, start)
        statuses = (
            (~jnp.isfinite(end.change), RESULTS.nonfinite),
            (end.change <= bar, RESULTS.successful),
            (end.steps >= max_steps, RESULTS.max_steps_reached),
        )
        result = first_that_holds(statuses, RESULTS.stagnation)
        return SiteSolution(end.sites, result, {"steps": end.steps, "residual": end.change})

    def step(found: SiteSolution, args: Any) -> SiteSolution:
        rule, observations, *_ = args
        return found._replace(sites=rule.newton_step(found.sites, observations))

    return implicit(solve, step, (rule, observations, rtol, max_steps))


def _sites_at_mode(observations: Observations) -> Sites:
    """The expansion of each likelihood to second order around the mode, or around the last iterate
    of the search for it.
    """
    y = observations.y
    gram = observations.gram
    loss = observations.likelihood
    weights = UnitWeights(len(y), y.dtype)
    mode = newton_fit(gram, y, loss, jnp.ones_like(y[0]), weights, False, max_steps=20)
    f = gram.mv(mode.coefficients)
    # -L(y, g) is about shift g - precision g^2 / 2 near f, with precision L'' and shift L'' f - L'.
    precision = loss.curvature(y, f)
    shift = precision * f - loss.derivative(y, f)
    sound = jnp.isfinite(precision + shift) & (precision >= 0)
    return Sites(jnp.where(sound, precision, 0), jnp.where(sound, shift, 0))


def _updated(
    sites: Sites, observations: Observations, rule: AbstractSiteRule
) -> tuple[Sites, Float[Array, ""]]:
    """The update of the sites, and its distance from them."""
    # Only the marginals, without derivatives.
    gram = observations.gram
    system = system_of_precisions(gram, sites.precision)
    factor, _, _ = factor_of(system)
    # (S^2 K + I) a = shift, and the means are K a.
    coefficients = system.solve(factor, sites.shift[:, None])[:, 0]
    # v_i = K_ii - |L^-1 S k_i|^2 with L L^T = B, k_i the i-th column of K.
    explained = factor.whitened(system.weights.times_roots(gram.as_matrix()))
    marginal = Marginals(gram.mv(coefficients), gram.diagonal() - jnp.sum(explained**2, 0))
    updated = rule.updated(observations.likelihood, observations.y, sites, marginal)
    # The largest change of a site, in the units of the marginals.
    # max_i |d precision_i| v_i and max_i |d shift_i - d precision_i m_i| sqrt(v_i).
    precision = updated.precision - sites.precision
    shift = updated.shift - sites.shift - precision * marginal.mean
    of_precision = jnp.max(abs(precision) * marginal.variance)
    of_shift = jnp.max(abs(shift) * jnp.sqrt(marginal.variance))
    change = jnp.maximum(of_precision, of_shift)
    return updated, change


@compiled
def posterior_by_sites(problem, mean, likelihood, rule, rtol, max_steps):
    """The posterior by the sites of a rule, with its evidence and the status of the iteration."""
    loss = shifted(likelihood, mean, problem)
    by_weight = Powered(loss, problem.weights.values) if problem.weights.removes else loss
    observations = Observations(problem.gram(), problem.y, by_weight)
    found = fixed_point(observations, rule, rtol, max_steps)
    normal, of_normal, figures = normal_of(observations.gram, found.sites)
    result = RESULTS.where(found.result == RESULTS.successful, of_normal, found.result)

    def evidence(sites: Sites, given: tuple[Observations, AbstractFactor]) -> Float[Array, ""]:
        observations, factor = given
        q = moments(observations.gram, sites, factor)
        return rule.log_evidence(observations, sites, q)

    log_evidence = at_stationary_point(evidence, found.sites, (observations, normal.factor))
    stats = found.stats | figures
    return solution_of(problem, mean, likelihood, normal, log_evidence, result, stats)


def normal_of(gram: AbstractGram, sites: Sites) -> tuple[NormalAtPoints, Any, dict[str, Array]]:
    """q, differentiable to every order, its status, and statistics of its factor."""
    system = system_of_precisions(gram, sites.precision)
    factor, of_factor, figures = factor_of(system)
    shift = sites.shift[:, None]
    coefficients, of_solve, _ = weighted_solve(system, shift, JitteredCholesky(), factor=factor)
    result = RESULTS.where(of_factor == RESULTS.successful, of_solve, of_factor)
    return NormalAtPoints(system, factor, coefficients[:, 0]), result, figures
