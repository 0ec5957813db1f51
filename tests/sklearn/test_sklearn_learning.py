"""What estimators of processes learn, and from where."""

from typing import Any

import jax
import numpy as np
import pytest
import sklearn.gaussian_process
from conftest import needs_x64
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import kernels as theirs

import kernax
import kernax.sklearn as ours
from kernax.selection.recipes.data_starts import data_starts
from kernax.selection.recipes.regression_recipe import ProcessModel
from kernax.sklearn.processes import minus_evidence
from kernax.sklearn.theta import ThetaLoss

pytestmark = needs_x64  # estimators choose their precision by the data

# Without the types of what they return, which are wider than what the tests look at.
REGRESSOR: Any = sklearn.gaussian_process.GaussianProcessRegressor
ANY_STARTS: Any = data_starts
FIXED = theirs.ConstantKernel(2.0, "fixed") * theirs.RBF(0.5, "fixed")


@pytest.fixture(scope="module")
def wave():
    X = np.linspace(0, 1, 20)[:, None]
    return X, np.sin(5 * X[:, 0])


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_kernel_of_fixed_parameters_is_conditioned_on_as_it_is(wave, restarts):
    X, y = wave
    given = {"alpha": 1e-2, "n_restarts_optimizer": restarts}
    process = ours.GaussianProcessRegressor(FIXED, **given).fit(X, y)
    other = REGRESSOR(FIXED, **given).fit(X, y)
    np.testing.assert_allclose(
        process.log_marginal_likelihood_value_, other.log_marginal_likelihood_value_, rtol=1e-10
    )
    np.testing.assert_allclose(process.predict(X), other.predict(X), rtol=1e-8)
    assert process.kernel_ == FIXED


@pytest.fixture(scope="module")
def noisy():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0, 10, 40))[:, None]
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)


@pytest.mark.parametrize("lengthscale", [1e-4, 1e4])
def test_random_starts_leave_a_plateau_as_scikit_learns_do(noisy, lengthscale):
    X, y = noisy
    given = {"alpha": 1e-2, "n_restarts_optimizer": 6, "random_state": 0}
    kernel = 1.0 * theirs.RBF(lengthscale)
    process = ours.GaussianProcessRegressor(kernel, **given).fit(X, y)
    other = REGRESSOR(kernel, **given).fit(X, y)
    # From the starts of scikit-learn: the same maximum, to eleven digits when this was written.
    np.testing.assert_allclose(
        process.log_marginal_likelihood_value_, other.log_marginal_likelihood_value_, rtol=1e-8
    )
    np.testing.assert_allclose(process.kernel_.theta, other.kernel_.theta, atol=1e-3)


@pytest.mark.nightly
@pytest.mark.parametrize("lengthscale", [1e-4, 1e4])
def test_random_starts_of_our_kernels_are_drawn_from_the_distances_between_rows(noisy, lengthscale):
    X, y = noisy
    kernel = 1.0 * kernax.RBF(lengthscale)
    given = {"n_restarts_optimizer": 4, "random_state": 0}
    process = ours.GaussianProcessRegressor(kernel, **given).fit(X, y)
    # With alpha fixed at the true 0.01 scikit-learn finds 11.59; here the noise is learned as well.
    assert process.log_marginal_likelihood_value_ > 11.8
    assert 1 < float(process.kernel_.kernel.lengthscale) < 4


@pytest.mark.nightly
def test_random_starts_of_a_classifier_leave_a_plateau(noisy):
    X, y = noisy
    given = {"n_restarts_optimizer": 5, "random_state": 0}
    kernel = theirs.RBF(1e4)
    process = ours.GaussianProcessClassifier(kernel, **given).fit(X, y > 0)
    other = sklearn.gaussian_process.GaussianProcessClassifier(kernel, **given).fit(X, y > 0)
    np.testing.assert_allclose(
        process.log_marginal_likelihood(), other.log_marginal_likelihood(), rtol=1e-6
    )


