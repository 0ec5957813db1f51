"""Times that others publish of their own machines."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx

FOLDS = 10
CLUSTERS = 5  # in each class


def cross_validated_machines(quick: bool) -> dict[str, float]:
    """Ten folds of 50 SVMs, and the SVM of the best C: the seconds of all that, in float32.

    The Gram matrix is computed once. The ten SVMs of a C are one batch, in which the points that
    are left out have weight zero.
    """
    n, p, count = (200, 20, 3) if quick else (10_000, 1000, 50)
    X, y = clusters(n, p)
    scale = float(np.median(np.linalg.norm(X[::2] - X[1::2], axis=1)))
    penalties = (1 / (2 * n * np.geomspace(1e3, 1e-3, count))).astype(np.float32)
    fold = np.random.default_rng(1).permutation(n) % FOLDS
    kept = (fold != np.arange(FOLDS)[:, None]).astype(np.float32)

    @jax.jit
    def machine(K, y, C, weights):
        kernel = kx.Precomputed(K)
        solution = kx.svm(kernel, jnp.arange(n), y, C, weights=weights, throw=False)
        f = solution.value
        return K @ f.coefficients + f.bias, solution.result == kx.RESULTS.successful

    @jax.jit
    def errors(K, y, C):
        values, solved = jax.vmap(machine, (None, None, None, 0))(K, y, C, kept)
        return jnp.sum((values * y <= 0) & (kept == 0)) / n, jnp.all(solved)

    begun = time.perf_counter()
    K = kx.gram(kx.RBF(scale / 2**0.5), X)  # exp(-|x - z|^2 / median^2)
    found = [errors(K, y, C) for C in penalties]
    wrong = [float(error) for error, _ in found]
    best = penalties[int(np.argmin(wrong))]
    _, solved = machine(K, y, best, np.ones(n, np.float32))
    seconds = time.perf_counter() - begun
    return {
        "seconds": seconds,
        "successful fits, %": 100 * float(np.mean([*(each for _, each in found), solved])),
        "cross-validated error, %": 100 * min(wrong),
    }


def clusters(n: int, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of five clusters, standardised: normal points of deviation 3 around centres,
    which are normal and shifted by 2 in one half of the coordinates.
    """
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(2, CLUSTERS, p))
    centres[0, :, : p // 2] += 2
    centres[1, :, p // 2 :] += 2
    of_class = rng.integers(0, 2, n)
    X = centres[of_class, rng.integers(0, CLUSTERS, n)] + 3 * rng.normal(size=(n, p))
    X = (X - X.mean(0)) / X.std(0)
    return X.astype(np.float32), (2.0 * of_class - 1).astype(np.float32)


def long_line(quick: bool) -> dict[str, float]:
    """The evidence of a damped oscillator at 1.8 million sorted times, and the process given them:
    means and variances at all of them.
    """
    n = 2000 if quick else 1_800_000
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, n / 100, n))
    X = jnp.asarray(times[:, None])
    y = jnp.asarray(np.sin(times) + 0.3 * rng.normal(size=n))
    kernel = kx.kernels.DampedOscillator(6.0, 2.0)

    def conditioned(X, y, noise):
        process = kx.condition(kernel, X, y, noise, throw=False).value
        return process.mean.values(X), jax.vmap(process.variance)(X)

    def evidence(X, y, noise):
        return kx.log_marginal_likelihood(kernel, X, y, noise)

    return {
        "evidence, seconds": _median_seconds(evidence, X, y, 0.09),
        "means and variances, seconds": _median_seconds(conditioned, X, y, 0.09),
    }


def _median_seconds(function: Callable, *arguments: Any) -> float:
    """The median of seven runs of the compiled function."""
    run = jax.jit(function).lower(*arguments).compile()
    seconds = []
    for _ in range(7):
        begun = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)
