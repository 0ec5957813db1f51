"""What is known of a machine once it is found: the gap to the best one, and whether rounding lets that be known."""

import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.gram import GramOperator
from kernax.supervised.dual import BoxProblem, Point, ScaledOperator


def rounding_of(point: Point, problem: BoxProblem) -> Float[Array, ""]:
    """What rounding makes of f, and of a violation."""
    size = problem.scale + jnp.max(abs(problem.targets - point.residual))
    return 16 * float(jnp.finfo(size.dtype).eps) * size


def survives_rounding(point: Point, problem: BoxProblem, objective: Float[Array, ""], tol: float) -> Bool[Array, ""]:
    """Whether what rounding may have made of `K b` is small: of `f + bias`, or in what it does to the gap.

    Where the terms of K b cancel, a gap computed from them is consistent and wrong. Without targets, as for one class, f is
    small next to itself alone.
    """
    lost = _lost_in_products(point, problem, tol)
    off = point.residual - point.bias
    of_targets = problem.scale + jnp.max(abs(problem.targets - off))
    of_f = jnp.max(abs(problem.targets - point.residual))
    size = jnp.where(jnp.any(problem.targets != 0), of_targets, of_f)
    worst = jnp.maximum(_gap_of_points(point, problem, off + lost), _gap_of_points(point, problem, off - lost))
    return (lost <= tol * size) | (jnp.sum(worst) <= tol * objective)


def _lost_in_products(point: Point, problem: BoxProblem, tol: float) -> Float[Array, ""]:
    """What rounding makes of `K b`: `8 eps max_i sqrt(sum_j (K_ij b_j)^2)`.

    Roundings of K add up like a random walk, and those of the sum to a few times as much: between 2 and 8 times the root
    for linear kernels and Gaussian ones, in both precisions. By Cauchy and Schwarz `K_ij^2 <= K_ii K_jj`; only where that says
    that something might be lost is K looked at again.
    """
    slight = 8 * float(jnp.finfo(point.beta.dtype).eps)
    diagonal = jnp.maximum(problem.diagonal(), 0)
    most = slight * jnp.sqrt(jnp.max(diagonal)) * jnp.sqrt(jnp.sum(diagonal * point.beta**2))
    looked_at = lambda: slight * jnp.sqrt(jnp.max(squares_in_products(problem.operator, point.beta)))
    return lax.cond(most > tol * problem.scale, looked_at, lambda: most)


def _gap_of_points(point: Point, problem: BoxProblem, off: Float[Array, " n"]) -> Float[Array, " n"]:
    """What each point adds to the gap if it is off by so much; not negative, but for rounding.

    An infinite bound counts as one far beyond the largest coefficient, which has the same solution.
    """
    beta, variance = point.beta, jnp.max(problem.diagonal())
    ample = 10 * jnp.max(abs(beta)) + problem.scale / jnp.where(variance > 0, variance, 1)
    low = jnp.where(jnp.isinf(problem.low), -ample, problem.low)
    high = jnp.where(jnp.isinf(problem.high), ample, problem.high)
    loss = high * jnp.maximum(off - problem.epsilon, 0) + low * jnp.minimum(off + problem.epsilon, 0)
    return jnp.maximum(loss - beta * off + problem.epsilon * abs(beta), 0)


def certificate(point: Point, problem: BoxProblem) -> dict[str, Array]:
    """Primal and dual objective, and their difference, a sum of one non-negative term a point, computed as that sum.

    What is off by a rounding of f is not off: targets that differ by as little have this gap. The relative gap, on which
    success is decided, also counts what the sum of the coefficients lacks of its total, at the steepest slope.
    """
    beta, residual = point.beta, point.residual
    off = residual - point.bias
    off = jnp.sign(off) * jnp.maximum(abs(off) - rounding_of(point, problem), 0)
    gap = jnp.sum(_gap_of_points(point, problem, off))
    fitted = problem.targets - residual
    dual = jnp.sum(beta * (problem.targets - fitted / 2)) - problem.epsilon * jnp.sum(abs(beta))
    on = beta != 0
    bounded = on & ((beta >= problem.high) | (beta <= problem.low))
    counts = {"support": jnp.sum(on), "bounded": jnp.sum(bounded), "free": jnp.sum(on & ~bounded)}
    objective = jnp.maximum(abs(dual + gap), abs(dual))
    missing = jnp.zeros((), beta.dtype) if problem.total is None else abs(problem.total - jnp.sum(beta))
    relative = (gap + missing * jnp.max(abs(off))) / jnp.where(objective > 0, objective, 1)
    return {"primal": dual + gap, "dual": dual, "gap": gap, "relative_gap": relative} | counts


def squares_in_products(operator: lx.AbstractLinearOperator, vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """`sum_j (K_ij v_j)^2` for each row i."""
    if isinstance(operator, ScaledOperator):
        return squares_in_products(operator.operator, operator.gain * vector)
    if isinstance(operator, GramOperator):
        row = lambda x: jnp.sum((jax.vmap(lambda z: operator.kernel(x, z))(operator.points) * vector) ** 2)
        return lax.map(row, operator.points, batch_size=operator.block_size)
    return jnp.sum((operator.as_matrix() * vector[None, :]) ** 2, 1)


def seen_indefinite(operator: lx.AbstractLinearOperator) -> Bool[Array, ""]:
    """Whether some pair of points has `K_ij^2 > K_ii K_jj` beyond rounding, or a point has K_ii < 0, which no positive
    semidefinite matrix does. One look at a K that is held; another one is believed.
    """
    if not isinstance(operator, lx.MatrixLinearOperator):
        return jnp.zeros((), bool)
    K, diagonal = operator.matrix, lx.diagonal(operator)
    slack = 8 * float(jnp.finfo(K.dtype).eps) ** (2 / 3)
    root = jnp.sqrt(jnp.maximum(diagonal, 0))
    return jnp.any(abs(K) > (1 + slack) * root[:, None] * root[None, :] + slack * jnp.max(abs(diagonal)))
