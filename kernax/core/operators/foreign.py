"""Operators of lineax as Gram matrices."""

import jax
import lineax as lx

from kernax.core.operators.operators import (
    AbstractGram,
    DenseGram,
    WeightedForm,
    in_places,
)
from kernax.core.operators.unheld import AbstractUnheldGram


class ForeignGram(AbstractUnheldGram):
    """Any operator of lineax as a Gram matrix: by its products, or by all of it as an array."""

    operator: lx.AbstractLinearOperator

    def mv(self, vector):
        if vector.ndim == 1:
            return self.operator.mv(vector)
        return jax.vmap(self.operator.mv, 1, 1)(vector)

    def careful_mv(self, vector):
        return self.operator.mv(vector)

    def squares_in_products(self, vector):
        return self.held().squares_in_products(vector)

    def diagonal(self):
        return lx.diagonal(self.operator)

    def rows(self, places):
        return self.held().rows(places)

    def columns_product(self, places, values):
        return self.mv(in_places(places, values, self.in_size()))

    def submatrix(self, places):
        return self.held().submatrix(places)

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
