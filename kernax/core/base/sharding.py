"""Arrays that vary alike, for compiled functions and loops inside `jax.shard_map`.

There JAX records for every array over which axes of the mesh it varies. Arithmetic allows arrays
that vary over different axes; loops, branches, linear solves and operators of lineax do not. So
every array that enters a compiled function is made to vary over all axes that any of them varies
over, and so are the arrays that a loop starts from. Outside of `jax.shard_map` neither changes
anything.
"""

import abc
from collections.abc import Callable
from functools import wraps
from typing import Any

import equinox as eqx
import jax
import jax.core
from jax import lax


def varying_alike(tree: Any) -> Any:
    """The same tree, with every array varying over all mesh axes that any of them varies over."""
    leaves, structure = jax.tree.flatten(tree)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return tree  # the usual case, in which there is nothing to do
    axes = frozenset().union(*(_axes(leaf) for leaf in leaves if eqx.is_array(leaf)))
    return (
        jax.tree.unflatten(structure, [_varying(leaf, axes) for leaf in leaves]) if axes else tree
    )


def is_varying(tree: Any) -> bool:
    """Whether any array varies over an axis of a mesh."""
    leaves = jax.tree.leaves(tree)
    return any(_axes(leaf) for leaf in leaves if isinstance(leaf, jax.core.Tracer))


def _axes(array: Any) -> frozenset:
    """The mesh axes over which an array varies."""
    return jax.typeof(array).mat.varying


def _varying(leaf: Any, axes: frozenset) -> Any:
    """The same leaf; an array varies over all of the axes."""
    missing = tuple(axes - _axes(leaf)) if eqx.is_array(leaf) else ()
    return lax.pcast(leaf, missing, to="varying") if missing else leaf


class AbstractAsked(eqx.Module):
    """An argument of compiled functions that is asked before any of them is compiled."""

    @abc.abstractmethod
    def check_before(self, function: Callable, args: tuple) -> None:
        """Raises an exception where the function must not be called with these arguments."""


def compiled(function: Callable) -> Callable:
    """`eqx.filter_jit`, of arguments that vary alike, for the private function of every verb."""
    jitted = eqx.filter_jit(function)

    @wraps(function)
    def of_alike(*args, **kwargs):
        args, kwargs = varying_alike((args, kwargs))
        for argument in args:
            if isinstance(argument, AbstractAsked):
                argument.check_before(function, args)
        return jitted(*args, **kwargs)

    return of_alike


def while_loop(go_on: Callable, step: Callable, start: Any) -> Any:
    """`lax.while_loop` over a state, parts of which may be the same on all devices."""
    start = varying_alike(start)
    return lax.while_loop(go_on, lambda state: varying_alike((step(state), state))[0], start)


def for_loop(count: int, step: Callable, start: Any, first: int = 0) -> Any:
    """`lax.fori_loop` from `first` over a state, parts of which may be the same on all devices."""
    start = varying_alike(start)

    def alike(i: Any, state: Any) -> Any:
        return varying_alike((step(i, state), state))[0]

    return lax.fori_loop(first, count, alike, start)


def scan(step: Callable, start: Any, xs: Any, *, reverse: bool = False) -> tuple[Any, Any]:
    """`lax.scan` over a state, parts of which may be the same on all devices."""
    start, xs = varying_alike((start, xs))

    def alike(state: Any, x: Any) -> tuple[Any, Any]:
        after, out = step(state, x)
        return varying_alike((after, state))[0], out

    return lax.scan(alike, start, xs, reverse=reverse)
