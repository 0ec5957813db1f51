"""The Cholesky factor of a dense matrix, with jitter on its diagonal if necessary."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.numerics import (
    eps_of,
    main_diagonal,
    matmul,
    rows_and_columns,
    stop_gradient,
    where_or,
)
from kernax.core.linalg.factorisation import AbstractDirectFactor, products_and_diagonal
from kernax.core.linalg.jitter import with_jitter
from kernax.core.operators.operators import mean_diagonal


def rounding_of_entries(
    solve: Callable[[Array], Array], diagonal: Float[Array, " n"]
) -> Float[Array, ""]:
    """The error of `log |M|`, and the relative error of M^-1, from rounding the entries of M.

    Errors dC of eps in the matrix with unit diagonal, C = D^-1/2 M D^-1/2, change log |C| by
    tr(C^-1 dC), which is eps |C^-1|_F for independent errors. The square of that norm is the mean
    of |C^-1 z|^2 over vectors z of random signs (Hutchinson 1990); four are used here.
    """
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (len(diagonal), 4))
    root = jnp.sqrt(diagonal)[:, None]
    # C^-1 Z = D^1/2 M^-1 D^1/2 Z; |C^-1|_F is about |C^-1 Z|_F / sqrt(4), for four columns.
    image = root * solve(root * jnp.asarray(signs, diagonal.dtype))
    return eps_of(diagonal) * jnp.linalg.norm(image) / 2


class CholeskyFactor(AbstractDirectFactor):
    """The Cholesky factor `M = L L^T`, stored as `U = L^T`, whose rows LAPACK reads as the columns
    of L.
    """

    upper: Float[Array, "n n"]
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]

    @property
    def lower(self) -> Float[Array, "n n"]:
        """The lower triangular factor L."""
        return self.upper.T

    def solve(self, B):
        solve = lambda L, B: cho_solve((L, True), B, check_finite=False)
        return where_or(self.exists, sequential_vmap(solve, self.lower, B), jnp.nan)

    def solve_and_report(self, B):
        return self.solve(B), (self.result, {"jitter": self.jitter})

    def whitened(self, B):
        return where_or(self.exists, sequential_vmap(_solved_halfway, self.lower, B), jnp.nan)

    def inverse(self):
        return sequential_vmap(_inverse_of_product, self.lower, jnp.where(self.exists, 1, jnp.nan))

    def inverse_diagonal(self):
        # (M^-1)_ii = sum_k (L^-1)_ki^2.
        diagonal = lambda L: jnp.sum(_solved_halfway(L, jnp.eye(len(L), dtype=L.dtype)) ** 2, 0)
        return where_or(self.exists, sequential_vmap(diagonal, self.lower), jnp.nan)

    def products_and_diagonal(self, system, B):
        return products_and_diagonal(system, B, stop_gradient(self))

    def log_determinant(self):
        # log |M| = 2 sum_i log L_ii.
        logs = jnp.log(main_diagonal(self.upper))
        return where_or(self.exists, 2 * jnp.sum(logs), jnp.nan)

    def rounding(self, diagonal):
        return rounding_of_entries(self.solve, diagonal)

    def rounding_of_inverse(self, diagonal):
        return rounding_of_entries(self.solve, diagonal)


def _solved_halfway(L, B):
    return solve_triangular(L, B, lower=True, check_finite=False)


def _inverse_of_product(L: Float[Array, "n n"], one: Float[Array, ""]) -> Float[Array, "n n"]:
    """`(L L^T)^-1` by recursive halves. This takes 0.9 n^3 operations, most of them in matrix
    products, whereas solving for the identity takes 2 n^3, all in triangular solves. NaN if `one`
    is.

    At most four blocks are used: sixteen would take 0.83 n^3, but four times as long to compile.
    Up to n = 256 two are as fast as four, and up to 128 one is.
    """
    # Transposed, columns are solutions: `M X - I` is small, and so is the residual of any `X b`.
    return _inverse_by_halves(L.T, one, max(128, -(-len(L) // 4))).T


def _inverse_by_halves(
    U: Float[Array, "n n"], one: Float[Array, ""], whole: int
) -> Float[Array, "n n"]:
    # The argument is an upper triangular U = L^T, whose rows LAPACK reads as the columns of L. With
    # Y = -L21 L11^-1 the lower right block is Q = (L22 L22^T)^-1, the upper right one Y^T Q, and
    # the upper left one (L11 L11^T)^-1 + Y^T Q Y.
    n = len(U)
    if n <= whole:
        # A constant identity would occupy memory from the start of the program.
        identity = jnp.where(jnp.eye(n, dtype=bool), one.astype(U.dtype), 0)
        return _row_major(cho_solve((U.T, True), identity, check_finite=False).T)
    h = n // 2
    Yt = _row_major(lax.linalg.triangular_solve(U[:h, :h].T, -U[:h, h:].T, lower=True).T)
    Q = _inverse_by_halves(U[h:, h:], one, whole)
    right = matmul(Yt, Q)
    corner = _inverse_by_halves(U[:h, :h], one, whole) + matmul(right, Yt.T)
    return jnp.block([[corner, right], [right.T, Q]])


def _row_major(A: Array) -> Array:
    """The array, behind a barrier. Otherwise XLA would fuse its transposition into the next
    product, which then takes 2.5 times as long on a CPU.
    """
    return lax.optimization_barrier(A)


def cholesky_factor(
    operator: lx.AbstractLinearOperator, scale: Float[Array, ""] | None = None
) -> CholeskyFactor:
    """The Cholesky factor, with jitter; see `factorise`."""
    scale = mean_diagonal(operator) if scale is None else scale
    return sequential_vmap(_cholesky_with_jitter, operator, scale)


def _cholesky_with_jitter(
    operator: lx.AbstractLinearOperator, scale: Float[Array, ""]
) -> CholeskyFactor:
    """The factor exists if all squared pivots are above eps times the diagonal."""
    diagonal = lx.diagonal(operator)
    least = eps_of(diagonal) * diagonal
    arrays, rest = eqx.partition(operator, eqx.is_array)

    def attempt(jitter: Float[Array, ""]) -> CholeskyFactor:
        # The matrix is built here, so that it only exists where LAPACK overwrites it. LAPACK is
        # column-major and the matrix symmetric: with transpositions before and after, nothing is
        # copied.
        tied, jitter = lax.optimization_barrier((arrays, jitter))
        operator = eqx.combine(tied, rest)
        M = operator.as_matrix()
        i, j = rows_and_columns(len(M), jitter)
        A = lax.select(i == j, M + jitter, M)
        upper = where_or(i <= j, _upper_factor(A), 0.0)
        # False for NaN. Reading the diagonal of A itself would prevent A from being overwritten.
        return CholeskyFactor(upper, jitter, jnp.all(main_diagonal(upper) ** 2 > least))

    return with_jitter(attempt, lambda factor: factor.exists, scale)


_LONGEST_COLUMN = 90_000  # bytes: 11250 numbers of float64, 22500 of float32


def _upper_factor(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """U of `A = U^T U`, by halves if A is too large for LAPACK; NaN if U does not exist. Entries
    below the diagonal have no meaning.

    OpenBLAS, in SciPy, overruns a buffer of fixed size and crashes the process if two threads
    factorise columns of more than 124 kB (n = 15500 in float64; OpenBLAS issue 2562).
    """
    n = len(A)
    if n * A.dtype.itemsize <= _LONGEST_COLUMN:
        # The primitive, because `cholesky` sets the other triangle of L to zero, by a mask that is
        # read across the rows in which L is stored: a twentieth of the time for 3000 points.
        return lax.linalg.cholesky_p.bind(A.T).T
    h = n // 2
    # U11^T U11 = A11, U12 = U11^-T A12 and U22^T U22 = A22 - U12^T U12.
    corner = _upper_factor(A[:h, :h])
    right = lax.linalg.triangular_solve(corner.T, A[:h, h:], left_side=True, lower=True)
    rest = _upper_factor(A[h:, h:] - matmul(right.T, right))
    return jnp.block([[corner, right], [jnp.zeros((n - h, h), A.dtype), rest]])
