"""Gram matrices of points that are centred in the space of the kernel."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from kernax.core.base.numerics import eps_of, expand_to, matmul
from kernax.core.base.weights import AbstractWeights
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import LearnerProblem
from kernax.core.operators.operators import AbstractGram, DenseGram


def shares(weights: AbstractWeights) -> Float[Array, " n"]:
    """`w / sum w`, the coefficients of a weighted mean."""
    return weights.values / jnp.sum(weights.values)


def loses_digits(X: PyTree, gram: AbstractGram, p: Float[Array, " n"]) -> Bool[Array, ""]:
    """Whether rounding of K leaves less than a third of the digits of `sum_i p_i |phi(x_i) -
    mu|^2`, mu the mean with shares p. This happens where points are far from zero and near to each
    other, under a kernel such as `Linear`. False where all points, or all entries of K, are equal:
    the sum is then zero.
    """
    diagonal = gram.diagonal()
    # sum_i p_i |phi(x_i) - mu|^2 = sum_i p_i K_ii - p.K p.
    spread = jnp.sum(p * diagonal) - jnp.sum(p * gram.mv(p))
    rounding = eps_of(diagonal) * jnp.max(jnp.where(p > 0, jnp.abs(diagonal), 0))
    counts = p > 0
    first = jnp.argmax(counts)
    row = gram.rows(first[None])[0]
    own = diagonal[first]
    all_alike = jnp.all((p == 0) | ((diagonal == own) & (row == own)))
    # Whether all points that count are equal.

    def same(leaf: Array) -> Array:
        equal = (leaf == leaf[first[None]]).reshape(len(leaf), -1)
        return jnp.all(jnp.all(equal, 1) | ~counts)

    nothing_to_lose = all_alike | jnp.all(jnp.stack([same(leaf) for leaf in jax.tree.leaves(X)]))
    # rounding / spread > eps^(1/3) leaves less than a third of the digits.
    return (rounding > eps_of(diagonal) ** (1 / 3) * spread) & ~nothing_to_lose


class CentredGram(eqx.Module):
    """The centred Gram matrix `H K H^T` with `H = I - 1 p^T`, p the shares of the points: that of
    `phi(x_i) - sum_j p_j phi(x_j)`.

    Attributes:
        gram: K, or `H K H^T` itself if that is stored as a matrix.
        shares: p.
        means: `K p`.
        centred: whether `gram` is centred.
    """

    gram: AbstractGram
    shares: Float[Array, " n"]
    means: Float[Array, " n"]
    centred: bool = eqx.field(static=True)

    @staticmethod
    def of(gram: AbstractGram, weights: AbstractWeights, *, dense: bool = True) -> "CentredGram":
        """K, centred at the weighted mean of the points: as a matrix if K is dense and `dense` is
        true, otherwise by products with K.
        """
        p = shares(weights)
        means = gram.mv(p)
        if not (dense and gram.is_dense):
            return CentredGram(gram, p, means, centred=False)
        # H K H^T = K - m 1^T - 1 m^T + (p.m) 1 1^T with m = K p.
        centred = gram.as_matrix() - means[:, None] - means[None, :] + jnp.sum(p * means)
        return CentredGram(DenseGram(centred), p, means, centred=True)

    def mv(self, A: Float[Array, "n p"]) -> Float[Array, "n p"]:
        if self.centred:
            return self.gram.mv(A)
        # H^T A = A - p (1^T A), and H F = F - 1 (p^T F).
        inside = self.gram.mv(A - expand_to(self.shares, A) * jnp.sum(A, 0, keepdims=True))
        return inside - matmul(self.shares, inside)[None, :]

    def as_matrix(self) -> Float[Array, "n n"]:
        if self.centred:
            return self.gram.as_matrix()
        return self.mv(jnp.eye(len(self.shares), dtype=self.shares.dtype))

    def diagonal(self) -> Float[Array, " n"]:
        """`|phi(x_i) - sum_j p_j phi(x_j)|^2`."""
        if self.centred:
            return self.gram.diagonal()
        # (H K H^T)_ii = K_ii - 2 m_i + p.m.
        return self.gram.diagonal() - 2 * self.means + jnp.sum(self.shares * self.means)

    def total_variance(self) -> Float[Array, ""]:
        """`sum_i p_i |phi(x_i) - sum_j p_j phi(x_j)|^2`."""
        return jnp.maximum(jnp.sum(self.shares * self.diagonal()), 0)

    def is_finite(self) -> Bool[Array, ""]:
        """Whether all entries of K are finite: an infinite or NaN entry makes a mean that is not
        finite.
        """
        return jnp.all(jnp.isfinite(self.means))

    def largest(self) -> Float[Array, ""]:
        """The largest `k(x_i, x_i)` of a point of positive weight; rounding errors of centring are
        relative to it.
        """
        # K_ii = (H K H^T)_ii + 2 m_i - p.m.
        mean = jnp.sum(self.shares * self.means)
        diagonal = jnp.abs(self.diagonal() + 2 * self.means - mean)
        return jnp.max(jnp.where(self.shares == 0, 0, diagonal))

    def expansion(self, problem: LearnerProblem, A: Float[Array, "n c"]) -> KernelExpansion:
        """The functions `sum_i A_ij (phi(x_i) - mu)` of centred points, as functions of a point
        that is not centred.

        Their weighted mean over the points is zero.
        """
        # sum_i A_ij (phi(x_i) - mu) = sum_i C_ij phi(x_i) with C = H^T A. The mean of this function
        # over the points, m.C, is subtracted.
        C = A - self.shares[:, None] * jnp.sum(A, 0, keepdims=True)
        return KernelExpansion(problem.kernel, problem.X, C, -matmul(self.means, C))
