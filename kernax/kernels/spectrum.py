"""Kernels of strings that count common substrings, without gaps.

Where the counts of all possible substrings fit into memory, they are the features: each string has
a histogram, and a Gram matrix is one matrix product. Otherwise each substring of one string is
compared with all of the other, which is faster than a search because it runs in vector
instructions. Substrings of long strings are sorted and found by binary search.
"""

import functools
import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.numerics import dot
from kernax.core.base.parameters import integer, positive
from kernax.core.kernel.kernel import AbstractKernel
from kernax.kernels.texts import OF_TEXTS, Strings, check_strings

_MOST_FEATURES = 2**14
# Substrings of a string; both methods took 0.5 s for 500 pairs of such strings, k = 9.
_MOST_COMPARED = 3000


class Spectrum(AbstractKernel):
    """`sum_u c_u(x) c_u(z)` over all strings u of `k` tokens, c_u(x) the number of u in x.

    This is the k-spectrum kernel (Leslie, Eskin & Noble 2002), for any alphabet. Where there are at
    most 2^14 strings of that length over the alphabet, a Gram matrix is one matrix product.

    Examples:
        >>> X = kernax.strings.encode(["banana", "ananas", "cherry"])
        >>> kernax.gram(kernax.Spectrum(2), X)  # common pairs of letters
        Array([[9., 8., 0.],
               [8., 9., 0.],
               [0., 0., 5.]], dtype=float64)
    """

    k: int = integer("k")

    encoding: ClassVar[str] = OF_TEXTS

    def __call__(self, x, z):
        check_strings(x, z)
        return _common(x, z, self.k)


class BlendedSpectrum(AbstractKernel):
    """`sum_u decay^(2 |u|) c_u(x) c_u(z)` over all strings u of 1 to `k` tokens.

    c_u(x) is the number of times that u occurs in x (Shawe-Taylor & Cristianini 2004, section
    11.3).

    Examples:
        >>> X = kernax.strings.encode(["banana", "ananas", "cherry"])
        >>> kernax.gram(kernax.kernels.BlendedSpectrum(2), X)
        Array([[23., 21.,  0.],
               [21., 23.,  0.],
               [ 0.,  0., 13.]], dtype=float64)
    """

    k: int = integer("k")
    decay: Float[ParameterArray, ""] = positive(default=1.0)

    encoding: ClassVar[str] = OF_TEXTS

    def __call__(self, x, z):
        check_strings(x, z)
        return sum(
            (self.decay ** (2 * k) * _common(x, z, k) for k in range(1, self.k + 1)),
            jnp.zeros_like(self.decay),
        )


class AllSubstrings(AbstractKernel):
    """`sum_u decay^(2 |u|) c_u(x) c_u(z)` over all strings u of at least one token.

    c_u(x) is the number of times that u occurs in x (Vishwanathan & Smola 2003, without the empty
    string). Dynamic programming over the common suffixes of all pairs of prefixes costs L^2 for
    each pair of strings.

    Examples:
        >>> X = kernax.strings.encode(["ana", "an", "cat"])
        >>> kernax.gram(kernax.kernels.AllSubstrings(), X)
        Array([[8., 4., 2.],
               [4., 3., 1.],
               [2., 1., 6.]], dtype=float64)
    """

    decay: Float[ParameterArray, ""] = positive(default=1.0)

    encoding: ClassVar[str] = OF_TEXTS

    def __call__(self, x, z):
        check_strings(x, z)

        # S(i, j) = match(i, j) (1 + S(i - 1, j - 1)), match = decay^2 for equal tokens: the sum
        # over the common suffixes of x up to i and z up to j, and k = sum_ij S(i, j).
        def row(now: _Suffixes, token):
            code, weight = token
            match = jnp.where(code == z.codes, self.decay**2 * weight * z.weights, 0)
            before = jnp.concatenate([jnp.zeros_like(now.sums[:1]), now.sums[:-1]])
            sums = match * (1 + before)
            return _Suffixes(sums, now.total + sums), None

        nothing = jnp.zeros_like(x.weights[0] * z.weights * self.decay)
        start = _Suffixes(nothing, nothing)
        return _sum_in_order(lax.scan(row, start, (x.codes, x.weights))[0].total)


class _Suffixes(NamedTuple):
    """Sums over the common suffixes of x up to one position, and of z up to each position."""

    sums: Float[Array, " L"]
    total: Float[Array, " L"]  # the sum of these over the positions of x so far


