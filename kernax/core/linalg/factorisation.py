"""The system `T = W K + diag(shift)` of all quadratic learners, and the interface of its factor.

A factor belongs to the symmetric `M = S K S + diag(shift)`, S = sqrt(W), and is computed once so
that systems can be solved many times. All factors have the same methods: solutions, the log
determinant, the inverse and its diagonal, the derivative of the evidence, the reduction of a
covariance, and the jitter that was added. `factorise` in `linear_solvers` makes the factor that
suits an operator.
"""

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import sequential_vmap
from kernax.core.base.derivatives import custom_jvp, split_by_tangent
from kernax.core.base.numerics import (
    eps_of,
    main_diagonal,
    matmul,
    positive_or_one,
    safe_sqrt,
    stop_gradient,
    where_or,
)
from kernax.core.base.powers import own_unit
from kernax.core.base.solution import RESULTS
from kernax.core.base.weights import AbstractWeights, weights_of
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.operators import AbstractGram

GramClass = TypeVar("GramClass", bound=AbstractGram)
Report = tuple[Any, dict[str, Array]]
Terms = Callable[["WeightedSystem", Array], tuple[Array, Array]]


def direct_accuracy(dtype: Any) -> float:
    """The largest relative residual of a valid solution by a factor."""
    return eps_of(dtype) ** (1 / 3)


