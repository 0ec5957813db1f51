"""Newton's method for convex functions."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import largest_of_batch, sequential_vmap
from kernax.core.base.compiled import traced_once
from kernax.core.base.derivatives import custom_jvp, split_by_tangent
from kernax.core.base.numerics import eps_of, positive_or_one, tree_where
from kernax.core.base.solution import RESULTS, first_that_holds


class Stationarity(eqx.Module):
    """The residuals of the conditions of optimality, one entry for each kind of condition.

    Attributes:
        left: the residual: the largest absolute value of a sum that is zero at the optimum.
        size: the largest sum of the absolute values of its terms, in the same unit.
        rounding: the error of the sum that follows from the rounding of the point's values.
    """

    left: Float[Array, "..."]
    size: Float[Array, "..."]
    rounding: Float[Array, "..."]

    def within(self, tolerance: ArrayLike, excuse: float = 4.0) -> Bool[Array, ""]:
        """Whether each residual is at most `tolerance` of its terms and `excuse` times rounding."""
        return jnp.all(self.left <= tolerance * self.size + excuse * self.rounding)

    def relative(self) -> Float[Array, ""]:
        """The largest residual, relative to the terms of its sum and of the point's values."""
        whole = self.size + self.rounding / eps_of(self.size)
        return jnp.max(self.left / positive_or_one(whole))


class Iterate(eqx.Module):
    """An argument x of F, and expensive values that are computed from it once."""

    x: Array
    values: Array


class AbstractConvexProblem(eqx.Module):
    """A convex differentiable function F of an array x, to be minimised; its data are fields."""

    @abc.abstractmethod
    def start(self) -> Iterate:
        """A point to start from."""

    @abc.abstractmethod
    def values(self, x: Array) -> Array:
        """The values of an `Iterate` in addition to x, such as a product with a matrix."""

    @abc.abstractmethod
    def correction(self, point: Iterate) -> Array:
        """The Newton step d, `F''(x) d = -F'(x)`, or a descent direction close to it."""

    @abc.abstractmethod
    def slope_along(self, point: Iterate, direction: Array) -> Callable[[Array], Array]:
        """The function `t -> d/dt F(x + t direction)`, which is called for many t."""

    @abc.abstractmethod
    def stationarity(self, point: Iterate) -> Stationarity:
        """The residual of F'(x) = 0, computed without the curvature that determines steps."""

    @abc.abstractmethod
    def settled(self, point: Iterate) -> Array:
        """An x with the same F up to rounding, possibly closer to F'(x) = 0, or x itself."""

    @abc.abstractmethod
    def objective(self, point: Iterate) -> Float[Array, ""]:
        """F(x)."""

    def at(self, x: Array) -> Iterate:
        """The iterate with the argument x."""
        return Iterate(x, self.values(x))


class AbstractImplicitProblem(AbstractConvexProblem):
    """A convex problem with equations for its minimum, from which the derivative follows."""

    @abc.abstractmethod
    def equations(self, point: Iterate) -> Array:
        """The residuals E(x) of equations that are zero at the minimum, in the shape of x.

        They are differentiable in x and in the fields, to any order.
        """

    @abc.abstractmethod
    def solve(self, point: Iterate, rhs: Array) -> Array:
        """The solution d of `E'(x) d = rhs` at the minimum, differentiable to any order.

        NaN if there is no solution.
        """


@traced_once
def _stationarity_of(problem: AbstractConvexProblem, point: Iterate) -> Stationarity:
    return problem.stationarity(point)


class _NewtonState(eqx.Module):
    """The state of Newton's method between two evaluations of the stationarity residual.

    That evaluation is most of the compiled program, so it only occurs inside the loop: the loop
    evaluates the start first, then each step, and the settled point last.
    """

    point: Iterate  # the best so far
    stationarity: Stationarity
    left: Float[Array, ""]  # the relative stationarity residual
    tried: Array  # the x that is evaluated next
    steps: Int[Array, ""]  # the number of steps evaluated; -1 before the start has been
    must_help: Bool[Array, ""]  # whether the stationarity residual must be lower at `tried`
    stuck: Bool[Array, ""]  # whether the last step improved less than required
    finite: Bool[Array, ""]  # whether the last step led to finite numbers
    settling: Bool[Array, ""]  # whether there are no more steps and the settled point is tried
    ended: Bool[Array, ""]

    @staticmethod
    def before(problem: AbstractConvexProblem) -> "_NewtonState":
        """The state before the start is evaluated."""
        point = problem.start()
        unknown = eqx.filter_eval_shape(_stationarity_of, problem, point)
        stationarity = jax.tree.map(lambda part: jnp.full(part.shape, jnp.inf, part.dtype), unknown)
        no = jnp.array(False)
        before_start = jnp.full((), -1, jnp.int32)
        left = jnp.full((), jnp.inf, point.x.dtype)
        return _NewtonState(point, stationarity, left, point.x, before_start, no, no, ~no, no, no)


