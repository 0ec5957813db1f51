"""Which way `kernax fit` takes for tables of many rows, as asked for or by their number."""

import dataclasses
import enum
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kernax.cli.auto import AUTO
from kernax.cli.job import Split, kernel_of
from kernax.cli.plan import Plan
from kernax.cli.resources import MATRICES, expected_cost, in_time, seconds_of_learning
from kernax.core.base.boundary import count
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.structures import structure_of_many
from kernax.core.operators.memory import available_memory
from kernax.preparation.predictors import GP, LOGISTIC, RIDGE
from kernax.scale.recommend import CENTRES, INDUCING, held_by, in_bytes
from kernax.selection.recipes.held_out_rows import first_of_each
from kernax.selection.recipes.stages import MOST_ROWS

# Learning the parameters of a Gaussian process of so many points takes a quarter of an hour and 5
# GiB in float64, and eight times as long for twice as many.
MOST_WHOLE = 10_000
FEW_ROWS = 3000  # to learn from, where a model has no way to learn from all


class RouteName(enum.StrEnum):
    """The ways to fit many rows."""

    WHOLE = "whole"
    CENTRES = "centres"
    ROWS = "rows"


@dataclasses.dataclass(frozen=True)
class Way:
    """How rows are fitted, and why, in words; over how many centres, or to how many rows alone,
    None for all that are given.
    """

    name: RouteName
    words: tuple[str, ...] = ()
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
    """The rows to fit, fewer where that is the way; those to learn the kernel from; and the way.

    Arguments:
        rows: how many to learn from, at most; None where nobody asked.
    """
    parts = split(rows)
    way = way_for(plan, parts, kernel, asked, centres, rows)
    if way.rows is not None:
        parts = split(way.rows)
    return parts, _rows_to_learn_from(parts, plan, way), way


def _rows_to_learn_from(parts: Split, plan: Plan, way: Way) -> Split:
    """The rows that the kernel is learned from: all, or on the way over centres the first ones, in
    the proportion of classes.
    """
    if way.name != RouteName.CENTRES:
        return parts
    most = few_of(len(parts.y), plan)
    rows = first_of_each(parts.y, most) if parts.classes else np.arange(most)
    return dataclasses.replace(parts, X=points_at(parts.X, rows), y=parts.y[rows])


def way_for(
    plan: Plan,
    parts: Split,
    kernel: str,
    asked: RouteName | None,
    centres: int | None,
    rows: int | None,
) -> Way:
    """The way for the rows to learn from. A number of rows that was asked for is kept.

    Raises ValueError for centres asked of a model that has none.
    """
    wanted = RouteName.CENTRES if asked is None and centres is not None else asked
    why_none = _why_no_centres(plan, parts, kernel)
    if wanted == RouteName.CENTRES and why_none:
        option = "--route centres" if asked else f"--centres {centres}"
        raise ValueError(f"{option}: {why_none}")
    if centres is not None and wanted != RouteName.CENTRES:
        raise ValueError(f"--centres {centres} goes with --route centres, not with {asked}")
    name = wanted or _by_size(plan, parts, kernel, why_none)
    if name == RouteName.CENTRES:
        return _over_centres(plan, parts, kernel, centres)
    if name == RouteName.ROWS:
        return _some_rows(parts, why_none, rows)
    return Way(name, _words_of_line(plan, parts, kernel))


def _by_size(plan: Plan, parts: Split, kernel: str, why_none: str | None) -> RouteName:
    """The way that nobody asked for."""
    n = count(parts.X)
    fits = 8 * MATRICES * n**2 <= available_memory(jax.devices()[:1])
    if _is_line(plan, parts, kernel) or (n <= MOST_WHOLE and fits):
        return RouteName.WHOLE
    return RouteName.ROWS if why_none else RouteName.CENTRES


def _is_line(plan: Plan, parts: Split, kernel: str) -> bool:
    """Whether rows are observations of a process along a line, whose kernel is written."""
    if kernel == AUTO or plan.model != GP or plan.is_latent:
        return False
    return is_along_line(kernel_of(parts, kernel), parts.X)


def is_along_line(kernel: AbstractKernel, X: PyTree) -> bool:
    """Whether `condition` takes these points along a line of its own accord, in O(n)."""
    return structure_of_many(kernel, X) is not None


def _why_no_centres(plan: Plan, parts: Split, kernel: str) -> str | None:
    """Why a model cannot be fitted over centres; None where it can."""
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


def _some_rows(parts: Split, why_none: str | None, rows: int | None) -> Way:
    """The way to learn from some of the rows alone: from all where they are few, or asked for."""
    if rows is not None or len(parts.y) <= FEW_ROWS:
        return Way(RouteName.ROWS)
    because = f": {why_none}" if why_none else ""
    words = (
        f"{FEW_ROWS} of {len(parts.y)} rows, drawn at random, are learned from{because}; "
        "--rows N learns from another number",
    )
    return Way(RouteName.ROWS, words, rows=FEW_ROWS)


def _words_of_line(plan: Plan, parts: Split, kernel: str) -> tuple[str, ...]:
    """What is said of a line of many rows."""
    if len(parts.y) <= FEW_ROWS or not _is_line(plan, parts, kernel):
        return ()
    return ("one column and a kernel with a state-space model: fitted along the line, exactly",)


def _over_centres(plan: Plan, parts: Split, kernel: str, centres: int | None) -> Way:
    """The way over centres, with what it is expected to take."""
    n = len(parts.y)
    route = INDUCING if plan.model == GP else CENTRES
    dtype = jnp.zeros(()).dtype
    number = min(centres or _centres_for(n, route), n - 1)
    few = few_of(n, plan)
    words = (
        f"{n} rows: the kernel is learned from {few} of them, drawn at random, in about "
        f"{in_time(seconds_of_learning(plan.model, few))}, then all are fitted over {number} of "
        f"them as centres, in about {in_bytes(held_by(route, n, number, dtype))}; --centres M "
        "takes another number",
    )
    return Way(RouteName.CENTRES, words, number)


def _centres_for(n: int, route: str) -> int:
    """How many of n points to take as centres: a thousand, but no more than half of the points, nor
    than fit into half of the memory.
    """
    half = available_memory(jax.devices()[:1]) // 2
    dtype = jnp.zeros(()).dtype
    number = min(1000, n // 2)
    while number > 1 and held_by(route, n, number, dtype) > half:
        number //= 2
    return number


_OF_NUMBERS = 2000  # rows, of which the matrix is whole


def cost_in_words(plan: Plan, parts: Split, way: Way) -> tuple[str, ...]:
    """Which way is taken, or what learning from all rows will take, if it takes long."""
    if way.words:
        return way.words
    cost = None if plan.is_latent else expected_cost(plan.model, len(parts.y))
    return (cost,) if cost else ()


def few_of(n: int, plan: Plan) -> int:
    """How many of n rows a kernel is learned from before all are fitted over centres."""
    return min(n, MOST_ROWS if plan.likelihood.of_classes else _OF_NUMBERS)
