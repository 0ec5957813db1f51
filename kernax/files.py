"""Models in files: one self-describing safetensors file each, no pickle. Needs `pip install 'kernax-toolkit[files]'`.

A file holds the model's arrays and, as JSON in the header, its structure: classes of a closed list, by name, with their
fields. Nothing in it is ever executed. A checksum over both tells a damaged file from a sound one.
"""

import dataclasses
import hashlib
import inspect
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kernax import kernels
from kernax.core import expansion, features, kernel
from kernax.core.functions import Static
from kernax.core.parameters import check_supports
from kernax.gp import process
from kernax.scale import random_features

_FORMAT = "kernax 1"
_DEEPEST = 100  # modules inside modules


class KernaxFileError(ValueError):
    """A file is not a sound kernax model, or a model cannot be put into a file."""


def save(path: str | os.PathLike, model: PyTree, *, notes: dict[str, Any] | None = None) -> None:
    """Writes a model (a kernel, an expansion, a Gaussian process, tuples and dicts of them); `load` gives it back bitwise.

    `notes` is anything JSON can hold, for `load_notes`. The file appears whole or not at all.

    Raises KernaxFileError for a model that holds functions, or modules of classes that are not kernax's own: of a module of
    yours, save a dict of its parts. Also for float64 arrays while JAX's 64-bit mode is off. OSError if there is no folder.
    """
    safetensors = _safetensors()
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps(_described(model, arrays, "model", 0))
    remarks = json.dumps(notes or {})
    header = {"format": _FORMAT, "model": structure, "notes": remarks, "sha256": _checksum(structure, remarks, arrays)}
    write_whole(Path(path), lambda unfinished: unfinished.write_bytes(safetensors.numpy.save(arrays, header)))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Writes beside the target and moves into place, so that no one ever sees half a file."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def load(path: str | os.PathLike) -> Any:
    """The model that `save` wrote, bitwise.

    Raises KernaxFileError for a file that is damaged, of another kind or of a newer kernax, and for float64 arrays while JAX's
    64-bit mode is off. OSError if there is none, or a folder.
    """
    structure, _, arrays = _read(path)
    unused = dict(arrays)
    try:
        model = _restored(json.loads(structure), unused, 0)
        if unused:
            raise KernaxFileError(f"arrays {', '.join(unused)} belong to no part of the model")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise KernaxFileError(f"{path} cannot be loaded as a kernax model: {problem}") from problem
    return model


def load_notes(path: str | os.PathLike) -> dict[str, Any]:
    """The notes that were given to `save`."""
    try:
        return json.loads(_read(path)[1])
    except json.JSONDecodeError as problem:
        raise KernaxFileError(f"{path} has notes that are not JSON: {problem}") from problem


def _registry() -> dict[str, type]:
    """The classes that files may name."""
    of_kernels = filter(inspect.ismodule, vars(kernels).values())
    rooms: list[ModuleType] = [kernel, features, expansion, process, random_features, *of_kernels]
    own = (cls for room in rooms for cls in vars(room).values() if inspect.isclass(cls) and cls.__module__ == room.__name__)
    return {cls.__name__: cls for cls in own if issubclass(cls, eqx.Module)}


def _described(node: Any, arrays: dict[str, np.ndarray], path: str, depth: int) -> Any:
    """A node as JSON; its arrays go into `arrays` under their numbers."""
    if depth > _DEEPEST:
        raise KernaxFileError(f"{path} is nested too deeply")
    within = lambda part, name: _described(part, arrays, f"{path}.{name}", depth + 1)
    if isinstance(node, (jax.Array, np.ndarray, np.generic)):
        if jnp.issubdtype(node.dtype, jax.dtypes.prng_key) or np.asarray(node).dtype.kind not in "biuf":
            raise KernaxFileError(f"{path} is an array of {node.dtype}, which a file cannot hold")
        _check_width(node.dtype, path, "saving")
        name = str(len(arrays))
        arrays[name] = np.asarray(node, np.asarray(node).dtype.newbyteorder("="), order="C")
        return {"array": name}
    if isinstance(node, eqx.Module):
        cls = type(node)
        if _registry().get(cls.__name__) is not cls:
            raise KernaxFileError(f"{path} is {_foreign(node)}")
        try:
            check_supports(node)
        except ValueError as problem:
            raise KernaxFileError(f"{path} cannot be saved: {problem}") from problem
        fields = {field.name: within(getattr(node, field.name), field.name) for field in dataclasses.fields(cls)}
        return {"class": cls.__name__, "fields": fields}
    if type(node) in (tuple, list):
        return {type(node).__name__: [within(part, str(i)) for i, part in enumerate(node)]}
    if type(node) is dict and all(isinstance(key, str) for key in node):
        return {"dict": {key: within(part, key) for key, part in node.items()}}
    if isinstance(node, slice):
        return {"slice": [within(part, "slice") for part in (node.start, node.stop, node.step)]}
    if node is None or isinstance(node, (bool, int, float, str)):
        return {"value": node}
    raise KernaxFileError(f"{path} is of type {type(node).__name__}, which a file cannot hold")


