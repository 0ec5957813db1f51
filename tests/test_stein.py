"""The Stein kernel and discrepancy against closed forms and quadrature, and the test of fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, needs_x64

import kernax
from kernax.samples import mean_embedding, stein_discrepancy

N = 12
X = np.random.default_rng(0).normal(size=(N, 2)).astype(DTYPE)
KEY = jax.random.key(0)
MEAN, SCALES = np.array([0.3, -0.2]), np.array([1.5, 0.7])
LENGTHS = np.array([0.8, 1.3])
RBF = kernax.RBF(LENGTHS.astype(DTYPE))


def log_normal(parameters, x):
    mean, scales = parameters
    return -jnp.sum(((x - mean) / scales) ** 2) / 2


NORMAL = kernax.Custom(log_normal, (jnp.asarray(MEAN, DTYPE), jnp.asarray(SCALES, DTYPE)))


def closed_form(A, B):
    """`k_0` of the RBF and a normal density with diagonal covariance."""
    A, B = A.astype(float), B.astype(float)
    u = (A[:, None] - B[None]) / LENGTHS**2
    k = np.exp(-(u**2 * LENGTHS**2).sum(-1) / 2)
    of_a, of_b = (-(points - MEAN) / SCALES**2 for points in (A, B))
    trace = (1 / LENGTHS**2).sum() - (u**2).sum(-1)
    return k * (trace + (of_a[:, None] * u).sum(-1) - (of_b[None] * u).sum(-1) + of_a @ of_b.T)


def unbiased(K):
    n = len(K)
    return (K.sum() - np.trace(K)) / (n * (n - 1))


def test_the_kernel_of_a_normal_density_is_its_closed_form():
    kernel = kernax.SteinKernel(RBF, NORMAL)
    tolerance = {"rtol": TOLERANCE["value"], "atol": 10 * TOLERANCE["value"]}
    np.testing.assert_allclose(kernax.gram(kernel, X), closed_form(X, X), **tolerance)
    np.testing.assert_allclose(
        kernax.gram(kernel, X[:5], X[5:]), closed_form(X[:5], X[5:]), **tolerance
    )
    np.testing.assert_allclose(kernel.score(X[0]), -(X[0] - MEAN) / SCALES**2, rtol=1e-5)


def two_bells(x):
    """Not normalised."""
    return 3 + jnp.logaddexp(-jnp.sum((x - 1) ** 2), -jnp.sum((x + 1.5) ** 2) / 2)


@needs_x64
@pytest.mark.parametrize(
    "base",
    [kernax.RBF(0.7), kernax.RationalQuadratic(0.8, 0.5), kernax.Matern52(), kernax.Matern32()],
)
def test_its_mean_under_the_density_is_zero_at_every_point(base):
    """By the trapezoid rule, which for analytic functions that vanish at the ends is exact; kinks
    leave errors of its step.
    """
    grid = np.linspace(-12, 9, 4001)[:, None]
    density = np.exp(jax.vmap(two_bells)(grid))
    kernel = kernax.SteinKernel(base, two_bells)
    K = np.asarray(kernax.gram(kernel, np.array([[0.1], [-1.4], [2.0]]), grid))
    rough = isinstance(base, (kernax.Matern32, kernax.Matern52))
    size = np.abs(K) @ density
    assert np.max(np.abs(K @ density) / size) < (1e-3 if rough else 1e-12)


def test_the_discrepancy_is_the_unbiased_sum_over_pairs():
    value = stein_discrepancy(RBF, X, NORMAL)
    np.testing.assert_allclose(value, unbiased(closed_form(X, X)), rtol=TOLERANCE["solve"])


@needs_x64
def test_the_biased_one_is_the_squared_norm_of_the_embedding():
    w = np.linspace(0, 1, N)
    expected = w @ closed_form(X, X) @ w / w.sum() ** 2
    embedding = mean_embedding(kernax.SteinKernel(RBF, NORMAL), X, weights=w)
    np.testing.assert_allclose(embedding.norm**2, expected, rtol=1e-9)


@needs_x64
def test_a_weight_of_two_is_a_point_repeated_and_of_zero_one_removed():
    w = np.ones(N)
    w[[1, 4, 7]] = 2, 0, 3
    repeated = np.repeat(X, w.astype(int), axis=0)
    np.testing.assert_allclose(
        stein_discrepancy(RBF, X, NORMAL, weights=w),
        stein_discrepancy(RBF, repeated, NORMAL),
        rtol=1e-10,
    )
