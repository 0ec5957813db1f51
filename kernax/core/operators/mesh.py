"""Batches of points with rows that are spread over the devices of a mesh."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.core
from jax import lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from kernax._advice import OVER_A_MESH
from kernax.core.base.boundary import count
from kernax.core.base.compiled import compiled
from kernax.core.operators.operators import AbstractGram, ScaledGram


class RowsOverMesh(NamedTuple):
    """The first axis of every array of a batch is divided evenly over axes of a mesh."""

    mesh: Mesh | AbstractMesh
    axes: tuple[str, ...]

    @property
    def parts(self) -> int:
        """The number of devices that share the rows."""
        return math.prod(self.mesh.shape[axis] for axis in self.axes)

    @property
    def spec(self) -> PartitionSpec:
        """The partition of an array of rows, for `jax.shard_map`."""
        return PartitionSpec(self.axes)


def rows_over_mesh(X: PyTree) -> RowsOverMesh | None:
    """The distribution of the rows of a batch; None for a batch on one device, or copied to each.

    For a traced batch only the mesh is known: that of the arrays it is computed from, or else that
    of `jax.set_mesh`. Its rows are then assumed to be spread over as many of the first automatic
    axes as share them evenly. If they are laid out otherwise XLA moves them, and dividing a batch
    that is copied to each device costs nothing.
    """
    n = count(X)
    common = None
    for place, leaf in enumerate(jax.tree.leaves(X)):
        if isinstance(leaf, jax.core.Tracer):
            # The mesh of the arrays from which it is computed, else that of the context.
            mesh = jax.typeof(leaf).sharding.mesh
            mesh = jax.sharding.get_abstract_mesh() if mesh.empty else mesh
            # As many of the first automatic axes as share n rows evenly.
            rows = RowsOverMesh(mesh, _automatic(mesh))
            while n % rows.parts:
                rows = RowsOverMesh(mesh, rows.axes[:-1])
        else:
            sharding = getattr(leaf, "sharding", None)
            rows = _rows_of(sharding) if isinstance(sharding, NamedSharding) else None
        if rows is None or (place and rows != common):
            return None
        common = rows
    return common if common is not None and common.parts > 1 and n % common.parts == 0 else None


def _rows_of(sharding: NamedSharding) -> RowsOverMesh | None:
    """The distribution of the rows of a concrete array; None if they are not spread."""
    first = tuple(sharding.spec[:1])
    axes = first[0] if first and isinstance(first[0], tuple) else first
    are_automatic = bool(axes) and set(axes) <= set(_automatic(sharding.mesh))
    return RowsOverMesh(sharding.mesh, axes) if are_automatic else None


def _automatic(mesh: Mesh | AbstractMesh) -> tuple[str, ...]:
    types = zip(mesh.axis_names, mesh.axis_types)
    return tuple(name for name, kind in types if kind == AxisType.Auto)


def check_same_devices(X: PyTree, **others: PyTree) -> None:
    """Raises ValueError, naming the array, for arrays on other devices than X, because JAX cannot
    compute with both.
    """
    # The devices of the first array of each argument that is committed to devices.
    devices_of = {}
    for name, tree in {"X": X, **others}.items():
        for leaf in jax.tree.leaves(tree):
            is_known = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
            if is_known and leaf.committed:
                devices_of.setdefault(name, frozenset(leaf.devices()))
    of_X = devices_of.get("X")
    for name, devices in devices_of.items():
        if of_X is not None and devices != of_X:
            raise ValueError(
                f"{name} must be on the devices of X, {_in_words(of_X)}, but is on "
                f"{_in_words(devices)}: {OVER_A_MESH} spreads them all over one mesh, and NumPy "
                "arrays are moved to the devices of X"
            )


def _in_words(devices: frozenset[Any]) -> str:
    """The name of one device, or the number of several and the name of the first."""
    first = min(devices, key=lambda device: device.id)
    return f"{first} alone" if len(devices) == 1 else f"{len(devices)} devices from {first} on"


def spread_of(gram: AbstractGram) -> RowsOverMesh | None:
    """The distribution of the rows of vectors that a Gram matrix multiplies."""
    if isinstance(gram, ScaledGram):
        return spread_of(gram.gram)
    return getattr(gram, "spread", None)


@compiled
def whole_on_each(tree: PyTree, rows: RowsOverMesh) -> Any:
    """The same arrays, copied to every device of the mesh."""
    return lax.with_sharding_constraint(tree, NamedSharding(rows.mesh, PartitionSpec()))


@compiled
def by_rows(X: PyTree, rows: RowsOverMesh) -> Any:
    """The same batch, with its rows over the mesh."""
    return lax.with_sharding_constraint(X, NamedSharding(rows.mesh, rows.spec))


def on_parts(
    function: Callable, rows: RowsOverMesh, whole: PyTree, *stacks: PyTree, joined: bool = False
) -> Any:
    """`function(whole, *parts)` on every device, where `whole` is the same on all devices, and the
    parts are the device's own rows of the batches.

    It returns rows, which are concatenated, or with `joined` values that are the same on all
    devices. The function may use the collectives of `jax.lax` over `rows.axes`.
    """
    arrays, rest = eqx.partition(whole, eqx.is_array)

    def of_part(arrays: PyTree, *parts: PyTree) -> Any:
        return function(eqx.combine(arrays, rest), *parts)

    in_specs = (PartitionSpec(), *[rows.spec] * len(stacks))
    # Variation over devices is not tracked, because loops inside of kernels do not preserve it.
    out_specs = PartitionSpec() if joined else rows.spec
    mapped = jax.shard_map(
        of_part, mesh=rows.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )
    return mapped(arrays, *stacks)
