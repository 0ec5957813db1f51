"""The Matern function of half-integer and of any order, and means over gamma distributions, which
generalise it.
"""

import functools
import math
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

from kernax.core.base.derivatives import custom_jvp
from kernax.core.base.numerics import matmul, positive_or_one, safe_sqrt
from kernax.core.base.special_functions import log_rising, polynomial, scaled_log1p


@custom_jvp
def matern(p: int, q: Array) -> Array:
    """The Matern function of order nu = p + 1/2, p in {0, 1, 2}, of `q = 2 nu s`.

    See Rasmussen & Williams, eq. 4.16. As a function of the square it satisfies `dM_p/dq = -M_{p-1}
    / (2 (2p - 1))`, which is exact at q = 0 as well, where `sqrt` has NaN second derivatives and a
    guarded `sqrt` wrong ones. For p = 0 the slope at q = 0 is infinite, and zero is returned.
    """
    # Bounded where exp(-r) is zero already, because inf * 0 is NaN.
    r = jnp.minimum(safe_sqrt(q), 1e4)
    polynomial = (1, 1 + r, 1 + r + r * r / 3)[p]
    return polynomial * jnp.exp(-r)


@matern.def_jvp
def _matern_jvp(primals, tangents):
    (p, q) = primals
    (_, dq) = tangents
    if p == 0:
        r = safe_sqrt(q)
        # d exp(-sqrt(q)) / dq = -exp(-r) / (2 r).
        slope = jnp.where(r > 0, -jnp.exp(-r) / (2 * positive_or_one(r)), 0)
    else:
        slope = -matern(p - 1, q) / (2 * (2 * p - 1))
    return matern(p, q), slope * dq


@jax.checkpoint  # 192 nodes per pair: recomputed in the backward pass rather than stored
def matern_of_any_order(nu: Array, s: Array) -> Array:
    """The Matern function `2^(1 - nu) / Gamma(nu) r^nu K_nu(r)`, `r = sqrt(2 nu s)`, any nu > 0.

    It is smooth in nu and in s; its limit for large nu is `exp(-s / 2)`. The relative error is
    below 1e-10 in float64 for nu >= 1/2 and about 1e-5 in float32, in addition to `eps s` from
    rounding s itself. For nu <= 1 the slope at s = 0 is infinite, and zero is returned.
    """
    # Bounded where the function is zero already, because inf / inf is NaN.
    s = jnp.minimum(s, jnp.finfo(s.dtype).max / 256)
    seam = _seam(s.dtype)
    is_large = nu > seam
    large = jnp.where(is_large, nu, seam)
    return jnp.where(
        is_large,
        jnp.exp(log_matern_of_large_order(large, s)),
        _matern_of_moderate_order(jnp.where(is_large, seam, nu), s),
    )


def _seam(dtype: Any) -> float:
    """The order above which an expansion replaces quadrature; there both are accurate to 1e-13
    (float64) and 1e-7 (float32). Quadrature loses `eps nu log(nu)`.
    """
    return 30.0 if dtype == jnp.float64 else 8.0


