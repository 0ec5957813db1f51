"""Kernel-target alignment, and sums of kernels by it: value, gradient, jit, vmap, weights, bad
input.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import DTYPE, TOLERANCE, X64, needs_x64, real_data
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
        ours = kernax.selection.alignment(RBF, X, Y, centred=centred, weights=weights)
        expected = by_hand(RBF, X[rows], Y[rows], centred)
        np.testing.assert_allclose(ours, expected, rtol=1e-12 if X64 else 1e-4)


@pytest.mark.parametrize("far", [1e3, 1e8 if X64 else 1e4])
def test_a_row_of_weight_zero_does_not_choose_the_units(far, data):
    """Beside it everything else was rounding, and the alignment NaN."""
    X, y, weights = data
    weights = np.append(weights, 0).astype(DTYPE)
    X_far = np.vstack([X, np.full((1, 3), far, DTYPE)])
    y_far = np.append(y, -far).astype(DTYPE)
    expected = kernax.selection.alignment(kernax.Linear(), X, y, weights=weights[:-1])
    found = kernax.selection.alignment(kernax.Linear(), X_far, y_far, weights=weights)
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE["value"])
    kernels = kernax.Linear(), kernax.Polynomial(2, 1.0)
    alone = kernax.selection.aligned_sum(kernels, X, y, weights=weights[:-1])
    beside = kernax.selection.aligned_sum(kernels, X_far, y_far, weights=weights)
    for a, b in zip(alone.terms, beside.terms):
        scales = a.scale, b.scale  # pyright: ignore[reportAttributeAccessIssue]
        np.testing.assert_allclose(*scales, atol=TOLERANCE["solve"])


@needs_x64
def test_alignment_is_a_normalised_hsic(data):
    X, y, _ = data
    of_targets = kernax.Linear()
    hsic = lambda a, A, b, B: kernax.samples.hsic(a, b, A, B)
    Z = y[:, None]
    both = hsic(RBF, X, of_targets, Z)
    alone = np.sqrt(hsic(RBF, X, RBF, X) * hsic(of_targets, Z, of_targets, Z))
    np.testing.assert_allclose(kernax.selection.alignment(RBF, X, y), both / alone, rtol=1e-12)


@needs_x64
def test_alignment_does_not_know_units_nor_constants(data):
    X, y, weights = data
    plain = kernax.selection.alignment(RBF, X, y, weights=weights)
    for kernel, targets in (
        (1e200 * RBF, 1e-200 * y),
        (RBF + 3.0, y + 5.0),
        (kernax.Precomputed(np.outer(y, y)), y),
    ):
        points = np.arange(N) if isinstance(kernel, kernax.Precomputed) else X
        expected = 1.0 if isinstance(kernel, kernax.Precomputed) else plain
        ours = kernax.selection.alignment(kernel, points, targets, weights=weights)
        np.testing.assert_allclose(ours, expected, rtol=1e-11)


@pytest.mark.parametrize("unit", [1e-20, 1e20] if not X64 else [1e-170, 1e170])
def test_alignment_does_not_know_the_unit_of_weights(unit, data):
    """Products of two weights left the range of floats: every kernel was constant."""
    X, y, weights = data
    kernels = kernels_of_columns()
    far = (unit * weights).astype(DTYPE)
    plain = kernax.selection.alignment(RBF, X, y, weights=weights)
    found = kernax.selection.alignment(RBF, X, y, weights=far)
    np.testing.assert_allclose(found, plain, rtol=TOLERANCE["value"])
    alone = kernax.selection.aligned_sum(kernels, X, y, weights=weights)
    beside = kernax.selection.aligned_sum(kernels, X, y, weights=far)
    for a, b in zip(alone.terms, beside.terms):
        scales = a.scale, b.scale  # pyright: ignore[reportAttributeAccessIssue]
        np.testing.assert_allclose(*scales, atol=TOLERANCE["solve"])


def test_alignment_is_learned_of_targets_that_a_compiled_loss_closes_over(data):
    """Known targets were read as a column of them, which is traced inside of jit."""
    X, y, _ = (jnp.asarray(part) for part in data)
    value = lambda lengthscale: kernax.selection.alignment(kernax.RBF(lengthscale), X, y)
    np.testing.assert_allclose(jax.jit(value)(1.3), value(1.3), rtol=TOLERANCE["value"])
    loss = lambda kernel: -kernax.selection.alignment(kernel, X, y)
    assert kernax.minimise(loss, RBF, optax.adam(0.1), 3).stats["loss"] < loss(RBF)


def kernels_of_columns():
    return [kernax.On(kernax.RBF(scale), [j]) for scale, j in ((1.0, 0), (1.0, 1), (0.3, 0))]


@pytest.mark.slow
@needs_x64
def test_the_aligned_sum_solves_the_programme_of_scipy(data):
    X, y, weights = data
    kernels = [10.0 * kernels_of_columns()[0], *kernels_of_columns()[1:]]
    rows = np.repeat(np.arange(N), weights.astype(int))
    H = np.eye(len(rows)) - 1 / len(rows)
    grams = [H @ np.asarray(kernax.gram(kernel, X[rows])) @ H for kernel in kernels]
    flat = np.stack([K.ravel() for K in grams], 1)
    expected, _ = nnls(flat, np.outer(H @ y[rows], H @ y[rows]).ravel())
    found: Any = kernax.selection.aligned_sum(kernels, X, y, weights=weights)
    scales = np.array([term.scale for term in found.terms])
    np.testing.assert_allclose(scales, expected / expected.sum(), rtol=1e-8, atol=1e-12)
    assert np.any(scales == 0)
    assert kernax.selection.alignment(found, X, y, weights=weights) >= max(
        kernax.selection.alignment(kernel, X, y, weights=weights) for kernel in kernels
    )


@needs_x64
def test_targets_or_kernels_that_say_nothing_are_refused(data):
    X, y, weights = data
    with pytest.raises(ValueError, match="y holds the same value for all points"):
        kernax.selection.alignment(RBF, X, np.where(weights > 0, 2.0, y), weights=weights)
    assert np.isfinite(kernax.selection.alignment(RBF, X, np.ones(N), centred=False))
    with pytest.raises(ValueError, match="kernels must hold at least one kernel"):
        kernax.selection.aligned_sum([], X, y)
    with pytest.raises(ValueError, match="kernels must vary with the targets, but none does"):
        kernax.selection.aligned_sum([kernax.Constant(1.0)], X, y)
    with pytest.raises(ValueError, match=r"y must have shape \(18,\)"):
        kernax.selection.alignment(RBF, X, y[:3])
    with pytest.raises(ValueError, match="Constant is constant over X up to rounding"):
        kernax.selection.alignment(kernax.Constant(1.1), X, y)
    with pytest.raises(ValueError, match="Scaled is zero over X"):
        kernax.selection.alignment(0.0 * RBF, X, y, centred=False)
    traced = jax.jit(lambda scale: kernax.selection.alignment(scale * RBF, X, y))
    assert np.isnan(traced(0.0))


ADAM = optax.adam(0.1)


def left_out(model, X, y):
    return jnp.mean(kernax.leave_one_out(model.kernel, X, y, model.ridge, bias=True) ** 2)


def with_irrelevant_columns(seed):
    """150 rows of concrete to learn from and the others, beside its columns each of them shuffled;
    standardised by the rows to learn from.
    """
    concrete = real_data("concrete")
    X = concrete["X"].astype(DTYPE)
    y = ((concrete["y"] - concrete["y"].mean()) / concrete["y"].std()).astype(DTYPE)
    rng = np.random.default_rng(seed)
    X = np.hstack([X, np.stack([rng.permutation(column) for column in X.T], 1)])
    order = rng.permutation(len(y))
    rows, others = order[:150], order[150:]
    X = (X - X[rows].mean(0)) / X[rows].std(0)
    return jnp.asarray(X[rows]), jnp.asarray(y[rows]), X[others], y[others]


@needs_x64
@pytest.mark.nightly
def test_learned_weights_of_columns_beat_equal_ones_where_half_of_the_columns_are_irrelevant():
    """Squared errors of rows not seen, measured: equal 0.25, 0.24, 0.25; learned 0.21, 0.19, 0.21.

    By alignment alone, irrelevant columns get less than a tenth of all weight.
    """
    kernels = [kernax.On(kernax.RBF(1.0), [j]) for j in range(16)]
    equal = sum((kernel * (1 / 16) for kernel in kernels[1:]), kernels[0] * (1 / 16))
    start = kernax.Model(equal, ridge=0.1)
    learns = {"ridge": ("ridge",), "all": ("ridge", "scale")}
    for seed in range(3):
        X, y, X_new, y_new = with_irrelevant_columns(seed)
        errors = {}
        for name, ends in learns.items():
            trainable = lambda path, value, ends=ends: path.endswith(ends)
            model = kernax.minimise(
                left_out, start, ADAM, 40, args=(X, y), trainable=trainable
            ).value
            f = kernax.kernel_ridge(model.kernel, X, y, model.ridge, bias=True).value
            errors[name] = float(jnp.mean((f.values(X_new) - y_new) ** 2))
        assert errors["all"] < 0.9 * errors["ridge"]
        found: Any = kernax.selection.aligned_sum(kernels, X, y)
        scales = [float(term.scale) for term in found.terms]
        assert sum(scales[:8]) > 0.9
