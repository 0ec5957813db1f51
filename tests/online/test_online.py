"""Rules and budgets of online learners, against loops in NumPy, optax and bounds."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, assert_close, explicit, matrix, needs_x64
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import kernax
from kernax import online
from kernax.losses import EpsilonInsensitive, Hinge, Huber, Logistic

N = 40
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2)).astype(DTYPE)
T = (np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=N)).astype(DTYPE)
Y = np.where(X[:, 0] * X[:, 1] + 0.3 * RNG.normal(size=N) > 0, 1, -1).astype(DTYPE)
RBF = kernax.RBF(0.7)
KEEP = online.NoBudget(N)


def quadratic(x):
    """The features of `(x . z + 1)^2`."""
    root = np.sqrt(2).astype(x.dtype)
    one = jnp.ones_like(x[:1])
    return jnp.concatenate([x**2, root * x[:1] * x[1:], root * x, one])


FEATURES = kernax.FeatureMap(quadratic)


def values_before_each(K, y, move):
    """The predictions and last coefficients of a rule that keeps every point."""
    coefficients = np.zeros(len(y))
    predictions = np.zeros(len(y))
    for i, target in enumerate(y):
        predictions[i] = K[i] @ coefficients
        shrink, coefficient = move(i + 1, predictions[i], target, K[i, i])
        coefficients = shrink * coefficients
        coefficients[i] = coefficient
    return predictions, coefficients


def minimal(objective, y):
    """A step found by search where the rule has it in closed form."""
    if objective(0.0) == 0:
        return 0.0
    best = minimize_scalar(objective, bounds=(-20, 20), method="bounded", options={"xatol": 1e-12})
    return float(best["x"])


def passive(loss, power, C):
    def move(step, f, y, square):
        objective = lambda c: c * c * square / 2 + C * loss(y, f + c * square) ** power
        return 1.0, minimal(objective, y)

    return move


def hinge(y, f):
    return max(0.0, 1 - y * f)


def tube(y, f):
    return max(0.0, abs(y - f) - 0.2)


def descent(slope, rate, ridge):
    return lambda step, f, y, square: (1 - rate(step) * ridge, -rate(step) * slope(y, f))


RULES = {
    "perceptron": (online.Perceptron(0.7), Y, lambda t, f, y, s: (1, 0.7 * y * (y * f <= 0))),
    "margin": (
        online.MarginPerceptron(0.8, 0.5),
        Y,
        lambda t, f, y, s: (1, 0.5 * y * (y * f <= 0.8)),
    ),
    "passive aggressive I": (online.PassiveAggressiveI(0.3), Y, passive(hinge, 1, 0.3)),
    "passive aggressive II": (online.PassiveAggressiveII(0.3), Y, passive(hinge, 2, 0.3)),
    "tube I": (
        online.PassiveAggressiveI(0.3, EpsilonInsensitive(0.2)),
        T,
        passive(tube, 1, 0.3),
    ),
    "tube II": (
        online.PassiveAggressiveII(0.3, EpsilonInsensitive(0.2)),
        T,
        passive(tube, 2, 0.3),
    ),
    "least mean squares": (online.LeastMeanSquares(0.2), T, lambda t, f, y, s: (1, 0.2 * (y - f))),
    "NORMA": (
        online.StochasticGradient(Hinge(), 0.1, 0.3),
        Y,
        descent(lambda y, f: -y * (y * f < 1), lambda t: 0.3, 0.1),
    ),
    "Pegasos": (
        online.StochasticGradient(Hinge(), 0.1, online.DecayingRate(10.0, 1.0)),
        Y,
        descent(lambda y, f: -y * (y * f < 1), lambda t: 10 / t, 0.1),
    ),
    "logistic": (
        online.StochasticGradient(Logistic(), 0.05, online.DecayingRate(0.5)),
        Y,
        descent(lambda y, f: -y / (1 + np.exp(y * f)), lambda t: 0.5 / np.sqrt(t), 0.05),
    ),
    "Huber": (
        online.StochasticGradient(Huber(0.3), rate=0.4),
        T,
        descent(lambda y, f: np.clip(f - y, -0.3, 0.3), lambda t: 0.4, 0.0),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_its_formula_in_any_kernel_and_in_its_features(name):
    """Predictions and coefficients against a loop that finds passive-aggressive steps by search;
    the primal makes the same predictions, step by step.
    """
    rule, y, move = RULES[name]
    within = TOLERANCE["solve"] if "aggressive" not in name and "tube" not in name else 1e-5
    within = within if X64 else 5e-3
    dual = online.run(online.DualLearner(rule, FEATURES, KEEP), X, y)
    predictions, coefficients = values_before_each(matrix(FEATURES, X), y.astype(float), move)
    assert_close(dual.value.predictions, predictions, within)
    function = dual.value.function
    assert_close(function.values(X), matrix(FEATURES, X) @ coefficients, within)
    primal = online.run(online.PrimalLearner(rule, FEATURES), X, y)
    assert_close(primal.value.predictions, dual.value.predictions, within)
    assert_close(primal.value.function.values(X), function.values(X), within)
    assert_close(primal.value.function(X[3]), function(X[3]), within)
    if name == "perceptron":
        np.testing.assert_array_equal(primal.value.mistakes, dual.value.mistakes)
    updates = int(np.count_nonzero(coefficients))
    assert int(primal.stats["updates"]) == int(dual.stats["updates"]) == updates


@needs_x64
def test_losses_mistakes_and_counts_are_those_of_the_predictions():
    """Equality with zero is a mistake: the first prediction always is; of numbers, a loss."""
    solution = online.run(online.DualLearner(RULES["margin"][0], RBF, KEEP), X, Y)
    progress = solution.value
    assert_close(progress.losses, np.maximum(0, 1 - Y * progress.predictions))
    np.testing.assert_array_equal(progress.mistakes, Y * progress.predictions <= 0)
    assert progress.predictions[0] == 0
    assert progress.mistakes[0]
    assert int(solution.stats["mistakes"]) == np.sum(progress.mistakes)
    assert_close(solution.stats["loss"], np.mean(progress.losses))
    squared = online.DualLearner(RULES["least mean squares"][0], RBF, KEEP)
    assert np.all(online.run(squared, X, T).value.mistakes)
    tube = online.DualLearner(RULES["tube I"][0], RBF, KEEP)
    progress = online.run(tube, X, T).value
    np.testing.assert_array_equal(progress.mistakes, abs(T - progress.predictions) > 0.2)


def test_one_pass_is_the_first_epoch_of_the_kernel_perceptron():
    learner = online.DualLearner(online.Perceptron(), RBF, KEEP)
    stream = online.run(learner, X, Y)
    batch = kernax.kernel_perceptron(RBF, X, Y, max_epochs=1, throw=False)
    assert stream.stats["mistakes"] == batch.stats["mistakes"]
    assert_close(stream.value.function.values(X), batch.value.values(X))


@pytest.mark.nightly
@given(st.integers(0, 10**6), st.floats(0.05, 1.0), st.floats(0.1, 5.0))
def test_mistakes_never_exceed_the_bound_of_novikoff(seed, margin, rate):
    """Over three passes, on points that a function of margin one separates; for dual and primal."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=6)
    w = w / np.linalg.norm(w)
    points = rng.uniform(-1, 1, size=(N, 2)).astype(DTYPE)
    features = explicit(quadratic, points)
    values = features @ w
    # Points within the margin are skipped, not removed: one program for all.
    present = np.tile(abs(values) >= margin, 3)
    X, y = np.tile(points, (3, 1)), np.tile(np.sign(values), 3).astype(DTYPE)
    rule = online.Perceptron(rate)
    square = np.max(np.sum(features**2, 1))
    for learner in (
        online.DualLearner(rule, FEATURES, online.NoBudget(3 * N)),
        online.PrimalLearner(rule, FEATURES),
    ):
        solution = online.run(learner, X, y, present=present)
        assert float(solution.stats["mistakes"]) <= square / margin**2


