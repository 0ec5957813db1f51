"""Two solvers for lineax that tell the truth: Cholesky with reported jitter, and conjugate gradients free of units."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Bool, Float


class Factor(eqx.Module):
    """A Cholesky factor `A + jitter I = upper^T upper`, and whether there is one."""

    packed: Float[Array, " entries"]
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]

    @property
    def lower(self) -> Float[Array, "n n"]:
        n = math.isqrt(self.packed.size)
        return self.packed.reshape(n, n).T


class JitteredCholesky(lx.AbstractLinearSolver):
    """Cholesky for lineax; jitter goes on the diagonal only where the plain factorisation fails.

    It starts at sqrt(eps) (float64) or 10 eps (float32) of the mean diagonal and grows tenfold up to 1e-4 of it; a matrix
    that needs more is indefinite and gives NaN. A pivot within rounding of zero counts as a failure, because a singular
    matrix often factorises by accident, into noise. `stats["jitter"]` is what was added.
    """

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> Factor:
        diagonal = lx.diagonal(operator)
        n, dtype, eps = len(diagonal), diagonal.dtype, float(jnp.finfo(diagonal.dtype).eps)
        scale = jnp.mean(diagonal)
        first = (math.sqrt(eps) if dtype == jnp.float64 else 10 * eps) * scale

        def factorise(jitter):
            # LAPACK is column-major and A symmetric: transposed on the way in and out, nothing is ever copied to transpose it.
            tied, jitter = lax.optimization_barrier((operator, jitter))
            A = tied.as_matrix()
            upper = lax.linalg.cholesky((A + jitter * jnp.eye(n, dtype=dtype)).T, symmetrize_input=False).T.reshape(-1)
            pivots = upper[:: n + 1] ** 2
            return Factor(upper, jitter, jnp.all(pivots > eps * diagonal))  # false for NaN

        def go_on(factor):
            return ~factor.exists & (10 * factor.jitter <= 1e-4 * scale) & jnp.isfinite(scale) & (first > 0)

        def again(factor):
            return factorise(jnp.where(factor.jitter == 0, first, 10 * factor.jitter))

        return lax.while_loop(go_on, again, factorise(jnp.zeros((), dtype)))

    def compute(self, state: Factor, vector: Array, options: dict[str, Any]):
        x = jax.scipy.linalg.cho_solve((state.lower, True), vector, check_finite=False)
        result = lx.RESULTS.where(state.exists, lx.RESULTS.successful, lx.RESULTS.singular)
        return jnp.where(state.exists, x, jnp.nan), result, {"jitter": state.jitter}

    def transpose(self, state, options):
        return state, options

    def conj(self, state, options):
        return state, options

    def assume_full_rank(self):
        return True


class ConjugateGradient(lx.AbstractLinearSolver):
    """`lineax.CG` until `|b - A x| <= rtol |b|` in the 2-norm, whatever the units of A and b.

    lineax also asks that the last step be small and takes a small `p.Ap` for a breakdown; neither test is free of units,
    and both stop or prolong well-posed solves in float32. The system is therefore handed over with |b| = 1 and A
    multiplied by a large number, which makes both vacuous. `stats["steps"]` counts products with A.

    Attributes:
        rtol: relative residual at which to stop; default eps^(2/3), 4e-11 in float64 and 2e-5 in float32.
        max_steps: default 1000.
    """

    rtol: float | None = None
    max_steps: int = 1000

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> lx.AbstractLinearOperator:
        return lx.linearise(operator)

    def compute(self, state: lx.AbstractLinearOperator, vector: Array, options: dict[str, Any]):
        eps, size = jnp.finfo(vector.dtype).eps, jnp.linalg.norm(vector)
        size = jnp.where(size > 0, size, 1)
        unit = vector / size
        curvature = jnp.abs(jnp.vdot(unit, state.mv(unit)))
        large = 1 / (eps**2 * jnp.where(curvature > 0, curvature, 1))
        operator = lx.TaggedLinearOperator(large * state, lx.positive_semidefinite_tag)
        solver = lx.CG(rtol=0.0, atol=self.tolerance(vector.dtype), norm=jnp.linalg.norm, max_steps=self.max_steps)
        x, result, stats = solver.compute(solver.init(operator, {}), unit, {})
        return large * size * x, result, {"steps": jnp.asarray(stats["num_steps"])}

    def tolerance(self, dtype) -> float:
        """The relative residual that counts as solved in a dtype."""
        return float(jnp.finfo(dtype).eps) ** (2 / 3) if self.rtol is None else self.rtol

    def transpose(self, state, options):
        return state, options

    def conj(self, state, options):
        return state, options

    def assume_full_rank(self):
        return True
