"""Kernels of integers: given matrices, which learners take as they take their kernel, and
Herglotz.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, assert_close, matrix, needs_x64, untyped

import kernax
from kernax.errors import NonFiniteError

# K19: precomputed matrices


def problem():
    rng = np.random.default_rng(5)
    X, Z = rng.normal(size=(8, 2)).astype(DTYPE), rng.normal(size=(3, 2)).astype(DTYPE)
    return X, Z, np.sin(X[:, 0]) + X[:, 1], np.sign(X[:, 0] + 0.3 * X[:, 1])


@pytest.mark.slow
@needs_x64
def test_a_precomputed_kernel_looks_its_values_up():
    X, Z, *_ = problem()
    kernel = kernax.RBF()
    everything = np.asarray(kernax.gram(kernel, np.concatenate([X, Z])))
    np.testing.assert_array_equal(
        kernax.gram(kernax.Precomputed(everything), np.arange(11)), everything
    )
    full = kernax.Precomputed.from_blocks(
        everything[:8, :8], everything[:8, 8:], everything[8:, 8:]
    )
    np.testing.assert_array_equal(kernax.gram(full, np.arange(11)), everything)
    np.testing.assert_array_equal(
        kernax.gram(full, np.array([9, 2]), np.array([3, 10, 1])), everything[[9, 2]][:, [3, 10, 1]]
    )
    assert full(0, 9) == everything[0, 9] == eqx.filter_jit(full)(jnp.int32(9), jnp.uint8(0))


@needs_x64
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
        values = eqx.filter_jit(eqx.filter_vmap(lambda k, i, j: k(i, j), in_axes=(None, 0, 0)))(
            kernel, i.ravel(), j.ravel()
        )
        values = np.asarray(values).reshape(i.shape)
        known = (i >= 0) & (j >= 0) & (i < size) & (j < size)
        if name in ("no new", "diagonal"):
            known &= (i < 3) | (j < 3) | ((i == j) & (name == "diagonal"))
        np.testing.assert_array_equal(np.isfinite(values), known)
    with pytest.raises(NonFiniteError):
        kernax.gram(cases["matrix"][0], np.array([0, 3]))
    with pytest.raises(NonFiniteError):
        kernax.gram(cases["matrix"][0], np.array([0, -1]))


@needs_x64
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
        with pytest.raises(ValueError, match=r"compares integers, X of shape \(n,\)"):
            kernax.gram(kernax.Precomputed(good), points)


@needs_x64
@pytest.mark.parametrize("value", [None, "abc", np.array([None]), [[1.0], [1.0, 2.0]], {}])
def test_a_precomputed_matrix_that_is_no_array_is_refused_by_name(value):
    good = np.eye(2)
    from_blocks = untyped(kernax.Precomputed.from_blocks)
    for call, name in (
        (lambda: kernax.Precomputed(value), "K"),
        (lambda: from_blocks(value, good), "K"),
        (lambda: from_blocks(good, value), "cross"),
    ):
        with pytest.raises(ValueError, match=f"^{name} must be a number or an array of numbers"):
            call()
    if value is not None:
        with pytest.raises(ValueError, match=r"^new must be a number or an array of numbers"):
            kernax.Precomputed(good, good, value)


@needs_x64
def test_a_precomputed_matrix_may_be_a_table_of_pandas():
    pandas = pytest.importorskip("pandas")
    K = kernax.Precomputed(pandas.DataFrame(2.0 * np.eye(2))).K
    np.testing.assert_array_equal(K, 2.0 * np.eye(2))


@needs_x64
def test_a_precomputed_matrix_that_is_not_square_is_refused():
    with pytest.raises(ValueError, match="K must be a square matrix"):
        kernax.Precomputed(np.ones((2, 3)))
    with pytest.raises(ValueError, match="K must be a square matrix"):
        kernax.Precomputed(np.ones(3))


@needs_x64
def test_a_traced_matrix_is_used_by_its_symmetric_part_and_differentiable():
    K = np.array([[1.0, 0.3], [0.3, 2.0]])
    total = jax.jit(
        lambda K: jnp.sum(
            jnp.array([[1.0, 2.0], [0.0, 3.0]]) * kernax.gram(kernax.Precomputed(K), jnp.arange(2))
        )
    )
    assert_close(jax.grad(total)(jnp.asarray(K)), [[1.0, 1.0], [1.0, 3.0]])


@needs_x64
def test_a_precomputed_kernel_stores_the_symmetric_part_and_reads_an_entry_once():
    """Reading K[j, i] beside K[i, j] took four times as long, since it is far away in memory."""
    rounded = np.array([[1.0, 0.3], [0.3 + 1e-16, 2.0]])
    kernel = kernax.Precomputed(rounded)
    assert kernel.K[0, 1] == kernel.K[1, 0] == kernel(0, 1) == kernel(1, 0)
    assert kernel.is_mirrored
    gathers = str(jax.make_jaxpr(kernel)(0, 1)).count("gather[")
    assert gathers == 1


# K20: Herglotz


def test_herglotz_is_its_formula_and_circulant_with_the_transform_as_eigenvalues():
    """K20."""
    masses = np.array([0.4, 0.0, 1.3, 0.2, 0.7])
    n, j = np.arange(5), np.arange(5)
    K = matrix(kernax.kernels.Herglotz(masses), n)
    assert_close(K, np.cos(2 * np.pi * (n[:, None, None] - n[None, :, None]) * j / 5) @ masses)
    np.testing.assert_array_equal(K, np.array([[K[0, (b - a) % 5] for b in n] for a in n]))
    transform = np.fft.fft(K[0]).real
    assert_close(transform, 5 * (masses + masses[-j]) / 2)
    assert_close(np.sort(transform), np.linalg.eigvalsh(K), 10 * TOLERANCE["value"])
    F = np.exp(2j * np.pi * np.outer(n, j) / 5)
    assert_close(K @ F, F * transform, 10 * TOLERANCE["value"])


def test_herglotz_has_its_period_also_far_away_and_for_small_integer_types():
    kernel = kernax.kernels.Herglotz(np.array([0.4, 0.1, 1.3]))
    near = kernax.gram(kernel, np.array([0, 1, 2]))
    np.testing.assert_array_equal(kernax.gram(kernel, np.array([0, 1, 2]) + 3 * 10**8), near)
    np.testing.assert_array_equal(kernax.gram(kernel, np.array([0, 1, 2]) - 300), near)
    np.testing.assert_array_equal(kernax.gram(kernel, np.array([0, 1, 2], np.uint8)), near)
    assert kernel.is_stationary
    assert not kernel.is_homogeneous


@needs_x64
def test_a_negative_mass_is_refused():
    """K20."""
    with pytest.raises(ValueError, match=r"Herglotz\.masses must be in \[0, inf\)"):
        kernax.kernels.Herglotz(np.array([0.4, -0.1]))


@needs_x64
def test_masses_that_are_no_vector_are_refused():
    with pytest.raises(ValueError, match=r"masses must have shape \(N,\)"):
        kernax.kernels.Herglotz(np.ones((2, 2)))


# Exchangeable categories


def test_categories_have_the_covariance_of_one_common_and_one_own_effect_each():
    categories = np.array([3, -1, 3, 200, 0])
    kernel = kernax.kernels.Exchangeable(0.3)
    same = categories[:, None] == categories[None]
    # f(s) = sqrt(0.3) common + sqrt(0.7) own_s
    expected = 0.3 + 0.7 * same
    np.testing.assert_array_equal(kernax.gram(kernel, categories), np.where(same, 1, DTYPE(0.3)))
    assert_close(kernax.gram(kernel, categories), expected)
    low_rank = kernax.kernels.Coregionalisation(np.full((4, 1), 0.3**0.5), np.full(4, 0.7))
    assert_close(kernax.gram(kernel, np.arange(4)), low_rank.matrix)


def test_the_correlation_of_categories_is_learned_in_a_product_with_another_kernel():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(12, 1)).astype(DTYPE), np.arange(12) % 3
    y = np.sin(X[0][:, 0]) + 0.1 * X[1].astype(DTYPE)

    def evidence(correlation):
        categories = kernax.kernels.Exchangeable(correlation)
        kernel = kernax.On(kernax.RBF(), 0) * kernax.On(categories, 1)
        return kernax.log_marginal_likelihood(kernel, X, y, 0.1)

    def dense(correlation):
        same = X[1][:, None] == X[1][None]
        R = np.exp(-((X[0] - X[0].T) ** 2) / 2) * np.where(same, 1, correlation)
        T = R.astype(np.float64) + 0.1 * np.eye(12)
        terms = y @ np.linalg.solve(T, y), np.linalg.slogdet(T)[1], 12 * np.log(2 * np.pi)
        return -sum(terms) / 2

    value, slope = jax.value_and_grad(evidence)(jnp.asarray(0.4, DTYPE))
    assert_close(value, dense(0.4), 10 * TOLERANCE["value"])
    quotient = (dense(0.4 + 1e-5) - dense(0.4 - 1e-5)) / 2e-5
    assert_close(slope, quotient, 100 * TOLERANCE["value"])


@needs_x64
def test_what_is_no_correlation_or_no_category_is_refused():
    with pytest.raises(ValueError, match=r"Exchangeable\.correlation must be in \[0, 1\]"):
        kernax.kernels.Exchangeable(-0.1)
    with pytest.raises(ValueError, match=r"integers, X of shape \(n,\), but a point is of shape"):
        kernax.gram(kernax.kernels.Exchangeable(), np.ones((3, 1)))
