"""Intervals of the real line for parameters, and their maps to the whole line."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from kernax.core.base.numerics import where_or
from kernax.core.base.special_functions import softplus


def flushed(values: np.ndarray) -> np.ndarray:
    """Concrete numbers with subnormal ones replaced by zero (below 1.2e-38 in float32 and 2.3e-308
    in float64).

    On a CPU XLA treats these as zero, but NumPy does not: a check by NumPy would call a number
    positive that the compiled program cannot distinguish from zero. Other dtypes are unchanged.
    """
    if values.dtype not in (np.float32, np.float64):
        return values
    is_subnormal = np.abs(values) < np.finfo(values.dtype).tiny
    return np.where(is_subnormal, np.zeros_like(values), values)


@dataclasses.dataclass(frozen=True)
class Interval:
    """An interval of the real line, and the map between its interior and the whole line."""

    low: float = -math.inf
    high: float = math.inf
    closed: tuple[bool, bool] = (False, False)

    def __str__(self) -> str:
        if self == REAL:
            return "real"
        left = "[" if self.closed[0] else "("
        right = "]" if self.closed[1] else ")"
        return f"{left}{self.low:g}, {self.high:g}{right}"

    @property
    def demand(self) -> str:
        """The condition for a number in the interval, for messages."""
        return "finite" if self == REAL else f"in {self}"

    def contains(self, value: Any) -> bool:
        """Whether every element is inside, and finite unless an infinite end is closed. Subnormal
        numbers count as zero, as in compiled programs.
        """
        return bool(np.all(self.inside(flushed(np.asarray(value)))))

    def guarded(self, value: Array) -> Array:
        """A traced value, with NaN for value and derivative where it is outside."""
        return nan_outside(value, self.inside(value))

    def inside(self, value: Any) -> Any:
        """Which elements are inside."""
        above = value >= self.low if self.closed[0] else value > self.low
        below = value <= self.high if self.closed[1] else value < self.high
        return above & below

    def constrain(self, theta: Array) -> Array:
        """The map from the line to the interval: identity, `low + exp`, or a scaled sigmoid."""
        if math.isinf(self.low):
            return theta
        if math.isinf(self.high):
            return self.low + jnp.exp(theta)
        length = self.high - self.low
        return self.low + length * jax.nn.sigmoid(theta)

    def unconstrain(self, value: Array) -> Array:
        """The inverse of `constrain`, which does not exist at an end of the interval."""
        if math.isinf(self.low):
            return value
        # log(v - low), or log((v - low) / (high - v)).
        above = jnp.log(value - self.low)
        if math.isinf(self.high):
            return above
        return above - jnp.log(self.high - value)

    def log_slope(self, theta: Array) -> Array:
        """`log |d constrain / d theta|`, element by element."""
        if math.isinf(self.low):
            return jnp.zeros_like(theta)
        if math.isinf(self.high):
            return theta
        # The slope of low + L sigmoid(theta) is L sigmoid(theta) sigmoid(-theta), L = high - low.
        return math.log(self.high - self.low) - softplus(-theta) - softplus(theta)


def nan_outside(value: Array, is_inside: Bool[Array, "*#shape"]) -> Array:
    """A traced value, with NaN for value and derivative where it is not inside its interval."""
    # A product, because the derivative of a selection would be zero, which looks like an optimum.
    return value * where_or(is_inside, jnp.ones_like(value), jnp.nan)


REAL = Interval()
POSITIVE = Interval(low=0.0)
NONNEGATIVE = Interval(low=0.0, closed=(True, False))
INSIDE_ONE = Interval(0.0, 1.0)
UP_TO_ONE = Interval(0.0, 1.0, closed=(True, True))
