"""Draws of processes as functions: moments against the process itself, interpolation, derivatives,
weights, which kernels have them, what is refused.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, check_derivatives, marked, needs_x64, untyped

import kernax
from kernax.errors import NonFiniteError

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 2)).astype(DTYPE)
Z = rng.normal(size=(4, 2)).astype(DTYPE)
y = np.sin(2 * X[:, 0]).astype(DTYPE)
WEIGHTS = (np.arange(12) % 3).astype(DTYPE)
KERNEL = 1.5 * kernax.Matern52([0.8, 1.7]) + 0.3 * kernax.Linear()
PRIOR = kernax.GaussianProcess(KERNEL, 0.3)
KEY = jax.random.key(0)
COUNT = 4000


def paths_of(process, count=COUNT, features=20, **options):
    return kernax.pathwise_sample(process, key=KEY, n_samples=count, n_features=features, **options)


def assert_moments_of(process, paths):
    """Means and covariances within 5 standard errors: 3.0 is the largest measured."""
    values = np.asarray(jax.vmap(paths)(Z), float)
    mean = np.asarray(jax.vmap(process.mean)(Z), float)
    covariance = np.asarray(kernax.gram(process.covariance, Z), float)
    off = values - mean[:, None]
    size = np.sqrt(values.shape[1])
    deviations = np.sqrt(np.diag(covariance))
    assert np.all(abs(off.mean(1)) < 5 * deviations / size)
    products = off[:, None, :] * off[None, :, :]
    assert np.all(abs(products.mean(2) - covariance) < 5 * products.std(2) / size)


def bernoulli(function):
    solution = function(PRIOR, X, np.sign(y), kernax.likelihoods.Bernoulli(), weights=WEIGHTS)
    return solution.value.process


PROCESSES = {
    "posterior": lambda: kernax.condition(PRIOR, X, y, 0.05).value,
    "weighted": lambda: kernax.condition(PRIOR, X, y, 0.05, weights=WEIGHTS).value,
    "twice": lambda: (
        kernax.condition(
            kernax.condition(PRIOR, X[:6], y[:6], 0.1).value,
            X[6:],
            y[6:],
            np.linspace(0.01, 0.1, 6),
        ).value
    ),
    "inducing points": lambda: kernax.sgpr(PRIOR, X, y, 0.05, X[:4]).value,
    "laplace": lambda: bernoulli(kernax.laplace),
    "expectation propagation": lambda: bernoulli(kernax.expectation_propagation),
    "variational": lambda: bernoulli(kernax.variational),
    "in features": lambda: (
        kernax.condition(
            kernax.GaussianProcess(
                kernax.FeatureMap(kernax.bases.GaussianBasis(X[:5], 0.8)), kernax.ConstantMean(1.0)
            ),
            X,
            y,
            0.05,
        ).value
    ),
}
SLOW = ("expectation propagation", "variational", "twice")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    marked(
        pytest.mark.nightly,
        [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in PROCESSES],
        "twice",
        "weighted",
        "expectation propagation",
        "inducing points",
    ),
)
def test_paths_have_the_moments_of_their_process(name):
    """With 20 features only: the number of them changes how normal draws are, not these."""
    process = PROCESSES[name]()
    assert_moments_of(process, paths_of(process))


@pytest.mark.slow
@needs_x64
def test_paths_of_priors_have_the_moments_of_their_kernels():
    half = jnp.array([0.5, 2.0], DTYPE)
    kernels = [
        kernax.Warped(kernax.RBF(0.7), kernax.Custom(lambda s, x: jnp.sin(s * x), half))
        + kernax.On(kernax.Matern32(1.3), 0),
        kernax.kernels.Modulated(
            kernax.Constant(2.0), kernax.Custom(lambda s, x: jnp.sum(s * x), half)
        ),
    ]
    for kernel in kernels:
        process = kernax.GaussianProcess(kernel)
        assert_moments_of(process, paths_of(process, point=jnp.zeros(2)))


@pytest.mark.nightly
@needs_x64
def test_more_features_make_draws_normal():
    """The excess kurtosis of the difference of two values, which for few frequencies is that of a
    mixture, falls like 1 / features: 0.98 and 0.05 measured, standard error 0.035.
    """
    process = kernax.GaussianProcess(kernax.Matern12(1.0))
    kurtosis = []
    for features in (4, 200):
        values = jax.vmap(paths_of(process, 20000, features, point=jnp.zeros(1)))
        off = np.diff(values(jnp.array([[0.0], [0.7]])), axis=0)
        kurtosis.append(np.mean(off**4) / np.mean(off**2) ** 2 - 3)
    assert kurtosis[0] > 0.8
    assert abs(kurtosis[1]) < 0.15


@pytest.mark.slow
def test_without_noise_paths_go_through_the_data_and_weight_zero_removes_a_point():
    process = kernax.condition(
        kernax.GaussianProcess(kernax.Matern32(0.8)), X, y, 0.0, weights=WEIGHTS > 0
    ).value
    off = jax.vmap(paths_of(process, 8, 200))(X) - y[:, None]
    kept = WEIGHTS > 0
    assert np.max(abs(off[kept])) < (1e-12 if X64 else 1e-5)  # 2e-15, 1.3e-6 measured
    assert np.min(np.std(off[~kept], axis=1)) > 0.05


@pytest.mark.slow
@needs_x64
def test_each_path_is_a_function_that_can_be_chosen_also_by_a_traced_place():
    paths = paths_of(PROCESSES["posterior"](), 5)
    values = paths(Z[0])
    assert values.shape == (5,)
    assert len(paths) == 5
    np.testing.assert_allclose(paths[3](Z[0]), values[3], rtol=1e-12)
    np.testing.assert_allclose(paths[-2:](Z[0]), values[-2:], rtol=1e-12)
    np.testing.assert_allclose(jnp.stack([path(Z[0]) for path in paths]), values, rtol=1e-12)
    each = jax.vmap(lambda i: paths[i](Z[0]))(jnp.arange(5))
    np.testing.assert_allclose(each, values, rtol=1e-12)
    check_derivatives(lambda x: paths[2](x), (jnp.asarray(Z[1]),), rtol=1e-6, atol=1e-8)
    with pytest.raises(IndexError):
        paths[5]
    with pytest.raises(TypeError, match="no length"):
        len(paths[0])
    with pytest.raises(ValueError, match="single point"):
        paths(Z)


@pytest.mark.nightly
@needs_x64
def test_paths_are_differentiable_in_the_process_and_compile_once():
    traces = []

    @jax.jit
    def figure(scale, noise, X, weights):
        traces.append(1)
        prior = kernax.GaussianProcess(kernax.Matern52(scale), kernax.ConstantMean(noise))
        process = kernax.condition(prior, X, y, noise, weights=weights, throw=False).value
        paths = kernax.pathwise_sample(process, key=KEY, n_samples=3, n_features=10, throw=False)
        return paths(Z[0])

    arguments = (jnp.array(0.8), jnp.array(0.05), jnp.asarray(X), jnp.asarray(WEIGHTS) + 0.5)
    check_derivatives(figure, arguments, rtol=1e-6, atol=1e-7)
    before = len(traces)
    figure(arguments[0] + 1, *arguments[1:])
    assert len(traces) == before


@pytest.mark.slow
@needs_x64
def test_several_outputs_have_paths_of_their_own():
    Y = np.stack([y, y**2], 1)
    process = kernax.condition(kernax.GaussianProcess(kernax.Matern32(0.8)), X, Y, 0.0).value
    paths = paths_of(process, 3)
    assert paths[1](Z[0]).shape == (2,)
    np.testing.assert_allclose(jax.vmap(paths)(X) - Y[:, None, :], np.zeros((12, 3, 2)), atol=1e-12)
    assert len(np.unique(np.round(paths(Z[0]), 10))) == 6


@pytest.mark.slow
@needs_x64
def test_a_kernel_of_features_stands_for_a_prior_without_a_spectral_density():
    kernel = kernax.Periodic(1.0, 2.0) * kernax.RBF(2.0)
    process = kernax.condition(kernax.GaussianProcess(kernel), X, y, 0.05).value
    phi = kernax.bases.empirical_features(kernel, np.concatenate([X, Z]))
    assert_moments_of(process, paths_of(process, features=kernax.FeatureMap(phi)))


@pytest.mark.slow
@needs_x64
def test_paths_are_saved_and_refused(tmp_path):
    paths = paths_of(PROCESSES["posterior"](), 2)
    kernax.save(tmp_path / "paths.kernax", paths)
    np.testing.assert_array_equal(kernax.load(tmp_path / "paths.kernax")(Z[0]), paths(Z[0]))
    sample = untyped(kernax.pathwise_sample)
    refused = [
        ({"process": KERNEL}, "must be a GaussianProcess"),
        ({"key": 3}, "key must be"),
        ({"n_samples": 0}, "n_samples must be a positive integer"),
        ({"point": None}, "prior needs a point"),
        ({"n_features": 2.5}, "n_features must be a positive integer"),
        ({"n_features": kernax.RBF()}, "explicit features"),
        ({"point": jnp.zeros(3)}, "shape"),
        (
            {"process": kernax.GaussianProcess(KERNEL * KERNEL)},
            "Product has neither a known spectral density .* pass as n_features a kernel",
        ),
    ]
    sound = {"process": PRIOR, "key": KEY, "n_samples": 2, "point": jnp.zeros(2)}
    for bad, words in refused:
        with pytest.raises(ValueError, match=words):
            sample(**(sound | bad))
    failed = jax.tree.map(
        lambda leaf: jnp.nan * leaf if eqx.is_inexact_array(leaf) else leaf,
        PROCESSES["posterior"](),
    )
    with pytest.raises(NonFiniteError, match="pathwise_sample"):
        paths_of(failed, 2)
    assert np.all(np.isnan(paths_of(failed, 2, throw=False)(Z[0])))


def test_covariances_without_a_rule_are_refused_beside_any_features():
    """With the features of the prior alone, draws would not be those of the posterior."""
    process = kernax.component(kernax.condition(PRIOR, X, y, 0.05).value, 0)
    features = kernax.FeatureMap(kernax.bases.GaussianBasis(X[:5], 0.8))
    for options in ({}, {"n_features": features}):
        with pytest.raises(ValueError, match="no rule for the covariance ComponentKernel"):
            kernax.pathwise_sample(process, key=KEY, n_samples=2, point=X[0], **options)


def test_places_that_are_not_there_are_refused_in_arrays_as_well():
    paths = paths_of(PRIOR, count=3, point=X[0])
    for place in (3, jnp.array([0, 3]), jnp.array(7)):
        with pytest.raises(IndexError, match="there are 3 paths"):
            paths[place]


@pytest.mark.nightly
def test_paths_of_a_kernel_of_large_shape_have_the_moments_of_its_limit():
    """Of shape 3000, whose frequencies were NaN: the covariance of an RBF up to 1e-4."""
    process = kernax.GaussianProcess(kernax.RationalQuadratic(0.5, 3000.0), 0.1)
    X = np.linspace(0, 1, 5).astype(DTYPE)[:, None]
    paths = kernax.pathwise_sample(process, key=jax.random.key(0), n_samples=2000, point=X[0])
    values = np.asarray(jax.vmap(paths)(X))
    expected = np.exp(-((X - X.T) ** 2) / 2 / 0.5**2)
    # Four standard deviations of a mean of 2000 products: 4 sqrt(2 / 2000).
    np.testing.assert_allclose(values @ values.T / 2000, expected, rtol=0, atol=0.12)
