"""Kernels of strings against counting by hand, and on real DNA; that padding never shows."""

import collections
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, marked, needs_x32, needs_x64, real_data, untyped

import kernax
from kernax import strings
from kernax.errors import FeaturelessWarning, NonFiniteError
from kernax.kernels import spectrum

TEXTS = ["abcabca", "cabbage"[:6], "aaaaaaa", "bca", "c", "ab", "abacbcb"]  # over abcge
WORDS = [
    text.split()
    for text in ("the cat sat on the mat", "the dog sat", "on the mat the cat sat", "dog")
]


def substrings(text, k):
    return collections.Counter(tuple(text[i : i + k]) for i in range(len(text) - k + 1))


def subsequences(text, length, decay):
    """Every subsequence of a length, with the sum of decay^stretch over its places."""
    sums = collections.Counter()
    for places in itertools.combinations(range(len(text)), length):
        sums[tuple(text[i] for i in places)] += decay ** (places[-1] - places[0] + 1)
    return sums


def mismatches(text, k, m, alphabet):
    counts = collections.Counter()
    for u in itertools.product(alphabet, repeat=k):
        for v, count in substrings(text, k).items():
            counts[u] += count * (sum(a != b for a, b in zip(u, v)) <= m)
    return counts


def inner(a, b, weight=lambda u: 1.0):
    return sum(weight(u) * a[u] * b[u] for u in a.keys() & b.keys())


def of_features(features, texts, weight=lambda u: 1.0):
    found = [features(text) for text in texts]
    return np.array([[inner(a, b, weight) for b in found] for a in found])


def every(features, lengths):
    def together(text):
        return sum((collections.Counter(features(text, k)) for k in lengths), collections.Counter())

    return together


def blended(lengths, decay):
    return lambda texts: of_features(
        every(substrings, lengths), texts, lambda u: decay ** (2 * len(u))
    )


def all_subsequences(texts, decay):
    features = every(lambda text, k: subsequences(text, k, decay), range(1, 8))
    return 1 + of_features(features, texts)


CASES = {
    "Spectrum": (kernax.Spectrum(2), lambda t: of_features(lambda text: substrings(text, 2), t)),
    "Spectrum-1": (kernax.Spectrum(1), lambda t: of_features(lambda text: substrings(text, 1), t)),
    "BlendedSpectrum": (kernax.kernels.BlendedSpectrum(3, 0.7), blended(range(1, 4), 0.7)),
    "AllSubstrings": (kernax.kernels.AllSubstrings(), blended(range(1, 8), 1.0)),
    "AllSubstrings-decay": (kernax.kernels.AllSubstrings(0.7), blended(range(1, 8), 0.7)),
    **{
        f"Subsequence-{p}": (
            kernax.Subsequence(p, 0.6),
            lambda t, p=p: of_features(lambda s: subsequences(s, p, 0.6), t),
        )
        for p in (1, 2, 4)
    },
    "AllSubsequences": (kernax.kernels.AllSubsequences(), lambda t: all_subsequences(t, 1.0)),
    "AllSubsequences-decay": (
        kernax.kernels.AllSubsequences(0.7),
        lambda t: all_subsequences(t, 0.7),
    ),
}


@pytest.mark.slow
@needs_x64
@pytest.mark.parametrize(
    "name",
    marked(
        pytest.mark.nightly,
        CASES,
        "Spectrum",
        "BlendedSpectrum",
        "Subsequence-2",
        "AllSubsequences-decay",
        others=True,
    ),
)
def test_kernels_of_letters_and_of_words_count_what_they_say(name):
    """K13, brute force; strings that are too short for any substring included."""
    kernel, by_hand = CASES[name]
    for texts in (TEXTS, WORDS):
        X = strings.encode(texts)
        np.testing.assert_allclose(
            kernax.gram(kernel, X), by_hand(texts), rtol=TOLERANCE["value"], atol=TOLERANCE["value"]
        )


