"""The quadratic programme that all support vector machines share.

    minimise  1/2 b.K b - targets.b + epsilon |b|_1   subject to   low <= b <= high,  sum b = total

Here `low <= 0 <= high`, and b are the signed coefficients of the expansion `f = K b + bias`, whose
bias is the Lagrange multiplier of the sum. Classification has the labels as targets and boxes [0,
C] or [-C, 0]; regression has a box [-C, C] and an epsilon; one-class SVMs have a total and no
targets. In the nu parametrisation the points form two groups; each has a sum of its own, and the
multiplier of that sum is the bias of the group. Each coefficient is free (strictly between zero and
a bound), at zero, or at a bound; given which, the solution is that of a linear system
(`active_set`).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import (
    eps_of,
    expand_to,
    positive_or_one,
    stop_gradient,
    sums_and_maxima,
    where,
    where_or,
)
from kernax.core.base.powers import in_own_unit
from kernax.core.losses.loss_functions import AbstractPiecewiseLinearLoss
from kernax.core.operators.operators import AbstractGram


class BoxProblem(eqx.Module):
    """Minimise `1/2 b.K b - targets.b + epsilon |b|_1` over `low <= b <= high`, `sum b = total`.

    `total=None` leaves the sum unconstrained, and the bias is then zero. `scale` is the size of the
    targets, in units of f: tolerances are relative to it. `inside` marks a total that may not be
    zero; the bias is then so large that no point is outside by rounding where the total is below
    every bound.

    Where `second` marks the points of a second group, total holds two numbers: the sums of the
    coefficients of the first and of the second group. Each group then has a bias of its own.
    """

    operator: AbstractGram
    targets: Float[Array, " n"]
    low: Float[Array, " n"]
    high: Float[Array, " n"]
    epsilon: Float[Array, ""]
    total: Float[Array, "*groups"] | None
    scale: Float[Array, ""]
    second: Bool[Array, " n"] | None = None
    inside: bool = eqx.field(static=True, default=False)

    def residual(self, beta: Float[Array, " n"]) -> Float[Array, " n"]:
        """`targets - K b`: minus the gradient of the smooth part."""
        return self.targets - self.operator.mv(beta)

    def diagonal(self) -> Float[Array, " n"]:
        """k(x_i, x_i)."""
        return self.operator.diagonal()

    def start(self) -> Float[Array, " n"]:
        """A feasible point: zero, or the total distributed over the first points, up to their
        bounds.
        """
        if self.starts_at_zero:
            return jnp.zeros_like(self.targets)
        assert self.total is not None
        if self.second is None:
            return _filled(self.total, self.high)
        # The coefficients of a group have the sign of its total.
        sign = self.of_points(jnp.sign(self.total))
        bound = jnp.where(sign > 0, self.high, -self.low)
        size = abs(self.total)
        of_first = _filled(size[0], jnp.where(self.second, 0, bound))
        of_second = _filled(size[1], jnp.where(self.second, bound, 0))
        return sign * jnp.where(self.second, of_second, of_first)

    @property
    def starts_at_zero(self) -> bool:
        """Whether zero is feasible for every value of the programme's arrays."""
        return self.total is None or not self.inside

    def of_points(self, of_groups: Float[Array, "*groups"]) -> Float[Array, "..."]:
        """Expands a number for each group to one for each point; for one group, the number
        itself.
        """
        if self.second is None:
            return of_groups
        return jnp.where(self.second, of_groups[1], of_groups[0])

    def over_groups(self, reduced: Callable, v: Array, absent: Any) -> Array:
        """`reduced(v)` over the points of each group. `absent` is the neutral element of `reduced`.

        v is (n,), or (n, k) for several numbers of each point.
        """
        if self.second is None:
            return reduced(v)
        second = expand_to(self.second, v)
        of_first = reduced(jnp.where(second, absent, v))
        return jnp.stack([of_first, reduced(jnp.where(second, v, absent))])

    def in_groups(self, v: Array, absent: Any) -> list[Array]:
        """One vector for each group: v at the points of the group, and `absent` elsewhere."""
        if self.second is None:
            return [v]
        return [jnp.where(self.second, absent, v), jnp.where(self.second, v, absent)]

    def sums(self, beta: Float[Array, "n *k"]) -> Float[Array, "*groups_and_k"]:
        """The sum of the coefficients of each group; for k columns, k sums of each group."""
        return self.over_groups(lambda v: jnp.sum(v, 0), beta, 0)

    def off(self, point: "DualPoint") -> Float[Array, " n"]:
        """`targets - K b - bias`, with the bias of each point's group."""
        return point.residual - self.of_points(point.bias)

    def submatrix(self, places: Int[Array, " m"]) -> Float[Array, "m m"]:
        """The rows and columns of K at `places`; only these are computed if K is matrix-free."""
        return self.operator.submatrix(places)

    def part_product(
        self, places: Int[Array, " m"], values: Float[Array, " m"]
    ) -> Float[Array, " n"]:
        """`K[:, places] @ values`."""
        return self.operator.columns_product(places, values)


