"""Models as JSON and numbered arrays, and back."""

import dataclasses
import inspect
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from kernax.core.base.functions import Static
from kernax.core.base.numerics import values_of
from kernax.core.base.solution import Solution
from kernax.core.operators.blocked import BlockedGram
from kernax.core.operators.mesh_gram import MeshGram
from kernax.errors import KernaxFileError
from kernax.files.archive import holds
from kernax.files.field_checks import check_fields, is_for_numpy
from kernax.files.registry import added_since, fields_in_files, name_of, named

_DEEPEST = 100  # modules inside modules
_KINDS = ("array", "numpy", "dict", "tuple", "list", "slice", "value", "function", "wrapped")


def structure_of(node: Any, arrays: dict[str, np.ndarray], path: str, depth: int = 0) -> Any:
    """A node as JSON; its arrays are added to `arrays` under their numbers."""
    if depth > _DEEPEST:
        raise KernaxFileError(f"{path} is nested too deeply")

    def within(part: Any, name: str) -> Any:
        return structure_of(part, arrays, f"{path}.{name}", depth + 1)

    if isinstance(node, Static):
        return {"wrapped": _name_of_function(node.function, path)}
    if isinstance(node, eqx.Module):
        if isinstance(node, MeshGram):  # files have no meshes: a loaded model is on one device
            node = BlockedGram(node.kernel, node.points, node.block_size)
        if name_of(type(node)) is None:
            raise KernaxFileError(f"{path} is {_foreign(node)}")
        try:
            check_fields(node)
        except ValueError as problem:
            raise KernaxFileError(f"{path} cannot be saved: {problem}") from problem
        names = fields_in_files(type(node))
        fields = {}
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            if isinstance(value, np.ndarray) and is_for_numpy(field.type):
                value = _OfNumPy(value)
            fields[names[field.name]] = within(value, field.name)
        return {"class": name_of(type(node)), "fields": fields}
    if type(node) is dict and all(isinstance(key, str) for key in node):
        return {"dict": {key: within(part, key) for key, part in node.items()}}
    if type(node) in (tuple, list):
        return {type(node).__name__: [within(part, str(i)) for i, part in enumerate(node)]}
    if isinstance(node, slice):
        return {"slice": [within(end, "slice") for end in (node.start, node.stop, node.step)]}
    if isinstance(node, _OfNumPy):
        return {"numpy": _numbered(node.array, arrays, path, any_width=True)}
    if isinstance(node, (jax.Array, np.ndarray, np.generic)):
        return {"array": _numbered(node, arrays, path)}
    if node is None or isinstance(node, (bool, int, float, str)):
        return {"value": node}
    if callable(node):
        return {"function": _name_of_function(node, path)}
    raise KernaxFileError(f"{path} is of type {type(node).__name__}, which a file cannot hold")


@dataclasses.dataclass(frozen=True)
class _OfNumPy:
    """An array that stays a NumPy array, with its own dtype regardless of JAX's 64-bit mode."""

    array: np.ndarray


def _numbered(array: Any, arrays: dict[str, np.ndarray], path: str, any_width: bool = False) -> str:
    """Adds an array to `arrays`, and returns its number, which is its name there."""
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    if is_key or not holds(values_of(array)):
        raise KernaxFileError(f"{path} is an array of {array.dtype}, which a file cannot hold")
    if not any_width:
        _check_width(array.dtype, path, "saving")
    name = str(len(arrays))
    values = values_of(array)
    arrays[name] = np.asarray(values, values.dtype.newbyteorder("="), order="C")
    return name