@needs_x64
@pytest.mark.parametrize(("k", "m"), [(2, 0), (3, 1), (3, 2)])
@pytest.mark.parametrize("features", [2**14, 0])
def test_mismatches_are_counted_over_the_whole_alphabet(k, m, features, monkeypatch):
    """By features and pair by pair: the letter d occurs nowhere, and is a way to differ."""
    monkeypatch.setattr(spectrum, "_MOST_FEATURES", features)
    texts = [text.translate(str.maketrans("ge", "bc")) for text in TEXTS]
    # Its own function: nothing compiled is used again.
    kernel = kernax.Warped(kernax.kernels.Mismatch(k, m), lambda x: x)
    expected = of_features(lambda text: mismatches(text, k, m, "abcd"), texts)
    np.testing.assert_allclose(
        kernax.gram(kernel, strings.encode(texts, "abcd")), expected, rtol=TOLERANCE["value"]
    )


@needs_x64
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("compared", [3000, 0])
def test_substrings_compared_or_sorted_count_as_histograms_do(k, compared, monkeypatch):
    expected = np.asarray(kernax.gram(kernax.Spectrum(k), strings.encode(TEXTS)))
    monkeypatch.setattr(spectrum, "_MOST_FEATURES", 0)
    monkeypatch.setattr(spectrum, "_MOST_COMPARED", compared)
    # Its own function: nothing compiled is used again.
    kernel = kernax.Warped(kernax.Spectrum(k), lambda x: x)
    np.testing.assert_array_equal(kernax.gram(kernel, strings.encode(TEXTS)), expected)


@pytest.mark.parametrize("compared", [3000, 0])
def test_large_alphabets_take_several_numbers_a_substring(compared, monkeypatch):
    """Unicode, and substrings that no number of 31 bits can name."""
    monkeypatch.setattr(spectrum, "_MOST_COMPARED", compared)
    letters = [chr(0x4E00 + i) for i in range(3000)]
    texts = ["".join(letters[i % 3000] for i in range(start, start + 40)) for start in (0, 7, 2990)]
    texts.append(texts[0][:20] + texts[1][:20])
    X = strings.encode(texts, letters)
    expected = of_features(lambda text: substrings(text, 5), texts)
    kernel = kernax.Warped(kernax.Spectrum(5), lambda x: x)
    np.testing.assert_array_equal(kernax.gram(kernel, X), expected)


@pytest.mark.slow
@needs_x32
def test_long_paddings_and_small_decays_lose_nothing():
    """What divides a match depends on the strings alone, and never leaves the range of floats."""
    text = "abcdefghijklmnop"
    for length in (16, 1000):
        assert (
            kernax.gram(kernax.Subsequence(16, 1.0), strings.encode([text], length=length))[0, 0]
            == 1
        )
    X = strings.encode([text[:6], text[:2] + text[3:6]])
    # ab, de and ef, of five and four in a row.
    K = kernax.gram(kernax.Normalised(kernax.Subsequence(2, 1e-25)), X)
    np.testing.assert_allclose(K, [[1, 3 / 20**0.5], [3 / 20**0.5, 1]], rtol=1e-5)


@needs_x64
@pytest.mark.parametrize("k", [3, 5])
def test_codes_of_eight_bits_are_not_added_up_in_eight_bits(k):
    """As features and as keys: 256 in base 10 was taken for 0."""
    X = strings.encode(["0" * k, "256".zfill(k)], "0123456789")
    X = eqx.tree_at(lambda X: X.codes, X, X.codes.astype(jnp.int8))
    assert kernax.Spectrum(k)(X[0], X[1]) == 0
    assert kernax.Spectrum(k)(X[1], X[1]) == 1


@needs_x64
def test_substrings_of_single_precision_take_a_decay_of_double_precision():
    X = strings.encode(["abcab", "bca"])
    single = eqx.tree_at(lambda X: X.weights, X, X.weights.astype(jnp.float32))
    kernel = kernax.kernels.AllSubstrings(0.8)
    with jax.numpy_dtype_promotion("standard"):
        value = kernel(single[0], single[1])
    np.testing.assert_allclose(value, kernel(X[0], X[1]), rtol=1e-6)


