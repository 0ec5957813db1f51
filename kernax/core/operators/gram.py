"""Gram matrices of any kernel, as arrays and as dense or matrix-free operators.

`gram` and `gram_operator` are for users, and check their arguments. Learners, which have already
checked theirs, call `gram_of_prepared` or `operator_of_prepared`.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_scalar, count, dtype_of
from kernax.core.base.intervals import NONNEGATIVE
from kernax.core.base.parameters import check_count
from kernax.core.base.weights import UnitWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import diagonal_of, prepare_stacks, warn_of_featureless_points
from kernax.core.operators.computed import checked_pairs, gram_of_prepared
from kernax.core.operators.feature_map import low_rank_gram
from kernax.core.operators.memory import MOST_HELD
from kernax.core.operators.mesh import RowsOverMesh, by_rows, rows_over_mesh, whole_on_each
from kernax.core.operators.operators import (
    AbstractGram,
    CrossGram,
    DenseGram,
    LowRankGram,
    WeightedForm,
)
from kernax.core.operators.structure import AbstractStructure


def gram(
    kernel: AbstractKernel, X: PyTree, Z: PyTree | None = None, *, block_size: int | None = None
) -> Float[Array, "n m"]:
    """The Gram matrix `K[i, j] = k(x_i, z_j)`, shape (n, m).

    `gram(kernel, X)` is symmetric, with the exact diagonal `k(x_i, x_i)`. All rows are computed
    together, unless the kernel needs much more memory than one number per pair, such as a table for
    each pair of strings. In that case as many rows at a time are computed as fit a fixed budget,
    and computed again in the backward pass. `block_size` sets that number of rows; under an outer
    `vmap` each member uses the whole budget. If the rows of X are spread over a mesh, so are those
    of the matrix, and it may only be symmetric up to rounding.

    Raises:
        ValueError: points of the wrong shape, or with NaN or inf; an invalid block_size.
        NonFiniteError: the kernel is NaN or inf on these points.
        MemoryBudgetError: the matrix would not fit into memory.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> K = kernax.gram(kernax.RBF(0.3), X)
        >>> K.shape
        (5, 5)
        >>> kernax.gram(kernax.RBF(0.3), X, X[:2]).shape
        (5, 2)
        >>> jnp.round(K[0], 2)
        Array([1.  , 0.71, 0.25, 0.04, 0.  ], dtype=float64)
    """
    kernel, X, Z = prepare_stacks(kernel, X, Z)
    block_size = checked_block(block_size, count(X))
    if Z is not None:
        return cross_gram(kernel, X, Z, block_size)
    K, (diagonal,) = checked_pairs(kernel, X, None, block_size)
    warn_of_featureless_points(kernel, X, diagonal)
    return K


def cross_gram(
    kernel: AbstractKernel, X: PyTree, Z: PyTree, block_size: int | None = None
) -> Float[Array, "n m"]:
    """`gram` for two checked batches."""
    spread = rows_over_mesh(X)
    if spread is not None:
        X = by_rows(X, spread)
        Z = whole_on_each(Z, spread)
    K, diagonals = checked_pairs(kernel, X, Z, block_size, spread)
    for stack, diagonal in zip((X, Z), diagonals):
        warn_of_featureless_points(kernel, stack, diagonal)
    return K


def gram_diagonal(kernel: AbstractKernel, X: PyTree) -> Float[Array, " n"]:
    """The diagonal `k(x_i, x_i)`, shape (n,).

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> kernax.gram_diagonal(2.0 * kernax.RBF(0.3), X)
        Array([2., 2., 2., 2., 2.], dtype=float64)
    """
    kernel, X, _ = prepare_stacks(kernel, X)
    return diagonal_of(kernel, X)


def gram_operator(
    kernel: AbstractKernel,
    X: PyTree,
    Z: PyTree | None = None,
    *,
    ridge: ArrayLike | None = None,
    block_size: int | str | None = None,
) -> lx.AbstractLinearOperator:
    """The Gram matrix as a lineax operator: `K` (n, n), `K + ridge I`, or `k(x_i, z_j)` (n, m).

    Without `block_size` the operator stores the dense matrix. With it, the operator is matrix-free:
    each product computes K in tiles with at most as many numbers as `block_size` rows (on a CPU, no
    more than fit its caches), in the forward and in the backward pass, so that memory is
    O(block_size n). "auto" stores the matrix for up to 8192 points. It is matrix-free for more
    points, and for rows over a mesh of devices, where each device computes its own rows.

    The operator of X alone is tagged as positive semidefinite for lineax. Without a ridge it has,
    dense or matrix-free, products with one or more columns (`mv`), `diagonal()`, `rows(indices)`,
    `columns_product(indices, values)` and `submatrix(indices)`. The operator of X and Z has a
    transpose.

    Raises as `gram` does, and ValueError for a ridge together with Z.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> operator = kernax.gram_operator(kernax.RBF(0.3), X, ridge=0.1, block_size=2)
        >>> product = operator.mv(jnp.ones(5))
        >>> jnp.round(product, 2)
        Array([2.1 , 2.81, 3.01, 2.81, 2.1 ], dtype=float64)
    """
    kernel, X, Z = prepare_stacks(kernel, X, Z)
    spread = rows_over_mesh(X)
    block_size = checked_block(block_size, max(map(count, (X, X if Z is None else Z))), spread)
    if Z is None:
        operator = operator_of_prepared(kernel, X, Layout(block_size, spread=spread))
        if ridge is None:
            return operator
        ridge = as_scalar(ridge, dtype_of(X), "ridge", NONNEGATIVE)
        # K + ridge I is S K S + diag(shift) with S = I.
        n = operator.in_size()
        return WeightedForm(operator, UnitWeights(n, ridge.dtype), jnp.full(n, ridge))
    if ridge is not None:
        raise ValueError("ridge goes with one batch of points, but Z came too: omit one of them")
    if block_size is None:
        return CrossGram(gram_of_prepared(kernel, X, Z))
    from kernax.core.operators.blocked import BlockedCrossGram

    return BlockedCrossGram(kernel, X, Z, block_size, spread)


class Layout(eqx.Module):
    """The representation of a Gram matrix: dense, by explicit features, by a structure such as a
    line or a grid, or matrix-free, where each product computes it in blocks of rows.

    The layout is chosen once, before anything is compiled.

    Attributes:
        spread: the mesh over which rows are spread, if they are computed in blocks or as features.
    """

    block_size: int | None = eqx.field(static=True, default=None)
    in_features: bool = eqx.field(static=True, default=False)
    structure: AbstractStructure | None = None
    spread: RowsOverMesh | None = eqx.field(static=True, default=None)

    @property
    def is_dense(self) -> bool:
        """Whether all n^2 numbers are stored."""
        return self.block_size is None and not self.in_features and self.structure is None


def operator_of_prepared(kernel: AbstractKernel, X: PyTree, layout: Layout) -> AbstractGram:
    """The Gram matrix of a kernel and points from `prepare`, in the given layout."""
    # What computes in blocks is imported when it is needed.
    if layout.block_size is not None and layout.spread is not None:
        from kernax.core.operators.mesh_gram import MeshGram

        return MeshGram(kernel, X, layout.block_size, layout.spread)
    if layout.block_size is not None:
        from kernax.core.operators.blocked import BlockedGram

        return BlockedGram(kernel, X, layout.block_size)
    if layout.structure is not None:
        return layout.structure.gram(kernel, X)
    of_stack = low_rank_gram(kernel) if layout.in_features else None
    if of_stack is None:
        return DenseGram(gram_of_prepared(kernel, X))
    gram = of_stack(X)
    return LowRankGram(gram.features, gram.remainder, layout.spread)


_ROWS_AT_ONCE = 128


def checked_block(block_size: Any, n: int, spread: RowsOverMesh | None = None) -> int | None:
    """A block size, or None for a dense matrix; for "auto" the one that suits n points.

    Raises ValueError unless it is None, a positive integer or "auto".
    """
    if isinstance(block_size, str) and block_size == "auto":
        return None if n <= MOST_HELD and spread is None else _ROWS_AT_ONCE
    hint = '; or "auto", which chooses it'
    return None if block_size is None else check_count(block_size, "block_size", hint=hint)
