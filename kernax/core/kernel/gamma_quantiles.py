"""Draws from gamma distributions that are smooth in the shape parameter."""

import functools

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammainc, gammaln
from jax.scipy.stats import norm
from jaxtyping import Array, Float

from kernax.core.base.special_functions import polynomial

_SEAM = 100.0  # the shape above which an expansion replaces Newton's method


def gamma_quantiles(
    alpha: Float[Array, ""], normal: Float[Array, " count"]
) -> Float[Array, " count"]:
    """The quantiles of a gamma distribution of shape alpha and mean one at the probabilities of
    standard normal numbers. They are draws that are smooth in alpha, and never zero.

    `jax.random.gamma` uses rejection sampling, so that its draws jump as alpha changes, and its
    derivative is not that of a draw.
    """
    is_large = alpha > _SEAM
    moderate = jnp.where(is_large, 1, alpha)
    large = jnp.where(is_large, alpha, _SEAM)
    # The logarithms of the quantiles by Temme's expansion, `sum_k t_k(normal / sqrt(alpha)) /
    # alpha^k`, accurate to 1e-14 above the seam.
    eta = jnp.clip(normal, -_FARTHEST, _FARTHEST) / jnp.sqrt(large)
    total = jnp.zeros_like(eta)
    for coefficients in reversed(_temme_coefficients()):
        total = total / large + polynomial(coefficients, eta)
    by_expansion = jnp.exp(total)
    # The quantiles of Gamma(alpha, 1).
    limits = jnp.finfo(moderate.dtype)
    # Above this, F is one to rounding, and no number has that probability.
    log_u = jnp.minimum(norm.logcdf(normal), -2 * limits.eps)
    lowest = jnp.log(limits.tiny * 8)
    # Newton's method for t = log v with log F(v) = log u, which is concave in t, so that the
    # iteration never overshoots from a lower bound. The bound follows from F(v) <= v^alpha /
    # Gamma(alpha + 1).
    a = lax.stop_gradient(moderate)
    start = jnp.maximum((log_u + gammaln(a + 1)) / a, lowest)

    def step(alpha: Float[Array, ""], t: Float[Array, " count"]) -> Float[Array, " count"]:
        # The slope d log F(exp(t)) / dt is a constant for derivatives.
        F = gammainc(alpha, jnp.exp(t))
        slope = lax.stop_gradient(jnp.exp(alpha * t - jnp.exp(t) - gammaln(alpha)) / F)
        return jnp.maximum(t - (jnp.log(F) - log_u) / slope, lowest)

    t = lax.fori_loop(0, 24, lambda _, t: step(a, t), start)
    # One more step from the solution, in which alpha has a derivative: dt / dalpha = -(d log F /
    # dalpha) / (d log F / dt), by the implicit function theorem.
    by_newton = jnp.exp(step(moderate, t))
    return jnp.where(is_large, by_expansion, by_newton / moderate)


_FARTHEST = 9.0  # drawn normal numbers are not larger: the probability is 1e-19
_ORDERS = 5  # of 1 / alpha
_DEGREE = 24  # in normal / sqrt(alpha), which is at most 0.9; the series converge below 3.5


@functools.cache
def _temme_coefficients() -> list[list[float]]:
    """The power series of `t_k(eta)`, k = 0, 1, ..., where `t = sum_k t_k / alpha^k` is the
    logarithm of a quantile over its mean, and `eta sqrt(alpha)` the normal number (Temme 1992,
    "Asymptotic inversion of incomplete gamma functions", by another derivation).

    With Stirling's remainder st of log Gamma(alpha), equal probabilities mean that

        log(dt / d eta) = alpha (exp(t) - 1 - t - eta^2 / 2) + st(alpha).

    The leading terms are `exp(t_0) - 1 - t_0 = eta^2 / 2`, and those of `alpha^-k` give t_{k+1}:
    `mu t_{k+1} + (1 + mu) R_{k+1} + st_k = log(dt / d eta)_k` with `mu = exp(t_0) - 1` and R the
    terms of `exp(t_1 / alpha + t_2 / alpha^2 + ...)` that have no t_{k+1}.
    """
    # Each order loses two coefficients, by a derivative and by a quotient.
    size = _DEGREE + 2 * _ORDERS
    product = lambda a, b: np.convolve(a, b)[:size]
    one = np.eye(1, size)[0]
    stirling = [0, 1 / 12, 0, -1 / 360, 0]
    mu = _leading(size + 1)
    slope = _reciprocal(mu[1:])  # dt_0 / d eta = eta / mu
    t = [_integral(slope)]
    logarithms = [_integral(product(_derivative(slope), mu[1:]))]  # of dt / d eta, by order
    ratios = [one]  # dt / d eta over that of t_0
    powers = [one]  # of exp(t_1 / alpha + ...)
    for order in range(1, _ORDERS + 1):
        # order R_order = sum_j j t_j R_{order-j}, of which R_order = rest + t_order
        rest = np.zeros(size)
        for j in range(1, order):
            rest = rest + j / order * product(t[j], powers[order - j])
        # mu t_order = log(dt / d eta) - st - (1 + mu) rest, at the order before
        known = logarithms[order - 1] - stirling[order - 1] * one - product(one + mu[:size], rest)
        t.append(product(np.append(known[1:], 0), slope))
        powers.append(rest + t[order])
        ratios.append(product(_derivative(t[order]), mu[1:]))
        # order L_order = order r_order - sum_j j L_j r_{order-j}, L the logarithm of the ratios
        logarithm = ratios[order]
        for j in range(1, order):
            logarithm = logarithm - j / order * product(logarithms[j], ratios[order - j])
        logarithms.append(logarithm)
    return [series[:_DEGREE].tolist() for series in t]


def _leading(size: int) -> np.ndarray:
    """The series of mu in eta, `mu - log(1 + mu) = eta^2 / 2`: `mu mu' = eta (1 + mu)`."""
    # At eta^n: sum_i mu_i (n + 1 - i) mu_(n + 1 - i) = mu_(n - 1), in which mu_n occurs for i = 1
    # and i = n, as (n + 1) mu_n.
    mu = [0.0, 1.0]
    for n in range(2, size):
        crossed = sum(mu[i] * (n + 1 - i) * mu[n + 1 - i] for i in range(2, n))
        mu.append((mu[n - 1] - crossed) / (n + 1))
    return np.array(mu)


def _reciprocal(series: np.ndarray) -> np.ndarray:
    """The series of the reciprocal of a series that begins with one."""
    # sum_i a_i b_(n - i) = 0 for n > 0, with a_0 = 1.
    inverse = [1.0]
    for n in range(1, len(series)):
        inverse.append(-sum(series[i] * inverse[n - i] for i in range(1, n + 1)))
    return np.array(inverse)


def _derivative(series: np.ndarray) -> np.ndarray:
    """The series of the derivative, with the same number of terms, the last one zero."""
    return np.append(series[1:] * np.arange(1, len(series)), 0)


def _integral(series: np.ndarray) -> np.ndarray:
    """The series of the integral from zero, with the same number of terms."""
    return np.append(0, series / np.arange(1, len(series) + 1))[: len(series)]
