"""The function every learner returns, and the geometry of the space it lives in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, needs_x64

import kernax

CLOSE = {"rtol": TOLERANCE["solve"], "atol": TOLERANCE["solve"]}


@pytest.fixture
def expansions(rng):
    kernel = kernax.RBF(1.1) + kernax.Linear()
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), DTYPE)
    f = kernax.KernelExpansion(kernel, draw(7, 3), draw(7), jnp.array(0.5, DTYPE))
    g = kernax.KernelExpansion(kernel, draw(5, 3), draw(5), jnp.array(-1.0, DTYPE))
    return f, g, draw(4, 3)


def test_an_expansion_is_the_weighted_sum_of_kernels_plus_a_bias(expansions):
    f, _, X = expansions
    expected = sum(c * f.kernel(X[0], p) for c, p in zip(f.coefficients, f.points)) + 0.5
    np.testing.assert_allclose(f(X[0]), expected, **CLOSE)
    np.testing.assert_allclose(jax.vmap(f)(X)[0], expected, **CLOSE)
    np.testing.assert_allclose(f([1, 0, 2]), f(jnp.array([1.0, 0.0, 2.0])), **CLOSE)


def test_values_of_a_stack_are_those_of_its_points_in_the_precision_of_the_expansion(expansions):
    f, _, X = expansions
    np.testing.assert_allclose(f.values(X), jax.vmap(f)(X), **CLOSE)
    half = kernax.KernelExpansion(
        kernax.RBF(np.float32(1)),
        f.points.astype(np.float32),
        f.coefficients.astype(np.float32),
        jnp.float32(0.5),
    )
    assert half.values(np.asarray(X, float)).dtype == jnp.float32
    np.testing.assert_allclose(half.values(X), jax.vmap(half)(X), rtol=1e-5, atol=1e-5)


@needs_x64
def test_sums_and_scalings_are_those_of_functions(expansions):
    f, g, X = expansions
    np.testing.assert_allclose(
        jax.vmap(f + 2.0 * g)(X), jax.vmap(f)(X) + 2 * jax.vmap(g)(X), **CLOSE
    )
    np.testing.assert_allclose(jax.vmap(f - g)(X), jax.vmap(f)(X) - jax.vmap(g)(X), **CLOSE)
    np.testing.assert_allclose(jax.vmap(-f)(X), -jax.vmap(f)(X), **CLOSE)
    np.testing.assert_allclose(
        jax.vmap(sum([f, g]) / 2)(X), (jax.vmap(f)(X) + jax.vmap(g)(X)) / 2, **CLOSE
    )
    np.testing.assert_allclose((-3.0 * f).norm, 3 * f.norm, **CLOSE)


@pytest.mark.slow
@needs_x64
def test_the_kernel_reproduces_and_the_norm_comes_from_the_inner_product(expansions):
    f, g, X = expansions
    at_x = kernax.KernelExpansion(f.kernel, X[:1], jnp.ones(1, DTYPE), jnp.zeros((), DTYPE))
    np.testing.assert_allclose(f.inner(at_x), f(X[0]) - f.bias, **CLOSE)
    np.testing.assert_allclose(f.norm**2, f.inner(f), **CLOSE)
    np.testing.assert_allclose(f.inner(g), g.inner(f), **CLOSE)
    np.testing.assert_allclose(f.distance(g) ** 2, f.norm**2 + g.norm**2 - 2 * f.inner(g), **CLOSE)


@needs_x64
def test_values_are_bounded_by_norms_and_distances(expansions):
    f, _, X = expansions
    for x, z in zip(X[:2], X[2:]):
        assert abs(f(x) - f.bias) <= f.norm * jnp.sqrt(f.kernel(x, x)) * (1 + 1e-6)
        assert abs(f(x) - f(z)) <= f.norm * kernax.kernel_distance(f.kernel, x, z) * (1 + 1e-6)


@needs_x64
def test_the_norm_is_that_of_the_weights_where_features_are_explicit(rng):
    X, c = jnp.asarray(rng.normal(size=(6, 3)), DTYPE), jnp.asarray(rng.normal(size=6), DTYPE)
    zero = jnp.zeros((), DTYPE)
    linear = kernax.KernelExpansion(kernax.Linear(), X, c, zero)
    np.testing.assert_allclose(linear.norm, jnp.linalg.norm(c @ X), **CLOSE)
    square = kernax.KernelExpansion(kernax.Linear() ** 2, X, c, zero)
    np.testing.assert_allclose(
        square.norm, jnp.linalg.norm(jnp.einsum("i,ij,ik->jk", c, X, X)), **CLOSE
    )


@pytest.mark.slow
def test_points_are_as_far_apart_as_their_features(rng):
    """K18: also as the functions k(x, .) and k(z, .) are."""
    x, z = jnp.asarray(rng.normal(size=(2, 3)), DTYPE)
    at = lambda kernel, x: kernax.KernelExpansion(
        kernel, x[None], jnp.ones(1, DTYPE), jnp.zeros((), DTYPE)
    )
    features = [
        (kernax.Linear(), jnp.linalg.norm(x - z)),
        (kernax.Linear() ** 2, jnp.linalg.norm(jnp.outer(x, x) - jnp.outer(z, z))),  # Frobenius
        (kernax.RBF(0.8), jnp.sqrt(2 - 2 * jnp.exp(-jnp.sum((x - z) ** 2) / 0.8**2 / 2))),
    ]
    for kernel, expected in features:
        np.testing.assert_allclose(kernax.kernel_distance(kernel, x, z), expected, **CLOSE)
        np.testing.assert_allclose(at(kernel, x).distance(at(kernel, z)), expected, **CLOSE)
        # Where they coincide.
        slope = jax.grad(lambda a, kernel=kernel: kernax.kernel_distance(kernel, a, x))(x)
        assert jnp.all(jnp.isfinite(slope))


@needs_x64
def test_several_outputs_have_a_norm_each(rng):
    X, C = jnp.asarray(rng.normal(size=(6, 3)), DTYPE), jnp.asarray(rng.normal(size=(6, 2)), DTYPE)
    f = kernax.KernelExpansion(kernax.RBF(), X, C, jnp.zeros(2, DTYPE))
    assert f.norm.shape == (2,)
    assert jax.vmap(f)(X).shape == (6, 2)


@needs_x64
def test_the_norm_of_the_zero_function_has_a_finite_gradient(rng):
    X = jnp.asarray(rng.normal(size=(4, 2)))
    norm = lambda c: kernax.KernelExpansion(kernax.RBF(), X, c, jnp.array(0.0)).norm
    assert jnp.all(jnp.isfinite(jax.grad(norm)(jnp.zeros(4))))


@needs_x64
def test_expansions_in_different_kernels_do_not_mix(expansions):
    f, g, _ = expansions
    other = kernax.KernelExpansion(kernax.RBF(2.0), g.points, g.coefficients, g.bias)
    for operation in (lambda: f + other, lambda: f.inner(other)):
        with pytest.raises(ValueError, match="different kernels"):
            operation()


@needs_x64
def test_expansions_of_other_outputs_do_not_mix_and_a_scale_is_one_for_each_output(expansions):
    f, _, _ = expansions
    of_two = kernax.KernelExpansion(f.kernel, f.points[:2], f.coefficients[:2], f.bias)
    pair = kernax.KernelExpansion(f.kernel, f.points, jnp.ones((7, 2), DTYPE), jnp.ones(2, DTYPE))
    for operation in (lambda: of_two.inner(pair), lambda: pair + of_two, lambda: of_two - pair):
        with pytest.raises(ValueError, match=r"outputs .* have no sum or inner product"):
            operation()
    with pytest.raises(ValueError, match=r"scaled by a number, .* but scale has shape \(2,\)"):
        _ = of_two * jnp.ones(2, DTYPE)
    scales = jnp.array([2.0, 3.0], DTYPE)
    np.testing.assert_allclose((pair * scales).bias, scales)


@needs_x64
def test_many_points_of_another_dimension_are_refused_as_few_are():
    """Along a line both stacks were joined before any kernel saw them."""
    zeros = jnp.zeros(500, DTYPE)
    f = kernax.KernelExpansion(kernax.Matern32(), zeros[:, None], zeros, zeros[0])
    with pytest.raises(ValueError, match="points must be vectors of one length"):
        f.values(jnp.zeros((500, 2), DTYPE))


class SumOfDifferences(kernax.AbstractKernel):
    """A kernel of one's own, which broadcasts whatever comes."""

    def __call__(self, x, z):
        return jnp.exp(-jnp.sum((x - z) ** 2))


