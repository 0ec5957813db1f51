"""Accurate matrix-vector products with terms that cancel."""

import math

import jax.numpy as jnp
from jaxtyping import Array

from kernax.core.base.numerics import matmul
from kernax.core.base.powers import power_of_two_below


def extra_bits(n: int, dtype: jnp.dtype) -> int:
    """The number of additional correct bits of `compensated_product` over `matmul`, for n terms.

    For n = 1000 it is 21 in float64, and 7 in float32.
    """
    # A sum of n products of numbers of b bits has at most 2 b + log2(n) bits, which fit in a float.
    return (jnp.finfo(dtype).nmant + 1 - math.ceil(math.log2(n + 1))) // 2


def compensated_product(K: Array, v: Array) -> Array:
    """`K v` for a vector, with `extra_bits` more than `matmul` if its terms cancel.

    K and v are split into leading bits, few enough that their products are summed without rounding
    error (Ozaki et al. 2012, Numerical Algorithms 59), and a rest, whose products are rounded.
    Derivatives are meaningless.
    """
    bits = extra_bits(len(v), v.dtype)
    coarse_K = _coarse(K, bits)
    coarse_v = _coarse(v, bits)
    # v1 = (v + c) - c rounds v to the digits of c.
    leading_v = (v + coarse_v) - coarse_v
    leading_K = (K + coarse_K) - coarse_K
    # K v = K1 v1 + K (v - v1) + (K - K1) v1 with the leading bits K1 and v1.
    rest = matmul(K, v - leading_v) + matmul(K - leading_K, leading_v)
    return matmul(leading_K, leading_v) + rest


def _coarse(x: Array, bits: int) -> Array:
    """A number that, added to x and subtracted again, leaves the leading bits of x.

    These are the `bits` leading ones of the largest entry.
    """
    digits = jnp.finfo(x.dtype).nmant + 1
    # With unit = 2^-bits times the power of two above the largest entry, floats near
    # 1.5 2^(digits - 1) unit are one unit apart, so adding it rounds x to units.
    return 1.5 * 2.0 ** (digits - bits) * power_of_two_below(jnp.max(abs(x)))
