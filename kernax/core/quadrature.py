"""Integrals of likelihoods over normal distributions of the latent value f.

In closed form where one is registered, else by Gauss-Hermite quadrature: with N nodes it is exact
for polynomials of degree 2 N - 1 in f, and loses digits where the likelihood is a step that is
narrow beside the standard deviation of f.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from kernax.core.likelihoods import Gaussian, Probit
from kernax.core.losses import AbstractLikelihood, Poisson, Values
from kernax.core.numerics import safe_sqrt

NODES = 64


@functools.cache
def _hermite(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The nodes and weights of the standard normal distribution."""
    places, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return places, weights / np.sum(weights)


def _at_nodes(
    function: Callable[[Values], Any], mean: Values, variance: Values, nodes: int
) -> tuple[Any, Float[Array, " nodes"]]:
    """A function of f at each node, (nodes, n), and the weights of the nodes."""
    places, weights = (jnp.asarray(part, mean.dtype) for part in _hermite(nodes))
    deviation = safe_sqrt(variance)
    return jax.vmap(lambda place: function(mean + deviation * place))(places), weights


def expectation(
    function: Callable[[Values], Values], mean: Values, variance: Values, nodes: int = NODES
) -> Values:
    """`E g(f)` for `f ~ N(mean, variance)`, for a function g that works element by element."""
    values, weights = _at_nodes(function, mean, variance, nodes)
    return jnp.tensordot(weights, values, 1, precision=jax.lax.Precision.HIGHEST)


@functools.singledispatch
def expected_loss(
    likelihood: AbstractLikelihood, y: Values, mean: Values, variance: Values, nodes: int = NODES
) -> Values:
    """`E[-log p(y | f)]` for `f ~ N(mean, variance)`."""
    return expectation(lambda f: likelihood(y, f), mean, variance, nodes)


@functools.singledispatch
def log_normaliser(
    likelihood: AbstractLikelihood, y: Values, mean: Values, variance: Values, nodes: int = NODES
) -> Values:
    """`log E p(y | f)` for `f ~ N(mean, variance)`: the log density of y that they predict."""
    losses, weights = _at_nodes(lambda f: likelihood(y, f), mean, variance, nodes)
    return logsumexp(jnp.log(weights)[:, None] - losses.reshape(nodes, -1), 0).reshape(mean.shape)


@functools.singledispatch
def predicted_moments(
    likelihood: AbstractLikelihood, mean: Values, variance: Values, nodes: int = NODES
) -> tuple[Values, Values]:
    """The mean and the variance of y for `f ~ N(mean, variance)`.

    The variance is the mean of that given f, and the variance of the mean given f.
    """
    (means, variances), weights = _at_nodes(likelihood.moments, mean, variance, nodes)
    centre = jnp.tensordot(weights, means, 1)
    return centre, jnp.tensordot(weights, variances + (means - centre[None]) ** 2, 1)


@expected_loss.register
def _(likelihood: Gaussian, y, mean, variance, nodes=NODES):
    return likelihood(y, mean) + variance / (2 * likelihood.noise)


@log_normaliser.register
def _(likelihood: Gaussian, y, mean, variance, nodes=NODES):
    return norm.logpdf(y, mean, jnp.sqrt(variance + likelihood.noise))


@predicted_moments.register
def _(likelihood: Gaussian, mean, variance, nodes=NODES):
    return mean, variance + likelihood.noise


@log_normaliser.register
def _(likelihood: Probit, y, mean, variance, nodes=NODES):
    # Rasmussen & Williams 2006, eq. 3.82.
    return norm.logcdf(y * mean / jnp.sqrt(1 + variance))


@predicted_moments.register
def _(likelihood: Probit, mean, variance, nodes=NODES):
    return likelihood.moments(mean / jnp.sqrt(1 + variance))


@expected_loss.register
def _(likelihood: Poisson, y, mean, variance, nodes=NODES):
    return jnp.exp(mean + variance / 2) - y * mean + jax.lax.lgamma(y + 1)


@predicted_moments.register
def _(likelihood: Poisson, mean, variance, nodes=NODES):
    centre = jnp.exp(mean + variance / 2)
    return centre, centre + centre**2 * jnp.expm1(variance)
