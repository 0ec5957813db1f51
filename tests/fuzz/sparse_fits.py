"""What sparse machines promise, recomputed in NumPy's widest floats."""

from collections.abc import Callable

import numpy as np
from problems import EPS, TINY
from referees import Figures, norm, solved
from structures import WIDE

# How far the conditions of a maximum may be from zero.
CLOSE = 2 * EPS ** (1 / 3)


def relevance_vector_machine(problem, K, out, form) -> Figures:
    """`v = V^T W (y - V v) / noise` and `1 - P_ii = v_i^2`, with V the functions that were taken,
    divided by the roots of their precisions, and `P^-1 = I + V^T W V / noise` (Tipping 2001).
    """
    places = out["places"].astype(int)
    used = places > -2
    if not np.any(used):
        return {"zero": (norm(out["coefficients"]), TINY)}
    functions = np.concatenate([K, np.ones((form.n, 1), WIDE)], 1)  # -1 is the bias
    root = 1 / np.sqrt(out["inverses"][used])
    V = functions[:, places[used]] / root
    v = np.where(places == -1, out["bias"], out["coefficients"])[used] * root
    w = problem["weights"] / problem["ridge"]
    system = np.eye(len(v), dtype=WIDE) + V.T @ (w[:, None] * V)
    P = solved(system[None], np.eye(len(v), dtype=WIDE)[None])[0]
    left = V.T @ (w * (problem["y"] - V @ v)) - v
    terms = np.abs(V).T @ (w * (np.abs(problem["y"]) + np.abs(V) @ np.abs(v)))
    rounding = 64 * form.n * EPS
    condition = np.max(np.abs(system)) * np.max(np.abs(P))
    return {
        "mode": (norm(left), CLOSE * norm(np.append(v, 1)) + (EPS**0.5 + rounding) * norm(terms)),
        "precisions": (
            np.max(np.abs(1 - np.diagonal(P) - v**2)),
            CLOSE + rounding * condition,
        ),
    }


REFEREES: dict[str, Callable[..., Figures]] = {
    "relevance_vector_machine": relevance_vector_machine,
}
