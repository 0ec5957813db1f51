"""Newton's method, and the derivative of whatever an iterative solver returns.

At a root, one more exact Newton step changes nothing; its derivative with respect to the problem's data, the root held
fixed, is the derivative of the root. That one sentence covers every solver, whatever path it took to get there.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from kernax.core.numerics import split_by_tangent
from kernax.core.solution import RESULTS

Root = TypeVar("Root", bound=PyTree)


@eqx.filter_custom_jvp
def _implicit(args, *, solve, step):
    return solve(args)


@_implicit.def_jvp
def _implicit_jvp(primals, tangents, *, solve, step):
    # root = N(root, args) with d N / d root = 0 there, so d root = (d N / d args) d args. The root is traced by any outer
    # transformation through this same rule, which makes the second derivative exact as well.
    (args,), (t_args,) = primals, tangents
    root = _implicit(args, solve=solve, step=step)
    moving, known = split_by_tangent(args, t_args)
    _, t_root = eqx.filter_jvp(lambda moving: step(root, eqx.combine(moving, known)), (moving,), (t_args,))
    return root, t_root


def implicit(solve: Callable[[Any], Root], step: Callable[[Root, Any], Root], args: Any) -> Root:
    """`solve(args)`, differentiated as one exact Newton step: `d root = d/d args step(root, args)` at fixed root.

    `step(root, args)` must return the root unchanged at the solution, with a derivative in its first argument that vanishes
    there. Both functions must take all arrays they depend on through `args`. Nests for derivatives of higher order, and does
    not care how `solve` iterates or how loosely it converges, beyond the error of the root itself.
    """
    return _implicit(args, solve=solve, step=step)


def newton(
    step: Callable[[Array], Array],
    objective: Callable[[Array], Array],
    start: Array,
    *,
    rtol: float | None = None,
    max_steps: int = 50,
) -> tuple[Array, Any, dict[str, Array]]:
    """Damped Newton iteration `x <- x + t (step(x) - x)`, t halved from 1 until the objective does not rise.

    Stops when a full step moves x by at most `rtol` (default eps^(2/3)) of its size. Where no halving helps any more it has
    succeeded if the step is below the root of that, and stagnated otherwise.

    Returns:
        x, the result (successful, stagnation, max_steps_reached, or nonfinite with the last finite x), and stats `steps` and
        `objective`.
    """
    tolerance = float(jnp.finfo(start.dtype).eps) ** (2 / 3) if rtol is None else rtol

    def damped(x, value):
        direction = step(x) - x

        def rises(carry):
            t, new = carry
            return ~(new <= value) & (t > 1e-9)

        def halve(carry):
            t = carry[0] / 2
            return t, objective(x + t * direction)

        t, new = lax.while_loop(rises, halve, (jnp.ones((), x.dtype), objective(x + direction)))
        better = new <= value
        return jnp.where(better, x + t * direction, x), jnp.where(better, new, value), direction, better

    def body(carry):
        x, value, _, _, steps = carry
        x, value, direction, better = damped(x, value)
        small = jnp.linalg.norm(direction) <= tolerance * (jnp.linalg.norm(x) + tolerance)
        close = jnp.linalg.norm(direction) <= jnp.sqrt(tolerance) * (jnp.linalg.norm(x) + tolerance)  # as far as rounding goes
        state = jnp.where(small | (~better & close), 1, jnp.where(better, 0, 2)).astype(jnp.int32)
        return x, value, state, jnp.all(jnp.isfinite(direction)), steps + 1

    def go_on(carry):
        _, _, state, finite, steps = carry
        return (state == 0) & finite & (steps < max_steps)

    first = objective(start)
    carry = (start, first, jnp.zeros((), jnp.int32), jnp.isfinite(first), jnp.zeros((), jnp.int32))
    x, value, state, finite, steps = lax.while_loop(go_on, body, carry)
    result = RESULTS.where(state == 1, RESULTS.successful, RESULTS.max_steps_reached)
    result = RESULTS.where(state == 2, RESULTS.stagnation, result)
    result = RESULTS.where(finite, result, RESULTS.nonfinite)
    return x, result, {"steps": steps, "objective": value}
