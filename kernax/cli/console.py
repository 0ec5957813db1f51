"""The output of the commands: one-line errors and tables; and checks of paths to write to."""

import contextlib
import importlib.util
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table as RichTable
from rich.text import Text

from kernax.cli.cluster import Clusters, summary
from kernax.cli.job import FitReport, in_digits
from kernax.cli.table import InputTable
from kernax.core.base.whole_files import check_place
from kernax.errors import MemoryBudgetError, SolveError
from kernax.preparation.cells import listed
from kernax.preparation.inputs import Inputs

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


def print_report(console: Console, report: FitReport) -> None:
    """Prints held-out scores, then the learned parameters, then remarks."""
    scores = RichTable("model", title=Text(report.title), title_justify="left")
    for measure in next(iter(report.scores.values())):
        scores.add_column(measure, justify="right")
    for name, row in report.scores.items():
        scores.add_row(name, *map(in_digits, row, row.values()))
    console.print(scores)
    title = title_of("learned", report.predictor.inputs.columns)
    print_parameters(console, report.parameters, title)
    print_lines(console, report.remarks)


def print_clusters(console: Console, data: Path, found: Clusters, table: InputTable) -> None:
    """Prints how many rows each cluster has, and what is typical of it."""
    header, rows = summary(found, table)
    console.print(f"{data}: {table.count} rows compared by {found.inputs}", markup=False)
    print_inputs(console, table, found.inputs)
    shown = RichTable(header[0], title="clusters", title_justify="left")
    for name in header[1:]:
        shown.add_column(Text(name), justify="right")
    for row in rows:
        shown.add_row(*map(Text, row))
    console.print(shown)
    console.print(found.remark, markup=False)


def print_inputs(console: Console, table: InputTable, inputs: Inputs) -> None:
    """Prints the decisions about rows and columns, and the unused columns."""
    print_lines(console, (*table.announcements, *inputs.announcements(table.inputs)))
    used = set(inputs.names)
    unused = [name for name in table.columns if name not in used]
    if unused:
        console.print(
            f"the kernel only compares text, and does not use {listed(unused)}", markup=False
        )


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Prints each line as it is."""
    for line in lines:
        console.print(line, markup=False)


_LONG = 10.0  # seconds after which a line is written where no bar can be drawn


def with_a_bar(jobs: Sequence[Any]) -> Iterator[Any]:
    """The folds to learn on, with a bar on stderr that shows the elapsed and the remaining time."""
    console = Console(stderr=True)
    begin = time.monotonic()
    columns = (*Progress.get_default_columns(), MofNCompleteColumn(), TimeElapsedColumn())
    with _drawn(console, columns) as progress:
        task = progress.add_task("learning on folds", total=len(jobs))
        for count, job in enumerate(jobs, 1):
            yield job
            progress.advance(task)
            _say_time(console, f"learning on folds: {count} of {len(jobs)}", begin)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows on stderr what is being done, and for how long, until it is done."""
    console = Console(stderr=True)
    begin = time.monotonic()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with _drawn(console, columns) as progress:
        progress.add_task(what, total=None)
        yield
    _say_time(console, what, begin)


def _drawn(console: Console, columns: Sequence[ProgressColumn]) -> Progress:
    """A line that is redrawn on a terminal, and removed at the end; nothing elsewhere."""
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _say_time(console: Console, what: str, begin: float) -> None:
    """Writes a line on a long step if stderr is a file or a pipe, which shows no bar."""
    seconds = time.monotonic() - begin
    if not console.is_terminal and seconds > _LONG:
        typer.echo(f"{what}, after {seconds:.0f} s", err=True)


def say_total_time(begin: float) -> None:
    """Writes how long a command took if that was long: on stderr, not among the results."""
    seconds = time.monotonic() - begin
    if seconds > _LONG:
        typer.echo(f"done, after {seconds:.0f} s", err=True)


def title_of(what: str, columns: tuple[str, ...]) -> str:
    """The title of a table of parameters, with their units if there are columns of numbers."""
    return f"{what}, for standardised columns" if columns else what


def print_parameters(console: Console, rows: tuple[tuple[str, ...], ...], title: str) -> None:
    """Prints the table of `kernax.describe`, unless it is empty."""
    if not rows:
        return
    table = RichTable("parameter", "value", "interval", "state", title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)
