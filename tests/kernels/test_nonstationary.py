"""Green kernels, kernels that change from place to place, arc-cosine: each against what defines
it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, assert_close, explicit, matrix, needs_x64

import kernax
from kernax.errors import NonFiniteError

RNG = np.random.default_rng(3)
LINE = np.array([[0.15], [0.4], [0.55], [0.9]], DTYPE)
PLANE = RNG.normal(size=(5, 2)).astype(DTYPE)
C = jnp.array([0.7, -1.3, 0.4, 2.0], DTYPE)


def expansion(kernel, X, c):
    return kernax.KernelExpansion(kernel, jnp.asarray(X), jnp.asarray(c), jnp.zeros((), DTYPE))


def of_number(f):
    return lambda t: f(jnp.asarray(t, DTYPE)[None])


# K15: Green kernels


def closed_forms_on_the_line():
    x, z = LINE.astype(float), LINE.astype(float).T
    m, M = np.minimum(x, z), np.maximum(x, z)
    return {
        "Brownian": (kernax.kernels.Brownian(), m),
        "BrownianBridge": (kernax.kernels.BrownianBridge(), m - x * z),
        "IntegratedBrownian": (kernax.kernels.IntegratedBrownian(), m**2 * (3 * M - m) / 6),
    }


GREEN = list(closed_forms_on_the_line())


@pytest.mark.parametrize("name", GREEN)
def test_green_kernels_are_their_formulas(name):
    kernel, reference = closed_forms_on_the_line()[name]
    assert_close(matrix(kernel, LINE), reference)
    assert_close(matrix(kernel, LINE[:2], LINE[1:]), reference[:2, 1:])


def test_the_linear_spline_is_the_printed_formula_of_tipping_in_every_dimension_and_sign():
    rng = np.random.default_rng(0)
    X = rng.uniform(-10, 10, (7, 2)).astype(DTYPE)
    x, z = X[:, None].astype(float), X[None].astype(float)
    m = np.minimum(x, z)
    factors = 1 + x * z + x * z * m - (x + z) / 2 * m**2 + m**3 / 3
    assert_close(matrix(kernax.kernels.LinearSpline(), X), np.prod(factors, 2))


@needs_x64
@pytest.mark.parametrize("name", GREEN)
def test_green_kernels_refuse_what_is_outside_their_domain_and_what_is_not_a_number(name):
    kernel, _ = closed_forms_on_the_line()[name]
    below, above = jnp.array([-0.1], DTYPE), jnp.array([1.1], DTYPE)
    inside = jnp.asarray(LINE[0])
    assert jnp.isnan(kernel(below, inside))
    assert jnp.isnan(kernel(inside, below))
    assert jnp.isnan(kernel(inside, above)) == (name == "BrownianBridge")
    with pytest.raises(NonFiniteError):
        kernax.gram(kernel, np.array([[0.3], [-0.1]], DTYPE))
    with pytest.raises(ValueError, match=r"compares numbers, but points have shape \(2,\)"):
        kernax.gram(kernel, PLANE)


@needs_x64
@pytest.mark.parametrize("name", ["Brownian", "BrownianBridge"])
def test_the_squared_norm_of_an_expansion_is_the_integral_of_the_squared_slope(name):
    """K15: f is linear between breakpoints, so that the sum over the pieces is the integral."""
    f = expansion(closed_forms_on_the_line()[name][0], LINE, C)
    ends = np.concatenate([[0.0], LINE[:, 0], [1.0]])
    values = np.asarray(jax.vmap(f)(ends[:, None]))
    integral = np.sum(np.diff(values) ** 2 / np.diff(ends))
    assert float(f.norm) ** 2 == pytest.approx(integral, rel=1e-12)
    assert values[0] == 0
    assert name == "Brownian" or abs(values[-1]) < 1e-15


@needs_x64
def test_the_squared_norm_of_an_integrated_expansion_is_the_integral_of_the_squared_curvature():
    """K15: f'' is linear between breakpoints, so that Simpson's rule on its square is exact."""
    f = expansion(kernax.kernels.IntegratedBrownian(), LINE, C)
    bend = jax.jit(jax.vmap(jax.grad(jax.grad(of_number(f)))))
    ends = np.concatenate([[0.0], LINE[:, 0]])
    a, b = ends[:-1], ends[1:]
    integral = np.sum((b - a) / 6 * (bend(a) ** 2 + 4 * bend((a + b) / 2) ** 2 + bend(b) ** 2))
    assert float(f.norm) ** 2 == pytest.approx(float(integral), rel=1e-10)
    assert_close(bend(np.array([0.91, 3.0])), [0, 0], 1e-12)


