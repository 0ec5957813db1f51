"""From a quadratic programme to a machine: a solver pursued until the gap is small, and the derivative of what it finds."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, ArrayLike, Float, Int

from kernax.core.losses import AbstractPiecewiseLinearLoss
from kernax.core.newton import implicit
from kernax.core.numerics import stopped
from kernax.core.powers import exponent_of, times_power_of_two
from kernax.core.sharding import varying_alike, while_loop
from kernax.core.solution import RESULTS, void_unless_known
from kernax.supervised.active_set import newton_step, polished
from kernax.supervised.certificate import certificate, rounding_of, survives_rounding
from kernax.supervised.dual import (
    AbstractDualSolver,
    BoxProblem,
    Point,
    ScaledOperator,
    bias_interval,
    bias_of,
)
from kernax.supervised.projected_gradient import project


def of_loss(
    operator: lx.AbstractLinearOperator,
    loss: AbstractPiecewiseLinearLoss,
    y: Float[Array, " n"],
    c: Float[Array, " n"],
    bias: bool,
    scale: Float[Array, ""],
) -> BoxProblem:
    """The dual of `sum_i c_i L(y_i, f(x_i) + b) + 1/2 |f|^2`."""
    targets, low, high, epsilon = loss.box(y, c)
    return BoxProblem(operator, targets, low, high, epsilon, jnp.zeros((), y.dtype) if bias else None, scale)


def spread(y: Float[Array, " n"], bias: bool) -> Float[Array, ""]:
    """The size of targets: about their mean where a bias takes that away; one if there is nothing left."""
    unit = exponent_of(jnp.max(abs(y)))
    y = times_power_of_two(y, -unit)
    size = times_power_of_two(jnp.std(y) if bias else jnp.sqrt(jnp.mean(y * y)), unit)
    return jnp.where(size > 0, size, 1)


class _Units(eqx.Module):
    """The sizes of f and of K as powers of two. In these units squares neither over- nor underflow, and no bit is lost.

    The unit of coefficients is their quotient, or their largest finite bound where that is smaller: then K counts as larger.
    """

    of_f: Int[Array, ""]
    of_K: Int[Array, ""]

    @staticmethod
    def of(problem: BoxProblem) -> "_Units":
        of_f, of_K = exponent_of(problem.scale), exponent_of(jnp.max(abs(problem.diagonal())))
        bounds = jnp.stack([problem.low, problem.high])
        largest = jnp.max(jnp.where(jnp.isfinite(bounds), abs(bounds), 0))
        return _Units(of_f, jnp.where(largest > 0, jnp.maximum(of_K, of_f - exponent_of(largest)), of_K))

    @property
    def of_beta(self) -> Int[Array, ""]:
        return self.of_f - self.of_K

    def removed(self, problem: BoxProblem) -> BoxProblem:
        """The problem whose solution is that of the given one in these units."""
        coefficient = lambda v: times_power_of_two(v, -self.of_beta)
        value = lambda v: times_power_of_two(v, -self.of_f)
        gain = times_power_of_two(jnp.ones_like(problem.scale), -self.of_K)
        return BoxProblem(
            ScaledOperator(problem.operator, gain),
            value(problem.targets),
            coefficient(problem.low),
            coefficient(problem.high),
            value(problem.epsilon),
            None if problem.total is None else coefficient(problem.total),
            value(problem.scale),
        )


def machine(problem: BoxProblem, solver: AbstractDualSolver, start: Float[Array, " n"] | None = None):
    """Coefficients and bias, differentiable in the problem, the result, and stats; from a point near the solution, if known."""
    units = _Units.of(stopped(problem))
    start = None if start is None else times_power_of_two(start, -units.of_beta)
    beta, bias, result, stats = _machine(units.removed(problem), solver, start)
    objectives = {name: times_power_of_two(stats[name], units.of_f + units.of_beta) for name in ("primal", "dual", "gap")}
    value = times_power_of_two(beta, units.of_beta), times_power_of_two(bias, units.of_f)
    again = times_power_of_two(value[0], -units.of_beta), times_power_of_two(value[1], -units.of_f)
    result = survives_units(result, (beta, bias), again)
    return *void_unless_known(value, result), result, stats | objectives


def survives_units(result: Any, found: tuple[Array, Array], again: tuple[Array, Array]) -> Any:
    """The result of coefficients and a bias found in units, in which values are of order one: `again` is what is left of them
    after they were taken to the user's units and back. Where entries have left the range of floats it is no solution any more.
    """
    (beta, bias), (beta_again, bias_again) = stopped((found, again))
    slight = 8 * float(jnp.finfo(beta.dtype).eps)
    kept = jnp.all(abs(beta_again - beta) <= slight * jnp.max(abs(beta))) & (abs(bias_again - bias) <= slight * (1 + abs(bias)))
    overflown = jnp.all(jnp.isfinite(beta)) & ~jnp.all(jnp.isfinite(jnp.append(beta_again, bias_again)))
    result = RESULTS.where((result == RESULTS.successful) & ~kept, RESULTS.inaccurate, result)
    return RESULTS.where(overflown & (result != RESULTS.diverged), RESULTS.nonfinite, result)


def _machine(problem, solver, start):
    """The same in units in which nothing overflows."""
    zero = jnp.zeros((), problem.targets.dtype)
    start = problem.start() if start is None else project(stopped(problem), start, zero)
    problem, start = varying_alike((problem, start))
    point = implicit(
        lambda args: _found(args[0], args[1], solver),
        lambda point, args: newton_step(point, args[0]),
        (problem, start),
        refine=lambda point, args: _refined(point, args[0], solver),
    )
    stats = certificate(*stopped((point, problem))) | {"steps": point.steps}
    figures = jnp.stack([stats["relative_gap"], stats["primal"], stats["dual"], point.bias])
    finite = jnp.all(jnp.isfinite(figures)) & jnp.all(jnp.isfinite(point.beta))
    beta, bias = jax.tree.map(lambda leaf: jnp.where(finite, leaf, jnp.nan), (point.beta, point.bias))
    result = _ending(stopped(point), stopped(problem), stats, finite, solver.tol)
    return beta, bias, result, stats


def _ending(point: Point, problem: BoxProblem, stats: dict[str, Array], finite: Array, tol: float) -> Any:
    """How the solve ended, a word of `RESULTS`: a success only where the gap is small, and rounding does not hide one."""
    result = RESULTS.where(_cut(point, problem, tol), RESULTS.max_steps_reached, RESULTS.inaccurate)
    hopeless = (result == RESULTS.max_steps_reached) & _no_better_than_zero(point, problem)
    result = RESULTS.where(hopeless, RESULTS.diverged, result)
    small = stats["relative_gap"] <= tol
    sound = survives_rounding(point, problem, jnp.maximum(abs(stats["primal"]), abs(stats["dual"])), tol)
    result = RESULTS.where(small, RESULTS.where(sound, RESULTS.successful, RESULTS.inaccurate), result)
    hard = jnp.any(jnp.isinf(problem.high) | jnp.isinf(problem.low)) & jnp.all(jnp.isfinite(problem.diagonal()))
    endless = hard & jnp.all(jnp.isfinite(problem.targets))  # a dual that has no bound, on points that have no separation
    return RESULTS.where(finite, result, RESULTS.where(endless, RESULTS.diverged, RESULTS.nonfinite))


def _no_better_than_zero(point: Point, problem: BoxProblem) -> Array:
    """Whether a point that no price may leave off is as far off as at f = 0: of a hard margin, on the wrong side."""
    off = point.residual - point.bias
    far = problem.epsilon + 0.999 * problem.scale
    return jnp.any((jnp.isinf(problem.high) & (off >= far)) | (jnp.isinf(problem.low) & (off <= -far)))


def _found(problem: BoxProblem, start: Array, solver: AbstractDualSolver) -> Point:
    """The solver's point, of a tolerance at which the gap is small enough too."""
    closed = lambda point: (point, certificate(point, problem)["relative_gap"] <= solver.tol)
    residual = lax.cond(jnp.any(start != 0), lambda: problem.residual(start), lambda: problem.targets)
    first = Point(start, residual, jnp.zeros((), start.dtype), jnp.zeros((), jnp.int32))
    return _pursued(first, jnp.array(False), solver.tol, problem, solver, closed)


