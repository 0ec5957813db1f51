"""What learners of a stream promise, recomputed in NumPy's widest floats."""

from collections.abc import Callable

import numpy as np
from problems import EPS, STRUCTURES, TINY
from referees import DENSE, Figures, norm
from structures import WIDE


def _places(problem, form) -> np.ndarray:
    """Of the points that were shown, in their order."""
    return np.flatnonzero((problem["weights"] > 0) | (not form.weighted))


def _errors(problem, form) -> np.ndarray:
    """Of the entries of K, in units of EPS; none where K was given."""
    if form.precomputed:
        return np.zeros((form.n, form.n))
    X = np.asarray(problem["X"], WIDE)
    _, error = STRUCTURES[problem["structure"]].formula(problem["numbers"], X)
    return np.where(np.isnan(error), np.inf, error)


def perceptron(problem, K, out, form) -> Figures:
    """The mistakes are those of the predictions, the predictions those of the mistakes so far."""
    shown = _places(problem, form)
    y = problem["signs"][shown]
    f = out["predictions"][shown]
    wrong = y * f <= 0
    change = problem["rate"] * y * wrong
    below = np.tril(K[np.ix_(shown, shown)], -1)
    # K and the values of the stream are rounded each in their own way.
    sizes = np.abs(K) + _errors(problem, form)
    bound = (
        256 * EPS * np.tril(sizes[np.ix_(shown, shown)], -1) @ np.abs(change) + 4 * form.n * TINY
    )
    count = np.sum(wrong)
    kept = out["coefficients"]
    return {
        "mistakes": (np.sum(out["mistakes"][shown] != wrong), 0),
        "others": (np.sum(out["mistakes"]) - count, 0),
        "coefficients": (norm(kept[:count] - change[wrong]), 4 * EPS * norm(change)),
        "free places": (norm(kept[count:]), 0),
        "predictions": (np.max(np.abs(f - below @ change) - bound, initial=0), 0),
    }


def recursive_least_squares(problem, K, out, form) -> Figures:
    """`K ridge c = K S (y - K c)`, S of the points that were shown: the optimality of the values.

    Coordinates along directions that are hardly above rounding have errors of its square root.
    """
    shown = _places(problem, form)
    taken = out["ages"] > 0
    c = np.zeros_like(problem["y"])
    c[shown[out["ages"][taken] - 1]] = out["coefficients"][taken]
    left = np.zeros_like(c)
    left[shown] = (problem["y"] - K @ c)[shown]
    y = np.zeros_like(c)
    y[shown] = problem["y"][shown]
    size = np.max(np.abs(np.diagonal(K)))
    off = K @ (left - problem["ridge"] * c)
    rounding = form.n * size * norm(y)
    return {"optimality": (norm(off), 32 * DENSE * rounding + TINY)}


def adagrad(problem, K, out, form) -> Figures:
    """Every weight and prediction is what the slopes of the predictions before it make of it."""
    rate, y, f = problem["rate"], problem["y"], out["predictions"]
    w = np.zeros_like(problem["features"][0])
    G, error = np.zeros_like(w), np.zeros_like(w)
    worst = np.zeros(())
    for step, i in enumerate(_places(problem, form)):
        x = problem["features"][i]
        rounding = np.abs(x) @ (error + 16 * EPS * np.abs(w)) + 16 * TINY
        worst = np.maximum(worst, np.abs(f[i] - w @ x) - rounding)
        g = (f[i] - y[i]) * x
        G = G + g**2
        root = np.sqrt(G)
        change = np.divide(rate * g, root, out=np.zeros_like(w), where=G > 0)
        w = w - change
        error = error + 16 * EPS * (np.abs(w) + (step + 2) * np.abs(change))
        # of numbers that are hardly floats any more, nothing is known
        small = (np.minimum(root, root / rate) < TINY / EPS) & (G > 0)
        error = error + np.where(small, np.abs(w) + rate, 0)
    return {
        "predictions": (worst, 0),
        "weights": (np.max(np.abs(out["x"] - w) - error), TINY),
    }


def winnow(problem, K, out, form) -> Figures:
    """Every prediction is that of the weights that the mistakes before it have left."""
    rate, y, f = problem["rate"], problem["signs"], out["predictions"]
    d = problem["features"].shape[1]
    exponents, moved = np.zeros(2 * d), 0
    worst = np.zeros(())
    wrong = np.zeros(form.n, bool)
    for i in _places(problem, form):
        x = problem["features"][i]
        w, uncertain = _weights_of(exponents, moved)
        worst = np.maximum(worst, np.abs(f[i] - w @ x) - uncertain @ np.abs(x) - TINY)
        wrong[i] = y[i] * f[i] <= 0
        if wrong[i]:
            change = rate * y[i] * np.concatenate([x, -x])
            exponents = exponents + change
            moved = moved + 2 * np.max(np.abs(change)) + 2 * np.log(2 * d)
    w, uncertain = _weights_of(exponents, moved)
    return {
        "mistakes": (np.sum(out["mistakes"] != wrong), 0),
        "predictions": (worst, 0),
        "weights": (np.max(np.abs(out["x"] - w) - uncertain), TINY),
    }


def _weights_of(exponents: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The differences of normalised weights, and how far rounding may have moved these."""
    powers = np.exp(exponents - np.max(exponents))
    up, down = np.split(powers / np.sum(powers), 2)
    doubt = 16 * EPS * (len(exponents) + moved)
    return up - down, np.minimum(2, np.expm1(2 * doubt)) * (up + down) + np.where(doubt > 0.1, 2, 0)


REFEREES: dict[str, Callable[..., Figures]] = {
    "perceptron of a stream": perceptron,
    "recursive least squares": recursive_least_squares,
    "Adagrad of a stream": adagrad,
    "Winnow of a stream": winnow,
}
