"""Sequential minimal optimisation (Fan, Chen & Lin 2005) in working sets (Joachims 1999).

A step changes two coefficients: the one that lowers the objective fastest as it rises, and the one
that together with it lowers a quadratic model most (Fan, Chen & Lin, JMLR 6, "WSS 2"). A step costs
a few passes over the points and two rows of K, and there are very many steps. They run on a working
set, so that its part of K stays in the cache: the points that gain most if their coefficients rise,
and those that lose least if they fall (Joachims, "Making large-scale SVM learning practical",
section 3). When the set is nearly optimal by itself, the residuals of all points are updated and a
new set is chosen. The pair that violates optimality most is always in it, so that the objective
falls strictly. Up to 1024 points, all are in the set.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_count, check_share, check_steps
from kernax.supervised.machines.box_problem import (
    BoxProblem,
    bias_interval,
    middle,
    one_sided_slopes,
    violation,
)
from kernax.supervised.machines.dual_solver import AbstractDualSolver
from kernax.supervised.machines.working_set import WorkingSet

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
            steps = jnp.minimum(8 * size + 1000, most - now.steps)
            return _swept(problem, now, atol / 2, steps, size)

        first = _WorkingSetState(beta, residual, jnp.zeros((), jnp.int32))
        end = lax.while_loop(go_on, sweep, first)
        return end.beta, end.steps

    def _size(self, n: int) -> int:
        """The size of working sets."""
        four_in_ten = -(-4 * n // 10)
        return min(n, self.working_set or min(max(_WHOLE, four_in_ten), _MOST))


class _WorkingSetState(eqx.Module):
    """Coefficients and residuals between two working sets, and the number of steps."""

    beta: Float[Array, " n"]
    residual: Float[Array, " n"]
    steps: Int[Array, ""]


def _swept(
    problem: BoxProblem, now: _WorkingSetState, atol: Array, most: Array, size: int
) -> _WorkingSetState:
    """Takes up to `most` steps in one working set of a size, down to a violation of `atol` there.

    A working set that is smaller than all points has those that violate optimality most. They
    include the pair that violates it most, so that the violation there is that of all points.
    """
    if size == len(now.beta):
        # Without a barrier XLA computes K in its unit before the loop, and keeps one more matrix.
        operator, _ = lax.optimization_barrier((problem.operator, now.beta))
        K = operator.as_matrix()
        part = WorkingSet.of(problem, K, slice(None), now.beta, now.residual)
        improved, steps = part.improved(atol, most, to_a_tenth=False)
        beta = improved[:size]
        residual = problem.residual(beta)
    else:
        # The indices of the points that violate optimality most.
        # By rank from both ends: a working set needs points that rise and points that fall.
        left = now.residual
        if problem.second is not None:
            # Slopes of two groups compare about the biases of their groups.
            top, bottom = bias_interval(problem, now.beta, left)
            left = left - problem.of_points(middle(top, bottom))
        up, down = one_sided_slopes(now.beta, left, problem.low, problem.high, problem.epsilon)
        _, indices = lax.top_k(-jnp.minimum(_ranks(-up), _ranks(down)), size)
        part = WorkingSet.of(problem, problem.submatrix(indices), indices, now.beta, now.residual)
        # The next set would lose the accuracy of a goal below a tenth of the violation.
        improved, steps = part.improved(atol, most, to_a_tenth=True)
        # The residuals of all points, from the columns of K in the set.
        change = improved[:size] - now.beta[indices]
        beta = now.beta.at[indices].set(improved[:size])
        residual = now.residual - problem.part_product(indices, change)
    return _WorkingSetState(beta, residual, now.steps + jnp.maximum(steps, 1))


def _ranks(v: Float[Array, " n"]) -> Int[Array, " n"]:
    """The rank of each element in ascending order."""
    return jnp.zeros(v.shape, jnp.int32).at[jnp.argsort(v)].set(jnp.arange(len(v), dtype=jnp.int32))
