"""Functions as parts of modules."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx

from kernax.core.base.printing import misplaced

Target = TypeVar("Target", bound=Callable)


class Static(eqx.Module):
    """A plain function as a module without leaves.

    Functions are compared by identity: reuse the same object, or jit compiles again.
    """

    function: Callable = eqx.field(static=True)

    def __call__(self, *points):
        return self.function(*points)


def as_module(function: Any, name: str) -> Any:
    """Returns a module unchanged, and any other function as `Static`, so that `jax.jit` accepts it.

    Raises ValueError, naming the argument, if it is not a function, or is a class.
    """
    if isinstance(function, type):
        raise ValueError(
            f"{name} must be a function or a module, but is the class {function.__name__}: call it"
        )
    if not callable(function):
        came = misplaced(function) or repr(function)
        raise ValueError(f"{name} must be a function or a module, but is {came}")
    return function if isinstance(function, eqx.Module) else Static(function)


def function_field(**kwargs) -> Any:
    """A field of a class for a function or a module, converted by `as_module`."""
    # A field knows its name once its class is made.
    field = eqx.field(converter=lambda value: as_module(value, field.name), **kwargs)
    return field


def accepts(function: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether an object is a function whose signature has these arguments, or none that Python
    can read.
    """
    if not callable(function):
        return False
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def with_call(call: str) -> Callable[[Target], Target]:
    """Lets the TypeError for arguments that do not fit the signature of a function show how to call
    it.
    """

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def called(*args, **kwargs):
            try:
                return function(*args, **kwargs)
            except TypeError as problem:
                if accepts(function, *args, **kwargs):
                    raise
                text = str(problem)
            raise TypeError(f"{text}: call {call}")

        return called

    return decorate


def check_callable(function: Any, name: str) -> None:
    """Raises ValueError unless the argument is a function."""
    if not callable(function):
        raise ValueError(f"{name} must be a function, but is {function!r}")
