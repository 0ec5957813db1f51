"""Files that are written completely or not at all."""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Writes to a temporary file and moves it to `path`, so that the file there is never
    incomplete.

    A symbolic link is followed: its target is written, and the link stays. Unfinished files of
    killed processes that wrote to this path are removed.

    Raises OSError for a folder, a device or anything else that is not a file, and if no file can be
    written.
    """
    check_is_no_folder(path)
    with _unfinished(path) as (unfinished, target):
        _remove_unfinished(path)
        write(unfinished)
        os.replace(unfinished, target)


def write_through(path: Path) -> None:
    """Waits until a file, or the list of files in a folder, is physically on the disk."""
    is_folder = path.is_dir()
    if is_folder and os.name != "posix":
        return  # Windows opens no folders, and flushes no file that is only open for reading
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_place(path: Path) -> None:
    """Raises the OSError that `write_whole` would raise, except for folders, by creating and
    removing a file.
    """
    with _unfinished(path) as (unfinished, _):
        unfinished.touch()


@contextlib.contextmanager
def _unfinished(path: Path) -> Iterator[tuple[Path, Path]]:
    """The path of the temporary file, and the final path, which is `path` with its links followed.
    Errors name `path`.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    # Moving a file to a device, a pipe or a socket would remove something that others use, such as
    # `/dev/null`. A loop of links and an invalid name raise OSError here.
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(errno.EINVAL, "it is a device, a pipe or a socket, not a file", str(path))
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


_LONGEST_BEGINNING = 100  # bytes of the target's name, of the 255 that file systems allow


def _beginning(path: Path) -> str:
    """The beginning of the names of temporary files for `path`; the process number follows."""
    name = os.fsencode(path.name)[:_LONGEST_BEGINNING].decode(errors="ignore")
    return f".{name}."


def _remove_unfinished(path: Path) -> None:
    """Removes the unfinished files of `path`, left by processes killed while they wrote it."""
    target = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):  # a folder that cannot be listed, or a file of another user
        for left in target.parent.iterdir():
            number = left.name.removeprefix(_beginning(target)).removesuffix(".part")
            is_unfinished = left.name == f"{_beginning(target)}{number}.part" and number.isdecimal()
            if is_unfinished and left.is_file() and not _is_running(int(number)):
                left.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    """Whether a process with that number may exist on this machine."""
    if os.name != "posix":
        return True  # on Windows os.kill would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # a process of another user, or not the number of a process
    return True


def check_is_no_folder(path: Path) -> None:
    """Raises OSError for a folder."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file")