@needs_x64
@pytest.mark.parametrize(
    ("name", "f", "order"),
    [
        ("Brownian", lambda t: jnp.sin(3 * t) + t**2, 1),
        ("BrownianBridge", lambda t: jnp.sin(2 * jnp.pi * t) + t * (1 - t), 1),
        ("IntegratedBrownian", lambda t: t**2 * jnp.exp(t), 2),
    ],
)
def test_green_kernels_reproduce_values_weakly(name, f, order):
    """K15: `integral D f(t) D k(x, t) dt = f(x)`, by Gauss-Legendre on both sides of x."""
    kernel, x = closed_forms_on_the_line()[name][0], jnp.array([0.35])
    Df, Dk = f, of_number(lambda t: kernel(x, t))
    for _ in range(order):
        Df, Dk = jax.grad(Df), jax.grad(Dk)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    total = 0.0
    for a, b in ((0.0, 0.35), (0.35, 1.0)):
        t = (a + b) / 2 + (b - a) / 2 * nodes
        total += (b - a) / 2 * np.sum(weights * jax.jit(jax.vmap(lambda t: Df(t) * Dk(t)))(t))
    assert total == pytest.approx(float(f(0.35)), abs=1e-12)


@needs_x64
def test_second_derivatives_of_integrated_brownian_motion_are_right_where_points_coincide():
    """Those of both points give Brownian motion, min(x, z), by construction."""
    t, k = 0.6, kernax.kernels.IntegratedBrownian()
    hessian = jax.jit(jax.hessian(lambda p: k(p[:1], p[1:])))(jnp.array([t, t]))
    assert_close(hessian, [[0, t], [t, 0]], 1e-12)


@needs_x64
@pytest.mark.parametrize("name", ["Brownian", "BrownianBridge"])
def test_mercer_series_of_the_green_kernels_converge_to_them(name):
    """K20: the tail of sum 1/(j pi)^2 is about 1/(pi^2 count)."""
    kernel, reference = closed_forms_on_the_line()[name]
    for count in (20, 400):
        values, functions = kernel.eigenpairs(count)
        Phi = explicit(functions, LINE)
        assert Phi.shape == (4, count)
        error = np.max(np.abs((Phi * np.asarray(values)) @ Phi.T - reference))
        assert error < 2.5 / (np.pi**2 * count)  # 1.1 of these units at 20, 1.0 at 400
    assert jnp.isnan(functions(jnp.array([1.1], DTYPE))).all()
    with pytest.raises(ValueError, match="n_pairs must be a positive integer"):
        kernel.eigenpairs(0)


@needs_x64
@pytest.mark.parametrize("name", ["Brownian", "BrownianBridge"])
def test_eigenpairs_of_the_green_kernels_satisfy_the_integral_equation(name):
    kernel, x = closed_forms_on_the_line()[name][0], jnp.array([0.35])
    values, functions = kernel.eigenpairs(4)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    total, products = 0.0, 0.0
    for a, b in ((0.0, 0.35), (0.35, 1.0)):
        t = ((a + b) / 2 + (b - a) / 2 * nodes)[:, None]
        w = (b - a) / 2 * weights
        f = explicit(functions, t)
        total = total + (w * matrix(kernel, x[None], t)[0]) @ f
        products = products + f.T @ (w[:, None] * f)
    assert_close(total, values * functions(x), 1e-12)
    assert_close(products, np.eye(4), 1e-12)
    first = {"Brownian": 4 / np.pi**2, "BrownianBridge": 1 / np.pi**2}[name]
    assert float(values[0]) == pytest.approx(first, rel=1e-14)


# Gibbs and change points


def test_gibbs_is_its_formula():
    growing = kernax.Custom(lambda p, x: jnp.exp(p * x), jnp.array([0.3, -0.2], DTYPE))
    one = kernax.Custom(lambda p, x: jnp.exp(jnp.sum(p * x)), jnp.array([0.3, -0.2], DTYPE))
    x, z = PLANE[:, None].astype(float), PLANE[None].astype(float)
    for function, of in (
        (growing, lambda x: np.exp([0.3, -0.2] * x)),
        (one, lambda x: np.exp((x * [0.3, -0.2]).sum(-1))[..., None]),
    ):
        a, b = np.broadcast_arrays(of(x), of(z), np.ones((1, 1, 2)))[:2]
        reference = np.prod(
            np.sqrt(2 * a * b / (a**2 + b**2)) * np.exp(-((x - z) ** 2) / (a**2 + b**2)), -1
        )
        assert_close(matrix(kernax.kernels.Gibbs(function), PLANE), reference)


