"""Normal factors, the sites, in place of the likelihood of each point, found as a fixed point.

Expectation propagation and variational inference differ in what they ask of the sites, and share
the rest. With g = f - m(X) it is `q(g) ~ N(g | 0, K) prod_i exp(shift_i g_i - precision_i g_i^2 /
2)`, whose moments follow from a factor of `B = I + S K S`, S the roots of the precisions, or from
`P = (S^2 K + I)^-1`; no inverse of K is taken.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import lu_factor, lu_solve
from jaxtyping import Array, Bool, Float, Int

from kernax.core.batching import one_by_one
from kernax.core.density import factor_of, log_determinant
from kernax.core.inverse import inverse_of
from kernax.core.losses import AbstractLikelihood
from kernax.core.newton import implicit
from kernax.core.numerics import eps_of, matmul
from kernax.core.operators import AbstractGram
from kernax.core.sharding import while_loop
from kernax.core.solution import RESULTS, first_that_holds
from kernax.gp.approximation import Normal, system_of_precisions

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
        normal: q, as posteriors are made of it.
        covariance: of all values; its diagonal holds the variances of the marginals.
        trace: `tr P`.
        log_determinant: `log |B|`.
    """

    normal: Normal
    covariance: Float[Array, "n n"]
    marginal: Marginals
    trace: Float[Array, ""]
    log_determinant: Float[Array, ""]


def moments(gram: AbstractGram, sites: Sites) -> Moments:
    """The moments of q, differentiable to every order; NaN where B has no factor."""
    system = system_of_precisions(gram, sites.precision)
    factor, _, _ = factor_of(system)
    P = inverse_of(factor, system)
    K = gram.as_matrix()
    covariance = matmul(K, P.mv(jnp.eye(len(K), dtype=K.dtype)))
    coefficients = P.mv(sites.shift[:, None])[:, 0]
    return Moments(
        normal=Normal(system, factor, coefficients),
        covariance=covariance,
        marginal=Marginals(matmul(K, coefficients), jnp.diagonal(covariance)),
        trace=jnp.sum(P.diagonal()),
        log_determinant=log_determinant(system, factor),
    )


def _marginals(gram: AbstractGram, sites: Sites) -> Marginals:
    """The marginals alone, without a derivative."""
    system = system_of_precisions(gram, sites.precision)
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

    def go_on(now: _Progress) -> Bool[Array, ""]:
        useful = jnp.isfinite(now.change) & (now.damping > _LEAST_DAMPING)
        return (now.change > goal) & useful & (now.steps < max_steps)

    start = _before_any_step(observations, rule)
    end = while_loop(go_on, partial(_one_step, observations, rule), start)
    endings = (
        (~jnp.isfinite(end.change), RESULTS.nonfinite),
        (end.change <= goal, RESULTS.successful),
        (end.steps >= max_steps, RESULTS.max_steps_reached),
    )
    result = first_that_holds(endings, RESULTS.inaccurate)
    return end.sites, result, {"steps": end.steps, "residual": end.change}


def _before_any_step(observations: Observations, rule: AbstractSiteRule) -> _Progress:
    """Without sites, which leaves the prior."""
    y = observations.y
    nothing = Sites(jnp.zeros_like(y), jnp.zeros_like(y))
    wanted, change = _asked_of(nothing, observations, rule)
    return _Progress(nothing, wanted, change, jnp.ones_like(y[0]), jnp.zeros((), jnp.int32))


def _one_step(observations: Observations, rule: AbstractSiteRule, now: _Progress) -> _Progress:
    """Some way towards the sites that are wanted, and how far to go next."""
    sites = jax.tree.map(lambda a, b: a + now.damping * (b - a), now.sites, now.wanted)
    wanted, change = _asked_of(sites, observations, rule)
    longer = jnp.minimum(1.2 * now.damping, 1)
    damping = jnp.where(change < now.change, longer, now.damping / 2)
    return _Progress(sites, wanted, change, damping, now.steps + 1)


def _asked_of(
    sites: Sites, observations: Observations, rule: AbstractSiteRule
) -> tuple[Sites, Float[Array, ""]]:
    """The sites that the marginals under given ones ask for, and how far away they are."""
    marginal = _marginals(observations.gram, sites)
    wanted = rule.updated(observations.likelihood, observations.y, sites, marginal)
    return wanted, _change(sites, wanted, marginal)


def _change(sites: Sites, wanted: Sites, marginal: Marginals) -> Float[Array, ""]:
    """The largest change that is asked for, in the units of the marginals."""
    precision = wanted.precision - sites.precision
    shift = wanted.shift - sites.shift - precision * marginal.mean
    of_precision = jnp.max(abs(precision) * marginal.variance)
    of_shift = jnp.max(abs(shift) * jnp.sqrt(abs(marginal.variance)))
    return jnp.maximum(of_precision, of_shift)


def _newton_step(sites: Sites, observations: Observations, rule: AbstractSiteRule) -> Sites:
    """The sites after an exact Newton step for `wanted(sites) = sites`, differentiable."""
    q = moments(observations.gram, sites)
    arguments = (sites.precision, sites.shift, q.marginal.mean, q.marginal.variance)

    def wanted(*arguments: Array) -> Array:
        site = Sites(*arguments[:2])
        marginal = Marginals(*arguments[2:])
        asked = rule.updated(observations.likelihood, observations.y, site, marginal)
        return jnp.stack([asked.precision, asked.shift])

    left = (wanted(*arguments) - jnp.stack(arguments[:2])).reshape(-1)
    jacobian = _jacobian(_slopes(wanted, arguments), q)
    step = _solved_by_lu(jnp.eye(len(left), dtype=left.dtype) - jacobian, left).reshape(2, -1)
    return Sites(sites.precision + step[0], sites.shift + step[1])


def _jacobian(slopes: list[Array], q: Moments) -> Float[Array, "m m"]:
    """The derivative of what is wanted in the sites, m = 2 n, from its slopes point by point.

    With the covariance C of q, the marginals change by `d mean = C (d shift - mean d precision)`
    and `d variance = -C^2 d precision`, squared entry by entry (Opper & Winther 2005).
    """
    by_precision, by_shift, by_mean, by_variance = slopes
    C = q.covariance

    def rows(k: int) -> list[Array]:
        # Of the precisions (k = 0) or the shifts (k = 1) that are wanted, in both.
        through_mean = by_mean[k][:, None] * C
        through_variance = by_variance[k][:, None] * C**2
        in_precision = -through_mean * q.marginal.mean[None, :] - through_variance
        return [jnp.diag(by_precision[k]) + in_precision, jnp.diag(by_shift[k]) + through_mean]

    return jnp.block([rows(0), rows(1)])


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
