"""The arguments and options of the commands, their help texts, and the ranges of their numbers."""

import enum
import platform
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from kernax.cli.table import LEAST_ROWS
from kernax.preparation.model_names import GP, IVM, LOGISTIC, RIDGE, RVM, SVM
from kernax.preparation.tokens import Tokens
from kernax.selection.recipes.latent_choices import Inference, Likelihood

AUTO = "auto"  # a kernel that is searched for
DEFAULT_KERNEL = "1.0*rbf + 0.1*linear"


class Method(enum.StrEnum):
    """The ways in which `cluster` groups rows."""

    KMEANS = "kmeans"
    SPECTRAL = "spectral"


class RouteName(enum.StrEnum):
    """The methods for many rows."""

    WHOLE = "whole"
    CENTRES = "centres"
    ROWS = "rows"


class ModelName(enum.StrEnum):
    """The models that `fit` takes."""

    GP = GP
    RIDGE = RIDGE
    LOGISTIC = LOGISTIC
    SVM = SVM
    IVM = IVM
    RVM = RVM


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(
            f"kernax {metadata.version('kernax-toolkit')}, jax {metadata.version('jax')}, Python "
            f"{platform.python_version()}"
        )
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=_say_version, is_eager=True, help="Show the version and exit."
    ),
]
Data = Annotated[
    Path,
    typer.Argument(metavar="DATA.csv", help="A table with a header: comma, semicolon or tab."),
]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A file that 'kernax fit --out' wrote.")
]
Target = Annotated[
    str, typer.Option(metavar="COLUMN", help="The column to predict; all others are inputs.")
]
Kernel = Annotated[
    str,
    typer.Option(
        help="Such as '2.0*rbf + linear', 'normalised(spectrum(3))', or auto to search for one."
    ),
]
ClustersOption = Annotated[int, typer.Option(metavar="K", help="How many clusters.")]
ClusterKernel = Annotated[
    str | None,
    typer.Option(
        help="Such as 'matern52(lengthscale=3)' or 'normalised(spectrum(3))'.",
        show_default="rbf of the median distance",
    ),
]
Grouping = Annotated[
    Method, typer.Option(help="Around means in the kernel's space, or by cutting a graph.")
]
Groups = Annotated[
    Path | None,
    typer.Option(metavar="CLUSTERS.csv", help="Write the cluster of each row there."),
]
ClusterSeed = Annotated[int, typer.Option(help="Seeds the starts.")]
ModelOption = Annotated[
    ModelName | None,
    typer.Option(
        help="For numbers gp, ridge, rvm; for classes logistic, svm, ivm, rvm, gp; for counts gp.",
        show_default="gp, for classes logistic",
    ),
]
Distribution = Annotated[
    Likelihood | None,
    typer.Option(
        help="Distribution of the target given the process: of numbers, classes or counts.",
        show_default="gaussian, for classes bernoulli",
    ),
]
Approximation = Annotated[
    Inference | None,
    typer.Option(
        help="How a process of classes or counts is approximated.",
        show_default="laplace",
    ),
]
TokensOption = Annotated[
    Tokens | None,
    typer.Option(help="What string kernels count in a column of text.", show_default="letters"),
]
Ignored = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="COLUMN", help="Leave this column out; may be given again."),
]
RowsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Learn from N of the rows, drawn at random.",
        show_default="three quarters",
    ),
]
Route = Annotated[
    RouteName | None,
    typer.Option(
        help="The way to fit many rows: by one matrix, over centres, or some of them alone.",
        show_default="whole up to 10000 rows",
    ),
]
Centres = Annotated[
    int | None,
    typer.Option(
        metavar="M",
        help="Fit all rows over M of them as centres.",
        show_default="1000, for more than 10000 rows",
    ),
]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE.png", help="Draw the learned model (.png, .pdf, .svg).")
]
Out = Annotated[
    Path | None, typer.Option(metavar="MODEL", help="Write the model, for predict and describe.")
]
Restarts = Annotated[
    int, typer.Option(metavar="N", help="The number of starts for learning; the best is kept.")
]
Seed = Annotated[int, typer.Option(help="Seeds the choice of held-out rows, and the starts.")]
Predictions = Annotated[
    Path | None, typer.Option(metavar="PRED.csv", help="Write there instead of to the terminal.")
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="COLUMN",
        help="Repeat this column of the table, such as an id; may be given again.",
    ),
]
Interval = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        help="The probability with which intervals of numbers or counts hold the target.",
        show_default="0.95",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Threads for linear algebra.",
        show_default="1, for more than 1000 rows all cores",
    ),
]
NoCache = Annotated[
    bool, typer.Option("--no-cache", help="Keep no compiled programs in the user's cache folder.")
]
NoPriors = Annotated[
    bool, typer.Option("--no-priors", help="Learn a Gaussian process from the evidence alone.")
]


def check_options(
    seed: int, restarts: int, threads: int | None, rows: int | None, centres: int | None
) -> None:
    """Raises ValueError for numbers out of range."""
    check_seed(seed)
    if not 1 <= restarts <= 1000:
        raise ValueError(f"--restarts must be between 1 and 1000, but is {restarts}")
    if rows is not None and rows < LEAST_ROWS:
        raise ValueError(f"--rows must be at least {LEAST_ROWS}, but is {rows}")
    check_threads(threads)
    if centres is not None and centres < 2:
        raise ValueError(f"--centres must be at least 2, but is {centres}")


def check_seed(seed: int) -> None:
    """Raises ValueError for a negative seed."""
    if seed < 0:
        raise ValueError(f"--seed must not be negative, but is {seed}")


def check_threads(threads: int | None) -> None:
    """Raises ValueError unless `threads` is None or at least 1."""
    if threads is not None and threads < 1:
        raise ValueError(f"--threads must be at least 1, but is {threads}")
