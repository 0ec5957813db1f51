"""Solves with triangular matrices, with dense square matrices and with matrix-free operators, the
square root of a matrix, and their derivatives.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jax.scipy.linalg import lu_factor, lu_solve, solve_triangular
from jaxtyping import Array, Float

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.derivatives import custom_jvp
from kernax.core.base.numerics import eps_of, matmul, positive_or_one
from kernax.core.base.powers import in_own_unit


def solve_lower(L: Float[Array, "n n"], B: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
    """`L^-1 B` for a lower triangular L, with its derivatives."""
    apply = lambda x: matmul(jnp.tril(L), x)
    # dX = L^-1 (dB - dL X), where JAX obtains dL X from the derivative of `apply`.
    return lax.custom_linear_solve(apply, B, _triangular(L, 0), _triangular(L, 1))


def solve_lower_transposed(L: Float[Array, "n n"], B: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
    """`L^-T B` for a lower triangular L, with its derivatives."""
    apply = lambda x: matmul(jnp.tril(L).T, x)
    return lax.custom_linear_solve(apply, B, _triangular(L, 1), _triangular(L, 0))


def inverse_of_lower(L: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """`L^-1` for a lower triangular L, with its derivatives."""
    return solve_lower(L, jnp.eye(len(L), dtype=L.dtype))


def _triangular(L: Float[Array, "n n"], trans: int) -> Callable:
    """The solution with L or its transpose, in the form for `lax.custom_linear_solve`."""
    by_lapack = lambda L, B: solve_triangular(L, B, trans=trans, lower=True, check_finite=False)
    return lambda _, B: sequential_vmap(by_lapack, lax.stop_gradient(L), B)


def solve_by_lu(A: Float[Array, "n n"], B: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
    """`A^-1 B` for any square A, with its derivatives."""

    def solve(trans: int) -> Callable:
        by_lapack = lambda A, B: lu_solve(lu_factor(A), B, trans)
        return lambda _, B: sequential_vmap(by_lapack, lax.stop_gradient(A), B)

    return lax.custom_linear_solve(lambda x: matmul(A, x), B, solve(0), solve(1))


def solve_by_products(
    multiply: Callable[[Array], Array], rhs: Array, tol: float, *, restart: int, max_steps: int
) -> Array:
    """The solution x of `multiply(x) = rhs` for any linear function, by GMRES; value and
    derivatives are NaN if it fails.
    """
    solver = lx.GMRES(rtol=tol, atol=tol, restart=restart, max_steps=max_steps)

    def solve(multiply: Callable[[Array], Array], rhs: Array) -> Array:
        # GMRES treats a right-hand side below its absolute tolerance as zero, such as a small
        # cotangent, so the right-hand side is scaled to its own unit.
        in_units, unit = in_own_unit(rhs)
        operator = lx.FunctionLinearOperator(multiply, jax.eval_shape(lambda: rhs))
        solution = lx.linear_solve(operator, in_units, solver, throw=False)
        sound = solution.result == lx.RESULTS.successful
        return jnp.where(sound, solution.value * unit, jnp.nan)

    return lax.custom_linear_solve(multiply, rhs, solve, solve)


@custom_jvp
def log_determinant_by_lu(A: Float[Array, "n n"]) -> Float[Array, ""]:
    """`log |A|` for any square A, with its derivatives; NaN where the determinant is negative."""
    sign, value = sequential_vmap(jnp.linalg.slogdet, A)
    return jnp.where(sign < 0, jnp.nan, value)


@log_determinant_by_lu.def_jvp
def _log_determinant_by_lu_jvp(primals, tangents):
    # d log|A| = tr(A^-1 dA).
    (A,) = primals
    (dA,) = tangents
    return log_determinant_by_lu(A), jnp.trace(solve_by_lu(A, dA))


@custom_jvp
def square_root(M: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """The positive semidefinite R with `R R = M`; negative eigenvalues, which are rounding, count
    as zero.

    The derivative solves Sylvester's equation `R dR + dR R = dM` (Higham 2008, Functions of
    Matrices, section 6.1), so that equal eigenvalues do no harm, to any order. Between eigenvectors
    of eigenvalue zero, where R has no derivative, it is zero.
    """
    values, Q = jnp.linalg.eigh(M)
    roots = jnp.sqrt(jnp.maximum(values, 0))
    return matmul(Q * roots[None, :], Q.T)


@square_root.def_jvp
def _square_root_jvp(primals, tangents):
    (M,) = primals
    (dM,) = tangents
    R = square_root(M)

    def products(X):
        return matmul(R, X) + matmul(X, R)

    def solve(_, C):
        # In the eigenbasis of R: (Q^T X Q)_ij = (Q^T C Q)_ij / (r_i + r_j).
        roots, Q = jnp.linalg.eigh(lax.stop_gradient(R))
        # The root zero is computed as a number of either sign within rounding of the largest one.
        rounding = len(R) * eps_of(R) * jnp.max(jnp.abs(roots))
        roots = jnp.where(roots > rounding, roots, 0)
        sums = roots[:, None] + roots[None, :]
        quotients = matmul(Q.T, matmul(C, Q)) / positive_or_one(sums)
        return matmul(Q, matmul(jnp.where(sums > 0, quotients, 0), Q.T))

    symmetric = (dM + dM.T) / 2
    return R, lax.custom_linear_solve(products, symmetric, solve, symmetric=True)
