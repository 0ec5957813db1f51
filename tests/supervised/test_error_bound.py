"""Bounds on the error of a fitted function, against the exact minimiser in double precision."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, assert_close, needs_x64, untyped

import kernax
from kernax.losses import Huber, Logistic
from kernax.solvers import error_bound

N = 12
KERNELS = {"smooth": kernax.RBF, "rough": kernax.Matern12}


def exact_gram(name, X, Z, lengthscale):
    s = ((X[:, None] - Z[None]) ** 2).sum(-1) / lengthscale**2
    return np.exp(-s / 2) if name == "smooth" else np.exp(-np.sqrt(s))


def exact_coefficients(K, y, ridge, w, bias):
    """Of ridge regression, in NumPy: `M S^-1 a = S (y - b)`, and `sum a = 0` with a bias."""
    S = np.sqrt(w)
    M = S[:, None] * K * S[None] + ridge * np.eye(len(w))
    of_y, of_one = S * np.linalg.solve(M, np.stack([S * y, S], 1)).T
    return of_y - of_one * of_y.sum() / of_one.sum() if bias else of_y


def norm_of(K, a):
    return np.sqrt(max(a @ K @ a, 0))


def an_expansion(kernel, points, a, bias=0.0):
    return kernax.KernelExpansion(kernel, points, jnp.asarray(a), jnp.asarray(bias, DTYPE))


def a_problem(rng):
    X = rng.normal(size=(N, 2)).astype(DTYPE)
    y = (np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=N)).astype(DTYPE)
    w = rng.uniform(0.3, 2, size=N).astype(DTYPE)
    w[3] = 0
    lengthscale = DTYPE(10 ** rng.uniform(-0.5, 0.7))
    ridge = DTYPE(10 ** rng.uniform(-3, 1))
    return X, y, w, lengthscale, ridge


@pytest.mark.slow
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_no_error_exceeds_its_bound(name, bias, rng):
    """Of perturbed solutions and of functions with fewer points: in norm, and at a new point."""
    ratios = []
    for trial in range(30):
        X, y, w, lengthscale, ridge = a_problem(rng)
        kernel = KERNELS[name](lengthscale)
        wide = lambda A: np.asarray(A, np.float64)
        K = exact_gram(name, wide(X), wide(X), wide(lengthscale))
        best = exact_coefficients(K, wide(y), wide(ridge), wide(w), bias)
        centres = X[:5] + DTYPE(0.01)
        if trial % 3 == 2:
            a = DTYPE(0.3) * rng.normal(size=5).astype(DTYPE)
            points = centres
        else:
            a = (best * (1 + 10 ** rng.uniform(-3, 0) * rng.normal(size=N))).astype(DTYPE)
            points = X
        f = an_expansion(kernel, points, a, 0.1 if bias else 0.0)
        bound = error_bound(f, X, y, ridge, weights=w, bias=bias)
        both = wide(np.concatenate([points, X]))
        difference = np.concatenate([wide(a), -best])
        error = norm_of(exact_gram(name, both, both, wide(lengthscale)), difference)
        x = rng.normal(size=2).astype(DTYPE)
        at = exact_gram(name, wide(x)[None], both, wide(lengthscale))[0] @ difference
        assert error <= bound.norm
        assert abs(at) <= bound(x)
        ratios.append(float(bound.norm) / error)
    assert np.median(ratios) < 1.5  # 1.02 to 1.06 were measured


def test_the_bound_of_one_point_is_its_error():
    """Without a correction the ratio is `(k + ridge) / (2 sqrt(k ridge))`, which shows any wrong
    factor, and with one it is one.
    """
    for ridge, factor in ((1.0, 1), (0.01, 101 / 20)):
        f = an_expansion(kernax.RBF(), np.zeros((1, 1), DTYPE), np.asarray([0.7], DTYPE))
        error = abs(0.7 - 1 / (1 + ridge))
        call = partial(error_bound, f, np.zeros((1, 1), DTYPE), np.ones(1, DTYPE), ridge)
        assert_close(call(max_steps=0).norm, factor * error, 1e-5 if X64 else 0.01)
        assert_close(call().norm, error, 1e-5 if X64 else 0.01)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("loss", [Logistic(), Huber(0.3)])
def test_losses_other_than_squares_have_a_bound_too(loss, rng):
    X, y, w, lengthscale, _ = a_problem(rng)
    y = np.sign(y) if isinstance(loss, Logistic) else y
    kernel = kernax.RBF(lengthscale)
    K = exact_gram("smooth", X, X, lengthscale)
    for bias in (False, True):
        best = kernax.regularised_risk(kernel, X, y, 0.5, loss=loss, weights=w, bias=bias).value
        for size in (1e-6, 1e-2, 1.0):
            a = best.coefficients + size * rng.normal(size=N)
            f = kernax.KernelExpansion(kernel, X, a, best.bias)
            bound = error_bound(f, X, y, 0.5, loss=loss, weights=w, bias=bias)
            error = norm_of(K, np.asarray(a - best.coefficients))
            assert error <= bound.norm <= 3 * error  # 1.02 to 2.2 were measured


@pytest.mark.slow
@needs_x64
def test_a_fit_has_a_bound_near_rounding_and_one_of_falkon_is_larger(rng):
    X, y, w, lengthscale, _ = a_problem(rng)
    kernel = kernax.RBF(lengthscale)
    f = kernax.kernel_ridge(kernel, X, y, 0.1, weights=w).value
    assert error_bound(f, X, y, 0.1, weights=w).norm < 1e-12
    over_centres = kernax.falkon(kernel, X, y, 0.1, X[:5], weights=w).value
    error = (f - over_centres).norm
    assert (
        error <= error_bound(over_centres, X, y, 0.1, weights=w).norm <= 30 * error
    )  # 10.8 was measured


@pytest.mark.slow
def test_columns_jit_and_vmap_give_the_bounds_of_single_calls(rng):
    X, y, w, lengthscale, ridge = a_problem(rng)
    kernel = kernax.RBF(lengthscale)
    Y = np.stack([y, 2 * y, np.cos(y)], 1)
    coefficients = jnp.asarray(rng.normal(size=(N, 3)), DTYPE)

    def norm(a, y, X):
        f = kernax.KernelExpansion(kernel, X, a, jnp.zeros_like(a[0]))
        return error_bound(f, X, y, ridge, weights=w).norm

    alone = [norm(a, y, X) for a, y in zip(coefficients.T, Y.T)]
    assert_close(norm(coefficients, Y, X), alone, 1e-5)
    # A sum over the points of f and those of the problem rounds more: 1e-8, and 3e-4 in float32.
    assert_close(jax.jit(norm)(coefficients, Y, X), alone, 1e-7 if X64 else 1e-3)
    assert_close(jax.vmap(partial(norm, X=X))(coefficients.T, Y.T), alone, 1e-5)
    f = kernax.KernelExpansion(kernel, X, coefficients, jnp.zeros(3, DTYPE))
    bound = error_bound(f, X, Y, ridge, weights=w)
    assert bound.values(X[:4]).shape == (4, 3)
    assert_close(bound.values(X[:4])[2], bound(X[2]), 1e-6)
    unknown = an_expansion(kernel, X, np.full(N, np.nan, DTYPE))
    assert np.isnan(error_bound(unknown, X, y, ridge).norm)


@needs_x64
def test_targets_in_other_units_have_the_bound_in_these(rng):
    X, y, w, lengthscale, ridge = a_problem(rng)
    a = rng.normal(size=N)
    for bias in (False, True):
        norms = [
            error_bound(
                an_expansion(kernax.RBF(lengthscale), X, c * a),
                *(X, c * y, ridge),
                weights=w,
                bias=bias,
            ).norm
            / c
            for c in (1.0, 2.0**600, 2.0**-600)
        ]
        assert_close(norms, norms[0] * np.ones(3), 1e-12)


@needs_x64
def test_what_has_no_bound_is_refused_by_name(rng):
    X, y, *_ = a_problem(rng)
    f = an_expansion(kernax.RBF(), X, y)
    with pytest.raises(ValueError, match=r"\|f - f\*\| <= sqrt\(2 gap\)"):
        error_bound(f, X, np.sign(y), 1.0, loss=kernax.losses.Hinge())
    with pytest.raises(ValueError, match="error_bound needs a convex loss"):
        error_bound(f, X, y, 1.0, loss=kernax.likelihoods.StudentT(4.0, 1.0))
    with pytest.raises(ValueError, match="f must be a KernelExpansion"):
        untyped(error_bound)(lambda x: x, X, y, 1.0)
    with pytest.raises(ValueError, match=r"a column for each output of f, \(\), but has shape"):
        error_bound(f, X, np.stack([y, y], 1), 1.0)
    with pytest.raises(ValueError, match="f has a bias: pass bias=True"):
        error_bound(an_expansion(kernax.RBF(), X, y, 0.1), X, y, 1.0)
    biased = jax.jit(lambda b: error_bound(an_expansion(kernax.RBF(), X, y, b), X, y, 1.0).norm)
    assert np.isinf(biased(0.1))
    assert np.isfinite(biased(0.0))
    with pytest.raises(ValueError, match="ridge must be"):
        error_bound(f, X, y, 0.0)
