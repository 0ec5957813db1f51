"""Gram matrices of any kernel: dense, diagonal, and as operators that never hold the matrix."""

import math
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jax import lax
from jax.extend import core as jex
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from kernax.core.boundary import as_scalar, count, dtype_of
from kernax.core.kernel import AbstractKernel
from kernax.core.memory import check_memory
from kernax.core.numerics import is_concrete, product
from kernax.core.operators import ShiftedOperator, tell_lineax
from kernax.core.parameters import check_count
from kernax.core.preparation import diagonal_of, prepare_stacks, warn_of_featureless_points
from kernax.core.sharding import compiled
from kernax.core.support import NONNEGATIVE
from kernax.errors import NonFiniteError

_BUDGET = {"cpu": 3 * 2**14}  # floats that pairs computed at one time may hold between them: what the cache of a core holds
_LARGE_BUDGET = 2**26  # elsewhere: what keeps an accelerator busy

Tree = TypeVar("Tree")


def gram(kernel: AbstractKernel, X: PyTree, Z: PyTree | None = None, *, block_size: int | None = None) -> Float[Array, "n m"]:
    """The matrix `K[i, j] = k(x_i, z_j)`, shape (n, m); `gram(kernel, X)` is symmetric, with the exact diagonal `k(x_i, x_i)`.

    Rows are computed together, unless the kernel holds much more than a number per pair (a string kernel's table): then as
    many at a time as fit a fixed budget, read off the kernel's trace and recomputed in the backward pass. `block_size`
    overrides that number; under an outer `vmap` the budget counts once for each member.

    Raises:
        ValueError: points of the wrong shape, or NaN in them.
        NonFiniteError: the kernel overflows on these points.
        MemoryBudgetError: the matrix is larger than the memory at hand.
    """
    kernel, X, Z = prepare_stacks(kernel, X, Z)
    K, diagonals = _checked_gram(kernel, X, Z, checked_block(block_size))
    for stack, diagonal in zip((X, Z), diagonals):
        warn_of_featureless_points(kernel, stack, diagonal)
    return K


def gram_of_prepared(kernel: AbstractKernel, X: PyTree) -> Float[Array, "n n"]:
    """`gram(kernel, X)` of what comes from `prepare`, which has looked at the points already."""
    return _checked_gram(kernel, X, None, None)[0]


def _checked_gram(kernel, X, Z, block_size):
    """The matrix, and `k(x, x)` over each stack."""
    check_memory(X, Z)
    K, finite, diagonals = _gram(kernel, X, Z, block_size)
    if is_concrete(finite) and not finite:
        wider = " or use float64" if K.dtype == jnp.float32 else ""
        raise NonFiniteError(
            f"{type(kernel).__name__} is NaN or inf on these points in {K.dtype}: rescale inputs{wider}, "
            "and keep to where the kernel is defined"
        )
    return K, diagonals


def gram_diagonal(kernel: AbstractKernel, X: PyTree) -> Float[Array, " n"]:
    """The vector of `k(x_i, x_i)`, shape (n,)."""
    kernel, X, _ = prepare_stacks(kernel, X)
    return diagonal_of(kernel, X)


def gram_operator(
    kernel: AbstractKernel, X: PyTree, ridge: ArrayLike | None = None, *, block_size: int | None = None
) -> lx.AbstractLinearOperator:
    """`K + ridge I`, or K alone, as a lineax operator tagged positive semidefinite.

    Without `block_size` it holds the dense matrix. With it, products compute that many rows of K at a time, forward and
    backward: memory is O(block_size n) in both.
    """
    kernel, X, _ = prepare_stacks(kernel, X)
    block_size = checked_block(block_size)
    operator = lx.MatrixLinearOperator(gram(kernel, X), _PSD) if block_size is None else GramOperator(kernel, X, block_size)
    if ridge is None:
        return operator
    ridge = as_scalar(ridge, dtype_of(X), "ridge", NONNEGATIVE)
    if isinstance(operator, lx.MatrixLinearOperator):
        return lx.MatrixLinearOperator(operator.matrix + ridge * jnp.eye(count(X), dtype=ridge.dtype), _PSD)
    return ShiftedOperator(operator, None, jnp.full(count(X), ridge))


