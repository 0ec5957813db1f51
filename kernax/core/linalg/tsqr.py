"""QR and singular value decompositions of tall matrices, possibly spread over a mesh."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.numerics import matmul
from kernax.core.operators.mesh import RowsOverMesh, on_parts


def tsqr(
    A: Float[Array, "n r"], rows: RowsOverMesh | None
) -> tuple[Float[Array, "n r"], Float[Array, "r r"]]:
    """`A = Q R` with orthonormal columns of Q and an upper triangular R.

    If rows are spread, each device factorises its own rows, and all devices together factorise the
    triangular factors, stacked below each other (Demmel, Grigori, Hoemmen & Langou 2012, section
    3). Only these, devices x r^2 numbers, are exchanged.
    """
    if rows is None:
        return sequential_vmap(jnp.linalg.qr, A)
    # A_i = Q_i R_i on device i, and [R_1; R_2; ...] = [V_1; V_2; ...] R: the rows Q_i V_i are Q.
    parts, triangles = on_parts(lambda _, A: sequential_vmap(jnp.linalg.qr, A), rows, None, A)
    turns, R = sequential_vmap(jnp.linalg.qr, triangles)
    return on_parts(lambda _, Q, turn: matmul(Q, turn), rows, None, parts, turns), R


def svd_by_tsqr(
    A: Float[Array, "n r"], rows: RowsOverMesh | None
) -> tuple[Float[Array, "n r"], Float[Array, " r"]]:
    """The left singular vectors of A and its singular values, descending."""
    Q, R = tsqr(A, rows)
    # R = U diag(values) V^T, so that A = (Q U) diag(values) V^T.
    U, values, _ = sequential_vmap(jnp.linalg.svd, R)
    return matmul(Q, U), values
