"""Sequential minimal optimisation (Fan, Chen & Lin 2005) in working sets (Joachims 1999).

A step changes two coefficients: the one that lowers the objective fastest as it rises, and the one
that together with it lowers a quadratic model most (Fan, Chen & Lin, JMLR 6, "WSS 2"). A step costs
a few passes over the points and two rows of K, and there are very many steps. They run on a working
set, so that its part of K stays in the cache: the points that gain most if their coefficients rise,
and those that lose least if they fall (Joachims, "Making large-scale SVM learning practical",
section 3). When the set is nearly optimal by itself, the residuals of all points are updated and a
new set is chosen. The pair that violates optimality most is always in it, so that the objective
falls strictly. Up to 1024 points, all are in the set.

In float64 the steps in a set that is smaller than all points are taken in float32 first, which
takes half as long: rows of K and vectors are half as large. The residuals of all points stay in
float64, and show whether such steps still help.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.batching import largest_of_batch
from kernax.core.base.boundary import cast
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import eps_of, tree_where, where, where_or
from kernax.core.base.parameters import check_count, check_share, check_steps
from kernax.supervised.machines.box_problem import (
    BoxProblem,
    bias_interval,
    counted_points,
    middle,
    one_sided_slopes,
    violation,
)
from kernax.supervised.machines.dual_solver import AbstractDualSolver
from kernax.supervised.machines.working_set import WorkingSet, WorkingState

_WHOLE = 1024  # up to so many points, all are in the working set
_MOST = 4096  # points in a working set


@renamed(tol="rtol")
class SMO(AbstractDualSolver):
    """Sequential minimal optimisation: the solver for one SVM on a CPU.

    Attributes:
        rtol: the violation of optimality at which to stop, in units of the targets: LIBSVM's `tol`.
        max_steps: the largest number of steps, each on a pair; default: a million plus a hundred
            for each point.
        working_set: how many points to solve for at a time; default: 40 % of them, but at least
            1024 (or all if there are fewer) and at most 4096.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> solver = kernax.solvers.SMO(rtol=1e-6)
        >>> solution = kernax.svm(kernax.RBF(0.3), X, y, C=10.0, solver=solver)
        >>> bool(solution.stats["relative_gap"] <= 1e-6)
        True
    """

    rtol: float | Float[Array, ""] = 1e-3
    max_steps: int | Int[Array, ""] | None = None
    working_set: int | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        check_share(self.rtol, "rtol")
        if self.max_steps is not None:
            check_steps(self.max_steps)
        if self.working_set is not None:
            check_count(self.working_set, "working_set", least=2)

    def solve(self, problem, beta, residual, atol):
        size = self._size(len(beta))
        most = 100 * len(beta) + 10**6 if self.max_steps is None else self.max_steps
        if size == len(beta):
            dense = problem.operator.stored()
            problem = eqx.tree_at(lambda problem: problem.operator, problem, dense)

        def go_on(now: _WorkingSetState) -> Array:
            return (violation(problem, now.beta, now.residual) > atol) & (now.steps < most)

        def sweep(now: _WorkingSetState) -> _WorkingSetState:
            # At most so many steps before the residuals of all points are updated.
            steps = jnp.minimum(8 * size + 1000, most - now.steps)
            if size == len(beta):
                return _swept(problem, now, atol / 2, steps)
            return _swept_in_part(problem, now, atol, steps, size)

        is_mixed = size < len(beta) and beta.dtype == jnp.float64
        first = _WorkingSetState(
            beta, residual, jnp.zeros((), jnp.int32), jnp.array(True) if is_mixed else None
        )
        end = lax.while_loop(go_on, sweep, first)
        return end.beta, end.steps

    def _size(self, n: int) -> int:
        """The size of working sets."""
        four_in_ten = -(-4 * n // 10)
        return min(n, self.working_set or min(max(_WHOLE, four_in_ten), _MOST))


class _WorkingSetState(eqx.Module):
    """Coefficients and residuals between two working sets, and the number of steps.

    `in_float32` says whether the next steps are taken in float32; it is None if none ever are.
    """

    beta: Float[Array, " n"]
    residual: Float[Array, " n"]
    steps: Int[Array, ""]
    in_float32: Bool[Array, ""] | None


def _swept(
    problem: BoxProblem, now: _WorkingSetState, atol: Array, most: Array
) -> _WorkingSetState:
    """Takes up to `most` steps with all points in the set, down to a violation of `atol`."""
    # Without a barrier XLA computes K in its unit before the loop, and keeps one more matrix.
    operator, _ = lax.optimization_barrier((problem.operator, now.beta))
    K = operator.as_matrix()
    part = WorkingSet.of(problem, K, slice(None), now.beta, now.residual)
    improved, steps = part.improved(atol, most, to_a_tenth=False)
    beta = improved.beta[: len(K)]
    residual = problem.residual(beta)
    return _WorkingSetState(beta, residual, now.steps + jnp.maximum(steps, 1), now.in_float32)


def _swept_in_part(
    problem: BoxProblem, now: _WorkingSetState, atol: Array, most: Array, size: int
) -> _WorkingSetState:
    """Takes up to `most` steps in the working set of the points that violate optimality most, down
    to a violation of `atol / 2` there.

    The set includes the pair that violates optimality most, so that the violation there is that of
    all points.
    """
    # Slopes of two groups compare about the biases of their groups. In float32 all slopes lose
    # fewer digits about the bias.
    centre = jnp.zeros_like(problem.scale)
    if problem.total is not None:
        centre = problem.of_points(middle(*bias_interval(problem, now.beta, now.residual)))
    left = now.residual - centre
    # The indices of the points that violate optimality most, by rank from both ends: a working set
    # needs points that rise and points that fall.
    up, down = one_sided_slopes(now.beta, left, problem.low, problem.high, problem.epsilon)
    _, indices = lax.top_k(-jnp.minimum(_ranks(-up), _ranks(down)), size)
    before = now.beta[indices]
    low, high = problem.low[indices], problem.high[indices]

    def improved(dtype: Any, goal: Array, most: Array) -> tuple[WorkingSet, WorkingState, Array]:
        K = problem.submatrix(indices).astype(dtype)
        part = cast(WorkingSet.of(problem, K, indices, now.beta, left), dtype)
        # The next set would lose the accuracy of a goal below a tenth of the violation.
        end, steps = part.improved(goal.astype(dtype), most, to_a_tenth=True)
        return part, jax.tree.map(lambda v: v[:size], end), steps

    def in_full_precision() -> tuple[WorkingState, Array]:
        _, end, steps = improved(before.dtype, atol / 2, most)
        return end, steps

    def with_change(beta: Array, steps: Array) -> _WorkingSetState:
        # The residuals of all points, from the columns of K in the set.
        change = beta - before
        residual = now.residual - problem.part_product(indices, change)
        everywhere = now.beta.at[indices].set(beta)
        return _WorkingSetState(everywhere, residual, now.steps + steps, now.in_float32)

    if now.in_float32 is None:
        end, steps = in_full_precision()
        return with_change(end.beta, jnp.maximum(steps, 1))

    # Slopes are differences of targets and f, and float32 has no digits below their rounding. A
    # member of a batch that is done needs no steps in either precision.
    violated = violation(problem, now.beta, now.residual)
    f = jnp.max(abs(problem.targets - now.residual), where=counted_points(problem), initial=0)
    goal = jnp.maximum(atol, 64 * eps_of(jnp.float32) * (problem.scale + f))
    is_coarse = now.in_float32 & (violated > goal) & (most > 0)

    def in_float32() -> tuple[WorkingState, Array]:
        part, end, steps = improved(jnp.float32, goal / 2, jnp.where(is_coarse, most, 0))
        exact = cast(end, before.dtype)
        # Coefficients that have not moved, or are at a bound, keep the digits that a cast loses.
        beta = exact.beta
        for rounded, digits in ((part.beta, before), (part.low, low), (part.high, high)):
            beta = where(end.beta == rounded[:size], digits, beta)
        beta = _with_totals(problem, now.beta, indices, beta)
        return WorkingState(where(is_coarse, beta, before), exact.up, exact.down), steps

    # A batch is computed in float32 until that helps none of its members. The others wait.
    in_one_precision = largest_of_batch(is_coarse.astype(jnp.int32))
    end, steps = lax.switch(in_one_precision, [in_full_precision, in_float32])
    waits = (in_one_precision == 1) & ~is_coarse
    moved = with_change(end.beta, jnp.where(waits, 0, jnp.maximum(steps, 1)))
    # The rounding errors of the slopes; one beyond a bound is infinite in both.
    left = (moved.residual - centre)[indices]
    up, down = one_sided_slopes(end.beta, left, low, high, problem.epsilon)
    slopes = jnp.stack([up, down])
    rounded = jnp.stack([end.up, end.down])
    error = jnp.max(abs(slopes - rounded), where=slopes != rounded, initial=0)
    helps = error <= violated / 10
    kept = dataclasses.replace(now, steps=moved.steps)
    after = tree_where(helps | ~is_coarse, moved, kept)
    return dataclasses.replace(after, in_float32=is_coarse & helps)


def _with_totals(
    problem: BoxProblem,
    before: Float[Array, " n"],
    indices: Int[Array, " m"],
    beta: Float[Array, " m"],
) -> Float[Array, " m"]:
    """Coefficients at some indices, changed so that those of each group sum to its total: the one
    that is furthest from its ends takes what rounding has lost, or is NaN without enough room.
    """
    if problem.total is None:
        return beta
    everywhere = before.at[indices].set(beta)
    lost = jnp.atleast_1d(problem.total - problem.sums(everywhere))
    rounding = len(before) * eps_of(beta) * jnp.sum(abs(everywhere))
    # Points beyond the working set do not move.
    ends = jnp.minimum(problem.high[indices] - beta, beta - problem.low[indices])
    room = jnp.zeros_like(before).at[indices].set(jnp.minimum(abs(beta), ends))
    for room_of_group, lost_of_group in zip(problem.in_groups(room, 0), lost):
        j = jnp.argmax(room_of_group)
        taken = jnp.clip(lost_of_group, -room_of_group[j], room_of_group[j])
        is_all = abs(lost_of_group - taken) <= rounding
        everywhere = everywhere.at[j].add(where_or(is_all, taken, jnp.nan))
    return everywhere[indices]


def _ranks(v: Float[Array, " n"]) -> Int[Array, " n"]:
    """The rank of each element in ascending order."""
    return jnp.zeros(v.shape, jnp.int32).at[jnp.argsort(v)].set(jnp.arange(len(v), dtype=jnp.int32))
