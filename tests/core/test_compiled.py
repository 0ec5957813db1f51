"""Compiled functions: which options a program is compiled with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kernax
from kernax.core.base import compiled as module
from kernax.core.base.derivatives import custom_jvp
from kernax.core.learner.learner_problem import check_problem
from kernax.sklearn.rows import RowIndices


@pytest.fixture
def options(monkeypatch):
    """The options that programs were compiled with."""
    asked = []
    filter_jit = eqx.filter_jit

    def noted(function, **options):
        jitted = filter_jit(function)

        def call(*args):
            asked.append(options.get("compiler_options", {}))
            return jitted(*args)

        return call

    monkeypatch.setattr(eqx, "filter_jit", noted)
    return asked


class Sized(module.AbstractCheckedFirst):
    """An argument of a size."""

    x: jax.Array
    small: bool

    @property
    def is_small(self):
        return self.small

    def check_before(self, function, args):
        pass


def test_an_eager_call_on_a_gpu_compiles_with_options_and_a_traced_one_without(
    options, monkeypatch
):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    function = module.compiled(lambda x: x + 1)
    module._state_without_trace.cache_clear()
    # Asked inside of a trace first, as where kernax is imported there.
    jax.jit(function)(jnp.ones(2))
    jax.vmap(function)(jnp.ones(2))
    jax.grad(lambda x: function(x))(1.0)
    assert options == [{}] * 3
    function(jnp.ones(2))
    assert options[3:] == [{"xla_gpu_enable_triton_gemm": False}]


def test_on_a_cpu_a_small_eager_call_compiles_with_options_and_no_other(options):
    function = module.compiled(lambda sized: sized.x + 1)
    small, large = (Sized(jnp.ones(2), small) for small in (True, False))
    # A linear function of a gradient may become part of a program, which refuses options.
    _, pullback = jax.vjp(lambda x: function(Sized(x, small=True)), jnp.ones(2))
    jax.jit(pullback)(jnp.ones(2))
    jax.jit(lambda: function(small))()
    function(large)
    assert options == [{}] * 3
    function(small)
    assert options[3:] == [module._options_of("cpu")]


@pytest.mark.parametrize(
    ("X", "is_small"),
    [
        (np.ones((512, 8)), True),
        (np.ones((513, 8)), False),
        (np.ones((512, 9)), False),
        ({"a": np.ones((40, 5)), "b": np.ones((40, 4))}, False),
        # The points of an estimator are indices of rows, whatever its columns are.
        (RowIndices(jnp.arange(512), jnp.ones(512)), True),
    ],
)
def test_a_problem_is_small_by_the_numbers_of_its_points(X, is_small):
    kernel = kernax.Constant()
    n = len(jax.tree.leaves(X)[0])
    problem = check_problem("a_test", kernel, X, np.ones(n), None)
    assert problem.is_small == is_small


def test_an_xla_without_the_option_compiles_without_it(monkeypatch):
    monkeypatch.setitem(module._OPTIONS, "cpu", {"xla_cpu_no_such_option": True})
    module._options_of.cache_clear()
    try:
        assert module._options_of("cpu") == {}
    finally:
        module._options_of.cache_clear()


def test_what_is_traced_once_is_not_traced_again_in_the_rule_of_a_derivative():
    traced = []

    @module.traced_once
    def tripled(x):
        traced.append(None)
        return 3 * x

    @custom_jvp
    def f(x):
        return tripled(x)

    @f.def_jvp
    def _(primals, tangents):
        return tripled(*primals), tripled(*tangents)

    assert jax.jit(jax.grad(module.compiled(lambda x: tripled(x) + f(x))))(1.0) == 6
    assert len(traced) == 1