@needs_x64
def test_neighbours_too_many_for_integers_are_counted():
    X = strings.encode(["abcdefghijklmnopqrstuvwxyz"])
    assert np.isfinite(kernax.gram(kernax.kernels.Mismatch(10, 5), X)[0, 0])


def test_strings_follow_the_precision_of_the_numbers_beside_them():
    X = (np.ones((2, 1), np.float32), strings.encode(["ab", "b"]))
    kernel = kernax.On(kernax.RBF(), 0) * kernax.On(kernax.Spectrum(1), 1)
    assert kernax.gram(kernel, X).dtype == jnp.float32


@pytest.mark.nightly
@needs_x64
def test_values_of_a_stack_are_the_values_of_its_points():
    X, Z = strings.encode(["abab", "ba", "bb"], "ab"), strings.encode(["aba", "b"], "ab")
    f = kernax.kernel_ridge(
        kernax.Subsequence(2, 0.5), X, np.eye(3)[:, :2].astype(X.weights.dtype), 0.1, bias=True
    ).value
    np.testing.assert_allclose(
        f.values(Z), jax.vmap(f)(Z), rtol=TOLERANCE["value"], atol=TOLERANCE["value"]
    )


@needs_x64
def test_stacks_padded_differently_are_joined():
    X, Z = strings.encode(["abab", "ba"], "ab"), strings.encode(["aba"], "ab")
    f, g = (kernax.samples.mean_embedding(kernax.Spectrum(2), stack) for stack in (X, Z))
    together = kernax.gram(kernax.Spectrum(2), strings.encode(["abab", "ba", "aba"], "ab"))
    c = np.array([0.5, 0.5, -1])
    np.testing.assert_allclose(f.distance(g), np.sqrt(c @ together @ c), rtol=1e-6)
    with pytest.raises(ValueError, match="strings over different alphabets cannot be compared"):
        f - kernax.samples.mean_embedding(kernax.Spectrum(2), strings.encode(["ac"]))  # pyright: ignore[reportUnusedExpression]


KERNELS = {
    "Spectrum": kernax.Spectrum(3),
    "Spectrum-compared": kernax.Spectrum(9),
    "BlendedSpectrum": kernax.kernels.BlendedSpectrum(3, 0.7),
    "AllSubstrings": kernax.kernels.AllSubstrings(0.7),
    "Mismatch": kernax.kernels.Mismatch(3, 1),
    "Mismatch-pairs": kernax.kernels.Mismatch(9, 2),
    "Subsequence": kernax.Subsequence(4, 0.7),
    "AllSubsequences": kernax.kernels.AllSubsequences(0.7),
}


TO_COMPILE = (
    "Spectrum-compared",
    "BlendedSpectrum",
    "Mismatch-pairs",
    "Subsequence",
    "AllSubsequences",
)


@needs_x64
@pytest.mark.parametrize(
    "name",
    marked(
        pytest.mark.nightly,
        [pytest.param(n, marks=pytest.mark.slow) if n in TO_COMPILE else n for n in KERNELS],
        "Spectrum-compared",
        "Mismatch-pairs",
        "Subsequence",
        "AllSubsequences",
    ),
)
def test_padding_never_shows_not_in_the_last_bit(name):
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("ACGT"), size)) for size in (33, 9, 21)]
    tight, wide = strings.encode(texts, "ACGT"), strings.encode(texts, "ACGT", length=47)
    kernel = KERNELS[name]
    np.testing.assert_array_equal(kernax.gram(kernel, tight), kernax.gram(kernel, wide))
    np.testing.assert_array_equal(
        kernax.gram(kernel, tight, wide), kernax.gram(kernel, tight, tight)
    )


@needs_x64
def test_counts_of_banana_are_those_of_the_book():
    """T01, and Shawe-Taylor & Cristianini's table of all subsequences."""
    X = strings.encode(["banana", "ana", "ab", "ba"], "abn")
    assert kernax.gram(kernax.Spectrum(2), X)[0, 0] == 9
    assert kernax.gram(kernax.kernels.AllSubsequences(), X)[0, 1] == 22
    K = kernax.gram(kernax.Spectrum(2), X)
    assert K[2, 3] == 0
    np.testing.assert_array_equal(K, K.T)


