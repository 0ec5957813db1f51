"""Conjugate gradients, free of units and judged by the true residual."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float, Int

from kernax.core.numerics import chosen, eps_of, matmul
from kernax.core.sharding import while_loop
from kernax.core.solution import RESULTS
from kernax.core.solvers import (
    AbstractSymmetricSolver,
    accurate_residual,
    refuse_options,
    word_for_inaccuracy,
)


class _Best(eqx.Module):
    """The iterate whose true residual was smallest."""

    x: Float[Array, " n"]
    residual: Float[Array, ""]  # its length


class _Iterate(eqx.Module):
    """Conjugate gradients after some steps."""

    x: Float[Array, " n"]
    residual: Float[Array, " n"]  # by recurrence, which may drift away from the true one
    direction: Float[Array, " n"]
    best: _Best
    norm: Float[Array, ""]  # of A, from below: the largest |A v| / |v| so far
    steps: Int[Array, ""]
    stuck: Bool[Array, ""]  # whether no further step is of use

    @staticmethod
    def at_zero(b: Float[Array, " n"]) -> "_Iterate":
        """Before the first step."""
        zero = jnp.zeros_like(b)
        best = _Best(zero, _length(b))
        return _Iterate(zero, b, b, best, zero[0], jnp.zeros((), jnp.int32), jnp.asarray(False))


def _step(multiply: Callable[[Array], Array], now: _Iterate) -> _Iterate:
    """One step of conjugate gradients; none where A is not positive along the direction."""
    image = multiply(now.direction)
    slope = matmul(now.direction, image)
    norm = jnp.maximum(now.norm, _length(image) / _length(now.direction))
    stuck = ~(slope > _rounding(norm, now.direction))
    before = matmul(now.residual, now.residual)
    step = jnp.where(stuck, 0, before / jnp.where(stuck, 1, slope))
    residual = jnp.where(stuck, now.residual, now.residual - step * image)
    direction = residual + matmul(residual, residual) / before * now.direction
    x = now.x + step * now.direction
    return _Iterate(x, residual, direction, now.best, norm, now.steps + 1, stuck)


def _rounding(norm: Float[Array, ""], v: Float[Array, " n"]) -> Float[Array, ""]:
    """The error that rounding leaves in `v.A v`: ten times `eps |A| |v|^2`."""
    return 10 * eps_of(v) * norm * matmul(v, v)


def _verified(
    now: _Iterate, multiply: Callable[[Array], Array], b: Array, tolerance: float
) -> _Iterate:
    """The same iterate with its true residual."""
    true = b - multiply(now.x)
    length = _length(true)
    stuck = now.stuck | _has_drifted(now, length, tolerance)
    direction = now.direction + (true - now.residual)
    best = _better(_Best(now.x, length), now.best)
    return _Iterate(now.x, true, direction, best, now.norm, now.steps, stuck)


def _has_drifted(now: _Iterate, length: Array, tolerance: float) -> Bool[Array, ""]:
    """Whether only the residual by recurrence has reached the tolerance, and the true one, of that
    length, has not fallen by half.
    """
    drifted = (_length(now.residual) <= tolerance) & (length > tolerance)
    return drifted & ~(length < now.best.residual / 2)


def _better(one: _Best, other: _Best) -> _Best:
    """The one with the smaller residual."""
    smaller = one.residual < other.residual
    return chosen(smaller, one, other)


def _length(v: Float[Array, " n"]) -> Float[Array, ""]:
    """`|v|`."""
    return jnp.sqrt(matmul(v, v))


class ConjugateGradient(AbstractSymmetricSolver):
    """Conjugate gradients (Hestenes & Stiefel 1952) until `|b - A x| <= rtol |b|` in the 2-norm.

    Nothing depends on the units of A and b. The residual is computed anew every ten steps and at
    the end, so that the true one decides. Where A is not positive along a direction, or where the
    residual falls by recurrence only, the value is the best iterate, and the result `breakdown`
    unless its residual is within twice rtol. `stats["steps"]` counts the steps.

    Attributes:
        rtol: relative residual at which to stop; default eps^(2/3), 4e-11 in float64 and 2e-5 in
            float32.
        max_steps: default 1000.
    """

    rtol: float | None = None
    max_steps: int = 1000

    def init(
        self, operator: lx.AbstractLinearOperator, options: dict[str, Any]
    ) -> lx.AbstractLinearOperator:
        if not lx.is_positive_semidefinite(operator):
            raise ValueError(
                "ConjugateGradient needs an operator tagged lineax.positive_semidefinite_tag"
            )
        refuse_options(self, options)
        return lx.linearise(operator)

    def compute(self, state: lx.AbstractLinearOperator, vector: Array, options: dict[str, Any]):
        # Both are brought to size one, so that no square below leaves the range of floats.
        largest = _positive(jnp.max(jnp.abs(vector)))
        length = _positive(_length(vector / largest))
        b = vector / largest / length
        curvature = _positive(jnp.abs(matmul(b, state.mv(b))))
        last = self._iterate(lambda v: state.mv(v) / curvature, b)
        x = last.best.x * length / curvature * largest
        return x, self._result(last, vector.dtype), {"steps": last.steps}

    def _iterate(self, multiply: Callable[[Array], Array], b: Float[Array, " n"]) -> _Iterate:
        """The last iterate for `A x = b`, |b| = 1, its residual verified every ten steps."""
        tolerance = self.tolerance(b.dtype)

        def ten_steps(start: _Iterate) -> _Iterate:
            def go_on(now: _Iterate):
                below_cap = (now.steps < self.max_steps) & (now.steps < start.steps + 10)
                return (_length(now.residual) > tolerance) & below_cap & ~now.stuck

            end = while_loop(go_on, partial(_step, multiply), start)
            return _verified(end, multiply, b, tolerance)

        def unfinished(now: _Iterate):
            return (now.best.residual > tolerance) & (now.steps < self.max_steps) & ~now.stuck

        return while_loop(unfinished, ten_steps, _Iterate.at_zero(b))

    def _result(self, last: _Iterate, dtype: Any) -> Any:
        """The word for how the iteration ended."""
        ended = lx.RESULTS.where(last.stuck, lx.RESULTS.breakdown, lx.RESULTS.max_steps_reached)
        close = last.best.residual <= jnp.where(last.stuck, 2, 1) * self.tolerance(dtype)
        return lx.RESULTS.where(close, lx.RESULTS.successful, ended)

    def tolerance(self, dtype) -> float:
        """The relative residual that counts as solved in a dtype."""
        return eps_of(dtype) ** (2 / 3) if self.rtol is None else self.rtol


@accurate_residual.register
def _(solver: ConjugateGradient, dtype: Any) -> float:
    return 2 * solver.tolerance(dtype)


@word_for_inaccuracy.register
def _(solver: ConjugateGradient) -> Any:
    return RESULTS.breakdown


def _positive(size: Array) -> Array:
    """A size to divide by: one where it is zero."""
    return jnp.where(size == 0, 1, size)
