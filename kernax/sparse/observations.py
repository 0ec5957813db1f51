"""The observations of a relevance vector machine: numbers with noise, or labels.

Let `J = df / dw` for the weights w, `r` be the slopes of the log likelihood in f and `B` its
curvatures. The mode of the posterior of w satisfies `J^T r = A w`, A the diagonal matrix of
precisions, and its covariance is `(A + J^T B J)^-1`. This is exact for numbers, and Laplace's
approximation for labels (MacKay 1992; Tipping 2001, section 3). Everything is computed in whitened
weights `v = A^1/2 w`: their system `I + A^-1/2 J^T B J A^-1/2` has no eigenvalue below one,
whatever the kernel.
"""

import abc
import math
from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.numerics import eps_of, matmul
from kernax.core.losses.loss_functions import AbstractSmoothLoss
from kernax.core.losses.newton import AbstractConvexProblem, Iterate, Stationarity, newton
from kernax.core.losses.observation_likelihoods import Categorical
from kernax.sparse.basis import second_derivative, slopes, values


class AbstractObservations(eqx.Module):
    """Targets at n points with weights, and their likelihood given the values f."""

    y: eqx.AbstractVar[Float[Array, "n c"]]
    weights: eqx.AbstractVar[Float[Array, " n"]]

    @property
    def outputs(self) -> int:
        """The number c of values at a point: one, or one for each class."""
        return self.y.shape[1]

    @property
    def count(self) -> Float[Array, ""]:
        """The number of observations, by weight."""
        return jnp.sum(self.weights)

    @abc.abstractmethod
    def size(self) -> Float[Array, ""]:
        """The weighted sum of squares that the values at the points may have."""

    @abc.abstractmethod
    def losses(self, f: Float[Array, "n c"], noise: Float[Array, ""]) -> Float[Array, ""]:
        """`-sum_i w_i log p(y_i | f_i)`."""

    @abc.abstractmethod
    def residuals(self, f: Float[Array, "n c"], noise: Float[Array, ""]) -> Float[Array, "n c"]:
        """r, the derivative of the log likelihood in f."""

    @abc.abstractmethod
    def curvatures(self, f: Float[Array, "n c"], noise: Float[Array, ""]) -> Float[Array, "n c c"]:
        """B, the second derivative of the losses at each point."""

    @abc.abstractmethod
    def third_derivative(
        self, f: Float[Array, "n c"], noise: Float[Array, ""], parts: Float[Array, "n c M"]
    ) -> Float[Array, "n c M"]:
        """The derivative in f of `sum_cd parts_c B_cd parts_d`."""

    @abc.abstractmethod
    def mode(
        self, design: Float[Array, "n c M"], start: Float[Array, " M"], noise: Float[Array, ""]
    ) -> Float[Array, " M"]:
        """The whitened weights that minimise `losses(J v) + |v|^2 / 2`."""


class NoisyObservations(AbstractObservations):
    """`y = f + e`, `e ~ N(0, noise)`."""

    y: Float[Array, "n 1"]
    weights: Float[Array, " n"]

    def size(self):
        squares = matmul(self.weights, self.y[:, 0] ** 2)
        return jnp.where(squares > 0, squares, self.count)

    def losses(self, f, noise):
        # -log N(y | f, noise) = (y - f)^2 / (2 noise) + log(2 pi noise) / 2.
        squares = matmul(self.weights, (self.y - f)[:, 0] ** 2)
        return (squares / noise + self.count * jnp.log(2 * math.pi * noise)) / 2

    def residuals(self, f, noise):
        return self.weights[:, None] * (self.y - f) / noise

    def curvatures(self, f, noise):
        return (self.weights / noise)[:, None, None]

    def third_derivative(self, f, noise, parts):
        return jnp.zeros_like(parts)

    def mode(self, design, start, noise):
        nothing = jnp.zeros_like(self.y)
        system = second_derivative(self.curvatures(nothing, noise), design)
        # One step of iterative refinement.
        factor = lower_factor(system)
        first = _solved(factor, slopes(design, self.residuals(nothing, noise)))
        left = slopes(design, self.residuals(values(design, first), noise)) - first
        return first + _solved(factor, left)


