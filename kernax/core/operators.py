"""Matrices that are never held, as lineax operators."""

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
