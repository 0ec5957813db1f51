"""The structures that learners use by default along a line, if no solver is given.

`core/line` is imported when a structure may be faster. A copy of the package without it works, too.
"""

from types import ModuleType
from typing import Any

from jaxtyping import PyTree

from kernax.core.base.boundary import count
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.linalg.factorisation import AbstractCovarianceReduction
from kernax.core.operators import structure
from kernax.core.operators.structure import AbstractStructure


def structure_of_many(kernel: AbstractKernel, X: PyTree) -> AbstractStructure | None:
    """A structure that is faster than the dense matrix, or None."""
    lines = _lines_of(X)
    return None if lines is None else lines.line_of_many_points(kernel, X)


def sampler_of_prior(kernel: AbstractKernel, X: PyTree) -> Any:
    """A sampler of a prior at many points that is faster than a dense factorisation, or None."""
    lines = _lines_of(X)
    return None if lines is None else lines.sampler_of_prior(kernel, X)


def sampler_of_posterior(reduction: AbstractCovarianceReduction, X: PyTree) -> Any:
    """A sampler of a posterior that is faster than a dense factorisation, or None."""
    lines = _lines()
    return None if lines is None else lines.sampler_of_posterior(reduction, X)


def _lines_of(X: PyTree) -> ModuleType | None:
    """`_lines` for many points; None for few, which have no structure by default."""
    return None if count(X) < structure.MANY_POINTS else _lines()


def _lines() -> ModuleType | None:
    """The module of points along a line, with their factor; None in a copy without it."""
    try:
        from kernax.core.line import line_draws
    except ModuleNotFoundError as missing:
        if missing.name != "kernax.core.line":
            raise
        return None
    return line_draws
