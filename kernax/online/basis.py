"""An orthonormal basis of the span of the kept points, which grows by one with each of them."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.numerics import eps_of, matmul, positive_or_one
from kernax.core.parameters import data
from kernax.online.support import Support


class Coordinates(eqx.Module):
    """`k(x, .)` in a basis, and what is left of it.

    Attributes:
        inside: of its projection on the span, zero from the first free place on.
        rest: `|k(x, .) - projection|^2`.
        square: `k(x, x)`.
    """

    inside: Float[Array, " m"]
    rest: Float[Array, ""]
    square: Float[Array, ""]

    def is_independent(self, tolerance: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether the rest is more than that part of the square, and more than rounding.

        What is not finite counts as independent, so that it is found in the basis.
        """
        rounding = len(self.inside) * eps_of(self.inside)
        is_more = self.rest > jnp.maximum(tolerance, rounding) * self.square
        return is_more | ~jnp.isfinite(self.rest)


class OrthonormalBasis(eqx.Module):
    """The basis that the kept points have after Gram and Schmidt, in their order.

    With `K = L L^T` of the points, `k(x, .)` has the coordinates `L^-1 k(X, x)`, and weights w are
    those of the function of coefficients `L^-T w`. Rows of free places are those of the identity.
    """

    upper: Float[Array, "m m"] = data()  # L^T, whose rows LAPACK takes for the columns of L

    def coordinates(
        self, row: Float[Array, " m"], square: Float[Array, ""], size: Int[Array, ""]
    ) -> Coordinates:
        """Those of a point with these values of the kernel at the kept ones."""
        row = jnp.where(jnp.arange(len(row), dtype=size.dtype) < size, row, 0)
        column = row[:, None]
        solved = lax.linalg.triangular_solve(self.upper.T, column, left_side=True, lower=True)
        inside = solved[:, 0]
        return Coordinates(inside, square - matmul(inside, inside), square)

    def coefficients(self, weights: Float[Array, " m"]) -> Float[Array, " m"]:
        """Of the kept points, in the function of these weights."""
        solved = lax.linalg.triangular_solve(
            self.upper.T, weights[:, None], left_side=True, lower=True, transpose_a=True
        )
        return solved[:, 0]

    def with_point(self, place: Int[Array, ""], at: Coordinates) -> "OrthonormalBasis":
        """The basis with one more point, in the first free place; unchanged where that is the
        capacity.
        """
        return OrthonormalBasis(self.upper.at[:, place].set(full_row(place, at), mode="drop"))


def full_row(place: Int[Array, ""], at: Coordinates) -> Float[Array, " m"]:
    """The coordinates of a point after it has taken that place: of `k(x, .)` itself, of its
    projection where the place is the capacity.
    """
    height = jnp.sqrt(positive_or_one(at.rest))
    return at.inside.at[place].set(height, mode="drop")


def empty_basis(support: Support) -> OrthonormalBasis:
    """That of no points."""
    return OrthonormalBasis(jnp.eye(support.capacity, dtype=support.coefficients.dtype))
