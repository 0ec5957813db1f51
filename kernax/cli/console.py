"""The tables and the progress that commands print."""

import contextlib
import time
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
from kernax.cli.job import FitReport, in_digits, remark_on_baseline
from kernax.cli.table import InputTable
from kernax.preparation.cells import listed
from kernax.preparation.inputs import Inputs


def stdout() -> Console:
    """The console for results."""
    return Console(highlight=False, soft_wrap=True)


def print_report(console: Console, report: FitReport, kernel: str) -> None:
    """Prints held-out scores, then the learned parameters, then remarks.

    Arguments:
        kernel: the expression of the kernel as written.
    """
    scores = RichTable("model", title=Text(report.title), title_justify="left")
    for measure in next(iter(report.scores.values())):
        scores.add_column(measure, justify="right")
    for name, row in report.scores.items():
        scores.add_row(name, *map(in_digits, row, row.values()))
    console.print(scores)
    title = title_of("learned", report.predictor.inputs.columns)
    print_parameters(console, report.parameters, title)
    print_lines(console, (*report.remarks, *remark_on_baseline(report, kernel)))


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