def _matern_of_moderate_order(nu: Float[Array, ""], s: Float[Array, ""]) -> Float[Array, ""]:
    """The Matern function by quadrature, or by its first terms where s is tiny."""
    least = _least_square(s.dtype)
    # From nu = 3/2 on quadrature loses less than sqrt(least) of the slope at any s > 0.
    by_terms = (s < least) & (nu < 1.5)
    near = _rough_matern_near_zero(
        jnp.where(nu < 1.5, nu, 1), jnp.where(by_terms & (s > 0), s, least)
    )
    # The Matern function as the scale mixture `E[exp(-q / 4u)]` over u ~ Gamma(nu, 1), q > 0.
    # With u = exp(t) the integrand decays at least exponentially on both sides of its peak, so
    # the trapezoid rule converges geometrically. Around the peak, `exp(t) = (nu + kappa) / 2`
    # with `kappa = sqrt(nu^2 + q)`, its logarithm decreases by `kappa (cosh t - 1) + nu (sinh t -
    # t)`, which bounds the window in closed form.
    q = 2 * nu * jnp.where(by_terms | (s <= 0), least, s)
    kappa = jnp.sqrt(nu**2 + q)
    peak = jnp.log((nu + kappa) / 2)
    excess = q / (kappa + nu)  # kappa - nu, without cancellation
    digits, count = _quadrature_size(q.dtype)
    # The ends of the window: there the integrand is `exp(-digits)` of its peak at t = 0.
    # To the left each derivative in q decays more slowly by a factor `exp(-t)`. There the
    # integrand ends where `excess cosh t` is large or, if nu ends it earlier, where its first
    # derivative has fallen by more than `exp(-digits)` and the second by half as much.
    # To the right it decreases by at least kappa (cosh t - 1), to the left by excess (cosh t - 1) +
    # nu (|t| - 1 + exp(-|t|)), where either term may end the window.
    right = jnp.arccosh(1 + digits / kappa)
    end = jnp.arccosh(1 + digits / jnp.maximum(excess, _least_square(nu.dtype)))
    decay = jnp.where(nu > 1.5, nu - 1.5, 1)
    left = jnp.where(nu > 1.5, jnp.minimum((digits + nu) / decay, end), end)
    window = lax.stop_gradient((-left, right))
    t, step = _trapezoid_nodes(*window, count)
    # u^nu exp(-u - q / (4 u)) / Gamma(nu) at u = exp(peak + t), as du = u dt.
    exponent = nu * (peak + t) - jnp.exp(peak + t) - q / 4 * jnp.exp(-peak - t)
    far = step * jnp.sum(jnp.exp(exponent - lax.lgamma(nu)))
    # At s = 0 the slope is infinite for nu <= 1, and zero is returned.
    slope = jnp.where(nu > 1, nu / (2 * jnp.where(nu > 1, nu - 1, 1)), 0)
    at_zero = 1 - slope * jnp.where(nu > 1, s, 0)
    return jnp.where(s == 0, at_zero, jnp.where(by_terms, near, far))


def _least_square(dtype: Any) -> float:
    """The smallest s for which quadrature covers the whole integrand."""
    return 1e-22 if dtype == jnp.float64 else 1e-12


def _rough_matern_near_zero(nu: Float[Array, ""], s: Float[Array, ""]) -> Float[Array, ""]:
    """`1 + (x - G x^nu) / (1 - nu)`, `x = nu s / 2`, `G = Gamma(2 - nu) / Gamma(1 + nu)`.

    These are the first terms of the Matern function for 0 < nu < 2 (DLMF 10.27.4 and 10.25.2), as s
    tends to zero. Both are infinite at nu = 1, but with d = 1 - nu and `E = log G - d log x` their
    difference is `-x (exp(E) - 1) / d`, which is finite.
    """
    d = 1 - nu
    x = nu * s / 2
    growth = _log_gamma_ratio(d) - jnp.log(x)
    # (exp(E) - 1) / d = growth (exp(E) - 1) / E, the latter by its series for small E.
    E = growth * d
    is_small = jnp.abs(E) < 1
    small = jnp.where(is_small, E, 0)
    plain = (jnp.exp(jnp.where(is_small, 0, E) + jnp.log(x)) - x) / jnp.where(is_small, 1, d)
    return 1 - jnp.where(is_small, x * growth * polynomial(_EXPM1, small), plain)


_EXPM1 = [1 / math.factorial(j + 1) for j in range(18)]  # coefficients of (exp(u) - 1) / u
_ZETA = {  # Riemann's zeta function at odd numbers
    3: 1.2020569031595942,
    5: 1.0369277551433699,
    7: 1.0083492773819228,
    9: 1.0020083928260822,
    11: 1.0004941886041195,
    13: 1.0001227133475785,
    15: 1.0000305882363071,
    17: 1.0000076371976379,
}
_LOG_GAMMA_RATIO = [
    1 - 2 * np.euler_gamma,
    *((1 - 2 * _ZETA[k] if k % 2 else 1) / k for k in range(2, 18)),
]


def _log_gamma_ratio(d: Float[Array, ""]) -> Float[Array, ""]:
    """`(log Gamma(1 + d) - log Gamma(2 - d)) / d` for -1 < d < 1, by its power series near zero."""
    # log Gamma(1 + d) = -gamma d + sum_k zeta(k) (-d)^k / k, and log Gamma(2 - d) = log(1 - d) +
    # log Gamma(1 - d).
    is_small = jnp.abs(d) < 1 / 8
    large = jnp.where(is_small, 0.5, d)
    return jnp.where(
        is_small,
        polynomial(_LOG_GAMMA_RATIO, jnp.where(is_small, d, 0)),
        (gammaln(1 + large) - gammaln(2 - large)) / large,
    )


