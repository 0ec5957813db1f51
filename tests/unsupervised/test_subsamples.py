"""Herding, thinning and Stein thinning, against brute force of their papers' formulas in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, needs_x64, real_data, untyped

import kernax
from kernax.errors import NonFiniteError
from kernax.samples import herding, mean_embedding, stein_thin, thin

N = 32
X = np.random.default_rng(0).normal(size=(N, 2)).astype(DTYPE)
RBF = kernax.RBF(0.9)
KERNEL = RBF + 0.2 * kernax.Linear()  # whose k(x, x) is not constant
KEY = jax.random.key(3)
SHARES = np.full(N, 1 / N)


def matrix(A):
    """K of KERNEL."""
    A = A.astype(float)
    return np.exp(-((A[:, None] - A) ** 2).sum(-1) / 0.9**2 / 2) + 0.2 * A @ A.T


def stein_matrix(A):
    """`k_0` of an RBF of lengthscale 1 and a standard normal density."""
    A = A.astype(float)
    apart = A[:, None] - A
    s = (apart**2).sum(-1)
    k = np.exp(-s / 2)
    slopes = -(A[:, None] * apart).sum(-1) + (A[None] * apart).sum(-1)
    return k * (A.shape[1] - s + slopes + A @ A.T)


def log_normal(x):
    return -jnp.sum(x**2) / 2


def discrepancy(K, chosen, shares=SHARES):
    """Of the mean embedding of those chosen from the mean with these shares of all."""
    difference = np.bincount(chosen, minlength=len(K)) / len(chosen) - shares
    return difference @ K @ difference


def greedy(K, shares, count, allowed):
    """The point that makes the discrepancy least, one after the other."""
    chosen = []
    for _ in range(count):
        options = allowed(chosen)
        values = [discrepancy(K, [*chosen, i], shares) for i in options]
        chosen.append(options[int(np.argmin(values))])
    return chosen


def anyone(chosen):
    return list(range(N))


def not_again(chosen):
    return [i for i in range(N) if i not in chosen]


def steps(K, chosen, shares=SHARES):
    return [discrepancy(K, chosen[: t + 1], shares) for t in range(len(chosen))]


ROUNDING = {"rtol": TOLERANCE["solve"], "atol": 1e-14 if X64 else 1e-6}

# herding


@pytest.mark.parametrize("replace", [True, False])
def test_each_point_of_herding_makes_the_discrepancy_least(replace):
    K = matrix(X)
    solution = herding(KERNEL, X, 12, replace=replace)
    expected = greedy(K, SHARES, 12, anyone if replace else not_again)
    assert solution.value.indices.tolist() == expected
    np.testing.assert_allclose(solution.stats["discrepancies"], steps(K, expected), **ROUNDING)
    np.testing.assert_allclose(solution.value.discrepancy, discrepancy(K, expected), **ROUNDING)


def test_herding_of_a_stationary_kernel_is_that_of_the_paper():
    """Chen, Welling & Smola 2010: `argmax E k(x, x') - sum_s k(x, x_s) / (t + 1)`."""
    K = np.asarray(kernax.gram(RBF, X), float)
    expected = []
    for t in range(12):
        expected.append(int(np.argmax(K.mean(1) - K[:, expected].sum(1) / (t + 1))))
    assert herding(RBF, X, 12).value.indices.tolist() == expected


@needs_x64
def test_the_discrepancy_is_the_squared_distance_of_the_mean_embeddings():
    weights = np.linspace(0.0, 2, N)
    value = herding(KERNEL, X, 5, weights=weights).value
    apart = mean_embedding(KERNEL, value.of(X)).distance(mean_embedding(KERNEL, X, weights=weights))
    np.testing.assert_allclose(value.discrepancy, apart**2, rtol=1e-8)
    np.testing.assert_array_equal(value.of(X), X[value.indices])


def test_without_replacement_all_points_are_chosen_once_and_nothing_is_left_over():
    value = herding(KERNEL, X, N, replace=False).value
    assert sorted(value.indices.tolist()) == list(range(N))
    assert value.discrepancy < (1e-14 if X64 else 1e-6)


@needs_x64
def test_a_point_of_weight_zero_is_not_chosen_where_no_other_is_left():
    weights = np.ones(N)
    weights[5] = 0
    assert 5 not in herding(KERNEL, X, N - 1, weights=weights, replace=False).value.indices


@needs_x64
def test_of_equal_points_the_first_is_taken():
    twice = np.concatenate([X[:6], X[:6]])
    assert max(herding(KERNEL, twice, 8).value.indices.tolist()) < 6


@needs_x64
def test_the_discrepancy_of_herding_falls_as_one_over_the_square_of_the_count():
    """In a space of finite dimension; random points would leave 1 / count."""
    draws = np.random.default_rng(1).normal(size=(400, 2))
    kernel = kernax.Polynomial(2, 1.0)
    squares = np.asarray(herding(kernel, draws, 64).stats["discrepancies"])
    K = np.asarray(kernax.gram(kernel, draws))
    counts = np.arange(1, 65)
    assert np.all(squares * counts**2 <= np.max(np.diag(K)))
    random = (np.trace(K) / 400 - K.mean()) / 64  # its expectation
    assert squares[-1] < 0.02 * random


@pytest.mark.nightly
@needs_x64
def test_herding_in_blocks_and_in_features_chooses_the_same():
    whole = herding(KERNEL, X, 8).value
    blocks = herding(KERNEL, X, 8, block_size=5).value
    assert blocks.indices.tolist() == whole.indices.tolist()
    np.testing.assert_allclose(blocks.discrepancy, whole.discrepancy, rtol=1e-9)
    stein = stein_thin(RBF, X, log_normal, 8).value.indices.tolist()
    assert stein_thin(RBF, X, log_normal, 8, block_size=5).value.indices.tolist() == stein
    kernel = kernax.Polynomial(2, 1.0)
    of_matrix = herding(kernax.Precomputed(kernax.gram(kernel, X)), np.arange(N), 8).value
    assert herding(kernel, X, 8).value.indices.tolist() == of_matrix.indices.tolist()


# thinning


def split(K, halvings, uniforms, delta):
    """KT-SPLIT, on line, as Dwivedi & Mackey 2021 write it (algorithm 1a)."""
    n = len(K)
    parts = {(0, 0): []} | {(j, part): [] for j in range(1, halvings + 1) for part in range(2**j)}
    constants = {(j, part): 0.0 for j in range(1, halvings + 1) for part in range(2 ** (j - 1))}
    for i in range(1, n // 2 + 1):
        parts[0, 0] += [2 * i - 2, 2 * i - 1]
        for j in range(1, halvings + 1):
            if i % 2 ** (j - 1):
                break
            for part in range(2 ** (j - 1)):
                source, child = parts[j - 1, part], parts[j, 2 * part]
                x, other = source[-2:]
                b2 = K[x, x] + K[other, other] - 2 * K[x, other]
                failure = delta / n * 2 ** (j - 1) / halvings
                sigma2 = constants[j, part]
                a = max(np.sqrt(b2 * sigma2 * 2 * np.log(2 / failure)), b2)
                constants[j, part] += b2 * max(0, 1 + (b2 - 2 * a) * sigma2 / a**2)
                alpha = K[other, other] - K[x, x]
                alpha += sum(K[y, x] - K[y, other] for y in source)
                alpha -= 2 * sum(K[z, x] - K[z, other] for z in child)
                if uniforms[j - 1][part, len(child)] < min(1, 0.5 * max(0, 1 - alpha / a)):
                    x, other = other, x
                parts[j, 2 * part].append(x)
                parts[j, 2 * part + 1].append(other)
    return [parts[halvings, part] for part in range(2**halvings)]


def swapped(K, halvings, parts):
    """KT-SWAP (algorithm 1b)."""
    standard = list(range(2**halvings - 1, len(K), 2**halvings))
    best = list(min([standard, *parts], key=lambda part: discrepancy(K, part)))
    for i in range(len(best)):
        values = [discrepancy(K, [*best[:i], z, *best[i + 1 :]]) for z in range(len(K))]
        best[i] = int(np.argmin(values))
    return best, standard


def draws(halvings, key=KEY, n=N):
    return [
        np.asarray(jax.random.uniform(of_level, (2**j, n // 2 ** (j + 1)), DTYPE))
        for j, of_level in enumerate(jax.random.split(key, halvings))
    ]


@pytest.mark.parametrize("delta", [0.5, 1e-3])
def test_every_decision_of_thinning_is_that_of_the_paper(delta):
    K = matrix(X)
    solution = thin(KERNEL, X, 2, key=KEY, delta=delta)
    parts = split(K, 2, draws(2), delta)
    expected, standard = swapped(K, 2, parts)
    assert solution.value.indices.tolist() == expected
    np.testing.assert_allclose(solution.value.discrepancy, discrepancy(K, expected), **ROUNDING)
    best = min(discrepancy(K, part) for part in parts)
    np.testing.assert_allclose(solution.stats["split"], best, **ROUNDING)
    np.testing.assert_allclose(solution.stats["standard"], discrepancy(K, standard), **ROUNDING)


@needs_x64
def test_another_kernel_may_be_split_by():
    roots = np.exp(-((X[:, None] - X) ** 2).sum(-1) / 0.45**2)
    value = thin(KERNEL, X, 2, key=KEY, split_kernel=kernax.RBF(0.45 / np.sqrt(2))).value
    expected, _ = swapped(matrix(X), 2, split(roots, 2, draws(2), 0.5))
    assert value.indices.tolist() == expected


@pytest.mark.slow
@needs_x64
def test_thinning_of_real_points_leaves_far_less_than_random_points_and_every_eighth():
    """Measured: 0.0127 by 64 random points, 0.0102 by every eighth, 0.0020 to 0.0030 after the
    split, 0.00011 to 0.00019 after the refinement.
    """
    points = real_data("banana")["X"][:512].astype(DTYPE)
    keys = jax.random.split(KEY, 5)
    thinned = jax.jit(jax.vmap(lambda key: thin(kernax.RBF(0.7), points, 3, key=key)))(keys)
    K = np.asarray(kernax.gram(kernax.RBF(0.7), points))
    random = (1 - K.mean()) / 64  # the mean of the discrepancy of 64 random points
    figures = thinned.value.discrepancy
    assert np.max(figures) < 0.02 * random
    assert np.max(thinned.stats["split"]) < 0.3 * random
    assert np.all(figures <= thinned.stats["split"])
    assert np.all(figures <= thinned.stats["standard"])
    again = thin(kernax.RBF(0.7), points, 3, key=keys[2])
    np.testing.assert_array_equal(again.value.indices, thinned.value.indices[2])


@pytest.mark.parametrize("power", [-100, 100])
def test_the_choices_do_not_depend_on_the_unit_of_the_kernel(power):
    """Squares of which are out of range in float32."""
    scaled = DTYPE(2.0**power) * KERNEL
    for choose in (
        lambda kernel: herding(kernel, X, 8).value,
        lambda kernel: thin(kernel, X, 2, key=KEY).value,
    ):
        value = choose(scaled)
        assert value.indices.tolist() == choose(KERNEL).indices.tolist()
        assert value.discrepancy > 0


def test_equal_points_and_a_single_pair_are_thinned():
    same = np.ones((8, 2), DTYPE)
    solution = thin(RBF, same, 2, key=KEY)
    assert solution.value.indices.shape == (2,)
    assert solution.value.discrepancy < 1e-6
    pair = thin(RBF, X[:2], 1, key=KEY).value
    np.testing.assert_allclose(
        pair.discrepancy, (1 - np.exp(-np.sum((X[0] - X[1]) ** 2) / 0.81 / 2)) / 2, rtol=1e-4
    )


# Stein thinning


def test_each_point_of_stein_thinning_makes_the_stein_discrepancy_least():
    """Riabiz et al. 2022."""
    K = stein_matrix(X)
    nothing = np.zeros(N)
    solution = stein_thin(kernax.RBF(), X, log_normal, 10)
    expected = greedy(K, nothing, 10, anyone)
    assert solution.value.indices.tolist() == expected
    np.testing.assert_allclose(
        solution.stats["discrepancies"], steps(K, expected, nothing), rtol=TOLERANCE["solve"]
    )


@pytest.mark.slow
@needs_x64
def test_stein_thinning_leaves_out_a_burn_in():
    chain = np.concatenate([X[:8] * 0.1 + 6, X])
    kernel = kernax.RationalQuadratic(1.0, 0.5)
    chosen = stein_thin(kernel, chain, log_normal, 20).value
    assert np.min(np.asarray(chosen.indices)) >= 8
    whole = mean_embedding(kernax.kernels.SteinKernel(kernel, log_normal), chain).norm ** 2
    assert chosen.discrepancy < 0.02 * whole


# the contract


@needs_x64
def test_what_only_a_trace_knows_to_be_bad_has_no_indices_and_says_so():
    def bad(scale, weights):
        return (
            herding(RBF, X, 4, weights=weights, replace=False, throw=False),
            thin(RBF, X, 3, key=KEY, split_kernel=kernax.RBF(scale), throw=False),
        )

    ones = jnp.ones(N)
    program = jax.jit(bad)
    good = program(1.0, ones)
    assert all(solution.result == kernax.RESULTS.successful for solution in good)
    for solution in (program(1.0, ones.at[3:].set(0))[0], program(-1.0, ones)[1]):
        assert solution.result == kernax.RESULTS.nonfinite
        assert np.all(np.asarray(solution.value.indices) == -1)
        assert np.isnan(solution.value.discrepancy)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:kernel_kmeans. only:kernax.errors.ClusterWarning")
def test_points_far_from_zero_lose_the_digits_of_a_discrepancy_and_say_so(rng):
    """Under a kernel that is not stationary; centred, they have them."""
    X = rng.normal(size=(64, 2)).astype(DTYPE)
    far = X + np.finfo(DTYPE).eps ** DTYPE(-0.45)
    for choose in (
        lambda X: herding(kernax.Linear(), X, 8, throw=False),
        lambda X: thin(kernax.Linear(), X, 3, key=KEY, throw=False),
        lambda X: kernax.kernel_kmeans(kernax.Linear(), X, 3, key=KEY, throw=False),
    ):
        assert choose(X).result == kernax.RESULTS.successful
        assert choose(far).result == kernax.RESULTS.inaccurate
        assert choose(far - far.mean(0)).result == kernax.RESULTS.successful


@pytest.mark.slow
def test_what_coincides_or_has_no_weight_has_no_digits_to_lose(rng):
    linear = kernax.Linear()
    for d in (3, 30, 100):
        same = np.tile(rng.normal(size=d).astype(DTYPE), (12, 1))
        assert herding(linear, same, 2).result == kernax.RESULTS.successful
    X = np.append(rng.normal(size=(20, 2)), [[500.0, 500.0]], 0).astype(DTYPE)
    weights = np.append(np.ones(20), 0.0).astype(DTYPE)
    assert herding(linear, X, 4, weights=weights).result == kernax.RESULTS.successful
    clusters = kernax.kernel_kmeans(linear, 4 * X, 2, key=KEY, weights=weights)
    assert clusters.result == kernax.RESULTS.successful
    assert clusters.stats["distinct"] == 2


def test_a_kernel_or_a_score_that_overflows_raises():
    with pytest.raises(NonFiniteError):
        herding(kernax.Polynomial(300), 1e3 * X, 4)
    with pytest.raises(NonFiniteError):
        stein_thin(RBF, X, lambda x: jnp.sum(jnp.log(x)) + jnp.sum(jnp.sqrt(x - 5)), 4)


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: herding(RBF, X, 0), "n_points must be a positive integer"),
        (lambda: herding(RBF, X, N + 1, replace=False), "n_points must be at most 32"),
        (
            lambda: herding(RBF, X, 3, weights=np.eye(N)[0], replace=False),
            "positive weight, but is 3: choose fewer, or replace=True",
        ),
        (lambda: untyped(herding)(RBF, X, 3, block_size=0), "block_size must be a positive"),
        (
            lambda: thin(RBF, X[:30], 2, key=KEY),
            "= 4 points, but holds 30: leave out 2",
        ),
        (lambda: herding(RBF, X, 30, replace=False).value.of(X[:9]), "X holds 9 points, but point"),
        (lambda: thin(RBF, X, 0, key=KEY), "n_halvings must be a positive integer"),
        (lambda: thin(RBF, X, 6, key=KEY), "n_halvings of 32 points must leave at least one"),
        (lambda: thin(RBF, X, 1, key=KEY, delta=1.0), "delta must be in"),
        (lambda: untyped(thin)(RBF, X, 1, key=3), "key must be one random key"),
        (lambda: stein_thin(kernax.Matern12(), X, log_normal, 3), "have no derivatives"),
        (lambda: stein_thin(RBF, X, lambda x: x, 3), "log_density must return a scalar"),
        (
            lambda: stein_thin(kernax.Precomputed(np.eye(4)), np.arange(4), log_normal, 3),
            "X must be a batch of vectors",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
