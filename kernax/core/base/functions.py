"""Functions as parts of modules."""

from collections.abc import Callable
from typing import Any

import equinox as eqx


class Static(eqx.Module):
    """A plain function as a module without leaves.

    Functions are compared by identity: reuse the same object, or jit compiles again.
    """

    function: Callable = eqx.field(static=True)

    def __call__(self, *points):
        return self.function(*points)


def as_module(function: Any) -> Any:
    """Returns a module unchanged, and any other function as `Static`, so that `jax.jit` accepts it.

    Raises ValueError if the argument is not a function, or is a class.
    """
    if isinstance(function, type):
        raise ValueError(
            f"a function or a module is needed, but {function.__name__} is a class: call it"
        )
    if not callable(function):
        raise ValueError(f"a function or a module is needed, but {function!r} is neither")
    return function if isinstance(function, eqx.Module) else Static(function)


def check_callable(function: Any, name: str) -> None:
    """Raises ValueError unless the argument is a function."""
    if not callable(function):
        raise ValueError(f"{name} must be a function, but is {function!r}")
