"""The one quadratic programme behind support vector machines, and the derivative of its solution.

    minimise  1/2 b.K b - targets.b + epsilon |b|_1   subject to   low <= b <= high,  sum b = total,  low <= 0 <= high

b are the signed coefficients of the expansion `f = K b + bias`; the bias is the multiplier of the sum. Classification has the
labels as targets and boxes [0, C] or [-C, 0]; regression a box [-C, C] and an epsilon; one-class machines no targets, and a
total. Each point is free (strictly between zero and a bound), at zero, or at a bound, and once that is known the rest is
linear: which is how the solution is polished, and how it is differentiated.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.gram import GramOperator, gram
from kernax.core.linalg import weighted_solve
from kernax.core.numerics import product
from kernax.core.parameters import check_count
from kernax.core.solvers import JitteredCholesky

_SMALLEST = 250  # a smaller system is not worth a compilation of its own


class BoxProblem(eqx.Module):
    """The programme above. `total=None` leaves the sum free, which fixes the bias at zero.

    `scale` is the size of the targets, in units of f: tolerances are relative to it.
    """

    operator: lx.AbstractLinearOperator
    targets: Float[Array, " n"]
    low: Float[Array, " n"]
    high: Float[Array, " n"]
    epsilon: Float[Array, ""]
    total: Float[Array, ""] | None
    scale: Float[Array, ""]

    def residual(self, beta: Float[Array, " n"]) -> Float[Array, " n"]:
        """`targets - K b`, minus the gradient of the smooth part."""
        return self.targets - self.operator.mv(beta)

    def diagonal(self) -> Float[Array, " n"]:
        """k(x_i, x_i)."""
        return lx.diagonal(self.operator)

    def start(self) -> Float[Array, " n"]:
        """A feasible point: zero, or the total dealt out from the first point on."""
        if self.total is None:
            return jnp.zeros_like(self.targets)
        before = jnp.concatenate([jnp.zeros_like(self.high[:1]), jnp.cumsum(jnp.minimum(self.high, self.total))[:-1]])
        return jnp.clip(self.total - before, 0, self.high)

    def submatrix(self, places: Int[Array, " m"]) -> Float[Array, "m m"]:
        """The rows and columns of K at `places`; only these are computed if K is not held."""
        if isinstance(self.operator, GramOperator):
            points = jax.tree.map(lambda leaf: leaf[places], self.operator.points)
            return gram(self.operator.kernel, points)
        return self.operator.as_matrix()[places[:, None], places[None, :]]

    def part_product(self, places: Int[Array, " m"], values: Float[Array, " m"]) -> Float[Array, " n"]:
        """`K[:, places] @ values`."""
        if isinstance(self.operator, GramOperator):
            kernel, points = self.operator.kernel, self.operator.points
            part = jax.tree.map(lambda leaf: leaf[places], points)
            row = lambda x: product(jax.vmap(lambda z: kernel(x, z))(part), values)
            return lax.map(row, points, batch_size=self.operator.block_size)
        return self.operator.mv(jnp.zeros_like(self.targets).at[places].set(values))


def slopes(
    beta: Float[Array, "*n"],
    residual: Float[Array, "*n"],
    low: Float[Array, "*n"],
    high: Float[Array, "*n"],
    epsilon: Float[Array, "..."],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """How fast the objective falls as each coefficient rises (-inf at its upper bound), and as it drops (+inf at its lower).

    A point is optimal where no rise gains more than a drop costs: `max(rise) <= min(drop)`, with the bias in between.
    """
    rise = jnp.where(beta < high, residual - jnp.where(beta >= 0, epsilon, -epsilon), -jnp.inf)
    drop = jnp.where(beta > low, residual - jnp.where(beta > 0, epsilon, -epsilon), jnp.inf)
    return rise, drop


def bias_interval(problem: BoxProblem, beta: Array, residual: Array) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The largest rise and the smallest drop. Their difference is the violation; with no sum to keep, both meet zero."""
    rise, drop = slopes(beta, residual, problem.low, problem.high, problem.epsilon)
    top, bottom = jnp.max(rise), jnp.min(drop)
    return (top, bottom) if problem.total is not None else (jnp.maximum(top, 0), jnp.minimum(bottom, 0))


class AbstractDualSolver(eqx.Module):
    """What solves a `BoxProblem`, to a violation of `tol` in units of the targets."""

    tol: eqx.AbstractVar[float]

    @abc.abstractmethod
    def solve(
        self, problem: BoxProblem, beta: Float[Array, " n"], residual: Float[Array, " n"], tol: Float[Array, ""]
    ) -> tuple[Float[Array, " n"], Int[Array, ""]]:
        """Improves a feasible point of known residual until its violation is at most `tol`; also the number of steps."""