def _filled(total: Float[Array, ""], bound: Float[Array, " n"]) -> Float[Array, " n"]:
    """Numbers between 0 and a bound that sum to a total >= 0: the first ones are as large as
    possible.
    """
    # b_i = clip(total - sum_{j < i} min(bound_j, total), 0, bound_i).
    room = jnp.minimum(bound, total)
    before = jnp.concatenate([jnp.zeros_like(room[:1]), jnp.cumsum(room)[:-1]])
    return jnp.clip(total - before, 0, bound)


class DualPoint(eqx.Module):
    """A feasible point of the programme, its residual and bias, and the steps taken so far.

    With two groups the bias is two numbers.

    Attributes:
        free: which points are free: strictly between zero and a bound.
        some_free: whether a point is free, in each group.
        violation: how far optimality is violated by the pair that violates it most.
        rounding: the size of rounding errors in f at the points that count, and so in a violation.
    """

    beta: Float[Array, " n"]
    residual: Float[Array, " n"]
    bias: Float[Array, "*groups"]
    steps: Int[Array, ""]
    free: Bool[Array, " n"]
    some_free: Bool[Array, "*groups"]
    violation: Float[Array, ""]
    rounding: Float[Array, ""]

    @staticmethod
    def of(
        problem: BoxProblem,
        beta: Float[Array, " n"],
        residual: Float[Array, " n"],
        steps: Int[Array, ""],
        bias: Float[Array, "*groups"] | None = None,
    ) -> "DualPoint":
        """The point with these coefficients.

        If the bias is None, it is the mean of the biases that satisfy the conditions of optimality
        of the free points, or without any the midpoint of those that satisfy the others'.
        """
        # In one loop over the points: the interval of optimal biases, the number of free points and
        # the sum of their biases, and the size of f.
        free = (beta != 0) & (beta < problem.high) & (beta > problem.low)
        # A free point is optimal where residual_i - epsilon sign(b_i) = bias.
        biases = where_or(free, residual - problem.epsilon * jnp.sign(beta), 0.0)
        sums = [*problem.in_groups(free.astype(beta.dtype), 0), *problem.in_groups(biases, 0)]
        f = where_or(counted_points(problem), abs(problem.targets - residual), 0.0)
        sums, (of_f, *ends) = sums_and_maxima(sums, [f, *_slopes(problem, beta, residual)])
        top, bottom = _interval(problem, ends)
        count, total = jnp.stack(sums).reshape(2, *top.shape)
        if problem.total is None:
            bias = jnp.zeros((), beta.dtype)
        elif bias is None:
            # The mean bias of the free points; where no point of a group is free, the midpoint of
            # the interval.
            bias = where(count > 0, total / jnp.maximum(count, 1), middle(top, bottom))
        size = problem.scale + of_f
        return DualPoint(
            beta=beta,
            residual=residual,
            bias=bias,
            steps=steps,
            free=free,
            some_free=count > 0,
            violation=_width(top, bottom),
            rounding=16 * eps_of(size) * size,
        )


def counted_points(problem: BoxProblem) -> Bool[Array, " n"]:
    """Which points count: all except those of weight zero, which have two bounds of zero.

    At a point of weight zero f may be far larger, and so may its rounding error, which must not
    count.
    """
    return problem.low != problem.high


