"""Integrals of likelihoods over normal distributions of the latent value f.

Integrals without a closed form use the trapezoid rule, which converges exponentially in the number
of nodes for analytic functions (Trefethen & Weideman 2014): 192 nodes in float64, 96 in float32.
Nodes are denser where the slope of the loss turns, so that a wide distribution does not step over
the turn. Expected logistic losses are accurate to 1e-9 for deviations from 1e-3 to 1e6, and
densities to 2e-9 up to 1e16, whereas equidistant or Gauss-Hermite nodes have errors of 1e-2 from a
deviation of a hundred on. Expectations use nodes over the normal distribution. The density of y
uses nodes where the product of likelihood and distribution is large, which may be far from the mean
and much narrower. Computed by nodes, derivatives in a variance of zero are zero.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import eps_of, positive_or_one, safe_sqrt, stop_gradient

Values = Float[Array, "*n"]

_HALVINGS = 60

# The smallest width of the turn of a loss, as a fraction of the span, in float64 and in float32.
# With a smaller width, too few nodes would be away from the turn; a loss needs more of them than a
# density.
_SHARPEST_LOSS = 1e-8, 1e-5
_SHARPEST_DENSITY = 1e-10, 1e-7


def size(dtype: Any) -> tuple[int, int]:
    """The number of powers of e by which an integrand falls within its window, and of nodes."""
    return (38, 192) if dtype == jnp.float64 else (18, 96)


@functools.cache
def _standard_nodes(dtype: Any, n_nodes: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of the standard normal distribution and their weights, which sum to one, computed in
    float64 and rounded once.
    """
    powers, default = size(dtype)
    # exp(-x^2 / 2) falls by `powers` powers of e at x = sqrt(2 powers).
    reach = math.sqrt(2 * powers)
    nodes = np.linspace(-reach, reach, n_nodes or default)
    weights = np.exp(-(nodes**2) / 2)
    return nodes.astype(dtype), (weights / np.sum(weights)).astype(dtype)


@renamed(nodes="n_nodes")
def expectation(
    function: Callable[[Values], Any], mean: Values, variance: Values, n_nodes: int | None = None
) -> Any:
    """`E g(f)` for `f ~ N(mean, variance)` and an elementwise function g, which may return several
    arrays.

    Examples:
        >>> mean, variance = jnp.array(0.0), jnp.array(4.0)
        >>> round(float(kernax.likelihoods.expectation(jnp.square, mean, variance)), 3)
        4.0
    """
    nodes, weights = map(jnp.asarray, _standard_nodes(mean.dtype, n_nodes))
    deviation = safe_sqrt(variance)
    # E g(f) is about sum_k weights_k g(mean + deviation x_k) with the nodes x_k.
    values = jax.vmap(lambda node: function(mean + deviation * node))(nodes)
    average = lambda value: jnp.tensordot(weights, value, 1, precision=jax.lax.Precision.HIGHEST)
    return jax.tree.map(average, values)


def expected_loss(
    likelihood: Any,
    y: Values,
    mean: Values,
    variance: Values,
    n_nodes: int | None = None,
) -> Values:
    """`E[-log p(y | f)]` for `f ~ N(mean, variance)`."""
    powers, default = size(mean.dtype)
    deviation = safe_sqrt(variance)
    fixed, of_y, at, wide = stop_gradient((likelihood, y, mean, deviation))
    reach = jnp.full_like(mean, math.sqrt(2 * powers))
    ends = -reach, reach
    turn = fixed.turn(of_y, at, wide, ends)
    nodes, log_masses = _nodes(turn, ends, _SHARPEST_LOSS, n_nodes or default)
    # Weights m_k exp(-x_k^2 / 2), with the masses m_k of the nodes, normalised to sum to one.
    weights = jax.nn.softmax(log_masses - nodes**2 / 2, 0)
    losses = jax.vmap(lambda node: likelihood(y, mean + deviation * node))(nodes)
    return jnp.sum(weights * losses, 0)


def log_normaliser(
    likelihood: Any,
    y: Values,
    mean: Values,
    variance: Values,
    n_nodes: int | None = None,
) -> Values:
    """`log E p(y | f)` for `f ~ N(mean, variance)`: the predicted log density of y."""
    known = variance > 0
    spread = positive_or_one(variance)
    fixed, of_y, at, wide = stop_gradient((likelihood, y, mean, spread))

    def log_product(off: Values) -> Values:
        # log p(y | f) - (f - mean)^2 / (2 v) at f = at + off, where `at` is the mean without its
        # derivative: f stays fixed as the mean changes, and off is exact for a large mean.
        return -likelihood(y, at + off) - (off + (at - mean)) ** 2 / (2 * spread)

    count = n_nodes or size(mean.dtype)[1]
    ends = fixed.window(of_y, at, wide)
    turn = fixed.turn(of_y, at, jnp.ones_like(at), ends)
    nodes, log_masses = _nodes(turn, ends, _SHARPEST_DENSITY, count)
    logs = jax.vmap(log_product)(nodes) + log_masses
    # log sum_k m_k p(y | f_k) exp(-(f_k - mean)^2 / (2 v)) / sqrt(2 pi v), with f_k = mean +
    # places_k and the masses m_k of the nodes.
    log_integral = logsumexp(logs, 0) - jnp.log(2 * jnp.pi * spread) / 2
    return jnp.where(known, log_integral, -likelihood(y, mean))


