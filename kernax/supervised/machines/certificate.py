"""The duality gap of a point of the programme, and whether rounding errors may hide a larger gap.

The gap is that of Fenchel duality. With coefficients b and `off_i = targets_i - (K b)_i - bias` it
is a sum over points of

    max over low_i <= c <= high_i of (c off_i - epsilon |c|)  -  (b_i off_i - epsilon |b_i|),

which is zero where a point satisfies its condition of optimality.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import eps_of, positive_or_one
from kernax.core.operators.operators import AbstractGram
from kernax.supervised.machines.box_problem import BoxProblem, DualPoint, largest


def certificate(point: DualPoint, problem: BoxProblem, tol: Any = 0.0) -> dict[str, Array]:
    """The primal and dual objectives, their gap, and the number of support vectors of each kind.

    The gap is computed as a sum of non-negative terms, not as a difference. Where the gap exceeds
    `tol` times the objective, it is computed again with every `off_i` moved towards zero by the
    rounding error of f. The relative gap, which decides about success, also contains the term
    `|total - sum b| max_i |off_i|` where the sum is not free. Points of weight zero enter none of
    these.
    """
    off = problem.off(point)
    moved = jnp.sign(off) * jnp.maximum(abs(off) - point.rounding, 0)
    offs = jnp.stack([off, moved], 1)
    # The dual objective is `targets.b - 1/2 b.K b - epsilon |b|_1`.
    beta = point.beta
    fitted = problem.targets - point.residual
    in_dual = beta * (problem.targets - fitted / 2) - problem.epsilon * abs(beta)
    # All sums over points are taken in one call, and so are all maxima: XLA compiles one loop for
    # each kind.
    sums = problem.sums(jnp.stack([in_dual, beta], 1))
    dual = jnp.sum(sums[..., 0])
    missing = _missing(sums[..., 1], problem)
    sizes = jnp.stack([problem.diagonal(), abs(beta), abs(off), abs(moved)], 1)
    variance, coefficient, *largest_offs = largest(sizes, problem)
    # The gap and the primal objective for both values of `off`.
    ample = _ample(problem, variance, coefficient)
    gaps = jnp.sum(_gaps_of_points(point, problem, offs, ample), 0)
    primals = dual + gaps
    objectives = jnp.maximum(abs(primals), abs(dual))
    of_total = missing * jnp.stack(largest_offs)
    relative_gaps = (gaps + of_total) / positive_or_one(objectives)
    which = (relative_gaps[0] > tol).astype(jnp.int32)
    figures = jnp.stack([primals, gaps, relative_gaps])[:, which]
    stats = {"primal": figures[0], "dual": dual, "gap": figures[1], "relative_gap": figures[2]}
    # The number of support vectors, of those at a bound, and of the free ones.
    support = point.beta != 0
    bounded = support & ((point.beta >= problem.high) | (point.beta <= problem.low))
    of_support, of_bounded = jnp.sum(jnp.stack([support, bounded], 1), 0)
    counts = {"support": of_support, "bounded": of_bounded, "free": of_support - of_bounded}
    return stats | counts


def objective_size(stats: dict[str, Array]) -> Float[Array, ""]:
    """The larger absolute value of the primal and the dual objective."""
    return jnp.maximum(abs(stats["primal"]), abs(stats["dual"]))


def _missing(sums: Float[Array, "*groups"], problem: BoxProblem) -> Float[Array, ""]:
    """`|total - sum b|`, added up over both groups; zero where the sum is free."""
    if problem.total is None:
        return jnp.zeros_like(sums)
    missing = abs(problem.total - sums)
    return missing if problem.second is None else jnp.sum(missing)


def _ample(
    problem: BoxProblem, variance: Float[Array, ""], coefficient: Float[Array, ""]
) -> Float[Array, ""]:
    """A finite bound to use in place of an infinite one, so far beyond the largest coefficient that
    the solution is the same.
    """
    return 10 * coefficient + problem.scale / positive_or_one(variance)


def _gaps_of_points(
    point: DualPoint, problem: BoxProblem, offs: Float[Array, "n k"], ample: Float[Array, ""]
) -> Float[Array, "n k"]:
    """The term of each point in the gap, for several values of `off`; at least zero."""
    low = jnp.where(jnp.isinf(problem.low), -ample, problem.low)[:, None]
    high = jnp.where(jnp.isinf(problem.high), ample, problem.high)[:, None]
    beta = point.beta[:, None]
    # The maximum over c is at high where off > epsilon, at low where off < -epsilon, else at zero.
    above = high * jnp.maximum(offs - problem.epsilon, 0)
    below = low * jnp.minimum(offs + problem.epsilon, 0)
    return jnp.maximum(above + below - beta * offs + problem.epsilon * abs(beta), 0)


def survives_rounding(
    point: DualPoint, problem: BoxProblem, objective: Float[Array, ""], tol: ArrayLike
) -> Bool[Array, ""]:
    """Whether the rounding error of `K b` is small compared with `K b + bias`, or changes the gap
    little.

    Where the terms of K b cancel, the computed gap may be small although the true gap is not.
    """
    off = problem.off(point)
    diagonal = jnp.maximum(problem.diagonal(), 0)
    targets = problem.targets
    f = targets - point.residual
    f_and_bias = targets - off
    sizes = jnp.stack([diagonal, abs(point.beta), abs(targets), abs(f), abs(f_and_bias)], 1)
    variance, coefficient, of_targets, of_f, of_f_and_bias = largest(sizes, problem)

    error = _error_of_products(point, problem, diagonal, variance, tol)
    ample = _ample(problem, variance, coefficient)
    gaps = _gaps_of_points(point, problem, jnp.stack([off + error, off - error], 1), ample)
    worst_gap = jnp.sum(jnp.max(gaps, 1))
    # The size of targets and of `K b + bias`; without targets, as for one class, that of K b alone.
    size_of_values = jnp.where(of_targets != 0, problem.scale + of_f_and_bias, of_f)
    return (error <= tol * size_of_values) | (worst_gap <= tol * objective)


def _error_of_products(
    point: DualPoint,
    problem: BoxProblem,
    diagonal: Float[Array, " n"],
    variance: Float[Array, ""],
    tol: ArrayLike,
) -> Float[Array, ""]:
    """The rounding error of `K b`: `8 eps max_i sqrt(sum_j (K_ij b_j)^2)`.

    Rounding errors of K add up like a random walk, and those of the sum to a few times as much:
    measured were 2 to 8 times the root, for linear and Gaussian kernels in both precisions. By
    Cauchy and Schwarz `K_ij^2 <= K_ii K_jj`, and the diagonal is at most `variance`; K itself is
    only used where that bound is too large.
    """
    slight = 8 * eps_of(point.beta)
    bound = slight * jnp.sqrt(variance) * jnp.sqrt(jnp.sum(diagonal * point.beta**2))

    def estimate():
        squares = problem.operator.squares_in_products(point.beta)
        return slight * jnp.sqrt(largest(squares, problem))

    return lax.cond(bound > tol * problem.scale, estimate, lambda: bound)


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
