"""The Hessian of the softmax loss over all classes, and the inverse of the matrix of Newton's
method.
"""

import abc
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.numerics import eps_of, matmul, positive_or_one, stop_gradient
from kernax.core.linalg.cholesky import cholesky_factor
from kernax.core.linalg.jitter import range_of_jitter
from kernax.core.linalg.refinement import refined
from kernax.core.linalg.solves import solve_lower
from kernax.core.operators.operators import AbstractGram, DenseGram, LowRankGram


def hessian(P, weights, v):
    """`w_i (P_i v_i - P_i (P_i . v_i))`, the second derivative of the loss in f applied to v (n,
    classes).

    It is computed relative to the value at the likeliest class, because the difference would cancel
    if that class is nearly certain.
    """
    # The entries of P_i sum to one, so adding a constant to v_i changes nothing.
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
    """`(W K + ridge I)^-1`, differentiable in all arguments through the products that it inverts.

    NaN if the residual is more than the fraction `most_left` of the right-hand side.
    """

    args: tuple[Any, Array, Array, Array]  # K, the probabilities P, the ridge, the weights
    most_left: float

    @abc.abstractmethod
    def _roughly_solved(self, r: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """The solution, accurate to at least one or two digits."""

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
        # For small ridges the sum over the classes is so close to singular that the second digit
        # may be lost in float32.
        gram, P, ridge, weights = stop_gradient(self.args)
        return refined(self._roughly_solved, lambda a: _apply(gram, P, ridge, weights, a), r)

    def _solved_transposed(self, r):
        gram, P, ridge, weights = stop_gradient(self.args)
        W = partial(hessian, P, weights)

        def roughly(r):
            # (ridge I + K W)^-1 = (I - K (W K + ridge I)^-1 W) / ridge.
            inside, _ = self._solved(W(r))
            outside = r - gram.mv(inside)
            return outside / ridge

        return refined(roughly, lambda a: ridge * a + gram.mv(W(a)), r)


class HessianInverse(AbstractHessianInverse):
    """The inverse for a dense K, by factors of size n for each class and one for all classes.

    The error of the rough solution is about eps times the largest eigenvalue of `w K / ridge`.
    """

    def __init__(self, gram, P, ridge, weights, most_left):
        # With K = L L^T, D_c = w P_c and V_c = L R_c^-T, R_c R_c^T = ridge + L^T D_c L, K (ridge +
        # D_c K)^-1 is S_c = V_c V_c^T. Therefore values f_c = K a_c with ridge a_c + D_c (f_c - q)
        # = r_c,
        # q = sum_c P_c f_c, are S_c (r_c + D_c q), and with g_c = w^1/2 P_c (I - sum_c g_c S_c g_c)
        # w^1/2 q = w^1/2 sum_c P_c S_c r_c: a matrix with eigenvalues between 0 and 1, of which
        # sums lose no more than eps.
        self.args = (DenseGram(gram.as_matrix()), P, ridge, weights)
        self.most_left = most_left
        gram, P, ridge, weights = stop_gradient(self.args)
        lower = _root(gram)
        identity = jnp.eye(len(lower), dtype=P.dtype)
        root_of_weights = jnp.sqrt(weights)

        def with_class(left, P_c):
            A = matmul(lower.T, (weights * P_c)[:, None] * lower) + ridge * identity
            # A = ridge I + L^T D_c L = R_c R_c^T, V_c^T = R_c^-1 L^T, and S_c = V_c V_c^T.
            V_transposed = solve_lower(cholesky_factor(DenseGram(A)).lower, lower.T)
            S = matmul(V_transposed.T, V_transposed)
            g = root_of_weights * P_c
            return left - g[:, None] * S * g[None, :], S

        left, self.of_classes = lax.scan(with_class, identity, P.T)
        self.total = cholesky_factor(DenseGram(left))
        self.root_of_weights = root_of_weights

    def _roughly_solved(self, r):
        _, P, ridge, weights = stop_gradient(self.args)
        # This q is w^1/2 times that of the constructor: f_c = S_c (r_c + w^1/2 P_c q), and the
        # solution is a = (r - W f) / ridge.
        q = self.total.solve(self.root_of_weights * jnp.sum(P * self._values(r), 1))
        # This gives the step for D instead of W <= D, which is shorter but also a descent
        # direction.
        q = jnp.where(self.total.exists, q, 0)
        f = self._values(r + self.root_of_weights[:, None] * P * q[:, None])
        return (r - hessian(P, weights, f)) / ridge

    def _values(self, r):
        """`K (ridge + D_c K)^-1 r_c` for each class."""
        return jax.vmap(matmul, (0, 1), 1)(self.of_classes, r)


def _root(gram: DenseGram) -> Float[Array, "n n"]:
    """L with `L L^T = K` to a few eps of its mean diagonal; zero if K is zero."""
    mean = jnp.mean(gram.diagonal())
    first, _ = range_of_jitter(mean)
    lower = cholesky_factor(gram, 2 * eps_of(mean) * mean**2 / positive_or_one(first)).lower
    return jnp.where(mean == 0, 0, lower)


class HessianInverseOfFeatures(AbstractHessianInverse):
    """The inverse for `K = F F^T` with D features, by one factor of size D times classes."""

    def __init__(self, gram, P, ridge, weights, most_left):
        # u = F^T a solves (ridge + F^T W F) u = F^T r, where W couples the classes, and a is (r - W
        # F u) / ridge.
        self.args = (gram, P, ridge, weights)
        self.most_left = most_left
        gram, P, ridge, weights = stop_gradient(self.args)
        curvature = _curvature_of_features(gram.features, P, weights)
        identity = jnp.eye(len(curvature), dtype=P.dtype)
        self.inside = cholesky_factor(DenseGram(curvature + ridge * identity))

    def _roughly_solved(self, r):
        gram, P, ridge, weights = stop_gradient(self.args)
        F = gram.features
        of_features = matmul(F.T, r)
        u = self.inside.solve(of_features.T.reshape(-1)).reshape(of_features.T.shape).T
        return (r - hessian(P, weights, matmul(F, u))) / ridge


def _curvature_of_features(F: Float[Array, "n d"], P, weights) -> Float[Array, "m m"]:
    """`F^T W F` over all m combinations of features and classes, ordered by class."""
    others = sum_of_others(P)
    d = F.shape[1]
    c = P.shape[1]

    def block(pair):
        i, j = pair
        # The block of classes i and j is F^T diag(w P_i (delta_ij - P_j)) F.
        of_both = jnp.where(i == j, others[:, i], -P[:, j])
        return matmul(F.T, (weights * P[:, i] * of_both)[:, None] * F)

    classes = jnp.arange(c)
    blocks = lax.map(block, (jnp.repeat(classes, c), jnp.tile(classes, c)))
    return blocks.reshape(c, c, d, d).transpose(0, 2, 1, 3).reshape(c * d, c * d)


def hessian_inverse(gram: AbstractGram, P, ridge, weights, most_left) -> AbstractHessianInverse:
    """`(W K + ridge I)^-1` for any representation of K; W is the Hessian at P."""
    has_features = isinstance(gram, LowRankGram)
    kind = HessianInverseOfFeatures if has_features else HessianInverse
    return kind(gram, P, ridge, weights, most_left)


def _apply(gram, P, ridge, weights, a):
    return ridge * a + hessian(P, weights, gram.mv(a))
