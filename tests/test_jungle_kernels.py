"""Green kernels, kernels that change from place to place, arc-cosine, given matrices, bases: each against what defines it."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TOLERANCE, X64, needs_x64

import kernax
from kernax.core.errors import NonFiniteError

DTYPE = np.float64 if X64 else np.float32
RNG = np.random.default_rng(3)
LINE = np.array([[0.15], [0.4], [0.55], [0.9]], DTYPE)
PLANE = RNG.normal(size=(5, 2)).astype(DTYPE)
C = jnp.array([0.7, -1.3, 0.4, 2.0], DTYPE)


def matrix(kernel, X, Z=None):
    return np.asarray(kernax.gram(kernel, X, Z), np.float64)


def assert_close(a, b, tolerance=TOLERANCE["value"]):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.max(np.abs(b)))


def expansion(kernel, X, c):
    return kernax.KernelExpansion(kernel, jnp.asarray(X), jnp.asarray(c), jnp.zeros((), DTYPE))


def of_number(f):
    return lambda t: f(jnp.asarray(t, DTYPE)[None])


# K15: Green kernels


def closed_forms_on_the_line():
    x, z = LINE.astype(float), LINE.astype(float).T
    m, M = np.minimum(x, z), np.maximum(x, z)
    return {
        "Brownian": (kernax.Brownian(), m),
        "BrownianBridge": (kernax.BrownianBridge(), m - x * z),
        "IntegratedBrownian": (kernax.IntegratedBrownian(), m**2 * (3 * M - m) / 6),
    }


GREEN = list(closed_forms_on_the_line())


@pytest.mark.parametrize("name", GREEN)
def test_green_kernels_are_their_formulas(name):
    kernel, reference = closed_forms_on_the_line()[name]
    assert_close(matrix(kernel, LINE), reference)
    assert_close(matrix(kernel, LINE[:2], LINE[1:]), reference[:2, 1:])


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
    f = expansion(kernax.IntegratedBrownian(), LINE, C)
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
    t, k = 0.6, kernax.IntegratedBrownian()
    hessian = jax.jit(jax.hessian(lambda p: k(p[:1], p[1:])))(jnp.array([t, t]))
    assert_close(hessian, [[0, t], [t, 0]], 1e-12)


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
    with pytest.raises(ValueError, match="count must be a positive integer"):
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
        reference = np.prod(np.sqrt(2 * a * b / (a**2 + b**2)) * np.exp(-((x - z) ** 2) / (a**2 + b**2)), -1)
        assert_close(matrix(kernax.Gibbs(function), PLANE), reference)


def test_gibbs_with_a_constant_lengthscale_is_the_gaussian_and_is_one_on_the_diagonal():
    assert_close(matrix(kernax.Gibbs(lambda x: 0.7), PLANE), matrix(kernax.RBF(0.7), PLANE))
    K = matrix(kernax.Gibbs(lambda x: 1 + x**2), PLANE)
    np.testing.assert_array_equal(np.diagonal(K), 1)


def test_gibbs_refuses_lengthscales_that_are_no_function_not_positive_or_of_another_shape():
    with pytest.raises(ValueError, match=r"lengthscale must be a function of a point, but is 0\.5"):
        kernax.Gibbs(0.5)
    with pytest.raises(NonFiniteError):
        kernax.gram(kernax.Gibbs(lambda x: x[0]), PLANE)
    with pytest.raises(ValueError, match=r"must be a scalar or have shape \(2,\)"):
        kernax.gram(kernax.Gibbs(lambda x: x[:1]), PLANE)


@needs_x64
def test_gibbs_has_the_hessian_of_the_gaussian_where_points_coincide():
    x = jnp.asarray(PLANE[0])
    of = lambda kernel: jax.jit(jax.hessian(lambda x, z: kernel(x, z)))(x, x)
    assert_close(of(kernax.Gibbs(lambda x: 0.7)), of(kernax.RBF(0.7)))


def test_a_change_point_is_its_formula_and_far_away_one_kernel_alone():
    kernel = kernax.ChangePoint(kernax.RBF(0.8), kernax.Linear(), 0.2, 0.5, dimension=1)
    s = 1 / (1 + np.exp(-(PLANE[:, 1].astype(float) - 0.2) / 0.5))
    before, after = matrix(kernax.RBF(0.8), PLANE), matrix(kernax.Linear(), PLANE)
    reference = np.outer(1 - s, 1 - s) * before + np.outer(s, s) * after
    assert_close(matrix(kernel, PLANE), reference)
    far = kernax.ChangePoint(kernax.RBF(0.8), kernax.Linear(), 100.0, 0.5)
    assert_close(matrix(far, PLANE), before)


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
    J = (np.pi - theta, s + (np.pi - theta) * c, 3 * s * c + (np.pi - theta) * (1 + 2 * c**2))[order]
    return size**order * J / np.pi


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_its_formula(order):
    reference = [[arc_cosine(order, x, z) for z in PLANE.astype(float)] for x in PLANE.astype(float)]
    assert_close(matrix(kernax.ArcCosine(order), PLANE), np.array(reference))


@needs_x64
@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_the_kernel_of_an_infinitely_wide_layer(order):
    """Twice the mean over normal w = r (cos a, sin a), by quadrature over a, with E r^(2 order) = 2^order order!."""
    a = (np.arange(200_000) + 0.5) * 2 * np.pi / 200_000
    w = np.stack([np.cos(a), np.sin(a)])
    features = np.heaviside(PLANE @ w, 0.5) * (PLANE @ w) ** order
    K = 2 * (1, 2, 8)[order] * (features @ features.T) / 200_000
    assert_close(matrix(kernax.ArcCosine(order), PLANE), K, 1e-5)  # the steps cost one cell of 3e-5 each: measured 4e-6


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_is_exact_for_parallel_and_opposite_points_of_any_size(order):
    x = np.array([0.3, -1.7, 0.4], DTYPE)
    size, eps = float(np.linalg.norm(x)), float(np.finfo(DTYPE).eps)
    kernel, self_value = kernax.ArcCosine(order), (1, 1, 3)[order]
    for scale in (1.0, 3.0, 1e-3):
        z = (scale * x).astype(DTYPE)
        unit = (size * np.linalg.norm(z)) ** order
        assert abs(float(kernel(jnp.asarray(x), jnp.asarray(z))) / unit - self_value) < 16 * eps
        assert abs(float(kernel(jnp.asarray(x), jnp.asarray(-z))) / unit) < 16 * eps
    huge = jnp.asarray(x * DTYPE(np.finfo(DTYPE).max ** 0.6)) if order == 0 else jnp.asarray(x)
    assert float(kernel(huge, huge)) == pytest.approx(self_value * size ** (2 * order), rel=16 * eps)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_arc_cosine_at_norm_zero_is_zero_or_a_half_with_finite_gradients(order):
    kernel, zero, x = kernax.ArcCosine(order), jnp.zeros(2, DTYPE), jnp.asarray(PLANE[0])
    expected = 0.5 if order == 0 else 0.0
    for z in (x, zero):
        value, gradients = jax.value_and_grad(kernel, (0, 1))(zero, z)
        assert float(value) == pytest.approx(expected, abs=1e-6)
        assert all(np.isfinite(gradient).all() for gradient in gradients)
    if order == 1:  # the mean of the directional derivatives to either side
        assert_close(jax.grad(kernel)(zero, x), x / 2)


@needs_x64
def test_gradients_and_hessians_of_arc_cosine_are_right_where_points_coincide():
    """At x = z the layer's integrals are moments of normal w over a half space, which are known."""
    x = jnp.asarray(PLANE[0])
    gradients = lambda order: jax.jit(jax.vmap(jax.grad(kernax.ArcCosine(order)), (None, 0)))(x, jnp.stack([x, 3 * x]))
    assert_close(gradients(0), np.zeros((2, 2)), 1e-12)
    assert_close(gradients(1), [x, 3 * x])
    assert_close(gradients(2), [6 * (x @ x) * x, 54 * (x @ x) * x])
    moment = (x @ x) * np.eye(2) + 2 * np.outer(x, x)
    for order, own, mixed in ((1, np.zeros((2, 2)), np.eye(2)), (2, 2 * moment, 4 * moment)):
        kernel = kernax.ArcCosine(order)
        hessian = jax.jit(jax.hessian(lambda p, kernel=kernel: kernel(p[0], p[1])))(jnp.stack([x, x]))
        assert_close(np.moveaxis(hessian, 1, 2), [[own, mixed], [mixed, own]])


