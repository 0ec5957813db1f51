"""What subsamples and the Stein discrepancy promise, recomputed in NumPy's widest floats."""

from collections.abc import Callable
from functools import partial

import numpy as np
from problems import EPS, TINY
from referees import Figures
from structures import WIDE


def _apart(out, shares):
    """By how much the shares of the points chosen differ from these."""
    places = np.asarray(out["indices"], int)
    return np.bincount(places, minlength=len(shares)) / WIDE(len(places)) - shares


def _noise(K):
    """Of sums over a row of K."""
    return 64 * EPS * len(K) * np.max(np.abs(K)) + TINY


def _discrepancy(out, K, shares):
    apart = _apart(out, shares)
    value = max(apart @ K @ apart, WIDE(0))
    return abs(out["discrepancy"] - value), _noise(K)


def herding(problem, K, out, form, replace=True) -> Figures:
    """Each point makes the discrepancy least, up to rounding, and has a weight; the discrepancy is
    that of those chosen.
    """
    shares = problem["weights"] / np.sum(problem["weights"])
    mean = K @ shares
    free = shares > 0
    sums = np.zeros(form.n, WIDE)
    figures = {"discrepancy": _discrepancy(out, K, shares)}
    for t, place in enumerate(np.asarray(out["indices"], int)):
        growth = np.where(free, sums + np.diagonal(K) / 2 - (t + 1) * mean, np.inf)
        figures[f"step {t}"] = growth[place] - np.min(growth), (t + 1) * _noise(K)
        sums = sums + K[place]
        free[place] &= replace
    return figures


def thin(problem, K, out, form) -> Figures:
    """The refined part is no worse than it was, nor than standard thinning."""
    shares = np.full(form.n, 1 / WIDE(form.n))
    return {
        "discrepancy": _discrepancy(out, K, shares),
        "refined": (out["discrepancy"] - out["split"], _noise(K)),
        "standard": (out["discrepancy"] - out["standard"], _noise(K)),
    }


def stein_discrepancy(problem, K, out, form) -> Figures:
    """Of the RBF and a standard normal density, in closed form."""
    X = problem["features"]
    w = problem["weights"]
    square = max(np.max(np.abs(X)), WIDE(TINY) ** (WIDE(1) / 3)) ** 2  # as RBF has it
    products = X @ X.T
    norms = np.diagonal(products)
    s = norms[:, None] + norms[None, :] - 2 * products
    k = np.exp(-s / square / 2)
    d = X.shape[1]
    stein = k * (d / square - s / square**2 - s / square + products)
    size = np.sum(w)
    value = (w @ stein @ w - w @ np.diagonal(stein)) / (size * (size - 1))
    terms = d / square + d + d * square
    reach = (size**2 + w @ w) / abs(size * (size - 1))  # of weights that add up to one, nearly
    return {"error": (abs(out["value"] - value), 64 * form.n * EPS * terms * reach + TINY)}


REFEREES: dict[str, Callable[..., Figures]] = {
    "herding": herding,
    "herding without replacement": partial(herding, replace=False),
    "thin": thin,
    "stein_discrepancy": stein_discrepancy,
}