@needs_x64
def test_the_subsequence_kernel_has_the_papers_formulas():
    """Lodhi et al. 2002: cat and car."""
    decay = jnp.asarray(0.37, DTYPE)
    K = kernax.gram(kernax.Subsequence(2, decay), strings.encode(["cat", "car"]))
    np.testing.assert_allclose(K[0, 1], decay**4, rtol=TOLERANCE["value"])
    np.testing.assert_allclose(K[0, 0], 2 * decay**4 + decay**6, rtol=TOLERANCE["value"])


@pytest.mark.nightly
@needs_x64
def test_the_subsequence_kernel_has_the_papers_values():
    """Lodhi et al. 2002; TABLES.md: the normalised kernel of two sentences."""
    X = strings.encode(["science is organized knowledge", "wisdom is organized life"])
    matrices = [np.asarray(kernax.gram(kernax.Subsequence(k, 0.5), X)) for k in range(1, 7)]
    found = [K[0, 1] / np.sqrt(K[0, 0] * K[1, 1]) for K in matrices]
    np.testing.assert_allclose(found, [0.8487, 0.5798, 0.4785, 0.4389, 0.4057, 0.3692], atol=5e-5)


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize(
    "kernel",
    [
        kernax.Spectrum(2),
        *(
            pytest.param(k, marks=pytest.mark.slow)
            for k in (kernax.Subsequence(2), kernax.kernels.AllSubstrings())
        ),
    ],
)
def test_an_empty_string_has_a_row_of_zeros_and_a_warning(kernel):
    """T01: never NaN."""
    X = strings.encode(["banana", "", "nab"])
    np.testing.assert_array_equal(kernax.gram(kernel, X)[1], 0)
    with pytest.warns(
        FeaturelessWarning,
        match="1 of 3 points have no features under Normalised, the first of them point 1",
    ):
        K = kernax.gram(kernax.Normalised(kernel), X)
    np.testing.assert_array_equal(K[1], 0)
    for first, second in ((slice(1, 3), slice(0, 1)), (slice(0, 1), slice(1, 3))):
        with pytest.warns(
            FeaturelessWarning, match="1 of 2 points have no features under Normalised, the first"
        ):
            across = kernax.gram(kernax.Normalised(kernel), X[first], X[second])
        np.testing.assert_array_equal(across, K[first, second])
    np.testing.assert_allclose(np.diagonal(K)[[0, 2]], 1, rtol=1e-6)
    gradient = jax.grad(lambda w: jnp.sum(jnp.sin(jax.jit(_normalised)(kernel, X, w))))(X.weights)
    assert np.all(np.isfinite(gradient))


@pytest.mark.slow
@needs_x64
def test_learners_warn_of_strings_without_features_and_of_a_kernel_that_is_zero_throughout():
    X, y = strings.encode(["banana", "", "nab"]), np.array([1.0, 2.0, 3.0], DTYPE)
    kernel, one = (
        kernax.Normalised(kernax.Spectrum(2)),
        "1 of 3 points have no features under {}, the first of them point 1",
    )
    with pytest.warns(FeaturelessWarning, match=one.format("Normalised")):
        f = kernax.kernel_ridge(kernel, X, y, 0.1, bias=True).value
    assert f(X[1]) == f.bias
    with pytest.warns(FeaturelessWarning) as heard:
        kernax.bases.eigenpairs(kernel, X, 1)
    assert len(heard) == 1
    with pytest.warns(FeaturelessWarning, match="no point has features under Spectrum"):
        kernax.samples.maximum_mean_discrepancy(kernax.Spectrum(7), X, X)


