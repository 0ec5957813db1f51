"""How well do learned processes predict, on twenty splits of real data? `python -m
benchmarks.splits [NAMES]`.

A Gaussian process with a lengthscale for each dimension, a variance and a noise, learned from one
start (1, 1, 0.1) by at most 100 steps of L-BFGS, by kernax and by scikit-learn: error and mean
negative log density in the target's units, final negative log likelihood of standardised targets,
seconds (compilation apart); means over the splits and their standard errors. Inputs and targets are
standardised by training rows (Hernandez-Lobato & Adams 2015). Needs the shared data.
"""

import sys
import time
import warnings

import jax
import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import kernax as kx
from benchmarks.restarts import DATA, LBFGS, loss

STEPS = 100


def with_kernax(X, y, X_new):
    """Mean and variance of new targets, negative log likelihood, seconds."""
    start = kx.Model(1.0 * kx.RBF(np.ones(X.shape[1])), 0.1)
    before = time.perf_counter()
    solution = kx.minimise(loss, start, LBFGS, STEPS, args=(X, y))
    model = solution.value
    process = kx.condition(kx.GaussianProcess(model.kernel), X, y, model.noise).value
    mean, variance = jax.block_until_ready(
        (jax.vmap(process.mean)(X_new), jax.vmap(process.variance)(X_new))
    )
    return (
        mean,
        variance + model.noise,
        len(y) * float(solution.stats["loss"]),
        time.perf_counter() - before,
    )


def with_sklearn(X, y, X_new):
    """The same."""
    fewer = lambda f, start, bounds: _pair(
        minimize(f, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"maxiter": STEPS})
    )
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    before = time.perf_counter()
    learner = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=fewer).fit(X, y)
    mean, deviation = learner.predict(X_new, return_std=True)
    return mean, deviation**2, -learner.log_marginal_likelihood_value_, time.perf_counter() - before


def _pair(found):
    return found.x, found.fun


def figures(learn, X, y, kept, held_out):
    """Error, density, likelihood, seconds of one split."""
    centre, scale = X[kept].mean(0), X[kept].std(0)
    level, unit = y[kept].mean(), y[kept].std()
    mean, variance, likelihood, seconds = learn(
        (X[kept] - centre) / scale, (y[kept] - level) / unit, (X[held_out] - centre) / scale
    )
    error = y[held_out] - (level + unit * np.asarray(mean))
    variance = unit**2 * np.asarray(variance)
    density = 0.5 * np.mean(np.log(2 * np.pi * variance) + error**2 / variance)
    return np.sqrt(np.mean(error**2)), density, likelihood, seconds


def main() -> None:
    """Prints a table, a row for each set and library, as soon as it is known."""
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")  # of bounds reached, on both sides
    print(f"{'data':10}{'':14}{'RMSE':>16}{'NLPD':>16}{'likelihood':>18}{'s a split':>11}")
    for name in sys.argv[1:] or ("yacht", "concrete"):
        data = np.load(DATA / f"{name}.npz")
        X, y, splits = data["X"], data["y"].ravel(), data["test_idx"]
        rows = {"kernax": [], "scikit-learn": []}
        parts = [(np.setdiff1d(np.arange(len(y)), held_out), held_out) for held_out in splits]
        figures(with_kernax, X, y, *parts[0])  # compiles
        for part in parts:
            rows["kernax"].append(figures(with_kernax, X, y, *part))
            rows["scikit-learn"].append(figures(with_sklearn, X, y, *part))
        for library, values in rows.items():
            mean, error = np.mean(values, 0), np.std(values, 0, ddof=1) / np.sqrt(len(values))
            cells = [f"{m:.3f} +- {e:.3f}" for m, e in zip(mean, error)]
            print(
                f"{name:10}{library:14}{cells[0]:>16}{cells[1]:>16}{cells[2]:>18}{mean[3]:11.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
