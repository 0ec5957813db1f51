"""Folds against scikit-learn's rules, and cross-validation against a loop over the folds."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import (
    DTYPE,
    TOLERANCE,
    assert_close,
    check_derivatives,
    needs_x64,
    real_data,
    untyped,
)
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, StratifiedGroupKFold, TimeSeriesSplit, cross_val_score

import kernax
from kernax import cross_validate, k_folds
from kernax.metrics import accuracy, root_mean_square_error
from kernax.selection import time_folds

N = 23
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2)).astype(DTYPE)
Y = (np.sin(X[:, 0]) + 0.1 * RNG.normal(size=N)).astype(DTYPE)
KEY = jax.random.key(0)


def rows_of_folds(folds):
    """The indices of each fold, without those that pad."""
    pairs = []
    for learn, known, score, scored in zip(
        folds.learn, folds.learn_weights, folds.score, folds.score_weights
    ):
        pairs.append((np.asarray(learn)[known > 0], np.asarray(score)[scored > 0]))
    return pairs


def ridge(X, y, weights, kernel=None, number=0.1):
    kernel = kernax.RBF(1.0) if kernel is None else kernel
    return kernax.kernel_ridge(kernel, X, y, number, weights=weights).value


def error(f, X, y, weights):
    return root_mean_square_error(y, f.values(X), weights=weights)


# Folds.


@needs_x64
@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("k", [2, 5, N])
def test_every_row_is_scored_once_and_parts_differ_by_one_row(k, key):
    pairs = rows_of_folds(k_folds(N, k, key=key))
    np.testing.assert_array_equal(np.sort(np.concatenate([score for _, score in pairs])), range(N))
    sizes = [len(score) for _, score in pairs]
    assert sorted(sizes) == sorted(len(score) for _, score in KFold(k).split(X))
    for learn, score in pairs:
        np.testing.assert_array_equal(np.sort(np.append(learn, score)), range(N))


@needs_x64
def test_classes_are_spread_evenly_and_groups_stay_together():
    labels = np.array(["u"] * 12 + ["v"] * 8 + ["w"] * 3)
    for _, score in rows_of_folds(k_folds(N, 4, labels=labels, key=KEY)):
        counts = [np.sum(labels[score] == name) for name in "uvw"]
        assert counts[0] == 3
        assert counts[1] == 2
        assert counts[2] <= 1
    groups = np.array([0] * 9 + [1] * 5 + [2] * 5 + [3] * 4)
    parts = [set(groups[score]) for _, score in rows_of_folds(k_folds(N, 3, groups=groups))]
    assert sorted(map(sorted, parts)) == [[0], [1, 3], [2]]
    for learn, score in rows_of_folds(k_folds(N, 3, groups=groups, key=KEY)):
        assert not set(groups[learn]) & set(groups[score])


@needs_x64
@pytest.mark.parametrize("seed", range(4))
def test_groups_with_labels_are_dealt_as_scikit_learn_deals_them(seed):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, size=25)
    groups = np.repeat(np.arange(25), sizes)
    labels = np.array(["u", "v", "w"])[rng.choice(3, len(groups), p=[0.6, 0.3, 0.1])]
    expected = StratifiedGroupKFold(4).split(labels, labels, groups)
    found = rows_of_folds(k_folds(len(groups), 4, labels=labels, groups=groups))
    for (learn, score), (others, scored) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(score, scored)
        np.testing.assert_array_equal(learn, others)


@needs_x64
def test_groups_with_labels_stay_together_in_random_orders_and_no_part_lacks_a_class():
    groups = np.repeat(np.arange(20), 3)
    labels = (groups % 5 == 0).astype(int)  # whole groups: four of one class, sixteen of the other
    pairs = rows_of_folds(k_folds(60, 4, labels=labels, groups=groups, key=KEY, n_repeats=2))
    assert len({tuple(score) for _, score in pairs}) == 8
    for learn, score in pairs:
        assert not set(groups[learn]) & set(groups[score])
        assert sorted(labels[score]) == [0] * 12 + [1] * 3


@needs_x64
def test_repeats_have_orders_of_their_own():
    pairs = rows_of_folds(k_folds(N, 5, key=KEY, n_repeats=3))
    assert len(pairs) == 15
    scored = [tuple(score) for _, score in pairs]
    assert len(set(scored)) == 15
    for repeat in range(3):
        rows = np.concatenate(scored[5 * repeat : 5 * repeat + 5])
        np.testing.assert_array_equal(np.sort(rows), range(N))


@needs_x64
def test_repeats_deal_groups_anew():
    groups = np.repeat(np.arange(8), range(1, 9))
    pairs = rows_of_folds(k_folds(36, 3, groups=groups, key=KEY, n_repeats=3))
    assert len({tuple(score) for _, score in pairs}) > 6
    for learn, score in pairs:
        assert not set(groups[learn]) & set(groups[score])


@needs_x64
def test_numbers_of_mistakes_have_a_standard_error():
    found = kernax.types.CrossValidation(jnp.arange(1, 6))
    assert_close(found.standard_error, 0.5**0.5)


@needs_x64
@pytest.mark.parametrize("gap", [0, 2])
def test_time_folds_are_those_of_scikit_learn(gap):
    expected = TimeSeriesSplit(4, gap=gap).split(X)
    for found, wanted in zip(rows_of_folds(time_folds(N, 4, gap=gap)), expected, strict=True):
        for rows, others in zip(found, wanted):
            np.testing.assert_array_equal(rows, others)


@needs_x64
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: k_folds(N, 1), "k must be an integer >= 2, but is 1"),
        (
            lambda: untyped(k_folds)(X, 5),
            r"n must be an integer >= 2, but is an array of shape \(23, \d+\): .* len\(X\)$",
        ),
        (
            lambda: untyped(cross_validate)(None, error, X, Y, k_folds(N, 3)),
            r"fit must be a function fit\(X, y, weights\), but is None",
        ),
        (
            lambda: cross_validate(kernax.RBF(1.0), error, X, Y, k_folds(N, 3)),
            r"fit must be a function fit\(X, y, weights\), but is RBF",
        ),
        (
            lambda: untyped(cross_validate)(ridge, lambda f, X: X, X, Y, k_folds(N, 3)),
            r"score must be a function score\(fitted, X, y, weights\), but is <function",
        ),
        (lambda: k_folds(4, 5), "k must be at most 4, the number of rows, but is 5"),
        (lambda: k_folds(4, 3, groups=[0, 0, 1, 1]), "k must be at most 2, the number of groups"),
        (lambda: k_folds(4, 2, labels=[0, 1]), r"labels must have shape \(4,\), one per row"),
        (
            lambda: k_folds(4, 2, labels=[0, 1, 0, 1], groups=[0] * 4),
            "k must be at most 1, the number of groups",
        ),
        (
            lambda: k_folds(4, 2, labels=[0, 1], groups=[0, 0, 1, 1]),
            r"labels must have shape \(4,\), one per row",
        ),
        (lambda: k_folds(4, 2, n_repeats=2), "repeats need a key"),
        (lambda: untyped(k_folds)(4, 2, key=3), "key must be one random key"),
        (lambda: time_folds(4, 4), "leave none to learn from"),
        (lambda: time_folds(9, 2, gap=3), "with a gap of 3 leave none to learn from"),
        (lambda: cross_validate(ridge, error, X, Y[:5], k_folds(N, 3)), "y must have n = 23 rows"),
        (lambda: cross_validate(ridge, error, X, Y, k_folds(N + 1, 3)), "folds are of 24 rows"),
        (lambda: cross_validate(ridge, error, X, Y, k_folds(N - 1, 3)), "folds are of 22 rows"),
        (
            lambda: cross_validate(
                ridge, error, X, Y, jax.tree.map(lambda leaf: leaf[0], k_folds(N, 3))
            ),
            "folds must have a first axis",
        ),
    ],
)
def test_what_makes_no_folds_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_argument_that_is_missing_is_answered_by_the_call():
    with pytest.raises(TypeError, match=r"call kernax\.cross_validate\(fit, score, X, y, folds\)"):
        cross_validate(kernax.RBF(1.0), X, Y, 5)  # pyright: ignore


# Cross-validation.


def test_scores_are_those_of_a_loop_and_of_scikit_learn():
    folds = k_folds(N, 5)
    found = cross_validate(partial(ridge, kernel=kernax.Linear()), error, X, Y, folds)
    learner = Ridge(0.1, fit_intercept=False)
    expected = -cross_val_score(
        learner, X, Y, cv=rows_of_folds(folds), scoring="neg_root_mean_squared_error"
    )
    assert_close(found.scores, expected, TOLERANCE["solve"])
    assert_close(found.mean, np.mean(expected), TOLERANCE["solve"])
    assert_close(found.standard_error, np.std(expected, ddof=1) / 5**0.5, TOLERANCE["solve"])


@pytest.mark.nightly
@needs_x64
def test_weights_repeat_rows_and_remove_them():
    """Both where rows are learned from and where they are scored."""
    weights = np.ones(N)
    weights[3], weights[8] = 2.0, 0.0
    rows = np.append(np.delete(np.arange(N), 8), 3)
    folds = k_folds(N, 4)
    found = cross_validate(ridge, error, X, Y, folds, weights=weights)
    for one, (learn, score) in zip(found.scores, rows_of_folds(folds)):
        learn, score = (np.concatenate([rows[rows == i] for i in part]) for part in (learn, score))
        assert_close(one, error(ridge(X[learn], Y[learn], None), X[score], Y[score], None), 1e-9)


@pytest.mark.nightly
@needs_x64
def test_derivatives_batches_and_programs():
    folds = k_folds(N, 4, key=KEY)

    def loss(scale, number):
        fit = partial(ridge, kernel=kernax.RBF(scale), number=number)
        return cross_validate(fit, error, X, Y, folds).mean

    scale, number = jnp.array(1.2), jnp.array(0.3)
    check_derivatives(loss, (scale, number), rtol=1e-6, atol=1e-8)
    once = jax.jit(chex.assert_max_traces(loss, n=1))
    scales = jnp.array([0.5, 1.0, 2.0])
    batch = jax.vmap(loss, (0, None))(scales, number)
    for one, together in zip(scales, batch):
        assert_close(together, once(one, number), TOLERANCE["solve"])
    chex.clear_trace_counter()


@pytest.mark.nightly
@needs_x64
def test_machines_of_strings_are_scored_by_several_numbers():
    texts = ["".join(RNG.choice(list("ab"), 6)) for _ in range(12)]
    points = kernax.strings.encode(texts)
    signs = np.array([1.0 if text.count("a") > 2 else -1.0 for text in texts])
    fit = lambda X, y, w: kernax.svm(kernax.Spectrum(2), X, y, 1.0, weights=w).value

    def score(f, X, y, weights):
        values = f.values(X)
        return {
            "accuracy": accuracy(y, values, weights=weights),
            "hinge": jnp.sum(weights * jnp.maximum(1 - y * values, 0)) / jnp.sum(weights),
        }

    found = cross_validate(fit, score, points, signs, k_folds(12, 3, labels=signs))
    assert found.mean["accuracy"] > 0.5
    assert found.scores["hinge"].shape == (3,)


@needs_x64
def test_a_fit_that_fails_spoils_no_other_fold():
    """All folds but one learn from a row whose kernel values are no numbers, and one scores it."""
    large = Y.copy()
    large[1] = 1e300

    def fit(X, y, weights):
        scaled = X * jnp.max(weights * abs(y))
        options = {"weights": weights, "throw": False}
        return kernax.kernel_ridge(kernax.Linear(), scaled, jnp.sign(y), 0.1, **options).value

    def score(f, X, y, weights):
        values = f.values(X)
        return jnp.sum(weights * values), accuracy(jnp.sign(y), values, weights=weights)

    for scores in cross_validate(fit, score, X, large, k_folds(N, N)).scores:
        assert np.isfinite(scores[1])
        assert np.all(np.isnan(np.delete(scores, 1)))


# Nested cross-validation.


def model_ridge(model, X, y, weights):
    options = {"weights": weights, "throw": False}
    return kernax.kernel_ridge(model.kernel, X, y, model.ridge, **options).value


def squared(f, X, y, weights):
    return jnp.average((f.values(X) - y) ** 2, weights=weights)


INNER = kernax.selection.CrossValidatedLoss(model_ridge, squared)


def learned(X, y, weights, start, optimiser, steps):
    """What is fitted with parameters learned on folds of these rows, and the loss of these."""
    folds = k_folds(len(y), 3)
    solution = kernax.minimise(
        INNER, start, optimiser, steps, args=(X, y, folds, weights), throw=False
    )
    return model_ridge(solution.value, X, y, weights), solution.stats["loss"]


def both_errors(fitted, X, y, weights):
    """On rows that nothing was learned from, and the one that was minimised."""
    f, inner = fitted
    return squared(f, X, y, weights), inner


@pytest.mark.nightly
@needs_x64
def test_nested_folds_are_one_program_and_do_not_count_the_rows_that_pad():
    """Against a loop over outer folds of their own rows alone, whose numbers differ."""
    start, optimiser = kernax.Model(kernax.RBF(2.0), 0.5), optax.adam(0.1)
    traces = []

    def fit(X, y, weights):
        traces.append(len(y))
        return learned(X, y, weights, start, optimiser, 3)

    weights = np.where(np.arange(N) % 5 == 2, 2.0, 1.0)
    folds = k_folds(N, 4)
    nested = jax.jit(
        lambda y: cross_validate(fit, both_errors, X, y, folds, weights=weights).scores
    )
    outer, inner = nested(Y)
    nested(2 * Y)
    assert traces == [18]
    sizes = set()
    for i, (learn, score) in enumerate(rows_of_folds(folds)):
        sizes.add(len(learn))
        fitted = learned(X[learn], Y[learn], weights[learn], start, optimiser, 3)
        expected = both_errors(fitted, X[score], Y[score], weights[score])
        assert_close((outer[i], inner[i]), expected, 1e-8)
    assert sizes == {17, 18}


@needs_x64
@pytest.mark.nightly
def test_nested_errors_are_larger_than_those_that_were_minimised():
    """13 lengthscales of 90 patients: of six random sets of these, in the mean."""
    heart = real_data("heart_scale")
    patients, labels = (heart[name].astype(float) for name in "Xy")
    start, optimiser = kernax.Model(kernax.RBF(np.full(13, 4.0)), 1.0), optax.adam(0.1)
    fit = lambda X, y, weights: learned(X, y, weights, start, optimiser, 40)

    def errors(X, y):
        return cross_validate(fit, both_errors, X, y, k_folds(90, 5)).mean

    rows = np.stack([np.random.default_rng(i).permutation(270)[:90] for i in range(6)])
    outer, inner = kernax.batched(errors)(patients[rows], labels[rows])
    assert np.mean(outer) > 1.1 * np.mean(inner), (outer, inner)
