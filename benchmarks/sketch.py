"""When do random blocks beat conjugate gradients on a full kernel? `python -m benchmarks.sketch
[--quick]`.

Ridge regression of kin40k (RBF, lengthscale 2) and elevators (Matern 3/2, lengthscale 4),
standardised, K held: products with K that each solver took, its true relative residual, and
seconds, compilation apart. A sweep of `SketchAndProject` counts as one product, as a step of
`ConjugateGradient` does. Needs the shared data.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.restarts import DATA
from kernax.solvers import ConjugateGradient, SketchAndProject

SETS = {"kin40k": kx.RBF(2.0), "elevators": kx.Matern32(4.0)}
GOALS = {"float32": 1e-3, "float64": 1e-6}


def rows_of(name, n, dtype):
    """Standardised points and targets."""
    with np.load(DATA / f"{name}.npz") as file:
        X, y = file["X"], file["y"].ravel()
    places = np.random.default_rng(0).permutation(len(y))[:n]
    standard = lambda A: jnp.asarray((A - A.mean(0)) / A.std(0), dtype)
    return standard(X[places]), standard(y[places])


def figures(operator, y, solver):
    """Products, residual and seconds of a second solve."""
    jax.block_until_ready(kx.solvers.solve(operator, y, solver, throw=False).value)
    start = time.perf_counter()
    solution = kx.solvers.solve(operator, y, solver, throw=False)
    jax.block_until_ready(solution.value)
    seconds = time.perf_counter() - start
    return int(solution.stats["steps"]), float(solution.stats["residual"]), seconds


def main() -> None:
    """Prints a table, a row for each set, precision and ridge, as soon as it is known."""
    jax.config.update("jax_enable_x64", True)
    quick = "--quick" in sys.argv
    n, cap = (500, 20) if quick else (10_000, 400)
    print(f"{'data':10} {'':9} {'ridge':>6}   {'solver':18}{'products':>9}{'residual':>10}{'s':>8}")
    for dtype, goal in GOALS.items():
        solvers = {
            "blocks": SketchAndProject(jax.random.key(0), rtol=goal, max_steps=cap // 4),
            "conjugate gradients": ConjugateGradient(rtol=goal, max_steps=cap),
        }
        for name, kernel in SETS.items():
            X, y = rows_of(name, n, dtype)
            for ridge in (1e-2, 1e-4):
                operator = kx.gram_operator(kernel, X, ridge=ridge)
                for words, solver in solvers.items():
                    steps, residual, seconds = figures(operator, y, solver)
                    row = f"{name:10} {dtype:9} {ridge:6.0e}   {words:18}{steps:9}"
                    print(f"{row}{residual:10.1e}{seconds:8.1f}", flush=True)


if __name__ == "__main__":
    main()
