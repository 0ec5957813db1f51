"""Do a few starts learned by gradients reach what scikit-learn reaches with twenty restarts?
`python -m benchmarks.restarts`.

Log evidence of an RBF kernel with a lengthscale for each dimension, a variance and a noise, and the
seconds to get there, compilation apart: kernax with 8 starts of 60 L-BFGS steps, scikit-learn with
its own optimiser, 20 restarts and its default bounds. Concrete and yacht where the shared data are
at hand, and Friedman's three problems.
"""

import time
import warnings
from pathlib import Path

import jax
import numpy as np
import optax
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import kernax as kx

DATA = Path(__file__).parents[2] / "shared" / "data"
STARTS, STEPS, RESTARTS, LBFGS = 8, 60, 20, optax.lbfgs()


def loss(model, X, y):
    """Minus the log evidence, a row."""
    return -kx.log_marginal_likelihood(model.kernel, X, y, model.ridge) / len(y)


def data_sets():
    """Names, and standardised inputs and targets."""
    for name in ("yacht", "concrete"):
        if (DATA / f"{name}.npz").exists():
            data = np.load(DATA / f"{name}.npz")
            yield name, data["X"], data["y"].ravel()
    for make in (make_friedman1, make_friedman2, make_friedman3):
        yield make.__name__, *make(200, noise=0.3, random_state=0)


def with_kernax(X, y):
    """Log evidence and seconds."""
    start = kx.Model(1.0 * kx.RBF(np.ones(X.shape[1])), 0.1)
    starts = kx.selection.random_starts(start, STARTS, key=jax.random.key(0))
    learn = lambda: (
        kx.multi_start(loss, starts, LBFGS, STEPS, args=(X, y)).stats["loss"].block_until_ready()
    )
    learn()
    before = time.perf_counter()
    return -len(y) * float(learn()), time.perf_counter() - before


def with_sklearn(X, y):
    """Log evidence and seconds."""
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    learner = GaussianProcessRegressor(
        kernel, alpha=0.0, n_restarts_optimizer=RESTARTS, random_state=0
    )
    before = time.perf_counter()
    learner.fit(X, y)
    return learner.log_marginal_likelihood_value_, time.perf_counter() - before


def main() -> None:
    """Prints the table."""
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # of bounds reached, on both sides
    print(f"{'data':18}{'n':>6}{'kernax':>12}{'s':>8}{'scikit-learn':>14}{'s':>8}{'ratio':>8}")
    for name, X, y in data_sets():
        X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
        (ours, seconds), (theirs, longer) = with_kernax(X, y), with_sklearn(X, y)
        figures = f"{ours:12.3f}{seconds:8.1f}{theirs:14.3f}{longer:8.1f}{seconds / longer:8.2f}"
        print(f"{name:18}{len(y):6}{figures}", flush=True)


if __name__ == "__main__":
    main()
