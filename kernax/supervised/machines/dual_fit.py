"""Fits a support vector machine: its differentiable solution, and the status of the solve.

The programme is solved in units in which nothing overflows (`units`), with ever smaller tolerances
of the solver until the duality gap is small (`certificate`). Where it is differentiated, the
solution is also made exact for its active set, because the derivative is that of the active set's
equations (`active_set`).
"""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.base.batching import each_of_vmap
from kernax.core.base.compiled import traced_once
from kernax.core.base.derivatives import implicit
from kernax.core.base.numerics import eps_of, stop_gradient, sums_and_maxima, where, where_or
from kernax.core.base.solution import void_unless_known
from kernax.core.linalg.cholesky import CholeskyFactor
from kernax.supervised.machines.active_set import (
    exact_solution,
    no_factor,
    with_derivative_of_active_set,
)
from kernax.supervised.machines.box_problem import (
    BoxProblem,
    DualPoint,
    counted_points,
    with_all_points_inside,
)
from kernax.supervised.machines.certificate import Certificate, certificate, missed_its_goal
from kernax.supervised.machines.dual_solver import AbstractDualSolver
from kernax.supervised.machines.projected_gradient import project
from kernax.supervised.machines.units import ProblemUnits, after_rescaling, rescaled_objectives

_FINEST = 1e-6  # the finest tolerance that is tried, relative to the solver's own


def fit_dual(
    problem: BoxProblem,
    solver: AbstractDualSolver,
    start: Float[Array, " n"] | None = None,
    *,
    of_columns: bool = False,
) -> tuple[Float[Array, " n"], Float[Array, "*groups"], Any, dict[str, Array]]:
    """Coefficients and bias, differentiable in the problem, the result, and stats.

    With two groups the bias is two numbers. `start` contains coefficients near the solution, or is
    None. `of_columns` says that the caller is a `vmap` over columns of targets: on a CPU each is
    then solved by itself, because a batch takes as many steps as its slowest member; all else,
    derivatives as well, is computed for all columns together.
    """
    units = ProblemUnits.of(stop_gradient(problem))
    scaled = units.problem(problem)
    feasible = _feasible(scaled, units, start)

    def solve(args, *, exact):
        solve_to_gap = partial(_solve_to_gap, exact=exact)
        return each_of_vmap(solve_to_gap, *args) if of_columns else solve_to_gap(*args)

    # The solver's point has the derivative of the equations of its active set.
    def with_derivative(end, args):
        point, certified, factor = end
        return with_derivative_of_active_set(point, args[0], factor), certified, factor

    point, certified, _ = implicit(
        partial(solve, exact=False),
        with_derivative,
        (scaled, feasible, solver),
        solve_exactly=partial(solve, exact=True),
    )
    point = with_all_points_inside(point, scaled)
    # In the user's units the coefficients and the bias may over- or underflow.
    beta = where_or(certified.finite, point.beta, jnp.nan)
    bias = where_or(certified.finite, point.bias, jnp.nan)
    value = units.users(beta, bias)
    result = after_rescaling(certified.result, (beta, bias), units.solution(*value))
    stats = certified.stats | rescaled_objectives(certified.stats, units.objective)
    return *void_unless_known(value, result), result, stats | {"steps": point.steps}


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
    given = units.per_beta.times(start)
    near = jnp.where(jnp.all(jnp.isfinite(given)), given, nowhere)
    return project(stop_gradient(problem), near, jnp.zeros_like(problem.scale))


class _CertifiedPoint(eqx.Module):
    """A point, its certificate, the factor of its active system, the tolerance to solve to next,
    and whether to stop here.
    """

    point: DualPoint
    certified: Certificate
    factor: CholeskyFactor | None
    tol: Float[Array, ""]
    done: Bool[Array, ""]


