"""Structures of points with Gram matrices of fewer than n^2 numbers, found before compilation."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.operators import AbstractGram

# From so many points on a structure may be used by default; fewer do not import `core/line`. On two
# cores the line is faster than the Cholesky factor from about a hundred points on (9 states: 2.5
# against 13 ms at 1000); below, results stay bitwise those of the matrix.
MANY_POINTS = 1000


class AbstractStructure(eqx.Module):
    """A structure of a batch of points, such as their order along a line, with which the Gram
    matrix of a kernel needs fewer numbers.
    """

    @abc.abstractmethod
    def gram(self, kernel: AbstractKernel, X: PyTree) -> AbstractGram:
        """The Gram matrix of the kernel and the points with this structure."""

    @abc.abstractmethod
    def check_noise(self, noise: Float[Array, "*n"]) -> None:
        """Raises ValueError for a noise that a matrix with this structure cannot have."""
