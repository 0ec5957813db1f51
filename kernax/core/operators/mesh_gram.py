"""The matrix-free Gram matrix of points that are spread over the devices of a mesh."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.boundary import count
from kernax.core.base.compiled import compiled
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.computed import AbstractComputedGram
from kernax.core.operators.mesh import RowsOverMesh, on_parts
from kernax.core.operators.operators import WeightedForm
from kernax.core.operators.tiles import product_by_rows, product_by_tiles, products_both_ways


class MeshGram(AbstractComputedGram):
    """The matrix-free Gram matrix of a batch with rows that are spread over a mesh.

    The devices form a ring. For a product each computes the tiles of its own block of points, and
    those of its points with the points of the devices at the offsets 1, 2, ..., which are passed to
    it with their part of the vectors. As K is symmetric, up to half of the ring a tile is computed
    once, for its rows and its columns, and the result for the columns is passed back. In a ring of
    even length, opposite devices each compute the result for their own rows.

    Only blocks of points and vectors are exchanged, one at a time, in the forward and the backward
    pass: each device needs O((block_size + d) n / devices) numbers. Derivatives are exact to every
    order.

    Attributes:
        block_size: the number of rows of K that are computed at a time.
        spread: the mesh of the rows.
    """

    kernel: AbstractKernel
    points: PyTree
    block_size: int = eqx.field(static=True)
    spread: RowsOverMesh = eqx.field(static=True)

    def product(self, columns):
        return _product(self.kernel, self.points, columns, self.block_size, self.spread)

    def columns_product(self, indices, values):
        whole = (self.kernel, points_at(self.points, indices), values, indices)
        return product_over_mesh(whole, self.points, self.block_size, self.spread)

    def squares_in_products(self, vector):
        # The squared entries form the Gram matrix of the squared kernel.
        squares = MeshGram(self.kernel * self.kernel, self.points, self.block_size, self.spread)
        return squares.mv(vector**2)

    def symmetric_form(self, weights, shift):
        return WeightedForm(self, weights, shift)


@compiled
def _product(
    kernel: AbstractKernel, X: PyTree, V: Float[Array, "n p"], most_rows: int, spread: RowsOverMesh
) -> Float[Array, "n p"]:
    """`K V` for points and vectors with the same distribution."""

    # In the backward pass the points of another device are passed on again, so that at most one
    # block of them is in memory.
    @partial(jax.checkpoint, prevent_cse=False)
    def at_offset(offset, kernel, X, V):
        # k(X, Z) V_Z stays here, and k(X, Z)^T V_X goes back to the device of Z.
        Z, of_Z = _passed_on((X, V), offset, 1, spread)
        to_X, to_Z = products_both_ways(kernel, X, Z, V, of_Z, most_rows)
        return to_X + _passed_on(to_Z, offset, -1, spread)

    # Each of the two devices meets the other here, so that nothing is passed back.
    @jax.checkpoint
    def opposite(kernel, X, V):
        Z, of_Z = _from_offset(spread.parts // 2, spread, (X, V))
        return product_by_rows(kernel, X, Z, of_Z, most_rows)

    def of_part(kernel, X, V):
        """The rows for the points X of this device, with its part V of the vectors."""

        def step(product, offset):
            return product + at_offset(offset, kernel, X, V), None

        # (K V)_p = k(X_p, X_p) V_p + sum_{q != p} k(X_p, X_q) V_q.
        product = product_by_tiles(kernel, X, V, most_rows * count(X))
        # The offsets below half of the ring; for an even number the opposite device remains.
        if spread.parts > 2:
            product, _ = lax.scan(step, product, jnp.arange(1, (spread.parts + 1) // 2))
        return product + opposite(kernel, X, V) if spread.parts % 2 == 0 else product

    return on_parts(of_part, spread, kernel, X, V)


def _passed_on(block: PyTree, offset: Int[Array, ""], sign: int, spread: RowsOverMesh) -> PyTree:
    """The block of the device at `sign * offset` in the ring. A loop counts the offset, which is
    the same on all devices. There is a branch for each, because offsets must be known at compile
    time.
    """
    offsets = [sign * each for each in range(1, (spread.parts + 1) // 2)]
    return lax.switch(offset - 1, [partial(_from_offset, each, spread) for each in offsets], block)


def _from_offset(offset: int, spread: RowsOverMesh, block: PyTree) -> PyTree:
    """The block of the device at an offset from this one in the ring."""
    parts = spread.parts
    senders = [((i + offset) % parts, i) for i in range(parts)]
    return jax.tree.map(lambda leaf: lax.ppermute(leaf, spread.axes, senders), block)


@compiled
def product_over_mesh(
    whole: tuple[AbstractKernel, PyTree, Float[Array, "m *p"], Int[Array, " m"] | None],
    X: PyTree,
    most_rows: int,
    spread: RowsOverMesh,
) -> Float[Array, "n *p"]:
    """`k(X, Z) V` for points X over a mesh. `whole`, which is copied to each device, contains the
    kernel, Z, V, and the indices of Z in X, or None for other points.
    """

    def of_part(whole, X):
        kernel, Z, V, indices = whole
        if indices is not None:
            # Row i of this device is row first + i of all X.
            first = lax.axis_index(spread.axes) * count(X)
            indices = indices - first.astype(indices.dtype)
        return product_by_rows(kernel, X, Z, V, most_rows, indices)

    return on_parts(of_part, spread, whole, X)
