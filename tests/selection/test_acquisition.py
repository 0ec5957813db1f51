"""Acquisition functions: the expected improvement, also where it underflows."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from conftest import DTYPE, X64, assert_close, needs_x64, untyped

import kernax
from kernax.selection import log_expected_improvement


def at(mean, variance):
    """A process whose value has a given mean and variance."""
    return kernax.GaussianProcess(kernax.Constant(variance), kernax.ConstantMean(mean))


def exact(mean, s, best):
    u = (mpmath.mpf(mean) - best) / s
    return float(mpmath.log(s * (mpmath.npdf(u) + u * mpmath.ncdf(u))))


@pytest.mark.parametrize("u", [-1000.0, -30.0, -5.001, -4.999, -1.0, 0.0, 2.0, 40.0])
def test_it_is_its_formula_with_many_digits(u):
    mean = DTYPE(0.5 * u + 0.25)
    found = jax.jit(lambda mean: log_expected_improvement(at(mean, 0.25), jnp.zeros(1), 0.25))(mean)
    with mpmath.workdps(60):
        expected = exact(float(mean), mpmath.mpf(0.5), mpmath.mpf(0.25))
    # jax.scipy's log Phi is right to 3.5e-13 at u = -30.
    tolerance = 1e-12 if X64 else 5e-6
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("u", [-5.1, -4.9, -50.0, -1e3, -1e4, -1e6])
def test_its_derivatives_keep_their_digits_where_the_improvement_itself_underflows(u):
    """The slope in the mean is `1 / (s (h + u))` for the hazard h of -u, about `-u / s`, and
    `dh/du = -h (h + u)`; the derivative of jax.scipy's log Phi was off by `exp(eps u^2)`.
    """
    mean = DTYPE(u)
    value = lambda mean: log_expected_improvement(at(mean, 1.0), jnp.zeros(1), 0.0)
    slope, curvature = jax.jvp(jax.grad(value), (mean,), (jnp.ones_like(mean),))
    with mpmath.workdps(60):
        t, excess = mpmath.mpf(-float(mean)), mpmath.mpf(0)
        for k in range(2000, 0, -1):  # Mills' ratio is 1 / (t + excess)
            excess = k / (t + excess)
        expected = float(1 / excess), float(((t + excess) * excess - 1) / excess**2)
    # Above -5 the two terms cancel: the curvature there is off by 7.4e-5 in float32.
    rtol = 1e-12 if X64 else 2e-6 if u < -5 else 2e-4
    np.testing.assert_allclose((slope, curvature), expected, rtol=rtol)


def test_it_is_the_mean_of_draws_and_minus_infinity_where_nothing_can_improve(rng):
    X = rng.normal(size=(8, 2)).astype(DTYPE)
    y = np.sin(X[:, 0])
    process = kernax.condition(kernax.RBF(), X, y, 0.01).value
    x = jnp.asarray([0.3, -0.2], DTYPE)
    best = process.mean(x) - 0.1
    draws = process.mean(x) + jnp.sqrt(process.variance(x)) * rng.normal(size=100_000)
    expected = np.log(np.mean(np.maximum(draws - best, 0)))
    assert_close(log_expected_improvement(process, x, best), expected, 0.02)
    certain = at(1.0, 0.0)
    values = [log_expected_improvement(certain, x, best) for best in (0.5, 1.0, 2.0)]
    assert_close(values[0], np.log(0.5), 1e-6)
    assert np.all(np.isneginf(values[1:]))


@needs_x64
def test_what_is_no_process_is_refused_by_name():
    with pytest.raises(ValueError, match="process must be a GaussianProcess"):
        untyped(log_expected_improvement)(kernax.RBF(), jnp.zeros(1), 0.0)
