"""Laplace's approximation, expectation propagation and variational inference: values, gradients,
jit, vmap, weights, traces, bad input.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, check_derivatives, marked, needs_x64, real_data, untyped
from scipy.special import log_ndtr
from scipy.stats import multivariate_normal, norm

import kernax
from kernax.likelihoods import (
    Bernoulli,
    CustomLikelihood,
    Gaussian,
    NegativeBinomial,
    Poisson,
    Probit,
)

FUNCTIONS = {
    function.__name__: function
    for function in (kernax.laplace, kernax.expectation_propagation, kernax.variational)
}
each = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
RNG = np.random.default_rng(0)
N = 12
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Z = RNG.normal(size=(4, 2)).astype(DTYPE)
SIGNS = np.where(X[:, 0] + 0.5 * RNG.normal(size=N) > 0, 1, -1).astype(DTYPE)
COUNTS = RNG.poisson(np.exp(1 + X[:, 0])).astype(DTYPE)
NUMBERS = np.sin(2 * X[:, 0]).astype(DTYPE)
OBSERVED = {
    "Bernoulli": (Bernoulli(), SIGNS),
    "Probit": (Probit(), SIGNS),
    "Poisson": (Poisson(), COUNTS),
    "NegativeBinomial": (NegativeBinomial(0.5), COUNTS),
    "Gaussian": (Gaussian(np.linspace(0.1, 0.5, N)), NUMBERS),
}
KERNEL = 1.5 * kernax.RBF(0.9)
PROCESS = kernax.GaussianProcess(KERNEL, 0.2)


def evidence(function, scales, likelihood, y, X=X, weights=None):
    """With a variance, a lengthscale and a mean to differentiate in."""
    kernel = scales[0] * kernax.RBF(scales[1])
    process = kernax.GaussianProcess(kernel, kernax.ConstantMean(scales[2]))
    return function(process, X, y, likelihood, weights=weights, throw=False).value.log_evidence


SCALES = jnp.asarray([1.3, 0.8, 0.2], DTYPE)


def true_log_evidence(X, y, log_density):
    """`log E prod p(y_i | f_i)` by a grid over three values."""
    L = np.linalg.cholesky(np.asarray(kernax.gram(KERNEL, X), float))
    grid = np.linspace(-9, 9, 71)
    weights = norm.pdf(grid)
    weights /= weights.sum()
    places = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), -1).reshape(-1, 3)
    of_places = np.einsum("i,j,k->ijk", weights, weights, weights).reshape(-1)
    return np.log(of_places @ np.exp(log_density(y, places @ L.T + 0.2).sum(1)))


@pytest.mark.slow
@needs_x64
def test_the_evidence_of_laplace_is_that_of_other_programs():
    points = np.array([[-2.0], [-1], [1], [2]])
    process = kernax.GaussianProcess(kernax.RBF(1.0))
    found = kernax.laplace(
        process, points, np.array([-1, -1, 1, 1]), Bernoulli()
    ).value.log_evidence
    np.testing.assert_allclose(found, -2.6213914253451316, rtol=1e-12)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        pytest.param(*case, marks=[pytest.mark.nightly] * (name == "Probit"), id=name)
        for name, case in OBSERVED.items()
    ],
)
def test_the_mode_of_laplace_is_that_of_regularised_risk(likelihood, y):
    process = kernax.GaussianProcess(KERNEL)
    posterior = kernax.laplace(process, X, y, likelihood).value
    f = kernax.regularised_risk(KERNEL, X, y, 1.0, loss=likelihood).value
    means = jax.vmap(posterior.process.mean)(Z)
    np.testing.assert_allclose(means, f.values(Z), rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@each
def test_normal_observations_give_exact_regression(function):
    likelihood, y = OBSERVED["Gaussian"]
    solution = function(PROCESS, X, y, likelihood)
    exact = kernax.condition(PROCESS, X, y, likelihood.noise)
    posterior = solution.value.process
    rtol = 10 * TOLERANCE["solve"]
    for method in ("mean", "variance"):
        found = jax.vmap(getattr(posterior, method))(Z)
        expected = jax.vmap(getattr(exact.value, method))(Z)
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(solution.value.log_evidence, exact.stats["log_evidence"], rtol=rtol)
    noisy = solution.value.likelihood
    assert noisy.noise.dtype == DTYPE


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize(
    ("likelihood", "log_density"),
    [
        (Bernoulli(), lambda y, f: -np.logaddexp(0, -y * f)),
        pytest.param(Probit(), lambda y, f: log_ndtr(y * f), marks=pytest.mark.slow),
    ],
    ids=["logit", "probit"],
)
def test_against_the_true_evidence_of_three_points(likelihood, log_density):
    """The variational bound is below; that of expectation propagation is closest (GPML fig. 3.7).

    Measured: expectation propagation is off by 5e-5 (logit) and 5e-4 (probit), the bound by 8e-4
    and 1e-2, Laplace by 0.03 and 0.04.
    """
    points, y = X[:3], np.array([1.0, -1, 1])
    true = true_log_evidence(points, y, log_density)
    off = {
        name: float(function(PROCESS, points, y, likelihood).value.log_evidence - true)
        for name, function in FUNCTIONS.items()
    }
    assert off["variational"] < 0
    assert abs(off["expectation_propagation"]) < abs(off["variational"]) < abs(off["laplace"]) < 0.1
    assert abs(off["expectation_propagation"]) < 2e-3


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize("y", [1.0, -1.0])
def test_expectation_propagation_of_one_point_is_exact(y):
    for likelihood in (Bernoulli(), Probit()):
        solution = kernax.expectation_propagation(PROCESS, X[:1], np.array([y]), likelihood)
        f = jnp.linspace(-12, 12, 200_001) * np.sqrt(1.5) + 0.2
        density = norm.pdf(f, 0.2, np.sqrt(1.5)) * np.exp(-likelihood(jnp.full_like(f, y), f))
        cell = f[1] - f[0]
        z = np.sum(density) * cell
        mean = np.sum(f * density) * cell / z
        np.testing.assert_allclose(solution.value.log_evidence, np.log(z), rtol=1e-9)
        np.testing.assert_allclose(solution.value.process.mean(X[0]), mean, rtol=1e-8)
        variance = np.sum((f - mean) ** 2 * density) * cell / z
        np.testing.assert_allclose(solution.value.process.variance(X[0]), variance, rtol=1e-8)


@pytest.mark.parametrize("function", [kernax.expectation_propagation, kernax.variational])
def test_a_sign_far_against_its_mean_has_the_moments_of_probit_regression(function):
    """One point of mean 100 with the sign -1. In float32 the variance was 0.52, in place of 0.50;
    the tilted distribution is nearly normal, so that the variational one is equal.
    """
    process = kernax.GaussianProcess(kernax.RBF(1.0), 100.0)
    point = np.zeros((1, 1), DTYPE)
    posterior = function(process, point, np.array([-1.0], DTYPE), Probit()).value.process
    # With z = -m / sqrt(2) and h = phi(z) / Phi(z) = -z - 1 / z + 2 / z^3 + O(z^-5) the mean is
    # m - h / sqrt(2), and the variance 1 - h (z + h) / 2 (Rasmussen & Williams 2006, eq. 3.85).
    z = -100 / np.sqrt(2)
    h = -z - 1 / z + 2 / z**3
    np.testing.assert_allclose(posterior.mean(point[0]), 100 - h / np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(posterior.variance(point[0]), 1 - h * (z + h) / 2, rtol=1e-5)


@pytest.mark.slow
@needs_x64
def test_damping_ends_steps_that_no_longer_help():
    """Of a large kernel rounding allows no smaller change: 42 steps, and 200 without damping."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(12, 2))
    signs = np.where(rng.random(12) < 0.5, 1.0, -1.0)
    process = kernax.GaussianProcess(1e4 * kernax.RBF(1.0))
    solution = kernax.expectation_propagation(process, points, signs, Bernoulli())
    assert solution.result == kernax.RESULTS.successful
    assert solution.stats["steps"] < 100


