"""Iterative refinement: a rough solution of a linear system, made a good one by what it leaves of the right-hand side."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernax.core.powers import exponent_of, times_power_of_two
from kernax.core.sharding import while_loop


class _Refinement(eqx.Module):
    solution: Array
    left: Array
    size: Float[Array, ""]
    faster: Bool[Array, ""]


def refined(solve: Callable[[Array], Array], apply: Callable[[Array], Array], rhs: Array) -> tuple[Array, Float[Array, ""]]:
    """`solve(rhs)`, and what it makes of the rest, while that falls to less than half; and the share of rhs that is left.

    For a `solve` that knows a digit or two of `apply^-1` (Higham 2002, Accuracy and Stability of Numerical Algorithms,
    chapter 12). Both are linear: rhs may have any unit.
    """
    unit = exponent_of(jnp.max(abs(rhs)))
    b = times_power_of_two(rhs, -unit)
    whole = jnp.linalg.norm(b)
    goal = 4 * float(jnp.finfo(b.dtype).eps) * whole

    def once(now: _Refinement) -> _Refinement:
        solution = now.solution + solve(now.left)
        left = b - apply(solution)
        size = jnp.linalg.norm(left)
        first = jnp.isinf(now.size)
        taken = first | (size < now.size)
        better = lambda new, old: jnp.where(taken, new, old)
        return _Refinement(better(solution, now.solution), better(left, now.left), better(size, now.size), size < now.size / 2)

    def go_on(now: _Refinement) -> Array:
        return now.faster & (now.size > goal)

    # The first solve, which is taken whatever it leaves, is one of the loop: so it stands in the program once.
    start = _Refinement(jnp.zeros_like(b), b, jnp.full_like(whole, jnp.inf), jnp.array(True))
    end = while_loop(go_on, once, start)
    share = end.size / jnp.where(whole > 0, whole, 1)
    return times_power_of_two(end.solution, unit), share
