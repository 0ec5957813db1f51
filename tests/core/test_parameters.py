"""Roles, intervals, the unconstrained view, and the table of parameters."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import TOLERANCE, X64, needs_x64, untyped

import kernax
from kernax.core.base.parameters import (
    check_positive,
    check_share,
    check_steps,
    check_stopping,
    parameters,
    with_arrays,
)


class Model(eqx.Module):
    kernel: kernax.AbstractKernel
    ridge: jax.Array = kernax.fields.positive(default=0.1)
    mix: jax.Array = kernax.fields.interval(-1.0, 3.0, default=0.5)
    points: jax.Array = kernax.fields.data(default_factory=lambda: jnp.ones(3))


def model():
    return Model(2.0 * kernax.RBF(jnp.array([1.0, 2.0, 3.0])) + kernax.Linear())


def test_unconstrain_and_rebuild_are_inverse_to_each_other():
    theta, rebuild = kernax.unconstrain(model())
    assert set(theta) == {
        "kernel.terms[0].kernel.lengthscale",
        "kernel.terms[0].scale",
        "ridge",
        "mix",
    }
    again, _ = kernax.unconstrain(rebuild(theta))
    for path, value in theta.items():
        np.testing.assert_allclose(again[path], value, atol=TOLERANCE["value"])


def test_rebuilt_parameters_stay_inside_their_supports_wherever_theta_goes():
    theta, rebuild = kernax.unconstrain(model())
    for shift in (-30.0, 30.0):
        moved = rebuild({path: value + shift for path, value in theta.items()})
        assert moved.ridge > 0
        assert -1 <= moved.mix <= 3


class Grown(eqx.Module):
    base: jax.Array = kernax.fields.above(1.0, default=2.0)


def test_a_parameter_above_a_number_stays_there_and_has_a_finite_end():
    theta, rebuild = kernax.unconstrain(Grown())
    np.testing.assert_allclose(rebuild(theta).base, 2.0, rtol=TOLERANCE["value"])
    for shift in (-10.0, 10.0):
        np.testing.assert_allclose(
            rebuild({"base": theta["base"] + shift}).base, 1 + np.exp(shift), rtol=1e-4
        )
    with pytest.raises(ValueError, match="needs a finite end"):
        kernax.fields.above(-np.inf)
    with pytest.raises(ValueError, match="the lower one first"):
        kernax.fields.interval(1.0, 0.0)


@needs_x64
def test_frozen_entries_and_data_come_back_bitwise():
    original = model()
    keep_second = lambda path, value: (
        np.array([True, False, True]) if path.endswith("lengthscale") else path == "ridge"
    )
    theta, rebuild = kernax.unconstrain(original, keep_second)
    assert theta["kernel.terms[0].kernel.lengthscale"].shape == (2,)
    moved = rebuild({path: value + 0.37 for path, value in theta.items()})
    lengthscale = moved.kernel.terms[0].kernel.lengthscale
    assert lengthscale[1] == original.kernel.terms[0].kernel.lengthscale[1]  # pyright: ignore[reportAttributeAccessIssue]
    assert jnp.all(
        lengthscale[jnp.array([0, 2])]
        != original.kernel.terms[0].kernel.lengthscale[jnp.array([0, 2])]  # pyright: ignore[reportAttributeAccessIssue]
    )
    assert moved.kernel.terms[0].scale == original.kernel.terms[0].scale  # pyright: ignore[reportAttributeAccessIssue]
    assert moved.mix == original.mix
    assert jnp.all(moved.points == original.points)


@needs_x64
def test_networks_of_other_libraries_count_every_float_array_as_real():
    network = eqx.nn.MLP(2, 1, 3, 1, key=jax.random.key(0))
    theta, _ = kernax.unconstrain(kernax.FeatureMap(network))
    assert sum(value.size for value in theta.values()) == 2 * 3 + 3 + 3 + 1


class Bent(eqx.Module):
    bend: jax.tree_util.Partial


@needs_x64
def test_arrays_inside_of_classes_that_jax_knows_without_keys_are_parameters():
    bend = jax.tree_util.Partial(lambda scale, x: scale * x, jnp.array(2.0))
    theta, rebuild = kernax.unconstrain(Bent(bend))
    (value,) = theta.values()
    assert value == 2
    assert rebuild(theta).bend(3.0) == 6


def test_a_float_of_numpy_in_a_list_is_an_array_as_any_other():
    assert [entry.value for entry in parameters([np.float64(2.0)])] == [2.0]


def test_a_tolerance_that_is_no_number_is_refused_by_name():
    for rtol in ("1e-3", [1e-3], 0.0):
        with pytest.raises(ValueError, match="rtol must be positive, but is"):
            check_stopping(rtol, None)


def test_a_tolerance_that_a_compiled_program_takes_for_zero_is_refused_by_name():
    tiny = 1e-310 if X64 else 1e-40
    with pytest.raises(ValueError, match=f"rtol must be positive, but {tiny} is 0 in float"):
        kernax.kernel_logistic(kernax.RBF(), np.eye(2), np.array([1, -1]), 1.0, rtol=tiny)
    with pytest.raises(ValueError, match=f"tol must be between 0 and 1, but {tiny} is 0 in float"):
        kernax.solvers.SMO(rtol=tiny)


def test_python_numbers_become_strongly_typed_arrays():
    for value in (2, 2.0, np.float64(2), True):
        leaf = kernax.RBF(value).lengthscale
        assert leaf.dtype == jnp.result_type(float)
        assert not leaf.weak_type


@needs_x64
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kernax.unconstrain(Model(kernax.RBF(), ridge=-0.1)), "ridge must be in"),
        (lambda: kernax.unconstrain({"kernel": kernax.RBF(), "ridge": 0.1}), "is a Python float"),
        (lambda: kernax.unconstrain(0.0 * kernax.RBF()), "scale is at the end of its interval"),
        (
            lambda: kernax.unconstrain(kernax.RBF(), lambda path, value: np.ones(2, bool)),
            "must return a bool",
        ),
        (
            lambda: untyped(kernax.unconstrain)(kernax.RBF(), ["lengthscale"]),
            "trainable must be a function of a path and a value, but is of type list: trainable=la",
        ),
        (
            lambda: untyped(kernax.describe)(kernax.RBF(), ["lengthscale"]),
            "trainable must be a function of a path and a value",
        ),
        (lambda: kernax.RBF(jnp.array([1.0, -1.0])), "RBF.lengthscale must be in"),
        (lambda: kernax.RBF(jnp.nan), "RBF.lengthscale must be in"),
        (lambda: kernax.RBF(jnp.inf), "RBF.lengthscale must be in"),
        (lambda: kernax.unconstrain(kernax.ConstantMean(np.nan)), "value must be real and finite"),
    ],
)
def test_bad_parameters_are_refused_by_name(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@needs_x64
def test_a_python_float_in_a_field_is_refused_unless_it_is_not_to_be_learned():
    class Plain(eqx.Module):
        noise: float = 0.1
        degree: int = 2
        tolerance: float = eqx.field(static=True, default=1e-3)
        width: float = kernax.fields.data(default=0.5)
        scale: jax.Array = kernax.fields.positive(default=1.0)

    with pytest.raises(
        ValueError,
        match=r"noise is a Python float.*: declare its field kernax\.fields\.positive\(\)",
    ):
        kernax.unconstrain(Plain())
    for model, trainable in (
        (Plain(), lambda path, _: path != "noise"),
        (Plain(jnp.array(0.1)), None),
    ):
        _, rebuild = kernax.unconstrain(model, trainable)
        assert [path for path, _, _ in rebuild.entries if path != "noise"] == ["scale"]


def test_a_scale_of_zero_can_be_frozen_and_learned_around():
    kernel = 0.0 * kernax.RBF() + kernax.Matern32()
    theta, rebuild = kernax.unconstrain(kernel, lambda path, value: not path.endswith("scale"))
    assert rebuild(theta).terms[0].scale == 0


@needs_x64
def test_describe_lists_paths_values_supports_and_what_is_frozen():
    table = kernax.describe(
        model(),
        lambda path, value: (
            np.array([True, False, True]) if "lengthscale" in path else path == "mix"
        ),
    )
    rows = {path: (value, interval, state) for path, value, interval, state in table.rows}
    assert rows["kernel.terms[0].kernel.lengthscale"] == ("[1. 2. 3.]", "(0, inf)", "2 of 3 free")
    assert rows["ridge"] == ("0.1", "(0, inf)", "frozen")
    assert rows["mix"] == ("0.5", "(-1, 3)", "free")
    assert str(table).splitlines()[0].split() == ["parameter", "value", "interval", "state"]
    assert str(kernax.describe(kernax.Linear())) == "no parameters"


@needs_x64
def test_every_integer_of_a_kernel_is_declared_under_its_own_name():
    found = []
    names = [getattr(module, name) for module in (kernax, kernax.kernels) for name in dir(module)]
    for kind in (
        cls for cls in names if isinstance(cls, type) and issubclass(cls, kernax.AbstractKernel)
    ):
        for field in dataclasses.fields(kind):
            if field.type is int:
                found.append(f"{kind.__name__}.{field.name}")
                with pytest.raises(ValueError, match=f"^{field.name} must be .*integer"):
                    field.metadata["converter"]("no")
    assert {
        "Spectrum.k",
        "Mismatch.m",
        "Polynomial.degree",
        "ArcCosine.order",
        "ChangePoint.dimension",
    } <= set(found)


@needs_x64
def test_integers_of_numpy_become_those_of_python_and_others_are_refused_by_name():
    kernel = kernax.kernels.Mismatch(np.int64(3), np.uint8(1))
    assert type(kernel.k) is type(kernel.m) is int
    assert kernel == kernax.kernels.Mismatch(3, 1)
    for make, words in (
        (lambda: kernax.Spectrum("3"), "k must be a positive integer, but is '3'"),
        (lambda: kernax.kernels.Mismatch(3, 1.0), "m must be an integer >= 0, but is 1.0"),
        (lambda: kernax.Subsequence(True), "length must be a positive integer, but is True"),
        (lambda: kernax.kernels.ArcCosine(3), "order must be 0, 1 or 2, but is 3"),
    ):
        with pytest.raises(ValueError, match=words):
            make()


@needs_x64
def test_unconstrain_works_under_jit_and_its_derivative_is_the_chain_rule():
    def through(ridge):
        theta, rebuild = kernax.unconstrain(Model(kernax.RBF(), ridge=ridge))
        return rebuild(theta).ridge ** 2

    np.testing.assert_allclose(jax.jit(jax.grad(through))(jnp.array(0.3)), 0.6, rtol=1e-6)


@needs_x64
def test_a_description_names_columns_and_wraps_what_is_long():
    kernel = kernax.RBF(jnp.arange(1.0, 41.0)) + 2.0 * kernax.kernels.BilinearForm(jnp.eye(3, 2))
    table = str(kernax.describe(kernel))
    assert max(map(len, table.splitlines())) < 110
    assert len(table.splitlines()) > 6
    assert all(f"{value}." in table for value in (1, 17, 40))  # nothing is left out
    named = kernax.describe(
        kernax.RBF(jnp.array([1.0, 2.0])), lambda path, value: np.array([True, False]), ["age", "b"]
    )
    assert named.rows == (
        ("lengthscale[age]", "1", "(0, inf)", "free"),
        ("lengthscale[b]", "2", "(0, inf)", "frozen"),
    )
    other = kernax.describe(kernax.RBF(jnp.array([1.0, 2.0])), columns=["a", "b", "c"])
    assert other.rows[0][:2] == ("lengthscale", "[1. 2.]")


SOLVERS = (
    kernax.solvers.SMO,
    kernax.solvers.ProjectedGradient,
    kernax.solvers.SequentialEvidence,
    kernax.solvers.EvidenceIteration,
)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_tolerance_may_be_an_array_or_traced(solver):
    name = "atol" if solver is kernax.solvers.SequentialEvidence else "rtol"
    with_tolerance = lambda value: getattr(solver(**{name: value}), name)
    assert with_tolerance(jnp.asarray(1e-6)) == jnp.asarray(1e-6)
    assert jax.jit(with_tolerance)(0.125) == 0.125
    with pytest.raises(ValueError, match=f"{name} must be"):
        solver(**{name: jnp.asarray(-1.0)})


@pytest.mark.parametrize("check", [check_positive, check_share])
def test_a_tolerance_is_refused_by_name_unless_it_is_a_positive_number(check):
    for wrong in (0.0, -1.0, np.nan, 1j, np.complex64(1), "1", None, np.full(2, 0.1)):
        with pytest.raises(ValueError, match="tol must be"):
            check(wrong, "tol")


@needs_x64
@pytest.mark.parametrize("solver", [*SOLVERS, kernax.solvers.ConjugateGradient])
def test_a_number_of_steps_may_be_an_array_of_integers_or_traced(solver):
    assert solver(max_steps=jnp.asarray(100)).max_steps == 100
    assert jax.jit(lambda steps: solver(max_steps=steps).max_steps)(100) == 100
    with pytest.raises(ValueError, match="max_steps must be a positive integer"):
        solver(max_steps=jnp.asarray(0))


@needs_x64
def test_a_number_of_steps_is_refused_unless_it_is_a_positive_integer():
    check_steps(np.asarray(100, np.int8))
    for wrong in (0, True, 1.0, jnp.asarray(True), jnp.asarray(2.0), np.ones(2, int)):
        with pytest.raises(ValueError, match="max_steps must be a positive integer"):
            check_steps(wrong)
    with pytest.raises(ValueError, match="max_steps must be a positive integer"):
        jax.jit(check_steps)(100.0)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, *[np.int64] * X64])
def test_a_number_of_steps_of_any_integer_type_is_one_of_a_counter(dtype):
    expected = min(np.iinfo(dtype).max, np.iinfo(np.int32).max)
    counted = lambda steps: with_arrays(kernax.solvers.SMO(max_steps=steps)).max_steps
    steps = jnp.asarray(np.iinfo(dtype).max, dtype)
    for found in (counted(steps), jax.jit(counted)(steps)):
        assert found.dtype == jnp.int32
        assert found == expected