def newton(
    problem: AbstractConvexProblem,
    *,
    rtol: ArrayLike | None = None,
    max_steps: ArrayLike = 500,
) -> tuple[Iterate, Any, dict[str, Array]]:
    """Newton's method with a line search by slopes, until the stationarity residual is within
    `rtol` or rounding.

    Decisions use neither values of F, where rounding hides half of the digits, nor the size of a
    step. Success depends only on the last point: its stationarity residual must be within rtol
    (default sqrt(eps)) of its terms and rounding. The iteration stops when that holds to 8 eps (or
    rtol), or when the stationarity residual no longer decreases.

    Returns:
        the point, the result (successful; inaccurate, if neither x nor rounding can be improved;
        max_steps_reached; or nonfinite, with the last finite x), and stats `steps`, `objective` and
        `residual`, the relative stationarity residual.
    """
    begin = _NewtonState.before(problem)
    eps = eps_of(begin.point.x)
    goal, bar = (8 * eps, eps**0.5) if rtol is None else (rtol, rtol)

    def again(now: _NewtonState) -> _NewtonState:
        # Evaluates `tried`, and keeps it as the best point unless the stationarity residual had to
        # decrease and did not, or x or its stationarity residual is not finite.
        tried = problem.at(now.tried)
        of_tried = _stationarity_of(problem, tried)
        is_finite = jnp.all(jnp.isfinite(tried.x)) & jnp.all(
            jnp.isfinite(of_tried.left + of_tried.size)
        )
        left_of_tried = of_tried.relative()
        further = ~jnp.all(of_tried.left <= now.stationarity.left)
        worse = jnp.where(now.settling, further, now.must_help & ~(left_of_tried < now.left))
        back = (worse | ~is_finite) & (now.steps >= 0)  # the start is always accepted
        slow = now.must_help & ~(left_of_tried < now.left / 2)
        best = (now.point, now.stationarity, now.left)
        point, stationarity, left = tree_where(back, best, (tried, of_tried, left_of_tried))
        before_settling = (now.steps, now.stuck, now.finite)
        evaluated = (now.steps + 1, slow, is_finite)
        steps, stuck, finite = tree_where(now.settling, before_settling, evaluated)
        arrived = stationarity.within(goal, excuse=1 / 16)
        # A finished member of a batch must not request steps while others continue.
        no_more = arrived | stuck | ~finite | (steps >= max_steps) | now.settling
        # Chooses the next point to evaluate: a Newton step, or the settled point if `no_more`
        # follow.
        step = partial(_step, problem, bar)
        no_step = lambda point, stationarity: (point.x, jnp.array(False))
        # A batch computes no step if no member takes one, as before it ends.
        any_steps = largest_of_batch((~no_more).astype(jnp.int32)) > 0
        x, must_help = lax.cond(any_steps, step, no_step, point, stationarity)
        return _NewtonState(
            point=point,
            stationarity=stationarity,
            left=left,
            tried=jnp.where(no_more, problem.settled(point), x),
            steps=steps,
            stuck=stuck,
            finite=finite,
            must_help=must_help,
            settling=no_more,
            ended=now.settling,
        )

    end = lax.while_loop(lambda now: ~now.ended, again, begin)
    # The status of Newton's method, from its last step and the residual of the point.
    statuses = (
        (end.stationarity.within(bar), RESULTS.successful),
        (~end.finite, RESULTS.nonfinite),
        (end.stuck, RESULTS.inaccurate),
    )
    result = first_that_holds(statuses, RESULTS.max_steps_reached)
    objective = problem.objective(end.point)
    stats = {"steps": end.steps, "objective": objective, "residual": end.left}
    return end.point, result, stats


def _step(
    problem: AbstractConvexProblem, bar: ArrayLike, point: Iterate, stationarity: Stationarity
) -> tuple[Array, Bool[Array, ""]]:
    """x after the Newton step, shortened if F would increase, and whether the stationarity residual
    must decrease there.
    """
    direction = problem.correction(point)
    slope = problem.slope_along(point, direction)
    # At zero it has the sign of F'(x).d = -d.F''(x) d, which is negative except for rounding.
    at_zero, at_one = jax.vmap(slope)(jnp.arange(2, dtype=direction.dtype))
    # Near the minimum a step has full length, and the stationarity residual decreases to a fraction
    # of itself unless it is rounding. The same holds if F does not change along the step, as for
    # coefficients that K maps to zero. Elsewhere the stationarity residual may increase, but F
    # decreases.
    in_full = stationarity.within(bar) | ~(at_zero < 0)
    length = _length(slope, at_zero, at_one, skip=in_full)
    # If a step is shortened to the rounding of the full one, the gradient is rounding as well.
    return point.x + length * direction, in_full | (length <= eps_of(direction))


