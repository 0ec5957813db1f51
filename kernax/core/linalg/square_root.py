"""The symmetric square root of a positive semidefinite matrix."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.numerics import matmul, positive_or_one


@jax.custom_jvp
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


@square_root.defjvp
def _square_root_jvp(primals, tangents):
    (M,) = primals
    (dM,) = tangents
    R = square_root(M)

    def products(X):
        return matmul(R, X) + matmul(X, R)

    def solve(_, C):
        # In the eigenbasis of R: (Q^T X Q)_ij = (Q^T C Q)_ij / (r_i + r_j).
        roots, Q = jnp.linalg.eigh(lax.stop_gradient(R))
        sums = jnp.maximum(roots, 0)[:, None] + jnp.maximum(roots, 0)[None, :]
        quotients = matmul(Q.T, matmul(C, Q)) / positive_or_one(sums)
        return matmul(Q, matmul(jnp.where(sums > 0, quotients, 0), Q.T))

    symmetric = (dM + dM.T) / 2
    return R, lax.custom_linear_solve(products, symmetric, solve, symmetric=True)
