"""The active set of a support vector machine, the linear system that its solution satisfies, and
its derivative.

Each coefficient is free (strictly between zero and a bound), at zero, or at a bound. Let F be the
free points, `s` their signs, and H the others, which are held at zero or at their bounds (the
bounds may depend on parameters that are differentiated). The solution satisfies

    K_FF b_F + bias 1 = (targets - epsilon s - K_FH b_H)_F   and   sum b = total.

The bias is the multiplier of the sum; where no point is free, it is the midpoint of the interval of
biases that satisfy the conditions of optimality at the held points. With two groups, each group has
a sum and a bias of its own, and `bias 1` is the bias of each point's group.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.batching import in_smallest_size, sequential_vmap
from kernax.core.base.derivatives import custom_jvp, split_by_tangent
from kernax.core.base.numerics import (
    main_diagonal,
    positive_or_one,
    stop_gradient,
    sums_and_maxima,
    tree_where,
    where,
    where_or,
)
from kernax.core.linalg.cholesky import CholeskyFactor, cholesky_factor
from kernax.core.linalg.weighted_solve import quotient
from kernax.core.operators.operators import AbstractGram, DenseGram
from kernax.supervised.machines.box_problem import (
    BoxProblem,
    DualPoint,
    bias_without_free_points,
)

_SMALLEST = 250  # a smaller system is not worth a compilation of its own


def held_values(point: DualPoint, problem: BoxProblem) -> Float[Array, " n"]:
    """The values at which the points that are not free are held: zero or a bound, whose derivative
    in the problem is kept.
    """
    beta = stop_gradient(point.beta)
    low, high = stop_gradient((problem.low, problem.high))
    # A point of weight zero takes the derivative of the bound to which it would go with a weight;
    # inside of the tube it would stay at zero.
    off = stop_gradient(problem.off(point))
    empty = low == high
    at_high = ((beta >= high) & (high > 0)) | (empty & (off > problem.epsilon))
    at_low = ((beta <= low) & (low < 0)) | (empty & (off < -problem.epsilon))
    return where(at_low, problem.low, where_or(at_high, problem.high, 0.0))


def equation_residual(point: DualPoint, problem: BoxProblem) -> Float[Array, " m"]:
    """The residuals of the equations of the active set, m = n + 1: one for each point, then that of
    the bias.

    With two groups m = n + 2, here and below.
    """
    held_at = held_values(point, problem)
    beta = where(point.free, point.beta, held_at)
    residual = problem.residual(beta)
    of_bias = problem.of_points(point.bias)
    # targets - K b - epsilon s - bias = 0 at free points, b = held value at the others.
    of_free = residual - problem.epsilon * jnp.sign(point.beta) - of_bias
    of_points = where(point.free, of_free, held_at - point.beta)
    return jnp.append(of_points, _residual_of_bias(point, problem, beta, residual))


def _residual_of_bias(
    point: DualPoint,
    problem: BoxProblem,
    beta: Float[Array, " n"],
    residual: Float[Array, " n"],
) -> Float[Array, "*groups"]:
    """`total - sum b`; without free points or a total, by how much the bias misses its value."""
    if problem.total is None:
        return -point.bias
    missing = problem.total - problem.sums(beta)
    wanted = bias_without_free_points(problem, lax.stop_gradient(beta), residual)
    return where(point.some_free, missing, wanted - point.bias)


class ActiveSystem(eqx.Module):
    """The matrix `[[K_FF, 1], [1, 0]]` of the free points and the bias; the identity on the others.

    Where the sum is not constrained, or no point is free, the row and column of the bias are those
    of the identity, too. Two groups have two such rows and columns, with ones at their own points.
    Vectors hold n coefficients and the bias in one array: JAX transposes a linear solve of several
    arrays only if all of them have a tangent.
    """

    problem: BoxProblem
    free: Bool[Array, " n"]
    bordered: Bool[Array, "*groups"]
    factor: CholeskyFactor | None = None

    @staticmethod
    def of(point: DualPoint, problem: BoxProblem, factor: CholeskyFactor | None) -> "ActiveSystem":
        """The system at a dual point."""
        bordered = point.some_free & (problem.total is not None)
        return ActiveSystem(problem, point.free, bordered, factor)

    def apply(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """The matrix times a vector, m = n + 1."""
        beta, bias = self._parts(vector)
        inside = where_or(self.free, beta, 0.0)
        border = self.problem.of_points(where_or(self.bordered, bias, 0.0))
        rows = where(self.free, self.problem.operator.mv(inside) + border, beta)
        return jnp.append(rows, where(self.bordered, self.problem.sums(inside), bias))

    def _parts(self, vector: Float[Array, " m"]) -> tuple[Array, Array]:
        """Coefficients, and the bias of each group."""
        n = len(self.free)
        return vector[:n], vector[n:].reshape(self.bordered.shape)

    def solve(self, rhs: Float[Array, " m"]) -> Float[Array, " m"]:
        """The inverse times a vector; it is never differentiated.

        K_FF is factorised, the only step of cubic cost, in the smallest of the sizes n, n/2, n/4,
        ... that holds it. On a CPU every member of a batch has its own size; on accelerators all
        have the largest one. In d features K_FF is singular for more than d points: the largest
        size is then 4 d, and the solution is NaN if more points are free.
        """
        r, r_bias = self._parts(rhs)
        # K_FF^-1 r and K_FF^-1 1, zero on the points that are held; two groups have ones at their
        # own points.
        borders = self.problem.in_groups(jnp.ones_like(r), 0)
        columns = jnp.stack([r, *borders], 1)
        matrix = (self.problem.operator, self.free)
        if self.factor is None:
            solved = sequential_vmap(_solve_in_the_smallest_size, matrix, columns)
        else:
            solved = _solve_with(self.factor, self.free, columns)
        alone = solved[:, 0]
        if self.problem.second is None:
            # From `b = alone - of_ones bias` and `sum b = r_bias`.
            of_ones = solved[:, 1]
            (pull, sum_alone), _ = sums_and_maxima([of_ones, alone], [])
            bias = quotient(pull, sum_alone - r_bias)
            of_free = where(self.bordered, alone - of_ones * bias, alone)
        else:
            of_free, bias = self._without_two_borders(alone, solved[:, 1:], r_bias)
        bias = where(self.bordered, bias, r_bias)
        return jnp.append(where(self.free, of_free, r), bias)

    def _without_two_borders(
        self, alone: Float[Array, " n"], of_borders: Float[Array, "n 2"], r_bias: Float[Array, "2"]
    ) -> tuple[Float[Array, " n"], Float[Array, "2"]]:
        """Coefficients and both biases, from `alone = K_FF^-1 r` and `of_borders = K_FF^-1 E`.

        The columns of E are one at the free points of a group. From `b = alone - of_borders bias`
        and `E^T b = r_bias` the biases solve `(E^T of_borders) bias = E^T alone - r_bias`.
        """
        first, second = of_borders[:, 0], of_borders[:, 1]
        s = self.problem.sums(first)
        t = self.problem.sums(second)
        wanted = jnp.where(self.bordered, self.problem.sums(alone) - r_bias, 0)
        # A group without free points has a row and column of zeros, which those of the identity
        # replace.
        pull_1 = jnp.where(self.bordered[0], s[0], 1)
        pull_2 = jnp.where(self.bordered[1], t[1], 1)
        between = (s[1] + t[0]) / 2
        determinant = pull_1 * pull_2 - between * between
        # [[p_1, c], [c, p_2]]^-1 = [[p_2, -c], [-c, p_1]] / (p_1 p_2 - c^2).
        bias = (jnp.stack([pull_2, pull_1]) * wanted - between * jnp.flip(wanted)) / determinant
        return alone - first * bias[0] - second * bias[1], bias


def _largest_size(operator: AbstractGram, n: int) -> int:
    """How many of n points may be free: all, or if K has few explicit features, at most as many as
    make it singular.
    """
    rank = operator.largest_rank
    return n if rank >= n else min(n, max(4 * rank, _SMALLEST))


def no_factor(problem: BoxProblem) -> CholeskyFactor | None:
    """The shapes of the factor that `exact_solution` returns; None if systems have several sizes,
    because a factor in the largest one may take far more memory than the system at hand.
    """
    n = len(problem.targets)
    if _sizes(_largest_size(problem.operator, n)) != [n]:
        return None
    zero = jnp.zeros((), problem.targets.dtype)
    return CholeskyFactor(jnp.zeros_like(zero, shape=(n, n)), zero, jnp.array(True))


def _solve_in_the_smallest_size(
    matrix: tuple[AbstractGram, Bool[Array, " n"]], columns: Float[Array, "n c"]
) -> Float[Array, "n c"]:
    """`K_FF^-1` times each column on the free points, and zero elsewhere."""
    operator, free = matrix
    n = len(free)
    most = _largest_size(operator, n)
    sizes = _sizes(most)
    if sizes == [n]:
        return _solve_with(_factor_of_all(matrix), free, columns)
    needed = jnp.sum(free)
    operands = (operator, free, jnp.argsort(~free), columns)
    solved = in_smallest_size(_solve_among_the_first, sizes, needed, *operands)
    return jnp.where(needed <= most, solved, jnp.nan)


def _factor_of_all(matrix: tuple[AbstractGram, Bool[Array, " n"]]) -> CholeskyFactor:
    """The factor of K_FF, padded to all points."""
    operator, free = matrix
    K_FF, mean = _padded_matrix(operator.as_matrix(), free.astype(operator.in_structure().dtype))
    return cholesky_factor(DenseGram(K_FF), mean)


def _solve_with(
    factor: CholeskyFactor, free: Bool[Array, " n"], columns: Float[Array, "n c"]
) -> Float[Array, "n c"]:
    """`K_FF^-1` times each column on the free points, by the factor of all points."""
    inside = free.astype(columns.dtype)[:, None]
    return inside * factor.solve(inside * columns)


def _solve_among_the_first(
    size: int,
    operator: AbstractGram,
    free: Bool[Array, " n"],
    free_first: Int[Array, " n"],
    columns: Float[Array, "n c"],
) -> Float[Array, "n c"]:
    """`K_FF^-1` times each column, where all free points are among the first of an order."""
    indices = free_first[:size]
    inside = free[indices].astype(columns.dtype)
    K_FF, mean = _padded_matrix(operator.submatrix(indices), inside)
    factor = cholesky_factor(DenseGram(K_FF), mean)
    solved = factor.solve(inside[:, None] * columns[indices])
    return jnp.zeros_like(columns).at[indices].set(solved)


def _padded_matrix(
    K: Float[Array, "m m"], inside: Float[Array, " m"]
) -> tuple[Float[Array, "m m"], Float[Array, ""]]:
    """K where both points are `inside` (one or zero), and the mean of the diagonal there.

    The other points have that mean on the diagonal and zeros off the diagonal.
    """
    # [[K_FF, 0], [0, mean I]]: the padding leaves K_FF^-1 as it is, with pivots of the same size.
    (diagonal, count), _ = sums_and_maxima([inside * main_diagonal(K), inside], [])
    mean = diagonal / jnp.maximum(count, 1)
    filler = jnp.diag((1 - inside) * positive_or_one(mean))
    return inside[:, None] * K * inside[None, :] + filler, mean


def _sizes(n: int) -> list[int]:
    """The sizes in which a system of up to n free points may be solved, ascending."""
    return sorted({n, *(n // 2**k for k in range(1, 6) if n // 2**k >= _SMALLEST)})


def exact_solution(
    point: DualPoint, problem: BoxProblem
) -> tuple[DualPoint, Bool[Array, ""], CholeskyFactor | None]:
    """The exact solution of the equations of a point's active set, whether it solves the programme,
    and the factor of the equations, which are those of the derivative, too.

    It does not if it leaves the box, or if moving a held point lowers the objective: the active set
    was then wrong. The point itself is returned where it violates optimality less.
    """
    # The equations are linear, so that one Newton step from the point solves them. The point has
    # its held coefficients, and if none is free, the bias that is wanted.
    factor = no_factor(problem)
    if factor is not None:
        factor = sequential_vmap(_factor_of_all, (problem.operator, point.free))
    system = ActiveSystem.of(point, problem, factor)
    of_free = problem.off(point) - problem.epsilon * jnp.sign(point.beta)
    of_free = where_or(system.free, of_free, 0.0)
    of_bias = jnp.zeros_like(point.bias)
    if problem.total is not None:
        sums, _ = sums_and_maxima(problem.in_groups(point.beta, 0), [])
        missing = problem.total - jnp.stack(sums).reshape(problem.total.shape)
        of_bias = where_or(system.bordered, missing, 0.0)
    change = system.solve(jnp.append(of_free, of_bias))
    n = len(point.beta)
    exact = point.beta + change[:n]
    beta = jnp.clip(exact, problem.low, problem.high)
    bias = point.bias + change[n:].reshape(point.bias.shape)
    solved = DualPoint.of(problem, beta, problem.residual(beta), point.steps, bias)

    # The coefficients must stay in the box, up to rounding, and none may change its sign. Where one
    # ends at a bound, the active set is another one, and so are its equations.
    opposite = -jnp.sign(beta) * jnp.sign(point.beta)
    sizes = [abs(beta), abs(beta - exact), opposite]
    is_other = solved.free != point.free
    _, (largest, out_of_box, most_opposite, some_other) = sums_and_maxima([], [*sizes, is_other])
    # The tolerated error of a linear solve, relative to the largest entry.
    slack = 1e-3 if beta.dtype == jnp.float32 else 1e-6
    keeps_sides = (out_of_box <= slack * largest) & (most_opposite <= 0)
    is_better = keeps_sides & (solved.violation <= point.violation)
    is_optimal = is_better & (solved.violation <= slack * problem.scale) & ~some_other
    # The factor is that of the equations of the given point.
    solved = dataclasses.replace(solved, free=point.free, some_free=point.some_free)
    return tree_where(is_better, solved, point), is_optimal, factor


@custom_jvp
def with_derivative_of_active_set(
    point: DualPoint, problem: BoxProblem, factor: CholeskyFactor | None
) -> DualPoint:
    """The same point, whose derivative in the problem is that of the linear system of its active
    set, with the factor of that system.

    The derivative is one-sided where a point is about to enter or leave the active set. The
    derivative in the point is left out: it is zero at a solution.
    """
    return point


@with_derivative_of_active_set.def_jvp
def _with_derivative_jvp(primals, tangents):
    # From T(problem) x = r(problem): T dx = d (r - T x) at fixed x, and the residual of the
    # equations is r - T x. `custom_linear_solve` transposes this solve (T is symmetric) and
    # differentiates it again through `apply`.
    point, problem, factor = primals
    _, t_problem, _ = tangents
    moving, known = split_by_tangent(problem, t_problem)

    def residual_of(moving):
        return equation_residual(point, eqx.combine(moving, known))

    rhs, t_rhs = eqx.filter_jvp(residual_of, (moving,), (t_problem,))
    t_rhs = jnp.zeros_like(rhs) if t_rhs is None else t_rhs
    system = ActiveSystem.of(point, problem, factor)
    change = lax.custom_linear_solve(
        system.apply, t_rhs, lambda _, rhs: system.solve(rhs), symmetric=True
    )
    return point, _tangent_of(point, change)


def _tangent_of(point: DualPoint, change: Float[Array, " m"]) -> DualPoint:
    """The tangent of a point, from that of its coefficients and bias (m = n + 1); the other fields
    have none.
    """
    nothing = jax.tree.map(lambda _: None, point)
    n = len(point.beta)
    return eqx.tree_at(
        lambda point: (point.beta, point.bias),
        nothing,
        (change[:n], change[n:].reshape(point.bias.shape)),
        is_leaf=lambda leaf: leaf is None,
    )
