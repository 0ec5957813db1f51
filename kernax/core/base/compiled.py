"""Compiled functions, for the private part of every public function."""

import abc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, wraps
from typing import Any

import equinox as eqx
import jax
from jax.extend import core as jex

# On GPUs XLA compiles every matrix product of floats some dozens of times, to choose the fastest
# form in Triton: 23 s for an evidence in float32, 0.9 s without, and as fast to run (one H200).
_GPU_OPTIONS: dict[str, str | bool] = {"xla_gpu_enable_triton_gemm": False}


_computing_process: int | None = None


def check_not_forked() -> None:
    """Raises RuntimeError in a process that was forked from one in which kernax had computed.

    JAX computes on threads, which a forked process does not have: it would wait for them forever.
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
    """An argument of compiled functions that is asked before any of them is compiled."""

    @abc.abstractmethod
    def check_before(self, function: Callable, args: tuple) -> None:
        """Raises an exception where the function must not be called with these arguments."""


def compiled(function: Callable) -> Callable:
    """`eqx.filter_jit`, which first asks the arguments that are to be asked.

    A call outside of all transformations is compiled for a GPU with options that compile quickly;
    inside of them it is part of a program whose options are the caller's.
    """
    jitted = eqx.filter_jit(function)

    @cache
    def for_gpu():
        options: Any = {"compiler_options": _options_of_gpu()}
        return eqx.filter_jit(function, **options)

    @wraps(function)
    def asked(*args, **kwargs):
        check_not_forked()
        for argument in args:
            if isinstance(argument, AbstractCheckedFirst):
                argument.check_before(function, args)
        is_for_gpu = jax.default_backend() == "gpu" and _nothing_is_traced()
        return (for_gpu() if is_for_gpu else jitted)(*args, **kwargs)

    return asked


def _nothing_is_traced() -> bool:
    """Whether no transformation of JAX is under way, so that a call is a program of its own."""
    return jex.get_opaque_trace_state() == _state_without_trace()


@cache
def _state_without_trace() -> Any:
    # In a thread of its own nothing is traced, wherever this is asked first.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(jex.get_opaque_trace_state).result()


@cache
def _options_of_gpu() -> dict[str, str | bool]:
    """The options for GPUs, or none where this XLA has no such options any more."""
    try:
        jax.jit(lambda: 0).lower().compile(compiler_options=_GPU_OPTIONS)
    except Exception:
        return {}
    return _GPU_OPTIONS