class Labels(AbstractObservations):
    """Signs, counts, or the classes of one-hot rows, with their likelihood."""

    y: Float[Array, "n c"]
    weights: Float[Array, " n"]
    loss: AbstractSmoothLoss | Categorical

    def size(self):
        return self.count

    def losses(self, f, noise):
        if isinstance(self.loss, Categorical):
            return matmul(self.weights, self.loss(self.y, f))
        return matmul(self.weights, self.loss(self.y[:, 0], f[:, 0]))

    def residuals(self, f, noise):
        if isinstance(self.loss, Categorical):
            slope = self.loss.derivative(self.y, f)
        else:
            slope = self.loss.derivative(self.y[:, 0], f[:, 0])[:, None]
        return -self.weights[:, None] * slope

    def curvatures(self, f, noise):
        if isinstance(self.loss, Categorical):

            def of_softmax(f: Float[Array, " c"]) -> Float[Array, "c c"]:
                # diag(p) - p p^T, the second derivative of log sum exp f.
                p = jax.nn.softmax(f)
                return jnp.diag(p) - p[:, None] * p[None, :]

            blocks = jax.vmap(of_softmax)(f)
        else:
            blocks = self.loss.curvature(self.y[:, 0], f[:, 0])[:, None, None]
        return self.weights[:, None, None] * blocks

    def third_derivative(self, f, noise, parts):
        w = self.weights[:, None, None]
        if isinstance(self.loss, Categorical):
            # The derivative in f of `sum p x^2 - (sum p x)^2`, x the parts.
            p = jax.nn.softmax(f)[:, :, None]
            mean = jnp.sum(p * parts, 1, keepdims=True)
            square = jnp.sum(p * parts**2, 1, keepdims=True)
            # In f_k: p_k (x_k^2 - sum p x^2) - 2 (sum p x) p_k (x_k - sum p x).
            third = p * (parts**2 - square - 2 * mean * (parts - mean))
            return w * third
        y = self.y[:, 0]
        curvature = partial(self.loss.curvature, y)
        _, third = jax.jvp(curvature, (f[:, 0],), (jnp.ones_like(y),))
        # With one value, d(L'' x^2) / df = L''' x^2.
        return w * third[:, None, None] * parts**2

    def mode(self, design, start, noise):
        return newton(_PenalisedLoss(self, design, start, noise))[0].x


class _PenalisedLoss(AbstractConvexProblem):
    """`losses(J v) + |v|^2 / 2` as a function of v."""

    labels: Labels
    design: Float[Array, "n c M"]
    first: Float[Array, " M"]
    noise: Float[Array, ""]  # labels have no noise

    def start(self):
        return self.at(self.first)

    def values(self, x):
        return values(self.design, x)

    def correction(self, point):
        # (I + J^T B J) d = J^T r - v.
        system = second_derivative(self.labels.curvatures(point.values, self.noise), self.design)
        return _solved(lower_factor(system), self._left(point))

    def slope_along(self, point, direction) -> Callable[[Array], Array]:
        change = values(self.design, direction)

        def slope(t: Array) -> Array:
            r = self.labels.residuals(point.values + t * change, self.noise)
            # d/dt = (v + t d).d - r.(J d), r at f + t J d.
            return jnp.sum((point.x + t * direction) * direction) - jnp.sum(r * change)

        return slope

    def stationarity(self, point):
        r = self.labels.residuals(point.values, self.noise)
        left = jnp.max(abs(self._left(point)))
        size = jnp.max(abs(point.x) + slopes(abs(self.design), abs(r)))
        return Stationarity(left, size, eps_of(size) * size)

    def settled(self, point):
        return point.x

    def objective(self, point):
        return self.labels.losses(point.values, self.noise) + jnp.sum(point.x**2) / 2

    def _left(self, point: Iterate) -> Float[Array, " M"]:
        """`J^T r - v`, which is zero at the minimum."""
        return slopes(self.design, self.labels.residuals(point.values, self.noise)) - point.x


class Posterior(eqx.Module):
    """The normal distribution of the whitened weights given the data, or its Laplace approximation.

    Attributes:
        mode: v.
        values: f at the points.
        curvatures: B at these values.
        inverse_factor: `L^-1` of `L L^T = I + A^-1/2 J^T B J A^-1/2`.
    """

    mode: Float[Array, " M"]
    values: Float[Array, "n c"]
    curvatures: Float[Array, "n c c"]
    inverse_factor: Float[Array, "M M"]

    @property
    def covariance(self) -> Float[Array, "M M"]:
        """P, the covariance of the whitened weights."""
        return matmul(self.inverse_factor.T, self.inverse_factor)

    @property
    def determined(self) -> Float[Array, " M"]:
        """`gamma = 1 - P_ii`: how well the data determine each weight, between 0 and 1."""
        # P = L^-T L^-1, so that P_ii = sum_k (L^-1)_ki^2.
        return 1 - jnp.sum(self.inverse_factor**2, 0)


def posterior(
    observations: AbstractObservations,
    design: Float[Array, "n c M"],
    start: Float[Array, " M"],
    noise: Float[Array, ""],
) -> Posterior:
    """The posterior of the weights, without a derivative; `design` is the derivative of f in the
    whitened weights.
    """
    # v minimises losses(J v) + |v|^2 / 2; its covariance is (I + A^-1/2 J^T B J A^-1/2)^-1.
    v = observations.mode(design, start, noise)
    f = values(design, v)
    B = observations.curvatures(f, noise)
    factor = lower_factor(second_derivative(B, design))
    identity = jnp.eye(len(v), dtype=v.dtype)
    # L^-1, with L L^T the inverse of the covariance.
    halfway = partial(jax.scipy.linalg.solve_triangular, lower=True, check_finite=False)
    return Posterior(v, f, B, sequential_vmap(halfway, factor, identity))


def lower_factor(system: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """The lower factor of `I + system`."""
    whole = system + jnp.eye(len(system), dtype=system.dtype)
    return sequential_vmap(jnp.linalg.cholesky, whole)


def _solved(L: Float[Array, "M M"], b: Float[Array, " M"]) -> Float[Array, " M"]:
    """`(L L^T)^-1 b`."""
    solve = lambda L, b: jax.scipy.linalg.cho_solve((L, True), b, check_finite=False)
    return sequential_vmap(solve, L, b)
