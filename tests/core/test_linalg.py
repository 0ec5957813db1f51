"""Solvers: the truth about how a solve ended, and derivatives that do not depend on how it was
done.
"""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, assert_close, check_derivatives, needs_x64, untyped

import kernax
from kernax.core.base.weights import PointWeights, UnitWeights
from kernax.core.linalg.factorisation import WeightedSystem
from kernax.core.linalg.solves import solve_by_products
from kernax.core.linalg.weighted_solve import weighted_solve
from kernax.core.operators.operators import DenseGram
from kernax.errors import (
    BreakdownError,
    ConditionWarning,
    MaxStepsError,
    NonFiniteError,
    NotPSDError,
)

PSD = lx.positive_semidefinite_tag


def dense(A):
    return lx.MatrixLinearOperator(jnp.asarray(A, DTYPE), PSD)


def matrix_free(A):
    A = jnp.asarray(A, DTYPE)
    return lx.FunctionLinearOperator(lambda v: A @ v, jax.ShapeDtypeStruct((len(A),), DTYPE), PSD)


WAYS = [
    (dense, kernax.solvers.JitteredCholesky()),
    (dense, kernax.solvers.ConjugateGradient()),
    (matrix_free, kernax.solvers.ConjugateGradient()),
]
IDS = ["cholesky", "cg-dense", "cg-free"]


@needs_x64
@pytest.mark.parametrize(("operator", "solver"), WAYS, ids=IDS)
def test_a_nan_in_the_matrix_is_reported_and_never_solved(operator, solver):
    """L04."""
    A = 2 * np.eye(3)
    A[0, 0] = np.nan
    solution = kernax.solvers.solve(operator(A), np.ones(3), solver, throw=False)
    assert solution.result == kernax.RESULTS.nonfinite
    assert jnp.all(jnp.isnan(solution.value))
    with pytest.raises(NonFiniteError):
        kernax.solvers.solve(operator(A), np.ones(3), solver)
    assert not issubclass(NonFiniteError, NotPSDError)


@pytest.mark.slow
@pytest.mark.parametrize(("operator", "solver"), WAYS, ids=IDS)
def test_a_zero_right_hand_side_gives_zeros_and_a_gradient(operator, solver):
    """L05."""
    solution = kernax.solvers.solve(operator(2 * np.eye(3)), np.zeros(3), solver)
    assert jnp.all(solution.value == 0)
    assert solution.stats.get("steps", 0) == 0
    gradient = jax.grad(
        lambda b: jnp.sum(kernax.solvers.solve(operator(2 * np.eye(3)), b, solver).value)
    )(jnp.zeros(3, DTYPE))
    np.testing.assert_allclose(gradient, 0.5, rtol=TOLERANCE["value"])


def test_conjugate_gradients_report_the_true_residual_and_are_judged_by_it():
    """L07."""
    x = np.linspace(0, 1, 200, dtype=np.float32)
    operator = kernax.gram_operator(kernax.RBF(0.2), x[:, None], ridge=1e-4)
    b = np.sin(6 * x)
    solution = kernax.solvers.solve(
        operator, b, kernax.solvers.ConjugateGradient(max_steps=400), throw=False
    )
    A = np.asarray(operator.as_matrix(), float)
    true = np.linalg.norm(b - A @ np.asarray(solution.value, float)) / np.linalg.norm(b)
    reported = float(solution.stats["residual"])
    assert true / 2 <= reported <= 2 * true
    tolerance = kernax.solvers.ConjugateGradient().tolerance(jnp.float32)
    assert bool(solution.result == kernax.RESULTS.successful) == (reported <= 2 * tolerance)


@needs_x64
def test_a_cap_on_the_steps_is_reported():
    A = np.diag(np.logspace(0, 6, 50))
    few = kernax.solvers.ConjugateGradient(max_steps=3)
    assert (
        kernax.solvers.solve(dense(A), np.ones(50), few, throw=False).result
        == kernax.RESULTS.max_steps_reached
    )
    with pytest.raises(MaxStepsError, match="steps 3"):
        kernax.solvers.solve(dense(A), np.ones(50), few)


