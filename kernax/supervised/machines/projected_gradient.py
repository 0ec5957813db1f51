"""Spectral projected gradients for the dual of support vector machines.

The method is that of Birgin, Martinez & Raydan (2000). Every step is one product with K and one
exact projection, which run in parallel: it suits accelerators and batches.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_share, check_steps
from kernax.supervised.machines.box_problem import BoxProblem, violation
from kernax.supervised.machines.dual_solver import AbstractDualSolver


@renamed(tol="rtol")
class ProjectedGradient(AbstractDualSolver):
    """Spectral projected gradients for support vector machines: the solver for batches of small
    SVMs and for accelerators.

    The direction is `d = P(b + a r) - b`, where r is the residual, a the inverse of the curvature
    along the last direction (Barzilai & Borwein), and P the proximal projection onto box and
    hyperplane. The step along d minimises the objective, or with epsilon > 0 an upper bound of it
    that is exact where no coefficient changes its sign, so that the objective never rises.

    Attributes:
        rtol: the violation of optimality at which to stop, in units of the targets: LIBSVM's `tol`.
        max_steps: the largest number of products with K.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> solver = kernax.solvers.ProjectedGradient(rtol=1e-6)
        >>> solution = kernax.svm(kernax.RBF(0.3), X, y, C=10.0, solver=solver)
        >>> bool(solution.stats["relative_gap"] <= 1e-6)
        True
    """

    rtol: float | Float[Array, ""] = 1e-3
    max_steps: int | Int[Array, ""] = 10_000

    def __check_init__(self):
        check_share(self.rtol, "rtol")
        check_steps(self.max_steps)

    def solve(self, problem, beta, residual, atol):
        def go_on(now: _ProjectedDescent) -> Array:
            return (now.violation > atol) & (now.steps < self.max_steps)

        # 1 / max_i K_ii, which is no less than the inverse of the largest eigenvalue of K.
        size = 1 / jnp.maximum(jnp.max(problem.diagonal()), jnp.finfo(beta.dtype).tiny)
        violated = violation(problem, beta, residual)
        first = _ProjectedDescent(beta, residual, size, violated, jnp.zeros((), jnp.int32))
        end = lax.while_loop(go_on, lambda now: _step(problem, now), first)
        return end.beta, end.steps


class _ProjectedDescent(eqx.Module):
    """A feasible point, its residual and violation, the next step size, and the step count."""

    beta: Float[Array, " n"]
    residual: Float[Array, " n"]
    size: Float[Array, ""]
    violation: Float[Array, ""]
    steps: Int[Array, ""]


def _step(problem: BoxProblem, now: _ProjectedDescent) -> _ProjectedDescent:
    """One step along the projected gradient."""
    # b + d is the feasible c with the least 1/2 |c - (b + a r)|^2 + a epsilon |c|_1.
    ahead = now.beta + now.size * now.residual
    d = project(problem, ahead, now.size * problem.epsilon) - now.beta
    Kd = problem.operator.mv(d)
    curvature = jnp.sum(d * Kd)
    # With |b + t d|_1 replaced by its chord (1 - t) |b|_1 + t |b + d|_1, which is no less, the
    # objective falls by slope t - curvature t^2 / 2: t is the minimiser, but no larger than 1.
    chord = jnp.sum(abs(now.beta + d)) - jnp.sum(abs(now.beta))
    slope = jnp.sum(now.residual * d) - problem.epsilon * chord
    t = jnp.clip(_over_curvature(slope, curvature, otherwise=1), 0, 1)
    # `beta + t d` in the box; of a full step without the rounding of the product.
    moved = jnp.where(t == 1, now.beta + d, now.beta + t * d)
    beta = jnp.clip(moved, problem.low, problem.high)
    residual = now.residual - t * Kd
    # The next size is the inverse of the curvature along d (Barzilai & Borwein).
    size = _over_curvature(jnp.sum(d * d), curvature, otherwise=now.size)
    return _ProjectedDescent(
        beta, residual, size, violation(problem, beta, residual), now.steps + 1
    )


def _over_curvature(
    value: Float[Array, ""], curvature: Float[Array, ""], otherwise: ArrayLike
) -> Float[Array, ""]:
    """`value / curvature`, and `otherwise` where the curvature is not positive."""
    curved = curvature > 0
    return jnp.where(curved, value / jnp.where(curved, curvature, 1), otherwise)


def project(
    problem: BoxProblem, v: Float[Array, " n"], threshold: Float[Array, ""]
) -> Float[Array, " n"]:
    """The minimiser of `1/2 |b - v|^2 + threshold |b|_1` over the box and the hyperplane.

    It is `clip(soft(v - m, threshold), low, high)` with the m for which it sums to the total. The
    sum is a monotone piecewise linear function of m: m is bracketed, bisected down to one linear
    piece, and solved for exactly there. Each of two groups has a sum and an m of its own.
    """
    total = problem.total
    if total is None:
        return _soft_and_clipped(problem, v, threshold)

    def sum_exceeds_total(m: Float[Array, "*groups"]) -> Bool[Array, "*groups"]:
        moved = v - problem.of_points(m)
        return problem.sums(_soft_and_clipped(problem, moved, threshold)) > total

    # A bound on the absolute value of the m of `project`.
    largest = abs(total) + jnp.max(abs(v))  # no coefficient of the minimiser is larger
    # At m = bound no coefficient is above zero, and each is at its lower bound or below -|total|:
    # they sum to no more than the total. At m = -bound they sum to no less.
    high = jnp.max(jnp.minimum(problem.high, problem.of_points(largest)))
    low = jnp.max(jnp.minimum(-problem.low, problem.of_points(largest)))
    bound = largest + threshold + high + low
    # The number in [-bound, bound] at which `sum_exceeds_total` changes from true to false, up
    # to rounding, by bisection.

    def halve(_, bracket: _MultiplierInterval) -> _MultiplierInterval:
        middle = bracket.middle
        below = sum_exceeds_total(middle)
        return _MultiplierInterval(
            jnp.where(below, middle, bracket.low), jnp.where(below, bracket.high, middle)
        )

    halvings = 60 if bound.dtype == jnp.float64 else 30
    m = problem.of_points(
        lax.fori_loop(0, halvings, halve, _MultiplierInterval(-bound, bound)).middle
    )
    b = _soft_and_clipped(problem, v - m, threshold)
    # The difference between total and sum b is added, in equal parts, to the coefficients that
    # depend on m.
    moving = (b != 0) & (b > problem.low) & (b < problem.high)
    count = problem.sums(moving.astype(b.dtype))
    part = (total - problem.sums(b)) / jnp.maximum(count, 1)
    return jnp.where(moving, b + problem.of_points(part), b)


class _MultiplierInterval(eqx.Module):
    """An interval that contains m."""

    low: Float[Array, "*groups"]
    high: Float[Array, "*groups"]

    @property
    def middle(self) -> Float[Array, "*groups"]:
        return (self.low + self.high) / 2


def _soft_and_clipped(
    problem: BoxProblem, w: Float[Array, " n"], threshold: Float[Array, ""]
) -> Float[Array, " n"]:
    """`clip(soft(w, threshold), low, high)`, `soft(w, t) = sign(w) max(|w| - t, 0)`."""
    soft = jnp.sign(w) * jnp.maximum(abs(w) - threshold, 0)
    return jnp.clip(soft, problem.low, problem.high)
