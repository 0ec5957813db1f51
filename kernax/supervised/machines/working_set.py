"""Steps of sequential minimal optimisation on the points of one working set.

A step changes two coefficients: the one that lowers the objective fastest as it rises, and the one
that together with it lowers a quadratic model most (Fan, Chen & Lin, JMLR 6, 2005, "WSS 2").
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import eps_of, sums_and_maxima, tree_where, where, where_or
from kernax.supervised.machines.box_problem import BoxProblem, one_sided_slopes

_CHECK_EVERY = 16  # steps between two checks of the violation


class WorkingState(eqx.Module):
    """Coefficients and one-sided slopes of all points of a working set, or of one of them.

    Attributes:
        up: how fast the objective falls as a coefficient rises; -inf at its upper bound.
        down: how fast it rises as the coefficient falls; +inf at its lower bound.
    """

    beta: Float[Array, "*m"]
    up: Float[Array, "*m"]
    down: Float[Array, "*m"]


class _Run(eqx.Module):
    """The state of a working set, its violation, and the steps taken in it."""

    now: WorkingState
    violation: Float[Array, ""]
    steps: Int[Array, ""]


class _Padding(NamedTuple):
    """How many entries are added to arrays of a working set, and whether one of them belongs to a
    phantom: a point with a row of zeros, which balances the sum where there is no bias.
    """

    added: int
    phantom: bool

    @staticmethod
    def of(points: int, *, phantom: bool) -> "_Padding":
        """The padding up to a multiple of the lanes."""
        size = points + phantom
        return _Padding(phantom + -size % _lanes(size), phantom)

    def zeros(self, v: Array) -> Array:
        """An array with zeros added to each axis."""
        return jnp.pad(v, ((0, self.added),) * v.ndim)

    def bounds(self, v: Float[Array, " k"], of_phantom: float) -> Float[Array, " m"]:
        """Bounds with zeros added, and the phantom's bound."""
        v = self.zeros(v)
        return v.at[-1].set(of_phantom) if self.phantom else v