@pytest.mark.nightly
@needs_x64
def test_expectation_propagation_is_that_of_the_book_site_by_site():
    """Rasmussen & Williams algorithm 3.5 in NumPy, sequential and with an inverse of K."""
    K = np.asarray(kernax.gram(KERNEL, X))
    y, prior = SIGNS, np.full(N, 0.2)
    tau, nu = np.zeros(N), np.zeros(N)
    for _ in range(60):
        for i in range(N):
            S = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
            m = S @ (nu + np.linalg.solve(K, prior))
            v_c = 1 / (1 / S[i, i] - tau[i])
            m_c = v_c * (m[i] / S[i, i] - nu[i])
            z = y[i] * m_c / np.sqrt(1 + v_c)
            ratio = np.exp(norm.logpdf(z) - norm.logcdf(z))
            mean = m_c + y[i] * v_c * ratio / np.sqrt(1 + v_c)
            variance = v_c - v_c**2 * ratio * (z + ratio) / (1 + v_c)
            tau[i], nu[i] = 1 / variance - 1 / v_c, mean / variance - m_c / v_c
    S = np.linalg.inv(np.linalg.inv(K) + np.diag(tau))
    m = S @ (nu + np.linalg.solve(K, prior))
    posterior = kernax.expectation_propagation(PROCESS, X, y, Probit()).value.process
    np.testing.assert_allclose(jax.vmap(posterior.mean)(X), m, atol=1e-8)
    np.testing.assert_allclose(jax.vmap(posterior.variance)(X), np.diagonal(S), atol=1e-8)


