"""Powers of two, made of the bits of floats."""

import jax
import jax.numpy as jnp
import numpy as np
from conftest import DTYPE

from kernax.core.base.powers import exponent_of, own_unit, power_of_two_below, times_power_of_two

LIMITS = np.finfo(DTYPE)


def test_exponents_are_those_of_numpy_over_the_whole_range(rng):
    exponents = rng.integers(LIMITS.minexp + 1, LIMITS.maxexp, 2000)
    sizes = np.ldexp(rng.uniform(0.5, 1, 2000).astype(DTYPE), exponents)
    sizes = np.append(sizes, [LIMITS.tiny, LIMITS.max, 1.0, 0.5]).astype(DTYPE)
    np.testing.assert_array_equal(exponent_of(jnp.asarray(sizes)), np.frexp(sizes)[1])
    no_size = [0.0, np.inf, np.nan, -1.0, LIMITS.tiny / 2]  # the last one is zero to XLA as well
    np.testing.assert_array_equal(exponent_of(jnp.asarray(no_size, DTYPE)), 0)
    below = np.ldexp(DTYPE(1), np.frexp(sizes)[1] - 1)
    np.testing.assert_array_equal(power_of_two_below(jnp.asarray(sizes)), below)
    without_power = jnp.asarray([0.0, np.inf, np.nan], DTYPE)
    np.testing.assert_array_equal(power_of_two_below(without_power), [0, np.inf, np.inf])
    units = own_unit(jnp.append(without_power, jnp.asarray([-3, LIMITS.max], DTYPE))[:, None], 1)
    np.testing.assert_array_equal(units[:, 0], [1, 1, 1, 2, 1 / LIMITS.tiny])


def test_products_are_exact_wherever_they_are_floats_and_zero_or_infinite_beyond(rng):
    x = np.append(rng.normal(size=2000), [LIMITS.tiny, LIMITS.max, 0.0, np.inf]).astype(DTYPE)
    exponents = rng.integers(-2200, 2200, len(x)).astype(np.int32)
    with np.errstate(over="ignore", under="ignore"):
        expected = np.ldexp(x, exponents)
    ours = np.asarray(times_power_of_two(jnp.asarray(x), jnp.asarray(exponents)))
    normal = (abs(expected) >= LIMITS.tiny) | (expected == 0)
    np.testing.assert_array_equal(ours[normal], expected[normal])
    assert np.all(abs(ours[~normal]) < LIMITS.tiny)
    assert np.sum(np.isinf(expected)) > 100
    assert np.sum(expected == 0) > 100


def test_the_exponent_is_a_constant_to_derivatives():
    def scaled(x):
        return times_power_of_two(x, exponent_of(x))

    assert jax.grad(scaled)(DTYPE(3.0)) == 4
    assert jax.grad(jax.grad(scaled))(DTYPE(3.0)) == 0