@pytest.mark.nightly
@needs_x64
def test_learners_warn_of_kernels_of_kernels_without_features_and_of_no_others():
    X, y = strings.encode(["banana", "", "nab"]), np.array([1.0, 2.0, 3.0], DTYPE)
    kernel, one = (
        kernax.Normalised(kernax.Spectrum(2)),
        "1 of 3 points have no features under {}, the first of them point 1",
    )
    mixed = kernax.On(kernel, 1) * kernax.On(kernax.RBF(), 0)
    for outer, points in ((2.0 * kernel, X), (kernel**2, X), (mixed, (y[:, None], X))):
        with pytest.warns(FeaturelessWarning, match=one.format(type(outer).__name__)):
            kernax.kernel_ridge(outer, points, y, 0.1)
    with pytest.warns(FeaturelessWarning, match=one.format("Scaled")):
        jax.grad(
            lambda s: jnp.sum(
                kernax.kernel_ridge(kernax.kernels.Scaled(kernel, s), X, y, 0.1).value.coefficients
            )
        )(2.0)
    with pytest.warns(FeaturelessWarning, match="no point has features under Spectrum"):
        kernax.kernel_ridge(kernax.Spectrum(7), X, y, 0.1)
    # Numbers may well be zero.
    kernax.kernel_ridge(kernax.Linear(), np.zeros((3, 2), DTYPE), y, 0.1)
    kernax.kernel_ridge(kernax.Spectrum(6), X, y, 0.1)  # and so may some rows of a plain kernel


def _normalised(kernel, X, weights):
    return kernax.gram(kernax.Normalised(kernel), strings.Strings(X.codes, weights, X.alphabet))


@pytest.mark.nightly
def test_long_strings_neither_overflow_nor_vanish():
    """Some 1e180 subsequences in float64, in float32 an error, not a number; and (1e-3)^20 in
    either precision.
    """
    rng = np.random.default_rng(1)
    texts = ["".join(rng.choice(list("ab"), 400)) for _ in range(2)]
    texts.append(texts[0][:200] + texts[1][200:])
    X = strings.encode(texts)
    if X64:
        K = np.asarray(kernax.gram(kernax.Normalised(kernax.kernels.AllSubsequences()), X))
        np.testing.assert_allclose(K, _exact_subsequences(texts), rtol=1e-10)
    else:
        with pytest.raises(NonFiniteError):
            kernax.gram(kernax.kernels.AllSubsequences(), X)
    few = kernax.gram(kernax.Normalised(kernax.Subsequence(10, 1e-3)), X)
    np.testing.assert_allclose(np.diagonal(few), 1, rtol=1e-5)
    assert 0 < few[0, 2] < 1


def _exact_subsequences(texts):
    """With integers of any size: `D[i, j] = D[i-1, j] + D[i, j-1] - D[i-1, j-1] + (match) D[i-1,
    j-1]`, 1 on the edges.
    """

    def count(s, t):
        above = [1] * (len(t) + 1)
        for a in s:
            row = [1]
            for j, b in enumerate(t):
                row.append(above[j + 1] + row[j] - above[j] + (above[j] if a == b else 0))
            above = row
        return above[-1]

    exact = [[count(s, t) for t in texts] for s in texts]
    ratio = lambda i, j: exact[i][j] ** 2 * 10**40 // (exact[i][i] * exact[j][j])
    return (
        np.array(
            [[float(ratio(i, j)) / 1e40 for j in range(len(texts))] for i in range(len(texts))]
        )
        ** 0.5
    )


@pytest.mark.nightly
@needs_x64
@pytest.mark.parametrize("name", ["BlendedSpectrum", "Subsequence", "AllSubsequences"])
def test_the_decay_has_the_derivative_of_differences_to_the_second_order(name):
    X = strings.encode(TEXTS)
    kernel, weights = KERNELS[name], np.random.default_rng(0).normal(size=(7, 7))

    @jax.jit
    def total(decay):
        moved = jax.tree.map(lambda _: decay, kernel)
        return jnp.sum(weights * kernax.gram(kernax.Normalised(moved), X))

    slope, h = jax.jit(jax.grad(total)), 1e-5
    decay = jnp.asarray(0.6)
    np.testing.assert_allclose(
        slope(decay), (total(decay + h) - total(decay - h)) / (2 * h), rtol=1e-7
    )
    second = jax.jit(jax.grad(jax.grad(total)))(decay)
    np.testing.assert_allclose(second, (slope(decay + h) - slope(decay - h)) / (2 * h), rtol=1e-6)


