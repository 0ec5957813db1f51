"""What is common to Gram matrices of which no numbers are held."""

from kernax.core.operators.operators import AbstractGram, DenseGram


class AbstractUnheldGram(AbstractGram):
    """One that holds no numbers of K: they are made of it where they are asked for."""

    @property
    def solves_one_by_one(self):
        return False

    @property
    def is_dense(self):
        return False

    @property
    def largest_rank(self):
        return self.in_size()

    def held(self):
        return DenseGram(self.as_matrix())