def _quadrature_size(dtype: Any) -> tuple[int, int]:
    """The number of powers of e by which an integrand falls within its window, and of nodes."""
    return (38, 192) if dtype == jnp.float64 else (18, 64)


def _trapezoid_nodes(
    start: Float[Array, ""], end: Float[Array, ""], count: int
) -> tuple[Float[Array, " count"], Float[Array, ""]]:
    """The nodes of the trapezoid rule on an interval, and their distance."""
    step = (end - start) / (count - 1)
    return start + step * jnp.arange(count, dtype=start.dtype), step


def log_matern_of_large_order(nu: Float[Array, ""], s: Float[Array, ""]) -> Float[Array, ""]:
    """The logarithm of the Matern function for nu above the seam, by Debye's uniform expansion of
    `K_nu(nu z)`, `z^2 = 2 s / nu` (DLMF 10.41.4), and Stirling's of the gamma function.

    With `w = sqrt(1 + z^2)` and `e = nu (w - 1)` it is

        nu log(1 + e / (2 nu)) - e - log(w) / 2 + sum_k (-1)^k (D_k(1/w) - D_k(1)) / nu^k,

    in which every difference that vanishes with `s / nu` is written as a product, so that
    derivatives in nu, of the size of `(s / nu)^2`, keep their digits.
    """
    w = jnp.sqrt(1 + 2 * (s / nu))
    e = s / ((1 + w) / 2)
    # e = nu (w - 1) = 2 s / (1 + w), as nu (w^2 - 1) = 2 s, and log(w) / 2 = log(1 + 2 s / nu) / 4.
    leading = scaled_log1p(e, 1 / (2 * nu)) / 2 - e - jnp.log1p(2 * (s / nu)) / 4
    # sum_k Q_k(p) / nu^k as one polynomial in p. Its coefficients depend only on nu, and are
    # computed once for all pairs of points.
    quotients = jnp.asarray(_debye_quotients(), nu.dtype)
    powers = nu ** -jnp.arange(1, _DEBYE_TERMS + 1, dtype=nu.dtype)
    p = 1 / w
    corrections = polynomial(jnp.unstack(matmul(powers, quotients)), p)
    # 1 - p = (w - 1) / w
    return leading + corrections * p * (e / nu)


_DEBYE_TERMS = 8  # the next one is 2e-14 at nu = 30 and 3e-9 at nu = 8


@functools.cache
def _debye_quotients() -> np.ndarray:
    """The coefficients of `Q_k(p) = (-1)^k (D_k(p) - D_k(1)) / (1 - p)` in p, one row for each k =
    1, 2, ..., where `log(1 + sum_k U_k(p) x^k) = sum_k D_k(p) x^k`.

    The polynomials U_k of Debye are those of DLMF 10.41.9: `U_{k+1} = p^2 (1 - p^2) / 2 U_k' + 1/8
    integral_0^p (1 - 5 t^2) U_k dt`.
    """
    U = [[Fraction(1)]]
    for _ in range(_DEBYE_TERMS):
        slope = [i * c for i, c in enumerate(U[-1])][1:]
        rising = _product([Fraction(0), Fraction(0), Fraction(1, 2), 0, Fraction(-1, 2)], slope)
        inside = _product([Fraction(1, 8), Fraction(0), Fraction(-5, 8)], U[-1])
        integral = [Fraction(0), *(c / (i + 1) for i, c in enumerate(inside))]
        U.append(_sum(rising, integral))
    D = [[Fraction(0)]]
    for k in range(1, _DEBYE_TERMS + 1):
        # k U_k = sum_j j D_j U_{k-j}
        rest = U[k]
        for j in range(1, k):
            rest = _sum(rest, [-Fraction(j, k) * c for c in _product(D[j], U[k - j])])
        D.append(rest)
    quotients = np.zeros((_DEBYE_TERMS, len(D[-1]) - 1))
    for k in range(1, _DEBYE_TERMS + 1):
        # (-1)^k (D_k(p) - D_k(1)) / (1 - p): the coefficient of p^i is -(-1)^k times the sum of
        # those of D_k above i.
        for i in range(len(D[k]) - 1):
            quotients[k - 1, i] = float(-((-1) ** k) * sum(D[k][i + 1 :]))
    return quotients


