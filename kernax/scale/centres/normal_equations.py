"""Conjugate gradients for several systems at once, preconditioned by a `HessianFactor`."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.powers import exponent_of, times_power_of_two
from kernax.core.linalg.conjugate_step import ConjugateIterate
from kernax.scale.centres.preconditioner import HessianFactor

Multiply = Callable[[Float[Array, "m p"]], Float[Array, "m p"]]


class Steps(NamedTuple):
    """The result of conjugate gradients.

    Attributes:
        x: the solutions.
        length: `sqrt(x.A x)` of each column, a sum of squares.
        left: the length of the residual in the norm of P^-1, by the recurrence.
        taken: the number of steps.
        arrived: whether all columns are as exact as required, by the recurrence.
    """

    x: Float[Array, "m p"]
    length: Float[Array, " p"]
    left: Float[Array, " p"]
    taken: Int[Array, ""]
    arrived: Bool[Array, ""]


class SolveProgress(eqx.Module):
    """Conjugate gradients after some steps, and the numbers that decide whether there are more."""

    at: ConjugateIterate
    goal: Float[Array, " p"]  # the bound for the length `sqrt(r.P^-1 r)`
    energy: Float[Array, " p"]  # `x.A x`
    active: Bool[Array, " p"]  # which columns still move
    steps: Int[Array, ""]
    unit: Int[Array, "1 p"]  # b is divided by two to this exponent


def solve_normal_equations(
    multiply: Multiply,
    P: HessianFactor,
    b: Float[Array, "m p"],
    rtol: Float[Array, "..."] | float,
    max_steps: Int[Array, ""] | int,
    repeat: Callable,
) -> Steps:
    """Solves `A x = b` to `|b - A x| <= rtol |b|` in the norm of `P^-1`, by the recurrence.

    If P = A, the norm of P^-1 of the residual is the norm of A of the error `A^-1 (b - A x)`.
    `repeat` is `while_loop`, or a Python loop. The true residual is not computed here.
    """
    go_on = lambda now: is_open(now, max_steps)
    return found_by(repeat(go_on, partial(one_step, multiply, P), begun(P, b, rtol)))


def begun(
    P: HessianFactor, b: Float[Array, "m p"], rtol: Float[Array, "..."] | float
) -> SolveProgress:
    """The iteration before its first step, in units in which the square `b.P^-1 b` is about one:
    weights, and with them b, may have any size, and so may cotangents.
    """
    unit = exponent_of(jnp.max(jnp.abs(P.whitened(b)), axis=0, keepdims=True))
    b = times_power_of_two(b, -unit)
    at = ConjugateIterate.first(jnp.zeros_like(b), b, P.solve)
    # sqrt(r.P^-1 r) <= rtol sqrt(b.P^-1 b), as r = b at x = 0.
    goal = rtol * jnp.sqrt(at.square)
    no_step = jnp.zeros((), jnp.int32)
    return SolveProgress(at, goal, jnp.zeros_like(goal), at.square > 0, no_step, unit)


def is_open(now: SolveProgress, max_steps: Int[Array, ""] | int) -> Bool[Array, ""]:
    """Whether there is a step to take."""
    return jnp.any(now.active) & (now.steps < max_steps)


def found_by(end: SolveProgress) -> Steps:
    """The solution, in units of the right side."""
    left = jnp.sqrt(end.at.square)
    arrived = jnp.all(left <= end.goal)
    length, left = times_power_of_two((jnp.sqrt(end.energy), left), end.unit[0])
    return Steps(times_power_of_two(end.at.x, end.unit), length, left, end.steps, arrived)


def one_step(multiply: Multiply, P: HessianFactor, now: SolveProgress) -> SolveProgress:
    """One step; none for columns that have converged, or along which A is not positive."""
    at, length, moves = now.at.next(multiply(now.at.direction), now.active, 0.0, P.solve)
    # Steps are orthogonal in the inner product of A, so that their squared lengths add up.
    # x.A x grows by t^2 d.A d = t r.P^-1 r, t the length of the step along d.
    energy = now.energy + length * now.at.square
    active = moves & (jnp.sqrt(at.square) > now.goal)
    return SolveProgress(at, now.goal, energy, active, now.steps + 1, now.unit)
