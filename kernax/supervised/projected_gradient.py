"""Spectral projected gradients for the dual of support vector machines (Birgin, Martinez & Raydan 2000).

Every step is one product with K and one exact projection, all of it in parallel: the method for accelerators and for batches.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.sharding import while_loop
from kernax.supervised.dual import AbstractDualSolver, BoxProblem, bias_interval, check_tolerance


class ProjectedGradient(AbstractDualSolver):
    """The solver for batches of small machines and for accelerators.

    The direction is `d = P(b + a r) - b`, r the residual, a the last inverse curvature seen (Barzilai & Borwein), P the
    proximal projection onto box and hyperplane; the step along it is the exact minimiser, so that the objective falls always.

    Attributes:
        tol: the violation of optimality at which to stop, in units of the targets: LIBSVM's `tol`.
        max_steps: products with K, at most.
    """

    tol: float = eqx.field(default=1e-3, static=True)
    max_steps: int = eqx.field(default=10_000, static=True)

    def __check_init__(self):
        check_tolerance(self.tol, self.max_steps)

    def solve(self, problem, beta, residual, tol):

        def body(carry):
            beta, residual, size, _, steps = carry
            d = project(problem, beta + size * residual, size * problem.epsilon) - beta
            Kd = problem.operator.mv(d)
            curvature, squared = jnp.sum(d * Kd), jnp.sum(d * d)
            slope = jnp.sum(residual * d) - problem.epsilon * (jnp.sum(abs(beta + d)) - jnp.sum(abs(beta)))
            t = jnp.where(curvature > 0, jnp.clip(slope / jnp.where(curvature > 0, curvature, 1), 0, 1), 1)
            new = jnp.where(t == 1, beta + d, beta + t * d)
            new = jnp.clip(new, problem.low, problem.high)
            residual = residual - t * Kd
            size = jnp.where(curvature > 0, squared / jnp.where(curvature > 0, curvature, 1), size)
            top, bottom = bias_interval(problem, new, residual)
            return new, residual, size, top - bottom, steps + 1

        first = 1 / jnp.maximum(jnp.max(problem.diagonal()), jnp.finfo(beta.dtype).tiny)
        top, bottom = bias_interval(problem, beta, residual)
        start = (beta, residual, first, top - bottom, jnp.zeros((), jnp.int32))
        beta, *_, steps = while_loop(lambda c: (c[3] > tol) & (c[4] < self.max_steps), body, start)
        return beta, steps


def project(problem: BoxProblem, v: Float[Array, " n"], threshold: Float[Array, ""]) -> Float[Array, " n"]:
    """The minimiser of `1/2 |b - v|^2 + threshold |b|_1` over the box and the hyperplane.

    It is `clip(soft(v - m, threshold), low, high)` with the one m at which it sums to the total: a monotone piecewise linear
    function of m, bracketed, bisected down to one linear piece and there solved exactly.
    """

    def at(m):
        w = v - m
        return jnp.clip(jnp.sign(w) * jnp.maximum(abs(w) - threshold, 0), problem.low, problem.high)

    total = problem.total
    if total is None:
        return at(jnp.zeros((), v.dtype))
    far = abs(total) + jnp.max(abs(v))  # no coefficient need be larger
    reach = far + threshold + jnp.max(jnp.minimum(problem.high, far)) + jnp.max(jnp.minimum(-problem.low, far))

    def halve(_, bracket):
        low, high = bracket
        middle = (low + high) / 2
        more = jnp.sum(at(middle)) > total
        return jnp.where(more, middle, low), jnp.where(more, high, middle)

    low, high = lax.fori_loop(0, 60 if v.dtype == jnp.float64 else 30, halve, (-reach, reach))
    b = at((low + high) / 2)
    moving = (b != 0) & (b > problem.low) & (b < problem.high)
    count = jnp.sum(moving, dtype=v.dtype)
    return jnp.where(moving, b + (total - jnp.sum(b)) / jnp.maximum(count, 1), b)
