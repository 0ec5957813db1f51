"""The computation of Gram matrices: all pairs at once if they fit, otherwise tiles or rows."""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jex
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.base.batching import on_cpu_or_elsewhere
from kernax.core.base.boundary import count
from kernax.core.base.compiled import compiled
from kernax.core.base.derivatives import custom_jvp
from kernax.core.base.numerics import matmul, rows_and_columns, stop_gradient
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel, name_of
from kernax.core.operators.mesh import RowsOverMesh, on_parts, rows_over_mesh, whole_on_each

# The number of floats for pairs that are computed at one time: on a CPU, as many as fit into the
# cache of a core; elsewhere, enough to keep an accelerator busy.
_BUDGET = {"cpu": 3 * 2**14}
_LARGE_BUDGET = 2**26

# XLA sums the products of fewer rows in different orders above and below the diagonal: in float64 a
# matrix of inner products of five or seven points is not symmetric to the last bit.
_LEAST_MIRRORED = 16


class CheckedPairs(NamedTuple):
    """A Gram matrix, whether all of it is finite, and `k(x, x)` for each of its batches."""

    matrix: Float[Array, "n m"]
    finite: Bool[Array, ""]
    diagonals: tuple[Float[Array, " _"], ...]


@compiled
def pairs_of(
    kernel: AbstractKernel,
    X: PyTree,
    Z: PyTree | None,
    block_size: int | None = None,
    spread: RowsOverMesh | None = None,
) -> CheckedPairs:
    """`k(x_i, z_j)`; for one batch (`Z=None`) symmetric, with the exact diagonal. For two batches,
    if the rows of X are `spread`, each device computes its own rows, for all Z.

    Inside a compiled function XLA does not compute the fields that are not used.
    """
    if Z is None:
        return _of_one_stack(kernel, X, block_size)
    if spread is None:
        K = _matrix(kernel, X, Z, block_size)
    else:
        K = _by_rows_over_mesh(kernel, X, Z, block_size, spread)
    diagonals = _diagonal(kernel, X), _diagonal(kernel, Z)
    finite = _all_finite(K)
    for diagonal in diagonals:
        finite = finite & jnp.all(jnp.isfinite(diagonal))
    return CheckedPairs(K, finite, stop_gradient(diagonals))


def _of_one_stack(kernel: AbstractKernel, X: PyTree, block_size: int | None) -> CheckedPairs:
    """`k(x_i, x_j)`, symmetric, with the exact diagonal."""
    n = count(X)
    at_once = pairs_at_once(kernel, X, X, block_size)
    whole = at_once >= n * n
    spread = rows_over_mesh(X)
    if spread is None:
        K = all_pairs(kernel, X, X) if whole else _by_mirrored_tiles(kernel, X, math.isqrt(at_once))
        is_mirrored = whole and kernel.is_mirrored and n >= _LEAST_MIRRORED
        symmetric = _symmetric(K, mirrored=is_mirrored)
    elif whole:
        K, symmetric = _whole_over_mesh(kernel, X, spread)
    else:
        K = symmetric = _by_rows_over_mesh(kernel, X, X, block_size, spread)
    check_scalar(kernel, K)
    # k(x, x) replaces the rounded diagonal in the value alone: the derivative of K there is that of
    # k(x, x) already.
    diagonal = _diagonal(*stop_gradient((kernel, X)))
    in_rows = lax.broadcast_in_dim(diagonal.astype(symmetric.dtype), (n, n), (0,))
    i, j = rows_and_columns(n)
    exact = lax.select(i == j, in_rows, lax.stop_gradient(symmetric))
    return CheckedPairs(_valued(K, exact), _all_finite(exact), (diagonal,))


def _by_rows_over_mesh(
    kernel: AbstractKernel, X: PyTree, Z: PyTree, block_size: int | None, spread: RowsOverMesh
) -> Float[Array, "n m"]:
    """`k(x_i, z_j)`, where each device computes some of its rows at a time. Only points are
    exchanged.
    """

    def of_part(whole: tuple[AbstractKernel, PyTree], part: PyTree) -> Array:
        kernel, Z = whole
        return _matrix(kernel, part, Z, block_size)

    return on_parts(of_part, spread, (kernel, Z), X)


