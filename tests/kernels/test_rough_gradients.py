"""Gradients of kernels that are not smooth at zero, where rows differ by rounding alone."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import optax
import pytest
from conftest import DTYPE, X64, assert_close, marked, needs_x64, temporary_bytes

import kernax
from kernax.core.base.numerics import stretched_exponential

EPS = float(np.finfo(np.float64 if X64 else np.float32).eps)

# The same thirty times, made in two ways: they differ by at most an ulp.
TIMES = np.concatenate([np.arange(0, 3, 0.1), np.linspace(0, 2.9, 30)])[:, None]
VALUES = np.sin(3 * TIMES[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=60)


def evidence(lengthscale):
    return kernax.log_marginal_likelihood(kernax.Matern12(lengthscale), TIMES, VALUES, 0.01)


def slope_of_evidence(lengthscale):
    """`a^T K' a / 2 - tr((K + noise)^-1 K') / 2` with `K' = K r / lengthscale`, in NumPy."""
    r = np.abs(TIMES - TIMES.T) / lengthscale
    K = np.exp(-r)
    inverse = np.linalg.inv(K + 0.01 * np.eye(60))
    a = inverse @ VALUES
    slope = K * r / lengthscale
    return (a @ slope @ a - np.sum(inverse * slope)) / 2


@needs_x64
def test_the_slope_of_the_evidence_is_right_where_times_differ_by_rounding():
    np.testing.assert_allclose(slope_of_evidence(1.0), 9.478561234547, rtol=1e-9)
    np.testing.assert_allclose(jax.grad(evidence)(1.0), 9.478561234547, rtol=1e-9)
    np.testing.assert_allclose(jax.jvp(evidence, (1.0,), (1.0,))[1], 9.478561234547, rtol=1e-9)


@needs_x64
@pytest.mark.nightly
def test_the_curvature_of_the_evidence_is_right_where_times_differ_by_rounding():
    step = 1e-4
    curvature = (slope_of_evidence(1 + step) - slope_of_evidence(1 - step)) / (2 * step)
    np.testing.assert_allclose(jax.hessian(evidence)(1.0), curvature, rtol=1e-6)


@needs_x64
@pytest.mark.nightly
def test_slopes_of_learners_are_right_where_times_differ_by_rounding():
    """Of a value of a support vector machine, against differences of exact solutions, and of the
    leave-one-out error, against NumPy.
    """
    solver = kernax.solvers.SMO(rtol=1e-10)
    signs = np.where(VALUES > 0, 1.0, -1.0)

    def value(lengthscale):
        solution = kernax.svm(kernax.Matern12(lengthscale), TIMES, signs, 1.0, solver=solver)
        return solution.value(jnp.asarray([1.234]))

    difference = (value(1 + 1e-4) - value(1 - 1e-4)) / 2e-4
    # The second order of the difference leaves 8e-8.
    np.testing.assert_allclose(jax.grad(value)(1.0), difference, rtol=1e-6)

    def error(lengthscale):
        kernel = kernax.Matern12(lengthscale)
        return jnp.mean(kernax.leave_one_out(kernel, TIMES, VALUES, 0.01) ** 2)

    def error_by_numpy(lengthscale):
        K = np.exp(-np.abs(TIMES - TIMES.T) / lengthscale)
        inverse = np.linalg.inv(K + 0.01 * np.eye(60))
        return np.mean((inverse @ VALUES / np.diagonal(inverse)) ** 2)

    difference = (error_by_numpy(1 + 1e-4) - error_by_numpy(1 - 1e-4)) / 2e-4
    np.testing.assert_allclose(jax.grad(error)(1.0), difference, rtol=1e-5)


@needs_x64
@pytest.mark.nightly
def test_learning_reaches_the_optimum_where_times_differ_by_rounding():
    """By the evidence in NumPy, which is within rounding of its largest value."""

    def evidence_by_numpy(lengthscale):
        C = np.exp(-np.abs(TIMES - TIMES.T) / lengthscale) + 0.01 * np.eye(60)
        _, log_determinant = np.linalg.slogdet(C)
        fit = VALUES @ np.linalg.solve(C, VALUES)
        return -(fit + log_determinant + 60 * np.log(2 * np.pi)) / 2

    largest = max(evidence_by_numpy(lengthscale) for lengthscale in np.geomspace(0.3, 30, 400))
    loss = lambda kernel: -kernax.log_marginal_likelihood(kernel, TIMES, VALUES, 0.01)
    solution = kernax.minimise(loss, kernax.Matern12(1.0), optax.lbfgs(), 30)
    assert evidence_by_numpy(float(solution.value.lengthscale)) > largest - 1e-3


@needs_x64
@pytest.mark.nightly
def test_learning_by_residuals_left_out_reaches_the_optimum_where_times_differ_by_rounding():
    """It did not move. By the error in NumPy, which is within rounding of its smallest value."""

    def error_by_numpy(lengthscale):
        K = np.exp(-np.abs(TIMES - TIMES.T) / lengthscale)
        inverse = np.linalg.inv(K + 0.01 * np.eye(60))
        return np.mean((inverse @ VALUES / np.diagonal(inverse)) ** 2)

    def error(kernel):
        return jnp.mean(kernax.leave_one_out(kernel, TIMES, VALUES, 0.01) ** 2)

    solution = kernax.minimise(error, kernax.Matern12(1.0), optax.lbfgs(), 30)
    least = min(error_by_numpy(lengthscale) for lengthscale in np.geomspace(0.3, 300, 400))
    assert error_by_numpy(float(solution.value.lengthscale)) < 1.001 * least
    assert error_by_numpy(1.0) > 1.01 * least


def nearly_coincident(d, relative):
    """Ten points in d dimensions, each twice up to a relative distance, of reach about 5."""
    random = np.random.default_rng(d)
    X = 2 * random.normal(size=(10, d))
    X = np.concatenate([X, X * (1 + relative * random.uniform(1, 2, size=X.shape))])
    return X.astype(np.float64 if X64 else np.float32)


def derivatives(X, lengthscale, power):
    """Those of `sum(k)`, `k = exp(-s^power)`, in the lengthscales and in X, in long double."""
    X = X.astype(np.longdouble)
    lengthscale = np.broadcast_to(lengthscale, X.shape[1:]).astype(np.longdouble)
    differences = X[:, None] - X[None]
    s = np.sum((differences / lengthscale) ** 2, -1)
    positive = np.where(s > 0, s, 1)
    by_s = np.where(s > 0, -power * np.exp(-(positive**power)) * positive ** (power - 1), 0)
    by_x = 2 * np.sum(by_s[:, :, None] * 2 * differences / lengthscale**2, 1)
    by_lengthscale = -2 * np.sum(by_s[:, :, None] * differences**2, (0, 1)) / lengthscale**3
    return by_lengthscale, by_x


ROUGH = {  # exp(-s^power)
    "Matern12": (kernax.Matern12, 0.5),
    "Matern": (lambda lengthscale: kernax.Matern(0.5, lengthscale), 0.5),
    "GammaExponential": (
        lambda lengthscale: kernax.kernels.GammaExponential(lengthscale, 1.2),
        0.6,
    ),
    "a sum": (
        lambda lengthscale: 0.5 * kernax.Matern12(lengthscale) + 0.5 * kernax.Matern12(lengthscale),
        0.5,
    ),
    "a product": (
        lambda lengthscale: kernax.Matern12(2 * lengthscale) * kernax.Matern12(2 * lengthscale),
        0.5,
    ),
}


CASES = [
    ("Matern12", 1, "one"),
    ("Matern12", 3, "one"),
    ("Matern12", 3, "many"),
    ("Matern12", 12, "many"),
    ("GammaExponential", 1, "one"),
    ("GammaExponential", 3, "many"),
    ("a sum", 3, "many"),
    ("a product", 3, "one"),
]


@pytest.mark.parametrize(("name", "d", "lengthscales"), CASES)
def test_gradients_of_rough_kernels_are_exact_where_rows_differ_by_rounding(name, d, lengthscales):
    """In one lengthscale or one for each dimension, and in the points."""
    check_gradients(name, d, 1.5 if lengthscales == "one" else np.linspace(1, 2, d))


@needs_x64
@pytest.mark.nightly
def test_gradients_of_the_matern_kernel_of_order_one_half_are_exact_there_too():
    check_gradients("Matern", 1, 1.5)


def check_gradients(name, d, lengthscale):
    make, power = ROUGH[name]
    X = nearly_coincident(d, 3 * EPS)
    total = lambda lengthscale, X: jnp.sum(kernax.gram(make(lengthscale), X))
    gradient = jax.jit(jax.grad(total, (0, 1)))
    found, in_points = gradient(jnp.asarray(lengthscale, X.dtype), X)
    by_lengthscale, by_x = derivatives(X, lengthscale, power)
    expected = by_lengthscale if np.ndim(lengthscale) else np.sum(by_lengthscale)
    accuracy = 1e-9 if X64 else 1e-4
    np.testing.assert_allclose(found, expected.astype(float), rtol=accuracy, atol=accuracy)
    np.testing.assert_allclose(
        in_points, by_x.astype(float), rtol=accuracy, atol=accuracy * np.max(np.abs(by_x))
    )


@pytest.mark.slow
@pytest.mark.parametrize("d", marked(pytest.mark.nightly, [1, 3], "3"))
def test_forward_mode_and_hessians_of_rough_kernels_agree_with_reverse_mode_and_differences(d):
    X = nearly_coincident(d, 1e-5)
    lengthscale = jnp.linspace(1, 2, d, dtype=X.dtype)

    def total(lengthscale):
        return jnp.sum(kernax.gram(kernax.Matern12(lengthscale), X))

    accuracy = 1e-10 if X64 else 1e-5
    reverse = jax.jit(jax.grad(total))(lengthscale)
    np.testing.assert_allclose(jax.jacfwd(total)(lengthscale), reverse, rtol=accuracy)
    slopes = lambda lengthscale: derivatives(X, lengthscale, 0.5)[0]
    step = 1e-6 * np.eye(d)
    at = np.asarray(lengthscale, np.longdouble)
    curvature = np.stack([(slopes(at + e) - slopes(at - e)) / 2e-6 for e in step])
    hessian = jax.hessian(total)(lengthscale)
    scale = float(np.max(np.abs(curvature)))
    accuracy = 1e-8 if X64 else 1e-4
    np.testing.assert_allclose(hessian, curvature.astype(float), rtol=0, atol=accuracy * scale)


def test_float32_gradients_of_smooth_kernels_are_exact_along_a_long_line():
    """At a reach of 500 lengthscales the derivative that is multiplied out about the mean of the
    points has an error of a percent between neighbours.
    """
    X = np.arange(1000, dtype=np.float32)[:, None]
    s = (X - X.T).astype(np.float64) ** 2
    expected = np.sum(np.exp(-s / 2) * s)
    total = lambda lengthscale: jnp.sum(kernax.gram(kernax.RBF(lengthscale), X))
    found = jax.grad(total)(jnp.asarray(1, np.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.nightly
def test_a_stretched_exponential_and_its_derivatives_are_those_of_long_double_near_zero():
    """`exp(-s^p)`, for p = 1 at s = 0 as well, where it is smooth."""
    functions = [stretched_exponential, *(jax.grad(stretched_exponential, i) for i in (0, 1))]
    functions.append(jax.grad(functions[1]))
    squares = np.asarray([1e-14, 1e-8, 0.3, 5.0], np.float64 if X64 else np.float32)
    for power in np.asarray([0.3, 0.6, 1], squares.dtype):
        s = squares.astype(np.longdouble)
        p = np.longdouble(power)
        k = np.exp(-(s**p))
        first = -p * s ** (p - 1) * k
        second = first * ((p - 1) / s - p * s ** (p - 1))
        expected = (k, first, -np.log(s) * s**p * k, second)
        for function, right in zip(functions, expected):
            found = jax.vmap(function, (0, None))(squares, jnp.asarray(power))
            np.testing.assert_allclose(found, right.astype(float), rtol=300 * EPS)
    zero, one = jnp.zeros((), squares.dtype), jnp.ones((), squares.dtype)
    assert [float(each(zero, one)) for each in functions] == [1, -1, 0, 1]


STEP = kernax.kernels.ArcCosine(0)


def gradient_of_step(x, z):
    """That of `1 - theta / pi` in x, in many digits."""
    (x, z) = ([mpmath.mpf(float(each)) for each in point] for point in (x, z))
    dot = lambda a, b: mpmath.fsum(s * t for s, t in zip(a, b))
    (x_size, z_size) = (mpmath.sqrt(dot(each, each)) for each in (x, z))
    cosine = dot(x, z) / x_size / z_size
    scale = mpmath.pi * mpmath.sqrt(1 - cosine**2) * x_size
    return np.array([float((b / z_size - cosine * a / x_size) / scale) for a, b in zip(x, z)])


def test_gradients_of_steps_of_angles_are_right_for_points_that_differ_by_rounding():
    """And for their opposites, in every relative distance; zero for parallel points."""
    random = np.random.default_rng(0)
    gradient = jax.jit(jax.grad(STEP, (0, 1)))
    accuracy = 1e-12 if X64 else 1e-4
    for relative in (3 * EPS, 1e-12, 1e-7, 1e-3, 0.5):
        for sign in (1, -1):
            x = random.normal(size=3).astype(np.float64 if X64 else np.float32)
            z = x * (1 + relative * random.uniform(1, 2, size=3)).astype(x.dtype)
            if np.array_equal(x, z):
                continue
            with mpmath.workdps(60):
                expected = (gradient_of_step(x, sign * z), gradient_of_step(sign * z, x))
            for found, right in zip(gradient(x, sign * z), expected):
                bound = accuracy * np.max(np.abs(right))
                np.testing.assert_allclose(found, right, rtol=0, atol=bound)
    for scale in (1.0, 1.01, -3.0):  # along one line
        x = np.ones(1, x.dtype)
        assert np.all(np.asarray(gradient(x, scale * x)) == 0)


@pytest.mark.parametrize("scale", [1e-12, 1e30])
@pytest.mark.parametrize("kernel", [kernax.Matern12, kernax.RBF])
def test_gradients_in_points_do_not_depend_on_the_unit_of_length(kernel, scale):
    """From the smallest lengthscale of single precision, 2e-13, to where the square of its
    reciprocal leaves the range.
    """
    x, z = jnp.asarray([1.0], DTYPE), jnp.asarray([0.0], DTYPE)
    slope = jax.grad(kernel(scale))(x * scale, z) * scale
    assert_close(slope, jax.grad(kernel(1.0))(x, z), 1e-6)


@needs_x64
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["Matern12", "GammaExponential"])
@pytest.mark.parametrize("d", marked(pytest.mark.nightly, [1, 3], "3"))
def test_gradients_of_rough_kernels_hold_little_more_than_one_matrix(d, name):
    """1.2 n^2 floats beside the arguments."""
    n = 1000
    make, _ = ROUGH[name]
    loss = lambda lengthscale, X: jnp.sum(kernax.gram(make(lengthscale), X))
    X = jax.ShapeDtypeStruct((n, d), jnp.float64)
    for shape in ((), (d,)):
        lengthscale = jax.ShapeDtypeStruct(shape, jnp.float64)
        for arguments in (0, 1, (0, 1)):
            bytes = temporary_bytes(jax.grad(loss, arguments), lengthscale, X)
            assert bytes <= 1.2 * 8 * n * n


def test_gradients_in_points_of_one_coordinate_are_no_loop():
    Z = jnp.linspace(0.0, 1.0, 4, dtype=DTYPE)[:, None]

    def of_points(Z):
        return jnp.sum(kernax.gram(kernax.Matern12(0.5), Z[::2], Z))

    assert "scan" not in str(jax.make_jaxpr(jax.grad(of_points))(Z))


@needs_x64
@pytest.mark.nightly
def test_the_slope_along_a_line_is_right_where_times_differ_by_rounding():
    solver = kernax.solvers.StateSpace()

    def along_line(lengthscale):
        kernel = kernax.Matern12(lengthscale)
        return kernax.log_marginal_likelihood(kernel, TIMES, VALUES, 0.01, solver=solver)

    np.testing.assert_allclose(jax.grad(along_line)(1.0), 9.478561234547, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Cosine", "GaussianOf", "Gibbs"])
def test_gradients_of_smooth_kernels_are_right_where_rows_differ_by_rounding(name):
    """In a period, a lengthscale inside of a distance of features, and a lengthscale function."""
    X = nearly_coincident(1, 3 * EPS)
    r = np.abs(X - X.T).astype(np.longdouble)
    q = r / 1.5
    make, expected = {
        "Cosine": (kernax.kernels.Cosine, 2 * np.pi * q / 1.5 * np.sin(2 * np.pi * q)),
        "GaussianOf": (
            lambda lengthscale: kernax.kernels.GaussianOf(kernax.Matern12(lengthscale)),
            2 * np.exp(-q) * q / 1.5 * np.exp(-2 * (1 - np.exp(-q))),
        ),
        "Gibbs": (
            lambda lengthscale: kernax.kernels.Gibbs(
                kernax.Custom(lambda size, x: size, lengthscale)
            ),
            q**2 / 1.5 * np.exp(-(q**2) / 2),
        ),
    }[name]
    total = lambda number: jnp.sum(kernax.gram(make(number), X))
    found = jax.jit(jax.grad(total))(jnp.asarray(1.5, X.dtype))
    np.testing.assert_allclose(found, float(np.sum(expected)), rtol=1e-11 if X64 else 1e-4)


@pytest.mark.parametrize(
    "kernel",
    [
        kernax.Matern12(1e-6),
        kernax.Matern32(1e-6),
        kernax.Matern52(1e-6),
        kernax.Matern12([1e-6, 2e-6]),
        kernax.kernels.GammaExponential(1e-6, 1.0),
        kernax.kernels.GammaExponential(1e-6, 1.5),
        kernax.kernels.GammaExponential(1e-6, 2.0),
        kernax.kernels.GammaExponential([1e-6, 2e-6], 1.5),
        kernax.kernels.LpLaplace(1e-6, 1.0, 1.0),
        kernax.kernels.LpLaplace(1e-6, 1.5, 0.5),
        kernax.kernels.LpLaplace(1e-6, 2.0, 1.0),
        kernax.kernels.LpLaplace([1e-6, 2e-6], 2.0, 0.5),
        kernax.RBF(1e-6),
        kernax.RBF([1e-6, 2e-6]),
        kernax.Matern(0.7, 1e-6),
        kernax.Matern(2.2, 1e-6),
        kernax.Matern(40.0, 1e-6),
    ],
    ids=lambda kernel: str(kernel)[:60],
)
def test_values_and_gradients_are_zero_on_both_sides_of_an_overflow_of_the_distance(kernel):
    """The square of `|x - z| / lengthscale` is finite in the first row, and infinite in others."""
    largest = np.finfo(DTYPE).max
    scaled = np.sqrt(largest) * np.array([0.3, 3.0, 1e3, 1e10])
    both = jax.jit(jax.value_and_grad(lambda k, x, z: k(x, z), (0, 1, 2)))
    for distance in (1e-6 * scaled).astype(DTYPE):
        x, z = np.array([distance, 0], DTYPE), np.zeros(2, DTYPE)
        value, slopes = both(kernel, x, z)
        assert value == 0
        for slope in jax.tree.leaves(slopes):
            np.testing.assert_array_equal(slope, np.zeros_like(slope))


def test_a_rational_quadratic_kernel_has_derivatives_where_the_distance_overflows():
    x, z = np.array([10 * np.sqrt(np.finfo(DTYPE).max), 0], DTYPE), np.zeros(2, DTYPE)
    for alpha in (0.5, 1e3):
        kernel = kernax.RationalQuadratic(1.0, alpha)
        value, slopes = jax.value_and_grad(lambda k: k(x, z))(kernel)
        assert value == 0
        assert all(np.all(slope == 0) for slope in jax.tree.leaves(slopes))


def test_a_heavy_tail_keeps_values_and_gradients_before_the_distance_overflows():
    power = 0.01
    scaled = DTYPE(np.sqrt(np.finfo(DTYPE).max) * 1e-3)
    x, z = np.array([scaled], DTYPE), np.zeros(1, DTYPE)
    # k = exp(-l^(-2 q) s^q) at l = 1: dk/dl = 2 q s^q exp(-s^q).
    to_power = np.exp(2 * power * np.log(np.float64(scaled)))

    def of_p_norm(lengthscale):
        return kernax.kernels.LpLaplace(lengthscale, 2.0, power)(x, z)

    def of_euclidean_norm(lengthscale):
        return kernax.kernels.GammaExponential(lengthscale, 2 * power)(x, z)

    for function in (of_p_norm, of_euclidean_norm):
        value, slope = jax.value_and_grad(function)(DTYPE(1))
        assert_close(value, np.exp(-to_power))
        assert_close(slope, 2 * power * to_power * np.exp(-to_power))


@pytest.mark.parametrize("d", [1, 2, 12])
def test_a_heavy_tail_is_constant_where_the_distance_overflows(d):
    """`exp(-s^q)` with q = 0.01 is 0.09 in float32 at the largest s, and would be zero at inf."""
    power = 0.01
    largest = np.float64(np.finfo(DTYPE).max)
    x = jnp.full(d, 10 * np.sqrt(largest), DTYPE)

    def of_p_norm(lengthscale):
        return kernax.kernels.LpLaplace(lengthscale, 2.0, power)(x, jnp.zeros_like(x))

    def of_euclidean_norm(lengthscale):
        return kernax.kernels.GammaExponential(lengthscale, 2 * power)(x, jnp.zeros_like(x))

    for function in (of_p_norm, of_euclidean_norm):
        every = jax.jit(lambda at, f=function: (f(at), jax.jacfwd(f)(at), jax.jacrev(f)(at)))
        value, *slopes = every(DTYPE(1))
        assert_close(value, np.exp(-np.exp(power * np.log(largest))))
        assert slopes == [0, 0]


@pytest.mark.parametrize("d", [1, 2, 12])
@pytest.mark.parametrize(
    "kernel",
    [
        kernax.Matern12(1.0),
        kernax.Matern(0.7, 1.0),
        kernax.kernels.GammaExponential(1.0, 0.7),
        kernax.kernels.LpLaplace(1.0, 1.5, 0.5),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_a_rough_kernel_is_nan_at_a_point_with_nan(kernel, d):
    """A comparison with NaN is false: a guard at x = z could take it for a distance of zero."""
    x = jnp.ones(d, DTYPE).at[-1].set(jnp.nan)
    z = jnp.zeros(d, DTYPE)
    assert jnp.isnan(kernel(x, z))
    assert jnp.isnan(kernel(z, x))
