"""Refinement of linear solves, on systems whose rough inverse is wrong by a known factor."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, X64

from kernax.core.linalg.refinement import refined

A = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 1.0]], DTYPE)
B = np.array([1.0, -2.0, 0.5], DTYPE)
INVERSE = np.linalg.inv(A)
EPS = float(np.finfo(DTYPE).eps)


def solved(off, unit=1.0):
    """By an inverse that is too large by a share `off`, which every pass leaves of the rest."""
    rough = jnp.asarray((1 + off) * INVERSE)
    return jax.jit(lambda b: refined(lambda r: rough @ r, lambda x: A @ x, b))(
        jnp.asarray(unit * B)
    )


@pytest.mark.parametrize("unit", [1.0, 1e30, 1e-30, *([1e200, 1e-200] if X64 else [])])
def test_a_solve_that_is_wrong_by_a_third_becomes_exact_in_any_unit(unit):
    """A residual whose square over- or underflows ends it at once, with whatever there is."""
    solution, share = solved(0.3, unit)
    np.testing.assert_allclose(solution / DTYPE(unit), INVERSE @ B, rtol=50 * EPS)
    assert share < 10 * EPS


def test_a_solve_that_hardly_helps_is_kept_with_the_share_that_it_leaves():
    solution, share = solved(0.95)
    np.testing.assert_allclose(share, 0.95**2, rtol=1e-3)
    np.testing.assert_allclose(solution, (1 - 0.95**2) * INVERSE @ B, rtol=1e-3)


def test_a_solve_that_makes_it_worse_is_kept_as_it_is():
    solution, share = solved(-2.0)
    np.testing.assert_allclose(solution, -INVERSE @ B, rtol=1e-5)
    np.testing.assert_allclose(share, 2, rtol=1e-5)


def test_nothing_has_the_solution_nothing():
    solution, share = solved(0.3, 0.0)
    np.testing.assert_array_equal(solution, 0)
    assert share == 0
