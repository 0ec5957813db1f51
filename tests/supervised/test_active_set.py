"""Derivatives of machines, single and in batches: values against differences, and every size of
system from both sides.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, needs_x64

import kernax
from kernax.core.operators.operators import DenseGram
from kernax.supervised.machines import active_set
from kernax.supervised.machines.box_problem import BoxProblem

FINE = kernax.solvers.SMO(rtol=1e-10)
N = 23  # with systems of 23, 11 and 5 points: as 1000 have 1000, 500 and 250
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4)).astype(DTYPE)
Y = np.sign(X[:, 0] * X[:, 1] + 0.5 * RNG.normal(size=N)).astype(DTYPE)
T = (X[:, 0] + 0.3 * RNG.normal(size=N)).astype(DTYPE)
WEIGHTS = RNG.uniform(0.5, 2, size=(2, N)).astype(DTYPE)


def on_some(value):
    return jnp.sum(jnp.sin(jax.vmap(value)(X[:8] + 0.1)))


def columns(scale):
    Ys = np.stack([Y, -Y, np.sign(X[:, 1])], 1)
    return on_some(kernax.svm(kernax.RBF(scale), X, Ys, 1.0, solver=FINE, throw=False).value)


def folds(C):
    def fit(w):
        return on_some(
            kernax.svm(kernax.RBF(1.0), X, Y, C, weights=w, solver=FINE, throw=False).value
        )

    return jnp.sum(jax.vmap(fit)(WEIGHTS) ** 2)


def lasso(penalty):
    features = np.concatenate([X, X**2, np.sin(3 * X)], 1)
    return jnp.sum(
        jnp.sin(3 * kernax.lasso(features, T, penalty, solver=FINE, throw=False).value[0])
    )


LEARNERS = {
    "penalty": lambda C: on_some(
        kernax.svm(kernax.RBF(1.0), X, Y, C, solver=FINE, throw=False).value
    ),
    "rows": lambda scale: on_some(
        kernax.svm(kernax.RBF(scale), X, Y, 1.0, solver=FINE, block_size=7, throw=False).value
    ),
    "no bias": lambda scale: on_some(
        kernax.svm(kernax.RBF(scale), X, Y, 1.0, bias=False, solver=FINE, throw=False).value
    ),
    "columns": columns,
    "folds": folds,
    "lasso": lasso,
}


@pytest.fixture
def small_sizes(monkeypatch):
    """Sizes as those of thousands of points, for tens."""
    monkeypatch.setattr(active_set, "_SMALLEST", 5)
    assert active_set._sizes(N) == [5, 11, 23]


@pytest.fixture
def two_sizes(monkeypatch):
    """A choice of sizes that compiles sooner."""
    monkeypatch.setattr(active_set, "_SMALLEST", 11)
    assert active_set._sizes(N) == [11, 23]


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize("name", LEARNERS)
def test_a_batch_of_gradients_is_that_of_differences(name, two_sizes):
    """It was an AssertionError inside JAX wherever there was a choice of sizes."""
    at, h = jnp.array([0.8, 1.3]), 1e-5
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(LEARNERS[name])))(
        jnp.concatenate([at, at + h, at - h])
    )
    np.testing.assert_allclose(
        slopes[:2], (values[2:4] - values[4:]) / (2 * h), rtol=1e-5, atol=1e-6
    )
    assert np.all(abs(slopes) > 1e-4)


@pytest.mark.nightly
@needs_x64
def test_second_derivatives_in_batches_are_those_of_differences(two_sizes):
    def value(scale):
        return on_some(kernax.svm(kernax.RBF(scale), X, Y, scale, solver=FINE, throw=False).value)

    at, h = jnp.array([0.8, 1.3]), 1e-5
    moved = jnp.concatenate([at, at + h, at - h])
    slopes, curvatures = jax.jit(jax.vmap(jax.value_and_grad(jax.grad(value))))(moved)
    np.testing.assert_allclose(
        curvatures[:2], (slopes[2:4] - slopes[4:]) / (2 * h), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("bias", [True, False])
def test_any_number_of_free_points_is_solved_in_every_batch(bias, small_sizes):
    """Each bound between two sizes from both sides, one by one (a CPU's batches) and all together
    (an accelerator's).
    """
    factor = RNG.normal(size=(N, N + 3)).astype(DTYPE)
    K = jnp.asarray(factor @ factor.T)
    free = jnp.asarray(np.array([RNG.permutation(N) < count for count in range(N + 1)]))
    rhs = jnp.asarray(RNG.normal(size=N + 1), DTYPE)
    operator = DenseGram(K)
    zero, one = jnp.zeros((), DTYPE), jnp.ones((), DTYPE)
    bounds = jnp.ones(N, DTYPE)
    problem = BoxProblem(operator, bounds, -bounds, bounds, zero, zero, one)

    def solved(free):
        system = active_set.ActiveSystem(problem, free, jnp.any(free) & bias)
        return system.apply(system.solve(rhs))

    again = jax.jit(jax.vmap(solved))(free)
    np.testing.assert_allclose(
        again, jnp.broadcast_to(rhs, again.shape), atol=10 * TOLERANCE["solve"]
    )

    column = rhs[:-1, None]
    parts = jax.jit(
        jax.vmap(lambda free: active_set._solve_in_the_smallest_size((operator, free), column))
    )(free)
    for which, part in zip(np.asarray(free), np.asarray(parts[..., 0])):
        expected = np.linalg.solve(
            np.asarray(K, float)[np.ix_(which, which)], np.asarray(column)[which, 0]
        )
        np.testing.assert_allclose(
            part[which], expected, rtol=TOLERANCE["solve"], atol=TOLERANCE["solve"]
        )
        np.testing.assert_array_equal(part[~which], 0)


@needs_x64
def test_a_batch_that_runs_together_has_one_size_and_no_batched_branch(small_sizes):
    """A `switch` on a batched index runs every branch: the jaxpr then has a select and no cond."""
    free = jnp.ones((3, N), bool)
    operator = DenseGram(jnp.eye(N, dtype=DTYPE))
    solve = lambda free: active_set._solve_in_the_smallest_size(
        (operator, free), jnp.ones((N, 1), DTYPE)
    )
    jaxpr = jax.make_jaxpr(jax.vmap(solve))(free)
    (switch,) = (equation for equation in jaxpr.eqns if equation.primitive.name == "cond")
    assert switch.invars[0].aval.shape == ()
    assert len(switch.params["branches"]) == 3


@needs_x64
def test_sizes_change_at_500_and_1000_points():
    assert [active_set._sizes(n) for n in (499, 500, 501)] == [[499], [250, 500], [250, 501]]
    assert [active_set._sizes(n) for n in (999, 1000)] == [[499, 999], [250, 500, 1000]]


@needs_x64
@pytest.mark.nightly  # the quick tier has the choice of sizes for 23 points
def test_a_batch_of_500_points_is_its_members():
    rng = np.random.default_rng(1)
    points = rng.normal(size=(500, 2)).astype(DTYPE)
    y = np.sign(points[:, 0] + 0.5 * rng.normal(size=500)).astype(DTYPE)
    slope = jax.grad(
        lambda C: jnp.sum(
            jax.vmap(kernax.svm(kernax.RBF(1.0), points, y, C, throw=False).value)(points[:5])
        )
    )
    C = jnp.array([0.5, 1.0], DTYPE)
    member = jax.jit(slope)
    np.testing.assert_allclose(jax.jit(jax.vmap(slope))(C), [member(c) for c in C], rtol=1e-8)