@needs_x64
def test_derivatives_of_arc_cosine_are_right_to_the_third():
    along = lambda t: kernax.ArcCosine(1)(jnp.array([1.0, 0.0]), jnp.stack([jnp.cos(t), jnp.sin(t)]))
    derivative, reference = along, lambda t: (jnp.sin(t) + (jnp.pi - t) * jnp.cos(t)) / jnp.pi
    for _ in range(3):
        derivative, reference = jax.jacfwd(derivative), jax.jacfwd(reference)
    t = jnp.array([0.3, 1.0, 2.5])
    assert_close(jax.jit(jax.vmap(derivative))(t), jax.jit(jax.vmap(reference))(t), 1e-9)


def test_arc_cosine_refuses_other_orders():
    for order in (3, -1, True):
        with pytest.raises(ValueError, match="order must be"):
            kernax.ArcCosine(order)


# K5 and centring


def test_a_gaussian_of_the_linear_kernel_is_the_gaussian():
    """K5."""
    beta = 0.8
    assert_close(matrix(kernax.GaussianOf(kernax.Linear(), beta), PLANE), matrix(kernax.RBF(1 / np.sqrt(2 * beta)), PLANE))


def test_a_gaussian_of_any_kernel_is_that_of_its_distance():
    """K5."""
    K = matrix(kernax.Polynomial(2, 0.5), PLANE)
    distance = np.diagonal(K)[:, None] + np.diagonal(K)[None] - 2 * K
    assert_close(
        matrix(kernax.GaussianOf(kernax.Polynomial(2, 0.5), 0.3), PLANE), np.exp(-0.3 * distance), 50 * TOLERANCE["value"]
    )
    brownian = matrix(kernax.GaussianOf(kernax.Brownian(), 2.0), LINE)
    assert_close(brownian, np.exp(-2 * np.abs(LINE - LINE.T).astype(float)))


