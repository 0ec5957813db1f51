"""The commands: `kernax fit`, `kernax predict`, `kernax describe`, `kernax cluster`.

An error in the input is one line on stderr and exit code 2; a failed solve has exit code 1.
"""

import time
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path

import typer

from kernax.cli import options
from kernax.cli.options import check_options, check_seed, check_threads
from kernax.cli.refusals import check_picture, check_writable, importing, one_line_errors
from kernax.cli.table import CLUSTER, check_table, read_columns, read_inputs, read_table
from kernax.cli.words import check_words
from kernax.files.archive import check_archive

# The commands import JAX, and what computes with it, after their options and tables are checked:
# help texts, and most errors, take a fraction of the time of these imports.

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def kernax(version: options.Version = False) -> None:
    """Differentiable kernel methods: fit a table of numbers, or of text, from the command line."""


@app.command()
def fit(
    data: options.Data,
    target: options.Target,
    kernel: options.Kernel = options.DEFAULT_KERNEL,
    model: options.ModelOption = None,
    likelihood: options.Distribution = None,
    inference: options.Approximation = None,
    tokens: options.TokensOption = None,
    ignore: options.Ignored = None,
    rows: options.RowsOption = None,
    route: options.Route = None,
    centres: options.Centres = None,
    plot: options.Plot = None,
    out: options.Out = None,
    restarts: options.Restarts = 1,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    no_cache: options.NoCache = False,
    no_priors: options.NoPriors = False,
) -> None:
    """Learns a kernel for a table, and reports how well it predicts held-out rows.

    A quarter of the rows is held out, and columns are standardised. A target
    of words, of 0 and 1 or of -1 and 1 is treated as classes, unless --model
    ridge or --likelihood gaussian says that it is a number.

    A Gaussian process learns the noise and the kernel's parameters from the
    evidence, ridge from the leave-one-out error: one lengthscale per column
    unless you write one, or one for all where there are fewer than twenty rows
    a column. Weak priors keep a process away from implausible values: log-normal
    ones around the start for lengthscales and scales, and a floor for the noise.
    With one input column the picture is the process itself.

    Logistic regression and the support vector machine classify two or more
    classes, given by names or numbers. They learn the kernel and the penalty
    from the log loss on folds, by gradients through the fit: first a common
    lengthscale, then one per column. Held-out folds decide which is saved, or
    whether the kernel stays as written. With two input columns
    the picture shows the regions of the classes. --model ivm learns as logistic
    regression does, and then keeps few of the rows, its import vectors.

    --model rvm learns a kernel of numbers as a process does, of classes as
    logistic regression does, and then keeps few rows, its relevance vectors.

    A Gaussian process classifies with --model gp: two by --likelihood
    bernoulli or probit, several by the softmax of a process for each. It
    predicts counts with --likelihood poisson or negative-binomial, which is for
    counts that vary more. --inference says how it is approximated: by laplace,
    which is fast, ep or variational, both for two classes and counts. It learns
    from its approximate evidence, in the same stages as classifiers.

    --kernel auto searches for a kernel of numbers, a sum of products, by the
    evidence, and says in words and as an expression what it found.

    More than 10000 rows are not fitted by one matrix of all pairs: a kernel of
    numbers is learned from 2000 of them, of two classes by logistic regression
    from 600, and all are then fitted over 1000 of them as centres, in memory
    and time that grow with the rows alone. Along one column, processes whose kernel
    has a state-space model, such as matern52, learn from all, exactly. Other
    models learn from 3000 rows. --route, --centres and --rows decide otherwise.

    Columns that are not all numbers become numbers, and a line says how.
    Words of few kinds get a column of 0 and 1 for each; empty cells, NA and
    ? the median of their column, with a column that marks them; dates
    become days since the first, and phases of the year, the week and the
    day where the rows resolve them. Dates are not filled in: a table with an
    empty date is refused. Medians, categories and means are those of the
    training rows. Rows with an empty target are left out. Decimal commas are
    parsed if semicolons or tabs separate the cells.

    String kernels compare columns of text, by the letters or the words that
    cells share; cells may be empty. They are spectrum(k), blended_spectrum(k),
    mismatch(k, m), all_substrings, subsequence(length) and all_subsequences.
    Write normalised(spectrum(3)), so that long texts do not count for more than
    short ones, and add or multiply kernels of numbers, which compare all other
    columns. text('name', spectrum(3)) compares the column of that name;
    without, each column of free text adds its own.
    """
    begin = time.monotonic()
    with one_line_errors() as names:
        check_options(seed, restarts, threads, rows, centres)
        _check_files(data, plot, out)
        whole = read_table(data, target, ignore or ())
        # Before a search, columns are checked as those of any kernel of numbers.
        written = "rbf" if kernel == options.AUTO else kernel
        check_words(written)
        with importing():
            import jax

            from kernax.cli.compared_columns import compared_columns
        with jax.enable_x64(True):
            table = compared_columns(whole, written, tokens)
        with importing():
            from kernax.cli.console import print_report, say_total_time, stdout
            from kernax.cli.fitting import (
                check_auto,
                fitted_to_all,
                learn,
                print_split,
                written_or_found,
            )
            from kernax.cli.job import kernel_of
            from kernax.cli.notation import parameter_names
            from kernax.cli.picture import draw
            from kernax.cli.plan import plan_for
            from kernax.cli.resources import compiled_programs
            from kernax.cli.route import cost_in_words, rows_and_way
            from kernax.core.base.threads import linear_algebra_threads
            from kernax.files import save_predictor
        with jax.enable_x64(True), compiled_programs(keep=not no_cache):
            plan = plan_for(table.target, model, likelihood, inference, restarts)
            check_auto(kernel, plan)
            split = partial(plan.split, table, seed, tokens)
            parts, few, way = rows_and_way(plan, split, rows, kernel, route, centres)
            console = stdout()
            print_split(console, plan, data, whole, parts, few)
            cost = cost_in_words(plan, parts, way)
            if cost is not None:
                console.print(cost, markup=False)
            with linear_algebra_threads(len(few.y), threads):
                kernel = written_or_found(console, kernel, few, seed)
                names |= parameter_names(kernel_of(few, kernel), "kernel.")
                report = learn(few, kernel, plan, restarts, seed, not no_priors)
            report = fitted_to_all(report, few, parts, way, seed, threads)
            print_report(console, report, kernel)
            if out is not None:
                save_predictor(out, report.predictor)
                console.print(f"model: {out}", markup=False)
            if plot is not None:
                draw(plot, report, parts)
                console.print(f"picture: {plot}", markup=False)
            say_total_time(begin)


