"""Integrals of likelihoods over normal distributions of the latent value f.

In closed form where one is registered, else by the trapezoid rule, which for analytic functions
converges exponentially in the number of nodes (Trefethen & Weideman 2014): 192 of them in float64,
96 in float32. Nodes are closer together where the slope of the loss turns, so that a wide
distribution does not step over it: expected logistic losses are right to 1e-9 for deviations from
1e-3 to 1e6, and densities to 2e-9 up to 1e16, where even nodes, or Gauss-Hermite ones, leave errors
of 1e-2 from a hundred on. Expectations take nodes over the normal distribution. The density of y
takes nodes where the product of likelihood and distribution is, which may be far from the mean and
much narrower. By nodes, derivatives in a variance of zero are zero.
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
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import eps_of, positive_or_one, safe_sqrt, stopped
from kernax.core.losses.likelihoods import (
    Gaussian,
    NegativeBinomial,
    Powered,
    Probit,
    Shifted,
    StudentT,
)
from kernax.core.losses.losses import AbstractLikelihood, Bernoulli, Poisson, Values

_HALVINGS = 60

# The least width within which a loss turns, as a part of the span, in float64 and in float32: with
# less, nodes away from the turn would be too few; a loss needs more of them than a density.
_SHARPEST_LOSS = 1e-8, 1e-5
_SHARPEST_DENSITY = 1e-10, 1e-7


def _size(dtype: Any) -> tuple[int, int]:
    """By how many powers of e an integrand falls within its window, and the number of nodes."""
    return (38, 192) if dtype == jnp.float64 else (18, 96)


@functools.cache
def _standard_nodes(dtype: Any, nodes: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of the standard normal distribution and their weights, which sum to one: computed in
    float64, and rounded once.
    """
    powers, default = _size(dtype)
    reach = math.sqrt(2 * powers)
    places = np.linspace(-reach, reach, nodes or default)
    weights = np.exp(-(places**2) / 2)
    return places.astype(dtype), (weights / np.sum(weights)).astype(dtype)


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
    reach = jnp.full_like(mean, math.sqrt(2 * powers))
    ends = -reach, reach
    turn = _turn(fixed, of_y, at, wide, ends)
    places, log_masses = _nodes(turn, ends, _SHARPEST_LOSS, nodes or default)
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

    count = nodes or _size(mean.dtype)[1]
    ends = _window(fixed, of_y, at, wide)
    turn = _turn(fixed, of_y, at, jnp.ones_like(at), ends)
    places, log_masses = _nodes(turn, ends, _SHARPEST_DENSITY, count)
    logs = jax.vmap(log_product)(places) + log_masses
    log_integral = logsumexp(logs, 0) - jnp.log(2 * jnp.pi * spread) / 2
    return jnp.where(known, log_integral, -likelihood(y, mean))


def _nodes(
    turn: tuple[Values, Values],
    ends: tuple[Values, Values],
    sharpest: tuple[float, float],
    count: int,
) -> tuple[Float[Array, "k ..."], Float[Array, "k ..."]]:
    """Nodes of the trapezoid rule between two ends, closer together where a loss turns, and the
    logarithms of their masses.

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
    log_masses = jax.vmap(lambda t: jnp.log(width * step * jnp.cosh(t)))(t)
    return jax.vmap(lambda t: centre + width * jnp.sinh(t))(t), log_masses


@functools.singledispatch
def _turn(
    likelihood: AbstractLikelihood,
    y: Values,
    mean: Values,
    unit: Values,
    ends: tuple[Values, Values],
) -> tuple[Values, Values]:
    """Where a loss turns between two ends, and within which width, in units from the mean.

    The slope of a convex loss increases: it is where the slope is half of the way from its value at
    one end to that at the other, and the width within which it makes half of that way. The middle
    and the whole span for a slope that hardly changes.
    """
    low, high = ends
    slope = lambda place: likelihood.derivative(y, mean + unit * place)
    first = slope(low)
    way = slope(high) - first

    def reached(share: Array) -> Values:
        return _root(lambda f: first + share * way - slope(f), low, high)

    quarters = jnp.asarray([0.25, 0.5, 0.75], low.dtype)
    before, centre, after = jax.vmap(reached)(quarters)
    span = high - low
    turns = way * span > eps_of(span) ** 0.5
    return jnp.where(turns, centre, (low + high) / 2), jnp.where(turns, after - before, span)


class _Bracket(eqx.Module):
    """Two ends between which a decreasing function changes its sign."""

    low: Array
    high: Array
    steps: Int[Array, ""]


def _root(function: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Where a decreasing function of each entry is zero, by halving; the nearest end if nowhere."""
    halved = functools.partial(_halved, function)
    start = _Bracket(low, high, jnp.zeros((), jnp.int32))
    end = lax.while_loop(lambda now: now.steps < _HALVINGS, halved, start)
    return (end.low + end.high) / 2


