"""Integrals of likelihoods over normal distributions of the latent value f.

In closed form where one is registered, else by the trapezoid rule, which for analytic functions
converges exponentially in the number of nodes (Trefethen & Weideman 2014): 192 of them in float64,
64 in float32. Expectations take nodes over the normal distribution: those of a logistic loss are
right to 1e-9 for a deviation of 10 and to 1e-6 for 20, where 64 Gauss-Hermite nodes leave errors of
1e-3. The density of y takes nodes where the product of likelihood and distribution is, which may be
far from the mean and much narrower. Derivatives in a variance of zero are zero.
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
from jaxtyping import Array, Int

from kernax.core.likelihoods import Gaussian, NegativeBinomial, Powered, Probit, Shifted
from kernax.core.losses import AbstractLikelihood, Poisson, Values
from kernax.core.numerics import positive_or_one, quadrature_size, safe_sqrt, stopped
from kernax.core.sharding import while_loop

_HALVINGS = 60


@functools.cache
def _standard_nodes(dtype: Any, nodes: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of the standard normal distribution and their weights, which sum to one."""
    powers, default = quadrature_size(dtype)
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
    return expectation(lambda f: likelihood(y, f), mean, variance, nodes)


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

    def log_product(f: Values) -> Values:
        return -likelihood(y, f) - (f - mean) ** 2 / (2 * spread)

    low, high = _window(*stopped((likelihood, y, mean, spread)))
    count = nodes or quadrature_size(mean.dtype)[1]
    shares = jnp.linspace(0, 1, count, dtype=mean.dtype)
    logs = jax.vmap(lambda share: log_product(low + share * (high - low)))(shares)
    log_step = jnp.log(high - low) - jnp.log(2 * jnp.pi * spread) / 2 - math.log(count - 1)
    return jnp.where(known, logsumexp(logs, 0) + log_step, -likelihood(y, mean))


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
    """The ends between which `p(y | f) N(f | mean, variance)` is more than rounding of its mode.

    The product is log-concave, and falls at least as fast as the normal distribution on both sides
    of its mode, which is between the mean and `mean - variance L'(y, mean)`.
    """
    powers, _ = quadrature_size(mean.dtype)

    def log_product(f: Values) -> Values:
        return -likelihood(y, f) - (f - mean) ** 2 / (2 * variance)

    def slope(f: Values) -> Values:
        return -likelihood.derivative(y, f) - (f - mean) / variance

    pull = -variance * likelihood.derivative(y, mean)
    mode = _root(slope, mean + jnp.minimum(pull, 0), mean + jnp.maximum(pull, 0))
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
