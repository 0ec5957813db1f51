"""`out_i = sum_j function(theta, row_i, column_j)`; its derivatives are such sums again."""

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

from kernax.core.base.numerics import is_concrete
from kernax.core.operators.pairwise.pair_expression import NotArithmetic, expressions
from kernax.core.operators.pairwise.triton_kernel import SWITCH, sums_of

# The number of numbers in memory at one time if the sum is not computed in registers.
_NUMBERS_AT_ONCE = 2**22

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
    """`out_i = sum_j function(theta, row_i, column_j)` for trees of arrays.

    On a GPU no result for a pair is written to memory. Derivatives of all orders, in both modes,
    are sums over pairs again: for rows a sum over columns, for columns a sum over rows. `vmap`
    computes one member after the other.

    `interpret` uses an interpreter of the GPU kernel, for tests on a CPU.
    """
    first = partial(jax.tree.map, lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), theta)
    trace, structure = jax.make_jaxpr(function, return_shape=True)(
        shapes, first(rows), first(columns)
    )
    if not is_concrete(trace.consts):
        raise ValueError(
            "the function of a pair uses an array that is being traced, from outside: pass it in "
            "theta"
        )
    groups = [jax.tree.leaves(tree) for tree in (theta, rows, columns)]
    sizes = tuple(len(group) for group in groups)
    flat = [array for group in groups for array in group]
    outputs = _sum_over_pairs.bind(*flat, trace=trace, sizes=sizes, interpret=interpret)
    return jax.tree.unflatten(jax.tree.structure(structure), outputs)


def is_arithmetic(
    function: Callable[[PyTree, PyTree, PyTree], PyTree],
    theta: PyTree,
    rows: PyTree,
    columns: PyTree,
) -> bool:
    """Whether a function of a pair is arithmetic, which a GPU computes in registers."""

    def build(*groups):
        of_pair = groups[0], *jax.tree.map(lambda leaf: leaf[0], groups[1:])
        trace = jax.make_jaxpr(function)(*of_pair)
        (theta, rows, columns) = (jax.tree.leaves(group) for group in groups)
        expressions(trace, theta, rows, columns)
        return 0

    two = partial(jax.tree.map, lambda leaf: jax.ShapeDtypeStruct((2, *leaf.shape[1:]), leaf.dtype))
    try:
        jax.eval_shape(build, theta, two(rows), two(columns))
    except NotArithmetic:
        return False
    return True


def _grouped(flat: Sequence, sizes: tuple[int, ...]) -> tuple[list, list, list]:
    """The parameters, rows and columns among arguments."""
    (n_theta, n_rows, _) = sizes
    return (
        list(flat[:n_theta]),
        list(flat[n_theta : n_theta + n_rows]),
        list(flat[n_theta + n_rows :]),
    )


def _in_registers(*flat, trace, sizes, interpret):
    """The sums as one GPU kernel, or by rows if the function is not arithmetic."""
    (theta, rows, columns) = _grouped(flat, sizes)
    (n, m) = (len(rows[0]), len(columns[0]))
    by_rows = partial(_by_rows, *flat, trace=trace, sizes=sizes, interpret=interpret)
    dtypes = {aval.dtype for aval in trace.out_avals}
    if len(dtypes) > 1 or not dtypes <= {jnp.dtype("float32"), jnp.dtype("float64")} or n * m == 0:
        return by_rows()
    try:
        numbers = expressions(trace, theta, rows, columns)
    except NotArithmetic:
        return by_rows()
    return sums_of(numbers, n, m, dtypes.pop(), interpret=interpret)


