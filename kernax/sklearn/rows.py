"""Rows of a table, or texts, as the points that functions take, in few different sizes.

A program is compiled for every shape. Rows are padded by copies of weight zero, which have no
effect, so that fits of similar sizes, as in cross-validation, share one program. Functions get the
Gram matrix, with indices into it as points, so that they share one program for all kernels and
columns; their results are then expressed in the kernel and its points.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.parameters import data
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel, name_of
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.padding import repeated
from kernax.core.operators.gram import gram

_LEAST = 64
_DOUBLED = 256  # up to here sizes are powers of two, then multiples of half of it
# Above so many rows functions get the points themselves, as compiling does not dominate the cost.
_MOST = 1024


def padded_size(n: int) -> int:
    """The number of rows after padding n rows."""
    if n > _MOST:
        return n
    if n <= _DOUBLED:
        return max(_LEAST, 1 << (n - 1).bit_length())
    step = _DOUBLED // 2
    return -(-n // step) * step


class RowIndices(eqx.Module):
    """Indices of rows of a Gram matrix as points; `unit` gives them their precision."""

    index: Int[Array, "*n"]
    unit: Float[Array, "*n"]


class Word:
    """The user's word for a kernel. All words are equal, so that compiled programs do not depend on
    it.
    """

    def __init__(self, text: str):
        self.text = text

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Word)

    def __hash__(self) -> int:
        return 0


class GramOf(AbstractKernel):
    """The kernel `K[x, z]` of indices x and z; messages call it by its `word`."""

    K: Float[Array, "n n"] = data()
    word: Word = eqx.field(static=True, default=Word("the kernel"))

    mirrors = True

    def __call__(self, x, z):
        return self.K[x.index, z.index]


@name_of.register
def _(kernel: GramOf) -> str:
    return kernel.word.text


@dataclasses.dataclass(frozen=True)
class Rows:
    """The rows as functions get them.

    Attributes:
        kernel, points: the kernel, and n rows and their padding, in NumPy.
        n: the number of rows.
        weights: the weights of all rows, zero for padding; None for one everywhere.
        given_kernel, given: the kernel and the points that functions get instead.
        dtype: the precision of the data.
    """

    kernel: AbstractKernel
    points: PyTree
    n: int
    weights: np.ndarray | None
    given_kernel: AbstractKernel
    given: PyTree
    dtype: Any

    @staticmethod
    def of(
        kernel: AbstractKernel,
        points: PyTree,
        n: int,
        weights: Any,
        dtype: Any,
        word: str = "the kernel",
    ) -> "Rows":
        """n rows, with weights or without (None); `word` is the user's word for the kernel."""
        size = padded_size(n)
        points = repeated(points, size)
        if n > _MOST:
            return Rows(kernel, points, n, weights, kernel, points, dtype)
        # Rows of the padding have no weight.
        of_all = np.zeros(size, dtype)
        of_all[:n] = 1 if weights is None else weights
        indices = RowIndices(jnp.asarray(np.arange(size)), jnp.asarray(np.ones(size, dtype)))
        return Rows(
            kernel, points, n, of_all, GramOf(gram(kernel, points), Word(word)), indices, dtype
        )

    @property
    def size(self) -> int:
        """The number of rows, padding included."""
        return padded_size(self.n)

    @property
    def own_weights(self) -> np.ndarray:
        """The weights without those of the padding; ones if there are none."""
        if self.weights is None:
            return np.ones(self.n, self.dtype)
        return np.asarray(self.weights)[: self.n]

    def column(self, y: np.ndarray) -> np.ndarray:
        """Targets of all rows. Raises ValueError for another number of them."""
        if len(y) != self.n:
            raise ValueError(f"there are {self.n} rows, but {len(y)} values for them")
        return repeated(y, self.size)

    def fit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What a function returns for these rows: of a kernel, points, other arguments, weights."""
        return function(self.given_kernel, self.given, *arguments, weights=self.weights, **options)

    def some(self, rows: np.ndarray) -> "Rows":
        """Some of the rows, by their numbers."""
        size = padded_size(len(rows))
        indices = repeated(rows, size)
        chosen = self.own_weights[indices]
        chosen[len(rows) :] = 0
        points = points_at(self.points, indices)
        given = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[indices]), self.given)
        return Rows(self.kernel, points, len(rows), chosen, self.given_kernel, given, self.dtype)

    def restored(self, value: Any) -> Any:
        """The result of a function, in terms of the kernel and its points."""
        if isinstance(value, KernelExpansion) and len(value.coefficients) == self.size:
            value = without_padding(value, self.n)

        def swapped(node: Any) -> Any:
            if isinstance(node, GramOf):
                return self.kernel
            if isinstance(node, RowIndices):
                index = np.asarray(node.index)
                return jax.tree.map(lambda leaf: jnp.asarray(leaf[index]), self.points)
            return node

        return jax.tree.map(
            swapped, value, is_leaf=lambda node: isinstance(node, (GramOf, RowIndices))
        )


def without_padding(function: KernelExpansion, n: int) -> KernelExpansion:
    """The function over the first n of its points; all others have coefficients zero."""

    def first(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[:n]), tree)

    return KernelExpansion(
        function.kernel, first(function.points), first(function.coefficients), function.bias
    )


def with_padding(function: KernelExpansion) -> KernelExpansion:
    """The same function on a padded number of points."""
    n = len(function.coefficients)
    size = padded_size(n)
    coefficients = repeated(function.coefficients, size)
    coefficients[n:] = 0
    points = jax.tree.map(jnp.asarray, repeated(function.points, size))
    return KernelExpansion(function.kernel, points, jnp.asarray(coefficients), function.bias)