def test_gibbs_with_a_constant_lengthscale_is_the_gaussian_and_is_one_on_the_diagonal():
    assert_close(matrix(kernax.kernels.Gibbs(lambda x: 0.7), PLANE), matrix(kernax.RBF(0.7), PLANE))
    K = matrix(kernax.kernels.Gibbs(lambda x: 1 + x**2), PLANE)
    np.testing.assert_array_equal(np.diagonal(K), 1)


@needs_x64
def test_gibbs_refuses_lengthscales_that_are_no_function_not_positive_or_of_another_shape():
    with pytest.raises(ValueError, match=r"lengthscale must be a function of a point, but is 0\.5"):
        kernax.kernels.Gibbs(0.5)
    with pytest.raises(NonFiniteError):
        kernax.gram(kernax.kernels.Gibbs(lambda x: x[0]), PLANE)
    with pytest.raises(ValueError, match=r"must be a scalar or have shape \(2,\)"):
        kernax.gram(kernax.kernels.Gibbs(lambda x: x[:1]), PLANE)


@needs_x64
def test_gibbs_has_the_hessian_of_the_gaussian_where_points_coincide():
    x = jnp.asarray(PLANE[0])
    of = lambda kernel: jax.jit(jax.hessian(lambda x, z: kernel(x, z)))(x, x)
    assert_close(of(kernax.kernels.Gibbs(lambda x: 0.7)), of(kernax.RBF(0.7)))


def test_a_change_point_is_its_formula_and_far_away_one_kernel_alone():
    kernel = kernax.ChangePoint(kernax.RBF(0.8), kernax.Linear(), 0.2, 0.5, dimension=1)
    s = 1 / (1 + np.exp(-(PLANE[:, 1].astype(float) - 0.2) / 0.5))
    before, after = matrix(kernax.RBF(0.8), PLANE), matrix(kernax.Linear(), PLANE)
    reference = np.outer(1 - s, 1 - s) * before + np.outer(s, s) * after
    assert_close(matrix(kernel, PLANE), reference)
    far = kernax.ChangePoint(kernax.RBF(0.8), kernax.Linear(), 100.0, 0.5)
    assert_close(matrix(far, PLANE), before)


@needs_x64
def test_a_change_point_refuses_classes_dimensions_and_widths():
    with pytest.raises(ValueError, match="kernel must be a kernel"):
        kernax.ChangePoint(kernax.RBF, kernax.RBF(), 0.0, 1.0)
    with pytest.raises(ValueError, match=r"dimension must be an integer >= 0, but is -1"):
        kernax.ChangePoint(kernax.RBF(), kernax.RBF(), 0.0, 1.0, dimension=-1)
    with pytest.raises(ValueError, match=r"ChangePoint\.width must be in \(0, inf\)"):
        kernax.ChangePoint(kernax.RBF(), kernax.RBF(), 0.0, 0.0)
    with pytest.raises(ValueError, match="dimension 2, but points have shape"):
        kernax.gram(kernax.ChangePoint(kernax.RBF(), kernax.RBF(), 0.0, 1.0, dimension=2), PLANE)


# Arc-cosine


def arc_cosine(order, x, z):
    """Cho & Saul 2009, eqs. 3-6, with the angle from a cross product in two dimensions."""
    size = np.hypot(*x) * np.hypot(*z)
    theta = np.arctan2(abs(x[0] * z[1] - x[1] * z[0]), x @ z)
    c, s = np.cos(theta), np.sin(theta)
    J = (np.pi - theta, s + (np.pi - theta) * c, 3 * s * c + (np.pi - theta) * (1 + 2 * c**2))[
        order
    ]
    return size**order * J / np.pi


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_its_formula(order):
    reference = [
        [arc_cosine(order, x, z) for z in PLANE.astype(float)] for x in PLANE.astype(float)
    ]
    assert_close(matrix(kernax.kernels.ArcCosine(order), PLANE), np.array(reference))


