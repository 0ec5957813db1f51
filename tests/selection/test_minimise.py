"""Learning by gradients: any optimiser, frozen entries, and never NaN with a good status."""

import inspect

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import needs_x64, untyped

import kernax
from kernax.errors import (
    BreakdownError,
    DivergedError,
    NonFiniteError,
    RunawayWarning,
    UndeclaredFieldWarning,
)

pytestmark = needs_x64  # once: steps of an optimiser are the same program in either precision

ADAM, LBFGS, SGD = optax.adam(0.1), optax.lbfgs(), optax.sgd(0.5)


def leave_one_out_loss(model, X, y):
    return jnp.mean(kernax.leave_one_out(model.kernel, X, y, model.ridge) ** 2)


def problem(rng, n=40):
    X = rng.normal(size=(n, 3)).astype(jnp.result_type(float))
    return X, (np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n)).astype(X.dtype)


@pytest.mark.nightly
@pytest.mark.parametrize("optimiser", [ADAM, LBFGS], ids=["adam", "lbfgs"])
def test_the_loss_falls_and_the_irrelevant_inputs_are_found(optimiser, rng):
    X, y = problem(rng)
    start = kernax.Model(kernax.RBF(jnp.ones(3)))
    solution = kernax.minimise(leave_one_out_loss, start, optimiser, 40, args=(X, y))
    assert solution.result == kernax.RESULTS.successful
    assert solution.stats["loss"] < 0.5 * leave_one_out_loss(start, X, y)
    # A line search computes the loss in another program than a step does: they differ by 12 eps.
    least = jnp.nanmin(solution.stats["losses"])
    np.testing.assert_allclose(solution.stats["loss"], least, rtol=50 * jnp.finfo(least).eps)
    np.testing.assert_allclose(
        leave_one_out_loss(solution.value, X, y), solution.stats["loss"], rtol=1e-3
    )
    lengthscale = solution.value.kernel.lengthscale  # pyright: ignore[reportAttributeAccessIssue]
    assert jnp.all(lengthscale[1:] > 2 * lengthscale[0])


def half(model):
    return jnp.sum((model["a"] - 3.0) ** 2) + jnp.sum((model["b"] + 1.0) ** 2)


@pytest.mark.slow
def test_frozen_entries_come_back_bitwise_and_the_others_reach_the_minimum():
    model = {"a": jnp.array([0.1, 0.2, 0.7]), "b": jnp.array(5.0)}
    trainable = lambda path, value: np.array([True, False, True]) if "a" in path else False
    solution = kernax.minimise(half, model, LBFGS, 10, trainable=trainable)
    assert solution.value["a"][1] == model["a"][1]
    assert solution.value["b"] == model["b"]
    np.testing.assert_allclose(solution.value["a"][jnp.array([0, 2])], 3.0, rtol=1e-4)


def root(theta):
    return jnp.sqrt(2 - theta)


def test_a_loss_that_turns_nan_ends_with_the_best_finite_parameters_and_says_so():
    """G08."""
    start = jnp.array(0.0)
    solution = kernax.minimise(root, start, optax.adam(0.5), 12, throw=False)
    assert solution.result == kernax.RESULTS.nonfinite
    assert jnp.isfinite(solution.value)
    np.testing.assert_allclose(solution.value, 1.999, atol=2e-3)
    finite = solution.stats["losses"][jnp.isfinite(solution.stats["losses"])]
    assert solution.stats["loss"] == jnp.min(finite)
    assert 0 < solution.stats["steps"] < 12
    with pytest.raises(NonFiniteError, match=r"throw=False.*steps"):
        kernax.minimise(root, start, optax.adam(0.5), 12)


def test_a_loss_that_is_nan_from_the_start_returns_the_start():
    solution = kernax.minimise(root, jnp.array(3.0), SGD, 5, throw=False)
    assert solution.result == kernax.RESULTS.nonfinite
    assert solution.value == 3.0
    assert jnp.isnan(solution.stats["loss"])
    assert jnp.isnan(solution.stats["gradient_norm"])


def test_nan_in_the_data_is_an_error_that_points_to_the_start():
    with pytest.raises(
        NonFiniteError, match="minimise: the loss is not finite at the start: look for NaN in args"
    ):
        kernax.minimise(squares, jnp.array(3.0), SGD, 5, args=(jnp.nan,))


def squares(theta, target):
    return (theta - target) ** 2


def valley(model):
    """Least at one, and flat far away on both sides."""
    return -jnp.exp(-(jnp.log(model.ridge) ** 2))


def test_steps_so_long_that_nothing_is_learned_are_never_a_success():
    start = kernax.Model(kernax.RBF(), ridge=1.5)
    with pytest.raises(
        DivergedError,
        match="ridge moved eight powers of ten away, and no step improved on the start",
    ):
        kernax.minimise(valley, start, optax.sgd(100.0), 5)
    with pytest.warns(RunawayWarning, match="ridge moved eight powers of ten"):
        solution = kernax.minimise(valley, start, optax.sgd(100.0), 5, throw=False)
    assert solution.result == kernax.RESULTS.diverged
    assert solution.value.ridge == 1.5
    assert solution.stats["runaways"]["ridge"]
    assert not solution.stats["runaways"]["kernel.lengthscale"]


