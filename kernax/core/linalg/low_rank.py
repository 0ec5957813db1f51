"""The factor and the inverse of a matrix of low rank plus a diagonal."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.numerics import eps_of, expand_to, matmul
from kernax.core.linalg.cholesky import CholeskyFactor
from kernax.core.linalg.factorisation import (
    AbstractDirectFactor,
    AbstractInverse,
    WeightedSystem,
    solve,
)
from kernax.core.linalg.tsqr import tsqr
from kernax.core.operators.operators import LowRankGram


class LowRankFactor(AbstractDirectFactor):
    """The factor of `F F^T + D` with a positive diagonal D. With `D^-1/2 F = Q R` the inverse is
    `D^-1/2 (Q (I + R R^T)^-1 Q^T + I - Q Q^T) D^-1/2`.

    Woodbury's formula, without the orthogonal Q, would have an error in the span of F that is |F
    F^T| / |D| times larger.

    Attributes:
        basis: Q, (n, d).
        root: the diagonal of D^1/2, (n,).
        inside: the factor of `I + R R^T`, (d, d).
    """

    basis: Float[Array, "n d"]
    root: Float[Array, " n"]
    inside: CholeskyFactor
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]

    @staticmethod
    def of(operator: LowRankGram) -> "LowRankFactor":
        """The factor of an operator with a positive remainder."""

        def factorised(operator: LowRankGram) -> LowRankFactor:
            # Phi / sqrt(r) = Q R, with the remainder r.
            root = jnp.sqrt(operator.remainder)
            basis, R = tsqr(operator.features / root[:, None], operator.spread)
            inside = factor_plus_identity(R)
            return LowRankFactor(
                basis=basis,
                root=root,
                inside=inside,
                jitter=jnp.asarray(inside.jitter),
                exists=inside.exists,
            )

        return sequential_vmap(factorised, operator)

    def solve(self, B):
        root = expand_to(self.root, B)
        within, outside = self._parts(B / root)
        return (matmul(self.basis, self.inside.solve(within)) + outside) / root

    def solve_and_report(self, B):
        features = jnp.asarray(self.basis.shape[1])
        return self.solve(B), (self.result, {"features": features})

    def whitened(self, B):
        # b.M^-1 b = |L^-1 Q^T c|^2 + |(I - Q Q^T) c|^2 with c = D^-1/2 b and L L^T = I + R R^T.
        within, outside = self._parts(B / self.root[:, None])
        outside = jnp.where(self.exists, outside, jnp.nan)
        return jnp.concatenate([self.inside.whitened(within), outside])

    def inverse(self):
        return self.solve(jnp.diag(jnp.ones_like(self.root)))

    def inverse_diagonal(self):
        # D^1/2 M^-1 D^1/2 = Q (L L^T)^-1 Q^T + I - Q Q^T with L L^T = I + R R^T.
        within = jnp.sum(self.inside.whitened(self.basis.T) ** 2, 0)
        return (within + 1 - jnp.sum(self.basis**2, 1)) / self.root**2

    def log_determinant(self):
        # |F F^T + D| = |I + R R^T| |D|.
        return self.inside.log_determinant() + 2 * jnp.sum(jnp.log(self.root))

    def inverse_of(self, system):
        features = low_rank(system).features
        solved = solve(system, self, system.weights.times(features))
        return LowRankInverse(solved, features, _diagonal_part(system))

    def rounding(self, diagonal):
        # `[R^T; I]` has no singular value below one, so its determinant is accurate to eps. Each of
        # two projections has an independent error of eps of the data in each entry outside of the
        # span, which changes the square of that part.
        return 2 * eps_of(diagonal) * jnp.linalg.norm(jnp.sqrt(diagonal) / self.root)

    def rounding_of_inverse(self, diagonal):
        return 2 * eps_of(diagonal) * jnp.max(jnp.sqrt(diagonal) / self.root)

    def _parts(self, B: Float[Array, "n *p"]) -> tuple[Float[Array, "d *p"], Float[Array, "n *p"]]:
        """The coefficients in Q of the part of B in its span, and the part outside it."""
        within = matmul(self.basis.T, B)
        outside = B - matmul(self.basis, within)
        # Project twice, because rounding leaves a part in the span.
        return within, outside - matmul(self.basis, matmul(self.basis.T, outside))


def factor_plus_identity(R: Float[Array, "d m"]) -> CholeskyFactor:
    """The factor of `I + R R^T`. Its L^T is the triangular factor of a QR of `[R^T; I]`, because
    the product itself would lose everything below eps of its largest entry (Higham 2002, chapter
    20).
    """
    d = len(R)
    # [R^T; I] = Q U has U^T U = R R^T + I.
    upper = jnp.linalg.qr(jnp.concatenate([R.T, jnp.eye(d, dtype=R.dtype)]), mode="r")
    # A QR may change the signs of rows; a Cholesky factor has a positive diagonal.
    upper = jnp.where(jnp.diagonal(upper) < 0, -1, 1)[:, None] * upper
    exists = jnp.all(jnp.diagonal(upper) > 0)  # false for NaN
    return CholeskyFactor(upper, jnp.zeros((), R.dtype), exists)


class LowRankInverse(AbstractInverse):
    """The inverse of `T = W F F^T + D`: `D^-1 - G F^T D^-1` with `G = T^-1 W F`.

    Attributes:
        solved: G.
        features: F.
        diagonal_part: the diagonal of D.
    """

    solved: Float[Array, "n d"]
    features: Float[Array, "n d"]
    diagonal_part: Float[Array, " n"]

    def as_matrix(self):
        return self.mv(jnp.diag(jnp.ones_like(self.diagonal_part)))

    def mv(self, B):
        alone = B / self.diagonal_part[:, None]
        return alone - matmul(self.solved, matmul(self.features.T, alone))

    def transposed_mv(self, B):
        inside = matmul(self.features, matmul(self.solved.T, B))
        return (B - inside) / self.diagonal_part[:, None]

    def diagonal(self):
        return (1 - jnp.sum(self.solved * self.features, 1)) / self.diagonal_part

    def diagonal_of_product(self, system):
        gram = low_rank(system)
        # (K P)_ii = f_i.(P^T F)_i + e_i P_ii for K = F F^T + diag(e), with the rows f_i of F.
        of_features = jnp.sum(gram.features * self.transposed_mv(gram.features), 1)
        return of_features + gram.remainder * self.diagonal()

    def trace_with(self, system):
        features = low_rank(system).features
        # tr(P (W F F^T + D)) = tr(F^T P W F) + sum_i P_ii D_ii.
        inside = jnp.sum(features * self.mv(system.weights.times(features)))
        return inside + jnp.sum(self.diagonal() * _diagonal_part(system))


def low_rank(system: WeightedSystem) -> LowRankGram:
    """The Gram matrix of a system with a low-rank factor."""
    return system.gram_of_class(LowRankGram)


def _diagonal_part(system: WeightedSystem) -> Float[Array, " n"]:
    """D of `T = W F F^T + D`."""
    return system.weights.times(low_rank(system).remainder) + system.shift
