"""The sizes that rows are padded to: fits on both sides of each bound, against scikit-learn."""

import numpy as np
import pytest
import sklearn.kernel_ridge
import sklearn.svm
from conftest import marked, needs_x64
from sklearn.gaussian_process import kernels as theirs

import kernax
import kernax.sklearn as ours
from kernax.errors import ConditionWarning, NotPSDError
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
# Of the sizes two whose rows are padded to different ones, and one that is not padded.
on_either_side = pytest.mark.parametrize(
    "n", marked(pytest.mark.nightly, SIZES, "128", "129", "1025", others=True)
)


@pytest.mark.parametrize(("n", "size"), SIZES.items())
def test_rows_are_padded_to_the_next_size(n, size):
    assert padded_size(n) == size


def test_weights_of_some_rows_have_the_precision_of_the_data():
    """Weights of one were in float64, of which functions warned, as if the user had passed it."""
    X = np.ones((1100, 2), np.float32)
    whole = Rows.of(kernax.RBF(), X, 1100, None, X.dtype)
    assert whole.own_weights.dtype == np.float32
    assert whole.some(np.arange(3)).weights.dtype == np.float32


def rows(n):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 2))
    return X, np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)


@pytest.mark.slow
@on_either_side
def test_ridge_on_either_side_of_a_size_is_that_of_scikit_learn(n):
    """As many rows are predicted as were learned from, so that these are padded as well."""
    X, y = rows(n)
    given = {"alpha": 0.5, "kernel": "rbf", "gamma": 0.5}
    a = ours.KernelRidge(**given).fit(X, y)
    b = sklearn.kernel_ridge.KernelRidge(**given).fit(X, y)
    np.testing.assert_allclose(a.predict(X), b.predict(X), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(a.dual_coef_, b.dual_coef_, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
@on_either_side
def test_a_machine_on_either_side_of_a_size_is_that_of_scikit_learn(n):
    X, y = rows(n)
    a = ours.SVC(gamma=0.5).fit(X, y > 0)
    b = sklearn.svm.SVC(gamma=0.5, tol=1e-10).fit(X, y > 0)
    # LIBSVM keeps K in float32.
    np.testing.assert_allclose(a.decision_function(X), b.decision_function(X), atol=3e-6)
    assert (a.support_ == b.support_).all()


def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    return X, rng.normal(size=30)


@pytest.mark.parametrize(
    ("kernel", "word"),
    [("sigmoid", "kernel='sigmoid'"), (kernax.kernels.Tanh(1.0, -1.0, indefinite=True), "Tanh")],
)
def test_a_message_has_the_eigenvalues_of_the_rows_and_the_users_word_for_the_kernel(kernel, word):
    X, y = table()
    smallest, *_, largest = np.linalg.eigvalsh(np.tanh(X @ X.T - 1))
    given = {"kernel": kernel, "gamma": 1.0, "coef0": -1.0}
    with pytest.raises(NotPSDError) as caught:
        ours.KernelRidge(1e-3, **given).fit(X, y)
    said = str(caught.value)
    assert f"smallest eigenvalue of K is {smallest:.3g}, the largest {largest:.3g}" in said
    assert f"kernel_ridge with {word}:" in said
    with pytest.warns(ConditionWarning) as warned:
        ours.SVC(**given).fit(X, y > 0)
    said = str(warned[0].message)
    assert said.startswith(f"{word} is not positive semidefinite")
    assert f"eigenvalue of K is {smallest:.3g}" in said


@pytest.mark.parametrize("first", [0, 7])
def test_the_evidence_of_a_singular_fit_is_that_without_padding_whatever_row_is_first(first):
    X, _ = table()
    X[7] *= 30  # with a K_ii of its own, which copies of it as padding would repeat
    y = X @ [1.0, 2.0, 3.0]
    order = np.roll(np.arange(30), -first)
    kernel = theirs.DotProduct(1.0)
    process = ours.GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
    with pytest.warns(ConditionWarning, match=r"condition with DotProduct\(sigma_0=1\)"):
        process.fit(X[order], y[order])
    prior = kernax.GaussianProcess(kernax.Linear() + kernax.Constant(1.0))
    with pytest.warns(ConditionWarning):
        alone = kernax.condition(prior, X, y, 0.0)
    np.testing.assert_allclose(
        process.log_marginal_likelihood_value_, float(alone.stats["log_evidence"]), rtol=1e-6
    )
