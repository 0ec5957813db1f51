"""Intervals of the real line in which parameters live, and their maps to the whole line."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


@dataclasses.dataclass(frozen=True)
class Support:
    """An interval of the real line, and the map between its interior and the whole line."""

    low: float = -math.inf
    high: float = math.inf
    closed: tuple[bool, bool] = (False, False)

    def __str__(self) -> str:
        if self == REAL:
            return "real"
        return f"{'[' if self.closed[0] else '('}{self.low:g}, {self.high:g}{']' if self.closed[1] else ')'}"

    def contains(self, value: np.ndarray) -> bool:
        """Whether every element is inside: finite, unless an end at infinity is closed."""
        above = value >= self.low if self.closed[0] else value > self.low
        below = value <= self.high if self.closed[1] else value < self.high
        return bool(np.all(above & below))

    def guarded(self, value: Array) -> Array:
        """The value, NaN where it is outside: what a traced value can say instead of an exception."""
        above = value >= self.low if self.closed[0] else value > self.low
        below = value <= self.high if self.closed[1] else value < self.high
        return jnp.where(above & below, value, jnp.nan)

    def constrain(self, theta: Array) -> Array:
        """The line to the interval: identity, `low + exp`, or a scaled sigmoid."""
        if math.isinf(self.low):
            return theta
        if math.isinf(self.high):
            return self.low + jnp.exp(theta)
        return self.low + (self.high - self.low) * jax.nn.sigmoid(theta)

    def unconstrain(self, value: Array) -> Array:
        """The inverse of `constrain`; an end point of the interval has none."""
        if math.isinf(self.low):
            return value
        if math.isinf(self.high):
            return jnp.log(value - self.low)
        return jnp.log(value - self.low) - jnp.log(self.high - value)

    def log_slope(self, theta: Array) -> Array:
        """`log |d constrain / d theta|`, element by element."""
        if math.isinf(self.low):
            return jnp.zeros_like(theta)
        if math.isinf(self.high):
            return theta
        return math.log(self.high - self.low) + jax.nn.log_sigmoid(theta) + jax.nn.log_sigmoid(-theta)


REAL = Support()
POSITIVE = Support(low=0.0)
NONNEGATIVE = Support(low=0.0, closed=(True, False))
