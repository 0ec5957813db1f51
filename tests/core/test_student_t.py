"""Student's t as a likelihood: integrals, the bound by which `variational` and `svgp` take it, and
who refuses it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, needs_x64, untyped
from scipy import stats
from scipy.special import logsumexp

import kernax
from kernax.core.losses.quadrature import bounded_slopes
from kernax.likelihoods import StudentT

N = 14
X = np.linspace(-2, 2, N)[:, None].astype(DTYPE)
Y = (np.sin(2 * X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=N)).astype(DTYPE)
Y[5] += 8  # an outlier
PROCESS = kernax.GaussianProcess(kernax.RBF(0.7))
T = StudentT(3.0, 0.2)


def bound(scales, likelihood, X=X, y=Y, weights=None):
    process = kernax.GaussianProcess(
        scales[0] * kernax.RBF(scales[1]), kernax.ConstantMean(scales[2])
    )
    found = kernax.variational(process, X, y, likelihood, weights=weights, throw=False)
    return found.value.log_evidence


@pytest.mark.parametrize("df", [0.5, 4.0, 30.0, 1e6])
def test_density_slope_and_curvature_are_those_of_the_distribution(df):

    @jax.jit
    def figures(y, f):
        likelihood = StudentT(df, 0.3)
        slope = jax.grad(lambda f: jnp.sum(likelihood(y, f)))
        by_jax = jax.jvp(slope, (f,), (jnp.ones_like(f),))
        given = likelihood.derivative(y, f), likelihood.curvature(y, f)
        return likelihood(y, f), given, by_jax, likelihood.moments(f)

    y, f = jnp.asarray([0.1, -2.0, 5.0, 0.4], DTYPE), jnp.asarray([0.0, 0.3, -1.0, 0.4], DTYPE)
    expected = -stats.t.logpdf(np.asarray(y), df, np.asarray(f), 0.3)
    loss, (derivative, curvature), (slope, slope_of_slope), (mean, variance) = figures(y, f)
    np.testing.assert_allclose(loss, expected, rtol=10 * TOLERANCE["value"])
    np.testing.assert_allclose(derivative, slope, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(curvature, slope_of_slope, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(mean, f)
    np.testing.assert_allclose(
        variance, stats.t.var(df, scale=0.3) if df > 2 else np.inf, rtol=1e-5
    )


@eqx.filter_jit
def integrals(likelihood, y, mean, variance):
    """The log evidence of one observation, its expected loss, and the bound of that."""
    arguments = y, mean, variance
    return (
        likelihood.log_normaliser(*arguments),
        likelihood.expected_loss(*arguments),
        likelihood.bounded_loss(*arguments),
    )


@pytest.mark.parametrize("df", [0.5, 4.0, 1000.0])
@pytest.mark.parametrize("scale", [1e-3, 1.0])
@pytest.mark.parametrize(("y", "variance"), [(0.0, 1.0), (5.0, 2.0), (1.0, 1e-4), (30.0, 1e4)])
def test_integrals_are_right_wherever_the_two_densities_are(df, scale, y, variance):
    """Against a sum over points close together about both of their centres."""
    deviation = np.sqrt(variance)
    about_y = y + scale * np.sinh(np.linspace(-20, 20, 200_001))
    f = np.unique(np.concatenate([deviation * np.linspace(-60, 60, 200_001), about_y]))
    steps = np.gradient(f)
    log_t, log_normal = stats.t.logpdf(y, df, f, scale), stats.norm.logpdf(f, 0, deviation)
    args = [jnp.asarray(value, DTYPE) for value in (y, 0.0, variance)]
    tolerance = 1e-7 if X64 else 2e-4
    log_integral = logsumexp(log_t + log_normal, b=steps)
    evidence, found, bounded = integrals(StudentT(df, scale), *args)
    np.testing.assert_allclose(evidence, log_integral, rtol=tolerance, atol=tolerance)
    loss = np.sum(-log_t * np.exp(log_normal) * steps)
    np.testing.assert_allclose(found, loss, rtol=tolerance, atol=tolerance)
    assert bounded >= found * (1 - tolerance)


def test_the_bound_is_the_loss_where_f_is_known_and_for_normal_observations():
    y, mean = jnp.asarray([0.3, 2.0], DTYPE), jnp.asarray([0.1, -1.0], DTYPE)
    nothing = jnp.zeros_like(y)
    np.testing.assert_allclose(T.bounded_loss(y, mean, nothing), T(y, mean), rtol=1e-6)
    np.testing.assert_allclose(bounded_slopes(T, y, mean, nothing)[0], T.derivative(y, mean), 1e-5)
    variance = jnp.asarray([0.5, 2.0], DTYPE)
    normal, nearly = kernax.likelihoods.Gaussian(0.09), StudentT(1e7 if X64 else 1e4, 0.3)
    expected = normal.expected_loss(y, mean, variance)
    rtol = 1e-4 if X64 else 2e-2
    np.testing.assert_allclose(nearly.bounded_loss(y, mean, variance), expected, rtol=rtol)
    _, precision = bounded_slopes(nearly, y, mean, variance)
    np.testing.assert_allclose(precision, 1 / 0.09, rtol=rtol)


@pytest.mark.slow
def test_where_f_is_known_exactly_the_density_is_the_likelihood():
    y, f = jnp.asarray([0.3, 2.0], DTYPE), jnp.asarray([0.1, -1.0], DTYPE)
    nothing = jnp.zeros_like(y)
    np.testing.assert_allclose(T.log_normaliser(y, f, nothing), -T(y, f), rtol=1e-6)
    np.testing.assert_allclose(T.expected_loss(y, f, nothing), T(y, f), rtol=1e-5)


@pytest.mark.slow
@needs_x64
def test_the_bound_is_below_the_evidence_and_close_to_it():
    """Three values on a grid; one of the targets is an outlier."""
    points, y = np.array([[-1.0], [0.2], [0.9]]), np.array([0.5, -3.0, 0.7])
    lower = np.linalg.cholesky(np.asarray(kernax.gram(kernax.RBF(0.7), points)))
    grid = np.linspace(-8, 8, 81)
    log_weights = stats.norm.logpdf(grid)
    log_weights -= logsumexp(log_weights)
    places = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), -1).reshape(-1, 3)
    logs = np.add.reduce(np.meshgrid(*3 * [log_weights], indexing="ij")).reshape(-1)
    true = logsumexp(logs + stats.t.logpdf(y, 3.0, places @ lower.T, 0.2).sum(1))
    found = kernax.variational(PROCESS, points, y, T)
    assert true - 1 < found.value.log_evidence < true
    assert found.stats["residual"] < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.02, 0.1, 0.5])
def test_full_steps_reach_the_best_bound_from_wherever_they_start(scale):
    """Steps that were shortened where the change grows came to a standstill here."""
    rng = np.random.default_rng(0)
    points = rng.uniform(-2, 2, (50, 2)).astype(DTYPE)
    y = (np.sin(3 * points[:, 0]) + rng.standard_t(2, 50) * scale).astype(DTYPE)
    found = kernax.variational(PROCESS, points, y, StudentT(4.0, scale), max_steps=2000)
    assert found.stats["residual"] < np.finfo(DTYPE).eps ** 0.5


@pytest.mark.slow
@needs_x64
def test_with_many_degrees_of_freedom_it_is_regression():
    exact = kernax.log_marginal_likelihood(PROCESS.covariance, X, Y, 0.04)
    found = kernax.variational(PROCESS, X, Y, StudentT(1e9, 0.2))
    np.testing.assert_allclose(found.value.log_evidence, exact, rtol=1e-5)
    posterior = kernax.condition(PROCESS, X, Y, 0.04).value
    mean, variance = found.value.predict(X[2])
    np.testing.assert_allclose(mean, posterior.mean(X[2]), rtol=1e-5)
    np.testing.assert_allclose(variance - 0.04, posterior.variance(X[2]), rtol=1e-4)


@pytest.mark.slow
def test_an_outlier_is_not_followed():
    """Measured: largest error 0.13, of a normal likelihood of the same scale 3.4."""
    truth = np.sin(2 * X[:, 0])
    errors = {}
    for likelihood in (T, kernax.likelihoods.Gaussian(0.04)):
        posterior = kernax.variational(PROCESS, X, Y, likelihood).value
        mean, _ = jax.vmap(posterior.predict)(X)
        errors[type(likelihood)] = np.max(abs(np.asarray(mean) - truth))
    assert errors[StudentT] < 0.3 < 2 < errors[kernax.likelihoods.Gaussian]


@pytest.mark.slow
@needs_x64
def test_in_a_batch_each_member_has_the_gradient_that_it_has_alone():
    slope = jax.value_and_grad(lambda df: bound(jnp.asarray([1.0, 0.7, 0.0]), StudentT(df, 0.2)))
    frees = jnp.asarray([1.5, 4.0, 60.0])
    values, slopes = jax.jit(jax.vmap(slope))(frees)
    for df, value, found in zip(frees, values, slopes):
        alone = jax.jit(slope)(df)
        np.testing.assert_allclose((value, found), alone, rtol=1e-9)


@pytest.mark.slow
def test_inducing_points_at_all_points_give_the_same_bound():
    full = kernax.variational(PROCESS, X, Y, T).value.log_evidence
    sparse = kernax.svgp(
        PROCESS, X, Y, T, X, optimiser=None, n_steps=100, key=jax.random.key(0), rate=1.0
    ).value
    np.testing.assert_allclose(sparse.log_evidence, full, rtol=1e-5 if X64 else 1e-2)


def test_the_variance_of_an_observation_may_be_infinite():
    mean, variance = StudentT(2.0).predicted_moments(*(jnp.ones(1, DTYPE) for _ in range(2)))
    np.testing.assert_allclose(mean, 1, rtol=1e-6)
    assert variance[0] == np.inf


@needs_x64
@pytest.mark.parametrize("function", [kernax.laplace, kernax.expectation_propagation])
def test_posteriors_by_their_only_mode_refuse_it(function):
    words = (
        f"^{function.__name__} needs a convex loss.* StudentT is not one: kernax.variational and"
    )
    with pytest.raises(ValueError, match=words):
        function(PROCESS, X, Y, T)


@needs_x64
def test_a_risk_is_of_a_convex_loss():
    with pytest.raises(ValueError, match=r"^regularised_risk needs a convex .* StudentT is not"):
        kernax.regularised_risk(kernax.RBF(), X, Y, 1.0, loss=T)


@needs_x64
def test_parameters_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="degrees"):
        StudentT(0.0)
    with pytest.raises(ValueError, match="scale"):
        StudentT(3.0, -1.0)
    with pytest.raises(ValueError, match=r"degrees must be one number, but has the shape \(3,\)"):
        untyped(StudentT)(np.full(3, 4.0))
