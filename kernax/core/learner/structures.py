"""The structures that learners use by default along a line, if no solver is given.

A copy of the package without `core/line` works without them.
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
    """A structure that is faster than the dense matrix, or None."""
    return None if line is None else line.line_of_many_points(kernel, X)


def sampler_of_prior(kernel: AbstractKernel, X: PyTree) -> Any:
    """A sampler of a prior at many points that is faster than a dense factorisation, or None."""
    return None if line_draws is None else line_draws.sampler_of_prior(kernel, X)


def sampler_of_posterior(explanation: AbstractExplanation, X: PyTree) -> Any:
    """A sampler of a posterior that is faster than a dense factorisation, or None."""
    return None if line_draws is None else line_draws.sampler_of_posterior(explanation, X)
