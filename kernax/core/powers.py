"""Powers of two: units in which squares and products stay in the range of floats, and which change no bit."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


def times_power_of_two(x: Array, exponent: Array) -> Array:
    """`x 2^exponent`, exactly, for whole numbers that are constants to every derivative.

    In three steps, whose powers are floats whatever the product is. (Of `jnp.ldexp` inside `scan`, jax 0.10.2 takes wrong
    second derivatives, and it compiles to many times as much.)
    """
    exponent = lax.stop_gradient(exponent).astype(jnp.int32)
    most = jnp.asarray(3 * (_bias(x.dtype) - 1), jnp.int32)
    exponent = lax.clamp(-most, exponent, most)  # beyond, every product is zero or inf as well
    third = lax.div(exponent, jnp.full_like(exponent, 3))
    factor, last = _power_of_two(third, x.dtype), _power_of_two(exponent - 2 * third, x.dtype)
    return x * factor * factor * last


def exponent_of(size: Array) -> Array:
    """The exponent of the power of two next above a size; zero for inf, NaN, and what is below all normal floats.

    A constant to every derivative.
    """
    size = lax.stop_gradient(size)
    limits = jnp.finfo(size.dtype)
    bits = lax.bitcast_convert_type(size, _as_wide(size.dtype)) >> limits.nmant
    return jnp.where((size >= limits.tiny) & (size <= limits.max), bits.astype(jnp.int32) - (_bias(size.dtype) - 1), 0)


def _power_of_two(exponent: Array, dtype: jnp.dtype) -> Array:
    """`2^exponent` as a normal float: its exponent, moved to where floats have theirs."""
    bits = (exponent + _bias(dtype)).astype(_as_wide(dtype)) << jnp.finfo(dtype).nmant
    return lax.bitcast_convert_type(bits, dtype)


def _bias(dtype: jnp.dtype) -> int:
    """What floats add to their exponent."""
    return int(jnp.finfo(dtype).maxexp) - 1


def _as_wide(dtype: jnp.dtype) -> jnp.dtype:
    """Integers of as many bits as floats."""
    return jnp.dtype(f"int{jnp.finfo(dtype).bits}")
