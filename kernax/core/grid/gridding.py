"""Detection of the grid of given points, before anything is compiled."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from kernax.core.base.numerics import eps_of, is_concrete
from kernax.core.grid.grid import ProductGrid
from kernax.core.kernel.kernel import AbstractKernel, groups_of_columns


def grid_for(kernel: AbstractKernel, X: PyTree, weights: Any, order: int, most: int) -> ProductGrid:
    """The grid of given points, with at most `most` missing or weighted cells.

    Raises ValueError, with the reason, for points, kernels and weights that do not fit a grid.
    """
    # X as a NumPy array.
    if not isinstance(X, np.ndarray | jax.Array) or X.ndim != 2:
        shape = X.shape if isinstance(X, np.ndarray | jax.Array) else type(X).__name__
        raise ValueError(f"Grid needs points that are vectors, X of shape (n, d), but X is {shape}")
    for name, value in (("X", X), ("weights", weights)):
        if not is_concrete(value):
            raise ValueError(
                f"Grid detects the grid before anything is compiled, but {name} is traced: define "
                "it outside of jit, grad and vmap, so that the function closes over it"
            )
    points = np.asarray(X)
    groups = [tuple(sorted(group)) for group in groups_of_columns(kernel, points.shape[1])]
    is_line = len(groups) == 1
    if is_line:
        dim = points.shape[1]
        if dim > 1:
            raise ValueError(
                f"Grid needs a kernel that is a product over columns of the points, but "
                f"{type(kernel).__name__} depends on all {dim} together: use a product of kernels "
                "On(kernel, column), or a Gaussian or periodic kernel"
            )
        factors = kernel.factors_over_columns(dim)
        if not all(factor.kernel.is_stationary for factor in factors):
            raise ValueError(
                "Grid needs a stationary kernel along a single column, but "
                f"{type(kernel).__name__} is not known to be one: use another solver"
            )
    found = _line(points[:, 0], most) if is_line else _axes(points, groups, most)
    sizes = [len(coordinates) for coordinates in found.axes]
    cells = np.ravel_multi_index(found.numbers, sizes)
    # The cells without a point.
    occupied = np.bincount(cells, minlength=math.prod(sizes))
    if occupied.max() > 1:
        first, second, *_ = np.flatnonzero(cells == occupied.argmax())
        raise ValueError(
            f"X is not a grid: points {first} and {second} are the same: keep one of them, with "
            "weight 2 and the mean of both targets"
        )
    missing = np.flatnonzero(occupied == 0)
    # The points with weights other than one.
    weighted = np.flatnonzero(np.zeros(len(points)) if weights is None else weights != 1)
    if len(missing) + len(weighted) > most:
        raise ValueError(
            f"Grid accepts at most {most} cells that are missing or have a weight other than one, "
            f"but there are {len(missing)} missing and {len(weighted)} weighted: "
            "Grid(max_missing=...) accepts more, with time and memory that grow with their square; "
            "omit rows or columns of the grid with many of them, or use another solver"
        )
    if len(weighted) == len(points):
        raise ValueError(
            "Grid needs at least one point of weight one, but there is none: divide the noise and "
            "all weights by the most frequent weight"
        )
    # Whether the points are the cells in order.
    is_in_order = not len(missing) and bool(np.all(np.diff(cells) == 1))
    return ProductGrid(
        axes=tuple(_as_points(points[:1], *pair) for pair in zip(groups, found.axes)),
        columns=tuple(groups),
        cells=jnp.asarray(cells),
        missing=jnp.asarray(missing),
        weighted=jnp.asarray(weighted),
        lags=_array_or_none(found.lags),
        offsets=_array_or_none(found.offsets),
        order=order,
        in_order=is_in_order,
    )


def _as_points(point: np.ndarray, group: tuple[int, ...], coordinates: np.ndarray) -> Array:
    """Coordinates along some columns as points; the other columns are those of the given point."""
    stack = np.repeat(point, len(coordinates), 0)
    stack[:, group] = coordinates
    return jnp.asarray(stack)


def _array_or_none(numbers: np.ndarray | None) -> Array | None:
    return None if numbers is None else jnp.asarray(numbers)


class _Found(NamedTuple):
    """The detected axes, and the coordinates of the points along them.

    Attributes:
        axes: the coordinates along each axis, in ascending order, (m, columns).
        numbers: for each axis, the index of the coordinate of each point.
        lags: along a single column, equal steps from the first coordinate on, (m,).
        offsets: the deviation of each coordinate from these, (m,); None if all are exact.
    """

    axes: list[np.ndarray]
    numbers: list[np.ndarray]
    lags: np.ndarray | None = None
    offsets: np.ndarray | None = None


_LONGEST_AXIS = 10_000  # coordinates: all their pairs and eigenvectors are stored


def _axes(points: np.ndarray, groups: list[tuple[int, ...]], most: int) -> _Found:
    """The coordinates along each axis. Raises ValueError for points that are not on a grid."""
    axes = []
    numbers = []
    for group in groups:
        if len(group) == 1:
            coordinates, inverse = np.unique(points[:, group[0]], return_inverse=True)
            coordinates = coordinates[:, None]
        else:
            coordinates, inverse = np.unique(points[:, group], axis=0, return_inverse=True)
        axes.append(coordinates)
        numbers.append(inverse.reshape(-1))
        size = math.prod(map(len, axes))
        if size > len(points) + most:
            along = " x ".join(str(len(coordinates)) for coordinates in axes)
            raise ValueError(
                f"X is not a grid: {len(points)} points have {along} coordinates along columns "
                f"{', '.join(map(str, groups[: len(axes)]))}, and Grid accepts at most {most} "
                "missing cells: numbers that differ in their last digit are different "
                "coordinates, so round them first"
            )
    for group, coordinates in zip(groups, axes):
        if len(coordinates) > _LONGEST_AXIS:
            raise ValueError(
                f"Grid factorises a matrix for each axis, of at most {_LONGEST_AXIS} coordinates, "
                f"but columns {group} have {len(coordinates)}: use another solver"
            )
    return _Found(axes, numbers)


def _line(column: np.ndarray, most: int) -> _Found:
    """Equal steps along one column, including those without a point. Raises ValueError for
    coordinates that are not at equal steps.
    """
    known, inverse = np.unique(column, return_inverse=True)
    if len(known) < 2:
        raise ValueError(
            "Grid needs at least two different points along a single column, but there is one: use "
            "another solver"
        )
    # The number of steps from the first to each of several ascending numbers, and the step. The
    # counts are whole numbers, but may be too large for integers.
    gaps = np.diff(known)
    # The mean over all single steps is more accurate than any one of them.
    step = np.mean(gaps[gaps < 1.5 * np.min(gaps)], dtype=float)
    numbers = np.concatenate([[0], np.cumsum(np.rint(gaps / step), dtype=float)])
    size = numbers[-1] + 1
    if size > len(column) + most:
        raise ValueError(
            f"X has {len(known)} of {size:.0f} equal steps of {step:g} along its column, and Grid "
            f"accepts at most {most} missing ones: Grid(max_missing=...) accepts more, with time "
            "and memory that grow with their square, and StateSpace() accepts Matern kernels at "
            "any times"
        )
    numbers = numbers.astype(int)
    # Lags of equal steps from the first to the last given coordinate, and the deviation of each
    # coordinate from its lag, zero where there is none. `numbers` are the step indices of the
    # given coordinates.
    # Relative to the first one, because rounding of coordinates would be as large as the offsets.
    distances = known.astype(float) - float(known[0])
    steps = int(numbers[-1])
    lags = distances[-1] / steps * np.arange(steps + 1)
    offsets = np.zeros(steps + 1)
    offsets[numbers] = distances - lags[numbers]
    off = np.max(np.abs(offsets))
    eps = eps_of(known.dtype)
    if off > 4 * eps * np.max(np.abs(known)):
        raise ValueError(
            "Grid needs points at equal distances along a single column, but X is off by up to "
            f"{off:g} from steps of {step:g}, more than the rounding of its numbers: use the "
            "indices of the steps as points, or StateSpace(), for Matern kernels at any times"
        )
    # The matrix is correct to first order in the offsets: squares of this are within rounding.
    if off > 2 * math.sqrt(eps) * step:
        raise ValueError(
            "Grid needs points at equal distances along a single column, but the numbers of X are "
            f"rounded by up to {off:g}, too much for steps of {step:g}: use the indices of the "
            "steps, np.rint((X - X[0]) / step) in float64, as points, and lengthscales in steps"
        )
    coordinates = known[0] + lags
    coordinates[numbers] = known
    dtype = column.dtype
    return _Found(
        axes=[coordinates.astype(dtype)[:, None]],
        numbers=[numbers[inverse.reshape(-1)]],
        lags=lags.astype(dtype),
        offsets=offsets.astype(dtype) if np.any(offsets) else None,
    )
