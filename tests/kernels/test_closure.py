"""What closure theory allows: random trees of kernels are kernels."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, needs_x64
from hypothesis import given, settings
from hypothesis import strategies as st

import kernax
from kernax.testing import check_kernel

EPS = np.finfo(DTYPE).eps
POINTS = np.random.default_rng(0).normal(size=(4, 2)).astype(DTYPE)
X = np.concatenate([POINTS, POINTS[:2], np.zeros((1, 2), DTYPE)])  # with duplicates, and the origin
Z = np.concatenate([POINTS[1:3], np.random.default_rng(1).normal(size=(3, 2)).astype(DTYPE)])


def squash(x):
    return jnp.tanh(x)


def bump(x):
    return jnp.cos(x[0]) - 0.3


def doubled(kernel):
    return kernax.On(kernax.Warped(kernel, lambda x: jnp.concatenate([x, x])), 1)


# A tree is drawn as nested tuples (maker, *parts) and built in the test: hypothesis wants no
# compilation while it draws.
def node(maker, *parts):
    return st.tuples(st.just(maker), *parts)


SIZES = st.floats(0.3, 3.0)
SCALES = (kernax.RBF, kernax.Matern12, kernax.Matern32, kernax.Matern52, kernax.RationalQuadratic)
BASES = st.one_of(
    *[
        node(maker, SIZES)
        for maker in (*SCALES, kernax.Periodic, kernax.kernels.Cosine, kernax.Constant)
    ],
    node(kernax.Linear),
    node(lambda: kernax.RBF(np.array([0.5, 2.0]))),
    node(lambda offset: kernax.Polynomial(2, offset), SIZES),
)


def grown(kernels):
    return st.one_of(
        node(operator.add, kernels, kernels),
        node(operator.mul, kernels, kernels),
        node(operator.mul, kernels, st.floats(0.0, 3.0)),
        node(operator.pow, kernels, st.integers(1, 3)),
        node(lambda kernel: kernax.Warped(kernel, squash), kernels),
        node(lambda kernel: kernax.kernels.ExpOf(kernax.Normalised(kernel)), kernels),
        node(
            lambda kernel: kernax.kernels.PolynomialOf(kernel, np.array([0.2, 0.0, 1.5])), kernels
        ),
        node(kernax.Normalised, kernels),
        node(doubled, kernels),
        node(lambda kernel: kernax.kernels.Modulated(kernel, bump), kernels),
    )


TREES = st.recursive(BASES, grown, max_leaves=4)


def build(tree):
    maker, *parts = tree
    return maker(*[build(part) if isinstance(part, tuple) else part for part in parts])


def matrix(kernel, X, Z):
    return np.asarray(
        jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(jnp.asarray(Z)))(jnp.asarray(X))
    )


def assert_is_a_kernel(kernel):
    """Evaluated without compiling, since every tree is a new program."""
    with jax.disable_jit():
        K, K_xz, K_zx = matrix(kernel, X, X), matrix(kernel, X, Z), matrix(kernel, Z, X)
        diagonal = np.asarray(jax.vmap(lambda x: kernel(x, x))(jnp.asarray(X)))
    largest = np.max(np.abs(K))
    values = np.linalg.eigvalsh(K.astype(np.float64))
    assert values[0] >= -8 * len(X) * EPS * values[-1]
    np.testing.assert_allclose(K, K.T, rtol=0, atol=8 * EPS * largest)
    np.testing.assert_allclose(
        K_xz, K_zx.T, rtol=0, atol=8 * EPS * max(largest, np.max(np.abs(K_xz)))
    )
    np.testing.assert_allclose(np.diagonal(K), diagonal, rtol=0, atol=8 * EPS * largest)


@pytest.mark.nightly
@given(TREES)
def test_random_trees_of_kernels_are_kernels(tree):
    """K7, K15."""
    assert_is_a_kernel(build(tree))


@pytest.mark.nightly
@needs_x64
@given(TREES)
@settings(max_examples=5)
@pytest.mark.filterwarnings(
    "ignore::kernax.errors.FeaturelessWarning"
)  # the origin has no features under Normalised(Linear)
def test_gram_of_a_random_tree_agrees_with_its_diagonal_and_its_values(tree):
    """K7, K15, through the public functions: compiled, so few examples."""
    kernel = build(tree)
    K = np.asarray(kernax.gram(kernel, X))
    # Two programs: one rounding was measured between them, in float32 under tanh.
    np.testing.assert_allclose(
        np.diagonal(K), kernax.gram_diagonal(kernel, X), rtol=8 * EPS, atol=0
    )
    with jax.disable_jit():
        eager = matrix(kernel, X, X)
    np.testing.assert_allclose(K, eager, rtol=0, atol=100 * EPS * np.max(np.abs(eager)))
    assert check_kernel(kernel, X).passed


@pytest.mark.nightly
@needs_x64
@given(TREES)
def test_gradients_of_random_trees_are_finite_at_duplicates_and_at_the_origin(tree):
    """K7."""
    assert_finite_gradients(build(tree))


def assert_finite_gradients(kernel):
    with jax.disable_jit():
        for x in (jnp.asarray(X[0]), jnp.zeros(2, DTYPE)):
            assert np.all(np.isfinite(jax.grad(kernel)(x, x)))
        theta = jax.grad(lambda kernel: kernel(jnp.asarray(X[0]), jnp.asarray(X[0])))(kernel)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(theta))


@needs_x64
def test_the_property_would_catch_a_difference_of_kernels():
    difference = kernax.Custom(lambda _, x, z: kernax.RBF(1.0)(x, z) - 0.5 * kernax.RBF(0.5)(x, z))
    K = matrix(difference, X, X)
    assert np.linalg.eigvalsh(K)[0] < -1e-3


@needs_x64
def test_sums_products_and_scales_flatten_and_add_up():
    a, b, c = kernax.RBF(), kernax.Linear(), kernax.Constant(0.3)
    assert len((a + b + c).terms) == 3
    assert len((a * b * c).terms) == 3  # pyright: ignore[reportAttributeAccessIssue]
    K = lambda kernel: np.asarray(kernax.gram(kernel, X, Z), np.float64)
    close = lambda one, two: np.testing.assert_allclose(K(one), two, rtol=1e3 * EPS, atol=1e3 * EPS)
    close(sum([a, b]), K(a) + K(b))
    close(1.5 + a, K(a) + 1.5)
    close(a / 2, K(a) / 2)
    for two in (2, 2.0, np.float64(2), np.float32(2), jnp.asarray(2.0), np.array(2.0)):
        close(two * a, 2 * K(a))
        close(a * two, 2 * K(a))
        close(two + a, 2 + K(a))