_PSD = lx.positive_semidefinite_tag


def checked_block(block_size: Any) -> int | None:
    """None, or a positive Python integer; else ValueError."""
    return None if block_size is None else check_count(block_size, "block_size")


@compiled
def _gram(kernel, X, Z, block_size):
    """The matrix, whether all of it is finite, and the diagonals. Where nobody asks for the second, XLA leaves it out."""
    n, other = count(X), X if Z is None else Z
    pairs = _pairs_at_once(kernel, X, other) if block_size is None else block_size * count(other)
    whole = pairs >= n * count(other)
    if whole:
        K = _pairs(kernel, X, other)
    elif Z is None:
        K = _triangle(kernel, X, math.isqrt(pairs))
    else:
        row = jax.checkpoint(lambda x: jax.vmap(lambda z: kernel(x, z))(other))
        K = lax.map(row, X, batch_size=max(1, pairs // count(other)))
    if K.ndim != 2 or not jnp.issubdtype(K.dtype, jnp.floating):
        raise ValueError(
            f"a kernel must return a real scalar, but {type(kernel).__name__} returns {K.dtype} of shape {K.shape[2:]}: "
            "sum over axes, and multiply integers and booleans by 1.0"
        )
    mirrored = whole and kernel.is_mirrored
    diagonal = jax.vmap(lambda x: kernel(x, x))(X)
    finite = jnp.all(jnp.isfinite(diagonal)) & _all_finite(K)
    if Z is not None:
        of_Z = jax.vmap(lambda z: kernel(z, z))(Z)
        return K, finite & jnp.all(jnp.isfinite(of_Z)), lax.stop_gradient((diagonal, of_Z))
    exact = jnp.where(jnp.eye(n, dtype=bool), diagonal[:, None], _symmetric(K, mirrored))
    return _valued(K, lax.stop_gradient(exact)), finite, (lax.stop_gradient(diagonal),)


def _all_finite(K: Array) -> Array:
    """Whether a matrix holds no NaN and no inf: its column means show one, in a product that runs as fast as K can be read."""
    means = product(jnp.full(len(K), 1 / len(K), K.dtype), lax.stop_gradient(K))
    return jnp.all(jnp.isfinite(means))


@jax.custom_jvp
def _valued(K: Array, exact: Array) -> Array:
    """The second matrix, with the derivative of the first."""
    return exact


@_valued.defjvp
def _valued_jvp(primals, tangents):
    return _valued(*primals), tangents[0]


def _pairs(kernel, X, Z):
    return jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(Z))(X)


def _triangle(kernel, X, side):
    """K in square tiles, of which those below the diagonal are transposes: half the work. Recomputed in the backward pass."""
    n = count(X)
    blocks = -(-n // side)
    side = -(-n // blocks)
    place = np.minimum(np.arange(blocks * side), n - 1).reshape(blocks, side)  # the last tile repeats the last point
    parts = jax.tree.map(lambda leaf: leaf[place], X)
    upper = np.triu_indices(blocks)

    def tile(pair):
        x, z = (jax.tree.map(lambda leaf, i=i: leaf[i], parts) for i in pair)
        return _pairs(kernel, x, z)

    which = np.zeros((blocks, blocks), int)
    which[upper] = np.arange(len(upper[0]))
    tiles = lax.map(jax.checkpoint(tile), upper)[np.maximum(which, which.T)]
    above = np.triu(np.ones((blocks, blocks), bool))[:, :, None, None]
    K = jnp.where(above, tiles, jnp.swapaxes(tiles, 2, 3))
    return jnp.swapaxes(K, 1, 2).reshape(blocks * side, blocks * side)[:n, :n]


def _symmetric(K: Array, mirrored: bool) -> Array:
    # The matrix product of a CPU is symmetric bitwise as it comes, and a transposition there would cost twice the product.
    # Not the mean of both: of K, fused into that sum, a last product would escape rounding, and of K.T not. And no K.T,
    # which, fused with the maximum and the diagonal, takes jaxlib 0.10.2 minutes to compile from n = 1000 on.
    i = jnp.arange(len(K))
    larger = lambda K: jnp.maximum(K, K.at[i[None, :], i[:, None]].get(mode="promise_in_bounds"))
    return lax.platform_dependent(K, cpu=lambda K: K, default=larger) if mirrored else larger(K)


def _pairs_at_once(kernel: AbstractKernel, X: PyTree, Z: PyTree) -> int:
    """How many pairs to compute together: all, unless some intermediate holds far more than a number for each of them, or
    more for the points than fits into memory.
    """

    def sizes(rows: int, columns: int) -> np.ndarray:
        few = lambda stack, n: jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype), stack)
        trace = jax.make_jaxpr(lambda X, Z: _pairs(kernel, X, Z))(few(X, rows), few(Z, columns))
        return np.array([0, *_sizes(trace.jaxpr)])

    n, m = count(X), count(Z)
    of_each = sizes(3, 3) - sizes(3, 2) - sizes(2, 3) + sizes(2, 2)
    of_row = sizes(3, 2) - sizes(2, 2) - 2 * of_each
    pair, row = int(of_each.max()), int(of_row.max())
    if n * row > _LARGE_BUDGET:
        n = m = max(1, min(n, m, _LARGE_BUDGET // row))
    return n * m if pair <= 4 else min(n * m, max(1, _BUDGET.get(jax.default_backend(), _LARGE_BUDGET) // pair))


def _sizes(jaxpr: Any):
    for equation in jaxpr.eqns:
        yield from (math.prod(out.aval.shape) for out in equation.outvars)
        for inner in jex.jaxprs_in_params(equation.params):
            yield from _sizes(inner)


class GramOperator(lx.AbstractLinearOperator):
    """`v -> K v` for the Gram matrix of a stack, computing `block_size` rows of K at a time and keeping none.

    Each block is recomputed in the backward pass, so that its memory too is O(block_size n). The diagonal is `k(x, x)`, as
    in `gram`: within a row the distance of a point to itself would be rounded like any other.
    """

    kernel: AbstractKernel
    points: PyTree
    block_size: int = eqx.field(static=True)

    def mv(self, vector):
        return self.columns_product(jnp.arange(count(self.points)), vector)

    def columns_product(self, places: Int[Array, " m"], values: Float[ArrayLike, " m"]) -> Float[Array, " n"]:
        """`K[:, places] @ values`, for which only these columns are computed."""
        part = jax.tree.map(lambda leaf: leaf[places], self.points)

        def entry(place_and_point):
            place, x = place_and_point
            row = jax.vmap(lambda z: self.kernel(x, z))(part)
            return product(jnp.where(places == place, self.kernel(x, x), row), values)

        numbered = (jnp.arange(count(self.points), dtype=places.dtype), self.points)
        return lax.map(jax.checkpoint(entry), numbered, batch_size=self.block_size)

    def submatrix(self, places: Int[Array, " m"]) -> Float[Array, "m m"]:
        """`K[places][:, places]`, for which only these entries are computed; `places` differ."""
        return gram(self.kernel, jax.tree.map(lambda leaf: leaf[places], self.points))

    def as_matrix(self):
        return gram(self.kernel, self.points, block_size=self.block_size)

    def transpose(self):
        return self

    def in_structure(self):
        return jax.ShapeDtypeStruct((count(self.points),), dtype_of(self.points))

    def out_structure(self):
        return self.in_structure()


tell_lineax(GramOperator, lambda operator: gram_diagonal(operator.kernel, operator.points))
