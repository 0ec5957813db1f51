"""Rules of derivatives: of single functions, of roots that a solver found, and of functions at an
optimum.

At a root, one more exact Newton step changes nothing. The derivative of that step with respect to
the data, with the root held fixed, is the derivative of the root, whichever solver found it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.extend.core as jex
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.interpreters import ad, batching, mlir
from jaxtyping import PyTree

from kernax.core.base.compiled import nothing_is_traced

Root = TypeVar("Root", bound=PyTree)
Value = TypeVar("Value", bound=PyTree)


class custom_jvp:
    """A function with a derivative rule of its own, as `equinox.filter_custom_jvp`, that is also
    differentiated by this rule inside loops.

    Up to version 0.11, JAX replaces a `jax.custom_jvp` by the plain function where it prepares the
    body of a `lax.scan` or `lax.map` for reverse mode. A forward derivative of that gradient, such
    as `jax.hessian`, is then wrong without an error. Here the call is a primitive, which stays in
    the body until it is differentiated.

    Arguments and outputs are pytrees. The tangents in the rule have the structure of the positional
    arguments, with None for what is not an array or does not move; the tangent of an output, or of
    a branch of it, that does not move is None as well. Keyword arguments, and arrays that the
    function captured, must not move. The rule gets numbers of Python as they came, applies no
    `custom_jvp` to a tangent, and under `vmap` all outputs count as batched.

        @custom_jvp
        def logarithm(x):
            return jnp.log(x)

        @logarithm.def_jvp
        def _logarithm_jvp(primals, tangents):
            (x,) = primals
            (dx,) = tangents
            return logarithm(x), dx / x

    A rule that is defined by `def_tangents` gets the value, and returns its tangents alone. The
    value is then computed by the program that exists already: a solver is not traced again.

        @logarithm.def_tangents
        def _logarithm_tangents(log_x, primals, tangents):
            return tangents[0] / primals[0]
    """

    def __init__(self, function: Callable):
        self.function = function
        self.rule: Callable | None = None
        # For other rules the value is not computed: it would be in the program twice.
        self.takes_value = False
        functools.update_wrapper(self, function)

    def def_jvp(self, rule: Callable) -> Callable:
        """The rule `(primals, tangents, **constants) -> (out, tangents of out)`."""
        self.rule = rule
        return rule

    def def_tangents(self, rule: Callable) -> Callable:
        """The rule `(out, primals, tangents, **constants) -> tangents of out`."""
        self.rule = rule
        self.takes_value = True
        return rule

    def __call__(self, *args, **constants):
        own_rule = self.rule
        takes_value = self.takes_value
        if own_rule is None:
            raise TypeError(f"{self.function.__name__} has no rule: define one by `def_jvp`")
        if nothing_is_traced():
            return self.function(*args, **constants)
        arrays, others = eqx.partition((args, constants), eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)

        def function(*leaves):
            args, constants = eqx.combine(jax.tree.unflatten(structure, leaves), others)
            return self.function(*args, **constants)

        def rule(value, primals, tangents):
            args, constants = eqx.combine(jax.tree.unflatten(structure, primals), others)
            tangents_of_args, of_constants = jax.tree.unflatten(structure, tangents)
            if jax.tree.leaves(of_constants):
                raise ValueError(f"a keyword argument of {self.function.__name__} moves")
            if takes_value:
                out = value
                tangents_of_out = own_rule(value, args, tangents_of_args, **constants)
            else:
                out, tangents_of_out = own_rule(args, tangents_of_args, **constants)
            return jax.tree.leaves(out), _of_leaves(tangents_of_out, out)

        return _call(function, rule, leaves, takes_value)


def with_zeros(primals: PyTree, tangents: PyTree) -> PyTree:
    """The tangents of a rule, with zeros for the floats that do not move."""

    def instantiated(t, x):
        is_number = isinstance(x, (jax.Array, np.ndarray, float))
        is_float = is_number and jnp.issubdtype(jnp.result_type(x), jnp.inexact)
        return jnp.zeros_like(x) if t is None and is_float else t

    return jax.tree.map(instantiated, tangents, primals, is_leaf=_is_none)


def split_by_tangent(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The primals that have a tangent, and the others."""
    return eqx.partition(primals, jax.tree.map(lambda t: t is not None, tangents, is_leaf=_is_none))


def _is_none(t: Any) -> bool:
    return t is None


def _of_leaves(tangents: PyTree, out: PyTree) -> list:
    """For each array of an output its tangent or None."""
    of_branch = lambda t, branch: [t] * len(jax.tree.leaves(branch))
    return jax.tree.leaves(
        jax.tree.map(of_branch, tangents, out, is_leaf=_is_none), is_leaf=_is_none
    )