def _check_files(data: Path, plot: Path | None, out: Path | None) -> None:
    if plot is not None:
        check_picture(plot, data)
    if out is not None:
        check_writable(out, "--out", data, plot, needs="safetensors")


@app.command()
def predict(
    model: options.Model,
    data: options.Data,
    keep: options.KeepOption = None,
    interval: options.Interval = None,
    out: options.Predictions = None,
    threads: options.Threads = None,
    no_cache: options.NoCache = False,
) -> None:
    """Predicts the target for the rows of a table.

    Columns are found by their names, in any order; others are ignored,
    unless --keep repeats them. They are prepared as in training: with the
    same medians, categories, first day and decimal commas. Letters, words
    and categories that the training rows do not have match nothing.

    A Gaussian process of numbers or counts adds the ends of a central interval
    that holds the target with probability 0.95, or --interval. Of classes it
    adds the probability of each, as logistic regression does, and a support
    vector machine its decision values.
    """
    with one_line_errors():
        check_threads(threads)
        if out is not None:
            check_writable(out, "--out", data, model)
        check_archive(model)
        check_table(data)
        with importing():
            import jax
            import numpy as np

            from kernax.cli.answers import answer_columns, as_csv, cells_of
            from kernax.cli.resources import compiled_programs
            from kernax.core.base.threads import linear_algebra_threads
            from kernax.core.base.whole_files import write_whole
            from kernax.files import load_predictor
        with jax.enable_x64(True), compiled_programs(keep=not no_cache):
            predictor = load_predictor(model)
            inputs = predictor.inputs
            rows, kept = read_columns(data, inputs.names, keep or [], inputs.commas)
            inputs.warn_of_strangers(rows)
            points = inputs.points(rows)
            with linear_algebra_threads(len(rows[0].cells), threads):
                columns = answer_columns(predictor, points, interval)
            first = rows[0]
            figures = np.stack([column for column in columns.values() if column.dtype.kind == "f"])
            wrong = np.flatnonzero(~np.all(np.isfinite(figures), 0))
            if len(wrong):
                raise ValueError(
                    f"{first.file}, {first.places[wrong[0]]}: the row is too far from the training "
                    "rows: its prediction overflows"
                )
            _check_kept(kept, columns, "the prediction", data)
            repeated = {name: list(cells) for name, cells in kept.items()}
            text = as_csv(repeated | {name: cells_of(column) for name, column in columns.items()})
            if out is None:
                typer.echo(text, nl=False)
            else:
                write_whole(out, lambda path: path.write_text(text, encoding="utf-8"))


