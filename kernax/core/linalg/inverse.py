"""The inverse `P = T^-1` of `T = W K + diag(shift)`, by its products, its diagonal, and its trace
with another system, from which the derivative of `log |T|` follows.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PyTree

from kernax.core.base.batching import one_by_one
from kernax.core.base.numerics import matmul, safe_sqrt, split_by_tangent, stopped
from kernax.core.base.weights import weights_of
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.linalg.factors import AbstractFactor
from kernax.core.linalg.linalg import WeightedSystem, weighted_solve
from kernax.core.linalg.low_rank import LowRankFactor
from kernax.core.linalg.solvers import JitteredCholesky
from kernax.core.operators.operators import LowRankGram


class AbstractInverse(eqx.Module):
    """P (n, n), not symmetric where there are weights."""

    @abc.abstractmethod
    def as_matrix(self) -> Float[Array, "n n"]:
        """P."""

    @abc.abstractmethod
    def mv(self, B: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`P B`."""

    @abc.abstractmethod
    def transposed_mv(self, B: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`P^T B`."""

    @abc.abstractmethod
    def diagonal(self) -> Float[Array, " n"]:
        """`P_ii`."""

    @abc.abstractmethod
    def diagonal_of_product(self, system: WeightedSystem) -> Float[Array, " n"]:
        """`(K P)_ii`, for the K of a system."""

    @abc.abstractmethod
    def trace_with(self, system: WeightedSystem) -> Float[Array, ""]:
        """`tr(P T)` for the T of any system, not only that of which P is the inverse."""


class DenseInverse(AbstractInverse):
    """P as an array."""

    matrix: Float[Array, "n n"]

    def as_matrix(self):
        return self.matrix

    def mv(self, B):
        return matmul(self.matrix, B)

    def transposed_mv(self, B):
        return matmul(B.T, self.matrix).T  # of P^T, XLA would make a copy

    def diagonal(self):
        return jnp.diagonal(self.matrix)

    def diagonal_of_product(self, system):
        return jnp.sum(self.matrix.T * system.gram.as_matrix(), 1)

    def trace_with(self, system):
        of_gram = jnp.sum(self.matrix.T * system.weights.times(system.gram.as_matrix()))
        return of_gram + jnp.sum(self.diagonal() * system.shift)


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
        of_features = jnp.sum(gram.features * self.transposed_mv(gram.features), 1)
        return of_features + gram.remainder * self.diagonal()

    def trace_with(self, system):
        features = low_rank(system).features
        inside = jnp.sum(features * self.mv(system.weights.times(features)))
        return inside + jnp.sum(self.diagonal() * _diagonal_part(system))


def solve(
    system: WeightedSystem, factor: AbstractFactor, B: Float[Array, "n p"]
) -> Float[Array, "n p"]:
    """`T^-1 B`, by a factor of T with jitter; differentiable to every order in the system and B.
    NaN where there is no solution.
    """
    system = system.with_jitter(factor)
    fixed = stopped(system)
    factor = stopped(factor)
    return lax.custom_linear_solve(
        system.apply,
        B,
        lambda _, B: fixed.solve(factor, B),
        lambda _, B: fixed.solve_transposed(factor, B),
    )


def solve_transposed(
    system: WeightedSystem, factor: AbstractFactor, B: Float[Array, "n p"]
) -> Float[Array, "n p"]:
    """`T^-T B`, likewise."""
    system = system.with_jitter(factor)
    fixed = stopped(system)
    factor = stopped(factor)

    def multiply(A: Float[Array, "n p"]) -> Float[Array, "n p"]:
        return system.gram.mv(system.weights.times(A)) + system.shift[:, None] * A

    return lax.custom_linear_solve(
        multiply,
        B,
        lambda _, B: fixed.solve_transposed(factor, B),
        lambda _, B: fixed.solve(factor, B),
    )


class AbstractSolvedInverse(AbstractInverse):
    """An inverse that is never held: products with it are solutions.

    Attributes:
        system: T, without jitter.
        factor: of T with jitter, a constant to derivatives.
    """

    system: eqx.AbstractVar[WeightedSystem]
    factor: eqx.AbstractVar[Any]

    def as_matrix(self):
        return self.mv(jnp.diag(jnp.ones_like(self.system.shift)))

    def mv(self, B):
        return weighted_solve(self.system, B, JitteredCholesky(), factor=self.factor)[0]

    def transposed_mv(self, B):
        return solve_transposed(self.system, self.factor, B)


def low_rank(system: WeightedSystem) -> LowRankGram:
    """The Gram matrix of a system whose factor is of low rank."""
    return cast(LowRankGram, system.gram)


def _diagonal_part(system: WeightedSystem) -> Float[Array, " n"]:
    """D of `T = W F F^T + D`."""
    return system.weights.times(low_rank(system).remainder) + system.shift


@functools.singledispatch
def inverse_of(factor: AbstractFactor, system: WeightedSystem) -> AbstractInverse:
    """`T^-1` by a factor of `S K S + diag(shift)`, differentiable to every order in the system; NaN
    where there is no factor.
    """
    return DenseInverse(_inverse(system, stopped(factor)))


@inverse_of.register
def _(factor: LowRankFactor, system: WeightedSystem) -> LowRankInverse:
    features = low_rank(system).features
    weighted = system.weights.times(features)
    solved, _, _ = weighted_solve(system, weighted, JitteredCholesky(), factor=stopped(factor))
    return LowRankInverse(solved, features, _diagonal_part(system))


Terms = Callable[[WeightedSystem, Array], tuple[Array, Array]]


@functools.singledispatch
def terms_of_density(factor: AbstractFactor, system: WeightedSystem, y: Float[Array, "n p"]) -> Any:
    """A function (`Terms`) of a system and data. At those given, its derivatives are those of `log
    |T|` and of `y.P W y`, P = T^-1, summed over the columns of y.

    The numbers that it holds fixed are functions of the system and of y, differentiable to every
    order.
    """
    # d log|T| = tr(P dT). With b = P^T y and a = W b, d(y.P W y) = 2 a.dy + b.dW y - b.dT a (P W is
    # symmetric). Both are the derivatives of expressions linear in T, W and y.
    P = inverse_of(factor, system)
    b = P.transposed_mv(y)
    a = system.weights.times(b)

    def terms(system: WeightedSystem, y: Array) -> tuple[Array, Array]:
        system = system.with_jitter(factor)
        of_system = jnp.sum(b * (system.weights.times(y) - system.apply(a)))
        return P.trace_with(system), of_system + jnp.sum(a * y)

    return terms


class AbstractExplanation(eqx.Module):
    """The part of a covariance k that observations at X explain, `k(x, X) P W k(X, z)` with the
    inverse P of `T = W K + diag(shift)`.

    Attributes:
        gram: K.
        weights: w, None where they are one.
        shift: (n,).
    """

    gram: eqx.AbstractVar[Any]
    weights: eqx.AbstractVar[Float[Array, " n"] | None]
    shift: eqx.AbstractVar[Float[Array, " n"]]

    @abc.abstractmethod
    def own_factor(self) -> AbstractFactor:
        """The factor of T, which may have jitter; a constant to derivatives."""

    @property
    def dtype(self) -> Any:
        """The precision that it was computed in."""
        return self.shift.dtype

    @property
    def system(self) -> WeightedSystem:
        """T, without jitter."""
        weights = weights_of(self.weights, len(self.shift), self.dtype)
        return WeightedSystem(self.gram, weights, self.shift)

    @abc.abstractmethod
    def explained(
        self, kernel: AbstractKernel, X: PyTree, x: PyTree, z: PyTree
    ) -> Float[Array, ""]:
        """`k(x, X) P W k(X, z)`, for the kernel and the points of the system."""

    def lacking(
        self, values: Float[Array, "n p"], normal: Float[Array, "n p"]
    ) -> Float[Array, "n p"]:
        """The coefficients `c = P (W f + S sqrt(D) z)`, S = sqrt(W) and D = diag(shift), of values
        f of a prior draw at X and standard normal numbers z (n, p).

        The draw less `k(x, X) c` is a draw of the posterior given data of zero (Matheron's rule).
        """
        system = self.system
        factor = self.own_factor()
        scale = safe_sqrt(system.with_jitter(factor).shift)
        noise = system.weights.times_roots(scale[:, None] * normal)
        return solve(system, factor, system.weights.times(values) + noise)


def row_at(kernel: AbstractKernel, X: PyTree, x: PyTree) -> Float[Array, " n"]:
    """`k(X, x)`, of which an explanation is made."""
    return jax.vmap(lambda point: kernel(point, x))(X)


@functools.singledispatch
def explanation_of(factor: AbstractFactor, system: WeightedSystem) -> AbstractExplanation | None:
    """The part of a covariance that observations explain, differentiable in the system, for factors
    other than Cholesky's; None where none is known.
    """
    return None


@eqx.filter_custom_jvp
def _inverse(system, factor):
    return one_by_one(_inverse_by, factor, system) if system.weights.removes else factor.inverse()


def _inverse_by(factor: AbstractFactor, system: WeightedSystem) -> Float[Array, "n n"]:
    # Of a batch one by one, so that a product which only removed points need is left out.
    shift = system.with_jitter(factor).shift
    return system.weights.inverse(factor.inverse(), system.gram.mv, shift)


@_inverse.def_jvp
def _inverse_jvp(primals, tangents):
    # dP = -P dT P.
    P = _inverse(*primals)
    factor = primals[1]
    moving, known = split_by_tangent(primals[0], tangents[0])

    def apply(moving):
        return eqx.combine(moving, known).with_jitter(factor).apply(P)

    _, t_TP = eqx.filter_jvp(apply, (moving,), (tangents[0],))
    return P, -matmul(P, t_TP)
