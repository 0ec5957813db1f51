"""How long does a ridge fit over centres take for many points, and how well does it predict?

FALKON of n = 100000 points, d = 18, 2000 centres, in both precisions, against scikit-learn's
`Nystroem` and `Ridge` of the same centres: one process, in turns. `python -m benchmarks.falkon`
prints the errors on real data (kin40k and elevators, fold 0 of ten) against the number of centres,
beside scikit-learn's; it needs the shared data. And what a process holds that fits once.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.harness import MB, Bar, Case, Contender, Process
from benchmarks.restarts import DATA

RIDGE = 0.1
LENGTHSCALE = 4.0
_PASSES = "In float32 some 25 passes over the matrix of points and centres are what is left."
COUNTS = (250, 500, 1000, 2000)


def cases(quick):
    n, d, m, rounds = (2000, 5, 50, 2) if quick else (100_000, 18, 2000, 2)
    for dtype in ("float32", "float64"):
        with jax.enable_x64(dtype == "float64"):
            X, y, Z = data(n, d, m, dtype)
            yield Case(
                f"ridge over centres, n={n}, d={d}, m={m}, {dtype}",
                [
                    Contender("kernax", lambda X=X, y=y, Z=Z: _kernax(X, y, Z)),
                    Contender("scikit-learn", lambda X=X, y=y, Z=Z: _sklearn(X, y, Z)),
                ],
                [Bar(0.5, "scikit-learn", explanation=_PASSES if dtype == "float32" else "")],
                # Of values at new points; in float32 scikit-learn solves normal equations.
                1e-6 if dtype == "float64" else 2e-2,
                rounds,
            )
    code = f"from benchmarks.falkon import run_once; run_once({n}, {d}, {m})"
    yield Case(
        f"a process: ridge over centres, n={n}, d={d}, m={m}, float64",
        [Contender("kernax", lambda: Process(code))],
        [Bar(1500 * MB, figure="held")],
        once=True,
    )


def data(n, d, m, dtype):
    """A smooth function with noise, and m of its points."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    y = np.sin(3 * X @ rng.normal(size=d) / np.sqrt(d)) + 0.2 * rng.normal(size=n)
    Z = X[rng.choice(n, m, replace=False)]
    return X.astype(dtype), y.astype(dtype), Z.astype(dtype)


def _kernax(X, y, Z, lengthscale=LENGTHSCALE, ridge=RIDGE):
    """Fits, and predicts a hundred values."""
    kernel = kx.RBF(lengthscale)
    arrays = [jnp.asarray(array) for array in (X, y, Z)]

    def run():
        return kx.falkon(kernel, arrays[0], arrays[1], ridge, arrays[2]).value.values(X[:100])

    return run


def _sklearn(X, y, Z, lengthscale=LENGTHSCALE, ridge=RIDGE):
    def run():
        map_, learner = sklearn_fit(X, y, Z, lengthscale, ridge)
        return learner.predict(map_.transform(X[:100]))

    return run


def sklearn_fit(X, y, Z, lengthscale, ridge):
    """scikit-learn's features of given centres, and its ridge regression on them."""
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge

    map_ = Nystroem(kernel="rbf", gamma=0.5 / lengthscale**2, n_components=len(Z))
    map_.fit(Z)  # all of them, in some order
    return map_, Ridge(alpha=ridge, fit_intercept=False).fit(map_.transform(X), y)


def on_real_data(name, lengthscale, ridge):
    """Rows of the table for one set: its error for each number of centres."""
    file = np.load(DATA / f"{name}.npz")
    X, y, fold = file["X"], file["y"].ravel(), file["test_fold"]
    kept = fold != 0
    X = (X - X[kept].mean(0)) / X[kept].std(0)
    y = (y - y[kept].mean()) / y[kept].std()
    for m in COUNTS:
        Z = kx.choose_centres(kx.RBF(), X[kept], m, key=jax.random.key(0))
        before = time.perf_counter()
        f = kx.falkon(kx.RBF(lengthscale), X[kept], y[kept], ridge, Z).value
        jax.block_until_ready(f.coefficients)
        seconds = time.perf_counter() - before
        before = time.perf_counter()
        map_, learner = sklearn_fit(X[kept], y[kept], np.asarray(Z), lengthscale, ridge)
        seconds_of_sklearn = time.perf_counter() - before
        errors = [
            np.sqrt(np.mean((np.asarray(values) - y[~kept]) ** 2))
            for values in (f.values(X[~kept]), learner.predict(map_.transform(X[~kept])))
        ]
        print(
            f"{name:10}{m:6}{errors[0]:10.4f}{errors[1]:10.4f}{seconds:9.2f}"
            f"{seconds_of_sklearn:9.2f}",
            flush=True,
        )


def run_once(n, d, m):
    """The fit in a process of its own."""
    jax.config.update("jax_enable_x64", True)
    X, y, Z = data(n, d, m, "float64")
    jax.block_until_ready(kx.falkon(kx.RBF(LENGTHSCALE), X, y, RIDGE, Z).value.coefficients)


def main() -> None:
    """Prints the table, or the memory."""
    jax.config.update("jax_enable_x64", True)
    print(f"{'data':10}{'m':>6}{'RMSE':>10}{'sklearn':>10}{'s':>9}{'sklearn':>9}")
    on_real_data("kin40k", 1.0, 1e-2)
    on_real_data("elevators", 5.0, 1e-1)


if __name__ == "__main__":
    main()
