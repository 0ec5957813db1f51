"""How long do a thousand Gaussian processes take that each learn their own hyperparameters?
`python -m benchmarks.thousand`.

A thousand series of 200 points are drawn from processes with an RBF kernel whose lengthscale,
variance and noise differ from series to series. Each learns its three hyperparameters by the
evidence from (1, 1, 0.1), by at most 100 steps of L-BFGS: `minimise` under `batched`, over the
cores of a CPU; scikit-learn's own optimiser, by joblib with a process for each core; and BoTorch's
`fit_gpytorch_mll_scipy` of one batched model, without priors, on a few of the series. The second
benchmark has 100 to 200 points in each series, by weights of zero. scikit-learn computes all
evidences anew. Its rule of stopping is the loosest: kernax goes on until a gradient is zero up to
rounding. Seconds are without compilation, for all series. The bar: 25 s on two cores.
"""

import argparse
import importlib.util
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import kernax as kx
from benchmarks.report import environment

POINTS, STEPS, LBFGS = 200, 100, optax.lbfgs()
OF_BOTORCH = 50
Sets = list[tuple[np.ndarray, np.ndarray]]


def drawn(count: int, *, ragged: bool) -> Sets:
    """Series of POINTS points, or of half of them to all."""
    sets = []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(POINTS // 2, POINTS + 1)) if ragged else POINTS
        X = rng.uniform(0.0, 10.0, (n, 1))
        lengthscale = np.exp(rng.uniform(np.log(0.3), np.log(3.0)))
        noise = np.exp(rng.uniform(np.log(0.01), np.log(0.5)))
        K = np.exp(-((X - X.T) ** 2) / (2 * lengthscale**2)) + noise * np.eye(n)
        sets.append((X, np.exp(rng.normal()) * (np.linalg.cholesky(K) @ rng.normal(size=n))))
    return sets


def loss(model, X, y, weights):
    return -kx.log_marginal_likelihood(model.kernel, X, y, model.ridge, weights=weights)


def learned(X, y, weights):
    """Lengthscale, variance and noise."""
    start = kx.Model(1.0 * kx.RBF(1.0), 0.1)
    solution = kx.minimise(loss, start, LBFGS, STEPS, args=(X, y, weights), throw=False)
    kernel: Any = solution.value.kernel
    found = jnp.stack([kernel.kernel.lengthscale, kernel.scale, solution.value.ridge])
    return found, solution.result, solution.stats["steps"]


def with_kernax(sets: Sets) -> tuple[np.ndarray, float, dict[str, Any]]:
    """Hyperparameters, seconds, and further figures."""
    stacked = kx.selection.stack_datasets(sets)
    learn = kx.batched(learned, devices=jax.devices())
    begun = time.perf_counter()
    learn(stacked.X, stacked.y, stacked.weights)
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    found, result, steps = learn(stacked.X, stacked.y, stacked.weights)
    seconds = time.perf_counter() - begun
    return (
        np.asarray(found),
        seconds,
        {
            "first_call": first,
            "successful": int(np.sum(np.asarray(result == kx.RESULTS.successful))),
            "median_steps": float(np.median(steps)),
            "most_steps": int(np.max(steps)),
        },
    )


def of_sklearn(X: np.ndarray, y: np.ndarray) -> list[float]:
    """Lengthscale, variance and noise."""
    kernel = ConstantKernel(1.0) * RBF(1.0) + WhiteKernel(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learned: Any = GaussianProcessRegressor(kernel, alpha=0.0).fit(X, y).kernel_
    variance, lengthscale, noise = np.exp(learned.theta)
    return [lengthscale, variance, noise]


def with_sklearn(sets: Sets) -> tuple[np.ndarray, float, dict[str, Any]]:
    """joblib gives each of its processes one thread of BLAS."""
    from joblib import Parallel, delayed

    with Parallel(n_jobs=os.cpu_count()) as parallel:
        parallel(delayed(of_sklearn)(X, y) for X, y in sets[:4])  # the processes start
        begun = time.perf_counter()
        found = parallel(delayed(of_sklearn)(X, y) for X, y in sets)
    return np.array(found), time.perf_counter() - begun, {}


def with_botorch(sets: Sets) -> tuple[np.ndarray, float, dict[str, Any]]:
    """One batched model of the first series; the seconds are scaled to all."""
    import gpytorch
    import torch
    from botorch.fit import fit_gpytorch_mll_scipy
    from botorch.models import SingleTaskGP

    few = sets[:OF_BOTORCH]
    X, y = (torch.tensor(np.stack(part), dtype=torch.float64) for part in zip(*few))
    batch = torch.Size([len(few)])
    kernel: Any = gpytorch.kernels.ScaleKernel(
        gpytorch.kernels.RBFKernel(batch_shape=batch), batch_shape=batch
    )
    likelihood: Any = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.Positive(), batch_shape=batch
    )
    mean = gpytorch.means.ZeroMean(batch_shape=batch)
    model = SingleTaskGP(
        X,
        y[..., None],
        likelihood=likelihood,
        covar_module=kernel,
        mean_module=mean,
        outcome_transform=None,
    )
    kernel.base_kernel.lengthscale = 1.0
    kernel.outputscale = 1.0
    likelihood.noise = 0.1
    total = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    begun = time.perf_counter()
    fit_gpytorch_mll_scipy(total, options={"maxiter": STEPS})
    seconds = (time.perf_counter() - begun) * len(sets) / len(few)
    parts: Any = kernel.base_kernel.lengthscale, kernel.outputscale, likelihood.noise
    return (
        np.stack([part.detach().numpy().ravel() for part in parts], 1),
        seconds,
        {"series": len(few)},
    )


def evidences(sets: Sets, found: np.ndarray) -> np.ndarray:
    """The log evidence of each series, by scikit-learn."""
    values = []
    for (X, y), (lengthscale, variance, noise) in zip(sets, found):
        kernel = ConstantKernel(variance) * RBF(lengthscale) + WhiteKernel(noise)
        process = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(X, y)
        values.append(process.log_marginal_likelihood_value_)
    return np.array(values)


WAYS: dict[str, Callable] = {
    "kernax": with_kernax,
    "scikit-learn, joblib": with_sklearn,
    "BoTorch, batched": with_botorch,
}


def rows(count: int, *, ragged: bool) -> list[dict[str, Any]]:
    """A row for each way. Evidences are compared with those of kernax."""
    sets = drawn(count, ragged=ragged)
    table = []
    ours = None
    for way, learn in WAYS.items():
        if way.startswith("BoTorch") and (ragged or importlib.util.find_spec("botorch") is None):
            print(f"{way}: {'no weights' if ragged else 'not installed'}", flush=True)
            continue
        found, seconds, more = learn(sets)
        values = evidences(sets[: len(found)], found)
        row = {"way": way, "series": len(sets), "ragged": ragged, "seconds": seconds} | more
        if ours is None:
            ours = values
        else:
            # How many series end higher than with kernax, and how many lower.
            apart = values - ours[: len(values)]
            row |= {"higher": int(np.sum(apart > 1e-3)), "lower": int(np.sum(apart < -1e-3))}
            row |= {"highest": float(apart.max()), "lowest": float(apart.min())}
        print(json.dumps(row), flush=True)
        table.append(row)
    return table


def main() -> None:
    """Prints the rows."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.thousand", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="twelve series")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    options = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    jax.config.update("jax_enable_x64", True)
    count = 12 if options.quick else 1000
    found = [*rows(count, ragged=False), *rows(count, ragged=True)]
    if options.json is not None:
        options.json.write_text(json.dumps(environment() | {"rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
