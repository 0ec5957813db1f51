"""Functions of a shape parameter (nu, alpha, degrees, dispersions) up to where it is so large that
its limit is all that is left, against mpmath in many digits.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import optax
import pytest
import scipy.special
from conftest import DTYPE, X64, needs_x64

import kernax
from kernax.core.kernel.gamma_quantiles import gamma_quantiles
from kernax.core.losses.loss_functions import Poisson
from kernax.core.losses.observation_likelihoods import NegativeBinomial, StudentT
from kernax.kernels.matern import matern_of_any_order

TOLERANCE = 1e-12 if X64 else 1e-5


def rounded(numbers):
    """The numbers as the tests pass them, in the precision of this process."""
    return [float(each) for each in np.asarray(numbers, DTYPE)]


def by_mixture(nu, s):
    """The Matern function as a mean of `exp(-nu s / (2 u))` over u ~ Gamma(nu, 1), by the trapezoid
    rule in steps of a quarter of the width of the peak, whose error is below 1e-60.
    """
    nu, s = mpmath.mpf(nu), mpmath.mpf(s)
    kappa = mpmath.sqrt(nu**2 + 2 * nu * s)
    step = 1 / mpmath.sqrt(kappa) / 4
    at_peak = nu * mpmath.log((nu + kappa) / 2) - kappa - mpmath.loggamma(nu)
    nodes = (step * i for i in range(-70, 71))
    falls = (-kappa * (mpmath.cosh(t) - 1) - nu * (mpmath.sinh(t) - t) for t in nodes)
    return mpmath.exp(at_peak) * step * mpmath.fsum(mpmath.exp(fall) for fall in falls)


SEAMS = (7.9, 8.1, 29.9, 30.1)
NUS = rounded([*SEAMS, 500.0, 3e4, 1e5, 1e6, 1e7, 1e10])
SQUARES = rounded([0.0, 1e-6, 0.1, 1.0, 4.0, 30.0])


def over_orders_and_squares(function, nus, squares):
    compute = jax.jit(jax.vmap(jax.vmap(function, (None, 0)), (0, None)))
    values = compute(jnp.asarray(nus, DTYPE), jnp.asarray(squares, DTYPE))
    return jax.tree.map(lambda each: np.asarray(each, np.float64), values)


def test_a_matern_of_large_order_is_that_of_mpmath_on_both_sides_of_the_seam():
    with mpmath.workdps(60):
        expected = [[float(by_mixture(nu, s)) for s in SQUARES] for nu in NUS]
    values = over_orders_and_squares(matern_of_any_order, NUS, SQUARES)
    # Measured 1e-14 and 2e-6.
    np.testing.assert_allclose(values, expected, rtol=TOLERANCE)


@pytest.mark.slow
def test_slopes_of_a_matern_are_right_however_small_the_distance():
    """Also where two points differ by the rounding of their coordinates: s = 1e-32 and 1e-14."""
    orders = (0.5, 0.9, 1.0, 1.4, 1.6, 2.6)
    squares = rounded([1e-100, 1e-32, 1e-21, 1e-8] if X64 else [1e-30, 1e-14, 1e-11, 1e-5])
    compute = jax.value_and_grad(matern_of_any_order, 1)
    values, slopes = over_orders_and_squares(compute, rounded(orders), squares)
    with mpmath.workdps(30):
        for i, nu in enumerate(rounded(orders)):
            for j, s in enumerate(squares):
                r = mpmath.sqrt(2 * mpmath.mpf(nu) * s)
                scale = mpmath.mpf(2) ** (1 - nu) / mpmath.gamma(nu)
                value = scale * r**nu * mpmath.besselk(nu, r)
                slope = -nu * scale * r ** (nu - 1) * mpmath.besselk(nu - 1, r)
                # Measured 2e-12 and 5e-7, 2e-11 and 7e-6.
                assert values[i, j] == pytest.approx(float(value), rel=1e-11 if X64 else 3e-6)
                assert slopes[i, j] == pytest.approx(float(slope), rel=1e-10 if X64 else 3e-5)


@pytest.mark.nightly
def test_derivatives_of_a_matern_of_large_order_keep_their_digits_to_second_order():
    """The ones in nu are of the size of `1 / nu^2`: their own digits, not those of the value."""
    nus = rounded([8.1, 30.1, 1e5, 1e10] if X64 else [8.1, 1e5, 1e10])
    squares = rounded([1.0, 20.0])
    both = (0, 1)
    first = over_orders_and_squares(jax.grad(matern_of_any_order, both), nus, squares)
    second = over_orders_and_squares(jax.hessian(matern_of_any_order, both), nus, squares)
    with mpmath.workdps(60):
        for i, nu in enumerate(nus):
            for j, s in enumerate(squares):
                by = mpmath.mpf(10) ** -8
                near = {
                    (a, b): by_mixture(nu * (1 + a * by), s * (1 + b * by))
                    for a in (-1, 0, 1)
                    for b in (-1, 0, 1)
                }
                in_nu = near[1, 0] - near[-1, 0]
                in_s = near[0, 1] - near[0, -1]
                crossed = near[1, 1] - near[1, -1] - near[-1, 1] + near[-1, -1]
                expected = [
                    in_nu / (2 * nu * by),
                    in_s / (2 * s * by),
                    (near[1, 0] - 2 * near[0, 0] + near[-1, 0]) / (nu * by) ** 2,
                    crossed / (4 * nu * s * by**2),
                    (near[0, 1] - 2 * near[0, 0] + near[0, -1]) / (s * by) ** 2,
                ]
                computed = [*first, *second[0], second[1][1]]
                np.testing.assert_allclose(
                    [each[i, j] for each in computed],
                    [float(each) for each in expected],
                    rtol=1e-8 if X64 else 1e-4,  # measured 3e-11 and 4e-6
                )


def test_a_gram_matrix_of_a_matern_of_any_large_order_has_no_negative_eigenvalues():
    X = np.linspace(0, 3, 40, dtype=DTYPE)[:, None]
    to_gram = jax.jit(lambda nu: kernax.gram(kernax.Matern(nu, 1.0), X))
    for nu in (30.1, 1e5, 1e6, 1e10):
        eigenvalues = np.linalg.eigvalsh(np.asarray(to_gram(nu), np.float64))
        assert eigenvalues[0] > -8 * 40 * jnp.finfo(DTYPE).eps, nu
        assert eigenvalues[-1] > 20, nu  # the matrix of an RBF, 24.6, and not the identity


@needs_x64
@pytest.mark.slow
def test_the_evidence_of_smooth_data_rises_with_nu_to_that_of_an_rbf_and_no_higher():
    X = np.linspace(0, 3, 40)[:, None]
    y = np.sin(2 * X[:, 0])
    evidence = jax.jit(lambda nu: kernax.log_marginal_likelihood(kernax.Matern(nu), X, y, 1e-4))
    values = [float(evidence(nu)) for nu in (5.0, 29.0, 31.0, 1e3, 1e5, 1e6, 1e10)]
    limit = float(kernax.log_marginal_likelihood(kernax.RBF(), X, y, 1e-4))
    assert np.all(np.diff(values) > 0)
    assert values[-1] == pytest.approx(limit, abs=1e-6)


ADAM = optax.adam(0.1)


def minus_evidence(kernel, X, y):
    return -kernax.log_marginal_likelihood(kernel, X, y, 1e-4)


@needs_x64
@pytest.mark.nightly
def test_shapes_that_are_learned_from_smooth_data_end_at_the_evidence_of_a_gaussian():
    """They run to infinity: nu ended at 1018 with an evidence of its own, and frequencies of alpha
    beyond 2000 were NaN.
    """
    X = np.linspace(0, 3, 40)[:, None]
    y = np.sin(2 * X[:, 0])
    lengthscales = np.linspace(0.8, 1.3, 51)
    of_gaussian = jax.vmap(lambda length: minus_evidence(kernax.RBF(length), X, y))
    least = float(jnp.min(of_gaussian(lengthscales)))
    matern = kernax.minimise(minus_evidence, kernax.Matern(5.0), ADAM, 120, args=(X, y))
    assert least - 1e-3 < float(matern.stats["loss"]) < least + 0.3
    start = kernax.RationalQuadratic(1.0, 1500.0)
    quadratic = kernax.minimise(minus_evidence, start, ADAM, 120, args=(X, y)).value
    assert quadratic.alpha > 2000
    frequencies, _ = quadratic.sample_frequencies(500, 1, key=jax.random.key(0))
    deviation = float(jnp.std(frequencies))
    assert deviation == pytest.approx(1 / (2 * np.pi * float(quadratic.lengthscale)), rel=0.1)
    process = kernax.condition(kernax.GaussianProcess(quadratic), X, y, 1e-4).value
    paths = kernax.pathwise_sample(process, key=jax.random.key(1), n_samples=3)
    np.testing.assert_allclose(jax.vmap(paths)(X), np.tile(y[:, None], 3), atol=0.1)


LARGE = rounded([20.0, 31.0, 99.0, 101.0, 1e3, 1e6, 1e13])


def test_spectral_densities_of_large_shapes_are_those_of_mpmath():
    w = rounded([0.2])[0]
    of_matern = jax.jit(lambda nu, at: kernax.Matern(nu).spectral_density(at))
    of_quadratic = jax.jit(lambda a, at: kernax.RationalQuadratic(1.0, a).spectral_density(at))
    for dim in (1, 3):
        frequency = jnp.zeros(dim, DTYPE).at[0].set(w)
        with mpmath.workdps(60):
            half = mpmath.mpf(dim) / 2
            q = 2 * mpmath.pi**2 * mpmath.mpf(w) ** 2
            for shape in LARGE:
                exact = mpmath.mpf(shape)
                rising = mpmath.loggamma(exact + half) - mpmath.loggamma(exact)
                falling = (exact + half) * mpmath.log1p(q / exact)
                student = (2 * mpmath.pi / exact) ** half * mpmath.exp(rising - falling)
                assert float(of_matern(shape, frequency)) == pytest.approx(
                    float(student), rel=TOLERANCE
                )
                # Gamma(p) alpha^half / Gamma(alpha) times the Matern function of order p
                p = exact - half
                rising = mpmath.loggamma(p) + half * mpmath.log(exact) - mpmath.loggamma(exact)
                mixture = mpmath.exp(rising) * by_mixture(p, 2 * q * exact / p)
                expected = float((2 * mpmath.pi) ** half * mixture)
                assert float(of_quadratic(shape, frequency)) == pytest.approx(
                    expected, rel=2 * TOLERANCE
                )


@needs_x64
@pytest.mark.slow
def test_spectral_densities_are_differentiable_in_large_shapes():
    """Of a Matern kernel to first order `(S of the RBF) (q^2 / 2 - q d / 2 + d (d - 2) / 8) / nu`,
    q = 2 pi^2 |w|^2, whose derivative is that over -nu^2.
    """
    w = jnp.array([0.2, 0.1])
    q = 2 * np.pi**2 * 0.05
    limit = 2 * np.pi * np.exp(-q)
    slope = jax.grad(lambda nu: kernax.Matern(nu).spectral_density(w))(1e9)
    assert float(slope) == pytest.approx(-limit * (q**2 / 2 - q) / 1e18, rel=1e-7)
    # Of a mixture over tau of mean 1 and variance 1 / alpha: half the second derivative in tau
    # of S = (2 pi / tau) exp(-q / tau), over alpha.
    of_tau = lambda tau: 2 * np.pi / tau * jnp.exp(-q / tau)
    curvature = jax.grad(jax.grad(of_tau))(1.0)
    slope = jax.grad(lambda a: kernax.RationalQuadratic(1.0, a).spectral_density(w))(1e9)
    assert float(slope) == pytest.approx(-float(curvature) / 2 / 1e18, rel=1e-7)


@pytest.mark.slow
def test_gamma_quantiles_of_large_shapes_are_those_of_scipy():
    normal = np.linspace(-5, 5, 11).astype(DTYPE)
    u = scipy.special.ndtr(normal.astype(float))
    draw = jax.jit(lambda alpha: gamma_quantiles(alpha, jnp.asarray(normal)))
    for alpha in rounded([101.0, 400.0, 2000.0, 1e5]):
        lower = scipy.special.gammaincinv(alpha, u)
        upper = scipy.special.gammainccinv(alpha, u[::-1])
        expected = np.where(normal < 0, lower, upper) / alpha
        np.testing.assert_allclose(draw(alpha), expected, rtol=1e-10 if X64 else 1e-6)
    # In the limit `1 + normal / sqrt(alpha)`, with a derivative.
    slope = jax.jit(jax.jacfwd(draw))(jnp.asarray(1e10, DTYPE))
    np.testing.assert_allclose(slope, -normal / 2 / 1e15, rtol=1e-3, atol=1e-19)


@pytest.mark.slow
def test_frequencies_of_large_shapes_are_those_of_an_rbf_in_the_limit():
    draw = lambda kernel: kernel.sample_frequencies(50, 2, key=jax.random.key(0))[0]
    of_matern = jax.jit(lambda nu: draw(kernax.Matern(nu, 0.7)))
    of_quadratic = jax.jit(lambda alpha: draw(kernax.RationalQuadratic(0.7, alpha)))
    # w = sqrt(tau) z / (2 pi lengthscale), the z first in the numbers that are drawn
    directions = of_matern(jnp.asarray(1e30, DTYPE))
    np.testing.assert_allclose(directions, of_quadratic(jnp.asarray(1e30, DTYPE)), rtol=1e-6)
    for draw_at in (of_matern, of_quadratic):
        for shape in (450.0, 3e3, 1e8):
            ratio = draw_at(jnp.asarray(shape, DTYPE)) / directions
            # sqrt(tau) is 1 with a standard deviation of 1 / (2 sqrt(shape)).
            assert np.all(np.abs(ratio - 1) < 5 / (2 * np.sqrt(shape)) + 1e-6)
            assert np.std(ratio[:, 0]) == pytest.approx(0.5 / np.sqrt(shape), rel=0.3, abs=1e-7)


def test_a_rational_quadratic_of_large_alpha_keeps_the_digits_of_its_derivatives():
    value = lambda alpha, s: kernax.RationalQuadratic(1.0, alpha).of_squared_distance(s)
    first = jax.jit(jax.grad(value))
    second = jax.jit(jax.grad(jax.grad(value)))
    s = 1.5
    for alpha in rounded([0.3, 20.0, 1e4, 1e9]):
        with mpmath.workdps(60):
            exact = lambda a: mpmath.exp(-a * mpmath.log1p(s / (2 * a)))
            by = mpmath.mpf(alpha) * mpmath.mpf(10) ** -15
            high, mid, low = (exact(mpmath.mpf(alpha) + each * by) for each in (1, 0, -1))
            slope, bend = (high - low) / (2 * by), (high - 2 * mid + low) / by**2
        alpha, squared = jnp.asarray(alpha, DTYPE), jnp.asarray(s, DTYPE)
        assert float(value(alpha, squared)) == pytest.approx(float(mid), rel=TOLERANCE)
        assert float(first(alpha, squared)) == pytest.approx(float(slope), rel=TOLERANCE)
        assert float(second(alpha, squared)) == pytest.approx(float(bend), rel=10 * TOLERANCE)


DISPERSIONS = rounded([20.0, 0.3, 0.06, 0.04, 1e-3, 1e-8, 1e-12, 1e-25])


def negative_binomial(dispersion, y, f):
    r = 1 / dispersion
    m = mpmath.exp(f)
    ways = mpmath.loggamma(y + r) - mpmath.loggamma(r) - mpmath.loggamma(y + 1)
    return (y + r) * mpmath.log1p(m / r) - y * mpmath.log(m / r) - ways


def test_a_negative_binomial_of_small_dispersion_keeps_the_digits_of_its_derivatives():
    loss = lambda a, y, f: NegativeBinomial(a)(y, f)
    in_dispersion = jax.jit(jax.grad(loss))
    twice = jax.jit(jax.grad(jax.grad(loss)))
    of_slope = jax.jit(jax.grad(lambda a, y, f: NegativeBinomial(a).derivative(y, f)))
    for y, f in ((0.0, 1.5), (7.0, 1.5), (40.0, 3.0)):
        exact_f = float(np.asarray(f, DTYPE))
        at = (jnp.asarray(y, DTYPE), jnp.asarray(f, DTYPE))
        for a in DISPERSIONS:
            with mpmath.workdps(120):
                by = mpmath.mpf(a) * mpmath.mpf(10) ** -12
                near = (mpmath.mpf(a) + k * by for k in (1, 0, -1))
                high, mid, low = (negative_binomial(each, y, exact_f) for each in near)
                slope = (high - low) / (2 * by)
                bend = (high - 2 * mid + low) / by**2
                m = mpmath.exp(exact_f)
                # d/da of (m - y) / (1 + a m)
                crossed = -(m - y) * m / (1 + a * m) ** 2
            close = lambda seen, true, scale: (
                float(seen) == pytest.approx(float(true), rel=20 * TOLERANCE, abs=TOLERANCE * scale)
            )
            assert close(loss(jnp.asarray(a, DTYPE), *at), mid, 1 + y), (y, a)
            # Terms of the size of m^2 / 2 and y^2 / 2 leave their difference, and of m^3 and y^3.
            assert close(in_dispersion(a, *at), slope, float(m) ** 2 + y**2), (y, a)
            assert close(twice(a, *at), bend, float(m) ** 3 + y**3), (y, a)
            assert close(of_slope(a, *at), crossed, 0), (y, a)
    at = (jnp.asarray(7.0, DTYPE), jnp.asarray(1.5, DTYPE))
    assert float(NegativeBinomial(1e-30)(*at)) == pytest.approx(float(Poisson()(*at)), rel=1e-6)


def test_a_student_t_of_many_degrees_keeps_the_digits_of_its_derivatives():
    loss = lambda nu: StudentT(nu, 1.3)(jnp.asarray(0.7, DTYPE), jnp.zeros((), DTYPE))
    slope = jax.jit(jax.grad(loss))
    scale, y = rounded([1.3, 0.7])
    for nu in rounded([0.5, 30.0, 60.0, 1e4, 1e9]):
        with mpmath.workdps(80):
            squares = (mpmath.mpf(y) / mpmath.mpf(scale)) ** 2

            def exact(nu, squares=squares):
                rising = mpmath.loggamma((nu + 1) / 2) - mpmath.loggamma(nu / 2)
                constant = mpmath.log(scale) + mpmath.log(mpmath.pi * nu) / 2 - rising
                return (nu + 1) / 2 * mpmath.log1p(squares / nu) + constant

            by = mpmath.mpf(nu) * mpmath.mpf(10) ** -15
            expected = (exact(nu + by) - exact(nu - by)) / (2 * by)
            value = exact(mpmath.mpf(nu))
        nu = jnp.asarray(nu, DTYPE)
        assert float(loss(nu)) == pytest.approx(float(value), rel=TOLERANCE)
        assert float(slope(nu)) == pytest.approx(float(expected), rel=10 * TOLERANCE)


@pytest.mark.parametrize("likelihood", [StudentT(), NegativeBinomial()])
def test_derivatives_in_constants_of_a_likelihood_are_not_computed(likelihood):
    f = jnp.linspace(-1.0, 1.0, 5, dtype=DTYPE)

    def of_values(f):
        return jnp.sum(likelihood(jnp.abs(f), f))

    def of_all(model, f):
        return jnp.sum(model(jnp.abs(f), f))

    program = str(jax.make_jaxpr(jax.grad(of_values))(f))
    whole = str(jax.make_jaxpr(jax.grad(of_all, (0, 1)))(likelihood, f))
    # The series of arctanh is that of derivatives in degrees and dispersions alone.
    coefficient = f"{1 / 37:.10f}"[:8]
    assert coefficient in whole
    assert coefficient not in program
