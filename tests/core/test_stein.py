"""The Stein kernel and discrepancy against closed forms and quadrature, and the test of fit."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, needs_x64, untyped

import kernax
from kernax.errors import NonFiniteError
from kernax.samples import goodness_of_fit_test, mean_embedding, stein_discrepancy

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


@pytest.mark.slow
def test_the_kernel_of_a_normal_density_is_its_closed_form():
    kernel = kernax.kernels.SteinKernel(RBF, NORMAL)
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
    kernel = kernax.kernels.SteinKernel(base, two_bells)
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
    embedding = mean_embedding(kernax.kernels.SteinKernel(RBF, NORMAL), X, weights=w)
    np.testing.assert_allclose(embedding.norm**2, expected, rtol=1e-9)


# the test of fit


@needs_x64
def test_the_null_holds_the_statistics_of_random_signs():
    """All eight that four points have, each as often as the others."""
    few = X[:4]
    found = goodness_of_fit_test(RBF, few, NORMAL, n_resamples=2000, key=KEY)
    K = closed_form(few, few)
    rows = np.array([(1, *signs) for signs in itertools.product((1, -1), repeat=3)])
    values = np.array([unbiased(K * np.outer(row, row)) for row in rows])
    np.testing.assert_allclose(found.statistic, values[0], rtol=1e-10)
    nearest = np.argmin(np.abs(np.asarray(found.null)[:, None] - values), 1)
    np.testing.assert_allclose(found.null, values[nearest], rtol=1e-9)
    counts = np.bincount(nearest, minlength=8)
    assert np.all(np.abs(counts - 250) < 4 * np.sqrt(2000 / 8 * 7 / 8))
    above = np.sum(np.asarray(found.null) >= values[0] - 1e-12)
    np.testing.assert_allclose(found.p_value, (1 + above) / 2001)


@needs_x64
def test_signs_change_as_often_as_they_are_told():
    """For a kernel of numbers of one sign `sum_ij s_i s_j` counts; with few changes it stays at
    n^2.
    """
    points = jnp.zeros((50, 1))
    flat = lambda x: jnp.sum(x)  # k_0 = 1 + 1 for equal points, with RBF(1)
    often, seldom = (
        goodness_of_fit_test(kernax.RBF(), points, flat, flip=flip, n_resamples=500, key=KEY)
        for flip in (0.5, 0.02)
    )
    np.testing.assert_allclose(often.statistic, 2, rtol=1e-12)
    # E s_i s_j = (1 - 2 flip)^|i - j|.
    lags = np.abs(np.subtract.outer(np.arange(50), np.arange(50)))
    expected = 2 * unbiased(0.96**lags)
    assert abs(np.mean(seldom.null) - expected) < 4 * np.std(seldom.null) / np.sqrt(500)
    assert abs(np.mean(often.null)) < 4 * np.std(often.null) / np.sqrt(500)


REPEATS, BOOTSTRAPS = 100, 39  # so that p <= 0.1 has probability 0.1 exactly, up to ties
KEYS = jax.random.split(jax.random.key(7), REPEATS)
# The standard deviation of a binomial of 100 trials and probability 0.1 is 3.
AT_MOST = 10 + 3.5 * 3
STANDARD = kernax.Custom(log_normal, (jnp.zeros(2, DTYPE), jnp.ones(2, DTYPE)))


def rejections(sampled, flip):
    def p_value(key):
        of_data, of_test = jax.random.split(key)
        return goodness_of_fit_test(
            kernax.RationalQuadratic(1.0, 0.5),
            sampled(of_data),
            STANDARD,
            n_resamples=BOOTSTRAPS,
            flip=flip,
            key=of_test,
        ).p_value

    return int(np.sum(np.asarray(jax.jit(jax.vmap(p_value))(KEYS)) <= 0.1 + 1e-6))


def normal(key, n=40):
    return jax.random.normal(key, (n, 2), DTYPE)


def chain(key):
    """Autoregressive, with the standard normal as its stationary distribution."""
    start, *steps = normal(key, 120)
    step = lambda x, z: (0.8 * x + 0.6 * z,) * 2
    return jax.lax.scan(step, start, jnp.stack(steps))[1]


@pytest.mark.nightly
@needs_x64
def test_the_level_holds_under_the_density_and_there_is_power_beyond():
    assert 0 < rejections(normal, 0.5) <= AT_MOST
    assert rejections(lambda key: normal(key) + 0.5, 0.5) > 85


@pytest.mark.nightly
@needs_x64
def test_the_level_of_a_chain_holds_with_signs_that_change_seldom_and_not_with_independent_ones():
    assert rejections(chain, 0.5) > 2 * AT_MOST
    assert rejections(chain, 0.03) <= AT_MOST


# the contract


@pytest.mark.nightly
@needs_x64
def test_what_only_a_trace_knows_to_be_bad_is_nan():
    program = jax.jit(
        lambda nu, weight: stein_discrepancy(
            kernax.Matern(nu), X, NORMAL, weights=jnp.full(N, weight)
        )
    )
    assert np.isfinite(program(1.7, 1.0))
    assert np.isnan(program(0.8, 1.0))
    assert np.isnan(program(1.7, 0.05))


@needs_x64
def test_points_where_the_density_is_zero_or_unknown_raise_though_its_derivative_is_finite():
    for log_density in (
        lambda x: jnp.sum(jnp.log(x)),
        lambda x: jnp.where(x[0] > 0, 0.0, -jnp.inf),
    ):
        with pytest.raises(NonFiniteError):
            stein_discrepancy(RBF, X, log_density)


@needs_x64
def test_a_score_that_is_not_finite_raises():
    with pytest.raises(NonFiniteError):
        stein_discrepancy(RBF, X, lambda x: jnp.sum(jnp.sqrt(x - 5)))


@needs_x64
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stein_discrepancy(RBF, X[:1], NORMAL), "at least two points, but holds 1"),
        (lambda: stein_discrepancy(kernax.Matern12(), X, NORMAL), "have no derivatives"),
        (lambda: stein_discrepancy(RBF + kernax.Matern12(), X, NORMAL), "have no derivatives"),
        (lambda: stein_discrepancy(RBF, X, lambda x: x), "log_density must return a scalar"),
        (lambda: stein_discrepancy(RBF, X, lambda x: 1), "log_density must return a scalar"),
        (
            lambda: untyped(kernax.kernels.SteinKernel)(RBF, 3.0),
            "log_density must be a function of one point",
        ),
        (
            lambda: stein_discrepancy(
                kernax.Spectrum(1), kernax.strings.encode(["a", "b"]), NORMAL
            ),
            "X must be a batch of vectors",
        ),
        (
            lambda: stein_discrepancy(RBF, X, NORMAL, weights=np.full(N, 1 / N)),
            "weights must add up to more than one",
        ),
        (
            lambda: goodness_of_fit_test(RBF, X, NORMAL, flip=1.0, key=KEY),
            "flip must be in",
        ),
        (
            lambda: goodness_of_fit_test(RBF, X, NORMAL, n_resamples=0, key=KEY),
            "n_resamples must be a positive integer",
        ),
        (
            lambda: untyped(goodness_of_fit_test)(RBF, X, NORMAL, key=0),
            "key must be one random key",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