@needs_x64
def test_no_kernel_broadcasts_points_of_one_number_along_those_of_several():
    X = jnp.linspace(0, 1, 12, dtype=DTYPE).reshape(4, 3)
    kernel = SumOfDifferences()
    f = kernax.kernel_ridge(kernel, X, X[:, 0], 0.1).value
    process = kernax.condition(kernax.GaussianProcess(kernel), X, X[:, 0], 0.1).value
    narrow = X[:, :1]
    for refused in (
        lambda: f.values(narrow),
        lambda: f(narrow[0]),
        lambda: f(0.3),
        lambda: jax.jit(lambda X: f.values(X))(narrow),
        lambda: process.mean(narrow[0]),
        lambda: process.variance(narrow[0]),
        lambda: kernax.gram(kernel, X, narrow),
    ):
        with pytest.raises(ValueError, match="vectors of one length"):
            refused()


@needs_x64
def test_expansions_of_one_kernel_add_under_jit(expansions):
    f, g, X = expansions
    summed = jax.jit(lambda c: (kernax.KernelExpansion(f.kernel, f.points, c, f.bias) + g)(X[0]))(
        f.coefficients
    )
    np.testing.assert_allclose(summed, f(X[0]) + g(X[0]), **CLOSE)


@needs_x64
def test_a_stack_where_a_point_belongs_is_refused_with_the_way_out(expansions):
    f, _, _ = expansions
    with pytest.raises(
        ValueError,
        match=r"single point of shape \(3,\), but has shape \(5, 3\): use f\.values\(X\), or",
    ):
        f(jnp.ones((5, 3)))


@pytest.mark.parametrize("coefficients", [[1.0, 2.0], [0.0, 1.0]])
def test_a_prediction_where_the_kernel_is_not_finite_says_so(coefficients):
    """`K` is not looked through: the values are, to which no coefficient gives a finite sum."""
    inverse = kernax.Custom(lambda _, x, z: jnp.sum(1 / (x * z)))
    points = jnp.asarray([[1.0], [2.0]], DTYPE)
    f = kernax.KernelExpansion(inverse, points, jnp.asarray(coefficients, DTYPE), points[0, 0])
    with pytest.raises(kernax.errors.NonFiniteError, match="NaN or inf on these points"):
        f.values(jnp.asarray([[3.0], [0.0]], DTYPE))


def test_a_prediction_without_a_finite_coefficient_is_no_failure_of_the_kernel():
    points = jnp.asarray([[1.0], [2.0]], DTYPE)
    unknown = jnp.asarray([jnp.nan, 1.0], DTYPE)
    f = kernax.KernelExpansion(kernax.RBF(1.0), points, unknown, points[0, 0])
    assert np.all(np.isnan(f.values(points)))
