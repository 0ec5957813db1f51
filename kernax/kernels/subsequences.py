"""Kernels of strings that count common subsequences, gaps allowed, by dynamic programming.

A cell (i, j) is a position in each of two strings. Pairs are independent, so the axes of a batch go
last: a cell is one vector operation over all pairs, and no array of size L^2 is stored for a pair
except in a backward pass.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.derivatives import custom_jvp, split_by_tangent
from kernax.core.base.parameters import integer, positive
from kernax.core.base.powers import normal_power_of_two
from kernax.core.kernel.kernel import AbstractKernel, AbstractWideRange
from kernax.kernels.texts import OF_TEXTS, Strings, check_strings


class Subsequence(AbstractWideRange):
    """`sum_u sum_{i: u = x[i]} sum_{j: u = z[j]} decay^(l(i) + l(j))`, u of `length` tokens.

    The sums are over all positions i and j at which u occurs, in order and with gaps; l is the
    length of the stretch of the string from the first position to the last. This is the string
    subsequence kernel (Lodhi et al. 2002, definition 2 and section 4). With a decay near zero only
    contiguous occurrences count, with a decay of 1 all count equally.
    `Normalised(Subsequence(...))` is the usual form. It costs `length L^2` for each pair. With a
    decay near 1, where L^length leaves the range of floats, a single occurrence underflows to zero.

    Examples:
        >>> X = kernax.strings.encode(["cat", "cart", "dog"])
        >>> k = kernax.Normalised(kernax.Subsequence(2, decay=0.5))
        >>> jnp.round(kernax.gram(k, X), 2)
        Array([[1.  , 0.57, 0.  ],
               [0.57, 1.  , 0.  ],
               [0.  , 0.  , 1.  ]], dtype=float64)
    """

    length: int = integer("length")
    decay: Float[ParameterArray, ""] = positive(default=0.5)

    encoding: ClassVar[str] = OF_TEXTS

    def scaled(self, x, z):
        check_strings(x, z)
        # decay = m 2^e, and a match counts m^2 2^-r in place of decay^2, which may underflow:
        # k is the sum times 2^(length (2 e + r)).
        e = jnp.round(jnp.log2(lax.stop_gradient(self.decay))).astype(jnp.int32)
        r = self._bits_of_reach(x, z)
        m = self.decay * normal_power_of_two(-e, self.decay.dtype)
        factor = m**2 * normal_power_of_two(-r, self.decay.dtype)
        sums = _batched_last(partial(_gapped, self.length - 1, _one_longer))
        exponent = self.length * (2 * e + r)
        return sums(_floats(x), _floats(z), self.decay, factor), exponent.astype(factor.dtype)

    def _bits_of_reach(self, x: Strings, z: Strings) -> Int[Array, ""]:
        """The exponent r of the power of two nearest to the number of positions within reach.

        That is `sum_i decay^i` over the positions of the shorter string, without its padding, and
        at least 1. With a match of `decay^2 2^-r` the sums of all lengths are about halfway between
        the largest and the smallest that occur, so that none leaves the range of floats.
        """
        log_decay = jnp.log(lax.stop_gradient(self.decay))
        places = jnp.arange(x.codes.shape[-1], dtype=log_decay.dtype)
        is_token = places < jnp.minimum(_ends(x), _ends(z)).astype(places.dtype)
        # `log sum exp(logs)`, at least the largest of the logs and 0, even if all are -inf.
        logs = jnp.where(is_token, places * log_decay, -jnp.inf)
        top = jnp.max(logs, initial=0)
        log_reach = top + jnp.log(jnp.maximum(jnp.sum(jnp.exp(logs - top)), 1))
        return jnp.round(log_reach / math.log(2)).astype(jnp.int32)


class AllSubsequences(AbstractKernel):
    """`1 + sum_p k_p(x, z)`, k_p the `Subsequence` kernel of length p: all common subsequences.

    The 1 counts the empty subsequence. With a decay of 1 all count equally: 22 for "banana" and
    "ana" (Shawe-Taylor & Cristianini 2004, section 11.4). Values grow up to 4^L, which overflows
    beyond about 64 letters in float32 and 500 in float64, inside `Normalised` as well; `gram` then
    raises. A smaller decay helps.

    Examples:
        >>> X = kernax.strings.encode(["banana", "ana"])
        >>> kernax.gram(kernax.kernels.AllSubsequences(), X)
        Array([[140.,  22.],
               [ 22.,  10.]], dtype=float64)
    """

    decay: Float[ParameterArray, ""] = positive(default=1.0)

    encoding: ClassVar[str] = OF_TEXTS

    def __call__(self, x, z):
        check_strings(x, z)
        sums = _batched_last(partial(_gapped, 1, _any_longer))
        return 1 + sums(_floats(x), _floats(z), self.decay, self.decay**2)


def _ends(x: Strings) -> Int[Array, ""]:
    """The number of positions up to the last token."""
    return jnp.max(jnp.where(x.weights > 0, jnp.arange(1, len(x.weights) + 1), 0), initial=0)


class _Tokens(NamedTuple):
    """A string (L, *pairs), or one of its tokens (*pairs): one for each pair, or one for all."""

    codes: Float[Array, "..."]
    weights: Float[Array, "..."]


def _floats(x: Strings) -> _Tokens:
    """Codes and weights, both as floats, because LLVM fails on some loops over integers.

    This happens in jaxlib 0.10.2, with the message "Cannot select".
    """
    return _Tokens(x.codes.astype(x.weights.dtype), x.weights)


class _Row(NamedTuple):
    """Lodhi's recursion after some tokens of x."""

    above: Float[Array, "L levels *#pairs"]  # sums over the rows so far, for each position of z
    total: Float[Array, "*#pairs"]


