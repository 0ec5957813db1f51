"""Iterative refinement of solutions of a linear system."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.base.numerics import eps_of, positive_or_one
from kernax.core.base.powers import in_own_unit


class _Refinement(eqx.Module):
    """A solution of a linear system, its residual, and whether the last step improved it."""

    solution: Array
    residual: Array
    size: Float[Array, ""]
    faster: Bool[Array, ""]

    @staticmethod
    def of(b: Array) -> "_Refinement":
        """The state before the first solve, which is accepted whatever its residual."""
        size = jnp.full((), jnp.inf, b.dtype)
        return _Refinement(jnp.zeros_like(b), b, size, jnp.array(True))


def refined(
    solve: Callable[[Array], Array], apply: Callable[[Array], Array], rhs: Array
) -> tuple[Array, Float[Array, ""]]:
    """`solve(rhs)`, refined while each step halves the residual, and the relative residual.

    It is for a `solve` that is accurate to a digit or two of `apply^-1` (Higham 2002, Accuracy and
    Stability of Numerical Algorithms, chapter 12). Both are linear, so rhs may have any unit.
    """
    b, unit = in_own_unit(rhs)
    whole = jnp.linalg.norm(b)
    goal = 4 * eps_of(b) * whole

    def once(now: _Refinement) -> _Refinement:
        # x = x + solve(r) with r = b - A x.
        solution = now.solution + solve(now.residual)
        residual = b - apply(solution)
        # The new solution is taken where its residual is smaller.
        size = jnp.linalg.norm(residual)
        taken = jnp.isinf(now.size) | (size < now.size)
        return _Refinement(
            jnp.where(taken, solution, now.solution),
            jnp.where(taken, residual, now.residual),
            jnp.where(taken, size, now.size),
            size < now.size / 2,
        )

    def go_on(now: _Refinement) -> Array:
        return now.faster & (now.size > goal)

    # The first solve is part of the loop, so that the program contains it once.
    end = lax.while_loop(go_on, once, _Refinement.of(b))
    relative = end.size / positive_or_one(whole)
    return end.solution * unit, relative
