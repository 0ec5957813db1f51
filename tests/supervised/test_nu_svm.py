"""nu-SVC and nu-SVR: LIBSVM's values, the same fits by C and epsilon, gradients, weights, gaps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, needs_x64
from sklearn.svm import NuSVC, NuSVR

import kernax
import kernax.sklearn as ours
from kernax.core.operators.operators import DenseGram, LowRankGram
from kernax.errors import MaxStepsError, NonFiniteError
from kernax.supervised.machines.doubled import DoubledGram

RNG = np.random.default_rng(0)
N = 30
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Y = np.sign(X[:, 0] * X[:, 1] + 0.3 * RNG.normal(size=N)).astype(DTYPE)
T = (2 * np.sin(3 * X[:, 0]) + X[:, 1]).astype(DTYPE)
W = RNG.uniform(0.5, 2, N).astype(DTYPE)
RBF = kernax.RBF(np.sqrt(0.5))  # gamma = 1
FINE = kernax.solvers.SMO(rtol=1e-9) if X64 else None


def values(solution):
    return np.asarray(jax.jit(jax.vmap(solution.value))(X))


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("weights", [None, W], ids=["alike", "weighted"])
def test_classes_are_those_of_libsvm_and_of_svm_with_one_over_rho(weights):
    for nu in (0.2, 0.6):
        solution = kernax.nu_svm(RBF, X, Y, nu, weights=weights, solver=FINE)
        theirs = NuSVC(nu=nu, gamma=1.0, tol=1e-10).fit(X, Y, sample_weight=weights)
        # On LIBSVM's margin f is one up to 1.6e-5, and here up to 3e-11.
        expected = theirs.decision_function(X)
        np.testing.assert_allclose(values(solution), expected, rtol=5e-5, atol=5e-5)
        beta = np.zeros(N)
        beta[theirs.support_] = theirs.dual_coef_[0]
        C = 1 / solution.stats["rho"]
        found = solution.value.coefficients
        np.testing.assert_allclose(found, beta, atol=5e-5 * float(C))
        by_penalty = kernax.svm(RBF, X, Y, C, weights=weights, solver=FINE).value
        np.testing.assert_allclose(
            solution.value.coefficients, by_penalty.coefficients, atol=1e-6 * float(C)
        )
        # What nu promises, by weight.
        w = np.ones(N) if weights is None else weights
        outside = Y * values(solution) < 1 - 1e-6
        support = np.asarray(solution.value.coefficients) != 0
        assert np.sum(w[outside]) <= nu * np.sum(w) * (1 + 1e-9) <= np.sum(w[support]) + 1e-6


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("weights", [None, W], ids=["alike", "weighted"])
def test_numbers_are_those_of_libsvm_and_of_the_tube_that_was_found(weights):
    for nu in (0.2, 0.6, 0.99):
        solution = kernax.nu_support_vector_regression(
            RBF, X, T, 3.0, nu, weights=weights, solver=FINE
        )
        theirs = NuSVR(nu=nu, C=3.0, gamma=1.0, tol=1e-10).fit(X, T, sample_weight=weights)
        np.testing.assert_allclose(values(solution), theirs.predict(X), atol=1e-5)
        epsilon = solution.stats["epsilon"]
        by_epsilon = kernax.support_vector_regression(
            RBF, X, T, 3.0, epsilon, weights=weights, solver=FINE
        )
        np.testing.assert_allclose(values(solution), values(by_epsilon), atol=1e-5)
        for name in ("support", "bounded", "free"):
            assert solution.stats[name] == by_epsilon.stats[name] or epsilon == 0


@pytest.mark.slow
@pytest.mark.parametrize("nu", [1e-6, 0.3])
def test_the_gap_is_that_of_the_widest_floats(nu):
    """Of the problem before its division by rho, which rounds f once more: in float32 and for a
    small nu that alone may exceed the objective. Errors below 16 eps of the terms of f count as
    zero.
    """
    solution = kernax.nu_svm(RBF, X, Y, np.asarray(nu, DTYPE))
    rho = np.longdouble(np.asarray(solution.stats["rho"]))
    beta = np.asarray(solution.value.coefficients, np.longdouble) * rho
    bias = np.longdouble(np.asarray(solution.value.bias)) * rho
    K = np.asarray(kernax.gram(RBF, X), np.longdouble)
    f = K @ beta
    off = -f - bias + np.where(Y > 0, rho, -rho)
    half = np.longdouble(np.asarray(nu, DTYPE)) * N / 2
    lacking = abs(np.sum(beta[Y > 0]) - half) + abs(np.sum(beta[Y < 0]) + half)

    def relative_gap(off):
        outside = np.where(Y > 0, np.maximum(off, 0), np.maximum(-off, 0))
        gap = np.sum(outside) - beta @ off + lacking * np.max(abs(off))
        return float(gap / (beta @ f / 2))

    rounding = 16 * np.finfo(DTYPE).eps * np.sqrt(np.max(K**2 @ beta**2))
    moved = np.sign(off) * np.maximum(abs(off) - rounding, 0)
    assert 0 <= solution.stats["relative_gap"] <= 1e-3
    assert relative_gap(moved) <= 1.001e-3
    if X64:
        # 3e-9 of the whole is what rounding f does for nu = 1e-6.
        np.testing.assert_allclose(
            solution.stats["relative_gap"], relative_gap(off), rtol=0.01, atol=1e-7
        )


def test_the_margin_is_one_for_a_fraction_nu_of_the_weights():
    """In the dual of nu-SVC the coefficients of g sum to `nu sum w / 2` in either class."""
    solution = kernax.nu_svm(RBF, X, Y, 0.3, weights=W)
    of_g = np.asarray(solution.value.coefficients * solution.stats["rho"], float)
    half = 0.3 * np.sum(W, dtype=float) / 2
    sums = [np.sum(of_g[Y > 0]), -np.sum(of_g[Y < 0])]
    np.testing.assert_allclose(sums, [half, half], rtol=64 * np.finfo(DTYPE).eps)


@pytest.mark.nightly
def test_the_gap_of_the_tube_is_that_of_the_widest_floats():
    """The dual of nu-SVR maximises `a.y - a.K a / 2` where `sum a = 0`, `|a_i| <= C w_i` and
    `|a|_1 <= C nu sum w`.
    """
    nu, C = np.longdouble(0.25), np.longdouble(2)
    solution = kernax.nu_support_vector_regression(RBF, X, T, 2.0, 0.25, weights=W)
    a = np.asarray(solution.value.coefficients, np.longdouble)
    bias = np.longdouble(np.asarray(solution.value.bias))
    epsilon = np.longdouble(np.asarray(solution.stats["epsilon"]))
    f = np.asarray(kernax.gram(RBF, X), np.longdouble) @ a
    bound = C * W.astype(np.longdouble)
    budget = nu * np.sum(bound)
    # Primal and dual differ by terms of points, none of them negative, and that of the budget.
    off = T - f - bias
    outside = bound * np.maximum(abs(off) - epsilon, 0)
    primal = a @ f / 2 + budget * epsilon + np.sum(outside)
    dual = a @ T - a @ f / 2
    assert abs(np.sum(a)) <= 64 * np.finfo(DTYPE).eps * np.sum(abs(a))
    assert np.sum(abs(a)) <= budget * (1 + 64 * np.finfo(DTYPE).eps)
    assert np.all(abs(a) <= bound * (1 + 4 * np.finfo(DTYPE).eps))
    assert -1e-5 * primal <= primal - dual <= 1.001e-3 * primal
    np.testing.assert_allclose(float(solution.stats["primal"]), float(primal), rtol=1e-3)
    np.testing.assert_allclose(float(solution.stats["dual"]), float(dual), rtol=1e-3)


def of_numbers(length, nu, points, weights, C, targets, **options):
    fit = kernax.nu_support_vector_regression(
        kernax.RBF(length), points, targets, C, nu, weights=weights, throw=False, **options
    )
    return jnp.sum(jnp.sin(jax.vmap(fit.value)(X[:6] + 0.1)))


@pytest.mark.nightly
@needs_x64
def test_where_the_tube_has_no_width_derivatives_are_those_without_a_tube():
    """Then a larger nu changes nothing."""

    def without_tube(length, C):
        fit = kernax.support_vector_regression(
            kernax.RBF(length), X, T, C, 0.0, solver=FINE, throw=False
        )
        return jnp.sum(jnp.sin(jax.vmap(fit.value)(X[:6] + 0.1)))

    args = jnp.asarray(0.7), jnp.asarray(3.0)
    by_nu = lambda length, C, nu: of_numbers(length, nu, X, None, C, T, solver=FINE)
    expected = jax.grad(without_tube, (0, 1))(*args)
    slopes = jax.grad(by_nu, (0, 1, 2))(*args, jnp.asarray(0.99))
    np.testing.assert_allclose(slopes[:2], expected, rtol=1e-5)
    np.testing.assert_allclose(slopes[2], 0, atol=1e-6)


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_other_solvers_small_working_sets_and_rows_of_k_give_the_same(kind):
    def fit(**options):
        if kind == "classes":
            return kernax.nu_svm(RBF, X, np.stack([Y, -Y], 1), 0.4, **options)
        return kernax.nu_support_vector_regression(RBF, X, T, 2.0, 0.4, **options)

    whole = values(fit(solver=FINE))
    for options in (
        {"solver": kernax.solvers.ProjectedGradient(rtol=1e-7)},
        {"solver": kernax.solvers.SMO(rtol=1e-9, working_set=8)},
        {"solver": kernax.solvers.SMO(rtol=1e-9, working_set=8), "block_size": 7},
    ):
        np.testing.assert_allclose(values(fit(**options)), whole, atol=1e-5)
    if kind == "classes":
        np.testing.assert_allclose(whole[:, 0], -whole[:, 1], atol=1e-6)


def test_what_is_not_possible_is_refused_by_name():
    few = np.where(np.arange(N) < 3, 1.0, -1.0).astype(DTYPE)
    with pytest.raises(
        ValueError, match=r"specified nu is infeasible: it is 0\.5, but at most 0\.2,"
    ):
        kernax.nu_svm(RBF, X, few, 0.5)
    weights = np.where(few > 0, 9.0, 1.0).astype(DTYPE)
    assert kernax.nu_svm(RBF, X, few, 0.5, weights=weights).result == kernax.RESULTS.successful
    for nu in (0.0, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"nu must be in \(0, 1\]"):
            kernax.nu_svm(RBF, X, Y, nu)
        with pytest.raises(ValueError, match=r"nu must be in \(0, 1\]"):
            kernax.nu_support_vector_regression(RBF, X, T, 1.0, nu)
    for C in (0.0, np.inf):
        with pytest.raises(ValueError, match="C must"):
            kernax.nu_support_vector_regression(RBF, X, T, C, 0.5)


def test_one_class_while_tracing_has_no_numbers():
    """Catches coefficients and a gap that look plausible beside the failure."""
    labels = np.stack([np.ones(N), np.where(np.arange(N) < 3, 1.0, -1.0)]).astype(DTYPE)
    fit = jax.jit(lambda y, nu: kernax.nu_svm(RBF, X, y, nu, throw=False))
    for y, nu in ((labels[0], 0.3), (-labels[0], 0.3), (labels[1], 0.5)):
        solution = fit(y, jnp.asarray(nu, DTYPE))
        assert solution.result == kernax.RESULTS.nonfinite
        function = solution.value
        assert np.all(np.isnan(function.coefficients))
        assert np.isnan(function.bias)
        assert all(np.isnan(solution.stats[name]) for name in ("primal", "dual", "gap", "rho"))
    assert fit(labels[1], jnp.asarray(0.2, DTYPE)).result == kernax.RESULTS.successful


@pytest.mark.slow
def test_a_failure_says_its_figures_also_where_they_are_differentiated():
    """Catches a figure with a derivative, rho, that is not known under `jax.jvp`."""
    solver = kernax.solvers.SMO(max_steps=2)

    def fit(nu):
        return kernax.nu_svm(RBF, X, Y, nu, solver=solver).value.coefficients

    with pytest.raises(MaxStepsError, match=r"rho -?\d"):
        jax.jvp(fit, (jnp.asarray(0.4, DTYPE),), (jnp.ones((), DTYPE),))


def test_classes_that_overlap_have_no_margin_for_a_small_nu_and_are_no_success():
    """By a linear kernel: convex hulls of the classes intersect, and rho is zero."""
    inside = np.r_[X, X * DTYPE(0.5)]
    labels = np.repeat([-1.0, 1.0], N).astype(DTYPE)
    solver = kernax.solvers.SMO(max_steps=2000)
    solution = kernax.nu_svm(kernax.Linear(), inside, labels, 0.2, solver=solver, throw=False)
    assert solution.result != kernax.RESULTS.successful


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "labels"),
    [(np.zeros((4, 1)), [1, -1, 1, -1]), ([[1], [1], [2], [2]], [1, -1, 1, -1])],
    ids=["a kernel of zero", "the same points in both classes"],
)
def test_without_any_margin_there_is_no_function_and_no_success(points, labels):
    """Then g is zero, and the division by rho would leave NaN beside a success."""
    args = kernax.Linear(), np.asarray(points, DTYPE), np.asarray(labels, DTYPE), 0.5
    solution = kernax.nu_svm(*args, throw=False)
    assert solution.stats["rho"] == 0
    assert solution.result == kernax.RESULTS.nonfinite
    assert np.all(np.isnan(solution.value.coefficients))
    with pytest.raises(NonFiniteError, match="take a larger nu"):
        kernax.nu_svm(*args)


@pytest.mark.nightly
def test_a_doubled_matrix_is_the_matrix_of_points_given_twice():
    features, remainder = RNG.normal(size=(5, 3)).astype(DTYPE), RNG.uniform(1, 2, 5).astype(DTYPE)
    K = features @ features.T + np.diag(remainder)
    whole = np.tile(K, (2, 2))
    v = jnp.asarray(RNG.normal(size=10), DTYPE)
    places = jnp.array([7, 2, 4, 9])  # of which two pairs are one point
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    for gram in (
        DenseGram(jnp.asarray(K)),
        LowRankGram(jnp.asarray(features), jnp.asarray(remainder)),
    ):
        doubled = DoubledGram(gram)
        assert doubled.in_size() == 10
        close(doubled.mv(v), whole @ v)
        close(doubled.compensated_mv(v), whole @ v)
        close(doubled.squares_in_products(v), whole**2 @ v**2)
        close(doubled.diagonal(), np.diag(whole))
        close(doubled.as_matrix(), whole)
        close(doubled.rows(places), whole[places])
        close(doubled.submatrix(places), whole[np.ix_(places, places)])
        close(doubled.columns_product(places, v[:4]), whole[:, places] @ v[:4])


def test_a_nu_at_its_limit_is_feasible_whatever_the_rounding_of_the_sums_of_weights():
    n = 1000
    weights = np.full(n, 0.1, DTYPE)
    points = np.arange(n, dtype=DTYPE)[:, None]
    few = kernax.solvers.SMO(max_steps=1)

    @jax.jit
    def result(y, nu):
        fit = kernax.nu_svm(RBF, points, y, nu, weights=weights, solver=few, throw=False)
        return fit.result == kernax.RESULTS.nonfinite

    y = np.where(np.arange(n) < n // 2, 1, -1).astype(DTYPE)
    assert not result(y, 1.0)
    y = np.where(np.arange(n) < 3 * n // 4, 1, -1).astype(DTYPE)
    assert not result(y, 0.5)
    assert result(y, 0.501)


@pytest.mark.nightly
@needs_x64
def test_estimators_are_those_of_scikit_learn():
    three = np.digitize(X[:, 0], [-0.5, 0.5])
    for labels in (Y > 0, three):
        a = ours.NuSVC(nu=0.4, gamma=0.5).fit(X, labels)
        b = NuSVC(nu=0.4, gamma=0.5, tol=1e-10).fit(X, labels)
        np.testing.assert_allclose(a.decision_function(X), b.decision_function(X), atol=1e-4)
        np.testing.assert_array_equal(a.predict(X), b.predict(X))
        np.testing.assert_array_equal(a.support_, b.support_)
        np.testing.assert_array_equal(a.n_support_, b.n_support_)
        np.testing.assert_allclose(a.dual_coef_, b.dual_coef_, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(a.intercept_, b.intercept_, atol=1e-4)
    a = ours.NuSVR(nu=0.37, C=2.0, kernel="linear").fit(X, T)
    b = NuSVR(nu=0.37, C=2.0, kernel="linear", tol=1e-10).fit(X, T)
    np.testing.assert_allclose(a.predict(X), b.predict(X), atol=1e-4)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-4)
    np.testing.assert_allclose(a.intercept_, b.intercept_, atol=1e-4)
    with pytest.raises(ValueError, match="specified nu is infeasible"):
        ours.NuSVC(nu=0.9).fit(X, np.arange(N) < 3)


@pytest.mark.slow
@needs_x64
def test_probabilities_are_those_of_the_machine_with_the_same_penalty():
    a = ours.NuSVC(nu=0.4, gamma=0.5, probability=True).fit(X, Y > 0)
    rho = 1 / float(np.max(abs(a.dual_coef_)))  # that of a coefficient at its bound
    b = ours.SVC(C=1 / rho, gamma=0.5, probability=True).fit(X, Y > 0)
    np.testing.assert_allclose(a.predict_proba(X), b.predict_proba(X), atol=1e-4)