def test_a_gaussian_of_a_distance_that_rounds_below_zero_is_one():
    far = jnp.array([1e3, 1.0], DTYPE)
    wrong = kernax.Custom(lambda _, x, z: jnp.dot(x, z) + jnp.where(x[1] == z[1], 0, 1).astype(x.dtype) * 1e-3)
    assert float(kernax.GaussianOf(wrong, 1.0)(far, far.at[1].add(1e-6 if X64 else 1e-4))) == 1.0


@needs_x64
def test_a_gaussian_of_a_kernel_has_the_right_hessian_where_points_coincide():
    x = jnp.asarray(PLANE[0])
    of = lambda kernel: jax.jit(jax.hessian(lambda x, z: kernel(x, z)))(x, x)
    assert_close(of(kernax.GaussianOf(kernax.Linear(), 0.5)), of(kernax.RBF(1.0)))


@pytest.mark.parametrize("base", [kernax.Polynomial(2, 0.5), kernax.Matern32()], ids=["polynomial", "matern32"])
def test_a_centred_gram_matrix_is_that_centred_from_both_sides(base):
    H = np.eye(5) - 1 / 5
    assert_close(matrix(kernax.Centred(base, PLANE), PLANE), H @ matrix(base, PLANE) @ H)
    few = PLANE[:2] + 1
    K, across, among = matrix(base, few), matrix(base, few, PLANE), matrix(base, PLANE)
    reference = K - across.mean(1)[:, None] - across.mean(1)[None] + among.mean()
    assert_close(matrix(kernax.Centred(base, PLANE), few), reference, 10 * TOLERANCE["value"])


