"""Probabilities from decision values: Platt, isotonic, and leaving points out of a machine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from conftest import DTYPE, TOLERANCE, X64, needs_x64
from sklearn.isotonic import IsotonicRegression
from sklearn.svm import SVC

import kernax

EPS = float(jnp.finfo(DTYPE).eps)


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
    ours = kernax.calibration.platt(f, y, weights=weights).value
    np.testing.assert_allclose([ours.slope, ours.intercept], found, rtol=1e-4)
    assert jnp.all((ours(f) > 0) & (ours(f) < 1))
    constant = kernax.calibration.platt(np.ones(50, DTYPE), y, weights=weights).value
    np.testing.assert_allclose(
        constant(np.ones(3, DTYPE)), (weights * t).sum() / weights.sum(), rtol=1e-4
    )
    separated = kernax.calibration.platt(y.astype(DTYPE), y).value
    assert jnp.isfinite(separated.slope)


@pytest.mark.parametrize("weight", [1e-3, 1.0, 1e6, 1e16, 1e30])
@pytest.mark.parametrize("n", [1, 7, 200])
def test_separated_scores_of_two_values_have_the_sigmoid_in_closed_form(n, weight):
    # Both classes have the mass m = n w, and both targets are reached: the slope is log(m + 1), and
    # the objective 2 m times the entropy of 1 / (m + 2).
    f = np.tile(np.array([-1, 1], DTYPE), n)
    weights = np.full(2 * n, weight, DTYPE)
    m = n * weights[0].astype(np.longdouble)
    entropy = (np.log(m + 2) + (m + 1) * np.log1p(1 / (m + 1))) / (m + 2)
    fit = kernax.calibration.platt(f, f, weights=weights)
    # 3e-16 and 5e-8 seen.
    np.testing.assert_allclose(fit.value.slope, float(np.log1p(m)), rtol=8 * EPS, atol=8 * EPS)
    np.testing.assert_allclose(fit.value.intercept, 0, atol=8 * EPS * (1 + fit.value.slope))
    np.testing.assert_allclose(fit.stats["objective"], float(2 * m * entropy), rtol=32 * EPS)


def test_isotonic_probabilities_are_scikit_learns_and_rise(values):
    f, y, weights = values
    ours = kernax.calibration.isotonic(f, y, weights=weights)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(f, y > 0, sample_weight=weights)
    np.testing.assert_allclose(ours(f), theirs.predict(f), atol=1e-12 if X64 else 1e-5)
    assert jnp.all(jnp.diff(ours(jnp.sort(f))) >= 0)


@pytest.mark.slow
@needs_x64
def test_leaving_points_out_is_fitting_without_them(values):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(24, 2))
    y = np.sign(X[:, 0] + 0.5 * rng.normal(size=24))
    solver = kernax.solvers.SMO(rtol=1e-8)
    left_out = kernax.calibration.svm_leave_one_out(kernax.RBF(1.0), X, y, 1.0, solver=solver)
    for i in (0, 3, 11):
        without = SVC(C=1.0, gamma=0.5, tol=1e-10).fit(np.delete(X, i, 0), np.delete(y, i))
        np.testing.assert_allclose(
            left_out[i], without.decision_function(X[i : i + 1])[0], atol=1e-6
        )
    assert np.mean(np.sign(left_out) != y) >= np.mean(
        SVC(C=1.0, gamma=0.5).fit(X, y).predict(X) != y
    )


@needs_x64
def test_bad_values_are_refused_by_name(values):
    f, y, _ = values
    with pytest.raises(ValueError, match=r"f must hold decision values, shape \(n,\)"):
        kernax.calibration.platt(f[:, None], y)
    with pytest.raises(ValueError, match=r"y must hold -1 and \+1"):
        kernax.calibration.isotonic(f, y + 1)
    with pytest.raises(ValueError, match="each class needs two points"):
        kernax.calibration.svm_leave_one_out(
            kernax.RBF(), f[:4, None], np.array([1.0, -1, -1, -1]), 1.0
        )


@pytest.mark.slow
@needs_x64
def test_the_only_point_of_a_class_has_no_value_without_it_while_tracing():
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([-1.0, 1.0, 1.0])
    leave_out = jax.jit(
        lambda y: kernax.calibration.svm_leave_one_out(kernax.RBF(), X, y, 1.0, throw=False)
    )
    np.testing.assert_array_equal(np.isnan(leave_out(y)), [True, False, False])


@needs_x64
def test_columns_of_targets_are_refused(values):
    for fit in (kernax.calibration.platt, kernax.calibration.isotonic):
        with pytest.raises(ValueError, match=r"y must have shape \(2,\), but has shape \(2, 2\)"):
            fit(np.array([0.0, 1.0]), np.array([[1.0, -1.0], [-1.0, 1.0]]))
    with pytest.raises(ValueError, match="leave out for each column"):
        kernax.calibration.svm_leave_one_out(kernax.RBF(), np.eye(4), np.ones((4, 2)), 1.0)


def test_platts_sigmoid_does_not_mind_where_zero_is(values):
    f, y, _ = values
    p = kernax.calibration.platt(f, y).value(f)
    for offset, atol in (
        ((2.0**10, 1e-3), (2.0**20, 0.1)) if not X64 else ((2.0**10, 1e-10), (2.0**40, 1e-3))
    ):
        # float32 holds it to 6e-5, and to 0.06: that is all the error.
        far = (np.asarray(f) + offset).astype(p.dtype)
        exact = kernax.calibration.platt((far - offset).astype(p.dtype), y).value
        np.testing.assert_allclose(
            kernax.calibration.platt(far, y).value(far),
            exact(far - offset),
            atol=10 * TOLERANCE["value"],
        )
        np.testing.assert_allclose(exact(far - offset), p, atol=atol)


@pytest.mark.parametrize("value", [0.3, 1e6 / 3, -1e-20])
def test_values_that_are_all_the_same_have_no_slope(values, value):
    """Their mean is not quite the same: the slope was 2e14, over what rounding left of the
    difference.
    """
    y, weights = values[1:]
    fit = kernax.calibration.platt(np.full(50, value, DTYPE), y, weights=weights).value
    assert fit.slope == 0
    plus, minus = weights[y > 0].sum(), weights[y < 0].sum()
    likely = np.where(y > 0, (plus + 1) / (plus + 2), 1 / (minus + 2))
    np.testing.assert_allclose(
        fit(jnp.zeros(())), (weights * likely).sum() / weights.sum(), rtol=TOLERANCE["solve"]
    )


@needs_x64
def test_values_that_differ_by_their_rounding_alone_have_no_slope():
    """Without regard to rounding it is 1e16, and probabilities of the classes are 0.95."""
    y = np.tile([-1.0, 1.0], 20)
    fit = kernax.calibration.platt(np.where(y > 0, 0.1 + 0.2, 0.3), y).value
    assert fit.slope == 0
    np.testing.assert_allclose(fit(0.3), 0.5, rtol=1e-12)


def test_isotonic_probabilities_are_within_zero_and_one_for_weights_of_any_size():
    """Also where points of weight zero stand at both ends."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        f = np.sort(rng.normal(size=24)).astype(DTYPE)
        y = np.where(f + 0.3 * rng.normal(size=24) > 0, 1.0, -1.0)
        weights = (10 ** rng.uniform(-6, 6, 24)).astype(DTYPE)
        weights[[0, 1, 12, 23]] = 0
        fit = kernax.calibration.isotonic(f, y, weights=weights)
        assert jnp.all((fit.probabilities >= 0) & (fit.probabilities <= 1))
        assert fit.probabilities[-1] == 1


