"""The exact solution for the active set of a point, and whether it solves the programme."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernax.core.base.numerics import tree_where
from kernax.supervised.machines.active_set import ActiveSystem, equation_residual
from kernax.supervised.machines.box_problem import BoxProblem, DualPoint


class Polished(eqx.Module):
    """The better of a point and the exact solution for its active set.

    Attributes:
        point: the one with the smaller violation.
        optimal: whether the exact solution solves the programme.
    """

    point: DualPoint
    optimal: Bool[Array, ""]


def polished(point: DualPoint, problem: BoxProblem) -> Polished:
    """Solves the equations of a point's active set.

    Their solution does not solve the programme if it leaves the box, or if moving a held point
    lowers the objective: the active set was then wrong.
    """
    # The equations are linear: one Newton step solves them.
    change = ActiveSystem.of(point, problem).solve(equation_residual(point, problem))
    n = len(point.beta)
    exact = point.beta + change[:n]
    beta = jnp.clip(exact, problem.low, problem.high)
    bias = point.bias + change[n:].reshape(point.bias.shape)
    solved = DualPoint.of(problem, beta, problem.residual(beta), point.steps, bias)

    # The coefficients must stay in the box, up to rounding, and none may change its sign.
    opposite = -jnp.sign(beta) * jnp.sign(point.beta)
    of_points = jnp.stack([abs(beta), abs(beta - exact), opposite], 1)
    largest, out_of_box, most_opposite = jnp.max(of_points, 0, initial=0)
    keeps_sides = (out_of_box <= _slack(exact) * largest) & (most_opposite <= 0)
    better = keeps_sides & (solved.violation <= point.violation)
    point = tree_where(better, solved, point)
    return Polished(point, better & (solved.violation <= _slack(beta) * problem.scale))


def _slack(beta: Float[Array, " n"]) -> float:
    """The error of a linear solve that is tolerated, relative to the largest entry."""
    return 1e-3 if beta.dtype == jnp.float32 else 1e-6
