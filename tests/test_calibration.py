"""Probabilities from decision values: Platt, isotonic, and leaving points out of a machine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from conftest import X64, needs_x64
from sklearn.isotonic import IsotonicRegression

import kernax

DTYPE = jnp.result_type(float)


@pytest.fixture
def values():
    rng = np.random.default_rng(0)
    f = rng.normal(size=50).astype(DTYPE)
    f[10] = f[11]
    return f, np.sign(f + rng.normal(size=50)), rng.uniform(0.5, 2, 50).astype(DTYPE)


def test_platts_sigmoid_maximises_the_likelihood_of_softened_targets(values):
    f, y, weights = values
    plus, minus = weights[y > 0].sum(), weights[y < 0].sum()
    t = np.where(y > 0, (plus + 1) / (plus + 2), 1 / (minus + 2))

    def objective(x):
        margin = x[0] * f.astype(float) + x[1]
        return np.sum(weights * (t * np.logaddexp(0, -margin) + (1 - t) * np.logaddexp(0, margin)))

    found = scipy.optimize.minimize(objective, [1.0, 0.0], tol=1e-10).x
    ours = kernax.platt(f, y, weights=weights).value
    np.testing.assert_allclose([ours.slope, ours.intercept], found, rtol=1e-4)
    assert jnp.all((ours(f) > 0) & (ours(f) < 1))
    constant = kernax.platt(np.ones(50, DTYPE), y, weights=weights).value
    np.testing.assert_allclose(constant(np.ones(3, DTYPE)), (weights * t).sum() / weights.sum(), rtol=1e-4)
    separated = kernax.platt(y.astype(DTYPE), y).value
    assert jnp.isfinite(separated.slope)


def test_isotonic_probabilities_are_scikit_learns_and_rise(values):
    f, y, weights = values
    ours = kernax.isotonic(f, y, weights=weights)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(f, y > 0, sample_weight=weights)
    np.testing.assert_allclose(ours(f), theirs.predict(f), atol=1e-12 if X64 else 1e-5)
    assert jnp.all(jnp.diff(ours(jnp.sort(f))) >= 0)


@needs_x64
def test_leaving_points_out_is_fitting_without_them(values):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(24, 2))
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=24))
    solver = kernax.SMO(tol=1e-8)
    left_out = kernax.svm_leave_one_out(kernax.RBF(1.0), X, y, 1.0, solver=solver)
    for i in (0, 3, 11):
        without = kernax.svm(kernax.RBF(1.0), np.delete(X, i, 0), np.delete(y, i), 1.0, solver=solver).value
        np.testing.assert_allclose(left_out[i], without(X[i]), atol=1e-6)
    assert np.mean(np.sign(left_out) != y) >= np.mean(np.sign(jax.vmap(kernax.svm(kernax.RBF(1.0), X, y, 1.0).value)(X)) != y)


def test_bad_values_are_refused_by_name(values):
    f, y, _ = values
    with pytest.raises(ValueError, match=r"f must hold decision values, shape \(n,\)"):
        kernax.platt(f[:, None], y)
    with pytest.raises(ValueError, match=r"y must hold -1 and \+1"):
        kernax.isotonic(f, y + 1)
    with pytest.raises(ValueError, match="each class needs two points"):
        kernax.svm_leave_one_out(kernax.RBF(), f[:4, None], np.array([1.0, -1, -1, -1]), 1.0)


def test_a_point_of_weight_zero_is_not_there_for_isotonic_probabilities():
    f, y = np.array([1.0, 2.0, 3.0, 8.0], DTYPE), np.array([-1.0, -1.0, 1.0, -1.0], DTYPE)
    weighted = kernax.isotonic(f, y, weights=np.array([1.0, 1.0, 1.0, 0.0], DTYPE))
    without = kernax.isotonic(f[:3], y[:3])
    for at in (0.0, 1.5, 2.5, 3.0, 8.0, 9.0):
        np.testing.assert_allclose(weighted(at), without(at), rtol=1e-6)


def test_columns_of_targets_are_refused(values):
    for fit in (kernax.platt, kernax.isotonic):
        with pytest.raises(ValueError, match=r"y must have shape \(2,\), but has shape \(2, 2\)"):
            fit(np.array([0.0, 1.0]), np.array([[1.0, -1.0], [-1.0, 1.0]]))
    with pytest.raises(ValueError, match="leave out for each column"):
        kernax.svm_leave_one_out(kernax.RBF(), np.eye(4), np.ones((4, 2)), 1.0)


def test_platts_sigmoid_does_not_mind_where_zero_is(values):
    f, y, _ = values
    p = kernax.platt(f, y).value(f)
    far = (np.asarray(f) + 1000).astype(p.dtype)  # float32 holds it to 3e-5
    np.testing.assert_allclose(kernax.platt(far, y).value(far), p, atol=1e-3 if p.dtype == np.float32 else 1e-10)


def test_leaving_out_of_a_fit_that_fails_raises_or_is_nan(values):
    X, y = np.zeros((6, 2), DTYPE), np.array([1.0, -1, 1, -1, 1, -1], DTYPE)
    solver = kernax.SMO(max_steps=100)
    with pytest.raises(kernax.errors.DivergedError):
        kernax.svm_leave_one_out(kernax.RBF(), X, y, np.inf, solver=solver)
    assert np.all(np.isnan(kernax.svm_leave_one_out(kernax.RBF(), X, y, np.inf, solver=solver, throw=False)))