class WorkingSet(eqx.Module):
    """The programme on a working set: all other points are fixed, and points that cannot move pad
    the arrays.

    The matrix has -inf on its diagonal, which means an infinite curvature: a point must not be
    paired with itself, although its two slopes may differ by rounding. Without a constraint on the
    sum, a phantom point with a zero row of K and an infinite box balances every change of the
    others: a single coefficient then moves against it, by the same algorithm.
    """

    K: Float[Array, "m m"]
    diagonal: Float[Array, " m"]
    index: Int[Array, " m"]
    beta: Float[Array, " m"]
    residual: Float[Array, " m"]
    low: Float[Array, " m"]
    high: Float[Array, " m"]
    epsilon: Float[Array, " m"]
    second: Bool[Array, " m"] | None

    @staticmethod
    def of(
        problem: BoxProblem,
        K: Float[Array, "k k"],
        indices: Int[Array, " k"] | slice,
        beta: Array,
        residual: Array,
    ) -> "WorkingSet":
        """The programme on the points at `indices`, whose matrix is K."""
        padding = _Padding.of(len(K), phantom=problem.total is None)
        index = jnp.arange(len(K) + padding.added, dtype=jnp.int32)
        # K with -inf on its diagonal.
        without_diagonal = where_or(index[:, None] != index[None, :], padding.zeros(K), -jnp.inf)
        return WorkingSet(
            K=without_diagonal,
            diagonal=padding.zeros(problem.diagonal()[indices]),
            index=index,
            beta=padding.zeros(beta[indices]),
            residual=padding.zeros(residual[indices]),
            low=padding.bounds(problem.low[indices], -jnp.inf),
            high=padding.bounds(problem.high[indices], jnp.inf),
            epsilon=padding.zeros(jnp.broadcast_to(problem.epsilon, K.shape[:1])),
            second=None if problem.second is None else padding.zeros(problem.second[indices]),
        )

    def improved(
        self, tol: Float[Array, ""], most: Int[Array, ""], *, to_a_tenth: bool
    ) -> tuple[WorkingState, Int[Array, ""]]:
        """A state with a violation within the set of at most `tol`, or if `to_a_tenth` a tenth of
        what it is, and the number of steps.

        The violation must be above `tol`, and `most` positive.
        """
        variance = jnp.max(self.diagonal, where=self.low != self.high, initial=0)
        floor = eps_of(self.K) * variance
        up, down = one_sided_slopes(self.beta, self.residual, self.low, self.high, self.epsilon)
        start = WorkingState(self.beta, up, down)
        goal = jnp.maximum(tol, self._violation(start) / 10) if to_a_tenth else tol

        def go_on(run: _Run) -> Array:
            return (run.violation > goal) & (run.steps < most)

        def several_steps(run: _Run) -> _Run:
            steps = jnp.minimum(_CHECK_EVERY, most - run.steps)

            # Steps beyond the last one change nothing. A number of steps that differs between the
            # members of a batch would cost one more selection of all arrays in each step.
            def step(k: Array, now: WorkingState) -> WorkingState:
                return self._step(now, floor, k < steps)

            now = lax.fori_loop(0, _CHECK_EVERY, step, run.now)
            return _Run(now, self._violation(now), run.steps + steps)

        unknown = jnp.full_like(tol, jnp.inf)
        end = lax.while_loop(go_on, several_steps, _Run(start, unknown, jnp.zeros((), jnp.int32)))
        return end.now, end.steps

    def _violation(self, now: WorkingState) -> Float[Array, ""]:
        """How far the pair that violates optimality most violates it."""
        if self.second is None:
            _, (top, minus_bottom) = sums_and_maxima([], [now.up, -now.down])
            return top + minus_bottom
        slopes = [
            jnp.where(is_member, slope, -jnp.inf)
            for is_member in (~self.second, self.second)
            for slope in (now.up, -now.down)
        ]
        _, (top_1, minus_bottom_1, top_2, minus_bottom_2) = sums_and_maxima([], slopes)
        return jnp.maximum(top_1 + minus_bottom_1, top_2 + minus_bottom_2)

    def _step(
        self, now: WorkingState, floor: Float[Array, ""], moves: Bool[Array, ""]
    ) -> WorkingState:
        """Moves one pair: i rises and j falls by the same amount, which keeps the sum. Nothing
        changes unless it `moves`.

        Scalars are read one by one, and vectors only where all entries are needed, so that XLA
        copies no vector. `floor` replaces smaller curvatures, which are rounding errors.
        """
        pair = self._violating_pair(now, floor)
        moves = moves & pair.violated
        point_i = pair.point_i
        point_j = pair.point_j
        # A step t along e_i - e_j lowers the objective by `b_ij t - a_ij t^2 / 2`; without bounds
        # the best one is `b_ij / a_ij`.
        diagonals = point_i.diagonal + point_j.diagonal
        K_ij = _entry(pair.K_i, pair.j)
        a_ij = jnp.maximum(diagonals - 2 * K_ij, floor)
        b_ij = point_i.now.up - point_j.now.down
        best = b_ij / a_ij
        # It ends at a bound or at zero, where |b| has a kink. Nothing moves if the pair does not
        # violate optimality.
        end_i = point_i.end_of_rise
        end_j = point_j.end_of_fall
        room_i = end_i - point_i.now.beta
        room_j = point_j.now.beta - end_j
        within = jnp.minimum(best, jnp.minimum(room_i, room_j))
        step = where_or(moves, within, 0.0)
        # A coefficient that reaches its end is set to it exactly.
        beta_i = where(step == room_i, end_i, point_i.now.beta + step)
        beta_j = where(step == room_j, end_j, point_j.now.beta - step)
        # The residual targets - K b falls by step (K_ii - K_ij) at i and by step (K_ij - K_jj) at
        # j. The slopes of both are computed from it, because one is infinite at a bound, and both
        # jump where a coefficient leaves zero.
        change_i = step * (point_i.diagonal - _entry(pair.K_j, pair.i))
        change_j = step * (K_ij - point_j.diagonal)
        moved_i = point_i.moved(beta_i, point_i.residual_from_up - change_i)
        moved_j = point_j.moved(beta_j, point_j.residual_from_down - change_j)
        of_i, of_j = tree_where(moves, (moved_i, moved_j), (point_i.now, point_j.now))
        # The residuals of all others, and so their slopes, fall by step (K_i - K_j). The -inf on
        # the diagonal may make this NaN at i and j, which are replaced below.
        change = step * (pair.K_i - pair.K_j)
        others = WorkingState(now.beta, now.up - change, now.down - change)
        at_i = self.index == pair.i
        at_j = self.index == pair.j
        return tree_where(at_i, of_i, tree_where(at_j, of_j, others))

    def _violating_pair(self, now: WorkingState, floor: Float[Array, ""]) -> "_Pair":
        """The points i and j that "WSS 2" of Fan, Chen & Lin (2005) selects.

        With their `b_it = up_i - down_t` and `a_it = K_ii + K_tt - 2 K_it`, a step of i and t alone
        lowers the objective by at most `b_it^2 / (2 a_it)` (theorem 3). Both belong to one group.
        """
        if self.second is not None:
            return self._pair_of_a_group(now, floor)
        # 1. i is the coefficient whose rise lowers the objective fastest.
        i, up_i = _argmax(now.up)
        K_i = _entry(self.K, i)
        # 2. j is the one that lowers it most together with i, among those with b_ij > 0.
        b = up_i - now.down
        a = jnp.maximum(_entry(self.diagonal, i) + self.diagonal - 2 * K_i, floor)
        j, decrease = _argmax(where_or(b > 0, b * b / a, -jnp.inf))

        point_i = self._member(i, now, up_i)
        point_j = self._member(j, now, _entry(now.up, j))
        return _Pair(i, j, decrease > 0, K_i, _entry(self.K, j), point_i, point_j)

    def _pair_of_a_group(self, now: WorkingState, floor: Float[Array, ""]) -> "_Pair":
        """The same for two groups, each with its own i (Chang & Lin 2001)."""
        second = self.second
        assert second is not None
        i_1, up_1 = _argmax(jnp.where(second, -jnp.inf, now.up))
        i_2, up_2 = _argmax(jnp.where(second, now.up, -jnp.inf))
        K_1, K_2 = _entry(self.K, i_1), _entry(self.K, i_2)
        # For each t the i of its group.
        b = jnp.where(second, up_2, up_1) - now.down
        curvature_1 = _entry(self.diagonal, i_1) + self.diagonal - 2 * K_1
        curvature_2 = _entry(self.diagonal, i_2) + self.diagonal - 2 * K_2
        a = jnp.maximum(jnp.where(second, curvature_2, curvature_1), floor)
        j, decrease = _argmax(where_or(b > 0, b * b / a, -jnp.inf))
        i, up_i, K_i = tree_where(_entry(second, j), (i_2, up_2, K_2), (i_1, up_1, K_1))
        point_i = self._member(i, now, up_i)
        point_j = self._member(j, now, _entry(now.up, j))
        return _Pair(i, j, decrease > 0, K_i, _entry(self.K, j), point_i, point_j)

    def _member(self, i: Int[Array, ""], now: WorkingState, up: Float[Array, ""]) -> "_Member":
        """Point i, given its slope up: reading it again made a step a tenth slower."""
        return _Member(
            now=WorkingState(_entry(now.beta, i), up, _entry(now.down, i)),
            low=_entry(self.low, i),
            high=_entry(self.high, i),
            epsilon=_entry(self.epsilon, i),
            diagonal=_entry(self.diagonal, i),
        )


