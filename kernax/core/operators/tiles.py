"""Products with Gram matrices that are never held: in tiles that stay in a cache, or by rows."""

import math
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import expand_to, matmul
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import diagonal_of
from kernax.core.operators.pairs import all_pairs, pairs_at_once, rows_at_once
from kernax.core.operators.pairwise.product import product_in_registers

# Two tiles in one step, side by side, keep two cores busy.
_TOGETHER = 2
# Bytes of a tile: on a CPU, what the second cache of a core holds.
_LARGEST_TILE = {"cpu": 2**20}
_LARGEST_ELSEWHERE = 2**26


@compiled
def product_by_tiles(
    kernel: AbstractKernel, X: PyTree, V: Float[Array, "n p"], most_pairs: int
) -> Float[Array, "n p"]:
    """`K V` of one stack, with the exact diagonal `k(x, x)`.

    K is symmetric: a tile above the diagonal is computed once, for its rows and its columns. In the
    backward pass it is computed again. No more than `most_pairs` pairs are held at a time. On a GPU
    all pairs are computed in registers instead, and none is held, where the kernel suits.
    """
    in_registers = product_in_registers(kernel, X, None, V)
    if in_registers is not None:
        return in_registers
    # How many blocks of points make tiles that are small enough: three, seven, eleven, ...
    largest = _LARGEST_TILE.get(jax.default_backend(), _LARGEST_ELSEWHERE)
    pairs = min(
        largest // dtype_of(X).itemsize, most_pairs // _TOGETHER, pairs_at_once(kernel, X, X)
    )
    least = -(-count(X) // max(1, math.isqrt(pairs)))
    number_of_blocks = least + (3 - least) % 4
    product = _Tiles.of(kernel, X, V, number_of_blocks).product()
    columns = jnp.swapaxes(product, 1, 2).reshape(-1, V.shape[1])[: len(V)]
    return columns + expand_to(diagonal_of(kernel, X), V) * V


class _Tiles(eqx.Module):
    """K without its diagonal, cut into square tiles, and what it is multiplied by.

    The blocks of points stand in a circle of 2m + 1. Block i is paired with those at the offsets 0,
    1, ..., m from it, by which every pair of blocks is there once. Since m is odd, these are pairs
    of offsets: a block and two neighbouring ones make a step.

    Attributes:
        parts: the points in blocks, of as many points each; the last point again where there are
            too few.
        values: the vectors (blocks, p, side), zero where points stand again.
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
        # Inside of a scan nothing needs to be kept from being computed once for both passes.
        at_offsets = jax.checkpoint(_Tiles.at_offsets, prevent_cse=False)

        def step(product, offset):
            return product + at_offsets(self, offset), None

        # The offsets 0, 1, ..., m of the 2 m + 1 blocks, two at a time.
        steps = (len(self.values) + 1) // (2 * _TOGETHER)
        return lax.scan(step, jnp.zeros_like(self.values), _TOGETHER * jnp.arange(steps))[0]

    def at_offsets(self, offset: Int[Array, ""]) -> Float[Array, "blocks p side"]:
        """What the tiles of every block and those at an offset and at the next one from it add."""
        # All blocks are moved at once: in the backward pass, a block picked from all of them would
        # be added to an array of zeros for all of them.
        parts = _at_offset(offset, self.parts, 1)
        values = _at_offset(offset, self.values, 2)
        of_step = jax.checkpoint(_Tiles.of_step, prevent_cse=False)

        def step(xs):
            return of_step(self, offset, *xs)

        to_rows, to_columns = lax.map(step, (self.parts, self.values, parts, values))
        # What block i adds for the blocks i + offset and i + offset + 1 is put where those stand.
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
        """What one block and the two at an offset from it add to the product: for the rows of their
        tiles, and for the columns.
        """
        tile = all_pairs(self.kernel, _copied(rows), _copied(columns)).astype(of_rows.dtype)
        first = offset == 0
        tile = jnp.where(first & jnp.eye(*tile.shape, dtype=bool), 0, tile)
        # A tile on the diagonal holds both halves of what is symmetric.
        again = first & (jnp.arange(tile.shape[1]) < len(tile))
        return _times(of_columns, tile, 1), jnp.where(again[None, :], 0, _times(of_rows, tile, 0))


def _in_blocks(leaf: Array, filling: Array, blocks: int) -> Array:
    """An array in blocks of as many rows each, the last of them filled up with a row."""
    side = -(-len(leaf) // blocks)
    filled = jnp.concatenate([leaf, jnp.repeat(filling, blocks * side - len(leaf), 0)])
    return filled.reshape(blocks, side, *leaf.shape[1:])


def _moved(blocks: PyTree, offset: Int[Array, ""] | int) -> PyTree:
    """The blocks moved on in their circle: block i stands where block i + offset was."""
    return jax.tree.map(lambda leaf: jnp.roll(leaf, offset, 0), blocks)


def _at_offset(offset: Int[Array, ""], blocks: PyTree, axis: int) -> PyTree:
    """For every block, the one at an offset from it and the next one, joined along the axis of
    their points.
    """
    first = _moved(blocks, -offset)
    joined = lambda *pair: jnp.concatenate(pair, axis)
    return jax.tree.map(joined, first, _moved(first, -1))


def _copied(points: PyTree) -> PyTree:
    """The same points in an array of their own, by a gather, which XLA fuses with nothing: on a CPU
    it would else read them for each entry from the array of all blocks, which takes four times as
    long (8 coordinates, jaxlib 0.10.2).
    """

    def copy(leaf):
        indices = jnp.arange(len(leaf))
        in_order = {"unique_indices": True, "indices_are_sorted": True}
        return leaf.at[indices].get(mode="promise_in_bounds", **in_order)

    return jax.tree.map(copy, points)


def _times(values: Float[Array, "p m"], tile: Float[Array, "a b"], axis: int) -> Array:
    """`V K^T` or `V K`, as the axis of K that is summed over is 1 or 0."""
    # Vectors in rows: with K on the right, XLA copies no tile to transpose it.
    dimensions = (((1,), (axis,)), ((), ()))
    return lax.dot_general(values, tile, dimensions, precision=lax.Precision.HIGHEST)


@compiled
def products_both_ways(
    kernel: AbstractKernel,
    X: PyTree,
    Z: PyTree,
    of_X: Float[Array, "n p"],
    of_Z: Float[Array, "m p"],
    most_rows: int,
) -> tuple[Float[Array, "n p"], Float[Array, "m p"]]:
    """`k(X, Z) V` and `k(X, Z)^T U`, of V beside Z and U beside X, some rows at a time.

    A row is computed once for both, and again in the backward pass.
    """
    # How many rows of `k(X, Z)` make a tile that is small enough.
    largest = _LARGEST_TILE.get(jax.default_backend(), _LARGEST_ELSEWHERE)
    in_cache = largest // (dtype_of(X, Z).itemsize * count(Z))
    rows_of_tile = max(1, min(in_cache, rows_at_once(kernel, X, Z, most_rows)))
    blocks = -(-count(X) // rows_of_tile)
    parts = jax.tree.map(lambda leaf: _in_blocks(leaf, leaf[-1:], blocks), X)
    values = jnp.swapaxes(_in_blocks(of_X, jnp.zeros_like(of_X[-1:]), blocks), 1, 2)
    of_rows = jax.checkpoint(partial(_both_ways, kernel, Z, of_Z.T), prevent_cse=False)

    def step(to_Z, part):
        to_rows, more = of_rows(*part)
        return to_Z + more, to_rows

    to_Z, to_X = lax.scan(step, jnp.zeros_like(of_Z.T), (parts, values))
    return jnp.swapaxes(to_X, 1, 2).reshape(-1, of_X.shape[1])[: count(X)], to_Z.T


def _both_ways(
    kernel: AbstractKernel, Z: PyTree, of_Z: Float[Array, "p m"], rows: PyTree, of_rows: Array
) -> tuple[Float[Array, "p side"], Float[Array, "p m"]]:
    """What the tile of some rows adds to the product for those, and for its columns."""
    tile = all_pairs(kernel, _copied(rows), Z).astype(of_rows.dtype)
    return _times(of_Z, tile, 1), _times(of_rows, tile, 0)


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

    Where Z are the points of X at `indices`, a point beside itself is exactly `k(x, x)`.
    """

    if indices is None:
        columns = V.reshape(len(V), math.prod(V.shape[1:]))
        in_registers = product_in_registers(kernel, X, Z, columns)
        if in_registers is not None:
            return in_registers.reshape(count(X), *V.shape[1:])

    def entry(numbered):
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
    """`k(x, z_j)` for every point of a stack."""
    return jax.vmap(lambda z: kernel(x, z))(Z)
