"""Files of arrays and texts in safetensors, with a checksum over all of them.

A file is written whole or not at all, and refused unless it is as it was written.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernax.errors import KernaxFileError

# Exceptions while reading a file that is damaged, or of another kind.
_SIGNS_OF_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OSError, OverflowError)


class Format(NamedTuple):
    """A kind of file."""

    mark: str  # its name and version, in the header
    noun: str  # what it is called in messages
    texts: tuple[str, ...]  # the names of its texts, in the order of the checksum

    def checksum(self, *contents: Any) -> str:
        """The SHA-256 of the texts and, last, the arrays, in hexadecimal digits."""
        *texts, arrays = contents
        digest = hashlib.sha256("".join(f"{text}\n" for text in (self.mark, *texts)).encode())
        for name in sorted(arrays):
            digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}\n".encode())
            digest.update(np.asarray(arrays[name], order="C").data)
        return digest.hexdigest()


def write_archive(
    path: str | os.PathLike, kind: Format, texts: dict[str, str], arrays: dict[str, np.ndarray]
) -> None:
    """Writes texts and arrays (booleans, integers and floats, by name) to one file.

    Raises OSError if there is no folder, or no place to write.
    """
    safetensors = check_safetensors()
    ordered = [texts[name] for name in kind.texts]
    header = {"format": kind.mark, **texts, "sha256": kind.checksum(*ordered, arrays)}
    contents = safetensors.numpy.save(arrays, header)
    write_whole(Path(path), lambda unfinished: _write_through(unfinished, contents))


def _write_through(path: Path, contents: bytes) -> None:
    """Writes a file and waits until the disk has it: once moved, it is whole after a power cut."""
    with path.open("wb") as file:
        file.write(contents)
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Writes to a file beside `path` and moves it there: no file at `path` is ever incomplete.

    A link is followed: the file that it names is written, and the link stays. What processes left
    that were killed while they wrote to this path is removed.

    Raises OSError for a folder, a device or anything else that is no file, and where no file can be
    written.
    """
    _check_is_no_folder(path)
    with _unfinished(path) as (unfinished, target):
        remove_unfinished(path)
        write(unfinished)
        os.replace(unfinished, target)


def check_place(path: Path) -> None:
    """Raises the OSError that `write_whole` would raise for anything but a folder, by creating and
    removing a file.
    """
    with _unfinished(path) as (unfinished, _):
        unfinished.touch()


@contextlib.contextmanager
def _unfinished(path: Path) -> Iterator[tuple[Path, Path]]:
    """The path to write to until the file is complete, and the one to move it to, which is `path`
    with its links followed. Errors name `path`.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    _check_is_replaceable(path)
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path} is a link to {target}, and there is no such folder")
    unfinished = target.parent / f"{_beginning(target)}{os.getpid()}.part"
    try:
        yield unfinished, target
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror or str(problem), str(path)) from problem
    finally:
        unfinished.unlink(missing_ok=True)


def _check_is_replaceable(path: Path) -> None:
    """Raises OSError for a device, a pipe or a socket, a loop of links, and a name that no file can
    have. Moving a file there would remove what others use: `/dev/null`, for example.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, "it is a device, a pipe or a socket, not a file", str(path))


_LONGEST_BEGINNING = 100  # bytes of the target's name, of the 255 that file systems allow


def _beginning(path: Path) -> str:
    """How the names of files begin that are to become `path`; the process's number follows."""
    name = os.fsencode(path.name)[:_LONGEST_BEGINNING].decode(errors="ignore")
    return f".{name}."


def remove_unfinished(path: Path) -> None:
    """Removes the unfinished files of `path`, left by processes killed while they wrote it."""
    target = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):  # of a folder that cannot be listed, or another user's file
        for left in target.parent.iterdir():
            number = left.name.removeprefix(_beginning(target)).removesuffix(".part")
            is_unfinished = left.name == f"{_beginning(target)}{number}.part" and number.isdecimal()
            if is_unfinished and left.is_file() and not _is_running(int(number)):
                left.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    """Whether there may be a process of that number on this machine."""
    if os.name != "posix":
        return True  # on Windows os.kill would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # a process of another user, or no number of a process
    return True


def read_archive(
    path: str | os.PathLike, kind: Format
) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The texts and arrays of a file whose checksum is right.

    Raises KernaxFileError for a file that is damaged or of another kind, OSError for a folder, and
    where there is no file.
    """
    header, arrays = _opened(path, kind)
    _check_dtypes(path, kind, arrays)
    missing = {*kind.texts, "sha256"} - set(header)
    if missing:
        raise KernaxFileError(
            f"{path} cannot be read as a {kind.noun}: it has no {', '.join(sorted(missing))}"
        )
    texts = {name: header[name] for name in kind.texts}
    if kind.checksum(*texts.values(), arrays) != header["sha256"]:
        raise KernaxFileError(f"{path} is damaged: its contents do not match their checksum")
    return texts, arrays


def holds(array: np.ndarray) -> bool:
    """Whether files hold arrays of this dtype: booleans, integers and floats of NumPy."""
    return array.dtype.kind in "biuf"


def _check_dtypes(path: str | os.PathLike, kind: Format, arrays: dict[str, np.ndarray]) -> None:
    """Raises KernaxFileError for an array of a dtype that files do not hold."""
    for array in arrays.values():
        if not holds(array):
            raise KernaxFileError(
                f"{path} holds an array of {array.dtype}, which no {kind.noun} does"
            )


def _opened(path: str | os.PathLike, kind: Format) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The header and the arrays of a file.

    safetensors compares every size with that of the file before it allocates memory.
    """
    safetensors = check_safetensors()
    _check_is_file(Path(path))
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            _check_mark(path, kind, header.get("format"))
            names = file.keys()
            return header, {name: file.get_tensor(name) for name in names}
    except KernaxFileError:
        raise
    except safetensors.SafetensorError as problem:
        raise KernaxFileError(f"{path} is not a {kind.noun}, or is cut short") from problem
    except _SIGNS_OF_DAMAGE as problem:
        raise KernaxFileError(f"{path} cannot be read as a {kind.noun}: {problem}") from problem


def _check_is_file(path: Path) -> None:
    """Raises OSError for a folder, and where there is nothing."""
    _check_is_no_folder(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")


def _check_is_no_folder(path: Path) -> None:
    """Raises OSError for a folder."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file")


def _check_mark(path: str | os.PathLike, kind: Format, found: str | None) -> None:
    """Raises KernaxFileError for another format than this version's."""
    if found != kind.mark:
        raise KernaxFileError(
            f"{path} is not a {kind.noun} of this version: its format is {found!r}"
        )


def check_safetensors() -> Any:
    """The package safetensors, which is optional. Raises ImportError where it is missing."""
    try:
        import safetensors
        import safetensors.numpy
    except ImportError:
        raise ImportError(
            "saving and loading needs safetensors: pip install 'kernax-toolkit[files]'"
        ) from None
    return safetensors
