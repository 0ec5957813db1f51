"""What learners do along a line of their own accord, where no solver is given.

They do without it in a copy of the package that has no `core/line`.
"""

from typing import Any

from jaxtyping import PyTree

from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.linalg.factorisation import AbstractExplanation
from kernax.core.operators.structure import AbstractStructure

try:
    from kernax.core.line import line, line_draws
except ModuleNotFoundError:
    line = line_draws = None


def structure_of_many(kernel: AbstractKernel, X: PyTree) -> AbstractStructure | None:
    """A structure that is faster than the whole matrix; None where there is none."""
    return None if line is None else line.line_of_many_points(kernel, X)


def sampler_of_prior(kernel: AbstractKernel, X: PyTree) -> Any:
    """What draws from a prior at many points faster than the whole matrix; None where nothing
    does.
    """
    return None if line_draws is None else line_draws.sampler_of_prior(kernel, X)


def sampler_of_posterior(explanation: AbstractExplanation, X: PyTree) -> Any:
    """The same, given observations."""
    return None if line_draws is None else line_draws.sampler_of_posterior(explanation, X)