class _Slope(eqx.Module):
    """The slope of F at t."""

    t: Float[Array, ""]
    value: Float[Array, ""]


class _SlopeBracket(eqx.Module):
    """The slope is negative at `low` and positive at `high`; `tried` is between, or `high`."""

    low: _Slope
    high: _Slope
    tried: _Slope
    tries: Int[Array, ""]


def _length(
    slope: Callable[[Array], Array], at_zero: Array, at_one: Array, skip: Array
) -> Float[Array, ""]:
    """A step length t <= 1 where the slope, negative at t = 0, is small or still negative.

    It is 1 if the slope there is at most a tenth of |at_zero|, or with `skip`; otherwise a t where
    |slope| is at most half of |at_zero|. The slope of a convex function increases with t; secants
    and bisection in turn find its zero. A slope that overflows counts as positive.

    t is never larger than 1: a step multiplies coefficients that K maps to zero, on which F does
    not depend, by 1 - t, and after several long steps their rounding errors would dominate.
    """
    first_bar = abs(at_zero) / 10
    later_bar = abs(at_zero) / 2

    def go_on(now: _SlopeBracket) -> Array:
        at_t = now.tried.value
        fits = jnp.where(now.tries == 0, at_t <= first_bar, abs(at_t) <= later_bar)  # not NaN
        return ~(skip | fits) & (now.tries < 80)

    def narrowed(now: _SlopeBracket) -> _SlopeBracket:
        # The bracket that ends at the tried length, and the next length to try inside.
        short = now.tried.value <= 0
        low = tree_where(short, now.tried, now.low)
        high = tree_where(short, now.high, now.tried)
        # The zero of the chord is at slope(low) / (slope(low) - slope(high)) of the way from low
        # to high, and is kept at least a tenth of the way from either end.
        secant = jnp.clip(low.value / (low.value - high.value), 0.1, 0.9)
        secant = jnp.where(jnp.isfinite(high.value), secant, 0.1)
        t = low.t + jnp.where(now.tries % 2 == 0, secant, 0.5) * (high.t - low.t)
        return _SlopeBracket(low, high, _Slope(t, slope(t)), now.tries + 1)

    # The bracket between 0 and 1, where 1 is tried first.
    low = _Slope(jnp.zeros_like(at_zero), at_zero)
    high = _Slope(jnp.ones_like(at_one), at_one)
    start = _SlopeBracket(low, high, high, jnp.zeros((), jnp.int32))
    return lax.while_loop(go_on, narrowed, start).tried.t


def minimum(
    problem: AbstractImplicitProblem,
    *,
    rtol: ArrayLike | None = None,
    max_steps: ArrayLike = 500,
) -> tuple[Array, Any, dict[str, Array]]:
    """`newton(problem)`, differentiable in the fields of the problem to any order."""
    point, result, stats = _minimum(problem, rtol, max_steps)
    return point.x, result, stats


@custom_jvp
def _minimum(problem, rtol, max_steps):
    # A batch is computed one by one on a CPU, each member in as many steps as it needs.
    def solve(args):
        problem, rtol, max_steps = args
        return newton(problem, rtol=rtol, max_steps=max_steps)

    return sequential_vmap(solve, (problem, rtol, max_steps))


@_minimum.def_tangents
def _minimum_tangents(end, primals, tangents):
    # E(x, fields) = 0 gives E'(x) dx = -dE, where dE is the tangent of E at fixed x. Any outer
    # transformation differentiates the minimum by this rule, so that second derivatives are exact.
    x, values = end[0].x, end[0].values
    problem = primals[0]
    moving, known = split_by_tangent(problem, tangents[0])

    def equations_of(moving):
        problem = eqx.combine(moving, known)
        point = Iterate(x, _with_tangent_of(problem.values(x), values))
        return problem.equations(point), point

    (_, point), (dE, _) = eqx.filter_jvp(equations_of, (moving,), (tangents[0],))
    nothing = jax.tree.map(lambda _: None, end)
    return eqx.tree_at(
        lambda end: end[0].x, nothing, problem.solve(point, -dE), is_leaf=lambda leaf: leaf is None
    )


@custom_jvp
def _with_tangent_of(computed: Array, known: Array) -> Array:
    """The known value of an array with the derivative of its computation, which a program leaves
    out.
    """
    return known


@_with_tangent_of.def_jvp
def _with_tangent_of_jvp(primals, tangents):
    return _with_tangent_of(*primals), tangents[0]
