"""Support vector machines and discriminants."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import kernax as kx
from benchmarks.import_vectors import LENGTHSCALES, PRICES, over_splits, supporting
from benchmarks.published.rows import table
from kernax.solvers import SMO

FINE = SMO(rtol=1e-8)
RIDGES = (0.01, 0.1, 1.0, 10.0)


def heart_scale(kernel: kx.AbstractKernel, quick: bool) -> dict[str, float]:
    """The converged machine with C = 1."""
    data = table("heart_scale")
    X = data["X"]
    y = data["y"].ravel().astype(float)
    solution = kx.svm(kernel, X, y, 1.0, solver=FINE)
    machine = solution.value
    right = np.sign(machine.values(X)) == y
    return {
        "objective": -float(solution.stats["dual"]),
        "rho": -float(machine.bias),
        "support vectors": int(solution.stats["support"]),
        "at the bound": int(solution.stats["bounded"]),
        "training accuracy, %": 100 * float(np.mean(right)),
    }


def svmguide1(is_scaled: bool, C: float, gamma: float, quick: bool) -> dict[str, float]:
    """The machine of the training rows, on those of test."""
    data = table("svmguide1")
    low = data["X_train"].min(0)
    high = data["X_train"].max(0)
    points = [data["X_train"], data["X_test"]]
    if is_scaled:
        points = [2 * (part - low) / (high - low) - 1 for part in points]
    y, y_new = (2.0 * data[name].ravel() - 1 for name in ("y_train", "y_test"))
    rows = slice(None, None, 20 if quick else 1)
    kernel = kx.RBF((0.5 / gamma) ** 0.5)
    solution = kx.svm(kernel, points[0][rows], y[rows], C, solver=FINE)
    right = np.sign(solution.value.values(points[1])) == y_new
    return {
        "test accuracy, %": 100 * float(np.mean(right)),
        "objective": -float(solution.stats["dual"]),
        "support vectors": int(solution.stats["support"]),
    }


def of_splits(name: str, quick: bool) -> dict[str, float]:
    """A machine whose C is chosen on a half of the first split."""
    prices = (1.0,) if quick else PRICES
    price, means = over_splits(supporting, kx.RBF(LENGTHSCALES[name]), prices, few(name, quick))
    return {"error, %": float(means[0]), "vectors": float(means[1]), "C": price}


def few(name: str, quick: bool) -> dict[str, Any]:
    """The table of a set, and two of its splits alone if need be."""
    data = table(name)
    splits = 2 if quick else 10
    return data | {key: data[key][:splits] for key in ("train_idx", "test_idx")}


def ripley(quick: bool) -> dict[str, float]:
    """Machines of four draws of 100 training points; C by their leave-one-out errors."""
    data = table("ripley")
    X, X_new = data["X_train"], data["X_test"]
    y, y_new = (np.where(data[name].ravel() > 0, 1.0, -1.0) for name in ("y_train", "y_test"))
    kernel = kx.RBF(0.125**0.5)
    found = []
    for seed in range(1 if quick else 4):
        rows = np.random.default_rng(seed).permutation(250)[:100]
        prices = PRICES[: 1 if quick else None]
        left_out = [kx.calibration.svm_leave_one_out(kernel, X[rows], y[rows], C) for C in prices]
        wrong = [np.sum(values * y[rows] <= 0) for values in left_out]
        f = kx.svm(kernel, X[rows], y[rows], prices[int(np.argmin(wrong))]).value
        error = 100 * np.mean(f.values(X_new) * y_new <= 0)
        found.append((error, np.sum(np.asarray(f.coefficients) != 0)))
    error, vectors = np.mean(found, 0)
    return {"error, %": float(error), "vectors": float(vectors)}


def discriminant(name: str, quick: bool) -> dict[str, float]:
    """Fisher's, with a threshold halfway between the classes and a ridge chosen on a half of the
    first split.
    """
    data = few(name, quick)
    X = jnp.asarray(data["X"])
    y = jnp.asarray(data["y"].ravel().astype(float))
    kernel = kx.RBF(LENGTHSCALES[name])

    @jax.jit
    def error(ridge, kept, held_out):
        found = kx.kernel_discriminant(kernel, X[kept], y[kept], ridge, throw=False).value
        classes = jax.vmap(found.classify)(X[held_out])
        return 100 * jnp.mean((2 * classes - 1) != y[held_out])

    first = data["train_idx"][0]
    of_half = partial(error, kept=first[::2], held_out=first[1::2])
    ridge = min(RIDGES[:1] if quick else RIDGES, key=lambda ridge: float(of_half(ridge)))
    splits = zip(data["train_idx"], data["test_idx"])
    errors = [float(error(ridge, *split)) for split in splits]
    return {"error, %": float(np.mean(errors)), "ridge": ridge}
