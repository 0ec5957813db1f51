"""Layouts of arrays over the devices of a mesh: which of them verbs take."""

from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType


def check_axes(value: Any, name: str) -> None:
    """Raises ValueError for an array laid out over explicit axes of a mesh, and for one on another
    mesh than that of `jax.set_mesh`.
    """
    if not isinstance(value, jax.Array):
        return
    sharding = jax.typeof(value).sharding
    axes = [axis for axis in sharding.spec if axis is not None]
    if axes:
        raise ValueError(
            f"{name} must be laid out over automatic axes of a mesh, but has explicit ones, "
            f"{axes[0]!r}: jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,)) makes "
            "automatic ones"
        )
    check_mesh(sharding.mesh, name)


def check_mesh(mesh: AbstractMesh, name: str) -> None:
    """Raises ValueError for a mesh other than that of `jax.set_mesh`, if there are both."""
    known = jax.sharding.get_abstract_mesh()
    if not (known.empty or mesh.empty or _are_alike(known, mesh)):
        raise ValueError(
            f"{name} must be on the mesh of jax.set_mesh, {_of_axes(known)}, but is on one of "
            f"{_of_axes(mesh)}: call jax.set_mesh(X.sharding.mesh) for these X, or not at all"
        )


def _are_alike(mesh: AbstractMesh, other: AbstractMesh) -> bool:
    """Whether two meshes have the same axes. Manual ones, as inside `shard_map`, match any kind."""
    kinds = zip(mesh.axis_types, other.axis_types)
    are_same = all(one == two or AxisType.Manual in (one, two) for one, two in kinds)
    return mesh.shape_tuple == other.shape_tuple and are_same


def _of_axes(mesh: AbstractMesh) -> str:
    """The axes of a mesh, in words."""
    kinds = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types)
    return ", ".join(f"{kind.name} {name!r} of {size}" for name, size, kind in kinds)