@needs_x64
def test_memory_of_a_gram_matrix_is_never_l_squared_for_a_pair():
    """200 strings of 200 letters: 1.6e9 cells."""
    X = strings.encode(["ab" * 100] * 200)
    total = lambda decay: jnp.sum(kernax.gram(kernax.Subsequence(4, decay), X))
    plan = jax.jit(total).lower(jnp.asarray(0.5, DTYPE)).compile().memory_analysis()
    cells = 200 * 200 * 200 * 200 * jnp.dtype(DTYPE).itemsize
    assert plan.temp_size_in_bytes < cells / 500, plan.temp_size_in_bytes


@needs_x64
def test_points_that_are_no_strings_of_one_alphabet_are_refused():
    X = strings.encode(["ab"])
    with pytest.raises(
        ValueError,
        match=r"strings over different alphabets .*: \('a', 'b'\) of 2 and \('b', 'c'\) of 2",
    ):
        kernax.gram(kernax.Spectrum(1), X, strings.encode(["cb"]))
    with pytest.raises(
        ValueError, match="this kernel compares two strings, but a point is a batch of 1: use gram"
    ):
        kernax.Spectrum(1)(X, X)
    with pytest.raises(ValueError, match="Strings needs codes and weights of one shape"):
        eqx.tree_at(lambda X: X.weights, X, X.weights[:, :1]).__check_init__()
    with pytest.raises(ValueError, match=r"length must be a positive integer, but is 5\.5"):
        untyped(strings.encode)(["ab"], length=5.5)
    with pytest.raises(ValueError, match="alphabet must hold different strings, but is 5"):
        untyped(strings.encode)(["ab"], 5)
    with pytest.raises(
        ValueError, match="this kernel compares strings, but a point is numbers, of shape"
    ):
        kernax.gram(kernax.Subsequence(2), np.eye(3))
    with pytest.raises(ValueError, match="k must be a positive integer, but is 0"):
        kernax.Spectrum(0)
    with pytest.raises(ValueError, match="m must be less than k"):
        kernax.kernels.Mismatch(2, 2)
    with pytest.raises(ValueError, match="decay"):
        kernax.Subsequence(2, -0.5)


@needs_x64
def test_encoding_refuses_what_it_cannot_read():
    for texts, words in (
        ("abc", r"texts must be a list of strings .* of type str: pass \[text\] for one"),
        ([], "at least one string"),
        ([3], r"texts\[0\] must be a string or a list of tokens, but is 3"),
        ([["a", 1]], r"texts\[0\] must be a string or a list of tokens, but is \['a', 1\]"),
    ):
        with pytest.raises(ValueError, match=words):
            strings.encode(texts)
    with pytest.raises(
        ValueError,
        match=r"texts\[1\] has 'x' at position 1, which is not in the alphabet \('a', 'b'\) of 2",
    ):
        strings.encode(["ab", "ax"], "ab")
    with pytest.raises(ValueError, match="length must be at least 3"):
        strings.encode(["abc"], length=2)
    with pytest.raises(ValueError, match="alphabet must hold different strings"):
        strings.encode(["a"], "aa")
    with pytest.raises(ValueError, match="unknown must be 'refuse' or 'gap'"):
        strings.encode(["a"], unknown="skip")


@needs_x64
def test_a_gap_takes_its_place_and_matches_nothing():
    X = strings.encode(["aNb", "ab", "NN"], "ab", unknown="gap")
    np.testing.assert_array_equal(
        kernax.gram(kernax.Spectrum(1), X), [[2, 2, 0], [2, 2, 0], [0, 0, 0]]
    )
    np.testing.assert_array_equal(
        kernax.gram(kernax.Spectrum(2), X), [[0, 0, 0], [0, 1, 0], [0, 0, 0]]
    )
    np.testing.assert_allclose(kernax.gram(kernax.Subsequence(2, 0.5), X)[0, 1], 0.5**5)


