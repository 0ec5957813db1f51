"""The file: arrays and texts in safetensors, with a checksum over all of them."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import PyTree

from kernax.files.registry import KernaxFileError
from kernax.files.structure import described, holds, restored

_FORMAT = "kernax 1"
# Exceptions while reading a file that is damaged, or of another kind.
_SIGNS_OF_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OSError, OverflowError)


def save(path: str | os.PathLike, model: PyTree, *, notes: dict[str, Any] | None = None) -> None:
    """Writes a model to a file, from which `load` returns it bitwise.

    A model is a kernel, an expansion, a Gaussian process, or tuples and dicts of them. `notes` is
    anything that JSON can hold, for `load_notes`. The file is written whole or not at all.

    Raises KernaxFileError for a model that holds functions, or modules of classes that are not
    kernax's own: `register` them, or save a dict of their parts. Also for fields of the wrong type,
    for float64 arrays while JAX's 64-bit mode is off, and for notes that JSON cannot hold. OSError
    if there is no folder.
    """
    safetensors = _safetensors()
    arrays: dict[str, np.ndarray] = {}
    structure = json.dumps(described(model, arrays, "model"))
    remarks = _notes_as_json(notes or {})
    header = {
        "format": _FORMAT,
        "model": structure,
        "notes": remarks,
        "sha256": _checksum(structure, remarks, arrays),
    }
    contents = safetensors.numpy.save(arrays, header)
    write_whole(Path(path), lambda unfinished: unfinished.write_bytes(contents))


def _notes_as_json(notes: dict[str, Any]) -> str:
    """The notes as JSON. Raises KernaxFileError for what JSON cannot hold."""
    try:
        return json.dumps(notes)
    except (TypeError, ValueError, RecursionError) as problem:
        raise KernaxFileError(f"the notes cannot be saved: {problem}") from problem


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Writes to a file beside the target and moves it there, so that no file is ever incomplete."""
    with _unfinished(path) as unfinished:
        write(unfinished)
        os.replace(unfinished, path)


def check_place(path: Path) -> None:
    """Raises the OSError that `write_whole` would raise, by creating and removing a file."""
    with _unfinished(path) as unfinished:
        with contextlib.suppress(FileNotFoundError):
            path.stat()  # its own name may be too long
        unfinished.touch()


@contextlib.contextmanager
def _unfinished(path: Path) -> Iterator[Path]:
    """The path to write to until the file is complete; errors name the target."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    unfinished = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
    try:
        yield unfinished
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror or str(problem), str(path)) from problem
    finally:
        unfinished.unlink(missing_ok=True)


def load(path: str | os.PathLike) -> Any:
    """The model that `save` wrote, bitwise.

    Raises KernaxFileError for a file that is damaged, of another kind or of a newer kernax, for one
    that names what is not registered, for fields of a type that their classes do not declare, and
    for float64 arrays while JAX's 64-bit mode is off. Shapes are those in the file, and the values
    of arrays are checked against the intervals of parameters only. OSError if there is no such
    file, or it is a folder.
    """
    structure, _, arrays = _read(path)
    unused = dict(arrays)
    try:
        model = restored(json.loads(structure), unused)
        if unused:
            raise KernaxFileError(f"arrays {', '.join(unused)} belong to no part of the model")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise KernaxFileError(f"{path} cannot be loaded as a kernax model: {problem}") from problem
    return model


def load_notes(path: str | os.PathLike) -> dict[str, Any]:
    """The notes that were given to `save`."""
    text = _read(path)[1]
    try:
        notes = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise KernaxFileError(f"{path} has notes that are not JSON: {problem}") from problem
    if not isinstance(notes, dict):
        raise KernaxFileError(f"{path} has notes that are no dict")
    return notes


def _read(path: str | os.PathLike) -> tuple[str, str, dict[str, np.ndarray]]:
    """Structure, notes and arrays of a file whose checksum is right."""
    header, arrays = _opened(path)
    _check_dtypes(path, arrays)
    missing = {"model", "notes", "sha256"} - set(header)
    if missing:
        raise KernaxFileError(
            f"{path} cannot be read as a kernax model: it has no {', '.join(sorted(missing))}"
        )
    if _checksum(header["model"], header["notes"], arrays) != header["sha256"]:
        raise KernaxFileError(f"{path} is damaged: its contents do not match their checksum")
    return header["model"], header["notes"], arrays


def _check_dtypes(path: str | os.PathLike, arrays: dict[str, np.ndarray]) -> None:
    """Raises KernaxFileError for an array of a dtype that no model has."""
    for array in arrays.values():
        if not holds(array):
            raise KernaxFileError(
                f"{path} holds an array of {array.dtype}, which no kernax model does"
            )


def _opened(path: str | os.PathLike) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The texts and arrays of a file.

    safetensors compares every size with that of the file before it allocates memory.
    """
    safetensors = _safetensors()
    _check_is_file(Path(path))
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            _check_format(path, header.get("format"))
            names = file.keys()
            return header, {name: file.get_tensor(name) for name in names}
    except KernaxFileError:
        raise
    except safetensors.SafetensorError as problem:
        raise KernaxFileError(f"{path} is not a kernax model, or is cut short") from problem
    except _SIGNS_OF_DAMAGE as problem:
        raise KernaxFileError(f"{path} cannot be read as a kernax model: {problem}") from problem


def _check_is_file(path: Path) -> None:
    """Raises OSError for a folder, and where there is nothing."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")


def _check_format(path: str | os.PathLike, found: str | None) -> None:
    """Raises KernaxFileError for another format than this version's."""
    if found != _FORMAT:
        raise KernaxFileError(
            f"{path} is not a kernax model of this version: its format is {found!r}"
        )


def _checksum(structure: str, notes: str, arrays: dict[str, np.ndarray]) -> str:
    """The SHA-256 of all contents, in hexadecimal digits."""
    digest = hashlib.sha256(f"{_FORMAT}\n{structure}\n{notes}\n".encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        digest.update(np.asarray(arrays[name], order="C").data)
    return digest.hexdigest()


def _safetensors() -> Any:
    """The package safetensors, which is optional."""
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise ImportError(
            "saving and loading needs safetensors: pip install 'kernax-toolkit[files]'"
        ) from None
    return safetensors
