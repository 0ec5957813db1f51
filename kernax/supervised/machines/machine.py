"""Fits a support vector machine: its differentiable solution, and the status of the solve.

The programme is solved in units in which nothing overflows (`units`), with ever smaller tolerances
of the solver until the duality gap is small (`certificate`). Where it is differentiated, the
solution is also made exact for its active set (`polish`), because the derivative is that of the
active set's equations (`active_set`). `ending` chooses the status of `RESULTS` for the whole solve.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.implicit import implicit
from kernax.core.base.numerics import eps_of, stop_gradient
from kernax.core.base.solution import void_unless_known
from kernax.supervised.machines.active_set import with_derivative_of_active_set
from kernax.supervised.machines.box_problem import (
    BoxProblem,
    DualPoint,
    with_all_points_inside,
)
from kernax.supervised.machines.certificate import certificate
from kernax.supervised.machines.conditions_at_end import ending, is_finite, missed_its_goal
from kernax.supervised.machines.dual_solver import AbstractDualSolver
from kernax.supervised.machines.polish import polished
from kernax.supervised.machines.projected_gradient import project
from kernax.supervised.machines.units import ProblemUnits, after_rescaling, rescaled_objectives

_FINEST = 1e-6  # the finest tolerance that is tried, relative to the solver's own


def machine(
    problem: BoxProblem, solver: AbstractDualSolver, start: Float[Array, " n"] | None = None
) -> tuple[Float[Array, " n"], Float[Array, "*groups"], Any, dict[str, Array]]:
    """Coefficients and bias, differentiable in the problem, the result, and stats.

    With two groups the bias is two numbers. `start` contains coefficients near the solution, or is
    None.
    """
    units = ProblemUnits.of(stop_gradient(problem))
    scaled = units.problem(problem)
    feasible = _feasible(scaled, units, start)

    # The solver's point has the derivative of the equations of its active set.
    def with_derivative(end, args):
        point, figures = end
        return with_derivative_of_active_set(point, args[0]), figures

    point, figures = implicit(
        lambda args: _solve_to_gap(*args, exact=False),
        with_derivative,
        (scaled, feasible, solver),
        solve_exactly=lambda args: _solve_to_gap(*args, exact=True),
    )
    point = with_all_points_inside(point, scaled)
    stats = figures | {"steps": point.steps}
    value, result = _in_users_units(point, scaled, stats, units, solver.rtol)
    stats = stats | rescaled_objectives(stats, units.of_objective)
    return *void_unless_known(value, result), result, stats


def _feasible(
    problem: BoxProblem, units: ProblemUnits, start: Float[Array, " n"] | None
) -> Float[Array, " n"] | None:
    """The feasible point nearest to the user's coefficients, or any feasible point if there are
    none. None stands for zero.

    NaN coefficients, which a failed fit leaves, are ignored.
    """
    if start is None and problem.starts_at_zero:
        return None
    nowhere = problem.start()
    if start is None:
        return nowhere
    given = units.coefficients(start)
    near = jnp.where(jnp.all(jnp.isfinite(given)), given, nowhere)
    return project(stop_gradient(problem), near, jnp.zeros_like(problem.scale))


def _in_users_units(
    point: DualPoint,
    problem: BoxProblem,
    stats: dict[str, Array],
    units: ProblemUnits,
    tol: ArrayLike,
) -> tuple[tuple[Float[Array, " n"], Float[Array, "*groups"]], Any]:
    """Coefficients and bias in the user's units, where they may over- or underflow, and the
    status.
    """
    fixed_point, fixed_problem = stop_gradient((point, problem))
    finite = is_finite(fixed_point, stats)
    solved = jnp.where(finite, point.beta, jnp.nan), jnp.where(finite, point.bias, jnp.nan)
    value = units.users(*solved)
    rescaled = after_rescaling(solved, units.solution(*value))
    return value, ending(fixed_point, fixed_problem, stats, finite, rescaled, tol)


class _Pass(eqx.Module):
    """A point, its certificate, the tolerance to solve to next, and whether to stop here."""

    point: DualPoint
    figures: dict[str, Array]
    tol: Float[Array, ""]
    done: Bool[Array, ""]


def _solve_to_gap(
    problem: BoxProblem,
    start: Float[Array, " n"] | None,
    solver: AbstractDualSolver,
    *,
    exact: bool,
) -> tuple[DualPoint, dict[str, Array]]:
    """The solver's point at a tolerance for which the relative gap is at most `solver.rtol`, and
    its certificate.

    The tolerance falls tenfold from `solver.rtol` until the gap is small enough, the finest
    tolerance is reached or the solver runs out of steps. An `exact` point is the exact solution for
    its active set. Where it is not the solution of the programme, the active set was wrong, and the
    tolerance falls as well.
    """

    def go_on(now: _Pass) -> Array:
        return ~now.done

    def solve_once(now: _Pass) -> _Pass:
        # The solver's point at a tolerance relative to the targets, but no smaller than rounding.
        goal = jnp.maximum(now.tol * problem.scale, now.point.rounding)
        beta, steps = solver.solve(problem, now.point.beta, now.point.residual, goal)
        beta = _at_bounds(beta, problem)
        point = DualPoint.of(problem, beta, problem.residual(beta), now.point.steps + steps)
        optimal = jnp.array(True)
        if exact:
            new = polished(point, problem)
            point, optimal = new.point, new.optimal
        figures = certificate(with_all_points_inside(point, problem), problem, solver.rtol)
        closed = figures["relative_gap"] <= solver.rtol
        done = (closed & optimal) | missed_its_goal(point, problem, now.tol)
        # Stops at the finest tolerance, whatever the rounding of its tenths.
        is_finest = now.tol < 5 * _FINEST * solver.rtol
        done = done | is_finest
        # A member of a batch that is done gets an infinite tolerance, so that its solver takes no
        # more steps.
        return _Pass(point, figures, jnp.where(done, jnp.inf, now.tol / 10), done)

    if start is None:
        start = jnp.zeros_like(problem.targets)
        residual = problem.targets
    else:
        residual = problem.residual(start)
    groups = () if problem.total is None else problem.total.shape
    bias = jnp.zeros(groups, start.dtype)
    point = DualPoint.of(problem, start, residual, jnp.zeros((), jnp.int32), bias)
    figures = jax.tree.map(
        jnp.zeros_like, eqx.filter_eval_shape(certificate, point, problem, solver.rtol)
    )
    tol = jnp.asarray(solver.rtol, start.dtype)
    end = lax.while_loop(go_on, solve_once, _Pass(point, figures, tol, jnp.array(False)))
    return end.point, end.figures


def _at_bounds(beta: Float[Array, " n"], problem: BoxProblem) -> Float[Array, " n"]:
    """Sets coefficients to zero or to a bound where they equal it up to rounding.

    Otherwise they would count as free.
    """
    near = 16 * eps_of(beta) * jnp.max(abs(beta))
    for bound in (jnp.zeros((), beta.dtype), problem.low, problem.high):
        beta = jnp.where(abs(beta - bound) <= near, bound, beta)
    return beta