# Budgets


class Kept:
    """A function on a list of points, in NumPy."""

    def __init__(self, K):
        self.K, self.places, self.coefficients = K, [], []

    def value(self, i):
        return sum(c * self.K[i, j] for c, j in zip(self.coefficients, self.places))

    def sizes(self):
        return [abs(c) * np.sqrt(self.K[j, j]) for c, j in zip(self.coefficients, self.places)]

    def drop(self, at):
        return self.places.pop(at), self.coefficients.pop(at)

    def add(self, i, c):
        self.places.append(i)
        self.coefficients.append(c)


def oldest(kept, i, c, room):
    if len(kept.places) == room:
        kept.drop(0)
    kept.add(i, c)


def smallest(kept, i, c, room):
    if len(kept.places) == room:
        kept.drop(int(np.argmin(kept.sizes())))
    kept.add(i, c)


def merged(kept, i, c, room):
    """The change of f by each possible merger, in full."""
    if len(kept.places) == room:
        r, a = kept.drop(int(np.argmin(kept.sizes())))
        K = kept.K
        left = [a * a * (K[r, r] - K[r, j] ** 2 / K[j, j]) for j in kept.places]
        best = int(np.argmin(left))
        z = kept.places[best]
        kept.coefficients[best] += a * K[r, z] / K[z, z]
    kept.add(i, c)


def projected(kept, i, c, room):
    places = kept.places
    K = kept.K[np.ix_(places, places)]
    b = np.linalg.lstsq(K, kept.K[places, i], rcond=None)[0]
    rest = kept.K[i, i] - kept.K[places, i] @ b
    if rest > 0.3 * kept.K[i, i] and len(places) < room:
        kept.add(i, c)
    else:
        kept.coefficients = list(np.asarray(kept.coefficients) + c * b)


