"""Newton's method for convex functions, and the derivative of whatever an iterative solver returns.

At a root, one more exact Newton step changes nothing; its derivative with respect to the problem's data, the root held
fixed, is the derivative of the root. That one sentence covers every solver, whatever path it took to get there.
"""

import abc
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.numerics import split_by_tangent
from kernax.core.sharding import while_loop
from kernax.core.solution import RESULTS

Root = TypeVar("Root", bound=PyTree)


@eqx.filter_custom_jvp
def _implicit(args, *, solve, step, refine):
    return solve(args)


@_implicit.def_jvp
def _implicit_jvp(primals, tangents, *, solve, step, refine):
    # root = N(root, args) with d N / d root = 0 there, so d root = (d N / d args) d args. The root is traced by any outer
    # transformation through this same rule, which makes the second derivative exact as well.
    (args,), (t_args,) = primals, tangents
    refined = solve if refine is None else lambda args: refine(solve(args), args)
    root = _implicit(args, solve=refined, step=step, refine=None)
    moving, known = split_by_tangent(args, t_args)
    _, t_root = eqx.filter_jvp(lambda moving: step(root, eqx.combine(moving, known)), (moving,), (t_args,))
    return root, t_root


def implicit(
    solve: Callable[[Any], Root],
    step: Callable[[Root, Any], Root],
    args: Any,
    refine: Callable[[Root, Any], Root] | None = None,
) -> Root:
    """`solve(args)`, differentiated as one exact Newton step: `d root = d/d args step(root, args)` at fixed root.

    `step(root, args)` must return the root unchanged at the solution, with a derivative in its first argument that vanishes
    there. Both functions must take all arrays they depend on through `args`. Nests for derivatives of higher order, and does
    not care how `solve` iterates or how loosely it converges, beyond the error of the root itself.
    """
    return _implicit(args, solve=solve, step=step, refine=refine)


class Misfit(eqx.Module):
    """What is left of the conditions of optimality, one entry for each kind of condition.

    Attributes:
        left: the largest absolute value of a sum that is zero at the optimum.
        size: the largest sum of the absolute values of its terms, in the same unit.
        rounding: how far off the sum may be because the point at which it is evaluated is known to working precision only.
    """

    left: Float[Array, "..."]
    size: Float[Array, "..."]
    rounding: Float[Array, "..."]

    def within(self, tolerance: float, excuse: float = 4.0) -> Bool[Array, ""]:
        """Whether nothing is left but a fraction `tolerance` of the terms, and rounding, of which `excuse` times is granted."""
        return jnp.all(self.left <= tolerance * self.size + excuse * self.rounding)

    def relative(self) -> Float[Array, ""]:
        """What is left, relative to the terms of the sums and of the point's values together."""
        whole = self.size + self.rounding / float(jnp.finfo(self.size.dtype).eps)
        return jnp.max(self.left / jnp.where(whole > 0, whole, 1))


class Iterate(eqx.Module):
    """An argument x of F with the values through which F depends on it, which cost most and are computed once."""

    x: Array
    values: Array


class AbstractConvexProblem(eqx.Module):
    """A convex differentiable function F of an array x, to be minimised. All that F depends on are fields."""

    @abc.abstractmethod
    def start(self) -> Iterate:
        """A point to start from."""

    @abc.abstractmethod
    def values(self, x: Array) -> Array:
        """What `Iterate` holds beside x, such as a product with a matrix."""

    @abc.abstractmethod
    def correction(self, point: Iterate) -> Array:
        """Newton's d, `F''(x) d = -F'(x)`, or what is close enough to it to lead downhill."""

    @abc.abstractmethod
    def correction_to_differentiate(self, point: Iterate) -> Array:
        """Newton's d at the minimum, differentiable in the fields and in x; NaN where the derivatives would be wrong."""

    @abc.abstractmethod
    def slope_along(self, point: Iterate, direction: Array) -> Callable[[Array], Array]:
        """`t -> d/dt F(x + t direction)`, which is evaluated for many t."""

    @abc.abstractmethod
    def misfit(self, point: Iterate) -> Misfit:
        """What is left of F'(x) = 0, by itself: without the curvature that steps are made of."""

    @abc.abstractmethod
    def settled(self, point: Iterate) -> Array:
        """An x that F tells from the point's by rounding alone, perhaps closer to F'(x) = 0; its own if none is known."""

    @abc.abstractmethod
    def objective(self, point: Iterate) -> Float[Array, ""]:
        """F(x)."""

    def at(self, x: Array) -> Iterate:
        """The point whose argument is x."""
        return Iterate(x, self.values(x))


class _Progress(eqx.Module):
    point: Iterate
    misfit: Misfit
    steps: Int[Array, ""]
    stuck: Bool[Array, ""]
    finite: Bool[Array, ""]