def test_a_parameter_is_learned_within_its_bounds_with_scikit_learns_warning(noisy):
    X, y = noisy
    kernel = 1.0 * theirs.RBF(0.5, (0.1, 0.6))
    found = []
    for package in (ours, sklearn.gaussian_process):
        with pytest.warns(ConvergenceWarning, match="length_scale is close to the specified upper"):
            found.append(package.GaussianProcessRegressor(kernel, alpha=1e-2).fit(X, y).kernel_)
    assert found[0].k2.length_scale == pytest.approx(0.6, rel=1e-12)
    np.testing.assert_allclose(found[0].theta, found[1].theta, atol=1e-4)


@pytest.mark.nightly
def test_a_bound_that_another_criterion_does_not_heed_is_warned_of(noisy):
    X, y = noisy
    kernel = 1.0 * theirs.RBF(0.5, (0.1, 0.6))
    ridge = ours.KernelRidge(0.1, kernel=kernel, learn="leave_one_out")
    with pytest.warns(ConvergenceWarning, match="beyond the bounds of the one given"):
        ridge.fit(X, y)


def test_gradients_in_theta_are_those_of_scikit_learn(noisy):
    X, y = noisy
    kernel = 1.3 * theirs.RBF(0.8) + theirs.DotProduct(0.7) ** 2 + theirs.WhiteKernel(0.05)
    other = REGRESSOR(kernel, alpha=1e-3, optimizer=None)
    value, gradient = other.fit(X, y).log_marginal_likelihood(kernel.theta, eval_gradient=True)
    loss = ThetaLoss(
        kernel,
        1,
        np.float64,
        lambda parts: ProcessModel(parts.kernel, parts.noise),
        minus_evidence,
        (X, y, None, 1e-3),
    )
    ours_value, ours_gradient = loss(kernel.theta)
    np.testing.assert_allclose(-ours_value, value, rtol=1e-9)
    np.testing.assert_allclose(-ours_gradient, gradient, rtol=1e-7)


def test_lengthscales_are_drawn_column_by_column_between_the_differences():
    X = np.array([[0.0, 0.0], [1.0, 1000.0], [1.0 + 1e-15, 4000.0]])
    model = kernax.Model(2.0 * kernax.RBF([1e-9, 1e9]) + kernax.Matern32(1e9), 1.0)
    starts = ANY_STARTS(model, X, np.ones(3), 40, key=jax.random.key(0))
    assert starts[0] is model
    drawn = np.array([start.kernel.terms[0].kernel.lengthscale for start in starts[1:]])
    # The first column holds 0 and 1, and one more 1 up to rounding.
    np.testing.assert_allclose(drawn[:, 0], 1.0, rtol=1e-6)
    assert np.all((drawn[:, 1] >= 1000 * (1 - 1e-6)) & (drawn[:, 1] <= 4000 * (1 + 1e-6)))
    whole = np.array([start.kernel.terms[1].lengthscale for start in starts[1:]])
    assert 1000 * (1 - 1e-6) <= whole.min() < 1400
    assert 2900 < whole.max() <= 4001
    ridges = np.array([start.ridge for start in starts[1:]])
    assert ridges.min() < 1e-3
    assert 0.1 < ridges.max() <= 1 + 1e-6


def test_what_is_frozen_is_the_same_in_all_starts():
    X = np.array([[0.0, 0.0], [1.0, 1000.0], [3.0, 4000.0]])
    model = kernax.Model(2.0 * kernax.RBF([5.0, 7.0]), 1.0)
    free = lambda path, value: np.array([False, True]) if "length" in path else False
    starts = ANY_STARTS(model, X, np.ones(3), 5, key=jax.random.key(0), trainable=free)
    drawn = np.array([start.kernel.kernel.lengthscale for start in starts])
    np.testing.assert_array_equal(drawn[:, 0], 5.0)
    assert np.all(drawn[1:, 1] >= 999)
    assert len(np.unique(drawn[:, 1])) == 5
    assert {float(start.kernel.scale) for start in starts} == {2.0}
