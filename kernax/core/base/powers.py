"""Exact scaling by powers of two, which keeps squares and products in the range of floats."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import where_or


class PowersOfTwo(eqx.Module):
    """`2^exponent` for integer exponents that are constants for derivatives, as a product of three
    powers, two of them equal, each of which is a normal float.
    """

    factor: Array
    last: Array

    @staticmethod
    def of(exponent: Array, dtype: Any) -> "PowersOfTwo":
        """The powers with these exponents, for numbers of a dtype."""
        exponent = lax.stop_gradient(exponent).astype(jnp.int32)
        most = 3 * (_bias(dtype) - 3)
        # With larger exponents the products are zero or inf as well.
        exponent = lax.clamp(np.int32(-most), exponent, np.int32(most)).astype(_as_wide(dtype))
        # 2^e = 2^t 2^t 2^(e - 2 t), t = e / 3 towards zero.
        third = lax.div(exponent, jnp.full_like(exponent, 3))
        return PowersOfTwo(_power_of_two(third, dtype), _power_of_two(exponent - 2 * third, dtype))

    def unstack(self) -> "list[PowersOfTwo]":
        """One power for each entry of a vector of them."""
        return [PowersOfTwo(*parts) for parts in zip(self.factor, self.last)]

    def times(self, x: Any) -> Any:
        """The exact products with an array, or with a tree of arrays."""
        # One factor after the other, because 2^exponent itself may leave the range of floats.
        return jax.tree.map(lambda x: x * self.factor * self.factor * self.last, x)


def times_power_of_two(x: Any, exponent: Array) -> Any:
    """`x 2^exponent`, exactly, for integer exponents that are constants for derivatives.

    x is an array, or a tree of arrays of one dtype. (In jax 0.10.2 `jnp.ldexp` has wrong second
    derivatives inside `scan`, and compiles to a much larger program.)
    """
    return PowersOfTwo.of(exponent, jax.tree.leaves(x)[0].dtype).times(x)


def exponent_of(size: Array) -> Array:
    """The exponent of the next power of two above a size; zero for inf, NaN and subnormal floats.

    It is a constant for derivatives.
    """
    size = lax.stop_gradient(size)
    limits = jnp.finfo(size.dtype)
    # size = f 2^(bits - bias) with 1 <= f < 2 is below 2^(bits - bias + 1).
    bits = lax.bitcast_convert_type(size, _as_wide(size.dtype)) >> limits.nmant
    is_normal = (size >= limits.tiny) & (size <= limits.max)
    return jnp.where(is_normal, bits.astype(jnp.int32) - (_bias(size.dtype) - 1), 0)


def power_of_two_below(size: Array) -> Array:
    """The largest power of two up to a size; zero for zero and subnormal floats, inf for inf and
    NaN.

    It is a constant for derivatives.
    """
    size = lax.stop_gradient(size)
    # The float with the same exponent, and a mantissa of zeros.
    bits = lax.bitcast_convert_type(size, _as_wide(size.dtype))
    mantissa = (1 << jnp.finfo(size.dtype).nmant) - 1
    return lax.bitcast_convert_type(bits & ~mantissa, size.dtype)


def own_unit(x: Array, axis: int | None = None) -> Array:
    """The largest power of two up to the largest entry of x, of each row or column with an axis,
    which is kept; 1 if that entry is zero, subnormal or not finite.

    Quotients by it and products with it are exact, unless the result leaves the range of normal
    floats.
    """
    unit = power_of_two_below(jnp.max(jnp.abs(x), axis, keepdims=axis is not None))
    # XLA multiplies by the reciprocal, which would be zero for the largest power of two.
    most = 1 / jnp.finfo(x.dtype).tiny
    return where_or((unit > 0) & (unit < jnp.inf), jnp.minimum(unit, most), 1.0)


def in_own_unit(x: Array, axis: int | None = None) -> tuple[Array, Array]:
    """`x / unit`, with squares and products in the range of floats, and the unit, `own_unit`."""
    unit = own_unit(x, axis)
    return x / unit, unit


def normal_power_of_two(exponent: Int[Array, "*n"], dtype: Any) -> Array:
    """`2^exponent`, exactly, in the range of normal floats; zero below it, and inf above."""
    bias = _bias(dtype)
    bits = lax.clamp(np.int32(0), exponent + np.int32(bias), np.int32(2 * bias + 1))
    return lax.bitcast_convert_type(bits.astype(_as_wide(dtype)) << jnp.finfo(dtype).nmant, dtype)


def lengths(A: Float[Array, "n p"]) -> Float[Array, " p"]:
    """The length of each column, with squares in the range of floats."""
    # |a| = u |a / u|.
    A, unit = in_own_unit(A, 0)
    return jnp.linalg.norm(A, axis=0) * unit[0]


def _power_of_two(exponent: Array, dtype: jnp.dtype) -> Array:
    """`2^exponent`, exactly, for integers as wide as the floats and |exponent| below the bias.

    It is the reciprocal of a normal float that is assembled from its bits. XLA repeats the
    arithmetic of a scalar factor in every loop that uses it, but not a division.
    """
    # The float 2^-exponent has the exponent plus the bias, and a mantissa of zeros.
    bits = (_bias(dtype) - exponent) << jnp.finfo(dtype).nmant
    return lax.integer_pow(lax.bitcast_convert_type(bits, dtype), -1)


def _bias(dtype: jnp.dtype) -> int:
    """The bias of the exponent in the bits of a float."""
    return int(jnp.finfo(dtype).maxexp) - 1


def _as_wide(dtype: jnp.dtype) -> jnp.dtype:
    """Integers with as many bits as the floats of a dtype."""
    return jnp.dtype(f"int{jnp.finfo(dtype).bits}")
