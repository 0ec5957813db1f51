"""Iterative refinement: a rough solution of a linear system, made a good one by what it leaves of the right-hand side."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.sharding import while_loop


class _Improvement(eqx.Module):
    solution: Array
    left: Array
    size: Float[Array, ""]


def improved(solve: Callable[[Array], Array], apply: Callable[[Array], Array], rhs: Array) -> Array:
    """`solve(rhs)`, and what it makes of the rest, while that falls to less than half; NaN where a tenth of rhs is left.

    For a `solve` that knows a digit or two of `apply^-1` (Higham 2002, Accuracy and Stability of Numerical Algorithms,
    chapter 12).
    """

    def improvement(solution):
        left = rhs - apply(solution)
        return _Improvement(solution, left, jnp.linalg.norm(left))

    def once(carry):
        now, _ = carry
        new = improvement(now.solution + solve(now.left))
        best = jax.tree.map(lambda a, b: jnp.where(new.size < now.size, a, b), new, now)
        return best, new.size < now.size / 2

    def go_on(carry):
        now, faster = carry
        return faster & (now.size > goal)

    first = improvement(jnp.zeros_like(rhs))
    goal = 4 * float(jnp.finfo(rhs.dtype).eps) * first.size
    end, _ = while_loop(go_on, once, (first, jnp.array(True)))
    return jnp.where(end.size <= first.size / 10, end.solution, jnp.nan)
