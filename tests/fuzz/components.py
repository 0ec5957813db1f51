"""What components and clusters promise, recomputed in NumPy's widest floats."""

from collections.abc import Callable

import numpy as np
from learners import CLUSTERS
from problems import EPS, TINY
from referees import Figures, norm
from structures import WIDE

# Relative residuals at which eigenvectors count as found, and some rounding of the centring.
CLOSE = 4e-8 if EPS < 1e-10 else 4e-4


def _centred(problem, K):
    """`H K H^T`, and the shares of the points."""
    p = problem["weights"] / np.sum(problem["weights"])
    means = K @ p
    return K - means[:, None] - means[None, :] + p @ means, p


def kernel_pca(problem, K, out, form) -> Figures:
    """`W K a = l a` of the centred K, a the coefficients, whose sum is zero."""
    centred, p = _centred(problem, K)
    w = problem["weights"]
    size = np.max(np.abs(K)) * np.max(w) * form.n
    values = out["variances"] * np.sum(w)
    figures = {}
    for j, (value, a) in enumerate(zip(values, out["coefficients"].T)):
        if value == 0:
            figures[f"zero {j}"] = norm(a), TINY
            continue
        off = w * (centred @ a) - value * a
        bound = CLOSE * values[0] + 8 * EPS * size
        figures[f"residual {j}"] = norm(off), bound * norm(a) + TINY
        rounding = CLOSE + 64 * form.n * EPS * size / value
        figures[f"length {j}"] = abs(a @ (centred @ a) - 1), rounding
    reach = norm(out["coefficients"]) * np.max(np.abs(K)) * form.n
    mean = p @ (K @ out["coefficients"]) + out["bias"]
    figures["mean"] = norm(mean), 64 * form.n * EPS * reach + TINY
    return figures


def kernel_cca(problem, K, out, form) -> Figures:
    """`(W K + ridge) rho a = W g` and `(W L + ridge) rho b = W f`, centred."""
    w, rho = problem["weights"], out["correlations"][0]
    y = problem["y"] / np.max(np.abs(problem["y"]))
    L, _ = _centred(problem, np.multiply.outer(y, y))
    centred, _ = _centred(problem, K)
    a, b = out["coefficients"][:, 0], out["others"][:, 0]
    if rho == 0:
        return {"zero": (norm(a), TINY)}
    g, f = L @ b, centred @ a
    reach = np.max(np.abs(K)) * norm(a) + np.max(np.abs(L)) * norm(b)
    rounding = 64 * EPS * form.n**2 * np.max(w) * reach  # of the values of both functions
    # Residuals are some 1000 times smaller than the stat allows; 1 / 1560 of it was seen.
    close = CLOSE + out["rounding"] / 512
    figures = {}
    for name, values, mine, ours in (("first", g, f, a), ("second", f, g, b)):
        # Jitter may have been added to either.
        ridge = min(
            (problem["ridge"], problem["ridge"] + out["jitter"]),
            key=lambda ridge: norm(_left_over(w, rho, ridge, values, mine, ours)),
        )
        left = _left_over(w, rho, ridge, values, mine, ours)
        terms = norm(w * values) + rho * ridge * norm(ours) + rho * norm(w * mine)
        figures[name] = norm(left), close * terms + rounding + TINY
    return figures


def _left_over(w, rho, ridge, values, mine, ours):
    """`w (values - rho mine) - rho ridge ours`, up to a constant function."""
    left = w * (values - rho * mine) - rho * ridge * ours
    return left - w * (np.sum(left) / np.sum(w))


def _loose(ridge, w, M):
    """The relative residual, where a solve with the ridge loses digits."""
    condition = 1 + np.max(w) * np.max(np.abs(M)) * len(M) / ridge
    return CLOSE + 16 * EPS * len(M) * condition


def kernel_discriminant(problem, K, out, form) -> Figures:
    """`B K a = l (N K + ridge) a`."""
    w, Y = problem["weights"], problem["classes"]
    totals = Y.T @ w
    present = totals > 0
    P = w[:, None] * Y[:, present] / totals[present]
    p = w / np.sum(w)
    figures = {}
    for j, (value, a) in enumerate(zip(out["separations"], out["coefficients"].T)):
        if value == 0:
            figures[f"zero {j}"] = norm(a), TINY
            continue
        f = K @ a
        of_classes = P.T @ f
        between = P @ (totals[present] * (of_classes - p @ f))
        within = w * f - P @ (totals[present] * of_classes)
        off = between / value - within - problem["ridge"] * a
        terms = norm(between) / value + norm(within) + problem["ridge"] * norm(a)
        rounding = EPS * form.n * np.max(w) * np.max(np.abs(K)) * form.n * norm(a) * (1 + 1 / value)
        bar = _loose(problem["ridge"], w, K) * max(1, out["separations"][0] / value)
        figures[f"residual {j}"] = norm(off), bar * terms + 64 * rounding + TINY
    return figures


def kernel_kmeans(problem, K, out, form) -> Figures:
    """The objective is that of the partition, no cluster is empty, and no point is nearer to the
    mean of another one.
    """
    w = problem["weights"]
    labels = np.argmax(out["memberships"], 1)
    inside = w[:, None] * (labels[:, None] == np.arange(CLUSTERS))
    totals = np.sum(inside, 0)
    P = inside / np.where(totals > 0, totals, 1)
    at_points = K @ P
    apart = np.diagonal(K)[:, None] - 2 * at_points + np.sum(P * at_points, 0)
    own = apart[np.arange(form.n), labels]
    noise = 256 * EPS * np.max(np.abs(K)) + TINY
    moved = np.max(np.where(w > 0, own - np.min(apart, 1), 0))
    fewest = min(CLUSTERS, int(np.sum(w > 0)))
    return {
        "objective": (abs(out["objective"] - w @ own), noise * np.sum(w) + TINY),
        "moved": (moved, noise),
        "empty": (WIDE(fewest - np.sum(totals > 0)), WIDE(0.5)),
    }


REFEREES: dict[str, Callable[..., Figures]] = {
    "kernel_pca": kernel_pca,
    "kernel_cca": kernel_cca,
    "kernel_discriminant": kernel_discriminant,
    "kernel_kmeans": kernel_kmeans,
}
