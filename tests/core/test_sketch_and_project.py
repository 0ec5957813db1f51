"""Random blocks solved exactly: the solution, how it ends, and what it costs next to conjugate
gradients.
"""

import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
import pytest
from conftest import DTYPE, X64, needs_x64, untyped

import kernax
from kernax.core.linalg.conjugate_gradient import ConjugateGradient
from kernax.core.linalg.sketch_and_project import SketchAndProject
from kernax.errors import BreakdownError, MaxStepsError, NonFiniteError

PSD = lx.positive_semidefinite_tag
KEY = jax.random.key(0)
N, BLOCK = 61, 13
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 2)).astype(DTYPE)
Y = np.stack([np.sin(2 * X[:, 0]), X[:, 1] ** 2], 1)
WEIGHTS = np.where(np.arange(N) % 7 == 0, 0, 1 + np.arange(N) % 3).astype(DTYPE)
KERNEL = 1.5 * kernax.RBF(0.7)
RTOL = 1e-11 if X64 else 1e-5
SOLVER = SketchAndProject(KEY, block_size=BLOCK, rtol=RTOL)


def fit(solver, block_size=None, **rest):
    given = {"ridge": 0.1, "y": Y} | rest
    return kernax.kernel_ridge(KERNEL, X, solver=solver, block_size=block_size, **given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block_size", "weights"), [(None, WEIGHTS), (16, None)], ids=["held-weighted", "blocks-plain"]
)
def test_the_solution_is_that_of_a_direct_solve(block_size, weights):
    solution = fit(SOLVER, block_size, weights=weights)
    w = np.ones(N) if weights is None else weights.astype(float)
    K = np.asarray(kernax.gram(KERNEL, X), float)
    expected = np.linalg.solve(w[:, None] * K + 0.1 * np.eye(N), w[:, None] * Y.astype(float))
    # measured: 3e-12 and 8e-6
    np.testing.assert_allclose(solution.value.coefficients, expected, atol=1e-9 if X64 else 1e-3)
    assert 0 < solution.stats["steps"] < 100
    assert solution.stats["residual"] <= 2 * RTOL


@pytest.mark.slow
@needs_x64
def test_with_a_bias_it_is_the_solution_with_a_bias():
    a, b = (fit(solver, bias=True).value for solver in (SOLVER, None))
    np.testing.assert_allclose(a.bias, b.bias, atol=1e-8)
    np.testing.assert_allclose(a.coefficients, b.coefficients, atol=1e-8)


@pytest.mark.nightly
@needs_x64
def test_an_operator_of_a_ridge_or_a_matrix_is_solved_as_well():
    operator = kernax.gram_operator(KERNEL, X, ridge=0.1, block_size=16)
    matrix = lx.MatrixLinearOperator(operator.as_matrix(), PSD)
    expected = np.linalg.solve(np.asarray(matrix.matrix), Y)
    for A in (operator, matrix):
        np.testing.assert_allclose(kernax.solvers.solve(A, Y, SOLVER).value, expected, atol=1e-8)


@needs_x64
def test_columns_share_their_blocks():
    """No block is computed, or factorised, for each of them."""
    program = str(jax.make_jaxpr(lambda y: fit(SOLVER, 16, y=y, throw=False).value.coefficients)(Y))
    assert f"f64[{BLOCK},{BLOCK}]" in program
    assert f"f64[2,{BLOCK},{BLOCK}]" not in program
    assert f"f64[{BLOCK},{BLOCK},2]" not in program


@pytest.mark.nightly
@needs_x64
def test_derivatives_are_those_of_the_system():
    """Against Cholesky's, which have tests of their own; in weights of zero as well."""

    def gradient(solver):
        def function(lengthscale, ridge, weights, y):
            f = kernax.kernel_ridge(
                kernax.RBF(lengthscale), X, y, ridge, weights=weights, solver=solver, throw=False
            ).value
            return jnp.sum(jnp.sin(f.coefficients))

        return jax.jit(jax.grad(function, (0, 1, 2, 3)))(0.7, 0.1, WEIGHTS, Y)

    for a, b in zip(gradient(SOLVER), gradient(None)):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@needs_x64
def test_a_batch_of_ridges_and_of_gradients_is_that_of_single_ones():
    def size(ridge):
        return jnp.sum(fit(SOLVER, ridge=ridge, throw=False).value.coefficients ** 2)

    ridges = jnp.array([0.05, 0.4])
    alone = jax.jit(jax.value_and_grad(size))
    both = jax.jit(jax.vmap(alone))(ridges)
    each = [alone(ridge) for ridge in ridges]
    np.testing.assert_allclose(both, np.transpose(each), rtol=1e-7)


@pytest.mark.nightly
@needs_x64
def test_a_batch_of_keys_gives_several_solutions_within_the_tolerance():
    rough = lambda key: (
        fit(SketchAndProject(key, block_size=BLOCK, rtol=1e-3), throw=False).value.coefficients
    )
    both = jax.vmap(rough)(jax.random.split(KEY, 2))
    exact = fit(None).value.coefficients
    assert jnp.max(abs(both[0] - both[1])) > 1e-8
    np.testing.assert_allclose(both[0], exact, atol=0.05)


@pytest.mark.slow
@needs_x64
def test_it_takes_fewer_sweeps_than_conjugate_gradients_take_steps():
    """Of many large eigenvalues, for each of which those take a step. Measured: 9 and 84."""
    points = np.random.default_rng(1).normal(size=(600, 3))
    steps = [
        int(
            kernax.kernel_ridge(kernax.RBF(1.0), points, points[:, 0], 1e-3, solver=s).stats[
                "steps"
            ]
        )
        for s in (SketchAndProject(KEY, rtol=1e-6), ConjugateGradient(rtol=1e-6))
    ]
    assert 4 * steps[0] < steps[1]


