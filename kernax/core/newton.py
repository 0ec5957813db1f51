"""Newton's method, and the derivative of whatever an iterative solver returns.

At a root, one more exact Newton step changes nothing; its derivative with respect to the problem's data, the root held
fixed, is the derivative of the root. That one sentence covers every solver, whatever path it took to get there.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from kernax.core.numerics import split_by_tangent
from kernax.core.sharding import while_loop
from kernax.core.solution import RESULTS

Root = TypeVar("Root", bound=PyTree)


@eqx.filter_custom_jvp
def _implicit(args, *, solve, step, refine):
    return solve(args)


@_implicit.def_jvp
def _implicit_jvp(primals, tangents, *, solve, step, refine):
    # root = N(root, args) with d N / d root = 0 there, so d root = (d N / d args) d args. The root is traced by any outer
    # transformation through this same rule, which makes the second derivative exact as well.
    (args,), (t_args,) = primals, tangents
    refined = solve if refine is None else lambda args: refine(solve(args), args)
    root = _implicit(args, solve=refined, step=step, refine=None)
    moving, known = split_by_tangent(args, t_args)
    _, t_root = eqx.filter_jvp(lambda moving: step(root, eqx.combine(moving, known)), (moving,), (t_args,))
    return root, t_root


def implicit(
    solve: Callable[[Any], Root],
    step: Callable[[Root, Any], Root],
    args: Any,
    refine: Callable[[Root, Any], Root] | None = None,
) -> Root:
    """`solve(args)`, differentiated as one exact Newton step: `d root = d/d args step(root, args)` at fixed root.

    `step(root, args)` must return the root unchanged at the solution, with a derivative in its first argument that vanishes
    there. Both functions must take all arrays they depend on through `args`. Nests for derivatives of higher order, and does
    not care how `solve` iterates or how loosely it converges, beyond the error of the root itself.
    """
    return _implicit(args, solve=solve, step=step, refine=refine)


def newton(
    step: Callable[[Array], Array],
    objective: Callable[[Array], Array],
    start: Array,
    *,
    rtol: float | None = None,
    max_steps: int = 50,
) -> tuple[Array, Any, dict[str, Array]]:
    """Damped Newton iteration `x <- x + t (step(x) - x)`, t halved from 1 until the objective does not rise beyond rounding.

    Stops when a full step moves x by at most `rtol` (default eps^(2/3)) of its size. With steps below the root of that it has
    also succeeded where nothing but rounding is left: the objective does not fall, and no halving helps or the steps no longer
    shrink. Where no halving helps a longer step it has stagnated.

    Returns:
        x, the result (successful, stagnation, max_steps_reached, or nonfinite with the last finite x), and stats `steps` and
        `objective`.
    """
    tolerance = float(jnp.finfo(start.dtype).eps) ** (2 / 3) if rtol is None else rtol

    def damped(x, value, direction, level):
        def rises(carry):
            t, new = carry
            return ~(new <= level) & (t > 1e-9)

        def halve(carry):
            t = carry[0] / 2
            return t, objective(x + t * direction)

        t, new = while_loop(rises, halve, (jnp.ones((), x.dtype), objective(x + direction)))
        better = new <= level
        return jnp.where(better, x + t * direction, x), jnp.where(better, new, value), better

    def body(carry):
        x, before, last, _, _, steps = carry
        direction = step(x) - x
        size = jnp.linalg.norm(direction) / (jnp.linalg.norm(x) + tolerance)
        close = size <= jnp.sqrt(tolerance)  # where the objective shows nothing but rounding
        rounding = 8 * float(jnp.finfo(x.dtype).eps) * abs(before)
        x, value, better = damped(x, before, direction, before + jnp.where(close, rounding, 0))
        wanders = ~better | ((size > last / 2) & (value >= before - rounding))
        state = jnp.where((size <= tolerance) | (close & wanders), 1, jnp.where(better, 0, 2)).astype(jnp.int32)
        return x, value, size, state, jnp.all(jnp.isfinite(direction)), steps + 1

    def go_on(carry):
        _, _, _, state, finite, steps = carry
        return (state == 0) & finite & (steps < max_steps)

    first = objective(start)
    still = jnp.zeros((), jnp.int32)
    carry = (start, first, jnp.asarray(jnp.inf, start.dtype), still, jnp.isfinite(first), still)
    x, value, _, state, finite, steps = while_loop(go_on, body, carry)
    result = RESULTS.where(state == 1, RESULTS.successful, RESULTS.max_steps_reached)
    result = RESULTS.where(state == 2, RESULTS.stagnation, result)
    result = RESULTS.where(finite, result, RESULTS.nonfinite)
    return x, result, {"steps": steps, "objective": value}


def newton_root(
    step: Callable[[Array, Any], Array],
    objective: Callable[[Array, Any], Array],
    start: Callable[[Any], Array],
    args: Any,
    *,
    rtol: float | None = None,
    max_steps: int = 50,
) -> tuple[Array, Any, dict[str, Array]]:
    """`newton` for functions of x and `args`, from `start(args)`; differentiable in `args` to any order, by one more step."""

    def solve(args):
        return newton(lambda x: step(x, args), lambda x: objective(x, args), start(args), rtol=rtol, max_steps=max_steps)

    return implicit(solve, lambda root, args: (step(root[0], args), *root[1:]), args)
