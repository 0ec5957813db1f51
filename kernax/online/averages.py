"""Running means of the functions after every step."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kernax.core.base.intervals import NONNEGATIVE
from kernax.online.learner import as_number_if_given


def as_averaging(averaging: Any) -> Any:
    """None, or a number >= 0, as `as_number_if_given` checks it."""
    words = "averaging must be None or a number >= 0, 0 for the plain mean"
    return as_number_if_given(averaging, NONNEGATIVE, words)


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
    # mean_t = (1 - v) mean_(t-1) + v f_t, v = (a + 1) / (t + a) (Shamir & Zhang 2013). At t = 1, v
    # is one, so that the function zero before the first step does not count.
    a = jnp.asarray(averaging, mean.dtype)
    weight = (a + 1) / (steps.astype(mean.dtype) + a)
    return mean + weight * (now - mean)