def _whole_over_mesh(
    kernel: AbstractKernel, X: PyTree, spread: RowsOverMesh
) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    """K by rows over a mesh, and K or the larger of K and K^T, entry by entry.

    Only points are exchanged, and K^T is computed like K. With the points of both sides over the
    mesh XLA would exchange matrices, one for each coordinate.
    """
    columns = whole_on_each(X, spread)
    K = all_pairs(kernel, X, columns)
    if kernel.is_mirrored:
        return K, K
    turned = jax.vmap(lambda x: jax.vmap(lambda z: kernel(z, x))(columns))(X)
    return K, jnp.maximum(K, turned)


def _matrix(
    kernel: AbstractKernel, X: PyTree, Z: PyTree, block_size: int | None
) -> Float[Array, "n m"]:
    """`k(x_i, z_j)`, all pairs together or by rows."""
    m = count(Z)
    at_once = pairs_at_once(kernel, X, Z, block_size)
    if at_once >= count(X) * m:
        K = all_pairs(kernel, X, Z)
    else:
        row = jax.checkpoint(lambda x: jax.vmap(lambda z: kernel(x, z))(Z))
        K = lax.map(row, X, batch_size=max(1, at_once // m))
    check_scalar(kernel, K)
    return K


def check_scalar(kernel: AbstractKernel, K: Array) -> None:
    """Raises ValueError unless the kernel returned a real number for each pair."""
    if not eqx.is_array(K):
        raise ValueError(
            f"a kernel must return a real scalar, but {name_of(kernel)} returns a "
            f"{type(K).__name__}"
        )
    if K.ndim != 2 or not jnp.issubdtype(K.dtype, jnp.floating):
        raise ValueError(
            f"a kernel must return a real scalar, but {name_of(kernel)} returns {K.dtype} of "
            f"shape {K.shape[2:]}: sum over axes, and multiply integers and booleans by 1.0"
        )


def _diagonal(kernel: AbstractKernel, X: PyTree) -> Float[Array, " n"]:
    return jax.vmap(lambda x: kernel(x, x))(X)


def _all_finite(K: Array) -> Array:
    """Whether a matrix has neither NaN nor inf."""
    # NaN or inf makes the mean of its column so; the product runs as fast as K can be read.
    means = matmul(jnp.full(len(K), 1 / len(K), K.dtype), lax.stop_gradient(K))
    return jnp.all(jnp.isfinite(means))


@custom_jvp
def _valued(K: Array, exact: Array) -> Array:
    """The value of the second matrix, with the derivative of the first."""
    return exact


@_valued.def_jvp
def _valued_jvp(primals, tangents):
    return _valued(*primals), tangents[0]


def all_pairs(kernel: AbstractKernel, X: PyTree, Z: PyTree) -> Array:
    """`k(x_i, z_j)` for all pairs together."""
    return jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(Z))(X)


def _by_mirrored_tiles(kernel: AbstractKernel, X: PyTree, side: int) -> Float[Array, "n n"]:
    """K in square tiles. Tiles below the diagonal are transposes, which halves the work.

    The tiles are computed again in the backward pass.
    """
    n = count(X)
    blocks = -(-n // side)
    side = -(-n // blocks)
    # The last block repeats the last point.
    place = np.minimum(np.arange(blocks * side), n - 1).reshape(blocks, side)
    parts = points_at(X, place)

    def tile(pair):
        x, z = (jax.tree.map(lambda leaf, i=i: leaf[i], parts) for i in pair)
        return all_pairs(kernel, x, z)

    rows, columns = np.triu_indices(blocks)
    tiles = lax.map(jax.checkpoint(tile), (rows, columns))
    # The tile of every block, or of its mirror image, which is transposed.
    indices = np.zeros((blocks, blocks), int)
    indices[rows, columns] = np.arange(len(rows))
    everywhere = tiles[np.maximum(indices, indices.T)]
    above = np.triu(np.ones((blocks, blocks), bool))[:, :, None, None]
    K = jnp.where(above, everywhere, jnp.swapaxes(everywhere, 2, 3))
    size = blocks * side
    return jnp.swapaxes(K, 1, 2).reshape(size, size)[:n, :n]


def _symmetric(K: Array, mirrored: bool) -> Array:
    """The larger of K and K^T, entry by entry; on a CPU K itself if the kernel is `mirrored`."""

    # The matrix product of a CPU is already bitwise symmetric, and a transposition there would cost
    # twice the product. The mean of both would not be symmetric: XLA may fuse the last
    # multiplication of K, but not that of K.T, into the addition, unrounded. K.T is avoided
    # because, fused with the maximum and the diagonal, it takes jaxlib 0.10.2 minutes to compile
    # from n = 1000 on.
    def larger(K):
        i = jnp.arange(len(K), dtype=jnp.int32)
        transposed = K.at[i[None, :], i[:, None]].get(
            mode="promise_in_bounds", wrap_negative_indices=False
        )
        return jnp.maximum(K, transposed)

    return on_cpu_or_elsewhere(lambda K: K, larger, K) if mirrored else larger(K)


def pairs_at_once(
    kernel: AbstractKernel, X: PyTree, Z: PyTree, block_size: int | None = None
) -> int:
    """The number of pairs to compute together: `block_size` rows, or as many as fit a fixed budget.

    A kernel of vectors needs a number or two for each pair, and all pairs are computed in one
    program that stores the matrix and little else. A kernel of strings may need a table for each
    pair, with as many numbers as the product of two lengths, which for 400 strings together would
    be gigabytes. Traces of the kernel for a few points tell.

    - At most 4 numbers per pair: all pairs at once, unless the numbers for each point (such as a
      histogram of substrings) exceed the large budget; then a square block of them.
    - More: as many pairs as fit the budget of the device. On a CPU that is the cache of one core:
      for strings of 57 letters, 256 pairs at a time take half as long as 1024 at a time.

    Under an outer `vmap` all members together need more memory, which is not known here.
    """
    n = count(X)
    m = count(Z)
    if block_size is not None:
        return block_size * m
    # Every intermediate result of i and j points has a size `pair i j + row i + column j + rest`,
    # of which none is negative. The largest one counts, because XLA frees most of them in turn.
    sizes = partial(_sizes_of_results, kernel, X, Z)
    # For r points a side it is at least pair r^2 and at least row r. One such trace is enough for
    # most kernels.
    r = 1024
    largest = int(sizes(r, r).max())
    if largest <= 4 * r * r and n * (largest // r) <= _LARGE_BUDGET:
        return n * m
    # A second difference gives the numbers for each pair, a first difference those for each row.
    of_2_and_2 = sizes(2, 2)
    of_3_and_2 = sizes(3, 2)
    of_pair = sizes(3, 3) - of_3_and_2 - sizes(2, 3) + of_2_and_2
    of_row = of_3_and_2 - of_2_and_2 - 2 * of_pair
    pair = int(of_pair.max())
    row = int(of_row.max())
    if n * row > _LARGE_BUDGET:
        n = m = max(1, min(n, m, _LARGE_BUDGET // row))
    if pair <= 4:
        return n * m
    budget = _BUDGET.get(jax.default_backend(), _LARGE_BUDGET)
    return min(n * m, max(1, budget // pair))


def rows_at_once(kernel: AbstractKernel, X: PyTree, Z: PyTree, most: int) -> int:
    """The number of rows of `k(x_i, z_j)` to compute together: `most` for a simple kernel, and the
    number from `pairs_at_once` for a kernel that needs much memory per pair.
    """
    return max(1, min(most, pairs_at_once(kernel, X, Z) // max(1, count(Z))))


def _sizes_of_results(
    kernel: AbstractKernel, X: PyTree, Z: PyTree, rows: int, columns: int
) -> Int[np.ndarray, " results"]:
    """The sizes of all intermediate results for the given numbers of points, and zero."""
    shapes = _shapes(X, rows), _shapes(Z, columns)
    trace = jax.make_jaxpr(lambda X, Z: all_pairs(kernel, X, Z))(*shapes)
    return np.array([0, *_sizes(trace.jaxpr)])


def _shapes(stack: PyTree, n: int) -> PyTree:
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((n, *leaf.shape[1:]), leaf.dtype), stack)


def _sizes(jaxpr: Any) -> Iterator[int]:
    """The size of every intermediate result, including those inside loops and calls."""
    for equation in jaxpr.eqns:
        yield from (math.prod(out.aval.shape) for out in equation.outvars)
        for inner in jex.jaxprs_in_params(equation.params):
            yield from _sizes(inner)
