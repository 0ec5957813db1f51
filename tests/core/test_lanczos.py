"""The bracket of a log determinant by Lanczos's method: it contains the exact mean over the same
vectors, computed from eigenvalues in NumPy.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from conftest import DTYPE, X64, assert_close, needs_x64

import kernax
from kernax.core.base.weights import PointWeights
from kernax.core.linalg.lanczos import AbstractLanczos, log_determinant_by_probes
from kernax.core.operators.operators import DenseGram, WeightedForm
from kernax.solvers import (
    ConjugateGradient,
    NystromPreconditioner,
    PivotedCholesky,
    StochasticLanczos,
)

KEY = jax.random.key(0)
N, COUNT = 32, 60
PRECONDITIONERS = {
    "none": None,
    "nystrom": NystromPreconditioner(KEY),
    "pivots": PivotedCholesky(KEY, rank=6, block_size=6),
    "all pivots": PivotedCholesky(KEY, rank=N, block_size=8),
}
SMALL = jnp.asarray([[2.0, 0.5], [0.5, 1.0]], DTYPE)


class Hadamard(AbstractLanczos):
    """Probes `z` with `mean z z^T = I`: the sampling has no error."""

    n_steps: int = eqx.field(static=True, default=4)

    def signs(self, n, dtype):
        return jnp.asarray(scipy.linalg.hadamard(n), dtype)


@functools.partial(jax.jit, static_argnames="steps")
def of_diagonal(values, Z, steps, least=0.0):
    """The estimate for a diagonal matrix: one program, instead of some hundred of one operation."""
    return log_determinant_by_probes(lambda v: values * v, Z, steps, least)


def problems(seed):
    """Batches of points, variances over twelve orders of magnitude, noises and weights, some of
    them zero.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(COUNT, N, 2))
    variances = 10 ** rng.uniform(-6, 6, COUNT)
    noises = variances[:, None] * 10 ** rng.uniform(-4, 1, (COUNT, 1)) * rng.uniform(1, 2, N)
    weights = rng.uniform(0.3, 2, (COUNT, N)) * (rng.uniform(size=(COUNT, N)) > 0.1)
    return [a.astype(DTYPE) for a in (X, variances, noises, weights)]


@functools.partial(jax.jit, static_argnames="steps")
def estimates(preconditioner, given, steps):
    """Estimates for a batch of problems, with the probes and the preconditioners."""

    def one(X, variance, noise, weights):
        K = kernax.gram(variance * kernax.Matern32(1.0), X)
        form = WeightedForm(DenseGram(K), PointWeights(weights), noise)
        lanczos = StochasticLanczos(KEY, n_probes=4, n_steps=steps)
        solver = ConjugateGradient(preconditioner=preconditioner, determinant=lanczos)
        factor = solver.init(form, {})
        near = factor.preconditioner
        known = jnp.zeros((), DTYPE) if near is None else near.log_determinant()
        return factor.determinant, near, known

    return jax.vmap(one)(*given)


def exact_means(given, probes, near):
    """The means of `z.log(L^-1 M L^-T) z` in double precision."""
    means = []
    for i, (X, variance, noise, weights) in enumerate(zip(*[np.asarray(a, float) for a in given])):
        r = np.sqrt(3 * ((X[:, None] - X[None]) ** 2).sum(-1))
        S = np.sqrt(weights)
        M = S[:, None] * variance * (1 + r) * np.exp(-r) * S + np.diag(noise)
        if near is not None:
            Q, inverse, root = (
                np.asarray(a[i], float) for a in (near.basis, near.inverse, near.root)
            )
            L_inverse = (np.eye(N) + Q @ (inverse - np.eye(len(inverse))) @ Q.T) / root
            M = L_inverse @ M @ L_inverse.T
        values, vectors = np.linalg.eigh(M)
        squares = (vectors.T @ np.asarray(probes[i], float)) ** 2
        means.append(np.mean(squares.T @ np.log(values)))
    return np.array(means)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("none", 4),
        ("pivots", 6),
        pytest.param("nystrom", 6, marks=pytest.mark.slow),
        pytest.param("none", 16, marks=pytest.mark.slow),
        pytest.param("pivots", 16, marks=pytest.mark.slow),
        pytest.param("all pivots", 4, marks=pytest.mark.slow),
    ],
)
def test_the_exact_mean_over_the_same_probes_is_in_the_bracket(name, steps):
    given = problems(steps)
    determinant, near, known = estimates(PRECONDITIONERS[name], given, steps)
    found = determinant.logarithm
    exact = exact_means(given, determinant.signs, near)
    off = np.abs(np.asarray(found.value - known, float) - exact)
    # The sum of the value and a known number is rounded.
    rounding = 4 * np.finfo(DTYPE).eps * np.abs(known)
    assert np.all(np.isfinite(found.bias_bound))
    assert np.all(off <= found.bias_bound + rounding)


