"""A loss for values in a unit of their own, in which no square leaves the range of floats."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.powers import exponent_of, times_power_of_two
from kernax.core.losses.loss_functions import AbstractSmoothLoss, Squared


class LossInUnits(eqx.Module):
    """`2^(-2 u) L(y, 2^u f)`, for each column an exponent u and the values f in units of `2^u`.

    The risk of L at `2^u a` is `2^(2 u)` times the risk of this loss at a, with the same ridge. All
    products with powers of two are exact.
    """

    loss: AbstractSmoothLoss
    unit: Int[Array, "1 p"]

    @staticmethod
    def of(
        loss: AbstractSmoothLoss, y: Float[Array, "n p"], kept: Bool[Array, "n 1"] | bool = True
    ) -> "LossInUnits":
        """The units of the largest slope at zero, `|L'(y_i, 0)|`, of the targets that are kept: for
        squares, of the largest target.
        """
        slopes = jnp.where(kept, abs(loss.derivative(y, jnp.zeros_like(y))), 0)
        return LossInUnits(loss, exponent_of(jnp.max(slopes, 0, keepdims=True)))

    @property
    def quadratic(self) -> bool:
        """Whether the curvature is one everywhere."""
        return isinstance(self.loss, Squared)

    def __call__(self, y: Float[Array, "t p"], f: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """The loss."""
        if self.quadratic:
            return self.loss(self.targets(y), f)
        return times_power_of_two(self.loss(y, self.values(f)), -2 * self.unit)

    def derivative(self, y: Float[Array, "t p"], f: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """The derivative in f."""
        if self.quadratic:
            return self.loss.derivative(self.targets(y), f)
        # d/df 2^(-2 u) L(y, 2^u f) = 2^-u L'(y, 2^u f).
        return times_power_of_two(self.loss.derivative(y, self.values(f)), -self.unit)

    def curvature(self, y: Float[Array, "t p"], f: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """The second derivative in f."""
        # d^2/df^2 2^(-2 u) L(y, 2^u f) = L''(y, 2^u f).
        return self.loss.curvature(y, self.values(f))

    def targets(self, y: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """Targets of squares in units, so that no difference from small ones underflows."""
        # 2^(-2 u) (y - 2^u f)^2 = (2^-u y - f)^2.
        return times_power_of_two(y, -self.unit)

    def values(self, f: Float[Array, "k p"]) -> Float[Array, "k p"]:
        """Values or coefficients, in units of the targets."""
        return times_power_of_two(f, self.unit)

    def objectives(self, F: Float[Array, " p"]) -> Float[Array, " p"]:
        """Risks, in units of the loss."""
        return times_power_of_two(F, 2 * self.unit[0])
