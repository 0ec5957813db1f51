"""A loss on a grid of some parameters' values."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from kernax.core.numerics import is_concrete
from kernax.core.parameters import Entry, as_floats, check_count, parameters, shown
from kernax.core.sharding import compiled
from kernax.selection.minimise import strongly_typed


@dataclasses.dataclass(frozen=True)
class _Spot:
    """A parameter by its place among the leaves of a model, or one element of it."""

    place: int
    element: int | None

    def set(self, leaf: Array, value: Array) -> Array:
        """The leaf with the value at this spot; all elements have it where none is named."""
        if self.element is None:
            return jnp.broadcast_to(value, leaf.shape)
        return leaf.ravel().at[self.element].set(value).reshape(leaf.shape)


def loss_surface(
    loss: Callable[..., Array],
    model: Any,
    values: Mapping[str, ArrayLike],
    *,
    args: tuple = (),
    batch_size: int | None = None,
) -> Float[Array, "..."]:
    """`loss(model, *args)` for every combination of values of some parameters: (a, b, ...).

    One `vmap`, compiled once for given `loss` and shapes. Where a solve fails the loss is what it
    is then, NaN of most verbs. `kernax.plot.loss_surface` draws that of two parameters.

    Arguments:
        loss: a scalar, as for `minimise`. Define it once, at module level.
        model: a pytree of modules and arrays.
        values: (a,), (b,), ... for each parameter, by its path in `kernax.describe(model)`, such as
            `kernel.lengthscale`; all elements of an array get the value. An index, as in
            `kernel.lengthscale[2]`, is one element of it, in the order of `ravel`. All other
            parameters stay as they are.
        args: what `loss` takes after the model.
        batch_size: how many combinations are evaluated at a time, since each may hold a matrix K;
            default, all.

    Raises ValueError for no parameters, one that the model does not have or that is named twice,
    values outside of its interval, and a loss that is not a scalar.
    """
    if not callable(loss):
        raise ValueError(f"loss must be a function of a model, but is a {type(loss).__name__}")
    if not isinstance(args, tuple):
        raise ValueError(
            f"args must be a tuple of what loss takes after the model, but is {type(args).__name__}"
        )
    if batch_size is not None:
        check_count(batch_size, "batch_size")
    spots, axes = _checked(model, values)
    return _evaluated(loss, model, spots, axes, strongly_typed(args), batch_size)


def _checked(
    model: Any, values: Mapping[str, ArrayLike]
) -> tuple[tuple[_Spot, ...], tuple[Array, ...]]:
    """Where the values belong, and the values. Raises ValueError for what does not fit."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError(
            "values must hold an array for each parameter by its path, such as "
            f"{{'kernel.lengthscale': [0.1, 1.0]}}, but is {values!r}"
        )
    entries = {entry.path: entry for entry in parameters(model)}
    spots = []
    axes = []
    for path, given in values.items():
        entry, element = _entry(entries, path)
        spot = _Spot(entry.place, element)
        _check_new(spot, spots, path)
        spots.append(spot)
        axes.append(_axis(entry, path, given))
    return tuple(spots), tuple(axes)


def _entry(entries: dict[str, Entry], path: str) -> tuple[Entry, int | None]:
    """The parameter at a path, and the index at its end if it has one."""
    if path in entries:
        return entries[path], None
    indexed = re.fullmatch(r"(.+)\[(\d+)\]", path)
    if indexed and indexed[1] in entries:
        entry = entries[indexed[1]]
        element = int(indexed[2])
        if element < entry.value.size:
            return entry, element
        raise ValueError(f"{path}: {entry.path} has {entry.value.size} elements")
    raise ValueError(f"the model has no parameter {path!r}; it has {', '.join(entries) or 'none'}")


def _check_new(spot: _Spot, spots: list[_Spot], path: str) -> None:
    """Raises ValueError where a parameter, or an element of it, is named twice."""
    for other in spots:
        whole = spot.element is None or other.element is None
        if spot.place == other.place and (whole or spot.element == other.element):
            raise ValueError(f"values name the parameter of {path!r} twice")


def _axis(entry: Entry, path: str, given: ArrayLike) -> Array:
    """Values in the dtype of their parameter. Raises ValueError for what it may not be."""
    axis = jnp.asarray(as_floats(given), entry.value.dtype)
    if axis.ndim != 1 or axis.size == 0:
        raise ValueError(f"the values of {path} must have shape (a,), a >= 1, not {axis.shape}")
    if is_concrete(axis) and not entry.interval.contains(np.asarray(axis)):
        raise ValueError(
            f"the values of {path} must be in {entry.interval} and finite, but are "
            f"{shown(np.asarray(axis))}"
        )
    return axis


@compiled
def _evaluated(
    loss: Callable,
    model: Any,
    spots: tuple[_Spot, ...],
    axes: tuple[Array, ...],
    args: tuple,
    batch_size: int | None,
) -> Array:
    """The loss on the grid of all values."""
    leaves, structure = jax.tree.flatten(model)

    def at(values: list[Array]) -> Array:
        changed = list(leaves)
        for spot, value in zip(spots, values):
            changed[spot.place] = spot.set(changed[spot.place], value)
        return _scalar(loss(jax.tree.unflatten(structure, changed), *args))

    grid = [part.ravel() for part in jnp.meshgrid(*axes, indexing="ij")]
    if batch_size is None:
        losses = jax.vmap(at)(grid)
    else:
        losses = jax.lax.map(at, grid, batch_size=batch_size)
    return losses.reshape([len(axis) for axis in axes])


def _scalar(value: Any) -> Array:
    """A loss as an array of floats. Raises ValueError unless it is a scalar."""
    if not eqx.is_array_like(value) or jnp.shape(value) != ():
        what = f"shape {jnp.shape(value)}" if eqx.is_array_like(value) else type(value).__name__
        raise ValueError(f"loss must return a scalar alone, but returns {what}")
    return as_floats(value)
