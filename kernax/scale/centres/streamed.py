"""Rows that are read in chunks: counted and checked once, and then summed over in every pass."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from kernax.core.base.boundary import as_stack, as_targets, as_weights, cast, count, dtype_of
from kernax.core.base.compiled import compiled_call
from kernax.core.base.intervals import flushed
from kernax.core.base.stacks import points_at
from kernax.core.base.weights import UnitWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.scale.centres.preconditioner import priorities, standing_for_all
from kernax.scale.centres.row_sums import AbstractRows, ArrayRows
from kernax.scale.data.chunks import Chunks

Check = Callable[..., Array]  # check(y, n, dtype, weights) returns the targets of a chunk
Shown = Callable[..., None]  # show(done, total), in chunks


class Survey(eqx.Module):
    """The result of the first pass over chunks.

    Attributes:
        n: the number of rows.
        chunks: how many chunks there are.
        size: the number of rows of a padded chunk: that of the largest chunk.
        outputs: the number of columns of y; None for a vector.
        sample: the rows of the highest `priorities`, in their order: X, y (r, p) and weights.
        priorities: those of the sample.
        weight: the sum of all weights.
        least, largest: the least and largest target of each output, among rows of positive weight.
    """

    n: int = eqx.field(static=True)
    chunks: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    outputs: int | None = eqx.field(static=True)
    sample: tuple
    priorities: Float[Array, " r"]
    weight: Float[Array, ""]
    least: Float[Array, " p"]
    largest: Float[Array, " p"]

    @property
    def columns(self) -> int:
        """The number of columns of y, one for a vector."""
        return 1 if self.outputs is None else self.outputs

    def sample_of(self, size: int | None) -> tuple:
        """So many rows of the sample, with weights that represent all rows; None for the whole
        sample.
        """
        X, y, weights = self.sample
        if size is None or size >= len(weights):
            return X, y, weights
        of_all = standing_for_all(weights[:size], self.priorities[size])
        return *points_at((X, y), slice(size)), of_all


def survey(chunks: Chunks, kernel: AbstractKernel, check: Check, keep: int, show: Shown) -> Survey:
    """Reads all chunks once: counts and checks their rows, and stores `keep` of them, plus one if
    there are more.

    Raises ValueError for chunks that are not (X, y) or (X, y, weights), or differ in their kind of
    rows, if there is no chunk, and if all weights are zero.
    """
    sample = _Sample(keep + 1)
    number = 0
    size = 0
    outputs = None
    for X, y, weights in _checked_chunks(chunks, kernel, check, show):
        number += 1
        size = max(size, count(X))
        outputs = None if y.ndim == 1 else y.shape[1]
        sample.add((X, y.reshape(count(X), -1), weights))
    if not sample.weight > 0:
        raise ValueError("weights must not all be zero: no point is left to fit")
    found = (sample.priorities, sample.weight, sample.least, sample.largest)
    of_all = (jnp.asarray(array, sample.rows[1].dtype) for array in found)
    rows = jax.tree.map(jnp.asarray, sample.rows)
    return Survey(sample.n, number, size, outputs, rows, *of_all)


def _checked_chunks(
    chunks: Chunks, kernel: AbstractKernel, check: Check, show: Shown
) -> Iterator[tuple]:
    """X, y and weights of one chunk after another, checked, all in the dtype of the first.

    Raises ValueError if there is no chunk.
    """
    first = None
    for number, chunk in enumerate(shown(chunks, 0, show), 1):
        X, y, weights = checked_chunk(number, chunk, kernel, check, first)
        first = points_at((X, y), slice(1)) if first is None else first
        yield X, y, weights
    if first is None:
        raise ValueError("there is no chunk: the source of Chunks must give at least one (X, y)")


class _Sample:
    """The rows of highest priority in a stream, and figures about all rows."""

    def __init__(self, keep: int):
        self.keep = keep
        self.n = 0
        self.weight = 0.0
        self.least: Any = np.inf
        self.largest: Any = -np.inf
        self.priorities = np.zeros(0)
        self.rows: Any = None

    def add(self, chunk: tuple) -> None:
        """Adds a chunk of X, y (r, p) and weights."""
        chunk = jax.tree.map(np.asarray, chunk)
        _, y, weights = chunk
        # Keep the rows of the highest priority.
        numbers = np.arange(self.n, self.n + len(weights), dtype=np.uint64).astype(np.uint32)
        found = np.asarray(priorities(numbers, jnp.asarray(weights)))
        both = np.concatenate([self.priorities, found])
        best = np.argsort(-both, kind="stable")[: self.keep]
        rows = chunk if self.rows is None else jax.tree.map(_joined, self.rows, chunk)
        self.rows = points_at(rows, best)
        self.priorities = both[best]
        # Keep the least and the largest target.
        kept = weights[:, None] > 0
        self.least = np.minimum(self.least, np.min(np.where(kept, y, np.inf), 0))
        self.largest = np.maximum(self.largest, np.max(np.where(kept, y, -np.inf), 0))
        self.n += len(y)
        self.weight += float(np.sum(weights, dtype=np.float64))


def checked_chunk(
    number: int, chunk: Any, kernel: AbstractKernel, check: Check, first: tuple | None
) -> tuple:
    """X, y and weights of a chunk, checked, in the dtype of the first one."""
    try:
        # The handler below adds the number of the chunk to messages.
        if not isinstance(chunk, tuple | list) or len(chunk) not in (2, 3):
            raise ValueError(
                f"a chunk must be (X, y) or (X, y, weights), but is of type {type(chunk).__name__}"
                + (f", of length {len(chunk)}" if isinstance(chunk, tuple | list) else "")
            )
        X = as_stack(chunk[0], "X")
        kernel.check_points(X)
        dtype = dtype_of(X) if first is None else dtype_of(first[0])
        X = cast(X, dtype)
        n = count(X)
        weights = _weights(chunk[2] if len(chunk) == 3 else None, n, dtype)
        y = check(chunk[1], n, dtype, UnitWeights(n, np.dtype(dtype)))
        if first is not None and _kind((X, y)) != _kind(first):
            raise ValueError(
                "chunks must have rows of one kind, but those of X and y have the shapes "
                f"{_kind((X, y))} in this one, and {_kind(first)} in the first"
            )
        return X, y, weights
    except ValueError as problem:
        raise ValueError(f"chunk {number}: {problem}") from None


def _weights(weights: Any, n: int, dtype: Any) -> Array:
    """The weights of a chunk, which may all be zero."""
    if weights is None:
        return jnp.ones(n, dtype)
    if np.shape(weights) != (n,):
        raise ValueError(
            f"weights must have shape ({n},), one per row, but have shape {np.shape(weights)}"
        )
    weights = as_targets(weights, n, dtype, "weights")
    some = flushed(np.asarray(weights)).any()
    return as_weights(weights, n, dtype).values if some else jnp.zeros_like(weights)


def _kind(rows: PyTree) -> list:
    return [leaf.shape[1:] for leaf in jax.tree.leaves(rows)]


class StreamedRows(AbstractRows):
    """Rows that are read in every pass. Loops around them run in Python.

    Attributes:
        surveyed: the result of the first pass.
        within: some rows in memory, with what all chunks share: functions, tile, bias.
        check: checks and converts the targets of a chunk.
        show: is told how many chunks of a pass are done.
    """

    chunks: Chunks = eqx.field(static=True)
    surveyed: Survey
    within: ArrayRows
    check: Check = eqx.field(static=True)
    show: Shown = eqx.field(static=True)

    @property
    def weight(self):
        return self.surveyed.weight

    def fold(self, step, start, known, tile=None):
        state = start
        rows = 0
        passed = shown(self.chunks, self.surveyed.chunks, self.show)
        for number, chunk in enumerate(passed, 1):
            size, filled = self._rows(number, chunk)
            rows += size
            # Wait for the result, so that no more than one chunk is in memory, and no two programs
            # wait for each other's threads.
            state = jax.block_until_ready(compiled_call(filled.fold, step, state, known, tile))
        if rows != self.surveyed.n:
            raise ValueError(
                f"the chunks gave {self.surveyed.n} rows in the first pass and {rows} in this one: "
                "a source that is a function must return a new iterator of the same chunks at each "
                "call"
            )
        return state

    def _rows(self, number: int, chunk: Any) -> tuple[int, ArrayRows]:
        """The size of a chunk, and its rows in memory, padded with the first row at weight zero."""
        sample = self.surveyed.sample
        y = sample[1] if self.surveyed.outputs is not None else sample[1][:, 0]
        first = sample[0], y
        X, y, weights = checked_chunk(number, chunk, self.within.span.kernel, self.check, first)
        size = count(X)
        missing = self.surveyed.size - size
        if missing > 0:
            again = lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[:1], missing, 0)])
            X, y = jax.tree.map(again, (X, y))
            weights = jnp.append(weights, jnp.zeros(missing, weights.dtype))
        return size, self.within.of(X, y.reshape(len(y), -1), weights)

    def shape_of(self, part, known):
        return self.within.shape_of(part, known)

    def repeat(self, go_on, step, state):
        while bool(go_on(state)):
            state = jax.block_until_ready(step(state))
        return state

    def run(self, function, *args):
        return function(*args)

    def either(self, condition, yes, no, state):
        return yes(state) if bool(condition) else no(state)


def first_points(chunks: Chunks, kernel: AbstractKernel, check: Check) -> PyTree:
    """The points of the first chunk."""
    return next(_checked_chunks(chunks, kernel, check, not_shown))[0]


def drawn(
    chunks: Chunks, kernel: AbstractKernel, check: Check, number: int, key: PRNGKeyArray
) -> PyTree:
    """That many points of positive weight, drawn uniformly in one pass, or all if there are no
    more.
    """
    ranks = np.zeros(0)
    kept: Any = None
    for place, (X, _, weights) in enumerate(_checked_chunks(chunks, kernel, check, not_shown)):
        X = jax.tree.map(np.asarray, X)
        new = np.asarray(jax.random.uniform(jax.random.fold_in(key, place), (count(X),)))
        # Ranks are independent and uniform: the points with the smallest ranks are drawn without
        # replacement.
        both = np.concatenate([ranks, np.where(np.asarray(weights) > 0, new, np.inf)])
        best = np.argsort(both, kind="stable")[:number]
        best = best[np.isfinite(both[best])]
        kept = points_at(X if kept is None else jax.tree.map(_joined, kept, X), best)
        ranks = both[best]
    if not len(ranks):
        raise ValueError("weights must not all be zero: no point is left to be a centre")
    return jax.tree.map(jnp.asarray, kept)


def _joined(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.concatenate([one, other])


def shown(chunks: Chunks, total: int, show: Shown) -> Iterator[Any]:
    """The chunks, one after another; `show` is called when each is done."""
    for number, chunk in enumerate(chunks, 1):
        yield chunk
        show(number, max(total, number))


def not_shown(done: int, total: int) -> None:
    """Draws no bar."""
