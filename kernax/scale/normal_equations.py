"""Conjugate gradients for several systems at once that a `Preconditioner` nearly solves."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.scale.preconditioner import Preconditioner

Multiply = Callable[[Float[Array, "m p"]], Float[Array, "m p"]]


class _Iterate(eqx.Module):
    """Conjugate gradients after some steps."""

    x: Float[Array, "m p"]
    residual: Float[Array, "m p"]
    direction: Float[Array, "m p"]
    square: Float[Array, " p"]  # `r.P^-1 r`
    goal: Float[Array, " p"]  # what the square is to fall to
    active: Bool[Array, " p"]  # which columns still move
    steps: Int[Array, ""]


def solve_normal_equations(
    multiply: Multiply,
    P: Preconditioner,
    b: Float[Array, "m p"],
    rtol: Float[Array, "..."],
    max_steps: Int[Array, ""] | int,
    repeat: Callable,
) -> tuple[Float[Array, "m p"], Int[Array, ""]]:
    """x with `|b - A x| <= rtol |b|` in the norm of `P^-1`, by the recurrence; and the steps.

    The norm of P^-1 is that in which the error `A^-1 (b - A x)` is measured by A itself, where P is
    A. `repeat` is `while_loop`, or the same by Python. Whoever needs the true residual computes it.
    """
    z = P.solve(b)
    square = jnp.sum(b * z, 0)
    no_step = jnp.zeros((), jnp.int32)
    start = _Iterate(jnp.zeros_like(b), b, z, square, rtol**2 * square, square > 0, no_step)

    def go_on(now: _Iterate) -> Bool[Array, ""]:
        return jnp.any(now.active) & (now.steps < max_steps)

    end = repeat(go_on, partial(_step, multiply, P), start)
    return end.x, end.steps


def _step(multiply: Multiply, P: Preconditioner, now: _Iterate) -> _Iterate:
    """One step; none in columns that have arrived, or along which A is not positive."""
    image = multiply(now.direction)
    slope = jnp.sum(now.direction * image, 0)
    moves = now.active & (slope > 0)
    step = jnp.where(moves, now.square / jnp.where(moves, slope, 1), 0)
    x = now.x + step[None, :] * now.direction
    residual = now.residual - step[None, :] * image
    z = P.solve(residual)
    square = jnp.sum(residual * z, 0)
    kept = jnp.where(moves, square / jnp.where(moves, now.square, 1), 0)
    direction = z + kept[None, :] * now.direction
    active = moves & (square > now.goal)
    return _Iterate(x, residual, direction, square, now.goal, active, now.steps + 1)
