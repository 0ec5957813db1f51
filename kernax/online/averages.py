"""Running means of the functions after every step."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from kernax.core.base.intervals import NONNEGATIVE
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import as_floats


def as_averaging(averaging: Any) -> Any:
    """None, or a number >= 0. Raises ValueError for any other known value; a negative number that
    is traced becomes NaN.
    """
    if averaging is None:
        return None
    number: Any = np.nan if isinstance(averaging, (bool, str)) else as_floats(averaging)
    if not is_concrete(number):
        return NONNEGATIVE.guarded(number)
    if not NONNEGATIVE.contains(number):
        raise ValueError(
            f"averaging must be None or a number >= 0, 0 for the plain mean, but is {averaging!r}"
        )
    return number


def moved_average(
    mean: Float[Array, " m"] | None,
    now: Float[Array, " m"],
    steps: Int[Array, ""],
    averaging: Float[Array, ""] | None,
) -> Float[Array, " m"] | None:
    """The mean moved towards `now` by `(a + 1) / (steps + a)`, where a is the averaging; None if
    there is no mean.
    """
    if mean is None:
        return None
    a = jnp.asarray(averaging, mean.dtype)
    weight = (a + 1) / (steps.astype(mean.dtype) + a)
    return mean + weight * (now - mean)
