"""The derivative of a root that an iterative solver returns, and of an optimum.

At a root, one more exact Newton step changes nothing; its derivative with respect to the problem's
data, the root held fixed, is the derivative of the root. This holds for every solver, whatever path
it took to get there.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
from jaxtyping import PyTree

from kernax.core.base.numerics import split_by_tangent

Root = TypeVar("Root", bound=PyTree)
Value = TypeVar("Value", bound=PyTree)


@eqx.filter_custom_jvp
def _implicit(args, *, solve, step, solve_exactly):
    return solve(args)


@_implicit.def_jvp
def _implicit_jvp(primals, tangents, *, solve, step, solve_exactly):
    # root = N(root, args) with d N / d root = 0 there, so d root = (d N / d args) d args. The root
    # is traced by any outer transformation through this same rule, which makes the second
    # derivative exact as well.
    (args,) = primals
    (t_args,) = tangents
    root = _implicit(args, solve=solve_exactly, step=step, solve_exactly=solve_exactly)
    moving, known = split_by_tangent(args, t_args)
    step_of_moving = lambda moving: step(root, eqx.combine(moving, known))
    _, t_root = eqx.filter_jvp(step_of_moving, (moving,), (t_args,))
    return root, t_root


def implicit(
    solve: Callable[[Any], Root],
    step: Callable[[Root, Any], Root],
    args: Any,
    solve_exactly: Callable[[Any], Root] | None = None,
) -> Root:
    """`solve(args)`, differentiated as one exact Newton step, `d root = d/d args step(root, args)`.

    `step(root, args)` must return the root unchanged at the solution, with a derivative in its
    first argument that vanishes there. Both functions must take all arrays they depend on through
    `args`. Nests for derivatives of higher order. How `solve` iterates does not matter, nor how
    loosely it converges, beyond the error of the root itself; `solve_exactly(args)` takes its place
    where the root is differentiated.
    """
    exactly = solve if solve_exactly is None else solve_exactly
    return _implicit(args, solve=solve, step=step, solve_exactly=exactly)


@eqx.filter_custom_jvp
def _at_stationary_point(point, args, *, function):
    return function(point, args)


@_at_stationary_point.def_jvp
def _at_stationary_point_jvp(primals, tangents, *, function):
    # The point's tangent is left out. What remains depends on the point, whose own derivative an
    # outer transformation sees: the second derivative is exact as well.
    point, args = primals
    moving, known = split_by_tangent(args, tangents[1])
    of_moving = lambda moving: function(point, eqx.combine(moving, known))
    return eqx.filter_jvp(of_moving, (moving,), (tangents[1],))


def at_stationary_point(function: Callable[[Any, Any], Value], point: Any, args: Any) -> Value:
    """`function(point, args)` for a point where its derivative in the point is zero, such as the
    optimum of what the function measures.

    Its derivative is that in args alone (the envelope theorem), and that of the point is needed for
    second derivatives only. The function must take all arrays it depends on through its arguments.
    """
    return _at_stationary_point(point, args, function=function)
