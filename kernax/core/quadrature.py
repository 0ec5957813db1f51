"""Integrals of likelihoods over normal distributions of the latent value f.

In closed form where one is registered, else by the trapezoid rule, which for analytic functions
converges exponentially in the number of nodes (Trefethen & Weideman 2014): 192 of them in float64,
96 in float32. Nodes are closer together where the slope of the loss turns, so that a wide
distribution does not step over it: integrals of a logistic loss are right to 1e-9 for deviations
from 1e-3 to 1e6, where even nodes, or Gauss-Hermite ones, leave errors of 1e-2 from a hundred on.
Expectations take nodes over the normal distribution. The density of y takes nodes where the product
of likelihood and distribution is, which may be far from the mean and much narrower. Derivatives in
a variance of zero are zero.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from kernax.core.likelihoods import Gaussian, NegativeBinomial, Powered, Probit, Shifted
from kernax.core.losses import AbstractLikelihood, Bernoulli, Poisson, Values
from kernax.core.numerics import eps_of, positive_or_one, safe_sqrt, stopped
from kernax.core.sharding import while_loop

_HALVINGS = 60


def _size(dtype: Any) -> tuple[int, int]:
    """By how many powers of e an integrand falls within its window, and the number of nodes."""
    return (38, 192) if dtype == jnp.float64 else (18, 96)


@functools.cache
def _standard_nodes(dtype: Any, nodes: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of the standard normal distribution and their weights, which sum to one."""
    powers, default = _size(dtype)
    reach = math.sqrt(2 * powers)
    places = np.linspace(-reach, reach, nodes or default, dtype=dtype)
    weights = np.exp(-(places**2) / 2)
    return places, weights / np.sum(weights)


def expectation(
    function: Callable[[Values], Any], mean: Values, variance: Values, nodes: int | None = None
) -> Any:
    """`E g(f)` for `f ~ N(mean, variance)`, for a function g that works element by element, and may
    return several arrays.
    """
    places, weights = map(jnp.asarray, _standard_nodes(mean.dtype, nodes))
    deviation = safe_sqrt(variance)
    values = jax.vmap(lambda place: function(mean + deviation * place))(places)
    average = lambda value: jnp.tensordot(weights, value, 1, precision=jax.lax.Precision.HIGHEST)
    return jax.tree.map(average, values)


@functools.singledispatch
def expected_loss(
    likelihood: AbstractLikelihood,
    y: Values,
    mean: Values,
    variance: Values,
    nodes: int | None = None,
) -> Values:
    """`E[-log p(y | f)]` for `f ~ N(mean, variance)`."""
    powers, default = _size(mean.dtype)
    deviation = safe_sqrt(variance)
    fixed, of_y, at, wide = stopped((likelihood, y, mean, deviation))
    slope = lambda place: fixed.derivative(of_y, at + wide * place)
    reach = jnp.full_like(mean, math.sqrt(2 * powers))
    places, log_masses = _nodes(slope, -reach, reach, nodes or default)
    weights = jax.nn.softmax(log_masses - places**2 / 2, 0)
    losses = jax.vmap(lambda place: likelihood(y, mean + deviation * place))(places)
    return jnp.sum(weights * losses, 0)


@functools.singledispatch
def log_normaliser(
    likelihood: AbstractLikelihood,
    y: Values,
    mean: Values,
    variance: Values,
    nodes: int | None = None,
) -> Values:
    """`log E p(y | f)` for `f ~ N(mean, variance)`: the log density of y that they predict."""
    known = variance > 0
    spread = positive_or_one(variance)
    fixed, of_y, at, wide = stopped((likelihood, y, mean, spread))

    def log_product(off: Values) -> Values:
        # Nodes are so far from the mean, exactly; they stay where they are as it moves.
        return -likelihood(y, at + off) - (off + (at - mean)) ** 2 / (2 * spread)

    slope = lambda off: fixed.derivative(of_y, at + off)
    count = nodes or _size(mean.dtype)[1]
    low, high = _window(fixed, of_y, at, wide)
    places, log_masses = _nodes(slope, low, high, count)
    logs = jax.vmap(log_product)(places) + log_masses
    log_integral = logsumexp(logs, 0) - jnp.log(2 * jnp.pi * spread) / 2
    return jnp.where(known, log_integral, -likelihood(y, mean))


def _nodes(
    slope: Callable[[Values], Values], low: Values, high: Values, count: int
) -> tuple[Float[Array, "k ..."], Float[Array, "k ..."]]:
    """Nodes of the trapezoid rule between two ends, closer together where the slope of a convex
    function turns, and the logarithms of their masses.

    They are `centre + width sinh(t)` for even steps of t.
    """
    centre, width = _turn(slope, low, high)
    start = jnp.arcsinh((low - centre) / width)
    end = jnp.arcsinh((high - centre) / width)
    shares = jnp.linspace(0, 1, count, dtype=low.dtype)
    t = jax.vmap(lambda share: start + share * (end - start))(shares)
    step = positive_or_one(end - start) / (count - 1)
    log_masses = jax.vmap(lambda t: jnp.log(width * step * jnp.cosh(t)))(t)
    return jax.vmap(lambda t: centre + width * jnp.sinh(t))(t), log_masses


