"""Traced parameters outside of their intervals: an error that names them, or NaN."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import needs_x64

import kernax
from kernax.core.base.guards import guarded_parameter
from kernax.core.base.intervals import NONNEGATIVE, POSITIVE
from kernax.likelihoods import Bernoulli, Gaussian, NegativeBinomial
from kernax.losses import Huber

KEY = jax.random.key(0)
X = np.linspace(0, 1, 6)[:, None]
Y = np.sin(3 * X[:, 0])
SIGNS = np.asarray([-1.0, 1.0, 1.0, -1.0, 1.0, -1.0])
PHI = np.hstack([X, X**2])
RBF = kernax.RBF()
PRIOR = kernax.GaussianProcess(RBF)


def of_length(length):
    return kernax.GaussianProcess(kernax.RBF(length))


def svgp(rate):
    return kernax.svgp(
        PRIOR, X, SIGNS, Bernoulli(), X[:2], optimiser=optax.sgd(0.1), n_steps=1, key=KEY, rate=rate
    )


# Numbers that are in no entry of the registry: by the name of a function its call, a number outside
# of the interval, and the parameter at fault.
OUTSIDE = {
    "regularised_risk": (
        lambda d: kernax.regularised_risk(RBF, X, Y, 0.1, loss=Huber(d)),
        -2.0,
        "Huber.delta",
    ),
    "support_vector_regression": (
        lambda e: kernax.support_vector_regression(RBF, X, Y, 1.0, e),
        -0.5,
        "epsilon",
    ),
    "nu_svm": (lambda nu: kernax.nu_svm(RBF, X, SIGNS, nu), 1.5, "nu"),
    "svgp": (svgp, -0.1, "rate"),
    "laplace": (
        lambda d: kernax.laplace(PRIOR, X, Y**2 // 1, NegativeBinomial(d)),
        -0.1,
        "NegativeBinomial.dispersion",
    ),
    "variational": (
        lambda v: kernax.variational(PRIOR, X, Y, Gaussian(v)),
        -0.1,
        "Gaussian.noise",
    ),
    "sample": (lambda w: of_length(w).sample(X, key=KEY), -0.1, "RBF.lengthscale"),
    "pathwise_sample": (
        lambda w: kernax.pathwise_sample(of_length(w), key=KEY, n_samples=1, point=X[0]),
        -0.1,
        "RBF.lengthscale",
    ),
    "nystrom": (
        lambda w: kernax.nystrom(kernax.RBF(w), X, X[:2]),
        -0.1,
        "RBF.lengthscale",
    ),
}


@needs_x64
@pytest.mark.parametrize("function_name", OUTSIDE)
def test_a_traced_parameter_outside_of_its_interval_is_named_with_its_value(function_name):
    """Where its value is known in spite of the trace, before anything is computed."""
    call, value, name = OUTSIDE[function_name]
    with pytest.raises(
        ValueError, match=rf"^{name} must be in .*, but is {value:g} in {function_name}(\n|$)"
    ):
        jax.jvp(lambda number: eqx.filter(call(number), eqx.is_inexact_array), (value,), (1.0,))


@pytest.mark.parametrize("traced", [jax.jit, eqx.filter_jit, lambda f: jax.jit(jax.grad(f))])
def test_a_compiled_program_raises_an_error_that_names_the_parameter(traced):
    def first(ridge):
        return kernax.kernel_ridge(RBF, X, Y, ridge).value.coefficients[0]

    fit = traced(first)
    assert np.isfinite(fit(jnp.asarray(0.1)))
    with pytest.raises(Exception, match=r"ridge must be in \[0, inf\), but is -0.1 in kernel_rid"):
        jax.block_until_ready(fit(jnp.asarray(-0.1)))


@pytest.mark.slow
def test_of_a_batch_the_member_at_fault_is_named():
    def first(ridge):
        return kernax.kernel_ridge(RBF, X, Y, ridge).value.coefficients[0]

    of_all = jax.jit(jax.vmap(first))
    assert np.all(np.isfinite(of_all(jnp.asarray([0.1, 0.2, 0.3]))))
    with pytest.raises(Exception, match=r"ridge must be in \[0, inf\), but is -0.2 in kernel_rid"):
        jax.block_until_ready(of_all(jnp.asarray([0.1, -0.2, 0.3])))


@pytest.mark.slow
def test_lengthscales_noise_and_weights_of_each_point_say_one_value_that_they_hold():
    def moments(lengthscales, noise, weights):
        process = kernax.GaussianProcess(kernax.RBF(lengthscales))
        return kernax.condition(process, PHI, Y, noise, weights=weights).value.mean(PHI[0])

    compiled = jax.jit(moments)
    sound = jnp.ones(2), jnp.full(6, 0.1), jnp.ones(6)
    assert np.isfinite(compiled(*sound))
    faults = {
        "RBF.lengthscale must be in (0, inf), but holds -3 in condition": 0,
        "noise must be in [0, inf), but holds -3 in condition": 1,
        "weights must be in [0, inf), but holds -3 in condition": 2,
    }
    for message, place in faults.items():
        given = list(sound)
        given[place] = given[place].at[1].set(-3)
        with pytest.raises(Exception, match=re.escape(message)):
            jax.block_until_ready(compiled(*given))


def test_without_throw_the_value_is_nan_and_nothing_is_raised():
    @jax.jit
    def solved(ridge):
        solution = kernax.kernel_ridge(RBF, X, Y, ridge, throw=False)
        return solution.value.coefficients, solution.result == kernax.RESULTS.nonfinite

    coefficients, is_nonfinite = solved(-0.1)
    assert np.all(np.isnan(coefficients))
    assert is_nonfinite


@pytest.mark.parametrize(
    ("function", "inside", "outside"),
    [
        (lambda r: kernax.log_marginal_likelihood(RBF, X, Y, r), 0.1, -0.1),
        (lambda r: jnp.sum(kernax.leave_one_out(RBF, X, Y, r) ** 2), 0.1, -0.1),
        (lambda s: kernax.log_marginal_likelihood(kernax.RBF(s), X, Y, 0.1), 1.0, -1.0),
    ],
    ids=["evidence", "leave one out", "lengthscale"],
)
def test_the_derivative_outside_of_an_interval_is_nan_and_no_optimum(function, inside, outside):
    slopes = jax.vmap(jax.grad(function))(jnp.array([inside, outside]))
    assert jnp.isfinite(slopes[0])
    assert slopes[0] != 0
    assert jnp.isnan(slopes[1])


@pytest.mark.slow
def test_the_check_changes_no_derivative_to_second_order():
    """Of `x^2` at 3, with a check of x in each of the ways of differentiating."""

    def square(x):
        return guarded_parameter(x, "x", POSITIVE, "square") ** 2

    three = jnp.asarray(3.0)
    for f in (square, jax.jit(square)):
        np.testing.assert_array_equal(f(three), 9)
        np.testing.assert_array_equal(jax.grad(f)(three), 6)
        np.testing.assert_array_equal(jax.jvp(f, (three,), (three,))[1], 18)
        np.testing.assert_array_equal(jax.hessian(f)(three), 2)
        np.testing.assert_array_equal(jax.vmap(jax.grad(f))(three * jnp.ones(2)), [6, 6])


def test_the_check_takes_few_operations_and_none_where_nothing_is_traced():
    def operations(throw):
        check = lambda x: guarded_parameter(x, "x", NONNEGATIVE, "function" if throw else None)
        return len(jax.make_jaxpr(check)(1.0).eqns)

    assert operations(throw=True) - operations(throw=False) <= 9
    fit = lambda y: kernax.kernel_ridge(RBF, X, y, 0.1).value.coefficients
    assert "refuse" not in str(jax.make_jaxpr(fit)(Y))
