"""Normal factors, the sites, in place of the likelihood of each point, found as a fixed point.

Expectation propagation and variational inference differ in what they ask of the sites, and share
the rest. With g = f - m(X) it is `q(g) ~ N(g | 0, K) prod_i exp(shift_i g_i - precision_i g_i^2 /
2)`, whose moments follow from a factor of `B = I + S K S`, S the roots of the precisions, or from
`P = (S^2 K + I)^-1`; no inverse of K is taken.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import lu_factor, lu_solve
from jaxtyping import Array, Bool, Float, Int

from kernax.core.batching import one_by_one
from kernax.core.density import factor_of, log_determinant
from kernax.core.factors import AbstractFactor
from kernax.core.inverse import inverse_of
from kernax.core.linalg import WeightedSystem
from kernax.core.losses import AbstractLikelihood
from kernax.core.newton import implicit
from kernax.core.numerics import eps_of, matmul
from kernax.core.operators import AbstractGram
from kernax.core.sharding import while_loop
from kernax.core.solution import RESULTS, Solution, first_that_holds, void_unless_known
from kernax.core.task import Task
from kernax.core.weights import PointWeights
from kernax.gp.approximation import ApproximatePosterior
from kernax.gp.means import updated_mean
from kernax.gp.posterior import posterior_kernel
from kernax.gp.process import GaussianProcess

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
    """What a site is to be, given the marginal of its point."""

    @abc.abstractmethod
    def updated(
        self, likelihood: AbstractLikelihood, y: Array, site: Sites, marginal: Marginals
    ) -> Sites:
        """The sites that the marginals ask for, point by point; at the fixed point, themselves."""


class Observations(eqx.Module):
    """What sites are found for: the Gram matrix, the targets and their likelihood."""

    gram: AbstractGram
    y: Float[Array, " n"]
    likelihood: AbstractLikelihood


class Moments(eqx.Module):
    """The moments of q, and what they were computed from.

    Attributes:
        coefficients: a, with `mean = K a`.
        covariance: of all values; its diagonal holds the variances of the marginals.
        trace: `tr P`.
        log_determinant: `log |B|`.
    """

    system: WeightedSystem
    factor: AbstractFactor
    coefficients: Float[Array, " n"]
    covariance: Float[Array, "n n"]
    marginal: Marginals
    trace: Float[Array, ""]
    log_determinant: Float[Array, ""]


def moments(gram: AbstractGram, sites: Sites) -> Moments:
    """The moments of q, differentiable to every order; NaN where B has no factor."""
    system = _system_of(gram, sites)
    factor, _, _ = factor_of(system)
    P = inverse_of(factor, system)
    K = gram.as_matrix()
    covariance = matmul(K, P.mv(jnp.eye(len(K), dtype=K.dtype)))
    coefficients = P.mv(sites.shift[:, None])[:, 0]
    return Moments(
        system=system,
        factor=factor,
        coefficients=coefficients,
        covariance=covariance,
        marginal=Marginals(matmul(K, coefficients), jnp.diagonal(covariance)),
        trace=jnp.sum(P.diagonal()),
        log_determinant=log_determinant(system, factor),
    )


def _system_of(gram: AbstractGram, sites: Sites) -> WeightedSystem:
    """`S^2 K + I`."""
    one = jnp.ones((), sites.shift.dtype)
    return WeightedSystem.of(gram, PointWeights(sites.precision), one)


def _marginals(gram: AbstractGram, sites: Sites) -> Marginals:
    """The marginals alone, without a derivative."""
    system = _system_of(gram, sites)
    factor, _, _ = factor_of(system)
    coefficients = system.solve(factor, sites.shift[:, None])[:, 0]
    explained = factor.whitened(system.weights.times_roots(gram.as_matrix()))
    return Marginals(gram.mv(coefficients), gram.diagonal() - jnp.sum(explained**2, 0))


class _Progress(eqx.Module):
    """The iteration after some steps: the sites, those that they ask for, and their distance."""

    sites: Sites
    wanted: Sites
    change: Float[Array, ""]
    damping: Float[Array, ""]
    steps: Int[Array, ""]


Found = tuple[Sites, Any, dict[str, Array]]


def fixed_point(
    observations: Observations, rule: AbstractSiteRule, rtol: float | None, max_steps: int
) -> Found:
    """The sites that ask for themselves, by parallel damped updates, differentiable to every order;
    the result, and stats.

    A change is measured in the units of the marginals, `|d precision| variance` and `|d shift - d
    precision mean| sqrt(variance)`. Success is a change of at most rtol, by default 100 eps
    sqrt(n), asked for by all sites. The damping halves where the change grows, and recovers.
    """
    y = observations.y
    goal = 100 * eps_of(y) * len(y) ** 0.5 if rtol is None else rtol

    def solve(observations: Observations) -> Found:
        return _iterated(observations, rule, goal, max_steps)

    def step(found: Found, observations: Observations) -> Found:
        sites, result, stats = found
        return _newton_step(sites, observations, rule), result, stats

    return implicit(solve, step, observations, refine=step)


def _iterated(
    observations: Observations, rule: AbstractSiteRule, goal: float, max_steps: int
) -> Found:
    """The sites by damped updates, the result, and stats."""
    y = observations.y

    def asked_of(sites: Sites) -> tuple[Sites, Float[Array, ""]]:
        marginal = _marginals(observations.gram, sites)
        wanted = rule.updated(observations.likelihood, y, sites, marginal)
        return wanted, _change(sites, wanted, marginal)

    def step(now: _Progress) -> _Progress:
        sites = jax.tree.map(lambda a, b: a + now.damping * (b - a), now.sites, now.wanted)
        wanted, change = asked_of(sites)
        longer = jnp.minimum(1.2 * now.damping, 1)
        damping = jnp.where(change < now.change, longer, now.damping / 2)
        return _Progress(sites, wanted, change, damping, now.steps + 1)

    def go_on(now: _Progress) -> Bool[Array, ""]:
        useful = jnp.isfinite(now.change) & (now.damping > _LEAST_DAMPING)
        return (now.change > goal) & useful & (now.steps < max_steps)

    nothing = Sites(jnp.zeros_like(y), jnp.zeros_like(y))
    start = _Progress(nothing, *asked_of(nothing), jnp.ones_like(y[0]), jnp.zeros((), jnp.int32))
    end = while_loop(go_on, step, start)
    endings = (
        (~jnp.isfinite(end.change), RESULTS.nonfinite),
        (end.change <= goal, RESULTS.successful),
        (end.steps >= max_steps, RESULTS.max_steps_reached),
    )
    result = first_that_holds(endings, RESULTS.inaccurate)
    return end.sites, result, {"steps": end.steps, "residual": end.change}


def _change(sites: Sites, wanted: Sites, marginal: Marginals) -> Float[Array, ""]:
    """The largest change that is asked for, in the units of the marginals."""
    precision = wanted.precision - sites.precision
    shift = wanted.shift - sites.shift - precision * marginal.mean
    of_precision = jnp.max(abs(precision) * marginal.variance)
    of_shift = jnp.max(abs(shift) * jnp.sqrt(abs(marginal.variance)))
    return jnp.maximum(of_precision, of_shift)


def _newton_step(sites: Sites, observations: Observations, rule: AbstractSiteRule) -> Sites:
    """The sites after an exact Newton step for `wanted(sites) = sites`, differentiable.

    With the covariance C of q, the marginals change by `d mean = C (d shift - mean d precision)`
    and `d variance = -C^2 d precision`, squared entry by entry (Opper & Winther 2005).
    """
    q = moments(observations.gram, sites)
    arguments = (sites.precision, sites.shift, q.marginal.mean, q.marginal.variance)

    def wanted(*arguments: Array) -> Array:
        site = Sites(*arguments[:2])
        asked = rule.updated(
            observations.likelihood, observations.y, site, Marginals(*arguments[2:])
        )
        return jnp.stack([asked.precision, asked.shift])

    by_precision, by_shift, by_mean, by_variance = _slopes(wanted, arguments)
    C = q.covariance

    def jacobian_of(k: int) -> list[Array]:
        # Of the precisions (k = 0) or the shifts (k = 1) that are wanted, in both.
        through_mean = by_mean[k][:, None] * C
        through_variance = by_variance[k][:, None] * C**2
        in_precision = -through_mean * q.marginal.mean[None, :] - through_variance
        return [jnp.diag(by_precision[k]) + in_precision, jnp.diag(by_shift[k]) + through_mean]

    jacobian = jnp.block([jacobian_of(0), jacobian_of(1)])
    left = (wanted(*arguments) - jnp.stack(arguments[:2])).reshape(-1)
    by_lu = _solved_by_lu(jnp.eye(len(left), dtype=left.dtype) - jacobian, left)
    precision, shift = by_lu.reshape(2, -1)
    return Sites(sites.precision + precision, sites.shift + shift)


def _slopes(function: Callable, arguments: tuple[Array, ...]) -> list[Array]:
    """The derivative of each entry (k, i) of a function of vectors in the i-th entry of each of
    them, on which alone it depends.
    """

    def along(place: int) -> Array:
        tangents = [jnp.zeros_like(argument) for argument in arguments]
        tangents[place] = jnp.ones_like(arguments[place])
        return jax.jvp(function, arguments, tuple(tangents))[1]

    return [along(place) for place in range(len(arguments))]


def _solved_by_lu(A: Float[Array, "m m"], b: Float[Array, " m"]) -> Float[Array, " m"]:
    """`A^-1 b`, with its derivatives."""

    def solve(trans: int) -> Callable:
        by_lapack = lambda A, b: lu_solve(lu_factor(A), b, trans)
        return lambda _, b: one_by_one(by_lapack, lax.stop_gradient(A), b)

    return lax.custom_linear_solve(lambda x: matmul(A, x), b, solve(0), solve(1))


def posterior_of_sites(
    task: Task,
    mean: Callable,
    likelihood: AbstractLikelihood,
    q: Moments,
    log_evidence: Float[Array, ""],
    result: Any,
    stats: dict[str, Array],
) -> Solution[ApproximatePosterior]:
    """What a verb returns for the sites that it found."""
    log_evidence, coefficients = void_unless_known((log_evidence, q.coefficients), result)
    covariance = posterior_kernel(q.factor, task.kernel, task.X, q.system, result)
    process = GaussianProcess(covariance, updated_mean(mean, task, coefficients))
    posterior = ApproximatePosterior(process, likelihood, log_evidence)
    return Solution(posterior, result, stats | {"log_evidence": log_evidence})
