"""How far to trust a process: leave-one-out predictions, coverage, conformal intervals and sets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, needs_x64, untyped
from scipy.stats import norm

import kernax
from kernax.conformal import conformal_radius, conformal_set, jackknife_plus
from kernax.errors import ConditionWarning
from kernax.likelihoods import Bernoulli, Gaussian, Poisson
from kernax.metrics import coverage_curve, standardised_residuals

RNG = np.random.default_rng(0)
N = 14
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Z = RNG.normal(size=(5, 2)).astype(DTYPE)
T = (np.sin(2 * X[:, 0]) + 0.3 * RNG.normal(size=N)).astype(DTYPE)
SIGNS = np.where(X[:, 0] + 0.5 * RNG.normal(size=N) > 0, 1, -1).astype(DTYPE)
KERNEL = 1.5 * kernax.RBF(0.9)
PROCESS = kernax.GaussianProcess(KERNEL, 0.2)
NOISES = np.linspace(0.05, 0.4, N).astype(DTYPE)
LINES = kernax.GaussianProcess(kernax.Linear(), 0.2)


def without(i, process=PROCESS, noise=NOISES, weights=None):
    """The process that has not seen point i."""
    keep = np.arange(N) != i
    weights = None if weights is None else weights[keep]
    return kernax.condition(process, X[keep], T[keep], noise[keep], weights=weights).value


@pytest.mark.parametrize("process", [PROCESS, LINES], ids=["kernel", "features"])
def test_left_out_predictions_are_those_of_refits(process):
    """Measured: 4e-15 in float64, 3e-6 in float32."""
    weights = RNG.uniform(0.3, 2, size=N).astype(DTYPE)
    weights[3] = 0
    found = kernax.leave_one_out_predictions(process, X, T, NOISES, weights=weights)
    for i in (0, 3, 7):
        others = without(i, process, weights=weights)
        mean = others.mean(X[i])
        variance = others.variance(X[i]) + NOISES[i]
        rtol = TOLERANCE["solve"]
        np.testing.assert_allclose(found.mean[i], mean, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(found.variance[i], variance, rtol=rtol)
        expected = norm.logpdf(T[i], mean, np.sqrt(variance))
        np.testing.assert_allclose(found.log_density[i], expected, rtol=rtol, atol=rtol)


def test_without_weights_the_variance_is_one_over_the_diagonal_of_the_inverse():
    C = np.asarray(kernax.gram(KERNEL, X), float) + np.diag(NOISES)
    found = kernax.leave_one_out_predictions(PROCESS, X, T, NOISES)
    expected = 1 / np.diag(np.linalg.inv(C))
    np.testing.assert_allclose(found.variance, expected, rtol=TOLERANCE["solve"])


@pytest.mark.nightly
@pytest.mark.parametrize(
    "function", [kernax.laplace, kernax.expectation_propagation, kernax.variational]
)
def test_of_normal_observations_every_approximation_leaves_out_exactly(function):
    weights = np.ones(N, DTYPE)
    weights[2] = 0
    posterior = function(PROCESS, X, T, Gaussian(NOISES), weights=weights).value
    found = posterior.leave_one_out(T)
    exact = kernax.leave_one_out_predictions(PROCESS, X, T, NOISES, weights=weights)
    rtol = 10 * TOLERANCE["solve"]
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(exact)):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@needs_x64
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("function", "most"), [(kernax.laplace, 0.004), (kernax.expectation_propagation, 0.006)]
)
def test_left_out_classes_are_close_to_refits(function, most):
    """Largest differences of log densities over 14 points, measured: 0.0018 and 0.0027; the log
    densities have a deviation of 0.24.
    """
    posterior = function(PROCESS, X, SIGNS, Bernoulli()).value
    found = posterior.leave_one_out(SIGNS).log_density
    refits = []
    for i in range(N):
        weights = np.ones(N)
        weights[i] = 0
        others = function(PROCESS, X, SIGNS, Bernoulli(), weights=weights).value
        refits.append(others.log_density(X[i], SIGNS[i]))
    np.testing.assert_allclose(found, refits, atol=most)


@pytest.mark.nightly
def test_a_count_that_was_removed_is_predicted_as_a_new_point():
    counts = RNG.poisson(np.exp(1 + X[:, 0])).astype(DTYPE)
    weights = np.ones(N, DTYPE)
    weights[5] = 0
    posterior = kernax.laplace(PROCESS, X, counts, Poisson(), weights=weights).value
    found = posterior.leave_one_out(counts)
    mean, variance = posterior.predict(X[5])
    rtol = TOLERANCE["solve"]
    np.testing.assert_allclose(found.mean[5], mean, rtol=rtol)
    np.testing.assert_allclose(found.variance[5], variance, rtol=rtol)
    np.testing.assert_allclose(
        found.log_density[5], posterior.log_density(X[5], counts[5]), rtol=rtol, atol=rtol
    )


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("folds", [None, np.arange(N) % 4], ids=["each", "folds"])
def test_jackknife_plus_is_made_of_refits(folds):
    low, high = jackknife_plus(PROCESS, X, T, NOISES, Z, coverage=0.8, folds=folds)
    numbers = np.arange(N) if folds is None else folds
    lows, highs = [], []
    for i in range(N):
        keep = numbers != numbers[i]
        others = kernax.condition(PROCESS, X[keep], T[keep], NOISES[keep]).value
        residual = abs(T[i] - others.mean(X[i]))
        at_new = np.asarray(jax.vmap(others.mean)(Z))
        lows.append(at_new - residual)
        highs.append(at_new + residual)
    # ceil(0.8 * 15) = 12: the 12th smallest of 14, and the third.
    np.testing.assert_allclose(low, np.sort(lows, 0)[2], atol=1e-10)
    np.testing.assert_allclose(high, np.sort(highs, 0)[11], atol=1e-10)


def test_too_few_points_have_infinite_intervals():
    """0.95 takes 19 points: ceil(0.95 * 20) = 19, and ceil(0.95 * 15) = 15 is beyond the 14th."""
    low, high = jackknife_plus(PROCESS, X, T, 0.1, Z, coverage=0.95)
    assert np.all(np.isneginf(low))
    assert np.all(np.isposinf(high))
    assert conformal_radius(np.arange(19, dtype=DTYPE), coverage=0.95) == 18
    assert conformal_radius(np.arange(18, dtype=DTYPE), coverage=0.95) == np.inf
    assert conformal_radius(np.arange(18, dtype=DTYPE), coverage=1e-12) == 0


def test_intervals_of_which_rounding_leaves_nothing_are_announced():
    """Of predictions without one point each, as leave_one_out_predictions does."""
    points = np.linspace(0, 1, 40)[:, None].astype(DTYPE)
    process = kernax.GaussianProcess(kernax.RBF(3.0))
    noise = 1e-13 if X64 else 1e-6
    with pytest.warns(ConditionWarning, match="of the intervals"):
        jackknife_plus(process, points, np.sin(points[:, 0]), noise, points[:2], coverage=0.8)


@needs_x64
@pytest.mark.nightly
def test_conformal_intervals_cover_what_they_promise():
    """1000 data sets of 40 points from a process with other hyperparameters, and heavy tails, in
    one vmap. Measured at 0.8: jackknife+ covers 0.813 with a mean width of 1.97, CV+ in 5 folds
    0.819 with 2.05, split conformal 0.823 with 2.20.
    """
    n, repeats, nominal = 40, 1000, 0.8
    process = kernax.GaussianProcess(kernax.RBF(0.7))

    def one(key):
        places, noise = jax.random.split(key)
        points = jax.random.uniform(places, (n + 1, 1), minval=-2, maxval=2)
        y = jnp.sin(3 * points[:, 0]) + 0.5 * jax.random.t(noise, 3.0, (n + 1,))
        new = points[n:]

        def inside(low, high):
            return (low[0] <= y[n]) & (y[n] <= high[0]), high[0] - low[0]

        half = n // 2
        f = kernax.condition(process, points[:half], y[:half], 0.3, throw=False).value.mean
        radius = conformal_radius(abs(y[half:n] - jax.vmap(f)(points[half:n])), coverage=nominal)
        centre = jax.vmap(f)(new)
        fit = process, points[:n], y[:n], 0.3, new
        return (
            inside(*jackknife_plus(*fit, coverage=nominal)),
            inside(*jackknife_plus(*fit, coverage=nominal, folds=np.arange(n) % 5)),
            inside(centre - radius, centre + radius),
        )

    results = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), repeats))
    shares = [np.mean(np.asarray(hit, float)) for hit, _ in results]
    widths = [np.mean(np.asarray(width, float)) for _, width in results]
    least = nominal - 3 * np.sqrt(nominal * (1 - nominal) / repeats)
    assert all(share >= least for share in shares)
    assert widths[0] <= 1.1 * widths[2]
    assert widths[1] <= 1.1 * widths[2]


def test_conformal_sets_hold_the_true_class_of_held_out_points():
    """Of a classifier that is too sure of itself: probabilities of the cube. Over 200 splits the
    mean coverage is at least 0.9 less three standard errors.
    """
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(4000, 3)) * 1.5
    true = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = (rng.uniform(size=(4000, 1)) > np.cumsum(true, 1)).sum(1)
    sure = true**3 / np.sum(true**3, 1, keepdims=True)
    Y = np.eye(3)[labels].astype(DTYPE)
    sure = sure.astype(DTYPE)
    sets = conformal_set(sure[:2000], Y[:2000], sure[2000:], coverage=0.9)
    covered = np.asarray(sets)[np.arange(2000), labels[2000:]]
    # Both halves are random: the variance of the threshold counts as well.
    assert abs(np.mean(covered) - 0.9) <= 3 * np.sqrt(2 * 0.09 / 2000)
    of_the_likeliest = np.mean(np.argmax(sure[2000:], 1) == labels[2000:])
    assert of_the_likeliest < 0.8  # which a set of one class would cover


def test_coverage_and_residuals_of_normal_predictions():
    y = RNG.normal(size=4000).astype(DTYPE)
    right = coverage_curve(y, 0.0, 1.0)
    assert right.error < 0.02
    np.testing.assert_allclose(right.level, np.arange(1, 20) / 20, rtol=1e-6)
    too_sure = coverage_curve(y, 0.0, 0.25)
    expected = 2 * norm.cdf(0.5 * norm.ppf((1 + np.asarray(right.level, float)) / 2)) - 1
    np.testing.assert_allclose(too_sure.coverage, expected, atol=0.025)
    weights = (np.arange(4000) < 10).astype(DTYPE)
    of_ten = coverage_curve(y, 0.0, 1.0, weights=weights).coverage
    np.testing.assert_allclose(of_ten, coverage_curve(y[:10], 0.0, 1.0).coverage, rtol=1e-6)
    residuals = standardised_residuals(y[:3], np.ones(3, DTYPE), 4.0)
    np.testing.assert_allclose(residuals, (y[:3] - 1) / 2, rtol=1e-6)


@needs_x64
def test_bad_input_is_named():
    with pytest.raises(ValueError, match="one process for each column"):
        kernax.leave_one_out_predictions(PROCESS, X, np.stack([T, T], 1), 0.1)
    with pytest.raises(ValueError, match="coverage must be a known number between 0 and 1"):
        jackknife_plus(PROCESS, X, T, 0.1, Z, coverage=90.0)
    for folds in (np.zeros(N, int), np.arange(N) * 2, np.arange(3)):
        with pytest.raises(ValueError, match="folds must be"):
            untyped(jackknife_plus)(PROCESS, X, T, 0.1, Z, folds=folds)
    with pytest.raises(ValueError, match=r"residuals\[1\] is -1"):
        conformal_radius(np.array([1.0, -1.0]))
    thirds = np.full((4, 3), 1 / 3)
    Y = np.eye(3)[[0, 1, 2, 0]]
    with pytest.raises(ValueError, match="new must have 3 columns"):
        conformal_set(thirds, Y, thirds[:, :2])
    with pytest.raises(ValueError, match="Y must have shape"):
        conformal_set(thirds, np.array([0.0, 1, 2, 0]), thirds)
    with pytest.raises(ValueError, match=r"but probabilities\[0, 0\] is 2"):
        conformal_set(thirds * 6, Y, thirds)
    with pytest.raises(ValueError, match="coverage must be a known number"):
        untyped(conformal_radius)(np.ones(3), coverage="0.9")


def test_a_residual_that_would_be_refused_makes_a_radius_nan_while_tracing():
    radius = jax.jit(lambda residuals: conformal_radius(residuals, coverage=0.5))
    assert np.isnan(radius(jnp.array([1.0, -1.0, 2.0])))
    assert radius(jnp.array([1.0, 3.0, 2.0])) == 2


def test_a_class_whose_probability_is_the_threshold_is_in_the_set():
    known = np.tile([[0.5, 0.5]], (9, 1))  # the ninth smallest of 1 - p is one half
    Y = np.tile([[1.0, 0.0]], (9, 1))
    inside = conformal_set(known, Y, np.array([[0.5, 0.5], [0.75, 0.25]]), coverage=0.9)
    np.testing.assert_array_equal(inside, [[True, True], [True, False]])
