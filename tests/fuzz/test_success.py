"""A fit that can keep its promise succeeds: the other side of the fuzz, which asks that a success
keeps it.

A problem counts if its condition number is below 1 / eps and its exact minimum, rounded to working
precision, keeps the promise itself: beyond that no coefficients do.
"""

import numpy as np
import pytest
from conftest import DTYPE, needs_x64
from problems import EPS, FORMS, drawn
from referees import CURVATURES, SLOPES, WIDE, norm, solved, widened
from test_fuzz import SEED, count, matrices, outcomes, violations

FORM = FORMS["loop"]
FITS = {  # of each learner: its loss, its targets, and the largest curvature
    "kernel_logistic": ("Logistic", "signs", 0.25),
    "regularised_risk of Huber": ("Huber", "y", 1.0),
    "regularised_risk of Squared": ("Squared", "y", 1.0),
}


def well_conditioned(problem: dict, K: np.ndarray, curvature: float) -> bool:
    root = np.sqrt(problem["weights"])
    if not np.all(np.isfinite(K)) or len(set(problem["signs"][root > 0])) < 2:
        return False
    return (
        curvature * np.linalg.norm(root[:, None] * K * root[None, :], 2) / problem["ridge"] + 1
        < 1 / EPS
    )


def exact_minimum(
    problem: dict, K: np.ndarray, start: dict, loss: str, targets: str
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and bias by Newton's method in the widest floats."""
    y, w, ridge, n = problem[targets], problem["weights"], problem["ridge"], len(K)
    x = np.append(start["coefficients"], start["bias"])
    x = x if np.all(np.isfinite(x)) else np.zeros(n + 1, WIDE)

    def gradient(x):
        return w * SLOPES[loss](y, problem, K @ x[:n] + x[n])

    def left(x):
        g = gradient(x)
        return norm(ridge * x[:n] + g) + abs(np.sum(g))

    for _ in range(60):
        h = w * CURVATURES[loss](y, problem, K @ x[:n] + x[n])
        system = np.zeros((n + 1, n + 1), WIDE)
        system[:n, :n] = h[:, None] * K + ridge * np.eye(n)
        system[:n, n] = h
        system[n, :n] = 1
        rhs = -np.append(ridge * x[:n] + gradient(x), np.sum(x[:n]))
        unit = np.max(np.abs(system), 1)
        step = solved((system / unit[:, None])[None], (rhs / unit)[None, :, None])[0, :, 0]
        length = next((t for t in 0.5 ** np.arange(20) if left(x + t * step) < left(x)), 0)
        if length == 0:
            break
        x = x + length * step
    return x[:n], x[n]


@needs_x64
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("learner", FITS)
def test_99_of_100_fits_that_can_keep_their_promise_succeed(learner):
    loss, targets, curvature = FITS[learner]
    number = count(FORM)
    triples = zip(
        drawn(SEED, "loop", number),
        matrices(SEED, "loop", number),
        outcomes(learner, SEED, "loop", number),
    )
    succeeded, failed = 0, []
    for place, (problem, gram, out) in enumerate(triples):
        K = gram["K"]
        if not well_conditioned(problem, K, curvature):
            continue
        if out["success"]:
            succeeded += 1
            continue
        with np.errstate(all="ignore"):
            a, b = exact_minimum(widened(problem), K.astype(WIDE), widened(out), loss, targets)
        rounded = out | {
            "coefficients": a.astype(DTYPE),
            "bias": b.astype(DTYPE),
            "success": np.True_,
        }
        if not violations(learner, problem, K, rounded, FORM):
            failed.append(place)
    assert succeeded > number / 2
    assert len(failed) <= 0.01 * (succeeded + len(failed)), failed
