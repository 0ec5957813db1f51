"""A model as JSON and numbered arrays, and back."""

import dataclasses
import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kernax.core.functions import Static
from kernax.core.solution import Solution
from kernax.files.fields import check_fields
from kernax.files.registry import KernaxFileError, name_of, named

_DEEPEST = 100  # modules inside modules
_KINDS = ("array", "dict", "tuple", "list", "slice", "value", "function", "wrapped")


def described(node: Any, arrays: dict[str, np.ndarray], path: str, depth: int = 0) -> Any:
    """A node as JSON; its arrays go into `arrays` under their numbers."""
    if depth > _DEEPEST:
        raise KernaxFileError(f"{path} is nested too deeply")
    within = lambda part, name: described(part, arrays, f"{path}.{name}", depth + 1)
    if isinstance(node, Static):
        return {"wrapped": _name_of_function(node.function, path)}
    if isinstance(node, eqx.Module):
        _check_module(node, path)
        fields = {field.name: within(getattr(node, field.name), field.name) for field in dataclasses.fields(node)}
        return {"class": name_of(type(node)), "fields": fields}
    if type(node) in (tuple, list):
        return {type(node).__name__: [within(part, str(i)) for i, part in enumerate(node)]}
    if type(node) is dict and all(isinstance(key, str) for key in node):
        return {"dict": {key: within(part, key) for key, part in node.items()}}
    if isinstance(node, slice):
        return {"slice": [within(part, "slice") for part in (node.start, node.stop, node.step)]}
    return _leaf(node, arrays, path)


def _leaf(node: Any, arrays: dict[str, np.ndarray], path: str) -> dict[str, Any]:
    """What has no parts: an array, a value, a function by its name."""
    if isinstance(node, (jax.Array, np.ndarray, np.generic)):
        return {"array": _numbered(node, arrays, path)}
    if node is None or isinstance(node, (bool, int, float, str)):
        return {"value": node}
    if callable(node):
        return {"function": _name_of_function(node, path)}
    raise KernaxFileError(f"{path} is of type {type(node).__name__}, which a file cannot hold")


def _numbered(array: Any, arrays: dict[str, np.ndarray], path: str) -> str:
    """The number under which an array went into `arrays`."""
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) or not holds(np.asarray(array)):
        raise KernaxFileError(f"{path} is an array of {array.dtype}, which a file cannot hold")
    _check_width(array.dtype, path, "saving")
    name = str(len(arrays))
    arrays[name] = np.asarray(array, np.asarray(array).dtype.newbyteorder("="), order="C")
    return name


def holds(array: np.ndarray) -> bool:
    """Whether an array is of a dtype that files hold: booleans, integers and floats of NumPy's own."""
    return array.dtype.kind in "biuf"


def _check_module(module: eqx.Module, path: str) -> None:
    if name_of(type(module)) is None:
        raise KernaxFileError(f"{path} is {_foreign(module)}")
    try:
        check_fields(module)
    except ValueError as problem:
        raise KernaxFileError(f"{path} cannot be saved: {problem}") from problem


def _foreign(module: eqx.Module) -> str:
    """What a module of no class of kernax is, and what can be done."""
    name = type(module).__name__
    if isinstance(module, Solution):
        return "a Solution, of which the value is the model: save solution.value"
    parts = ", ".join(f'"{field.name}": ...' for field in dataclasses.fields(module)) or '"kernel": ...'
    return (
        f"a {name}, which is no class of kernax: kernax.files.register({name}), here and wherever the file is loaded, "
        f"or save a dict of its parts instead, {{{parts}}}"
    )


def _name_of_function(function: Any, path: str) -> str:
    name = None if inspect.isclass(function) else name_of(function)
    if name is None:
        raise KernaxFileError(
            f"{path} is a plain function, {getattr(function, '__name__', function)}: "
            "kernax.files.register it, here and wherever the file is loaded, or keep the code and save its arrays"
        )
    return name


def restored(node: Any, arrays: dict[str, np.ndarray], depth: int = 0) -> Any:
    """The opposite of `described`; takes every array that it uses out of `arrays`."""
    if depth > _DEEPEST:
        raise KernaxFileError("it is nested too deeply")
    within = lambda part: restored(part, arrays, depth + 1)
    if not isinstance(node, dict) or set(node) not in ({"class", "fields"}, *({kind} for kind in _KINDS)):
        raise KernaxFileError(f"{str(node)[:60]} is no part of a model")
    if "class" in node:
        return _module(node["class"], {name: within(part) for name, part in node["fields"].items()})
    ((kind, content),) = node.items()
    if kind == "dict":
        return {key: within(part) for key, part in content.items()}
    if kind in ("tuple", "list", "slice"):
        return _CONTAINERS[kind]([within(part) for part in _listed(content)])
    return _array(arrays.pop(content)) if kind == "array" else _restored_leaf(kind, content)


def _restored_leaf(kind: str, content: Any) -> Any:
    if kind == "value":
        return _value(content)
    return _function(content) if kind == "function" else Static(_function(content))


def _listed(content: Any) -> list[Any]:
    if not isinstance(content, list):
        raise KernaxFileError(f"{str(content)[:60]} is no list of parts")
    return content


def _array(array: np.ndarray) -> jax.Array:
    _check_width(array.dtype, "it", "loading")
    return jnp.asarray(array)


def _slice(parts: list[Any]) -> slice:
    if len(parts) != 3 or not all(part is None or type(part) is int for part in parts):
        raise KernaxFileError(f"a slice has a start, an end and a step, integers or null, but the file has {parts}")
    return slice(*parts)


_CONTAINERS = {"tuple": tuple, "list": list, "slice": _slice}


def _value(content: Any) -> Any:
    if content is not None and not isinstance(content, (bool, int, float, str)):
        raise KernaxFileError(f"{str(content)[:60]} is no value")
    return content


def _function(name: Any) -> Any:
    function = named(name)
    if inspect.isclass(function):
        raise KernaxFileError(f"{name} is a class, where the file needs a function")
    return function


def _module(name: Any, fields: dict[str, Any]) -> eqx.Module:
    cls = named(name)
    if not (isinstance(cls, type) and issubclass(cls, eqx.Module)):
        raise KernaxFileError(f"{name} is a function, where the file needs a class")
    wanted = [field.name for field in dataclasses.fields(cls)]
    if sorted(wanted) != sorted(fields):
        raise KernaxFileError(f"{name} has fields {', '.join(wanted)}, but the file has {', '.join(fields)}")
    module = object.__new__(cls)
    for field in wanted:  # as they were: no constructor, which might round or refuse
        object.__setattr__(module, field, fields[field])
    check_fields(module)
    return module


def _check_width(dtype: Any, what: str, verb: str) -> None:
    if dtype.itemsize == 8 and not jax.config.jax_enable_x64:  # pyright: ignore
        raise KernaxFileError(f"{what} holds {dtype}: call jax.config.update('jax_enable_x64', True) before {verb} it")