def _turn(slope: Callable[[Values], Values], low: Values, high: Values) -> tuple[Values, Values]:
    """Where an increasing slope is half of the way from its value at one end to that at the other,
    and the width within which it makes half of that way.

    The middle and the whole span for a slope that hardly changes.
    """
    first = slope(low)
    way = slope(high) - first

    def reached(share: Array) -> Values:
        return _root(lambda f: first + share * way - slope(f), low, high)

    quarters = jnp.asarray([0.25, 0.5, 0.75], low.dtype)
    before, centre, after = jax.vmap(reached)(quarters)
    span = high - low
    turns = way * span > eps_of(span) ** 0.5
    width = jnp.maximum(after - before, _least_width(low.dtype) * span)
    width = positive_or_one(jnp.where(turns, width, span))
    return jnp.where(turns, centre, (low + high) / 2), width


def _least_width(dtype: Any) -> float:
    """Of the span: with less, nodes far from the centre would be too few."""
    return 1e-8 if dtype == jnp.float64 else 1e-5


class _Bracket(eqx.Module):
    """Two ends between which a decreasing function changes its sign."""

    low: Array
    high: Array
    steps: Int[Array, ""]


def _root(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Where a decreasing function of each entry is zero, by halving; the nearest end if nowhere."""

    def halved(now: _Bracket) -> _Bracket:
        middle = (now.low + now.high) / 2
        above = function(middle) > 0
        low = jnp.where(above, middle, now.low)
        return _Bracket(low, jnp.where(above, now.high, middle), now.steps + 1)

    start = _Bracket(low, high, jnp.zeros((), jnp.int32))
    end = while_loop(lambda now: now.steps < _HALVINGS, halved, start)
    return (end.low + end.high) / 2


def _window(
    likelihood: AbstractLikelihood, y: Values, mean: Values, variance: Values
) -> tuple[Values, Values]:
    """The ends, as distances from the mean, between which `p(y | f) N(f | mean, variance)` is more
    than rounding of its mode.

    The product is log-concave, and falls at least as fast as the normal distribution on both sides
    of its mode, which is between the mean and `mean - variance L'(y, mean)`.
    """
    powers, _ = _size(mean.dtype)

    def log_product(off: Values) -> Values:
        return -likelihood(y, mean + off) - off**2 / (2 * variance)

    def slope(off: Values) -> Values:
        return -likelihood.derivative(y, mean + off) - off / variance

    pull = -variance * likelihood.derivative(y, mean)
    mode = _root(slope, jnp.minimum(pull, 0), jnp.maximum(pull, 0))
    least = log_product(mode) - powers
    reach = jnp.sqrt(2 * powers * variance)
    right = _root(lambda d: log_product(mode + d) - least, jnp.zeros_like(reach), reach)
    left = _root(lambda d: log_product(mode - d) - least, jnp.zeros_like(reach), reach)
    return mode - left, mode + right


@functools.singledispatch
def predicted_moments(
    likelihood: AbstractLikelihood, mean: Values, variance: Values, nodes: int | None = None
) -> tuple[Values, Values]:
    """The mean and the variance of y for `f ~ N(mean, variance)`.

    The variance is the mean of that given f, and the variance of the mean given f.
    """
    centre, given_f = expectation(likelihood.moments, mean, variance, nodes)
    off = lambda f: (likelihood.moments(f)[0] - centre) ** 2
    return centre, given_f + expectation(off, mean, variance, nodes)


@expected_loss.register
def _(likelihood: Gaussian, y, mean, variance, nodes=None):
    _, noise = likelihood.moments(mean)
    return likelihood(y, mean) + variance / (2 * noise)


@log_normaliser.register
def _(likelihood: Gaussian, y, mean, variance, nodes=None):
    _, noise = likelihood.moments(mean)
    return norm.logpdf(y, mean, jnp.sqrt(variance + noise))


@predicted_moments.register
def _(likelihood: Gaussian, mean, variance, nodes=None):
    _, noise = likelihood.moments(mean)
    return mean, variance + noise


@predicted_moments.register
def _(likelihood: Bernoulli, mean, variance, nodes=None):
    one = jnp.ones_like(mean)
    up, down = (jnp.exp(log_normaliser(likelihood, y, mean, variance, nodes)) for y in (one, -one))
    return up - down, 4 * up * down


@log_normaliser.register
def _(likelihood: Probit, y, mean, variance, nodes=None):
    # Rasmussen & Williams 2006, eq. 3.82.
    return norm.logcdf(y * mean / jnp.sqrt(1 + variance))


@predicted_moments.register
def _(likelihood: Probit, mean, variance, nodes=None):
    return likelihood.moments(mean / jnp.sqrt(1 + variance))


@expected_loss.register
def _(likelihood: Poisson, y, mean, variance, nodes=None):
    return jnp.exp(mean + variance / 2) - y * mean + jax.lax.lgamma(y + 1)


@predicted_moments.register
def _(likelihood: Poisson, mean, variance, nodes=None):
    centre = jnp.exp(mean + variance / 2)
    return centre, centre + centre**2 * jnp.expm1(variance)


@predicted_moments.register
def _(likelihood: NegativeBinomial, mean, variance, nodes=None):
    centre = jnp.exp(mean + variance / 2)
    spread = jnp.expm1(variance) + likelihood.dispersion * jnp.exp(variance)
    return centre, centre + centre**2 * spread


@expected_loss.register
def _(likelihood: Shifted, y, mean, variance, nodes=None):
    return expected_loss(likelihood.inner, *likelihood.compared(y, mean), variance, nodes)


@log_normaliser.register
def _(likelihood: Shifted, y, mean, variance, nodes=None):
    return log_normaliser(likelihood.inner, *likelihood.compared(y, mean), variance, nodes)


@expected_loss.register
def _(likelihood: Powered, y, mean, variance, nodes=None):
    return likelihood.weights * expected_loss(likelihood.inner, y, mean, variance, nodes)
