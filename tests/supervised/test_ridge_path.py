"""Many ridges from one factorisation, and generalised cross-validation: value, gradient, jit, vmap,
weights, traces, bad input.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, needs_x64

import kernax
from kernax.errors import ConditionWarning, NotPSDError

RBF = kernax.RBF(1.3)
RIDGES = np.array([10.0, 0.03, 1.0]).astype(DTYPE)
SOLVE = {"rtol": TOLERANCE["solve"], "atol": TOLERANCE["solve"]}


@pytest.fixture
def data(rng):
    X = rng.normal(size=(24, 3)).astype(DTYPE)
    y = (np.sin(X[:, 0]) + 0.1 * rng.normal(size=24)).astype(DTYPE)
    weights = rng.integers(0, 3, size=24).astype(DTYPE)
    weights[1] = 25
    return X, np.stack([y, y**2 + 1], 1), weights


def one_at_a_time(function, *args, **settings):
    """A function of one ridge for each of several, along the last axis."""
    ridges = args[3]
    values = [function(*args[:3], ridge, *args[4:], **settings) for ridge in ridges]
    return np.stack([np.asarray(value) for value in values], -1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_path_is_kernel_ridge_of_each_ridge_in_the_order_given(weighted, bias, data):
    X, Y, weights = data
    settings = {"weights": weights if weighted else None, "bias": bias}
    path = kernax.selection.ridge_path(RBF, X, Y, RIDGES, **settings)
    assert path.value.coefficients.shape == (24, 2, 3)
    assert path.stats["residual"].shape == path.stats["jitter"].shape == (3,)
    assert np.all(path.stats["residual"] < (1e-12 if X64 else 1e-5))
    predicted = one_at_a_time(
        lambda *args, **settings: kernax.kernel_ridge(*args, **settings).value.values(X),
        RBF, X, Y, RIDGES, **settings,
    )  # fmt: skip
    tolerance = 1e-10 if X64 else 2e-4
    np.testing.assert_allclose(path.value.values(X), predicted, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        jax.vmap(path.value)(jnp.asarray(X[:3])), predicted[:3], rtol=tolerance, atol=tolerance
    )
    if weighted:
        assert np.all(path.value.coefficients[weights == 0] == 0)


@pytest.mark.parametrize(("weighted", "bias"), [(False, False), (True, True)])
def test_residuals_of_the_path_are_those_of_leave_one_out(weighted, bias, data):
    X, Y, weights = data
    settings = {"weights": weights if weighted else None, "bias": bias}
    ours = kernax.selection.leave_one_out_path(RBF, X, Y, RIDGES, **settings)
    each = one_at_a_time(kernax.leave_one_out, RBF, X, Y, RIDGES, **settings)
    np.testing.assert_allclose(ours, each, **SOLVE)


@needs_x64
@pytest.mark.parametrize("bias", [False, True])
def test_generalised_cross_validation_is_that_of_the_hat_matrix_of_repeated_rows(bias, data):
    X, Y, weights = data
    rows = np.repeat(np.arange(24), weights.astype(int))
    H = np.asarray(
        kernax.kernel_ridge(RBF, X[rows], np.eye(len(rows)), 0.3, bias=bias).value.values(X[rows])
    )
    N = len(rows)
    expected = N * np.sum((Y[rows] - H @ Y[rows]) ** 2, 0) / (N - np.trace(H)) ** 2
    ours = kernax.selection.generalised_cross_validation(RBF, X, Y, 0.3, weights=weights, bias=bias)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)
    unweighted = kernax.selection.generalised_cross_validation(
        RBF, X[rows], Y[rows, 0], 0.3, bias=bias
    )
    np.testing.assert_allclose(unweighted, expected[0], rtol=1e-9)


@needs_x64
def test_a_ridge_that_fails_leaves_the_others_as_they_are():
    """Eigenvalues 3 and -1: more than 1 makes it positive definite."""
    K = np.array([[1.0, 2.0], [2.0, 1.0]])
    kernel = kernax.Precomputed(K)
    X, y = np.arange(2), np.array([1.0, 3.0])
    ridges = np.array([0.5, 1.5])
    path = kernax.selection.ridge_path(kernel, X, y, ridges, throw=False)
    assert (path.result == kernax.RESULTS.not_psd).tolist() == [True, False]
    assert (path.result == kernax.RESULTS.successful).tolist() == [False, True]
    assert np.all(np.isnan(path.value.coefficients[:, 0]))
    expected = np.linalg.solve(K + 1.5 * np.eye(2), y)
    np.testing.assert_allclose(path.value.coefficients[:, 1], expected, rtol=1e-12)
    with pytest.raises(NotPSDError, match=r"ridge_path with Precomputed: larger ridges"):
        kernax.selection.ridge_path(kernel, X, y, ridges)


@needs_x64
def test_a_ridge_below_rounding_takes_the_jitter_of_kernel_ridge():
    X, y = np.array([[0.0], [0.0], [1.0]]), np.array([0.0, 2.0, 5.0])
    kernel = kernax.RBF(np.sqrt(0.5))
    with pytest.warns(ConditionWarning):
        path = kernax.selection.ridge_path(kernel, X, y, [1e-20, 1.0])
    with pytest.warns(ConditionWarning):
        one = kernax.kernel_ridge(kernel, X, y, 1e-20)
    np.testing.assert_allclose(path.stats["jitter"], [one.stats["jitter"], 0], rtol=1e-12)
    np.testing.assert_allclose(path.value.values(X)[:, 0], [1, 1, 5], atol=1e-6)


@needs_x64
def test_jitter_of_some_ridges_is_warned_of_beside_another_that_fails():
    X = np.linspace(0, 1, 30)[:, None]
    y = np.sign(X[:, 0] - 0.5)
    ridges = [1, 1e-10, 1e-14, 1e-16, 1e-17]
    with pytest.warns(ConditionWarning, match=r"in 2 of 5 solves \(index 3, 4\): up to 1\.5e-08"):
        path = kernax.selection.ridge_path(kernax.RBF(0.5), X, y, ridges, throw=False)
    assert (path.result == kernax.RESULTS.successful).tolist() == [True, True, False, True, True]
    assert (path.stats["jitter"] > 0).tolist() == [False, False, False, True, True]


@needs_x64
@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_points_have_a_path(n):
    X, y = np.arange(float(n))[:, None], np.arange(1.0, n + 1)
    path = kernax.selection.ridge_path(RBF, X, y, RIDGES).value.coefficients
    for j, ridge in enumerate(RIDGES):
        one = kernax.kernel_ridge(RBF, X, y, ridge).value.coefficients
        np.testing.assert_allclose(path[:, j], one, rtol=1e-12)


def test_a_path_of_scaled_targets_is_the_scaled_path(data):
    """Catches squares that leave the range of floats.

    Measured in float32 over seven scales: residuals of 1.5e-6 to 1.1e-5, by the squares of the
    entries or by their ratios alike.
    """
    X, Y, weights = data
    fit = lambda y: kernax.selection.ridge_path(RBF, X, y, RIDGES, weights=weights, bias=True)
    plain = fit(Y[:, 0]).value.coefficients
    for scale in (1e-300, 1e300) if X64 else (1e-30, 1e30):
        scaled = fit((scale * Y[:, 0].astype(float)).astype(DTYPE))
        assert np.all(scaled.stats["residual"] < (1e-12 if X64 else 2e-5))
        np.testing.assert_allclose(scaled.value.coefficients / DTYPE(scale), plain, **SOLVE)


@needs_x64
@pytest.mark.parametrize(
    "function", [kernax.selection.ridge_path, kernax.selection.leave_one_out_path]
)
@pytest.mark.parametrize(
    ("ridges", "words"),
    [
        ([1.0, 0.0], r"ridges must be in \(0, inf\), but ridges\[1\] is 0"),
        ([np.nan], r"ridges must be in \(0, inf\), but ridges\[0\] is nan"),
        (1.0, r"ridges must be a vector of numbers \(r,\).*has shape \(\)"),
        ([], r"at least one, but has shape \(0,\)"),
        (np.array(["a"]), "ridges must"),
    ],
)
def test_ridges_that_are_none_are_refused_by_name(function, ridges, words, data):
    with pytest.raises(ValueError, match=words):
        function(RBF, data[0], data[1], ridges)


@needs_x64
def test_what_has_no_residuals_is_refused_or_nan(data):
    X, Y, _ = data
    with pytest.raises(ValueError, match=r"ridge must be in \(0, inf\), but is 0"):
        kernax.selection.generalised_cross_validation(RBF, X, Y, 0.0)
    with pytest.raises(ValueError, match="at least two points"):
        kernax.selection.leave_one_out_path(RBF, X[:1], Y[:1], RIDGES, bias=True)
    traced = jax.jit(lambda ridges: kernax.selection.leave_one_out_path(RBF, X, Y, ridges))
    values = traced(jnp.array([-1.0, 0.03, 1.0]))
    assert np.isnan(values).all((0, 1)).tolist() == [True, False, False]


@needs_x64
def test_residuals_of_a_nearly_singular_system_say_how_many_digits_are_left():
    x = np.linspace(0, 1, 20)[:, None]
    with pytest.warns(ConditionWarning, match=r"about [1-4] digits of the residuals.*_path"):
        kernax.selection.leave_one_out_path(kernax.RBF(0.2), x, np.sin(6 * x[:, 0]), [1.0, 1e-13])