def newton(
    problem: AbstractConvexProblem, *, rtol: float | None = None, max_steps: int = 100
) -> tuple[Array, Any, dict[str, Array]]:
    """Newton's method with a line search by slopes, until what is left of the conditions of optimality is rounding, or `rtol`.

    Nothing is decided by values of F, whose rounding hides the last half of the digits, nor by the size of a step. Whether it
    has succeeded is a statement about the point where it ends: its misfit is within rtol (default sqrt(eps)) of its terms and
    rounding. It ends where that holds to 8 eps (or rtol), or no longer gets better.

    Returns:
        x, the result (successful; inaccurate, where neither x nor rounding can be improved; max_steps_reached; or nonfinite,
        with the last finite x), and stats `steps`, `objective` and `residual`, the relative misfit.
    """
    start = problem.start()
    dtype = start.x.dtype
    eps = float(jnp.finfo(dtype).eps)
    goal, bar = (8 * eps, eps**0.5) if rtol is None else (rtol, rtol)

    def body(now: _Progress) -> _Progress:
        direction = problem.correction(now.point)
        near = now.misfit.within(bar)
        slope = problem.slope_along(now.point, direction)
        at_zero = slope(jnp.zeros((), dtype))
        downhill = at_zero < 0
        length = _length(slope, at_zero, skip=near | ~downhill)
        point = problem.at(now.point.x + length * direction)
        misfit = problem.misfit(point)
        finite = _is_finite(point, misfit)
        # Near the end a step of full length is Newton's own, and what is left falls to a fraction unless it is rounding. So it
        # does where F does not see the step, as along coefficients that K maps to zero. Elsewhere it may rise, but F falls.
        judged = near | ~downhill
        worse = judged & ~(misfit.relative() < now.misfit.relative())
        slow = judged & ~(misfit.relative() < now.misfit.relative() / 2)
        point, misfit = _chosen(worse | ~finite, (now.point, now.misfit), (point, misfit))
        return _Progress(point, misfit, now.steps + 1, slow, finite)

    def go_on(now: _Progress) -> Array:
        return ~now.misfit.within(goal, excuse=1 / 16) & ~now.stuck & now.finite & (now.steps < max_steps)

    misfit = problem.misfit(start)
    first = _Progress(start, misfit, jnp.zeros((), jnp.int32), jnp.array(False), _is_finite(start, misfit))
    end = while_loop(go_on, body, first)
    point, misfit = _settled(problem, end.point, end.misfit)
    result = RESULTS.where(end.stuck, RESULTS.inaccurate, RESULTS.max_steps_reached)
    result = RESULTS.where(misfit.within(bar), RESULTS.successful, result)
    result = RESULTS.where(end.finite, result, RESULTS.nonfinite)
    return point.x, result, {"steps": end.steps, "objective": problem.objective(point), "residual": misfit.relative()}


def _is_finite(point: Iterate, misfit: Misfit) -> Bool[Array, ""]:
    return jnp.all(jnp.isfinite(point.x)) & jnp.all(jnp.isfinite(misfit.left + misfit.size))


def _chosen(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def _settled(problem: AbstractConvexProblem, point: Iterate, misfit: Misfit) -> tuple[Iterate, Misfit]:
    """The settled point and its misfit, unless more is left there."""
    settled = problem.at(problem.settled(point))
    of_settled = problem.misfit(settled)
    closer = jnp.all(of_settled.left <= misfit.left) & jnp.all(jnp.isfinite(settled.x))
    return _chosen(closer, (settled, of_settled), (point, misfit))


class _Bracket(eqx.Module):
    low: Float[Array, ""]
    at_low: Float[Array, ""]
    high: Float[Array, ""]
    at_high: Float[Array, ""]
    t: Float[Array, ""]
    at_t: Float[Array, ""]
    tries: Int[Array, ""]


def _length(slope: Callable[[Array], Array], at_zero: Array, skip: Array) -> Float[Array, ""]:
    """1, if the slope, negative at t = 0, is no more than a tenth of that above zero there; else a t < 1 where its absolute
    value is at most half of that at t = 0.

    The slope of a convex function rises in t; its zero is sought by secants and halving in turn. A slope that overflows counts
    as positive. `skip` takes 1 as it is. No t is larger than 1: of coefficients that K maps to zero, which F does not see, a
    step leaves the fraction 1 - t, and in a row of long steps they would grow until their rounding drowns all else.
    """

    def go_on(now: _Bracket) -> Array:
        fits = jnp.where(now.tries == 0, now.at_t <= abs(at_zero) / 10, abs(now.at_t) <= abs(at_zero) / 2)  # false for NaN
        return ~(skip | fits) & (now.tries < 80)

    def narrow(now: _Bracket) -> _Bracket:
        short = now.at_t <= 0
        low, at_low = jnp.where(short, now.t, now.low), jnp.where(short, now.at_t, now.at_low)
        high, at_high = jnp.where(short, now.high, now.t), jnp.where(short, now.at_high, now.at_t)
        secant = jnp.where(jnp.isfinite(at_high), jnp.clip(at_low / (at_low - at_high), 0.1, 0.9), 0.1)
        t = low + jnp.where(now.tries % 2 == 0, secant, 0.5) * (high - low)
        return _Bracket(low, at_low, high, at_high, t, slope(t), now.tries + 1)

    zero, one = jnp.zeros_like(at_zero), jnp.ones_like(at_zero)
    at_one = slope(one)
    first = _Bracket(zero, at_zero, one, at_one, one, at_one, jnp.zeros((), jnp.int32))
    return while_loop(go_on, narrow, first).t


def minimum(
    problem: AbstractConvexProblem, *, rtol: float | None = None, max_steps: int = 100
) -> tuple[Array, Any, dict[str, Array]]:
    """`newton(problem)`, differentiable in the fields of the problem to any order, by one more step."""
    return implicit(lambda problem: newton(problem, rtol=rtol, max_steps=max_steps), _one_more, problem)


def _one_more(end: tuple[Array, Any, dict[str, Array]], problem: AbstractConvexProblem) -> tuple[Array, Any, dict[str, Array]]:
    x, result, stats = end
    return x + problem.correction_to_differentiate(problem.at(x)), result, stats