def test_bad_pieces_of_combinators_are_refused_by_name():
    with pytest.raises(ValueError, match="kernel must be a kernel"):
        kernax.GaussianOf(kernax.RBF, 1.0)
    with pytest.raises(ValueError, match=r"GaussianOf\.beta must be in \(0, inf\)"):
        kernax.GaussianOf(kernax.RBF(), 0.0)
    with pytest.raises(ValueError, match="points holds NaN or inf, first in row 1"):
        kernax.Centred(kernax.RBF(), np.array([[0.0], [np.nan]], DTYPE))


# K19: precomputed matrices


def problem():
    rng = np.random.default_rng(5)
    X, Z = rng.normal(size=(8, 2)).astype(DTYPE), rng.normal(size=(3, 2)).astype(DTYPE)
    return X, Z, np.sin(X[:, 0]) + X[:, 1], np.sign(X[:, 0] + 0.3 * X[:, 1])


def blocks(kernel, X, Z):
    return kernax.Precomputed.from_blocks(kernax.gram(kernel, X), kernax.gram(kernel, X, Z), kernax.gram_diagonal(kernel, Z))


def test_learners_give_the_same_function_from_a_kernel_and_from_its_matrix():
    """K19."""
    X, Z, y, labels = problem()
    kernel, old, new = kernax.Matern32(1.5), np.arange(8), np.arange(8, 11)
    given = blocks(kernel, X, Z)
    fits = {
        "ridge": lambda k, X: kernax.kernel_ridge(k, X, y.astype(DTYPE), 0.1, bias=True).value,
        "svm": lambda k, X: kernax.svm(k, X, labels.astype(DTYPE), 2.0).value,
        "mean": lambda k, X: kernax.condition(kernax.GaussianProcess(k), X, y.astype(DTYPE), 0.1).value.mean,
        "variance": lambda k, X: kernax.condition(kernax.GaussianProcess(k), X, y.astype(DTYPE), 0.1).value.variance,
    }
    for fit in fits.values():
        f, g = fit(kernel, X), fit(given, old)
        assert_close(jax.vmap(g)(jnp.asarray(new)), jax.vmap(f)(jnp.asarray(Z)), TOLERANCE["solve"])
        assert_close(jax.vmap(g)(jnp.asarray(old)), jax.vmap(f)(jnp.asarray(X)), TOLERANCE["solve"])


def test_a_precomputed_kernel_looks_its_values_up():
    X, Z, *_ = problem()
    kernel = kernax.RBF()
    everything = np.asarray(kernax.gram(kernel, np.concatenate([X, Z])))
    np.testing.assert_array_equal(kernax.gram(kernax.Precomputed(everything), np.arange(11)), everything)
    full = kernax.Precomputed.from_blocks(everything[:8, :8], everything[:8, 8:], everything[8:, 8:])
    np.testing.assert_array_equal(kernax.gram(full, np.arange(11)), everything)
    np.testing.assert_array_equal(kernax.gram(full, np.array([9, 2]), np.array([3, 10, 1])), everything[[9, 2]][:, [3, 10, 1]])
    assert full(0, 9) == everything[0, 9] == eqx.filter_jit(full)(jnp.int32(9), jnp.uint8(0))


def test_what_a_precomputed_kernel_does_not_know_is_nan():
    K, cross, new = 2 * np.eye(3), np.ones((3, 2)), np.full((2, 2), 3.0)
    cases = {
        "matrix": (kernax.Precomputed(K), 3),
        "no new": (kernax.Precomputed.from_blocks(K, cross), 5),
        "diagonal": (kernax.Precomputed.from_blocks(K, cross, np.diagonal(new)), 5),
        "all": (kernax.Precomputed.from_blocks(K, cross, new), 5),
    }
    for name, (kernel, size) in cases.items():
        places = jnp.arange(-2, size + 2)
        i, j = np.meshgrid(places, places, indexing="ij")
        values = eqx.filter_jit(eqx.filter_vmap(lambda k, i, j: k(i, j), in_axes=(None, 0, 0)))(kernel, i.ravel(), j.ravel())
        values = np.asarray(values).reshape(i.shape)
        known = (i >= 0) & (j >= 0) & (i < size) & (j < size)
        if name in ("no new", "diagonal"):
            known &= (i < 3) | (j < 3) | ((i == j) & (name == "diagonal"))
        np.testing.assert_array_equal(np.isfinite(values), known)
    with pytest.raises(NonFiniteError):
        kernax.gram(cases["matrix"][0], np.array([0, 3]))
    with pytest.raises(NonFiniteError):
        kernax.gram(cases["matrix"][0], np.array([0, -1]))