def _foreign(module: eqx.Module) -> str:
    """Names the class of a module that cannot be saved, and how to save it nevertheless."""
    if isinstance(module, Solution):
        return "a Solution, whose value is the model: save solution.value"
    name = type(module).__name__
    fields = [field.name for field in dataclasses.fields(module)] or ["kernel"]
    parts = "{" + ", ".join(f'"{field}": ...' for field in fields) + "}"
    package, _, _ = __name__.partition(".")
    if type(module).__module__.startswith(f"{package}."):
        return f"a {name}, which no file holds: save a dict of its parts, {parts}"
    return (
        f"a {name}, which is not a class of kernax: kernax.files.register({name}), here and "
        f"wherever the file is loaded, or save a dict of its parts instead, {parts}"
    )


def _name_of_function(function: Any, path: str) -> str:
    name = None if inspect.isclass(function) else name_of(function)
    if name is None:
        raise KernaxFileError(
            f"{path} is a plain function, {getattr(function, '__name__', function)}: "
            "kernax.files.register it, here and wherever the file is loaded, or save only "
            "its arrays"
        )
    return name


def restored(node: Any, arrays: dict[str, np.ndarray], depth: int = 0) -> Any:
    """The inverse of `structure_of`; removes every array that it uses from `arrays`."""
    if depth > _DEEPEST:
        raise KernaxFileError("it is nested too deeply")

    def within(part: Any) -> Any:
        return restored(part, arrays, depth + 1)

    if isinstance(node, dict) and set(node) == {"class", "fields"}:
        fields = {name: within(part) for name, part in node["fields"].items()}
        return _module(node["class"], fields)
    # A node that is not a module has one key, its kind, with its content as the value.
    if not isinstance(node, dict) or len(node) != 1 or not set(node) <= set(_KINDS):
        raise KernaxFileError(f"{str(node)[:60]} is not part of a model")
    ((kind, content),) = node.items()
    if kind == "dict":
        return {key: within(part) for key, part in content.items()}
    if kind in _CONTAINERS:
        if not isinstance(content, list):
            raise KernaxFileError(f"{str(content)[:60]} is not a list of parts")
        return _CONTAINERS[kind]([within(part) for part in content])
    if kind == "array":
        array = arrays.pop(content)
        _check_width(array.dtype, "it", "loading")
        return jnp.asarray(array)
    if kind == "numpy":
        return arrays.pop(content)
    if kind == "value":
        if content is not None and not isinstance(content, (bool, int, float, str)):
            raise KernaxFileError(f"{str(content)[:60]} is not a value")
        return content
    # The only remaining kind is the name of a registered function, wrapped or not.
    function = named(content)
    if inspect.isclass(function):
        raise KernaxFileError(f"{content} is a class, where the file needs a function")
    return function if kind == "function" else Static(function)


def _slice(parts: list[Any]) -> slice:
    if len(parts) != 3 or not all(part is None or type(part) is int for part in parts):
        raise KernaxFileError(
            f"a slice has a start, an end and a step, integers or null, but the file has {parts}"
        )
    return slice(*parts)


_CONTAINERS = {"tuple": tuple, "list": list, "slice": _slice}


def _module(name: Any, fields: dict[str, Any]) -> eqx.Module:
    cls = named(name)
    if not (isinstance(cls, type) and issubclass(cls, eqx.Module)):
        raise KernaxFileError(f"{name} is a function, where the file needs a class")
    fields = added_since(cls) | fields
    names = fields_in_files(cls)
    if sorted(names.values()) != sorted(fields):
        raise KernaxFileError(
            f"{name} has fields {', '.join(names.values())}, but the file has {', '.join(fields)}"
        )
    # The constructor is not called, because it might round or reject the saved values.
    module = object.__new__(cls)
    for field, in_file in names.items():
        object.__setattr__(module, field, fields[in_file])
    check_fields(module)
    return module


def _check_width(dtype: Any, what: str, verb: str) -> None:
    """Raises KernaxFileError for 64-bit numbers that JAX would cast to 32 bits."""
    if dtype.itemsize == 8 and not jax.config.jax_enable_x64:  # pyright: ignore
        raise KernaxFileError(
            f"{what} holds {dtype}: call jax.config.update('jax_enable_x64', True) before {verb} it"
        )
