"""Operators of lineax as Gram matrices."""

import jax
import lineax as lx

from kernax.core.operators.operators import (
    AbstractGram,
    AbstractMatrixFreeGram,
    DenseGram,
    WeightedForm,
    in_places,
)


class ForeignGram(AbstractMatrixFreeGram):
    """Any operator of lineax as a Gram matrix, by its products or as an array."""

    operator: lx.AbstractLinearOperator

    def mv(self, vector):
        if vector.ndim == 1:
            return self.operator.mv(vector)
        return jax.vmap(self.operator.mv, 1, 1)(vector)

    def compensated_mv(self, vector):
        return self.operator.mv(vector)

    def squares_in_products(self, vector):
        return self.stored().squares_in_products(vector)

    def diagonal(self):
        return lx.diagonal(self.operator)

    def rows(self, indices):
        return self.stored().rows(indices)

    def columns_product(self, indices, values):
        return self.mv(in_places(indices, values, self.in_size()))

    def submatrix(self, indices):
        return self.stored().submatrix(indices)

    def symmetric_form(self, weights, shift):
        return WeightedForm(self, weights, shift)

    def as_matrix(self):
        return self.operator.as_matrix()

    def in_structure(self):
        return self.operator.in_structure()


def as_gram(operator: lx.AbstractLinearOperator) -> AbstractGram:
    """A positive semidefinite operator of lineax as an `AbstractGram`."""
    if isinstance(operator, AbstractGram):
        return operator
    if isinstance(operator, lx.MatrixLinearOperator):
        return DenseGram(operator.matrix)
    return ForeignGram(operator)
