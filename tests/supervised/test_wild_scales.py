"""Smooth risks and sigmoids of well-posed problems at wild scales: nearly all succeed, and each
success is judged anew by its duality gap in long double.
"""

from typing import NamedTuple

import numpy as np
import pytest
from conftest import marked, needs_x64

import kernax
from kernax.losses import Huber, Poisson

pytestmark = [needs_x64, pytest.mark.slow]

N = 16
COUNT = 150
WIDE = np.longdouble


class Problem(NamedTuple):
    """A kernel of scale 1e-8 to 1e8, targets, a ridge and weights."""

    kernel: kernax.AbstractKernel
    X: np.ndarray
    K: np.ndarray
    y: np.ndarray
    ridge: float
    weights: np.ndarray
    bias: bool


def logistic_problem(rng):
    y = np.where(rng.random(N) < 0.5, -1.0, 1.0)
    y[:2] = -1, 1
    return problem(rng, y, 0.25)


def softmax_problem(rng):
    labels = rng.integers(0, 3, N)
    labels[:3] = 0, 1, 2
    return problem(rng, np.eye(3)[labels], 0.25, digits=12)


def poisson_problem(rng):
    y = rng.poisson(10 ** rng.uniform(-0.5, 3), size=N) + np.eye(N)[0]
    return problem(rng, y, max(1.0, y.max()))


def huber_problem(rng):
    return problem(rng, 10 ** rng.uniform(-6, 6) * rng.normal(size=N), 1.0)


def problem(rng, y, curvature, digits=15):
    """One whose system has a condition of 1 to 1e15, where the curvature of the losses is at most
    this; 1e12 of several classes: beyond, the bound below is coarser than their success.
    """
    X = rng.normal(size=(N, 2))
    lengthscale, scale = 10 ** rng.uniform(-1, 1.5), 10 ** rng.uniform(-8, 8)
    kernel = kernax.RBF(lengthscale) * kernax.Constant(scale)
    K = np.asarray(kernax.gram(kernel, X))
    weights = np.ones(N) if rng.random() < 0.5 else 10 ** rng.uniform(-4, 4, size=N)
    weights = weights * 10 ** rng.uniform(-6, 6)
    root = np.sqrt(weights * curvature)
    largest = np.linalg.eigvalsh(root[:, None] * K * root)[-1]
    ridge = largest / 10 ** rng.uniform(0, digits)
    return Problem(kernel, X, K, y, ridge, weights, bool(rng.random() < 0.5))


def fitted(fit, one, *args, **options):
    return fit(
        one.kernel,
        one.X,
        one.y,
        *args,
        one.ridge,
        weights=one.weights,
        bias=one.bias,
        **options,
        throw=False,
    )


def sigmoid(f):
    return 1 / (1 + np.exp(-f))


def softmax(f):
    parts = np.exp(f - f.max(1, keepdims=True))
    return parts / parts.sum(1, keepdims=True)


def kullback(p, q):
    """`sum p log(p / q) - p + q` of each entry, zero for p = 0."""
    return np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / q), 0) - p + q


# Of a loss with `s = -ridge a / w`: s' in the range of its derivative next to s, and its Bregman
# distance `L(y, f) + L*(y, s') - s' f`.
def of_logistic(y, f, s):
    likely = np.clip(-s * y, 0, 1)  # 1 - p(y)
    q = sigmoid(-y * f)
    return -y * likely, kullback(likely, q) + kullback(1 - likely, sigmoid(y * f))


def of_softmax(y, f, s):
    p = np.clip(y + s, 0, None)
    p = p / p.sum(1, keepdims=True)
    return p - y, kullback(p, softmax(f)).sum(1)


def of_poisson(y, f, s):
    mean = np.clip(y + s, 0, None)
    return mean - y, kullback(mean, np.exp(f))


def of_huber(y, f, s):
    s = np.clip(s, -1, 1)
    r = abs(y - f)
    return s, np.where(r <= 1, r * r / 2, r - WIDE(0.5)) + s * s / 2 + s * y - s * f


