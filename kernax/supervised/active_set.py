"""The active set of a machine, and the linear system that its solution satisfies: how it is polished and differentiated.

Each point is free (strictly between zero and a bound), at zero, or at a bound. With the free points F, `s` their signs, and the
others held at zero or at their bounds, with which they move, the solution is that of

    K_FF b_F + bias 1 = (targets - epsilon s - K_FH b_H)_F   and   sum b = total.

The bias is the multiplier of the sum; where nothing is free it is the midpoint of the interval that the held points leave.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.batching import largest_of_batch, one_by_one
from kernax.core.numerics import split_by_tangent
from kernax.core.solvers import factorise
from kernax.supervised.dual import BoxProblem, Point, bias_interval, middle, submatrix

_SMALLEST = 250  # a smaller system is not worth a compilation of its own


def active_set(point: Point, problem: BoxProblem) -> tuple[Bool[Array, " n"], Float[Array, " n"]]:
    """Which points are free, and the values at which the others are held: zero or a bound, with its derivative."""
    beta, residual, bias = lax.stop_gradient((point.beta, point.residual, point.bias))
    low, high = lax.stop_gradient((problem.low, problem.high))
    at_high, at_low = (beta >= high) & (high > 0), (beta <= low) & (low < 0)
    free = (beta != 0) & ~at_high & ~at_low
    pulled = residual - bias  # of a point of weight zero: to which bound it would go
    empty = (low == high) & (pulled != 0)
    bounded = jnp.where(at_high | (empty & (pulled > 0)), problem.high, 0)
    return free, jnp.where(at_low | (empty & (pulled < 0)), problem.low, bounded)


class _System(eqx.Module):
    """The symmetric matrix `[[K_FF, 1], [1, 0]]` of the free points and the bias, and the identity on the points that are held.

    Without a sum to keep, or without a free point, the bias too has a one on the diagonal and nothing beside it. Vectors hold n
    coefficients and the bias, in one array: JAX transposes a linear solve of several only if all of them move.
    """

    operator: lx.AbstractLinearOperator
    free: Bool[Array, " n"]
    bordered: Bool[Array, ""]

    @staticmethod
    def of(point: Point, problem: BoxProblem) -> "_System":
        free, _ = active_set(point, problem)
        return _System(problem.operator, free, jnp.any(free) & (problem.total is not None))

    def apply(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """The matrix times a vector, m = n + 1."""
        d, b = vector[:-1], vector[-1]
        inside = jnp.where(self.free, d, 0)
        border = jnp.where(self.bordered, b, 0)
        rows = jnp.where(self.free, self.operator.mv(inside) + border, d)
        return jnp.append(rows, jnp.where(self.bordered, jnp.sum(inside), b))

    def solve(self, rhs: Float[Array, " m"]) -> Float[Array, " m"]:
        """The inverse times a vector. A constant where it is differentiated.

        K_FF is factorised in the smallest size n, n/2, n/4, ... that holds it: the one step of cubic cost. Every member of a
        batch has a size of its own on a CPU; elsewhere all have that of the largest.
        """
        r, r_bias = rhs[:-1], rhs[-1]
        columns = jnp.stack([r, jnp.ones_like(r)], 1)
        solved = one_by_one(_solved_in_the_smallest_size, (self.operator, self.free), columns)
        of_r, of_one = solved[:, 0], solved[:, 1]
        weight = jnp.sum(of_one)
        b = (jnp.sum(of_r) - r_bias) / jnp.where(weight > 0, weight, 1)
        b = jnp.where(self.bordered, b, r_bias)
        return jnp.append(jnp.where(self.free, of_r - jnp.where(self.bordered, b, 0) * of_one, r), b)


def _solved_in_the_smallest_size(matrix, columns):
    """`K_FF^-1` times each column on the free points, and zero elsewhere."""
    operator, free = matrix
    sizes = _sizes(len(free))
    order = jnp.argsort(~free)

    def solved(size):
        def branch(operator, free, order, columns):
            places = order[:size]
            inside = free[places].astype(columns.dtype)
            K = submatrix(operator, places)
            scale = jnp.sum(inside * jnp.diagonal(K)) / jnp.maximum(jnp.sum(inside), 1)
            K = inside[:, None] * K * inside[None, :] + jnp.diag((1 - inside) * jnp.where(scale > 0, scale, 1))
            factor = factorise(lx.MatrixLinearOperator(K, lx.positive_semidefinite_tag), scale)
            return jnp.zeros_like(columns).at[places].set(factor.solve(inside[:, None] * columns[places]))

        return branch

    if len(sizes) == 1:
        return solved(sizes[0])(operator, free, order, columns)
    which = largest_of_batch(jnp.searchsorted(jnp.asarray(sizes[:-1]), jnp.sum(free)))
    return lax.switch(which, [solved(size) for size in sizes], operator, free, order, columns)


def _sizes(n: int) -> list[int]:
    """In which a system is solved, ascending."""
    return sorted({n, *(n // 2**k for k in range(1, 6) if n // 2**k >= _SMALLEST)})


def _misfit(point: Point, problem: BoxProblem) -> Float[Array, " m"]:
    """By how much coefficients and bias miss the equations of their active set."""
    free, bounded = active_set(point, problem)
    base = jnp.where(free, point.beta, bounded)
    residual = problem.residual(base)
    of_points = jnp.where(free, residual - problem.epsilon * jnp.sign(point.beta) - point.bias, bounded - point.beta)
    if problem.total is None:
        return jnp.append(of_points, -point.bias)
    top, bottom = bias_interval(problem, lax.stop_gradient(base), residual)
    of_bias = jnp.where(jnp.any(free), problem.total - jnp.sum(base), middle(top, bottom) - point.bias)
    return jnp.append(of_points, of_bias)


@eqx.filter_custom_jvp
def newton_step(point: Point, problem: BoxProblem) -> Point:
    """The point, which solves the equations of its active set, with the derivative of their solution in the problem.

    One-sided where a point is about to change sides. To be differentiated in the problem alone: the derivative in a point that
    is a solution is zero.
    """
    return point


@newton_step.def_jvp
def _newton_step_jvp(primals, tangents):
    # From T(problem) x = r(problem): T dx = d (r - T x) at fixed x, and the misfit is r - T x. `custom_linear_solve` knows how
    # that is transposed (T is symmetric) and, from `apply`, how it is differentiated again.
    (point, problem), (_, t_problem) = primals, tangents
    moving, known = split_by_tangent(problem, t_problem)
    rhs, t_rhs = eqx.filter_jvp(lambda moving: _misfit(point, eqx.combine(moving, known)), (moving,), (t_problem,))
    t_rhs = jnp.zeros_like(rhs) if t_rhs is None else t_rhs
    system = _System.of(point, problem)
    change = lax.custom_linear_solve(system.apply, t_rhs, lambda _, rhs: system.solve(rhs), symmetric=True)
    still = jax.tree.map(lambda _: None, point)
    moved = change[:-1], change[-1]
    return point, eqx.tree_at(lambda point: (point.beta, point.bias), still, moved, is_leaf=lambda leaf: leaf is None)


def polished(point: Point, problem: BoxProblem) -> tuple[Point, Bool[Array, ""]]:
    """The exact solution for the active set of a point if that is better, and whether it is the solution.

    It is not if it has left the box, or if a point that is held would rather move: then the active set was wrong.
    """
    change = _System.of(point, problem).solve(_misfit(point, problem))
    exact = point.beta + change[:-1]
    slack = 1e-3 if exact.dtype == jnp.float32 else 1e-6
    beta = jnp.clip(exact, problem.low, problem.high)
    size = jnp.max(abs(beta), initial=0)
    inside = jnp.all((abs(beta - exact) <= slack * size) & (jnp.sign(beta) * jnp.sign(point.beta) >= 0))
    residual = problem.residual(beta)
    top, bottom = bias_interval(problem, beta, residual)
    before = bias_interval(problem, point.beta, point.residual)
    better = inside & (top - bottom <= before[0] - before[1])
    new = Point(beta, residual, point.bias + change[-1], point.steps)
    point = jax.tree.map(lambda new, old: jnp.where(better, new, old), new, point)
    return point, better & (top - bottom <= slack * problem.scale)
