"""The duality gap of a point of the programme, and whether rounding errors may hide a larger one.

The gap is that of Fenchel duality. With coefficients b and `off_i = targets_i - (K b)_i - bias` it
is a sum over points of

    max over low_i <= c <= high_i of (c off_i - epsilon |c|)  -  (b_i off_i - epsilon |b_i|),

which is zero where a point satisfies its condition of optimality.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Bool, Float

from kernax.core.base.numerics import eps_of, positive_or_one
from kernax.core.operators.operators import AbstractGram
from kernax.supervised.machines.box_problem import BoxProblem, Point, counted_points


def certificate(point: Point, problem: BoxProblem, tol: Any = 0.0) -> dict[str, Array]:
    """The primal and dual objectives, their gap, and the number of support vectors of each kind.

    The gap is computed as a sum of non-negative terms, not as a difference. Only where it is above
    `tol` of the objective, every `off_i` is moved towards zero by the rounding error of f. The
    relative gap, from which success is decided, also has the term `|total - sum b| max_i |off_i|`
    where the sum is not free. Points of weight zero enter none of these.
    """
    off = problem.off(point)
    moved = jnp.sign(off) * jnp.maximum(abs(off) - rounding_of(point, problem), 0)
    offs = jnp.stack([off, moved])
    missing = _missing(point, problem)
    # The dual objective is `targets.b - 1/2 b.K b - epsilon |b|_1`.
    beta = point.beta
    fitted = problem.targets - point.residual
    smooth = jnp.sum(beta * (problem.targets - fitted / 2))
    dual = smooth - problem.epsilon * jnp.sum(abs(beta))
    # The gap and the primal objective for both values of `off`.
    gaps = jnp.sum(_gaps_of_points(point, problem, offs), 1)
    primals = dual + gaps
    objectives = jnp.maximum(abs(primals), abs(dual))
    of_total = missing * jax.vmap(lambda off: _largest(abs(off), problem))(offs)
    relative_gaps = (gaps + of_total) / positive_or_one(objectives)
    which = (relative_gaps[0] > tol).astype(jnp.int32)
    figures = jnp.stack([primals, gaps, relative_gaps])[:, which]
    stats = {"primal": figures[0], "dual": dual, "gap": figures[1], "relative_gap": figures[2]}
    # The number of support vectors, of those at a bound, and of the free ones.
    support = point.beta != 0
    bounded = support & ((point.beta >= problem.high) | (point.beta <= problem.low))
    counts = {
        "support": jnp.sum(support),
        "bounded": jnp.sum(bounded),
        "free": jnp.sum(support & ~bounded),
    }
    return stats | counts


def objective_size(stats: dict[str, Array]) -> Float[Array, ""]:
    """The larger absolute value of the primal and the dual objective."""
    return jnp.maximum(abs(stats["primal"]), abs(stats["dual"]))


def _largest(sizes: Float[Array, " n"], problem: BoxProblem) -> Float[Array, ""]:
    """The largest of sizes >= 0 at the points that count.

    At a point of weight zero f may be far larger, and with it a rounding error that is not theirs.
    """
    return jnp.max(sizes, where=counted_points(problem), initial=0)


def _missing(point: Point, problem: BoxProblem) -> Float[Array, ""]:
    """`|total - sum b|`, that of both groups; zero where the sum is free."""
    if problem.total is None:
        return jnp.zeros((), point.beta.dtype)
    missing = abs(problem.total - problem.sums(point.beta))
    return missing if problem.second is None else jnp.sum(missing)


def _gaps_of_points(
    point: Point, problem: BoxProblem, offs: Float[Array, "k n"]
) -> Float[Array, "k n"]:
    """The term of each point in the gap, for several values of `off`; at least zero."""
    # The bounds; for infinite ones, bounds so far beyond the largest coefficient that the solution
    # is the same.
    variance = _largest(problem.diagonal(), problem)
    ample = 10 * jnp.max(abs(point.beta)) + problem.scale / positive_or_one(variance)
    low = jnp.where(jnp.isinf(problem.low), -ample, problem.low)
    high = jnp.where(jnp.isinf(problem.high), ample, problem.high)
    beta = point.beta
    of_epsilon = problem.epsilon * abs(beta)

    def gap_of_points(off):
        above = high * jnp.maximum(off - problem.epsilon, 0)
        below = low * jnp.minimum(off + problem.epsilon, 0)
        return jnp.maximum(above + below - beta * off + of_epsilon, 0)

    return jax.vmap(gap_of_points)(offs)


def rounding_of(point: Point, problem: BoxProblem) -> Float[Array, ""]:
    """The size of rounding errors in f at the points that count, and so in a violation."""
    size = problem.scale + _largest(abs(problem.targets - point.residual), problem)
    return 16 * eps_of(size) * size


def survives_rounding(
    point: Point, problem: BoxProblem, objective: Float[Array, ""], tol: ArrayLike
) -> Bool[Array, ""]:
    """Whether the rounding error of `K b` is small beside `K b + bias`, or moves the gap little.

    Where the terms of K b cancel, the gap that is computed from them may be small and wrong.
    """
    error = _error_of_products(point, problem, tol)
    off = problem.off(point)
    gaps = _gaps_of_points(point, problem, jnp.stack([off + error, off - error]))
    worst_gap = jnp.sum(jnp.max(gaps, 0))
    return (error <= tol * _size_of_values(point, problem)) | (worst_gap <= tol * objective)


def _size_of_values(point: Point, problem: BoxProblem) -> Float[Array, ""]:
    """The size of targets and of `K b + bias`; of K b alone without targets, as for one class."""
    off = problem.off(point)
    of_targets = problem.scale + _largest(abs(problem.targets - off), problem)
    of_f = _largest(abs(problem.targets - point.residual), problem)
    return jnp.where(jnp.any(problem.targets != 0), of_targets, of_f)


def _error_of_products(point: Point, problem: BoxProblem, tol: ArrayLike) -> Float[Array, ""]:
    """The rounding error of `K b`: `8 eps max_i sqrt(sum_j (K_ij b_j)^2)`.

    Rounding errors of K add up like a random walk, and those of the sum to a few times as much:
    between 2 and 8 times the root was measured for linear and Gaussian kernels, in both precisions.
    By Cauchy and Schwarz `K_ij^2 <= K_ii K_jj`; only where that bound is too large is K read again.
    """
    slight = 8 * eps_of(point.beta)
    diagonal = jnp.maximum(problem.diagonal(), 0)
    largest = jnp.sqrt(_largest(diagonal, problem))
    bound = slight * largest * jnp.sqrt(jnp.sum(diagonal * point.beta**2))

    def estimate():
        squares = problem.operator.squares_in_products(point.beta)
        return slight * jnp.sqrt(_largest(squares, problem))

    return lax.cond(bound > tol * problem.scale, estimate, lambda: bound)


def seen_indefinite(operator: AbstractGram, weights: Float[Array, " n"]) -> Bool[Array, ""]:
    """Whether some entry has `K_ij^2 > K_ii K_jj` beyond rounding, or some `K_ii < 0`, of points of
    positive weight.

    No positive semidefinite matrix has either. False for a K that is not held, which is not tested.
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