@pytest.mark.slow
@needs_x64
def test_no_other_normal_distribution_has_a_larger_bound():
    """The bound by its definition, in NumPy, for q moved about the one that is found."""
    posterior = kernax.variational(PROCESS, X, SIGNS, Bernoulli()).value
    m = np.asarray(jax.vmap(posterior.process.mean)(X)) - 0.2
    S = np.asarray(kernax.gram(posterior.process.covariance, X))
    K = np.asarray(kernax.gram(KERNEL, X))
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)

    def bound(m, S):
        f = m + 0.2 + np.sqrt(np.diagonal(S)) * nodes[:, None]
        losses = (weights / weights.sum()) @ np.logaddexp(0, -SIGNS * f)
        ratio = np.linalg.solve(K, S)
        divergence = np.trace(ratio) - N + m @ np.linalg.solve(K, m) - np.linalg.slogdet(ratio)[1]
        return -losses.sum() - divergence / 2

    best = bound(m, S)
    np.testing.assert_allclose(posterior.log_evidence, best, rtol=1e-6)
    rng = np.random.default_rng(1)
    for _ in range(20):
        A = rng.normal(size=(N, N)) * 1e-2
        moved = (np.eye(N) + A) @ S @ (np.eye(N) + A).T
        assert bound(m + 0.02 * rng.normal(size=N), moved) < best


@pytest.mark.slow
@needs_x64
@each
def test_predictions_are_integrals_over_the_latent_value(function):
    posterior = function(PROCESS, X, SIGNS, Bernoulli()).value
    x = Z[0]
    mean, variance = posterior.process.mean(x), posterior.process.variance(x)
    f = np.asarray(mean) + np.sqrt(variance) * np.linspace(-10, 10, 20_001)
    p = np.sum(norm.pdf(f, mean, np.sqrt(variance)) / (1 + np.exp(-f))) * (f[1] - f[0])
    np.testing.assert_allclose(posterior.probability(x), p, rtol=1e-9)
    np.testing.assert_allclose(posterior.predict(list(x)), (2 * p - 1, 4 * p * (1 - p)), rtol=1e-9)
    np.testing.assert_allclose(posterior.log_density(x, -1), np.log1p(-p), rtol=1e-9)


