"""The Gaussian of a kernel and centring, against what they do to Gram matrices; random trees are in
test_closure.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, assert_close, matrix, needs_x64

import kernax

RNG = np.random.default_rng(3)
LINE = np.array([[0.15], [0.4], [0.55], [0.9]], DTYPE)
PLANE = RNG.normal(size=(5, 2)).astype(DTYPE)


def test_a_gaussian_of_the_linear_kernel_is_the_gaussian():
    """K5."""
    beta = 0.8
    assert_close(
        matrix(kernax.kernels.GaussianOf(kernax.Linear(), beta), PLANE),
        matrix(kernax.RBF(1 / np.sqrt(2 * beta)), PLANE),
    )


def test_a_gaussian_of_any_kernel_is_that_of_its_distance():
    """K5."""
    K = matrix(kernax.Polynomial(2, 0.5), PLANE)
    distance = np.diagonal(K)[:, None] + np.diagonal(K)[None] - 2 * K
    assert_close(
        matrix(kernax.kernels.GaussianOf(kernax.Polynomial(2, 0.5), 0.3), PLANE),
        np.exp(-0.3 * distance),
        50 * TOLERANCE["value"],
    )
    brownian = matrix(kernax.kernels.GaussianOf(kernax.kernels.Brownian(), 2.0), LINE)
    assert_close(brownian, np.exp(-2 * np.abs(LINE - LINE.T).astype(float)))


def test_a_gaussian_of_a_distance_that_rounds_below_zero_is_one():
    far = jnp.array([1e3, 1.0], DTYPE)
    wrong = kernax.Custom(
        lambda _, x, z: jnp.dot(x, z) + jnp.where(x[1] == z[1], 0, 1).astype(x.dtype) * 1e-3
    )
    assert (
        float(kernax.kernels.GaussianOf(wrong, 1.0)(far, far.at[1].add(1e-6 if X64 else 1e-4)))
        == 1.0
    )


@needs_x64
def test_a_gaussian_of_a_kernel_has_the_right_hessian_where_points_coincide():
    x = jnp.asarray(PLANE[0])
    of = lambda kernel: jax.jit(jax.hessian(lambda x, z: kernel(x, z)))(x, x)
    assert_close(of(kernax.kernels.GaussianOf(kernax.Linear(), 0.5)), of(kernax.RBF(1.0)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "base", [kernax.Polynomial(2, 0.5), kernax.Matern32()], ids=["polynomial", "matern32"]
)
def test_a_centred_gram_matrix_is_that_centred_from_both_sides(base):
    H = np.eye(5) - 1 / 5
    assert_close(matrix(kernax.kernels.Centred(base, PLANE), PLANE), H @ matrix(base, PLANE) @ H)
    few = PLANE[:2] + 1
    K, across, among = matrix(base, few), matrix(base, few, PLANE), matrix(base, PLANE)
    reference = K - across.mean(1)[:, None] - across.mean(1)[None] + among.mean()
    assert_close(
        matrix(kernax.kernels.Centred(base, PLANE), few), reference, 10 * TOLERANCE["value"]
    )


@needs_x64
def test_bad_pieces_of_combinators_are_refused_by_name():
    with pytest.raises(ValueError, match="kernel must be a kernel"):
        kernax.kernels.GaussianOf(kernax.RBF, 1.0)
    with pytest.raises(ValueError, match=r"GaussianOf\.beta must be in \(0, inf\)"):
        kernax.kernels.GaussianOf(kernax.RBF(), 0.0)
    with pytest.raises(ValueError, match="selects one part of a point, but the parts of this one"):
        kernax.gram(kernax.On(kernax.RBF(), slice(0, 1)), {"a": np.eye(2, dtype=DTYPE)})
    with pytest.raises(ValueError, match="points holds NaN or inf, first in row 1"):
        kernax.kernels.Centred(kernax.RBF(), np.array([[0.0], [np.nan]], DTYPE))
