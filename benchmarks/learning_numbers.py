"""Does what `kernax fit` saves of numbers predict better than the kernel as written? `python -m
benchmarks.learning_numbers`.

On each regression set of the shared data, and on a made table with dates, categories and missing
cells, some rows are drawn for each seed to learn from, and up to 1000 of the others are held out;
everything else is what the command does. Mean held-out RMSE and negative log density over the
seeds, of the mean of the target, of the kernel as written and of what was saved; how often which
stage was saved. The bar: both means of what is saved at most those of what was written plus 1 %.
"""

import datetime
import json
import time
import warnings
from collections import Counter

import jax
import numpy as np

from benchmarks.learning import arguments
from benchmarks.report import environment
from benchmarks.restarts import DATA
from kernax.cli.compared_columns import compared_columns
from kernax.cli.fit import fit
from kernax.cli.job import Split, split_rows
from kernax.cli.table import InputTable
from kernax.cli.target import numbers
from kernax.core.base.threads import linear_algebra_threads
from kernax.preparation.cells import Column
from kernax.preparation.encoders import Tokens
from kernax.preparation.predictors import GP, RIDGE, RVM

MIXED = "mixed table"
SETS = (
    "snelson",
    "co2",
    "airline",
    "yacht",
    "concrete",
    "kin8nm",
    "kin40k",
    "pumadyn32nm",
    "elevators",
    "bike",
    MIXED,
)
KERNEL, HELD_OUT, MARGIN = "1.0*rbf + 0.1*linear", 1000, 0.01


def points_and_targets(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a set of the shared data: X (n, d) and y (n,)."""
    with np.load(DATA / f"{name}.npz") as file:
        if name == "snelson":
            return file["x_train"][:, None], file["y_train"]
        if name == "co2":
            return file["noaa_t"][:, None], file["noaa_ppm"]
        if name == "airline":
            return (file["year"] + file["month"] / 12)[:, None], file["passengers"].astype(float)
        return file["X"], file["y"]


def table_of(name: str) -> InputTable:
    """A set as the command line would read it."""
    if name == MIXED:
        return mixed_table()
    X, y = points_and_targets(name)
    inputs = tuple(Column.of_numbers(f"x{i}", column) for i, column in enumerate(X.T))
    return InputTable(inputs, _target(y))


def _target(y: np.ndarray) -> Column:
    places = tuple(f"row {i}" for i in range(len(y)))
    return Column("y", tuple(repr(float(value)) for value in y), places)


def mixed_table(rows: int = 1500) -> InputTable:
    """Sales a day: a trend, a season and a week, a level for each town, an effect of the weather,
    a price that is missing in one row of eight, and noise.
    """
    rng = np.random.default_rng(33)
    day = rng.integers(0, 900, rows)
    towns = rng.choice(["Aalen", "Bonn", "Celle", "Daun", "Essen", "Fulda", "Gera"], rows)
    weather = rng.choice(["sun", "rain", "snow", ""], rows, p=[0.5, 0.3, 0.1, 0.1])
    price = rng.normal(10, 2, rows)
    visits = rng.poisson(40, rows).astype(float)
    levels = {town: 60.0 * place for place, town in enumerate("BEADCGF")}
    effects = {"sun": 60.0, "rain": -40.0, "snow": -90.0, "": 0.0}
    y = (
        500
        + 0.2 * day
        + 80 * np.sin(2 * np.pi * day / 365.25)
        + 50 * (day % 7 >= 5)
        + np.array([levels[town[0]] for town in towns])
        + np.array([effects[word] for word in weather])
        - 25 * (price - 10)
        + 2 * (visits - 40)
        + rng.normal(0, 80, rows)
    )
    first = datetime.date(2021, 1, 4)
    dates = [(first + datetime.timedelta(int(d))).isoformat() for d in day]
    prices = np.where(rng.uniform(size=rows) < 1 / 8, "", [f"{p:.2f}" for p in price])
    columns = {
        "date": dates,
        "town": towns,
        "weather": weather,
        "price": prices,
        "visits": [f"{v:.0f}" for v in visits],
    }
    places = tuple(f"row {i}" for i in range(rows))
    inputs = [Column(name, tuple(map(str, cells)), places) for name, cells in columns.items()]
    return InputTable(tuple(inputs), _target(y.round(1)))


def split(table: InputTable, seed: int, rows: int) -> Split:
    """At most so many rows to learn from, three quarters of a small set, and most of the others
    held out.
    """
    y = numbers(table)
    order = np.random.default_rng(seed).permutation(len(y))
    count = min(rows, 3 * len(y) // 4)
    return split_rows(table, Tokens.LETTERS, y, order[:count], order[count : count + HELD_OUT])


def figures(table: InputTable, seed: int, rows: int, model: str) -> dict:
    """Held-out scores of one seed, and what was saved."""
    before = time.perf_counter()
    with linear_algebra_threads(rows):
        report = fit(split(table, seed, rows), KERNEL, model, 1, seed)
    saved = [line for line in report.remarks if line.startswith("saved: ")]
    return {
        "seed": seed,
        "scores": [list(scores.values()) for scores in report.scores.values()],
        "saved": saved[0].removeprefix("saved: ") if saved else "learned",
        "seconds": round(time.perf_counter() - before, 1),
    }


def summary(name: str, runs: list[dict]) -> dict:
    """Means over the seeds, and whether the bar is met."""
    means = np.array([run["scores"] for run in runs]).mean(0)
    _, written, learned = means
    rows = dict(zip(("of_mean", "as_written", "saved"), means.round(5).tolist()))
    at_most = written + MARGIN * np.abs(written)
    return {
        "set": name,
        **rows,
        "stages": dict(Counter(run["saved"] for run in runs)),
        "met": bool(np.all(learned <= at_most)),
        "runs": runs,
    }


def main() -> None:
    """Prints a row for each set as soon as it is known, and writes all figures."""
    parser = arguments("learning_numbers", SETS, 200)
    parser.add_argument(
        "--model", default=GP, choices=(GP, RIDGE, RVM), help="gp (default), ridge or rvm"
    )
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # of bounds reached
    settings = {"kernel": KERNEL, "rows": options.rows, "margin": MARGIN, "model": options.model}
    found = environment() | settings | {"sets": []}
    print(f"{'set':14}{'measure':8}{'mean':>11}{'as written':>12}{'saved':>11}")
    for name in options.sets:
        table = compared_columns(table_of(name), KERNEL, None)
        # Its seven towns and two years of days need some.
        rows = max(options.rows, 450) if name == MIXED else options.rows
        runs = [figures(table, seed, rows, options.model) for seed in range(options.seeds)]
        row = summary(name, runs)
        found["sets"].append(row)
        _print(row)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")


def _print(row: dict) -> None:
    """The rows of one set."""
    scores = zip(row["of_mean"], row["as_written"], row["saved"])
    for measure, figures_of in zip(("RMSE", "NLPD"), scores):
        cells = "".join(f"{figure:12.5g}" for figure in figures_of)
        print(f"{row['set']:14}{measure:8}{cells}", flush=True)
    saved = ", ".join(f"{count} x {stage}" for stage, count in row["stages"].items())
    print(f"{'':14}{saved}{'' if row['met'] else '  BAR MISSED'}", flush=True)


if __name__ == "__main__":
    main()