ROOM = 6
BUDGETS = {
    "oldest": (online.RemoveOldest(ROOM), oldest),
    "smallest": (online.RemoveSmallest(ROOM), smallest),
    "merge": (online.Merge(ROOM), merged),
    "project": (online.Project(ROOM, 0.3), projected),
}
# Of different k(x, x), so that sizes and angles are not those of coefficients and values.
UNEVEN = kernax.kernels.Modulated(RBF, lambda x: 1 + x[0] ** 2)
SLOW = online.StochasticGradient(Logistic(), 0.1, 0.5)


@pytest.mark.parametrize("name", BUDGETS)
def test_a_budget_keeps_what_it_says(name):
    budget, make_room = BUDGETS[name]
    solution = online.run(online.DualLearner(SLOW, UNEVEN, budget), X, Y)
    K = matrix(UNEVEN, X)
    kept = Kept(K)
    predictions = []
    for i, y in enumerate(Y.astype(float)):
        f = kept.value(i)
        predictions.append(f)
        kept.coefficients = [0.95 * c for c in kept.coefficients]
        make_room(kept, i, 0.5 * y / (1 + np.exp(y * f)), ROOM)
    tolerance = TOLERANCE["solve"]
    assert_close(solution.value.predictions, np.array(predictions), tolerance)
    f = solution.value.function
    assert_close(f.values(X), np.array([kept.value(i) for i in range(N)]), tolerance)
    assert len(f.coefficients) == ROOM
    assert solution.stats["updates"] == N


def test_of_equally_small_points_the_oldest_makes_room():
    """With a perceptron's coefficients of -1 and +1 it is `RemoveOldest`."""
    runs = [
        online.run(online.DualLearner(online.Perceptron(), RBF, budget), X, Y).value
        for budget in (online.RemoveOldest(ROOM), online.RemoveSmallest(ROOM))
    ]
    np.testing.assert_array_equal(runs[0].predictions, runs[1].predictions)


def test_without_a_budget_a_point_too_many_is_an_error_and_not_dropped_in_silence():
    learner = online.DualLearner(online.LeastMeanSquares(), RBF, online.NoBudget(N - 1))
    with pytest.raises(kernax.errors.CapacityError, match="capacity is 39: raise it"):
        online.run(learner, X, T)
    solution = online.run(learner, X, T, throw=False)
    assert solution.result == kernax.RESULTS.over_capacity
    assert np.all(np.isfinite(solution.value.predictions))
    enough = online.run(learner, X, T, present=np.arange(N) > 0)
    assert enough.stats["updates"] == N - 1


def test_projections_within_a_tolerance_of_zero_change_nothing():
    """On repeated points: the second time each is a combination of what is kept already."""
    twice = np.concatenate([X, X])
    signs = np.concatenate([Y, -Y])
    learner = online.DualLearner(SLOW, RBF, online.Project(2 * N, 0.0))
    whole = online.DualLearner(SLOW, RBF, online.NoBudget(2 * N))
    short, long = (online.run(each, twice, signs).value for each in (learner, whole))
    assert short.state.support.size <= N
    assert_close(short.predictions, long.predictions, 1e-6 if X64 else 5e-3)


# Averages


@pytest.mark.parametrize("averaging", [0.0, 3.0])
@pytest.mark.parametrize("budget", [KEEP, online.Project(ROOM, 0.1)])
def test_an_average_is_the_mean_of_the_functions_after_every_step(budget, averaging):
    """With weights of a product form; predictions are of the last function."""
    learner = online.DualLearner(SLOW, RBF, budget, averaging=averaging)
    progress = online.run(learner, X, Y).value
    plain = online.DualLearner(SLOW, RBF, budget)
    assert_close(progress.predictions, online.run(plain, X, Y).value.predictions)
    state = plain.init(X[0])
    mean = np.zeros(N)
    update = eqx.filter_jit(plain.update)
    for t, (x, y) in enumerate(zip(jnp.asarray(X), jnp.asarray(Y)), 1):
        state, _ = update(state, x, y)
        weight = (averaging + 1) / (t + averaging)
        mean = (1 - weight) * mean + weight * np.asarray(state.function.values(X), float)
    assert_close(progress.function.values(X), mean, TOLERANCE["solve"])


def test_averages_agree_in_primal_and_dual_and_are_refused_where_points_go():
    dual = online.DualLearner(SLOW, FEATURES, KEEP, averaging=0)
    primal = online.PrimalLearner(SLOW, FEATURES, averaging=0)
    values = [online.run(each, X, Y).value.function.values(X) for each in (dual, primal)]
    assert_close(*values, TOLERANCE["solve"])
    for budget in (online.RemoveOldest(3), online.RemoveSmallest(3), online.Merge(3)):
        with pytest.raises(ValueError, match="averaging needs a budget that keeps its points"):
            online.DualLearner(SLOW, RBF, budget, averaging=0.0)
    for bad in (-1.0, True, np.nan, "mean"):
        with pytest.raises(ValueError, match="averaging must be None or a number >= 0"):
            online.DualLearner(SLOW, RBF, KEEP, averaging=bad)