@pytest.mark.slow
@needs_x64
def test_the_bracket_shrinks_with_steps():
    """Ones and a diagonal matrix have no sampling error: all of the error is that of quadrature."""
    values = jnp.asarray(np.logspace(0, 3, 60))
    Z = jnp.ones((60, 2))
    exact = float(jnp.sum(jnp.log(values)))
    bounds = []
    for steps in (1, 8, 16, 32):
        found = of_diagonal(values, Z, steps, 1.0)
        assert abs(found.value - exact) <= found.bias_bound < np.inf
        assert found.standard_error < 1e-6
        bounds.append(float(found.bias_bound))
    # Measured: 9.2, 1.26 and 0.005 from 8 steps on, where the errors are 1.2, 0.09 and 0.0007.
    assert bounds[0] > bounds[1] > 4 * bounds[2] > 400 * bounds[3]


@pytest.mark.parametrize("least", [0.0, 0.5])
def test_with_as_many_steps_as_points_nothing_but_rounding_is_left(least):
    values = jnp.asarray(np.linspace(0.5, 3, 6), DTYPE)
    Z = StochasticLanczos(KEY, n_probes=3).signs(6, DTYPE)
    found = of_diagonal(values, Z, 9, DTYPE(least))
    tolerance = 1e-12 if X64 else 3e-4
    assert found.bias_bound < tolerance
    assert abs(found.value - np.sum(np.log(values))) <= found.bias_bound


@needs_x64
def test_without_a_lower_end_of_the_spectrum_the_bias_is_unknown():
    """Gauss quadrature remains, which is above."""
    values = jnp.arange(1.0, 101)
    Z = StochasticLanczos(KEY).signs(100, values.dtype)
    found = of_diagonal(values, Z, 6)
    assert found.bias_bound == np.inf
    assert found.value > jnp.sum(jnp.log(values))
    assert found.standard_error < 1e-8


def test_a_matrix_that_is_not_positive_definite_has_no_estimate():
    Z = jnp.asarray([[1.0, 1.0], [1.0, -1.0]], DTYPE)
    of = jax.jit(lambda M: log_determinant_by_probes(lambda v: M @ v, Z, 2, DTYPE(0.1)))
    for entry in (-3.0, np.nan):
        found = of(SMALL.at[1, 1].set(entry))
        assert np.isnan(found.value)
        assert np.isnan(found.bias_bound)
        assert np.isnan(found.standard_error)


@pytest.mark.slow
@needs_x64
def test_stats_of_a_process_have_the_bias_bound_of_all_outputs():
    rng = np.random.default_rng(1)
    X, Y = rng.normal(size=(N, 2)), rng.normal(size=(N, 2))
    solver = ConjugateGradient(determinant=Hadamard())
    one = kernax.condition(kernax.RBF(), X, Y[:, 0], 0.1, solver=solver).stats
    both = kernax.condition(kernax.RBF(), X, Y, 0.1, solver=solver).stats
    exact = kernax.log_marginal_likelihood(kernax.RBF(), X, Y, 0.1)
    assert_close(both["bias_bound"], 2 * one["bias_bound"], 1e-12)
    assert abs(both["log_evidence"] - exact) <= both["bias_bound"] < 10
    # Without the other half of the bound it would not be one.
    assert abs(both["log_evidence"] - exact) > 1e-3
