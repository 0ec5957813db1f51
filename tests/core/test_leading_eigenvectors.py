"""Leading eigenvectors by products with a block, of matrices whose eigenvalues are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE

from kernax.core.linalg.eigenproblem import accuracy
from kernax.core.linalg.leading_eigenvectors import leading_by_products, width_of_block

N = 200
COUNT = 4
RNG = np.random.default_rng(0)
TURN = np.linalg.qr(RNG.normal(size=(N, N)))[0]
EIGENVALUES = {
    "the identity": np.ones(N),
    "of rank three": np.append([5.0, 2.0, 1e-3], np.zeros(N - 3)),
    "falling to nothing": 10.0 ** -np.arange(N),
    "in fours": np.repeat(0.9 ** np.arange(N // 4), 4),
    "small": 1e-15 * 0.9 ** np.arange(N),
    "large": 1e15 * 0.9 ** np.arange(N),
}


RTOL = accuracy(np.dtype(DTYPE))


@jax.jit
def leading(M, start):
    """One program for all matrices."""
    return leading_by_products(lambda U: M @ U, start, COUNT, RTOL, 200)


@pytest.mark.parametrize("name", EIGENVALUES)
@pytest.mark.parametrize("copies", [False, True], ids=["any start", "a start of copies"])
def test_leading_values_are_found_and_vectors_are_orthonormal(name, copies):
    """Also where products give no further direction, and what is left of a block is rounding."""
    values = EIGENVALUES[name]
    M = jnp.asarray((TURN * values) @ TURN.T, DTYPE)
    start = RNG.normal(size=(N, width_of_block(COUNT))).astype(DTYPE)
    if copies:
        start[:] = start[:, :1]
    found = leading(M, jnp.asarray(start))
    rounding = 8 * N * np.finfo(DTYPE).eps
    np.testing.assert_allclose(found.values[:COUNT], values[:COUNT], atol=rounding * values[0])
    U = np.asarray(found.vectors)
    np.testing.assert_allclose(U.T @ U, np.eye(U.shape[1]), atol=rounding / 4)
    assert np.all(found.residuals[:COUNT] <= (RTOL + rounding) * values[0])


@pytest.mark.parametrize("diagonal", [[0.0], [3.0], [5.0, 2.0]], ids=["zero", "one", "two"])
def test_exact_zeros_leave_leading_values_and_vectors_right(diagonal):
    """What a product has no numbers for may be no direction; what it has is found."""
    values = np.append(diagonal, np.zeros(N - len(diagonal)))
    start = RNG.normal(size=(N, width_of_block(COUNT))).astype(DTYPE)
    M = jnp.asarray(np.diag(values), DTYPE)
    found = leading(M, jnp.asarray(start))
    rounding = 8 * N * np.finfo(DTYPE).eps
    np.testing.assert_allclose(found.values[:COUNT], values[:COUNT], atol=rounding * values[0])
    for j in range(np.count_nonzero(diagonal)):
        expected = np.eye(N)[j]
        # The sine of the angle is at most the residual over the gap, here at least half the value.
        np.testing.assert_allclose(np.abs(found.vectors[:, j]), expected, atol=2 * RTOL + rounding)
