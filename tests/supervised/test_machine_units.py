"""Machines and the LASSO in any units, and certificates that count what rounding does to K b."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, assert_close, needs_x32, needs_x64

import kernax
from kernax.core.operators.operators import DenseGram
from kernax.supervised.machines.box_problem import BoxProblem, DualPoint, size_of_targets
from kernax.supervised.machines.certificate import certificate

RNG = np.random.default_rng(0)
N = 30
X = RNG.normal(size=(N, 2)).astype(DTYPE)
T = (X[:, 0] + 0.3 * RNG.normal(size=N)).astype(DTYPE)
Y = np.sign(T)
# Of two: not a rounding should change.
SCALES = [2.0**k for k in ((-99, 99) if not X64 else (-430, -99, 99, 430))]
RBF = kernax.RBF(1.0)


def classes(c):
    """Values stay as they are: coefficients are in units of one over those of the kernel."""
    value = kernax.svm(c * RBF, X, Y, 1 / c).value
    return value.coefficients * DTYPE(c), value.bias


def numbers(c):
    value = kernax.support_vector_regression(RBF, X, T * DTYPE(c), c, 0.1 * c).value
    return value.coefficients / DTYPE(c), value.bias / DTYPE(c)


def one_class(c):
    value = kernax.one_class_svm(c * RBF, X, 0.2).value
    return value.coefficients, value.bias / DTYPE(c)


def medians(c):
    value = kernax.regularised_risk(
        RBF, X, T * DTYPE(c), 1 / c, loss=kernax.losses.Absolute(), bias=True
    ).value
    return value.coefficients / DTYPE(c), value.bias / DTYPE(c)


def lasso_of_targets(c):
    coefficients, bias = kernax.lasso(X, T * DTYPE(c), 3 * c, bias=True).value
    return coefficients / DTYPE(c), bias / DTYPE(c)


def lasso_of_features(c):
    coefficients, bias = kernax.lasso(X * DTYPE(c), T, 3 * c, bias=True).value
    return coefficients * DTYPE(c), bias


SLOW_IN_X64 = [pytest.mark.slow] * X64
OTHERS = [
    pytest.param(fit, marks=SLOW_IN_X64)
    for fit in (numbers, one_class, medians, lasso_of_targets, lasso_of_features)
]


@pytest.mark.slow
@pytest.mark.parametrize("fit", [classes, *OTHERS])
def test_a_fit_in_other_units_is_the_same_fit(fit):
    """Of targets of 1e-21 or 1e20 in float32, machines without support vectors called themselves
    successful.
    """
    expected = fit(1.0)
    for c in SCALES:
        for ours, theirs in zip(fit(c), expected):
            np.testing.assert_array_equal(ours, theirs, err_msg=f"in units of {c:g}")


def true_gap(F, labels, beta):
    """Of C = 1 with the best bias: in long doubles, through the features, so that nothing cancels
    in K.
    """
    F, beta = F.astype(np.longdouble), np.asarray(beta).astype(np.longdouble)
    w = F.T @ beta
    f = F @ w
    primal = w @ w / 2 + min(np.sum(np.maximum(0, 1 - labels * (f + bias))) for bias in labels - f)
    dual = beta @ labels - w @ w / 2
    return float((primal - dual) / max(abs(primal), abs(dual)))


@pytest.mark.slow
@pytest.mark.parametrize("column", [1.0, 1e7 if X64 else 1e4])
@pytest.mark.parametrize("labels", [Y, np.sort(Y)], ids=["mixed", "sorted"])
def test_a_success_has_the_gap_that_it_claims_where_products_cancel(labels, column):
    """A constant column takes all digits of K b: gaps of 0.004 (float64) and above one (float32)
    were claimed to be zero.
    """
    F = np.c_[X, np.full(N, column, DTYPE)]
    solution = kernax.svm(
        kernax.Linear(), F, labels, 1.0, solver=kernax.solvers.SMO(max_steps=20_000), throw=False
    )
    successful = solution.result == kernax.RESULTS.successful
    assert successful == (column == 1)
    if successful:
        assert true_gap(F, labels, solution.value.coefficients) <= 1.1e-3


@needs_x32
@pytest.mark.parametrize("nu", [0.3, 1e-2, 1e-4, 1e-6])
def test_one_class_of_a_small_fraction_has_the_gap_that_it_claims(nu):
    """Coefficients of 1e-5 were solved for with the tolerance of coefficients of one: in float32
    gaps of 0.28.
    """
    solution = kernax.one_class_svm(RBF, X, nu)
    beta, K = np.asarray(solution.value.coefficients, float), np.asarray(kernax.gram(RBF, X), float)
    f = K @ beta
    primal = beta @ f / 2 + min(np.sum(np.maximum(0, level - f)) - nu * N * level for level in f)
    assert primal + beta @ f / 2 <= 1.1e-3 * beta @ f / 2
    assert_close(np.sum(beta), nu * N, 1e-6)


def linear_problem(x, y, bounds):
    """The programme of labels y of a linear kernel at numbers x, with a bound for each."""
    x, y, bounds = (jnp.asarray(part, DTYPE) for part in (x, y, bounds))
    K = DenseGram(x[:, None] * x[None, :])
    zero, one = jnp.zeros((), DTYPE), jnp.ones((), DTYPE)
    low, high = jnp.minimum(bounds * y, 0), jnp.maximum(bounds * y, 0)
    return BoxProblem(K, y, low, high, zero, zero, one)


@eqx.filter_jit
def certified(problem, beta):
    zero = jnp.zeros((), DTYPE)
    point = DualPoint.of(problem, beta, problem.residual(beta), jnp.zeros((), jnp.int32), zero)
    return certificate(point, problem).stats


def test_the_rounding_of_f_at_a_removed_point_hides_no_gap_of_the_others():
    """There f may be 1e6 times larger: in float32 a rounding of 0.4 was forgiven everywhere."""
    x, y, beta = np.array([-1.0, 1, -2, 2]), np.array([-1.0, 1, -1, 1]), np.array([-0.1, 0.1, 0, 0])
    without = certified(linear_problem(x, y, np.ones(4)), jnp.asarray(beta, DTYPE))
    removed = linear_problem(np.append(x, 1e6), np.append(y, 1.0), np.append(np.ones(4), 0.0))
    found = certified(removed, jnp.asarray(np.append(beta, 0.0), DTYPE))
    for name, figure in without.items():
        assert_close(found[name], figure, 32 * np.finfo(DTYPE).eps)


def test_the_size_of_targets_is_that_of_the_points_that_have_a_weight():
    y, weights = jnp.array([1.0, 2.0, 4.0, 1e6], DTYPE), jnp.array([1.0, 0.5, 3.0, 0.0], DTYPE)
    for bias, expected in ((True, np.std([1.0, 2.0, 4.0])), (False, np.sqrt(7.0))):
        assert_close(size_of_targets(y, weights, bias), expected, 1e-6)


@pytest.mark.nightly
@needs_x64
def test_a_removed_point_far_away_leaves_one_class_as_it_is():
    """Tolerances were relative to the mean of k(x, x) over all points."""
    near = np.array([[3.0], [2.0], [1.5], [1.2], [1.0], [0.5]])
    far = np.array([[3.0], [2.0], [1.5], [1.2], [1.0], [1e6]])
    weights = np.array([1.0, 1, 1, 1, 1, 0])
    solver = kernax.solvers.SMO(rtol=1e-6)
    for points in (near, far):
        solution = kernax.one_class_svm(
            kernax.Linear(), points, 0.5, weights=weights, solver=solver
        )
        found = np.asarray(solution.value.coefficients)
        np.testing.assert_allclose(found, [0, 0, 0.5, 1, 1, 0], atol=1e-4)


@needs_x32
def test_bounds_far_below_what_the_targets_ask_for_are_kept():
    """Bounds of 1e-9 where the targets ask for 1e35: in units of the latter they would be zero, and
    the fit nothing.
    """
    value = kernax.support_vector_regression(1e-15 * RBF, X, 1e20 * T, 1e-9, 0.0, bias=False).value
    np.testing.assert_allclose(value.coefficients, 1e-9 * np.sign(T), rtol=1e-6)


@pytest.mark.slow
@needs_x64
def test_one_class_around_the_origin_whose_values_are_rounding_alone_is_no_success():
    """Pairs on either side of the origin, and nu = 1: every coefficient is one, and f zero."""
    around = np.concatenate([X, -X]) * DTYPE(1 / 3)
    solution = kernax.one_class_svm(kernax.Linear(), around, 1.0, throw=False)
    np.testing.assert_allclose(solution.value.coefficients, 1, rtol=1e-6)
    assert solution.result == kernax.RESULTS.inaccurate


LARGE = DTYPE(2.0**83 if not X64 else 2.0**660)


def regression(K, size, C):
    return kernax.support_vector_regression(
        K * kernax.RBF(0.2), X, T * size, C, 0.2 * size, throw=False
    )


@pytest.mark.nightly
def test_a_solution_that_floats_cannot_hold_is_no_success():
    """Coefficients of 1e-50 or 1e50 in float32 were returned as zero and as infinity,
    successfully.
    """
    underflown = regression(LARGE, 1 / LARGE, 1.0)
    assert underflown.result == kernax.RESULTS.inaccurate
    overflown = regression(1 / LARGE, LARGE, np.inf)
    assert overflown.result == kernax.RESULTS.nonfinite
    assert np.all(np.isnan(overflown.value.coefficients)) & np.isnan(overflown.value.bias)
    infinite = kernax.lasso(X / LARGE, T * LARGE, 0.1, throw=False)
    assert infinite.result == kernax.RESULTS.nonfinite
    assert np.all(np.isnan(infinite.value[0])) & np.isnan(infinite.value[1])
    # The penalty is small beside 1, the largest slope.
    zero = kernax.lasso(X * LARGE, T / LARGE, 0.1, throw=False)
    assert zero.result == kernax.RESULTS.inaccurate
