"""Points on a complete or incomplete grid, and their Gram matrices, with products in O(N log N) or
O(N sum n_a).
"""

import functools
import math
import operator

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.weights import AbstractWeights
from kernax.core.grid.cell_values import Rows
from kernax.core.grid.kronecker import KroneckerMatrix
from kernax.core.grid.toeplitz import PlaceOffsets, ToeplitzMatrix
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.operators.computed import AbstractComputedGram
from kernax.core.operators.operators import AbstractStructuredForm, in_places
from kernax.core.operators.pairs import pairs_of
from kernax.core.operators.structure import AbstractStructure


class ProductGrid(AbstractStructure):
    """The location of n points on a grid of N cells: all combinations of the coordinates along each
    axis, with the last axis varying fastest. An axis is one column of the points, or several
    together.

    Attributes:
        axes: the coordinates along each axis as points (m, d), with constant other columns.
        columns: the columns of each axis.
        cells: the cell of each point.
        missing: the cells without a point.
        weighted: the points with weights other than one.
        lags: for a single axis with equally spaced coordinates, the distances from the first one,
            (m,); otherwise None.
        offsets: the deviation of each coordinate from these, (m,); None if all are exact.
        order: the largest number of terms of a predictor, see `Grid`.
        in_order: whether the points are all cells, one after the other.
    """

    axes: tuple[Float[Array, "_ d"], ...]
    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    cells: Int[Array, " n"]
    missing: Int[Array, " k"]
    weighted: Int[Array, " j"]
    lags: Float[Array, " m"] | None
    offsets: Float[Array, " m"] | None
    order: int = eqx.field(static=True)
    in_order: bool = eqx.field(static=True)

    def gram(self, kernel, X):
        return GridGram(kernel, X, self)

    def check_noise(self, noise):
        if jnp.ndim(noise):
            raise ValueError(
                f"noise must be one number for Grid(), but has shape {jnp.shape(noise)}: pass the "
                "noise of most observations, and weights of noise / own noise for the others"
            )

    @property
    def size(self) -> int:
        """N, the number of cells."""
        return math.prod(len(coordinates) for coordinates in self.axes)

    @property
    def special(self) -> Int[Array, " m"]:
        """The cells that need a correction: the missing ones, then the weighted ones."""
        return jnp.concatenate([self.missing, self.cells[self.weighted]])

    @property
    def ordinary(self) -> Array:
        """Whether each point has a weight of one."""
        return jnp.ones(len(self.cells), bool).at[self.weighted].set(False)

    def in_cells(self, values: Float[Array, "n p"]) -> Float[Array, "N p"]:
        """Values of points in their cells, zero in the others."""
        if self.in_order:
            return values
        nothing = jnp.zeros_like(values, shape=(self.size, values.shape[1]))
        return nothing.at[self.cells].set(values, unique_indices=True)

    def of_points(self, values: Float[Array, "N *p"]) -> Float[Array, "n *p"]:
        """Values of cells, for each point."""
        return values if self.in_order else values[self.cells]

    def kernels(self, kernel: AbstractKernel) -> list[list[AbstractKernel]]:
        """For each axis, the factors of the kernel along it."""
        found: list[list[AbstractKernel]] = [[] for _ in self.columns]
        for factor in kernel.factors_over_columns(self.axes[0].shape[1]):
            # A constant factor belongs to the first axis.
            axis = next(i for i, columns in enumerate(self.columns) if factor.columns <= {*columns})
            found[axis].append(factor.kernel)
        return found


class GridGram(AbstractComputedGram):
    """The Gram matrix of a kernel at points on a grid, which is never formed; `rows` and
    `submatrix` evaluate the kernel itself.
    """

    kernel: AbstractKernel
    points: Float[Array, "n d"]
    grid: ProductGrid

    def whole(self) -> KroneckerMatrix | ToeplitzMatrix:
        """The Gram matrix of all cells."""
        grid = self.grid
        kernels = grid.kernels(self.kernel)
        if grid.lags is None:
            # The product of the kernels of an axis, entry by entry.
            def of_axis(kernels: list[AbstractKernel], coordinates: Array) -> Float[Array, "m m"]:
                ones = jnp.ones_like(coordinates, shape=(len(coordinates), len(coordinates)))
                matrices = [pairs_of(kernel, coordinates, None).matrix for kernel in kernels]
                return functools.reduce(operator.mul, matrices, ones)

            return KroneckerMatrix(tuple(map(of_axis, kernels, grid.axes)))

        def at(lags: Float[Array, " m"]) -> Float[Array, " m"]:
            points = grid.axes[0].at[:, grid.columns[0][0]].set(lags)
            return _row_of_axis(kernels[0], points, lax.stop_gradient(points[0]))

        if grid.offsets is None:
            return ToeplitzMatrix(at(grid.lags), grid.order)
        # t and its derivative in the lag. D is antisymmetric, so its diagonal is zero.
        column, slopes = jax.jvp(at, (grid.lags,), (jnp.ones_like(grid.lags),))
        offsets = PlaceOffsets(grid.offsets, slopes.at[0].set(0))
        return ToeplitzMatrix(column, grid.order, offsets)

    def rows_along_axes(self, x: Float[Array, " d"]) -> Rows:
        """k(cell, x) for all cells, as a product over the axes."""
        found = []
        for kernels, coordinates, columns in zip(
            self.grid.kernels(self.kernel), self.grid.axes, self.grid.columns
        ):
            chosen = jnp.asarray(columns)
            found.append(
                _row_of_axis(kernels, coordinates, coordinates[0].at[chosen].set(x[chosen]))
            )
        return tuple(found)

    def product(self, columns):
        return self.grid.of_points(self.whole().mv(self.grid.in_cells(columns)))

    def columns_product(self, indices, values):
        return self.mv(in_places(indices, values, len(self.points)))

    def squares_in_products(self, vector):
        columns = self.grid.in_cells(vector[:, None] ** 2)
        return self.grid.of_points(self.whole().squared().mv(columns))[:, 0]

    def symmetric_form(self, weights, shift):
        return GridForm(self, weights, shift)


def _row_of_axis(
    kernels: list[AbstractKernel], coordinates: Float[Array, "m d"], x: Float[Array, " d"]
) -> Float[Array, " m"]:
    rows = [jax.vmap(lambda z, k=kernel: k(z, x))(coordinates) for kernel in kernels]
    return functools.reduce(operator.mul, rows, jnp.ones_like(coordinates[:, 0]))


class GridForm(AbstractStructuredForm):
    """`S K S + diag(shift)`, S = sqrt(W), for points on a grid."""

    gram: GridGram
    weights: AbstractWeights
    shift: Float[Array, " n"]
