"""Does what `kernax fit` learns of classes predict better than the kernel as written? `python -m
benchmarks.learning`.

On each set and seed some rows are drawn to learn from, and up to 2000 of the others are held out:
more than the quarter that the command line holds out, so that the figures say something; everything
else is what the command does. Mean held-out log loss over the seeds, with the standard error of the
gain, of the class frequencies, of the kernel as written and of what was learned and saved; how
often which stage was saved. The bar: learned at most as written + 0.005 on every set. Needs the
shared data; breast cancer is scikit-learn's.
"""

import argparse
import json
import time
import warnings
from collections import Counter
from pathlib import Path

import jax
import numpy as np
from sklearn.datasets import load_breast_cancer

from benchmarks.report import environment
from benchmarks.restarts import DATA
from kernax.cli.classify import classify
from kernax.cli.job import Split, split_rows
from kernax.cli.plan import Plan
from kernax.cli.table import InputTable
from kernax.cli.target import labels
from kernax.preparation.cells import Column
from kernax.preparation.encoders import Tokens
from kernax.preparation.predictors import LOGISTIC
from kernax.selection.recipes.latent import Likelihood

SETS = (
    "banana",
    "titanic",
    "waveform",
    "ripley",
    "heart_scale",
    "svmguide1",
    "usps_3v5",
    "breast_cancer",
)
PLAN = Plan(LOGISTIC, Likelihood.BERNOULLI)
KERNEL, HELD_OUT, MARGIN = "1.0*rbf + 0.1*linear", 2000, 0.005


def table_of(name: str) -> InputTable:
    """A set as the command line would read it."""
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
    else:
        with np.load(DATA / f"{name}.npz") as file:
            parts = (
                [(file["X_train"], file["y_train"]), (file["X_test"], file["y_test"])]
                if "X_train" in file
                else None
            )
            X, y = map(np.concatenate, zip(*parts)) if parts else (file["X"], file["y"])
    X, y = np.asarray(X, float), np.ravel(y)
    inputs = tuple(Column.of_numbers(f"x{i}", column) for i, column in enumerate(X.T))
    places = tuple(f"row {i}" for i in range(len(y)))
    return InputTable(inputs, Column("class", tuple(f"{value:g}" for value in y), places))


def split(table: InputTable, seed: int, rows: int) -> Split:
    """At most so many rows to learn from, three quarters of a small set, and most of the others
    held out.
    """
    names, classes = labels(table)
    order = np.random.default_rng(seed).permutation(len(names))
    count = min(rows, 3 * len(names) // 4)
    return split_rows(
        table, Tokens.LETTERS, names, order[:count], order[count : count + HELD_OUT], classes
    )


def figures(table: InputTable, seed: int, rows: int) -> dict:
    """Held-out log losses of one seed, and what was saved."""
    before = time.perf_counter()
    report = classify(split(table, seed, rows), KERNEL, PLAN, with_priors=True)
    losses = [scores["log loss"] for scores in report.scores.values()]
    saved = next(line for line in report.remarks if line.startswith("saved: ")).removeprefix(
        "saved: "
    )
    return {
        "seed": seed,
        "losses": losses,
        "saved": saved,
        "seconds": round(time.perf_counter() - before, 1),
    }


def summary(name: str, runs: list[dict]) -> dict:
    """Means over the seeds, and whether the bar is met."""
    losses = np.array([run["losses"] for run in runs])
    gain = losses[:, 1] - losses[:, 2]
    means = dict(zip(("frequencies", "as_written", "learned"), losses.mean(0).round(4).tolist()))
    error = float(gain.std(ddof=1) / np.sqrt(len(runs))) if len(runs) > 1 else float("nan")
    return {
        "set": name,
        **means,
        "gain": round(float(gain.mean()), 4),
        "error_of_gain": round(error, 4),
        "saved": dict(Counter(run["saved"] for run in runs)),
        "met": bool(gain.mean() >= -MARGIN),
        "runs": runs,
    }


def arguments(program: str, sets: tuple[str, ...], rows: int) -> argparse.ArgumentParser:
    """The arguments of a program that learns from some rows of each set, once for each seed."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{program}")
    parser.add_argument(
        "--sets", nargs="*", default=sets, choices=sets, metavar="SET", help=", ".join(sets)
    )
    parser.add_argument(
        "--seeds", type=int, default=10, metavar="N", help="splits of each set (default: 10)"
    )
    help_of_rows = f"rows to learn from, at most (default: {rows})"
    parser.add_argument("--rows", type=int, default=rows, metavar="N", help=help_of_rows)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser


def main() -> None:
    """Prints a row for each set as soon as it is known, and writes all figures."""
    options = arguments("learning", SETS, 240).parse_args()
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # of bounds reached
    found = environment() | {"kernel": KERNEL, "rows": options.rows, "margin": MARGIN, "sets": []}
    print(f"{'set':14}{'frequencies':>12}{'as written':>12}{'learned':>12}{'gain':>18}  saved")
    for name in options.sets:
        table = table_of(name)
        row = summary(name, [figures(table, seed, options.rows) for seed in range(options.seeds)])
        found["sets"].append(row)
        cells = "".join(f"{row[key]:12.4f}" for key in ("frequencies", "as_written", "learned"))
        gain = f"{row['gain']:.4f} +- {row['error_of_gain']:.4f}"
        saved = ", ".join(f"{count} x {stage}" for stage, count in row["saved"].items())
        print(
            f"{name:14}{cells}{gain:>18}  {saved}{'' if row['met'] else '  BAR MISSED'}", flush=True
        )
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
