"""Likelihoods `p(y | f)` of one observation given the latent value of a process, as negative
logarithms.

`Logistic` and `Poisson` are in `losses`.
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

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.deprecation import renamed
from kernax.core.base.derivatives import custom_jvp
from kernax.core.base.functions import check_callable
from kernax.core.base.numerics import positive_or_one
from kernax.core.base.parameters import positive
from kernax.core.base.special_functions import log_rising, scaled_log1p, softplus
from kernax.core.losses.loss_functions import (
    AbstractLikelihood,
    AbstractLoss,
    Values,
    check_one_number,
)
from kernax.core.losses.quadrature import size

_TAIL = -5.0
_TERMS = 32


class Probit(AbstractLikelihood):
    """`-log Phi(y f)`, y = -1 or +1, with the normal distribution function Phi.

    Examples:
        >>> likelihood = kernax.likelihoods.Probit()
        >>> round(float(likelihood(jnp.array(1.0), jnp.array(0.0))), 3)  # log 2
        0.693
    """

    targets = "signs"

    def __call__(self, y, f):
        return -log_cdf(y * f)

    def derivative(self, y, f):
        return -y * hazard_and_excess(y * f)[0]

    def curvature(self, y, f):
        # L' = -y h(z) with z = y f, and h' = -h (h + z).
        hazard, excess = hazard_and_excess(y * f)
        return hazard * excess

    def response(self, f):
        return norm.cdf(f)

    def moments(self, f):
        return norm.cdf(f) - norm.cdf(-f), 4 * norm.cdf(f) * norm.cdf(-f)

    @renamed(nodes="n_nodes")
    def log_normaliser(self, y, mean, variance, n_nodes=None):
        # log Phi(y m / sqrt(1 + v)) (Rasmussen & Williams 2006, eq. 3.82)
        return log_cdf(y * mean / jnp.sqrt(1 + variance))

    @renamed(nodes="n_nodes")
    def predicted_moments(self, mean, variance, n_nodes=None):
        return self.moments(mean / jnp.sqrt(1 + variance))


@custom_jvp
def log_cdf(z: Values) -> Values:
    """`log Phi(z)`, with derivatives that keep their digits in the lower tail, where those of
    `norm.logcdf` are differences of numbers of order z^2.
    """
    return norm.logcdf(z)


@log_cdf.def_tangents
def _log_cdf_tangents(value, primals, tangents):
    # d log Phi(z) = h dz.
    return _hazard(*primals) * tangents[0]


@custom_jvp
def _hazard(z: Values) -> Values:
    """`h = phi(z) / Phi(z)`."""
    return hazard_and_excess(z)[0]


@_hazard.def_tangents
def _hazard_tangents(value, primals, tangents):
    # dh = -h (h + z) dz.
    hazard, excess = hazard_and_excess(*primals)
    return -hazard * excess * tangents[0]


def hazard_and_excess(z: Values) -> tuple[Values, Values]:
    """`h = phi(z) / Phi(z)`, and `h + z`, which is positive; a continued fraction is used below z =
    -5, where h and z cancel.
    """
    far = z < _TAIL
    t = -jnp.where(far, z, _TAIL)
    excess = excess_of_hazard(t)
    near = jnp.where(far, _TAIL, z)
    hazard = norm.pdf(near) / norm.cdf(near)
    return jnp.where(far, t + excess, hazard), jnp.where(far, excess, hazard + near)


def excess_of_hazard(t: Values) -> Values:
    """`h - t` with t = -z, by the continued fraction of Mills' ratio, `1 / (t + 2 / (t + 3 / (t +
    ...)))` (Abramowitz & Stegun 1964, eq. 26.2.14).
    """
    excess = jnp.zeros_like(t)
    for k in range(_TERMS, 0, -1):
        excess = k / (t + excess)
    return excess


class Gaussian(AbstractLikelihood):
    """`(y - f)^2 / (2 noise) + log(2 pi noise) / 2`, noise one variance, or one for each point.

    Raises ValueError if noise has another shape than f, as at new points.

    Examples:
        >>> likelihood = kernax.likelihoods.Gaussian(noise=0.25)
        >>> round(float(likelihood(jnp.array(1.0), jnp.array(0.5))), 3)  # minus the log density
        0.726
    """

    of_difference = True
    noise: Float[ParameterArray, "*n"] = positive(default=1.0)

    def __call__(self, y, f):
        noise = self._noise_of(f)
        return (y - f) ** 2 / (2 * noise) + jnp.log(2 * math.pi * noise) / 2

    def derivative(self, y, f):
        return (f - y) / self._noise_of(f)

    def curvature(self, y, f):
        return 1 / self._noise_of(f)

    def response(self, f):
        return f

    def moments(self, f):
        return f, self._noise_of(f)

    @renamed(nodes="n_nodes")
    def expected_loss(self, y, mean, variance, n_nodes=None):
        # E (y - f)^2 = (y - mean)^2 + variance.
        return self(y, mean) + variance / (2 * self._noise_of(mean))

    @renamed(nodes="n_nodes")
    def log_normaliser(self, y, mean, variance, n_nodes=None):
        return norm.logpdf(y, mean, jnp.sqrt(variance + self._noise_of(mean)))

    @renamed(nodes="n_nodes")
    def predicted_moments(self, mean, variance, n_nodes=None):
        return mean, variance + self._noise_of(mean)

    def _noise_of(self, f: Values) -> Values:
        if self.noise.ndim and self.noise.shape != f.shape:
            raise ValueError(
                f"noise has shape {self.noise.shape}, one for each training point, but there are "
                f"values of shape {f.shape}: the noise of other points is not known, so pass "
                "one noise for all, or predict only the latent value"
            )
        return jnp.ones_like(f) * self.noise


_NOT_OF_EACH_POINT = "one for each point would not be known at new points"


class StudentT(AbstractLikelihood):
    """Student's t distribution around f, for numerical targets with outliers.

    With `z = (y - f) / scale` and nu degrees it is `(nu + 1) / 2 log(1 + z^2 / nu) + log scale +
    log(pi nu) / 2 - log(Gamma((nu + 1) / 2) / Gamma(nu / 2))`. It is not log-concave: the farther a
    target is from f, the less influence it has, and a posterior may have several modes.
    `variational` and `svgp` accept it, by a bound (Tipping & Lawrence 2005); other functions raise
    ValueError. For at most two degrees of freedom y has infinite variance; for at most one it has
    no mean, and its median f is returned instead.

    Raises ValueError for degrees or a scale that are not one positive number.

    Examples:
        >>> likelihood = kernax.likelihoods.StudentT(degrees=4.0, scale=1.0)
        >>> near = likelihood(jnp.array(1.0), jnp.array(0.0))
        >>> far = likelihood(jnp.array(9.0), jnp.array(0.0))
        >>> round(float(far - near), 2)  # of a normal density it would be 40
        7.08
    """

    of_difference = True
    degrees: Float[ParameterArray, ""] = positive(default=4.0)
    scale: Float[ParameterArray, ""] = positive(default=1.0)

    def __check_init__(self):
        check_one_number(self.degrees, "degrees", _NOT_OF_EACH_POINT)
        check_one_number(self.scale, "scale", _NOT_OF_EACH_POINT)

    @property
    def convex(self):
        return False

    def __call__(self, y, f):
        return self.of_square(((y - f) / self.scale) ** 2)

    def of_square(self, squares: Values) -> Values:
        """The loss as a function of z^2, in which it is concave."""
        # Use b = 1 / nu, which is small for many degrees of freedom, so that derivatives keep their
        # digits.
        b = 1 / self.degrees
        # rising = log(Gamma((nu + 1) / 2) / Gamma(nu / 2)) - log(nu / 2) / 2, and log(2 pi) / 2 +
        # log(nu / 2) / 2 = log(pi nu) / 2.
        rising = log_rising(jnp.full_like(b, 0.5), 2 * b)
        constant = jnp.log(self.scale) + math.log(2 * math.pi) / 2 - rising
        return (1 + b) / 2 * scaled_log1p(squares, b) + constant

    def derivative(self, y, f):
        b = 1 / self.degrees
        z = (y - f) / self.scale
        # -(nu + 1) z / (nu + z^2) / scale.
        return -(1 + b) * z / (1 + b * z**2) / self.scale

    def curvature(self, y, f):
        b = 1 / self.degrees
        squares = ((y - f) / self.scale) ** 2
        # (nu + 1) (nu - z^2) / (nu + z^2)^2 / scale^2, negative for |z| > sqrt(nu). It is divided
        # by `bent` twice, because the square of `bent` may overflow.
        bent = 1 + b * squares
        return (1 + b) / bent * ((1 - b * squares) / bent) / self.scale**2

    def response(self, f):
        return f

    def moments(self, f):
        known = self.degrees > 2
        ratio = 1 + 2 / jnp.where(known, self.degrees - 2, 1)
        # scale^2 nu / (nu - 2) = scale^2 (1 + 2 / (nu - 2)).
        variance = jnp.where(known, self.scale**2 * ratio, jnp.inf)
        return f, jnp.ones_like(f) * variance

    def bounded_loss(self, y, mean, variance):
        # Jensen's inequality, as the loss is concave in z^2: E z^2 = ((y - m)^2 + v) / scale^2.
        off = (y - mean) / self.scale
        return self.of_square(off**2 + variance / self.scale / self.scale)

    def turn(self, y, mean, unit, ends):
        # The width of the likelihood, or the distance of its poles from the real line.
        unit = positive_or_one(unit)
        width = self.scale * jnp.sqrt(jnp.minimum(self.degrees, 1))
        return (y - mean) / unit, width / unit

    def window(self, y, mean, variance):
        # The product may have two modes. It is below its value at the mean wherever the normal
        # distribution decreases by more than the likelihood can increase.
        powers, _ = size(mean.dtype)
        rise = self(y, mean) - self(y, y)
        reach = jnp.sqrt(2 * (powers + rise) * variance)
        return -reach, reach


class NegativeBinomial(AbstractLikelihood):
    """Counts y >= 0 with mean `m = exp(f)` and variance `m + dispersion m^2`: Poisson counts with
    varying rates (Hilbe 2011, section 8.2).

    With `r = 1 / dispersion` it is `(y + r) log(1 + m / r) - y log(m / r) - log C(y + r - 1, y)`;
    as the dispersion tends to zero it tends to `Poisson`.

    Raises ValueError for a dispersion that is not one positive number.

    Examples:
        >>> likelihood = kernax.likelihoods.NegativeBinomial(dispersion=0.5)
        >>> round(float(likelihood(jnp.array(2.0), jnp.array(0.0))), 3)
        1.91
    """

    targets = "counts"
    dispersion: Float[ParameterArray, ""] = positive(default=1.0)

    def __check_init__(self):
        check_one_number(self.dispersion, "dispersion", _NOT_OF_EACH_POINT)

    def __call__(self, y, f):
        # Without y log(r), which cancels between two terms:
        # r log(1 + m / r) + y log(1 + m / r) - y f - log(Gamma(r + y) / Gamma(r) / r^y) + log y!
        is_few, mean, log_odds, dispersion = self._odds(f)
        log_failure = softplus(log_odds)
        of_failures = jnp.where(
            is_few, scaled_log1p(mean, self.dispersion), log_failure / dispersion
        )
        of_counts = jnp.where(is_few, jnp.log1p(self.dispersion * mean), log_failure)
        ways = log_rising(y, self.dispersion) - gammaln(y + 1)
        return of_failures + y * of_counts - y * f - ways

    def derivative(self, y, f):
        # (m - y) / (1 + m / r)
        damped, share = self._damped_mean_and_share(f)
        return damped - y * share

    def curvature(self, y, f):
        # m (1 + y / r) / (1 + m / r)^2
        damped, share = self._damped_mean_and_share(f)
        return (1 + self.dispersion * y) * damped * share

    def _odds(self, f: Values) -> tuple[Array, Values, Values, Values]:
        """Whether `m / r < 1`; m in that case; and, for the other case, where m may overflow,
        `log(m / r)` and the dispersion. Unused numbers are harmless.
        """
        is_few = f + jnp.log(self.dispersion) < 0
        dispersion = jnp.where(is_few, 1, self.dispersion)
        log_odds = jnp.where(is_few, 0, f) + jnp.log(dispersion)
        return is_few, jnp.exp(jnp.where(is_few, f, 0)), log_odds, dispersion

    def _damped_mean_and_share(self, f: Values) -> tuple[Values, Values]:
        """`m / (1 + m / r)` and `1 / (1 + m / r)`."""
        is_few, mean, log_odds, dispersion = self._odds(f)
        of_few = 1 / (1 + self.dispersion * mean)
        damped = jnp.where(is_few, mean * of_few, jax.nn.sigmoid(log_odds) / dispersion)
        return damped, jnp.where(is_few, of_few, jax.nn.sigmoid(-log_odds))

    def response(self, f):
        return jnp.exp(f)

    def moments(self, f):
        mean = jnp.exp(f)
        return mean, mean + self.dispersion * mean**2

    @renamed(nodes="n_nodes")
    def predicted_moments(self, mean, variance, n_nodes=None):
        # E exp(f) = exp(m + v / 2), and the variance of exp(f) is that squared times exp(v) - 1.
        centre = jnp.exp(mean + variance / 2)
        spread = jnp.expm1(variance) + self.dispersion * jnp.exp(variance)
        return centre, centre + centre**2 * spread


class Categorical(AbstractLoss):
    """`-log softmax(f)_c` for a one-hot row y of class c, with one value f for each class.

    Examples:
        >>> likelihood = kernax.likelihoods.Categorical()
        >>> Y, F = jnp.array([[0.0, 1.0]]), jnp.array([[0.0, 0.0]])
        >>> jnp.round(likelihood(Y, F), 3)  # log 2
        Array([0.693], dtype=float64)
    """

    targets = "classes"

    def __call__(self, y: Float[Array, "n c"], f: Float[Array, "n c"]) -> Float[Array, " n"]:
        return -jnp.sum(y * jax.nn.log_softmax(f), -1)

    def derivative(self, y: Float[Array, "n c"], f: Float[Array, "n c"]) -> Float[Array, "n c"]:
        return jax.nn.softmax(f) - y

    def response(self, f: Float[Array, "n c"]) -> Float[Array, "n c"]:
        return jax.nn.softmax(f)


class CustomLikelihood(AbstractLikelihood):
    """`-log_density(parameters, y, f)`, for a function of one y and one f; JAX computes derivatives
    in f.

    Both functions are static, so everything that is learned must be in `parameters`, a module or
    any pytree of arrays. The density must be log-concave in f and twice differentiable, which is
    not checked. Predictions of y need `mean_and_variance(parameters, f)`, the moments of y given f,
    and raise ValueError without it.

    Examples:
        >>> def log_density(rate, y, f):
        ...     return jnp.log(rate) - rate * jnp.exp(f) * y + f  # waiting times
        ...
        >>> likelihood = kernax.likelihoods.CustomLikelihood(log_density, parameters=jnp.array(2.0))
        >>> round(float(likelihood(jnp.array(1.0), jnp.array(0.0))), 3)  # 2 - log 2
        1.307
    """

    log_density: Callable = eqx.field(static=True)
    parameters: PyTree = ()
    mean_and_variance: Callable | None = eqx.field(static=True, default=None, kw_only=True)

    def __check_init__(self):
        check_callable(self.log_density, "log_density")
        if self.mean_and_variance is not None:
            check_callable(self.mean_and_variance, "mean_and_variance")

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
                "this CustomLikelihood has no mean and variance of y: pass "
                "mean_and_variance=function, where function(parameters, f) returns both"
            )
        return _element_by_element(lambda f: of_one(self.parameters, f), f)

    def _one(self, y: Float[Array, ""], f: Float[Array, ""]) -> Float[Array, ""]:
        """The negative logarithm for one observation."""
        return -self.log_density(self.parameters, y, f)


def _element_by_element(function: Callable, *arrays: Values) -> Any:
    """The function applied to each entry of arrays of one shape, (n,) or ()."""
    return function(*arrays) if arrays[0].ndim == 0 else jax.vmap(function)(*arrays)


class Shifted(AbstractLikelihood):
    """`-log p(y | f + mean)`: a likelihood of f, the process without its mean."""

    inner: AbstractLikelihood
    mean: Float[Array, " n"]

    @property
    def convex(self):
        return self.inner.convex

    def compared(self, y: Values, f: Values) -> tuple[Values, Values]:
        """The y and f of the inner likelihood. If it depends only on y - f the mean is subtracted
        from y, which costs f no digits.
        """
        return (y - self.mean, f) if self.inner.of_difference else (y, f + self.mean)

    def __call__(self, y, f):
        return self.inner(*self.compared(y, f))

    def derivative(self, y, f):
        return self.inner.derivative(*self.compared(y, f))

    def curvature(self, y, f):
        return self.inner.curvature(*self.compared(y, f))

    def response(self, f):
        return self.inner.response(f + self.mean)

    def moments(self, f):
        return self.inner.moments(f + self.mean)

    @renamed(nodes="n_nodes")
    def expected_loss(self, y, mean, variance, n_nodes=None):
        return self.inner.expected_loss(*self.compared(y, mean), variance, n_nodes)

    @renamed(nodes="n_nodes")
    def log_normaliser(self, y, mean, variance, n_nodes=None):
        return self.inner.log_normaliser(*self.compared(y, mean), variance, n_nodes)

    def bounded_loss(self, y, mean, variance):
        return self.inner.bounded_loss(*self.compared(y, mean), variance)


class Powered(AbstractLikelihood):
    """`-w log p(y | f)`: likelihoods to the power of the weights of their points."""

    inner: AbstractLikelihood
    weights: Float[Array, " n"]

    @property
    def convex(self):
        return self.inner.convex

    def __call__(self, y, f):
        return self.weights * self.inner(y, f)

    def derivative(self, y, f):
        return self.weights * self.inner.derivative(y, f)

    def curvature(self, y, f):
        return self.weights * self.inner.curvature(y, f)

    def response(self, f):
        return self.inner.response(f)

    def moments(self, f):
        return self.inner.moments(f)

    @renamed(nodes="n_nodes")
    def expected_loss(self, y, mean, variance, n_nodes=None):
        return self.weights * self.inner.expected_loss(y, mean, variance, n_nodes)

    def bounded_loss(self, y, mean, variance):
        return self.weights * self.inner.bounded_loss(y, mean, variance)
