"""Matrix-free products with Gram matrices: in tiles that stay in a cache, or by rows."""

import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import expand_to, matmul, requested_precision
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import diagonal_of
from kernax.core.operators.pairs import all_pairs, pairs_at_once, rows_at_once
from kernax.core.operators.pairwise.product import product_in_registers

# Two tiles in one step keep two cores busy.
_TOGETHER = 2
# Bytes of a tile: on a CPU, the size of the second-level cache of a core.
_LARGEST_TILE = {"cpu": 2**20}
_LARGEST_ELSEWHERE = 2**26


@compiled
def product_by_tiles(
    kernel: AbstractKernel, X: PyTree, V: Float[Array, "n p"], most_pairs: int
) -> Float[Array, "n p"]:
    """`K V` for one batch, with the exact diagonal `k(x, x)`.

    As K is symmetric, a tile above the diagonal is computed once, for its rows and its columns. It
    is computed again in the backward pass. At most `most_pairs` pairs are in memory at a time. On a
    GPU, for suitable kernels, all pairs are computed in registers instead, and none is stored.
    """
    in_registers = product_in_registers(kernel, X, None, V)
    if in_registers is not None:
        return in_registers
    # The number of blocks of points with small enough tiles: three, seven, eleven, ...
    largest = _LARGEST_TILE.get(jax.default_backend(), _LARGEST_ELSEWHERE)
    pairs = min(
        largest // dtype_of(X).itemsize, most_pairs // _TOGETHER, pairs_at_once(kernel, X, X)
    )
    # 2 m + 1 blocks with odd m: 3 modulo 4.
    least = -(-count(X) // max(1, math.isqrt(pairs)))
    number_of_blocks = least + (3 - least) % 4
    product = _Tiles.of(kernel, X, V, number_of_blocks).product()
    # K V = (K - diag(K)) V + diag(K) V.
    columns = jnp.swapaxes(product, 1, 2).reshape(-1, V.shape[1])[: len(V)]
    return columns + expand_to(diagonal_of(kernel, X), V) * V


class _Tiles(eqx.Module):
    """K without its diagonal, in square tiles, and the vectors that it multiplies.

    The blocks of points form a ring of length 2m + 1. Block i is paired with those at the offsets
    0, 1, ..., m, so that every pair of blocks occurs once. As m is odd, offsets come in pairs: a
    step uses a block and two neighbouring ones.

    Attributes:
        parts: the points in blocks of equal size, padded with copies of the last point.
        values: the vectors (blocks, p, side), zero for the copies.
    """

    kernel: AbstractKernel
    parts: PyTree
    values: Float[Array, "blocks p side"]

    @staticmethod
    def of(kernel: AbstractKernel, X: PyTree, V: Float[Array, "n p"], blocks: int) -> "_Tiles":
        parts = jax.tree.map(lambda leaf: _in_blocks(leaf, leaf[-1:], blocks), X)
        values = _in_blocks(V, jnp.zeros_like(V[-1:]), blocks)
        return _Tiles(kernel, parts, jnp.swapaxes(values, 1, 2))

    def product(self) -> Float[Array, "blocks p side"]:
        """`(K - diag(K)) V`."""
        # Inside of a scan there is no need to prevent common subexpression elimination.
        at_offsets = jax.checkpoint(_Tiles.at_offsets, prevent_cse=False)

        def step(product, offset):
            return product + at_offsets(self, offset), None

        # The offsets 0, 1, ..., m of the 2 m + 1 blocks, two at a time.
        steps = (len(self.values) + 1) // (2 * _TOGETHER)
        return lax.scan(step, jnp.zeros_like(self.values), _TOGETHER * jnp.arange(steps))[0]

    def at_offsets(self, offset: Int[Array, ""]) -> Float[Array, "blocks p side"]:
        """The contributions of the tiles of each block with those at an offset and the next one."""
        # All blocks are moved at once, because in the backward pass a single selected block would
        # be added to an array of zeros for all blocks.
        parts = _at_offset(offset, self.parts, 1)
        values = _at_offset(offset, self.values, 2)
        of_step = jax.checkpoint(_Tiles.of_step, prevent_cse=False)

        def step(xs):
            return of_step(self, offset, *xs)

        to_rows, to_columns = lax.map(step, (self.parts, self.values, parts, values))
        # Contributions of block i to the blocks i + offset and i + offset + 1 are moved to those.
        to_first, to_second = jnp.split(to_columns, 2, 2)
        return to_rows + _moved(to_first, offset) + _moved(to_second, offset + 1)

    def of_step(
        self,
        offset: Int[Array, ""],
        rows: PyTree,
        of_rows: Float[Array, "p side"],
        columns: PyTree,
        of_columns: Float[Array, "p both"],
    ) -> tuple[Float[Array, "p side"], Float[Array, "p both"]]:
        """The contributions of one block and the two at an offset from it to the product: for the
        rows of their tiles, and for the columns.
        """
        # K_ij of a block i and two others j, without the diagonal of K: K_ij V_j contributes to
        # block i of the product, and K_ij^T V_i to the blocks j.
        tile = all_pairs(self.kernel, _copied(rows), _copied(columns)).astype(of_rows.dtype)
        first = offset == 0
        tile = jnp.where(first & jnp.eye(*tile.shape, dtype=bool), 0, tile)
        # A tile on the diagonal contains both symmetric halves.
        again = first & (jnp.arange(tile.shape[1]) < len(tile))
        return _times(of_columns, tile, 1), jnp.where(again[None, :], 0, _times(of_rows, tile, 0))


def _in_blocks(leaf: Array, filling: Array, blocks: int) -> Array:
    """An array in blocks of equal numbers of rows, padded with the given row."""
    side = -(-len(leaf) // blocks)
    filled = jnp.concatenate([leaf, jnp.repeat(filling, blocks * side - len(leaf), 0)])
    return filled.reshape(blocks, side, *leaf.shape[1:])


def _moved(blocks: PyTree, offset: Int[Array, ""] | int) -> PyTree:
    """The blocks rotated in their ring: block i moves to position i + offset."""
    return jax.tree.map(lambda leaf: jnp.roll(leaf, offset, 0), blocks)


def _at_offset(offset: Int[Array, ""], blocks: PyTree, axis: int) -> PyTree:
    """For every block, the one at an offset from it and the next one, concatenated along the axis
    of points.
    """
    first = _moved(blocks, -offset)
    joined = lambda *pair: jnp.concatenate(pair, axis)
    return jax.tree.map(joined, first, _moved(first, -1))


def _copied(points: PyTree) -> PyTree:
    """The same points in a separate array, by a gather, which XLA does not fuse. Otherwise it would
    read them on a CPU for each entry from the array of all blocks, which takes four times as long
    (8 coordinates, jaxlib 0.10.2).
    """

    def copy(leaf):
        indices = jnp.arange(len(leaf))
        in_order = {"unique_indices": True, "indices_are_sorted": True}
        return leaf.at[indices].get(mode="promise_in_bounds", **in_order)

    return jax.tree.map(copy, points)


def _times(values: Float[Array, "p m"], tile: Float[Array, "a b"], axis: int) -> Array:
    """`V K^T` or `V K`, depending on whether the sum is over axis 1 or 0 of K."""
    # Vectors are rows: with K on the right, XLA copies no tile to transpose it.
    dimensions = (((1,), (axis,)), ((), ()))
    return lax.dot_general(values, tile, dimensions, precision=requested_precision(tile.dtype))


@compiled
def products_both_ways(
    kernel: AbstractKernel,
    X: PyTree,
    Z: PyTree,
    of_X: Float[Array, "n p"],
    of_Z: Float[Array, "m p"],
    most_rows: int,
) -> tuple[Float[Array, "n p"], Float[Array, "m p"]]:
    """`k(X, Z) V` and `k(X, Z)^T U`, with V for Z and U for X, some rows at a time.

    A row is computed once for both, and again in the backward pass.
    """
    # The number of rows of `k(X, Z)` of a small enough tile.
    largest = _LARGEST_TILE.get(jax.default_backend(), _LARGEST_ELSEWHERE)
    in_cache = largest // (dtype_of(X, Z).itemsize * count(Z))
    rows_of_tile = max(1, min(in_cache, rows_at_once(kernel, X, Z, most_rows)))
    blocks = -(-count(X) // rows_of_tile)
    parts = jax.tree.map(lambda leaf: _in_blocks(leaf, leaf[-1:], blocks), X)
    values = jnp.swapaxes(_in_blocks(of_X, jnp.zeros_like(of_X[-1:]), blocks), 1, 2)
    of_columns = of_Z.T

    @partial(jax.checkpoint, prevent_cse=False)
    def of_tile(rows, of_rows):
        # V K^T, with the vectors V for Z, contributes to the rows; U K, with those for X, to the
        # columns.
        tile = all_pairs(kernel, _copied(rows), Z).astype(of_rows.dtype)
        return _times(of_columns, tile, 1), _times(of_rows, tile, 0)

    def step(to_Z, part):
        to_rows, more = of_tile(*part)
        return to_Z + more, to_rows

    to_Z, to_X = lax.scan(step, jnp.zeros_like(of_columns), (parts, values))
    return jnp.swapaxes(to_X, 1, 2).reshape(-1, of_X.shape[1])[: count(X)], to_Z.T


@compiled
def product_by_rows(
    kernel: AbstractKernel,
    X: PyTree,
    Z: PyTree,
    V: Float[Array, "m *p"],
    most_rows: int,
    indices: Int[Array, " m"] | None = None,
) -> Float[Array, "n *p"]:
    """`k(X, Z) V`, some rows at a time, computed again in the backward pass.

    If Z are the points of X at `indices`, the value of a point with itself is exactly `k(x, x)`.
    """

    if indices is None:
        columns = V.reshape(len(V), math.prod(V.shape[1:]))
        in_registers = product_in_registers(kernel, X, Z, columns)
        if in_registers is not None:
            return in_registers.reshape(count(X), *V.shape[1:])

    def entry(numbered):
        # (k(X, Z) V)_i = sum_j k(x_i, z_j) V_j.
        i, x = numbered
        row = _row(kernel, x, Z)
        if indices is not None:
            row = jnp.where(indices.astype(i.dtype) == i, kernel(x, x), row)
        return matmul(row, V)

    rows = rows_at_once(kernel, X, Z, most_rows)
    return lax.map(jax.checkpoint(entry), (jnp.arange(count(X)), X), batch_size=rows)


@compiled
def squares_by_rows(
    kernel: AbstractKernel, X: PyTree, vector: Float[Array, " n"], most_rows: int
) -> Float[Array, " n"]:
    """`sum_j (K_ij v_j)^2`, some rows at a time."""

    def entry(x):
        return jnp.sum((_row(kernel, x, X) * vector) ** 2)

    return lax.map(entry, X, batch_size=rows_at_once(kernel, X, X, most_rows))


def _row(kernel: AbstractKernel, x: PyTree, Z: PyTree) -> Float[Array, " m"]:
    """`k(x, z_j)` for every point of a batch."""
    return jax.vmap(lambda z: kernel(x, z))(Z)
