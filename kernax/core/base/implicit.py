"""Implicit differentiation of roots from iterative solvers, and of functions at an optimum.

At a root, one more exact Newton step changes nothing. The derivative of that step with respect to
the data, with the root held fixed, is the derivative of the root, whichever solver found it.
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
    `args`. It nests for derivatives of higher order. The derivative does not depend on how `solve`
    iterates, and its error is only that of the root. If given, `solve_exactly(args)` replaces
    `solve` where the root is differentiated.
    """
    exactly = solve if solve_exactly is None else solve_exactly
    return _implicit(args, solve=solve, step=step, solve_exactly=exactly)


@eqx.filter_custom_jvp
def _at_stationary_point(point, args, *, function):
    return function(point, args)


@_at_stationary_point.def_jvp
def _at_stationary_point_jvp(primals, tangents, *, function):
    # The tangent of the point is omitted. The rest depends on the point, and an outer
    # transformation sees the derivative of the point, so the second derivative is exact as well.
    point, args = primals
    moving, known = split_by_tangent(args, tangents[1])
    of_moving = lambda moving: function(point, eqx.combine(moving, known))
    return eqx.filter_jvp(of_moving, (moving,), (tangents[1],))


def at_stationary_point(function: Callable[[Any, Any], Value], point: Any, args: Any) -> Value:
    """`function(point, args)` at a point where its derivative in the point is zero, such as an
    optimum.

    Its derivative is that in args alone (the envelope theorem); only second derivatives need the
    derivative of the point. The function must take all arrays it depends on through its arguments.
    """
    return _at_stationary_point(point, args, function=function)
