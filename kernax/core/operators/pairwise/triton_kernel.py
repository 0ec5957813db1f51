"""The GPU kernel that sums over pairs in registers, written in Pallas for Triton.

A program computes a block of rows, some of them in each thread, and runs over the columns, whose
numbers are scalars. If there are few rows, the columns are split among programs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from kernax.core.operators.pairwise.pair_expression import (
    COLUMN,
    ROW,
    THETA,
    PairNumber,
    in_order,
    is_zero,
)

# A switch that is read when a program is traced: "0" computes all products in tiles.
SWITCH = "KERNAX_PAIRS_IN_REGISTERS"
_THREADS = 128  # four warps
_UNROLLED = 4  # columns in one step of the loop
_CHUNK = 256  # columns that are summed before their sum is added to the total with compensation
_REGISTERS = 160  # of a thread, for the numbers of its rows
_PROGRAMS = 16384  # many for each processor of a GPU, so that none waits long for the last
_LEAST_COLUMNS = 512  # per program


def sums_of(
    outputs: Sequence[np.ndarray], n: int, m: int, dtype: Any, *, interpret: bool
) -> list[Array]:
    """`sum_j number_ij` for arrays of numbers, each (n, *shape)."""
    from jax.experimental import pallas as pl

    options: dict[str, Any] = {}
    if not interpret:
        from jax.experimental.pallas import triton

        options = {"compiler_params": triton.CompilerParams(num_warps=_THREADS // 32, num_stages=1)}
    # sum_j t f(i, j) = t sum_j f(i, j) for a factor t of all pairs.
    taken_out = [_without_factors(number) for output in outputs for number in output.ravel()]
    numbers = [number for number, _ in taken_out]
    order = in_order([np.array(numbers, object)])
    leaves = {
        level: [number for number in order if number.operation == "leaf" and number.level == level]
        for level in (THETA, ROW, COLUMN)
    }
    shape = _Shape.of(n, m, len(leaves[ROW]), len(numbers))
    theta = _stacked(leaves[THETA], (), dtype)
    rows = _stacked(leaves[ROW], (n,), dtype)
    rows = jnp.pad(rows, ((0, 0), (0, shape.blocks * shape.rows - n)), mode="edge")
    columns = _stacked(leaves[COLUMN], (m,), dtype)
    n_outputs = _power_of_two(len(numbers))
    of_splits = pl.pallas_call(
        partial(
            _kernel,
            numbers=numbers,
            order=order,
            leaves=leaves,
            shape=shape,
            m=m,
            interpret=interpret,
        ),
        grid=(shape.blocks, shape.splits),
        in_specs=[
            pl.BlockSpec(theta.shape, lambda i, j: (0,)),
            pl.BlockSpec((len(rows), shape.rows), lambda i, j: (0, i)),
            pl.BlockSpec(columns.shape, lambda i, j: (0, 0)),
        ],
        out_specs=pl.BlockSpec((None, n_outputs, shape.rows), lambda i, j: (j, 0, i)),
        out_shape=jax.ShapeDtypeStruct((shape.splits, n_outputs, rows.shape[1]), dtype),
        interpret=interpret,
        name="sum_over_pairs",
        **options,
    )(theta, rows, columns)
    # (splits, outputs, rows): the sum over all columns is that over the splits.
    sums = jnp.sum(of_splits[:, : len(numbers), :n], 0)
    totals = jnp.stack([times(total) for total, (_, times) in zip(sums, taken_out)])
    results = []
    for output in outputs:
        (part, totals) = (totals[: output.size], totals[output.size :])
        results.append(part.T.reshape(n, *output.shape))
    return results


def _without_factors(number: PairNumber) -> tuple[PairNumber, Callable[[Array], Array]]:
    """A number without its factors that are the same for all pairs, and the function that
    multiplies a sum by them.
    """
    if number.operation == "mul" and number.arguments[0].level == THETA:
        (factor, rest) = number.arguments
        (inner, times) = _without_factors(rest)
        return inner, lambda total: times(total) * jnp.asarray(factor.array, total.dtype)
    if number.operation == "select_n":
        # Zero or the number, chosen by a condition on parameters.
        (condition, no, yes) = number.arguments
        is_of_all = condition.operation == "ne" and condition.arguments[0].level == THETA
        if is_of_all and is_zero(no) != is_zero(yes):
            (inner, times) = _without_factors(yes if is_zero(no) else no)
            is_kept = (condition.arguments[0].array != 0) == is_zero(no)
            return inner, lambda total: jnp.where(is_kept, times(total), 0)
    return number, lambda total: total


@dataclass(frozen=True)
class _Shape:
    """The partition of the work: blocks of `rows` rows, and `splits` parts of `columns` columns."""

    rows: int
    blocks: int
    splits: int
    columns: int

    @staticmethod
    def of(n: int, m: int, inputs: int, outputs: int) -> "_Shape":
        """The partition for n rows and m columns, with the given number of numbers per row."""
        # A thread stores for each of its rows the inputs, the sums, and some steps of the graph.
        per_thread = 8
        while per_thread > 1 and per_thread * (inputs + outputs + 6) > _REGISTERS:
            per_thread //= 2
        rows = _THREADS * per_thread
        blocks = -(-n // rows)
        splits = max(1, min(-(-_PROGRAMS // blocks), m // _LEAST_COLUMNS))
        columns = -(-m // splits)
        return _Shape(rows, blocks, -(-m // columns), columns)


def _power_of_two(size: int) -> int:
    return 1 << max(0, size - 1).bit_length()


def _stacked(leaves: list[PairNumber], shape: tuple[int, ...], dtype: Any) -> Array:
    """The values of leaves, padded with zeros to a power of two of them."""
    arrays = [jnp.broadcast_to(leaf.array, shape).astype(dtype) for leaf in leaves]
    zeros = jnp.zeros(shape, dtype)
    return jnp.stack([*arrays, *[zeros] * (_power_of_two(len(leaves)) - len(leaves))])


def _kernel(
    theta_ref: Any,
    row_ref: Any,
    column_ref: Any,
    total_ref: Any,
    *,
    numbers: list[PairNumber],
    order: list[PairNumber],
    leaves: dict[int, list[PairNumber]],
    shape: _Shape,
    m: int,
    interpret: bool,
) -> None:
    """The sums of one block of rows over one part of the columns."""
    from jax.experimental import pallas as pl

    fixed = {leaf: theta_ref[i] for i, leaf in enumerate(leaves[THETA])}
    fixed |= {leaf: row_ref[i, :] for i, leaf in enumerate(leaves[ROW])}
    dtype = total_ref.dtype
    zeros = tuple(jnp.zeros(shape.rows, dtype) for _ in numbers)
    compute = partial(_values_of, order, numbers, shape.rows, dtype, interpret)

    def added(sums, j):
        columns = {leaf: column_ref[i, j] for i, leaf in enumerate(leaves[COLUMN])}
        return tuple(map(jnp.add, sums, compute(fixed | columns)))

    def steps(count, base, sums, unrolled):
        def step(i, sums):
            for k in range(unrolled):
                sums = added(sums, base + i * np.int32(unrolled) + np.int32(k))
            return sums

        return lax.fori_loop(np.int32(0), count, step, sums)

    # Kahan summation: y = x - c, t' = t + y, and c' = (t' - t) - y is the rounding error of t'.
    def compensated(totals, lost, sums):
        corrected = [x - c for x, c in zip(sums, lost)]
        larger = [t + y for t, y in zip(totals, corrected)]
        added = [(new - t) - y for new, t, y in zip(larger, totals, corrected)]
        # For an infinite sum the correction is zero instead of inf - inf.
        lost = [jnp.where(abs(new) < jnp.inf, c, 0) for new, c in zip(larger, added)]
        return tuple(larger), tuple(lost)

    def chunk(c, carry):
        (totals, lost) = carry
        base = first + c * np.int32(_CHUNK)
        sums = steps(np.int32(_CHUNK // unrolled), base, zeros, unrolled)
        return compensated(totals, lost, sums)

    unrolled = 1 if interpret else _UNROLLED
    first = pl.program_id(1) * np.int32(shape.columns)
    count = jnp.minimum(np.int32(shape.columns), np.int32(m) - first)
    chunks = lax.div(count, np.int32(_CHUNK))
    (totals, lost) = lax.fori_loop(np.int32(0), chunks, chunk, (zeros, zeros))
    rest = steps(lax.rem(count, np.int32(_CHUNK)), first + chunks * np.int32(_CHUNK), zeros, 1)
    (totals, _) = compensated(totals, lost, rest)
    for i, total in enumerate(totals):
        total_ref[i, :] = total


def _values_of(
    order: list[PairNumber],
    numbers: list[PairNumber],
    rows: int,
    dtype: Any,
    interpret: bool,
    values: dict[PairNumber, Array],
) -> list[Array]:
    """The numbers of a block of rows and one column, from the values of the leaves."""
    values = dict(values)

    def value_of(number):
        value = values[number]
        return jnp.broadcast_to(value, (rows,)) if jnp.ndim(value) == 0 else value

    for number in order:
        if number in values:
            continue
        if number.operation == "constant":
            constant = np.asarray(number.array)
            values[number] = jnp.asarray(constant, None if constant.dtype == bool else dtype)
            continue
        arguments = [value_of(argument) for argument in number.arguments]
        values[number] = _operation(number, interpret)(*arguments)
    return [value_of(number) for number in numbers]


def _operation(number: PairNumber, interpret: bool) -> Any:
    """The result of an operation of the graph."""
    if number.operation == "fma":
        return partial(_by_instruction, "fma.rn", lambda a, b, c: a * b + c, interpret)
    if number.operation == "exp2_of_negative":
        return partial(_of_float32, "ex2.approx.ftz", jnp.exp2, interpret)
    if number.operation == "sqrt":
        return partial(_of_float32, "sqrt.approx.ftz", jnp.sqrt, interpret)
    return number.function


def _of_float32(instruction: str, function: Callable, interpret: bool, a: Array) -> Array:
    """A GPU instruction if there is one, accurate to two units in the last place."""
    return (
        _by_instruction(instruction, function, interpret, a)
        if a.dtype == jnp.float32
        else function(a)
    )


def _by_instruction(
    instruction: str, function: Callable, interpret: bool, *arguments: Array
) -> Array:
    """One GPU instruction, for which Triton has no name or uses several instructions."""
    if interpret:
        return function(*arguments)
    from jax.experimental.pallas import triton

    (register, width) = ("f", "f32") if arguments[0].dtype == jnp.float32 else ("d", "f64")
    operands = ", ".join(f"${i}" for i in range(len(arguments) + 1))
    (result,) = triton.elementwise_inline_asm(
        f"{instruction}.{width} {operands};",
        args=list(arguments),
        constraints=",".join([f"={register}", *[register] * len(arguments)]),
        pack=1,
        result_shape_dtypes=[jax.ShapeDtypeStruct(arguments[0].shape, arguments[0].dtype)],
    )
    return result