def one_sided_slopes(
    beta: Float[Array, "*n"],
    residual: Float[Array, "*n"],
    low: Float[Array, "*n"],
    high: Float[Array, "*n"],
    epsilon: Float[Array, "..."],
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """Minus the derivatives of the objective in each coefficient, for a rise and for a fall.

    The first is -inf for a coefficient at its upper bound, the second +inf for one at its lower
    bound; they differ by 2 epsilon at zero, where |b| has a kink. A point is optimal where no rise
    of a coefficient gains more than the fall of another one costs: `max(up) <= min(down)`. Without
    an epsilon the finite entries are the sets I_up and I_low of Keerthi et al. (2001), and of Fan,
    Chen & Lin (2005).
    """
    # residual - epsilon d|b|/db: the one-sided derivatives of |b| are sign(b), and at zero +1 for a
    # rise and -1 for a fall.
    up = where_or(beta < high, residual - where(beta >= 0, epsilon, -epsilon), -jnp.inf)
    down = where_or(beta > low, residual - where(beta > 0, epsilon, -epsilon), jnp.inf)
    return up, down


def _slopes(
    problem: BoxProblem, beta: Float[Array, " n"], residual: Float[Array, " n"]
) -> list[Float[Array, " n"]]:
    """The slopes up, and minus the slopes down, each for the points of each group."""
    up, down = one_sided_slopes(beta, residual, problem.low, problem.high, problem.epsilon)
    return [*problem.in_groups(up, -jnp.inf), *problem.in_groups(-down, -jnp.inf)]


def _interval(
    problem: BoxProblem, ends: list[Float[Array, ""]]
) -> tuple[Float[Array, "*groups"], Float[Array, "*groups"]]:
    """`m(b) = max(up)` and `M(b) = min(down)` in each group, from the maxima of `_slopes`."""
    if problem.second is not None:
        return jnp.stack(ends[:2]), -jnp.stack(ends[2:])
    top, bottom = ends[0], -ends[1]
    if problem.total is None:
        return jnp.maximum(top, 0), jnp.minimum(bottom, 0)
    return top, bottom


def bias_interval(
    problem: BoxProblem, beta: Float[Array, " n"], residual: Float[Array, " n"]
) -> tuple[Float[Array, "*groups"], Float[Array, "*groups"]]:
    """`m(b) = max(up)` and `M(b) = min(down)` of the slopes (Fan, Chen & Lin 2005), in each group.

    At a solution m is no larger than M, and every bias in between is optimal. Where the sum is
    unconstrained, coefficients move one by one and the bias is zero: m is then at least zero, and M
    at most zero. Derivatives treat it as a constant.
    """
    _, ends = sums_and_maxima([], _slopes(problem, beta, residual))
    return _interval(problem, ends)


def bias_without_free_points(
    problem: BoxProblem, beta: Float[Array, " n"], residual: Float[Array, " n"]
) -> Float[Array, "*groups"]:
    """The `middle` of `bias_interval` for a sum that is constrained, differentiable.

    The derivative of an end is the mean of those of the points at this end.
    """
    slopes = _slopes(problem, beta, residual)
    _, ends = sums_and_maxima([], slopes)
    at_ends = [(v == end) & jnp.isfinite(end) for v, end in zip(slopes, ends)]
    counts, _ = sums_and_maxima([at_end.astype(beta.dtype) for at_end in at_ends], [])
    of_ends = list(zip(slopes, at_ends, counts))
    n_groups = len(slopes) // 2
    biases = []
    for of_top, of_bottom in zip(of_ends[:n_groups], of_ends[n_groups:]):
        up, at_top, n_top = of_top
        minus_down, at_bottom, n_bottom = of_bottom
        # (m + M) / 2, or the one of them that is finite. An end is the mean of the slopes at it.
        n_ends = jnp.where((n_top > 0) & (n_bottom > 0), 2, 1).astype(beta.dtype)
        share_of_top = where_or(at_top, up / jnp.maximum(n_top * n_ends, 1), 0.0)
        share_of_bottom = where_or(at_bottom, minus_down / jnp.maximum(n_bottom * n_ends, 1), 0.0)
        biases.append(jnp.sum(share_of_top - share_of_bottom))
    return biases[0] if problem.second is None else jnp.stack(biases)


def violation(
    problem: BoxProblem, beta: Float[Array, " n"], residual: Float[Array, " n"]
) -> Float[Array, ""]:
    """`m(b) - M(b)`: how far the pair that violates optimality most violates it, in the group where
    it violates it more.
    """
    _, ends = sums_and_maxima([], _slopes(problem, beta, residual))
    return _width(*_interval(problem, ends))


def _width(top: Float[Array, "*groups"], bottom: Float[Array, "*groups"]) -> Float[Array, ""]:
    """`m(b) - M(b)`, in the group where it is larger."""
    return jnp.max(top - bottom)


def with_all_points_inside(point: DualPoint, problem: BoxProblem) -> DualPoint:
    """Raises the bias until no `(K b)_i + bias` is negative by rounding, where the total is below
    every bound.

    This happens for one class and a small nu. No point is then outside, and a point that is outside
    only by the rounding of f would add its whole weight to the objective, which may be far smaller.
    """
    if problem.total is None or not problem.inside:
        return point
    counted = counted_points(problem)
    total = stop_gradient(problem.total)
    residual, off = stop_gradient((point.residual, problem.off(point)))
    # The coefficients of a group have the sign of its total, and that is the side outside.
    sign = jnp.sign(total)
    of_points = problem.of_points(sign)
    bound = jnp.where(of_points > 0, problem.high, -problem.low)
    bound = jnp.where(counted, bound, jnp.inf)
    outside = jnp.where(counted, of_points * off, -jnp.inf)
    smallest = problem.over_groups(jnp.min, bound, jnp.inf)
    most_outside = problem.over_groups(jnp.max, outside, -jnp.inf)
    most = jnp.max(abs(residual), where=counted, initial=0)
    # The largest sign * off_i, plus the rounding of f.
    lift = jnp.maximum(most_outside, 0) + 8 * eps_of(most) * most
    lift = jnp.where(abs(total) < stop_gradient(smallest), sign * lift, 0)
    return dataclasses.replace(point, bias=point.bias + lift)


def middle(
    top: Float[Array, "*groups"], bottom: Float[Array, "*groups"]
) -> Float[Array, "*groups"]:
    """The midpoint of an interval; where one end is infinite, the other end."""
    bounded = jnp.isfinite(top) & jnp.isfinite(bottom)
    ends = where_or(jnp.isfinite(top), top, 0.0) + where_or(jnp.isfinite(bottom), bottom, 0.0)
    return ends / jnp.where(bounded, 2, 1).astype(top.dtype)


def dual_of_loss(
    operator: AbstractGram,
    loss: AbstractPiecewiseLinearLoss,
    y: Float[Array, " n"],
    c: Float[Array, " n"],
    bias: bool,
    scale: Float[Array, ""],
) -> BoxProblem:
    """The dual of `sum_i c_i L(y_i, f(x_i) + b) + 1/2 |f|^2`."""
    targets, low, high, epsilon = loss.box(y, c)
    total = jnp.zeros((), y.dtype) if bias else None
    return BoxProblem(operator, targets, low, high, epsilon, total, scale)


def size_of_targets(
    y: Float[Array, " n"], weights: Float[Array, " n"], bias: bool
) -> Float[Array, ""]:
    """The root mean square of the targets that have a weight, about their mean if there is a bias;
    one if it is zero. Derivatives treat it as a constant, because no solution depends on it.
    """
    present = weights > 0
    y = jnp.where(present, stop_gradient(y), 0)
    y, unit = in_own_unit(y)  # so that no square over- or underflows
    count = jnp.sum(present, dtype=y.dtype)
    mean = jnp.sum(y) / count if bias else jnp.zeros((), y.dtype)
    squares = jnp.where(present, (y - mean) ** 2, 0)
    size = jnp.sqrt(jnp.sum(squares) / count) * unit
    return positive_or_one(size)
