"""Margins, mistake bounds and the cost of both forms: against NumPy, finite differences and
counting.
"""

import math

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import (
    DTYPE,
    TOLERANCE,
    X64,
    assert_close,
    check_derivatives,
    needs_x64,
    untyped,
)

import kernax
from kernax.online import (
    Costs,
    LinearFunction,
    costs,
    disjunction_bound,
    margin,
    perceptron_bound,
    winnow_bound,
)

LINEAR = kernax.Linear()


def linear(w):
    """The function `w.x`, as the expansion over one point."""
    w = np.asarray(w, DTYPE)
    return kernax.KernelExpansion(
        LINEAR, jnp.asarray(w)[None], jnp.ones(1, DTYPE), jnp.zeros((), DTYPE)
    )


@pytest.fixture
def separable(rng):
    """Points in four dimensions, the labels of one hyperplane, and its weights."""
    w = np.array([1.0, -2.0, 0.5, 0.0])
    X = rng.normal(size=(40, 4))
    X = X[abs(X @ w) > 0.2].astype(DTYPE)
    return X, np.sign(X @ w).astype(DTYPE), w.astype(DTYPE)


@pytest.mark.slow
def test_the_margin_is_the_distance_of_the_nearest_point_from_the_hyperplane(separable):
    X, y, w = separable
    assert_close(margin(linear(w), X, y), np.min(y * (X @ w)) / np.linalg.norm(w))
    assert margin(linear(-w), X, y) == -np.max(abs(X @ w)) / np.linalg.norm(w) or np.isclose(
        margin(linear(-w), X, y), -np.max(abs(X @ w)) / np.linalg.norm(w)
    )


@pytest.mark.parametrize("scale", [1e-20, 1e20])
def test_the_margin_and_the_bound_do_not_depend_on_the_scale_of_the_function(scale, separable):
    """Whose squares are no floats in float32."""
    X, y, w = separable
    assert_close(margin(scale * linear(w), X, y), margin(linear(w), X, y))
    assert_close(perceptron_bound(scale * linear(w), X, y), perceptron_bound(linear(w), X, y))


@pytest.mark.slow
@needs_x64
def test_the_gradient_of_the_margin_matches_finite_differences(separable):
    X, y, _ = separable
    kernel = kernax.RBF(1.0)

    def of(lengthscale, coefficients):
        f = kernax.KernelExpansion(kernax.RBF(lengthscale), X, coefficients, jnp.zeros(()))
        return margin(f, X, y), perceptron_bound(f, X, y)

    start = kernax.kernel_ridge(kernel, X, y, 1e-3).value.coefficients
    check_derivatives(of, (jnp.asarray(1.0), start), rtol=TOLERANCE["gradient"], atol=1e-6)


@pytest.mark.nightly
@hypothesis.given(st.integers(0, 2**32 - 1))
def test_the_perceptron_never_makes_more_mistakes_than_its_bound(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 3)) * rng.choice([0.1, 1.0, 10.0])
    w = rng.normal(size=3)
    X[abs(X @ w) < 0.05 * np.linalg.norm(w)] = w / np.linalg.norm(w)
    X = X.astype(DTYPE)
    y = np.sign(X @ w).astype(DTYPE)
    hypothesis.assume(len(set(y)) == 2)
    fit = kernax.kernel_perceptron(LINEAR, X, y, max_epochs=10_000, throw=False)
    bound = perceptron_bound(linear(w), X, y)
    assert int(fit.stats["mistakes"]) <= float(bound) * (1 + 1e-5)
    radius = np.max(np.sum(X.astype(float) ** 2, 1))
    expected = radius * (w @ w) / np.min(y * (X @ w)) ** 2
    np.testing.assert_allclose(bound, expected, rtol=1e-10 if X64 else 1e-3)