@needs_x64
def test_the_derivatives_of_platts_sigmoid_are_finite_where_all_values_are_the_same():
    y = np.tile([1.0, -1.0, 1.0], 4)
    slope = jax.jit(
        jax.grad(
            lambda f, w: kernax.calibration.platt(f, y, weights=w, throw=False).value(0.5), (0, 1)
        )
    )
    for part in slope(jnp.full(12, 0.3), jnp.ones(12)):
        assert jnp.all(jnp.isfinite(part))


@pytest.mark.slow
def test_small_weights_beside_large_ones_keep_their_frequencies():
    """Differences of cumulative sums lost them: 1e-12 after 1e12 is nothing."""
    f = np.arange(8.0).astype(DTYPE)
    y = np.array([-1.0, 1, -1, -1, 1, -1, 1, 1], DTYPE)
    small = 1e-12
    weights = np.array([1e12, 1e12, 3 * small, small, 2 * small, small, 1e12, 1e12]).astype(DTYPE)
    ours = kernax.calibration.isotonic(f, y, weights=weights)
    theirs = pooled([float(w) for w in weights], [float(sign > 0) for sign in y])
    np.testing.assert_allclose(ours(f), theirs, rtol=1e-6, atol=1e-12)
    alone = kernax.calibration.isotonic(f[2:6], y[2:6], weights=np.r_[weights[2:6]])
    np.testing.assert_allclose(
        alone(f[2:6]), pooled(weights[2:6].astype(float), (y[2:6] > 0).astype(float)), rtol=1e-6
    )
    after = kernax.calibration.isotonic(
        f[:6], np.array([-1.0, -1, -1, -1, 1, -1], DTYPE), weights=weights[:6]
    )
    np.testing.assert_allclose(after(f[:6]), [0, 0, 0, 0, 2 / 3, 2 / 3], rtol=1e-6, atol=1e-12)


def test_values_of_any_scale_have_the_same_frequencies(values):
    f, y, _ = values
    small = (f * 2.0**-80).astype(f.dtype)
    np.testing.assert_array_equal(
        kernax.calibration.isotonic(small, y)(small), kernax.calibration.isotonic(f, y)(f)
    )
    np.testing.assert_allclose(
        kernax.calibration.platt(small, y).value(small),
        kernax.calibration.platt(f, y).value(f),
        rtol=1e-6,
    )


def pooled(weights, hits):
    """Pools adjacent violators one by one (Ayer et al. 1955)."""
    blocks = []
    for weight, hit in zip(weights, hits):
        blocks.append([weight, weight * hit, 1])
        while len(blocks) > 1 and blocks[-2][1] * blocks[-1][0] >= blocks[-1][1] * blocks[-2][0]:
            last = blocks.pop()
            blocks[-1] = [a + b for a, b in zip(blocks[-1], last)]
    return np.concatenate([[of_hits / weight] * count for weight, of_hits, count in blocks])


@pytest.mark.nightly
@needs_x64
def test_leaving_out_of_a_fit_that_fails_raises_or_is_nan(values):
    X, y = np.zeros((6, 2), DTYPE), np.array([1.0, -1, 1, -1, 1, -1], DTYPE)
    solver = kernax.solvers.SMO(max_steps=100)
    with pytest.raises(kernax.errors.DivergedError):
        kernax.calibration.svm_leave_one_out(kernax.RBF(), X, y, np.inf, solver=solver)
    assert np.all(
        np.isnan(
            kernax.calibration.svm_leave_one_out(
                kernax.RBF(), X, y, np.inf, solver=solver, throw=False
            )
        )
    )
