"""Winnow and exponentiated gradients: against plain loops with the weights themselves, and by
counting mistakes.
"""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, assert_close, needs_x64

import kernax
from kernax.core.losses.loss_functions import check_loss_of_number
from kernax.errors import NonFiniteError
from kernax.online import (
    BalancedWinnow,
    ExponentiatedGradient,
    NormalisedWinnow,
    Perceptron,
    PrimalLearner,
    Winnow,
    disjunction_bound,
    run,
    winnow_bound,
)


def plain_winnow(X, y, a, theta):
    """Littlestone's own words, with the weights themselves."""
    w = np.ones(X.shape[1])
    wrong = []
    for x, label in zip(X.astype(float), y):
        wrong.append(label * (w @ x - theta) <= 0)
        if wrong[-1]:
            w = w * a ** (label * x)
    return np.array(wrong), w


def plain_exponentiated(X, y, step, total, signs):
    """Weights of the features, and of their negatives where there are two signs; `step` is of a
    target and a prediction.
    """
    w = np.full((len(signs), X.shape[1]), total / X.shape[1] / len(signs))
    predictions = []
    for x, label in zip(X.astype(float), y):
        predictions.append((signs @ w) @ x)
        w = w * np.exp(step(label, predictions[-1]) * signs[:, None] * x)
        w = total * w / w.sum()
    return np.array(predictions), signs @ w


def with_constant(x):
    return jnp.concatenate([x, jnp.ones(1, x.dtype)])


def plain_perceptron(X, y):
    """With a constant as one more feature."""
    Z = np.c_[X, np.ones(len(X))].astype(float)
    w = np.zeros(Z.shape[1])
    mistakes = 0
    for z, label in zip(Z, y):
        if label * (w @ z) <= 0:
            w = w + label * z
            mistakes += 1
    return mistakes


@pytest.fixture
def disjunctions(rng):
    """Bits, and whether one of the first two is set."""
    X = (rng.random((200, 16)) < 0.3).astype(DTYPE)
    return X, np.where(X[:, :2].sum(1) > 0, 1, -1).astype(DTYPE)


@pytest.fixture
def signed(rng):
    """Numbers of both signs, labels of a hyperplane, and its weights."""
    u = np.array([1.0, -0.5, 0.0, 0.0, 0.0, 0.25])
    X = rng.uniform(-1, 1, size=(120, 6))
    X = X[abs(X @ u) > 0.1][:80].astype(DTYPE)
    return X, np.sign(X @ u).astype(DTYPE), u.astype(DTYPE)


@pytest.mark.parametrize(("a", "theta"), [(2.0, None), (2.0, 8.0), (1.5, 4.5)])
def test_winnow_makes_the_mistakes_of_its_definition_one_by_one(disjunctions, a, theta):
    """Also where the sum of powers of two is the threshold itself, which counts as a mistake."""
    X, y = disjunctions
    progress = run(Winnow(a, theta), X, y).value
    wrong, w = plain_winnow(X, y, a, theta or 16.0)
    np.testing.assert_array_equal(progress.mistakes, wrong)
    assert_close(progress.state.weights, w)
    assert int(progress.state.updates) == wrong.sum()
    np.testing.assert_allclose(
        progress.function.values(X), X @ w - (theta or 16.0), rtol=1e-4, atol=1e-3
    )


def test_balanced_winnow_has_a_weight_for_and_one_against_each_feature(signed):
    X, y, _ = signed
    for threshold in (0.0, 0.3):
        progress = run(BalancedWinnow(1.5, threshold), X, y).value
        up, down = np.ones(6), np.ones(6)
        predictions = []
        for x, label in zip(X.astype(float), y):
            predictions.append((up - down) @ x - threshold)
            if label * predictions[-1] <= 0:
                up, down = up * 1.5 ** (label * x), down / 1.5 ** (label * x)
        assert_close(progress.predictions, np.array(predictions), TOLERANCE["solve"])
        assert_close(progress.state.weights, up - down, TOLERANCE["solve"])


@pytest.mark.parametrize("balanced", [False, True])
def test_normalised_winnow_moves_weights_that_sum_to_one(signed, balanced):
    X, y, _ = signed
    signs = np.array([1.0, -1.0])[: 2 if balanced else 1]
    progress = run(NormalisedWinnow(0.3, balanced=balanced), X, y).value

    def step(label, f):
        return 0.3 * label * (label * f <= 0)

    predictions, w = plain_exponentiated(X, y, step, 1.0, signs)
    assert_close(progress.predictions, predictions, TOLERANCE["solve"])
    assert_close(progress.state.weights, w, TOLERANCE["solve"])
    assert_close(jnp.sum(jnp.exp(progress.state.exponents)), 1.0)


