"""Recursive least squares in the span of those points that are not nearly combinations of
others.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.numerics import matmul, positive_or_one
from kernax.core.base.parameters import data, integer, nonnegative, positive
from kernax.core.base.solution import RESULTS, first_that_holds
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.linalg.factorisation import direct_accuracy
from kernax.core.losses.loss_functions import Squared
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState
from kernax.online.orthonormal_basis import OrthonormalBasis, empty_basis, full_row
from kernax.online.support import Support, empty_support, kernel_for


class RecursiveFit(eqx.Module):
    """The recursive least-squares fit of points with coordinates phi_t and targets y_t.

    Attributes:
        weights: w, the minimiser of `1/2 sum_t (y_t - w . phi_t)^2 + ridge/2 |w|^2`, by recursion.
        covariance: the inverse of A, by recursion.
        squares: `A = ridge I + sum_t phi_t phi_t^T`.
        products: `b = sum_t y_t phi_t`.
    """

    weights: Float[Array, " m"] = data()
    covariance: Float[Array, "m m"] = data()
    squares: Float[Array, "m m"] = data()
    products: Float[Array, " m"] = data()

    def with_point(self, phi: Float[Array, " m"], y: Float[Array, ""]) -> "RecursiveFit":
        """The fit with one more point, by the Sherman-Morrison formula for the inverse."""
        # With P = A^-1: (A + phi phi^T)^-1 = P - P phi phi^T P / (1 + phi.P phi), and w moves by
        # the gain P phi / (1 + phi.P phi) times y - w.phi.
        along = matmul(self.covariance, phi)
        gain = along / (1 + matmul(phi, along))
        return RecursiveFit(
            weights=self.weights + gain * (y - matmul(self.weights, phi)),
            covariance=self.covariance - gain[:, None] * along[None, :],
            squares=self.squares + phi[:, None] * phi[None, :],
            products=self.products + y * phi,
        )

    @property
    def residual(self) -> Float[Array, ""]:
        """`|A w - b| / |b|` for the weights w of the recursion."""
        # A w = b are the normal equations. A and b are plain sums, with far smaller rounding errors
        # than the recursion for A^-1.
        left = matmul(self.squares, self.weights) - self.products
        return jnp.linalg.norm(left) / positive_or_one(jnp.linalg.norm(self.products))


class RecursiveState(AbstractOnlineState):
    """The state of `KernelRecursiveLeastSquares`.

    Attributes:
        kernel: the kernel of the learner in the dtype of the points, which `function` uses.
        support: the kept points; its coefficients are not used.
        basis: the orthonormal basis of their span.
        fit: the least-squares fit in that basis; `fit.residual` measures its rounding errors.
        updates: the number of points seen, all of which change the function.
        lost: whether a point was left out although it is not a combination of the kept ones.

    Examples:
        >>> k = kernax.RBF(0.3)
        >>> learner = kernax.online.KernelRecursiveLeastSquares(k, ridge=0.01, capacity=5)
        >>> state = learner.init(jnp.zeros(1))
        >>> int(state.support.size)
        0
    """

    kernel: AbstractKernel
    support: Support
    basis: OrthonormalBasis
    fit: RecursiveFit
    updates: Int[Array, ""] = data()
    lost: Bool[Array, ""] = data()

    @property
    def function(self):
        # f = sum_i a_i k(x_i, .) with a = L^-T w.
        coefficients = self.basis.coefficients(self.fit.weights)
        bias = jnp.zeros_like(coefficients[0])
        return KernelExpansion(self.kernel, self.support.points, coefficients, bias)

    @property
    def result(self):
        is_inaccurate = self.fit.residual > direct_accuracy(self.fit.weights.dtype)
        statuses = (
            (self.lost, RESULTS.over_capacity),
            (is_inaccurate, RESULTS.inaccurate),
        )
        return first_that_holds(statuses, RESULTS.successful)


class KernelRecursiveLeastSquares(AbstractOnlineLearner):
    """Kernel recursive least squares: after t points, f minimises `1/2 sum_t (y_t - f(x_t))^2 +
    ridge/2 |f|^2`.

    f lies in the span of the kept points. A point is kept if it was further from the span of those
    before it than the `tolerance`: `|k(x, .) - p|^2 > tolerance k(x, x)`, p the projection (Engel,
    Mannor & Meir 2004). Other points enter the sum of squares by their projections. With tolerance
    zero and a capacity for all points f equals `kernel_ridge` after each point, up to rounding.

    In the Gram-Schmidt basis this is recursive least squares for a vector of weights: a further
    point adds a coordinate, which is zero for all points before it. Close points therefore make no
    matrix ill-conditioned. Rounding errors of the recursion, about eps `sum_t k(x_t, x_t) / ridge`,
    show in the residual of its equations, `state.fit.residual`, which decides about success. Each
    point takes O(capacity^2) operations and as much memory.

    Attributes:
        kernel: any kernel, of any kind of points.
        ridge: > 0, in units of k, as that of `kernel_ridge`.
        capacity: the largest number of kept points. If more are needed, the others enter by their
            projections, and `run` ends with `RESULTS.over_capacity`.
        tolerance: >= 0, relative to k(x, x).

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> k = kernax.RBF(0.3)
        >>> learner = kernax.online.KernelRecursiveLeastSquares(k, ridge=0.01, capacity=5)
        >>> f = kernax.online.run(learner, X, y).value.state.function
        >>> round(float(f(jnp.array([0.4]))), 2)  # that of kernel_ridge
        0.69
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    ridge: Float[ParameterArray, ""] = positive()
    capacity: int = integer("capacity")
    tolerance: Float[ParameterArray, ""] = nonnegative(default=1e-4)

    @property
    def loss(self):
        return Squared()

    def init(self, point):
        support = empty_support(point, self.capacity)
        dtype = support.coefficients.dtype
        # The fit of no points: w = 0, A^-1 = I / ridge, A = ridge I, b = 0.
        ridge = self.ridge.astype(dtype)
        nothing = jnp.zeros(self.capacity, ridge.dtype)
        identity = jnp.eye(self.capacity, dtype=ridge.dtype)
        no_fit = RecursiveFit(nothing, identity / ridge, identity * ridge, nothing)
        return RecursiveState(
            kernel=kernel_for(self.kernel, point),
            support=support,
            basis=empty_basis(support),
            fit=no_fit,
            updates=jnp.zeros((), jnp.int32),
            lost=jnp.asarray(False),
        )

    def update(self, state, x, y):
        support = state.support
        updates = state.updates + 1
        kernel = kernel_for(self.kernel, x)
        new = support.seen_by(kernel, x, updates)
        at = state.basis.coordinates(new.row, new.square, support.size)
        # f(x) = w . L^-1 k(X, x).
        f = matmul(state.fit.weights, at.inside)
        # A needed point adds a coordinate, in which all points before it are zero; any other enters
        # by the coordinates of its projection.
        has_room = support.size < self.capacity
        is_needed = at.is_independent(self.tolerance)
        place = jnp.where(is_needed & has_room, support.size, self.capacity)
        after = RecursiveState(
            kernel=kernel,
            support=support.with_point(place, new, jnp.zeros_like(f)),
            basis=state.basis.with_point(place, at),
            fit=state.fit.with_point(full_row(place, at), y),
            updates=updates,
            lost=state.lost | (is_needed & ~has_room),
        )
        return after, f

    def hint_of_capacity(self):
        return f"capacity is {self.capacity}: raise it, or pass a larger tolerance."
