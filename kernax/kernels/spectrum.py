"""Kernels of strings that count common substrings, without gaps.

Where the counts of all possible substrings fit, they are features: one histogram a string, one matrix product a Gram
matrix. Elsewhere each substring of one string is compared with all of the other, which on machines of vectors is faster
than a search until strings are long; those of long strings are sorted, and found by binary search.
"""

import functools
import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.kernel import AbstractKernel
from kernax.core.numerics import dot
from kernax.core.parameters import integer, positive
from kernax.kernels.strings import Strings, check_strings

_MOST_FEATURES = 2**14
_MOST_COMPARED = 3000  # substrings of a string; both ways took 0.5 s for 500 pairs of such strings, k = 9


class Spectrum(AbstractKernel):
    """`sum_u c_u(x) c_u(z)`, c_u(x) the number of times that u occurs in x, over all strings u of `k` tokens.

    The k-spectrum kernel (Leslie, Eskin & Noble 2002). Any alphabet; one matrix product while it has at most 2^14 strings
    of that length.
    """

    k: int = integer("k")

    def __call__(self, x, z):
        check_strings(x, z)
        return _common(x, z, self.k)


class BlendedSpectrum(AbstractKernel):
    """`sum_{l <= k} decay^(2 l) sum_u c_u(x) c_u(z)`, over all strings u of l tokens, l = 1, ..., k (Shawe-Taylor & Cristianini
    2004, section 11.3)."""

    k: int = integer("k")
    decay: Float[Array, ""] = positive(default=1.0)

    def __call__(self, x, z):
        check_strings(x, z)
        return sum((self.decay ** (2 * k) * _common(x, z, k) for k in range(1, self.k + 1)), jnp.zeros_like(self.decay))


class AllSubstrings(AbstractKernel):
    """`sum_u decay^(2 |u|) c_u(x) c_u(z)` over all strings u of at least one token (Vishwanathan & Smola 2003, without the
    empty string). Costs L^2 for each pair: common suffixes of every two prefixes, by a dynamic programme.
    """

    decay: Float[Array, ""] = positive(default=1.0)

    def __call__(self, x, z):
        check_strings(x, z)

        def row(carry, token):
            # suffixes[j] is the sum over common suffixes of x up to here and of z up to place j
            suffixes, total = carry
            match = jnp.where(token[0] == z.codes, self.decay**2 * token[1] * z.weights, 0)
            suffixes = match * (1 + jnp.concatenate([jnp.zeros_like(suffixes[:1]), suffixes[:-1]]))
            return (suffixes, total + suffixes), None

        nothing = jnp.zeros_like(z.weights)
        return _sum_in_order(lax.scan(row, (nothing, nothing), (x.codes, x.weights))[0][1])


class Mismatch(AbstractKernel):
    """`sum_u m_u(x) m_u(z)` over all strings u of `k` tokens, m_u(x) the number of substrings of x that differ from u in at
    most `m` places (Leslie, Eskin, Weston & Noble 2004). m = 0 is `Spectrum(k)`. The size of the alphabet matters: a letter
    that never occurs is still a way to differ.
    """

    k: int = integer("k")
    m: int = integer("m", least=0, default=1)

    def __check_init__(self):
        if self.m >= self.k:
            raise ValueError(f"m must be less than k, but m is {self.m} and k is {self.k}: all strings would be alike")

    def __call__(self, x, z):
        check_strings(x, z)
        if len(x.alphabet) ** self.k <= _MOST_FEATURES:
            return dot(_neighbourhoods(x, self.k, self.m), _neighbourhoods(z, self.k, self.m))
        ways = [float(_shared_neighbours(self.k, self.m, len(x.alphabet), i)) for i in range(min(2 * self.m, self.k) + 1)]

        def shared(window, others):
            apart = sum((token != other).astype(jnp.int32) for token, other in zip(window, others))
            return sum(jnp.where(apart == i, way, 0) for i, way in enumerate(ways))  # floats: integers would overflow

        return _compared(_windows(x, self.k), _windows(z, self.k), shared)


def _compared(x: tuple[Array, Array], z: tuple[Array, Array], alike: Callable) -> Float[Array, ""]:
    """`sum_ij weights_i weights_j alike(x_i, z_j)` over the windows (words, n) of two strings and their weights (n,): one of x
    after the other, each beside all of z."""
    (windows, weights), (others, other_weights) = x, z

    def beside(total, window_and_weight):
        window, weight = window_and_weight
        return total + weight * alike(window, others).astype(weight.dtype), None

    total = lax.scan(beside, jnp.zeros_like(other_weights), (windows.T, weights), unroll=4)[0]
    return _sum_in_order(total * other_weights) if len(other_weights) else jnp.zeros((), weights.dtype)


def _equal(window: Int[Array, " words"], others: Int[Array, "words n"]) -> Bool[Array, " n"]:
    """Word by word: a reduction over so short an axis is ten times slower."""
    return functools.reduce(jnp.logical_and, [word == other for word, other in zip(window, others)])


def _sum_in_order(values: Float[Array, " n"]) -> Float[Array, ""]:
    """The sum, by neighbours: zeros at the end, padding, change nothing, not in the last bit."""
    while len(values) > 1:
        values = jnp.pad(values, (0, len(values) % 2))
        values = values[0::2] + values[1::2]
    return values[0]


