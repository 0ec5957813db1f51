"""Spectral densities against quadrature and mpmath, and the random Fourier features that are drawn
from them.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import optax
import pytest
import scipy.special
from conftest import DTYPE, X64, check_derivatives, marked, needs_x32, needs_x64, untyped
from scipy.integrate import quad

import kernax
from kernax.core.kernel.gamma_quantiles import gamma_quantiles
from kernax.core.kernel.standard_normals import NORMAL_DRAWS

ARD = np.array([0.5, 1.7])
MIXTURE = kernax.SpectralMixture(
    np.array([0.7, 0.4]), np.array([[0.3, 0.1], [-0.2, 0.5]]), np.array([[0.2, 0.3], [0.1, 0.25]])
)
ON_THE_LINE = kernax.SpectralMixture(
    np.array([0.7, 0.4]), np.array([[0.3], [-0.2]]), np.array([[0.2], [0.1]])
)
STATIONARY = {
    "RBF": kernax.RBF(0.7),
    "Matern12": kernax.Matern12(0.7),
    "Matern32": kernax.Matern32(0.7),
    "Matern52": kernax.Matern52(0.7),
    "Matern": kernax.Matern(0.8, 0.7),
    "RationalQuadratic": kernax.RationalQuadratic(
        0.7, 0.8
    ),  # an infinite density at 0 in the plane, a finite one on the line
    "RationalQuadratic-1": kernax.RationalQuadratic(0.7, 1.0),
}
COUNT = 20_000
QUADRATURE = 1e-8 if X64 else 3e-5
X = np.random.default_rng(0).normal(size=(6, 2)).astype(DTYPE)


def trapezoid_on_the_half_line(f, count=600):
    """`integral_0^inf f`, with r = exp(4 sinh u), which leaves nothing of heavy tails or of a pole
    at zero.
    """
    u = np.linspace(-2.6, 2.3, count)
    r = np.exp(4 * np.sinh(u)).astype(DTYPE)
    return np.sum(np.asarray(f(r), float) * r.astype(float) * 4 * np.cosh(u)) * (u[1] - u[0])


def density(kernel):
    return jax.jit(jax.vmap(kernel.spectral_density))


# densities


@pytest.mark.parametrize("name", STATIONARY)
def test_the_density_integrates_to_one_on_the_line_and_in_the_plane(name):
    """K16: the integral is k(0)."""
    S = density(STATIONARY[name])
    on_the_line = trapezoid_on_the_half_line(lambda r: 2 * S(r[:, None]))
    # r S r^2 dr / r: the measure 2 pi r dr keeps tails of order 1/r^2 and a pole of order less than
    # 2
    in_the_plane = trapezoid_on_the_half_line(
        lambda r: 2 * np.pi * r * S(np.stack([0.6 * r, 0.8 * r], 1))
    )
    np.testing.assert_allclose([on_the_line, in_the_plane], 1, rtol=QUADRATURE)


@needs_x64
@pytest.mark.parametrize("name", STATIONARY)
def test_the_kernel_is_the_transform_of_its_density_on_the_line(name):
    """K16."""
    kernel = STATIONARY[name]
    S = jax.jit(lambda w: kernel.spectral_density(w[None]))
    for t in (0.4, 1.3):
        value, _ = quad(
            lambda w: 2 * float(S(jnp.asarray(w, float))),
            0,
            np.inf,
            weight="cos",
            wvar=2 * np.pi * t,
            epsabs=1e-9,
        )
        # Quad is right to 1e-8 or so.
        assert value == pytest.approx(float(kernel(jnp.zeros(1), jnp.array([t]))), abs=1e-7)


@pytest.mark.parametrize("name", STATIONARY)
def test_integrated_over_one_dimension_the_density_is_that_of_fewer(name):
    """The transform along an axis of the plane is then the one on the line."""
    S = density(STATIONARY[name])
    across = trapezoid_on_the_half_line(lambda r: 2 * S(np.stack([np.full_like(r, 0.3), r], 1)))
    np.testing.assert_allclose(across, S(np.array([[0.3]], DTYPE))[0], rtol=QUADRATURE)


@pytest.mark.parametrize(
    "kernel", [kernax.RBF(ARD), kernax.Matern(9.5, ARD), MIXTURE], ids=lambda k: type(k).__name__
)
def test_in_the_plane_the_kernel_is_the_transform_of_its_density(kernel):
    """With a lengthscale per dimension."""
    w = np.linspace(-3.5, 3.5, 141)
    grid = np.stack(np.meshgrid(w, w), -1).reshape(-1, 2)
    S = np.asarray(density(kernel)(grid.astype(DTYPE)), float) * (w[1] - w[0]) ** 2
    t = np.array([[0.0, 0.0], [0.4, -0.3], [1.1, 0.6]])
    values = [kernel(jnp.zeros(2, DTYPE), jnp.asarray(each, DTYPE)) for each in t]
    # 4e-8: the tails cut off.
    np.testing.assert_allclose(
        np.cos(2 * np.pi * t @ grid.T) @ S, values, atol=1e-6 if X64 else 1e-5
    )


def test_the_density_of_a_rational_quadratic_is_its_bessel_function():
    """alpha - d / 2 negative, zero and positive."""
    worst = 0.0
    for alpha, dim in ((0.3, 1), (0.5, 1), (1.0, 2), (0.7, 3), (5.0, 2)):
        kernel = kernax.RationalQuadratic(1.0, jnp.asarray(alpha, DTYPE))
        for r in np.array([1e-6, 0.05, 0.7], DTYPE):
            w, exact = np.zeros(dim, DTYPE), mpmath.mpf(float(kernel.alpha))
            w[0] = r
            q, p = 8 * mpmath.pi**2 * exact * mpmath.mpf(float(r)) ** 2, exact - mpmath.mpf(dim) / 2
            bessel = (
                2 * (q / 4) ** (p / 2) * mpmath.besselk(p, mpmath.sqrt(q)) / mpmath.gamma(exact)
            )
            reference = float((2 * mpmath.pi * exact) ** (mpmath.mpf(dim) / 2) * bessel)
            worst = max(worst, abs(float(kernel.spectral_density(jnp.asarray(w))) / reference - 1))
    assert worst < (1e-11 if X64 else 2e-5)  # measured: 2e-13 and 2e-6


def test_at_frequency_zero_the_density_of_a_rational_quadratic_is_its_limit():
    at_zero = lambda alpha, dim: float(
        kernax.RationalQuadratic(1.0, alpha).spectral_density(jnp.zeros(dim, DTYPE))
    )
    # Gamma(1/2) / Gamma(1).
    assert at_zero(1.0, 1) == pytest.approx(np.sqrt(2 * np.pi) * np.sqrt(np.pi), rel=1e-5)
    assert at_zero(1.0, 2) == at_zero(0.7, 2) == np.inf


@needs_x64
@pytest.mark.parametrize(
    "kernel",
    [kernax.RBF(ARD), kernax.Matern(0.9, ARD), kernax.RationalQuadratic(ARD, 1.0), MIXTURE],
)
def test_densities_are_differentiable_in_every_parameter(kernel):
    """Also where the order of the Bessel function is exactly zero."""
    theta, rebuild = kernax.unconstrain(kernel)
    value = jax.jit(lambda theta, w: rebuild(theta).spectral_density(w))
    check_derivatives(value, (theta, jnp.array([0.3, -0.2])), atol=1e-6, rtol=1e-6)


@needs_x64
def test_a_point_or_a_frequency_of_another_dimension_is_refused():
    for kernel in (kernax.RBF(ARD), MIXTURE):
        with pytest.raises(ValueError, match=r"shape \(2,\), but points have shape \(3,\)"):
            kernel.spectral_density(jnp.zeros(3, DTYPE))
        with pytest.raises(
            ValueError,
            match=r"\(2,\), but points have shape \(3,\)|means of shape \(2, 2\) needs dim = 2",
        ):
            kernel.sample_frequencies(8, 3, key=jax.random.key(0))


# frequencies


SLOW = ("Matern", "RationalQuadratic")  # to draw from
DRAWN = [
    pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name
    for name in (*STATIONARY, "SpectralMixture")
]


@needs_x64
@pytest.mark.parametrize("name", marked(pytest.mark.nightly, DRAWN, "Matern", "RationalQuadratic"))
def test_frequencies_have_the_kernel_as_their_characteristic_function(name):
    kernel = STATIONARY.get(name, ON_THE_LINE)
    frequencies, weights = kernel.sample_frequencies(COUNT, 1, key=jax.random.key(3))
    assert frequencies.shape == (COUNT, 1)
    assert frequencies.dtype == DTYPE
    t = np.array([[0.2, 0.7, 1.9]])
    cosines = (
        np.cos(2 * np.pi * np.asarray(frequencies, float) @ t) * np.asarray(weights, float)[:, None]
    )
    values = [float(kernel(jnp.zeros(1, DTYPE), jnp.asarray([each], DTYPE))) for each in t[0]]
    error = np.abs(cosines.sum(0) - values) / (np.sqrt(COUNT) * cosines.std(0))
    assert np.max(error) < 3.5  # standard errors


@pytest.mark.parametrize(
    ("kernel", "variance"),
    [
        (kernax.RBF(ARD), 1),
        pytest.param(kernax.Matern(6.0, ARD), 12 / 10, marks=[pytest.mark.slow] * X64),
    ],
)
def test_frequencies_have_the_moments_of_a_student_t(kernel, variance):
    """2 nu degrees of freedom: variance 2 nu / (2 nu - 2) in units of 1 / (2 pi lengthscale)."""
    frequencies, weights = kernel.sample_frequencies(COUNT, 2, key=jax.random.key(1))
    units = np.asarray(frequencies, float) * 2 * np.pi * ARD
    np.testing.assert_allclose(units.mean(0), 0, atol=4 / np.sqrt(COUNT))
    np.testing.assert_allclose(
        np.cov(units.T), variance * np.eye(2), atol=6 * variance / np.sqrt(COUNT)
    )
    assert float(jnp.sum(weights)) == pytest.approx(1, rel=1e-5)


def test_gamma_quantiles_are_those_of_every_shape():
    # Above 4, float32 has few numbers for the probability.
    normal = np.linspace(-4, 4 if X64 else 2, 500).astype(DTYPE)
    u = scipy.special.ndtr(normal.astype(float))
    draw = jax.jit(lambda alpha: gamma_quantiles(alpha, jnp.asarray(normal)))
    for alpha in (0.1, 0.5, 1.5, 30.0, 99.0, 101.0, 200.0):
        alpha = jnp.asarray(alpha, DTYPE)
        expected = scipy.special.gammaincinv(float(alpha), u) / float(alpha)
        seen = expected > 1e-36  # smaller ones are cut off in float32
        np.testing.assert_allclose(
            np.asarray(draw(alpha), float)[seen], expected[seen], rtol=1e-11 if X64 else 1e-4
        )


def test_gamma_quantiles_are_finite_however_far_out_the_probability():
    far = np.array([-9.0, -6.0, 6.0, 9.0, 30.0], DTYPE)
    draws = jax.jit(jax.vmap(gamma_quantiles, (0, None)))(
        np.array([0.02, 1, 50, 1e3, 1e9], DTYPE), far
    )
    assert jnp.all((draws > 0) & (draws < 10_000))
    assert jnp.all(jnp.diff(draws, axis=1) >= 0)


@pytest.mark.slow
@needs_x32
def test_very_rough_kernels_still_have_finite_frequencies():
    frequencies, _ = kernax.Matern(0.02, 1.0).sample_frequencies(COUNT, 1, key=jax.random.key(0))
    assert jnp.all(jnp.isfinite(frequencies))


# random Fourier features

COMPOSITE = 2.0 * kernax.RBF(ARD) + 0.3 * MIXTURE


@needs_x64
@pytest.mark.parametrize(
    "kernel",
    [kernax.RBF(ARD), pytest.param(COMPOSITE, marks=pytest.mark.slow)],
    ids=["RBF", "composite"],
)
def test_features_converge_as_one_over_the_root_of_their_number(kernel):
    """K16."""
    K = np.asarray(kernax.gram(kernel, X))

    def errors(count, keys):
        approximate = lambda key: kernax.gram(
            kernax.random_fourier_features(kernel, count, 2, key=key), X
        )
        return np.asarray(jax.jit(jax.vmap(approximate))(keys)) - K

    keys = jax.random.split(jax.random.key(0), 40)
    few, many = errors(30, keys), errors(480, keys)
    assert np.max(np.abs(np.diagonal(many, axis1=1, axis2=2))) < 1e-5 * K[0, 0]  # exact
    assert np.std(few) / np.std(many) == pytest.approx(4, rel=0.15)  # the root of 16
    off = ~np.eye(6, dtype=bool)
    # No bias: 15 pairs, in standard errors.
    assert np.max(np.abs(many.mean(0)[off]) / (many.std(0)[off] / np.sqrt(40))) < 4


@pytest.mark.slow
@needs_x64
def test_features_are_a_map_of_points_that_holds_its_frequencies_as_data(tmp_path):
    features = kernax.random_fourier_features(COMPOSITE, 10, 2, key=jax.random.key(0))
    assert isinstance(features, kernax.FeatureMap)
    phi = jax.vmap(features.phi)(X)
    assert phi.shape == (6, 20)
    assert phi.dtype == X.dtype
    np.testing.assert_allclose(phi @ phi.T, kernax.gram(features, X), rtol=1e-5, atol=1e-5)
    assert kernax.unconstrain(features)[0] == {}
    kernax.save(tmp_path / "features", features)
    np.testing.assert_array_equal(
        kernax.gram(kernax.load(tmp_path / "features"), X), kernax.gram(features, X)
    )


@needs_x64
def test_terms_of_a_sum_share_the_frequencies_and_keep_their_own_weight():
    features = kernax.random_fourier_features(
        3.0 * kernax.RBF() + kernax.RBF(0.1), 5, 2, key=jax.random.key(0)
    )
    np.testing.assert_allclose(features.phi.weights, [1, 1, 1, 0.5, 0.5], rtol=1e-6)


@pytest.mark.nightly
@needs_x64
def test_features_are_smooth_in_every_parameter_for_a_fixed_key():
    """No bias and a derivative that is their own: their mean derivative is that of the kernel."""
    theta, rebuild = kernax.unconstrain(2.0 * MIXTURE + kernax.Matern(0.9, ARD))
    assert len(theta) == 6

    def value(theta):
        features = kernax.random_fourier_features(rebuild(theta), 12, 2, key=jax.random.key(2))
        return jnp.sum(jnp.sin(jax.vmap(lambda z: features(jnp.asarray(X[0]), z))(X[1:])))

    check_derivatives(value, (theta,), atol=1e-6, rtol=1e-6)


@needs_x64
def test_a_kernel_is_learned_through_features_built_inside_the_loss():
    target = kernax.gram(kernax.RBF(ARD), X)

    def loss(kernel):
        return jnp.mean(
            (
                kernax.gram(
                    kernax.random_fourier_features(kernel, 500, 2, key=jax.random.key(1)), X
                )
                - target
            )
            ** 2
        )

    learned = kernax.minimise(loss, kernax.RBF(np.ones(2)), optax.adam(0.1), 80).value
    # measured: within 5%, what 500 frequencies allow.
    np.testing.assert_allclose(learned.lengthscale, ARD, rtol=0.1)


@pytest.mark.slow
@needs_x64
def test_features_work_under_jit_and_in_a_batch_of_keys():
    build = lambda kernel, key: kernax.random_fourier_features(kernel, 8, 2, key=key)
    kernel, key = 2.0 * kernax.RBF(ARD), jax.random.key(5)
    eager = build(kernel, key)
    compiled = jax.jit(build)(kernel, key)
    np.testing.assert_allclose(compiled.phi.frequencies, eager.phi.frequencies, rtol=1e-5)
    batch = jax.vmap(lambda key: build(kernel, key)(X[0], X[1]))(
        jnp.stack([key, jax.random.key(6)])
    )
    np.testing.assert_allclose(batch[0], eager(X[0], X[1]), rtol=1e-4, atol=1e-5)
    assert abs(batch[1] - batch[0]) > 1e-6


@needs_x64
def test_parts_in_different_precisions_are_drawn_in_one():
    features = kernax.random_fourier_features(
        kernax.RBF(np.float32(1)) + kernax.RBF(), 4, 2, key=jax.random.key(0)
    )
    assert features.phi.frequencies.dtype == jnp.float64


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (kernax.kernels.GammaExponential(), 4, 2),
            "GammaExponential has no known spectral density: .* for Gaussian, Matern",
        ),
        ((kernax.RBF() + kernax.Linear(), 4, 2), "Linear has no known spectral density"),
        ((kernax.RBF() * kernax.Periodic(), 4, 2), "Periodic has a spectrum along one column"),
        ((kernax.On(kernax.Periodic(0.05), 0), 40, 2), "too short for its harmonics"),
        ((kernax.Periodic([1.0, 2.0]), 4, 1), r"shape \(2,\), but points have shape \(1,\)"),
        ((kernax.On(kernax.RBF(), (0, 0)), 4, 2), "selects a column twice"),
        ((kernax.kernels.Cosine(np.ones(3)), 4, 2), r"shape \(3,\), but points have shape \(2,\)"),
        ((kernax.RBF(), 0, 2), "n_frequencies must be a positive integer, but is 0"),
        ((kernax.RBF(), 4, 2.0), "dim must be a positive integer, but is 2.0"),
        ((kernax.RBF(np.ones(3)), 4, 2), r"shape \(3,\), but points have shape \(2,\)"),
        (
            (kernax.RBF() + kernax.Matern12(), 1, 2),
            "n_frequencies must be at least 2, one frequency for each term",
        ),
        ((MIXTURE, 1, 2), "n_frequencies must be at least 2, one frequency for each term"),
        ((MIXTURE**2, 3, 2), "n_frequencies must be at least 4, one frequency for each term"),
        ((MIXTURE, 4, 3), r"needs dim = 2, but got 3"),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        untyped(kernax.random_fourier_features)(*arguments, key=jax.random.key(0))


@needs_x64
def test_an_unknown_draw_is_refused_by_name():
    with pytest.raises(ValueError, match="draw must be one of 'independent', 'orthogonal', 'qua"):
        untyped(kernax.random_fourier_features)(
            kernax.RBF(), 4, 2, key=jax.random.key(0), draw="halton"
        )


@needs_x64
def test_features_refuse_a_bad_key_and_points_of_another_dimension():
    with pytest.raises(ValueError, match="key must be one random key"):
        untyped(kernax.random_fourier_features)(kernax.RBF(), 4, 2, key=0)
    features = kernax.random_fourier_features(kernax.RBF(), 4, 2, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"shape \(2,\), but points have shape \(3,\)"):
        features(jnp.zeros(3, DTYPE), jnp.zeros(3, DTYPE))


def test_features_of_points_far_from_zero_are_those_of_points_near_it_by_an_origin():
    """Catches angles of so many turns that float32 loses them: off by 0.05 at 10^6."""
    far = (X + 1e6).astype(DTYPE)  # whose own rounding is part of the points
    centre = far.mean(0)
    near = far - centre  # exact: of numbers within a factor of two
    key = jax.random.key(0)
    at_zero = kernax.random_fourier_features(kernax.RBF(ARD), 200, 2, key=key)
    at_points = kernax.random_fourier_features(kernax.RBF(ARD), 200, 2, key=key, origin=centre)
    expected = kernax.gram(at_zero, near)
    np.testing.assert_allclose(kernax.gram(at_points, far), expected, atol=2e-6)
    if not X64:
        assert np.max(np.abs(kernax.gram(at_zero, far) - expected)) > 1e-2


@needs_x64
def test_an_origin_of_another_shape_or_without_a_place_is_refused():
    for origin, words in (
        (np.zeros(3), r"origin must have shape \(2,\), but has shape \(3,\)"),
        (0.0, r"origin must have shape \(2,\), but has shape \(\)"),
        (np.array([0.0, np.nan]), "origin must be finite"),
    ):
        with pytest.raises(ValueError, match=words):
            untyped(kernax.random_fourier_features)(
                kernax.RBF(), 4, 2, key=jax.random.key(0), origin=origin
            )


# composed kernels, and how frequencies depend on each other

PRODUCT = kernax.RBF(ARD) * kernax.On(kernax.Matern32(2.0), 0)
COMPOSED = {
    "product": PRODUCT,
    "power": (kernax.RBF(ARD) + 0.5) ** 2,
    "mixture": MIXTURE * kernax.On(kernax.kernels.Cosine(0.9), 1),
    "quasi-periodic": kernax.On(kernax.Periodic(0.8, 1.5), 1) * kernax.RBF(2.0),
    "beats": kernax.On(kernax.kernels.Cosine(2.0) * kernax.kernels.Cosine(1.7), 0)
    * kernax.Matern12(3.0),
}


def errors_of_keys(kernel, count, draw):
    """Of the Gram matrix of the points, for 60 keys."""

    def approximate(key):
        features = kernax.random_fourier_features(kernel, count, 2, key=key, draw=draw)
        return kernax.gram(features, X)

    keys = jax.random.split(jax.random.key(7), 60)
    return np.asarray(jax.jit(jax.vmap(approximate))(keys)) - np.asarray(kernax.gram(kernel, X))


def assert_no_bias(errors):
    """Of any of the 15 pairs, by standard errors over the keys; and none at x = z."""
    assert np.max(np.abs(np.diagonal(errors, axis1=1, axis2=2))) < 1e-12
    off = ~np.eye(6, dtype=bool)
    assert np.max(np.abs(errors.mean(0)[off]) / (errors.std(0)[off] / np.sqrt(60))) < 4


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "name", marked(pytest.mark.nightly, COMPOSED, "product", "quasi-periodic", others=True)
)
def test_frequencies_of_products_have_the_product_as_their_mean(name):
    assert_no_bias(errors_of_keys(COMPOSED[name], 64, "independent"))


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "kernel",
    [kernax.RBF(ARD), PRODUCT],
    ids=["RBF", "product"],
)
def test_orthogonal_and_quasi_random_frequencies_have_no_bias_and_smaller_errors(kernel):
    """Measured: root mean squares of independent, orthogonal and quasi-random ones of 0.040, 0.031
    and 0.005 (RBF), 0.037, 0.032 and 0.014 (product).
    """
    errors = {draw: errors_of_keys(kernel, 256, draw) for draw in NORMAL_DRAWS}
    for each in errors.values():
        assert_no_bias(each)
        assert np.max(each.std(0)) < 1 / np.sqrt(256)  # the bound, of independent ones
    sizes = {draw: np.sqrt(np.mean(each**2)) for draw, each in errors.items()}
    assert sizes["orthogonal"] < 0.95 * sizes["independent"]
    assert sizes["quasi_random"] < 0.6 * sizes["independent"]


@pytest.mark.slow
@needs_x64
def test_a_discrete_spectrum_is_exact():
    kernel = kernax.On(kernax.Periodic(0.8, 1.5), 0) + 0.7 * kernax.kernels.Cosine(2.0) + 0.3
    kernel = kernel + kernax.On(kernax.kernels.ZeroMeanPeriodic(1.8, 0.5), 1)
    features = kernax.random_fourier_features(kernel, 100, 2, key=jax.random.key(0))
    assert len(features.phi.weights) == 24 + 1 + 1 + 1 + 24
    np.testing.assert_allclose(kernax.gram(features, X), kernax.gram(kernel, X), atol=1e-12)


@needs_x64
def test_terms_without_chance_take_one_frequency_each():
    kernel = (
        kernax.RBF() + 0.3 + kernax.On(kernax.kernels.Cosine(), 1) + kernax.On(kernax.RBF(2.0), [1])
    )
    features = kernax.random_fourier_features(kernel, 8, 2, key=jax.random.key(0))
    frequencies, weights = features.phi.frequencies, features.phi.weights
    np.testing.assert_allclose(weights, [1 / 3] * 3 + [0.3, 1] + [1 / 3] * 3)
    np.testing.assert_array_equal(frequencies[3:5], [[0, 0], [0, 1]])
    np.testing.assert_array_equal(frequencies[5:, 0], 0)  # On the other column alone


@needs_x64
@pytest.mark.parametrize(
    "draw", marked(pytest.mark.slow, NORMAL_DRAWS, "orthogonal", "independent")
)
def test_features_of_every_draw_are_smooth_in_the_parameters_of_a_product(draw):
    theta, rebuild = kernax.unconstrain(PRODUCT * kernax.On(kernax.kernels.Cosine(1.5), 1))

    def value(theta):
        features = kernax.random_fourier_features(
            rebuild(theta), 40, 2, key=jax.random.key(2), draw=draw
        )
        return jnp.sum(jnp.sin(jax.vmap(lambda z: features(jnp.asarray(X[0]), z))(X[1:])))

    check_derivatives(value, (theta,), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("draw", NORMAL_DRAWS)
def test_normal_vectors_are_finite_and_standard(draw):
    normal = np.asarray(NORMAL_DRAWS[draw](jax.random.key(0), 8192, 5, 2, DTYPE), float)
    assert normal.shape == (8192, 7)
    assert np.max(np.abs(normal)) < 7
    np.testing.assert_allclose(normal.mean(0), 0, atol=4 / np.sqrt(8192))
    np.testing.assert_allclose(np.cov(normal.T), np.eye(7), atol=6 / np.sqrt(8192))
    assert not np.allclose(normal, NORMAL_DRAWS[draw](jax.random.key(1), 8192, 5, 2, DTYPE))


def test_orthogonal_vectors_are_orthogonal_and_of_independent_lengths():
    normal = np.asarray(NORMAL_DRAWS["orthogonal"](jax.random.key(0), 8, 5, 0, DTYPE), float)
    for block in (normal[:5], normal[5:]):
        products = block @ block.T
        np.testing.assert_allclose(products, np.diag(np.diagonal(products)), atol=1e-5)
    assert np.std(np.sum(normal**2, 1)) > 0.5


def test_quasi_random_vectors_are_one_in_every_cell_of_equal_probability():
    """In one dimension and in two; another key gives another scrambling."""
    normal = NORMAL_DRAWS["quasi_random"](jax.random.key(0), 256, 2, 1, DTYPE)
    uniform = scipy.special.ndtr(np.asarray(normal, float))
    for column in uniform.T:
        np.testing.assert_array_equal(np.sort((256 * column).astype(int)), np.arange(256))
    cells = (16 * uniform[:, :2]).astype(int) @ [16, 1]
    np.testing.assert_array_equal(np.sort(cells), np.arange(256))
