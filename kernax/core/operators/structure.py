"""What makes a Gram matrix smaller than its n^2 numbers, found once before anything is compiled."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, PyTree

from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.operators import AbstractGram


class AbstractStructure(eqx.Module):
    """What is known of a stack of points, such as their order along a line, by which the Gram
    matrix of a kernel is held in fewer numbers.
    """

    @abc.abstractmethod
    def gram(self, kernel: AbstractKernel, X: PyTree) -> AbstractGram:
        """The Gram matrix of the kernel and the points for which this was found."""

    @abc.abstractmethod
    def check_noise(self, noise: Float[Array, "*n"]) -> None:
        """Raises ValueError for a noise that a matrix of this structure cannot have."""