def _windows(x: Strings, k: int) -> tuple[Int[Array, "k n"], Float[Array, " n"]]:
    """The tokens of every substring of k tokens, and the products of their weights."""
    places = max(x.codes.shape[0] - k + 1, 0)
    tokens = jnp.stack([x.codes[i : i + places] for i in range(k)])
    return tokens, jnp.prod(jnp.stack([x.weights[i : i + places] for i in range(k)]), 0)


def _common(x: Strings, z: Strings, k: int) -> Float[Array, ""]:
    """The number of pairs of equal substrings of k tokens."""
    if len(x.alphabet) ** k <= _MOST_FEATURES:
        return dot(_histogram(x, k), _histogram(z, k))
    if min(len(x.codes), len(z.codes)) <= _MOST_COMPARED:
        return _compared(_keys(x, k), _keys(z, k), _equal)
    keys, repeats = _sorted(x, k)
    wanted, weights = _keys(z, k)
    if not len(repeats) or not len(weights):
        return jnp.zeros((), weights.dtype)
    place = _first_not_below(keys, wanted)
    found = jnp.all(jnp.take(keys, place, axis=1, mode="clip") == wanted, 0) & (place < len(repeats))
    return _sum_in_order(jnp.where(found, jnp.take(repeats, place, mode="clip") * weights, 0))


def _histogram(x: Strings, k: int) -> Float[Array, " features"]:
    """How often each string of k tokens occurs, in the order of their codes as numbers."""
    tokens, weights = _windows(x, k)
    size = max(len(x.alphabet), 1)
    return jnp.zeros(size**k, weights.dtype).at[_number(tokens, size)].add(weights)


def _number(tokens: Int[Array, "k n"], size: int) -> Int[Array, " n"]:
    """Tokens as the digits of a number to the base of the alphabet's size."""
    number = jnp.zeros_like(tokens[0])
    for digit in tokens:
        number = number * size + digit
    return number


def _neighbourhoods(x: Strings, k: int, m: int) -> Float[Array, " features"]:
    """How many substrings lie within m mismatches of each string of k tokens: one place after the other, one array for
    each number of mismatches so far."""
    shape = (max(len(x.alphabet), 1),) * k
    counts = [_histogram(x, k).reshape(shape)]
    for place in range(k):
        others = [jnp.sum(count, place, keepdims=True) - count for count in counts]
        counts = [sum(parts) for parts in zip([*counts, 0.0], [0.0, *others])][: m + 1]
    return jnp.asarray(sum(counts)).reshape(-1)


def _shared_neighbours(k: int, m: int, size: int, apart: int) -> int:
    """How many strings of k tokens lie within m mismatches of both of two that differ in `apart` places."""
    total = 0
    for outside in range(min(m, k - apart) + 1):  # mismatches with both, where the two agree
        for first in range(apart + 1):  # where they differ: equal to the first, to the second, or to neither
            for second in range(apart - first + 1):
                neither = apart - first - second
                if outside + second + neither <= m and outside + first + neither <= m:
                    ways = math.comb(apart, first) * math.comb(apart - first, second) * max(size - 2, 0) ** neither
                    total += math.comb(k - apart, outside) * (size - 1) ** outside * ways
    return total


def _keys(x: Strings, k: int) -> tuple[Int[Array, "words n"], Float[Array, " n"]]:
    """Substrings of k tokens as numbers, as many of 31 bits as it takes, and their weights."""
    tokens, weights = _windows(x, k)
    size = max(len(x.alphabet), 2)
    each = max(int(31 / math.log2(size)), 1)  # tokens to a number
    each -= size**each > 2**31
    words = [_number(tokens[at : at + each], size) for at in range(0, k, each)]
    return jnp.stack(words), weights


def _sorted(x: Strings, k: int) -> tuple[Int[Array, "words n"], Float[Array, " n"]]:
    """Keys in order, and at the first of equal ones the sum of their weights."""
    keys, weights = _keys(x, k)
    *keys, weights = lax.sort((*keys, weights), num_keys=len(keys))
    keys = jnp.stack(keys)
    if not len(weights):
        return keys, weights

    def backwards(total, inputs):
        same_as_next, weight = inputs
        total = weight + jnp.where(same_as_next, total, 0)
        return total, total

    same = jnp.concatenate([jnp.all(keys[:, 1:] == keys[:, :-1], 0), jnp.zeros(1, bool)])
    return keys, lax.scan(backwards, jnp.zeros_like(weights[0]), (same, weights), reverse=True)[1]


def _first_not_below(keys: Int[Array, "words n"], wanted: Int[Array, "words m"]) -> Int[Array, " m"]:
    """The first place in sorted keys that is not below each wanted one, n if there is none: binary search, word by word."""
    low = jnp.zeros(wanted.shape[1], jnp.int32)
    n = keys.shape[1]
    for step in 2 ** np.arange(n.bit_length())[::-1]:
        here = jnp.take(keys, low + (int(step) - 1), axis=1, mode="clip")
        below, equal = jnp.zeros(low.shape, bool), jnp.ones(low.shape, bool)
        for word, other in zip(here, wanted):
            below, equal = below | (equal & (word < other)), equal & (word == other)
        low = jnp.where(below & (low + int(step) <= n), low + int(step), low)
    return low
