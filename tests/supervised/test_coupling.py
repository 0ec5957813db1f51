"""Probabilities of several classes from those of their pairs."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from conftest import DTYPE, TOLERANCE, check_derivatives, needs_x64

from kernax.calibration import pairwise_coupling


def of_upper(upper, c):
    """The matrix of pairs with these values above the diagonal."""
    r = np.full((c, c), 0.5)
    for (i, j), value in zip(itertools.combinations(range(c), 2), upper):
        r[i, j] = value
        r[j, i] = 1 - value
    return r.astype(DTYPE)


def of_probabilities(p):
    return (p[:, None] / (p[:, None] + p)).astype(DTYPE)


def minimum(r):
    """The minimum, by a solver that knows only the sum of squares."""

    def objective(p):
        pairs = itertools.combinations(range(len(r)), 2)
        return sum((r[j, i] * p[i] - r[i, j] * p[j]) ** 2 for i, j in pairs)

    return scipy.optimize.minimize(
        objective,
        np.full(len(r), 1 / len(r)),
        method="SLSQP",
        bounds=[(0, 1)] * len(r),
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    ).x


@pytest.mark.parametrize("c", [2, 3, 6])
def test_coupled_probabilities_minimise_the_sum_of_squares(c):
    rng = np.random.default_rng(c)
    r = of_upper(rng.uniform(size=c * (c - 1) // 2), c)
    np.testing.assert_allclose(pairwise_coupling(r), minimum(r.astype(float)), atol=1e-5)


@pytest.mark.parametrize("p", [[0.3, 0.7], [0.2, 0.5, 0.3], [1e-4, 0.9, 0.0499, 0.05]])
def test_pairs_that_agree_give_back_their_probabilities(p):
    p = np.array(p)
    found = pairwise_coupling(of_probabilities(p))
    np.testing.assert_allclose(found, p, rtol=TOLERANCE["solve"], atol=TOLERANCE["value"])
    assert found.dtype == DTYPE


def test_the_diagonal_is_not_looked_at():
    r = of_upper([0.3, 0.8, 0.6], 3)
    other = r.copy()
    np.fill_diagonal(other, np.nan)
    np.testing.assert_array_equal(pairwise_coupling(r), pairwise_coupling(other))


@pytest.mark.slow
def test_certain_pairs_have_probabilities_as_well():
    """One class that wins every pair has all; in a circle all have the same."""
    winner = pairwise_coupling(of_upper([1.0, 1.0, 0.0], 3))
    np.testing.assert_allclose(winner, [1, 0, 0], atol=TOLERANCE["value"])
    circle = pairwise_coupling(of_upper([1.0, 0.0, 1.0], 3))
    np.testing.assert_allclose(circle, 1 / 3, rtol=TOLERANCE["solve"])
    for upper in itertools.product([0.0, 0.5, 1.0], repeat=6):
        p = pairwise_coupling(of_upper(upper, 4))
        assert jnp.all(p >= 0)
        np.testing.assert_allclose(jnp.sum(p), 1, rtol=TOLERANCE["solve"])


@pytest.mark.slow
@needs_x64
def test_the_derivative_is_that_of_the_minimum_at_certain_pairs_as_well():
    r = jnp.asarray(of_upper([0.3, 0.8, 0.6, 0.1, 0.5, 0.9], 4))

    def coupled(upper):
        r = jnp.zeros((4, 4)).at[jnp.triu_indices(4, 1)].set(upper)
        return pairwise_coupling(r + jnp.tril(1 - r.T, -1))

    check_derivatives(coupled, (r[jnp.triu_indices(4, 1)],), rtol=1e-7, atol=1e-9)
    slope = jax.jacobian(coupled)(jnp.array([1.0, 1, 1, 0, 1, 1]))
    assert jnp.all(jnp.isfinite(slope))


def test_a_stack_of_matrices_is_coupled_by_vmap():
    rng = np.random.default_rng(0)
    stack = np.stack([of_upper(rng.uniform(size=6), 4) for _ in range(5)])
    together = jax.jit(jax.vmap(pairwise_coupling))(stack)
    for p, r in zip(together, stack):
        np.testing.assert_allclose(p, pairwise_coupling(r), rtol=10 * TOLERANCE["solve"])


@pytest.mark.parametrize(
    ("r", "words"),
    [
        (np.full((2, 3), 0.5), r"shape \(c, c\), but has shape \(2, 3\)"),
        (np.full((4, 3, 3), 0.5), "jax.vmap for many matrices"),
        (np.ones((1, 1)), "at least two classes"),
        (np.array([[0.5, 0.3], [0.3, 0.5]]), r"to one, but r\[0, 1\] is 0.3 and r\[1, 0\] is 0.3"),
        (np.array([[0.5, 1.5], [-0.5, 0.5]]), r"r\[0, 1\] is 1.5"),
        (np.array([[0.5, np.nan], [0.5, 0.5]]), r"r\[0, 1\] is nan"),
    ],
)
def test_what_is_no_matrix_of_pairs_is_refused(r, words):
    with pytest.raises(ValueError, match=words):
        pairwise_coupling(r.astype(DTYPE))
