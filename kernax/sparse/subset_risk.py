"""Logistic and softmax regression with a ridge on explicit features, by Newton's method in their
weights.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.numerics import eps_of, matmul, positive_or_one
from kernax.core.base.special_functions import softplus
from kernax.core.linalg.cholesky import CholeskyFactor, cholesky_factor
from kernax.core.losses.loss_functions import Logistic
from kernax.core.losses.newton import AbstractConvexProblem, Iterate, Stationarity
from kernax.core.losses.softmax_hessian import sum_of_others
from kernax.core.operators.operators import DenseGram


class AbstractClassLoss(eqx.Module):
    """`sum_i w_i L(y_i, f_i)` of values f_i with c entries, for labels in c columns.

    Attributes:
        y: signs in one column, or one-hot rows.
        weights: those of the points.
    """

    y: eqx.AbstractVar[Float[Array, "n c"]]
    weights: eqx.AbstractVar[Float[Array, " n"]]

    has_free_shift: ClassVar[bool]  # whether a number added to all entries of f_i changes nothing

    @abc.abstractmethod
    def total(self, f: Float[Array, "n c"]) -> Float[Array, ""]:
        """The weighted sum of the losses."""

    @abc.abstractmethod
    def gradient(self, f: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """Its derivative in f."""

    @abc.abstractmethod
    def hessian(self, f: Float[Array, "n c"]) -> Float[Array, "n c c"]:
        """Its second derivative, one block for each point."""

    def balanced(self, x: Float[Array, "m c"]) -> Float[Array, "m c"]:
        """Rows projected to sum zero, as they do at the minimum, where a shift of all values
        changes no loss.
        """
        return x - jnp.mean(x, 1, keepdims=True) if self.has_free_shift else x


class SignLoss(AbstractClassLoss):
    """`sum_i w_i log(1 + exp(-y_i f_i))`."""

    y: Float[Array, "n c"]
    weights: Float[Array, " n"]

    has_free_shift: ClassVar[bool] = False

    def total(self, f):
        return jnp.sum(self.weights[:, None] * Logistic()(self.y, f))

    def gradient(self, f):
        return self.weights[:, None] * Logistic().derivative(self.y, f)

    def hessian(self, f):
        return (self.weights[:, None] * Logistic().curvature(self.y, f))[:, :, None]


class SoftmaxLoss(AbstractClassLoss):
    """`-sum_i w_i log softmax(f_i)` at the class of point i."""

    y: Float[Array, "n c"]
    weights: Float[Array, " n"]

    has_free_shift: ClassVar[bool] = True

    def total(self, f):
        # log(1 + sum of exp(f_c - f_y) over the other classes), which is exact where it is tiny.
        others = jax.nn.logsumexp(jnp.where(self.y > 0, -jnp.inf, f), 1)
        return jnp.sum(self.weights * softplus(others - jnp.sum(self.y * f, 1)))

    def gradient(self, f):
        # P - y, without cancellation where P is nearly one.
        P = jax.nn.softmax(f)
        of_others = jnp.sum((1 - self.y) * P, 1, keepdims=True)
        return self.weights[:, None] * jnp.where(self.y > 0, -of_others, P)

    def hessian(self, f):
        P = jax.nn.softmax(f)
        # w (diag(P) - P P^T), with P (1 - P) on the diagonal, where 1 - P is a sum.
        own = self.weights[:, None] * P * sum_of_others(P)
        others = -self.weights[:, None, None] * P[:, :, None] * P[:, None, :]
        is_own = jnp.eye(P.shape[1], dtype=bool)[None]
        return jnp.where(is_own, own[:, :, None], others)


class Centre(eqx.Module):
    """The weighted means of features over the points, or zeros if there is no bias.

    With `f = F u + b = (F - 1 m) u + b'`, `b' = b + m.u`, features that are large compared with
    their differences, such as those of a kernel plus a large constant, no longer resemble the bias.
    """

    shares: Float[Array, " n"]

    @staticmethod
    def of(loss: AbstractClassLoss, bias: bool) -> "Centre":
        """The means, by the weights of the points."""
        shares = loss.weights / positive_or_one(jnp.sum(loss.weights))
        return Centre(shares if bias else jnp.zeros_like(shares))

    def means(self, F: Float[Array, "n m"]) -> Float[Array, " m"]:
        """m."""
        return matmul(self.shares, F)

    def apply(self, F: Float[Array, "n m"]) -> Float[Array, "n m"]:
        """`F - 1 m`, applied twice because the first m is rounded like F."""
        once = F - self.means(F)[None]
        return once - self.means(once)[None]


class SubsetRisk(AbstractConvexProblem):
    """`sum_i w_i L(y_i, f_i) + ridge/2 |u|^2`, `f = F u + b`, as a function of x: the weights u
    above the bias b, each with a column for each entry of f_i.

    With features `F = K_XS L^-T`, `K_SS = L L^T`, and `u = L^T a` it is the risk of `f = K_XS a +
    b` with the penalty `ridge/2 a.K_SS a`. Zero columns of F have no effect.

    Attributes:
        features: F.
        begin: the x that Newton's method starts from.
        bias: whether there is a b.
    """

    features: Float[Array, "n m"]
    loss: AbstractClassLoss
    ridge: Float[Array, ""]
    begin: Float[Array, "m1 c"]
    bias: bool = eqx.field(static=True)

    def start(self):
        return self.at(self.begin)

    def values(self, x):
        return matmul(self.features, x[:-1])

    def function(self, point: Iterate) -> Float[Array, "n c"]:
        """f."""
        return point.values + point.x[-1:]

    def quadratic(self, point: Iterate) -> "Quadratic":
        """The risk to second order about a point."""
        return Quadratic.of(self, self.loss.hessian(self.function(point)))

    def correction(self, point):
        return self.loss.balanced(-self.quadratic(point).solve(self._gradient(point)))

    def slope_along(self, point, direction):
        unit = positive_or_one(jnp.max(abs(direction)))
        scaled = direction / unit
        f = self.function(point)
        change = self.function(self.at(direction))
        change_by_unit = self.function(self.at(scaled))

        def slope(t: Float[Array, ""]) -> Float[Array, ""]:
            u = point.x[:-1] + t * direction[:-1]
            # (G.(F d_u + d_b) + ridge (u + t d_u).d_u) / unit, G at f + t (F d_u + d_b).
            of_loss = jnp.sum(self.loss.gradient(f + t * change) * change_by_unit)
            return of_loss + self.ridge * jnp.sum(u * scaled[:-1])

        return slope

    def stationarity(self, point):
        # Separately for each weight and for the biases: small features have small gradients, which
        # others would hide.
        eps = eps_of(point.x)
        u = point.x[:-1]
        f = self.function(point)
        G = self.loss.gradient(f)
        F = abs(self.features)
        of_f = eps * (matmul(F, abs(u)) + abs(point.x[-1:]))
        curvature = jnp.diagonal(self.loss.hessian(f), axis1=1, axis2=2)
        # To first order the error of G_c is W_cc of_f, plus its own rounding.
        of_G = curvature * jnp.max(of_f, 1, keepdims=True) + eps * abs(G)
        size = self._over_points(F, abs(G)) + abs(self._of_norm(u))
        most = eps ** (1 / 3) / 12 * size
        rounding = jnp.minimum(self._over_points(F, of_G), most)
        return Stationarity(abs(self._gradient(point)), size, rounding)

    def settled(self, point):
        return self.loss.balanced(point.x)  # of the rounding errors of many steps

    def objective(self, point):
        square = jnp.sum(point.x[:-1] ** 2)
        return self.loss.total(self.function(point)) + self.ridge / 2 * square

    def _gradient(self, point: Iterate) -> Float[Array, "m1 c"]:
        G = self.loss.gradient(self.function(point))
        return self._over_points(self.features, G) + self._of_norm(point.x[:-1])

    def _over_points(self, F: Float[Array, "n m"], G: Float[Array, "n c"]) -> Float[Array, "m1 c"]:
        """`F^T G` above the sum of G, or above zero without a bias."""
        of_bias = jnp.sum(G, 0, keepdims=True) if self.bias else jnp.zeros_like(G[:1])
        return jnp.concatenate([matmul(F.T, G), of_bias])

    def _of_norm(self, u: Float[Array, "m c"]) -> Float[Array, "m1 c"]:
        """The gradient of the penalty."""
        return jnp.concatenate([self.ridge * u, jnp.zeros_like(u[:1])])


class Quadratic(eqx.Module):
    """The Hessian H of a `SubsetRisk` at a point, scaled to a diagonal of one, by its Cholesky
    factor.

    Attributes:
        hessian: W, the Hessian of the loss, a block for each point.
        weighted: `B_ip W_icd`, B the features with a column of ones for the bias, c and d in one
            axis.
        scale: for each entry of x, the root of the diagonal of H.
        factor: the Cholesky factor of H divided by the scales of its rows and columns.
    """

    hessian: Float[Array, "n c c"]
    weighted: Float[Array, "n m1 cc"]
    scale: Float[Array, " m1c"]
    factor: CholeskyFactor

    @staticmethod
    def of(risk: SubsetRisk, W: Float[Array, "n c c"]) -> "Quadratic":
        """The quadratic with W as the Hessian of the loss."""
        c = W.shape[1]
        one = jnp.full_like(W[:, :1, 0], 1.0 if risk.bias else 0.0)
        B = jnp.concatenate([risk.features, one], 1)
        weighted = B[:, :, None] * W.reshape(len(B), 1, -1)
        # The entry (p c)(q d) of H is sum_i B_ip W_icd B_iq, plus the Hessian of the penalty.
        m1 = B.shape[1]
        sums = matmul(B.T, weighted.reshape(len(B), -1)).reshape(m1, m1, c, c)  # q p c d
        H = sums.transpose(1, 2, 0, 3).reshape(m1 * c, m1 * c)
        # The block of the biases makes H invertible. Without biases it is the identity, so that
        # their steps are zero.
        of_bias = jnp.zeros((c, c), W.dtype)
        if not risk.bias:
            of_bias = jnp.eye(c, dtype=W.dtype)
        elif risk.loss.has_free_shift:
            of_bias = curvature_of_shift(W)
        of_weights = jnp.diag(jnp.full((m1 - 1) * c, risk.ridge))
        H = H + jax.scipy.linalg.block_diag(of_weights, of_bias)
        # Unnormalised features differ by many orders of magnitude: the last ones are small
        # residuals.
        scale = jnp.sqrt(positive_or_one(jnp.diagonal(H)))
        factor = cholesky_factor(DenseGram(H / scale[:, None] / scale[None, :]))
        return Quadratic(W, weighted, scale, factor)

    def solve(self, r: Float[Array, "m1 c"]) -> Float[Array, "m1 c"]:
        """`H^-1 r`."""
        # H^-1 = S^-1 (S^-1 H S^-1)^-1 S^-1, S the diagonal matrix of scale.
        return (self.factor.solve(r.ravel() / self.scale) / self.scale).reshape(r.shape)

    def whitened(self) -> Float[Array, "n m1 cc"]:
        """A matrix M such that `V = M phi`, for a further feature phi, has `V^T V = h^T H^-1 h`,
        where `h = B^T W phi` is the block of the Hessian between the weights of phi and the present
        ones.

        It is zero for zero columns of F.
        """
        (n, m1, cc) = self.weighted.shape
        c = self.hessian.shape[1]
        h = jnp.moveaxis(self.weighted.reshape(n, m1 * c, c), 0, 1)  # that of each phi = e_i
        V = self.factor.whitened(h.reshape(m1 * c, n * c) / self.scale[:, None])
        return jnp.moveaxis(V.reshape(m1 * c, n, c), 1, 0).reshape(n, m1, cc)


def curvature_of_shift(W: Float[Array, "n c c"]) -> Float[Array, "c c"]:
    """A substitute for the curvature of a softmax along a shift of all biases, along which
    gradients are zero: a positive curvature for the bias of one class, which then takes a step of
    zero.

    The class is the one with the largest curvature. That of a class with hardly a point may be
    tiny, and rounding would lose it.
    """
    of_classes = jnp.einsum("ncc->c", lax.stop_gradient(W))
    is_largest = jnp.arange(len(of_classes)) == jnp.argmax(of_classes)
    return jnp.diag(jnp.where(is_largest, positive_or_one(of_classes), 0))
