"""The normal distribution of values at inducing points, the terms of a minibatch in the bound, and
the natural gradient.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.batching import sequential_vmap
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import matmul
from kernax.core.base.parameters import real
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS
from kernax.core.linalg.solves import inverse_of_lower
from kernax.core.losses.loss_functions import AbstractLikelihood
from kernax.core.losses.quadrature import bounded_slopes
from kernax.gp.inducing import projected
from kernax.gp.process import GaussianProcess


class InducingNormal(Printed):
    """`q(v) = N(mean, root root^T)` of the whitened values `v = L^-1 (f(Z) - m(Z))` at inducing
    points, `L L^T = k(Z, Z)`; the prior is `N(0, I)`.

    Attributes:
        mean: (m,).
        root: lower triangular, (m, m); entries above the diagonal are ignored.

    Examples:
        >>> q = kernax.types.InducingNormal(mean=jnp.zeros(3), root=jnp.eye(3))  # the prior
        >>> q.mean.shape, q.root.shape
        ((3,), (3, 3))
    """

    mean: Float[ParameterArray, " m"] = real()
    root: Float[ParameterArray, "m m"] = real()

    @staticmethod
    @renamed(count="n_points")
    def prior(n_points: int, dtype: Any = None) -> "InducingNormal":
        """The prior `N(0, I)` of the values at `n_points` inducing points."""
        return InducingNormal(jnp.zeros(n_points, dtype), jnp.eye(n_points, dtype=dtype))

    @property
    def lower(self) -> Float[Array, "m m"]:
        """The lower triangle of the root; the rest is ignored."""
        return jnp.tril(self.root)

    def divergence(self) -> Float[Array, ""]:
        """`KL(q(v) | N(0, I))`."""
        # KL = (tr S + |mean|^2 - m - log |S|) / 2 with S = root root^T, log |S| = sum_i log
        # root_ii^2: squares, because diagonal entries may have either sign.
        determinant = jnp.sum(jnp.log(jnp.diagonal(self.root) ** 2))
        squares = jnp.sum(self.lower**2) + jnp.sum(self.mean**2)
        return (squares - len(self.mean) - determinant) / 2


def check_normal(q: Any, m: int) -> None:
    """Raises ValueError unless q is a distribution of m values."""
    if not isinstance(q, InducingNormal):
        raise ValueError(
            f"q must be an InducingNormal, such as InducingNormal.prior({m}), but is of type "
            f"{type(q).__name__}"
        )
    if q.mean.shape != (m,) or q.root.shape != (m, m):
        raise ValueError(
            f"q must have shapes ({m},) and ({m}, {m}) to go with {m} inducing points, but has "
            f"shapes {q.mean.shape} and {q.root.shape}"
        )


class SparseModel(eqx.Module):
    """The parameters that `svgp` learns in addition to q: prior, likelihood and inducing points."""

    process: GaussianProcess
    likelihood: AbstractLikelihood
    Z: PyTree


class Batch(eqx.Module):
    """A minibatch: points, their targets and weights."""

    X: PyTree
    y: Float[Array, " b"]
    weights: Float[Array, " b"]


class BatchMarginals(eqx.Module):
    """The distribution of f at the points of a batch.

    Attributes:
        features: `U = L^-1 k(Z, X)`.
        shift: the mean minus that of the prior, `U^T` times the mean of q.
        mean, variance: the moments of each value.
    """

    features: Float[Array, "m b"]
    shift: Float[Array, " b"]
    mean: Float[Array, " b"]
    variance: Float[Array, " b"]


def marginals(model: SparseModel, q: InducingNormal, X: PyTree) -> BatchMarginals:
    """The distribution of f(X) under q, differentiable."""
    of = projected(model.process.covariance, model.Z, X)
    U = jnp.where(of.at.result == RESULTS.successful, of.features, jnp.nan)
    # E f(x) = m(x) + u(x).mean, with the mean of q.
    shift = matmul(q.mean, U)
    # Clip negative rounding.
    left = jnp.maximum(of.left, 0)
    # Var f(x) = k(x, x) - |u(x)|^2 + |root^T u(x)|^2.
    variance = left + jnp.sum(matmul(q.lower.T, U) ** 2, 0)
    return BatchMarginals(U, shift, jax.vmap(model.process.mean)(X) + shift, variance)


def batch_loss(model: SparseModel, at: BatchMarginals, batch: Batch) -> Float[Array, ""]:
    """`sum_i w_i E[-log p(y_i | f_i)]`, or a bound where the likelihood is not log-concave."""
    losses = model.likelihood.bounded_loss(batch.y, at.mean, at.variance)
    return jnp.sum(batch.weights * losses)


class Natural(eqx.Module):
    """q by its natural parameters: with covariance S, `precision = S^-1`, `shift = S^-1 mean`."""

    shift: Float[Array, " m"]
    precision: Float[Array, "m m"]

    def normal(self) -> InducingNormal:
        """The mean and root of the distribution; NaN unless the precision is positive definite."""
        # Factorising the precision from its last row to its first gives `P = N N^T` with an upper
        # triangular N, so that `S = N^-T N^-1` has a lower triangular root.
        cholesky = lambda A: lax.linalg.cholesky(A, symmetrize_input=False)
        flipped = sequential_vmap(cholesky, self.precision[::-1, ::-1])
        root = inverse_of_lower(flipped)[::-1, ::-1].T
        # The mean is S shift = root (root^T shift).
        return InducingNormal(matmul(root, matmul(self.shift, root)), root)


def stepped(
    q: Natural, model: SparseModel, at: BatchMarginals, batch: Batch, scale: float, rate: Array
) -> Natural:
    """q after a step of its natural gradient."""
    # A step of rate one leads to `goal`; the bound is stationary at a q that such a step does not
    # change. The natural gradient is the gradient in the moments of q (Khan & Lin 2017). It gives
    # the sites of `variational`, with precision E[L''] and shift E[L''] m - E[L'], on the values
    # U^T v.
    U = at.features
    slope, curvature = bounded_slopes(model.likelihood, batch.y, at.mean, at.variance)
    weights = scale * batch.weights
    # The sites act on U^T v, which has the mean at.shift, without m(X). The prior adds precision I.
    # S^-1 mean = U w (E[L''] U^T mean_q - E[L']) and S^-1 = I + U diag(w E[L'']) U^T.
    shift = matmul(U, weights * (curvature * at.shift - slope))
    precision = matmul(U * (weights * curvature)[None, :], U.T) + jnp.eye(len(U), dtype=U.dtype)
    goal = Natural(shift, precision)
    # q <- (1 - rate) q + rate goal, in the natural parameters.
    return jax.tree.map(lambda a, b: a + rate * (b - a), q, goal)
