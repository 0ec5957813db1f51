"""The step of preconditioned conjugate gradients (Hestenes & Stiefel 1952) for one system `A x =
b`, or for several columns independently. The caller decides when to stop.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class ConjugateIterate(eqx.Module):
    """The state of conjugate gradients after some steps."""

    x: Float[Array, "n *p"]
    residual: Float[Array, "n *p"]  # r, by the recurrence
    preconditioned: Float[Array, "n *p"]  # `z = P^-1 r`
    direction: Float[Array, "n *p"]
    square: Float[Array, "*p"]  # `r.z`

    @staticmethod
    def first(
        x: Float[Array, "n *p"], residual: Float[Array, "n *p"], precondition: Callable
    ) -> "ConjugateIterate":
        """The state before the first step, which goes along z."""
        z = precondition(residual)
        return ConjugateIterate(x, residual, z, z, jnp.sum(residual * z, 0))

    def next(
        self,
        image: Float[Array, "n *p"],
        active: Bool[Array, "*p"],
        least_slope: Float[Array, "*p"] | float,
        precondition: Callable,
    ) -> "tuple[ConjugateIterate, Float[Array, '*p'], Bool[Array, '*p']]":
        """The state after one more step, the length c of that step, and which columns moved.

        Arguments:
            image: A d, where d is the direction.
            active: the columns to update.
            least_slope: the lower bound of `d.A d`; a column does not move if A is not positive
                along d.
            precondition: the function `P^-1 r` of a residual.
        """
        # x' = x + c d and r' = r - c A d with c = r.z / d.A d.
        slope = jnp.sum(self.direction * image, 0)
        moves = active & (slope > least_slope)
        c = jnp.where(moves, self.square / jnp.where(moves, slope, 1), 0)
        step = jnp.expand_dims(c, 0)
        x = self.x + step * self.direction
        residual = self.residual - step * image
        # d' = z' + (r'.z' / r.z) d, which is conjugate to the directions so far.
        z = precondition(residual)
        square = jnp.sum(residual * z, 0)
        turn = jnp.where(moves, square / jnp.where(moves, self.square, 1), 0)
        direction = z + jnp.expand_dims(turn, 0) * self.direction
        return ConjugateIterate(x, residual, z, direction, square), c, moves
