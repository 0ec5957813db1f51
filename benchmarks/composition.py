"""Does a search for a kernel forecast as well as a kernel written by hand? `python -m
benchmarks.composition`.

Airline passengers (log, 96 months to learn from, 48 to forecast) and CO2 over Mauna Loa, in the
version that statsmodels carries (the months before 1992, and ten years after) and in that of CDIAC
(Rasmussen & Williams 2006, section 5.4.3: to the end of 2003, and five years after). The kernels by
hand: trend, line and season of the airline series, learned from eight starts; the four parts of
`examples/forecast_co2.py`, as written and learned. Each row: mean negative log density and root
mean square error of the forecast, and seconds, those of the clock and those of the processor, with
compilation. The bar: the density of the search at most that of the kernel by hand, learned. Whether
it is also at most that of the kernel as written is said beside it. Needs the shared data, and
statsmodels.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

import kernax
from benchmarks.report import environment
from benchmarks.restarts import DATA
from kernax.metrics import negative_log_predictive_density, root_mean_square_error

STEPS, STARTS = 60, 8


def loss(model: kernax.Model, X: jax.Array, y: jax.Array) -> jax.Array:
    """Minus the log marginal likelihood, a month."""
    return -kernax.log_marginal_likelihood(model.kernel, X, y, model.ridge) / len(y)


def airline() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Years, log passengers, and which months are known."""
    with np.load(DATA / "airline.npz") as file:
        passengers = file["passengers"].astype(float)
    months = np.arange(len(passengers))
    return 1949 + (months + 0.5) / 12, np.log(passengers), months < 96


def co2_of_statsmodels() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Years, parts per million, and which months are known: as examples/forecast_co2.py has it."""
    from statsmodels.datasets import co2

    table: Any = co2.load_pandas().data
    series = table["co2"].resample("MS").mean().dropna()
    years = np.asarray(series.index.year + (series.index.month - 0.5) / 12, float)
    return years, series.to_numpy(float), years < 1992


def co2_of_cdiac() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Years, parts per million, and which months are known: those to the end of 2003."""
    with np.load(DATA / "co2.npz") as file:
        years = file["cdiac_year"] + (file["cdiac_month"] - 0.5) / 12
        ppm = file["cdiac_ppm"].astype(float)
    measured = np.isfinite(ppm)
    years = np.asarray(years, float)[measured]
    return years, ppm[measured], years < 2004


def airline_by_hand() -> kernax.AbstractKernel:
    """A line, a trend, and a season whose shape changes; of log passengers less their mean."""
    season = 0.05 * kernax.RBF(20.0) * kernax.Periodic(lengthscale=1.0, period=1.0)
    return 0.02 * kernax.kernels.ShiftedLinear(1953.0) + 0.05 * kernax.RBF(2.0) + season


def co2_by_hand() -> kernax.AbstractKernel:
    """Trend, drifting season, irregularities of medium term, and of months."""
    trend = 2500.0 * kernax.RBF(50.0)
    season = 4.0 * kernax.RBF(100.0) * kernax.Periodic(lengthscale=1.0, period=1.0)
    medium = 0.5 * kernax.RationalQuadratic(lengthscale=1.0, alpha=1.0)
    return trend + season + medium + 0.05 * kernax.RBF(0.15)


SETS: dict[str, tuple[Callable, Callable, float]] = {
    "airline": (airline, airline_by_hand, 0.01),
    "co2 (statsmodels)": (co2_of_statsmodels, co2_by_hand, 0.1),
    "co2 (CDIAC)": (co2_of_cdiac, co2_by_hand, 0.1),
}


def forecast(kernel, noise, mean, X, y, X_new, y_new) -> dict:
    """Scores of a forecast, and the log evidence."""
    solution = kernax.condition(kernax.GaussianProcess(kernel), X, y - mean, noise, throw=False)
    centres = mean + jax.vmap(solution.value.mean)(X_new)
    variances = jax.vmap(solution.value.variance)(X_new) + noise
    return {
        "log_evidence": round(float(solution.stats["log_evidence"]), 2),
        "nlpd": round(float(negative_log_predictive_density(y_new, centres, variances)), 4),
        "rmse": round(float(root_mean_square_error(y_new, centres)), 4),
    }


def timed(function: Callable) -> tuple:
    """What a function returns, with the seconds that it took."""
    clock = time.perf_counter()
    processor = time.process_time()
    value = function()
    seconds = round(time.perf_counter() - clock, 1)
    return value, {"seconds": seconds, "cpu_seconds": round(time.process_time() - processor, 1)}


def by_hand(start: kernax.Model, X, y) -> kernax.Model:
    """The parameters learned from several starts, the period of a year as it is."""
    fixed_period = lambda path, value: not path.endswith("period")
    key = jax.random.key(0)
    starts = kernax.selection.random_starts(
        start, STARTS, key=key, spread=0.5, trainable=fixed_period
    )
    solution = kernax.multi_start(
        loss, starts, optax.lbfgs(), STEPS, args=(X, y), trainable=fixed_period, throw=False
    )
    return solution.value


def figures(name: str, seed: int) -> dict:
    """All rows of one set."""
    read, kernel, noise = SETS[name]
    x, y, known = read()
    X = x[:, None]
    data = X[known], y[known], X[~known], y[~known]
    mean = y[known].mean()
    start = kernax.Model(kernel(), noise)
    rows = {"as written": forecast(start.kernel, start.ridge, mean, *data)}
    learned, seconds = timed(lambda: by_hand(start, data[0], data[1] - mean))
    rows["learned"] = forecast(learned.kernel, learned.ridge, mean, *data) | seconds
    search = lambda: kernax.selection.compositional_search(
        *data[:2], key=jax.random.key(seed), names=("year",), progress=True
    )
    solution, seconds = timed(search)
    found = solution.value
    rows["search"] = forecast(found.kernel, found.noise, found.mean, *data) | seconds
    density = rows["search"]["nlpd"]
    return {
        "set": name,
        "seed": seed,
        "rows": rows,
        "met": density <= rows["learned"]["nlpd"],
        "met_as_written": density <= rows["as written"]["nlpd"],
        "candidates": len(solution.stats["structures"]),
        "failed": solution.stats["failed"],
        "steps": solution.stats["steps"],
        "found": str(found).split("\n"),
    }


def main() -> None:
    """Prints the rows of each set as soon as they are known, and writes all figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.composition", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--sets", nargs="*", default=list(SETS), choices=SETS, metavar="SET", help=", ".join(SETS)
    )
    parser.add_argument("--seed", type=int, default=0, help="of the search (default: 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # of bounds reached, and of jitter of kernels by hand
    found = environment() | {"sets": []}
    for name in options.sets:
        of_set = figures(name, options.seed)
        found["sets"].append(of_set)
        beside = "" if of_set["met_as_written"] else " (worse than as written)"
        print(f"{name}{'' if of_set['met'] else ': BAR MISSED'}{beside}")
        for row, values in of_set["rows"].items():
            print("  " + row.ljust(12) + "  ".join(f"{k} {v}" for k, v in values.items()))
        print("\n".join(f"  {line}" for line in of_set["found"]), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
