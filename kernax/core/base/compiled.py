"""Compiled functions, for the private part of every public function."""

import abc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from typing import Any

import equinox as eqx
import jax
import jax.core
import numpy as np
from jax import lax
from jax.extend import core as jex

_OPTIONS: dict[str, dict[str, str | bool]] = {
    # On GPUs XLA compiles every matrix product of floats dozens of times, to choose the fastest
    # form in Triton. That takes 23 s for a log marginal likelihood in float32, but 0.9 s without
    # the search, and the result runs equally fast (one H200).
    "gpu": {"xla_gpu_enable_triton_gemm": False},
    # On CPUs a third to a half of the time goes to a form of fused loops in which a Gram matrix of
    # many columns takes half as long, and in most programs nothing changes. In JAX 0.12 this form
    # is the only one.
    "cpu": {"xla_cpu_use_fusion_emitters": False},
}


_computing_process: int | None = None


def check_not_forked() -> None:
    """Raises RuntimeError in a process that was forked after kernax had computed something.

    JAX computes on threads that a forked process does not have, and would wait for them forever.
    """
    global _computing_process
    process = os.getpid()
    if _computing_process is None:
        _computing_process = process
    if _computing_process != process:
        raise RuntimeError(
            "this process was forked after JAX had started, and would wait forever for threads "
            "that it does not have: start processes with multiprocessing.get_context('spawn'), or "
            "fork before anything is computed"
        )


class AbstractCheckedFirst(eqx.Module):
    """An argument that checks a call before a compiled function is compiled."""

    # Its methods are called and never passed to transformations: equinox would make a module of a
    # method wherever it is looked up, which takes longer than many a check.
    __getattribute__ = object.__getattribute__

    @property
    @abc.abstractmethod
    def is_small(self) -> bool:
        """Whether a call takes so little time that its compilation matters more."""

    @abc.abstractmethod
    def check_before(self, function: Callable, args: tuple) -> None:
        """Raises an exception if the function must not be called with these arguments."""


def compiled(function: Callable) -> Callable:
    """`eqx.filter_jit` that first calls `check_before` of its `AbstractCheckedFirst` arguments.

    A call outside of all transformations is compiled with options for fast compilation on a GPU,
    and on a CPU if such an argument `is_small`. Inside of a transformation it is part of the
    caller's program and uses its options.
    """

    @wraps(function)
    def traced(*args, **kwargs):
        # JAX traces the rules of derivatives inside of this context, which changes nothing. It
        # would trace each function of `jax.numpy` there once more, without the context here.
        with jax.sharding.use_abstract_mesh(jax.sharding.get_abstract_mesh()):
            return function(*args, **kwargs)

    jitted = eqx.filter_jit(traced)

    @cache
    def with_options(backend):
        options: Any = {"compiler_options": _options_of(backend)}
        return eqx.filter_jit(traced, **options)

    @wraps(function)
    def asked(*args, **kwargs):
        check_not_forked()
        checked = [argument for argument in args if isinstance(argument, AbstractCheckedFirst)]
        for argument in checked:
            argument.check_before(function, args)
        backend = jax.default_backend()
        is_small = any(argument.is_small for argument in checked)
        has_options = backend == "gpu" or (backend == "cpu" and is_small)
        if has_options and nothing_is_traced():
            return with_options(backend)(*args, **kwargs)
        return jitted(*args, **kwargs)

    return asked


def traced_once(function: Callable) -> Callable:
    """A function that JAX traces once, although a program contains it several times.

    A solver is an example, which also occurs in the exact solver that replaces it where it is
    differentiated. Inside of a `compiled` function, calls with arguments of the same structure,
    shapes and dtypes share one trace. The operations become part of the caller's program, as if the
    function were called directly. What is not an array in the arguments must be hashable.
    """
    options: Any = {"inline": True}
    return eqx.filter_jit(function, **options)


@compiled
def compiled_call(function: Callable, *args: Any) -> Any:
    """`function(*args)` as a compiled program, for a function, a module or a method of a module.

    The function must be the same in every call: one that is defined anew, such as a lambda, would
    be compiled in each.
    """
    return function(*args)


def nothing_is_traced() -> bool:
    """Whether no JAX transformation is active, so that a call is compiled as its own program."""
    return jex.get_opaque_trace_state() == _state_without_trace()


def is_staging() -> bool:
    """Whether operations are recorded in a program, as under `jit`, and not computed at once, as
    outside of it, also under `jax.grad` and `jax.vmap`.
    """
    return isinstance(lax.stage(_zero()), jax.core.Tracer)


@cache
def _zero() -> jax.Array:
    with jax.ensure_compile_time_eval():
        return jax.device_put(np.zeros((), bool))


@cache
def _state_without_trace() -> Any:
    # A new thread traces nothing, wherever this function is called first.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(jex.get_opaque_trace_state).result()


@cache
def _options_of(backend: str) -> dict[str, str | bool]:
    """The options for a backend, or none if this version of XLA does not have them."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=_OPTIONS[backend])
    except Exception:
        return {}
    return _OPTIONS[backend]
