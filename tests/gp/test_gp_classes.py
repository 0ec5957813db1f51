"""Laplace's approximation for several classes: values, gradients, jit, vmap, weights, traces, bad
input.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from conftest import DTYPE, TOLERANCE, needs_x32, needs_x64, untyped
from scipy.special import log_softmax, softmax

import kernax
from kernax.core.losses.quasi_random import expectation_over_vectors
from kernax.errors import ConditionWarning
from kernax.likelihoods import Bernoulli, Categorical, expectation

RNG = np.random.default_rng(0)
N = 12
CLASSES = 3
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Z = RNG.normal(size=(4, 2)).astype(DTYPE)
LABELS = np.argmax(X @ RNG.normal(size=(2, CLASSES)) + 0.5 * RNG.normal(size=(N, CLASSES)), 1)
Y = np.eye(CLASSES, dtype=DTYPE)[LABELS]
KERNEL = 2.5 * kernax.RBF(0.9)
OFFSETS = np.array([0.3, 0.0, -0.4], DTYPE)


def mean(_):
    return jnp.asarray(OFFSETS)


PROCESS = kernax.GaussianProcess(KERNEL, mean)


@pytest.fixture(scope="module")
def posterior():
    return kernax.laplace(PROCESS, X, Y, Categorical()).value


def by_dense_algebra(posterior):
    """The evidence, and the covariances at X, of matrices over all points and classes."""
    a = np.asarray(posterior.process.mean.of_all.update.coefficients, float)
    K = np.asarray(kernax.gram(KERNEL, X), float)
    f = K @ a + OFFSETS
    P = softmax(f, 1)
    np.testing.assert_allclose(a, Y - P, atol=TOLERANCE["solve"])  # the condition of the mode
    whole = np.kron(np.eye(CLASSES), K)
    stacked = np.vstack([np.diag(p) for p in P.T])
    W = np.diag(P.T.reshape(-1)) - stacked @ stacked.T
    T = np.eye(len(W)) + whole @ W
    losses = np.sum(Y * log_softmax(f, 1))
    evidence = losses - np.sum(a * (K @ a)) / 2 - np.linalg.slogdet(T)[1] / 2
    covariance = np.linalg.solve(T, whole).reshape(CLASSES, N, CLASSES, N)
    return evidence, np.stack([covariance[:, i, :, i] for i in range(N)])


@pytest.mark.slow
def test_the_evidence_and_the_covariance_are_those_of_dense_algebra(posterior):
    """Measured: 2e-15 and 5e-15 in float64, 2e-7 and 1e-6 in float32."""
    log_evidence, covariances = by_dense_algebra(posterior)
    rtol = TOLERANCE["value"]
    np.testing.assert_allclose(posterior.log_evidence, log_evidence, rtol=rtol)
    found = jax.vmap(lambda x: posterior.process.covariance.between(x, x))(X)
    np.testing.assert_allclose(found, covariances, atol=rtol * 5)
    points = (X[[3, 3]], np.array([0, 2], np.int32))
    both = np.asarray(kernax.gram(posterior.process.covariance, points))
    np.testing.assert_allclose(both, covariances[3][np.ix_([0, 2], [0, 2])], atol=rtol * 5)
    variance = posterior.process.variance((X[3], 2))
    np.testing.assert_allclose(variance, covariances[3, 2, 2], atol=rtol * 5)


@pytest.mark.nightly
def test_the_mode_is_that_of_kernel_softmax():
    posterior = kernax.laplace(kernax.GaussianProcess(KERNEL), X, Y, Categorical()).value
    f = kernax.kernel_softmax(KERNEL, X, Y, 1.0, bias=False).value
    means = jax.vmap(lambda z: jnp.stack([posterior.process.mean((z, c)) for c in range(CLASSES)]))
    np.testing.assert_allclose(means(Z), f.values(Z), atol=TOLERANCE["solve"])


@pytest.mark.nightly
def test_two_classes_are_the_difference_of_their_values():
    """A prior of covariance k for each is one of 2 k for the difference. Measured for the
    probabilities: 4e-5, of the nodes.
    """
    signs = np.where(LABELS > 0, 1, -1).astype(DTYPE)
    two = np.stack([signs < 0, signs > 0], 1).astype(DTYPE)
    of_two = kernax.laplace(kernax.GaussianProcess(KERNEL), X, two, Categorical()).value
    of_one = kernax.laplace(kernax.GaussianProcess(2 * KERNEL), X, signs, Bernoulli()).value
    rtol = TOLERANCE["solve"]
    np.testing.assert_allclose(of_two.log_evidence, of_one.log_evidence, rtol=rtol)
    expected = jax.vmap(of_one.probability)(Z)
    found = jax.vmap(of_two.probability)(Z)[:, 1]
    np.testing.assert_allclose(found, expected, atol=2e-4)
    finer = jax.vmap(lambda z: of_two.probability(z, n_nodes=2**14))(Z)[:, 1]
    np.testing.assert_allclose(finer, expected, atol=2e-5)


@needs_x64
def test_nodes_integrate_a_smooth_function_of_one_value_in_three():
    """Against the trapezoid rule for one value; measured 1e-5."""
    L = np.array([[1.0, 0, 0], [0.5, 2, 0], [-1, 0.3, 0.4]])
    of_second = lambda f: jax.nn.sigmoid(f[1])
    found = expectation_over_vectors(of_second, jnp.array([0.0, 0.7, 0]), jnp.asarray(L))
    expected = expectation(jax.nn.sigmoid, jnp.array(0.7), jnp.array(4.25))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.nightly
def test_a_label_that_all_points_share_is_likely_everywhere():
    """With a proper prior one class alone has an evidence."""
    Y_of_one = np.eye(CLASSES, dtype=DTYPE)[np.zeros(N, int)]
    posterior = kernax.laplace(PROCESS, X, Y_of_one, Categorical()).value
    probabilities = jax.vmap(posterior.probability)(Z)
    assert np.all(np.argmax(probabilities, 1) == 0)
    np.testing.assert_allclose(np.sum(probabilities, 1), 1, rtol=1e-5)


@pytest.mark.slow
def test_predictions_of_columns_and_densities_are_probabilities(posterior):
    probability = posterior.probability(Z[0])
    centre, variance = posterior.predict(Z[0])
    np.testing.assert_array_equal(centre, probability)
    np.testing.assert_allclose(variance, probability * (1 - probability))
    of_class = [posterior.log_density(Z[0], row) for row in np.eye(CLASSES, dtype=DTYPE)]
    np.testing.assert_allclose(np.exp(of_class), probability, rtol=1e-5)


@pytest.mark.slow
def test_a_point_without_uncertainty_has_the_softmax_of_the_means():
    """Zero prior variance at 0, where the factor of the covariance has no derivative."""
    prior = kernax.GaussianProcess(kernax.Linear(), mean)
    posterior = kernax.laplace(prior, X, Y, Categorical()).value
    nothing = jnp.zeros(2, DTYPE)
    np.testing.assert_allclose(posterior.probability(nothing), softmax(OFFSETS), rtol=1e-5)
    slope = jax.jacrev(posterior.probability)(nothing)
    assert np.all(np.isfinite(slope))


@pytest.mark.slow
def test_a_cap_on_the_steps_is_said():
    solution = kernax.laplace(PROCESS, X, Y, Categorical(), max_steps=1, throw=False)
    assert solution.result == kernax.RESULTS.max_steps_reached
    with pytest.raises(kernax.errors.MaxStepsError):
        kernax.laplace(PROCESS, X, Y, Categorical(), max_steps=1)


@pytest.mark.slow
@needs_x32
def test_evidence_whose_rounding_is_not_finite_is_no_success():
    """Of points that do not see each other, where the matrices of the evidence are diagonal."""
    scale = 1e20
    process = kernax.GaussianProcess(
        kernax.RBF(0.1) * kernax.Constant(scale), lambda _: jnp.zeros(3)
    )
    points = jnp.arange(3.0)[:, None]
    with pytest.warns(ConditionWarning, match="no digit of the evidence"):
        solution = kernax.laplace(process, points, jnp.eye(3), Categorical(), throw=False)
    assert solution.stats["residual"] < 1e-4  # the mode is found
    # The mode is f = scale (y - p): with p = q of both other classes, log((1 - 2q)/q) = 3 scale q.
    q = scipy.optimize.brentq(lambda q: np.log((1 - 2 * q) / q) - 3 * scale * q, 1e-22, 0.1)
    G = (1 - 2 * q) / (1 + (1 - 2 * q) * scale) + 2 * q / (1 + q * scale)
    assert np.finfo(np.float32).eps / G > 1e10  # what rounding moves the evidence by
    assert solution.stats["rounding"] == np.inf
    assert solution.result == kernax.RESULTS.nonfinite


def test_bad_input_is_named(posterior):
    for function in (kernax.expectation_propagation, kernax.variational):
        with pytest.raises(ValueError, match="only laplace accepts it"):
            untyped(function)(PROCESS, X, Y, Categorical())
    with pytest.raises(ValueError, match="Y must have shape"):
        kernax.laplace(PROCESS, X, LABELS, Categorical())
    with pytest.raises(ValueError, match="one 1 and zeros"):
        kernax.laplace(PROCESS, X, 2 * Y, Categorical())
    for row in (1, Y[:2], np.eye(CLASSES + 1)[0]):
        with pytest.raises(ValueError, match=r"y must be a row of Y, of shape \(3,\), .* shape"):
            posterior.log_density(Z[0], row)
    with pytest.raises(ValueError, match="power of two"):
        posterior.probability(Z[0], n_nodes=1000)
    with pytest.raises(ValueError, match="points \\(x, c\\)"):
        posterior.process.variance(Z[0])
    with pytest.raises(ValueError, match="shape"):
        posterior.probability(Z)
    assert np.isnan(posterior.process.mean((Z[0], 3)))
    assert np.isnan(posterior.process.variance((Z[0], -1)))
