"""Recursive least squares in the span of the points that are not nearly combinations of others."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.boundary import cast, dtype_of
from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel, as_kernel
from kernax.core.losses import Squared
from kernax.core.numerics import matmul
from kernax.core.parameters import check_intervals, data, integer, nonnegative, positive
from kernax.core.solution import RESULTS, first_that_holds
from kernax.online.basis import OrthonormalBasis, empty_basis, full_row
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState
from kernax.online.support import Support, empty_support


class RecursiveState(AbstractOnlineState):
    """What `KernelRecursiveLeastSquares` keeps.

    Attributes:
        kernel: in the dtype of the points.
        support: the kept points; its coefficients are not used.
        basis: the orthonormal basis of their span.
        weights: of the function, in that basis.
        covariance: `(ridge I + sum_t phi_t phi_t^T)^-1`, phi_t the coordinates of the points seen.
        updates: points seen, all of which move the function.
        lost: whether there was no room for a point that is no combination of the kept ones.
    """

    kernel: AbstractKernel
    support: Support
    basis: OrthonormalBasis
    weights: Float[Array, " m"] = data()
    covariance: Float[Array, "m m"] = data()
    updates: Int[Array, ""]
    lost: Bool[Array, ""]

    @property
    def function(self):
        coefficients = self.basis.coefficients(self.weights)
        bias = jnp.zeros_like(coefficients[0])
        return KernelExpansion(self.kernel, self.support.points, coefficients, bias)

    @property
    def result(self):
        return first_that_holds(((self.lost, RESULTS.over_capacity),), RESULTS.successful)


class KernelRecursiveLeastSquares(AbstractOnlineLearner):
    """After t points, the minimiser of `1/2 sum_t (y_t - f(x_t))^2 + ridge/2 |f|^2`.

    f lies in the span of the kept points, which are those that were further from the span of the
    points before them than `tolerance`: `|k(x, .) - p|^2 > tolerance k(x, x)`, p the projection
    (Engel, Mannor & Meir 2004). Other points enter the squares by their projections. With tolerance
    zero and room for all points it is `kernel_ridge`, up to rounding, after each of them.

    In the orthonormal basis of Gram and Schmidt this is recursive least squares for a vector of
    weights: a further point adds a coordinate, in which all points before it are zero, and a prior
    of its own. No matrix has to be bordered, and none is ill conditioned for small distances.
    O(capacity^2) operations for each point, and as much memory.

    Attributes:
        kernel: any kernel, of any kind of points.
        ridge: > 0, in units of k, as that of `kernel_ridge`.
        capacity: how many points can be kept. Where more were needed, the others are projected, and
            `run` ends with `RESULTS.over_capacity`.
        tolerance: >= 0, relative to k(x, x).
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    ridge: Float[Array, ""] = positive()
    capacity: int = integer("capacity")
    tolerance: Float[Array, ""] = nonnegative(default=1e-4)

    def __check_init__(self):
        check_intervals(self)

    @property
    def loss(self):
        return Squared()

    def init(self, point):
        support = empty_support(point, self.capacity)
        basis = empty_basis(support)
        return RecursiveState(
            kernel=cast(self.kernel, dtype_of(point)),
            support=support,
            basis=basis,
            weights=support.coefficients,
            covariance=basis.upper / self.ridge.astype(basis.upper.dtype),
            updates=jnp.zeros((), jnp.int32),
            lost=jnp.asarray(False),
        )

    def update(self, state, x, y):
        support = state.support
        updates = state.updates + 1
        new = support.seen_by(state.kernel, x, updates)
        at = state.basis.coordinates(new.row, new.square, support.size)
        f = matmul(state.weights, at.inside)
        has_room = support.size < self.capacity
        is_needed = at.is_independent(self.tolerance)
        place = jnp.where(is_needed & has_room, support.size, self.capacity)
        # The weight of a new coordinate is zero so far: with it the value is f as well.
        weights, covariance = _learned(state, full_row(place, at), y - f)
        after = RecursiveState(
            kernel=state.kernel,
            support=support.with_point(place, new, jnp.zeros_like(f)),
            basis=state.basis.with_point(place, at),
            weights=weights,
            covariance=covariance,
            updates=updates,
            lost=state.lost | (is_needed & ~has_room),
        )
        return after, f


def _learned(
    state: RecursiveState, phi: Float[Array, " m"], residual: Float[Array, ""]
) -> tuple[Float[Array, " m"], Float[Array, "m m"]]:
    """The weights and their covariance after a point of these coordinates (Sherman & Morrison)."""
    along = matmul(state.covariance, phi)
    gain = along / (1 + matmul(phi, along))
    return state.weights + residual * gain, state.covariance - gain[:, None] * along[None, :]
