"""The commands. Whatever is wrong with the input is one line on stderr and exit code 2; a failed solve, exit code 1."""

import csv
import enum
import io
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from rich.console import Console

from kernax.cli.console import (
    check_picture,
    check_writable,
    one_line_errors,
    print_parameters,
    print_report,
)
from kernax.cli.expression import parse_kernel
from kernax.cli.fit import Report, Split, one_per_column, split
from kernax.cli.fit import fit as learn
from kernax.cli.predictor import GP, INTERVAL, RIDGE, load_predictor, parameter_rows
from kernax.cli.table import plural, read_columns, read_table
from kernax.files import write_whole

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


class ModelName(enum.StrEnum):
    """The models that `fit` knows."""

    GP = GP
    RIDGE = RIDGE


Data = Annotated[Path, typer.Argument(metavar="DATA.csv", help="A table with a header: comma, semicolon or tab, UTF-8.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A file that 'kernax fit --out' wrote.")]


@app.callback()
def kernax() -> None:
    """Differentiable kernel methods: fit a table of numbers from the command line."""


@app.command()
def fit(
    data: Data,
    target: Annotated[str, typer.Option(metavar="COLUMN", help="The column to predict; all others are inputs.")],
    kernel: Annotated[
        str, typer.Option(help="Such as '2.0*rbf + linear', 'matern52(lengthscale=3)'.")
    ] = "1.0*rbf + 0.1*linear",
    model: Annotated[ModelName, typer.Option(help="A Gaussian process, or kernel ridge regression.")] = ModelName.GP,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw held-out predictions (.png, .pdf, .svg).")] = None,
    out: Annotated[Path | None, typer.Option(metavar="MODEL", help="Write the model, for predict and describe.")] = None,
    restarts: Annotated[int, typer.Option(metavar="N", help="Starts to learn from: the best one wins.")] = 1,
    seed: Annotated[int, typer.Option(help="Decides which rows are held out, and the starts.")] = 0,
) -> None:
    """Learns a kernel for a table, and says how well it predicts rows that it has not seen.

    A quarter of the rows is held out, and columns are standardised.

    A Gaussian process learns the noise and the kernel's parameters from the
    evidence, ridge from the leave-one-out error: one lengthscale per column
    unless you write one, or one for all where there are fewer than twenty rows
    a column. With one input column the picture is the process itself.
    """
    with one_line_errors(), jax.enable_x64(True):
        if seed < 0:
            raise ValueError(f"--seed must not be negative, but is {seed}")
        if not 1 <= restarts <= 1000:
            raise ValueError(f"--restarts must be between 1 and 1000, but is {restarts}")
        if plot is not None:
            check_picture(plot, data)
        if out is not None:
            check_writable(out, "--out", data, plot, needs="safetensors")
        table = read_table(data, target)
        parse_kernel(kernel, len(table.columns))
        parts = split(table, seed)
        console = Console(highlight=False, soft_wrap=True)
        console.print(
            f"{data}: {len(table.y)} rows, {plural(len(table.columns), 'input column')}; "
            f"learning from {len(parts.y)} rows, {len(parts.y_held_out)} held out",
            markup=False,
        )
        if not one_per_column(parts):
            console.print("fewer than 20 rows a column to learn from: lengthscales are shared by all columns")
        report = learn(parts, kernel, model.value, restarts, seed)
        print_report(console, report, target)
        if restarts > 1:
            losses = np.asarray(report.solution.stats["start_losses"])
            losses = losses[np.isfinite(losses)]
            failed = int(np.sum(report.solution.stats["failed"]))
            console.print(f"{restarts} starts, {failed} failed; losses from {losses.min():.5g} to {losses.max():.5g}")
        if out is not None:
            report.predictor.save(out)
            console.print(f"model: {out}", markup=False)
        if plot is not None:
            _draw(plot, report, parts)
            console.print(f"picture: {plot}", markup=False)


@app.command()
def predict(
    model: Model,
    data: Data,
    out: Annotated[Path | None, typer.Option(metavar="PRED.csv", help="Write there instead of to the terminal.")] = None,
) -> None:
    """Predicts the target for the rows of a table.

    Columns are found by their names, in any order; others are ignored. A
    Gaussian process adds the ends of an interval that holds the target with
    probability 0.95.
    """
    with one_line_errors(), jax.enable_x64(True):
        if out is not None:
            check_writable(out, "--out", data, model)
        predictor = load_predictor(model)
        mean, deviation = predictor(read_columns(data, predictor.standards.columns))
        wrong = np.flatnonzero(~np.isfinite(mean))
        if len(wrong):
            raise ValueError(f"{data}: row {wrong[0] + 1} is too far from what the model has seen: its prediction overflows")
        target = predictor.standards.target
        columns = {target: mean}
        if deviation is not None:
            columns |= {f"{target} low": mean - INTERVAL * deviation, f"{target} high": mean + INTERVAL * deviation}
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*(map(repr, column.tolist()) for column in columns.values())))
        if out is None:
            typer.echo(text.getvalue(), nl=False)
        else:
            write_whole(out, lambda path: path.write_text(text.getvalue(), encoding="utf-8"))


@app.command()
def describe(model: Model) -> None:
    """Says what is in a model file: its target, its columns, its kernel."""
    with one_line_errors(), jax.enable_x64(True):
        predictor = load_predictor(model)
        units, console = predictor.standards, Console(highlight=False, soft_wrap=True)
        what = {GP: "Gaussian process", RIDGE: "kernel ridge regression"}[predictor.kind]
        console.print(f"{what} for {units.target!r}, from {', '.join(map(repr, units.columns))}", markup=False)
        noise = "noise variance" if predictor.kind == GP else "ridge"
        console.print(f"{noise} {predictor.noise:.6g}, for a target of mean 0 and variance 1")
        print_parameters(console, parameter_rows(predictor.kernel, units.columns), "kernel, for standardised columns")


def _draw(path: Path, report: Report, parts: Split) -> None:
    """The process over its one input; otherwise predictions against the truth."""
    from kernax.plot import posterior_band, predicted_against_true

    units, predictor = parts.standards, report.predictor
    if len(units.columns) == 1 and predictor.kind == GP:
        back = lambda X: units.centre[0] + units.scale[0] * X[:, 0]
        everywhere = np.r_[parts.X, parts.X_held_out]
        grid = np.linspace(everywhere.min(), everywhere.max(), 400)[:, None]
        mean, deviation = predictor.at_standardised(grid)
        assert deviation is not None
        observed = back(parts.X), units.mean + units.deviation * parts.y
        held_out = back(parts.X_held_out), parts.y_held_out
        names = units.columns[0], units.target
        ax = posterior_band(back(grid), mean, deviation, observed=observed, held_out=held_out, names=names)
    else:
        predicted, _ = predictor.at_standardised(parts.X_held_out)
        ax = predicted_against_true(parts.y_held_out, predicted, name=units.target)
    figure = ax.get_figure(root=True)
    assert figure is not None  # new axes have one
    write_whole(path, lambda unfinished: figure.savefig(unfinished, format=path.suffix.lower().lstrip(".")))
