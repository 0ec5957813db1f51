"""Functions that stay accurate, with their derivatives, for large shape parameters: nu of Matern
kernels, alpha of rational quadratic kernels, degrees of freedom, and sizes of counts.

Written with logarithms of the gamma function, such functions are small differences of numbers of
the size of `nu log(nu)`. Written with `log1p(x / nu)`, their derivatives in nu are such
differences.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.derivatives import custom_jvp

_ARCTANH_TERMS = 18  # at u^2 = 1/9 the next one is 1e-18


@custom_jvp
def scaled_log1p(x: Array, b: Array) -> Array:
    """`log(1 + b x) / b` for x >= 0 and b >= 0, and its limit x at b = 0.

    Its derivatives lose no digits where b x is small. The derivative of `log1p(b x) / b` in b has a
    relative error of `eps / (b x)`.
    """
    u = b * x
    # log(1 + u) / b = x (1 - u / 2 + ...) is x to rounding where u is below eps / 4.
    bends = u > jnp.finfo(u.dtype).eps / 4
    return jnp.where(bends, jnp.log1p(u) / jnp.where(bends, b, 1), x)


@scaled_log1p.def_jvp
def _scaled_log1p_jvp(primals, tangents):
    # d/db = (u / (1 + u) - log(1 + u)) / b^2 with u = b x. In v = u / (2 + u), where
    # log(1 + u) = 2 arctanh(v) and u / (1 + u) = 2 v / (1 + v), it is a sum of negative terms:
    # -x^2 (1 - v)^2 / 2 (1 / (1 + v) + v T), T = (arctanh(v) / v - 1) / v^2.
    # No term is computed for constants, such as degrees of freedom that are not learned.
    (x, b) = primals
    (dx, db) = tangents
    value = scaled_log1p(x, b)
    u = b * x
    change = jnp.zeros_like(value)
    if dx is not None:
        change = dx / (1 + u)
    if db is not None:
        # Bounded, because inf / inf is NaN.
        most = jnp.finfo(x.dtype).max / 4
        x = jnp.minimum(x, most)
        u = jnp.minimum(u, most)
        v = u / (2 + u)
        # `(arctanh(v) / v - 1) / v^2 = 1/3 + v^2 / 5 + v^4 / 7 + ...`, where `v = u / (2 + u)`.
        is_small = u < 1
        small = jnp.where(is_small, v, 0) ** 2
        series = jnp.zeros_like(small)
        for k in range(_ARCTANH_TERMS, 0, -1):
            series = series * small + 1 / (2 * k + 1)
        large_u = jnp.where(is_small, 1, u)
        large_v = large_u / (2 + large_u)
        remainder = jnp.where(
            is_small, series, (jnp.log1p(large_u) / (2 * large_v) - 1) / large_v**2
        )
        # x (1 - v) is finite where x^2 is not.
        in_b = -((2 * x / (2 + u)) ** 2) / 2 * (1 / (1 + v) + v * remainder)
        change = change + in_b * db
    return value, change


def log_rising(y: Array, b: Array) -> Array:
    """`log(Gamma(r + y) / Gamma(r)) - y log(r)` with `r = 1 / b`, which tends to zero with b.

    For r > 20 it is computed by Stirling's series, whose derivatives in b are accurate.
    """
    is_large = b < 1 / 20
    few = jnp.where(is_large, b, 1 / 20)
    # By log Gamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + st(x) at x = r + y and at r it is
    # (r + y - 1/2) log(1 + b y) - y + st(r + y) - st(r), with r log(1 + b y) = log(1 + b y) / b.
    powers = scaled_log1p(y, few) - y + (y - 0.5) * jnp.log1p(few * y)
    series = powers + _stirling(few / (1 + few * y)) - _stirling(few)
    r = 1 / jnp.where(is_large, 1, b)
    return jnp.where(is_large, series, gammaln(r + y) - gammaln(r) - y * jnp.log(r))


# The coefficients of log Gamma(x) in 1 / x, 1 / x^3, ... (DLMF 5.11.1). At x = 20 the next term is
# 1e-17, and 4e-13 in the second derivative.
_STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188]


def _stirling(b: Array) -> Array:
    """`log Gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2` with x = 1 / b >= 20."""
    return b * polynomial(_STIRLING, b**2)


def polynomial(coefficients: Sequence[ArrayLike], x: Array) -> Array:
    """`sum_j coefficients_j x^j`, by Horner's rule."""
    total = jnp.zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


@custom_jvp
def softplus(x: Array) -> Array:
    """`log(1 + exp(x))`, which neither overflows nor loses digits, as `jax.nn.softplus`, whose rule
    of differentiation is lost in loops (see `custom_jvp`).
    """
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


@softplus.def_jvp
def _softplus_jvp(primals, tangents):
    # d log(1 + exp(x)) / dx = 1 / (1 + exp(-x)).
    (x,) = primals
    (dx,) = tangents
    return softplus(x), dx * jax.nn.sigmoid(x)
