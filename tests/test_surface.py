"""The loss on a grid of parameters, against the loss of models that have these parameters."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TOLERANCE, untyped

import kernax

LENGTHS = np.array([0.3, 1.0, 4.0])
NOISES = np.array([0.01, 0.5])


def evidence(model, X, y):
    return -kernax.log_marginal_likelihood(model.kernel, X, y, model.noise)


@pytest.fixture
def data(rng):
    X = jnp.asarray(rng.uniform(-2, 2, (8, 2)))
    return X, jnp.sin(X[:, 0])


def model_of(length, noise):
    return kernax.Model(2.0 * kernax.RBF(jnp.asarray(length)), jnp.asarray(noise))


def looped(data, models):
    return np.array([float(evidence(model, *data)) for model in models])


def assert_near(losses, expected):
    np.testing.assert_allclose(losses, expected, rtol=100 * TOLERANCE["value"])


@pytest.mark.parametrize("batch_size", [None, 4])
def test_every_cell_is_the_loss_of_the_model_with_its_values(data, batch_size):
    values = {"kernel.kernel.lengthscale": LENGTHS, "ridge": NOISES}
    start = model_of([1.0, 1.0], 0.1)
    losses = kernax.loss_surface(evidence, start, values, args=data, batch_size=batch_size)
    pairs = [(length, noise) for length in LENGTHS for noise in NOISES]
    assert_near(
        losses.ravel(), looped(data, [model_of([length, length], noise) for length, noise in pairs])
    )
    assert losses.shape == (3, 2)


def test_an_index_is_one_element_and_everything_else_stays(data):
    start = model_of([1.0, 2.0], 0.1)
    values = {"kernel.kernel.lengthscale[1]": LENGTHS}
    losses = kernax.loss_surface(evidence, start, values, args=data)
    assert_near(losses, looped(data, [model_of([1.0, length], 0.1) for length in LENGTHS]))
    both = {"kernel.kernel.lengthscale[1]": LENGTHS, "kernel.kernel.lengthscale[0]": NOISES}
    losses = kernax.loss_surface(evidence, start, both, args=data)
    pairs = [(length, other) for length in LENGTHS for other in NOISES]
    assert_near(
        losses.ravel(), looped(data, [model_of([other, length], 0.1) for length, other in pairs])
    )


def test_other_values_and_other_data_compile_nothing_again(data):
    @chex.assert_max_traces(1)
    def loss(model, X, y, factor):
        return factor * evidence(model, X, y)

    start = model_of([1.0, 1.0], 0.1)
    one = kernax.loss_surface(loss, start, {"ridge": NOISES}, args=(*data, 1.0))
    two = kernax.loss_surface(loss, start, {"ridge": 2 * NOISES}, args=(*data, 2.0))
    assert_near(one, looped(data, [model_of([1.0, 1.0], n) for n in NOISES]))
    assert_near(two / 2, looped(data, [model_of([1.0, 1.0], 2 * n) for n in NOISES]))


def test_a_surface_is_differentiated_by_its_values_and_by_the_data(data):
    X, y = data

    def total(noises, y):
        model = model_of([1.0, 1.0], 0.1)
        return kernax.loss_surface(evidence, model, {"ridge": noises}, args=(X, y)).sum()

    noises = jnp.asarray(NOISES)
    by_values, by_data = jax.jit(jax.grad(total, (0, 1)))(noises, y)
    of_one = jax.grad(lambda noise, y: evidence(model_of([1.0, 1.0], noise), X, y), (0, 1))
    expected = [of_one(noise, y) for noise in noises]
    assert_near(by_values, [slope for slope, _ in expected])
    np.testing.assert_allclose(
        by_data, sum(slope for _, slope in expected), rtol=1e3 * TOLERANCE["value"]
    )


def test_a_cell_that_fails_is_not_finite_and_leaves_its_neighbours_alone(data):
    def loss(model, X, y):
        return jnp.where(model.noise > 0.1, jnp.nan, evidence(model, X, y))

    losses = kernax.loss_surface(loss, model_of([1.0, 1.0], 0.1), {"ridge": NOISES}, args=data)
    assert_near(losses[0], looped(data, [model_of([1.0, 1.0], 0.01)])[0])
    assert np.isnan(losses[1])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"values": {}}, "values must hold an array for each parameter"),
        (
            {"values": {"noise": NOISES}},
            "the model has no parameter 'noise'; it has kernel.kernel.leng",
        ),
        ({"values": {"ridge[1]": NOISES}}, r"ridge\[1\]: ridge has 1 element"),
        ({"values": {"ridge": -NOISES}}, r"the values of ridge must be in \(0, inf\) and finite"),
        ({"values": {"ridge": np.ones((2, 2))}}, r"the values of ridge must have shape \(a,\)"),
        (
            {
                "values": {
                    "kernel.kernel.lengthscale": LENGTHS,
                    "kernel.kernel.lengthscale[0]": LENGTHS,
                }
            },
            r"values name the parameter of 'kernel.kernel.lengthscale\[0\]' twice",
        ),
        ({"loss": 3.0}, "loss must be a function of a model"),
        ({"loss": lambda model, X, y: y}, "loss must return a scalar alone, but returns shape"),
        (
            {"loss": lambda model, X, y: (y, y)},
            "loss must return a scalar alone, but returns tuple",
        ),
        ({"args": [1]}, "args must be a tuple"),
        ({"batch_size": 0}, "batch_size must be a positive integer"),
    ],
)
def test_a_surface_refuses_what_does_not_fit(data, changes, words):
    arguments = {
        "loss": evidence,
        "model": model_of([1.0, 1.0], 0.1),
        "values": {"ridge": NOISES},
        "args": data,
    }
    with pytest.raises(ValueError, match=words):
        untyped(kernax.loss_surface)(**(arguments | changes))