def _solve_to_gap(
    problem: BoxProblem,
    start: Float[Array, " n"] | None,
    solver: AbstractDualSolver,
    *,
    exact: bool,
) -> tuple[DualPoint, Certificate, CholeskyFactor | None]:
    """The solver's point at a tolerance for which the relative gap is at most `solver.rtol`, its
    certificate, and for an `exact` point the factor of its active system, if that is reused.

    The tolerance falls tenfold from `solver.rtol` until the gap is small enough, the finest
    tolerance is reached or the solver runs out of steps. An `exact` point is the exact solution for
    its active set. Where it is not the solution of the programme, the active set was wrong, and the
    tolerance falls as well.
    """

    def go_on(now: _CertifiedPoint) -> Array:
        return ~now.done

    def solve_once(now: _CertifiedPoint) -> _CertifiedPoint:
        # Without a barrier XLA computes functions of the bounds and targets before the loop, in
        # one small kernel each. Behind it, they are compiled into the kernels that use them.
        problem, now = _tied(given_problem, now)
        point = _solved_by(solver, problem, now.point, now.tol)
        optimal = jnp.array(True)
        factor = now.factor
        if exact:
            point, optimal, factor = exact_solution(point, problem)
        certified = certificate(with_all_points_inside(point, problem), problem, solver.rtol)
        closed = certified.stats["relative_gap"] <= solver.rtol
        done = (closed & optimal) | missed_its_goal(point, problem, now.tol)
        # Stops at the finest tolerance, whatever the rounding of its tenths.
        is_finest = now.tol < 5 * _FINEST * solver.rtol
        done = done | is_finest
        # A member of a batch that is done gets an infinite tolerance, so that its solver takes no
        # more steps.
        return _CertifiedPoint(
            point, certified, factor, where_or(~done, now.tol / 10, jnp.inf), done
        )

    given_problem = problem
    size = problem.scale
    if start is None:
        start = jnp.zeros_like(problem.targets)
        residual = problem.targets
    else:
        residual = problem.residual(start)
        f = abs(problem.targets - residual)
        size = size + jnp.max(f, where=counted_points(problem), initial=0)
    groups = () if problem.total is None else problem.total.shape
    point = DualPoint(
        beta=start,
        residual=residual,
        bias=jnp.zeros(groups, start.dtype),
        steps=jnp.zeros((), jnp.int32),
        free=jnp.zeros_like(start, bool),
        some_free=jnp.zeros(groups, bool),
        violation=jnp.full((), jnp.inf, start.dtype),
        rounding=16 * eps_of(size) * size,
    )
    tol = jnp.asarray(solver.rtol, start.dtype)
    nothing = Certificate.of_nothing(start.dtype)
    first = _CertifiedPoint(point, nothing, no_factor(problem), tol, jnp.array(False))
    end = lax.while_loop(go_on, solve_once, first)
    return end.point, end.certified, end.factor


@traced_once
def _solved_by(
    solver: AbstractDualSolver, problem: BoxProblem, start: DualPoint, tol: Float[Array, ""]
) -> DualPoint:
    """The solver's point at a tolerance relative to the targets, but no smaller than rounding."""
    goal = jnp.maximum(tol * problem.scale, start.rounding)
    beta, steps = solver.solve(problem, start.beta, start.residual, goal)
    # Set coefficients to zero or to a bound where they equal it up to rounding.
    # Otherwise they would count as free.
    _, ends = sums_and_maxima([], [beta, -beta])  # a reduction of two arrays is one kernel
    near = 16 * eps_of(beta) * jnp.maximum(*ends)
    for bound in (jnp.zeros_like(beta), problem.low, problem.high):
        beta = where(abs(beta - bound) <= near, bound, beta)
    return DualPoint.of(problem, beta, problem.residual(beta), start.steps + steps)


def _tied(problem: BoxProblem, now: _CertifiedPoint) -> tuple[BoxProblem, _CertifiedPoint]:
    """The same problem and state, behind a barrier together with the tolerance, so that XLA cannot
    move functions of the problem out of the loop.
    """
    fields = ("targets", "low", "high", "epsilon", "scale")
    arrays = {name: getattr(problem, name) for name in fields}
    arrays, tol = lax.optimization_barrier((arrays, now.tol))
    return dataclasses.replace(problem, **arrays), dataclasses.replace(now, tol=tol)
