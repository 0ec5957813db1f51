"""Errors of the commands as one line, and checks of paths to write to."""

import contextlib
import importlib.util
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import typer

from kernax.core.base.whole_files import check_place
from kernax.errors import MemoryBudgetError, SolveError

PICTURES = (".png", ".pdf", ".svg")


@contextlib.contextmanager
def one_line_errors() -> Iterator[dict[str, str]]:
    """Turns exceptions into one line and an exit code, and warnings into notes.

    In both, paths of parameters, the keys of the dictionary, are replaced by their names, the
    values.
    """
    names: dict[str, str] = {}
    try:
        with warnings.catch_warnings(record=True, action="always") as notes:
            yield names
        for text in dict.fromkeys(str(note.message) for note in notes):
            _say("note", text, names)
    except (SolveError, MemoryBudgetError, OSError, ValueError) as problem:
        _say("error", _message(problem), names)
        failed = isinstance(problem, (SolveError, MemoryBudgetError))
        raise typer.Exit(1 if failed else 2) from None


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Leaves warnings of libraries that are imported out of the notes of `one_line_errors`."""
    with warnings.catch_warnings(action="ignore"):
        yield


def _message(problem: Exception) -> str:
    if isinstance(problem, MemoryBudgetError):
        return f"{problem}; --rows N learns from fewer of them"
    if isinstance(problem, OSError) and problem.filename:
        return f"{problem.filename}: {problem.strerror}"
    return str(problem)


def _say(kind: str, text: str, names: dict[str, str]) -> None:
    """Prints one line to stderr, with names in place of paths of parameters."""
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    typer.echo(f"{kind}: {' '.join(text.split())}", err=True)


def check_picture(path: Path, *others: Path | None) -> None:
    """Raises ValueError for a picture that could not be written after the fit."""
    if path.suffix.lower() not in PICTURES:
        raise ValueError(
            f"--plot {path}: a picture's name must end in {', '.join(PICTURES[:-1])} or "
            f"{PICTURES[-1]}"
        )
    check_writable(path, "--plot", *others, needs="matplotlib")


def check_writable(path: Path, option: str, *others: Path | None, needs: str | None = None) -> None:
    """Raises ValueError for a path that cannot be written, or that is one of the others.

    Also raises ValueError if a required package is missing.
    """
    if needs is not None and importlib.util.find_spec(needs) is None:
        raise ValueError(f"{option} needs {needs}: pip install 'kernax-toolkit[cli]'")
    for other in others:
        if other is not None and os.path.realpath(other) == os.path.realpath(path):
            raise ValueError(f"{option} {path} would overwrite {other}: choose another name")
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}")
    try:
        is_no_file = path.exists() and not path.is_file()
        if not is_no_file:
            check_place(path)
    except OSError as problem:
        raise ValueError(
            f"{option} {path}: cannot write a file there: {problem.strerror}"
        ) from None
    if is_no_file:
        what = "a folder" if path.is_dir() else "a device"
        raise ValueError(f"{option} {path}: that is {what}, not a place for a file")