def _check_kept(kept: Iterable[str], written: Collection[str], what: str, data: Path) -> None:
    for name in kept:
        if name in written:
            raise ValueError(
                f"--keep {name}: that is the name of {what}: rename the column in {data}"
            )


@app.command()
def describe(model: options.Model) -> None:
    """Describes a model file: its target, its columns, its kernel."""
    with one_line_errors():
        check_archive(model)
        with importing():
            import equinox as eqx
            import jax

            from kernax.cli.answers import summary
            from kernax.cli.console import print_parameters, stdout, title_of
            from kernax.cli.notation import expression_on, parameter_rows
            from kernax.files import load_predictor
        with jax.enable_x64(True):
            predictor = load_predictor(model)
            console = stdout()
            try:
                kernel = expression_on(predictor.kernel, predictor.inputs)
            except ValueError:
                kernel = eqx.tree_pformat(predictor.kernel, width=1000)
            for line in (*summary(predictor), f"kernel {kernel}"):
                console.print(line, markup=False)
            columns = predictor.inputs.columns
            rows = parameter_rows(predictor.kernel, columns)
            print_parameters(console, rows, title_of("its parameters", columns))


@app.command()
def cluster(
    data: options.Data,
    clusters: options.ClustersOption,
    kernel: options.ClusterKernel = None,
    method: options.Grouping = options.Method.KMEANS,
    tokens: options.TokensOption = None,
    ignore: options.Ignored = None,
    keep: options.KeepOption = None,
    plot: options.Plot = None,
    out: options.Groups = None,
    seed: options.ClusterSeed = 0,
    threads: options.Threads = None,
    no_cache: options.NoCache = False,
) -> None:
    """Groups the rows of a table, and describes each group.

    All columns are compared except those left out with --ignore; they are
    prepared as by 'kernax fit'. kmeans puts rows around means in the space
    of the kernel, spectral cuts the graph whose edges are the kernel's
    values. String kernels compare a column of text.
    """
    with one_line_errors():
        check_threads(threads)
        check_seed(seed)
        _check_files(data, plot, None)
        if out is not None:
            check_writable(out, "--out", data, plot)
        table, kept = read_inputs(data, ignore or (), keep or ())
        _check_kept(kept, [CLUSTER], "the written column", data)
        if kernel is not None:
            check_words(kernel)
        with importing():
            import jax

            from kernax.cli.answers import as_csv
            from kernax.cli.cluster import cluster as find_clusters
            from kernax.cli.console import print_clusters, stdout
            from kernax.cli.picture import draw_clusters
            from kernax.cli.resources import compiled_programs
            from kernax.core.base.threads import linear_algebra_threads
            from kernax.core.base.whole_files import write_whole
        with jax.enable_x64(True), compiled_programs(keep=not no_cache):
            with linear_algebra_threads(table.count, threads):
                found = find_clusters(table, kernel, tokens, clusters, method, seed)
            console = stdout()
            print_clusters(console, data, found, table)
            if out is not None:
                # The number of the cluster of each row, from 1 on, behind the columns to keep.
                columns = {name: list(cells) for name, cells in kept.items()}
                columns[CLUSTER] = [str(label + 1) for label in found.labels]
                text = as_csv(columns)
                write_whole(out, lambda path: path.write_text(text, encoding="utf-8"))
                console.print(f"clusters: {out}", markup=False)
            if plot is not None:
                draw_clusters(plot, found)
                console.print(f"picture: {plot}", markup=False)
