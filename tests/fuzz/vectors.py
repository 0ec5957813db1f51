"""What machines of few vectors promise, recomputed in NumPy's widest floats."""

from collections.abc import Callable
from functools import partial

import numpy as np
from problems import EPS, TINY
from referees import Figures, error_of_kernel, exactly, solved
from structures import WIDE


class _Fit:
    """A fit on a subset of the points, to second order: of signs in one column, or of classes."""

    def __init__(self, problem, K, out, form, target):
        self.kept = np.array([place for place in out["places"] if place >= 0], int)
        a = out["coefficients"][: len(self.kept)]
        self.b = np.atleast_1d(out["bias"])
        self.a = a.reshape(len(a), len(self.b))
        signs = target == "signs"
        y = problem[target]
        self.Y = np.stack([y < 0, y > 0], 1).astype(WIDE) if signs else y
        self.K, self.ridge, self.form = K, problem["ridge"], form
        self.w = problem["weights"]
        own = exactly(K[:, self.kept], self.a) + self.b
        self.f = np.append(np.zeros_like(own), own, 1) if signs else own
        top = np.max(self.f, 1, keepdims=True)
        self.P = np.exp(self.f - top)
        total = np.sum(self.P, 1, keepdims=True)
        self.P = self.P / total
        columns = slice(1, None) if signs else slice(None)
        # The probability of the label is one less those of the others, which may all be tiny.
        others = np.sum((1 - self.Y) * self.P, 1, keepdims=True)
        self.G = (self.w[:, None] * np.where(self.Y > 0, -others, self.P))[:, columns]
        blocks = -self.P[:, :, None] * self.P[:, None, :]
        c = np.arange(blocks.shape[1])
        blocks[:, c, c] = self.P * np.stack([np.sum(np.delete(self.P, k, 1), 1) for k in c], 1)
        self.W = self.w[:, None, None] * blocks[:, columns, columns]
        own = np.sum(self.Y * self.f, 1, keepdims=True)
        losses = np.log1p(np.sum((1 - self.Y) * np.exp(self.f - own), 1))
        square = np.sum(self.a * exactly(K[np.ix_(self.kept, self.kept)], self.a))
        self.objective = self.w @ losses + self.ridge / 2 * square
        # Of f in the working precision, and what that makes of the objective.
        of_K = EPS * np.abs(K[:, self.kept]) + 4 * error_of_kernel(problem, form)
        of_f = of_K @ np.abs(self.a) + EPS * np.abs(self.b)
        self.rounding = np.sum(np.abs(self.G) * of_f) + np.sum(
            np.einsum("ncc->nc", self.W) * of_f**2
        )

    def decrement(self, places, coefficients):
        """By how much a Newton step over these points would lower the objective."""
        c = self.G.shape[1]
        B = np.append(self.K[:, places], np.full((len(self.K), 1), WIDE(self.form.bias)), 1)
        penalty = np.zeros((B.shape[1], B.shape[1]), WIDE)
        penalty[:-1, :-1] = self.ridge * self.K[np.ix_(places, places)]
        g = B.T @ self.G
        g[:-1] += penalty[:-1, :-1] @ coefficients
        H = np.einsum("ip,icd,iq->pcqd", B, self.W, B)
        H += np.einsum("pq,cd->pcqd", penalty, np.eye(c))
        shift = np.einsum("ncc->", self.W) / c if c > 1 and self.form.bias else 0
        H[-1, :, -1, :] += shift + (0 if self.form.bias else np.eye(c))
        H, g = H.reshape(g.size, g.size), g.ravel()
        unit = np.sqrt(np.maximum(np.diagonal(H), TINY))
        scaled = H / unit[:, None] / unit[None, :]
        step = solved(scaled[None], (g / unit)[None, :, None])[0, :, 0]
        return abs((g / unit) @ step) / 2

    def beyond(self):
        """The share of `k(x, x)` of each point that is not of the span of those kept."""
        inside = self.K[np.ix_(self.kept, self.kept)]
        across = self.K[self.kept]
        unit = np.sqrt(np.diagonal(inside))
        if not len(unit):
            return np.ones(len(self.K))
        scaled = inside / unit[:, None] / unit[None, :]
        both = across / unit[:, None]
        explained = np.sum(both * solved(scaled[None], both[None])[0], 0)
        return 1 - explained / np.maximum(np.diagonal(self.K), TINY)


def import_vectors(problem, K, out, form, target) -> Figures:
    """The objective is that of the coefficients and the least over the subset, and no further point
    lowers it.
    """
    fit = _Fit(problem, K, out, form, target)
    size = fit.objective
    noise = fit.rounding + 64 * EPS * size + TINY
    # Where Newton's method may end: 21 was seen. Beyond the condition of 1 / eps anywhere.
    condition = np.max(np.abs(K)) * np.sum(fit.w) / fit.ridge
    close = 32 * EPS**0.5 * size if EPS * condition < 1 else np.inf
    figures = {
        "objective": (abs(out["objective"] - size), noise),
        "minimum": (fit.decrement(fit.kept, fit.a), noise + close),
        "repeated": (len(fit.kept) - len(set(fit.kept)), 0),
        "removed": (np.sum(fit.w[fit.kept] == 0), 0),
    }
    others = np.setdiff1d(np.flatnonzero((fit.w > 0) & (np.diagonal(K) > 0)), fit.kept)
    others = others[fit.beyond()[others] > 16 * EPS ** (2 / 3)]
    with_zero = np.append(fit.a, np.zeros_like(fit.a[:1]) if len(fit.a) else fit.b[None] * 0, 0)
    gains = [fit.decrement(np.append(fit.kept, place), with_zero) for place in others]
    return figures | {"gain": (max(gains, default=WIDE(0)), 16 * noise + close)}


REFEREES: dict[str, Callable[..., Figures]] = {
    "import_vector_machine": partial(import_vectors, target="signs"),
    "import_vector_machine of classes": partial(import_vectors, target="classes"),
}