@needs_x64
@pytest.mark.nightly
@each
@pytest.mark.parametrize("name", ["NegativeBinomial", "Gaussian"])
def test_gradients_of_the_evidence_are_those_of_differences(function, name):
    """In the kernel, the mean, the points, the weights and the likelihood, all at once."""
    likelihood, y = OBSERVED[name]

    def of(scales, points, weights, likelihood):
        return evidence(function, scales, likelihood, y, points, weights)

    weights = jnp.linspace(0.5, 2.0, N)
    arguments = (SCALES, jnp.asarray(X), weights, jax.tree.map(jnp.asarray, likelihood))
    check_derivatives(of, arguments, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "function", marked(pytest.mark.nightly, FUNCTIONS.values(), "expectation_propagation")
)
def test_the_first_derivative_of_an_evidence_takes_no_system_of_two_n(function):
    """It is stationary in the sites; predictions are not."""
    of_evidence = jax.grad(lambda scales: evidence(function, scales, Bernoulli(), SIGNS))
    assert "getrf" not in jax.jit(of_evidence).lower(SCALES).compile().as_text()


@pytest.mark.slow
@each
def test_a_solution_says_how_it_ended(function):
    with pytest.raises(kernax.errors.MaxStepsError):
        function(PROCESS, X, SIGNS, Bernoulli(), max_steps=1)
    solution = function(PROCESS, X, SIGNS, Bernoulli(), max_steps=1, throw=False)
    assert solution.result == kernax.RESULTS.max_steps_reached
    good = function(PROCESS, X, SIGNS, Bernoulli())
    assert good.result == kernax.RESULTS.successful
    assert good.stats["log_evidence"] == good.value.log_evidence
    overflow = kernax.GaussianProcess(KERNEL, 1e30)
    void = function(overflow, X, COUNTS, Poisson(), throw=False)
    assert void.result != kernax.RESULTS.successful
    assert np.isnan(void.value.log_evidence)


@pytest.mark.slow
@each
@pytest.mark.parametrize("noise", [1e-2, 1e-4])
def test_precise_observations_cost_the_evidence_no_more_than_the_rounding_reported(function, noise):
    """Of a nearly singular matrix. Measured in float32: up to 1.4 times the rounding; in float64
    1.5e-10, most of it SciPy's.
    """
    rng = np.random.default_rng(0)
    points = np.linspace(0, 1, 40)[:, None].astype(DTYPE)
    y = (np.sin(points[:, 0]) + np.sqrt(noise) * rng.normal(size=40)).astype(DTYPE)
    found = function(kernax.GaussianProcess(kernax.RBF(3.0)), points, y, Gaussian(noise))
    off = (points - points.T).astype(float)
    covariance = np.exp(-(off**2) / 18) + noise * np.eye(40)
    exact = multivariate_normal.logpdf(y.astype(float), np.zeros(40), covariance)
    bound = 3 * found.stats["rounding"] + (3e-10 if X64 else 1e-3)
    np.testing.assert_allclose(found.value.log_evidence, exact, rtol=0, atol=bound)


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize("name", ["expectation_propagation", "variational"])
def test_precise_and_weak_factors_in_one_batch_have_exact_gradients(name):
    """Products of precision and prior variance from 0.05 to 15, on both sides of one."""
    noise = np.geomspace(0.1, 20, N)

    def ours(scales):
        return evidence(FUNCTIONS[name], scales, Gaussian(noise), NUMBERS)

    def exact(scales):
        kernel = scales[0] * kernax.RBF(scales[1])
        return kernax.log_marginal_likelihood(
            kernax.GaussianProcess(kernel, scales[2]), X, NUMBERS, noise
        )

    several = jnp.stack([SCALES, 1.1 * SCALES])
    found, expected = (jax.jit(jax.vmap(jax.value_and_grad(of)))(several) for of in (ours, exact))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-8, atol=1e-9)


