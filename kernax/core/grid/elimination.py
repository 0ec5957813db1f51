"""Elimination of the missing or weighted cells of a grid by a small matrix.

Let `A = K + noise I` on all N cells, s the m cells that are missing or have weights other than one,
o the others, and U the columns of the identity at s. With `C = U^T A^-1 U`, the cells s are removed
by `A_oo^-1 = (A^-1 - A^-1 U C^-1 U^T A^-1)_oo`, and `V = C^-1 - noise I` is the covariance of the
values at s given the observations at o (Golub & Van Loan 2013, section 2.1.4). Therefore the Schur
complement of M, the matrix with weights w and noise d of each point, is

    R = S V S + diag(d),  S = sqrt(w),  log |M| = log |A| + log |C| + log |R|,

where w = 0 and d = 1 at missing cells. There is no division by a weight.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernax.core.base.numerics import eps_of, matmul
from kernax.core.linalg.solves import solve_lower, solve_lower_transposed


class Eliminated(eqx.Module):
    """The elimination of the m cells that are missing or weighted.

    Attributes:
        inner: the lower triangular factor of C, (m, m).
        outer: the lower triangular factor of R, (m, m).
        roots: the diagonal of S, (m,).
        shift: d, (m,).
        covariance: V, (m, m).
    """

    inner: Float[Array, "m m"]
    outer: Float[Array, "m m"]
    roots: Float[Array, " m"]
    shift: Float[Array, " m"]
    covariance: Float[Array, "m m"]

    @staticmethod
    def of(
        C: Float[Array, "m m"], noise: Array, roots: Float[Array, " m"], shift: Float[Array, " m"]
    ) -> "Eliminated":
        inner = jnp.linalg.cholesky(C, symmetrize_input=False)
        identity = jnp.eye(len(C), dtype=C.dtype)
        V = solve_lower_transposed(inner, solve_lower(inner, identity)) - noise * identity
        R = roots[:, None] * V * roots[None, :] + jnp.diag(shift)
        outer = jnp.linalg.cholesky((R + R.T) / 2, symmetrize_input=False)
        return Eliminated(inner, outer, roots, shift, V)

    @property
    def exists(self) -> Bool[Array, ""]:
        """Whether both factors exist, with pivots larger than rounding."""
        return _is_regular(self.inner) & _is_regular(self.outer)

    def by_inner(self, B: Float[Array, "m *p"]) -> Float[Array, "m *p"]:
        """`C^-1 B`."""
        return solve_lower_transposed(self.inner, solve_lower(self.inner, B))

    def by_outer(self, B: Float[Array, "m *p"]) -> Float[Array, "m *p"]:
        """`R^-1 B`."""
        return solve_lower_transposed(self.outer, solve_lower(self.outer, B))

    def correction(self) -> Float[Array, "m m"]:
        """The G of `(K + diag(d / w))^-1 = A^-1 - A^-1 U G U^T A^-1`, smooth in w at zero."""
        identity = jnp.eye(len(self.roots), dtype=self.roots.dtype)
        # G = C^-1 - C^-1 S R^-1 S C^-1, which equals (C + (diag(d / w) - noise I)^-1)^-1 of
        # Woodbury's formula where that exists.
        removed = self.by_inner(identity)
        back = solve_lower(self.outer, self.roots[:, None] * removed)
        return removed - matmul(back.T, back)

    def log_determinant(self) -> Float[Array, ""]:
        """`log |C| + log |R|`."""
        diagonals = jnp.concatenate([jnp.diagonal(L) for L in (self.inner, self.outer)])
        return 2 * jnp.sum(jnp.log(diagonals))

    def rounding(self) -> Float[Array, ""]:
        """The rounding error of `log |C| + log |R|`, in nats."""
        # An error dC changes it by tr(G dC), including V in R. Entries have independent errors of
        # eps of the diagonal.
        sizes = jnp.linalg.norm(self.inner, axis=1)
        G = self.correction()
        return 2 * eps_of(G) * jnp.linalg.norm(sizes[:, None] * G * sizes[None, :])


def _is_regular(L: Float[Array, "m m"]) -> Bool[Array, ""]:
    """Whether a lower triangular factor has no NaN and no pivot within rounding of zero."""
    return jnp.all(jnp.diagonal(L) ** 2 > eps_of(L) * jnp.sum(L**2, 1))