@needs_x64
def test_stacks_are_indexed_like_arrays():
    X = strings.encode(TEXTS)
    assert len(X) == 7
    assert len(X[np.array([True, False] * 3 + [True])]) == 4
    np.testing.assert_array_equal(
        kernax.gram(kernax.Spectrum(2), X[2:4]), kernax.gram(kernax.Spectrum(2), X)[2:4, 2:4]
    )
    np.testing.assert_array_equal(
        kernax.gram(kernax.Spectrum(2), jax.device_get(X)), kernax.gram(kernax.Spectrum(2), X)
    )


@needs_x64
def test_letters_of_numpy_are_letters():
    X = strings.encode([np.array(["a", "b"]), "ab"])
    assert [type(token) for token in X.alphabet] == [str, str]
    np.testing.assert_array_equal(X.codes[0], X.codes[1])


@needs_x64
def test_what_is_no_index_no_stack_and_no_array_is_refused_and_loops_end():
    """JAX takes the last element for one out of range, for which loops over a stack waited in
    vain.
    """
    X = strings.encode(["ab", "b", "abba"])
    assert [int(jnp.sum(x.weights)) for x in X] == [2, 1, 4]
    assert [int(jnp.sum(x.weights)) for x in X[[2, 0]]] == [4, 2]
    for index in (3, -4, np.array([0, 3]), (0, 0), [True, False]):
        with pytest.raises(IndexError):
            X[index]
    for whole in (lambda: len(X[0]), lambda: X[0][0], lambda: list(X[0])):
        with pytest.raises(ValueError, match="this is a single string, not a batch"):
            whole()
    for points in ([X[0], X[1]], [np.ones((3, 1)), X]):
        with pytest.raises(
            ValueError,
            match=r"made into an array .* a tuple of batches, such as \(vectors, strings\)",
        ):
            kernax.gram(kernax.Spectrum(1), points)
    with pytest.raises(ValueError, match="strings cannot be converted to an array"):
        kernax.signs(X)
    with pytest.raises(ValueError, match=r"select batches as X\[:1\], not X\[0\]"):
        kernax.gram(kernax.Spectrum(1), X[0])


@needs_x64
def test_promoters_have_the_computed_matrices():
    """TABLES.md."""
    X = strings.encode(real_data("promoter")["seq"].tolist())
    for kernel, figures in (
        (kernax.Spectrum(3), (53, 97, 563584)),
        (kernax.Spectrum(4), (13, 62, 149294)),
        (kernax.kernels.Mismatch(4, 1), (1995, 2674, 2.21847e7)),
    ):
        K = np.asarray(kernax.gram(kernel, X))
        np.testing.assert_allclose([K[0, 1], K[0, 0], K.sum()], figures, rtol=2e-6)


@pytest.mark.nightly
@needs_x64
def test_promoters_are_recognised_as_published():
    """TABLES.md: leave-one-out errors of a machine with C = 1 and the normalised kernel."""
    data = real_data("promoter")
    X, y = strings.encode(data["seq"].tolist()), data["y"].astype(float)
    rows = np.arange(len(y))

    def errors(kernel):
        # One program for all kernels.
        K = kernax.Precomputed(kernax.gram(kernax.Normalised(kernel), X))
        return int(np.sum(kernax.calibration.svm_leave_one_out(K, rows, y, 1.0) * y <= 0))

    assert [errors(kernax.Spectrum(k)) for k in range(2, 7)] == [19, 9, 7, 2, 3]
    assert errors(kernax.kernels.Mismatch(6, 1)) == 2


@pytest.mark.slow
@needs_x64
def test_promoters_of_unequal_lengths_are_recognised_too():
    """Each cut at random to 40 to 57 letters. Measured: 19, 14, 6, 3, 5 errors for k = 2, ..., 6,
    and 4 with mismatches.
    """
    data, rng = real_data("promoter"), np.random.default_rng(0)
    texts = []
    for text in data["seq"].tolist():
        size = rng.integers(40, 58)
        start = rng.integers(0, 57 - size + 1)
        texts.append(text[start : start + size])
    X, y = strings.encode(texts), data["y"].astype(float)
    K = kernax.Precomputed(kernax.gram(kernax.Normalised(kernax.Spectrum(5)), X))
    assert np.sum(kernax.calibration.svm_leave_one_out(K, np.arange(len(y)), y, 1.0) * y <= 0) == 3
