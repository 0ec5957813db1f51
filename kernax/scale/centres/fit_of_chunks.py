"""A fit over centres that reads the rows chunk by chunk."""

import contextlib
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from kernax.core.base.boundary import as_scalar, as_stack, cast, count, dtype_of
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import is_concrete
from kernax.core.base.printing import bar_of
from kernax.core.base.solution import Solution
from kernax.core.base.weights import AbstractWeights, UnitWeights
from kernax.core.checkpoint.checkpoint import Checkpoint
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.linear import LinearFunction
from kernax.core.linalg.centre_factor import wide
from kernax.core.losses.loss_functions import AbstractSmoothLoss, Squared, as_targets_of
from kernax.core.operators.memory import check_memory
from kernax.scale.centres.choice import number_of_centres, warn_of_many
from kernax.scale.centres.kept_minimum import KeptFit, facts_of_fit
from kernax.scale.centres.loss_in_units import LossInUnits
from kernax.scale.centres.preconditioner import LEAST_ROWS, MOST_ROWS_A_CENTRE
from kernax.scale.centres.problem import FitPlan, RiskOverCentres, solution_of
from kernax.scale.centres.row_sums import ArrayRows
from kernax.scale.centres.span import FALKON, AbstractSpan, OfCentres, OfFeatures
from kernax.scale.centres.streamed import StreamedRows, drawn, first_points, not_shown, survey
from kernax.scale.data.chunks import Chunks


def falkon_of_chunks(
    kernel: AbstractKernel,
    chunks: Chunks,
    ridge: Any,
    centres: Any,
    loss: AbstractSmoothLoss,
    key: Any,
    plan_of: Callable[[int, int, Any], FitPlan],
    progress: bool,
    checkpoint: Checkpoint | None,
) -> Solution[KernelExpansion | LinearFunction]:
    """`falkon` for chunks; the plan is for n points, m centres and a dtype."""
    kernel = as_kernel(kernel)
    if not is_concrete(kernel, ridge, centres, loss):
        raise ValueError(
            "chunks are read outside of jit, grad and vmap: kernel, ridge, centres and loss must "
            "hold known numbers; for derivatives pass arrays as X and y"
        )
    as_scalar(ridge, dtype_of(kernel), "ridge", POSITIVE)  # before anything is read

    def check(y: Any, n: int, dtype: Any, weights: AbstractWeights) -> Array:
        # The targets of a chunk, in several columns for squares alone.
        signs = {"both_signs": False} if loss.targets == "signs" else {}
        columns = as_targets_of(loss, y, n, dtype, weights, **signs)
        if columns.ndim != 1 and not isinstance(loss, Squared):
            raise ValueError(
                f"y must have shape ({n},), but has shape {columns.shape}: make one fit for each "
                "column"
            )
        return columns

    span = _span(chunks, kernel, check, centres, key)
    check_memory(jnp.empty(span.size), footprint=FALKON, dtype=wide(dtype_of(kernel)))
    with bar_of("chunks", 1) if progress else contextlib.nullcontext(not_shown) as show:
        # A first pass counts the rows and draws a sample that stands for all of them.
        m = span.size
        found = survey(chunks, span.kernel, check, max(LEAST_ROWS, MOST_ROWS_A_CENTRE * m), show)
        warn_of_many(m, found.n)
        ends = jnp.stack([found.least, found.largest])
        if loss.targets == "signs":  # a single class raises ValueError
            as_targets_of(loss, ends, 2, ends.dtype, UnitWeights(2, ends.dtype))
        dtype = found.largest.dtype
        plan = plan_of(found.n, m, dtype)
        sample = found.sample_of(plan.sample)
        within = ArrayRows(span.prepared(dtype), *sample, tile=plan.tile, bias=plan.bias)
        rows = StreamedRows(chunks, found, within, check, show)
        # The minimum of the risk over all rows, with the Hessian of the sample if there is one.
        ridge = as_scalar(ridge, dtype, "ridge", POSITIVE)
        in_units = LossInUnits.of(cast(loss, dtype), ends)
        of_hessian = None if plan.sample is None else within
        risk = RiskOverCentres.of(rows, within, of_hessian, in_units, ridge)
        kept = None
        if checkpoint is not None:
            facts = facts_of_fit(within.span, in_units.loss, ridge, found.n, plan)
            kept = KeptFit(checkpoint, facts)
        end = risk.minimum(found.columns, plan, kept)
    of_end = end.a, end.result, end.stats | {"points": jnp.asarray(found.n)}
    return solution_of(of_end, within.span, in_units, dtype, plan, one_column=found.outputs is None)


def _span(
    chunks: Chunks, kernel: AbstractKernel, check: Any, centres: Any, key: Any
) -> AbstractSpan:
    """The functions to sum: the kernel at centres, given or drawn, or its features."""
    if centres is None:
        return OfFeatures.of(kernel, first_points(chunks, kernel, check))
    number = number_of_centres(centres, key)
    if number is not None:
        Z = drawn(chunks, kernel, check, number, key)
        warn_of_many(number, count(Z))  # if there are fewer points, all are drawn
        return OfCentres(kernel, Z)
    Z = as_stack(centres, "centres")
    kernel.check_points(Z)
    return OfCentres(kernel, Z)
