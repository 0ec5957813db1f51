"""What files may name: kernax's own classes, and classes and functions that a user registered."""

import functools
import inspect
from types import ModuleType
from typing import Any, TypeVar

import equinox as eqx

from kernax import kernels
from kernax.core import expansion, features, kernel
from kernax.gp import process
from kernax.scale import random_features

Thing = TypeVar("Thing")
_registered: dict[str, Any] = {}


class KernaxFileError(ValueError):
    """A file is not a sound kernax model, or a model cannot be put into a file."""


def register(thing: Thing, name: str | None = None) -> Thing:
    """Lets files name an equinox module of yours, or a function that a module holds, by its `__name__` or the name given.

    `save` and `load` then take models with it inside: a network in a `Warped` kernel, a `Custom` kernel's function. A file
    holds the name and the fields, never the code: whoever loads it registers the same thing under the same name first.
    Fields are restored as they were, without a call of `__init__`. Usable as a decorator; what is registered comes back:

        @kernax.files.register
        class Cauchy(kernax.AbstractStationary): ...

        kernax.files.register(eqx.nn.MLP)
        kernax.files.register(eqx.nn.Linear, name="nn.Linear")  # Linear is a kernel
        kernax.files.register(jax.nn.relu)

    Raises ValueError for what is neither a concrete class derived from `equinox.Module` nor a function, for a lambda without a
    name, and for a name that is taken. A class or function defined once more in a notebook's cell takes its own place.
    """
    name = getattr(thing, "__name__", None) if name is None else name
    _check_kind(thing)
    if not isinstance(name, str) or not name or name == "<lambda>":
        raise ValueError(f"{thing!r} has no name of its own that a file could hold: register(it, name=...)")
    holder = own_classes().get(name) or _registered.get(name)
    if holder is not None and holder is not thing and not _is_defined_again(holder, thing):
        raise ValueError(f"the name {name} is taken by {holder!r}: register(..., name=...) takes another one")
    _registered[name] = thing
    return thing


def _check_kind(thing: Any) -> None:
    if inspect.isclass(thing):
        if not issubclass(thing, eqx.Module) or inspect.isabstract(thing):
            raise ValueError(
                f"only classes derived from equinox.Module, not abstract ones, can be registered, but got {thing!r}"
            )
    elif isinstance(thing, eqx.Module) or not callable(thing):
        raise ValueError(f"a class or a function can be registered, but got {thing!r}: of a module, register its class")


def _is_defined_again(old: Any, new: Any) -> bool:
    """Whether both come from one definition in a notebook or on a prompt, whose module is `__main__`."""
    source = lambda thing: (getattr(thing, "__module__", None), getattr(thing, "__qualname__", None))
    return source(old) == source(new) and source(new)[0] == "__main__" and inspect.isclass(old) == inspect.isclass(new)


@functools.cache
def own_classes() -> dict[str, type]:
    """The classes of kernax that files may name."""
    of_kernels = filter(inspect.ismodule, vars(kernels).values())
    rooms: list[ModuleType] = [kernel, features, expansion, process, random_features, *of_kernels]
    own = (cls for room in rooms for cls in vars(room).values() if inspect.isclass(cls) and cls.__module__ == room.__name__)
    return {cls.__name__: cls for cls in own if issubclass(cls, eqx.Module)}


def named(name: Any) -> Any:
    """The class or function of that name. Raises KernaxFileError where there is none."""
    thing = own_classes().get(name) or _registered.get(name)
    if thing is None or inspect.isabstract(thing):
        raise KernaxFileError(f"{name} is no class of this version of kernax, and not registered: see kernax.files.register")
    return thing


def name_of(thing: Any) -> str | None:
    """The name under which files know a class or function, if they do."""
    known = own_classes() | _registered
    return next((name for name, held in known.items() if held is thing), None)
