"""The commands. Whatever is wrong with the input is one line on stderr and exit code 2; a failed solve, exit code 1."""

import contextlib
import enum
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from kernax.cli.expression import parse_kernel
from kernax.cli.fit import Report, fit_ridge, one_per_column, split
from kernax.cli.table import read_table
from kernax.core.solution import MemoryBudgetError, SolveError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

_PICTURES = (".png", ".pdf", ".svg")


class ModelName(enum.StrEnum):
    """The models that `fit` knows."""

    RIDGE = "ridge"


@app.callback()
def kernax() -> None:
    """Differentiable kernel methods: fit a table of numbers from the command line."""


@app.command()
def fit(
    data: Annotated[Path, typer.Argument(metavar="DATA.csv", help="A table with a header: comma, semicolon or tab, UTF-8.")],
    target: Annotated[str, typer.Option(metavar="COLUMN", help="The column to predict; all others are inputs.")],
    kernel: Annotated[str, typer.Option(help="Such as '2.0*rbf + linear', 'matern52(lengthscale=3)'.")] = "rbf + 0.1*linear",
    model: Annotated[ModelName, typer.Option(help="What to fit.")] = ModelName.RIDGE,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw held-out predictions (.png, .pdf, .svg).")] = None,
    seed: Annotated[int, typer.Option(help="Decides which rows are held out.")] = 0,
) -> None:
    """Learns a kernel for a table, and says how well it predicts rows that it has not seen.

    A quarter of the rows is held out, and columns are standardised.

    The ridge and the kernel's parameters are learned from the leave-one-out
    error: one lengthscale per column unless you write one, or one for all
    where there are fewer than twenty rows a column.
    """
    with _one_line_errors(), jax.enable_x64(True):
        if seed < 0:
            raise ValueError(f"--seed must not be negative, but is {seed}")
        if plot is not None:
            _check_picture(plot)
        table = read_table(data, target)
        parse_kernel(kernel, len(table.columns))
        parts = split(table, seed)
        console = Console(highlight=False, soft_wrap=True)
        console.print(
            f"{data}: {len(table.y)} rows, {_plural(len(table.columns), 'input column')}; "
            f"learning from {len(parts.y)} rows, {len(parts.y_held_out)} held out",
            markup=False,
        )
        if not one_per_column(parts):
            console.print("fewer than 20 rows a column to learn from: lengthscales are shared by all columns")
        report = fit_ridge(table, parts, kernel)
        _print_report(console, report, target)
        if plot is not None:
            _draw(plot, report, target)
            console.print(f"picture: {plot}", markup=False)


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """Exceptions that mean something to the user become one line and an exit code; warnings become notes."""
    try:
        with warnings.catch_warnings(record=True, action="always") as notes:
            yield
        for text in dict.fromkeys(str(note.message) for note in notes):
            _say("note", text)
    except (SolveError, MemoryBudgetError) as problem:
        _say("error", str(problem))
        raise typer.Exit(1) from None
    except (ValueError, OSError) as problem:
        _say("error", str(problem))
        raise typer.Exit(2) from None


def _say(kind: str, text: str) -> None:
    typer.echo(f"{kind}: {' '.join(text.split())}", err=True)


def _check_picture(path: Path) -> None:
    """Refuses, before anything is computed, what could not be written after."""
    if path.suffix.lower() not in _PICTURES:
        raise ValueError(f"--plot {path}: a picture's name must end in {', '.join(_PICTURES[:-1])} or {_PICTURES[-1]}")
    if not path.parent.is_dir():
        raise ValueError(f"--plot {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise ValueError(f"--plot {path}: cannot write a file there")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise ValueError("--plot needs matplotlib: pip install 'kernax-toolkit[plot]'") from None


def _draw(path: Path, report: Report, target: str) -> None:
    """Writes beside the target and moves into place, so that no one ever sees half a picture."""
    from kernax.plot import predicted_against_true

    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        figure = predicted_against_true(report.true, report.predicted, name=target).get_figure(root=True)
        assert figure is not None  # new axes have one
        figure.savefig(unfinished, format=path.suffix.lower().lstrip("."))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _print_report(console: Console, report: Report, target: str) -> None:
    errors = RichTable("model", title=Text(f"held-out RMSE, in units of {target}"))
    errors.add_column("RMSE", justify="right")
    for name, error in report.errors.items():
        errors.add_row(name, f"{error:.5g}")
    learned = RichTable("parameter", "value", "support", "state", title="learned, for standardised columns")
    errors.title_justify = learned.title_justify = "left"
    for row in report.parameters:
        learned.add_row(*map(Text, row))
    console.print(errors)
    console.print(learned)


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
