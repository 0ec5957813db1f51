"""How `kernax fit` treats tables of many rows: by options, or by the number of rows."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kernax.cli.job import Split, kernel_of
from kernax.cli.options import AUTO, RouteName
from kernax.cli.plan import Plan
from kernax.cli.resources import MATRICES, expected_cost, in_time, seconds_of_learning
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.structures import structure_of_many
from kernax.core.operators.memory import available_memory
from kernax.preparation.predictors import GP, LOGISTIC, RIDGE
from kernax.scale.recommendation import CENTRES, INDUCING, in_bytes, peak_memory
from kernax.selection.recipes.held_out_rows import first_of_each
from kernax.selection.recipes.stages import MOST_ROWS

# Learning the parameters of a Gaussian process of so many points takes a quarter of an hour and 5
# GiB in float64, and eight times as long for twice as many.
MOST_WHOLE = 10_000
FEW_ROWS = 3000  # to learn from, for models that cannot learn from all


@dataclasses.dataclass(frozen=True)
class Way:
    """The method, and why, in words; the number of centres, or of rows to use alone, None for
    all.
    """

    name: RouteName
    words: str | None = None
    centres: int = 0
    rows: int | None = None


def rows_and_way(
    plan: Plan,
    split: Callable[[int | None], Split],
    rows: int | None,
    kernel: str,
    asked: RouteName | None,
    centres: int | None,
) -> tuple[Split, Split, Way]:
    """The rows to fit, which may be fewer; those to learn the kernel from; and the method.

    Arguments:
        rows: the largest number of rows to learn from; None without the option.
    """
    parts = split(rows)
    way = way_for(plan, parts, kernel, asked, centres, rows)
    if way.rows is not None:
        parts = split(way.rows)
    if way.name != RouteName.CENTRES:
        return parts, parts, way
    # The kernel is learned from the first rows, in the proportion of classes.
    most = few_of(len(parts.y), plan)
    first = first_of_each(parts.y, most) if parts.classes else np.arange(most)
    few = dataclasses.replace(parts, X=points_at(parts.X, first), y=parts.y[first])
    return parts, few, way


def way_for(
    plan: Plan,
    parts: Split,
    kernel: str,
    asked: RouteName | None,
    centres: int | None,
    rows: int | None,
) -> Way:
    """The method for the training rows. A number of rows that the user gave is kept.

    Raises ValueError for centres with a model that does not support them.
    """
    wanted = RouteName.CENTRES if asked is None and centres is not None else asked
    why_none = _why_no_centres(plan, parts, kernel)
    if wanted == RouteName.CENTRES and why_none:
        option = "--route centres" if asked else f"--centres {centres}"
        raise ValueError(f"{option}: {why_none}")
    if centres is not None and wanted != RouteName.CENTRES:
        raise ValueError(f"--centres {centres} goes with --route centres, not with {asked}")
    n = len(parts.y)
    name = wanted
    if name is None:
        fits = n <= MOST_WHOLE and 8 * MATRICES * n**2 <= available_memory(jax.devices()[:1])
        if fits or _is_line(plan, parts, kernel):
            name = RouteName.WHOLE
        elif why_none:
            name = RouteName.ROWS
        else:
            name = RouteName.CENTRES
    if name == RouteName.CENTRES:
        return _over_centres(plan, parts, centres)
    if name == RouteName.ROWS and rows is None and n > FEW_ROWS:
        because = f": {why_none}" if why_none else ""
        words = (
            f"{FEW_ROWS} of {n} rows, drawn at random, are learned from{because}; --rows N learns "
            "from another number"
        )
        return Way(name, words, rows=FEW_ROWS)
    if name == RouteName.WHOLE and n > FEW_ROWS and _is_line(plan, parts, kernel):
        exactly = "one column and a kernel with a state-space model: fitted along the line, exactly"
        return Way(name, exactly)
    return Way(name)


def _is_line(plan: Plan, parts: Split, kernel: str) -> bool:
    """Whether rows are observations of a process along a line with a written kernel."""
    if kernel == AUTO or plan.model != GP or plan.is_latent:
        return False
    return is_along_line(kernel_of(parts, kernel), parts.X)


def is_along_line(kernel: AbstractKernel, X: PyTree) -> bool:
    """Whether `condition` by default treats these points as a line, in O(n)."""
    return structure_of_many(kernel, X) is not None


def _why_no_centres(plan: Plan, parts: Split, kernel: str) -> str | None:
    if kernel == AUTO:
        return "a search for a kernel takes the whole matrix of each"
    if parts.inputs.texts:
        return "kernels of text are not fitted over centres here"
    if plan.is_latent or plan.model not in (GP, RIDGE, LOGISTIC):
        name = "gp of classes or counts" if plan.is_latent else plan.model
        return f"{name} is not fitted over centres: gp and ridge of numbers and logistic are"
    if len(parts.classes) > 2:
        return f"{len(parts.classes)} classes are not fitted over centres, two are"
    return None


def _over_centres(plan: Plan, parts: Split, centres: int | None) -> Way:
    n = len(parts.y)
    route = INDUCING if plan.model == GP else CENTRES
    dtype = jnp.zeros(()).dtype
    # By default a thousand, but at most half of the points, and at most as many as fit into half of
    # the memory.
    number = centres or min(1000, n // 2)
    half = available_memory(jax.devices()[:1]) // 2
    while centres is None and number > 1 and peak_memory(route, n, number, dtype) > half:
        number //= 2
    number = min(number, n - 1)
    few = few_of(n, plan)
    words = (
        f"{n} rows: the kernel is learned from {few} of them, drawn at random, in about "
        f"{in_time(seconds_of_learning(plan.model, few))}, then all are fitted over {number} of "
        f"them as centres, in about {in_bytes(peak_memory(route, n, number, dtype))}; --centres M "
        "takes another number"
    )
    return Way(RouteName.CENTRES, words, number)


_OF_NUMBERS = 2000  # rows, of which the matrix is whole


def cost_in_words(plan: Plan, parts: Split, way: Way) -> str | None:
    """The method, or the cost of learning from all rows, if it takes long."""
    if way.words or plan.is_latent:
        return way.words
    return expected_cost(plan.model, len(parts.y))


def few_of(n: int, plan: Plan) -> int:
    """How many of n rows a kernel is learned from before all are fitted over centres."""
    return min(n, MOST_ROWS if plan.likelihood.of_classes else _OF_NUMBERS)
