"""Preconditioners: low-rank approximations of a Gram matrix that accelerate conjugate gradients."""

import abc
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, Key

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.boundary import check_key
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, stop_gradient
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import Printed
from kernax.core.linalg.low_rank import factor_plus_identity
from kernax.core.linalg.pivots import inverse_root, partial_cholesky
from kernax.core.linalg.solves import inverse_of_lower
from kernax.core.linalg.tsqr import svd_by_tsqr, tsqr
from kernax.core.operators.mesh import RowsOverMesh, spread_of
from kernax.core.operators.operators import WeightedForm


class Preconditioner(eqx.Module):
    """`P = L L^T = F F^T + D` with a positive diagonal D, by the square root `L = D^1/2 (Q C Q^T +
    I - Q Q^T)`.

    It is only applied by matrix products, because every step uses it, and LAPACK's triangular
    solves of a few columns take many times as long.

    Attributes:
        basis: Q, an orthonormal basis of the span of `D^-1/2 F`, (n, r).
        inside: C, the Cholesky factor of P in it, (r, r).
        inverse: `C^-1`.
        root: the diagonal of D^1/2, (n,).
    """

    basis: Float[Array, "n r"]
    inside: Float[Array, "r r"]
    inverse: Float[Array, "r r"]
    root: Float[Array, " n"]

    @staticmethod
    def of(
        F: Float[Array, "n r"], diagonal: Float[Array, " n"], rows: RowsOverMesh | None = None
    ) -> "Preconditioner":
        """The preconditioner for F and the diagonal of D; rows may be spread over a mesh."""
        root = jnp.sqrt(diagonal)
        # D^-1/2 F = Q R: D^-1/2 P D^-1/2 = Q (I + R R^T) Q^T + I - Q Q^T, and C C^T = I + R R^T.
        basis, R = tsqr(F / root[:, None], rows)
        inside = sequential_vmap(factor_plus_identity, R).lower
        return Preconditioner(basis, inside, inverse_of_lower(inside), root)

    def solve(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        """`P^-1 v`."""
        # P^-1 = D^-1/2 (Q C^-T C^-1 Q^T + I - Q Q^T) D^-1/2.
        return self._turned(v / self.root, self.inverse, self.inverse.T) / self.root

    def root_times(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        """`L v`."""
        return self.root * self._turned(v, self.inside)

    def solve_root(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        """`L^-1 v`."""
        return self._turned(v / self.root, self.inverse)

    def solve_root_transposed(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        """`L^-T v`."""
        return self._turned(v, self.inverse.T) / self.root

    def log_determinant(self) -> Float[Array, ""]:
        """`log |P|`."""
        # |Q C Q^T + I - Q Q^T| = |C|, so that log |P| = 2 log |C| + log |D|.
        of_span = jnp.sum(jnp.log(jnp.diagonal(self.inside)))
        return 2 * (of_span + jnp.sum(jnp.log(self.root)))

    def _turned(self, v: Float[Array, " n"], *factors: Float[Array, "r r"]) -> Float[Array, " n"]:
        """`(Q A Q^T + I - Q Q^T) v` for a product A of factors, in the order of application."""
        # v + Q (A - I) Q^T v.
        within = matmul(self.basis.T, v)
        turned = within
        for factor in factors:
            turned = matmul(factor, turned)
        return v + matmul(self.basis, turned - within)


class AbstractPreconditioner(Printed):
    """A method to compute an approximation `P = F F^T + D` of `M = S K S + D` with a cheap inverse.

    A preconditioner changes the number of steps of conjugate gradients, not their solution.
    """

    @abc.abstractmethod
    def features(self, form: WeightedForm) -> tuple[Float[Array, "n r"], Float[Array, ""]]:
        """F, and a number to add to D that accounts for the remainder `S K S - F F^T`."""

    def made_of(self, operator: lx.AbstractLinearOperator) -> Preconditioner:
        """The preconditioner P, a constant for derivatives."""
        if not isinstance(operator, WeightedForm):
            raise ValueError(
                f"{type(self).__name__} is for Gram matrices, but the operator is a "
                f"{type(operator).__name__}: omit the preconditioner"
            )
        form = stop_gradient(operator)
        F, rest = self.features(form)
        # Division by less than this would leave only rounding.
        least = eps_of(F) ** 0.75 * jnp.max(form.diagonal())
        remainder = jnp.maximum(form.shift + rest, least)
        return Preconditioner.of(F, remainder, spread_of(form.gram))


def shift_of(operator: lx.AbstractLinearOperator) -> Float[Array, " n"]:
    """D of `S K S + D`, a lower bound of the eigenvalues; zero if it is not known."""
    if isinstance(operator, WeightedForm):
        return operator.shift
    return jnp.zeros_like(operator.in_structure(), shape=(operator.in_size(),))


def _check_rank(rank: Any) -> None:
    """Raises ValueError for a rank that is neither None nor a positive integer."""
    if rank is not None:
        check_count(rank, "rank")


def default_rank(n: int) -> int:
    """Twice the root of the number of points, at most all points."""
    return min(n, 2 * math.isqrt(n))


def _rank(rank: int | None, n: int) -> int:
    """The requested or default rank, at most the number of points."""
    return default_rank(n) if rank is None else min(n, rank)


class NystromPreconditioner(AbstractPreconditioner):
    """Randomised Nystrom approximation: `F F^T = A W (W^T A W)^-1 W^T A`, A = S K S, with a random
    orthonormal W (n, rank) (Frangella, Tropp & Udell 2023, algorithm 2.1).

    It takes one product with `rank` columns, which costs as much as about `rank / 10` steps of
    conjugate gradients, and is nearly the best approximation of that rank.

    Attributes:
        key: the key for the random directions.
        rank: the number of columns, by default `2 sqrt(n)`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> preconditioner = kernax.solvers.NystromPreconditioner(jax.random.key(0), rank=2)
        >>> solver = kernax.solvers.ConjugateGradient(preconditioner=preconditioner)
        >>> solution = kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.01, solver=solver)
        >>> bool(solution.stats["residual"] < 1e-6)
        True
    """

    key: Key[Array, ""]
    rank: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_key(self.key)
        _check_rank(self.rank)

    def features(self, form):
        n = form.in_size()
        normal = jax.random.normal(self.key, (n, _rank(self.rank, n)), form.shift.dtype)
        rows = spread_of(form.gram)
        W, _ = tsqr(normal, rows)
        # In units of the diagonal its squares stay in the range of floats.
        unit = positive_or_one(jnp.max(form.diagonal()))
        # `S K S W`.
        product = form.weights.times_roots(form.gram.mv(form.weights.times_roots(W)))
        sketch = product / unit
        # A shift, subtracted again below, because rounding may make W^T A W indefinite.
        shift = eps_of(sketch) * jnp.linalg.norm(sketch)
        sketch = sketch + shift * W
        # With A + shift I for A, G = A W B with B B^T = (W^T A W)^-1 is U diag(s) V^T, and the
        # eigenvalues s^2 of G G^T are those of F F^T plus the shift.
        inner = matmul(W.T, sketch)
        columns = matmul(sketch, inverse_root(inner))
        U, singular = svd_by_tsqr(columns, rows)
        values = jnp.maximum(singular**2 - shift, 0)
        # The remainder is assumed to be as large as the smallest eigenvalue of F F^T.
        return U * jnp.sqrt(unit * values)[None, :], unit * values[-1]


@renamed(block="block_size")
class PivotedCholesky(AbstractPreconditioner):
    """Partial Cholesky factor of `S K S` with random pivots, drawn with probabilities proportional
    to the residual diagonal (Chen, Epperly, Tropp & Webber 2024, algorithm 2.2).

    It computes `rank` rows of K, at hardly more cost than one product, and stops earlier if the
    residual trace is below the trace of D, because more columns would hardly save steps.

    Attributes:
        key: the key for the random pivots.
        rank: the largest number of columns, by default `2 sqrt(n)`.
        block_size: the largest number of pivots drawn together; all blocks have one size.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> preconditioner = kernax.solvers.PivotedCholesky(jax.random.key(0), rank=2)
        >>> solver = kernax.solvers.ConjugateGradient(preconditioner=preconditioner)
        >>> solution = kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.01, solver=solver)
        >>> bool(solution.stats["residual"] < 1e-6)
        True
    """

    key: Key[Array, ""]
    rank: int | None = eqx.field(static=True, default=None)
    block_size: int = eqx.field(static=True, default=32)

    def __check_init__(self):
        check_key(self.key)
        _check_rank(self.rank)
        check_count(self.block_size, "block_size")

    def features(self, form):
        weights = form.weights
        diagonal = weights.times(form.gram.diagonal())
        roots = weights.times_roots(jnp.ones_like(diagonal))

        def rows_at(pivots):
            return roots[pivots][:, None] * weights.times_roots(form.gram.rows(pivots).T).T

        rank = _rank(self.rank, form.in_size())
        # tr(S K S - F F^T) is compared with tr(D), and spread evenly over the diagonal.
        least = jnp.sum(form.shift)
        end = partial_cholesky(rows_at, diagonal, rank, least, key=self.key, block=self.block_size)
        return end.rows.T, jnp.mean(end.left)
