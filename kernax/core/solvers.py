"""Two solvers for lineax that tell the truth: Cholesky with reported jitter, and conjugate gradients free of units."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from kernax.core.batching import one_by_one
from kernax.core.numerics import product
from kernax.core.operators import FeatureOperator
from kernax.core.sharding import while_loop


class Factor(eqx.Module):
    """A Cholesky factor `A + jitter I = L L^T`, and whether there is one. L is kept column by column in one flat array."""

    packed: Float[Array, " entries"]
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]

    @property
    def lower(self) -> Float[Array, "n n"]:
        """L."""
        n = math.isqrt(self.packed.size)
        return self.packed.reshape(n, n).T

    def solve(self, B: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
        """`(A + jitter I)^-1 B`, NaN where there is no factor."""
        solve = lambda L, B: jax.scipy.linalg.cho_solve((L, True), B, check_finite=False)
        return jnp.where(self.exists, one_by_one(solve, self.lower, B), jnp.nan)

    def inverse(self) -> Float[Array, "n n"]:
        """`(A + jitter I)^-1`, NaN where there is no factor."""
        return jnp.where(self.exists, one_by_one(_inverse_of_product, self.lower), jnp.nan)

    def log_determinant(self) -> Float[Array, ""]:
        """`log |A + jitter I|`, NaN where there is no factor."""
        diagonal = self.packed[:: math.isqrt(self.packed.size) + 1]
        return jnp.where(self.exists, 2 * jnp.sum(jnp.log(diagonal)), jnp.nan)


def _inverse_of_product(L: Float[Array, "n n"], whole: int = 0) -> Float[Array, "n n"]:
    # (L L^T)^-1 by halves, with Z = L21 L11^-1: the lower right block is Q = (L22 L22^T)^-1, the lower left one -Q Z, the upper
    # left one (L11 L11^T)^-1 + Z^T Q Z. That is 0.8 n^3 operations, most of them in matrix products; solving for the
    # identity takes 2 n^3, all in triangular solves. At most sixteen blocks are solved for, which bounds the compile time.
    n = len(L)
    whole = whole or max(48, -(-n // 16))
    if n <= whole:
        return jax.scipy.linalg.cho_solve((L, True), jnp.eye(n, dtype=L.dtype), check_finite=False)
    h = n // 2
    Z = solve_triangular(L[:h, :h], L[h:, :h].T, trans=1, lower=True, check_finite=False).T
    Q = _inverse_of_product(L[h:, h:], whole)
    QZ = product(Q, Z)
    corner = _inverse_of_product(L[:h, :h], whole) + product(Z.T, QZ)
    return jnp.block([[corner, -QZ.T], [-QZ, Q]])


def solve_lower(L: Float[Array, "n n"], B: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
    """`L^-1 B` for a lower triangular L, with its derivatives."""
    solve = lambda trans: (
        lambda _, B: one_by_one(
            lambda L, B: solve_triangular(L, B, trans=trans, lower=True, check_finite=False), lax.stop_gradient(L), B
        )
    )
    return lax.custom_linear_solve(lambda x: product(jnp.tril(L), x), B, solve(0), solve(1))


def factorise(operator: lx.AbstractLinearOperator, scale: Float[Array, ""] | None = None) -> Factor:
    """Cholesky with jitter where the plain factorisation fails.

    Jitter starts at sqrt(eps) (float64) or 10 eps (float32) of `scale`, by default the mean diagonal, and grows tenfold up to
    1e-4 of it. A pivot within rounding of zero counts as a failure, because a singular matrix often factorises by accident,
    into noise. Not differentiable: whoever uses the factor has a rule of its own.
    """
    return one_by_one(_factorise, operator, jnp.mean(lx.diagonal(operator)) if scale is None else scale)


def _factorise(operator: lx.AbstractLinearOperator, scale: Float[Array, ""]) -> Factor:
    diagonal = lx.diagonal(operator)
    n, dtype, eps = len(diagonal), diagonal.dtype, float(jnp.finfo(diagonal.dtype).eps)
    first = (math.sqrt(eps) if dtype == jnp.float64 else 10 * eps) * scale
    most = 1e-4 * scale

    def attempt(jitter):
        # The matrix is built here, so that it is only ever held where LAPACK overwrites it. LAPACK is column-major and the
        # matrix symmetric: transposed on the way in and out, nothing is ever copied to transpose it. A flat result keeps its
        # order in memory through the loop.
        tied, jitter = lax.optimization_barrier((operator, jitter))
        A = tied.as_matrix() + jitter * jnp.eye(n, dtype=dtype)
        packed = lax.linalg.cholesky(A.T, symmetrize_input=False).T.reshape(-1)
        return Factor(packed, jitter, jnp.all(packed[:: n + 1] ** 2 > eps * diagonal))  # false for NaN

    def go_on(factor):
        return ~factor.exists & (factor.jitter < most) & jnp.isfinite(scale) & (first > 0)

    def again(factor):
        return attempt(jnp.where(factor.jitter == 0, first, jnp.minimum(10 * factor.jitter, most)))

    return while_loop(go_on, again, attempt(jnp.zeros((), dtype)))


class FeatureFactor(eqx.Module):
    """The inverse of `F F^T + D`, D a positive diagonal, by the span of F: with `D^-1/2 F = Q R`, it is
    `D^-1/2 (Q (I + R R^T)^-1 Q^T + I - Q Q^T) D^-1/2`.

    Woodbury's formula without the orthogonal Q leaves an error in the span of F that is |F F^T| / |D| times larger.
    """

    basis: Float[Array, "n d"]
    root: Float[Array, " n"]
    factor: Factor

    @staticmethod
    def of(operator: FeatureOperator) -> "FeatureFactor":
        root = jnp.sqrt(operator.shift)
        basis, R = jnp.linalg.qr(operator.features / root[:, None])
        small = jnp.eye(len(R), dtype=R.dtype) + product(R, R.T)
        return FeatureFactor(basis, root, factorise(lx.MatrixLinearOperator(small, lx.positive_semidefinite_tag)))

    def solve(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """`(F F^T + D)^-1 b`."""
        b = b / self.root
        inside = product(b, self.basis)
        outside = b - product(self.basis, inside)
        outside = outside - product(self.basis, product(outside, self.basis))  # once more: rounding put some of it inside
        return (product(self.basis, self.factor.solve(inside)) + outside) / self.root


class JitteredCholesky(lx.AbstractLinearSolver):
    """`factorise` as a lineax solver: Cholesky, with jitter on the diagonal only where the plain factorisation fails.

    A matrix that needs more than 1e-4 of its mean diagonal is indefinite and gives NaN. `stats["jitter"]` is what was added.
    An operator of few features is solved in those, without jitter, and `stats["features"]` is their number.
    """

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> Factor | FeatureFactor:
        return FeatureFactor.of(operator) if isinstance(operator, FeatureOperator) else factorise(operator)

    def compute(self, state: Factor | FeatureFactor, vector: Array, options: dict[str, Any]):
        if isinstance(state, FeatureFactor):
            result = lx.RESULTS.where(state.factor.exists, lx.RESULTS.successful, lx.RESULTS.singular)
            return state.solve(vector), result, {"features": jnp.asarray(state.basis.shape[1])}
        result = lx.RESULTS.where(state.exists, lx.RESULTS.successful, lx.RESULTS.singular)
        return state.solve(vector), result, {"jitter": state.jitter}

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