@pytest.mark.parametrize("scale", [1e-12, 1e12, 1e-75 if X64 else 1e-18, 1e75 if X64 else 1e18])
def test_conjugate_gradients_do_not_depend_on_units(scale, rng):
    A = rng.normal(size=(30, 30))
    A = A @ A.T + np.eye(30)
    b = rng.normal(size=30)
    plain = kernax.solvers.solve(dense(A), b, kernax.solvers.ConjugateGradient())
    scaled = kernax.solvers.solve(dense(A * scale), b / scale, kernax.solvers.ConjugateGradient())
    np.testing.assert_allclose(
        np.asarray(scaled.value) * scale * scale, plain.value, rtol=TOLERANCE["solve"] * 10
    )


def test_jitter_is_added_only_where_it_is_needed_and_said_aloud():
    well = kernax.solvers.solve(dense(np.eye(3)), np.ones(3))
    assert well.stats["jitter"] == 0
    with pytest.warns(ConditionWarning, match="added to its diagonal"):
        singular = kernax.solvers.solve(dense(np.ones((3, 3))), np.ones(3))
    assert 0 < singular.stats["jitter"] <= 1e-4
    np.testing.assert_allclose(np.sum(singular.value), 1, rtol=1e-5)


def test_a_matrix_singular_by_accident_of_rounding_is_not_solved_into_noise():
    x = np.linspace(0, 1, 60)[:, None]
    with pytest.warns(ConditionWarning):
        solution = kernax.solvers.solve(kernax.gram_operator(kernax.RBF(5.0), x), np.sin(x[:, 0]))
    assert jnp.max(jnp.abs(solution.value)) < (1e8 if X64 else 1e5)


@needs_x64
def test_an_indefinite_matrix_is_refused_and_not_repaired():
    solution = kernax.solvers.solve(dense(np.diag([1.0, -1.0, 2.0])), np.ones(3), throw=False)
    assert solution.result == kernax.RESULTS.not_psd
    assert jnp.all(jnp.isnan(solution.value))
    with pytest.raises(
        NotPSDError,
        match=r"not positive definite.* eigenvalue of the operator is -1, the largest 2\.",
    ):
        kernax.solvers.solve(dense(np.diag([1.0, -1.0, 2.0])), np.ones(3))


def test_jitter_never_exceeds_a_ten_thousandth_of_the_mean_diagonal():
    """Catches a cap that would repair what is indefinite: this matrix has the eigenvalue -1e-3."""
    nearly = kernax.solvers.solve(dense([[1.0, 1.001], [1.001, 1.0]]), np.ones(2), throw=False)
    assert nearly.result == kernax.RESULTS.not_psd
    assert jnp.all(jnp.isnan(nearly.value))
    assert nearly.stats["jitter"] <= 1e-4


def test_a_pivot_of_rounding_is_no_pivot():
    """LAPACK factorises this matrix of rank one, to working precision, with a last pivot of eps."""
    eps = jnp.finfo(DTYPE).eps
    with pytest.warns(ConditionWarning):
        solution = kernax.solvers.solve(dense([[1.0, 1.0], [1.0, 1 + eps]]), np.ones(2))
    assert solution.stats["jitter"] > 0


