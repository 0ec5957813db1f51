"""The Hessian of the softmax loss over all classes, and the inverse of what Newton's method makes
of it.
"""

import abc
import functools
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.factors import cholesky_factor
from kernax.core.numerics import matmul, stopped
from kernax.core.operators import AbstractGram, DenseGram, LowRankGram
from kernax.core.refinement import refined
from kernax.core.weights import PointWeights


def hessian(P, weights, v):
    """`w_i (P_i v_i - P_i (P_i . v_i))`, the second derivative of the loss in f applied to v (n,
    classes).

    About the value at the likeliest class: where that is nearly certain the difference would
    cancel.
    """
    v = v - jnp.sum(_likeliest(P) * v, 1, keepdims=True)
    return weights[:, None] * P * (v - jnp.sum(P * v, 1, keepdims=True))


def sum_of_others(P):
    """`1 - P` to full relative precision."""
    likeliest = _likeliest(P)
    return jnp.where(likeliest > 0, jnp.sum((1 - likeliest) * P, 1, keepdims=True), 1 - P)


def _likeliest(P):
    """One at the first class of the largest probability, zero elsewhere."""
    return jax.nn.one_hot(jnp.argmax(P, 1), P.shape[1], dtype=P.dtype)


class AbstractHessianInverse(abc.ABC):
    """`(W K + ridge I)^-1`, differentiable in everything through the products it inverts.

    NaN where more than the share `most_left` of the right-hand side is left.
    """

    args: tuple[Any, Array, Array, Array]  # K, the probabilities P, the ridge, the weights
    most_left: float

    @abc.abstractmethod
    def _roughly_solved(self, r: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """The solution, to a digit or two at least."""

    def __call__(self, r: Float[Array, "n c"]) -> Float[Array, "n c"]:
        return lax.custom_linear_solve(
            lambda a: _apply(*self.args, a),
            r,
            lambda _, r: self._unless_left(*self._solved(r)),
            lambda _, r: self._unless_left(*self._solved_transposed(r)),
        )

    def _unless_left(self, solution, share):
        return jnp.where(share <= self.most_left, solution, jnp.nan)

    def _solved(self, r):
        # For small ridges the sum over the classes is so close to singular that in float32 the
        # second digit may be lost.
        gram, P, ridge, weights = stopped(self.args)
        return refined(self._roughly_solved, lambda a: _apply(gram, P, ridge, weights, a), r)

    def _solved_transposed(self, r):
        gram, P, ridge, weights = stopped(self.args)
        W = partial(hessian, P, weights)

        def roughly(r):
            inside, _ = self._solved(W(r))
            outside = r - gram.mv(inside)
            return outside / ridge

        return refined(roughly, lambda a: ridge * a + gram.mv(W(a)), r)


class HessianInverse(AbstractHessianInverse):
    """That of a K of n^2 numbers, by factors of size n for each class and one for all."""

    def __init__(self, gram, P, ridge, weights, most_left):
        # With D_c = w P_c and E_c = D_c^1/2 (ridge + D_c^1/2 K D_c^1/2)^-1 D_c^1/2, which is (ridge
        # + D_c K)^-1 D_c, the system ridge a_c + D_c (K a_c - q) = r_c, q = sum_c P_c K a_c, is
        # closed by ridge (sum_c E_c) q = sum_c w P_c K (...) r_c.
        self.args = (DenseGram(gram.as_matrix()), P, ridge, weights)
        self.most_left = most_left
        gram, P, ridge, weights = stopped(self.args)
        K = gram.matrix
        self.roots = jnp.sqrt(weights[:, None] * P)

        def factor(A):
            scale = PointWeights(weights).mean(jnp.diagonal(A))
            return cholesky_factor(DenseGram(A), scale)

        def block(root):
            A = root[:, None] * K * root[None, :] + ridge * jnp.eye(len(K), dtype=K.dtype)
            return factor(A).inverse()

        self.inverses = lax.map(block, self.roots.T)
        of_roots = jnp.sum(self.roots.T[:, :, None] * self.inverses * self.roots.T[:, None, :], 0)
        removed = jnp.where(weights > 0, 0, 1).astype(K.dtype)
        self.total = factor(ridge * of_roots + jnp.diag(removed))

    def _roughly_solved(self, r):
        gram, P, _, weights = stopped(self.args)
        q = self.total.solve(weights * jnp.sum(P * gram.mv(self._alone(r)), 1))
        # Which leaves the step of D instead of W <= D: shorter, but downhill too.
        q = jnp.where(self.total.exists, q, 0)
        return self._alone(r + weights[:, None] * P * q[:, None])

    def _alone(self, r):
        """`(ridge + D_c K)^-1 r_c` for each class, `D^1/2 M^-1 D^-1/2 r`; where D is zero the row
        reads `ridge a = r`.
        """
        gram, _, ridge, _ = stopped(self.args)
        on = self.roots > 0
        bare = jnp.where(on, 0, r / ridge)
        rest = jnp.where(on, (r - self.roots**2 * gram.mv(bare)) / jnp.where(on, self.roots, 1), 0)
        return bare + self.roots * jax.vmap(matmul)(self.inverses, rest.T).T


class HessianInverseOfFeatures(AbstractHessianInverse):
    """That of `K = F F^T` of D features, by one factor of size D times the number of classes."""

    def __init__(self, gram, P, ridge, weights, most_left):
        # u = F^T a solves (ridge + F^T W F) u = F^T r, where W couples the classes, and a is (r - W
        # F u) / ridge.
        self.args = (gram, P, ridge, weights)
        self.most_left = most_left
        gram, P, ridge, weights = stopped(self.args)
        curvature = _curvature_of_features(gram.features, P, weights)
        identity = jnp.eye(len(curvature), dtype=P.dtype)
        self.inside = cholesky_factor(DenseGram(curvature + ridge * identity))

    def _roughly_solved(self, r):
        gram, P, ridge, weights = stopped(self.args)
        F = gram.features
        of_features = matmul(F.T, r)
        u = self.inside.solve(of_features.T.reshape(-1)).reshape(of_features.T.shape).T
        return (r - hessian(P, weights, matmul(F, u))) / ridge


def _curvature_of_features(F: Float[Array, "n d"], P, weights) -> Float[Array, "m m"]:
    """`F^T W F` over all features and classes, m of both, the features of a class in a row."""
    others = sum_of_others(P)
    d = F.shape[1]
    c = P.shape[1]

    def block(pair):
        i, j = pair
        of_both = jnp.where(i == j, others[:, i], -P[:, j])
        return matmul(F.T, (weights * P[:, i] * of_both)[:, None] * F)

    classes = jnp.arange(c)
    blocks = lax.map(block, (jnp.repeat(classes, c), jnp.tile(classes, c)))
    return blocks.reshape(c, c, d, d).transpose(0, 2, 1, 3).reshape(c * d, c * d)


@functools.singledispatch
def hessian_inverse(gram: AbstractGram, P, ridge, weights, most_left) -> AbstractHessianInverse:
    """`(W K + ridge I)^-1` of a K however held, W the Hessian at the probabilities P."""
    return HessianInverse(gram, P, ridge, weights, most_left)


@hessian_inverse.register
def _(gram: LowRankGram, P, ridge, weights, most_left) -> AbstractHessianInverse:
    return HessianInverseOfFeatures(gram, P, ridge, weights, most_left)


def _apply(gram, P, ridge, weights, a):
    return ridge * a + hessian(P, weights, gram.mv(a))
