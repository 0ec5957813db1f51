"""Many starts, bounds for what runs away, starts from the data, densities for samplers."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import DTYPE, needs_x64, untyped

import kernax
from kernax.errors import DivergedError, NonFiniteError, RunawayWarning

pytestmark = needs_x64  # once: steps of an optimiser are the same program in either precision


def model_of(kernel, noise=0.1):
    return kernax.Model(kernel, noise)


def loss(model, X, y):
    return -kernax.log_marginal_likelihood(model.kernel, X, y, model.ridge)


@pytest.fixture
def sine():
    X = np.linspace(0, 10, 20)[:, None]
    return X.astype(DTYPE), np.sin(X[:, 0]).astype(DTYPE)


ADAM, LBFGS, SGD = optax.adam(0.1), optax.lbfgs(), optax.sgd(100.0)


@pytest.mark.nightly
def test_the_best_finite_start_wins_and_failed_ones_are_listed(sine):
    """G07."""
    starts = [model_of(kernax.RBF(scale)) for scale in (0.05, 0.3, 1.0, 2.0, 4.0, 10.0, 100.0)]
    starts.insert(2, model_of(kernax.RBF(1e-100)))
    solution = kernax.multi_start(nan_at_tiny_scales, starts, ADAM, 20, args=sine)
    stats = solution.stats
    np.testing.assert_array_equal(stats["failed"], np.arange(8) == 2)
    assert jnp.isnan(stats["start_losses"][2]) or jnp.isinf(stats["start_losses"][2])
    assert solution.result == kernax.RESULTS.successful
    assert stats["loss"] == jnp.nanmin(stats["start_losses"])
    for i in (0, 3):
        alone = kernax.minimise(loss, starts[i], ADAM, 20, args=sine)
        np.testing.assert_allclose(stats["start_losses"][i], alone.stats["loss"], rtol=1e-8)


def nan_at_tiny_scales(model, X, y):
    return loss(model, X, y) + jnp.where(model.kernel.lengthscale < 1e-20, jnp.nan, 0).astype(
        y.dtype
    )


@pytest.mark.nightly
def test_more_starts_are_never_worse(sine):
    starts = kernax.selection.random_starts(model_of(kernax.RBF(3.0)), 4, key=jax.random.key(0))
    losses = [
        kernax.multi_start(loss, some, ADAM, 20, args=sine).stats["loss"]
        for some in (4 * starts[:1], starts)
    ]
    assert losses[1] <= losses[0] + 1e-5


def test_when_every_start_fails_that_is_an_error(sine):
    starts = [model_of(kernax.RBF(1.0)), model_of(kernax.RBF(2.0))]
    with pytest.raises(NonFiniteError, match="multi_start: the loss is not finite at the start"):
        kernax.multi_start(always_nan, starts, ADAM, 3, args=sine)
    solution = kernax.multi_start(always_nan, starts, ADAM, 3, args=sine, throw=False)
    assert solution.result == kernax.RESULTS.nonfinite


def always_nan(model, X, y):
    return loss(model, X, y) * jnp.nan


@pytest.mark.nightly
def test_line_searches_work_from_many_starts_and_frozen_parameters_stay(sine):
    starts = kernax.selection.random_starts(
        model_of(kernax.RBF()), 3, key=jax.random.key(1), trainable=lambda path, _: path != "ridge"
    )
    assert all(model.ridge == starts[0].ridge for model in starts)
    solution = kernax.multi_start(
        loss, starts, LBFGS, 15, args=sine, trainable=lambda path, _: path != "ridge"
    )
    assert solution.value.ridge == starts[0].ridge
    assert solution.stats["loss"] < loss(starts[0], *sine)


def test_starts_of_different_structures_are_refused(sine):
    with pytest.raises(ValueError, match="differ in the values of their parameters alone"):
        kernax.multi_start(
            loss, [model_of(kernax.RBF()), model_of(kernax.Matern32())], ADAM, 3, args=sine
        )
    with pytest.raises(ValueError, match="at least one start"):
        kernax.multi_start(loss, [], ADAM, 3, args=sine)
    halves = [{"a": jnp.array([0.0, 1.0])}, {"a": jnp.array([2.0, 1.0])}]
    with pytest.raises(ValueError, match="trainable must free the same number of elements"):
        kernax.multi_start(
            lambda model: jnp.sum(model["a"]), halves, ADAM, 3, trainable=lambda _, a: a > 0
        )
    # Without the type checks of the tests.
    multi_start = inspect.unwrap(kernax.multi_start)
    with pytest.raises(
        ValueError, match=r"models must be a list of starts, such as .*, but is of type Model"
    ):
        multi_start(loss, model_of(kernax.RBF()), ADAM, 3, args=sine)
    random_starts = inspect.unwrap(kernax.selection.random_starts)
    with pytest.raises(ValueError, match="key must be one random key"):
        random_starts(model_of(kernax.RBF()), 3, key=0)


def test_random_starts_begin_with_the_model_and_repeat_with_the_key():
    model = model_of(kernax.RBF(jnp.ones(3)))
    first, second = (
        kernax.selection.random_starts(model, 3, key=jax.random.key(0), spread=0.5)
        for _ in range(2)
    )
    assert first[0] is model
    assert eqx.tree_equal(first, second)
    assert not eqx.tree_equal(first[1], first[2])


def test_a_parameter_that_nothing_holds_is_stopped_and_named():
    def flat(model):
        return 1 / model.ridge

    with pytest.warns(RunawayWarning, match="ridge moved eight powers of ten"):
        solution = kernax.minimise(flat, model_of(kernax.RBF()), optax.sign_sgd(10.0), 20)
    assert solution.stats["runaways"]["ridge"]
    assert not solution.stats["runaways"]["kernel.lengthscale"]
    np.testing.assert_allclose(solution.value.ridge, 1e7, rtol=1e-4)


def test_a_start_that_was_thrown_away_has_failed_and_is_no_success_even_if_it_is_the_best():
    def valley(model):
        return -jnp.exp(-(jnp.log(model.ridge) ** 2))

    starts = [model_of(kernax.RBF(), noise) for noise in (1.5, 1.0)]
    solution = kernax.multi_start(valley, starts, SGD, 3)
    np.testing.assert_array_equal(solution.stats["failed"], [True, False])
    assert solution.value.ridge == 1.0
    with pytest.raises(
        DivergedError,
        match="ridge moved eight powers of ten away, and no step improved on the start",
    ):
        kernax.multi_start(valley, [starts[0], starts[0]], SGD, 3)


def test_the_median_lengthscale_is_the_median_distance(rng):
    X = rng.normal(size=(30, 3)).astype(DTYPE)
    X[1] = X[0]
    gaps = np.linalg.norm(X[:, None].astype(float) - X, axis=-1)[np.triu_indices(30, 1)]
    np.testing.assert_allclose(
        kernax.selection.median_lengthscale(X), np.median(gaps[gaps > 0]), rtol=1e-5
    )
    per_dimension = kernax.selection.median_lengthscale(
        np.c_[X, np.ones(30, DTYPE)], per_dimension=True
    )
    assert per_dimension.shape == (4,)
    first = np.abs(X[:, None, 0] - X[:, 0])[np.triu_indices(30, 1)]
    np.testing.assert_allclose(per_dimension[0], 2 * np.median(first[first > 0]), rtol=1e-5)
    np.testing.assert_allclose(per_dimension[3], 2.0)
    for wrong in (np.ones((1, 2)), np.ones(3), [[1.0, 2.0]], (np.ones(3), np.ones(3))):
        with pytest.raises(ValueError, match="at least two vectors"):
            untyped(kernax.selection.median_lengthscale)(wrong)


def test_a_density_for_samplers_includes_the_jacobian_of_every_support():
    class Bounded(eqx.Module):
        a: jax.Array = kernax.fields.positive(default=2.0)
        b: jax.Array = kernax.fields.interval(1.0, 4.0, default=2.0)
        c: jax.Array = kernax.fields.real(default=0.5)

    model = Bounded()
    theta, density = kernax.selection.unconstrained_density(
        lambda model: -model.a - model.b**2 - model.c**2, model
    )
    _, rebuild = kernax.unconstrain(model)
    slopes = {
        name: jax.grad(lambda t, name=name: getattr(rebuild(theta | {name: t}), name))(theta[name])
        for name in theta
    }
    expected = -2 - 4 - 0.25 + sum(jnp.log(abs(slope)) for slope in slopes.values())
    np.testing.assert_allclose(density(theta), expected, rtol=1e-12)
    assert jax.grad(density)(theta).keys() == theta.keys()


def test_starts_may_hold_functions_and_an_infinite_loss_never_wins():
    class Holder(eqx.Module):
        scale: jax.Array = kernax.fields.positive(default=1.0)
        network: eqx.nn.MLP | None = None

    network = eqx.nn.MLP(1, "scalar", 3, 1, key=jax.random.key(0))
    starts = [Holder(1.0, network), Holder(2.0, network)]

    def minus_infinity_far_out(model):
        return jnp.where(model.scale > 1.5, -jnp.inf, model.scale) + 0 * model.network(jnp.ones(1))

    solution = kernax.multi_start(minus_infinity_far_out, starts, ADAM, 2)
    np.testing.assert_array_equal(solution.stats["failed"], [False, True])
    assert jnp.isfinite(solution.stats["loss"])
