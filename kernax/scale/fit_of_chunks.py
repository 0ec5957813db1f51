"""A fit over centres whose rows are read chunk by chunk."""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, PyTree

from kernax.core.bar import bar_of
from kernax.core.boundary import as_scalar, as_stack, cast, check_key, count
from kernax.core.expansion import KernelExpansion
from kernax.core.intervals import POSITIVE
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_targets_of
from kernax.core.losses import AbstractSmoothLoss, Squared
from kernax.core.memory import check_memory
from kernax.core.numerics import is_concrete
from kernax.core.parameters import check_count
from kernax.core.powers import times_power_of_two
from kernax.core.preparation import prepare_stacks
from kernax.core.solution import Solution
from kernax.core.weights import AbstractWeights
from kernax.scale.chunks import Chunks
from kernax.scale.preconditioner import LEAST_ROWS, ROWS_A_CENTRE, size_of_sample
from kernax.scale.problem import Centred, Plan, solution_of, unit_of_targets
from kernax.scale.rows import ArrayRows, rows_of_tile
from kernax.scale.streamed import Shown, StreamedRows, Survey, drawn, not_shown, survey


class Options(NamedTuple):
    """When to stop, and whether to show how far it is."""

    rtol: float | None
    max_steps: int
    progress: bool


def what_for_columns(loss: AbstractSmoothLoss) -> str | None:
    """What to do with several columns of targets; None for squares, which take them together."""
    return None if isinstance(loss, Squared) else "one fit for each column, or jax.vmap over them"


def falkon_of_chunks(
    kernel: AbstractKernel,
    chunks: Chunks,
    ridge: Any,
    centres: Any,
    loss: AbstractSmoothLoss,
    key: Any,
    options: Options,
) -> Solution[KernelExpansion]:
    """`falkon` of chunks."""
    if not is_concrete(kernel, ridge, centres, loss):
        raise ValueError(
            "chunks are read outside of jit and grad: kernel, ridge, centres and loss must be "
            "known numbers; for derivatives pass arrays X and y"
        )
    Z = _centres(chunks, centres, key)
    check_memory(Z, verb="falkon")
    keep = max(LEAST_ROWS, ROWS_A_CENTRE * count(Z))
    with _shown(options.progress) as show:
        found = survey(chunks, kernel, partial(_checked_targets, loss), keep, show)
        at = as_scalar(ridge, found.largest.dtype, "ridge", POSITIVE)
        return _surveyed(chunks, found, kernel, Z, loss, at, options, show)


def _surveyed(
    chunks: Chunks,
    found: Survey,
    kernel: AbstractKernel,
    Z: PyTree,
    loss: AbstractSmoothLoss,
    ridge: Array,
    options: Options,
    show: Shown,
) -> Solution[KernelExpansion]:
    """The fit, once all chunks were read."""
    dtype = ridge.dtype
    kernel, Z, _ = prepare_stacks(kernel, cast(Z, dtype))
    loss = cast(loss, dtype)
    plan = _plan(found, count(Z), loss, options)
    unit = unit_of_targets(loss, found.largest)
    X, y, weights = found.sample
    within = ArrayRows(kernel, Z, X, times_power_of_two(y, -unit), weights, tile=plan.tile)
    rows = StreamedRows(chunks, found, within, unit, partial(_checked_targets, loss), show)
    sample = None if plan.sample is None else within
    end = Centred.of(rows, within, sample, loss, ridge).minimum(y.shape[1], plan)
    stats = end.stats | {"points": jnp.asarray(found.n)}
    return solution_of((end.a, end.result, stats), kernel, Z, unit, dtype, found.outputs is None)


def _plan(found: Survey, m: int, loss: AbstractSmoothLoss, options: Options) -> Plan:
    """What is decided before the first sum."""
    quadratic = isinstance(loss, Squared)
    size = size_of_sample(found.n, m, quadratic, found.largest.dtype)
    return Plan(rows_of_tile(m), size, options.rtol, options.max_steps)


def _centres(chunks: Chunks, centres: Any, key: Any) -> PyTree:
    """A stack: the one given, or rows that are drawn."""
    if not isinstance(centres, int) or isinstance(centres, bool):
        return as_stack(centres, "centres")
    if key is None:
        raise ValueError(
            f"centres is a number, {centres}, and they are drawn: pass key=jax.random.key(0), or a "
            "stack of points"
        )
    check_key(key)
    return drawn(chunks, check_count(centres, "centres"), key)


def _checked_targets(
    loss: AbstractSmoothLoss, y: Any, n: int, dtype: Any, weights: AbstractWeights
) -> Array:
    """Targets of a chunk. Raises ValueError for several columns where there may be one."""
    signs = {"both_signs": False} if loss.targets == "signs" else {}
    columns = as_targets_of(loss, y, n, dtype, weights, **signs)
    instead = what_for_columns(loss)
    if instead is not None and columns.ndim != 1:
        raise ValueError(f"y must have shape ({n},), but has shape {columns.shape}: {instead}")
    return columns


@contextlib.contextmanager
def _shown(progress: bool) -> Iterator[Any]:
    """What is told of each chunk."""
    if not progress:
        yield not_shown
        return
    with bar_of("chunks", 1) as show:
        yield show
