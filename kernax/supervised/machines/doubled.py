"""The Gram matrix of points that each occur twice, from the Gram matrix of the points."""

import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from kernax.core.operators.operators import AbstractGram, WeightedForm


class DoubledGram(AbstractGram):
    """`[[K, K], [K, K]]`, which stores K alone: point i and point m + i of 2 m points are the
    same.
    """

    gram: AbstractGram

    @property
    def solves_sequentially(self):
        return self.gram.solves_sequentially

    @property
    def is_dense(self):
        return self.gram.is_dense

    @property
    def largest_rank(self):
        return self.gram.largest_rank

    def mv(self, vector):
        return _twice(self.gram.mv(self._folded(vector)))

    def compensated_mv(self, vector):
        return _twice(self.gram.compensated_mv(self._folded(vector)))

    def squares_in_products(self, vector):
        # sum_j K_ij^2 (v_j^2 + v_(m+j)^2)
        return _twice(self.gram.squares_in_products(jnp.sqrt(self._folded(vector**2))))

    def diagonal(self):
        return _twice(self.gram.diagonal())

    def rows(self, indices):
        once = self.gram.rows(indices % self._count)
        return jnp.concatenate([once, once], 1)

    def columns_product(self, indices, values):
        return _twice(self.gram.columns_product(indices % self._count, values))

    def submatrix(self, indices):
        # The indices of K need not differ: k(x_i, x_i) is taken from the diagonal.
        once = indices % self._count
        same = once[:, None] == once[None, :]
        return jnp.where(same, self.gram.diagonal()[once][:, None], self.gram.submatrix(once))

    def stored(self):
        return DoubledGram(self.gram.stored())

    def symmetric_form(self, weights, shift) -> lx.AbstractLinearOperator:
        return WeightedForm(self, weights, shift)

    def as_matrix(self):
        return jnp.tile(self.gram.as_matrix(), (2, 2))

    def in_structure(self):
        once = self.gram.in_structure()
        return jax.ShapeDtypeStruct((2 * once.shape[0],), once.dtype)

    @property
    def _count(self) -> int:
        """The number of points, each counted once."""
        return self.gram.in_size()

    def _folded(self, vector: Float[Array, "n *p"]) -> Float[Array, "m *p"]:
        """The sum over both copies of each point."""
        return vector[: self._count] + vector[self._count :]


def _twice(v: Float[Array, "m *p"]) -> Float[Array, "n *p"]:
    """The same numbers for both copies of each point."""
    return jnp.concatenate([v, v])
