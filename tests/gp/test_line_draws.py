"""Draws of processes along a line, in O(n + m): those that the whole matrices have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, check_derivatives, marked, matrix, needs_x64
from references import process_by_numpy

import kernax
from kernax.core.line.line_draws import sampler_of_posterior, sampler_of_prior
from kernax.gp.posterior import ReductionPosteriorKernel
from kernax.solvers import StateSpace

RNG = np.random.default_rng(0)
N = 40
X = RNG.uniform(0, 10, (N, 1))
X[5] = X[9]
Y = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=N)
NOISE = RNG.uniform(0.05, 0.2, N)
WEIGHTS = RNG.integers(0, 3, N).astype(float)
# Beyond both ends, two that were observed, and one of them twice.
Z = np.concatenate([np.linspace(-2.0, 12.0, 9)[:, None], X[:2], X[:1]])
KERNELS = {
    "a sum": 2.0 * kernax.Matern32(0.7) + 0.3,
    "a product": kernax.Matern12(2.0) * kernax.kernels.Cosine(1.7),
    "periodic": kernax.Periodic(0.9, 3.1),
}
KEY = jax.random.key(0)


LINE = StateSpace()


def conditioned(kernel, solver=LINE, weights=WEIGHTS):
    process = kernax.GaussianProcess(kernel, 0.2)
    return kernax.condition(process, X, Y, NOISE, weights=weights, solver=solver).value


def as_matrix(sampler):
    """The matrix M of draws `M z` in all standard normal numbers z, so that their covariance is
    `M M^T`: no draw is needed to know their distribution.
    """
    n = sampler.size - sampler.m
    of_prior = jnp.eye(sampler.size, sampler.size + n, dtype=DTYPE)
    of_noise = jnp.eye(n, sampler.size + n, k=sampler.size, dtype=DTYPE)
    drawn = jax.jit(lambda sampler: sampler.draws_of(of_prior, of_noise))(sampler)
    assert bool(drawn.exists)
    return np.asarray(drawn.values, float), float(drawn.jitter)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parallel"),
    marked(
        pytest.mark.nightly,
        [*((name, False) for name in KERNELS), ("a sum", True)],
        "a sum-True",
        "a product-False",
    ),
)
def test_the_distribution_of_draws_given_observations_is_that_of_the_whole_matrix(name, parallel):
    """Points in no order and copies, weights of 0, 1 and 2, a noise for each point."""
    process = conditioned(KERNELS[name], StateSpace(parallel=parallel))
    assert isinstance(process.covariance, ReductionPosteriorKernel)
    sampler = sampler_of_posterior(process.covariance.reduction, jnp.asarray(Z, DTYPE))
    M, jitter = as_matrix(sampler)
    K = matrix(KERNELS[name], np.concatenate([X, Z]))
    _, _, covariance = process_by_numpy(K, Y[:, None], NOISE, WEIGHTS, 0.2)
    # Without noise the smooth periodic kernel is singular, and drawn from with jitter.
    assert (jitter == 0) == (name != "periodic")
    tolerance = 1e-12 + 10 * jitter if X64 else 1e-4 + 10 * jitter
    np.testing.assert_allclose(M @ M.T, covariance, atol=tolerance)


@pytest.mark.slow
def test_the_distribution_of_draws_of_a_prior_at_many_points_is_that_of_its_kernel():
    kernel = 2.0 * kernax.Matern32(0.7) + 0.3
    points = jnp.asarray(np.random.default_rng(1).uniform(0, 30, (1000, 1)), DTYPE)
    sampler = sampler_of_prior(kernel, points)
    M, jitter = as_matrix(sampler)
    K = matrix(kernel, np.asarray(points, float))
    np.testing.assert_allclose(M @ M.T, K, atol=10 * jitter + (1e-11 if X64 else 1e-4))
    assert sampler_of_prior(kernel, points[:999]) is None  # as well drawn from by its matrix


@needs_x64
@pytest.mark.nightly
def test_draws_along_a_line_have_the_mean_and_covariance_of_the_process():
    process = conditioned(KERNELS["a sum"])
    count = 20_000
    draws = np.asarray(process.sample(Z, key=KEY, shape=(count,)))
    K = matrix(KERNELS["a sum"], np.concatenate([X, Z]))
    _, mean, covariance = process_by_numpy(K, Y[:, None], NOISE, WEIGHTS, 0.2)
    variances = np.diagonal(covariance)
    errors = (draws.mean(0) - mean[:, 0]) / np.sqrt(variances / count)
    assert np.max(np.abs(errors)) < 4
    spread = np.sqrt((np.outer(variances, variances) + covariance**2) / count)
    assert np.max(np.abs(np.cov(draws.T) - covariance) / spread) < 4.5


@needs_x64
@pytest.mark.nightly
def test_draws_along_a_line_are_functions_of_the_key_in_the_shape_that_is_asked_for():
    process = conditioned(KERNELS["a sum"], weights=None)
    draws = process.sample(Z, key=KEY, shape=(2, 3))
    assert draws.shape == (2, 3, len(Z))
    np.testing.assert_array_equal(draws, process.sample(Z, key=KEY, shape=(2, 3)))
    assert np.all(draws != process.sample(Z, key=jax.random.key(1), shape=(2, 3)))
    np.testing.assert_allclose(draws[..., -1], draws[..., -3], atol=1e-12)  # one point, twice
    both = kernax.GaussianProcess(KERNELS["a sum"])
    both = kernax.condition(both, X, np.stack([Y, 2 * Y], 1), 0.1, solver=LINE).value
    draws = both.sample(Z, key=KEY, shape=(3,))
    assert draws.shape == (3, len(Z), 2)
    apart = draws - jax.vmap(both.mean)(Z)[None]
    assert np.abs(np.corrcoef(apart[..., 0].ravel(), apart[..., 1].ravel())[0, 1]) < 0.5


@needs_x64
@pytest.mark.nightly
def test_draws_along_a_line_are_differentiable_in_the_process_and_the_points():
    apart = np.delete(np.arange(N), 5)

    def sums(arguments):
        lengthscale, noise, y, points = arguments
        process = kernax.GaussianProcess(2.0 * kernax.Matern32(lengthscale), 0.2)
        given = kernax.condition(process, X[apart], y, noise, solver=LINE).value
        draws = given.sample(points, key=KEY, shape=(2,))
        return jnp.sum(jnp.sin(draws))

    at = (jnp.asarray(0.7), jnp.asarray(NOISE[apart]), jnp.asarray(Y[apart]), jnp.asarray(Z[:9]))
    check_derivatives(sums, (at,), rtol=1e-5, atol=1e-6)


@needs_x64
@pytest.mark.slow
@pytest.mark.slow
def test_a_mean_may_be_a_python_number_along_a_line():
    process = kernax.GaussianProcess(kernax.Matern32(1.0), mean=lambda x: 1.0)
    many = jnp.linspace(0, 10, 6000)[:, None]
    drawn = process.sample(many, key=KEY)
    centred = kernax.GaussianProcess(kernax.Matern32(1.0)).sample(many, key=KEY)
    np.testing.assert_allclose(drawn, centred + 1, atol=1e-5)


@pytest.mark.nightly
def test_draws_along_a_line_refuse_what_they_cannot_do():
    process = conditioned(KERNELS["a sum"])
    with pytest.raises(ValueError, match=r"points must be vectors of one length"):
        process.sample(np.zeros((4, 2)), key=KEY)
    with pytest.raises(kernax.errors.MemoryBudgetError, match="use fewer draws at a time"):
        process.sample(Z, key=KEY, shape=(10**11,))
    odd = kernax.GaussianProcess(process.covariance, lambda x: jnp.log(x[0]))
    with pytest.raises(kernax.errors.NonFiniteError):
        odd.sample(Z, key=KEY)
    assert np.all(np.isnan(odd.sample(Z, key=KEY, throw=False)))