def _call(function: Callable, rule: Callable, leaves: Sequence[Any], takes_value: bool) -> PyTree:
    """`function(*leaves)` as one operation of the program, differentiated by `rule(value, leaves,
    tangents or None) -> (arrays, tangents or None)`. The value is None unless the rule takes it.
    """
    jaxpr, shapes = jax.make_jaxpr(function, return_shape=True)(*leaves)
    structure = jax.tree.structure(shapes)
    # Arrays of an outer trace that the function captured are operands of the call.
    captured = [x for x in jaxpr.consts if isinstance(x, Tracer)]
    n_captured = len(captured)
    if captured:
        inner = jaxpr

        def of_operands(*operands):
            parts = iter(operands)
            known = [next(parts) if isinstance(x, Tracer) else x for x in inner.consts]
            return jex.jaxpr_as_fun(jex.ClosedJaxpr(inner.jaxpr, known))(*parts)

        jaxpr = jax.make_jaxpr(of_operands)(*captured, *leaves)

    def rule_of_operands(value, primals, tangents):
        if any(t is not None for t in tangents[:n_captured]):
            raise ValueError("a function with a derivative rule captured an array that moves")
        value = jax.tree.unflatten(structure, value) if takes_value else None
        return rule(value, primals[n_captured:], tangents[n_captured:])

    parameters = {"jaxpr": jaxpr, "rule": rule_of_operands, "takes_value": takes_value}
    out = _custom_jvp_p.bind(*captured, *leaves, **parameters)
    return jax.tree.unflatten(structure, out)


_custom_jvp_p = jex.Primitive("custom_jvp")
_custom_jvp_p.multiple_results = True


@_custom_jvp_p.def_impl
def _evaluated(*operands, jaxpr, rule, takes_value):
    return jex.jaxpr_as_fun(jaxpr)(*operands)


@_custom_jvp_p.def_effectful_abstract_eval
def _shapes(*operands, jaxpr, rule, takes_value):
    return jaxpr.out_avals, jaxpr.effects


def _differentiated(primals, tangents, **parameters):
    # A number that stands in the program itself, such as True, is no array yet.
    primals = [x if isinstance(x, jax.Array) else jnp.asarray(x) for x in primals]
    moving = [None if _is_zero(t) else t for t in tangents]
    # The value is the same operation, which outer transformations differentiate again.
    value = _custom_jvp_p.bind(*primals, **parameters) if parameters["takes_value"] else None
    out, tangents_of_out = parameters["rule"](value, primals, moving)
    shapes = parameters["jaxpr"].out_avals
    found = [jax.typeof(x) for x in out]
    if [_form(x) for x in found] != [_form(x) for x in shapes]:
        raise TypeError(f"a derivative rule returned {found} for the values {shapes}")
    pairs = list(zip(found, tangents_of_out, strict=True))
    for x, t in pairs:
        if t is not None and _form(t) != _form(x.to_tangent_aval()):
            raise TypeError(f"a derivative rule returned a tangent {jax.typeof(t)} of {x}")
    return out, [ad.Zero(x.to_tangent_aval()) if t is None else t for x, t in pairs]


def _is_zero(t: Any) -> bool:
    return type(t) is ad.Zero or getattr(t, "dtype", None) == jax.dtypes.float0


def _form(x: Any) -> tuple:
    return jnp.shape(x), jnp.result_type(x)


def _batched(axis_size, axis_name, _, operands, axes, **parameters):
    jaxpr, rule = parameters["jaxpr"], parameters["rule"]
    if all(axis is None for axis in axes):
        return _custom_jvp_p.bind(*operands, **parameters), [None] * len(jaxpr.out_avals)
    of_batch = functools.partial(jax.vmap, axis_size=axis_size, axis_name=axis_name)

    def rule_of_batch(value, primals, tangents):
        moving = [None if t is None else axis for t, axis in zip(tangents, axes)]
        return of_batch(rule, (0, list(axes), moving))(value, list(primals), tangents)

    function = of_batch(jex.jaxpr_as_fun(jaxpr), axes)
    if any(isinstance(x, Tracer) for x in operands):
        out = _call(function, rule_of_batch, operands, parameters["takes_value"])
    else:
        out = function(*operands)
    return out, [0] * len(out)


ad.primitive_jvps[_custom_jvp_p] = _differentiated
batching.axis_primitive_batchers[_custom_jvp_p] = _batched
mlir.register_lowering(_custom_jvp_p, mlir.lower_fun(_evaluated, multiple_results=True))
# From version 0.12 on, JAX replaces operations such as `jnp.searchsorted` by simpler ones, after
# derivatives are taken. It calls this for a function with such operations.
_custom_jvp_p.to_lojax = _evaluated


@custom_jvp
def _implicit(args, *, solve, step):
    return solve(args)


@_implicit.def_tangents
def _implicit_tangents(root, primals, tangents, *, solve, step):
    # root = N(root, args) with d N / d root = 0 there, so d root = (d N / d args) d args. Any outer
    # transformation differentiates the root by this same rule, which makes the second derivative
    # exact as well.
    (args,) = primals
    moving, known = split_by_tangent(args, tangents[0])
    step_of_moving = lambda moving: step(root, eqx.combine(moving, known))
    return eqx.filter_jvp(step_of_moving, (moving,), (tangents[0],))[1]


@custom_jvp
def _implicit_or_exact(args, *, solve, step, solve_exactly):
    return solve(args)


@_implicit_or_exact.def_jvp
def _implicit_or_exact_jvp(primals, tangents, *, solve, step, solve_exactly):
    root = _implicit(*primals, solve=solve_exactly, step=step)
    return root, _implicit_tangents(root, primals, tangents, solve=solve_exactly, step=step)


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
    if solve_exactly is None:
        return _implicit(args, solve=solve, step=step)
    return _implicit_or_exact(args, solve=solve, step=step, solve_exactly=solve_exactly)


@custom_jvp
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
