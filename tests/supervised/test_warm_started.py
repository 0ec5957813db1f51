"""Solves that begin at solutions known from before: the same answers in fewer steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64, assert_close, marked, needs_x64, untyped
from hypothesis import given
from hypothesis import strategies as st

import kernax
from kernax.core.base.compiled import compiled
from kernax.solvers import (
    ConjugateGradient,
    JitteredCholesky,
    PivotedCholesky,
    StochasticLanczos,
    warm_started,
)

KEY = jax.random.key(0)
N = 64
RNG = np.random.default_rng(0)
X = RNG.uniform(0, 3, (N, 2)).astype(DTYPE)
Y = np.stack([np.sin(X.sum(1)), np.cos(X[:, 0])], 1).astype(DTYPE)
WEIGHTS = RNG.integers(0, 3, N).astype(DTYPE)
SOLVER = ConjugateGradient(
    preconditioner=PivotedCholesky(KEY, rank=8),
    determinant=StochasticLanczos(KEY, n_probes=3, n_steps=8),
)
CLOSE = 1e-8 if X64 else 2e-3


@compiled
def started(solver, scale, noise):
    kernel = scale * kernax.Matern32(0.7)
    return warm_started(solver, kernax.GaussianProcess(kernel, 0.1), X, Y, noise, weights=WEIGHTS)


@compiled
def evidence(solver, scale, noise):
    kernel = scale * kernax.Matern32(0.7)
    return kernax.log_marginal_likelihood(
        kernax.GaussianProcess(kernel, 0.1), X, Y, noise, weights=WEIGHTS, solver=solver
    )


@compiled
def slope(solver, scale, noise):
    return jax.value_and_grad(evidence, 1)(solver, scale, noise)


@compiled
def steps_and_values(solver, scale, noise):
    process = kernax.GaussianProcess(scale * kernax.Matern32(0.7), 0.1)
    solution = kernax.condition(process, X, Y, noise, weights=WEIGHTS, solver=solver, throw=False)
    values = jax.vmap(solution.value.mean)(X[:4])
    steps = solution.stats.get("steps", 0)
    return solution.result, steps, values, solution.value.variance(X[0])


@pytest.mark.nightly
def test_the_same_system_takes_no_step_and_a_near_one_fewer():
    warm = started(SOLVER, 1.3, 0.1)
    assert warm.start.shape == (N, 2 + 3)
    _, cold_steps, cold_values, cold_variance = steps_and_values(SOLVER, 1.3, 0.1)
    result, none, values, variance = steps_and_values(warm, 1.3, 0.1)
    assert result == kernax.RESULTS.successful
    assert none == 0 < cold_steps
    assert_close(values, cold_values, CLOSE)
    # Variances, whose right-hand sides are others, know of no start.
    assert variance == cold_variance
    _, cold_steps, cold_values, _ = steps_and_values(SOLVER, 1.301, 0.1)
    result, few, values, _ = steps_and_values(warm, 1.301, 0.1)
    assert result == kernax.RESULTS.successful
    assert 0 < few < cold_steps
    assert_close(values, cold_values, CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("near", marked(pytest.mark.nightly, [1.3, 1.301, 2.0], "1.301", "2.0"))
def test_an_evidence_and_its_derivative_do_not_depend_on_the_start(near):
    warm = started(SOLVER, 1.3, 0.1)
    again = started(warm, near, 0.1)
    for solver in (warm, again):
        for found, expected in zip(slope(solver, near, 0.1), slope(SOLVER, near, 0.1)):
            assert_close(found, expected, CLOSE)


@pytest.mark.nightly
@given(
    seed=st.integers(0, 99),
    exponent=st.sampled_from([-30, 0, 30]),
    kind=st.sampled_from(["random", "zero", "nan", "inf", "against"]),
    noise=st.sampled_from([1e-4, 1e-2, 1.0]),
)
def test_no_start_makes_an_answer_wrong(seed, exponent, kind, noise):
    """A success is near Cholesky's answer, wherever it began, and there is one wherever there is
    one from zero.
    """
    random = np.random.default_rng(seed).normal(size=(N, 5)) * 10.0**exponent
    starts = {
        "random": random,
        "zero": np.zeros((N, 5)),
        "nan": np.where(random > 0, np.nan, random),
        "inf": np.where(random > 0, np.inf, random),
        "against": -np.asarray(started(SOLVER, 1.3, 0.1).start) * 10.0**exponent,
    }
    solver = dataclasses.replace(SOLVER, start=jnp.asarray(starts[kind], DTYPE))
    result, _, values, _ = steps_and_values(solver, 1.3, noise)
    cold_result, *_ = steps_and_values(SOLVER, 1.3, noise)
    assert (result == kernax.RESULTS.successful) == (cold_result == kernax.RESULTS.successful)
    if result == kernax.RESULTS.successful:
        _, _, expected, _ = steps_and_values(JitteredCholesky(), 1.3, noise)
        assert_close(values, expected, 1e-7 if X64 else 1e-2)


@pytest.mark.nightly
@needs_x64
def test_a_start_for_fewer_columns_or_more_serves_those_there_are():
    warm = started(SOLVER, 1.3, 0.1)
    one = dataclasses.replace(warm, start=warm.start[:, :1])
    many = dataclasses.replace(warm, start=jnp.concatenate([warm.start] * 2, 1))
    for solver in (one, many):
        for found, expected in zip(slope(solver, 1.3, 0.1), slope(SOLVER, 1.3, 0.1)):
            assert_close(found, expected, CLOSE)


@pytest.mark.nightly
@needs_x64
def test_a_start_is_a_constant_and_a_batch_has_one_each():
    warm = [started(SOLVER, scale, 0.1) for scale in (1.0, 1.5)]
    assert not jnp.any(jax.grad(lambda s: evidence(_with(s), 1.2, 0.1))(warm[0].start))
    starts = jnp.stack([solver.start for solver in warm])
    scales = jnp.asarray([1.1, 1.4])
    batch = jax.vmap(lambda s, scale: slope(_with(s), scale, 0.1))(starts, scales)
    loop = [slope(solver, scale, 0.1) for solver, scale in zip(warm, scales)]
    for found, expected in zip(batch, zip(*loop)):
        assert_close(found, jnp.stack(expected), 1e-8)


def _with(start):
    return dataclasses.replace(SOLVER, start=start)


@pytest.mark.slow
@needs_x64
def test_without_a_determinant_the_targets_alone_are_solved_for():
    plain = dataclasses.replace(SOLVER, determinant=None)
    warm = started(plain, 1.3, 0.1)
    assert warm.start.shape == (N, 2)
    assert steps_and_values(warm, 1.3, 0.1)[1] == 0


@needs_x64
def test_what_is_no_start_is_refused_by_name():
    with pytest.raises(ValueError, match=r"start of ConjugateGradient must have shape \(64, col"):
        steps_and_values(untyped(dataclasses.replace)(SOLVER, start=jnp.zeros((8, 2))), 1.3, 0.1)
    with pytest.raises(
        ValueError, match=r"solver must be a kernax\.solvers\.ConjugateGradient, but"
    ):
        untyped(warm_started)(JitteredCholesky(), kernax.RBF(), X, Y, 0.1)