def _foreign(node: eqx.Module) -> str:
    """What a module of no class of kernax is, and what can be saved instead."""
    if isinstance(node, Static):
        return "a plain function: only kernax's own classes can be saved; keep the code and save its arrays"
    parts = ", ".join(f'"{field.name}": ...' for field in dataclasses.fields(node)) or '"kernel": ...'
    return (
        f"a {type(node).__name__}, which is no class of kernax: save a dict of its parts instead, {{{parts}}}, "
        "or the whole model with equinox.tree_serialise_leaves, which needs the code that made it to load it"
    )


def _restored(node: Any, arrays: dict[str, np.ndarray], depth: int) -> Any:
    """The opposite of `_described`; takes every array that it uses out of `arrays`."""
    if depth > _DEEPEST:
        raise KernaxFileError("it is nested too deeply")
    within = lambda part: _restored(part, arrays, depth + 1)
    if not isinstance(node, dict) or set(node) not in ({"class", "fields"}, *({kind} for kind in _KINDS)):
        raise KernaxFileError(f"{str(node)[:60]} is no part of a model")
    if "class" in node:
        return _module(node["class"], {name: within(part) for name, part in node["fields"].items()})
    ((kind, content),) = node.items()
    if kind == "array":
        _check_width(arrays[content].dtype, "it", "loading")
        return jnp.asarray(arrays.pop(content))
    if kind == "dict":
        return {key: within(part) for key, part in content.items()}
    return _KINDS[kind]([within(part) for part in content] if kind != "value" else content)


_KINDS: dict[str, Any] = {
    "array": None,
    "dict": None,
    "tuple": tuple,
    "list": list,
    "slice": lambda parts: slice(*parts),
    "value": lambda value: value,
}


def _module(name: str, fields: dict[str, Any]) -> eqx.Module:
    cls = _registry().get(name)
    if cls is None or inspect.isabstract(cls):
        raise KernaxFileError(f"{name} is no class of this version of kernax")
    wanted = [field.name for field in dataclasses.fields(cls)]
    if sorted(wanted) != sorted(fields):
        raise KernaxFileError(f"{name} has fields {', '.join(wanted)}, but the file has {', '.join(fields)}")
    module = object.__new__(cls)
    for field in wanted:  # as they were: no constructor, which might round or refuse
        object.__setattr__(module, field, fields[field])
    check_supports(module)
    return module


def _check_width(dtype: Any, what: str, verb: str) -> None:
    if dtype.itemsize == 8 and not jax.config.jax_enable_x64:  # pyright: ignore
        raise KernaxFileError(f"{what} holds {dtype}: call jax.config.update('jax_enable_x64', True) before {verb} it")


def _read(path: str | os.PathLike) -> tuple[str, str, dict[str, np.ndarray]]:
    """Structure, notes and arrays of a sound file. safetensors checks every size against the file's before it allocates."""
    safetensors = _safetensors()
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file")
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            if header.get("format") != _FORMAT:
                raise KernaxFileError(f"{path} is not a kernax model of this version: its format is {header.get('format')!r}")
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
        structure, notes, expected = header["model"], header["notes"], header["sha256"]
    except KernaxFileError:
        raise
    except safetensors.SafetensorError as problem:
        raise KernaxFileError(f"{path} is not a kernax model, or is cut short") from problem
    except (ValueError, KeyError, TypeError, OSError, OverflowError) as problem:
        raise KernaxFileError(f"{path} cannot be read as a kernax model: {problem}") from problem
    if _checksum(structure, notes, arrays) != expected:
        raise KernaxFileError(f"{path} is damaged: its contents do not match their checksum")
    return structure, notes, arrays


def _checksum(structure: str, notes: str, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(f"{_FORMAT}\n{structure}\n{notes}\n".encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        digest.update(np.asarray(arrays[name], order="C").data)
    return digest.hexdigest()


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise ImportError("saving and loading needs safetensors: pip install 'kernax-toolkit[files]'") from None
    return safetensors
