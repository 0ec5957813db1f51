"""The sizes that rows are padded to: fits on both sides of each bound, against scikit-learn."""

import numpy as np
import pytest
import sklearn.kernel_ridge
import sklearn.svm
from conftest import needs_x64

import kernax
import kernax.sklearn as ours
from kernax.sklearn.rows import Rows, padded_size

pytestmark = needs_x64  # estimators choose their precision by the data

SIZES = {
    63: 64,
    64: 64,
    65: 128,
    127: 128,
    128: 128,
    129: 256,
    256: 256,
    257: 384,
    384: 384,
    385: 512,
    1024: 1024,
    1025: 1025,
}


@pytest.mark.parametrize(("n", "size"), SIZES.items())
def test_rows_are_padded_to_the_next_size(n, size):
    assert padded_size(n) == size


def test_weights_of_some_rows_have_the_precision_of_the_data():
    """Weights of one were in float64, of which verbs warned, as if the user had passed it."""
    X = np.ones((1100, 2), np.float32)
    whole = Rows.of(kernax.RBF(), X, 1100, None, X.dtype)
    assert whole.own_weights.dtype == np.float32
    assert whole.some(np.arange(3)).weights.dtype == np.float32


def rows(n):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
def test_ridge_on_either_side_of_a_size_is_that_of_scikit_learn(n):
    """As many rows are predicted as were learned from, so that these are padded as well."""
    X, y = rows(n)
    given = {"alpha": 0.5, "kernel": "rbf", "gamma": 0.5}
    a = ours.KernelRidge(**given).fit(X, y)
    b = sklearn.kernel_ridge.KernelRidge(**given).fit(X, y)
    np.testing.assert_allclose(a.predict(X), b.predict(X), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(a.dual_coef_, b.dual_coef_, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("n", SIZES)
def test_a_machine_on_either_side_of_a_size_is_that_of_scikit_learn(n):
    X, y = rows(n)
    a = ours.SVC(gamma=0.5).fit(X, y > 0)
    b = sklearn.svm.SVC(gamma=0.5, tol=1e-10).fit(X, y > 0)
    # LIBSVM keeps K in float32.
    np.testing.assert_allclose(a.decision_function(X), b.decision_function(X), atol=3e-6)
    assert (a.support_ == b.support_).all()