@pytest.mark.parametrize(
    ("A", "b", "value"),
    [
        (np.ones((3, 3)), [1, 2, 3], [7 / 18, 7 / 9, 7 / 6]),
        (np.zeros((3, 3)), [1, 1, 1], [0, 0, 0]),
        (np.diag([1.0, 1.0, 0.0]), [1, 1, 0], [1, 1, 0]),
    ],
    ids=["rank one", "zero", "in range"],
)
def test_conjugate_gradients_on_a_singular_system_return_their_best_iterate(A, b, value):
    """Catches NaN, and `not_psd`, for what is singular only. A right-hand side in the range of A
    has its solution.
    """
    solution = kernax.solvers.solve(
        dense(A), np.asarray(b, DTYPE), kernax.solvers.ConjugateGradient(), throw=False
    )
    np.testing.assert_allclose(solution.value, value, rtol=1e-5)
    soluble = np.array_equal(A @ value, b)
    assert solution.result == (kernax.RESULTS.successful if soluble else kernax.RESULTS.breakdown)
    if not soluble:
        with pytest.raises(BreakdownError):
            kernax.solvers.solve(dense(A), np.asarray(b, DTYPE), kernax.solvers.ConjugateGradient())


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "solver",
    [kernax.solvers.JitteredCholesky(), kernax.solvers.ConjugateGradient()],
    ids=["cholesky", "cg"],
)
def test_a_bad_member_of_a_batch_leaves_the_others_and_their_gradients_alone(solver):
    """J02."""
    line = jnp.linspace(0, 1, 4, dtype=DTYPE)[:, None]
    rbf = kernax.gram(kernax.RBF(5.0), line) + (1e-8 if X64 else 1e-3) * jnp.eye(4, dtype=DTYPE)
    batch = jnp.stack([2 * jnp.eye(4, dtype=DTYPE), rbf, jnp.full((4, 4), jnp.nan, DTYPE)])
    b = jnp.array([1.0, -0.5, 0.2, 3.0], DTYPE)

    def one(A):
        return kernax.solvers.solve(lx.MatrixLinearOperator(A, PSD), b, solver, throw=False)

    together = jax.jit(jax.vmap(one))(batch)
    alone = one(batch[0])
    np.testing.assert_allclose(together.value[0], alone.value, rtol=1e-12 if X64 else 1e-6)
    ok = jax.vmap(lambda result: result == kernax.RESULTS.successful)(together.result)
    assert ok.tolist()[::2] == [True, False]
    if X64:
        assert ok[1]
        assert together.stats["residual"][1] < 1e-6
    assert jax.vmap(lambda result: result == kernax.RESULTS.nonfinite)(
        together.result
    ).tolist() == [False, False, True]
    gradients = jax.jit(
        jax.grad(lambda batch: jnp.nansum(jax.vmap(lambda A: one(A).value)(batch)))
    )(batch)
    assert jnp.all(jnp.isfinite(gradients[:2]))
    if "steps" in together.stats:
        assert together.stats["steps"].shape == (3,)


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize(
    ("solver", "weighted"),
    [
        pytest.param(lx.Cholesky(), False, id="lx"),
        pytest.param(lx.Cholesky(), True, id="lx-weighted", marks=pytest.mark.slow),
        pytest.param(
            kernax.solvers.ConjugateGradient(1e-13), True, id="cg-weighted", marks=pytest.mark.slow
        ),
    ],
)
def test_weighted_solve_has_exact_derivatives_of_first_and_second_order(solver, weighted, rng):
    A = rng.normal(size=(6, 6))
    K = jnp.asarray(A @ A.T / 6)
    rhs = jnp.asarray(rng.normal(size=(6, 2)))
    weights = jnp.asarray(rng.uniform(0.1, 2, 6))

    def value(*args):
        K, weights, ridge, rhs = map(jnp.asarray, args)
        K = (K + K.T) / 2
        of_points = PointWeights(weights) if weighted else UnitWeights(6, K.dtype)
        x, _, _ = weighted_solve(WeightedSystem.of(DenseGram(K), of_points, ridge), rhs, solver)
        return jnp.sin(x)

    arguments = (K, weights, jnp.array(0.3), rhs)
    gradient = jax.grad(
        lambda *args: jnp.sum(value(*args) ** 2), (0, 1, 2, 3) if weighted else (0, 2, 3)
    )
    check_derivatives(value, arguments, rtol=1e-6, atol=1e-7)
    check_derivatives(
        lambda *args: gradient(*map(jnp.asarray, args)), arguments, rtol=1e-6, atol=1e-7, step=1e-6
    )


@needs_x64
def test_any_lineax_solver_for_definite_operators_will_do(rng):
    A = rng.normal(size=(8, 8))
    A = A @ A.T + np.eye(8)
    b = rng.normal(size=(8, 2))
    expected = np.linalg.solve(A, b)
    for solver in (
        lx.Cholesky(),
        lx.CG(rtol=1e-6, atol=1e-6),
        lx.AutoLinearSolver(well_posed=True),
    ):
        np.testing.assert_allclose(
            kernax.solvers.solve(dense(A), b, solver).value, expected, rtol=1e-3, atol=1e-4
        )