@pytest.mark.nightly
@needs_x64
def test_narrow_likelihoods_and_large_counts_are_not_lost_between_the_nodes():
    """Where the likelihood is a thousand times narrower than the prior."""
    points, y = np.zeros((1, 1)), np.array([0.3])
    prior = kernax.GaussianProcess(1.5 * kernax.RBF())
    exact = kernax.condition(prior, points, y, 1e-6)
    # v / noise is 1.5e6, and leaves ten digits: measured 8e-6 in the evidence.
    for weights in (None, np.ones(1)):
        solution = kernax.expectation_propagation(prior, points, y, Gaussian(1e-6), weights=weights)
        found = solution.value.process
        np.testing.assert_allclose(found.mean(points[0]), 0.3, rtol=1e-5)
        expected = exact.value.variance(points[0])
        np.testing.assert_allclose(found.variance(points[0]), expected, rtol=1e-3)
        np.testing.assert_allclose(
            solution.value.log_evidence, exact.stats["log_evidence"], rtol=2e-5
        )
    for count in (100.0, 1000.0):
        posterior = kernax.expectation_propagation(prior, points, np.array([count]), Poisson())
        f = np.linspace(0, 9, 1_000_001)
        logs = count * f - np.exp(f) - f**2 / 3
        p = np.exp(logs - logs.max())
        mean = np.sum(p * f) / p.sum()
        np.testing.assert_allclose(posterior.value.process.mean(points[0]), mean, rtol=1e-8)
        spread = np.sum(p * (f - mean) ** 2) / p.sum()
        np.testing.assert_allclose(posterior.value.process.variance(points[0]), spread, rtol=1e-5)


@pytest.mark.slow
@each
def test_a_likelihood_with_several_modes_has_no_success(function):
    """Student's t by its density alone: curvatures below zero are no precisions."""
    heavy = CustomLikelihood(lambda _, y, f: -1.5 * jnp.log1p(20 * (y - f) ** 2))
    far = np.where(np.arange(N) == 3, 5.0, NUMBERS).astype(DTYPE)
    solution = function(PROCESS, X, far, heavy, throw=False)
    assert solution.result != kernax.RESULTS.successful
    assert np.isnan(solution.value.log_evidence)


@pytest.mark.slow
@each
def test_a_target_that_cannot_be_is_no_success(function):
    """Of density zero whatever f is: an evidence of -inf is no number to maximise."""
    gamma = CustomLikelihood(lambda _, y, f: jnp.log(y) - 2 * f - y * jnp.exp(-f))
    y = np.ones(N)
    y[3] = 0
    solution = function(PROCESS, X, y, gamma, throw=False)
    assert solution.result != kernax.RESULTS.successful
    assert np.isnan(solution.value.log_evidence)


@pytest.mark.slow
def test_jitter_which_is_noise_of_another_model_is_no_success():
    if X64:
        pytest.skip("float64 needs none here")
    points = np.zeros((2, 1), DTYPE)
    for function in FUNCTIONS.values():
        solution = function(
            kernax.GaussianProcess(kernax.RBF()), points, np.ones(2), Gaussian(1e-8), throw=False
        )
        assert solution.result != kernax.RESULTS.successful


@pytest.mark.slow
@needs_x64
def test_noise_of_each_point_has_the_shape_of_the_points_and_is_unknown_elsewhere():
    with pytest.raises(ValueError, match=r"noise has shape \(3,\).*values of shape \(12,\)"):
        kernax.laplace(PROCESS, X, NUMBERS, Gaussian(np.ones(3)))
    posterior = kernax.laplace(PROCESS, X, NUMBERS, Gaussian(np.ones(N))).value
    with pytest.raises(ValueError, match="the noise of other points is not known"):
        posterior.predict(X[0])


