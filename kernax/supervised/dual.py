"""The one quadratic programme behind support vector machines.

    minimise  1/2 b.K b - targets.b + epsilon |b|_1   subject to   low <= b <= high,  sum b = total

Here `low <= 0 <= high`, and b are the signed coefficients of the expansion `f = K b + bias`, whose
bias is the Lagrange multiplier of the sum. Classification has the labels as targets and boxes
[0, C] or [-C, 0]; regression has a box [-C, C] and an epsilon; one-class machines have no targets,
and a total. Each coefficient is free (strictly between zero and a bound), at zero, or at a bound;
once it is known which, the solution is that of a linear system (`active_set`).
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.losses import AbstractPiecewiseLinearLoss
from kernax.core.numerics import eps_of, positive_or_one, stopped
from kernax.core.operators import AbstractGram
from kernax.core.powers import exponent_of, times_power_of_two


class BoxProblem(eqx.Module):
    """Minimise `1/2 b.K b - targets.b + epsilon |b|_1` over `low <= b <= high`, `sum b = total`.

    `total=None` leaves the sum unconstrained, and the bias is then zero. `scale` is the size of the
    targets, in units of f: tolerances are relative to it. With `inside`, the bias is so large that
    no point is outside by rounding where the total is below every bound.
    """

    operator: AbstractGram
    targets: Float[Array, " n"]
    low: Float[Array, " n"]
    high: Float[Array, " n"]
    epsilon: Float[Array, ""]
    total: Float[Array, ""] | None
    scale: Float[Array, ""]
    inside: bool = eqx.field(static=True, default=False)

    def residual(self, beta: Float[Array, " n"]) -> Float[Array, " n"]:
        """`targets - K b`: minus the gradient of the smooth part."""
        return self.targets - self.operator.mv(beta)

    def diagonal(self) -> Float[Array, " n"]:
        """k(x_i, x_i)."""
        return self.operator.diagonal()

    def start(self) -> Float[Array, " n"]:
        """A feasible point: zero, or the total given to the first points, up to their bounds."""
        if self.total is None:
            return jnp.zeros_like(self.targets)
        before = jnp.concatenate(
            [jnp.zeros_like(self.high[:1]), jnp.cumsum(jnp.minimum(self.high, self.total))[:-1]]
        )
        return jnp.clip(self.total - before, 0, self.high)

    def submatrix(self, places: Int[Array, " m"]) -> Float[Array, "m m"]:
        """The rows and columns of K at `places`; only these are computed if K is not held."""
        return self.operator.submatrix(places)

    def part_product(
        self, places: Int[Array, " m"], values: Float[Array, " m"]
    ) -> Float[Array, " n"]:
        """`K[:, places] @ values`."""
        return self.operator.columns_product(places, values)


class Point(eqx.Module):
    """A feasible point of the programme, its residual and bias, and the steps taken so far."""

    beta: Float[Array, " n"]
    residual: Float[Array, " n"]
    bias: Float[Array, ""]
    steps: Int[Array, ""]


def counted_points(problem: BoxProblem) -> Bool[Array, " n"]:
    """Which points count: not those of weight zero, whose bounds are both zero."""
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
    up = jnp.where(beta < high, residual - jnp.where(beta >= 0, epsilon, -epsilon), -jnp.inf)
    down = jnp.where(beta > low, residual - jnp.where(beta > 0, epsilon, -epsilon), jnp.inf)
    return up, down


def bias_interval(
    problem: BoxProblem, beta: Float[Array, " n"], residual: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`m(b) = max(up)` and `M(b) = min(down)` of the slopes (Fan, Chen & Lin 2005).

    At a solution m is no larger than M, and every bias in between is optimal. Where the sum is
    unconstrained, coefficients move one by one and the bias is zero: m is then at least zero, and M
    at most zero.
    """
    up, down = one_sided_slopes(beta, residual, problem.low, problem.high, problem.epsilon)
    top = jnp.max(up)
    bottom = jnp.min(down)
    if problem.total is None:
        return jnp.maximum(top, 0), jnp.minimum(bottom, 0)
    return top, bottom


def violation(
    problem: BoxProblem, beta: Float[Array, " n"], residual: Float[Array, " n"]
) -> Float[Array, ""]:
    """`m(b) - M(b)`, the violation of optimality by the pair that violates it most."""
    top, bottom = bias_interval(problem, beta, residual)
    return top - bottom


def bias_of(
    problem: BoxProblem, beta: Float[Array, " n"], residual: Float[Array, " n"]
) -> Float[Array, ""]:
    """The mean of the biases that satisfy the conditions of optimality of the free points.

    Where no point is free, the middle of the interval of optimal biases.
    """
    if problem.total is None:
        return jnp.zeros((), beta.dtype)
    free = (beta != 0) & (beta < problem.high) & (beta > problem.low)
    count = jnp.sum(free, dtype=beta.dtype)
    biases = jnp.where(free, residual - problem.epsilon * jnp.sign(beta), 0)
    mean = jnp.sum(biases) / jnp.maximum(count, 1)
    top, bottom = bias_interval(problem, beta, residual)
    return jnp.where(count > 0, mean, middle(top, bottom))


def with_all_points_inside(point: Point, problem: BoxProblem) -> Point:
    """The point with a bias so large that no `(K b)_i + bias` is negative by rounding, where the
    total is below every bound.

    That is so for one class and a small nu: no point is outside, and one that is by the rounding of
    f alone would cost its whole weight, which may be far more than the objective.
    """
    if problem.total is None or not problem.inside:
        return point
    counted = counted_points(problem)
    smallest = jnp.min(problem.high, where=counted, initial=jnp.inf)
    all_inside = (problem.total > 0) & (problem.total < smallest)
    residual, bias = stopped((point.residual, point.bias))
    most_outside = jnp.max(residual - bias, where=counted, initial=-jnp.inf)
    largest = jnp.max(abs(residual), where=counted, initial=0)
    lift = jnp.maximum(most_outside, 0) + 8 * eps_of(bias) * largest
    return Point(
        point.beta, point.residual, point.bias + jnp.where(all_inside, lift, 0), point.steps
    )


def middle(top: Float[Array, ""], bottom: Float[Array, ""]) -> Float[Array, ""]:
    """The midpoint of an interval; where one end is infinite, the other end."""
    bounded = jnp.isfinite(top) & jnp.isfinite(bottom)
    ends = jnp.where(jnp.isfinite(top), top, 0) + jnp.where(jnp.isfinite(bottom), bottom, 0)
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
    one if it is zero. A constant to every derivative: no solution depends on it.
    """
    present = weights > 0
    y = jnp.where(present, stopped(y), 0)
    unit = exponent_of(jnp.max(abs(y)))  # so that no square over- or underflows
    y = times_power_of_two(y, -unit)
    count = jnp.sum(present, dtype=y.dtype)
    mean = jnp.sum(y) / count if bias else jnp.zeros((), y.dtype)
    squares = jnp.where(present, (y - mean) ** 2, 0)
    size = times_power_of_two(jnp.sqrt(jnp.sum(squares) / count), unit)
    return positive_or_one(size)
