"""Rules of derivatives: of one function, of whatever a solver returns, and at an optimum."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import X64, needs_x64
from jax import lax
from jax.test_util import check_grads

from kernax import likelihoods, losses
from kernax.core.base.derivatives import (
    at_stationary_point,
    custom_jvp,
    implicit,
    split_by_tangent,
    with_zeros,
)


@custom_jvp
def sine(x, *, times=1.0):
    """Without its rule it has no derivative."""
    return lax.stop_gradient(times * jnp.sin(x))


@sine.def_jvp
def _sine_jvp(primals, tangents, *, times):
    (x,), (dx,) = primals, tangents
    return sine(x, times=times), times * jnp.cos(x) * dx


def squared(x):
    return sine(x, times=2.0) ** 2


@custom_jvp
def exponential(x):
    """Without its rule it has no derivative."""
    return lax.stop_gradient(jnp.exp(x))


@exponential.def_tangents
def _exponential_tangents(value, primals, tangents):
    return value * tangents[0]


AROUND = {
    "alone": lambda f: f,
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "vmap": lambda f: lambda x: jnp.sum(jax.vmap(f)(x[None])),
    "cond": lambda f: lambda x: lax.cond(x > 0, f, jnp.negative, x),
    "map": lambda f: lambda x: lax.map(f, x[None])[0],
    "map of vmap": lambda f: lambda x: lax.map(jax.vmap(f), x[None, None])[0, 0],
    "vmap of map": lambda f: lambda x: jax.vmap(lambda x: lax.map(f, x))(x[None, None])[0, 0],
    "scan": lambda f: lambda x: lax.scan(lambda carry, _: (f(carry), None), x, length=1)[0],
    "fori_loop": lambda f: lambda x: lax.fori_loop(0, 1, lambda _, x: f(x), x),
    "checkpoint of map": lambda f: jax.checkpoint(lambda x: lax.map(f, x[None])[0]),
}


@needs_x64
@pytest.mark.parametrize("around", AROUND)
def test_a_rule_holds_to_third_order_within(around):
    """Catches `jax.custom_jvp`, whose Hessian through a loop differentiates the plain function."""
    f = AROUND[around](squared)
    twice = (jax.hessian, lambda f: jax.jacrev(jax.jacrev(f)), lambda f: jax.jacfwd(jax.jacfwd(f)))

    def derivatives(x):
        return jax.grad(f)(x), [second(f)(x) for second in twice], jax.grad(jax.hessian(f))(x)

    of_x = derivatives if around == "alone" else jax.jit(derivatives)
    first, seconds, third = of_x(jnp.array(0.7))
    # f = 4 sin(x)^2 has the derivatives 4 sin(2x), 8 cos(2x) and -16 sin(2x).
    np.testing.assert_allclose(first, 4 * np.sin(1.4), rtol=1e-14)
    np.testing.assert_allclose(seconds, 8 * np.cos(1.4), rtol=1e-14)
    np.testing.assert_allclose(third, -16 * np.sin(1.4), rtol=1e-14)


@needs_x64
@pytest.mark.parametrize("around", AROUND)
def test_a_rule_that_takes_the_value_holds_to_third_order_within(around):
    f = AROUND[around](exponential)
    x = jnp.array(0.7)
    derivatives = (jax.grad(f), jax.hessian(f), jax.jacrev(jax.jacrev(f)), jax.grad(jax.hessian(f)))
    for derivative in derivatives:
        np.testing.assert_allclose(derivative(x), np.exp(0.7), rtol=1e-14)


def test_a_rule_that_takes_the_value_does_not_trace_the_function_again():
    traced = []

    @custom_jvp
    def f(x):
        traced.append(None)
        return {"value": jnp.exp(x), "known": jnp.sign(x)}

    @f.def_tangents
    def _(out, primals, tangents):
        return {"value": out["value"] * tangents[0], "known": None}

    third = jax.jit(jax.grad(jax.grad(jax.grad(lambda x: f(x)["value"]))))
    np.testing.assert_allclose(third(1.0), np.e, rtol=1e-6)
    assert len(traced) == 1


@custom_jvp
def product(a, b, name, how_often):
    return {"product": a * b["factor"], "known": (a, how_often), "nothing": None}


@product.def_jvp
def _product_jvp(primals, tangents):
    a, b, name, _ = primals
    da, db, *others = tangents
    assert name == "name"
    assert others == [None, None]
    da, db = with_zeros((a, b), (da, db))
    moved = {"product": da * b["factor"] + a * db["factor"], "known": None, "nothing": None}
    return product(*primals), moved


def test_arguments_are_pytrees_and_what_does_not_move_has_no_tangent():
    def f(a, factor):
        out = product(a, {"factor": factor}, "name", jnp.arange(2))
        return out["product"] + jnp.sum(out["known"][0]), out["known"][1]

    numbers = jnp.array([2.0, 3.0])
    # `known` has no tangent in the rule, so that only the product counts.
    (slope, factor), count = jax.vmap(jax.grad(f, (0, 1), has_aux=True), (0, None))(numbers, 5.0)
    np.testing.assert_array_equal(slope, [5.0, 5.0])
    np.testing.assert_array_equal(factor, [2.0, 3.0])
    np.testing.assert_array_equal(count, [[0, 1], [0, 1]])
    assert jax.grad(lambda a: f(a, 5.0)[0])(2.0) == 5.0
    assert jax.grad(lambda factor: f(2.0, factor)[0])(5.0) == 2.0


def test_a_number_that_stands_in_the_program_is_an_array_for_a_rule():
    """It was no array, and the factor that held it was left out of what the rule returned."""

    @custom_jvp
    def product(x, factor):
        return x * factor, factor if eqx.is_array(factor) else None

    @product.def_jvp
    def _rule(primals, tangents):
        return product(*primals), (tangents[0] * primals[1], None)

    function = jax.jit(lambda x: product(x, jnp.asarray(3.0))[0])
    assert jax.grad(function)(2.0) == 3
    assert jax.grad(jax.grad(lambda x: function(x) ** 2))(2.0) == 18


def test_a_captured_array_is_used_but_must_not_move():
    @custom_jvp
    def times(x, *, function):
        return function(x)

    @times.def_jvp
    def _(primals, tangents, *, function):
        return times(*primals, function=function), function(tangents[0])

    def f(x, factor):
        return times(x, function=lambda x: factor * x)

    assert jax.jit(jax.grad(f))(2.0, 3.0) == 3.0
    np.testing.assert_array_equal(
        jax.vmap(jax.grad(f), (None, 0))(2.0, jnp.array([3.0, 4.0])), [3.0, 4.0]
    )
    for of_factor in (jax.grad(f, 1), jax.jit(jax.grad(f, 1))):
        with pytest.raises(ValueError, match="captured an array that moves"):
            of_factor(2.0, 3.0)
        with pytest.raises(ValueError, match="captured an array that moves"):
            of_factor(jnp.array(2.0), 3.0)


def test_a_keyword_argument_must_not_move():
    with pytest.raises(ValueError, match="a keyword argument of sine moves"):
        jax.grad(lambda times: sine(1.0, times=times))(jnp.array(2.0))


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (lambda x: (x, jnp.sum(x)), "returned a tangent"),
        (lambda x: (x, x.astype(jnp.float16)), "returned a tangent"),
        (lambda x: (jnp.sum(x), jnp.sum(x)), "for the values"),
    ],
)
def test_a_rule_must_return_what_the_function_does(outputs, words):
    f = custom_jvp(lambda x: x)
    with pytest.raises(TypeError, match="has no rule"):
        f(1.0)
    f.def_jvp(lambda primals, tangents: outputs(tangents[0]))
    with pytest.raises(TypeError, match=words):
        jax.jacfwd(f)(jnp.ones(3))


def test_numbers_of_python_and_axes_of_vmap():
    np.testing.assert_allclose(
        jax.jvp(lambda x: sine(x, times=1.0), (2.0,), (1.0,)), (np.sin(2.0), np.cos(2.0)), rtol=1e-6
    )

    @custom_jvp
    def total(x):
        return lax.psum(x, "members")

    @total.def_jvp
    def _(primals, tangents):
        return total(*primals), lax.psum(tangents[0], "members")

    x = jnp.array([1.0, 2.0])
    np.testing.assert_array_equal(jax.vmap(total, axis_name="members")(x), [3.0, 3.0])
    slope = jax.vmap(jax.grad(lambda x: total(x) ** 2), axis_name="members")(x)
    np.testing.assert_array_equal(slope, [12.0, 12.0])


LOSSES = {
    "logistic": (losses.Logistic(), 1.0),
    "bernoulli": (likelihoods.Bernoulli(), -1.0),
    "negative binomial": (likelihoods.NegativeBinomial(1.0), 3.0),
    "probit": (likelihoods.Probit(), 1.0),
    "poisson": (likelihoods.Poisson(), 2.0),
    "squared hinge": (losses.SquaredHinge(), 1.0),
}


@pytest.mark.parametrize("name", LOSSES)
def test_second_derivatives_of_losses_are_the_same_in_a_loop(name):
    """At f = 0, from where models start and where `jax.nn.softplus` has twice the curvature."""
    loss, y = LOSSES[name]
    of_values = lambda fs: jnp.sum(jax.vmap(loss, (None, 0))(jnp.array(y), fs))
    looped = lambda fs: jnp.sum(lax.map(lambda f: loss(jnp.array(y), f), fs))
    fs = jnp.array([0.0, -1.5, 2.0])
    # In float32 the two of the probit are 2.4e-6 apart: JAX's `log_ndtr` has a rule as well.
    rtol = 1e-6 if X64 else 1e-5
    both = jax.jit(lambda fs: (jax.hessian(looped)(fs), jax.hessian(of_values)(fs)))
    np.testing.assert_allclose(*both(fs), rtol=rtol)


def test_a_derivative_in_what_moves_can_be_split_from_the_rest():
    moving, known = split_by_tangent((1.0, {"a": 2, "b": 3}), (None, {"a": 1.0, "b": None}))
    assert moving == (None, {"a": 2, "b": None})
    assert known == (1.0, {"a": None, "b": 3})


def cube_root_step(root, a):
    return root - (root**3 - a) / (3 * root**2)


def cube_root_by_bisection(a):
    def body(_, ends):
        low, high = ends
        middle = (low + high) / 2
        return jnp.where(middle**3 < a, middle, low), jnp.where(middle**3 < a, high, middle)

    low, high = jax.lax.fori_loop(0, 80, body, (jnp.zeros_like(a), a + 1))
    return (low + high) / 2


@pytest.mark.slow
@needs_x64
def test_derivatives_through_bisection_are_exact_to_third_order():
    f = lambda a: implicit(cube_root_by_bisection, cube_root_step, a)
    a = jnp.array(5.0)
    check_grads(f, (a,), 2, modes=("fwd", "rev"), rtol=1e-6)
    third = jax.grad(jax.grad(jax.grad(f)))(a)
    np.testing.assert_allclose(third, 10 / 27 * 5.0 ** (-8 / 3), rtol=1e-9)


@needs_x64
def test_implicit_takes_pytrees_leaves_without_tangents_and_vmap():
    solve = lambda args: {"root": cube_root_by_bisection(args["a"]), "steps": jnp.array(80)}
    step = lambda root, args: {
        "root": cube_root_step(root["root"], args["a"]),
        "steps": root["steps"],
    }
    f = lambda a: implicit(solve, step, {"a": a, "name": jnp.array(3)})["root"]
    np.testing.assert_allclose(
        jax.vmap(jax.grad(f))(jnp.array([1.0, 8.0])), [1 / 3, 1 / 12], rtol=1e-5
    )


@pytest.mark.slow
@needs_x64
def test_a_derivative_at_a_stationary_point_ignores_the_point_but_the_second_one_does_not():
    # max over x of a x - x^4 / 4 is 3/4 a^(4/3), at the cube root of a.
    def highest(a):
        x = implicit(cube_root_by_bisection, cube_root_step, a)
        return at_stationary_point(lambda x, a: a * x - x**4 / 4, x, a)

    a = jnp.array(5.0)
    check_grads(highest, (a,), 2, modes=("fwd", "rev"), rtol=1e-6)
    np.testing.assert_allclose(jax.hessian(highest)(a), 5.0 ** (-2 / 3) / 3, rtol=1e-12)
    aside = lambda x: at_stationary_point(lambda x, a: a * x - x**4 / 4, x, a)
    assert jax.grad(aside)(a) == 0
