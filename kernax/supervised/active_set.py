"""The active set of a machine, the linear system that its solution satisfies, and its derivative.

Each coefficient is free (strictly between zero and a bound), at zero, or at a bound. Let F be the
free points, `s` their signs, and H the others, held at zero or at bounds (which may depend on what
is differentiated). The solution is that of

    K_FF b_F + bias 1 = (targets - epsilon s - K_FH b_H)_F   and   sum b = total.

The bias is the multiplier of the sum; where no point is free, it is the midpoint of the interval of
biases that satisfy the conditions of optimality at the held points.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.batching import in_smallest_size, one_by_one
from kernax.core.factors import cholesky_factor
from kernax.core.linalg import without_border
from kernax.core.numerics import positive_or_one, split_by_tangent, stopped
from kernax.core.operators import AbstractGram, DenseGram
from kernax.supervised.dual import BoxProblem, Point, bias_interval, middle

_SMALLEST = 250  # a smaller system is not worth a compilation of its own


class ActiveSet(eqx.Module):
    """Which points are free, and the values at which the others are held.

    A point is held at zero or at a bound, whose derivative in the problem is kept.
    """

    free: Bool[Array, " n"]
    held_at: Float[Array, " n"]

    @staticmethod
    def of(point: Point, problem: BoxProblem) -> "ActiveSet":
        """The active set of a point."""
        beta = stopped(point.beta)
        low, high = stopped((problem.low, problem.high))
        at_high = (beta >= high) & (high > 0)
        at_low = (beta <= low) & (low < 0)
        free = (beta != 0) & ~at_high & ~at_low
        # A point of weight zero takes the derivative of the bound to which it would go with a
        # weight; inside of the tube it would stay at zero.
        off = stopped(point.residual) - stopped(point.bias)
        empty = low == high
        held_at_high = at_high | (empty & (off > problem.epsilon))
        held_at_low = at_low | (empty & (off < -problem.epsilon))
        high_or_zero = jnp.where(held_at_high, problem.high, 0)
        return ActiveSet(free, jnp.where(held_at_low, problem.low, high_or_zero))


def equation_residual(point: Point, problem: BoxProblem) -> Float[Array, " m"]:
    """The residuals of the equations of the active set: n of points, then the bias's, m = n + 1."""
    active = ActiveSet.of(point, problem)
    beta = jnp.where(active.free, point.beta, active.held_at)
    residual = problem.residual(beta)
    of_free = residual - problem.epsilon * jnp.sign(point.beta) - point.bias
    of_points = jnp.where(active.free, of_free, active.held_at - point.beta)
    of_bias = _residual_of_bias(point.bias, problem, beta, residual, jnp.any(active.free))
    return jnp.append(of_points, of_bias)


def _residual_of_bias(
    bias: Float[Array, ""],
    problem: BoxProblem,
    beta: Float[Array, " n"],
    residual: Float[Array, " n"],
    some_free: Bool[Array, ""],
) -> Float[Array, ""]:
    """`total - sum b`; without free points or a total, by how much the bias misses its value."""
    if problem.total is None:
        return -bias
    missing = problem.total - jnp.sum(beta)
    top, bottom = bias_interval(problem, lax.stop_gradient(beta), residual)
    return jnp.where(some_free, missing, middle(top, bottom) - bias)