class AbstractFactor(eqx.Module):
    """A factor of a symmetric positive definite `M = A + jitter I`, which solves systems. All
    results are NaN if the factor does not exist.

    Attributes:
        jitter: the number that was added to the diagonal of A, or an array of shape ().
        exists: whether A, with that jitter, is positive definite to working precision.
    """

    jitter: eqx.AbstractVar[Any]
    exists: eqx.AbstractVar[Any]

    @property
    @abc.abstractmethod
    def is_direct(self) -> bool:
        """Whether finite solutions are valid whatever their residual, as for direct methods."""

    @abc.abstractmethod
    def solve(self, B: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
        """`M^-1 B`."""

    @abc.abstractmethod
    def solve_and_report(self, B: Float[Array, "n p"]) -> tuple[Float[Array, "n p"], Report]:
        """`M^-1 B`, the status of the solve, and its statistics."""

    @abc.abstractmethod
    def whitened(self, B: Float[Array, "n p"]) -> Float[Array, "m p"]:
        """A matrix V with `V^T V = B^T M^-1 B`, such as `L^-1 B`.

        A sum of its squares loses no digits, whereas the terms of `B^T solve(B)` may cancel.
        """

    @property
    def knows_determinant(self) -> bool:
        """Whether `log_determinant` is available."""
        return True

    def figures(self) -> dict[str, Array]:
        """Further statistics of the factor, for the stats of a function."""
        return {}

    @abc.abstractmethod
    def inverse(self) -> Float[Array, "n n"]:
        """`M^-1`."""

    @abc.abstractmethod
    def inverse_diagonal(self) -> Float[Array, " n"]:
        """The diagonal of `M^-1`."""

    @abc.abstractmethod
    def log_determinant(self) -> Float[Array, ""]:
        """`log |M|`; its derivative is in `density`."""

    @abc.abstractmethod
    def accurate_residual(self, dtype: Any) -> float | Float[Array, ""]:
        """The largest relative residual of a valid solution."""

    @property
    @abc.abstractmethod
    def status_if_inaccurate(self) -> Any:
        """The status for a solution with a residual above `accurate_residual`."""

    @property
    @abc.abstractmethod
    def status_without_factor(self) -> Any:
        """The status if the factor does not exist."""

    @property
    def result(self) -> Any:
        """The status: `successful` if the factor exists, or the reason for the failure."""
        return RESULTS.where(
            jnp.asarray(self.exists), RESULTS.successful, self.status_without_factor
        )

    @abc.abstractmethod
    def rounding(self, diagonal: Float[Array, " n"]) -> Float[Array, ""]:
        """The rounding error of the log density of data drawn from N(0, M), in nats.

        `diagonal` is the diagonal of M.
        """

    @abc.abstractmethod
    def rounding_of_inverse(self, diagonal: Float[Array, " n"]) -> Float[Array, ""]:
        """The relative rounding error of the entries of M^-1."""

    def inverse_of(self, system: "WeightedSystem") -> "AbstractInverse":
        """`T^-1` for the system of this factor, differentiable to every order in the system; NaN if
        the factor does not exist.
        """
        return DenseInverse(_inverse(system, stop_gradient(self)))

    def products_and_diagonal(
        self, system: "WeightedSystem", B: Float[Array, "n p"]
    ) -> tuple[Float[Array, "n p"], Float[Array, " n"]]:
        """`P^T B` for few columns B, and the diagonal of P, the `inverse_of` a system."""
        P = self.inverse_of(system)
        return P.transposed_mv(B), P.diagonal()

    def terms_of_density(self, system: "WeightedSystem", y: Float[Array, "n p"]) -> "Terms":
        """A function of a system and data. Its derivatives at the given ones are those of `log |T|`
        and of `y.P W y`, P = T^-1, summed over the columns of y.

        Its constants are functions of the system and of y, differentiable to every order.
        """
        # d log|T| = tr(P dT). With b = P^T y and a = W b, d(y.P W y) = 2 a.dy + b.dW y - b.dT a (P
        # W is symmetric). Both are derivatives of expressions linear in T, W and y.
        P = self.inverse_of(system)
        b = P.transposed_mv(y)
        a = system.weights.times(b)

        def terms(system: WeightedSystem, y: Array) -> tuple[Array, Array]:
            system = system.with_jitter(self)
            of_system = jnp.sum(b * (system.weights.times(y) - system.apply(a)))
            return P.trace_with(system), of_system + jnp.sum(a * y)

        return terms

    def covariance_reduction(
        self, system: "WeightedSystem"
    ) -> "AbstractCovarianceReduction | None":
        """The reduction of a covariance by the observations, differentiable in the system; None if
        it is not available from products and solutions.
        """
        return None


class AbstractDirectFactor(AbstractFactor):
    """A factor with solutions that are accurate to rounding if they are finite."""

    @property
    def is_direct(self):
        return True

    @property
    def status_without_factor(self):
        return RESULTS.not_psd

    def accurate_residual(self, dtype):
        return direct_accuracy(dtype)

    @property
    def status_if_inaccurate(self):
        return RESULTS.inaccurate


class WeightedSystem(eqx.Module):
    """`T = W K + diag(shift)`, the matrix of every quadratic learner, with `W = diag(weights)`.

    T is smooth in a weight at zero, but the square root of a weight is not. Derivatives are
    therefore those of `apply`, and factors those of the symmetric `M = S K S + diag(shift)`, S =
    sqrt(W).
    """

    gram: AbstractGram
    weights: AbstractWeights
    shift: Float[Array, " n"]

    @staticmethod
    def of(gram: AbstractGram, weights: AbstractWeights, ridge: ArrayLike) -> "WeightedSystem":
        """The system with one ridge for all points, or one ridge for each."""
        return WeightedSystem(gram, weights, weights.shift_of(jnp.asarray(ridge)))

    def gram_of_class(self, kind: type[GramClass]) -> GramClass:
        """K, for a factor that needs more than products with it. Raises TypeError if K does not
        have the class that the factor needs.
        """
        if not isinstance(self.gram, kind):
            raise TypeError(
                f"{type(self.gram).__name__}.symmetric_form returned a form whose factor needs the "
                f"Gram matrix to be a {kind.__name__}: return an AbstractStructuredForm of your "
                "own, whose factor you register with factorise"
            )
        return self.gram

    def with_jitter(self, factor: AbstractFactor) -> "WeightedSystem":
        """The factorised system, which includes the jitter of the factor."""
        return self.shifted_by(factor.jitter)

    def shifted_by(self, jitter: ArrayLike) -> "WeightedSystem":
        """`T + jitter I`."""
        return WeightedSystem(self.gram, self.weights, self.shift + jitter)

    def symmetric_form(self) -> lx.AbstractLinearOperator:
        """The symmetric form M."""
        return self.gram.symmetric_form(self.weights, self.shift)

    def apply(self, A: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`T A`."""
        return self.weights.times(self.gram.mv(A)) + self.shift[:, None] * A

    def solve(self, factor: AbstractFactor, B: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`T^-1 B` by a factor of M; NaN if the solve fails."""
        return _known(*self.solve_and_report(factor, B))

    def solve_and_report(
        self, factor: AbstractFactor, B: Float[Array, "n p"]
    ) -> tuple[Float[Array, "n p"], tuple[Any, dict[str, Array]]]:
        """`T^-1 B`, the status of the solve, and its statistics."""
        return self.weights.solve(factor.solve_and_report, self.gram.mv, self.shift, B)

    def solve_transposed(
        self, factor: AbstractFactor, B: Float[Array, "n p"]
    ) -> Float[Array, "n p"]:
        """`T^-T B` by a factor of M; NaN if the solve fails."""
        inner = factor.solve_and_report
        return _known(*self.weights.solve_transposed(inner, self.gram.mv, self.shift, B))

    def residual_and_size(
        self, A: Float[Array, "n p"], rhs: Float[Array, "n p"], known: ArrayLike = 0
    ) -> tuple[Float[Array, "n p"], Float[Array, " p"]]:
        """`rhs - known - T A`, with each column divided by the power of two below the largest
        entry of rhs there, and the lengths of the scaled columns of rhs, 1 for a column of zeros.
        """
        unit = own_unit(rhs, 0)
        rhs = rhs / unit
        known = known / unit
        A = A / unit
        A = where_or(jnp.isfinite(A), A, 0.0)
        # Without jitter, products through few features may cancel to a few of their digits.
        narrow = self.gram.largest_rank < len(A)
        multiply = jax.vmap(self.gram.compensated_mv, 1, 1) if narrow else self.gram.mv
        # rhs - known - (W K + diag(shift)) A.
        off = rhs - known - self.weights.times(multiply(A)) - self.shift[:, None] * A
        size = jnp.linalg.norm(rhs, axis=0)
        return off, positive_or_one(size)


def _known(solution: Array, report: tuple[Any, dict[str, Array]]) -> Array:
    """The solution of a successful solve, otherwise NaN."""
    return where_or(report[0] == RESULTS.successful, solution, jnp.nan)


def solve(
    system: WeightedSystem, factor: AbstractFactor, B: Float[Array, "n p"]
) -> Float[Array, "n p"]:
    """`T^-1 B` by a factor of T with jitter, differentiable to every order in the system and B. NaN
    if there is no solution.
    """
    system = system.with_jitter(factor)
    fixed = stop_gradient(system)
    factor = stop_gradient(factor)
    # dX = T^-1 (dB - dT X), where JAX obtains dT X from the derivative of `apply`.
    return lax.custom_linear_solve(
        system.apply,
        B,
        lambda _, B: fixed.solve(factor, B),
        lambda _, B: fixed.solve_transposed(factor, B),
    )


def solve_transposed(
    system: WeightedSystem, factor: AbstractFactor, B: Float[Array, "n p"]
) -> Float[Array, "n p"]:
    """`T^-T B`, in the same way."""
    system = system.with_jitter(factor)
    fixed = stop_gradient(system)
    factor = stop_gradient(factor)

    def multiply(A: Float[Array, "n p"]) -> Float[Array, "n p"]:
        return system.gram.mv(system.weights.times(A)) + system.shift[:, None] * A

    return lax.custom_linear_solve(
        multiply,
        B,
        lambda _, B: fixed.solve_transposed(factor, B),
        lambda _, B: fixed.solve(factor, B),
    )


class AbstractInverse(eqx.Module):
    """The inverse P (n, n) of a system, which is not symmetric if there are weights."""

    @abc.abstractmethod
    def as_matrix(self) -> Float[Array, "n n"]:
        """P as an array."""

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
        """`(K P)_ii` for the K of a system."""

    @abc.abstractmethod
    def trace_with(self, system: WeightedSystem) -> Float[Array, ""]:
        """`tr(P T)` for the T of any system, not only the one that P inverts."""


class DenseInverse(AbstractInverse):
    """P as an array."""

    matrix: Float[Array, "n n"]

    def as_matrix(self):
        return self.matrix

    def mv(self, B):
        return matmul(self.matrix, B)

    def transposed_mv(self, B):
        return matmul(B.T, self.matrix).T  # with P^T, XLA would make a copy

    def diagonal(self):
        return main_diagonal(self.matrix)

    def diagonal_of_product(self, system):
        # (K P)_ii = sum_j K_ij P_ji.
        return jnp.sum(self.matrix.T * system.gram.as_matrix(), 1)

    def trace_with(self, system):
        # tr(P W K) + tr(P diag(shift)), without a matrix product.
        of_gram = jnp.sum(self.matrix.T * system.weights.times(system.gram.as_matrix()))
        return of_gram + jnp.sum(self.diagonal() * system.shift)


class AbstractSolvedInverse(AbstractInverse):
    """A matrix-free inverse: products with it are solutions.

    Attributes:
        system: T, without jitter.
        factor: the factor of T with jitter, a constant for derivatives.
    """

    system: eqx.AbstractVar[WeightedSystem]
    factor: eqx.AbstractVar[Any]

    def as_matrix(self):
        return self.mv(jnp.diag(jnp.ones_like(self.system.shift)))

    def mv(self, B):
        return solve(self.system, self.factor, B)

    def transposed_mv(self, B):
        return solve_transposed(self.system, self.factor, B)


@custom_jvp
def _inverse(system, factor):
    if not system.weights.removes:
        return factor.inverse()

    def with_removed(factor: AbstractFactor, system: WeightedSystem) -> Float[Array, "n n"]:
        shift = system.with_jitter(factor).shift
        return system.weights.inverse(factor.inverse(), system.gram.mv, shift)

    # One by one for a batch, so that a product that only removed points need is skipped.
    return sequential_vmap(with_removed, factor, system)


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


@custom_jvp
def products_and_diagonal(
    system: WeightedSystem, B: Float[Array, "n p"], factor: AbstractFactor
) -> tuple[Float[Array, "n p"], Float[Array, " n"]]:
    """`P^T B` and the diagonal of `P = T^-1` by a factor of T, a constant for derivatives, with the
    matrix P only if they are differentiated.
    """
    # P_ii = (M^-1)_ii: P is S M^-1 S^-1 where weights are positive, and in the rows of the other
    # points P and M^-1 are the inverse of the shift.
    products = system.with_jitter(factor).solve_transposed(factor, B)
    return products, factor.inverse_diagonal()


@products_and_diagonal.def_jvp
def _products_and_diagonal_jvp(primals, tangents):
    # d P_ii = (dP)_ii needs P, from which the products follow as well.
    factor = primals[2]
    moving, known = split_by_tangent(primals[:2], tangents[:2])

    def by_inverse(moving):
        system, B = eqx.combine(moving, known)
        P = DenseInverse(_inverse(system, factor))
        return P.transposed_mv(B), P.diagonal()

    return eqx.filter_jvp(by_inverse, (moving,), (tangents[:2],))


class AbstractCovarianceReduction(eqx.Module):
    """The reduction of a covariance k by observations at X, `k(x, X) P W k(X, z)`, where P is the
    inverse of `T = W K + diag(shift)`.

    Attributes:
        gram: K.
        weights: w; None if all are one.
        shift: (n,).
    """

    gram: eqx.AbstractVar[Any]
    weights: eqx.AbstractVar[Float[Array, " n"] | None]
    shift: eqx.AbstractVar[Float[Array, " n"]]

    @abc.abstractmethod
    def own_factor(self) -> AbstractFactor:
        """The factor of T, which may have jitter; a constant for derivatives."""

    @property
    def dtype(self) -> Any:
        """The dtype of the computation."""
        return self.shift.dtype

    @property
    def system(self) -> WeightedSystem:
        """T, without jitter."""
        weights = weights_of(self.weights, len(self.shift), self.dtype)
        return WeightedSystem(self.gram, weights, self.shift)

    @abc.abstractmethod
    def at(self, kernel: AbstractKernel, X: PyTree, x: PyTree, z: PyTree) -> Float[Array, ""]:
        """`k(x, X) P W k(X, z)`, for the kernel and the points of the system."""

    def lacking(
        self, values: Float[Array, "n p"], normal: Float[Array, "n p"]
    ) -> Float[Array, "n p"]:
        """The coefficients `c = P (W f + S sqrt(D) z)`, S = sqrt(W) and D = diag(shift), for values
        f of a prior draw at X and standard normal numbers z (n, p).

        The draw minus `k(x, X) c` is a draw of the posterior given data of zero (Matheron's rule).
        """
        system = self.system
        factor = self.own_factor()
        scale = safe_sqrt(system.with_jitter(factor).shift)
        noise = system.weights.times_roots(scale[:, None] * normal)
        return solve(system, factor, system.weights.times(values) + noise)


def row_at(kernel: AbstractKernel, X: PyTree, x: PyTree) -> Float[Array, " n"]:
    """`k(X, x)`, from which covariance reductions are computed."""
    return jax.vmap(lambda point: kernel(point, x))(X)