@needs_x64
def test_a_dispersion_of_each_point_is_refused():
    with pytest.raises(ValueError, match=r"dispersion must be one number, .* shape \(6,\)"):
        untyped(NegativeBinomial)(jnp.ones(6, DTYPE))


@needs_x64
def test_a_density_is_asked_for_a_target_of_its_kind():
    posterior = kernax.laplace(PROCESS, X, SIGNS, Bernoulli()).value
    with pytest.raises(ValueError, match=r"y must hold -1 and \+1"):
        posterior.log_density(X[0], 0)


@needs_x64
def test_a_mean_that_is_large_costs_numbers_no_digits():
    likelihood, y = Gaussian(0.3), NUMBERS + 1e6
    found = kernax.laplace(kernax.GaussianProcess(KERNEL, 1e6), X, y, likelihood).value
    near = kernax.laplace(kernax.GaussianProcess(KERNEL), X, NUMBERS, likelihood).value
    np.testing.assert_allclose(found.log_evidence, near.log_evidence, rtol=1e-8)


@needs_x64
@pytest.mark.slow
@each
@pytest.mark.parametrize("rate", [100.0, 1500.0])
def test_large_counts_under_a_prior_of_mean_zero_are_fitted(function, rate):
    """Far from where the prior expects them: from the sites of Laplace's approximation."""
    counts = np.round(rate * np.exp(np.sin(X[:, 0])))
    posterior = function(kernax.GaussianProcess(1.0 * kernax.RBF()), X, counts, Poisson()).value
    means, _ = jax.vmap(posterior.predict)(X)
    np.testing.assert_allclose(means, counts, rtol=0.1)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "function",
    marked(pytest.mark.nightly, FUNCTIONS.values(), "expectation_propagation", "variational"),
)
def test_the_value_beside_a_gradient_is_the_value(function):
    of = lambda scales: evidence(function, scales, Bernoulli(), SIGNS)
    value, _ = jax.jit(jax.value_and_grad(of))(SCALES)
    np.testing.assert_allclose(value, of(SCALES), rtol=1e-12)


@needs_x64
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"process": kernax.RBF},
            r"process must be a GaussianProcess.*GaussianProcess\(kernel\)",
        ),
        ({"likelihood": kernax.losses.Hinge()}, "likelihood must be one of kernax.likelihoods"),
        ({"likelihood": Bernoulli}, "likelihood must be one of kernax.likelihoods"),
        ({"y": np.zeros(N)}, r"y must hold -1 and \+1.*signs\(labels\)"),
        ({"y": -COUNTS - 1, "likelihood": Poisson()}, "y must hold counts >= 0 for Poisson"),
        ({"y": np.ones((N, 2))}, r"y must have shape \(12,\).*one process for each column"),
        ({"rtol": -1.0}, "rtol must be positive, but is -1"),
        ({"max_steps": 0}, "max_steps must be a positive integer"),
        ({"likelihood": Bernoulli}, r"but is the class Bernoulli: call it, as in Bernoulli\(\)$"),
        ({"y": SIGNS * 0.7}, r"is this a regression\? kernax.kernel_ridge and kernax.condition"),
        (
            {"y": np.arange(N) % 3},
            "to learn one at a time where y must be a vector",
        ),
    ],
)
def test_bad_input_is_refused_with_what_came_and_what_to_pass(change, words):
    arguments = {"process": PROCESS, "X": X, "y": SIGNS, "likelihood": Bernoulli()} | change
    for function in FUNCTIONS.values():
        with pytest.raises(ValueError, match=words):
            untyped(function)(**arguments)


@pytest.mark.slow
@needs_x64
def test_a_probability_is_refused_where_targets_are_no_signs():
    posterior = kernax.laplace(PROCESS, X, COUNTS, Poisson()).value
    with pytest.raises(ValueError, match=r"Poisson is not a likelihood of -1 and \+1 or of"):
        posterior.probability(X[0])


@pytest.mark.slow
@needs_x64
@each
def test_one_class_alone_is_data_as_well(function):
    posterior = function(PROCESS, X, np.ones(N), Bernoulli()).value
    assert posterior.probability(X[0]) > 0.5


