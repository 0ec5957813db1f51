"""Sums over the rows of `K_nm = k(X, Z)`, or of features, computed a tile at a time, without
storing any tile.

Minimising a risk over such functions only takes sums over rows: the gradient, products with the
Hessian, slopes along a step. `AbstractRows` gives them, whether the rows are in memory or come in
chunks, and runs the loops around them: compiled if the rows are in memory, in Python if each sum
reads a file. If the rows lie over the devices of a mesh, each device sums over its own, and only
these sums are communicated.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from kernax.core.base.boundary import count
from kernax.core.base.compiled import compiled_call
from kernax.core.base.numerics import requested_matmul
from kernax.core.base.stacks import points_at
from kernax.core.linalg.centre_factor import wide
from kernax.core.operators.mesh import RowsOverMesh, on_parts
from kernax.scale.centres.span import AbstractSpan


class Tile(eqx.Module):
    """Some rows: `k(x_i, Z)` or `phi(x_i)`, their targets and weights; rows of weight zero do not
    count.
    """

    cross: Float[Array, "t m"]
    y: Float[Array, "t p"]
    weights: Float[Array, " t"]

    def values(self, a: Float[Array, "m p"]) -> Float[Array, "t p"]:
        """`K a`."""
        return requested_matmul(self.cross, a.astype(self.cross.dtype))

    def pulled(self, V: Float[Array, "t p"]) -> Float[Array, "m p"]:
        """`K^T V`."""
        return requested_matmul(self.cross.T, V)

    def weighted(self, values: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """`W values`, zero where the weight is zero, even if the value is not finite."""
        weights = self.weights[:, None]
        return weights * jnp.where((weights > 0) | jnp.isfinite(values), values, 0)


# `part(tile, known)` is added up over tiles; `step(state, tile, known)` is the next state.
Part = Callable[[Tile, Any], PyTree]
Step = Callable[[Any, Tile, Any], Any]


class AbstractRows(eqx.Module):
    """Rows of `k(X, Z)` or of features, with targets and weights."""

    @property
    @abc.abstractmethod
    def weight(self) -> Float[Array, ""]:
        """The sum of the weights of all rows."""

    @abc.abstractmethod
    def fold(self, step: Step, start: Any, known: PyTree, tile: int | None = None) -> Any:
        """Applies `step(state, tile, known)` to one tile after another, of `tile` rows if given.

        The start is the state without rows, from which each device of a mesh begins; the states of
        the devices are added.
        """

    @abc.abstractmethod
    def shape_of(self, part: Part, known: PyTree) -> PyTree:
        """The shapes and dtypes that `part` returns."""

    @abc.abstractmethod
    def repeat(self, go_on: Callable, step: Callable, state: Any) -> Any:
        """Applies `step` to a state repeatedly while `go_on` holds."""

    @abc.abstractmethod
    def run(self, function: Callable, *args: Any) -> Any:
        """`function(*args)` from Python, compiled if sums are."""

    @abc.abstractmethod
    def either(self, condition: Bool[Array, ""], yes: Callable, no: Callable, state: Any) -> Any:
        """`yes(state)` where the condition holds, otherwise `no(state)`."""

    def total(self, part: Part, known: PyTree, tile: int | None = None) -> PyTree:
        """The sum of `part(tile, known)` over all tiles, in the precision of `wide`.

        Without float64 the rounding of each addition is carried along (Kahan 1965, "Further remarks
        on reducing truncation errors"), as it would grow with the number of tiles.
        """
        nothing = self._nothing(part, known)
        if all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(nothing)):
            return self.fold(jtu.Partial(_added, part), nothing, known, tile)
        total, excess = self.fold(jtu.Partial(_compensated, part), (nothing, nothing), known, tile)
        return jax.tree.map(jnp.subtract, total, excess)

    def rough_total(self, part: Part, known: PyTree, tile: int | None = None) -> PyTree:
        """The same without the compensation: for sums too large to be stored twice, that need not
        be exact.
        """
        return self.fold(jtu.Partial(_added, part), self._nothing(part, known), known, tile)

    def _nothing(self, part: Part, known: PyTree) -> PyTree:
        """The sum over no tiles."""
        shapes = self.shape_of(part, known)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, wide(leaf.dtype)), shapes)


def _added(part: Part, total: PyTree, tile: Tile, known: PyTree) -> PyTree:
    """A sum with one more part."""
    add = lambda total, leaf: total + leaf.astype(total.dtype)
    return jax.tree.map(add, total, part(tile, known))


def _compensated(part: Part, state: tuple, tile: Tile, known: PyTree) -> tuple:
    """A sum with one more part, and its excess."""
    # Kahan: with y = part - excess the sum becomes total + y, and the excess (sum - total) - y.
    total, excess = state
    added = jax.tree.map(jnp.subtract, part(tile, known), excess)
    after = jax.tree.map(jnp.add, total, added)

    def rounding(after: Array, total: Array, added: Array) -> Array:
        # Zero if the sum is not finite, which then stays as it is.
        lost = (after - total) - added
        return lax.stop_gradient(jnp.where(jnp.isfinite(after), lost, 0))

    return after, jax.tree.map(rounding, after, total, added)


class ArrayRows(AbstractRows):
    """Rows in memory. Each tile is computed again in the backward pass: memory is O(tile m).

    With a `bias`, there is one more column, of ones. Rows that are `spread` over a mesh stay where
    they are: the functions are the same on all devices.
    """

    span: AbstractSpan
    X: PyTree
    y: Float[Array, "n p"]
    weights: Float[Array, " n"]
    tile: int = eqx.field(static=True)
    bias: bool = eqx.field(static=True, default=False)
    spread: RowsOverMesh | None = eqx.field(static=True, default=None)

    @property
    def weight(self):
        return jnp.sum(self.weights)

    def fold(self, step, start, known, tile=None):
        rows = self.X, self.y, self.weights
        spread = self.spread
        if spread is not None:

            def of_part(whole: tuple, rows: tuple) -> Any:
                span, step, start, known = whole
                own = ArrayRows(span, *rows, tile=self.tile, bias=self.bias)
                return lax.psum(own.fold(step, start, known, tile), spread.axes)

            return on_parts(of_part, spread, (self.span, step, start, known), rows, joined=True)

        def with_tile(state, at):
            return step(state, self._tile(at), known), None

        # Arrays cut into tiles of one size of at most `most`, (tiles, size, ...); the padding at
        # the end has weight zero: the last array holds the weights.
        n = count(self.X)
        tiles = -(-n // (tile or self.tile))
        size = -(-n // tiles)
        missing = tiles * size - n
        X, y, weights = rows
        if missing:
            again = lambda leaf: jnp.concatenate([leaf, leaf[:missing]])
            X, y = jax.tree.map(again, (X, y))
            weights = jnp.append(weights, jnp.zeros(missing, weights.dtype))
        cut = lambda leaf: leaf.reshape(tiles, size, *leaf.shape[1:])
        parts = jax.tree.map(cut, (X, y, weights))
        # Only a sum is differentiated, and its state is not stored.
        return lax.scan(jax.checkpoint(with_tile), start, parts)[0]

    def _tile(self, at: tuple) -> Tile:
        X, y, weights = at
        cross = self.span.values(X)
        if self.bias:
            cross = jnp.concatenate([cross, jnp.ones_like(cross, shape=(len(cross), 1))], 1)
        return Tile(cross, y, weights)

    def shape_of(self, part, known):
        one = points_at((self.X, self.y, self.weights), slice(1))
        return eqx.filter_eval_shape(lambda known: part(self._tile(one), known), known)

    def repeat(self, go_on, step, state):
        # JAX hashes functions, and a method hashes the arrays of its module.
        return lax.while_loop(lambda now: go_on(now), lambda now: step(now), state)

    def run(self, function, *args):
        return compiled_call(function, *args)

    def either(self, condition, yes, no, state):
        return lax.cond(condition, yes, no, state)

    def at(self, indices: Any, weights: Float[Array, " r"]) -> "ArrayRows":
        """Some of the rows, with other weights; the last row is repeated with weight zero where
        devices would not share the rows evenly.
        """
        missing = 0 if self.spread is None else -len(weights) % self.spread.parts
        indices = jnp.pad(indices, (0, missing), mode="edge")
        X, y = points_at((self.X, self.y), indices)
        return self.of(X, y, jnp.pad(weights, (0, missing)))

    def of(self, X: PyTree, y: Float[Array, "r p"], weights: Float[Array, " r"]) -> "ArrayRows":
        """Other rows for the same functions."""
        known = {"tile": self.tile, "bias": self.bias, "spread": self.spread}
        return ArrayRows(self.span, X, y, weights, **known)


# The number of entries of a tile: on a CPU as many as fit into its caches, elsewhere enough to keep
# the device busy. The times of a product differ little from 128 to 2048 rows for 2000 centres.
_IN_TILE = {"cpu": 2**19}
_IN_LARGE_TILE = 2**26


def rows_of_tile(m: int) -> int:
    """How many rows to compute together for m centres."""
    numbers = _IN_TILE.get(jax.default_backend(), _IN_LARGE_TILE)
    return max(64, min(4096, numbers // m))
