"""Kernels of strings that count common subsequences, gaps allowed, by dynamic programmes over the cells of a pair.

Pairs of strings are independent, so the axes of a batch go last: a cell is one vector operation over all pairs at hand, and
nothing of size L^2 is ever held for a pair but in a backward pass.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Int

from kernax.core.kernel import AbstractKernel, AbstractWideRange
from kernax.core.parameters import integer, positive
from kernax.core.powers import times_power_of_two
from kernax.kernels.strings import Strings, check_strings


class Subsequence(AbstractWideRange):
    """`sum_u sum_{i: u = x[i]} sum_{j: u = z[j]} decay^(l(i) + l(j))` over all u of `length` tokens and all places i and j
    where they occur, in order, gaps allowed; l is the stretch of the string from the first place to the last.

    The string subsequence kernel (Lodhi et al. 2002, definition 2 and section 4). A decay near zero counts contiguous
    occurrences only, 1 all alike. `Normalised(Subsequence(...))` is the usual form. Costs `length L^2` for each pair. With a
    decay near 1 a single occurrence is lost beside none where L^length leaves the range of floats.
    """

    length: int = integer("length")
    decay: Float[Array, ""] = positive(default=0.5)

    def scaled(self, x, z):
        check_strings(x, z)
        power = self._size(x, z)
        half = jnp.floor(power / 2)
        factor = times_power_of_two(self.decay, -half) * times_power_of_two(self.decay, half - power)
        sums = _batched_last(_gapped(self.length - 1, _one_longer))
        return sums(_floats(x), _floats(z), self.decay, factor), self.length * power

    def _size(self, x: Strings, z: Strings) -> Float[Array, ""]:
        """The power of two by which every one of the matches in an occurrence is divided.

        About decay^2 times the places within reach: halfway between the largest and the smallest values that occur, so that
        neither leaves the range of floats. The places are those of the shorter string, without its padding.
        """
        log_decay = jnp.log(lax.stop_gradient(self.decay))
        places = jnp.arange(x.codes.shape[-1], dtype=log_decay.dtype)
        logs = jnp.where(places < jnp.minimum(_ends(x), _ends(z)).astype(places.dtype), places * log_decay, -jnp.inf)
        top = jnp.max(logs, initial=0)
        reach = jnp.maximum(jnp.sum(jnp.exp(logs - top)), 1)
        return jnp.floor((2 * log_decay + top + jnp.log(reach)) / math.log(2))


class AllSubsequences(AbstractKernel):
    """`1 + sum_p k_p(x, z)`, k_p the `Subsequence` kernel of length p: common subsequences of every length, the empty one
    included. With decay 1 all count alike: 22 for "banana" and "ana".

    Shawe-Taylor & Cristianini 2004, section 11.4 (decay 1). Grows up to 4^L, which float32 holds for some 64 letters and
    float64 for some 500, inside `Normalised` as well: beyond, `gram` raises. A smaller decay helps.
    """

    decay: Float[Array, ""] = positive(default=1.0)

    def __call__(self, x, z):
        check_strings(x, z)
        return 1 + _batched_last(_gapped(1, _any_longer))(_floats(x), _floats(z), self.decay, self.decay**2)


def _ends(x: Strings) -> Int[Array, ""]:
    """The number of places up to the last token."""
    return jnp.max(jnp.where(x.weights > 0, jnp.arange(1, len(x.weights) + 1), 0), initial=0)


def _floats(x: Strings) -> tuple[Float[Array, " L"], Float[Array, " L"]]:
    """Codes and weights, both as floats: on some loops over integers LLVM gives up (jaxlib 0.10.2, "Cannot select")."""
    return x.codes.astype(x.weights.dtype), x.weights


def _gapped(levels: int, extended: Callable) -> Callable:
    """Lodhi's recursion, cell by cell: a sum over common occurrences, of each kind q that ends at (i, j),
    `a_q(i, j) = factor match(i, j) e_q`, e being what a match there may be appended to: `extended` of the sums
    `sum_{i' < i, j' < j} decay^(i - i' - 1 + j - j' - 1) a_q(i', j')` of the first `levels` kinds.

    Returns a function of two strings and both numbers, to the sum over all cells of the last kind.
    """

    def sums(x, z, decay, factor):
        def row(carry, token):
            def cell(carry, inputs):
                before, total = carry  # sums over the cells above and to the left, for each q
                above, other = inputs  # sums over the cells above
                match = jnp.where(token[0] == other[0], factor * token[1] * other[1], 0)
                ends = match[None] * extended(before)
                return (decay[None] * before + above, total + ends[-1]), decay[None] * above + ends[:levels]

            above, total = carry
            (_, total), above = lax.scan(cell, (jnp.zeros_like(above[0]), total), (above, z))
            return (above, total), None

        zero = jnp.zeros_like(x[1][0] * z[1][0] * factor)
        above = jnp.zeros((len(z[0]), levels, *zero.shape), zero.dtype)
        return lax.scan(row, (above, zero), x)[0][1]

    return sums


def _one_longer(before):
    """Nothing at all, and occurrences of one token, two, ..."""
    return jnp.concatenate([jnp.ones_like(before, shape=(1, *before.shape[1:])), before])


def _any_longer(before):
    """Nothing at all or any occurrence."""
    return 1 + before


def _batched_last(function: Callable) -> Callable:
    """A function of two strings and numbers, all with one further axis of pairs at the end, as one of single pairs that is
    called so however often `vmap` batches it.

    Derivatives are those of the function under a plain `vmap`, of every order and mode: slower, but what JAX can transpose.
    """
    batched_last = custom_vmap(_over_pairs(function))

    @batched_last.def_vmap
    def _(size, batched, *arguments):
        last = lambda leaf, yes: jnp.moveaxis(leaf, 0, -1) if yes else leaf[..., None]
        return jnp.moveaxis(batched_last(*jax.tree.map(last, arguments, tuple(batched))), -1, 0), True

    @jax.custom_jvp
    def call(*arguments):
        return batched_last(*arguments)

    @call.defjvp
    def _(primals, tangents):
        return call(*primals), jax.jvp(function, primals, tangents)[1]

    return call


def _over_pairs(function: Callable) -> Callable:
    """All further axes as one, of pairs: the loops of a CPU like it long and alone."""

    def flat(x, z, *numbers):
        axes = numbers[0].ndim
        own = lambda leaf: leaf.shape[: leaf.ndim - axes]
        leaves = jax.tree.leaves((x, z, numbers))
        shape = np.broadcast_shapes(*(leaf.shape[leaf.ndim - axes :] for leaf in leaves))

        def pairs(leaf):
            if leaf.size == math.prod(own(leaf)):
                return leaf.reshape(*own(leaf), 1)
            return jnp.broadcast_to(leaf, own(leaf) + shape).reshape(*own(leaf), -1)

        out = function(*jax.tree.map(pairs, (x, z, *numbers)))
        return jnp.broadcast_to(out, math.prod(shape)).reshape(shape)

    return flat
