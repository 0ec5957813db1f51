"""Files of arrays and texts in safetensors, with a checksum over all of them.

A file is written completely or not at all, and a file that was changed is rejected.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kernax.core.base.whole_files import check_is_no_folder, write_through, write_whole
from kernax.errors import KernaxFileError

_MARK = "kernax 1"  # name and version of the format
_TEXTS = ("model", "notes")  # in the order of the checksum
# Exceptions raised while reading a file that is damaged or has another format.
_SIGNS_OF_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OSError, OverflowError)


def write_archive(
    path: str | os.PathLike, model: str, notes: str, arrays: dict[str, np.ndarray]
) -> None:
    """Writes texts and arrays (booleans, integers and floats, by name) to one file.

    Raises OSError if the folder does not exist or cannot be written to.
    """
    safetensors = _check_safetensors()
    header = {
        "format": _MARK,
        "model": model,
        "notes": notes,
        "sha256": checksum(model, notes, arrays),
    }
    contents = safetensors.numpy.save(arrays, header)

    def write(unfinished: Path) -> None:
        unfinished.write_bytes(contents)
        write_through(unfinished)  # a file with its final name is complete even after a power cut

    write_whole(Path(path), write)


def check_archive(path: str | os.PathLike) -> None:
    """Raises as `read_archive` does for a missing file and for another format, without reading the
    arrays.
    """
    with _opened(path):
        pass


def read_archive(path: str | os.PathLike) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """Reads the texts and arrays of a file, and verifies its checksum.

    Raises KernaxFileError for a file that is damaged or has another format, and OSError for a
    folder or a missing file.
    """
    with _opened(path) as (file, header):
        names = file.keys()
        arrays = {name: file.get_tensor(name) for name in names}
    for array in arrays.values():
        if not holds(array):
            raise KernaxFileError(
                f"{path} holds an array of {array.dtype}, which a kernax model cannot hold"
            )
    missing = {*_TEXTS, "sha256"} - set(header)
    if missing:
        raise KernaxFileError(
            f"{path} cannot be read as a kernax model: it has no {', '.join(sorted(missing))}"
        )
    if checksum(header["model"], header["notes"], arrays) != header["sha256"]:
        raise KernaxFileError(f"{path} is damaged: its contents do not match their checksum")
    return {name: header[name] for name in _TEXTS}, arrays


@contextlib.contextmanager
def _opened(path: str | os.PathLike) -> Iterator[tuple[Any, dict[str, str]]]:
    """A file of this format, open for reading, and its texts."""
    safetensors = _check_safetensors()
    check_is_no_folder(Path(path))
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        # safetensors compares every size with that of the file before it allocates memory.
        with safetensors.safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            found = header.get("format")
            if found != _MARK:
                raise KernaxFileError(
                    f"{path} is not a kernax model of this version: its format is {found!r}"
                )
            yield file, header
    except KernaxFileError:
        raise
    except safetensors.SafetensorError as problem:
        raise KernaxFileError(f"{path} is not a kernax model, or is cut short") from problem
    except _SIGNS_OF_DAMAGE as problem:
        raise KernaxFileError(f"{path} cannot be read as a kernax model: {problem}") from problem


def checksum(model: str, notes: str, arrays: dict[str, np.ndarray]) -> str:
    """The SHA-256 of the texts and the arrays, in hexadecimal digits."""
    digest = hashlib.sha256(f"{_MARK}\n{model}\n{notes}\n".encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
        digest.update(np.asarray(arrays[name], order="C").data)
    return digest.hexdigest()


def holds(array: np.ndarray) -> bool:
    """Whether files can hold arrays of this dtype: booleans, integers and floats of NumPy."""
    return array.dtype.kind in "biuf"


def _check_safetensors() -> Any:
    """The optional package safetensors. Raises ImportError if it is not installed."""
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise ImportError(
            "saving and loading needs safetensors: pip install 'kernax-toolkit[files]'"
        ) from None
    return safetensors