@needs_x64
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: kernax.solvers.solve(dense(np.eye(3)), np.ones(4)), r"rhs must have shape \(3,\)"),
        (
            lambda: untyped(kernax.solvers.solve)(np.eye(3), np.ones(3)),
            "operator must be one of lineax, .* converts an array",
        ),
        (
            lambda: untyped(kernax.solvers.solve)(dense(np.eye(3)), np.ones(3), lx.CG),
            "solver must be a linear solver, such as",
        ),
        (
            lambda: kernax.solvers.solve(dense(np.eye(3)), np.array([1.0, np.inf, 0.0])),
            "rhs holds NaN or inf, first in row 1",
        ),
        (
            lambda: kernax.solvers.solve(
                lx.MatrixLinearOperator(jnp.eye(3)), np.ones(3), kernax.solvers.ConjugateGradient()
            ),
            "tagged",
        ),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_solution_below_the_smallest_float_is_no_success():
    large, small = (1e200, 1e-150) if X64 else (1e25, 1e-20)
    operator = lx.MatrixLinearOperator(large * jnp.eye(3), lx.positive_semidefinite_tag)
    lost = kernax.solvers.solve(operator, jnp.full(3, small), throw=False)
    assert lost.result == kernax.RESULTS.inaccurate
    assert lost.stats["residual"] == 1
    assert kernax.solvers.solve(operator, jnp.ones(3)).stats["residual"] < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("size", [1.0, 1e-15])
def test_solutions_by_products_and_their_gradients_hold_for_a_tiny_right_hand_side(size):
    """Catches an absolute tolerance, which takes small vectors and cotangents for zero."""
    A = jnp.asarray([[3.0, 1.0, 0.5], [0.0, 2.0, -1.0], [0.3, 0.2, 4.0]], DTYPE)
    b = jnp.asarray([1.0, -2.0, 0.5], DTYPE)

    tol = 1e-10 if X64 else 1e-5

    def solved(A, b):
        return solve_by_products(lambda x: A @ x, b, tol, restart=3, max_steps=20)

    x, pull = jax.vjp(solved, A, size * b)
    to_A, to_b = pull(size * b)
    back = np.linalg.solve(A.T, b)
    expected = np.linalg.solve(A, b)
    assert_close(x / size, expected, 2 * tol)
    assert_close(to_b / size, back, 2 * tol)
    assert_close(to_A / size, -size * np.outer(back, expected), 2 * tol)


def test_a_solve_by_products_that_fails_leaves_no_number_and_no_gradient():
    b = jnp.asarray([1.0, 2.0], DTYPE)
    solved = lambda b: solve_by_products(lambda x: 0 * x, b, 1e-3, restart=2, max_steps=4)
    assert jnp.all(jnp.isnan(solved(b)))
    assert jnp.all(jnp.isnan(jax.grad(lambda b: jnp.sum(solved(b)))(b)))


def _jitter_of_ridge(kernel, X, y, weights):
    return kernax.kernel_ridge(kernel, X, y, 0.0, weights=weights, throw=False)


def _jitter_of_path(kernel, X, y, weights):
    return kernax.selection.ridge_path(
        kernel, X, y, jnp.array([1e-30]), weights=weights, throw=False
    )


def _jitter_along_a_line(kernel, X, y, weights):
    process = kernax.GaussianProcess(kernel)
    solver = kernax.solvers.StateSpace()
    return kernax.condition(process, X, y, 0.0, weights=weights, solver=solver, throw=False)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore::kernax.errors.ConditionWarning")
@pytest.mark.parametrize("fit", [_jitter_of_ridge, _jitter_of_path, _jitter_along_a_line])
def test_jitter_is_that_of_the_points_with_a_weight(fit):
    # Twenty points, each twice, of a diagonal of 2; forty without a weight, whose diagonal is 1.
    x = jnp.repeat(jnp.linspace(0.0, 1.0, 20), 2)
    X = jnp.concatenate([x, jnp.linspace(3.0, 4.0, 40)])[:, None]
    weights = jnp.repeat(jnp.array([1.0, 0.0]), 40)
    y = jnp.sin(X[:, 0])
    kernel = kernax.kernels.Scaled(kernax.Matern32(1.0), 2.0)
    padded = fit(kernel, X, y, weights).stats["jitter"]
    alone = fit(kernel, X[:40], y[:40], None).stats["jitter"]
    assert jnp.all(alone > 0)
    np.testing.assert_allclose(padded, alone, rtol=1e-5)
