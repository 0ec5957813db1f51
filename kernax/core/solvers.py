"""Cholesky factors that tell the truth: with reported jitter and rounding, in few features, and as a linear solver."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float

from kernax.core.batching import one_by_one
from kernax.core.numerics import product
from kernax.core.operators import AbstractSymmetricSolver, FeatureOperator
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

    def rounding(self, diagonal: Float[Array, " n"]) -> Float[Array, ""]:
        """How far rounding has moved the logarithm of the determinant of A, a matrix of this diagonal, and A^-1 relatively.

        Errors dA of eps in the matrix of unit diagonal, B = D^-1/2 A D^-1/2, move log |B| by tr(B^-1 dB): eps |B^-1|_F where
        they are independent. The norm is the mean of |B^-1 z|^2 over vectors of random signs (Hutchinson 1990), of four here.
        """
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (len(diagonal), 4))
        root = jnp.sqrt(diagonal)[:, None]
        image = root * self.solve(root * jnp.asarray(signs, diagonal.dtype))
        return float(jnp.finfo(diagonal.dtype).eps) * jnp.linalg.norm(image) / 2


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


class JitteredCholesky(AbstractSymmetricSolver):
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
