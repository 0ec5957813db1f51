"""Likelihoods `p(y | f)` of one observation and the latent value of a process, by their negative
logarithms.

`Logistic` and `Poisson` stand in `losses`, which they are as well.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PyTree

from kernax.core.losses import AbstractLikelihood, Values
from kernax.core.parameters import positive


class Probit(AbstractLikelihood):
    """`-log Phi(y f)`, y = -1 or +1, Phi the normal distribution function."""

    targets = "signs"

    def __call__(self, y, f):
        return -norm.logcdf(y * f)

    def derivative(self, y, f):
        return -y * _inverse_mills_ratio(y * f)

    def curvature(self, y, f):
        ratio = _inverse_mills_ratio(y * f)
        return jnp.clip(ratio * (ratio + y * f), 0, 1)

    def response(self, f):
        return norm.cdf(f)

    def moments(self, f):
        return norm.cdf(f) - norm.cdf(-f), 4 * norm.cdf(f) * norm.cdf(-f)


def _inverse_mills_ratio(z: Values) -> Values:
    """`phi(z) / Phi(z)`."""
    return jnp.exp(norm.logpdf(z) - norm.logcdf(z))


class Gaussian(AbstractLikelihood):
    """`(y - f)^2 / (2 noise) + log(2 pi noise) / 2`, noise one variance, or one for each point."""

    of_difference = True
    noise: Float[Array, "*n"] = positive(default=1.0)

    def __call__(self, y, f):
        return (y - f) ** 2 / (2 * self.noise) + jnp.log(2 * math.pi * self.noise) / 2

    def derivative(self, y, f):
        return (f - y) / self.noise

    def curvature(self, y, f):
        return jnp.ones_like(f) / self.noise

    def response(self, f):
        return f

    def moments(self, f):
        if self.noise.ndim and self.noise.shape != f.shape:
            raise ValueError(
                f"noise has shape {self.noise.shape}, one for each point to learn from: that of "
                "other points is not known"
            )
        return f, jnp.ones_like(f) * self.noise


class NegativeBinomial(AbstractLikelihood):
    """Counts y >= 0 of mean `m = exp(f)` and variance `m + dispersion m^2`: Poisson counts whose
    rates differ (Hilbe 2011, section 8.2).

    With `r = 1 / dispersion` it is `(y + r) log(1 + m / r) - y log(m / r) - log C(y + r - 1, y)`.
    """

    targets = "counts"
    dispersion: Float[Array, ""] = positive(default=1.0)

    def __call__(self, y, f):
        size = 1 / self.dispersion
        log_odds = f + jnp.log(self.dispersion)
        ways = gammaln(y + size) - gammaln(size) - gammaln(y + 1)
        return (y + size) * jax.nn.softplus(log_odds) - y * log_odds - ways

    def derivative(self, y, f):
        share = jax.nn.sigmoid(f + jnp.log(self.dispersion))
        return (y + 1 / self.dispersion) * share - y

    def curvature(self, y, f):
        log_odds = f + jnp.log(self.dispersion)
        slope = jax.nn.sigmoid(log_odds) * jax.nn.sigmoid(-log_odds)
        return (y + 1 / self.dispersion) * slope

    def response(self, f):
        return jnp.exp(f)

    def moments(self, f):
        mean = jnp.exp(f)
        return mean, mean + self.dispersion * mean**2


class CustomLikelihood(AbstractLikelihood):
    """`-log_density(parameters, y, f)`, for a function of one y and one f; derivatives in f are
    those of JAX.

    Both functions are static: they must take everything that is learned through `parameters`, any
    pytree of arrays. The density must be log-concave in f. `mean_and_variance(parameters, f)`, of y
    given f, is needed where a prediction of y is asked for.
    """

    log_density: Callable = eqx.field(static=True)
    parameters: PyTree = ()
    mean_and_variance: Callable | None = eqx.field(static=True, default=None, kw_only=True)

    def __call__(self, y, f):
        return _element_by_element(self._one, y, f)

    def derivative(self, y, f):
        return _element_by_element(jax.grad(self._one, 1), y, f)

    def curvature(self, y, f):
        return _element_by_element(jax.grad(jax.grad(self._one, 1), 1), y, f)

    def response(self, f):
        return self.moments(f)[0]

    def moments(self, f):
        of_one = self.mean_and_variance
        if of_one is None:
            raise ValueError(
                "the mean and the variance of y are not known of this likelihood: "
                "CustomLikelihood(log_density, mean_and_variance=function of (parameters, f))"
            )
        return _element_by_element(lambda f: of_one(self.parameters, f), f)

    def _one(self, y: Float[Array, ""], f: Float[Array, ""]) -> Float[Array, ""]:
        """The negative logarithm for one observation."""
        return -self.log_density(self.parameters, y, f)


def _element_by_element(function: Callable, *arrays: Values) -> Any:
    """The function of each entry of arrays of one shape, (n,) or a number."""
    return function(*arrays) if arrays[0].ndim == 0 else jax.vmap(function)(*arrays)