def _refined(point: Point, problem: BoxProblem, solver: AbstractDualSolver) -> Point:
    """The polished point; while that is no solution, the active set was wrong."""
    polish = lambda point: polished(point, problem)
    point, done = polish(point)
    return _pursued(point, done | _cut(point, problem, solver.tol), solver.tol / 10, problem, solver, polish)


def _pursued(point: Point, done: Array, tol: float, problem: BoxProblem, solver: AbstractDualSolver, judge) -> Point:
    """Solves to ever finer tolerances until `judge`, which may improve the point, is content, or the steps are used up."""

    def once(carry):
        point, _, tol = carry
        point, content = judge(_solved(point, problem, solver, tol))
        return point, content | _cut(point, problem, tol), tol / 10

    def go_on(carry):
        _, done, tol = carry
        return ~done & (tol > solver.tol * 1e-6)

    return while_loop(go_on, once, (point, done, jnp.asarray(tol, point.beta.dtype)))[0]


def _cut(point: Point, problem: BoxProblem, tol: ArrayLike) -> Array:
    """Whether the solver ran out of steps before the violation was down to a tolerance."""
    top, bottom = bias_interval(problem, point.beta, point.residual)
    return top - bottom > 2 * tol * problem.scale + rounding_of(point, problem)


def _solved(point: Point, problem: BoxProblem, solver: AbstractDualSolver, tol: ArrayLike) -> Point:
    """The solver's point at a tolerance relative to the targets, but not finer than rounding allows."""
    goal = jnp.maximum(tol * problem.scale, rounding_of(point, problem))
    beta, steps = solver.solve(problem, point.beta, point.residual, goal)
    near = 16 * float(jnp.finfo(beta.dtype).eps) * jnp.max(abs(beta))
    for bound in (jnp.zeros((), beta.dtype), problem.low, problem.high):  # a bound missed by rounding would count as free
        beta = jnp.where(abs(beta - bound) <= near, bound, beta)
    residual = problem.residual(beta)
    return Point(beta, residual, bias_of(problem, beta, residual), point.steps + steps)
