"""Rows that are read in chunks: counted and checked once, and then summed over in every pass."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from kernax.core.boundary import as_stack, as_targets, as_weights, cast, count, dtype_of
from kernax.core.kernel import AbstractKernel
from kernax.core.powers import times_power_of_two
from kernax.core.preparation import check_points
from kernax.core.sharding import compiled
from kernax.core.weights import UnitWeights
from kernax.scale.chunks import Chunks
from kernax.scale.rows import AbstractRows, ArrayRows

Check = Callable[..., Array]  # of targets: see `kernax.core.task`
Shown = Callable[..., None]  # how many chunks are done, and of how many


class Survey(eqx.Module):
    """What the first pass over chunks found.

    Attributes:
        n: the number of rows.
        chunks: how many chunks there are.
        size: rows of a chunk, once it is filled up.
        outputs: columns of y; None for a vector.
        sample: some rows, spread evenly: X, y (r, p) and weights.
        largest: the largest |y| of each output.
    """

    n: int = eqx.field(static=True)
    chunks: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    outputs: int | None = eqx.field(static=True)
    sample: tuple
    largest: Float[Array, " p"]


def survey(chunks: Chunks, kernel: AbstractKernel, check: Check, keep: int, show: Shown) -> Survey:
    """Reads all chunks once: counts and checks them, and keeps every so many rows, at least `keep`
    of them where there are as many, and less than twice that.

    Raises ValueError for chunks that are no rows, or not of one kind.
    """
    sample = _Sample(keep)
    first = None
    number = 0
    for number, chunk in enumerate(shown(chunks, 0, show), 1):
        X, y, weights = checked_chunk(chunk, kernel, check, first)
        first = (X, y) if first is None else first
        if count(X) > count(first[0]):
            raise ValueError(
                f"chunk {number} has {count(X)} rows, but the first one {count(first[0])}: none "
                "may be larger than the first"
            )
        sample.add((X, y.reshape(count(X), -1), weights))
    if first is None:
        raise ValueError("there is no chunk: a source must give at least one (X, y)")
    if not sample.weight > 0:
        raise ValueError("weights must not all be zero: no point is left to fit")
    outputs = None if first[1].ndim == 1 else first[1].shape[1]
    kept = sample.rows()
    largest = jnp.asarray(sample.largest, first[1].dtype)
    return Survey(sample.n, number, count(first[0]), outputs, kept, largest)


class _Sample:
    """Rows that are kept of a stream: every so many, fewer the longer it gets."""

    def __init__(self, keep: int):
        self.keep = keep
        self.every = 1
        self.n = 0
        self.weight = 0.0
        self.largest: Any = 0.0
        self._parts: list[tuple] = []

    def add(self, chunk: tuple) -> None:
        """Goes on with a chunk of X, y (r, p) and weights."""
        size = count(chunk[0])
        self._parts.append(_at(chunk, np.arange(-self.n % self.every, size, self.every)))
        self.n += size
        self.weight += float(jnp.sum(chunk[2]))
        self.largest = np.maximum(self.largest, np.max(np.abs(chunk[1]), 0))
        while self.n // self.every >= 2 * self.keep:
            self.every *= 2
            self._parts = [_at(self.rows(), slice(None, None, 2))]

    def rows(self) -> tuple:
        """Those that are kept."""
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *self._parts)


def checked_chunk(chunk: Any, kernel: AbstractKernel, check: Check, first: tuple | None) -> tuple:
    """X, y and weights of a chunk, checked, in the dtype of the first one."""
    if not isinstance(chunk, tuple | list) or len(chunk) not in (2, 3):
        raise ValueError(
            f"a chunk must be (X, y) or (X, y, weights), but is {type(chunk).__name__}"
            + (f" of {len(chunk)}" if isinstance(chunk, tuple | list) else "")
        )
    X = as_stack(chunk[0], "X")
    check_points(kernel, X)
    dtype = dtype_of(X) if first is None else dtype_of(first[0])
    X = cast(X, dtype)
    n = count(X)
    weights = _weights(chunk[2] if len(chunk) == 3 else None, n, dtype)
    y = check(chunk[1], n, dtype, UnitWeights(n, np.dtype(dtype)))
    if first is not None and _kind((X, y)) != _kind(first):
        raise ValueError(
            f"chunks must be of one kind, but one has rows of {_kind((X, y))} and the first of "
            f"{_kind(first)}"
        )
    return X, y, weights


def _weights(weights: Any, n: int, dtype: Any) -> Array:
    """Those of a chunk, which may all be zero."""
    if weights is None:
        return jnp.ones(n, dtype)
    weights = as_targets(weights, n, dtype, "weights")
    if weights.ndim != 1:
        raise ValueError(f"weights must have shape ({n},), but have shape {weights.shape}")
    known = np.asarray(weights)
    return as_weights(weights, n, dtype).values if known.any() else weights


def _kind(rows: PyTree) -> list:
    return [leaf.shape[1:] for leaf in jax.tree.leaves(rows)]


def _at(rows: PyTree, places: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[places], rows)


class StreamedRows(AbstractRows):
    """Rows that are read in every pass. Loops around them are Python's.

    Attributes:
        within: what is the same for all chunks: rows in memory, a few of them.
        unit: the exponents of the targets, which are divided by them.
    """

    chunks: Chunks = eqx.field(static=True)
    surveyed: Survey
    within: ArrayRows
    unit: Int[Array, "1 p"]
    check: Check = eqx.field(static=True)
    show: Shown = eqx.field(static=True)

    def fold(self, step, start, known, tile=None):
        state = start
        for chunk in shown(self.chunks, self.surveyed.chunks, self.show):
            # Waited for, so that no more than one chunk is in memory, and no two programs wait for
            # each other's threads.
            state = jax.block_until_ready(_folded(self._rows(chunk), step, state, known, tile))
        return state

    def _rows(self, chunk: Any) -> ArrayRows:
        """A chunk in memory, filled up by its first row with weight zero."""
        sample = self.surveyed.sample
        y = sample[1] if self.surveyed.outputs is not None else sample[1][:, 0]
        X, y, weights = checked_chunk(chunk, self.within.kernel, self.check, (sample[0], y))
        missing = self.surveyed.size - count(X)
        if missing:
            again = lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[:1], missing, 0)])
            X, y = jax.tree.map(again, (X, y))
            weights = jnp.append(weights, jnp.zeros(missing, weights.dtype))
        columns = times_power_of_two(y.reshape(len(y), -1), -self.unit)
        return self.within.of(X, columns, weights)

    def shape_of(self, part, known):
        return self.within.shape_of(part, known)

    def repeat(self, go_on, step, state):
        while bool(go_on(state)):
            state = jax.block_until_ready(step(state))
        return state


@compiled
def _folded(rows, step, state, known, tile):
    return rows.fold(step, state, known, tile)


def drawn(chunks: Chunks, number: int, key: PRNGKeyArray) -> PyTree:
    """That many rows of X, each as likely as any other; in one pass."""
    ranks = np.zeros(0)
    kept: Any = None
    for place, chunk in enumerate(chunks):
        X = as_stack(chunk[0], "X")
        new = np.asarray(jax.random.uniform(jax.random.fold_in(key, place), (count(X),)))
        both = np.concatenate([ranks, new])
        best = np.argsort(both, kind="stable")[:number]
        kept = _at(X if kept is None else jax.tree.map(_joined, kept, X), best)
        ranks = both[best]
    return kept


def _joined(one: Array, other: Array) -> Array:
    return jnp.concatenate([one, other])


def shown(chunks: Chunks, total: int, show: Shown) -> Iterator[Any]:
    """The chunks, one after the other, of which each is shown when it is done."""
    for number, chunk in enumerate(chunks, 1):
        yield chunk
        show(number, max(total, number))


def not_shown(done: int, total: int) -> None:
    """No bar."""
