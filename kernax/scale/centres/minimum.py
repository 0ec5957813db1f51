"""The minimum of a risk over centres, by Newton's method with conjugate gradients."""

from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.numerics import positive_or_one, tree_where
from kernax.core.base.solution import RESULTS, first_that_holds
from kernax.scale.centres.normal_equations import Steps, solve_normal_equations
from kernax.scale.centres.preconditioner import HessianFactor
from kernax.scale.centres.risk import LENGTHS, Risk

_MOST_NEWTON_STEPS = 100
_MOST_TO_MEASURE = 50  # steps of conjugate gradients, where two to four are usual
# Full steps may lower the remaining error by less than a tenth where curvatures jump: so many in a
# row count as rounding.
_MOST_SLOW = 5
_CLOSE = 1e-2  # residuals below which a Hessian serves for the following steps


class RiskPoint(eqx.Module):
    """Coefficients a, and the quantities computed there."""

    a: Float[Array, "m p"]
    gradient: Float[Array, "m p"]
    objective: Float[Array, " p"]
    P: HessianFactor
    size: Float[Array, " p"]  # the size to which the length of Newton's step is relative
    left: Float[Array, ""]  # that length, relative to the size


class MinimumProgress(eqx.Module):
    """Newton's method after some steps."""

    point: RiskPoint
    ratio: Float[Array, ""]  # of lengths in the norm of F'' to those in the norm of P, as measured
    steps: Int[Array, ""]
    products: Int[Array, ""]
    slow: Int[Array, ""]  # how many full steps in a row have hardly lowered the remaining error
    stuck: Bool[Array, ""]
    finite: Bool[Array, ""]
    measured: Bool[Array, ""]  # whether the remaining error is known in the norm of F''


class Minimum(eqx.Module):
    """The end of the iteration; P is at the last a, or near it."""

    a: Float[Array, "m p"]
    P: HessianFactor
    result: Any
    stats: dict[str, Array]


def minimise(
    risk: Risk, shape: tuple[int, int], rtol: ArrayLike | None, max_steps: ArrayLike
) -> Minimum:
    """The minimum of F, by Newton's method with conjugate gradients.

    The gradient g at the last a, computed anew, decides about success: by `sqrt(g.d)` with `F'' d =
    g`. If P equals F'' up to rounding, this is `sqrt(g.P^-1 g)` times the excess of P; if P comes
    from a sample, the equation is solved to one digit.
    """
    method = Newton.of(risk, rtol, max_steps)
    start = method.start(shape)
    if risk.sample is None:
        end = risk.rows.repeat(method.go_on, method.step, start)
    else:
        end = risk.rows.repeat(method.is_open, method.measured_end, start)
    return method.minimum(end)


