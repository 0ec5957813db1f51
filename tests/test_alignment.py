"""Kernel-target alignment, and sums of kernels by it: value, gradient, jit, vmap, weights, bad
input.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, check_derivatives, needs_x64
from scipy.optimize import nnls

import kernax

RBF = kernax.RBF(1.3)
N = 18


@pytest.fixture
def data(rng):
    X = rng.normal(size=(N, 3)).astype(DTYPE)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=N) > 0.2, 1.0, -1.0).astype(DTYPE)
    return X, y, rng.integers(0, 3, size=N).astype(DTYPE)


def by_hand(kernel, X, Y, centred):
    Y = np.reshape(Y, (len(Y), -1))
    H = np.eye(len(X)) - centred / len(X)
    K = H @ np.asarray(kernax.gram(kernel, X)) @ H
    L = H @ Y @ Y.T @ H
    return np.sum(K * L) / np.linalg.norm(K) / np.linalg.norm(L)


@pytest.mark.parametrize("centred", [True, False])
def test_alignment_is_the_cosine_of_two_matrices_of_repeated_rows(centred, data):
    X, y, weights = data
    rows = np.repeat(np.arange(N), weights.astype(int))
    classes = np.eye(3, dtype=DTYPE)[np.arange(N) % 3]
    for Y in (y, classes)[: 2 if centred else 1]:
        ours = kernax.alignment(RBF, X, Y, centred=centred, weights=weights)
        expected = by_hand(RBF, X[rows], Y[rows], centred)
        np.testing.assert_allclose(ours, expected, rtol=1e-12 if X64 else 1e-4)


@needs_x64
def test_alignment_is_a_normalised_hsic(data):
    X, y, _ = data
    of_targets = kernax.Linear()
    hsic = lambda a, A, b, B: kernax.samples.hsic(a, b, A, B)
    Z = y[:, None]
    both = hsic(RBF, X, of_targets, Z)
    alone = np.sqrt(hsic(RBF, X, RBF, X) * hsic(of_targets, Z, of_targets, Z))
    np.testing.assert_allclose(kernax.alignment(RBF, X, y), both / alone, rtol=1e-12)


@needs_x64
def test_alignment_does_not_know_units_nor_constants(data):
    X, y, weights = data
    plain = kernax.alignment(RBF, X, y, weights=weights)
    for kernel, targets in (
        (1e200 * RBF, 1e-200 * y),
        (RBF + 3.0, y + 5.0),
        (kernax.Precomputed(np.outer(y, y)), y),
    ):
        points = np.arange(N) if isinstance(kernel, kernax.Precomputed) else X
        expected = 1.0 if isinstance(kernel, kernax.Precomputed) else plain
        ours = kernax.alignment(kernel, points, targets, weights=weights)
        np.testing.assert_allclose(ours, expected, rtol=1e-11)


@needs_x64
def test_derivatives_of_alignment_are_exact_also_at_weights_of_zero(data):
    X, y, weights = map(jnp.asarray, data)

    def value(lengthscale, X, y, weights):
        return kernax.alignment(kernax.RBF(lengthscale), X, y, weights=weights)

    arguments = (jnp.array([0.8, 1.0, 1.4]), X, y)
    check_derivatives(lambda *args: value(*args, weights), arguments, rtol=1e-6, atol=1e-9)
    in_weights = jax.jit(lambda w: value(*arguments, w))
    gradient = jax.grad(in_weights)(weights)
    i = int(np.flatnonzero(data[2] == 0)[0])
    ahead = [in_weights(weights.at[i].set(steps * 1e-4)) for steps in range(3)]
    np.testing.assert_allclose(
        gradient[i], (-3 * ahead[0] + 4 * ahead[1] - ahead[2]) / 2e-4, rtol=1e-5
    )


@needs_x64
def test_many_alignments_are_one_program(data):
    X, y, weights = data
    chex.clear_trace_counter()
    at = lambda scale: kernax.alignment(kernax.RBF(scale), X, y, weights=weights)
    of = chex.assert_max_traces(at, 1)
    together = jax.jit(jax.vmap(of))
    values = together(jnp.array([0.5, 1.3]))
    together(jnp.array([0.7, 1.0]))
    np.testing.assert_allclose(values[1], kernax.alignment(RBF, X, y, weights=weights), rtol=1e-12)


def kernels_of_columns():
    return [kernax.On(kernax.RBF(scale), [j]) for scale, j in ((1.0, 0), (1.0, 1), (0.3, 0))]


@needs_x64
def test_the_aligned_sum_solves_the_programme_of_scipy(data):
    X, y, weights = data
    kernels = [10.0 * kernels_of_columns()[0], *kernels_of_columns()[1:]]
    rows = np.repeat(np.arange(N), weights.astype(int))
    H = np.eye(len(rows)) - 1 / len(rows)
    grams = [H @ np.asarray(kernax.gram(kernel, X[rows])) @ H for kernel in kernels]
    flat = np.stack([K.ravel() for K in grams], 1)
    expected, _ = nnls(flat, np.outer(H @ y[rows], H @ y[rows]).ravel())
    found = kernax.aligned_sum(kernels, X, y, weights=weights)
    scales = np.array([term.scale for term in found.terms])
    np.testing.assert_allclose(scales, expected / expected.sum(), rtol=1e-8, atol=1e-12)
    assert np.any(scales == 0)
    assert kernax.alignment(found, X, y, weights=weights) >= max(
        kernax.alignment(kernel, X, y, weights=weights) for kernel in kernels
    )


@needs_x64
def test_targets_or_kernels_that_say_nothing_are_refused(data):
    X, y, weights = data
    with pytest.raises(ValueError, match="y holds the same value for all points"):
        kernax.alignment(RBF, X, np.where(weights > 0, 2.0, y), weights=weights)
    assert np.isfinite(kernax.alignment(RBF, X, np.ones(N), centred=False))
    with pytest.raises(ValueError, match="kernels must hold at least one kernel"):
        kernax.aligned_sum([], X, y)
    with pytest.raises(ValueError, match=r"y must have shape \(18,\)"):
        kernax.alignment(RBF, X, y[:3])
    assert np.isnan(kernax.alignment(kernax.Constant(1.1), X, y))