def _by_rows(*flat, trace, sizes, interpret):
    """The sums, for some rows at a time."""
    del interpret
    (theta, rows, columns) = _grouped(flat, sizes)
    (n, m) = (len(rows[0]), len(columns[0]))
    if n * m == 0:
        return [jnp.zeros((n, *aval.shape), aval.dtype) for aval in trace.out_avals]
    function = jex.jaxpr_as_fun(trace)

    # out_i = sum_j function(theta, row_i, column_j).
    def of_row(row):
        of_column = lambda column: function(*theta, *row, *column)
        return [jnp.sum(values, 0) for values in jax.vmap(of_column)(columns)]

    of_pair = max(1, sum(aval.size for aval in trace.out_avals))
    at_once = max(1, _NUMBERS_AT_ONCE // (m * of_pair))
    return lax.map(of_row, rows, batch_size=at_once)


def _on_other_platforms(*flat, interpret, **params):
    compute = _in_registers if interpret else _by_rows
    return compute(*flat, interpret=interpret, **params)


def _lowered_for_gpu(context, *arguments, **params):
    lower = mlir.lower_fun(_in_registers, multiple_results=True)
    with warnings.catch_warnings():
        # JAX will remove Triton eventually; until then there is no other way to use registers.
        warnings.filterwarnings("ignore", message=".*Pallas Triton", category=DeprecationWarning)
        try:
            return lower(context, *arguments, **params)
        except Exception as error:
            # The program already holds a part of the kernel, so that tiles cannot replace it here.
            raise RuntimeError(
                f"JAX {jax.__version__} does not compile the GPU kernel of a product with a Gram "
                f"matrix ({type(error).__name__}: {error}): start Python with the environment "
                f"variable {SWITCH}=0, so that products are computed in tiles of K, and report "
                "this error with the kernel and the version"
            ) from error


mlir.register_lowering(_sum_over_pairs, mlir.lower_fun(_on_other_platforms, multiple_results=True))
mlir.register_lowering(_sum_over_pairs, _lowered_for_gpu, platform="cuda")


@_sum_over_pairs.def_impl
def _(*flat, **params):
    return jax.jit(lambda *flat: _sum_over_pairs.bind(*flat, **params))(*flat)


@_sum_over_pairs.def_abstract_eval
def _(*flat, trace, sizes, interpret):
    del interpret
    n = flat[sizes[0]].shape[0]
    return [aval.update(shape=(n, *aval.shape)) for aval in trace.out_avals]


def _jvp(primals, tangents, *, trace, sizes, interpret):
    """The derivative along tangents: `sum_j d function(theta, row_i, column_j)`."""
    moves = [type(tangent) is not ad.Zero for tangent in tangents]
    function = jex.jaxpr_as_fun(trace)

    def derivative(theta, rows, columns):
        pairs = [*theta, *rows, *columns]
        primals = [x for x, _ in pairs]
        moving = [i for i, (_, dx) in enumerate(pairs) if dx is not None]

        def of_moving(*values):
            arguments = list(primals)
            for i, value in zip(moving, values):
                arguments[i] = value
            return function(*arguments)

        # d function = sum_i (d function / d a_i) da_i over the arguments a_i that move.
        at = [primals[i] for i in moving]
        along = [pairs[i][1] for i in moving]
        return jax.jvp(of_moving, at, along)[1]

    pairs = [(x, t if move else None) for x, t, move in zip(primals, tangents, moves)]
    outputs = _sum_over_pairs.bind(*primals, trace=trace, sizes=sizes, interpret=interpret)
    (theta, rows, columns) = _grouped(pairs, sizes)
    return outputs, sum_over_pairs(derivative, theta, rows, columns, interpret=interpret)


def _transpose(cotangents, *flat, trace, sizes, interpret):
    """The transpose of a sum that is linear in some of its arguments: the cotangent of a row or of
    a parameter is a sum over columns, and that of a column is a sum over rows.
    """
    is_linear = [ad.is_undefined_primal(x) for x in flat]
    avals = [x.aval if linear else x for x, linear in zip(flat, is_linear)]
    # The shapes for one pair: rows and columns have a leading axis of all of them.
    shapes = [
        jax.ShapeDtypeStruct(aval.shape[int(i >= sizes[0]) :], aval.dtype)
        for i, aval in enumerate(avals)
    ]
    function = jex.jaxpr_as_fun(trace)
    (n, m) = (avals[sizes[0]].shape[0], avals[-1].shape[0])
    cotangents = [
        jnp.zeros((n, *aval.shape), aval.dtype) if type(c) is ad.Zero else c
        for c, aval in zip(cotangents, trace.out_avals)
    ]
    known = [None if linear else x for x, linear in zip(flat, is_linear)]
    (theta, rows, columns) = _grouped(known, sizes)

    def transposed(wanted, theta, row, column):
        """The contribution of one pair: `c_k = (d f / d a_k)^T c` for the wanted arguments a_k."""
        (row, of_pair, _) = row
        (column, _) = column
        given = [*theta, *row, *column]

        def linear(*parts):
            # The function is linear in unwanted arguments as well, so zero adds nothing.
            arguments = [
                jnp.zeros(shape.shape, shape.dtype) if x is None else x
                for x, shape in zip(given, shapes)
            ]
            for i, part in zip(wanted, parts):
                arguments[i] = part
            return function(*arguments)

        return list(jax.linear_transpose(linear, *(shapes[i] for i in wanted))(of_pair))

    # With out_i = sum_j f(theta, row_i, column_j) and the cotangents c_i of out_i:
    #     row_i gets sum_j (df / d row_i)^T c_i,  column_j gets sum_i (df / d column_j)^T c_i,
    #     theta gets sum_i sum_j (df / d theta)^T c_i.
    # The numbers of rows and columns are known even if none of their arrays is.
    rows = (rows, cotangents, jnp.zeros(n, cotangents[0].dtype))
    columns = (columns, jnp.zeros(m, cotangents[0].dtype))
    first_of_columns = sizes[0] + sizes[1]
    results: list[Any] = [None] * len(flat)
    wanted = [i for i, linear in enumerate(is_linear) if linear and i < first_of_columns]
    if wanted:
        over_columns = partial(transposed, wanted)
        outputs = sum_over_pairs(over_columns, theta, rows, columns, interpret=interpret)
        for i, output in zip(wanted, outputs):
            results[i] = jnp.sum(output, 0) if i < sizes[0] else output
    wanted = [i for i, linear in enumerate(is_linear) if linear and i >= first_of_columns]
    if wanted:
        over_rows = lambda theta, column, row: transposed(wanted, theta, row, column)
        outputs = sum_over_pairs(over_rows, theta, columns, rows, interpret=interpret)
        for i, output in zip(wanted, outputs):
            results[i] = output
    return results


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
