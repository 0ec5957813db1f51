"""Matrices that are never held, as lineax operators, and what solvers of symmetric ones have in common."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float

from kernax.core.numerics import product


class FeatureOperator(lx.AbstractLinearOperator):
    """`F F^T + diag(shift)`, F (n, features): never a matrix of n^2 numbers."""

    features: Float[Array, "n d"]
    shift: Float[Array, " n"]

    def mv(self, vector):
        return product(self.features, product(vector, self.features)) + self.shift * vector

    def as_matrix(self):
        return product(self.features, self.features.T) + jnp.diag(self.shift)

    def transpose(self):
        return self

    def in_structure(self):
        return jax.ShapeDtypeStruct(self.shift.shape, self.shift.dtype)

    def out_structure(self):
        return self.in_structure()


class ShiftedOperator(lx.AbstractLinearOperator):
    """`S K S + diag(shift)`, S the diagonal matrix of `roots`, or one where these are None.

    What lineax composes of K, S and the shift would do, but for `jax.shard_map`: it takes parts that vary over different axes
    of the mesh for parts of different structure.
    """

    operator: lx.AbstractLinearOperator
    roots: Float[Array, " n"] | None
    shift: Float[Array, " n"]

    def mv(self, vector):
        if self.roots is None:
            return self.operator.mv(vector) + self.shift * vector
        return self.roots * self.operator.mv(self.roots * vector) + self.shift * vector

    def as_matrix(self):
        K = self.operator.as_matrix()
        if self.roots is not None:
            K = self.roots[:, None] * K * self.roots[None, :]
        return K + jnp.diag(self.shift)

    def diagonal(self) -> Float[Array, " n"]:
        """That of the matrix, which is not held for it."""
        of_K = lx.diagonal(self.operator)
        return (of_K if self.roots is None else self.roots**2 * of_K) + self.shift

    def transpose(self):
        return self

    def in_structure(self):
        return jax.eval_shape(lambda: self.shift)  # with the axes of a mesh that it varies over

    def out_structure(self):
        return self.in_structure()


class AbstractSymmetricSolver(lx.AbstractLinearSolver):
    """A solver of symmetric real systems, which are their own transpose and conjugate."""

    def transpose(self, state, options):
        return state, options

    def conj(self, state, options):
        return state, options

    def assume_full_rank(self):
        return True


def tell_lineax(operator: type[lx.AbstractLinearOperator], diagonal: Callable) -> None:
    """The facts about the operators of Gram matrices: symmetric and positive semidefinite, of no sparser structure."""
    for fact in (lx.is_symmetric, lx.is_positive_semidefinite):
        fact.register(operator)(lambda _: True)
    for fact in (
        lx.is_diagonal,
        lx.is_tridiagonal,
        lx.has_unit_diagonal,
        lx.is_lower_triangular,
        lx.is_upper_triangular,
        lx.is_negative_semidefinite,
    ):
        fact.register(operator)(lambda _: False)
    tag = lx.positive_semidefinite_tag
    lx.linearise.register(operator)(lambda operator: operator)
    lx.conj.register(operator)(lambda operator: operator)
    lx.materialise.register(operator)(lambda operator: lx.MatrixLinearOperator(operator.as_matrix(), tag))
    lx.diagonal.register(operator)(diagonal)


tell_lineax(FeatureOperator, lambda operator: jnp.sum(operator.features**2, 1) + operator.shift)
tell_lineax(ShiftedOperator, ShiftedOperator.diagonal)