@pytest.mark.parametrize("balanced", [False, True])
def test_exponentiated_gradient_is_that_of_kivinen_and_warmuth(signed, balanced):
    """Who write `2 eta (f - y)` for the squared loss: half of the rate here. And any other loss."""
    X, y, u = signed
    signs = np.array([1.0, -1.0])[: 2 if balanced else 1]
    eta = 0.1
    targets = X @ abs(u)
    learner = ExponentiatedGradient(rate=2 * eta, total=2.0, balanced=balanced)
    progress = run(learner, X, targets).value
    predictions, w = plain_exponentiated(
        X, targets, lambda target, f: -2 * eta * (f - target), 2.0, signs
    )
    assert_close(progress.predictions, predictions, TOLERANCE["solve"])
    assert_close(progress.state.weights, w, TOLERANCE["solve"])
    learner = ExponentiatedGradient(kernax.losses.Logistic(), rate=eta, balanced=balanced)
    predictions, _ = plain_exponentiated(
        X, y, lambda label, f: eta * label / (1 + np.exp(label * f)), 1.0, signs
    )
    assert_close(run(learner, X, y).value.predictions, predictions, TOLERANCE["solve"])


@pytest.mark.slow
@needs_x64
@hypothesis.given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([None, 0.5, 1.6]))
def test_the_normalised_forms_never_make_more_mistakes_than_their_bound(seed, balanced, factor):
    """2 ln n |u|_1^2 X^2 / delta^2, ln 2n balanced, and what is known of other rates than the best
    one. The stream is 40 points, five times.
    """
    rng = np.random.default_rng(seed)
    u = rng.normal(size=8) * (rng.random(8) < rng.choice([0.3, 1.0]))
    u[0] += 0.5
    u = u if balanced else abs(u)
    X = rng.uniform(-1, 1, size=(40, 8)) * rng.choice([0.01, 1.0, 30.0])
    far = np.max(abs(X @ u)) * rng.choice([0.05, 0.2])
    X = np.where((abs(X @ u) > far)[:, None], X, X[np.argmax(abs(X @ u))])
    X = np.tile(X, (5, 1)).astype(DTYPE)
    y = np.sign(X @ u).astype(DTYPE)
    best = np.min(y * (X @ u)) / (np.sum(abs(u)) * np.max(abs(X)) ** 2)
    rate = best if factor is None else factor * best
    stats = run(NormalisedWinnow(rate, balanced=balanced), X, y).stats
    bound = winnow_bound(u, X, y, balanced=balanced, rate=None if factor is None else factor * best)
    assert np.isfinite(bound)
    assert int(stats["mistakes"]) <= float(bound) * (1 + 1e-5)


@pytest.mark.slow
@hypothesis.given(
    st.integers(0, 2**32 - 1), st.integers(1, 4), st.sampled_from([(2.0, None), (1.5, 9.0)])
)
def test_winnow_never_makes_more_mistakes_on_disjunctions_than_its_bound(seed, relevant, choice):
    a, theta = choice
    rng = np.random.default_rng(seed)
    X = (rng.random((300, 32)) < rng.choice([0.05, 0.2, 0.5])).astype(DTYPE)
    y = np.where(X[:, :relevant].any(1), 1, -1).astype(DTYPE)
    stats = run(Winnow(a, theta), X, y).stats
    bound = disjunction_bound(relevant, 32, promotion=a, threshold=theta)
    assert int(stats["mistakes"]) <= bound


@pytest.mark.slow
@needs_x64
def test_winnow_errs_less_than_the_perceptron_where_three_of_a_thousand_features_matter():
    """And more where all of them matter and few are set. Both by counting, over three seeds."""
    perceptron = PrimalLearner(Perceptron(), kernax.FeatureMap(with_constant))
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = (rng.random((3000, 1000)) < 0.1).astype(DTYPE)
        y = np.where(X[:, :3].any(1), 1, -1).astype(DTYPE)
        few = int(run(Winnow(), X, y).stats["mistakes"])
        others = int(run(perceptron, X, y).stats["mistakes"])
        assert others == plain_perceptron(X, y)
        assert few < others / 4, (few, others)
        assert few <= disjunction_bound(3, 1000)
        # each feature speaks for one class, three of them are set, and the majority says y
        X = np.zeros((3000, 1000), DTYPE)
        for x in X:
            x[rng.choice(1000, 3, replace=False)] = 1
        y = np.sign(X @ rng.choice([-1, 1], 1000)).astype(DTYPE)
        many = int(run(Winnow(), X, y).stats["mistakes"])
        others = int(run(perceptron, X, y).stats["mistakes"])
        assert many > 1.2 * others, (many, others)


def test_a_feature_that_was_demoted_beyond_every_float_comes_back():
    """2^-1200 is zero as a float, and a weight of zero would stay zero for ever."""
    demoting = np.tile(np.array([[0, 1], [0, 1], [1, 1]], DTYPE), (1200, 1))
    X = np.r_[demoting, np.tile(np.array([[1, 0]], DTYPE), (1300, 1))]
    y = np.r_[np.tile([1, 1, -1], 1200), np.ones(1300)].astype(DTYPE)
    progress = run(Winnow(), X, y).value
    lowest = run(Winnow(), X[:3600], y[:3600]).value.state.exponents[0, 0]
    assert lowest < -1100
    assert not progress.mistakes[-1]
    assert progress.predictions[-1] > 0