def _halved(function: Callable[[Array], Array], now: _Bracket) -> _Bracket:
    """The half of a bracket in which a decreasing function is zero."""
    middle = (now.low + now.high) / 2
    above = function(middle) > 0
    low = jnp.where(above, middle, now.low)
    high = jnp.where(above, now.high, middle)
    return _Bracket(low, high, now.steps + 1)


@_turn.register
def _(likelihood: StudentT, y, mean, unit, ends):
    # Its width, or the distance of its poles from the real line.
    unit = positive_or_one(unit)
    width = likelihood.scale * jnp.sqrt(jnp.minimum(likelihood.degrees, 1))
    return (y - mean) / unit, width / unit


@functools.singledispatch
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


@_window.register
def _(likelihood: StudentT, y, mean, variance):
    # The product may have two modes; it is below that at the mean wherever the normal distribution
    # falls by more than the likelihood may rise.
    powers, _ = _size(mean.dtype)
    rise = likelihood(y, mean) - likelihood(y, y)
    reach = jnp.sqrt(2 * (powers + rise) * variance)
    return -reach, reach


def bounded_slopes(
    likelihood: AbstractLikelihood, y: Values, mean: Values, variance: Values
) -> tuple[Values, Values]:
    """The derivative of `bounded_loss` in the mean, and twice that in the variance.

    For an expectation the second is that of the curvature, by Bonnet's and Price's theorems, and
    the second derivative in the mean, which is known at a variance of zero too.
    """
    if likelihood.convex:
        of_mean = lambda mean: jnp.sum(bounded_loss(likelihood, y, mean, variance))
        return jax.jvp(jax.grad(of_mean), (mean,), (jnp.ones_like(mean),))
    of_both = lambda mean, variance: jnp.sum(bounded_loss(likelihood, y, mean, variance))
    slope, in_variance = jax.grad(of_both, (0, 1))(mean, variance)
    return slope, 2 * in_variance


@functools.singledispatch
def bounded_loss(
    likelihood: AbstractLikelihood, y: Values, mean: Values, variance: Values
) -> Values:
    """At least `E[-log p(y | f)]` for `f ~ N(mean, variance)`, and that itself for a log-concave
    likelihood; it increases in the variance. Raises ValueError where no bound is registered.
    """
    if not likelihood.convex:
        name = type(likelihood).__name__
        raise ValueError(
            f"{name} is not log-concave, and no bound of its expected loss is known: take a "
            "log-concave likelihood"
        )
    return expected_loss(likelihood, y, mean, variance)


@bounded_loss.register
def _(likelihood: StudentT, y, mean, variance):
    # By Jensen's inequality, as the loss is concave in the square.
    scale = likelihood.scale
    return likelihood.of_square(((y - mean) / scale) ** 2 + variance / scale / scale)


@bounded_loss.register
def _(likelihood: Shifted, y, mean, variance):
    return bounded_loss(likelihood.inner, *likelihood.compared(y, mean), variance)


@bounded_loss.register
def _(likelihood: Powered, y, mean, variance):
    return likelihood.weights * bounded_loss(likelihood.inner, y, mean, variance)


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
