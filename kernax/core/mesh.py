"""Rows that are spread over the devices of a mesh."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.core
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from kernax.core.boundary import count
from kernax.core.operators import AbstractGram, LowRankGram, ScaledGram
from kernax.core.sharding import compiled


class RowsOverMesh(NamedTuple):
    """The first axis of every array of a stack is divided evenly over an axis of a mesh."""

    mesh: Mesh | AbstractMesh
    axis: str

    @property
    def parts(self) -> int:
        """How many devices share the rows."""
        return self.mesh.shape[self.axis]

    @property
    def spec(self) -> PartitionSpec:
        """That of an array of rows, for `jax.shard_map`."""
        return PartitionSpec(self.axis)


def rows_over_mesh(X: PyTree) -> RowsOverMesh | None:
    """How the rows of a stack are spread; None for a stack on one device, or whole on each.

    Of a traced stack only the mesh is known, that of the arrays it is computed from, or else of
    `jax.set_mesh`: its only axis is taken.
    """
    found = {_rows_of(leaf) for leaf in jax.tree.leaves(X)}
    rows = found.pop() if len(found) == 1 else None
    return rows if rows is not None and count(X) % rows.parts == 0 else None


def _rows_of(leaf: Any) -> RowsOverMesh | None:
    """How one array is spread."""
    if isinstance(leaf, jax.core.Tracer):
        mesh = _mesh_of(leaf)
        only_axis = mesh.axis_names[0] if len(mesh.axis_names) == 1 else None
        return _checked(mesh, only_axis)
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not sharding.spec:
        return None
    return _checked(sharding.mesh, sharding.spec[0])


def _mesh_of(traced: jax.core.Tracer) -> AbstractMesh:
    """That of the arrays from which one is computed, else that of the context."""
    mesh = jax.typeof(traced).sharding.mesh
    return jax.sharding.get_abstract_mesh() if mesh.empty else mesh


def _checked(mesh: Mesh | AbstractMesh, axis: Any) -> RowsOverMesh | None:
    """Rows over a named automatic axis of more than one device; None for any other."""
    if axis not in mesh.axis_names or mesh.shape[axis] == 1:
        return None
    types = dict(zip(mesh.axis_names, mesh.axis_types))
    return RowsOverMesh(mesh, axis) if types[axis] == AxisType.Auto else None


@functools.singledispatch
def spread_of(gram: AbstractGram) -> RowsOverMesh | None:
    """How the rows of what a Gram matrix is multiplied with are spread."""
    return None


@spread_of.register
def _(gram: ScaledGram) -> RowsOverMesh | None:
    return spread_of(gram.gram)


@spread_of.register
def _(gram: LowRankGram) -> RowsOverMesh | None:
    return gram.spread


@compiled
def whole_on_each(tree: PyTree, rows: RowsOverMesh) -> Any:
    """The same arrays, all of them on every device of the mesh."""
    return lax.with_sharding_constraint(tree, NamedSharding(rows.mesh, PartitionSpec()))


@compiled
def by_rows(X: PyTree, rows: RowsOverMesh) -> Any:
    """The same stack, its rows over the mesh."""
    return lax.with_sharding_constraint(X, NamedSharding(rows.mesh, rows.spec))


def on_parts(
    function: Callable, rows: RowsOverMesh, whole: PyTree, *stacks: PyTree, joined: bool = False
) -> Any:
    """`function(whole, *parts)` on every device, of what all of them have and of their own rows of
    stacks; the rows that it returns, put together, or what is the same on all, where it has
    `joined` them.

    Inside, `jax.lax` has collectives over `rows.axis`.
    """
    arrays, rest = eqx.partition(whole, eqx.is_array)

    def of_part(arrays: PyTree, *parts: PyTree) -> Any:
        return function(eqx.combine(arrays, rest), *parts)

    in_specs = (PartitionSpec(), *[rows.spec] * len(stacks))
    # Without a record of what varies over devices, which loops inside of kernels do not keep.
    out_specs = PartitionSpec() if joined else rows.spec
    mapped = jax.shard_map(
        of_part, mesh=rows.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
    return mapped(arrays, *stacks)
