"""Rows that are spread over the devices of a mesh."""

from typing import Any, NamedTuple

import jax
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree


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

    def on_all(self, tree: PyTree) -> PyTree:
        """The same arrays, whole on every device."""
        return lax.with_sharding_constraint(tree, NamedSharding(self.mesh, PartitionSpec()))


def rows_over_mesh(X: PyTree) -> RowsOverMesh | None:
    """How the rows of a stack are spread; None for a stack on one device, or whole on each.

    Of a traced stack nothing is known but the mesh of `jax.set_mesh`, whose only axis is taken.
    """
    leaves = jax.tree.leaves(X)
    found = {_rows_of(leaf) for leaf in leaves}
    rows = found.pop() if len(found) == 1 else None
    return rows if rows is not None and len(leaves[0]) % rows.parts == 0 else None


def _rows_of(leaf: Any) -> RowsOverMesh | None:
    """How one array is spread."""
    if isinstance(leaf, jax.core.Tracer):
        return _of_context()
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not sharding.spec:
        return None
    return _checked(sharding.mesh, sharding.spec[0])


def _of_context() -> RowsOverMesh | None:
    """That of the mesh of `jax.set_mesh`."""
    mesh = jax.sharding.get_abstract_mesh()
    only_axis = mesh.axis_names[0] if len(mesh.axis_names) == 1 else None
    return _checked(mesh, only_axis)


def _checked(mesh: Mesh | AbstractMesh, axis: Any) -> RowsOverMesh | None:
    """Rows over a named automatic axis of more than one device; None for any other."""
    if axis not in mesh.axis_names or mesh.shape[axis] == 1:
        return None
    types = dict(zip(mesh.axis_names, mesh.axis_types))
    return RowsOverMesh(mesh, axis) if types[axis] == AxisType.Auto else None