def test_a_perceptron_can_be_made_to_err_as_often_as_its_bound_allows():
    """On d orthogonal points of length one, `|f|^2 = d` and each of them is a mistake."""
    X = np.eye(6, dtype=DTYPE)
    y = np.array([1, -1, 1, 1, -1, -1], DTYPE)
    fit = kernax.kernel_perceptron(LINEAR, X, y)
    assert fit.stats["mistakes"] == 6
    assert_close(perceptron_bound(linear(y), X, y), 6.0)


def test_no_bound_holds_where_the_function_does_not_separate(separable):
    X, y, w = separable
    assert perceptron_bound(linear(-w), X, y) == np.inf
    assert perceptron_bound(linear(0 * w), X, y) == np.inf
    assert winnow_bound(-w, X, y, balanced=True) == np.inf
    assert winnow_bound(0 * w, X, y, balanced=True) == np.inf
    assert winnow_bound(w, X, y, balanced=True, rate=1e3) == np.inf


def test_the_bound_of_winnow_is_its_formula_and_smallest_at_its_own_rate(separable):
    X, y, w = separable
    X_inf = np.max(abs(X))
    delta = np.min(y * (X @ w))
    expected = 2 * np.log(8) * np.sum(abs(w)) ** 2 * X_inf**2 / delta**2
    best = delta / (np.sum(abs(w)) * X_inf**2)
    assert_close(winnow_bound(w, X, y, balanced=True), expected, TOLERANCE["solve"])
    at_best = winnow_bound(w, X, y, balanced=True, rate=best)
    assert_close(at_best, expected, TOLERANCE["solve"])
    for rate in (0.7 * best, 1.4 * best):
        assert winnow_bound(w, X, y, balanced=True, rate=rate) > 1.05 * expected
    assert_close(winnow_bound(5 * w, X, y, balanced=True), expected, TOLERANCE["solve"])
    positive = abs(w)
    split = np.sign(X @ positive)
    unbalanced = winnow_bound(positive, X, split)
    ratio = np.log(4) / np.log(8)
    both = winnow_bound(positive, X, split, balanced=True)
    assert_close(unbalanced, ratio * both, TOLERANCE["solve"])


def test_the_bound_on_disjunctions_is_littlestones():
    assert disjunction_bound(3, 1024) == 2 + 3 * 3 * 11
    by_hand = 2 * (1 + math.log(50, 1.5)) * 2.5 + 100 * 1.5 / (50 * 0.5)
    np.testing.assert_allclose(
        disjunction_bound(2, 100, promotion=1.5, threshold=50.0), by_hand, rtol=1e-12
    )


def test_the_dual_form_is_preferred_while_its_vectors_cost_less_than_the_features():
    """A polynomial of degree three of 20 numbers: one product of 20 against 8000 features."""
    x = np.ones(20, DTYPE)
    cubic = kernax.Polynomial(degree=3, offset=0.0)

    def features(point):
        return jnp.einsum("i,j,k->ijk", point, point, point)

    assert_close(
        np.asarray(cubic(x, 2 * x)), np.vdot(features(x), features(2 * x)), TOLERANCE["value"]
    )
    both = costs(cubic, x, features)
    assert both.prefers_dual(10)
    assert not both.prefers_dual(100_000)
    assert not both.prefers_dual(math.ceil(both.break_even))
    assert both.prefers_dual(math.ceil(both.break_even) - 1)
    assert 8000 < both.features < 100_000
    assert 20 < both.kernel < 100


def test_costs_are_measured_in_any_unit_and_infinite_without_explicit_features():
    assert Costs(1e-6, 1e-3).prefers_dual(999)
    assert not Costs(1e-6, 1e-3).prefers_dual(1001)
    rbf = costs(kernax.RBF(1.0), np.ones(3, DTYPE))
    assert rbf.features == math.inf
    assert rbf.prefers_dual(10**9)
    doubled = costs(kernax.FeatureMap(lambda x: jnp.concatenate([x, x])), np.ones(50, DTYPE))
    assert doubled.features < doubled.kernel + 1


