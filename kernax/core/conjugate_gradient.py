"""Conjugate gradients, free of units and judged by the true residual."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float, Int

from kernax.core.numerics import product
from kernax.core.operators import AbstractSymmetricSolver
from kernax.core.sharding import while_loop


class _Iterate(eqx.Module):
    """Where conjugate gradients stand: `claimed` is the residual by recurrence, `least` the smallest length of a true one, that
    of `best`; `stretch` the largest |A v| / |v| so far, and `stuck` whether there is no way on.
    """

    x: Float[Array, " n"]
    claimed: Float[Array, " n"]
    direction: Float[Array, " n"]
    best: Float[Array, " n"]
    least: Float[Array, ""]
    stretch: Float[Array, ""]
    steps: Int[Array, ""]
    stuck: Bool[Array, ""]


def _step(multiply: Callable[[Array], Array], now: _Iterate) -> _Iterate:
    """One step of conjugate gradients; none where the matrix is not positive along the direction."""
    image = multiply(now.direction)
    slope, square = product(now.direction, image), product(now.direction, now.direction)
    stretch = jnp.maximum(now.stretch, _length(image) / jnp.sqrt(square))  # |A| from below
    stuck = ~(slope > 10 * float(jnp.finfo(slope.dtype).eps) * stretch * square)
    before = product(now.claimed, now.claimed)
    step = jnp.where(stuck, 0, before / jnp.where(stuck, 1, slope))
    claimed = jnp.where(stuck, now.claimed, now.claimed - step * image)
    direction = claimed + product(claimed, claimed) / before * now.direction
    x = now.x + step * now.direction
    return _Iterate(x, claimed, direction, now.best, now.least, stretch, now.steps + 1, stuck)


def _verified(now: _Iterate, multiply: Callable[[Array], Array], b: Array, tolerance: float) -> _Iterate:
    """The same iterate with its true residual. It is stuck where only the claimed one has reached the tolerance."""
    true = b - multiply(now.x)
    reached = _length(true)
    only_claimed = (_length(now.claimed) <= tolerance) & (reached > tolerance) & ~(reached < now.least / 2)
    better = reached < now.least
    return _Iterate(
        x=now.x,
        claimed=true,
        direction=now.direction + (true - now.claimed),
        best=jnp.where(better, now.x, now.best),
        least=jnp.where(better, reached, now.least),
        stretch=now.stretch,
        steps=now.steps,
        stuck=now.stuck | only_claimed,
    )


def _length(v: Array) -> Array:
    return jnp.sqrt(product(v, v))


class ConjugateGradient(AbstractSymmetricSolver):
    """Conjugate gradients (Hestenes & Stiefel 1952) until `|b - A x| <= rtol |b|` in the 2-norm, whatever the units of A and b.

    The residual is computed anew every ten steps and at the end, so that it is the true one that decides. Where A is not
    positive along a direction, or where the residual falls by recurrence only, the value is the best iterate, and the
    result `breakdown` unless its residual is within twice rtol. `stats["steps"]` counts the steps.

    Attributes:
        rtol: relative residual at which to stop; default eps^(2/3), 4e-11 in float64 and 2e-5 in float32.
        max_steps: default 1000.
    """

    rtol: float | None = None
    max_steps: int = 1000

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> lx.AbstractLinearOperator:
        if not lx.is_positive_semidefinite(operator):
            raise ValueError("ConjugateGradient needs an operator tagged lineax.positive_semidefinite_tag")
        return lx.linearise(operator)

    def compute(self, state: lx.AbstractLinearOperator, vector: Array, options: dict[str, Any]):
        # Both are brought to size one, so that no square below leaves the range of floats.
        largest = _positive(jnp.max(jnp.abs(vector)))
        length = _positive(_length(vector / largest))
        b = vector / largest / length
        curvature = _positive(jnp.abs(product(b, state.mv(b))))
        last = self._iterate(lambda v: state.mv(v) / curvature, b)
        ended = lx.RESULTS.where(last.stuck, lx.RESULTS.breakdown, lx.RESULTS.max_steps_reached)
        close = last.least <= jnp.where(last.stuck, 2, 1) * self.tolerance(vector.dtype)
        result = lx.RESULTS.where(close, lx.RESULTS.successful, ended)
        return last.best * length / curvature * largest, result, {"steps": last.steps}

    def _iterate(self, multiply: Callable[[Array], Array], b: Array) -> _Iterate:
        tolerance = self.tolerance(b.dtype)

        def ten_steps(start: _Iterate) -> _Iterate:
            def go_on(now):
                below_cap = (now.steps < self.max_steps) & (now.steps < start.steps + 10)
                return (_length(now.claimed) > tolerance) & below_cap & ~now.stuck

            return _verified(while_loop(go_on, partial(_step, multiply), start), multiply, b, tolerance)

        def unfinished(now: _Iterate):
            return (now.least > tolerance) & (now.steps < self.max_steps) & ~now.stuck

        zero = jnp.zeros_like(b)
        first = _Iterate(zero, b, b, zero, _length(b), zero[0], jnp.zeros((), jnp.int32), jnp.asarray(False))
        return while_loop(unfinished, ten_steps, first)

    def tolerance(self, dtype) -> float:
        """The relative residual that counts as solved in a dtype."""
        return float(jnp.finfo(dtype).eps) ** (2 / 3) if self.rtol is None else self.rtol


def _positive(size: Array) -> Array:
    """A size to divide by: one where it is zero."""
    return jnp.where(size == 0, 1, size)