def as_dual_solver(solver: Any, default: AbstractDualSolver) -> AbstractDualSolver:
    """The solver, or the default for None. Raises ValueError for anything else, a class instead of an instance included."""
    if solver is not None and not isinstance(solver, AbstractDualSolver):
        raise ValueError(f"solver must be SMO() or ProjectedGradient(), called, but is {solver!r}")
    return default if solver is None else solver


def check_tolerance(tol: float, max_steps: int | None) -> None:
    """Raises ValueError for settings of a solver that make no sense."""
    if not 0 < tol < 1:
        raise ValueError(f"tol must be between 0 and 1, but is {tol!r}")
    if max_steps is not None:
        check_count(max_steps, "max_steps")


class Point(eqx.Module):
    """A solution of the programme, with its residual, and how many steps it took."""

    beta: Float[Array, " n"]
    residual: Float[Array, " n"]
    bias: Float[Array, ""]
    steps: Int[Array, ""]


def newton_step(point: Point, problem: BoxProblem) -> Point:
    """The exact solution for the active set of a point: one Newton step, of whose derivative `implicit` makes use.

    With the free points F, `s` their signs and the others held at zero or at their bounds, with which they move, the step
    solves `K_FF d + bias 1 = (targets - K b - epsilon s)_F` and `sum d = total - sum b`. The bias is the multiplier; where
    nothing is free it is the midpoint of the interval that the bounded points leave. The system is solved in the smallest size
    n, n/2, n/4, ... that holds F. A derivative is one-sided where a point is about to change sides.
    """
    point = lax.stop_gradient(point)
    beta, bias = point.beta, point.bias
    free, bounded = active_set(point, problem)
    base = jnp.where(free, beta, bounded)
    residual = problem.residual(base)
    missing = jnp.zeros((), beta.dtype) if problem.total is None else problem.total - jnp.sum(base)
    sizes = sorted({len(beta), *(len(beta) // 2**k for k in range(1, 6) if len(beta) // 2**k >= _SMALLEST)})
    which = jnp.searchsorted(jnp.asarray(sizes[:-1]), jnp.sum(free)) if len(sizes) > 1 else jnp.zeros((), int)
    order = jnp.argsort(~free)
    rhs = residual - problem.epsilon * jnp.sign(beta)

    def solve(size):
        def branch(problem, rhs, missing):
            places = order[:size]
            d, of_free = _free_system(problem.submatrix(places), free[places].astype(rhs.dtype), rhs[places], missing, problem)
            return jnp.zeros_like(rhs).at[places].set(d), of_free

        return branch

    d, of_free = lax.switch(which, [solve(size) for size in sizes], problem, rhs, missing)
    exact = base + d
    if problem.total is None:
        return Point(exact, point.residual, jnp.zeros_like(bias), point.steps)
    top, bottom = bias_interval(problem, jnp.where(free, beta, lax.stop_gradient(bounded)), residual)
    bias = jnp.where(jnp.any(free), of_free, _middle(top, bottom))
    return Point(exact, point.residual, bias, point.steps)


def _free_system(K, mask, rhs, missing, problem):
    """`d` on the free points, and the bias."""
    columns = mask[:, None] * jnp.stack([rhs, jnp.ones_like(rhs)], 1)
    operator = lx.MatrixLinearOperator(K, lx.positive_semidefinite_tag)
    solved, _, _ = weighted_solve(operator, mask, jnp.zeros((), rhs.dtype), columns, JitteredCholesky())
    of_rhs, of_one = solved[:, 0], solved[:, 1]
    if problem.total is None:
        return of_rhs, jnp.zeros((), rhs.dtype)
    weight = jnp.sum(of_one)
    bias = (jnp.sum(of_rhs) - missing) / jnp.where(weight > 0, weight, 1)
    return of_rhs - bias * of_one, bias


def active_set(point: Point, problem: BoxProblem) -> tuple[Bool[Array, " n"], Float[Array, " n"]]:
    """Which points are free, and the values at which the others are held: zero or a bound, with its derivative."""
    beta, (low, high) = point.beta, lax.stop_gradient((problem.low, problem.high))
    at_high, at_low = (beta >= high) & (high > 0), (beta <= low) & (low < 0)
    free = (beta != 0) & ~at_high & ~at_low
    pulled = point.residual - point.bias  # of a point of weight zero: to which bound it would go
    empty = (low == high) & (pulled != 0)
    bounded = jnp.where(at_high | (empty & (pulled > 0)), problem.high, 0)
    return free, jnp.where(at_low | (empty & (pulled < 0)), problem.low, bounded)


def polished(point: Point, problem: BoxProblem) -> tuple[Point, Bool[Array, ""]]:
    """The exact solution for the active set of a point if that is better, and whether it is the solution.

    It is not if it has left the box, or if a point that is held would rather move: then the active set was wrong.
    """
    exact = newton_step(point, problem)
    slack = 1e-3 if exact.beta.dtype == jnp.float32 else 1e-6
    beta = jnp.clip(exact.beta, problem.low, problem.high)
    size = jnp.max(abs(beta), initial=0)
    inside = jnp.all((abs(beta - exact.beta) <= slack * size) & (jnp.sign(beta) * jnp.sign(point.beta) >= 0))
    residual = problem.residual(beta)
    top, bottom = bias_interval(problem, beta, residual)
    before = bias_interval(problem, point.beta, point.residual)
    better = inside & (top - bottom <= before[0] - before[1])
    new = Point(beta, residual, exact.bias, point.steps)
    point = jax.tree.map(lambda new, old: jnp.where(better, new, old), new, point)
    return point, better & (top - bottom <= slack * problem.scale)


def rounding_of(point: Point, problem: BoxProblem) -> Float[Array, ""]:
    """What rounding makes of f, and of a violation."""
    size = problem.scale + jnp.max(abs(problem.targets - point.residual))
    return 16 * float(jnp.finfo(size.dtype).eps) * size


def certificate(point: Point, problem: BoxProblem) -> dict[str, Array]:
    """Primal and dual objective, and their difference, a sum of one non-negative term a point, computed as that sum.

    What is off by a rounding of f is not off: targets that differ by as little have this gap. An infinite bound counts as one
    far beyond the largest coefficient, which has the same solution. The relative gap, on which success is decided, also counts
    what the sum of the coefficients lacks of its total, at the steepest slope.
    """
    beta, variance = point.beta, jnp.max(problem.diagonal())
    ample = 10 * jnp.max(abs(beta)) + problem.scale / jnp.where(variance > 0, variance, 1)
    low, high = (jnp.where(jnp.isinf(v), end, v) for v, end in ((problem.low, -ample), (problem.high, ample)))
    residual = point.residual
    off = residual - point.bias
    off = jnp.sign(off) * jnp.maximum(abs(off) - rounding_of(point, problem), 0)
    loss = high * jnp.maximum(off - problem.epsilon, 0) + low * jnp.minimum(off + problem.epsilon, 0)
    gap = jnp.sum(jnp.maximum(loss - beta * off + problem.epsilon * abs(beta), 0))
    fitted = problem.targets - residual
    dual = jnp.sum(beta * (problem.targets - fitted / 2)) - problem.epsilon * jnp.sum(abs(beta))
    on = beta != 0
    bounded = on & ((beta >= problem.high) | (beta <= problem.low))
    counts = {"support": jnp.sum(on), "bounded": jnp.sum(bounded), "free": jnp.sum(on & ~bounded)}
    objective = jnp.maximum(abs(dual + gap), abs(dual))
    missing = jnp.zeros((), beta.dtype) if problem.total is None else abs(problem.total - jnp.sum(beta))
    relative = (gap + missing * jnp.max(abs(off))) / jnp.where(objective > 0, objective, 1)
    return {"primal": dual + gap, "dual": dual, "gap": gap, "relative_gap": relative} | counts


def bias_of(problem: BoxProblem, beta: Array, residual: Array) -> Float[Array, ""]:
    """The mean over the free points, else the midpoint of what the bounded ones leave."""
    free = (beta != 0) & (beta < problem.high) & (beta > problem.low)
    count = jnp.sum(free, dtype=beta.dtype)
    mean = jnp.sum(jnp.where(free, residual - problem.epsilon * jnp.sign(beta), 0)) / jnp.maximum(count, 1)
    top, bottom = bias_interval(problem, beta, residual)
    return jnp.zeros((), beta.dtype) if problem.total is None else jnp.where(count > 0, mean, _middle(top, bottom))


def _middle(top: Array, bottom: Array) -> Array:
    """The midpoint; of an interval that is open to one side, its end."""
    both = jnp.isfinite(top) & jnp.isfinite(bottom)
    ends = [jnp.where(jnp.isfinite(end), end, 0) for end in (top, bottom)]
    return (ends[0] + ends[1]) / jnp.where(both, 2, 1).astype(top.dtype)