class Mismatch(AbstractKernel):
    """`sum_u m_u(x) m_u(z)` over all strings u of `k` tokens, where m_u counts with mismatches.

    m_u(x) is the number of substrings of x that differ from u in at most `m` positions (Leslie,
    Eskin, Weston & Noble 2004). m = 0 is `Spectrum(k)`. The value depends on the size of the
    alphabet: letters that never occur still count as mismatches.

    Examples:
        >>> X = kernax.strings.encode(["banana", "bandana", "cherry"])
        >>> kernax.gram(kernax.kernels.Mismatch(3, m=1), X).shape
        (3, 3)
    """

    k: int = integer("k")
    m: int = integer("m", least=0, default=1)

    encoding: ClassVar[str] = OF_TEXTS

    def __check_init__(self):
        if self.m >= self.k:
            raise ValueError(
                f"m must be less than k, but m is {self.m} and k is {self.k}: all strings would be "
                "alike"
            )

    def __call__(self, x, z):
        check_strings(x, z)
        # sum_u m_u(x) m_u(z), by features where these are few enough.
        if len(x.alphabet) ** self.k <= _MOST_FEATURES:
            return dot(_neighbourhoods(x, self.k, self.m), _neighbourhoods(z, self.k, self.m))
        # counts[i]: how many strings lie within m mismatches of both of two strings that differ in
        # i positions; none does beyond 2 m. They are floats because integers would overflow.
        counts = [
            float(_shared_neighbours(self.k, self.m, len(x.alphabet), apart))
            for apart in range(min(2 * self.m, self.k) + 1)
        ]

        def shared(window, others):
            apart = sum((token != other).astype(jnp.int32) for token, other in zip(window, others))
            return jnp.asarray(sum(jnp.where(apart == i, n, 0) for i, n in enumerate(counts)))

        return _compared(_windows(x, self.k), _windows(z, self.k), shared)


# Windows (words, n) of a string, and their weights (n,).
_Weighted = tuple[Int[Array, "_ _"], Float[Array, " _"]]


def _compared(x: _Weighted, z: _Weighted, alike: Callable) -> Float[Array, ""]:
    """`sum_ij weights_i weights_j alike(x_i, z_j)`: each window of x against all of z."""
    (windows, weights) = x
    (others, other_weights) = z

    def add_window(total, window_and_weight):
        window, weight = window_and_weight
        return total + weight * alike(window, others).astype(weight.dtype), None

    total = lax.scan(add_window, jnp.zeros_like(other_weights), (windows.T, weights), unroll=4)[0]
    if not len(other_weights):
        return jnp.zeros((), weights.dtype)
    return _sum_in_order(total * other_weights)


def _equal(window: Int[Array, " words"], others: Int[Array, "words n"]) -> Bool[Array, " n"]:
    """Compares word by word: a reduction over so short an axis is ten times slower."""
    return functools.reduce(jnp.logical_and, [word == other for word, other in zip(window, others)])


def _sum_in_order(values: Float[Array, " n"]) -> Float[Array, ""]:
    """The sum by adding neighbours in pairs, so that padding with zeros changes no bit of it."""
    while len(values) > 1:
        values = jnp.pad(values, (0, len(values) % 2))
        values = values[0::2] + values[1::2]
    return values[0]


def _windows(x: Strings, k: int) -> _Weighted:
    """The tokens of every substring of k tokens, and the products of their weights."""
    places = max(x.codes.shape[0] - k + 1, 0)
    # Token i of window j is token i + j of the string.
    shifted = lambda array: jnp.stack([array[i : i + places] for i in range(k)])
    return shifted(x.codes), jnp.prod(shifted(x.weights), 0)


def _common(x: Strings, z: Strings, k: int) -> Float[Array, ""]:
    """The number of pairs of equal substrings of k tokens."""
    if len(x.alphabet) ** k <= _MOST_FEATURES:
        return dot(_histogram(x, k), _histogram(z, k))
    if min(len(x.codes), len(z.codes)) <= _MOST_COMPARED:
        return _compared(_keys(x, k), _keys(z, k), _equal)
    return _searched(_keys(x, k), _keys(z, k))