class _CellSums(NamedTuple):
    """Lodhi's recursion within a row, after some tokens of z."""

    before: Float[Array, "levels *#pairs"]  # sums over the cells above and to the left
    total: Float[Array, "*#pairs"]


def _gapped(
    levels: int,
    extended: Callable[[Array], Array],
    x: _Tokens,
    z: _Tokens,
    decay: Float[Array, "*#pairs"],
    factor: Float[Array, "*#pairs"],
) -> Float[Array, "*#pairs"]:
    """`sum_ij a_q(i, j)` for the last kind q of occurrences that end at i and j, by cells.

    Lodhi's recursion is `a_q(i, j) = factor match(i, j) e_q(i, j)`. A match is appended to the
    occurrences e, which `extended` computes from the sums `sum_{i' < i, j' < j} decay^(i - i' - 1 +
    j - j' - 1) a_q(i', j')` of the first `levels` kinds.
    """

    def row(now: _Row, token: _Tokens) -> tuple[_Row, None]:
        def cell(now: _CellSums, column: tuple[Array, _Tokens]) -> tuple[_CellSums, Array]:
            # a(i, j) = factor match(i, j) e(i, j), e = extended(before).
            above, other = column
            match = jnp.where(token.codes == other.codes, factor * token.weights * other.weights, 0)
            extendable = extended(now.before)
            # above(i, j) = sum_{i' < i} decay^(i - i' - 1) a(i', j), so that
            # above(i + 1, j) = decay above(i, j) + a(i, j), of the kinds that a match may extend,
            # and before(i, j + 1) = decay before(i, j) + above(i, j).
            # Both sums have a product of their own, because XLA would store a common one.
            total = now.total + match * extendable[-1]
            below = decay[None] * above + match[None] * extendable[: len(above)]
            return _CellSums(decay[None] * now.before + above, total), below

        start = _CellSums(jnp.zeros_like(now.above[0]), now.total)
        # The sums of a cell are its residuals: match and extendable are computed again from them.
        again = jax.checkpoint(cell, prevent_cse=False)
        end, above = lax.scan(again, start, (now.above, z))
        return _Row(above, end.total), None

    zero = jnp.zeros_like(x.weights[0] * z.weights[0] * factor)
    above = jnp.zeros((len(z.codes), levels, *zero.shape), zero.dtype)
    return lax.scan(row, _Row(above, zero), x)[0].total


def _one_longer(before: Float[Array, "levels *#pairs"]) -> Float[Array, "kinds *#pairs"]:
    """Occurrences of one token extend the empty one, those of two extend those of one, ..."""
    return jnp.concatenate([jnp.ones_like(before, shape=(1, *before.shape[1:])), before])


def _any_longer(before: Float[Array, "1 *#pairs"]) -> Float[Array, "1 *#pairs"]:
    """Occurrences of any length extend the empty one or any other."""
    return 1 + before


def _batched_last(function: Callable) -> Callable:
    """A function of single pairs that calls `function` once, however often `vmap` batches it.

    `function` takes two strings and numbers, all with one further axis at the end, for the pairs.

    Derivatives of every order and mode are those of the function under a plain `vmap`, which is
    slower, but which JAX can transpose.
    """

    # All further axes become one axis of pairs, over which loops on a CPU are fastest.
    @custom_vmap
    def batched_last(x: _Tokens, z: _Tokens, *numbers: Array) -> Array:
        n_axes = numbers[0].ndim
        leaves = jax.tree.leaves((x, z, numbers))
        shape = np.broadcast_shapes(*(leaf.shape[leaf.ndim - n_axes :] for leaf in leaves))

        def as_one_axis(leaf: Array) -> Array:
            own = leaf.shape[: leaf.ndim - n_axes]
            if leaf.size == math.prod(own):
                return leaf.reshape(*own, 1)
            return jnp.broadcast_to(leaf, own + shape).reshape(*own, -1)

        out = function(*jax.tree.map(as_one_axis, (x, z, *numbers)))
        return jnp.broadcast_to(out, math.prod(shape)).reshape(shape)

    @batched_last.def_vmap
    def _(size, batched, *arguments):
        last = lambda leaf, yes: jnp.moveaxis(leaf, 0, -1) if yes else leaf[..., None]
        values = batched_last(*jax.tree.map(last, arguments, tuple(batched)))
        return jnp.moveaxis(values, -1, 0), True

    @custom_jvp
    def call(*arguments):
        return batched_last(*arguments)

    @call.def_jvp
    def _(primals, tangents):
        moving, known = split_by_tangent(primals, tangents)
        of_moving = lambda moving: function(*eqx.combine(moving, known))
        return call(*primals), eqx.filter_jvp(of_moving, (moving,), (tangents,))[1]

    return call