class _Member(eqx.Module):
    """One of the two points of a step; every field is a scalar."""

    now: WorkingState
    low: Float[Array, ""]
    high: Float[Array, ""]
    epsilon: Float[Array, ""]
    diagonal: Float[Array, ""]

    def moved(self, beta: Float[Array, ""], residual: Float[Array, ""]) -> WorkingState:
        """The state of the point after its coefficient and its residual have changed."""
        up, down = one_sided_slopes(beta, residual, self.low, self.high, self.epsilon)
        return WorkingState(beta, up, down)

    @property
    def end_of_rise(self) -> Float[Array, ""]:
        """How far a coefficient may rise in one step: from below zero to zero, the kink of |b|."""
        return where_or(~(self.now.beta < 0), self.high, 0.0)

    @property
    def end_of_fall(self) -> Float[Array, ""]:
        """How far a coefficient may fall in one step: from above zero to zero, the kink of |b|."""
        return where_or(~(self.now.beta > 0), self.low, 0.0)

    @property
    def residual_from_up(self) -> Float[Array, ""]:
        """The residual of a point that may rise: its slope up is finite."""
        return self.now.up + where(self.now.beta >= 0, self.epsilon, -self.epsilon)

    @property
    def residual_from_down(self) -> Float[Array, ""]:
        """The residual of a point that may fall: its slope down is finite."""
        return self.now.down + where(self.now.beta > 0, self.epsilon, -self.epsilon)


class _Pair(eqx.Module):
    """Point i, where the coefficient is to rise, and point j, where it is to fall.

    If the two do not violate optimality, no pair does.
    """

    i: Int[Array, ""]
    j: Int[Array, ""]
    violated: Bool[Array, ""]
    K_i: Float[Array, " m"]
    K_j: Float[Array, " m"]
    point_i: _Member
    point_j: _Member


def _entry(v: Array, i: Int[Array, ""]) -> Array:
    """`v[i]` for an index in the range, without the operations that wrap negative indices."""
    start = (i, *[np.zeros((), i.dtype)] * (v.ndim - 1))
    row = lax.dynamic_slice(v, start, (1, *v.shape[1:]), allow_negative_indices=False)
    return lax.squeeze(row, (0,))


def _lanes(m: int) -> int:
    """The number of lanes of `_argmax`; vectors are padded to a multiple of it.

    Fewer would vectorise as well, but leave more rows to search.
    """
    return 8 if m <= 512 else 64


def _argmax(v: Float[Array, " m"]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """The index of the largest entry, and the entry.

    XLA's argmax is scalar on a CPU; the maxima of several lanes are computed with vectors.
    """
    lanes = _lanes(len(v))
    table = v.reshape(-1, lanes)
    tops = jnp.max(table, 0)
    lane = jnp.argmax(tops).astype(jnp.int32)
    row = jnp.argmax(table[:, lane]).astype(jnp.int32)
    return row * lanes + lane, _entry(tops, lane)
