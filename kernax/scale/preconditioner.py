"""The Hessian of a risk over centres, factorised from all rows or from a sample of them."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from kernax.core.factors import cholesky_factor
from kernax.core.numerics import eps_of, matmul
from kernax.core.operators import DenseGram
from kernax.core.sharding import compiled
from kernax.core.solves import solve_lower, solve_lower_transposed


class Preconditioner(eqx.Module):
    """`P = L H L^T` with `L L^T = K_mm`, `H = L^-1 G L^-T + ridge I = R R^T` and `G` about
    `K_nm^T W K_nm`: where G is that of all rows, `P = K_nm^T W K_nm + ridge K_mm`.

    Between the factors of L the eigenvalues of H lie between the ridge and the sum of weights times
    the variance, whatever those of K_mm are (Rudi, Carratino & Rosasco 2017, equation 13).
    """

    lower: Float[Array, "m m"]  # L
    inner: Float[Array, "m m"]  # R
    exists: Bool[Array, ""]

    @staticmethod
    @compiled
    def of_square(
        square: Float[Array, "m m"], lower: Float[Array, "m m"], ridge: Float[Array, ""]
    ) -> "Preconditioner":
        """That of G. Its rounding is divided by the pivots of L: for float64."""
        return Preconditioner.of_whitened(
            solve_lower(lower, solve_lower(lower, square).T), lower, ridge
        )

    @staticmethod
    @compiled
    def of_whitened(
        square: Float[Array, "m m"], lower: Float[Array, "m m"], ridge: Float[Array, ""]
    ) -> "Preconditioner":
        """That of `L^-1 G L^-T`; with a larger ridge, and so more steps, where that of the problem
        is less than the rounding of the sum.
        """
        least = 4 * eps_of(square) * jnp.trace(square)
        diagonal = jnp.maximum(ridge, least) * jnp.eye(len(square), dtype=square.dtype)
        factor = cholesky_factor(DenseGram((square + square.T) / 2 + diagonal))
        return Preconditioner(lower, factor.lower, factor.exists)

    @compiled
    def whitened(self, g: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """A v with `|v|^2 = g.P^-1 g`."""
        return solve_lower(self.inner, solve_lower(self.lower, g))

    @compiled
    def solve(self, g: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """`P^-1 g`."""
        inside = solve_lower_transposed(self.inner, self.whitened(g))
        return solve_lower_transposed(self.lower, inside)

    @compiled
    def length(self, a: Float[Array, "m p"]) -> Float[Array, " p"]:
        """`sqrt(a.P a)` of each column."""
        inside = matmul(jnp.tril(self.lower).T, a)
        return jnp.linalg.norm(matmul(jnp.tril(self.inner).T, inside), axis=0)

    @compiled
    def length_of_step(self, g: Float[Array, "m p"]) -> Float[Array, " p"]:
        """`sqrt(d.P d)` of `d = P^-1 g`, of each column."""
        return jnp.linalg.norm(self.whitened(g), axis=0)


# The Hessian of all rows takes n m^2 operations at the speed of matrix products. For squares it
# saves some twelve products with K_nm; of other losses there is one for each of Newton's steps.
_MOST_CENTRES = {True: 4000, False: 300}
ROWS_A_CENTRE = 4
LEAST_ROWS = 4096


def size_of_sample(n: int, m: int, quadratic: bool, dtype: Any) -> int | None:
    """How many of n rows the Hessian is made of for m centres; None for all."""
    if dtype == jnp.float64 and m <= _MOST_CENTRES[quadratic]:
        return None
    return min(n, max(LEAST_ROWS, ROWS_A_CENTRE * m))


def places_of_sample(n: int, size: int) -> Int[np.ndarray, " size"]:
    """Rows spread evenly over n, and not periodic: multiples of the golden ratio.

    A sample of the rows serves any centres, however they were chosen; only the number of steps
    depends on it.
    """
    share = (np.arange(size) * ((np.sqrt(5) - 1) / 2)) % 1
    return np.unique((share * n).astype(np.int64))
