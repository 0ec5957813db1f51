"""Deprecated names. They work for one minor version, with a `DeprecationWarning` that gives the new
name: old keywords (`renamed`), old calls (`translated`), and old addresses (`moved`).
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

Target = TypeVar("Target", bound=Callable)

_GOES_IN = "0.4"


def renamed(**new_names: str) -> Callable[[Target], Target]:
    """Lets a function or a constructor accept old names of keywords:
    `@renamed(components="n_components")`. The signature, `help` and type checkers show the new
    ones.

    Fields of a class can also be read by their old names.
    """

    def decorate(target: Any) -> Any:
        name = target.__name__
        if not inspect.isclass(target):
            return _with_new_names(target, name, new_names)
        target.__init__ = _with_new_names(target.__init__, name, new_names)
        for old, new in new_names.items():
            setattr(target, old, _old_field(name, old, new))
        return target

    return decorate


def translated(
    translate: Callable[..., tuple[tuple, dict, str] | None],
) -> Callable[[Target], Target]:
    """Lets a function accept calls of an old form.

    `translate(*args, **kwargs)` returns the arguments in the new form and a text that describes the
    change, or None for a call that already has the new form.
    """

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def called(*args, **kwargs):
            changed = translate(*args, **kwargs)
            if changed is None:
                return function(*args, **kwargs)
            new_args, new_kwargs, text = changed
            _warn_of(text)
            return function(*new_args, **new_kwargs)

        return called

    return decorate


def moved(module: str, addresses: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a module that finds old names at their new addresses, such as `{"grid":
    "kernax.grid_search"}`.
    """

    def get(name: str) -> Any:
        if name not in addresses:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, new_name = addresses[name].rpartition(".")
        _warn_of(f"{module}.{name} is {addresses[name]} now")
        return getattr(import_module(place), new_name)

    return get


def _warn_of(text: str) -> None:
    """Warns of an old name, at the line that uses it."""
    # `solution` imports JAX, which a package of lazy names does not need.
    from kernax.core.base.solution import warn

    warn(f"{text}; the old form is removed in {_GOES_IN}", DeprecationWarning)


def _with_new_names(function: Callable, name: str, new_names: dict[str, str]) -> Callable:
    """The function, with old names of keywords replaced in its calls."""

    @functools.wraps(function)
    def called(*args, **kwargs):
        for keyword in tuple(kwargs):
            new = new_names.get(keyword)
            if new is None:
                continue
            if new in kwargs:
                raise TypeError(f"{name} got both {new} and {keyword}, which is its old name")
            _warn_of(f"the argument {keyword} of {name} is called {new} now")
            kwargs[new] = kwargs.pop(keyword)
        return function(*args, **kwargs)

    return called


def _old_field(name: str, old: str, new: str) -> property:
    """A field under its old name, to read."""

    def value(self):
        _warn_of(f"{name}.{old} is called {new} now")
        return getattr(self, new)

    return property(value)
