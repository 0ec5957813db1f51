"""Sequential minimal optimisation: the working sets of Fan, Chen & Lin (2005), inside the working sets of Joachims (1999).

A step changes two coefficients: the one whose rise gains most, and the one that together with it lowers a quadratic model
most (Fan, Chen & Lin, JMLR 6, "WSS 2"). It costs a few passes over the points and two rows of K, and there are very many of
them; so they run on a working set whose part of K stays in the cache: those whose rise gains most, and those whose drop
costs least (Joachims, "Making large-scale SVM learning practical", section 3). When the set is nearly optimal by itself the
residuals of all points are brought up to date, and a new set is chosen. The two that violate most are always in it, so the
objective falls strictly. Of up to 1024 points all are in the set, and nothing is chosen.
"""

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.parameters import check_count
from kernax.core.sharding import while_loop
from kernax.supervised.dual import AbstractDualSolver, BoxProblem, ScaledOperator, bias_interval, check_tolerance, slopes

_CHECK_EVERY = 16  # steps between two looks at the violation
_WHOLE, _MOST = 1024, 4096  # up to so many points, all are in the working set; it never holds more than that


class SMO(AbstractDualSolver):
    """The solver for one machine on a CPU.

    Attributes:
        tol: the violation of optimality at which to stop, in units of the targets: LIBSVM's `tol`.
        max_steps: pairs changed, at most; default a hundred for each point and a million.
        working_set: how many points to solve for at a time; default all of them up to 1024, then four in ten, but
            no more than 4096.
    """

    tol: float = eqx.field(default=1e-3, static=True)
    max_steps: int | None = eqx.field(default=None, static=True)
    working_set: int | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        check_tolerance(self.tol, self.max_steps)
        if self.working_set is not None:
            check_count(self.working_set, "working_set", least=2)

    def solve(self, problem, beta, residual, tol):
        n = len(beta)
        size = min(n, self.working_set or min(max(_WHOLE, -(-4 * n // 10)), _MOST))
        most = 100 * n + 10**6 if self.max_steps is None else self.max_steps

        if size == n:
            problem = eqx.tree_at(lambda problem: problem.operator, problem, _held(problem.operator))

        def outer(carry):
            beta, residual, top, bottom, steps = carry
            some = jnp.minimum(8 * size + 1000, most - steps)
            if size == n:
                beta, residual, more = _on_all_points(problem, beta, residual, tol / 2, some)
            else:
                goal = jnp.maximum(tol / 2, (top - bottom) / 10)  # what is finer would be lost with the next set
                beta, residual, more = _on_a_working_set(problem, beta, residual, goal, some, size)
            return beta, residual, *bias_interval(problem, beta, residual), steps + jnp.maximum(more, 1)

        def violated(carry):
            _, _, top, bottom, steps = carry
            return (top - bottom > tol) & (steps < most)

        start = (beta, residual, *bias_interval(problem, beta, residual), jnp.zeros((), jnp.int32))
        beta, _, _, _, steps = while_loop(violated, outer, start)
        return beta, steps


def _held(operator: lx.AbstractLinearOperator) -> lx.AbstractLinearOperator:
    if isinstance(operator, ScaledOperator):  # not the product: with K itself that would be one matrix more
        return ScaledOperator(_held(operator.operator), operator.gain)
    return lx.MatrixLinearOperator(operator.as_matrix(), lx.positive_semidefinite_tag)


def _on_all_points(problem: BoxProblem, beta: Array, residual: Array, goal: Array, most: Array) -> tuple[Array, Array, Array]:
    part = _Part.of(problem, problem.operator.as_matrix(), jnp.arange(len(beta)), beta, residual)
    changed, steps = part.improved(goal, most)
    beta = changed[: len(beta)]
    return beta, problem.residual(beta), steps


def _on_a_working_set(
    problem: BoxProblem, beta: Array, residual: Array, goal: Array, most: Array, size: int
) -> tuple[Array, Array, Array]:
    rise, drop = slopes(beta, residual, problem.low, problem.high, problem.epsilon)
    _, places = lax.top_k(-jnp.minimum(_ranks(-rise), _ranks(drop)), size)
    part = _Part.of(problem, problem.submatrix(places), places, beta, residual)
    changed, steps = part.improved(goal, most)
    change = changed[:size] - beta[places]
    return beta.at[places].set(changed[:size]), residual - problem.part_product(places, change), steps


class _Part(eqx.Module):
    """The programme on a working set, everything else held, padded with points that cannot move.

    The matrix has -inf on its diagonal, which is an infinite curvature: the rise and the drop of one point may differ by a
    rounding, and it must not be paired with itself. Without a sum to keep, a phantom whose row of K is zero and whose box is
    infinite takes up whatever the others change: single coefficients then move against it, and no second algorithm is needed.
    """

    K: Float[Array, "m m"]
    diagonal: Float[Array, " m"]
    index: Int[Array, " m"]
    beta: Float[Array, " m"]
    residual: Float[Array, " m"]
    low: Float[Array, " m"]
    high: Float[Array, " m"]
    epsilon: Float[Array, " m"]

    @staticmethod
    def of(problem: BoxProblem, K: Float[Array, "k k"], places: Int[Array, " k"], beta: Array, residual: Array) -> "_Part":
        phantom = problem.total is None
        extra = phantom + -(len(K) + phantom) % _lanes(len(K) + phantom)
        pad = lambda v: jnp.pad(v, (0, extra))
        unbound = lambda v, bound: pad(v).at[-1].set(bound) if phantom else pad(v)
        index = jnp.arange(len(K) + extra, dtype=jnp.int32)
        return _Part(
            jnp.where(index[:, None] == index[None, :], -jnp.inf, jnp.pad(K, ((0, extra), (0, extra)))),
            pad(problem.diagonal()[places]),
            index,
            pad(beta[places]),
            pad(residual[places]),
            unbound(problem.low[places], -jnp.inf),
            unbound(problem.high[places], jnp.inf),
            pad(jnp.broadcast_to(problem.epsilon, places.shape)),
        )

    def improved(self, tol: Float[Array, ""], most: Int[Array, ""]) -> tuple[Float[Array, " m"], Int[Array, ""]]:
        """Coefficients whose violation within the set is at most `tol`, and the steps that it took."""

        def several(carry):
            state, _, steps = carry
            state = lax.fori_loop(0, _CHECK_EVERY, lambda _, state: self._step(state[0], state[1], state[2], floor), state)
            return state, jnp.max(state[1]) - jnp.min(state[2]), steps + _CHECK_EVERY

        floor = float(jnp.finfo(self.K.dtype).eps) * jnp.max(self.diagonal)
        state = (self.beta, *slopes(self.beta, self.residual, self.low, self.high, self.epsilon))
        start = state, jnp.max(state[1]) - jnp.min(state[2]), jnp.zeros((), jnp.int32)
        state, _, steps = while_loop(lambda carry: (carry[1] > tol) & (carry[2] < most), several, start)
        return state[0], steps

    def _step(self, beta, rise, drop, floor):
        """One pair: i rises and j drops by the same amount, which keeps the sum.

        Scalars are read one by one, and vectors only where all of them is needed: XLA then copies none.
        """
        i, rise_i = _argmax(rise)
        K_i = self.K[i]
        gain, curvature = rise_i - drop, jnp.maximum(self.diagonal[i] + self.diagonal - 2 * K_i, floor)
        j, best = _argmax(jnp.where(gain > 0, gain * gain / curvature, -jnp.inf))
        K_j, beta_i, beta_j, rise_j, drop_i, drop_j = self.K[j], beta[i], beta[j], rise[j], drop[i], drop[j]
        room_i = jnp.where(beta_i < 0, -beta_i, self.high[i] - beta_i)  # up to zero, where the slope has a kink
        room_j = jnp.where(beta_j > 0, beta_j, beta_j - self.low[j])
        step = (rise_i - drop_j) / jnp.maximum(self.diagonal[i] + self.diagonal[j] - 2 * K_i[j], floor)
        some = best > 0  # otherwise nothing is violated any more, and nothing may move
        step = jnp.where(some, jnp.minimum(step, jnp.minimum(room_i, room_j)), 0)
        new_i = jnp.where(step == room_i, jnp.where(beta_i < 0, 0, self.high[i]), beta_i + step)
        new_j = jnp.where(step == room_j, jnp.where(beta_j > 0, 0, self.low[j]), beta_j - step)
        residual_i = rise_i + jnp.where(beta_i >= 0, self.epsilon[i], -self.epsilon[i]) - step * (self.diagonal[i] - K_j[i])
        residual_j = drop_j + jnp.where(beta_j > 0, self.epsilon[j], -self.epsilon[j]) - step * (K_i[j] - self.diagonal[j])
        of_i = slopes(new_i, residual_i, self.low[i], self.high[i], self.epsilon[i])
        of_j = slopes(new_j, residual_j, self.low[j], self.high[j], self.epsilon[j])
        keep = lambda new, old: jnp.where(some, new, old)
        change = step * (K_i - K_j)
        at_i, at_j = self.index == i, self.index == j
        put = lambda v, of_i, of_j: jnp.where(at_i, of_i, jnp.where(at_j, of_j, v))
        beta = put(beta, keep(new_i, beta_i), keep(new_j, beta_j))
        rise = put(rise - change, keep(of_i[0], rise_i), keep(of_j[0], rise_j))
        drop = put(drop - change, keep(of_i[1], drop_i), keep(of_j[1], drop_j))
        return beta, rise, drop


def _ranks(v: Float[Array, " n"]) -> Int[Array, " n"]:
    """The place of each element in ascending order."""
    return jnp.zeros(v.shape, jnp.int32).at[jnp.argsort(v)].set(jnp.arange(len(v), dtype=jnp.int32))


def _lanes(m: int) -> int:
    """Vectors are kept at a multiple of this, so that maxima vectorise. Fewer would do, but then more rows are searched."""
    return 8 if m <= 512 else 64


def _argmax(v: Float[Array, " m"]) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Where the largest is, and it. XLA's argmax is scalar on a CPU; the maximum of each of several lanes is not."""
    lanes = _lanes(len(v))
    table = v.reshape(-1, lanes)
    tops = jnp.max(table, 0)
    lane = jnp.argmax(tops).astype(jnp.int32)
    row = jnp.argmax(table[:, lane]).astype(jnp.int32)
    return row * lanes + lane, tops[lane]
