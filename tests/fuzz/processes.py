"""Referees of approximate posteriors: their conditions, moments and evidences, recomputed from the
factors of the points (`coefficients`, the slopes, and `precisions`) in NumPy's widest floats.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from learners import INDUCING
from problems import EPS
from referees import (
    SLOPES,
    Figures,
    conditions,
    error_of_kernel,
    exactly,
    log_determinant,
    solved,
    weighed,
)
from scipy.special import gammaln
from structures import WIDE

QUADRATURE = 1e-10 if EPS < 1e-10 else 0.0  # error of an integral over a marginal, beyond rounding
FIXED_POINT = 2 * EPS**0.5  # the change of a site that counts as none, and of its variance


def laplace(problem, K, out, form, loss) -> Figures:
    y = problem["counts" if loss == "Poisson" else "signs"]
    w = problem["weights"]
    a = out["coefficients"]
    f = exactly(K, a)
    slope = w * SLOPES[loss](y, problem, f)
    at_zero = w * SLOPES[loss](y, problem, np.zeros_like(f))
    figures = conditions(K, a, slope, at_zero, replace(form, bias=False))
    losses, curvature = LOSSES[loss](y, f)
    off = _rounding_of_values(problem, K, a, form)
    precisions = np.abs(out["precisions"] - w * curvature)
    figures["precisions"] = np.max(precisions - 2 * w * curvature * off), 64 * EPS * np.max(w)
    M, _, _, slack = weighed(problem | {"weights": w * curvature}, K, WIDE(1), form)
    moved = slack * np.trace(_inverse(M)) if not form.precomputed else 0
    terms = np.sum(w * losses), a @ f / 2, log_determinant(M) / 2
    # The derivative of no likelihood here is larger than itself: a value that is off by a part
    # moves W by that part at most, and half the determinant by less.
    moved = moved + np.sum((np.abs(slope) + np.abs(a) + 1) * off)
    rounding = moved + 64 * EPS * np.sum(np.abs(terms)) + 4 * out["rounding"]
    figures["evidence"] = abs(out["evidence"] + sum(terms)), rounding
    return figures


def laplace_of_classes(problem, K, out, form) -> Figures:
    Y, w = problem["classes"], problem["weights"]
    a = out["coefficients"]
    f = exactly(K, a)
    P = _softmax(f)
    gradient = w[:, None] * (P - Y)
    at_zero = w[:, None] * (1 / WIDE(3) - Y)
    figures = conditions(K, a, gradient, at_zero, replace(form, bias=False))
    n, classes = Y.shape
    # W over all points and classes leaves what is common to the classes of a point alone. Over
    # their differences it is a sum of products of two probabilities, of which no digit cancels.
    pairs = [(c, d) for c in range(classes) for d in range(c)]
    basis = np.linalg.qr(np.concatenate([np.ones((classes, 1)), np.eye(classes)], 1))[0][:, 1:]
    basis = basis.astype(WIDE)
    product = np.zeros((n * (classes - 1), n * (classes - 1)), WIDE)
    for i in range(classes - 1):
        for j in range(classes - 1):
            ends = lambda c, d, k: basis[c, k] - basis[d, k]
            of_pairs = [P[:, c] * P[:, d] * ends(c, d, i) * ends(c, d, j) for c, d in pairs]
            block = slice(i * n, i * n + n), slice(j * n, j * n + n)
            product[block] = (w * sum(of_pairs))[:, None] * K
    T = np.eye(len(product), dtype=WIDE) + product
    losses = np.sum(w * -np.log(np.sum(P * Y, 1)))
    terms = losses, np.sum(a * f) / 2, _log_determinant_of_any(T) / 2
    off = _rounding_of_values(problem, K, a, form)
    moved = np.sum((np.abs(gradient) + np.abs(a) + 1) * off)
    if not form.precomputed:
        of_kernel = error_of_kernel(problem, form) / (np.max(np.abs(K)) or 1)
        moved += 16 * n * of_kernel * np.sum(np.abs(_inverse(T)).T * np.abs(product))
    rounding = moved + 64 * EPS * np.sum(np.abs(terms)) + 4 * out["rounding"]
    figures["evidence"] = abs(out["evidence"] + sum(terms)), rounding
    return figures


def expectation_propagation(problem, K, out, form) -> Figures:
    # Each tilted distribution, its point's likelihood beside the other factors, has the mean and
    # the variance of the marginal.
    q = _Normal(problem, K, out, form)
    left = q.left
    cavity = q.mean - q.variance * q.slopes / left, q.variance / left
    log_z, mean, variance = _tilted(problem["signs"], problem["weights"], *cavity)
    figures = {
        "means": (q.largest(np.abs(mean - q.mean) / q.deviation - q.off_by), FIXED_POINT),
        "variances": (q.largest(np.abs(q.variance / variance - 1) - q.off_by), FIXED_POINT),
    }
    of_means = q.precisions * q.mean**2 - 2 * q.shifts * q.mean + q.shifts**2 * q.variance
    of_sites = log_z + (of_means / left - np.log(left)) / 2
    terms = of_sites, q.shifts * q.mean / 2, -q.determinant / 2
    return figures | q.evidence(out, terms)


def variational(problem, K, out, form) -> Figures:
    q = _Normal(problem, K, out, form)
    y, w = problem["signs"], problem["weights"]
    nodes, masses = _panels(q.mean, q.deviation, q.mean, q.deviation)
    density = masses * _normal_density(nodes, q.mean, q.variance)
    losses, curvatures = _logistic(y[:, None], nodes)
    slopes = SLOPES["Logistic"](y[:, None], problem, nodes)
    averaged = lambda values: w * np.sum(density * values, 1)
    steep = w * q.deviation, w * q.variance
    return _stationary(q, out, form, *map(averaged, (losses, slopes, curvatures)), steep)


def variational_of_outliers(problem, K, out, form) -> Figures:
    q = _Normal(problem, K, out, form)
    y, w, degrees = problem["y"], problem["weights"], 1 + 10 * problem["tau"]
    scale2 = WIDE(problem["ridge"])
    squares = ((y - q.mean) ** 2 + q.variance) / scale2
    gains = w * (degrees + 1) / (degrees + squares) / scale2
    constant = np.log(np.pi * degrees * scale2) / 2 - _log_rise_by_half(degrees / 2)
    losses = w * ((degrees + 1) / 2 * np.log1p(squares / degrees) + constant)
    # A target far away is subtracted from a mean, and the slope may be steep.
    steep = 4 * gains * q.variance * (1 + EPS * np.abs(y) / q.deviation / q.off_by)
    return _stationary(q, out, form, losses, gains * (q.mean - y), gains, (steep, steep))


def _stationary(q, out, form, losses, slopes, curvatures, steep) -> Figures:
    """The slope and the curvature of the mean loss of each marginal are those of its factor; how
    much both change with the marginal is `steep`.
    """
    of_slope = np.abs(slopes + q.slopes) * q.deviation
    of_curvature = np.abs(curvatures - q.precisions) * q.variance
    figures = {
        "slopes": (q.largest(of_slope - q.off_by * (1 + steep[0])), FIXED_POINT),
        "curvatures": (q.largest(of_curvature - q.off_by * (1 + steep[1])), FIXED_POINT),
    }
    divergence = np.sum(q.left) - form.n + q.slopes @ q.mean + q.determinant
    return figures | q.evidence(out, (-losses, -divergence / 2))


def _log_rise_by_half(r):
    """`log (Gamma(r + 1/2) / Gamma(r))`."""
    return WIDE(gammaln(float(r) + 0.5) - gammaln(float(r)))


class _Normal:
    """q, by the precisions and the slopes of its factors: moments, and how far rounding moves them.

    `left` is one minus precision times variance.
    """

    def __init__(self, problem, K, out, form):
        self.precisions, self.slopes = out["precisions"], out["coefficients"]
        of_precisions = problem | {"weights": self.precisions}
        M, _, roots, self.slack = weighed(of_precisions, K, WIDE(1), form)
        self.inverse = _inverse(M)
        self.left = np.diagonal(self.inverse)
        explained = self.inverse @ (roots[:, None] * K)
        # The way of which fewer digits cancel.
        by_prior = np.diagonal(K) - np.sum(roots[:, None] * K * explained, 0)
        is_known = self.precisions * np.diagonal(K) > 1
        self.variance = np.where(is_known, (1 - self.left) / self.precisions, by_prior)
        self.deviation = np.sqrt(self.variance)
        self.determinant = log_determinant(M)
        self.mean = exactly(K, self.slopes)
        self.shifts = self.slopes + self.precisions * self.mean
        of_values = _rounding_of_values(problem, K, self.slopes, form)
        of_variance = self.slack * np.sum(explained**2, 0) + 64 * EPS * np.diagonal(K)
        # In units of the marginals. What is more than one, or a variance of zero, has no digits.
        off = 64 * (of_variance / self.variance + of_values / self.deviation)
        off = off + self.slack * np.diagonal(self.inverse @ self.inverse) / self.left
        self.known = off < 1
        self.off_by = np.where(self.known, off, np.inf)

    def largest(self, figures):
        """Of the points whose marginals have digits."""
        return np.max(np.where(self.known, figures, 0))

    def evidence(self, out, terms) -> Figures:
        value = sum(np.sum(term) for term in terms)
        size = sum(np.sum(np.abs(term)) for term in terms)
        # Sites that are off by as much as is allowed move it to second order, but rounding makes
        # means and slopes that are not of one q.
        of_sites = np.sum(FIXED_POINT**2 + self.off_by * (1 + np.abs(self.slopes) * self.deviation))
        rounding = 256 * EPS * size + self.slack * np.trace(self.inverse) + of_sites
        known = np.all(self.known)
        rounding = rounding + 4 * out["rounding"] + len(self.left) * QUADRATURE
        return {"evidence": (abs(out["evidence"] - value), rounding if known else np.inf)}


def sgpr(problem, K, out, form) -> Figures:
    noise, y, w = problem["ridge"], problem["y"], problem["weights"]
    at = K[:INDUCING, :INDUCING] + out["jitter"] * np.eye(INDUCING, dtype=WIDE)
    explained = K[:, :INDUCING] @ solved(at[None], K[None, :INDUCING])[0]
    left = np.diagonal(K) - np.diagonal(explained)
    M, _, roots, slack = weighed(problem, explained, noise, form)
    r = roots * y
    both = solved(M[None], np.concatenate([r[:, None], np.eye(len(M), dtype=WIDE)], 1)[None])[0]
    alpha, inverse = both[:, 0], both[:, 1:]
    constant = np.sum(w * np.log(2 * np.pi * WIDE(1))) - np.sum((1 - w) * np.log(noise))
    terms = r @ alpha, log_determinant(M), constant, np.sum(w * left) / noise
    # What rounding does to k(Z, Z) is noise at Z, magnified by what projects on it.
    projections = solved(at[None], K[None, :INDUCING])[0]
    blur = 4 * INDUCING * EPS * np.max(np.diagonal(at)) * np.sum(projections**2, 0)
    of_kernel = (slack + blur) * (alpha**2 + np.diagonal(inverse)) + w / noise * (slack + blur)
    rounding = out["rounding"] + np.sum(of_kernel) + 64 * EPS * np.sum(np.abs(terms))
    # What is left of M beside noise that is lost in it is of no use to a referee.
    bar = 4 * rounding if np.isfinite(sum(terms)) else np.inf
    figures = {"bound": (abs(out["bound"] + sum(terms) / 2), bar)}
    bar = 4 * np.sum(blur + slack) if np.isfinite(np.sum(left)) else np.inf
    figures["trace"] = abs(out["trace"] - np.sum(left)), bar
    return figures


def _logistic(y, f):
    """Values and curvatures."""
    tail = np.exp(-np.abs(f))
    return np.logaddexp(WIDE(0), -y * f), tail / (1 + tail) ** 2


def _poisson(y, f):
    """Values, with `log y!`, and curvatures."""
    factorials = np.cumsum(np.log(np.arange(1, max(np.max(y), 1) + 1, dtype=WIDE)))
    of_y = np.where(y > 0, factorials[np.maximum(y.astype(int) - 1, 0)], 0)
    return np.exp(f) - y * f + of_y, np.exp(f)


LOSSES = {"Logistic": _logistic, "Poisson": _poisson}


def _softmax(f):
    P = np.exp(f - np.max(f, 1, keepdims=True))
    return P / np.sum(P, 1, keepdims=True)


def _inverse(M):
    return solved(M[None], np.eye(len(M), dtype=WIDE)[None])[0]


def _log_determinant_of_any(T):
    """`log |det T|`, by elimination with row pivots."""
    T, total = T.copy(), WIDE(0)
    for i in range(len(T)):
        pivot = i + np.argmax(np.abs(T[i:, i]))
        T[[i, pivot]] = T[[pivot, i]]
        total += np.log(np.abs(T[i, i]))
        T[i + 1 :] -= (T[i + 1 :, i] / T[i, i])[:, None] * T[i]
    return total


def _rounding_of_values(problem, K, a, form):
    """How far `K a` may be off, and K where learners compute it by themselves."""
    of_sums = 4 * EPS * (np.abs(K) @ np.abs(a))
    return of_sums + 16 * error_of_kernel(problem, form) * np.sum(np.abs(a), 0)


def _tilted(y, w, mean, variance):
    """The logarithm of the integral of `N(f | mean, variance) sigmoid(y f)^w`, and the mean and the
    variance of f under that product.
    """
    slope = lambda f: (f - mean) / variance - w * y / (1 + np.exp(y * f))
    reach = w * variance
    low, high = mean - np.where(y < 0, reach, 0), mean + np.where(y > 0, reach, 0)
    for _ in range(200):
        mode = (low + high) / 2
        rises = slope(mode) < 0
        low, high = np.where(rises, mode, low), np.where(rises, high, mode)
    mode = (low + high) / 2
    curvature = 1 / variance + w * _logistic(y, mode)[1]
    nodes, masses = _panels(mode, 1 / np.sqrt(curvature), mode, np.sqrt(variance))
    exponent = -((nodes - mean[:, None]) ** 2) / (2 * variance[:, None])
    exponent = exponent - w[:, None] * _logistic(y[:, None], nodes)[0]
    top = np.max(exponent, 1)
    product = masses * np.exp(exponent - top[:, None])
    total = np.sum(product, 1)
    first = np.sum(product * nodes, 1) / total
    second = np.sum(product * (nodes - first[:, None]) ** 2, 1) / total
    return top + np.log(total) - np.log(2 * np.pi * variance) / 2, first, second


def _normal_density(f, mean, variance):
    off = f - mean[:, None]
    return np.exp(-(off**2) / (2 * variance[:, None])) / np.sqrt(2 * np.pi * variance[:, None])


_POINTS, _WEIGHTS = (part.astype(WIDE) for part in np.polynomial.legendre.leggauss(20))


def _panels(centre, narrow, middle, wide):
    """Nodes and masses of Gauss and Legendre between many ends: about two centres, in units of
    either, and about zero, where logistic functions turn.
    """
    steps = np.arange(-12, 13, dtype=WIDE)
    powers = WIDE(2) ** np.arange(-2, 80)
    low, high = middle - 12 * wide, middle + 12 * wide
    ends = np.concatenate(
        [
            centre[:, None] + steps * narrow[:, None],
            middle[:, None] + steps * wide[:, None],
            np.broadcast_to(np.concatenate([-powers, [0], powers]), (len(centre), 165)),
        ],
        1,
    )
    ends = np.sort(np.clip(ends, low[:, None], high[:, None]), 1)
    halves = np.diff(ends, axis=1)[:, :, None] / 2
    nodes = ends[:, :-1, None] + halves * (1 + _POINTS)
    return nodes.reshape(len(centre), -1), (halves * _WEIGHTS).reshape(len(centre), -1)


REFEREES = {
    "laplace of Bernoulli": partial(laplace, loss="Logistic"),
    "laplace of Poisson": partial(laplace, loss="Poisson"),
    "laplace of Categorical": laplace_of_classes,
    "expectation_propagation": expectation_propagation,
    "variational": variational,
    "variational of StudentT": variational_of_outliers,
    "sgpr": sgpr,
}