LEARNERS = {
    "logistic": (logistic_problem, lambda one: fitted(kernax.kernel_logistic, one), of_logistic),
    "softmax": (softmax_problem, lambda one: fitted(kernax.kernel_softmax, one), of_softmax),
    "Poisson": (
        poisson_problem,
        lambda one: fitted(kernax.regularised_risk, one, loss=Poisson()),
        of_poisson,
    ),
    "Huber": (
        huber_problem,
        lambda one: fitted(kernax.regularised_risk, one, loss=Huber()),
        of_huber,
    ),
}


def relative_gap(one, solution, bregman):
    """A bound on the objective less its minimum, relative to it (Rockafellar 1970, theorem 31.1).

    The dual at `u = -w s' / ridge` is less than the objective at a by the sum of `w` times the
    Bregman distances and `ridge/2 (a - u).K (a - u)`, at most `ridge/2 (sum sqrt(K_ii) |a_i -
    u_i|)^2`. With a bias it counts where u sums to zero.
    """
    a, b, y, K, w, ridge = (
        np.asarray(part, WIDE)
        for part in (
            solution.value.coefficients,
            solution.value.bias,
            one.y,
            one.K,
            one.weights,
            one.ridge,
        )
    )
    f = K @ a + b
    of_rows = w.reshape(-1, *[1] * (a.ndim - 1))
    s, distances = bregman(y, f, -ridge * a / of_rows)
    u = -of_rows * s / ridge
    off = np.sum(np.sqrt(np.diagonal(K)) * abs(a - u).T, -1)
    gap = np.sum(w * distances) + ridge / 2 * np.sum(off**2)
    unbalanced = np.max(abs(u.sum(0)) / abs(u).sum(0)) if one.bias else 0
    return float(gap / abs(WIDE(solution.stats["objective"]))), float(unbalanced)


@pytest.mark.parametrize(
    "name", marked(pytest.mark.nightly, LEARNERS, "softmax", "Poisson", "logistic")
)
def test_well_posed_risks_succeed_at_any_scale_and_are_at_their_minimum(name):
    draw, fit, bregman = LEARNERS[name]
    rng = np.random.default_rng(0)
    successes = 0
    for _ in range(COUNT):
        one = draw(rng)
        solution = fit(one)
        if solution.result == kernax.RESULTS.successful:
            successes += 1
            gap, unbalanced = relative_gap(one, solution, bregman)
            assert gap < 1e-6
            assert unbalanced < 1e-6
    assert successes >= 0.99 * COUNT


def test_sigmoids_succeed_at_any_scale_and_their_slopes_vanish():
    rng = np.random.default_rng(0)
    successes = 0
    for _ in range(COUNT):
        y = np.where(rng.random(N) < 0.5, -1.0, 1.0)
        y[:2] = -1, 1
        f = 10 ** rng.uniform(-8, 8) * (rng.normal(size=N) + 10 ** rng.uniform(-3, 1) * y)
        weights = 10 ** rng.uniform(-4, 4, size=N) * 10 ** rng.uniform(-6, 6)
        solution = kernax.calibration.platt(f, y, weights=weights, throw=False)
        if solution.result == kernax.RESULTS.successful:
            successes += 1
            assert slope_of_likelihood(solution.value, f, y, weights) < 1e-6
    assert successes >= 0.99 * COUNT


def slope_of_likelihood(sigmoid_of, f, y, weights):
    """The derivatives in slope and level, relative to the sums of their terms."""
    f, y, w = (np.asarray(part, WIDE) for part in (f, y, weights))
    total = np.where(y > 0, w[y > 0].sum(), w[y < 0].sum())
    wrong = 1 / (total + 2)
    right = (total + 1) * wrong
    likely, unlikely = np.where(y > 0, (right, wrong), (wrong, right))
    u = f - WIDE(sigmoid_of.centre)
    margin = WIDE(sigmoid_of.slope) * u + WIDE(sigmoid_of.level)
    pull, push = w * unlikely * sigmoid(margin), w * likely * sigmoid(-margin)
    in_slope = abs(np.sum((pull - push) * u)) / np.sum((pull + push) * abs(u))
    return float(max(in_slope, abs(np.sum(pull - push)) / np.sum(pull + push)))