@needs_x64
@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_the_kernel_of_an_infinitely_wide_layer(order):
    """Twice the mean over normal w = r (cos a, sin a), by quadrature over a, with E r^(2 order) =
    2^order order!.
    """
    a = (np.arange(200_000) + 0.5) * 2 * np.pi / 200_000
    w = np.stack([np.cos(a), np.sin(a)])
    features = np.heaviside(PLANE @ w, 0.5) * (PLANE @ w) ** order
    K = 2 * (1, 2, 8)[order] * (features @ features.T) / 200_000
    # The steps cost one cell of 3e-5 each: measured 4e-6.
    assert_close(matrix(kernax.kernels.ArcCosine(order), PLANE), K, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_exact_for_parallel_and_opposite_points_of_any_size(order):
    x = np.array([0.3, -1.7, 0.4], DTYPE)
    size, eps = float(np.linalg.norm(x)), float(np.finfo(DTYPE).eps)
    kernel, self_value = kernax.kernels.ArcCosine(order), (1, 1, 3)[order]
    for scale in (1.0, 3.0, 1e-3):
        z = (scale * x).astype(DTYPE)
        unit = (size * np.linalg.norm(z)) ** order
        assert abs(float(kernel(jnp.asarray(x), jnp.asarray(z))) / unit - self_value) < 16 * eps
        assert abs(float(kernel(jnp.asarray(x), jnp.asarray(-z))) / unit) < 16 * eps
    huge = jnp.asarray(x * DTYPE(np.finfo(DTYPE).max ** 0.6)) if order == 0 else jnp.asarray(x)
    assert float(kernel(huge, huge)) == pytest.approx(
        self_value * size ** (2 * order), rel=16 * eps
    )


@pytest.mark.slow
@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_at_norm_zero_is_zero_or_a_half_with_finite_gradients(order):
    kernel, zero, x = kernax.kernels.ArcCosine(order), jnp.zeros(2, DTYPE), jnp.asarray(PLANE[0])
    expected = 0.5 if order == 0 else 0.0
    for z in (x, zero):
        value, gradients = jax.value_and_grad(kernel, (0, 1))(zero, z)
        assert float(value) == pytest.approx(expected, abs=1e-6)
        assert all(np.isfinite(gradient).all() for gradient in gradients)
    if order == 1:  # the mean of the directional derivatives to either side
        assert_close(jax.grad(kernel)(zero, x), x / 2)


@pytest.mark.slow
@needs_x64
def test_gradients_and_hessians_of_arc_cosine_are_right_where_points_coincide():
    """At x = z the layer's integrals are moments of normal w over a half space, which are known."""
    x = jnp.asarray(PLANE[0])
    gradients = lambda order: jax.jit(
        jax.vmap(jax.grad(kernax.kernels.ArcCosine(order)), (None, 0))
    )(x, jnp.stack([x, 3 * x]))
    assert_close(gradients(0), np.zeros((2, 2)), 1e-12)
    assert_close(gradients(1), [x, 3 * x])
    assert_close(gradients(2), [6 * (x @ x) * x, 54 * (x @ x) * x])
    moment = (x @ x) * np.eye(2) + 2 * np.outer(x, x)
    for order, own, mixed in ((1, np.zeros((2, 2)), np.eye(2)), (2, 2 * moment, 4 * moment)):
        kernel = kernax.kernels.ArcCosine(order)
        hessian = jax.jit(jax.hessian(lambda p, kernel=kernel: kernel(p[0], p[1])))(
            jnp.stack([x, x])
        )
        assert_close(np.moveaxis(hessian, 1, 2), [[own, mixed], [mixed, own]])


@needs_x64
def test_derivatives_of_arc_cosine_are_right_to_the_third():
    along = lambda t: kernax.kernels.ArcCosine(1)(
        jnp.array([1.0, 0.0]), jnp.stack([jnp.cos(t), jnp.sin(t)])
    )
    derivative, reference = along, lambda t: (jnp.sin(t) + (jnp.pi - t) * jnp.cos(t)) / jnp.pi
    for _ in range(3):
        derivative, reference = jax.jacfwd(derivative), jax.jacfwd(reference)
    t = jnp.array([0.3, 1.0, 2.5])
    assert_close(jax.jit(jax.vmap(derivative))(t), jax.jit(jax.vmap(reference))(t), 1e-9)


@needs_x64
def test_arc_cosine_refuses_other_orders():
    for order in (3, -1, True):
        with pytest.raises(ValueError, match="order must be"):
            kernax.kernels.ArcCosine(order)
