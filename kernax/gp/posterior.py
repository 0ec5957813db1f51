"""Posterior covariances of processes, as kernels."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import cast, check_one_point
from kernax.core.base.numerics import dot, matmul, safe_sqrt, stop_gradient
from kernax.core.base.parameters import data
from kernax.core.base.solution import void_unless_known
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.linalg.cholesky import CholeskyFactor
from kernax.core.linalg.density import cholesky
from kernax.core.linalg.factorisation import (
    AbstractCovarianceReduction,
    AbstractFactor,
    WeightedSystem,
)
from kernax.core.linalg.low_rank import LowRankFactor, factor_plus_identity, low_rank
from kernax.core.linalg.solves import solve_lower


class AbstractConditioned(AbstractKernel):
    """The covariance of a process conditioned on some of its values."""

    @abc.abstractmethod
    def without_observations(self) -> AbstractKernel:
        """The prior covariance, before any conditioning."""

    @abc.abstractmethod
    def point(self, x: PyTree) -> PyTree:
        """One point, checked and cast."""


class AbstractPosterior(AbstractConditioned):
    """The covariance of a process with kernel `prior`, given values at `points`.

    Its arrays are not parameters: to learn, differentiate through `condition`.
    """

    prior: eqx.AbstractVar[AbstractKernel]
    points: eqx.AbstractVar[PyTree]

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """The dtype of the factor."""

    def without_observations(self):
        return without_observations(self.prior)

    def point(self, x):
        check_one_point(x, self.points)
        return cast(x, self.dtype)

    def check_points(self, X):
        self.prior.check_points(X)


class AbstractTriangularPosterior(AbstractPosterior):
    """A posterior covariance with a Cholesky factor."""

    lower: eqx.AbstractVar[Float[Array, "m m"]]

    @property
    def dtype(self):
        return self.lower.dtype


def without_observations(kernel: AbstractKernel) -> AbstractKernel:
    """The covariance before any conditioning: the prior of a posterior, any other kernel itself."""
    return kernel.without_observations() if isinstance(kernel, AbstractConditioned) else kernel


def point_for(kernel: AbstractKernel, x: PyTree) -> PyTree:
    """One point, checked and cast if the covariance knows the shape and the dtype of points."""
    return kernel.point(x) if isinstance(kernel, AbstractConditioned) else x


class PosteriorKernel(AbstractTriangularPosterior):
    """`k(x, z) - v(x).v(z)`, `v(x) = L^-1 k(X, x)`, where all weights are one.

    Attributes:
        prior: the kernel k.
        points: X, a batch of n points.
        lower: the Cholesky factor L of `K + diag(noise)`, (n, n).
        noise: (n,), the jitter included.
    """

    prior: AbstractKernel = data()
    points: PyTree = data()
    lower: Float[Array, "n n"] = data()
    noise: Float[Array, " n"] = data()

    def __call__(self, x, z):
        u = self._explained(x)
        v = u if z is x else self._explained(z)  # a variance needs only one solve
        return self.prior(x, z) - dot(u, v)

    def _explained(self, x: PyTree) -> Float[Array, " n"]:
        """v(x); `|v(x)|^2` is the reduction of the variance at x by the observations."""
        return solve_lower(self.lower, _row(self, x))


class WeightedPosteriorKernel(AbstractTriangularPosterior):
    """`k(x, z) - v(x).v(z)`, `v(x) = L^-1 S k(X, x)`, with S the square roots of the weights.

    Attributes:
        prior: the kernel k.
        points: X, a batch of n points.
        lower: the Cholesky factor L of `S K S + diag(noise)`, (n, n).
        roots: the diagonal of S (n,).
        gains: `w / noise` where a weight w is zero, zero elsewhere (n,). All entries are zero; they
            carry the derivative in w. To first order an observation of weight w at p lowers the
            covariance by `w c(x, p) c(p, z) / noise`, but the square root of w has no derivative at
            zero.
        cross: `L^-1 S K` (n, n).
        noise: (n,), the jitter included; one where both the noise and the weight are zero.
    """

    prior: AbstractKernel = data()
    points: PyTree = data()
    lower: Float[Array, "n n"] = data()
    roots: Float[Array, " n"] = data()
    gains: Float[Array, " n"] = data()
    cross: Float[Array, "n n"] = data()
    noise: Float[Array, " n"] = data()

    def __call__(self, x, z):
        u, left = self._explained(x)
        v, right = (u, left) if z is x else self._explained(z)
        return self.prior(x, z) - dot(u, v) - dot(self.gains * left, right)

    def _explained(self, x: PyTree) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """v(x), and the posterior covariance c(x, X)."""
        row = _row(self, x)
        v = solve_lower(self.lower, self.roots * row)
        # c(x, X) = k(x, X) - v(x)^T L^-1 S K.
        return v, row - matmul(v, self.cross)


class FeaturePosteriorKernel(AbstractTriangularPosterior):
    """`u(x).u(z)`, `u(x) = L^-1 phi(x)`, for a prior `phi(x).phi(z)` with explicit features.

    This is Bayesian linear regression (Rasmussen & Williams 2006, eq. 2.11).

    Attributes:
        prior: the kernel.
        points: X, a batch of n points.
        lower: the Cholesky factor L of `I + F^T (W / noise) F`, (features, features), where F holds
            the features of X.
    """

    prior: AbstractKernel = data()
    points: PyTree = data()
    lower: Float[Array, "d d"] = data()

    def __call__(self, x, z):
        phi = self.explicit_features()
        assert phi is not None
        u = phi(x)
        return dot(u, u if z is x else phi(z))

    def explicit_features(self):
        # u(x)
        phi = self.prior.explicit_features()
        return None if phi is None else lambda x: solve_lower(self.lower, phi(x))


class InducedPosteriorKernel(AbstractTriangularPosterior):
    """`k(x, z) - u(x).u(z) + v(x).v(z)`, `u(x) = L^-1 k(Z, x)`, `v(x) = root^T u(x)`, for values at
    inducing points with the distribution `N(L m, L root root^T L^T)`.

    Attributes:
        prior: the kernel k.
        points: Z, a batch of m inducing points.
        lower: the Cholesky factor L of `k(Z, Z)`, (m, m).
        root: a root of the covariance of the whitened values, (m, m); with the identity the
            posterior is the prior.
    """

    prior: AbstractKernel = data()
    points: PyTree = data()
    lower: Float[Array, "m m"] = data()
    root: Float[Array, "m m"] = data()

    def __call__(self, x, z):
        u, v = self._whitened(x)
        other_u, other_v = (u, v) if z is x else self._whitened(z)
        return self.prior(x, z) - dot(u, other_u) + dot(v, other_v)

    def _whitened(self, x: PyTree) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """u(x) and v(x)."""
        u = solve_lower(self.lower, _row(self, x))
        return u, matmul(u, self.root)


class ReductionPosteriorKernel(AbstractPosterior):
    """`k(x, z) - e(x, z)`, with the covariance reduction e by any factor.

    Attributes:
        prior: the kernel k.
        points: X, a batch of n points.
        reduction: the covariance reduction by the observations at X.
    """

    prior: AbstractKernel = data()
    points: PyTree = data()
    reduction: AbstractCovarianceReduction = data()

    @property
    def dtype(self):
        return self.reduction.dtype

    def __call__(self, x, z):
        return self.prior(x, z) - self.reduction.at(self.prior, self.points, x, z)


def _row(kernel: AbstractPosterior, x: PyTree) -> Float[Array, " n"]:
    """k(X, x), of the prior."""
    return jax.vmap(lambda point: kernel.prior(point, x))(kernel.points)


def posterior_kernel(
    factor: AbstractFactor,
    prior: AbstractKernel,
    points: PyTree,
    system: WeightedSystem,
    result: Any,
) -> AbstractPosterior:
    """The covariance given values at the points, from the factor of the system.

    Differentiable in the prior, the points and the system. NaN if `result` says that the factor
    does not exist or is not finite.
    """
    if isinstance(factor, CholeskyFactor):
        system = system.with_jitter(factor)
        # L L^T = S K S + diag(noise), with the jitter in the noise.
        # NaN is inserted before L is used; later it would need a copy of the matrix.
        lower = void_unless_known(cholesky(system.symmetric_form().as_matrix(), factor), result)
        if not system.weights.removes:
            return PosteriorKernel(prior, points, lower, system.shift)
        weights = system.weights.values
        roots = safe_sqrt(weights)
        # L^-1 S K, so that c(x, X) = k(x, X) - v(x)^T L^-1 S K.
        cross = solve_lower(lower, roots[:, None] * system.gram.as_matrix())
        # w / noise where a weight w is zero, and zero elsewhere.
        removed = weights == 0  # their shift is positive; that of a point without noise is zero
        gains = jnp.where(removed, weights, 0) / jnp.where(removed, system.shift, 1)
        return WeightedPosteriorKernel(prior, points, lower, roots, gains, cross, system.shift)
    if isinstance(factor, LowRankFactor):
        weights = system.weights.values
        # T = W Phi Phi^T + D. D holds the noise, and the part of the diagonal of W K that the
        # features Phi lack.
        noise = weights * low_rank(system).remainder + system.shift
        features = low_rank(system).features
        # L L^T = I + Phi^T diag(w / noise) Phi.
        squares = matmul(features.T, (weights / noise)[:, None] * features)
        inner = squares + jnp.eye(len(squares), dtype=squares.dtype)
        # The factor is not computed from `inner`, where rounding may lose the ones, but from the
        # rows of Q^T Phi, which has the same inner products as the scaled features Phi, because
        # the columns of Q span it.
        scaled = system.weights.times_roots(features) / jnp.sqrt(noise)[:, None]
        few = stop_gradient(matmul(factor.basis.T, scaled))
        lower = cholesky(inner, factor_plus_identity(few.T))
        return FeaturePosteriorKernel(prior, points, void_unless_known(lower, result))
    reduction = factor.covariance_reduction(system)
    if reduction is None:
        raise ValueError(
            f"a process conditioned by a {type(factor).__name__} has no covariance: implement "
            "its method covariance_reduction, or use JitteredCholesky()"
        )
    arrays, rest = eqx.partition(reduction, eqx.is_inexact_array)
    known = eqx.combine(void_unless_known(arrays, result), rest)
    return ReductionPosteriorKernel(prior, points, known)