@needs_x64
@pytest.mark.nightly
def test_few_features_are_solved_as_such():
    """Laplace in the features of a linear kernel, against the same kernel without known ones."""
    features = kernax.GaussianProcess(kernax.FeatureMap(jnp.asarray) + 0.5)
    dense = kernax.GaussianProcess(kernax.Polynomial(1, 0.0) + kernax.Custom(lambda _, x, z: 0.5))
    a, b = (kernax.laplace(process, X, SIGNS, Probit()) for process in (features, dense))
    assert a.stats["features"] == 3
    np.testing.assert_allclose(a.value.log_evidence, b.value.log_evidence, rtol=1e-9)
    for method in ("predict", "probability"):
        found, expected = (jax.vmap(getattr(s.value, method))(Z) for s in (a, b))
        np.testing.assert_allclose(found, expected, rtol=1e-7)


@needs_x64
@pytest.mark.nightly
def test_handwritten_digits_give_the_published_evidence_and_errors():
    """USPS 3 against 5, probit, log lengthscale 2.85, log deviation 2.35."""
    data = real_data("usps_3v5")
    points = np.concatenate([data["X_train"], data["X_test"]]).astype(float)
    y = np.concatenate([data["y_train"], data["y_test"]]).astype(float)
    process = kernax.GaussianProcess(np.exp(2 * 2.35) * kernax.RBF(np.exp(2.85)))

    def fitted(function, order):
        train, test = order[:767], order[767:]
        posterior = function(process, points[train], y[train], Probit()).value
        means, _ = jax.vmap(posterior.predict)(points[test])
        return float(posterior.log_evidence), int(np.sum(np.sign(means) != y[test]))

    expected = [(-127.4471, 26), (-120.2495, 25), (-120.9106, 28)]
    for order, (log_evidence, errors) in zip(data["repartition"], expected):
        found = fitted(kernax.laplace, order)
        np.testing.assert_allclose(found[0], log_evidence, atol=6e-5)
        assert found[1] == errors
    found = fitted(kernax.expectation_propagation, data["repartition"][0])
    np.testing.assert_allclose(found[0], -111.404, atol=6e-4)
    assert found[1] == 26
    bound, _ = fitted(kernax.variational, data["repartition"][0])
    assert bound < found[0]


@pytest.mark.nightly
@needs_x64
def test_a_likelihood_of_ones_own_needs_its_log_density_alone():
    mine = CustomLikelihood(lambda _, y, f: -jax.nn.softplus(-y * f))
    for function in FUNCTIONS.values():
        found = function(PROCESS, X, SIGNS, mine).value.log_evidence
        expected = function(PROCESS, X, SIGNS, Bernoulli()).value.log_evidence
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.nightly
@needs_x64
def test_a_dispersion_is_learned_by_the_evidence():
    """Counts far more spread than Poisson's: the gradient leads away from small dispersions."""
    spread = np.array([0, 9, 0, 14, 1, 0, 22, 3, 0, 11, 0, 7.0])
    slope = jax.jit(
        jax.grad(lambda d: evidence(kernax.laplace, SCALES, NegativeBinomial(d), spread))
    )
    assert slope(0.05) > 0 > slope(50.0)


@pytest.mark.slow
def test_float32_and_float64_agree():
    """What float32 returns is that of float64, within its precision."""
    if X64:
        pytest.skip("float64 is the reference")
    for function in FUNCTIONS.values():
        found = function(PROCESS, X, SIGNS, Probit()).value.log_evidence
        with jax.enable_x64(True):
            wide = kernax.GaussianProcess(1.5 * kernax.RBF(np.float64(0.9)), 0.2)
            exact = function(
                wide, X.astype(float), SIGNS.astype(float), Probit()
            ).value.log_evidence
        np.testing.assert_allclose(found, exact, rtol=1e-4)
