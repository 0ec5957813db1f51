"""Solvers along a line, on a grid and by products give the answers of the Cholesky factor."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, assert_close, marked, needs_x64

import kernax
from kernax import RBF, Matern32
from kernax.errors import ConditionWarning
from kernax.solvers import ConjugateGradient, Grid, JitteredCholesky, PivotedCholesky, StateSpace

LINE = StateSpace()
GRID = Grid()
DENSE = JitteredCholesky()
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def grid(*places):
    """Cells in no order."""
    cells = np.stack(np.meshgrid(*places, indexing="ij"), -1).reshape(-1, len(places))
    return cells[RNG.permutation(len(cells))]


class Problem(NamedTuple):
    """A solver with points that have the structure it needs."""

    solver: object
    family: type
    X: np.ndarray
    weights: np.ndarray
    noise: np.ndarray | float
    new: np.ndarray

    def posterior(self, **others):
        given = {"kernel": self.family(1.1)} | self._asdict() | others
        process = kernax.GaussianProcess(given["kernel"])
        options = {name: given[name] for name in ("weights", "solver")}
        y = np.cos(self.X[:, 0])
        return kernax.condition(process, self.X, y, given["noise"], throw=False, **options).value


def problems():
    scattered = RNG.uniform(0, 8, (15, 1))
    weighted = np.where(np.arange(15) == 2, 0.0, np.where(np.arange(15) == 5, 2.0, 1.0))
    times = np.arange(15.0)[:, None] / 3
    cells = grid(np.arange(4.0), np.arange(4.0))[1:]
    noises = RNG.uniform(0.05, 0.2, 15)
    products = ConjugateGradient(1e-12, preconditioner=PivotedCholesky(KEY, block_size=8))
    return {
        "line": Problem(
            LINE, kernax.Matern52, scattered, weighted, noises, RNG.uniform(-1, 9, (6, 1))
        ),
        "times": Problem(GRID, RBF, times, weighted, 0.1, times[:6] + 0.3),
        "cells": Problem(GRID, RBF, cells, weighted, 0.1, cells[:6] + 0.3),
        "products": Problem(products, Matern32, cells, weighted, 0.1, cells[:6] + 0.3),
    }


PROBLEMS = problems()
each = pytest.mark.parametrize("name", PROBLEMS)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("name", marked(pytest.mark.slow, PROBLEMS, "products"))
@pytest.mark.parametrize("with_weights", [False, True])
def test_a_posterior_is_saved_and_loaded(tmp_path, name, with_weights):
    problem = PROBLEMS[name]
    posterior = problem.posterior(**{} if with_weights else {"weights": None})
    kernax.save(tmp_path / "posterior", posterior)
    loaded = kernax.load(tmp_path / "posterior")
    np.testing.assert_array_equal(loaded.variance(problem.X[3]), posterior.variance(problem.X[3]))


@pytest.mark.nightly
@needs_x64
@each
def test_draws_of_the_posterior_have_its_mean_and_variance(name):
    problem = PROBLEMS[name]
    posterior = problem.posterior()
    paths = kernax.pathwise_sample(posterior, key=KEY, n_samples=4000, n_features=400)
    at = lambda x: (paths(x), posterior.mean(x), posterior.variance(x))
    values, mean, variance = jax.jit(jax.vmap(at))(problem.new)
    off = np.mean(values, 1) - mean
    assert np.max(np.abs(off) / np.sqrt(variance)) < 0.1
    np.testing.assert_allclose(np.var(values, 1), variance, rtol=0.15)


@pytest.mark.nightly
@needs_x64
@each
def test_the_derivative_of_the_posterior_is_that_of_the_whole_matrix(name):
    """In the lengthscale, the noise and the new point, and along a line in weights, of which one is
    zero; a grid has constant ones.
    """
    problem = PROBLEMS[name]

    def posterior(solver):
        def at(lengthscale, noise, x, weights=problem.weights):
            found = problem.posterior(
                kernel=problem.family(lengthscale), noise=noise, weights=weights, solver=solver
            )
            return found.mean(x) + found.variance(x)

        arguments = [jnp.asarray(value) for value in (1.1, problem.noise, problem.new[1])]
        if problem.solver is not GRID:
            arguments.append(jnp.asarray(problem.weights))
        return jax.jit(jax.grad(at, range(len(arguments))))(*arguments)

    for a, b in zip(posterior(problem.solver), posterior(DENSE), strict=True):
        assert_close(a, b, 1e-7)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize("name", ["line", pytest.param("times", marks=pytest.mark.nightly)])
def test_a_term_of_a_sum_is_found_again(name):
    problem = PROBLEMS[name]

    def term(lengthscale, solver):
        kernel = problem.family(lengthscale) + kernax.kernels.Cosine(2.0)
        part = kernax.component(problem.posterior(kernel=kernel, solver=solver), 1)
        return part.mean(problem.new[1]) + part.variance(problem.new[2])

    both = [
        jax.jit(jax.value_and_grad(partial(term, solver=solver)))(jnp.asarray(0.6))
        for solver in (problem.solver, DENSE)
    ]
    assert_close(jnp.array(both[0]), jnp.array(both[1]), 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["line", "cells"])
def test_one_program_serves_all_values_and_a_batch_of_them_and_of_their_gradients(name):
    problem = PROBLEMS[name]
    X = problem.X.astype(DTYPE)
    traces = []

    def evidence_of(lengthscale, y):
        kernel = problem.family(lengthscale)
        return kernax.log_marginal_likelihood(kernel, X, y, 0.1, solver=problem.solver)

    @jax.jit
    @jax.value_and_grad
    def evidence(lengthscale, y):
        traces.append(0)
        return evidence_of(lengthscale, y)

    y = jnp.sin(X[:, 0])
    scales = jnp.asarray([0.3, 0.5, 1.0], DTYPE)
    alone = [evidence(scale, y) for scale in scales]
    assert len(traces) == 1
    together = jax.vmap(evidence, (0, None))(scales, y)
    for a, b in zip(together, zip(*alone)):
        assert_close(a, jnp.stack(b), 1e-8 if X64 else 1e-3)
    assert_close(evidence_of(1.0, y), alone[2][0], 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "solver",
    [LINE, GRID, DENSE, ConjugateGradient()],
    ids=["line", "grid", "cholesky", "products"],
)
def test_an_observation_with_a_tiny_weight_changes_no_draw(solver):
    """Noise divided by such a weight overflows."""
    times = np.arange(8, dtype=DTYPE)[:, None]
    process = kernax.GaussianProcess(Matern32(2.0))

    def draw(weight):
        weights = np.ones(8, DTYPE)
        weights[3] = weight
        posterior = kernax.condition(
            process, times, times[:, 0], 1e3, weights=weights, solver=solver
        )
        path = kernax.pathwise_sample(posterior.value, key=KEY, n_samples=1, n_features=20)
        return jax.vmap(path)(times + DTYPE(0.5))

    least = 2 * np.finfo(DTYPE).tiny
    assert_close(draw(least), draw(0), 1e-10 if X64 else 1e-4)


EVEN = np.arange(12, dtype=DTYPE)[:, None]
CELLS = grid(np.arange(4), np.arange(3)).astype(DTYPE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "kernel", "X", "close"),
    [
        (LINE, Matern32(), EVEN, EVEN[[0, 1, 2, 2, *range(4, 12)]]),
        (GRID, RBF(), CELLS, CELLS / 1000),
        (GRID, RBF(), EVEN, EVEN / 20),
    ],
    ids=["line", "cells", "times"],
)
def test_observations_without_noise_are_met_and_those_too_close_take_jitter(
    solver, kernel, X, close
):
    y = jnp.cos(X[:, 0])
    process = kernax.GaussianProcess(kernel)
    exact = kernax.condition(process, X, y, 0.0, solver=solver)
    assert_close(jax.vmap(exact.value.mean)(X), y, 1e-4 if solver is LINE else 1e-3)
    assert exact.stats["jitter"] == 0
    with pytest.warns(ConditionWarning):
        found = kernax.condition(process, close, 0 * y, 0.0, solver=solver)
    assert found.stats["jitter"] > 0
