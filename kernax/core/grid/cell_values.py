"""Values at some cells of a grid, and matrices in blocks of columns."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Rows = tuple[Float[Array, " _"], ...]

_COLUMNS_AT_ONCE = 2**22  # numbers


def placed(cells: Int[Array, " m"], values: Float[Array, "m p"], size: int) -> Float[Array, "N p"]:
    """`U values`."""
    nothing = jnp.zeros_like(values, shape=(size, values.shape[1]))
    return nothing.at[cells].set(values)


def blocks_of_columns(G: Float[Array, "m k"], rows: int) -> Float[Array, "b m c"]:
    """The columns of a matrix in blocks, small enough that a product with that many rows fits into
    memory. Zero columns pad the last block.
    """
    m, k = G.shape
    at_once = max(1, min(k, _COLUMNS_AT_ONCE // rows))
    blocks = -(-k // at_once)
    filled = jnp.zeros((m, blocks * at_once), G.dtype).at[:, :k].set(G)
    return jnp.moveaxis(filled.reshape(m, blocks, at_once), 1, 0)
