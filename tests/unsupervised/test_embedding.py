"""Mean embeddings, the distance of two samples, and permutation tests, against brute force."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, needs_x64, untyped

import kernax

KERNEL = kernax.RBF(0.9) + 0.2 * kernax.Linear()
X = np.random.default_rng(0).normal(size=(7, 2)).astype(DTYPE)
Z = (np.random.default_rng(1).normal(size=(5, 2)) + 0.5).astype(DTYPE)
Y = np.random.default_rng(2).normal(size=(7, 3)).astype(DTYPE)
KEY = jax.random.key(0)
CLOSE = {"rtol": TOLERANCE["solve"], "atol": TOLERANCE["value"]}


def matrix(A, B):
    """K of KERNEL in numpy."""
    A, B = A.astype(float), B.astype(float)
    return np.exp(-((A[:, None] - B) ** 2).sum(-1) / 0.9**2 / 2) + 0.2 * A @ B.T


def unbiased(K, first):
    """Gretton et al. 2012, eq. 3, term by term."""
    first, second = list(first), [i for i in range(len(K)) if i not in set(first)]
    within = lambda part: (
        sum(K[i, j] for i in part for j in part if i != j) / (len(part) * (len(part) - 1))
    )
    across = sum(K[i, j] for i in first for j in second) / (len(first) * len(second))
    return within(first) + within(second) - 2 * across


# mean embeddings


@pytest.mark.slow
@needs_x64
def test_an_inner_product_with_the_embedding_is_a_mean():
    f = kernax.KernelExpansion(
        KERNEL, jnp.asarray(Z), jnp.arange(5, dtype=DTYPE), jnp.zeros((), DTYPE)
    )
    mean = kernax.samples.mean_embedding(KERNEL, X)
    assert mean.bias == 0
    np.testing.assert_allclose(mean.inner(f), np.mean(jax.vmap(f)(X)), **CLOSE)
    weights = np.array([0.0, 1, 2, 0, 0, 0.5, 1])
    weighted = kernax.samples.mean_embedding(KERNEL, X, weights=weights)
    np.testing.assert_allclose(
        weighted.inner(f), np.average(jax.vmap(f)(X), weights=weights), **CLOSE
    )
    repeated = kernax.samples.mean_embedding(KERNEL, X[[1, 1, 2, 2, 2, 2, 5, 6, 6]])
    assert weighted.distance(repeated) ** 2 < 10 * float(jnp.finfo(DTYPE).eps)


@needs_x64
def test_the_embeddings_are_as_far_apart_as_the_biased_statistic_says():
    """Gretton et al. 2012, eq. 5."""
    K, Kx, Kz = matrix(X, Z), matrix(X, X), matrix(Z, Z)
    distance = kernax.samples.mean_embedding(KERNEL, X).distance(
        kernax.samples.mean_embedding(KERNEL, Z)
    )
    np.testing.assert_allclose(distance**2, Kx.mean() + Kz.mean() - 2 * K.mean(), **CLOSE)


@needs_x64
def test_bad_weights_are_refused():
    with pytest.raises(ValueError, match=r"weights must have shape \(7,\)"):
        kernax.samples.mean_embedding(KERNEL, X, weights=np.ones(5))
    with pytest.raises(ValueError, match="weights must not be negative"):
        kernax.samples.mean_embedding(KERNEL, X, weights=-np.ones(7))


# the maximum mean discrepancy


def test_the_discrepancy_is_the_unbiased_sum_over_pairs():
    both = np.concatenate([X, Z])
    expected = unbiased(matrix(both, both), range(7))
    np.testing.assert_allclose(
        kernax.samples.maximum_mean_discrepancy(KERNEL, X, Z), expected, **CLOSE
    )
    np.testing.assert_allclose(
        kernax.samples.maximum_mean_discrepancy(KERNEL, Z, X), expected, **CLOSE
    )
    linear = kernax.samples.maximum_mean_discrepancy(kernax.Linear(), X, Z)
    covariances = np.trace(np.cov(X.T)) / 7 + np.trace(np.cov(Z.T)) / 5
    np.testing.assert_allclose(linear, np.sum((X.mean(0) - Z.mean(0)) ** 2) - covariances, **CLOSE)


def test_samples_of_very_different_sizes_lose_no_digits():
    many = np.random.default_rng(3).normal(size=(700, 1)).astype(np.float32)
    few = np.float32([[5.0], [5.1]])
    kernel = kernax.RBF(np.float32(1.0))
    stack = np.concatenate([few, many]).astype(float)
    K = np.exp(-((stack - stack.T) ** 2) / 2)
    expected = unbiased_of_masks(K, np.arange(702) < 2)
    for first, second in ((few, many), (many, few)):
        assert kernax.samples.maximum_mean_discrepancy(kernel, first, second) == pytest.approx(
            expected, rel=2e-6
        )


def unbiased_of_masks(K, first):
    n, m = first.sum(), (~first).sum()
    K = K - np.diag(np.diag(K))
    across = K[first][:, ~first].sum()
    return (
        K[first][:, first].sum() / (n * (n - 1))
        + K[~first][:, ~first].sum() / (m * (m - 1))
        - 2 * across / (n * m)
    )


# the two-sample test


@needs_x64
def test_the_null_holds_the_statistics_of_permuted_labels():
    """Every one of the 20 ways to label six points, a and its complement the same, each about as
    often as the others.
    """
    A, B = X[:3], X[3:6]
    outcome = kernax.samples.two_sample_test(KERNEL, A, B, n_permutations=2000, key=KEY)
    K = matrix(X[:6], X[:6])
    values = np.array([unbiased(K, first) for first in itertools.combinations(range(6), 3)])
    np.testing.assert_allclose(
        outcome.statistic, kernax.samples.maximum_mean_discrepancy(KERNEL, A, B), rtol=1e-5
    )
    nearest = np.argmin(np.abs(np.asarray(outcome.null)[:, None] - values), 1)
    np.testing.assert_allclose(outcome.null, values[nearest], atol=1e-12 if X64 else 3e-6)
    counts = np.array([np.sum(np.abs(outcome.null - value) < 1e-5) for value in values])
    assert np.all(np.abs(counts - 200) < 4 * np.sqrt(2000 * 0.1 * 0.9))
    exact = np.mean(values >= unbiased(K, range(3)) - 1e-6)
    assert outcome.p_value == pytest.approx(
        exact, abs=4 * np.sqrt(exact * (1 - exact) / 2000) + 1e-3
    )
    assert outcome.null.shape == (2000,)


def test_the_p_value_counts_the_statistic_itself_and_ties_to_rounding():
    outcome = kernax.samples.two_sample_test(KERNEL, X, Z, n_permutations=99, key=KEY)
    above = np.sum(np.asarray(outcome.null) >= np.asarray(outcome.statistic))
    assert outcome.p_value == pytest.approx((1 + above) / 100)
    for function in (
        lambda: kernax.samples.two_sample_test(
            kernax.Constant(0.7), X, Z, n_permutations=99, key=KEY
        ),
        lambda: kernax.samples.independence_test(
            kernax.RBF(), kernax.Constant(0.3), X, Y, n_permutations=99, key=KEY
        ),
    ):
        assert function().p_value == 1  # every permutation gives the same statistic
    apart = kernax.samples.two_sample_test(kernax.RBF(), X, Z + 50, n_permutations=99, key=KEY)
    assert apart.p_value <= 0.02  # of 792 labellings only the true one is as extreme


REPEATS, PERMUTATIONS = 100, 39  # so that p <= 0.1 has probability 0.1 exactly, up to ties
KEYS = jax.random.split(jax.random.key(7), REPEATS)
# The standard deviation of a binomial of 100 trials and probability 0.1 is 3.
AT_MOST = 10 + 3.5 * 3


def rejections(test):
    """How often p <= 0.1 comes out, for shifts of zero and of 1.5."""

    def p_value(key, shift):
        of_data, of_test = jax.random.split(key)
        return test(jax.random.normal(of_data, (24, 2), DTYPE), shift, of_test).p_value

    p_values = jax.jit(jax.vmap(p_value, (0, None)))
    return [
        int(np.sum(np.asarray(p_values(KEYS, jnp.asarray(shift, DTYPE))) <= 0.1 + 1e-6))
        for shift in (0, 1.5)
    ]


def two_samples(D, shift, key):
    return kernax.samples.two_sample_test(
        kernax.RBF(), D[:10], D[10:] + shift, n_permutations=PERMUTATIONS, key=key
    )


def two_variables(D, shift, key):
    y = D[:, 1:] + shift * D[:, :1] ** 2  # dependent, and not correlated
    return kernax.samples.independence_test(
        kernax.RBF(), kernax.RBF(), D[:, :1], y, n_permutations=PERMUTATIONS, key=key
    )


@needs_x64
@pytest.mark.parametrize("test", [two_samples, two_variables])
def test_the_level_holds_under_the_null_hypothesis_and_there_is_power_beyond(test):
    false, true = rejections(test)
    assert 0 < false <= AT_MOST
    assert true > 85


# independence


def test_hsic_is_the_trace_and_the_distance_of_the_joint_embedding_from_the_product():
    """Gretton et al. 2008, eq. 4."""
    K, L, H = matrix(X, X), matrix(Y, Y), np.eye(7) - 1 / 7
    value = kernax.samples.hsic(KERNEL, KERNEL, X, Y)
    np.testing.assert_allclose(value, np.trace(K @ H @ L @ H) / 49, **CLOSE)

    both = kernax.On(KERNEL, 0) * kernax.On(KERNEL, 1)
    joint = kernax.samples.mean_embedding(both, (X, Y))
    product = kernax.samples.mean_embedding(both, (np.repeat(X, 7, 0), np.tile(Y, (7, 1))))
    np.testing.assert_allclose(joint.distance(product) ** 2, value, rtol=1e-6 if X64 else 1e-3)


@needs_x64
def test_the_null_of_independence_holds_the_statistics_of_permuted_partners():
    few = slice(0, 3)
    outcome = kernax.samples.independence_test(
        KERNEL, KERNEL, X[few], Y[few], n_permutations=200, key=KEY
    )
    K, L, H = matrix(X[few], X[few]), matrix(Y[few], Y[few]), np.eye(3) - 1 / 3
    orders = [list(order) for order in itertools.permutations(range(3))]
    values = [np.trace(K @ H @ L[np.ix_(order, order)] @ H) / 9 for order in orders]
    np.testing.assert_allclose(outcome.statistic, values[0], **CLOSE)
    gaps = np.abs(np.asarray(outcome.null)[:, None] - np.asarray(values))
    assert np.max(np.min(gaps, 1)) < (1e-12 if X64 else 1e-5)
    assert np.all(np.sum(gaps < 1e-5, 0) > 15)  # of 33 expected


@pytest.mark.slow
def test_x_and_y_may_differ_in_kind_and_in_precision():
    pairs = {"where": X, "kind": np.arange(7) % 2}
    same = kernax.Custom(lambda _, a, b: jnp.where(a == b, 1.0, 0.0).astype(DTYPE))
    kernel = kernax.On(kernax.RBF(), "where") * kernax.On(same, "kind")
    single = kernax.samples.hsic(kernel, kernax.RBF(), pairs, Y.astype(np.float32))
    np.testing.assert_allclose(
        single, kernax.samples.hsic(kernel, kernax.RBF(), pairs, Y), rtol=1e-5
    )
    assert single.dtype == DTYPE
    first, second = (
        jax.tree.map(lambda leaf, part=part: leaf[part], pairs)
        for part in (slice(0, 4), slice(4, 7))
    )
    outcome = kernax.samples.two_sample_test(kernel, first, second, n_permutations=19, key=KEY)
    np.testing.assert_allclose(
        outcome.statistic, kernax.samples.maximum_mean_discrepancy(kernel, first, second), rtol=1e-5
    )


# the contract


@needs_x64
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: kernax.samples.maximum_mean_discrepancy(KERNEL, X[:1], Z),
            "at least two points, but X holds 1 and Z holds 5",
        ),
        (
            lambda: kernax.samples.two_sample_test(KERNEL, X, Z[:1], key=KEY),
            "at least two points, but X holds 7 and Z holds 1",
        ),
        (
            lambda: untyped(kernax.samples.two_sample_test)(KERNEL, X, Z, key=0),
            "key must be one random key",
        ),
        (
            lambda: kernax.samples.two_sample_test(KERNEL, X, Z, n_permutations=0, key=KEY),
            "n_permutations must be a positive integer",
        ),
        (
            lambda: kernax.samples.hsic(KERNEL, KERNEL, X, Z),
            "in pairs, but X holds 7 and Y holds 5",
        ),
        (lambda: kernax.samples.hsic(KERNEL, KERNEL, X[:1], Z[:1]), "n >= 2 points each"),
        (
            lambda: kernax.samples.independence_test(KERNEL, KERNEL, X, Z, key=KEY),
            "in pairs, but X holds 7 and Y holds 5",
        ),
        (
            lambda: untyped(kernax.samples.independence_test)(KERNEL, KERNEL, X, Y, key="a"),
            "key must be one random key",
        ),
        (
            lambda: kernax.samples.independence_test(
                KERNEL, KERNEL, X, Y, n_permutations=True, key=KEY
            ),
            "n_permutations must be a positive",
        ),
        (
            lambda: kernax.samples.hsic(KERNEL, KERNEL, X, np.full((7, 1), np.nan)),
            "Y holds NaN or inf",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
