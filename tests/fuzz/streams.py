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


REFEREES: dict[str, Callable[..., Figures]] = {
    "perceptron of a stream": perceptron,
    "recursive least squares": recursive_least_squares,
}
