"""Likelihoods and their integrals over normal distributions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, assert_close, marked, needs_x64
from scipy.integrate import quad_vec
from scipy.special import expit, gammaln, log_ndtr, logsumexp

import kernax
from kernax import likelihoods
from kernax.core.losses import quadrature
from kernax.core.losses.observation_likelihoods import Powered

# One program each, instead of some forty of one operation.
expectation = eqx.filter_jit(quadrature.expectation)
expected_loss = eqx.filter_jit(lambda likelihood, *args: likelihood.expected_loss(*args))
log_normaliser = eqx.filter_jit(lambda likelihood, *args: likelihood.log_normaliser(*args))
predicted_moments = eqx.filter_jit(lambda likelihood, *args: likelihood.predicted_moments(*args))


def of_logit(parameters, y, f):
    return -jax.nn.softplus(-parameters * y * f)


def moments_of_logit(parameters, f):
    p = jax.nn.sigmoid(parameters * f)
    return 2 * p - 1, 4 * p * (1 - p)


KNOWN = {
    "Bernoulli": likelihoods.Bernoulli(),
    "Probit": likelihoods.Probit(),
    "Poisson": likelihoods.Poisson(),
    "NegativeBinomial": likelihoods.NegativeBinomial(0.4),
    "Gaussian": likelihoods.Gaussian(0.3),
    "Ordinal": likelihoods.Ordinal(-0.4, [0.7, 1.3], 0.8),
    "Custom": likelihoods.CustomLikelihood(
        of_logit, jnp.asarray(1.5, DTYPE), mean_and_variance=moments_of_logit
    ),
}
F = jnp.array([-2.5, -0.3, 0.0, 1.7, 2.4], DTYPE)
each = pytest.mark.parametrize("likelihood", KNOWN.values(), ids=KNOWN)


def outcomes(likelihood):
    """Values of y, and the size of the cells they stand for."""
    if likelihood.targets == "counts":
        return jnp.arange(400.0, dtype=DTYPE), 1.0
    if likelihood.targets == "ordered":
        return jnp.arange(4.0, dtype=DTYPE), 1.0
    if likelihood.targets == "signs" or likelihood is KNOWN["Custom"]:
        return jnp.array([-1.0, 1.0], DTYPE), 1.0
    return jnp.linspace(-9, 9, 4001, dtype=DTYPE), 18 / 4000


@each
def test_probabilities_of_all_outcomes_sum_to_one_with_the_moments_given(likelihood):
    y, cell = outcomes(likelihood)

    @jax.jit
    def losses_and_moments(f):
        losses = jax.vmap(lambda f: likelihood(y, jnp.full_like(y, f)))(f)
        return losses, likelihood.moments(f)

    losses, (mean, variance) = losses_and_moments(F)
    p = cell * np.exp(-np.asarray(losses))
    tolerance = 10 * TOLERANCE["value"]
    np.testing.assert_allclose(p.sum(1), 1, rtol=tolerance)
    assert_close(p @ y, mean, tolerance)
    spread = (np.asarray(y) - np.asarray(mean)[:, None]) ** 2
    assert_close(np.sum(p * spread, 1), variance, tolerance)


@needs_x64
@each
def test_slopes_and_curvatures_are_the_derivatives_and_the_loss_is_convex(likelihood):
    outcomes_of, _ = outcomes(likelihood)

    @jax.jit
    def derivatives(y):
        one = lambda f: likelihood(y, f)
        slopes = likelihood.derivative(jnp.full(5, y), F), jax.vmap(jax.grad(one))(F)
        of_slopes = jax.vmap(jax.grad(jax.grad(one)))(F)
        return slopes, (likelihood.curvature(jnp.full(5, y), F), of_slopes)

    for y in outcomes_of[:: max(1, len(outcomes_of) // 5)]:
        slopes, (found, curvatures) = derivatives(y)
        np.testing.assert_allclose(*slopes, atol=1e-9)
        np.testing.assert_allclose(found, curvatures, rtol=1e-9, atol=1e-9)
        assert np.all(found >= 0)


def test_far_out_the_probit_likelihood_stays_finite_and_right():
    """`-log Phi(z) = z^2 / 2 + log(-z sqrt(2 pi)) + 1 / z^2 + ...` for z far below zero."""
    z = jnp.asarray(-60.0, DTYPE)
    probit, one = KNOWN["Probit"], jnp.ones((), DTYPE)
    series = z**2 / 2 + jnp.log(-z * np.sqrt(2 * np.pi)) + 1 / z**2
    np.testing.assert_allclose(probit(one, z), series, rtol=1e-6)
    np.testing.assert_allclose(probit.derivative(one, z), z + 1 / z, rtol=1e-6)
    np.testing.assert_allclose(probit.curvature(one, z), 1 - 1 / z**2, rtol=1e-6)


@pytest.mark.parametrize("z", [-8.0, -30.0, -100.0, -1e4])
def test_derivatives_of_the_probit_likelihood_by_jax_keep_their_digits_far_out(z):
    """Expectation propagation and variational inference differentiate it twice: the second
    derivative of `jax.scipy.stats.norm.logcdf` is -1.9 at -100 in float32, in place of 1.
    """
    probit, one, at = KNOWN["Probit"], jnp.ones((), DTYPE), jnp.asarray(z, DTYPE)

    def twice(function):
        return jax.grad(function)(at), jax.grad(jax.grad(function))(at)

    expected = probit.derivative(one, at), probit.curvature(one, at)
    np.testing.assert_allclose(twice(lambda f: probit(one, f)), expected, rtol=1e-6)
    # For f ~ N(m, v) it is that at m / sqrt(1 + v), with v = 3.
    of_mean = lambda mean: -probit.log_normaliser(one, 2 * mean, jnp.asarray(3.0, DTYPE))
    np.testing.assert_allclose(twice(of_mean), expected, rtol=1e-6)
    third = jax.grad(jax.grad(jax.grad(lambda f: probit(one, f))))(at)
    np.testing.assert_allclose(third, jax.grad(lambda f: probit.curvature(one, f))(at), rtol=1e-5)


@needs_x64
def test_both_branches_of_the_probit_likelihood_meet():
    probit = KNOWN["Probit"]
    z = jnp.asarray([-5 - 1e-9, -5 + 1e-9])
    for method in (probit.derivative, probit.curvature):
        below, above = method(jnp.ones(2), z)
        np.testing.assert_allclose(below, above, rtol=1e-8)


@pytest.mark.slow
@each
def test_integrals_are_those_of_quadrature_by_scipy(likelihood):
    y = jnp.asarray(1.0, DTYPE)
    mean, variance = jnp.asarray(0.4, DTYPE), jnp.asarray(1.3, DTYPE)

    @jax.jit
    def integrands(f):
        loss = likelihood(jnp.asarray(1.0), f)
        mean, variance = likelihood.moments(f)
        return jnp.stack([jnp.exp(-loss), loss, mean, variance + mean**2])

    density = lambda f: np.exp(-((f - 0.4) ** 2) / 2.6) / np.sqrt(2.6 * np.pi)
    with jax.enable_x64(True):
        integrand = lambda f: np.asarray(integrands(f)) * density(f)
        integrals, _ = quad_vec(integrand, -11, 12, epsabs=TOLERANCE["value"])
    evidence, loss, means, squares = np.log(integrals[0]), *integrals[1:]
    tolerance = {"rtol": 100 * TOLERANCE["value"], "atol": TOLERANCE["value"]}
    np.testing.assert_allclose(log_normaliser(likelihood, y, mean, variance), evidence, **tolerance)
    np.testing.assert_allclose(expected_loss(likelihood, y, mean, variance), loss, **tolerance)
    centre, spread = predicted_moments(likelihood, mean, variance)
    np.testing.assert_allclose(centre, means, **tolerance)
    np.testing.assert_allclose(spread, squares - means**2, **tolerance)


@pytest.mark.parametrize("mean", [-5.0, 3.0, 700.0])
@pytest.mark.parametrize("deviation", [1e-3, 1.0, 100.0, 1e3, *([1e6] if X64 else [])])
def test_integrals_of_a_logistic_loss_are_right_however_wide_the_distribution(mean, deviation):
    """Against Gauss and Legendre between many ends, about the mean and about zero."""
    steps = np.concatenate([np.linspace(-12, 12, 97), np.linspace(-1, 1, 97) * 60 / deviation])
    ends = np.sort(np.clip(steps - np.repeat([0, mean / deviation], 97), -12, 12))
    nodes, masses = np.polynomial.legendre.leggauss(20)
    halves = np.diff(ends)[:, None] / 2
    places = ends[:-1, None] + halves * (1 + nodes)
    weights = halves * masses * np.exp(-(places**2) / 2) / np.sqrt(2 * np.pi)
    f = mean + deviation * places
    bernoulli = KNOWN["Bernoulli"]
    args = (jnp.ones((), DTYPE), jnp.asarray(mean, DTYPE), jnp.asarray(deviation**2, DTYPE))
    tolerance = 1e-9 if X64 else 1e-4
    evidence = np.log(np.sum(weights * expit(f)))
    found = log_normaliser(bernoulli, *args)
    np.testing.assert_allclose(found, evidence, rtol=tolerance, atol=tolerance)
    losses = np.sum(weights * np.logaddexp(0, -f))
    found = expected_loss(bernoulli, *args)
    np.testing.assert_allclose(found, losses, rtol=tolerance, atol=tolerance)
    in_mean = jax.grad(lambda mean: expected_loss(bernoulli, args[0], mean, args[2]))
    slope = np.sum(weights * -expit(-f))
    np.testing.assert_allclose(in_mean(args[1]), slope, rtol=tolerance, atol=tolerance)
    curvature = np.sum(weights * expit(f) * expit(-f))
    found = jax.grad(in_mean)(args[1])
    np.testing.assert_allclose(found, curvature, rtol=tolerance, atol=tolerance**2)
    centre, spread = predicted_moments(bernoulli, *args[1:])
    np.testing.assert_allclose(centre, 2 * np.exp(evidence) - 1, rtol=10 * tolerance)
    np.testing.assert_allclose(spread, 1 - centre**2, rtol=10 * tolerance, atol=tolerance)


def test_beside_a_very_wide_distribution_a_logistic_likelihood_is_a_step():
    """Measured: 2e-9 in float64, 3e-6 in float32."""
    ratio = np.repeat([-3.0, -0.5, 0.0, 2.0], 3)
    deviation = np.tile([1e9, 1e12, 1e16], 4)
    mean = jnp.asarray(ratio * deviation, DTYPE)
    found = log_normaliser(
        KNOWN["Bernoulli"], jnp.ones_like(mean), mean, jnp.asarray(deviation**2, DTYPE)
    )
    np.testing.assert_allclose(found, log_ndtr(ratio), atol=4e-9 if X64 else 6e-6)


@pytest.mark.parametrize("count", [0.0, 50.0, 1000.0])
@pytest.mark.parametrize("variance", [1e-3, 1.5, 100.0])
def test_the_density_of_a_count_far_from_the_mean_or_a_narrow_one_is_found(count, variance):
    """By a fine grid about the mode of the product, in float64."""
    poisson = KNOWN["Poisson"]
    y, mean = jnp.asarray(count, DTYPE), jnp.asarray(0.3, DTYPE)
    found = log_normaliser(poisson, y, mean, jnp.asarray(variance, DTYPE))
    reach = 20 * variance**0.5 + min(variance * count, 10)
    f = np.linspace(0.3 - reach, 0.3 + reach, 400_001)
    with np.errstate(over="ignore"):
        logs = count * f - np.exp(f) - gammaln(count + 1) - (f - 0.3) ** 2 / (2 * variance)
    logs = logs - np.log(2 * np.pi * variance) / 2
    expected = logsumexp(logs) + np.log(f[1] - f[0])
    # Float32: terms of some thousand nats, which cancel; measured 2e-5.
    np.testing.assert_allclose(found, expected, rtol=1e-9 if np.float64 == DTYPE else 1e-4)


@needs_x64
def test_slopes_of_the_density_are_right_for_narrow_likelihoods():
    """Normal observations of little noise by the general rule, as powers have it, and exactly."""
    narrow = likelihoods.Gaussian(1e-6)
    by_rule = Powered(narrow, jnp.ones(1))
    y, variance = jnp.array([0.3]), jnp.array([1.5])
    one = lambda likelihood, mean: log_normaliser(likelihood, y, mean, variance)[0]
    for order in (lambda g: g, jax.grad, lambda g: jax.grad(lambda m: jax.grad(g)(m)[0])):
        found = order(lambda mean: one(by_rule, mean))(jnp.array([0.1]))
        expected = order(lambda mean: one(narrow, mean))(jnp.array([0.1]))
        np.testing.assert_allclose(found, expected, rtol=1e-7)


@pytest.mark.parametrize("power", [0.0, 1e-9, 1e-7, 1e-3, 30.0])
def test_integrals_of_powers_are_right_however_small(power):
    """On both sides of where the slope of a loss is taken to turn."""
    wide = jnp.asarray([0.5, 40.0, 900.0], DTYPE)
    ones = jnp.ones_like(wide)
    powered = Powered(likelihoods.Bernoulli(), power * ones)
    found = log_normaliser(powered, ones, -0.7 * ones, wide**2)
    for deviation, log_integral in zip(np.asarray(wide), found):
        f = np.linspace(-9, 9, 400_001) * deviation
        logs = -power * np.logaddexp(0, 0.7 - f) - (f / deviation) ** 2 / 2
        expected = logsumexp(logs) + np.log(f[1] - f[0]) - np.log(2 * np.pi * deviation**2) / 2
        np.testing.assert_allclose(log_integral, expected, atol=1e-9 if X64 else 1e-4)


@pytest.mark.slow
def test_a_value_that_is_known_exactly_leaves_the_likelihood_itself():
    for likelihood in KNOWN.values():
        y, nothing = jnp.ones(5, DTYPE), jnp.zeros(5, DTYPE)
        assert_close(log_normaliser(likelihood, y, F, nothing), -likelihood(y, F))
        mean, variance = likelihood.moments(F)
        assert_close(predicted_moments(likelihood, F, nothing)[0], mean)
        assert_close(predicted_moments(likelihood, F, nothing)[1], variance)


@needs_x64
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nodes_and_weights_of_quadrature_are_computed_in_float64_and_rounded_once(dtype):
    """Computed in float32 the weights were off by 1e-6, from the squares of nodes up to 6."""
    powers, count = (38, 192) if dtype == np.float64 else (18, 96)
    reach = np.sqrt(2 * powers)
    places = -reach + 2 * reach * np.arange(count, dtype=np.longdouble) / (count - 1)
    weights = np.exp(-(places**2) / 2)
    weights /= weights.sum()
    eps = np.finfo(dtype).eps
    found = quadrature._standard_nodes(np.dtype(dtype), None)
    assert [array.dtype for array in found] == [dtype, dtype]
    np.testing.assert_allclose(found[0], places.astype(float), rtol=eps, atol=reach * 2.3e-16)
    # Rounding of a node in float64 is multiplied by the exponent's slope, reach^2.
    rtol = eps / 2 if dtype == np.float32 else 1.5 * reach**2 * eps
    np.testing.assert_allclose(found[1], weights.astype(float), rtol=1.01 * rtol)


def test_expectations_take_any_function():
    mean, variance = jnp.asarray([0.5, -1.0], DTYPE), jnp.asarray([2.0, 0.1], DTYPE)
    found = expectation(lambda f: f**2, mean, variance)
    assert_close(found, mean**2 + variance, 10 * TOLERANCE["value"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "likelihood",
    marked(pytest.mark.nightly, KNOWN.values(), "Poisson", "Gaussian", others=True),
    ids=KNOWN,
)
def test_regularised_risk_takes_every_likelihood(likelihood):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 2)).astype(DTYPE)
    y = {"signs": np.sign(X[:, 0]), "counts": rng.poisson(2.0, 8), "ordered": np.arange(8) % 4}.get(
        likelihood.targets, np.sign(X[:, 0])
    )
    solution = kernax.regularised_risk(kernax.RBF(), X, y.astype(DTYPE), 0.7, loss=likelihood)
    f = solution.value.values(X)
    gradient = 0.7 * solution.value.coefficients + likelihood.derivative(jnp.asarray(y, DTYPE), f)
    np.testing.assert_allclose(gradient, 0, atol=100 * TOLERANCE["value"])


@needs_x64
def test_what_a_likelihood_does_not_know_is_said():
    bare = likelihoods.CustomLikelihood(of_logit, 1.0)
    with pytest.raises(ValueError, match="mean_and_variance=function"):
        bare.moments(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"noise has shape \(3,\), one for each training point"):
        likelihoods.Gaussian(np.ones(3)).moments(jnp.zeros(()))
    with pytest.raises(ValueError, match="dispersion must be in"):
        likelihoods.NegativeBinomial(-1.0)