def _product(a: list, b: list) -> list:
    """The product of two polynomials."""
    total = [Fraction(0)] * max(len(a) + len(b) - 1, 0)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            total[i + j] += x * y
    return total


def _sum(a: list, b: list) -> list:
    """The sum of two polynomials."""
    longest = max(len(a), len(b))
    longer = lambda c: c + [Fraction(0)] * (longest - len(c))
    return [x + y for x, y in zip(longer(a), longer(b))]


def gamma_mean(alpha: Float[Array, ""], power: float, c: Float[Array, ""]) -> Float[Array, ""]:
    """`E[tau^-power exp(-c / tau)]` over tau from a gamma distribution of mean one and shape alpha.

    With p = alpha - power it is `2 alpha^power (alpha c)^(p/2) K_p(2 sqrt(alpha c)) /
    Gamma(alpha)`; at c = 0 it is infinite for p <= 0. For power 0 it is the Matern function of
    order alpha. The relative error is below 1e-12 in float64, and about 2e-5 in float32 (for alpha
    >= 0.1, up to 5 dimensions), in addition to `eps c`.
    """
    seam = _seam(c.dtype)
    is_large = alpha - power > seam
    moderate = jnp.where(is_large, 1, alpha)
    large = jnp.where(is_large, alpha, seam + power + 1)
    # Gamma(p) alpha^power / Gamma(alpha) times the Matern function of order p at 2 c alpha / p.
    p = large - power
    ratio = power * jnp.log1p(power / p) - log_rising(jnp.full_like(p, power), 1 / p)
    by_expansion = jnp.exp(ratio + log_matern_of_large_order(p, 2 * c * (1 + power / p)))
    return jnp.where(is_large, by_expansion, _gamma_mean_by_quadrature(moderate, power, c))


def _gamma_mean_by_quadrature(
    alpha: Float[Array, ""], power: float, c: Float[Array, ""]
) -> Float[Array, ""]:
    """`gamma_mean` as `alpha^power E[v^-power exp(-q / (4 v))]`, v ~ Gamma(alpha, 1), q = 4 alpha
    c.
    """
    p = alpha - power
    q = 4 * alpha * c
    size = positive_or_one(q)
    # As for `matern_of_any_order`, the trapezoid rule in t = log v converges geometrically.
    digits, count = _quadrature_size(q.dtype)
    # Around its peak the logarithm of the integrand decreases by
    #     kappa (cosh t - 1) + p (sinh t - t), kappa = sqrt(p^2 + q), exp(peak) = (p + kappa) / 2,
    # the last without cancellation where p is negative.
    fixed_p, fixed_q = lax.stop_gradient((p, size))
    kappa = jnp.sqrt(fixed_p**2 + fixed_q)
    order = jnp.abs(fixed_p)
    peak = jnp.arcsinh(fixed_p / jnp.sqrt(fixed_q)) + jnp.log(fixed_q / 4) / 2
    # The ends of the window, where the integrand is `exp(-digits)` of its peak. On the side of the
    # sign of p it decreases by at least kappa (cosh t - 1), on the other by (kappa - |p|) (cosh t -
    # 1) + |p| (|t| - 1 + exp(-|t|)), with kappa - |p| = q / (kappa + |p|).
    near = jnp.arccosh(1 + digits / kappa)
    far = jnp.minimum(jnp.arccosh(1 + digits * (kappa + order) / fixed_q), 1 + digits / order)
    left = jnp.where(fixed_p > 0, far, near)
    right = jnp.where(fixed_p > 0, near, far)
    t, step = _trapezoid_nodes(peak - left, peak + right, count)
    # v^p exp(-v - q / (4 v)) / Gamma(alpha) at v = exp(t), as dv = v dt. For q = 0 its integral is
    # Gamma(p) / Gamma(alpha).
    logarithm = p * t - jnp.exp(t) - size / 4 * jnp.exp(-t) - gammaln(alpha)
    mean = step * jnp.sum(jnp.exp(logarithm))
    at_zero = jnp.where(p > 0, jnp.exp(gammaln(positive_or_one(p)) - gammaln(alpha)), jnp.inf)
    return alpha**power * jnp.where(q > 0, mean, at_zero)
