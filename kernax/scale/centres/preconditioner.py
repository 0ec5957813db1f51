"""The preconditioner: the Hessian of a risk over centres, factorised from all rows or from a
sample.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import eps_of
from kernax.core.base.powers import lengths
from kernax.core.linalg.cholesky import cholesky_factor
from kernax.core.linalg.solves import inverse_of_lower, solve_lower, solve_lower_transposed
from kernax.core.operators.mesh import RowsOverMesh, on_parts
from kernax.core.operators.operators import DenseGram
from kernax.scale.centres.row_sums import ArrayRows


class HessianFactor(eqx.Module):
    """The preconditioner `P = L H L^T` with `L L^T = K_mm`, `H = L^-1 G L^-T + ridge D = R R^T` and
    `G` about `K_nm^T W K_nm`.

    If G comes from all rows, P is the Hessian `K_nm^T W K_nm + ridge L D L^T`. The eigenvalues of H
    lie between the ridge and the sum of weights times the variance, whatever those of K_mm are
    (Rudi, Carratino & Rosasco 2017, equation 13).
    """

    lower: Float[Array, "m m"]  # L
    inner: Float[Array, "m m"]  # R
    exists: Bool[Array, ""]
    # Rounding of H up to `(excess^2 - 1) ridge I` makes lengths in the norm of P^-1 too short by at
    # most the factor `excess`, because the Hessian is at least `ridge L D L^T`.
    excess: Float[Array, ""]

    @staticmethod
    @compiled
    def of_square(
        square: Float[Array, "m m"], lower: Float[Array, "m m"], ridges: Float[Array, " m"]
    ) -> "HessianFactor":
        """The factor from G. Its rounding is multiplied by the squares of `L^-1`: use it in
        float64.
        """
        # L^-1 (L^-1 G)^T = L^-1 G L^-T, as G is symmetric.
        white = solve_lower(lower, solve_lower(lower, square).T)
        # The rounding of G, about 4 eps max_i G_ii, is multiplied by at most |L^-1|_F^2.
        squares = jnp.sum(inverse_of_lower(lower) ** 2)
        off = 4 * eps_of(square) * jnp.max(jnp.diagonal(square)) * squares
        return HessianFactor.of_whitened(white, lower, ridges, off)

    @staticmethod
    @compiled
    def of_whitened(
        square: Float[Array, "m m"],
        lower: Float[Array, "m m"],
        ridges: Float[Array, " m"],
        off: ArrayLike = 0.0,
    ) -> "HessianFactor":
        """The factor from `L^-1 G L^-T`, which has the error `off`; with a larger ridge, and so
        more steps, where the ridge of the problem is below that error.
        """
        rounding = 4 * eps_of(square) * jnp.trace(square) + off
        enough = jnp.maximum(ridges, rounding)
        # R R^T = L^-1 G L^-T + ridge D.
        factor = cholesky_factor(DenseGram((square + square.T) / 2 + jnp.diag(enough)))
        # (excess^2 - 1) ridge is the rounding plus the number added to the ridge.
        more = rounding + jnp.max(enough - ridges)
        excess = jnp.sqrt(1 + more / jnp.max(ridges))
        return HessianFactor(lower, factor.lower, factor.exists, excess)

    @compiled
    def whitened(self, g: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """A v with `|v|^2 = g.P^-1 g`."""
        # P = (L R) (L R)^T: v = R^-1 L^-1 g.
        return solve_lower(self.inner, solve_lower(self.lower, g))

    @compiled
    def solve(self, g: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """`P^-1 g`."""
        # P^-1 g = L^-T R^-T v.
        inside = solve_lower_transposed(self.inner, self.whitened(g))
        return solve_lower_transposed(self.lower, inside)

    @compiled
    def length_of_step(self, g: Float[Array, "m p"]) -> Float[Array, " p"]:
        """`sqrt(d.P d)` with `d = P^-1 g`, for each column."""
        # d.P d = g.P^-1 g = |v|^2.
        return lengths(self.whitened(g))


# The Hessian of all rows takes n m^2 operations at the speed of matrix products. For squares it
# saves about twelve products with K_nm; other losses need one Hessian for each Newton step.
_MOST_CENTRES = {True: 4000, False: 300}
LEAST_ROWS = 4096
# With 4 rows for each centre conjugate gradients take three steps for a digit, with 16 one or two.
# A row of the sample costs about m times as many operations as a row in a product: the sample is so
# large that it costs about two products.
_ROWS_A_CENTRE = 4
MOST_ROWS_A_CENTRE = 16
_OF_TWO_PRODUCTS = 100


def size_of_sample(n: int, m: int, quadratic: bool, dtype: Any) -> int | None:
    """The number of the n rows in the sample that makes the Hessian for m centres; None for all."""
    if dtype == jnp.float64 and m <= _MOST_CENTRES[quadratic]:
        return None
    wanted = min(MOST_ROWS_A_CENTRE * m, max(_ROWS_A_CENTRE * m, _OF_TWO_PRODUCTS * n // m))
    return min(n, max(LEAST_ROWS, wanted))


def priorities(numbers: Any, weights: Float[Array, " n"]) -> Float[Array, " n"]:
    """The priorities `w_i / u_i` of rows, with u_i in (0, 1) the fractional parts of multiples of
    the golden ratio, which are evenly spread over consecutive rows and have no period.

    `numbers` are the numbers of the rows, in 32 bits. The multiples are exact, modulo 2^32 (Knuth,
    The Art of Computer Programming 3, 6.4).
    """
    # u_i = frac(i (sqrt(5) - 1) / 2), to 24 bits; 0x9E3779B9 is the factor times 2^32.
    multiples = jnp.asarray(numbers, jnp.uint32) * jnp.asarray(0x9E3779B9, jnp.uint32)
    u = ((multiples >> jnp.asarray(8, jnp.uint32)).astype(weights.dtype) + 0.5) / 2**24
    return weights / u


def sampled(rows: ArrayRows, size: int) -> ArrayRows:
    """The rows of highest priority, with weights that make their sums those of all rows. No row
    that is heavier than all rows of the sample together is left out.

    A row of the sample has the weight `max(w_i, t)`, where t is the highest priority that is left
    out (Duffield, Lund & Thorup 2007). A sample of the rows serves any centres, however they were
    chosen; only the number of steps depends on it.
    """
    n = len(rows.weights)
    if size >= n:
        return rows
    weights = lax.stop_gradient(rows.weights)
    of_rows = priorities(jnp.arange(n, dtype=jnp.uint32), weights)
    highest, indices = _largest_of(of_rows, size + 1, rows.spread)
    return rows.at(indices[:-1], standing_for_all(weights[indices[:-1]], highest[-1]))


def _largest_of(
    values: Float[Array, " n"], number: int, spread: RowsOverMesh | None
) -> tuple[Float[Array, " s"], Int[Array, " s"]]:
    """The largest values and their indices, the first among equal ones."""
    if spread is None:
        largest, indices = lax.top_k(values, number)
        return largest, indices

    def of_part(_: None, own: Float[Array, " n"]) -> tuple[Array, Array]:
        # The largest on one device, so that no more are communicated, and their indices among all.
        largest, indices = lax.top_k(own, min(number, len(own)))
        return largest, indices + lax.axis_index(spread.axes) * len(own)

    candidates, indices = on_parts(of_part, spread, None, values)
    largest, at = lax.top_k(candidates, number)
    return largest, indices[at]


def standing_for_all(weights: Float[Array, " s"], left_out: Any) -> Float[Array, " s"]:
    """The weights of a sample, given the highest priority that is left out; zero stays zero."""
    return jnp.where(weights > 0, jnp.maximum(weights, left_out), 0)
