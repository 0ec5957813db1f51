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
        most = self._most_steps(len(beta))
        if size == len(beta):
            problem = _with_held_operator(problem)

        def go_on(now: _Sweep) -> Array:
            return (now.violation > atol) & (now.steps < most)

        def sweep(now: _Sweep) -> _Sweep:
            steps = jnp.minimum(8 * size + 1000, most - now.steps)
            return _swept(problem, now, atol / 2, steps, size)

        end = lax.while_loop(go_on, sweep, _Sweep.first(problem, beta, residual))
        return end.beta, end.steps

    def _size(self, n: int) -> int:
        """The size of working sets."""
        four_in_ten = -(-4 * n // 10)
        return min(n, self.working_set or min(max(_WHOLE, four_in_ten), _MOST))

    def _most_steps(self, n: int) -> int | Int[Array, ""]:
        return 100 * n + 10**6 if self.max_steps is None else self.max_steps


def _with_held_operator(problem: BoxProblem) -> BoxProblem:
    """The same problem with a dense matrix."""
    return eqx.tree_at(lambda problem: problem.operator, problem, problem.operator.held())


class _Sweep(eqx.Module):
    """Coefficients and residuals between two working sets, their violation, and the number of
    steps.
    """

    beta: Float[Array, " n"]
    residual: Float[Array, " n"]
    violation: Float[Array, ""]
    steps: Int[Array, ""]

    @staticmethod
    def first(problem: BoxProblem, beta: Array, residual: Array) -> "_Sweep":
        """The coefficients and residuals before any step."""
        violated = violation(problem, beta, residual)
        return _Sweep(beta, residual, violated, jnp.zeros((), jnp.int32))

    def moved(self, problem: BoxProblem, beta: Array, residual: Array, steps: Array) -> "_Sweep":
        """The coefficients and residuals after `steps` more steps."""
        violated = violation(problem, beta, residual)
        return _Sweep(beta, residual, violated, self.steps + jnp.maximum(steps, 1))


def _swept(problem: BoxProblem, now: _Sweep, atol: Array, most: Array, size: int) -> _Sweep:
    """Takes up to `most` steps in one working set of a size, down to a violation of `atol`
    there.
    """
    if size == len(now.beta):
        # Steps among all points, down to a violation of `atol`.
        everywhere = slice(None)
        part = WorkingSet.of(
            problem, problem.operator.as_matrix(), everywhere, now.beta, now.residual
        )
        improved, steps = part.improved(now.violation, atol, most)
        beta = improved[: len(now.beta)]
        return now.moved(problem, beta, problem.residual(beta), steps)
    # The next set would lose the accuracy of a finer goal.
    goal = jnp.maximum(atol, now.violation / 10)
    return _on_a_working_set(problem, now, goal, most, size)


def _on_a_working_set(
    problem: BoxProblem, now: _Sweep, goal: Array, most: Array, size: int
) -> _Sweep:
    """Takes steps among the points that violate optimality most, down to a violation of `goal`
    there.

    They include the pair that violates it most, so that the violation there is that of all points.
    """
    places = _most_violating(problem, now, size)
    part = WorkingSet.of(problem, problem.submatrix(places), places, now.beta, now.residual)
    improved, steps = part.improved(now.violation, goal, most)

    # The residuals of all points, from the columns of K in the set.
    change = improved[:size] - now.beta[places]
    beta = now.beta.at[places].set(improved[:size])
    residual = now.residual - problem.part_product(places, change)
    return now.moved(problem, beta, residual, steps)


def _most_violating(problem: BoxProblem, now: _Sweep, size: int) -> Int[Array, " size"]:
    """The indices of the points that violate optimality most."""
    # By rank from both ends: a working set needs points that rise and points that fall.
    residual = now.residual
    if problem.second is not None:
        # Slopes of two groups compare about the biases of their groups.
        top, bottom = bias_interval(problem, now.beta, residual)
        residual = residual - problem.of_points(middle(top, bottom))
    up, down = one_sided_slopes(now.beta, residual, problem.low, problem.high, problem.epsilon)
    _, places = lax.top_k(-jnp.minimum(_ranks(-up), _ranks(down)), size)
    return places


def _ranks(v: Float[Array, " n"]) -> Int[Array, " n"]:
    """The rank of each element in ascending order."""
    return jnp.zeros(v.shape, jnp.int32).at[jnp.argsort(v)].set(jnp.arange(len(v), dtype=jnp.int32))
