"""The likelihood of ordered classes: its values in the tails, and the posteriors that it gives."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import DTYPE, X64, check_derivatives, needs_x64, untyped
from scipy.stats import norm

import kernax
from kernax.core.losses.ordinal_likelihood import _truncated_normal
from kernax.likelihoods import Ordinal, Probit

FUNCTIONS = (kernax.laplace, kernax.expectation_propagation, kernax.variational)
each = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
RNG = np.random.default_rng(0)
N = 14
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Y = np.digitize(X[:, 0] + 0.5 * RNG.normal(size=N), [-0.8, 0.1, 0.9]).astype(DTYPE)
Z = RNG.normal(size=(3, 2)).astype(DTYPE)
FOUR = Ordinal(-0.8, [0.9, 0.8])


@eqx.filter_jit
def values_slopes_and_curvatures(likelihood, y, f):
    return likelihood(y, f), likelihood.derivative(y, f), likelihood.curvature(y, f)


def distribution_inside(middle, width, is_end):
    """The logarithm of the probability, minus the mean, and one minus the variance, of the standard
    normal distribution inside an interval, in 300 digits.
    """
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(300):
        middle, half = mpmath.mpf(float(middle)), mpmath.mpf(float(width)) / 2
        a, b = (middle, -mpmath.inf) if is_end else (middle + half, middle - half)
        cdf = lambda z: mpmath.erfc(-z / mpmath.sqrt(2)) / 2
        density = lambda z: mpmath.exp(-(z**2) / 2) / mpmath.sqrt(2 * mpmath.pi)
        at_b = 0 if is_end else density(b)
        p = cdf(a) - (0 if is_end else cdf(b))
        pull = (density(a) - at_b) / p
        bend = pull**2 + (a * density(a) - (0 if is_end else b * at_b)) / p
        return float(mpmath.log(p)), float(pull), float(bend)


def test_probabilities_slopes_and_curvatures_keep_their_digits_in_both_tails():
    """Measured over 4000 intervals: 3e-13, and in float32 5e-5 of curvatures near -5."""
    middles = [-1e-6, -0.3, -4.9, -5.1, -30.0, -300.0]
    widths = [1e-6, 1e-3, 0.6, 2.0, 25.0]
    cases = [(m, w, False) for m in middles for w in widths] + [(m, 1.0, True) for m in middles]
    cases += [(2.5, 1.0, True), (7.8, 1.0, True)]
    middle, width, is_end = map(np.asarray, zip(*cases))
    middle, width = middle.astype(DTYPE), width.astype(DTYPE)
    found = jax.jit(_truncated_normal)(middle, width, is_end)
    expected = np.transpose([distribution_inside(*case) for case in zip(middle, width, is_end)])
    for ours, exact in zip(found, expected):
        np.testing.assert_allclose(ours, exact, rtol=1e-12 if X64 else 2e-4, atol=1e-30)


@pytest.mark.slow
@needs_x64
def test_derivatives_in_all_parameters_are_those_of_differences_to_second_order():
    y = jnp.repeat(jnp.arange(4.0), 4)
    f = jnp.tile(jnp.asarray([-6.0, -0.7, 0.4, 5.0]), 4)

    def loss(first, increments, scale, f):
        return Ordinal(first, increments, scale)(y, f)

    arguments = jnp.asarray(-0.8), jnp.asarray([0.05, 2.0]), jnp.asarray(0.7), f
    check_derivatives(loss, arguments, rtol=1e-7, atol=1e-8)
    slopes = jax.grad(lambda *arguments: jnp.sum(loss(*arguments)), (0, 1, 2, 3))
    check_derivatives(slopes, arguments, rtol=1e-6, atol=1e-7)


def test_slopes_of_an_infinitely_narrow_class_are_those_of_a_normal_density():
    narrow = Ordinal(0.3, [1e-7], 0.5)
    y, f = jnp.ones(3, DTYPE), jnp.asarray([-8.0, 0.2, 3.0], DTYPE)
    loss = -norm.logpdf(0.3, np.asarray(f, float), 0.5) - np.log(1e-7)
    rtol = 1e-6 if X64 else 1e-5
    values, slopes, curvatures = values_slopes_and_curvatures(narrow, y, f)
    np.testing.assert_allclose(values, loss, rtol=rtol)
    np.testing.assert_allclose(slopes, (f - 0.3) / 0.25, rtol=rtol)
    np.testing.assert_allclose(curvatures, 4.0, rtol=rtol)


def test_two_classes_are_those_of_a_probit():
    f = jnp.linspace(-40, 40, 9, dtype=DTYPE)
    two = Ordinal(0.0, jnp.zeros(0, DTYPE))
    for y in (0.0, 1.0):
        classes, signs = jnp.full_like(f, y), jnp.full_like(f, 2 * y - 1)
        found = values_slopes_and_curvatures(two, classes, f)
        values, slopes, curvatures = values_slopes_and_curvatures(Probit(), signs, f)
        np.testing.assert_allclose(found[0], values, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(found[1], slopes, rtol=1e-6)
        np.testing.assert_allclose(found[2], curvatures, rtol=1e-6)


@pytest.mark.slow
@needs_x64
def test_bad_parameters_and_bad_classes_are_refused_by_name():
    with pytest.raises(ValueError, match="increments must be in"):
        Ordinal(0.0, [1.0, -1.0])
    with pytest.raises(ValueError, match=r"increments must have shape \(classes - 2,\)"):
        untyped(Ordinal)(0.0, 1.0)
    with pytest.raises(ValueError, match="first must be one number"):
        untyped(Ordinal)([0.0, 1.0], [1.0])
    with pytest.raises(ValueError, match="scale must be one number"):
        untyped(Ordinal)(0.0, [1.0], [1.0, 2.0])
    process = kernax.GaussianProcess(kernax.RBF())
    for y in (Y + 1, Y + 0.5, -Y):
        with pytest.raises(ValueError, match=r"y must hold classes 0, \.\.\., 3, one more than"):
            kernax.laplace(process, X, y, FOUR)
    solve = eqx.filter_jit(lambda y: kernax.laplace(process, X, y, FOUR, throw=False))
    with pytest.raises(ValueError, match=r"y must hold classes 0, \.\.\., 3"):
        solve(Y).value.log_density(Z[0], 4)
    assert solve(Y + 1).result != kernax.RESULTS.successful


@pytest.mark.slow
@each
def test_probabilities_of_classes_sum_to_one_and_are_integrals_over_the_latent_value(function):
    process = kernax.GaussianProcess(1.5 * kernax.RBF(0.9), 0.1)
    posterior = function(process, X, Y, FOUR).value
    x = Z[0]
    mean, variance = posterior.process.mean(x), posterior.process.variance(x)
    f = float(mean) + float(variance) ** 0.5 * np.linspace(-9, 9, 20_001)
    density = norm.pdf(f, float(mean), float(variance) ** 0.5) * (f[1] - f[0])
    ends = np.concatenate([[-np.inf], np.asarray(FOUR.thresholds, float), [np.inf]])
    expected = [density @ (norm.cdf(b - f) - norm.cdf(a - f)) for a, b in pairwise(ends)]
    found = posterior.probability(x)
    rtol = 1e-9 if X64 else 1e-4
    np.testing.assert_allclose(found, expected, rtol=rtol)
    np.testing.assert_allclose(jnp.sum(found), 1, rtol=rtol)
    centre = expected @ np.arange(4)
    spread = expected @ (np.arange(4) - centre) ** 2
    np.testing.assert_allclose(posterior.predict(x), (centre, spread), rtol=rtol)
    np.testing.assert_allclose(posterior.log_density(x, 2), np.log(expected[2]), rtol=rtol)


@pytest.mark.slow
@needs_x64
def test_the_evidence_of_two_points_is_that_of_quadrature_up_to_the_approximation():
    """Measured: expectation propagation is off by 3e-9, the bound by 4e-8, Laplace by 2e-4."""
    points, y = X[:2], np.array([1.0, 2.0])
    lower = np.linalg.cholesky(np.asarray(kernax.gram(kernax.RBF(0.9), points)))
    grid = np.linspace(-9, 9, 601)
    masses = norm.pdf(grid) * (grid[1] - grid[0])
    f = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1) @ lower.T
    t = np.asarray(FOUR.thresholds)
    p = [norm.cdf(t[k] - f[..., i]) - norm.cdf(t[k - 1] - f[..., i]) for i, k in enumerate((1, 2))]
    true = np.log(masses @ (p[0] * p[1]) @ masses)
    process = kernax.GaussianProcess(kernax.RBF(0.9))
    laplace, propagation, bound = (
        float(function(process, points, y, FOUR).value.log_evidence) - true
        for function in FUNCTIONS
    )
    assert abs(propagation) < 1e-7
    assert -1e-6 < bound < 0
    assert abs(laplace) < 1e-3


@pytest.mark.nightly
@needs_x64
@each
def test_gradients_of_the_evidence_and_of_predictions_are_those_of_differences(function):
    """In the kernel, the thresholds, the scale and the weights, all at once."""

    def of(size, likelihood, weights):
        process = kernax.GaussianProcess(size * kernax.RBF(0.9))
        posterior = function(process, X, Y, likelihood, weights=weights, throw=False).value
        return posterior.log_evidence, posterior.probability(Z[0])

    likelihood = jax.tree.map(jnp.asarray, FOUR)
    arguments = jnp.asarray(1.5), likelihood, jnp.linspace(0.5, 2.0, N)
    check_derivatives(of, arguments, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@needs_x64
def test_with_a_vague_linear_kernel_coefficients_are_those_of_statsmodels():
    """Of the party identification of 944 Americans by five numbers; measured: 4e-6, which is the
    tolerance of its optimiser. Its maximum of the likelihood is that of these thresholds.
    """
    ordinal_model = pytest.importorskip("statsmodels.miscmodels.ordinal_model")
    points, y = american_voters(["logpopul", "selfLR", "age", "educ", "income"])
    peer = ordinal_model.OrderedModel(y.astype(int), points, distr="probit")
    fit = peer.fit(method="bfgs", disp=0)
    t = peer.transform_threshold_params(fit.params[5:])[1:-1]
    process = kernax.GaussianProcess(1e6 * kernax.Linear())
    found = kernax.laplace(process, points, y, Ordinal(t[0], np.diff(t)))
    coefficients = jax.vmap(found.value.process.mean)(jnp.eye(5))
    np.testing.assert_allclose(coefficients, fit.params[:5], atol=2e-5)
    np.testing.assert_allclose(found.stats["objective"], -fit.llf, rtol=1e-8)


def american_voters(columns):
    """Columns of a survey of 1996, standardised, and the party of each person in seven steps."""
    statsmodels = pytest.importorskip("statsmodels.api")
    table = statsmodels.datasets.anes96.load_pandas().data
    points = table[columns].to_numpy(float)
    return (points - points.mean(0)) / points.std(0), table["PID"].to_numpy(float)


class Voters(eqx.Module):
    """What is learned: a kernel and thresholds."""

    kernel: kernax.AbstractKernel
    likelihood: Ordinal


def minus_evidence(model, X, y):
    found = kernax.laplace(model.kernel, X, y, model.likelihood, throw=False)
    return -found.value.log_evidence / len(y)


@pytest.mark.nightly
@needs_x64
def test_learned_thresholds_predict_new_voters_better_than_the_shares_and_rounded_regression():
    """Measured with 300 voters: log densities -1.54, -1.86 (shares) and -1.66 (regression)."""
    points, y = american_voters(["selfLR", "ClinLR", "DoleLR", "age", "educ", "income"])
    order = np.random.default_rng(0).permutation(len(y))
    points, new, y, y_new = points[order[:150]], points[order[150:]], y[order[:150]], y[order[150:]]
    shares = np.bincount(y.astype(int), minlength=7) / len(y)
    t = norm.ppf(np.cumsum(shares)[:-1])
    start = Voters(1.0 * kernax.RBF(4 * jnp.ones(6)), Ordinal(t[0], np.diff(t)))
    learns = lambda path, leaf: path != "likelihood.scale"
    arguments = {"args": (points, y), "trainable": learns}
    learned = kernax.minimise(minus_evidence, start, optax.adam(0.1), 25, **arguments).value
    assert minus_evidence(learned, points, y) < minus_evidence(start, points, y) - 0.01
    posterior = kernax.laplace(learned.kernel, points, y, learned.likelihood).value
    of_new = jnp.mean(jax.vmap(posterior.log_density)(new, y_new))
    of_shares = np.mean(np.log(shares[y_new.astype(int)]))
    assert of_new > of_shares + 0.2
    # Regression with the same kind of kernel, with the normal density integrated between classes.
    regression = lambda parts: (
        -kernax.log_marginal_likelihood(parts.kernel, points, y - y.mean(), parts.ridge)
    )
    model = kernax.Model(2.0 * kernax.RBF(4 * jnp.ones(6)), ridge=2.0)
    model = kernax.minimise(regression, model, optax.adam(0.1), 25).value
    normal = kernax.condition(model.kernel, points, y - y.mean(), model.ridge).value
    mean = np.asarray(jax.vmap(normal.mean)(new)) + y.mean()
    deviation = np.sqrt(np.asarray(jax.vmap(normal.variance)(new) + model.ridge))
    upper = np.where(y_new == 6, np.inf, y_new + 0.5)
    lower = np.where(y_new == 0, -np.inf, y_new - 0.5)
    p = norm.cdf(upper, mean, deviation) - norm.cdf(lower, mean, deviation)
    assert of_new > np.mean(np.log(p)) + 0.05