@pytest.mark.slow
def test_bounds_follow_the_dtype_and_take_points_of_any_kind():
    texts = kernax.strings.encode(["abab", "bcbc", "abba", "ccbb"])
    y = np.array([1, -1, 1, -1], DTYPE)
    kernel = kernax.Normalised(kernax.Spectrum(1))
    f = kernax.svm(kernel, texts, y, 1e4, bias=False).value
    K = np.asarray(kernax.gram(kernel, texts))
    values = y * (K @ np.asarray(f.coefficients))
    norm = np.sqrt(np.asarray(f.coefficients) @ K @ np.asarray(f.coefficients))
    assert_close(margin(f, texts, y), values.min() / norm, TOLERANCE["solve"])
    assert_close(perceptron_bound(f, texts, y), (norm / values.min()) ** 2, TOLERANCE["solve"])
    assert margin(f, texts, y).dtype == perceptron_bound(f, texts, y).dtype == f.norm.dtype


def test_the_functions_of_primal_learners_have_margins_and_bounds_as_well(separable):
    X, y, w = separable
    primal = LinearFunction(lambda x: x, jnp.asarray(w), jnp.zeros((), DTYPE))
    assert_close(primal.norm, np.linalg.norm(w))
    assert_close(margin(primal, X, y), margin(linear(w), X, y))
    assert_close(perceptron_bound(primal, X, y), perceptron_bound(linear(w), X, y))


def test_bounds_are_batched_by_vmap(separable):
    X, y, w = separable
    scales = jnp.asarray([0.5, 1.0, 2.0], DTYPE)

    def of(scale):
        u = scale * jnp.asarray(w) + jnp.asarray([0.01, 0, 0, 0], DTYPE) * scale**2
        return (
            margin(
                kernax.KernelExpansion(LINEAR, u[None], jnp.ones(1, DTYPE), jnp.zeros((), DTYPE)),
                X,
                y,
            ),
            winnow_bound(u, X, y, balanced=True),
        )

    together = jax.jit(jax.vmap(of))(scales)
    for i, scale in enumerate(scales):
        for batched, alone in zip(together, of(scale)):
            assert_close(batched[i], alone, TOLERANCE["solve"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y, w: margin(linear(w), X, 2 * y), "y must hold -1 and \\+1"),
        (lambda X, y, w: untyped(margin)(LINEAR, X, y), "f must be a function that was learned"),
        (lambda X, y, w: margin(linear(w), X, y[:-1]), "y must have shape"),
        (lambda X, y, w: margin(linear(w), X, y[:, None]), "y must have shape"),
        (lambda X, y, w: perceptron_bound(two_outputs(w), X, y), "f must have one output"),
        (lambda X, y, w: perceptron_bound(biased(w), X, y), "add a constant to the kernel"),
        (lambda X, y, w: winnow_bound(w, X, y), "u must not be negative, but holds -2"),
        (lambda X, y, w: winnow_bound(w[:2], X, y, balanced=True), "u must have shape"),
        (lambda X, y, w: winnow_bound(w, X[0], y, balanced=True), "X must be vectors"),
        (lambda X, y, w: winnow_bound(w, X, y, balanced=True, rate=-1.0), "rate must be in"),
        (lambda X, y, w: disjunction_bound(5, 4), "relevant must be at most n = 4"),
        (lambda X, y, w: disjunction_bound(0, 4), "relevant must be a positive integer"),
        (lambda X, y, w: disjunction_bound(1, 4, promotion=1.0), "promotion must be greater"),
        (lambda X, y, w: disjunction_bound(1, 4, threshold=0.5), "threshold must be at least 1"),
    ],
)
def test_what_no_bound_could_use_is_refused_by_name(separable, call, message):
    with pytest.raises(ValueError, match=message):
        call(*separable)


def biased(w):
    f = linear(w)
    return kernax.KernelExpansion(f.kernel, f.points, f.coefficients, jnp.ones((), DTYPE))


def two_outputs(w):
    f = linear(w)
    return kernax.KernelExpansion(f.kernel, f.points, jnp.ones((1, 2), DTYPE), jnp.zeros(2, DTYPE))
