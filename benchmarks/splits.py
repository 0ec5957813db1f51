"""How well do learned processes predict, on twenty splits of real data? The published tables show
it.

A Gaussian process with a lengthscale for each dimension, a variance and a noise, learned from one
start (1, 1, 0.1) by at most 100 steps of L-BFGS, by kernax and by scikit-learn: error and mean
negative log density in the target's units, final negative log likelihood of standardised targets,
seconds. Inputs and targets are standardised by training rows (Hernandez-Lobato & Adams 2015).
"""

import time

import jax
import numpy as np
from scipy.optimize import minimize
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

import kernax as kx
from benchmarks.restarts import LBFGS, loss

STEPS = 100


def with_kernax(X, y, X_new):
    """Mean and variance of new targets, negative log likelihood, seconds."""
    start = kx.Model(1.0 * kx.RBF(np.ones(X.shape[1])), 0.1)
    before = time.perf_counter()
    solution = kx.minimise(loss, start, LBFGS, STEPS, args=(X, y))
    model = solution.value
    process = kx.condition(kx.GaussianProcess(model.kernel), X, y, model.ridge).value
    mean, variance = jax.block_until_ready(
        (jax.vmap(process.mean)(X_new), jax.vmap(process.variance)(X_new))
    )
    return (
        mean,
        variance + model.ridge,
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


LIBRARIES = {"kernax": with_kernax, "scikit-learn": with_sklearn}
