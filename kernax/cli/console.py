"""What the commands say: one line for everything wrong, tables, pictures and files that appear whole or not at all."""

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from kernax.cli.job import Report
from kernax.errors import MemoryBudgetError, SolveError
from kernax.files import check_place

PICTURES = (".png", ".pdf", ".svg")


@contextlib.contextmanager
def one_line_errors() -> Iterator[dict[str, str]]:
    """Exceptions that mean something to the user become one line and an exit code; warnings become notes.

    Whatever is entered into the dictionary is replaced in both: the path of a parameter by a name.
    """
    names: dict[str, str] = {}
    try:
        with warnings.catch_warnings(record=True, action="always") as notes:
            yield names
        for text in dict.fromkeys(str(note.message) for note in notes):
            _say("note", text, names)
    except (SolveError, MemoryBudgetError) as problem:
        advice = "; --rows N learns from fewer of them" if isinstance(problem, MemoryBudgetError) else ""
        _say("error", f"{problem}{advice}", names)
        raise typer.Exit(1) from None
    except OSError as problem:
        _say("error", f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem), names)
        raise typer.Exit(2) from None
    except ValueError as problem:
        _say("error", str(problem), names)
        raise typer.Exit(2) from None


def _say(kind: str, text: str, names: dict[str, str]) -> None:
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(path, names[path])
    typer.echo(f"{kind}: {' '.join(text.split())}", err=True)


def check_picture(path: Path, *others: Path | None) -> None:
    """Refuses, before anything is computed, what could not be written after."""
    if path.suffix.lower() not in PICTURES:
        raise ValueError(f"--plot {path}: a picture's name must end in {', '.join(PICTURES[:-1])} or {PICTURES[-1]}")
    check_writable(path, "--plot", *others, needs="matplotlib")


def check_writable(path: Path, option: str, *others: Path | None, needs: str | None = None) -> None:
    """Refuses a place where no file can be written, what needs a package that is missing, and what overwrites the others."""
    if needs is not None and importlib.util.find_spec(needs) is None:
        raise ValueError(f"{option} needs {needs}: pip install 'kernax-toolkit[cli]'")
    for other in others:
        if other is not None and other.resolve() == path.resolve():
            raise ValueError(f"{option} {path} would overwrite {other}: choose another name")
    if not path.parent.is_dir():
        raise ValueError(f"{option} {path}: there is no folder {path.parent}")
    try:
        check_place(path)
        taken = path.exists() and not path.is_file()
    except OSError as problem:
        raise ValueError(f"{option} {path}: cannot write a file there: {problem.strerror}") from None
    if taken:
        raise ValueError(f"{option} {path}: that is {'a folder' if path.is_dir() else 'a device'}, not a place for a file")


def print_report(console: Console, report: Report) -> None:
    """Held-out scores, then the learned parameters, then what else there is to say."""
    scores = RichTable("model", title=Text(report.title), title_justify="left")
    for measure in report.measures:
        scores.add_column(measure, justify="right")
    for name, row in report.scores.items():
        scores.add_row(name, *row)
    console.print(scores)
    print_parameters(console, report.parameters, title_of("learned", report.predictor.inputs.columns))
    for remark in report.remarks:
        console.print(remark, markup=False)


def title_of(what: str, columns: tuple[str, ...]) -> str:
    """Parameters of numbers are in standardised units."""
    return f"{what}, for standardised columns" if columns else what


def print_parameters(console: Console, rows: tuple[tuple[str, ...], ...], title: str) -> None:
    """The table that `kernax.describe` makes, unless there is nothing in it."""
    if not rows:
        return
    table = RichTable("parameter", "value", "support", "state", title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