def test_a_precomputed_kernel_refuses_what_is_no_gram_matrix():
    good = np.eye(3)
    with pytest.raises(ValueError, match=r"K must be symmetric.*differ by up to 0\.5"):
        kernax.Precomputed(np.array([[1.0, 0.5], [0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"K holds NaN or inf, first in row 1"):
        kernax.Precomputed(np.array([[1.0, 0.0], [0.0, np.nan]]))
    with pytest.raises(ValueError, match=r"cross holds NaN"):
        kernax.Precomputed.from_blocks(good, np.full((3, 1), np.nan))
    with pytest.raises(ValueError, match=r"cross must have shape \(3, m\)"):
        kernax.Precomputed.from_blocks(good, np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"new must have shape \(2, 2\), or \(2,\)"):
        kernax.Precomputed.from_blocks(good, np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match="new must be symmetric"):
        kernax.Precomputed.from_blocks(good, np.ones((3, 2)), np.array([[1.0, 0.0], [1.0, 1.0]]))
    for points in (np.arange(3.0), np.arange(3)[:, None]):
        with pytest.raises(ValueError, match=r"compares integers, in a stack of shape \(n,\)"):
            kernax.gram(kernax.Precomputed(good), points)


def test_a_precomputed_matrix_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match="K must be a square matrix"):
        kernax.Precomputed(np.ones((2, 3)))
    with pytest.raises(ValueError, match="K must be a square matrix"):
        kernax.Precomputed(np.ones(3))


@needs_x64
def test_a_traced_matrix_is_used_by_its_symmetric_part_and_differentiable():
    K = np.array([[1.0, 0.3], [0.3, 2.0]])
    total = jax.jit(lambda K: jnp.sum(jnp.array([[1.0, 2.0], [0.0, 3.0]]) * kernax.gram(kernax.Precomputed(K), jnp.arange(2))))
    assert_close(jax.grad(total)(jnp.asarray(K)), [[1.0, 1.0], [1.0, 3.0]])


# K20: Herglotz


def test_herglotz_is_its_formula_and_circulant_with_the_transform_as_eigenvalues():
    """K20."""
    masses = np.array([0.4, 0.0, 1.3, 0.2, 0.7])
    n, j = np.arange(5), np.arange(5)
    K = matrix(kernax.Herglotz(masses), n)
    assert_close(K, np.cos(2 * np.pi * (n[:, None, None] - n[None, :, None]) * j / 5) @ masses)
    np.testing.assert_array_equal(K, np.array([[K[0, (b - a) % 5] for b in n] for a in n]))
    transform = np.fft.fft(K[0]).real
    assert_close(transform, 5 * (masses + masses[-j]) / 2)
    assert_close(np.sort(transform), np.linalg.eigvalsh(K), 10 * TOLERANCE["value"])
    F = np.exp(2j * np.pi * np.outer(n, j) / 5)
    assert_close(K @ F, F * transform, 10 * TOLERANCE["value"])


def test_herglotz_has_its_period_also_far_away_and_for_small_integer_types():
    kernel = kernax.Herglotz(np.array([0.4, 0.1, 1.3]))
    near = kernax.gram(kernel, np.array([0, 1, 2]))
    np.testing.assert_array_equal(kernax.gram(kernel, np.array([0, 1, 2]) + 3 * 10**8), near)
    np.testing.assert_array_equal(kernax.gram(kernel, np.array([0, 1, 2]) - 300), near)
    np.testing.assert_array_equal(kernax.gram(kernel, np.array([0, 1, 2], np.uint8)), near)
    assert kernel.is_stationary
    assert not kernel.is_homogeneous


def test_a_negative_mass_is_refused():
    """K20."""
    with pytest.raises(ValueError, match=r"Herglotz\.masses must be in \[0, inf\)"):
        kernax.Herglotz(np.array([0.4, -0.1]))


def test_masses_that_are_no_vector_are_refused():
    with pytest.raises(ValueError, match=r"masses must have shape \(N,\)"):
        kernax.Herglotz(np.ones((2, 2)))


# K10: features


def explicit(basis, X):
    return np.asarray(eqx.filter_jit(eqx.filter_vmap(basis))(jnp.asarray(X)), np.float64)


UNIT = np.array([[0.1, 0.75], [0.29, 0.5], [0.0, 0.99], [0.6, 0.74]], DTYPE)


def bases():
    x = UNIT.astype(float)
    mu = np.array([[0.2, 0.3], [0.6, 0.9], [0.5, 0.5]])
    t = (x[:, None] - mu[None]) / [0.4, 0.7]
    polynomial = np.stack([np.ones(4), x[:, 0], x[:, 0] ** 2, x[:, 0] ** 3, x[:, 1], x[:, 1] ** 2, x[:, 1] ** 3], 1)
    line = (x[:, :1] - mu[:, 0]) / 0.4
    return {
        "polynomial": (kernax.PolynomialBasis(3), UNIT, polynomial),
        "gaussian": (kernax.GaussianBasis(mu, np.array([0.4, 0.7])), UNIT, np.exp(-(t**2).sum(-1) / 2)),
        "gaussian on the line": (kernax.GaussianBasis(mu[:, 0], 0.4), UNIT[:, :1], np.exp(-(line**2) / 2)),
        "sigmoid": (kernax.SigmoidBasis(mu, np.array([0.4, 0.7])), UNIT, (1 / (1 + np.exp(-t))).reshape(4, -1)),
        "sigmoid on the line": (kernax.SigmoidBasis(mu[:, 0], 0.4), UNIT[:, :1], 1 / (1 + np.exp(-line))),
    }


def in_dtype(tree):
    return jax.tree.map(lambda leaf: leaf.astype(DTYPE), tree)


@pytest.mark.parametrize("name", bases())
def test_bases_are_their_formulas_and_kernels_their_products(name):
    """K10."""
    basis, X, reference = bases()[name]
    assert_close(explicit(in_dtype(basis), X), reference)
    assert_close(matrix(kernax.FeatureMap(basis), X), reference @ reference.T)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_bins_count_the_components_that_share_one(order):
    """K10."""
    kernel = kernax.FeatureMap(kernax.IndicatorBins(4, order))
    same = sum((np.floor(4 * UNIT[:, None, a]) == np.floor(4 * UNIT[None, :, a])).astype(float) for a in range(2))
    np.testing.assert_array_equal(matrix(kernel, UNIT), same**order)
    features = explicit(kernax.IndicatorBins(4, order), UNIT)
    assert features.shape == (4, 8**order)
    first = explicit(kernax.IndicatorBins(4), UNIT)
    monomials = [np.prod([first[:, a] for a in chosen], 0) for chosen in itertools.product(range(8), repeat=order)]
    np.testing.assert_array_equal(features, np.stack(monomials, 1))


def test_bins_are_closed_below_open_above_and_nan_outside_with_gradient_zero():
    """K10: the edge 29/100 belongs to its own bin, though 100 * 0.29 rounds below 29."""
    bins, numbers = kernax.IndicatorBins(100), (1, 29, 58, 99)
    edges = np.array([[m / 100] for m in numbers], DTYPE)
    for X, shift in ((edges, 0), (np.nextafter(edges, DTYPE(0)), 1)):
        assert np.argmax(explicit(bins, X), 1).tolist() == [m - shift for m in numbers]
        np.testing.assert_array_equal(explicit(bins, X).sum(1), 1)
    assert np.isnan(explicit(bins, np.array([[-0.01], [1.0], [1.5]], DTYPE))).all()
    with pytest.raises(NonFiniteError):
        kernax.gram(kernax.FeatureMap(bins), np.array([[0.5, 0.5], [0.5, 1.0]], DTYPE))
    kernel = kernax.FeatureMap(kernax.IndicatorBins(3, 2))
    np.testing.assert_array_equal(jax.grad(kernel)(jnp.asarray(UNIT[0]), jnp.asarray(UNIT[1])), 0)


@pytest.mark.parametrize("name", ["polynomial", "gaussian", "sigmoid"])
def test_kernel_ridge_on_features_is_ridge_on_the_features_themselves(name):
    """K10, the push-through identity `Phi^T (Phi Phi^T + r)^-1 = (Phi^T Phi + r)^-1 Phi^T`."""
    basis, X, Phi = bases()[name]
    y, ridge = np.array([0.3, -1.0, 0.7, 2.0]), 0.05
    w = np.linalg.solve(Phi.T @ Phi + ridge * np.eye(Phi.shape[1]), Phi.T @ y)
    f = kernax.kernel_ridge(kernax.FeatureMap(basis), X, y.astype(DTYPE), ridge).value
    new = (0.9 * X + 0.05).astype(DTYPE)
    assert_close(jax.vmap(f)(jnp.asarray(new)), explicit(in_dtype(basis), new) @ w, TOLERANCE["solve"])


def test_bad_bases_are_refused_by_name():
    for make in (lambda: kernax.PolynomialBasis(0), lambda: kernax.IndicatorBins(-2), lambda: kernax.IndicatorBins(3, 0)):
        with pytest.raises(ValueError, match="must be a positive integer"):
            make()
    with pytest.raises(ValueError, match=r"GaussianBasis\.width must be in \(0, inf\)"):
        kernax.GaussianBasis(np.ones(3), 0.0)
    with pytest.raises(ValueError, match=r"centres must have shape \(m, d\)"):
        kernax.SigmoidBasis(np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="points must be vectors of one length"):
        kernax.gram(kernax.FeatureMap(kernax.GaussianBasis(np.ones((3, 2)))), UNIT[:, :1])


def test_centres_and_widths_are_learned_and_can_be_frozen():
    kernel = kernax.FeatureMap(kernax.GaussianBasis(np.ones((3, 2)), 0.4))
    theta, _ = kernax.unconstrain(kernel)
    assert set(theta) == {"phi.centres", "phi.width"}
    assert set(kernax.unconstrain(kernel, lambda path, _: path.endswith("width"))[0]) == {"phi.width"}


# All of them


ALL = {
    "precomputed": kernax.Precomputed.from_blocks(np.eye(2), np.ones((2, 1)), np.ones(1)),
    "herglotz": kernax.Herglotz(np.array([0.4, 0.1])),
    "green": kernax.Brownian() + kernax.BrownianBridge() * kernax.IntegratedBrownian(),
    "arc": kernax.ArcCosine(2),
    "centred": kernax.Centred(kernax.GaussianOf(kernax.RBF(), 0.5), PLANE),
    "change": kernax.ChangePoint(kernax.RBF(), kernax.Linear(), 0.2, 0.5, 1),
    "gibbs": kernax.Gibbs(kernax.GaussianBasis(np.ones((2, 2)), 0.5)),
    "bases": kernax.FeatureMap(kernax.SigmoidBasis(np.ones(2))) + kernax.FeatureMap(kernax.PolynomialBasis(2)),
    "bins": kernax.FeatureMap(kernax.IndicatorBins(4, 2)),
    "sines": kernax.FeatureMap(kernax.Brownian().eigenpairs(3)[1]),
}


@pytest.mark.parametrize("name", ALL)
def test_they_come_back_from_files(name, tmp_path):
    kernax.save(tmp_path / "k", ALL[name])
    assert eqx.tree_equal(kernax.load(tmp_path / "k"), ALL[name], typematch=True)
