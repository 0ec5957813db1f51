"""From a thousand points to a million: what do the calls that `recommend` gives take, what do they
hold, and how far off is what they find? `python -m benchmarks.many_points [--sizes N ...]`.

Two problems in float64, with noise of deviation 0.3: Friedman's first function of five numbers, and
a wave along a line at regular times. The error is that of the function without noise, at points in
between. Every call has a process of its own: seconds of the first call, compilation and all, and of
a second one; memory is what the process holds at most, less what it held before. A call that
`recommend` says to be slow is not made, and one that outlasts `--seconds` is stopped.
"""

import argparse
import json
import resource
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import timed

NOISE = 0.3
ACCURACY = 0.05
SIZES = (1000, 10_000, 100_000, 1_000_000)
KERNELS = {
    "five columns": 4.0 * kx.RBF([0.5, 0.5, 0.5, 1.5, 3.0]),
    "line": 1.0 * kx.Matern52(30.0),
}
COLUMNS = {"five columns": 5, "line": 1}
TITLES = ("first", "again", "expected", "held", "error")


def friedman(X):
    """Friedman's first function, of mean zero and deviation one."""
    waves = 10 * np.sin(np.pi * X[:, 0] * X[:, 1])
    return (waves + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4] - 14.4) / 4.9


def wave(X):
    """A wave with a period of some 126."""
    return np.sin(X[:, 0] / 20)


def data(problem, n):
    """Points and targets, new points and the function there."""
    rng = np.random.default_rng(0)
    if problem == "line":
        function = wave
        X = np.arange(n, dtype=float)[:, None]
        X_new = rng.uniform(0, n - 1, (100, 1))
    else:
        function = friedman
        X = rng.uniform(size=(n, 5))
        X_new = rng.uniform(size=(1000, 5))
    y = function(X) + NOISE * rng.normal(size=n)
    return jnp.asarray(X), jnp.asarray(y), jnp.asarray(X_new), function(X_new)


def routes(problem, n):
    """All routes, the recommended one first."""
    found = kx.recommend(KERNELS[problem], n, COLUMNS[problem], accuracy=ACCURACY)
    return found.routes


def measured(problem, n, name):
    """What one call takes, holds and finds."""
    X, y, X_new, truth = data(problem, n)
    route = next(route for route in routes(problem, n) if route.name == name)
    known = {"kernax": kx, "kernel": KERNELS[problem], "X": X, "y": y}
    known |= {"noise": NOISE**2, "key": jax.random.key(0)}
    call = compile(route.call, name, "eval")
    before = _held()
    first, _ = timed(lambda: eval(call, known).value)
    again, value = timed(lambda: eval(call, known).value)
    held = _held() - before
    mean = value.mean if isinstance(value, kx.GaussianProcess) else value
    off = np.asarray(jax.vmap(mean)(X_new)) - truth
    return {
        "first": first,
        "again": again,
        "held": held,
        "error": float(np.sqrt(np.mean(off**2))),
    }


def _held():
    """The most bytes that this process has held."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_a_process(problem, n, name, seconds):
    """The same in a process of its own; None where it fails, or outlasts its budget."""
    command = [sys.executable, "-m", "benchmarks.many_points", "--one", problem, str(n), name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def table(problem, sizes, seconds):
    """Prints a row for each route that is possible, and records of them."""
    for n in sizes:
        for place, route in enumerate(routes(problem, n)):
            mark = "->" if place == 0 else "  "
            head = f"{mark} {n:9} {route.name:20}"
            if route.impossible:
                print(f"{head}not possible: {route.impossible}", flush=True)
            elif route.given:
                print(f"{head}not run: for other points, {route.given}", flush=True)
            elif route.slow:
                print(f"{head}not run: slow {route.slow}", flush=True)
            else:
                _print_row(head, route, in_a_process(problem, n, route.name, seconds))


def _print_row(head, route, found):
    if found is None:
        print(f"{head}   failed", flush=True)
        return
    times = f"{found['first']:10.2f}{found['again']:10.2f}"
    sizes = f"{route.held / 2**20:10.0f}{found['held'] / 2**20:10.0f}"
    print(f"{head}{times}{sizes}{found['error']:10.4f}", flush=True)


def main() -> None:
    """Prints the table of each problem."""
    parser = argparse.ArgumentParser(description="A thousand points to a million.")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="longest process (default: 600)"
    )
    parser.add_argument("--problems", nargs="*", default=list(KERNELS), choices=list(KERNELS))
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.one:
        problem, n, name = options.one
        print(json.dumps(measured(problem, int(n), name)))
        return
    for problem in options.problems:
        print(
            f"\n{problem}: seconds of the first and of a second call; MiB expected and held; error"
        )
        print(f"   {'points':>9} {'route':20}" + "".join(f"{title:>10}" for title in TITLES))
        table(problem, options.sizes, options.seconds)


if __name__ == "__main__":
    main()