class ActiveSystem(eqx.Module):
    """The matrix `[[K_FF, 1], [1, 0]]` of the free points and the bias; the identity on the others.

    Where the sum is not constrained, or no point is free, the row and column of the bias are those
    of the identity, too. Vectors hold n coefficients and the bias in one array: JAX transposes a
    linear solve of several arrays only if all of them have a tangent.
    """

    operator: AbstractGram
    free: Bool[Array, " n"]
    bordered: Bool[Array, ""]

    @staticmethod
    def of(point: Point, problem: BoxProblem) -> "ActiveSystem":
        """The system of a point."""
        free = ActiveSet.of(point, problem).free
        return ActiveSystem(problem.operator, free, jnp.any(free) & (problem.total is not None))

    def apply(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """The matrix times a vector, m = n + 1."""
        beta = vector[:-1]
        bias = vector[-1]
        inside = jnp.where(self.free, beta, 0)
        border = jnp.where(self.bordered, bias, 0)
        rows = jnp.where(self.free, self.operator.mv(inside) + border, beta)
        return jnp.append(rows, jnp.where(self.bordered, jnp.sum(inside), bias))

    def solve(self, rhs: Float[Array, " m"]) -> Float[Array, " m"]:
        """The inverse times a vector; it is never differentiated.

        K_FF is factorised, the only step of cubic cost, in the smallest of the sizes n, n/2, n/4,
        ... that holds it. On a CPU every member of a batch has a size of its own, on accelerators
        all have that of the largest. In d features K_FF is singular for more than d points: four
        times as many are the largest size, and of more the solution is NaN.
        """
        r = rhs[:-1]
        r_bias = rhs[-1]
        # K_FF^-1 r and K_FF^-1 1, zero on the points that are held.
        columns = jnp.stack([r, jnp.ones_like(r)], 1)
        solved = one_by_one(_solve_in_the_smallest_size, (self.operator, self.free), columns)
        alone = solved[:, 0]
        with_bias, bias = without_border(alone, solved[:, 1], r_bias)
        of_free = jnp.where(self.bordered, with_bias, alone)
        bias = jnp.where(self.bordered, bias, r_bias)
        return jnp.append(jnp.where(self.free, of_free, r), bias)


def _solve_in_the_smallest_size(
    matrix: tuple[AbstractGram, Bool[Array, " n"]], columns: Float[Array, "n c"]
) -> Float[Array, "n c"]:
    """`K_FF^-1` times each column on the free points, and zero elsewhere."""
    operator, free = matrix
    operands = (operator, free, jnp.argsort(~free), columns)
    sizes = _sizes(_most_free(len(free), operator.largest_rank))
    needed = jnp.sum(free)
    solved = in_smallest_size(_solve_among_the_first, sizes, needed, *operands)
    return jnp.where(needed <= sizes[-1], solved, jnp.nan)


def _solve_among_the_first(
    size: int,
    operator: AbstractGram,
    free: Bool[Array, " n"],
    free_first: Int[Array, " n"],
    columns: Float[Array, "n c"],
) -> Float[Array, "n c"]:
    """`K_FF^-1` times each column, where all free points are among the first of an order."""
    places = free_first[:size]
    inside = free[places].astype(columns.dtype)
    K_FF, mean = _padded_matrix(operator.submatrix(places), inside)
    factor = cholesky_factor(DenseGram(K_FF), mean)
    solved = factor.solve(inside[:, None] * columns[places])
    return jnp.zeros_like(columns).at[places].set(solved)


def _padded_matrix(
    K: Float[Array, "m m"], inside: Float[Array, " m"]
) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
    """K where both points are `inside` (one or zero), and the mean of the diagonal there.

    The other points have that mean on the diagonal, and zeros beside it.
    """
    mean = jnp.sum(inside * jnp.diagonal(K)) / jnp.maximum(jnp.sum(inside), 1)
    filler = jnp.diag((1 - inside) * positive_or_one(mean))
    return inside[:, None] * K * inside[None, :] + filler, mean


def _most_free(n: int, width: int) -> int:
    """How many points may be free: all, or of a K of few features as many as make it singular."""
    return n if width >= n else min(n, max(4 * width, _SMALLEST))


def _sizes(n: int) -> list[int]:
    """The sizes in which a system of up to n free points may be solved, ascending."""
    return sorted({n, *(n // 2**k for k in range(1, 6) if n // 2**k >= _SMALLEST)})


@eqx.filter_custom_jvp
def with_derivative_of_active_set(point: Point, problem: BoxProblem) -> Point:
    """The same point, with the derivative in the problem of the solution of its active set.

    One-sided where a point is about to enter or leave the active set. The derivative in the point
    is left out: it is zero at a solution.
    """
    return point


@with_derivative_of_active_set.def_jvp
def _with_derivative_jvp(primals, tangents):
    # From T(problem) x = r(problem): T dx = d (r - T x) at fixed x, and the residual of the
    # equations is r - T x. `custom_linear_solve` knows how that is transposed (T is symmetric) and,
    # from `apply`, how it is differentiated again.
    point, problem = primals
    _, t_problem = tangents
    moving, known = split_by_tangent(problem, t_problem)

    def residual_of(moving):
        return equation_residual(point, eqx.combine(moving, known))

    rhs, t_rhs = eqx.filter_jvp(residual_of, (moving,), (t_problem,))
    t_rhs = jnp.zeros_like(rhs) if t_rhs is None else t_rhs
    system = ActiveSystem.of(point, problem)
    change = lax.custom_linear_solve(
        system.apply, t_rhs, lambda _, rhs: system.solve(rhs), symmetric=True
    )
    return point, _tangent_of(point, change)


def _tangent_of(point: Point, change: Float[Array, " m"]) -> Point:
    """A tangent of coefficients and bias, m = n + 1; the rest of the point has none."""
    nothing = jax.tree.map(lambda _: None, point)
    return eqx.tree_at(
        lambda point: (point.beta, point.bias),
        nothing,
        (change[:-1], change[-1]),
        is_leaf=lambda leaf: leaf is None,
    )
