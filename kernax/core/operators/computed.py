"""Gram matrices computed by a kernel: as an array, or matrix-free."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.numerics import is_concrete
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel, name_of
from kernax.core.kernel.preparation import diagonal_of
from kernax.core.operators.memory import check_memory
from kernax.core.operators.mesh import RowsOverMesh
from kernax.core.operators.operators import AbstractMatrixFreeGram
from kernax.core.operators.pairs import pairs_of
from kernax.errors import NonFiniteError


def gram_of_prepared(
    kernel: AbstractKernel, X: PyTree, Z: PyTree | None = None
) -> Float[Array, "n m"]:
    """`gram` for a kernel and points from `prepare`, which has already checked them."""
    return checked_pairs(kernel, X, Z, None)[0]


def checked_pairs(
    kernel: AbstractKernel,
    X: PyTree,
    Z: PyTree | None,
    block_size: int | None,
    spread: RowsOverMesh | None = None,
) -> tuple[Float[Array, "n m"], tuple[Float[Array, " _"], ...]]:
    """The matrix, and `k(x, x)` for each batch. Arguments are those of `pairs_of`.

    Raises MemoryBudgetError if the matrix does not fit into memory, and NonFiniteError if a
    concrete matrix has NaN or inf.
    """
    check_pairs_fit(kernel, X, Z)
    K, finite, diagonals = pairs_of(kernel, X, Z, block_size, spread)
    if is_concrete(finite) and not finite:
        wider = " or use float64" if K.dtype == jnp.float32 else ""
        raise NonFiniteError(
            f"{name_of(kernel)} is NaN or inf on these points in {K.dtype}: rescale "
            f"inputs{wider}, and omit points where the kernel is not defined"
        )
    return K, diagonals


def check_pairs_fit(kernel: AbstractKernel, X: PyTree, Z: PyTree | None) -> None:
    """Raises MemoryBudgetError if the matrix of one batch, or of two, does not fit."""

    def of_first_points(kernel, X, Z):
        return kernel(points_at(X, 0), points_at(X if Z is None else Z, 0))

    check_memory(X, Z, first=lambda: eqx.filter_eval_shape(of_first_points, kernel, X, Z))


class AbstractComputedGram(AbstractMatrixFreeGram):
    """A matrix-free Gram matrix of a kernel at points: each subclass computes products in its own
    way, and the kernel computes parts of the matrix.

    The whole matrix (`as_matrix`), rows and submatrices raise as `gram` does.
    """

    kernel: eqx.AbstractVar[AbstractKernel]
    points: eqx.AbstractVar[PyTree]

    @abc.abstractmethod
    def product(self, columns: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`K V`."""

    def mv(self, vector):
        dtype = jnp.result_type(vector, dtype_of(self.points))
        columns = jnp.asarray(vector, dtype).reshape(len(vector), -1)
        return self.product(columns).reshape(jnp.shape(vector))

    def compensated_mv(self, vector):
        return self.mv(vector)

    def diagonal(self):
        return diagonal_of(self.kernel, self.points)

    def rows(self, indices):
        part = points_at(self.points, indices)
        K = gram_of_prepared(self.kernel, part, self.points)
        # The value of a point with itself is exactly k(x, x), as in the dense matrix.
        return K.at[jnp.arange(len(indices)), indices].set(diagonal_of(self.kernel, part))

    def submatrix(self, indices):
        return gram_of_prepared(self.kernel, points_at(self.points, indices))

    def as_matrix(self):
        return gram_of_prepared(self.kernel, self.points)

    def in_structure(self):
        return jax.ShapeDtypeStruct((count(self.points),), dtype_of(self.points))