def _nodes(
    turn: tuple[Values, Values],
    ends: tuple[Values, Values],
    sharpest: tuple[float, float],
    count: int,
) -> tuple[Float[Array, "k ..."], Float[Array, "k ..."]]:
    """Nodes of the trapezoid rule between two ends, denser where a loss turns, and the logarithms
    of their masses.

    They are `centre + width sinh(t)` for even steps of t.
    """
    low, high = ends
    centre, width = turn
    least = sharpest[0 if low.dtype == jnp.float64 else 1]
    width = positive_or_one(jnp.maximum(width, least * (high - low)))
    start = jnp.arcsinh((low - centre) / width)
    end = jnp.arcsinh((high - centre) / width)
    shares = jnp.linspace(0, 1, count, dtype=low.dtype)
    t = jax.vmap(lambda share: start + share * (end - start))(shares)
    step = positive_or_one(end - start) / (count - 1)
    # dx = width cosh(t) dt.
    log_masses = jax.vmap(lambda t: jnp.log(width * step * jnp.cosh(t)))(t)
    return jax.vmap(lambda t: centre + width * jnp.sinh(t))(t), log_masses


def turn(
    likelihood: Any,
    y: Values,
    mean: Values,
    unit: Values,
    ends: tuple[Values, Values],
) -> tuple[Values, Values]:
    """The location and the width of the turn of a loss between two ends, relative to the mean.

    The slope of a convex loss increases. The location is where the slope is halfway between its
    values at the two ends, and the width is the interval in which it covers half of that range. For
    a slope that hardly changes it is the middle and the whole span.
    """
    low, high = ends
    slope = lambda offset: likelihood.derivative(y, mean + unit * offset)
    first = slope(low)
    way = slope(high) - first

    def reached(share: Array) -> Values:
        return _root(lambda f: first + share * way - slope(f), low, high)

    quarters = jnp.asarray([0.25, 0.5, 0.75], low.dtype)
    before, centre, after = jax.vmap(reached)(quarters)
    span = high - low
    turns = way * span > eps_of(span) ** 0.5
    return jnp.where(turns, centre, (low + high) / 2), jnp.where(turns, after - before, span)


class _RootBracket(eqx.Module):
    """A bracket in which a decreasing function changes its sign."""

    low: Array
    high: Array
    steps: Int[Array, ""]


def _root(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """The zero of a decreasing function for each entry, by bisection; the nearest end if none."""

    def halved(now: _RootBracket) -> _RootBracket:
        middle = (now.low + now.high) / 2
        above = function(middle) > 0
        low = jnp.where(above, middle, now.low)
        high = jnp.where(above, now.high, middle)
        return _RootBracket(low, high, now.steps + 1)

    start = _RootBracket(low, high, jnp.zeros((), jnp.int32))
    end = lax.while_loop(lambda now: now.steps < _HALVINGS, halved, start)
    return (end.low + end.high) / 2


def window(likelihood: Any, y: Values, mean: Values, variance: Values) -> tuple[Values, Values]:
    """The ends, as distances from the mean, between which `p(y | f) N(f | mean, variance)` is not
    negligible compared with its mode.

    The product is log-concave, and decreases at least as fast as the normal distribution on both
    sides of its mode, which is between the mean and `mean - variance L'(y, mean)`.
    """
    powers, _ = size(mean.dtype)

    def log_product(off: Values) -> Values:
        return -likelihood(y, mean + off) - off**2 / (2 * variance)

    def slope(off: Values) -> Values:
        return -likelihood.derivative(y, mean + off) - off / variance

    # The mode is at off = -variance L'(y, mean + off). As L' increases, it is between 0 and the
    # right-hand side at off = 0.
    pull = -variance * likelihood.derivative(y, mean)
    mode = _root(slope, jnp.minimum(pull, 0), jnp.maximum(pull, 0))
    # At the ends the product is exp(-powers) of its value at the mode. They are not farther from
    # the mode than those of the normal distribution alone.
    least = log_product(mode) - powers
    reach = jnp.sqrt(2 * powers * variance)
    right = _root(lambda d: log_product(mode + d) - least, jnp.zeros_like(reach), reach)
    left = _root(lambda d: log_product(mode - d) - least, jnp.zeros_like(reach), reach)
    return mode - left, mode + right


def bounded_slopes(
    likelihood: Any, y: Values, mean: Values, variance: Values
) -> tuple[Values, Values]:
    """The derivative of `bounded_loss` in the mean, and twice the derivative in the variance.

    For an expectation the second is the expected curvature, by the theorems of Bonnet and Price,
    and equals the second derivative in the mean, which also exists at a variance of zero.
    """
    if likelihood.convex:
        # dE[L] / dmean = E[L'], and d^2 E[L] / dmean^2 = E[L''] = 2 dE[L] / dvariance.
        of_mean = lambda mean: jnp.sum(likelihood.bounded_loss(y, mean, variance))
        return jax.jvp(jax.grad(of_mean), (mean,), (jnp.ones_like(mean),))
    of_both = lambda mean, variance: jnp.sum(likelihood.bounded_loss(y, mean, variance))
    slope, in_variance = jax.grad(of_both, (0, 1))(mean, variance)
    return slope, 2 * in_variance


def predicted_moments(
    likelihood: Any, mean: Values, variance: Values, n_nodes: int | None = None
) -> tuple[Values, Values]:
    """The mean and the variance of y for `f ~ N(mean, variance)`.

    The variance is the mean of the variance given f plus the variance of the mean given f.
    """
    centre, given_f = expectation(likelihood.moments, mean, variance, n_nodes)
    off = lambda f: (likelihood.moments(f)[0] - centre) ** 2
    # Var y = E Var(y | f) + Var E(y | f).
    return centre, given_f + expectation(off, mean, variance, n_nodes)
