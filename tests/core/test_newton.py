"""The damped Newton loop."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, needs_x64
from jaxtyping import Array, Float

from kernax.core.base.solution import RESULTS
from kernax.core.losses.newton import AbstractConvexProblem, Stationarity, newton


class Problem(AbstractConvexProblem):
    """A function of a vector, all by autodiff; the stationarity residual is its gradient beside the
    larger of gradients of size one.
    """

    of: Callable = eqx.field(static=True)
    first: Float[Array, " n"]
    noise: float = eqx.field(static=True, default=0.0)  # what its gradient is wrong by
    nudge: float = eqx.field(static=True, default=0.0)  # how far away the settled point is

    def start(self):
        return self.at(self.first)

    def values(self, x):
        return jax.grad(self.of)(x) + self.noise * jnp.where(x < 0, -1, 1)

    def correction(self, point):
        return -jnp.linalg.solve(jax.hessian(self.of)(point.x), point.values)

    def slope_along(self, point, direction):
        return lambda t: jnp.vdot(jax.grad(self.of)(point.x + t * direction), direction)

    def stationarity(self, point):
        left = jnp.max(abs(point.values), keepdims=True)
        return Stationarity(left, jnp.ones_like(left), jnp.zeros_like(left))

    def settled(self, point):
        return point.x + self.nudge

    def objective(self, point):
        return self.of(point.x)


def two_slopes(x):
    return jnp.sum(jnp.logaddexp(0, -4 * x) + jnp.logaddexp(0, x - 2)) + 0.05 * jnp.sum(x**4)


@pytest.mark.parametrize("start", [0.0, 3.0, -20.0])
def test_newton_reaches_the_minimum_from_far_away(start):
    point, result, stats = newton(Problem(two_slopes, jnp.full(2, start)))
    assert result == RESULTS.successful
    assert stats["steps"] < 30
    assert jnp.max(jnp.abs(jax.grad(two_slopes)(point.x))) < (1e-8 if X64 else 1e-4)


@needs_x64
def test_a_batch_computes_as_many_steps_as_its_slowest_member_takes():
    """Steps cost most; before the first and after the last, the stationarity residual alone is
    looked at.
    """
    computed = []

    class Counted(Problem):
        def correction(self, point):
            jax.debug.callback(lambda: computed.append(1))
            return super().correction(point)

        def settled(self, point):
            return jnp.zeros_like(point.x)

        def stationarity(self, point):
            # The settled point is closer, but not close enough by itself to end the iteration.
            stationarity = super().stationarity(point)
            size = jnp.where(point.x == 0, 0, stationarity.size)
            return Stationarity(stationarity.left, size, stationarity.rounding)

    tiny = float(jnp.finfo(DTYPE).eps)
    starts = jnp.array([[2.0], [0.5], [0.01]])
    problem = lambda first: Counted(root_of_squares, first, noise=tiny)
    _, _, stats = jax.vmap(lambda first: newton(problem(first)))(starts)
    jax.effects_barrier()
    assert len(set(stats["steps"].tolist())) > 1
    assert len(computed) == max(stats["steps"])


def root_of_squares(x):
    return jnp.sum(jnp.sqrt(1 + x**2))


def test_damping_is_needed_and_works_where_full_newton_steps_diverge():
    point, result, _ = newton(
        Problem(root_of_squares, jnp.array([2.0]))
    )  # Newton's map is x -> -x^3
    assert result == RESULTS.successful
    np.testing.assert_allclose(point.x, 0, atol=TOLERANCE["solve"])


def falling(x):
    return jnp.sum(jnp.exp(-x))


def huge(x):
    return jnp.sum(jnp.exp(x) - 1e9 * x)


def broken(x):
    return jnp.sum(x) * jnp.nan


def test_newton_reports_a_cap_and_a_nan():
    _, capped, stats = newton(Problem(lambda x: 2 * falling(x), jnp.array([1.0])), max_steps=2)
    assert capped == RESULTS.max_steps_reached
    assert stats["steps"] == 2
    point, result, _ = newton(Problem(broken, jnp.array([1.0])))
    assert result == RESULTS.nonfinite
    assert jnp.all(jnp.isfinite(point.x))


def with_a_hole(x):
    return parabola(x) + jnp.sum(0 * jnp.log(jnp.abs(x - 1)))


def test_a_point_that_is_close_enough_is_a_success_though_the_next_one_is_nan():
    start = 1 + 0.1 * jnp.finfo(DTYPE).eps ** 0.5
    point, result, stats = newton(Problem(with_a_hole, jnp.array([start])))
    assert result == RESULTS.successful
    assert stats["steps"] == 1
    np.testing.assert_allclose(point.x, start)


def test_a_gradient_whose_floor_is_above_the_tolerance_ends_inaccurate_and_soon():
    """A loop that counts to its last step where nothing gets better, or calls that a success."""
    point, result, stats = newton(Problem(root_of_squares, jnp.array([2.0]), noise=1e-2))
    assert result == RESULTS.inaccurate
    assert stats["steps"] < 20
    assert abs(point.x) < 0.1
    assert 5e-3 < stats["residual"] < 0.1


def parabola(x):
    return jnp.sum((x - 1) ** 2) / 2


@pytest.mark.parametrize(("first", "nudge", "end"), [(1.0, 0.5, 1.0), (0.5, 0.5, 1.0)])
def test_the_settled_point_is_taken_only_if_less_is_left_there(first, nudge, end):
    point, result, stats = newton(Problem(parabola, jnp.array([first]), nudge=nudge), max_steps=0)
    assert result == RESULTS.successful
    np.testing.assert_array_equal(point.x, end)
    assert stats["residual"] == 0


def test_a_step_that_overflows_is_shortened():
    """The first one goes to 1e9, where the exponential is infinite."""
    point, result, _ = newton(Problem(huge, jnp.array([0.0])), rtol=1e4)
    assert result == RESULTS.successful
    np.testing.assert_allclose(point.x, np.log(1e9), rtol=1e-4)