def test_a_run_that_improved_and_was_thrown_far_away_keeps_its_best():
    """Without a warning: line searches throw parameters that matter little to their bounds, and
    come back.
    """
    start, optimiser = (
        kernax.Model(kernax.RBF(), ridge=1.5),
        optax.sgd(lambda step: jnp.where(step == 0, 0.2, 1e5)),
    )
    solution = kernax.minimise(valley, start, optimiser, 5)
    assert not solution.stats["runaways"]["ridge"]
    assert solution.result == kernax.RESULTS.successful
    assert 1 < solution.value.ridge < 1.5


def test_a_run_that_starts_at_the_minimum_is_a_success():
    solution = kernax.minimise(valley, kernax.Model(kernax.RBF(), ridge=1.0), optax.sgd(100.0), 5)
    assert str(solution.result) == "kernax.RESULTS<successful>"
    assert solution.stats["steps"] == 1


def test_reverse_mode_through_the_steps_is_refused_and_forward_mode_goes_through_them():
    learned = lambda target: (
        kernax.minimise(squares, jnp.array(0.0), SGD, 3, args=(target,), throw=False).value
    )
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(learned)(2.0)
    np.testing.assert_allclose(jax.jvp(learned, (2.0,), (1.0,)), (2.0, 1.0), rtol=1e-6)


def test_an_infinite_gradient_at_a_finite_loss_is_a_failure_too():
    solution = kernax.minimise(root, jnp.array(2.0), SGD, 5, throw=False)
    assert solution.result == kernax.RESULTS.nonfinite


def scaled_banana(theta, scale):
    """Rosenbrock's function of numbers in float32, least at one, times a scale."""
    first, second = theta
    return scale * (1 + 100 * (second - first**2) ** 2 + (1 - first) ** 2)


SINGLE = np.array([-1.2, 1.0], np.float32)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e30])
def test_lbfgs_takes_the_same_steps_whatever_the_scale_of_the_loss(scale):
    def run(scale):
        args = (jnp.asarray(scale, jnp.float32),)
        return kernax.minimise(scaled_banana, jnp.asarray(SINGLE), LBFGS, 40, args=args)

    of_one, of_scale = run(1.0), run(scale)
    np.testing.assert_allclose(of_scale.value, 1.0, atol=2e-3)
    first = slice(8)  # later ones magnify the rounding of the scale
    np.testing.assert_allclose(
        np.float64(of_scale.stats["losses"][first]) / scale, of_one.stats["losses"][first], 1e-3
    )
    assert of_scale.stats["gradient_norm"] < 0.1 * scale


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_a_run_in_which_no_step_moves_a_parameter_is_no_success(scale):
    args = (jnp.asarray(scale, jnp.float32),)
    with pytest.raises(BreakdownError, match="no step moved a parameter"):
        kernax.minimise(scaled_banana, jnp.asarray(SINGLE), ADAM, 5, args=args)
    starts = [jnp.asarray(SINGLE), jnp.asarray(2 * SINGLE)]
    solution = kernax.multi_start(scaled_banana, starts, ADAM, 5, args=args, throw=False)
    assert solution.result == kernax.RESULTS.stagnation
    assert jnp.all(solution.stats["failed"])


def test_the_loss_that_is_reported_is_computed_from_the_model_that_is_returned():
    calls = []

    def on_host(theta):
        calls.append(float(theta))
        return np.asarray((theta - 3) ** 2 + 0.01 * len(calls), theta.dtype)  # as rounding would

    def loss(theta):
        shape = jax.ShapeDtypeStruct((), theta.dtype)
        drift = jax.pure_callback(on_host, shape, jax.lax.stop_gradient(theta))
        smooth = (theta - 3) ** 2
        return smooth + jax.lax.stop_gradient(drift - smooth)

    solution = kernax.minimise(loss, jnp.array(0.0), SGD, 3)
    assert calls[-1] == solution.value
    np.testing.assert_allclose(
        solution.stats["loss"], (solution.value - 3) ** 2 + 0.01 * len(calls), rtol=1e-12
    )


@pytest.mark.slow
def test_a_second_call_with_other_values_does_not_trace_again(rng):
    X, y = problem(rng, 12)
    traced = chex.assert_max_traces(leave_one_out_loss, 20)

    def loss(model, X, y):
        count.append(1)
        return traced(model, X, y)

    count: list[int] = []
    kernax.minimise(loss, kernax.Model(kernax.RBF()), ADAM, 5, args=(X, y))
    first = len(count)
    kernax.minimise(loss, kernax.Model(kernax.RBF(3.0), ridge=0.2), ADAM, 5, args=(X + 1, 2 * y))
    assert len(count) == first


def test_the_bar_of_an_early_end_is_full(capsys):
    """The gradient is zero at the start: one step is taken, and looked at."""
    flat = lambda model: 0.0 * model
    kernax.minimise(flat, jnp.array(1.0), ADAM, 7, progress=True)
    last = capsys.readouterr().err.splitlines()[-1]
    assert " 1/1 " in last
    assert "/7" not in last


