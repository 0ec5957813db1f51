"""The interface of solvers of the dual programme (`box_problem`), and the checks of their
settings.
"""

import abc
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from kernax.core.base.parameters import with_arrays
from kernax.core.base.printing import Printed, described
from kernax.supervised.machines.box_problem import BoxProblem


class AbstractDualSolver(Printed):
    """A solver of the dual programme of support vector machines, to a violation of `rtol` in units
    of the targets.

    Learners pass it to a compiled function with its floats and its `max_steps` as arrays, unless
    their fields are static.
    """

    rtol: eqx.AbstractVar[float | Float[Array, ""]]

    @abc.abstractmethod
    def solve(
        self,
        problem: BoxProblem,
        beta: Float[Array, " n"],
        residual: Float[Array, " n"],
        atol: Float[Array, ""],
    ) -> tuple[Float[Array, " n"], Int[Array, ""]]:
        """Coefficients with a violation of at most `atol`, and the number of steps taken.

        `beta` is a feasible point to start from, and `residual` its residual.
        """


def as_dual_solver(solver: Any, default: AbstractDualSolver) -> AbstractDualSolver:
    """The solver with its numbers as arrays, or the default for None. Raises ValueError for
    anything else, such as a class.
    """
    if solver is not None and not isinstance(solver, AbstractDualSolver):
        raise ValueError(
            "solver must be kernax.solvers.SMO() or ProjectedGradient(), but is "
            f"{described(solver)}"
        )
    return with_arrays(default if solver is None else solver)