def test_no_rate_makes_a_normalised_weight_overflow(signed):
    X, y, _ = signed
    learner = ExponentiatedGradient(kernax.losses.Hinge(), rate=1e6, total=3.0, balanced=True)
    progress = run(learner, X, y).value
    assert np.all(np.isfinite(progress.predictions))
    assert np.max(abs(progress.predictions)) <= 3 * np.max(abs(X)) * (1 + 1e-5)
    assert_close(jnp.sum(jnp.exp(progress.state.exponents)), 3.0, TOLERANCE["solve"])


def test_features_make_vectors_of_any_kind_of_points():
    """Strings by which letters occur; a weight for each."""
    words = ["abc", "bcd", "acd", "bbd", "cca", "ddb"] * 4
    y = np.array([1.0 if "a" in word else -1.0 for word in words], DTYPE)
    texts = kernax.strings.encode(words)

    def letters(text):
        present = (text.codes[:, None] == jnp.arange(4, dtype=text.codes.dtype)[None]) & (
            text.weights > 0
        )[:, None]
        return jnp.any(present, 0).astype(text.weights.dtype)

    progress = run(Winnow(features=letters), texts, y).value
    bits = np.array([[float(letter in word) for letter in "abcd"] for word in words])
    wrong, w = plain_winnow(bits, y, 2.0, 4.0)
    np.testing.assert_array_equal(progress.mistakes, wrong)
    assert_close(progress.function.values(texts), bits @ w - 4.0, TOLERANCE["solve"])


def test_features_may_be_booleans(disjunctions):
    X, y = disjunctions
    numbers = run(Winnow(), X, y).value
    booleans = run(Winnow(features=lambda x: x > 0), X, y).value
    np.testing.assert_array_equal(booleans.predictions, numbers.predictions)
    np.testing.assert_array_equal(booleans.state.weights, numbers.state.weights)
    np.testing.assert_array_equal(booleans.function.values(X), numbers.function.values(X))


def test_winnow_refuses_features_that_it_is_not_for_and_knows_none_while_tracing(disjunctions):
    X, y = disjunctions
    with pytest.raises(ValueError, match="between 0 and 1, but those of point 1 hold -1"):
        run(Winnow(), X - (np.arange(200) == 1)[:, None].astype(DTYPE), y)
    with pytest.raises(ValueError, match="BalancedWinnow"):
        run(Winnow(), 2 * X, y)
    traced = jax.jit(lambda X: run(Winnow(), X, y, throw=False).result)
    assert kernax.RESULTS[traced(2 * X)] == kernax.RESULTS[kernax.RESULTS.nonfinite]
    assert traced(X) == kernax.RESULTS.successful


def test_weights_beyond_every_float_are_reported_and_not_returned():
    """Balanced Winnow on features of a thousand: 2^1000 and its square are no numbers."""
    X = np.array([[4000.0], [4000.0]], DTYPE)
    with pytest.raises(NonFiniteError):
        run(BalancedWinnow(), X, np.array([1.0, 1.0], DTYPE))
    broken = run(BalancedWinnow(), X, np.array([1.0, 1.0], DTYPE), throw=False)
    assert np.all(np.isnan(broken.value.predictions))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: Winnow(1.0), "promotion must be in \\(1, inf\\)"),
        (lambda X, y: BalancedWinnow(0.5), "promotion must be in \\(1, inf\\)"),
        (lambda X, y: Winnow(2.0, 0.0), "threshold must be None, for n, or a number > 0"),
        (lambda X, y: NormalisedWinnow(-0.1), "rate must be in \\(0, inf\\)"),
        (lambda X, y: ExponentiatedGradient(total=0.0), "total must be in \\(0, inf\\)"),
        (lambda X, y: check_loss_of_number("hinge"), "loss must be one of kernax.losses"),
        (lambda X, y: run(Winnow(), X, 0 * y), "y must hold -1 and \\+1"),
        (lambda X, y: run(NormalisedWinnow(), X, y + 1), "y must hold -1 and \\+1"),
        (lambda X, y: run(NormalisedWinnow(), X[:, :, None], y), "component of a vector"),
        (lambda X, y: run(Winnow(), (X, X), y), "component of a vector"),
        (lambda X, y: run(Winnow(features=jnp.sum), X, y), "features must return a vector"),
        (lambda X, y: run(NormalisedWinnow(features=jnp.sum), X, y), "return shape \\(\\)"),
        (lambda X, y: run(Winnow(), X, y[:-1]), "y must have shape"),
        (lambda X, y: run(Winnow(), X[:, :3], y, state=left_by(X, y)), "state does not belong to"),
    ],
)
def test_what_no_learner_could_use_is_refused_by_name(disjunctions, call, message):
    with pytest.raises(ValueError, match=message):
        call(*disjunctions)


def left_by(X, y):
    return run(Winnow(), X, y).value.state
