"""Lays rows out over the devices of a mesh; functions then compute as on one device."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jaxtyping import PyTree

from kernax.core.base.boundary import check_precision, dtype_of
from kernax.core.operators.mesh import RowsOverMesh
from kernax.scale.data.parquet import ParquetRows


def rows_over(
    mesh: Mesh,
    X: PyTree,
    y: PyTree | None = None,
    weights: PyTree | None = None,
    *,
    axis: str | Sequence[str] | None = None,
) -> tuple[PyTree, PyTree | None, PyTree | None]:
    """Distributes the n rows of X, y and weights evenly over the devices of a mesh.

    Functions of kernax accept the results like any arrays:

        mesh = jax.make_mesh((jax.device_count(),), ("rows",))
        X, y, weights = kernax.scale.rows_over(mesh, X, y)
        kernax.kernel_ridge(kernel, X, y, 0.1, weights=weights, block_size="auto")

    Under `jit`, as in a loss for `minimise`, they find the mesh in their arguments as well.

    If the number of devices does not divide n, copies of the last row with weight zero are added,
    which functions leave out exactly. Pass the returned weights: without them the copies count.

    Arguments:
        mesh: a JAX mesh with a single axis, or with the axes that `axis` names.
        X: a batch of points. It may be a NumPy array, such as a memory map, or `ParquetRows`: each
            process reads only the rows of its own devices.
        y: targets, or any other array with as many rows; or None.
        weights: (n,), or None.
        axis: the name of an axis, required for a mesh with several axes; or a tuple of names, such
            as `mesh.axis_names`, to share the rows among all devices of these axes.

    Returns:
        X, y and weights, laid out over automatic axes, whatever the kind of axes of the mesh:
        `X.sharding.mesh` is the mesh with such axes. Weights are None if none were given and no row
        was added.

    Raises:
        ValueError: arrays of different lengths, without rows, with anything but numbers, or spread
            over processes already; an axis that the mesh does not have.
    """
    if not isinstance(mesh, Mesh):
        raise ValueError(
            f'mesh must be a JAX mesh, such as jax.make_mesh((8,), ("rows",)), but is {mesh!r}'
        )
    types = (AxisType.Auto,) * len(mesh.axis_names)
    automatic = Mesh(mesh.devices, mesh.axis_names, axis_types=types)
    # The axes that rows lie over.
    names = mesh.axis_names
    if axis is None:
        axes = names if len(names) == 1 else ()
    else:
        axes = (axis,) if isinstance(axis, str) else tuple(axis)
    if not axes or not all(name in names and axes.count(name) == 1 for name in axes):
        came = "none was named" if axis is None else f"axis is {axis!r}"
        raise ValueError(
            f"the mesh has the axes {', '.join(map(repr, names))}, but {came}: name the one to lay "
            f"rows over, such as axis={names[0]!r}"
        )
    over = RowsOverMesh(automatic, axes)
    stacks = jax.tree.map(_as_array, (X, y, weights), is_leaf=lambda value: isinstance(value, list))
    # All arrays must have the same number of rows, at least one.
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(stacks)]
    lengths = {shape[:1] for shape in shapes}
    if len(lengths) != 1 or lengths <= {(), (0,)}:
        came = ", ".join(map(str, shapes))
        raise ValueError(f"X, y and weights must have one number of rows >= 1, but have {came}")
    n = shapes[0][0]
    missing = -n % over.parts
    X, y, weights = stacks
    if weights is None and missing:
        weights = np.ones(n, dtype_of(X))
    layout = NamedSharding(over.mesh, over.spec)
    X, y = jax.tree.map(lambda leaf: _laid_out(_Filled(leaf, leaf[-1:], missing), layout), (X, y))
    if weights is not None:
        weights = _laid_out(_Filled(weights, np.zeros_like(weights[-1:]), missing), layout)
    return X, y, weights


class _Filled:
    """An array with copies of one row added at its end; rows are only read on access."""

    def __init__(self, array: Any, row: Any, missing: int):
        self._array = array
        self._row = row
        self.shape = (len(array) + missing, *array.shape[1:])
        # As in JAX: integers that it would truncate become floats, except for a single column of
        # them, which may be indices.
        narrow = jax.dtypes.canonicalize_dtype(array.dtype)
        is_integer = np.issubdtype(array.dtype, np.integer)
        is_cut_off = array.ndim > 1 and is_integer and narrow != array.dtype
        self.dtype = jax.dtypes.canonicalize_dtype(float) if is_cut_off else narrow

    def rows(self, start: int, stop: int) -> np.ndarray:
        """The rows from one index to another."""
        known = np.asarray(self._array[start:stop], self.dtype)
        added = np.repeat(np.asarray(self._row, self.dtype), stop - start - len(known), 0)
        return np.concatenate([known, added]) if len(added) else known


def _laid_out(stack: _Filled, layout: NamedSharding) -> jax.Array:
    """A JAX array; this process makes the parts on its own devices."""

    def part(index: Any) -> np.ndarray:
        start, stop, _ = index[0].indices(stack.shape[0])
        return stack.rows(start, stop)

    return jax.make_array_from_callback(stack.shape, layout, part, dtype=stack.dtype)


def _as_array(value: Any) -> Any:
    """A list or a table as a NumPy array; arrays and `ParquetRows` as they are, with the same
    warning about their precision as functions give.
    """
    check_precision(value)
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        raise ValueError(
            "X, y and weights must be arrays that each process can read, but one of shape "
            f"{value.shape} is spread over processes already: pass what it was made of"
        )
    if isinstance(value, (jax.Array, ParquetRows)):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biufcV":  # V: dtypes of JAX that NumPy does not know
        raise ValueError(
            f"X, y and weights must be numbers, but one is of type {array.dtype}: "
            "kernax.strings.encode turns texts into points, kernax.signs and kernax.one_hot turn "
            "labels into targets"
        )
    return array
