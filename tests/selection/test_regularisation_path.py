"""Paths of penalties by warm starts: value, gradient, jit, vmap, bad input, and what they save."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, needs_x64, real_data

import kernax

RBF = kernax.RBF(1.5)
RIDGES = jnp.asarray([3.0, 1.0, 0.3], DTYPE)
SUCCESS = kernax.RESULTS.successful


@pytest.fixture
def data(rng):
    X = rng.normal(size=(20, 2)).astype(DTYPE)
    signs = np.where(X[:, 0] + 0.7 * rng.normal(size=20) > 0, 1.0, -1.0).astype(DTYPE)
    return jnp.asarray(X), jnp.asarray(signs)


def logistic_path(kernel, X, signs, ridges, weights=None):
    def fit(ridge, start):
        return kernax.kernel_logistic(
            kernel, X, signs, ridge, weights=weights, start=start, throw=False
        )

    return kernax.selection.regularisation_path(fit, ridges)


@pytest.mark.nightly
def test_a_path_holds_the_solution_of_each_value_in_order(data):
    path = jax.jit(lambda ridges: logistic_path(RBF, *data, ridges))(RIDGES)
    assert path.value.coefficients.shape == (20, 3)
    assert path.value.values(data[0]).shape == (20, 3)
    assert path.stats["steps"].shape == (3,)
    assert jnp.all(path.result == SUCCESS)
    for j, ridge in enumerate(RIDGES):
        one = kernax.kernel_logistic(RBF, *data, ridge).value
        tolerance = 1e-10 if np.float64 == DTYPE else 1e-4
        np.testing.assert_allclose(path.value.coefficients[:, j], one.coefficients, atol=tolerance)
        np.testing.assert_allclose(path.value.bias[j], one.bias, atol=tolerance)


@pytest.mark.nightly
@needs_x64
def test_machines_have_a_path_of_several_outputs(data):
    X, signs = data
    Y = jnp.stack([signs, -signs], 1)
    smo = kernax.solvers.SMO(rtol=1e-10)
    fit = lambda C, start: kernax.svm(RBF, X, Y, C, solver=smo, start=start, throw=False)
    Cs = jnp.array([0.1, 1.0])
    path = kernax.selection.regularisation_path(fit, Cs)
    assert path.value.coefficients.shape == (20, 2, 2)
    for j, C in enumerate(Cs):
        one = kernax.svm(RBF, X, Y, C, solver=smo).value
        np.testing.assert_allclose(path.value.values(X)[..., j], one.values(X), atol=1e-6)


@pytest.mark.nightly
@needs_x64
def test_the_gradient_of_a_path_is_that_of_its_solutions(data):
    """Where a solution started has no part in it."""
    out = jnp.asarray(np.random.default_rng(1).normal(size=(20, 3)))

    def of_path(lengthscale, ridges):
        path = logistic_path(kernax.RBF(lengthscale), *data, ridges)
        return jnp.vdot(out, path.value.coefficients)

    def of_each(lengthscale, ridges):
        kernel = kernax.RBF(lengthscale)
        fit = lambda ridge: kernax.kernel_logistic(kernel, *data, ridge, throw=False).value
        return jnp.vdot(out, jax.vmap(fit)(ridges).coefficients.T)

    ours, theirs = (jax.jit(jax.grad(f, (0, 1)))(1.5, RIDGES) for f in (of_path, of_each))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-8)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-8)


@pytest.mark.nightly
@needs_x64
def test_paths_of_folds_are_one_program(data):
    weights = (jnp.arange(20)[None] % 2 != jnp.arange(2)[:, None]).astype(float)
    of_fold = lambda w: logistic_path(RBF, *data, RIDGES, w).value.coefficients
    together = jax.jit(jax.vmap(of_fold))(weights)
    np.testing.assert_allclose(together[1], of_fold(weights[1]), atol=1e-10)
    assert jnp.all(together[1][weights[1] == 0] == 0)


@pytest.mark.slow
@needs_x64
def test_a_start_near_the_solution_saves_steps_and_a_bad_one_costs_none(data):
    fit = lambda start: kernax.kernel_logistic(RBF, *data, 0.3, start=start)
    cold = fit(None)
    near = kernax.kernel_logistic(RBF, *data, 0.4).value
    assert fit(near).stats["steps"] < cold.stats["steps"]
    for bad in (1e6 * near, jnp.nan * near):
        assert fit(bad).stats["steps"] == cold.stats["steps"]
        np.testing.assert_allclose(fit(bad).value.coefficients, cold.value.coefficients, atol=1e-12)
    both = kernax.KernelExpansion(RBF, data[0], jnp.ones((20, 2)), jnp.zeros(2))
    with pytest.raises(ValueError, match=r"start must be a KernelExpansion.*of shape \(20, 2\)"):
        fit(both)


@needs_x64
@pytest.mark.nightly
def test_warm_starts_save_steps_on_real_data():
    """Two thirds of the Newton steps, measured: 74 of 106."""
    heart = real_data("heart_scale")
    X, y = jnp.asarray(heart["X"], DTYPE), jnp.asarray(heart["y"], DTYPE)
    ridges = jnp.logspace(2, -3, 16)
    kernel = kernax.RBF(float(np.sqrt(X.shape[1])))
    warm = logistic_path(kernel, X, y, ridges)
    cold = [kernax.kernel_logistic(kernel, X, y, ridge) for ridge in ridges]
    assert int(jnp.sum(warm.stats["steps"])) < 0.8 * sum(int(one.stats["steps"]) for one in cold)
    for j, one in enumerate(cold):
        np.testing.assert_allclose(warm.value.coefficients[:, j], one.value.coefficients, atol=1e-9)


@needs_x64
def test_what_is_no_path_is_refused(data):
    fit = lambda ridge, start: kernax.kernel_logistic(RBF, *data, ridge).value
    with pytest.raises(ValueError, match=r"fit must return a Solution.*returned a KernelExp"):
        kernax.selection.regularisation_path(fit, RIDGES)
    with pytest.raises(ValueError, match=r"values must be a vector \(r,\).*shape \(\)"):
        kernax.selection.regularisation_path(fit, 1.0)
