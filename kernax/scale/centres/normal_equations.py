"""Conjugate gradients for several systems at once that a `HessianFactor` nearly solves."""

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
    """What conjugate gradients found.

    Attributes:
        x: the solutions.
        length: `sqrt(x.A x)` of each column, a sum of squares.
        left: the length of the residual in the norm of P^-1, by the recurrence.
        taken: how many steps.
        arrived: whether all columns are as exact as was asked for, by the recurrence.
    """

    x: Float[Array, "m p"]
    length: Float[Array, " p"]
    left: Float[Array, " p"]
    taken: Int[Array, ""]
    arrived: Bool[Array, ""]


class SolveProgress(eqx.Module):
    """Conjugate gradients after some steps, and what decides whether there are more."""

    at: ConjugateIterate
    goal: Float[Array, " p"]  # what the square `r.P^-1 r` is to fall to
    energy: Float[Array, " p"]  # `x.A x`
    active: Bool[Array, " p"]  # which columns still move
    steps: Int[Array, ""]


def solve_normal_equations(
    multiply: Multiply,
    P: HessianFactor,
    b: Float[Array, "m p"],
    rtol: Float[Array, "..."] | float,
    max_steps: Int[Array, ""] | int,
    repeat: Callable,
) -> Steps:
    """x with `|b - A x| <= rtol |b|` in the norm of `P^-1`, by the recurrence.

    The norm of P^-1 is that in which the error `A^-1 (b - A x)` is measured by A itself, where P is
    A. `repeat` is `while_loop`, or the same by Python. The true residual is not computed here.
    """
    start, unit = begun(P, b, rtol)
    go_on = lambda now: is_open(now, max_steps)
    return found_by(repeat(go_on, partial(one_step, multiply, P), start), unit)


def begun(
    P: HessianFactor, b: Float[Array, "m p"], rtol: Float[Array, "..."] | float
) -> tuple[SolveProgress, Int[Array, "1 p"]]:
    """The iteration before its first step, and its units, in which the squares of b are floats."""
    unit = exponent_of(jnp.max(jnp.abs(P.whitened(b)), axis=0, keepdims=True))
    b = times_power_of_two(b, -unit)
    at = ConjugateIterate.first(jnp.zeros_like(b), b, P.solve)
    goal = rtol**2 * at.square
    no_step = jnp.zeros((), jnp.int32)
    return SolveProgress(at, goal, jnp.zeros_like(goal), at.square > 0, no_step), unit


def is_open(now: SolveProgress, max_steps: Int[Array, ""] | int) -> Bool[Array, ""]:
    """Whether there is a step to take."""
    return jnp.any(now.active) & (now.steps < max_steps)


def found_by(end: SolveProgress, unit: Int[Array, "1 p"]) -> Steps:
    """What was found, in units of the right side."""
    length, left = (
        times_power_of_two(jnp.sqrt(square), unit[0]) for square in (end.energy, end.at.square)
    )
    arrived = jnp.all(end.at.square <= end.goal)
    return Steps(times_power_of_two(end.at.x, unit), length, left, end.steps, arrived)


def one_step(multiply: Multiply, P: HessianFactor, now: SolveProgress) -> SolveProgress:
    """One step; none in columns that have arrived, or along which A is not positive."""
    at, length, moves = now.at.next(multiply(now.at.direction), now.active, 0.0, P.solve)
    # Steps are orthogonal in the norm of A, in which each has the square of its own.
    energy = now.energy + length * now.at.square
    return SolveProgress(at, now.goal, energy, moves & (at.square > now.goal), now.steps + 1)