def _searched(x: _Weighted, z: _Weighted) -> Float[Array, ""]:
    """The number of pairs of equal keys: binary search for those of z in the sorted keys of x."""
    keys, x_weights = x
    wanted, weights = z
    if not len(x_weights) or not len(weights):
        return jnp.zeros((), weights.dtype)
    *keys, x_weights = lax.sort((*keys, x_weights), num_keys=len(keys))
    keys = jnp.stack(keys)

    # total_i = weight_i + total_{i+1} where the next key is equal, so that at the first of equal
    # keys it is the sum of their weights.
    def backwards(total, inputs):
        same_as_next, weight = inputs
        total = weight + jnp.where(same_as_next, total, 0)
        return total, total

    same = jnp.concatenate([jnp.all(keys[:, 1:] == keys[:, :-1], 0), jnp.zeros(1, bool)])
    nothing = jnp.zeros_like(x_weights[0])
    repeats = lax.scan(backwards, nothing, (same, x_weights), reverse=True)[1]
    place = _first_not_below(keys, wanted)
    is_there = place < len(repeats)
    found = jnp.all(jnp.take(keys, place, axis=1, mode="clip") == wanted, 0) & is_there
    return _sum_in_order(jnp.where(found, jnp.take(repeats, place, mode="clip") * weights, 0))


def _histogram(x: Strings, k: int) -> Float[Array, " features"]:
    """How often each string of k tokens occurs, in the order of their codes as numbers."""
    tokens, weights = _windows(x, k)
    size = max(len(x.alphabet), 1)
    return jnp.zeros(size**k, weights.dtype).at[_number(tokens, size)].add(weights)


def _number(tokens: Int[Array, "k n"], size: int) -> Int[Array, " n"]:
    """Tokens as the digits of a number to the base of the alphabet's size."""
    # sum_i token_i size^(k - 1 - i), by Horner's rule.
    number = jnp.zeros(tokens.shape[1:], jnp.int32)  # codes of 8 bits would overflow
    for digit in tokens:
        number = number * size + digit.astype(number.dtype)
    return number


def _neighbourhoods(x: Strings, k: int, m: int) -> Float[Array, " features"]:
    """How many substrings lie within m mismatches of each string of k tokens."""
    # One position after the other, with one array for each number of mismatches so far.
    shape = (max(len(x.alphabet), 1),) * k
    counts = [_histogram(x, k).reshape(shape)]
    for place in range(k):
        # count_e(u) becomes count_e(u) + sum of count_(e-1)(v) over the v that differ from u in
        # this position alone.
        others = [jnp.sum(count, place, keepdims=True) - count for count in counts]
        counts = [sum(parts) for parts in zip([*counts, 0.0], [0.0, *others])][: m + 1]
    return jnp.asarray(sum(counts)).reshape(-1)


def _shared_neighbours(k: int, m: int, size: int, apart: int) -> int:
    """The number of strings within m mismatches of both of two strings of k tokens.

    The two differ in `apart` positions, and `size` is the size of the alphabet.
    """
    total = 0
    for outside in range(min(m, k - apart) + 1):  # mismatches with both, where they agree
        ways_outside = math.comb(k - apart, outside) * (size - 1) ** outside
        # Where the two differ, a token equals that of the first, of the second, or of neither.
        for first in range(apart + 1):
            for second in range(apart - first + 1):
                # outside + apart - first mismatches with the first string, and
                # outside + apart - second with the second.
                if outside + apart - min(first, second) <= m:
                    neither = apart - first - second
                    places = math.comb(apart, first) * math.comb(apart - first, second)
                    total += ways_outside * places * max(size - 2, 0) ** neither
    return total


def _keys(x: Strings, k: int) -> _Weighted:
    """Substrings of k tokens as one or more numbers of 31 bits each, and their weights."""
    tokens, weights = _windows(x, k)
    size = max(len(x.alphabet), 2)
    # size^each <= 2^31: every number fits into 31 bits, even where the logarithm is rounded.
    each = max(int(31 / math.log2(size)), 1)  # tokens per number
    each -= size**each > 2**31
    words = [_number(tokens[at : at + each], size) for at in range(0, k, each)]
    return jnp.stack(words), weights


def _first_not_below(
    keys: Int[Array, "words n"], wanted: Int[Array, "words m"]
) -> Int[Array, " m"]:
    """The first index of a sorted key that is not below each wanted key; n if all are below."""
    # All keys before `low` are below; low rises if the last of the next `step` keys is below.
    low = jnp.zeros(wanted.shape[1], jnp.int32)
    n = keys.shape[1]
    for step in 2 ** np.arange(n.bit_length())[::-1]:  # binary search
        here = jnp.take(keys, low + (int(step) - 1), axis=1, mode="clip")
        low = jnp.where(_below(here, wanted) & (low + int(step) <= n), low + int(step), low)
    return low


def _below(keys: Int[Array, "words m"], others: Int[Array, "words m"]) -> Bool[Array, " m"]:
    """Whether keys are less than others, compared word by word."""
    below = jnp.zeros(keys.shape[1], bool)
    equal = jnp.ones(keys.shape[1], bool)
    for word, other in zip(keys, others):
        below = below | (equal & (word < other))
        equal = equal & (word == other)
    return below
