"""Points chosen one after the other, each where those before leave most of the variance."""

from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from kernax.core.base.boundary import as_scalar, dtype_of
from kernax.core.base.boundary import count as size_of
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import NONNEGATIVE
from kernax.core.base.numerics import eps_of, is_concrete, matmul, positive_or_one, stopped
from kernax.core.base.parameters import check_count
from kernax.core.base.solution import RESULTS, Solution, finish
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel, name_of
from kernax.core.kernel.preparation import diagonal_of, prepare
from kernax.core.operators.gram import gram_of_prepared
from kernax.core.operators.memory import check_memory


class _Chosen(eqx.Module):
    """Some points that were chosen, and what is left of the variance of all.

    Attributes:
        places: of the points chosen, in their order.
        rows: of the pivoted Cholesky factor, zero beyond those chosen.
        left: the conditional variances, zero where chosen.
        free: which points were not chosen.
        number: how many were chosen.
    """

    places: Int[Array, " count"]
    rows: Float[Array, "count n"]
    left: Float[Array, " n"]
    free: Bool[Array, " n"]
    number: Int[Array, ""]


def inducing_points(
    kernel: AbstractKernel, X: PyTree, count: int, *, rtol: ArrayLike | None = None
) -> Solution[PyTree]:
    """Points of X, each where most of the variance is left by those before: `argmax_i K_ii - Q_ii`,
    `Q = K_XZ K_ZZ^-1 K_ZX`.

    This is Cholesky's method with pivots, greedy conditional variance (Burt, Rasmussen & van der
    Wilk 2020, section 4.4.1). It stops at `count` points, or where the trace of what is left, `t =
    tr(K - Q)`, is at most `rtol tr(K)`. With t the approximate posterior of `sgpr` is no further
    from the exact one than `KL <= t (1 + |y|^2 / (noise + t)) / (2 noise)` (the same, lemma 3), so
    that an `rtol` well below `2 noise / tr(K)` needs no more points.

    Arguments:
        kernel: any kernel.
        X: a stack of n points of any kind.
        count: points at most, no more than n.
        rtol: the share of the variance that may be left. The default is sqrt(eps) in float64 and 10
            eps in float32, beyond which `k(Z, Z)` would be singular to working precision.

    Returns:
        A `Solution` whose `value` is a stack of at most `count` points; differentiable in X, as
        copies of its points. Under a transformation, where their number cannot depend on values,
        there are always `count`: after the stop those with most of the variance left. Stats:
        `places` of the points in X, their `number` up to the stop, and the `trace` left by these,
        relative to tr(K). It takes O(n count^2) operations and O(n count) memory.

    Raises:
        ValueError: bad points or numbers.
        NonFiniteError: the kernel is not finite on these points.
        MemoryBudgetError: n x count numbers do not fit.
    """
    kernel, X = prepare(kernel, X)
    count = _checked_count(count, size_of(X))
    dtype = dtype_of(X)
    rtol = _least_share(dtype) if rtol is None else rtol
    tolerance = as_scalar(rtol, dtype, "rtol", NONNEGATIVE)
    arguments = *stopped((kernel, X)), tolerance, count
    first = lambda: eqx.filter_eval_shape(_greedy, *arguments)
    check_memory(X, points_at(X, slice(count)), verb="inducing_points", first=first)
    solution = _greedy(*arguments)
    hint = f"inducing_points with {name_of(kernel)}: rescaled inputs may help."
    solution = finish(solution, True, hint)
    places = solution.value
    if is_concrete(places):
        places = places[: int(solution.stats["number"])]
    return Solution(points_at(X, places), solution.result, solution.stats | {"places": places})


def _checked_count(count: Any, n: int) -> int:
    """How many points are wanted. Raises ValueError unless there are as many."""
    count = check_count(count, "count")
    if count > n:
        raise ValueError(f"count must be at most the number of points, {n}, but is {count}")
    return count


def _least_share(dtype: Any) -> float:
    """The share of the variance below which what is left is mostly rounding."""
    return eps_of(dtype) ** 0.5 if dtype == jnp.float64 else 10 * eps_of(dtype)


@compiled
def _greedy(kernel, X, tolerance, count):
    """The places of the points chosen, and after them those with most of the variance left."""
    start = _none_chosen(kernel, X, count)
    whole = jnp.sum(start.left)

    def go_on(now: _Chosen) -> Bool[Array, ""]:
        more = jnp.sum(now.left) > tolerance * whole
        return (now.number < count) & (more | (now.number == 0))

    end = lax.while_loop(go_on, partial(_one_more, kernel, X), start)
    left = jnp.sum(end.left)
    # NaN anywhere makes both so.
    result = RESULTS.where(jnp.isfinite(left + whole), RESULTS.successful, RESULTS.nonfinite)
    stats = {"number": end.number, "trace": left / positive_or_one(whole)}
    return Solution(_filled(end), result, stats)


def _none_chosen(kernel: AbstractKernel, X: PyTree, count: int) -> _Chosen:
    """Before the first point."""
    variances = diagonal_of(kernel, X)
    return _Chosen(
        places=jnp.zeros(count, jnp.int32),
        rows=jnp.zeros_like(variances, shape=(count, len(variances))),
        left=variances,
        free=jnp.ones(len(variances), bool),
        number=jnp.zeros((), jnp.int32),
    )


def _filled(end: _Chosen) -> Int[Array, " count"]:
    """The places chosen, and after them those of other points, by the variance that is left."""
    count = len(end.places)
    rest = lax.top_k(jnp.where(end.free, end.left, -jnp.inf), count)[1]
    order = jnp.arange(count, dtype=jnp.int32)
    return jnp.where(order < end.number, end.places, rest[order - end.number])


def _one_more(kernel: AbstractKernel, X: PyTree, now: _Chosen) -> _Chosen:
    """The choice with one more point, the one with most of the variance left."""
    place = jnp.argmax(jnp.where(now.free, now.left, -jnp.inf)).astype(jnp.int32)
    row = _next_row(kernel, X, now, place)
    # Rounding may leave less than nothing, and of the point itself something.
    left = jnp.maximum(now.left - row**2, 0)
    return _Chosen(
        places=now.places.at[now.number].set(place),
        rows=now.rows.at[now.number].set(row),
        left=left.at[place].set(0),
        free=now.free.at[place].set(False),
        number=now.number + 1,
    )


def _next_row(
    kernel: AbstractKernel, X: PyTree, now: _Chosen, place: Int[Array, ""]
) -> Float[Array, " n"]:
    """The row of the pivoted factor that belongs to the point at a place."""
    row = gram_of_prepared(kernel, points_at(X, place[None]), X)[0]
    row = row - matmul(now.rows[:, place], now.rows)
    return row / jnp.sqrt(positive_or_one(now.left[place]))
