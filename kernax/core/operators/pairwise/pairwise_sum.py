"""`out_i = sum_j function(theta, row_i, column_j)`, and its derivatives: such sums again."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jex
from jax.interpreters import ad, batching, mlir
from jaxtyping import PyTree

from kernax.core.operators.pairwise.expression import NotArithmetic, expressions
from kernax.core.operators.pairwise.triton_kernel import sums_of

# Pairs that are held at one time where the sum is not computed in registers.
_PAIRS_AT_ONCE = 2**22

_sum_over_pairs = jex.Primitive("sum_over_pairs")
_sum_over_pairs.multiple_results = True


def sum_over_pairs(
    function: Callable[[PyTree, PyTree, PyTree], PyTree],
    theta: PyTree,
    rows: PyTree,
    columns: PyTree,
    *,
    interpret: bool = False,
) -> PyTree:
    """`out_i = sum_j function(theta, row_i, column_j)` of trees of arrays.

    On a GPU no result for a pair is written to memory. Derivatives of all orders, in both modes,
    are sums over pairs again: of the rows one over columns, of the columns one over rows. `vmap`
    takes one member after the other.

    `interpret` computes in an interpreter of the GPU's kernel, for tests on a CPU.
    """
    first = partial(jax.tree.map, lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), theta)
    trace, structure = jax.make_jaxpr(function, return_shape=True)(
        shapes, first(rows), first(columns)
    )
    groups = [jax.tree.leaves(tree) for tree in (theta, rows, columns)]
    outputs = _bind(trace, groups, interpret)
    return jax.tree.unflatten(jax.tree.structure(structure), outputs)


def is_arithmetic(
    function: Callable[[PyTree, PyTree, PyTree], PyTree],
    theta: PyTree,
    rows: PyTree,
    columns: PyTree,
) -> bool:
    """Whether a function of a pair is arithmetic, which a GPU computes in registers."""

    def build(*groups):
        trace = jax.make_jaxpr(function)(groups[0], *(_first(group) for group in groups[1:]))
        (theta, rows, columns) = (jax.tree.leaves(group) for group in groups)
        expressions(trace, theta, rows, columns)
        return 0

    two = partial(jax.tree.map, lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape[1:]), leaf.dtype))
    try:
        jax.eval_shape(build, theta, two(rows), two(columns))
    except NotArithmetic:
        return False
    return True


def _first(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], tree)


def _bind(trace: Any, groups: Sequence[list], interpret: bool) -> list:
    sizes = tuple(len(group) for group in groups)
    flat = [array for group in groups for array in group]
    return _sum_over_pairs.bind(*flat, trace=trace, sizes=sizes, interpret=interpret)


def _grouped(flat: Sequence, sizes: tuple[int, ...]) -> tuple[list, list, list]:
    """The parameters, rows and columns among arguments."""
    (n_theta, n_rows, _) = sizes
    return (
        list(flat[:n_theta]),
        list(flat[n_theta : n_theta + n_rows]),
        list(flat[n_theta + n_rows :]),
    )


# Values --------------------------------------------------------------------------------------


def _in_registers(*flat, trace, sizes, interpret):
    """The sums as one kernel of the GPU; by rows where the function is more than arithmetic."""
    (theta, rows, columns) = _grouped(flat, sizes)
    (n, m) = (len(rows[0]), len(columns[0]))
    try:
        numbers = expressions(trace, theta, rows, columns)
    except NotArithmetic:
        return _by_rows(*flat, trace=trace, sizes=sizes, interpret=interpret)
    return sums_of(numbers, n, m, trace.out_avals[0].dtype, interpret=interpret)


def _by_rows(*flat, trace, sizes, interpret):
    """The sums of some rows at a time."""
    del interpret
    (theta, rows, columns) = _grouped(flat, sizes)
    function = jex.jaxpr_as_fun(trace)

    def of_row(row):
        of_column = lambda column: function(*theta, *row, *column)
        return [jnp.sum(values, 0) for values in jax.vmap(of_column)(columns)]

    at_once = max(1, _PAIRS_AT_ONCE // len(columns[0]))
    return lax.map(of_row, rows, batch_size=at_once)


def _computed(*flat, interpret, **params):
    compute = _in_registers if interpret else _by_rows
    return compute(*flat, interpret=interpret, **params)


def _lowered_for_gpu(context, *arguments, **params):
    lower = mlir.lower_fun(_in_registers, multiple_results=True)
    with warnings.catch_warnings():
        # Triton is to leave JAX in time; until then there is no other way to registers.
        warnings.filterwarnings("ignore", message=".*Pallas Triton", category=DeprecationWarning)
        return lower(context, *arguments, **params)


mlir.register_lowering(_sum_over_pairs, mlir.lower_fun(_computed, multiple_results=True))
mlir.register_lowering(_sum_over_pairs, _lowered_for_gpu, platform="cuda")


@_sum_over_pairs.def_impl
def _(*flat, **params):
    return jax.jit(lambda *flat: _sum_over_pairs.bind(*flat, **params))(*flat)


@_sum_over_pairs.def_abstract_eval
def _(*flat, trace, sizes, interpret):
    del interpret
    n = flat[sizes[0]].shape[0]
    return [aval.update(shape=(n, *aval.shape)) for aval in trace.out_avals]


# Derivatives ---------------------------------------------------------------------------------


def _jvp(primals, tangents, *, trace, sizes, interpret):
    """The derivative along tangents: `sum_j d function(theta, row_i, column_j)`."""
    moves = [type(tangent) is not ad.Zero for tangent in tangents]
    function = jex.jaxpr_as_fun(trace)

    def derivative(theta, rows, columns):
        merged = [*theta, *rows, *columns]
        (given, moved) = ([primal for primal, _ in merged], [d for _, d in merged if d is not None])

        def of_moving(*moving):
            moving = iter(moving)
            return function(*(next(moving) if move else x for x, move in zip(given, moves)))

        moving = [x for x, move in zip(given, moves) if move]
        return jax.jvp(of_moving, moving, moved)[1]

    pairs = [(x, t if move else None) for x, t, move in zip(primals, tangents, moves)]
    outputs = _sum_over_pairs.bind(*primals, trace=trace, sizes=sizes, interpret=interpret)
    groups = _grouped(pairs, sizes)
    return outputs, _summed(derivative, groups, interpret)


def _summed(function: Callable, groups: Sequence[PyTree], interpret: bool) -> list:
    (theta, rows, columns) = groups
    return sum_over_pairs(function, theta, rows, columns, interpret=interpret)


def _transpose(cotangents, *flat, trace, sizes, interpret):
    """The transpose of a sum that is linear in some of its arguments."""
    is_linear = [ad.is_undefined_primal(x) for x in flat]
    avals = [x.aval if linear else x for x, linear in zip(flat, is_linear)]
    shapes = [_pair_shape(aval, i >= sizes[0]) for i, aval in enumerate(avals)]
    function = jex.jaxpr_as_fun(trace)
    n = next(c for c in cotangents if type(c) is not ad.Zero).shape[0]
    cotangents = [
        jnp.zeros((n, *aval.shape), aval.dtype) if type(c) is ad.Zero else c
        for c, aval in zip(cotangents, trace.out_avals)
    ]
    known = [None if linear else x for x, linear in zip(flat, is_linear)]
    (theta, rows, columns) = _grouped(known, sizes)
    in_columns = [i >= sizes[0] + sizes[1] for i in range(len(flat))]
    results: list[Any] = [None] * len(flat)

    def transposed(wanted, theta, rows, columns, of_pair):
        """The cotangents of the wanted arguments that one pair adds."""
        given = [*theta, *rows, *columns]

        def linear(*parts):
            parts = iter(parts)
            arguments = [
                next(parts)
                if i in wanted
                else jnp.zeros(shape.shape, shape.dtype)
                if x is None
                else x
                for i, (x, shape) in enumerate(zip(given, shapes))
            ]
            return function(*arguments)

        return list(jax.linear_transpose(linear, *(shapes[i] for i in wanted))(of_pair))

    wanted = [i for i, linear in enumerate(is_linear) if linear and not in_columns[i]]
    if wanted:
        of_rows = lambda theta, row, column: transposed(wanted, theta, row[0], column, row[1])
        outputs = _summed(of_rows, (theta, (rows, cotangents), columns), interpret)
        for i, output in zip(wanted, outputs):
            results[i] = jnp.sum(output, 0) if i < sizes[0] else output
    wanted = [i for i, linear in enumerate(is_linear) if linear and in_columns[i]]
    if wanted:
        of_columns = lambda theta, column, row: transposed(wanted, theta, row[0], column, row[1])
        if not jax.tree.leaves(columns):
            # The columns are known by their number alone.
            columns = [jnp.zeros(avals[wanted[0]].shape[:1], cotangents[0].dtype), *columns]
            of_columns = lambda theta, column, row: transposed(
                wanted, theta, row[0], column[1:], row[1]
            )
        outputs = _summed(of_columns, (theta, columns, (rows, cotangents)), interpret)
        for i, output in zip(wanted, outputs):
            results[i] = output
    return results


def _pair_shape(aval: Any, is_stack: bool) -> jax.ShapeDtypeStruct:
    """The shape of an argument for one pair."""
    return jax.ShapeDtypeStruct(aval.shape[1:] if is_stack else aval.shape, aval.dtype)


def _batched(flat, axes, **params):
    """One member of a batch after the other."""
    stacked = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(flat, axes)]
    is_member = [axis is not None for axis in axes]

    def of_member(members):
        members = iter(members)
        arguments = [next(members) if one else x for x, one in zip(stacked, is_member)]
        return _sum_over_pairs.bind(*arguments, **params)

    outputs = lax.map(of_member, [x for x, one in zip(stacked, is_member) if one])
    return outputs, [0] * len(outputs)


ad.primitive_jvps[_sum_over_pairs] = _jvp
ad.primitive_transposes[_sum_over_pairs] = _transpose
batching.primitive_batchers[_sum_over_pairs] = _batched