def test_progress_draws_a_bar_and_changes_nothing(rng, capsys):
    X, y = problem(rng, 12)
    plain = kernax.minimise(leave_one_out_loss, kernax.Model(kernax.RBF()), ADAM, 7, args=(X, y))
    shown = kernax.minimise(
        leave_one_out_loss, kernax.Model(kernax.RBF()), ADAM, 7, args=(X, y), progress=True
    )
    assert bool(eqx.tree_equal(plain.value, shown.value))
    assert "7/7" in capsys.readouterr().err


def test_minimise_runs_under_vmap_over_starts():
    starts = jnp.array([0.0, 1.0, 10.0])
    run = lambda start: kernax.minimise(lambda t: (t - 3.0) ** 2, start, ADAM, 300, throw=False)
    solutions = jax.vmap(run)(starts)
    np.testing.assert_allclose(solutions.value, 3.0, atol=0.05)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: kernax.minimise(half, {"a": jnp.array([1]), "b": jnp.array(1)}, ADAM, 3),
            "no free parameters",
        ),
        (
            lambda: jax.jit(lambda t: kernax.minimise(root, t, ADAM, 3, progress=True))(
                jnp.array(1.0)
            ),
            "progress=True",
        ),
        (
            lambda: kernax.minimise(kernax.RBF(1.0), lambda k: k.lengthscale, ADAM, 3),
            r"model must hold parameters.*the order is kernax.minimise\(loss, model, optimiser,",
        ),
        (
            lambda: kernax.minimise(lambda k, X: k.lengthscale, kernax.RBF(1.0), ADAM, 3),
            r"loss\(model, \*args\), but has \(k, X\), and args has length 0: pass data as args=",
        ),
    ],
)
def test_bad_calls_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_the_number_of_steps_may_be_an_integer_of_numpy():
    """Catches one that is traced, and so can be no shape."""
    found = untyped(kernax.minimise)(root, jnp.array(1.0), ADAM, np.int64(2))
    assert found.stats["losses"].shape == (3,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": 3.0}, "loss must be a function of a model"),
        (
            {"loss": lambda model: (model.lengthscale, 1)},
            "loss must return a scalar alone, but returns tuple",
        ),
        ({"loss": lambda model: None}, "returns NoneType"),
        (
            {"loss": lambda model: jnp.ones(2) * model.lengthscale},
            r"returns shape \(2,\): take its mean or sum",
        ),
        ({"optimiser": optax.adam}, "optimiser must be an optimiser of optax, already called"),
        ({"optimiser": "adam"}, "but is 'adam'"),
        ({"n_steps": 0}, "n_steps must be a positive integer"),
        ({"n_steps": True}, "n_steps must be a positive integer, but is True"),
        ({"args": np.ones(3)}, "args must be a tuple"),
        ({"trainable": ["lengthscale"]}, "trainable must be a function of a path and a value"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_by_name(change, message):
    task = {
        "loss": lambda model: model.lengthscale,
        "optimiser": optax.adam(0.1),
        "n_steps": 2,
        "args": (),
    } | change
    # Without the type checks of the tests.
    minimise = inspect.unwrap(kernax.minimise)
    options = {name: task[name] for name in ("args", "trainable") if name in task}
    with pytest.raises(ValueError, match=message):
        minimise(task["loss"], kernax.RBF(), task["optimiser"], task["n_steps"], **options)


class Undeclared(eqx.Module):
    """Of one's own, with a field that nothing says anything about."""

    scale: jax.Array
    weights: dict
    shift: jax.Array = kernax.fields.real(default=0.5)
    layer: eqx.nn.Linear = eqx.field(
        default_factory=lambda: eqx.nn.Linear(1, 1, key=jax.random.key(0))
    )


@pytest.mark.slow
def test_a_field_without_a_declaration_is_named_when_it_is_first_learned():
    """Once a class and field; not of networks, of what is declared, frozen or in no module."""

    def loss(model):
        parts = model.scale, model.weights["a"], model.shift, model.layer(jnp.ones(1))[0]
        return sum(part**2 for part in parts)

    model = Undeclared(jnp.asarray(1.0), {"a": jnp.asarray(1.0)})
    learn = lambda **how: kernax.minimise(loss, model, optax.sgd(0.1), 1, throw=False, **how)
    learn(trainable=lambda path, value: path in ("shift", "layer.weight", "layer.bias"))
    with pytest.warns(UndeclaredFieldWarning) as told:
        learn()
    messages = sorted(str(each.message) for each in told)
    assert [message.partition(" ")[0] for message in messages] == [
        "Undeclared.scale",
        "Undeclared.weights",
    ]
    assert "scale: jax.Array = kernax.fields.positive()" in messages[0]
    assert told[0].filename == __file__
    learn()  # warnings are errors here
    kernax.minimise(lambda parts: parts["a"] ** 2, {"a": jnp.ones(())}, optax.sgd(0.1), 1)
