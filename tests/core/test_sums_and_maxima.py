"""Sums and maxima of several vectors in one loop."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from conftest import DTYPE, TOLERANCE

from kernax.core.base.numerics import sums_and_maxima


def test_sums_have_one_rounding_where_terms_cancel():
    rng = np.random.default_rng(0)
    v = rng.normal(size=20_000).astype(DTYPE) * DTYPE(1e4)
    v = np.concatenate([v, -v, v[:7]])
    (total,), _ = jax.jit(lambda v: sums_and_maxima([v], []))(v)
    np.testing.assert_allclose(total, math.fsum(v), rtol=4 * np.finfo(DTYPE).eps)


def test_each_vector_has_its_own_sum_or_maximum_alone_and_in_batches():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 5, 40)).astype(DTYPE)
    reduced = lambda a, b: sums_and_maxima([a, (b > 0).astype(int)], [b, b > 5, a > 0])
    for of in (lambda a, b: reduced(a[0], b[0]), jax.vmap(reduced)):
        (total, count), (largest, none, some) = jax.jit(of)(a, b)
        rows = slice(None) if total.ndim else 0
        np.testing.assert_allclose(total, np.sum(a, 1)[rows], rtol=TOLERANCE["value"], atol=1e-5)
        np.testing.assert_array_equal(count, np.sum(b > 0, 1)[rows])
        np.testing.assert_array_equal(largest, np.max(b, 1)[rows])
        assert not np.any(none)
        assert np.all(some)


def test_what_is_not_finite_is_not_hidden():
    v = jnp.array([1.0, jnp.inf, 2.0, 3.0], DTYPE)
    (total, unknown), (largest, nan) = sums_and_maxima([v, v * jnp.nan], [v, v * jnp.nan])
    assert np.isposinf(total)
    assert np.isposinf(largest)
    assert np.isnan(unknown)
    assert np.isnan(nan)
