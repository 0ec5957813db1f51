"""Matrix-free Gram matrices of a kernel, of which each product computes tiles or some rows at a
time.
"""

import equinox as eqx
import jax
from jaxtyping import PyTree

from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.computed import AbstractComputedGram, gram_of_prepared
from kernax.core.operators.mesh import RowsOverMesh
from kernax.core.operators.mesh_gram import product_over_mesh
from kernax.core.operators.operators import AbstractCrossGram, WeightedForm
from kernax.core.operators.tiles import product_by_rows, product_by_tiles, squares_by_rows


class BlockedGram(AbstractComputedGram):
    """A matrix-free Gram matrix of a batch; each product computes it in tiles.

    At most `block_size n` numbers are in memory at a time, in the backward pass as well. The
    diagonal is exactly `k(x, x)`, as in `gram`; the distance of a point to itself would be rounded
    like any other.
    """

    kernel: AbstractKernel
    points: PyTree
    block_size: int = eqx.field(static=True)

    def product(self, columns):
        most_pairs = self.block_size * count(self.points)
        return product_by_tiles(self.kernel, self.points, columns, most_pairs)

    def columns_product(self, indices, values):
        part = points_at(self.points, indices)
        return product_by_rows(self.kernel, self.points, part, values, self.block_size, indices)

    def squares_in_products(self, vector):
        return squares_by_rows(self.kernel, self.points, vector, self.block_size)

    def symmetric_form(self, weights, shift):
        return WeightedForm(self, weights, shift)


class BlockedCrossGram(AbstractCrossGram):
    """`k(x_i, z_j)` for two batches, matrix-free; products compute `block_size` rows at a time."""

    kernel: AbstractKernel
    X: PyTree
    Z: PyTree
    block_size: int = eqx.field(static=True)
    spread: RowsOverMesh | None = eqx.field(static=True, default=None)  # of the rows of X

    def mv(self, vector):
        if self.spread is None:
            return product_by_rows(self.kernel, self.X, self.Z, vector, self.block_size)
        whole = (self.kernel, self.Z, vector, None)
        return product_over_mesh(whole, self.X, self.block_size, self.spread)

    def rows(self, indices):
        return gram_of_prepared(self.kernel, points_at(self.X, indices), self.Z)

    def as_matrix(self):
        return gram_of_prepared(self.kernel, self.X, self.Z)

    def transpose(self):
        return BlockedCrossGram(self.kernel, self.Z, self.X, self.block_size)

    def in_structure(self):
        return jax.ShapeDtypeStruct((count(self.Z),), dtype_of(self.X, self.Z))

    def out_structure(self):
        return jax.ShapeDtypeStruct((count(self.X),), dtype_of(self.X, self.Z))
