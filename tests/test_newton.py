"""The damped Newton loop and the derivative of whatever a solver returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TOLERANCE, X64, needs_x64
from jax.test_util import check_grads

from kernax.core.newton import implicit, newton
from kernax.core.solution import RESULTS


def cube_root_step(root, a):
    return root - (root**3 - a) / (3 * root**2)


def cube_root_by_bisection(a):
    def body(_, ends):
        low, high = ends
        middle = (low + high) / 2
        return jnp.where(middle**3 < a, middle, low), jnp.where(middle**3 < a, high, middle)

    low, high = jax.lax.fori_loop(0, 80, body, (jnp.zeros_like(a), a + 1))
    return (low + high) / 2


@needs_x64
def test_derivatives_through_bisection_are_exact_to_third_order():
    f = lambda a: implicit(cube_root_by_bisection, cube_root_step, a)
    a = jnp.array(5.0)
    check_grads(f, (a,), 2, modes=("fwd", "rev"), rtol=1e-6)
    third = jax.grad(jax.grad(jax.grad(f)))(a)
    np.testing.assert_allclose(third, 10 / 27 * 5.0 ** (-8 / 3), rtol=1e-9)


def test_implicit_takes_pytrees_leaves_without_tangents_and_vmap():
    solve = lambda args: {"root": cube_root_by_bisection(args["a"]), "steps": jnp.array(80)}
    step = lambda root, args: {"root": cube_root_step(root["root"], args["a"]), "steps": root["steps"]}
    f = lambda a: implicit(solve, step, {"a": a, "name": jnp.array(3)})["root"]
    np.testing.assert_allclose(jax.vmap(jax.grad(f))(jnp.array([1.0, 8.0])), [1 / 3, 1 / 12], rtol=1e-5)


def rosenbrock_like(x):
    return jnp.sum(jnp.logaddexp(0, -4 * x) + jnp.logaddexp(0, x - 2)) + 0.05 * jnp.sum(x**4)


def newton_step(x):
    return x - jnp.linalg.solve(jax.hessian(rosenbrock_like)(x), jax.grad(rosenbrock_like)(x))


@pytest.mark.parametrize("start", [0.0, 3.0, -20.0])
def test_newton_reaches_the_minimum_from_far_away_without_ever_rising(start):
    x, result, stats = newton(newton_step, rosenbrock_like, jnp.full(2, start))
    assert result == RESULTS.successful
    assert stats["steps"] < 30
    assert jnp.max(jnp.abs(jax.grad(rosenbrock_like)(x))) < (1e-8 if X64 else 1e-4)
    assert stats["objective"] <= rosenbrock_like(jnp.full(2, start))


def test_damping_is_needed_and_works_where_full_newton_steps_diverge():
    objective = lambda x: jnp.sum(jnp.sqrt(1 + x**2))  # Newton's map is x -> -x^3
    step = lambda x: -(x**3)
    x, result, _ = newton(step, objective, jnp.array([2.0]))
    assert result == RESULTS.successful
    np.testing.assert_allclose(x, 0, atol=TOLERANCE["solve"])


def test_newton_reports_a_cap_and_a_nan():
    _, capped, _ = newton(lambda x: x - 0.01, lambda x: jnp.sum(x), jnp.array([1.0]), max_steps=5)
    assert capped == RESULTS.max_steps_reached
    x, broken, _ = newton(lambda x: x * jnp.nan, lambda x: jnp.sum(x**2), jnp.array([1.0]))
    assert broken == RESULTS.nonfinite
    assert jnp.all(jnp.isfinite(x))
