"""An orthonormal basis of the span of the kept points, which each kept point extends by one."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import eps_of, matmul, positive_or_one
from kernax.core.base.parameters import data
from kernax.online.support import Support


class Coordinates(eqx.Module):
    """The coordinates of `k(x, .)` in a basis, and the squared norm of its part outside the span.

    Attributes:
        inside: the coordinates of its projection on the span, zero from the first free slot on.
        rest: `|k(x, .) - projection|^2`.
        square: `k(x, x)`.
    """

    inside: Float[Array, " m"]
    rest: Float[Array, ""]
    square: Float[Array, ""]

    def is_independent(self, tolerance: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether `rest > tolerance square`, and more than rounding.

        A rest that is not finite counts as independent, so that it enters the basis, where the
        check of the state finds it.
        """
        # rest = k(x, x) - v.v, a difference with an error of up to m eps k(x, x).
        rounding = len(self.inside) * eps_of(self.inside)
        is_more = self.rest > jnp.maximum(tolerance, rounding) * self.square
        return is_more | ~jnp.isfinite(self.rest)


class OrthonormalBasis(eqx.Module):
    """The Gram-Schmidt basis of the kept points, in their order.

    With the Gram matrix `K = L L^T` of the points, `k(x, .)` has the coordinates `L^-1 k(X, x)`,
    and weights w give the function with coefficients `L^-T w`. Rows of free slots are those of the
    identity.
    """

    upper: Float[Array, "m m"] = data()  # L^T, as LAPACK stores L by columns

    def coordinates(
        self, row: Float[Array, " m"], square: Float[Array, ""], size: Int[Array, ""]
    ) -> Coordinates:
        """The coordinates of a point x with `row = k(X, x)` at the kept points and `square = k(x,
        x)`.
        """
        row = jnp.where(jnp.arange(len(row), dtype=size.dtype) < size, row, 0)
        column = row[:, None]
        # L v = k(X, x), and |k(x, .) - p|^2 = k(x, x) - v.v.
        solved = lax.linalg.triangular_solve(self.upper.T, column, left_side=True, lower=True)
        inside = solved[:, 0]
        return Coordinates(inside, square - matmul(inside, inside), square)

    def coefficients(self, weights: Float[Array, " m"]) -> Float[Array, " m"]:
        """The coefficients at the kept points of the function with these weights."""
        # L^T a = w.
        solved = lax.linalg.triangular_solve(
            self.upper.T, weights[:, None], left_side=True, lower=True, transpose_a=True
        )
        return solved[:, 0]

    def with_point(self, index: Int[Array, ""], at: Coordinates) -> "OrthonormalBasis":
        """The basis with one more point, in the first free slot; unchanged if that is the
        capacity.
        """
        return OrthonormalBasis(self.upper.at[:, index].set(full_row(index, at), mode="drop"))


def full_row(index: Int[Array, ""], at: Coordinates) -> Float[Array, " m"]:
    """The coordinates of `k(x, .)` once its point is in that slot; those of its projection if the
    slot is the capacity.
    """
    # The next row of L: L^-1 k(X, x), and sqrt(k(x, x) - |L^-1 k(X, x)|^2) on the diagonal. The
    # root is not used at a rest <= 0, where the slot is the capacity.
    height = jnp.sqrt(positive_or_one(at.rest))
    return at.inside.at[index].set(height, mode="drop")


def empty_basis(support: Support) -> OrthonormalBasis:
    """The basis of no points."""
    return OrthonormalBasis(jnp.eye(support.capacity, dtype=support.coefficients.dtype))
