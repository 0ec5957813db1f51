"""Adagrad in both forms and penalties on weights: against optax, brute force and plain loops."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
from conftest import DTYPE, TOLERANCE, X64, assert_close

import kernax
from kernax.core.losses.loss_functions import check_loss_of_number
from kernax.errors import CapacityError
from kernax.losses import EpsilonInsensitive, Hinge, Huber, Logistic, Squared
from kernax.online import (
    Adagrad,
    DecayingRate,
    DualAdagrad,
    Merge,
    NoBudget,
    PrimalLearner,
    Project,
    RemoveOldest,
    SparseGradient,
    StochasticGradient,
    run,
)
from kernax.online.penalties import adaptive_step


def itself(x):
    return x


def first_two(x):
    return x[:2]


LINEAR = kernax.FeatureMap(itself)
RATE = 0.3


def plain_step(w, g, G, rate, ridge, l1):
    """Duchi, Hazan & Singer 2011, 0 / 0 = 0."""
    h = np.sqrt(G) / rate
    soft = np.sign(h * w - g) * np.maximum(abs(h * w - g) - l1, 0)
    return np.divide(soft, h + ridge, out=np.zeros_like(w), where=G > 0)


def plain_adagrad(X, y, slope, rate, ridge=0.0, l1=0.0):
    """The predictions, the weights after every step, and G."""
    w, G = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    predictions, weights = [], []
    for x, target in zip(X.astype(float), y):
        predictions.append(w @ x)
        g = slope(target, w @ x) * x
        G = G + g**2
        w = plain_step(w, g, G, rate, ridge, l1)
        weights.append(w)
    return np.array(predictions), np.array(weights), G


def plain_dual_adagrad(K, y, slope, rate, capacity, ridge=0.0, l1=0.0):
    """Over the coefficients of points, of which the oldest makes room."""
    kept, c, G = [], np.zeros(0), np.zeros(0)
    predictions = []
    for i, target in enumerate(y):
        row = K[i, kept]
        predictions.append(row @ c)
        s = slope(target, predictions[-1])
        G = G + (s * row) ** 2
        c = plain_step(c, s * row, G, rate, ridge, l1)
        own = np.array([s * K[i, i]])
        new = plain_step(np.zeros(1), own, own**2, rate, ridge, l1)
        if new[0] != 0:
            room = len(kept) == capacity
            kept = kept[room:] + [i]
            c, G = np.r_[c[room:], new], np.r_[G[room:], own**2]
    return np.array(predictions), kept, c


def hinge_slope(y, f):
    return -y * (y * f < 1)


def squared_slope(y, f):
    return f - y


@pytest.fixture
def stream(rng):
    """Numbers of different scales, of which the last is always zero; labels, and targets."""
    X = (rng.normal(size=(120, 5)) * [1, 0.1, 10, 1, 0]).astype(DTYPE)
    f = X[:, 0] - 5 * X[:, 1] + 0.1 * rng.normal(size=120)
    return X, np.sign(f).astype(DTYPE), f.astype(DTYPE)


@pytest.mark.parametrize(
    "loss", [Hinge(), Logistic(), Squared(), Huber(0.5), EpsilonInsensitive(0.1)]
)
def test_adagrad_is_that_of_optax_without_epsilon_and_from_zero(stream, loss):
    X, labels, numbers = stream
    y = labels if loss.targets == "signs" else numbers
    progress = run(Adagrad(loss, LINEAR, RATE), X, y).value
    optimiser = optax.adagrad(RATE, initial_accumulator_value=0.0, eps=0.0)

    def step(carry, seen):
        w, state = carry
        x, target = seen
        f = jnp.vdot(w, x)
        updates, state = optimiser.update(loss.derivative(target, f) * x, state)
        return (optax.apply_updates(w, updates), state), f

    w = jnp.zeros(5, DTYPE)
    (w, _), predictions = jax.lax.scan(step, (w, optimiser.init(w)), (X, y))
    assert_close(progress.predictions, predictions, TOLERANCE["solve"])
    assert_close(progress.state.weights, w, TOLERANCE["solve"])
    assert_close(progress.function.values(X), X @ w, TOLERANCE["solve"])


@pytest.mark.parametrize(("ridge", "l1"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.05), (0.2, 0.02)])
def test_adagrad_with_penalties_is_a_plain_loop_and_so_is_its_average(stream, ridge, l1):
    X, _, y = stream
    learner = Adagrad(Squared(), LINEAR, RATE, ridge, l1, averaging=0)
    progress = run(learner, X, y).value
    predictions, weights, G = plain_adagrad(X, y, squared_slope, RATE, ridge, l1)
    assert_close(progress.predictions, predictions, TOLERANCE["solve"])
    assert_close(progress.state.weights, weights[-1], TOLERANCE["solve"])
    assert_close(progress.state.roots**2, G, TOLERANCE["solve"])
    assert_close(progress.state.primal.average, weights.mean(0), TOLERANCE["solve"])
    assert_close(progress.function.values(X), X @ weights.mean(0), TOLERANCE["solve"])


def test_a_step_minimises_the_linearised_risk_its_penalties_and_the_distance(rng):
    """By brute force over each weight, and not by the formula of the soft threshold."""
    w, g = rng.normal(size=(2, 12))
    G = rng.uniform(0.1, 4, size=12) + g**2
    for ridge, l1 in ((0.5, 0.0), (0.0, 0.7), (0.4, 0.3)):
        after = adaptive_step(*map(jnp.asarray, (w, g, np.sqrt(G), RATE, ridge, l1)))
        for i in range(12):

            def objective(v, i=i, ridge=ridge, l1=l1):
                near = np.sqrt(G[i]) * (v - w[i]) ** 2 / (2 * RATE)
                return g[i] * v + l1 * abs(v) + ridge / 2 * v**2 + near

            best: Any = scipy.optimize.minimize_scalar(
                objective, bounds=(-6, 6), method="bounded", options={"xatol": 1e-9}
            )
            np.testing.assert_allclose(after[i], best.x, atol=1e-4)


def test_a_feature_that_is_never_there_keeps_the_weight_zero(stream):
    """0 / 0 = 0, in the weights and in their derivatives."""
    X, y, _ = stream
    for ridge, l1 in ((0.0, 0.0), (0.1, 0.1)):
        state = run(Adagrad(Hinge(), LINEAR, RATE, ridge, l1), X, y).value.state
        assert state.weights[-1] == 0
        assert state.roots[-1] == 0

    def final(X):
        return jnp.sum(run(Adagrad(Logistic(), LINEAR, RATE), X, y, throw=False).value.losses)

    assert np.all(np.isfinite(jax.jit(jax.grad(final))(X)))


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_the_squares_of_gradients_need_be_no_floats(rng, scale):
    """Steps do not depend on the scale of the points, and predictions are proportional to it. In
    float64 the scale is its fifth power.
    """
    scale = scale**5 if X64 else scale
    X = rng.normal(size=(40, 3)).astype(DTYPE)
    y = np.sign(X[:, 0]).astype(DTYPE)
    quiet = kernax.losses.Absolute()
    for learner in (
        Adagrad(quiet, LINEAR, RATE),
        DualAdagrad(quiet, kernax.FeatureMap(first_two), RemoveOldest(9), RATE),
    ):
        power = 1 if isinstance(learner, Adagrad) else 2
        times = np.asarray(scale, DTYPE) if power == 1 else np.asarray(np.sqrt(scale), DTYPE)
        near = run(learner, X, 1e3 * y).value  # so far off that slopes are signs of y
        far = run(learner, times * X, np.asarray(1e3 * scale * y, DTYPE)).value
        assert_close(far.predictions / scale, near.predictions, TOLERANCE["solve"])


@pytest.mark.parametrize("rate", [0.05, DecayingRate(0.3, 0.5)])
def test_the_sparse_gradient_is_a_gradient_step_and_a_soft_threshold(rng, rate):
    X = rng.normal(size=(150, 6)).astype(DTYPE)
    y = (X[:, 0] - X[:, 1]).astype(DTYPE)
    rule = StochasticGradient(Squared(), 0.02, rate)
    progress = run(SparseGradient(rule, LINEAR, 0.2, averaging=0), X, y).value
    w, weights = np.zeros(6), []
    for i, (x, target) in enumerate(zip(X.astype(float), y)):
        eta = 0.05 if rate == 0.05 else 0.3 / np.sqrt(i + 1)
        assert_close(progress.predictions[i], w @ x, 10 * TOLERANCE["solve"])
        w = (1 - 0.02 * eta) * w - eta * (w @ x - target) * x
        w = np.sign(w) * np.maximum(abs(w) - 0.2 * eta, 0)
        weights.append(w)
    assert_close(progress.state.weights, w, TOLERANCE["solve"])
    assert_close(progress.state.average, np.mean(weights, 0), TOLERANCE["solve"])
    assert np.any(w == 0)
    np.testing.assert_array_equal(progress.state.weights == 0, w == 0)
    without = run(SparseGradient(rule, LINEAR), X, y).value
    primal = run(PrimalLearner(rule, LINEAR), X, y).value
    assert_close(without.predictions, primal.predictions)


def test_the_l1_penalty_leaves_the_few_weights_that_matter(rng):
    """3 of 40; of the others many are exactly zero, and with a ridge none is."""
    X = rng.normal(size=(600, 40)).astype(DTYPE)
    y = (X[:, :3] @ [2, -2, 1.5] + 0.1 * rng.normal(size=600)).astype(DTYPE)
    rule = StochasticGradient(Squared(), 0.0, DecayingRate(0.05, 0.5))
    sparse = {
        "gradient": SparseGradient(rule, LINEAR, 0.3),
        "adagrad": Adagrad(Squared(), LINEAR, 0.5, l1=0.3),
    }
    for learner in sparse.values():
        w = run(learner, X, y).value.state.weights
        assert np.all(np.sign(w[:3]) == [1, -1, 1])
        assert np.max(abs(w[3:])) < 0.1
        assert np.mean(w[3:] == 0) > 0.3
    dense = run(Adagrad(Squared(), LINEAR, 0.5, 0.3), X, y).value.state.weights
    assert np.all(dense != 0)


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [7, 120])
@pytest.mark.parametrize(
    ("ridge", "l1"), [pytest.param(0.0, 0.0, marks=pytest.mark.nightly), (0.1, 0.02)]
)
def test_dual_adagrad_is_its_own_algorithm_step_by_step(stream, capacity, ridge, l1):
    X, y, numbers = stream
    kernel = kernax.RBF(2.0)
    K = np.asarray(kernax.gram(kernel, X), float)
    for loss, targets, slope in ((Hinge(), y, hinge_slope), (Squared(), numbers, squared_slope)):
        learner = DualAdagrad(loss, kernel, RemoveOldest(capacity), RATE, ridge, l1)
        progress = run(learner, X, targets).value
        predictions, kept, c = plain_dual_adagrad(K, targets, slope, RATE, capacity, ridge, l1)
        assert_close(progress.predictions, predictions, 10 * TOLERANCE["solve"])
        at = K[:, kept] @ c
        assert_close(progress.function.values(X), at, 10 * TOLERANCE["solve"])
        assert int(progress.state.support.size) == len(kept)
        assert int(progress.state.steps) == 120


def test_dual_adagrad_on_all_points_at_once_is_adagrad_on_their_kernel_values(rng):
    """When every point has joined already, the features `k(x_i, x)` are those of `Adagrad`; their
    G starts from the step that each of them joined with.
    """
    X = rng.normal(size=(12, 2)).astype(DTYPE)
    y = np.sign(X[:, 0]).astype(DTYPE)
    kernel = kernax.RBF(1.0)
    learner = DualAdagrad(Logistic(), kernel, Project(12, 0.0), RATE)
    state = run(learner, X, y).value.state
    assert int(state.support.size) == 12
    again = run(learner, X, y, state=state).value
    K = np.asarray(kernax.gram(kernel, X), float)
    c, G = np.asarray(state.support.coefficients, float), np.asarray(state.roots, float) ** 2
    for i in range(12):
        f = K[i] @ c
        assert_close(again.predictions[i], f, 10 * TOLERANCE["solve"])
        s = -y[i] / (1 + np.exp(y[i] * f))
        G = G + (s * K[i]) ** 2
        c = c - RATE * s * K[i] / np.sqrt(G)
        c[i] -= RATE * np.sign(s)  # the newcomer is the point itself, and is projected on it


@pytest.mark.nightly
def test_dual_adagrad_takes_strings_and_says_when_it_has_no_room():
    texts = kernax.strings.encode(["abab", "bcbc", "abba", "ccbb", "aabb", "bccb"] * 3)
    y = np.array([1, -1, 1, -1, 1, -1] * 3, DTYPE)
    kernel = kernax.Normalised(kernax.Spectrum(1))
    K = np.asarray(kernax.gram(kernel, texts), float)
    progress = run(DualAdagrad(Hinge(), kernel, NoBudget(18), RATE), texts, y).value
    predictions, _, _ = plain_dual_adagrad(K, y, hinge_slope, RATE, 18)
    assert_close(progress.predictions, predictions, TOLERANCE["solve"])
    with pytest.raises(CapacityError):
        run(DualAdagrad(Hinge(), kernel, NoBudget(2), RATE), texts, y)
    merged = run(DualAdagrad(Hinge(), kernel, Merge(2), RATE), texts, y).value
    assert np.all(np.isfinite(merged.predictions))


@pytest.mark.parametrize(
    "learner",
    [
        Adagrad(Logistic(), LINEAR, RATE, 0.1, 0.01),
        SparseGradient(StochasticGradient(Logistic(), 0.1, RATE), LINEAR, 0.01),
    ],
    ids=["adagrad", "sparse"],
)
def test_numbers_that_overflow_are_reported(stream, learner):
    X, y, _ = stream
    huge = np.full_like(X, np.finfo(DTYPE).max)
    result = run(learner, huge, y, throw=False)
    assert result.result == kernax.RESULTS.nonfinite
    assert np.all(np.isnan(result.value.predictions))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Adagrad(Hinge(), LINEAR, 0.0), "rate must be in \\(0, inf\\)"),
        (lambda: Adagrad(Hinge(), LINEAR, ridge=-1.0), "ridge must be in \\[0, inf\\)"),
        (lambda: Adagrad(Hinge(), LINEAR, l1=-1.0), "l1 must be in \\[0, inf\\)"),
        (lambda: Adagrad(Hinge(), LINEAR, averaging=True), "averaging must be None or a number"),
        (lambda: Adagrad(Hinge(), kernax.RBF()), "no known explicit features"),
        (lambda: SparseGradient(StochasticGradient(Hinge()), kernax.RBF()), "explicit features"),
        (lambda: SparseGradient(StochasticGradient(Hinge()), LINEAR, -1.0), "l1 must be in"),
        (lambda: DualAdagrad(Hinge(), LINEAR, NoBudget(3), -1.0), "rate must be in"),
        (lambda: Adagrad(kernax.likelihoods.Categorical(), LINEAR), "column of signs"),
        (lambda: check_loss_of_number("hinge"), "loss must be one of kernax.losses"),
        (lambda: check_loss_of_number(Hinge), r"call it, as in Hinge\(\)"),
        (lambda: run(Adagrad(Hinge(), LINEAR), np.eye(3, dtype=DTYPE), np.arange(3.0)), "y must"),
    ],
)
def test_what_no_learner_could_use_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
