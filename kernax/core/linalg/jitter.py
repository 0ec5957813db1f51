"""Jitter, which is added to a diagonal in increasing steps until a factor exists."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.base.numerics import eps_of


def range_of_jitter(scale: Float[Array, "*r"]) -> tuple[Float[Array, "*r"], Float[Array, "*r"]]:
    """The smallest and the largest jitter for a matrix with the mean diagonal `scale`."""
    eps = eps_of(scale)
    first = math.sqrt(eps) if scale.dtype == jnp.float64 else 10 * eps
    return first * scale, 1e-4 * scale


def with_jitter(
    attempt: Callable[[Float[Array, ""]], Any],
    is_done: Callable[[Any], Array],
    scale: Float[Array, ""],
    may_help: Any = True,
) -> Any:
    """The first successful attempt at a factor, with the jitter of `factorise`; otherwise the last.

    Attempts have an attribute `jitter`. `scale` is the mean diagonal of the matrix, and `may_help`
    says whether jitter can help at all.
    """
    first, most = range_of_jitter(scale)
    can_grow = jnp.isfinite(scale) & (first > 0) & may_help

    def go_on(now: _Tried) -> Array:
        made = now.made
        return now.is_first | (~is_done(made) & (made.jitter < most) & can_grow)

    def again(now: _Tried) -> _Tried:
        before = now.made.jitter
        # Zero, first, 10 first, 100 first, ..., most.
        larger = lax.select(before > 0, jnp.minimum(10 * before, most), first)
        return _Tried(
            attempt(lax.select(now.is_first, jnp.zeros_like(larger), larger)), jnp.array(False)
        )

    # The attempt without jitter is the first of the loop, so that the program contains it once.
    none = jax.tree.map(jnp.zeros_like, eqx.filter_eval_shape(attempt, scale))
    return lax.while_loop(go_on, again, _Tried(none, jnp.array(True))).made


class _Tried(eqx.Module):
    """The last attempt at a factor, and whether the first is still pending."""

    made: Any
    is_first: Bool[Array, ""]
