"""Symmetric products, of which little more than one half is computed."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.numerics import requested_matmul

_ROWS_OF_BAND = 128  # at least; a matrix product of so many rows is as fast as one of more
_MOST_BANDS = 8  # which leaves 9/16 of all products


def upper_bands(A: Float[Array, "m n"], B: Float[Array, "n m"]) -> list[Float[Array, "_ _"]]:
    """`A B`, where that is symmetric, in bands of rows, each from its diagonal block on."""
    m = len(A)
    bands = max(1, min(_MOST_BANDS, m // _ROWS_OF_BAND))
    edges = np.linspace(0, m, bands + 1).astype(int)
    return [requested_matmul(A[i:j], B[:, i:]) for i, j in pairwise(edges)]


def whole_of_bands(bands: list[Float[Array, "_ _"]]) -> Float[Array, "m m"]:
    """The matrix that these bands make up."""
    m = bands[0].shape[1]
    # Not by updates in place, with which jaxlib 0.10.2 hangs or crashes on a CPU.
    rows = [jnp.pad(band, ((0, 0), (m - band.shape[1], 0))) for band in bands]
    upper = jnp.concatenate(rows)
    # A_ij = U_ij for j >= i, and U_ji below the diagonal.
    return jnp.triu(upper) + jnp.triu(upper, 1).T