class Newton(eqx.Module):
    """Newton's method for one risk."""

    risk: Risk
    size: Float[Array, " p"]
    max_steps: ArrayLike
    goal: Any
    bar: ArrayLike

    @staticmethod
    def of(risk: Risk, rtol: ArrayLike | None, max_steps: ArrayLike) -> "Newton":
        # Steps end at a residual of `goal`; a residual of `bar` is accepted where no step lowers
        # it.
        goal = risk.eps**0.5 / 4 if rtol is None else rtol
        bar = risk.eps**0.5 if rtol is None else rtol
        return Newton(risk, risk.size(), max_steps, goal, bar)

    def start(self, shape: tuple[int, int]) -> MinimumProgress:
        """The start at zero; for squares, if P is the Hessian itself, after one step."""
        risk = self.risk
        nothing = jnp.zeros(shape, risk.gram.dtype)
        one = jnp.ones((), nothing.dtype)
        P = risk.hessian(nothing)
        point = self._at(nothing, P, one)
        if risk.quadratic and risk.sample is None:
            # The minimum of a quadratic F is -F''(0)^-1 F'(0).
            step = -P.solve(point.gradient)
            point = self._at(jnp.where(jnp.isfinite(step), step, 0), P, one)
        no_step = jnp.zeros((), jnp.int32)
        finite = jnp.isfinite(point.left)
        never = jnp.array(False)
        measured = jnp.array(risk.sample is None)
        return MinimumProgress(point, one, no_step, no_step, no_step, never, finite, measured)

    def _at(self, a: Float[Array, "m p"], P: HessianFactor, ratio: Float[Array, ""]) -> RiskPoint:
        """The state at a, rounded to the precision in which a is returned."""
        a = a.astype(self.risk.precision).astype(a.dtype)
        gradient, objective, squares = self.risk.at(a)
        # The larger of the length of the targets and sqrt(a.F'' a), that of the function.
        size = jnp.maximum(self.size, jnp.sqrt(squares))
        # sqrt(d.F'' d) for Newton's step d = F''^-1 g is about sqrt(g.P^-1 g).
        length = P.length_of_step(gradient)
        length = length if self.risk.sample is not None else P.excess * length
        left = ratio * _relative(length, size, gradient)
        return RiskPoint(a, gradient, objective, P, size, left)

    def go_on(self, now: MinimumProgress) -> Bool[Array, ""]:
        more = (now.steps < _MOST_NEWTON_STEPS) & (now.products < self.max_steps)
        return (now.point.left > self.goal) & ~now.stuck & now.finite & more

    def is_open(self, now: MinimumProgress) -> Bool[Array, ""]:
        """Whether steps remain, or the remaining error is not known."""
        return self.go_on(now) | (now.finite & ~now.measured & ~now.stuck)

    def measured_end(self, now: MinimumProgress) -> MinimumProgress:
        """Newton steps until they seem to suffice, and the remaining error, measured."""
        end = self.risk.rows.repeat(self.go_on, self.step, now)
        return self.measured(end, self._solved(end.point, *self.to_measure(end)))

    def to_measure(self, now: MinimumProgress) -> tuple[Any, Any]:
        """The accuracy and the largest number of steps of the solve that measures the remaining
        error.
        """
        return 0.1 / jnp.minimum(now.point.P.excess, 1e3), _MOST_TO_MEASURE

    def measured(self, end: MinimumProgress, found: Steps) -> MinimumProgress:
        """The same point, with the remaining error known."""
        point = end.point
        # d.F'' d = x.F'' x + (d - x).F'' (d - x), as conjugate gradients keep x.F'' (d - x) = 0.
        # The second term is r.F''^-1 r, r the residual, which is about r.P^-1 r.
        length = jnp.hypot(found.length, point.P.excess * found.left)
        left = _relative(length, point.size, point.gradient)
        known = found.arrived & jnp.isfinite(left)
        moves = known & (left > 0) & (point.left > 0)
        ratio = jnp.where(moves, end.ratio * left / positive_or_one(point.left), end.ratio)
        point = eqx.tree_at(lambda point: point.left, point, jnp.where(known, left, point.left))
        return MinimumProgress(
            point,
            ratio,
            end.steps,
            end.products + found.taken,
            end.slow,
            end.stuck | ~known,
            end.finite,
            known,
        )

    def minimum(self, end: MinimumProgress) -> Minimum:
        """The minimum, and its status."""
        point = end.point
        stats = {"steps": end.steps, "products": end.products}
        stats |= {"residual": point.left, "objective": point.objective}
        return Minimum(point.a, point.P, self._status(end), stats)

    def _status(self, end: MinimumProgress) -> Any:
        """The status, from the last point alone if that is close."""
        point = end.point
        statuses = (
            (~jnp.all(jnp.isfinite(point.gradient)), RESULTS.nonfinite),
            (~point.P.exists, RESULTS.not_psd),
            (~(end.finite & jnp.isfinite(point.left)), RESULTS.nonfinite),
            (end.measured & (point.left <= self.bar), RESULTS.successful),
            (end.products >= self.max_steps, RESULTS.max_steps_reached),
            (end.stuck, RESULTS.inaccurate),
        )
        return first_that_holds(statuses, RESULTS.max_steps_reached)

    def step(self, now: MinimumProgress) -> MinimumProgress:
        """One step, solved only as exactly as is useful, and shortened where F would rise."""
        return self.moved(now, self._solved(now.point, *self.to_step(now)))

    def to_step(self, now: MinimumProgress) -> tuple[Any, Any]:
        """The accuracy and the largest number of steps of the solve for a step."""
        return self._forcing(now.point.left), self.max_steps - now.products

    def moved(self, now: MinimumProgress, found: Steps) -> MinimumProgress:
        """The end of a step, given the Newton direction."""
        point = now.point
        # a' = a - t d with F'' d = F'.
        length = self._length(point, -found.x)
        a = point.a - length * found.x
        P = point.P if self.risk.quadratic else self._hessian(point, a)
        after = self._at(a, P, now.ratio)
        return self._judged(now, after, length, found.taken)

    def _solved(self, point: RiskPoint, rtol: Any, max_steps: Any) -> Steps:
        """d with `F'' d = F'`."""
        repeat = self.risk.rows.repeat
        multiply = partial(self.product, point)
        return solve_normal_equations(multiply, point.P, point.gradient, rtol, max_steps, repeat)

    def product(self, point: RiskPoint, V: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """`F'' V`."""
        return self.risk.product(point.a, V)

    def _hessian(self, before: RiskPoint, a: Float[Array, "m p"]) -> HessianFactor:
        """The Hessian at a; with a sample, the previous one if the step is small."""
        new = self.risk.hessian
        if self.risk.sample is None:
            return new(a)
        rows = self.risk.rows
        is_small = before.left < _CLOSE
        return rows.either(is_small, lambda both: both[0], lambda both: new(both[1]), (before.P, a))

    def _forcing(self, left: Float[Array, ""]) -> Float[Array, ""]:
        """The accuracy of the solve for a step: for a quadratic F the final accuracy."""
        # Inexact Newton (Dembo, Eisenstat & Steihaug 1982): |F'' d - F'| <= eta |F'|. With eta at
        # most the remaining error it converges quadratically; below `needed` nothing is gained.
        needed = self.goal / 2 / left
        return needed if self.risk.quadratic else jnp.maximum(needed, jnp.minimum(0.1, left))

    def _length(self, point: RiskPoint, d: Float[Array, "m p"]) -> Float[Array, ""]:
        """The longest step at whose end F falls, or rises a tenth as fast as it fell at first."""
        if self.risk.quadratic:
            return jnp.ones((), d.dtype)
        # The first t of LENGTHS, which fall, with F'(a + t d).d <= |F'(a).d| / 10.
        slopes = self.risk.slopes(point.a, d)
        fits = (slopes[1:] <= abs(slopes[0]) / 10) | ~(slopes[0] < 0)  # false for NaN
        first = jnp.where(jnp.any(fits), jnp.argmax(fits), len(LENGTHS) - 1)
        return jnp.asarray(LENGTHS, d.dtype)[first]

    def _judged(
        self, now: MinimumProgress, after: RiskPoint, length: Float[Array, ""], products: Array
    ) -> MinimumProgress:
        """The point after the step; the previous point if the step should help, and does not."""
        before = now.point
        finite = jnp.all(jnp.isfinite(after.a)) & jnp.isfinite(after.left)
        must_help = jnp.asarray(self.risk.quadratic) | (before.left <= self.bar)
        worse = must_help & ~(after.left < before.left)
        not_halved = ~(after.left < before.left / 2)
        idle = ~(after.left < 0.9 * before.left) & (length == 1)
        slow = jnp.where(idle, now.slow + 1, 0)
        return MinimumProgress(
            tree_where(worse | ~finite, before, after),
            now.ratio,
            now.steps + 1,
            now.products + products,
            slow,
            (must_help & not_halved) | (slow >= _MOST_SLOW),
            finite,
            jnp.asarray(self.risk.sample is None),
        )


def _relative(
    length: Float[Array, " p"], size: Float[Array, " p"], gradient: Float[Array, "m p"]
) -> Float[Array, ""]:
    """The largest `length / size`: zero only if the gradient is zero, and inf if either is out of
    the range of floats.
    """
    known = jnp.isfinite(size) & (size > 0) & (length > 0)
    ratio = jnp.where(known, length / positive_or_one(size), jnp.inf)
    return jnp.max(jnp.where(jnp.all(gradient == 0, 0), 0, ratio))
