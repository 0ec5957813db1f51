"""FALKON: risks over centres, in memory that does not grow with n m: values, gradients, jit, vmap,
weights, traces, bad input, precision.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, assert_close, matrix, needs_x64

import kernax
from kernax.errors import ConditionWarning, MaxStepsError
from kernax.losses import Absolute, Huber, Logistic, Poisson, Squared, SquaredHinge
from kernax.scale import falkon as module

RNG = np.random.default_rng(0)
N, M = 300, 12
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Z = X[:M] + DTYPE(0.01)
Y = (np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=N)).astype(DTYPE)
WEIGHTS = RNG.integers(0, 3, N).astype(DTYPE)
KERNEL = 1.3 * kernax.RBF(1.2)
NEW = RNG.normal(size=(5, 2)).astype(DTYPE)
RIDGE = 0.1
# Of values, whose square is what the residual bounds: measured 4e-10 and 7e-5.
VALUES = 1e-7 if X64 else 1e-3


def targets_of(loss):
    if loss.targets == "signs":
        return np.sign(Y)
    return np.round(np.exp(Y)).astype(DTYPE) if loss.targets == "counts" else Y


def by_numpy(loss, y, weights=None, ridge=RIDGE):
    """The minimum's values at new points, by Newton's method with dense matrices."""
    w = np.ones(len(y)) if weights is None else np.asarray(weights, float)
    K, within = matrix(KERNEL, X, Z), matrix(KERNEL, Z)
    a = np.zeros(M)
    for _ in range(1 if isinstance(loss, Squared) else 40):
        f = jnp.asarray(K @ a, DTYPE)
        y = jnp.asarray(y, DTYPE)
        slope = np.asarray(loss.derivative(y, f), float)
        curvature = np.asarray(loss.curvature(y, f), float)
        gradient = K.T @ (w * slope) + ridge * within @ a
        a = a - np.linalg.solve(K.T @ ((w * curvature)[:, None] * K) + ridge * within, gradient)
    return matrix(KERNEL, NEW, Z) @ a


@pytest.fixture(params=["all rows", "a sample"])
def rows(request, monkeypatch):
    """Tiles of which the last is not full; the Hessian of all rows, or of few."""
    sample = 60 if request.param == "a sample" else None
    monkeypatch.setattr(module, "rows_of_tile", lambda m: 128)
    if sample or X64:
        monkeypatch.setattr(module, "size_of_sample", lambda *_: sample)
    return request.param


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_of_squares_it_is_the_solution_of_the_normal_equations(rows, weights):
    found = kernax.falkon(KERNEL, X, Y, RIDGE, Z, weights=weights)
    assert_close(found.value.values(NEW), by_numpy(Squared(), Y, weights), VALUES)
    assert found.stats["products"] <= (40 if rows == "a sample" else 20)


@needs_x64
def test_it_is_ridge_regression_with_nystroms_kernel():
    found = kernax.falkon(KERNEL, X, Y, RIDGE, Z)
    same = kernax.kernel_ridge(kernax.nystrom(KERNEL, X, Z), X, Y, RIDGE)
    assert_close(found.value.values(NEW), same.value.values(NEW), VALUES)


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.3), SquaredHinge(), Poisson()])
def test_of_other_losses_it_is_the_minimum(rows, loss):
    y = targets_of(loss)
    found = kernax.falkon(KERNEL, X, y, RIDGE, Z, loss=loss, weights=WEIGHTS)
    assert_close(found.value.values(NEW), by_numpy(loss, y, WEIGHTS), 10 * VALUES)


def test_weights_repeat_and_remove_points_exactly():
    repeated = np.repeat(np.arange(N), WEIGHTS.astype(int))
    weighted = kernax.falkon(KERNEL, X, Y, RIDGE, Z, weights=WEIGHTS)
    plain = kernax.falkon(KERNEL, X[repeated], Y[repeated], RIDGE, Z)
    assert_close(weighted.value.values(NEW), plain.value.values(NEW), VALUES)
    wrong = np.where(WEIGHTS == 0, 1e3, Y)
    removed = kernax.falkon(KERNEL, X, wrong, RIDGE, Z, weights=WEIGHTS)
    assert_close(removed.value.coefficients, weighted.value.coefficients, VALUES)


def test_several_outputs_are_one_fit():
    both = np.stack([Y, -2 * Y], 1)
    found = kernax.falkon(KERNEL, X, both, RIDGE, Z).value
    assert found.coefficients.shape == (M, 2)
    alone = kernax.falkon(KERNEL, X, Y, RIDGE, Z).value
    assert_close(found.values(NEW), np.stack([alone.values(NEW), -2 * alone.values(NEW)], 1), VALUES)


def dense(arguments, loss):
    """The mean square at new points, of the minimum by dense matrices; differentiable."""
    scale, ridge, X, Z, y, w = arguments
    kernel = kernax.RBF(scale)
    K, within = kernax.gram(kernel, X, Z), kernax.gram(kernel, Z)
    a = jnp.zeros(M)
    for _ in range(1 if isinstance(loss, Squared) else 10):
        f = K @ a
        gradient = K.T @ (w * loss.derivative(y, f)) + ridge * within @ a
        H = K.T @ ((w * loss.curvature(y, f))[:, None] * K) + ridge * within
        a = a - jnp.linalg.solve(H, gradient)
    return jnp.mean((kernax.gram(kernel, NEW, Z) @ a) ** 2)


def fitted(arguments, loss):
    scale, ridge, X, Z, y, w = arguments
    kernel = kernax.RBF(scale)
    found = kernax.falkon(kernel, X, y, ridge, Z, weights=w, loss=loss, throw=False).value
    return jnp.mean(found.values(NEW) ** 2)


@needs_x64
@pytest.mark.parametrize("loss", [Squared(), Logistic()])
def test_the_gradient_is_that_of_dense_matrices_in_all_arguments(rows, loss):
    """Weights of zero as well; and of a batch, and the second derivative in the lengthscale."""
    arrays = (X, Z, targets_of(loss), WEIGHTS)
    arguments = (jnp.asarray(1.2), jnp.asarray(RIDGE), *map(jnp.asarray, arrays))
    gradient = jax.jit(jax.grad(fitted), static_argnums=1)
    expected = jax.jit(jax.grad(dense), static_argnums=1)(arguments, loss)
    for a, b in zip(gradient(arguments, loss), expected):
        assert_close(a, b, 1e-6)  # of the root's tolerance, 1e-9, in a system of condition 1e3
    if rows == "all rows":
        of_scale = lambda scale, f: f((scale, *arguments[1:]), loss)
        scales = jnp.array([0.9, 1.2])
        batch = jax.jit(jax.vmap(jax.grad(lambda scale: of_scale(scale, fitted))))(scales)
        assert_close(batch[1], expected[0], 1e-6)
        second = [jax.jit(jax.hessian(lambda s, f=f: of_scale(s, f)))(scales[0]) for f in (fitted, dense)]
        assert_close(*second, 1e-5)


def test_one_program_serves_all_values_and_a_batch_of_them():
    once = jax.jit(chex.assert_max_traces(lambda y, ridge: of(y, ridge), n=1))

    def of(y, ridge):
        return kernax.falkon(KERNEL, X, y, ridge, Z, throw=False).value.values(NEW)

    ridges = jnp.asarray([0.1, 1.0], DTYPE)
    alone = [once(jnp.asarray(Y), ridge) for ridge in ridges]
    assert_close(jax.vmap(of, (None, 0))(jnp.asarray(Y), ridges), jnp.stack(alone), VALUES)


def test_memory_does_not_grow_with_the_product_of_points_and_centres():
    n, m = 20_000, 100
    points = jnp.zeros((n, 2), DTYPE)

    def value(y):
        return kernax.falkon(KERNEL, points, y, RIDGE, points[:m], throw=False).value(points[0])

    analysis = jax.jit(jax.grad(value)).lower(points[:, 0]).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 0.7 * n * m * np.dtype(DTYPE).itemsize


def test_centres_that_coincide_take_jitter_and_are_right():
    with pytest.warns(ConditionWarning):
        found = kernax.falkon(KERNEL, X, Y, RIDGE, np.concatenate([Z, Z]))
    assert_close(found.value.values(NEW), by_numpy(Squared(), Y), 1e-6 if X64 else 3e-3)


def energy_left(solution, ridge, y, weights=None):
    """The error of a fit of squares in the norm of its Hessian, relative to the targets, by NumPy.

    From `A = K_nm^T W K_nm + (ridge) K_mm`, whose jitter is what the solution reports.
    """
    w = np.ones(N) if weights is None else weights
    f = solution.value
    K, within = matrix(f.kernel, X, f.points), matrix(f.kernel, f.points)
    within = within + float(solution.stats["jitter"]) * np.eye(len(within))
    root = np.linalg.qr(
        np.concatenate([np.sqrt(w)[:, None] * K, np.sqrt(ridge) * np.linalg.cholesky(within).T]),
        mode="r",
    )
    a = np.asarray(f.coefficients, float)
    gradient = K.T @ (w * (K @ a - y)) + ridge * within @ a
    return np.linalg.norm(np.linalg.solve(root.T, gradient)) / np.linalg.norm(np.sqrt(w) * y)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("ridge", [1e2, 1e-2, 1e-6, 1e-10])
def test_no_success_leaves_more_than_it_says(ridge, scale):
    """Over ridges that float32 cannot carry, and units of the targets."""
    found = kernax.falkon(KERNEL, X, DTYPE(scale) * Y, ridge, Z, throw=False)
    left = energy_left(found, ridge, scale * Y.astype(float))
    if found.result == kernax.RESULTS.successful:
        assert left <= (2e-7 if X64 else 3e-3)
    else:
        assert not X64 or ridge < 1e-6
        assert found.result in (kernax.RESULTS.inaccurate, kernax.RESULTS.max_steps_reached)


def test_too_few_steps_fail_and_say_so(monkeypatch):
    monkeypatch.setattr(module, "size_of_sample", lambda *_: 30)
    with pytest.raises(MaxStepsError, match="falkon"):
        kernax.falkon(KERNEL, X, Y, 1e-3, Z, max_steps=1)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ridge": 0.0}, "ridge must be in"),
        ({"loss": Absolute()}, "loss must be smooth"),
        ({"loss": "squares"}, "loss must be smooth"),
        ({"centres": 5}, "pass key="),
        ({"y": Y[:-1]}, "y must have shape"),
        ({"y": np.stack([np.sign(Y)] * 2, 1), "loss": Logistic()}, "one fit for each column"),
        ({"rtol": 0.0}, "rtol must be"),
        ({"max_steps": 0}, "max_steps must be"),
    ],
)
def test_bad_arguments_are_refused_with_words(changed, words):
    arguments = {"y": Y, "ridge": RIDGE, "centres": Z} | changed
    with pytest.raises(ValueError, match=words):
        kernax.falkon(KERNEL, X, **arguments)