# how it ends


def matrix_of(eigenvalues, seed):
    """A random matrix with these eigenvalues."""
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(eigenvalues),) * 2))
    return (Q * eigenvalues) @ Q.T


SPECTRA = {
    "well conditioned": np.linspace(1, 3, 40),
    "a tail": 1 / (1 + np.arange(40.0)) ** 2,
    "nearly singular": np.logspace(0, -7, 40),
    "singular": np.maximum(np.linspace(-1, 1, 40), 0),
    "hopeless": np.logspace(0, -18, 40),
    "indefinite": np.linspace(-0.2, 1, 40),
    "negative": -np.linspace(1, 2, 40),
}


HARD = SketchAndProject(KEY, block_size=9, max_steps=400)


@jax.jit
def solved(A, b):
    return kernax.solvers.solve(lx.MatrixLinearOperator(A, PSD), b, HARD, throw=False)


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_no_success_is_claimed_that_the_residual_does_not_confirm(spectrum):
    """Whatever the units of the matrix and of the right-hand side, within the range of floats."""
    most = 2 * HARD.tolerance(DTYPE)
    scales = (1.0, 1e-200, 1e150) if X64 else (1.0, 1e-25, 1e18)
    for seed, scale in enumerate(scales):
        A = np.asarray(scale * matrix_of(SPECTRA[spectrum], seed), DTYPE)
        b = np.asarray(np.random.default_rng(seed).normal(size=(40, 2)), DTYPE)
        solution = solved(A, b)
        x = np.asarray(solution.value, float) * scale
        left = b.astype(float) - (A.astype(float) / scale) @ x
        relative = np.max(np.linalg.norm(left, axis=0) / np.linalg.norm(b.astype(float), axis=0))
        succeeded = solution.result == kernax.RESULTS.successful
        assert not succeeded or relative <= 1.01 * most
        assert succeeded or spectrum not in ("well conditioned", "a tail")
        assert not succeeded or spectrum not in ("singular", "hopeless", "negative")
        assert np.isclose(float(solution.stats["residual"]), relative, rtol=0.05, atol=most / 2)


@needs_x64
def test_units_change_no_digit():
    A = matrix_of(SPECTRA["a tail"], 3)
    b = np.random.default_rng(3).normal(size=40)
    solve = lambda A, b: kernax.solvers.solve(
        lx.MatrixLinearOperator(jnp.asarray(A), PSD), b, SOLVER
    )
    plain, scaled = solve(A, b), solve(A * 2.0**300, b * 2.0**-200)
    assert plain.stats["steps"] == scaled.stats["steps"]
    np.testing.assert_allclose(scaled.value * 2.0**500, plain.value, rtol=1e-9)


@needs_x64
def test_the_cap_on_sweeps_is_reported_with_the_best_solution_so_far():
    few = SketchAndProject(KEY, block_size=BLOCK, max_steps=2)
    solution = fit(few, throw=False)
    assert solution.result == kernax.RESULTS.max_steps_reached
    assert solution.stats["steps"] == 2
    assert 0 < solution.stats["residual"] < 1
    with pytest.raises(MaxStepsError):
        fit(few)


@needs_x64
def test_a_tolerance_below_rounding_ends_as_a_breakdown_and_soon():
    with pytest.raises(BreakdownError):
        fit(SketchAndProject(KEY, block_size=BLOCK, rtol=1e-18))
    stuck = fit(SketchAndProject(KEY, block_size=BLOCK, rtol=1e-18), throw=False)
    assert stuck.stats["steps"] < 100
    assert stuck.stats["residual"] < 1e-13


@needs_x64
def test_what_is_not_finite_is_reported():
    A = 2 * np.eye(30)
    A[3, 4] = A[4, 3] = np.nan
    solver = SketchAndProject(KEY, block_size=9)
    with pytest.raises(NonFiniteError):
        kernax.solvers.solve(lx.MatrixLinearOperator(jnp.asarray(A), PSD), np.ones(30), solver)


@pytest.mark.slow
@needs_x64
def test_a_zero_column_beside_others_is_zero_and_has_a_gradient():
    y = np.stack([Y[:, 0], np.zeros(N)], 1)
    total = lambda y: jnp.sum(fit(SOLVER, y=y, throw=False).value.coefficients)
    solution = fit(SOLVER, y=y)
    np.testing.assert_array_equal(solution.value.coefficients[:, 1], 0)
    assert jnp.all(jnp.isfinite(jax.jit(jax.grad(total))(y)))


@needs_x64
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((KEY, {"block_size": 0}), "block_size must be a positive integer, but is 0"),
        ((KEY, {"max_steps": 0}), "max_steps must be a positive integer, but is 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    key, options = (*arguments, {})[:2]
    with pytest.raises(ValueError, match=message):
        untyped(SketchAndProject)(key, **options)


@needs_x64
def test_operators_without_blocks_and_options_are_refused():
    products = lx.FunctionLinearOperator(lambda v: 2 * v, jax.ShapeDtypeStruct((5,), DTYPE), PSD)
    with pytest.raises(ValueError, match=r"needs blocks of the matrix, but FunctionLinearOperator"):
        kernax.solvers.solve(products, np.ones(5), SOLVER)
    with pytest.raises(ValueError, match="takes no options"):
        kernax.solvers.solve(
            lx.MatrixLinearOperator(jnp.eye(5), PSD), np.ones(5), SOLVER, options={"y0": 1}
        )
    with pytest.raises(ValueError, match="tagged"):
        lx.linear_solve(lx.MatrixLinearOperator(jnp.eye(5)), jnp.ones(5), SOLVER)
