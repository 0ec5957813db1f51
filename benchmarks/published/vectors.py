"""Learners of few vectors: relevance and import vector machines.

Of the former the experiments of Tipping (2001): ten splits of banana, titanic and waveform,
Ripley's set, and sinc. The mean test error in percent (of sinc the root mean square error, or the
largest error without noise), and the mean number of vectors. He chose the widths by five-fold
cross-validation on the first five training splits; here the median over those splits of the width
with the largest evidence is taken.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.import_vectors import LENGTHSCALES, RIDGES, importing, over_splits
from benchmarks.published.machines import few
from benchmarks.published.rows import table

WIDTHS = {
    "banana": (0.35, 0.5, 0.7, 1.0),
    "titanic": (0.5, 1.0, 2.0),
    "waveform": (3.0, 5.0, 8.0),
}
SPLINE = 1.0 + kx.Linear() + kx.kernels.IntegratedBrownian()  # Tipping's, on the half-line
LIKELIHOOD = kx.likelihoods.Bernoulli()


@partial(jax.jit, static_argnames="max_vectors")
def fitted(X, signs, width, max_vectors=100):
    """The machine of the kernel `exp(-|x - z|^2 / (2 width^2))`."""
    return kx.relevance_vector_machine(
        kx.RBF(width), X, signs, likelihood=LIKELIHOOD, max_vectors=max_vectors, throw=False
    )


@jax.jit
def errors(machine, X, signs):
    """In percent."""
    return 100 * jnp.mean(machine.function.values(X) * signs <= 0)


def width_of(name: str, data: dict, splits: int) -> float:
    """The median over some splits of the width with the largest evidence."""
    best = []
    for rows in data["train_idx"][:splits]:
        X, y = data["X"][rows], data["y"][rows].astype(float)
        evidences = [float(fitted(X, y, width).value.log_evidence) for width in WIDTHS[name]]
        best.append(WIDTHS[name][int(np.argmax(evidences))])
    return float(np.median(best))


def relevant(name: str, quick: bool) -> dict[str, float]:
    """Means over the splits."""
    data = table(name)
    splits = 1 if quick else 10
    width = width_of(name, data, min(splits, 5))
    X, y = data["X"], data["y"].astype(float)
    found = []
    for train, test in list(zip(data["train_idx"], data["test_idx"]))[:splits]:
        solution = fitted(X[train], y[train], width)
        found.append((errors(solution.value, X[test], y[test]), *_count_and_success(solution)))
    return _means(found, "error, %") | {"width": width}


def _count_and_success(solution):
    successful = bool(solution.result == kx.RESULTS.successful)
    return int(solution.value.count), 100 * successful


def _means(found, error: str) -> dict[str, float]:
    names = (error, "vectors", "successful fits, %")
    return dict(zip(names, np.mean(np.asarray(found, float), 0).tolist()))


def relevant_of_ripley(quick: bool) -> dict[str, float]:
    """Four draws of 100 of the training points, kernel `exp(-|x - z|^2 / 0.25)`."""
    data = table("ripley")
    y, y_new = (np.where(data[name].ravel() > 0, 1.0, -1.0) for name in ("y_train", "y_test"))
    found = []
    for seed in range(1 if quick else 4):
        rows = np.random.default_rng(seed).permutation(250)[:100]
        solution = fitted(data["X_train"][rows], y[rows], 0.125**0.5)
        error = errors(solution.value, data["X_test"], y_new)
        found.append((error, *_count_and_success(solution)))
    return _means(found, "error, %")


def relevant_of_sinc(quick: bool) -> dict[str, float]:
    """100 points without noise, which is given as 0.01^2; the largest error."""
    x = np.linspace(0, 20, 100)[:, None]
    y = np.sinc((x[:, 0] - 10) / np.pi)
    solution = kx.relevance_vector_machine(SPLINE, x, y, noise=1e-4, throw=False)
    error = np.max(np.abs(solution.value.function.values(x) - y))
    return _means([(error, *_count_and_success(solution))], "largest error")


def relevant_of_noisy_sinc(quick: bool) -> dict[str, float]:
    """Normal noise of deviation 0.1, which is learned; the mean over ten draws."""
    x = np.linspace(0, 20, 100)[:, None]
    truth = np.sinc((x[:, 0] - 10) / np.pi)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(2 if quick else 10):
        y = truth + 0.1 * rng.normal(size=100)
        solution = kx.relevance_vector_machine(SPLINE, x, y, throw=False)
        off = np.asarray(solution.value.function.values(x)) - truth
        found.append((np.sqrt(np.mean(off**2)), *_count_and_success(solution)))
    return _means(found, "RMSE")


def imported(name: str, quick: bool) -> dict[str, float]:
    """Import vector machines; the ridge is chosen on a half of the first split."""
    ridges = (1.0,) if quick else RIDGES
    data = few(name, quick)
    ridge, means = over_splits(importing, kx.RBF(LENGTHSCALES[name]), ridges, data)
    error, vectors, successful, _ = means.tolist()
    return {
        "error, %": error,
        "vectors": vectors,
        "successful fits, %": successful,
        "ridge": ridge,
    }
