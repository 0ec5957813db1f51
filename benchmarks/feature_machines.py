"""Does a metric from the gradients of its own fit predict as well as the `xrfm` package, and how
long does it take? `python -m benchmarks.feature_machines`.

Regression on ten sets in float32, at most 1600 rows to learn from and 2000 others to predict, all
standardised by the rows to learn from. Both take a Laplace kernel of the Euclidean distance, the
same four lengthscales and four ridges, and at most six rounds. kernax chooses by the leave-one-out
error on all rows, xRFM (Beaglehole et al. 2025) by the error on a fifth of the rows, which it does
not learn from. Errors are root mean squares on the other rows. Times are of the whole choice,
sixteen fits, without compilation, in turns: processor time, which the bar compares, because it
hardly depends on what else runs, and wall time. Threads that wait for each other count as busy: on
a machine that others use, give both one thread by `taskset -c 0` and `OMP_NUM_THREADS=1`. The bars:
an error of at most 1.01 of that of xRFM in half of its time. Needs the shared data, and the package
`xrfm`.
"""

import argparse
import contextlib
import io
import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2

import kernax as kx
from benchmarks.report import environment
from benchmarks.restarts import DATA

SHARED = ("concrete", "yacht", "kin8nm", "bike", "elevators", "pumadyn32nm", "kin40k")
MADE: dict[str, Callable[[], Any]] = {
    "diabetes": lambda: load_diabetes(return_X_y=True),
    "friedman1": lambda: make_friedman1(3000, n_features=20, noise=1.0, random_state=0),
    "friedman2": lambda: make_friedman2(3000, noise=100.0, random_state=0),
}
LENGTHSCALES = (2.0, 5.0, 10.0, 20.0)
RIDGES = (0.001, 0.01, 0.1, 1.0)
PAIRS = tuple(itertools.product(LENGTHSCALES, RIDGES))
ROWS, OTHERS, ROUNDS = 1600, 2000, 6
TIMES = 3


class Spent(NamedTuple):
    """Seconds of one call."""

    wall: float
    processor: float


def parts(name: str):
    """Standardised rows to learn from, and others."""
    if name in MADE:
        X, y = MADE[name]()
    else:
        with np.load(DATA / f"{name}.npz") as file:
            X, y = file["X"], file["y"]
    order = np.random.default_rng(0).permutation(len(y))
    n = min(ROWS, len(y) * 3 // 4)
    learn, rest = order[:n], order[n : n + OTHERS]
    scale = X[learn].std(0)
    X = (X - X[learn].mean(0)) / np.where(scale > 0, scale, 1)
    y = (y - y[learn].mean()) / y[learn].std()
    X, y = X.astype(np.float32), y.astype(np.float32)
    return X[learn], y[learn], X[rest], y[rest]


def with_kernax(X, y, pairs=PAIRS):
    """Predictions of new rows by the choice of the least leave-one-out error."""

    def fit(lengthscale, ridge):
        kernel = kx.Matern12(lengthscale)
        solution = kx.recursive_feature_machine(kernel, X, y, ridge, max_rounds=ROUNDS, throw=False)
        return float(np.nanmin(solution.stats["leave_one_out"])), solution.value.values

    return _best(fit, pairs)


def with_xrfm(X, y, pairs=PAIRS):
    """Predictions of new rows by the choice of the least error on a fifth of the rows."""
    import torch
    from xrfm import xRFM

    device = torch.device("cpu")
    held = len(y) // 5
    X = torch.tensor(X)
    y = torch.tensor(y)[:, None]

    def fit(lengthscale, ridge):
        model = {
            "kernel": "l2",
            "bandwidth": lengthscale,
            "exponent": 1.0,
            "diag": False,
            "bandwidth_mode": "constant",
        }
        fit = {"reg": ridge, "iters": ROUNDS - 1, "verbose": False, "early_stop_rfm": True}
        machine = xRFM(rfm_params={"model": model, "fit": fit}, device=device, tuning_metric="mse")
        # It reports on both streams whatever `verbose` is.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            machine.fit(X[held:], y[held:], X[:held], y[:held])
        predict = lambda X: np.ravel(machine.predict(torch.tensor(X)))
        return float(np.mean((predict(X[:held].numpy()) - y[:held, 0].numpy()) ** 2)), predict

    return _best(fit, pairs)


def _best(fit, pairs):
    """The predictions of the pair of numbers with the least error."""
    found = [fit(*pair) for pair in pairs]
    _, predict = min(found, key=lambda pair: pair[0])
    return predict


def compared(name: str, times: int) -> dict[str, Any]:
    """The figures of one set."""
    X, y, X_new, y_new = parts(name)
    rms = lambda predict: float(np.sqrt(np.mean((np.asarray(predict(X_new)) - y_new) ** 2)))
    errors: dict[str, float] = {}
    spent: dict[str, list[Spent]] = {"kernax": [], "xrfm": []}
    learners = {"kernax": with_kernax, "xrfm": with_xrfm}
    for learn in learners.values():
        learn(X, y, PAIRS[:1])(X_new)  # compiles
    for _ in range(times):
        for learner, learn in learners.items():
            wall, processor = time.perf_counter(), time.process_time()
            predict = learn(X, y)
            errors[learner] = rms(predict)
            of_call = Spent(time.perf_counter() - wall, time.process_time() - processor)
            spent[learner].append(of_call)
    of_kernax, of_xrfm = (Spent(*np.median(spent[learner], 0).tolist()) for learner in learners)
    row = {
        "set": name,
        "rows": len(y),
        "columns": X.shape[1],
        "error": errors["kernax"],
        "error_of_xrfm": errors["xrfm"],
        "seconds": of_kernax.wall,
        "seconds_of_xrfm": of_xrfm.wall,
        "processor_seconds": of_kernax.processor,
        "processor_seconds_of_xrfm": of_xrfm.processor,
        "error_ratio": errors["kernax"] / errors["xrfm"],
        "time_ratio": of_kernax.processor / of_xrfm.processor,
        "wall_ratio": of_kernax.wall / of_xrfm.wall,
        "load": os.getloadavg()[0],
    }
    row["met"] = row["error_ratio"] <= 1.01 and row["time_ratio"] <= 0.5
    return row


def main() -> None:
    """Prints a row for each set as soon as it is known, and writes all figures."""
    sets = (*SHARED, *MADE)
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.feature_machines", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--sets", nargs="*", default=sets, choices=sets, metavar="SET")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--times", type=int, default=TIMES, help="how often each is timed")
    options = parser.parse_args()
    found = environment() | {"sets": []}
    for name in options.sets:
        row = compared(name, options.times)
        found["sets"].append(row)
        print(json.dumps({key: _short(value) for key, value in row.items()}), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(found, indent=1) + "\n")


def _short(value):
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
