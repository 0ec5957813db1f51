"""The duality gap of a point of the programme, whether rounding errors may hide a larger gap, and
the status of a solve that ends there.

The gap is that of Fenchel duality. With coefficients b and `off_i = targets_i - (K b)_i - bias` it
is a sum over points of

    max over low_i <= c <= high_i of (c off_i - epsilon |c|)  -  (b_i off_i - epsilon |b_i|),

which is zero where a point satisfies its condition of optimality.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import traced_once
from kernax.core.base.numerics import eps_of, positive_or_one, sums_and_maxima, where, where_or
from kernax.core.base.solution import RESULTS, first_that_holds
from kernax.core.operators.operators import AbstractGram
from kernax.supervised.machines.box_problem import BoxProblem, DualPoint, counted_points


class Certificate(eqx.Module):
    """What is known about a point of the programme.

    Attributes:
        stats: the primal and dual objectives, their gap, the relative gap, and the numbers of
            support vectors.
        finite: whether the point, its objectives and its gap are finite.
        result: the status in `RESULTS` of a solve that ends at this point.
    """

    stats: dict[str, Array]
    finite: Bool[Array, ""]
    result: Any

    @staticmethod
    def of_nothing(dtype: Any) -> "Certificate":
        """A certificate with the shapes of all others, where there is no point yet."""
        zero = jnp.zeros((), dtype)
        none = jnp.zeros((), int)
        stats = {"primal": zero, "dual": zero, "gap": zero, "relative_gap": zero}
        stats |= {"support": none, "bounded": none, "free": none}
        return Certificate(stats, jnp.array(False), first_that_holds([], RESULTS.nonfinite))


@traced_once
def certificate(point: DualPoint, problem: BoxProblem, tol: ArrayLike = 0.0) -> Certificate:
    """The duality gap of a point, and the status of a solve to a relative gap of `tol` that ends
    there.

    The gap is computed as a sum of non-negative terms, not as a difference. Where the gap exceeds
    `tol` times the objective, it is computed again with every `off_i` moved towards zero by the
    rounding error of f. The relative gap, which decides about success, also contains the term
    `|total - sum b| max_i |off_i|` where the sum is not free. Points of weight zero enter none of
    these.

    Success also requires that the rounding error of `K b` is small compared with `K b + bias`, or
    changes the gap little: where the terms of K b cancel, the computed gap may be small although
    the true gap is not.
    """
    beta = point.beta
    targets = problem.targets
    counted = counted_points(problem)
    diagonal = jnp.maximum(problem.diagonal(), 0)
    off = problem.off(point)
    moved = jnp.sign(off) * jnp.maximum(abs(off) - point.rounding, 0)
    f = targets - point.residual
    sizes = [diagonal, abs(beta), abs(off), abs(moved), abs(targets), abs(f), abs(targets - off)]
    # With a hard margin the dual is unbounded where the points are not separable. Some point is
    # then as far on the wrong side of the margin as at f = 0.
    hard_above = jnp.isinf(problem.high)
    hard_below = jnp.isinf(problem.low)
    far = problem.epsilon + 0.999 * problem.scale
    far_off = (hard_above & (off >= far)) | (hard_below & (off <= -far))
    unknown = ~(jnp.isfinite(problem.diagonal()) & jnp.isfinite(targets))
    support = beta != 0
    bounded = support & ((beta >= problem.high) | (beta <= problem.low))
    # The dual objective is `targets.b - 1/2 b.K b - epsilon |b|_1`.
    in_dual = beta * (targets - f / 2) - problem.epsilon * abs(beta)

    # The first loop over the points.
    n_groups = 1 if problem.second is None else 2
    (dual, of_squares, n_support, n_bounded, *of_groups), maxima = sums_and_maxima(
        [
            in_dual,
            diagonal * beta**2,
            support.astype(int),
            bounded.astype(int),
            *problem.in_groups(beta, 0),
        ],
        [
            *(where_or(counted, size, 0.0) for size in sizes),
            hard_above | hard_below,
            far_off,
            unknown,
            ~jnp.isfinite(beta),
        ],
    )
    variance, coefficient, most_off, most_moved, of_targets, of_f, of_f_and_bias = maxima[:7]
    is_hard, is_far_off, some_unknown, some_infinite = maxima[7:]
    missing = jnp.zeros_like(dual)
    if problem.total is not None:
        totals = problem.total.reshape(n_groups)
        missing = jnp.sum(abs(totals - jnp.stack(of_groups)))

    # The rounding error of `K b`.
    error = _error_of_products(point, problem, variance, of_squares, tol)
    # In place of an infinite bound one so far beyond the largest coefficient that the solution is
    # the same.
    ample = 10 * coefficient + problem.scale / positive_or_one(variance)
    low = jnp.where(hard_below, -ample, problem.low)
    high = jnp.where(hard_above, ample, problem.high)

    def gaps_of_points(off: Float[Array, " n"]) -> Float[Array, " n"]:
        # The maximum over c is at high where off > epsilon, at low where off < -epsilon, else at
        # zero.
        above = high * jnp.maximum(off - problem.epsilon, 0)
        below = low * jnp.minimum(off + problem.epsilon, 0)
        return jnp.maximum(above + below - beta * off + problem.epsilon * abs(beta), 0)

    # The second loop over the points.
    worst = jnp.maximum(gaps_of_points(off + error), gaps_of_points(off - error))
    (gap, gap_moved, worst_gap), _ = sums_and_maxima(
        [gaps_of_points(off), gaps_of_points(moved), worst], []
    )

    def relative(gap: Float[Array, ""], most_off: Float[Array, ""]) -> Float[Array, ""]:
        objective = jnp.maximum(abs(dual + gap), abs(dual))
        return (gap + missing * most_off) / positive_or_one(objective)

    is_moved = relative(gap, most_off) > tol
    gap = where(is_moved, gap_moved, gap)
    relative_gap = relative(gap, where(is_moved, most_moved, most_off))
    primal = dual + gap
    objective = jnp.maximum(abs(primal), abs(dual))

    # The size of targets and of `K b + bias`; without targets, as for one class, that of K b alone.
    size_of_values = where(of_targets != 0, problem.scale + of_f_and_bias, of_f)
    survives = (error <= tol * size_of_values) | (worst_gap <= tol * objective)
    finite = jnp.isfinite(relative_gap) & jnp.isfinite(primal) & jnp.isfinite(dual)
    finite = finite & jnp.all(jnp.isfinite(point.bias)) & ~some_infinite
    closed = relative_gap <= tol
    cut_short = missed_its_goal(point, problem, tol)
    result = first_that_holds(
        [
            (~finite & is_hard & ~some_unknown, RESULTS.diverged),
            (~finite, RESULTS.nonfinite),
            (~closed & cut_short & is_far_off, RESULTS.diverged),
            (closed & survives, RESULTS.successful),
            (~closed & cut_short, RESULTS.max_steps_reached),
        ],
        otherwise=RESULTS.inaccurate,
    )
    stats = {"primal": primal, "dual": dual, "gap": gap, "relative_gap": relative_gap}
    counts = {"support": n_support, "bounded": n_bounded, "free": n_support - n_bounded}
    return Certificate(stats | counts, finite, result)


def _error_of_products(
    point: DualPoint,
    problem: BoxProblem,
    variance: Float[Array, ""],
    of_squares: Float[Array, ""],
    tol: ArrayLike,
) -> Float[Array, ""]:
    """The rounding error of `K b`: `8 eps max_i sqrt(sum_j (K_ij b_j)^2)`.

    Rounding errors of K add up like a random walk, and those of the sum to a few times as much:
    measured were 2 to 8 times the root, for linear and Gaussian kernels in both precisions. By
    Cauchy and Schwarz `K_ij^2 <= K_ii K_jj`, and the diagonal is at most `variance`; K itself is
    only used where that bound, with `of_squares = sum_j K_jj b_j^2`, is too large.
    """
    slight = 8 * eps_of(point.beta)
    bound = slight * jnp.sqrt(variance) * jnp.sqrt(of_squares)

    def estimate():
        squares = problem.operator.squares_in_products(point.beta)
        return slight * jnp.sqrt(jnp.max(squares, where=counted_points(problem), initial=0))

    return lax.cond(bound > tol * problem.scale, estimate, lambda: bound)


def missed_its_goal(point: DualPoint, problem: BoxProblem, tol: ArrayLike) -> Bool[Array, ""]:
    """Whether the violation is above a tolerance relative to the targets, as when the steps ran
    out.

    A solver with steps left ends below the tolerance; the factor 2 is for the rounding of its own
    violation.
    """
    return point.violation > 2 * tol * problem.scale + point.rounding


def seen_indefinite(operator: AbstractGram, weights: Float[Array, " n"]) -> Bool[Array, ""]:
    """Whether an entry has `K_ij^2 > K_ii K_jj` beyond rounding, or a `K_ii < 0`, among the points
    of positive weight.

    A positive semidefinite matrix has neither. A matrix-free K is not tested: the answer is then
    False.
    """
    if not operator.is_dense:
        return jnp.zeros((), bool)
    K = operator.as_matrix()
    present = weights > 0
    diagonal = jnp.where(present, operator.diagonal(), 0)
    slack = 8 * eps_of(K) ** (2 / 3)
    root = jnp.sqrt(jnp.maximum(diagonal, 0))
    most = (1 + slack) * root[:, None] * root[None, :] + slack * jnp.max(abs(diagonal))
    return jnp.any((abs(K) > most) & present[:, None] & present[None, :])
