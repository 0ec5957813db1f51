"""Searching the parameters of a model on a grid, or at random, all candidates in one program."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from kernax.core.boundary import as_arrays, check_key
from kernax.core.intervals import Interval
from kernax.core.numerics import is_concrete
from kernax.core.parameters import Entry, check_count, entry_ending, parameters
from kernax.core.solution import RESULTS, Solution, finish
from kernax.selection.batches import batched
from kernax.selection.table import Table

Model = TypeVar("Model")


def grid(
    loss: Callable[..., Array],
    model: Model,
    values: Mapping[str, Any],
    *,
    args: tuple = (),
    devices: Sequence[jax.Device] | None = None,
    progress: bool = False,
    throw: bool = True,
) -> Solution[Model]:
    """The model of lowest `loss(model, *args)`, of all combinations of values of some parameters.

        loss = kernax.CrossValidatedLoss(fit, error)
        lengthscales, ridges = jnp.geomspace(0.1, 10.0, 20), jnp.geomspace(1e-3, 10.0, 20)
        found = kernax.grid(
            loss, start, {"lengthscale": lengthscales, "ridge": ridges}, args=(X, y, folds)
        )

    Arguments:
        loss: as for `minimise`, which goes on from where a grid ends.
        model: other parameters keep the values that they have here.
        values: for the ends of the paths of some parameters (`describe(model)` shows them, and an
            end begins after a point), the values to try: (k,), the same for all elements of an
            array, or (k, *shape).
        args: what `loss` takes after the model.
        devices, progress: as for `batched`.
        throw: raise NonFiniteError where no loss is finite; otherwise look at `result`.

    Returns:
        A `Solution`, whose `value` is the model of the lowest finite loss, the first of equal ones.
        Stats: its `loss`; the `losses` of all combinations (k_1, k_2, ...), in the order of
        `values`, NaN or inf where a fit failed; `table`, a `Table` with a row for each.

    Raises ValueError for ends of no parameter or of several, and values outside of its interval.
    """
    axes = _axes(model, values)
    shape = tuple(len(axis) for axis in axes.values())
    places = [place.ravel() for place in np.indices(shape)]
    candidates = {path: axis[place] for (path, axis), place in zip(axes.items(), places)}
    search = batched(_Candidate(loss), in_axes=(0, None, None), devices=devices, progress=progress)
    losses = search(candidates, model, tuple(args))
    return _best(model, candidates, losses, shape, throw, "grid")


def random_search(
    loss: Callable[..., Array],
    model: Model,
    ranges: Mapping[str, Any],
    count: int,
    *,
    key: Key[Array, ""],
    args: tuple = (),
    devices: Sequence[jax.Device] | None = None,
    progress: bool = False,
    throw: bool = True,
) -> Solution[Model]:
    """The model of lowest `loss(model, *args)`, of some whose parameters are drawn at random.

    Where many parameters are searched, of which few matter, it finds a better one than a grid of as
    many candidates (Bergstra & Bengio 2012). Arguments and results are those of `grid`, but for:

    Arguments:
        ranges: for the ends of the paths of some parameters, pairs (low, high) of numbers or arrays
            of the parameter's shape. Every element is drawn by itself, evenly on the unconstrained
            line (`unconstrain`), where a positive parameter is its logarithm.
        count: how many candidates are drawn.
        key: draws them.

    Returns:
        A `Solution` as `grid` does, with `losses` (count,).
    """
    check_count(count, "count")
    check_key(key)
    candidates = _drawn(model, ranges, count, key)
    search = batched(_Candidate(loss), in_axes=(0, None, None), devices=devices, progress=progress)
    losses = search(candidates, model, tuple(args))
    return _best(model, candidates, losses, (count,), throw, "random_search")


class _Candidate(eqx.Module):
    """The loss of a model in which some parameters have other values."""

    loss: Callable[..., Array]

    def __call__(self, values: dict[str, Array], model: PyTree, args: tuple) -> Array:
        loss = self.loss(with_values(model, values), *args)
        if jnp.shape(loss) != ():
            raise ValueError(f"loss must return a scalar, but returns shape {jnp.shape(loss)}")
        return loss


def with_values(model: Model, values: Mapping[str, Array]) -> Model:
    """The model with other values of the parameters at these paths."""
    leaves, structure = jax.tree.flatten(model)
    for entry in parameters(model):
        if entry.path in values:
            leaves[entry.place] = values[entry.path].astype(entry.value.dtype)
    return jax.tree.unflatten(structure, leaves)


def _best(
    model: Model,
    candidates: dict[str, Array],
    losses: Array,
    shape: tuple[int, ...],
    throw: bool,
    verb: str,
) -> Solution[Model]:
    """The candidate of the lowest finite loss."""
    finite = jnp.isfinite(losses)
    best = jnp.argmin(jnp.where(finite, losses, jnp.inf))
    chosen = with_values(model, {path: value[best] for path, value in candidates.items()})
    result = RESULTS.where(jnp.any(finite), RESULTS.successful, RESULTS.nonfinite)
    stats = {
        "loss": jnp.where(jnp.any(finite), losses[best], jnp.nan),
        "losses": losses.reshape(shape),
        "table": Table({**candidates, "loss": losses}),
    }
    hint = f"{verb}: no candidate has a finite loss. Look for NaN in args, and at fits that fail."
    return finish(Solution(chosen, result, stats), throw, hint)


def _axes(model: PyTree, values: Any) -> dict[str, Array]:
    """The values of each parameter by its path, in its shape."""
    _check_named(values, "values", "arrays of values")
    axes = {}
    for end, of_end in values.items():
        entry = entry_ending(model, end)
        axis = jnp.atleast_1d(jnp.asarray(as_arrays(of_end), entry.value.dtype))
        name = f"values[{end!r}]"
        axes[entry.path] = _in_shape(axis, entry, name)
        _check_inside(axis, entry.interval, name)
    return axes


def _check_named(values: Any, name: str, what: str) -> None:
    """Raises ValueError for what is no dictionary of at least one parameter."""
    if not isinstance(values, Mapping) or not values:
        raise ValueError(
            f"{name} must be a dictionary from parameters to {what}, but is {values!r}"
        )


def _in_shape(axis: Array, entry: Entry, name: str) -> Array:
    """Values (k,) or (k, *shape) as (k, *shape)."""
    shape = entry.value.shape
    if axis.ndim == 1:
        axis = axis.reshape(-1, *(1 for _ in shape))
        return jnp.broadcast_to(axis, (len(axis), *shape))
    if axis.shape[1:] != shape:
        raise ValueError(
            f"{name} must have shape (k,) or (k, {', '.join(map(str, shape))}), one value of "
            f"{entry.path} after the other, but has shape {axis.shape}"
        )
    return axis


def _check_inside(axis: Array, interval: Interval, name: str) -> None:
    """Raises ValueError for no value, and for known ones that the parameter cannot have."""
    if not axis.size:
        raise ValueError(f"{name} must hold at least one value")
    if is_concrete(axis) and not interval.contains(np.asarray(axis)):
        raise ValueError(f"{name} must be in {interval} and finite, but is {axis}")


def _drawn(model: PyTree, ranges: Any, count: int, key: Key[Array, ""]) -> dict[str, Array]:
    """Values of each parameter by its path, (count, *shape)."""
    _check_named(ranges, "ranges", "pairs (low, high)")
    candidates = {}
    for (end, ends), of_one in zip(ranges.items(), jax.random.split(key, len(ranges))):
        entry = entry_ending(model, end)
        low, high = _checked_range(ends, entry, f"ranges[{end!r}]")
        shape = (count, *entry.value.shape)
        share = jax.random.uniform(of_one, shape, entry.value.dtype)
        ends_of_each = jnp.broadcast_to(low, shape), jnp.broadcast_to(high, shape)
        candidates[entry.path] = _between(*ends_of_each, share, entry.interval)
    return candidates


def _checked_range(ends: Any, entry: Entry, name: str) -> tuple[Array, Array]:
    """The ends of a range. Raises ValueError for what is none."""
    if not isinstance(ends, (tuple, list)) or len(ends) != 2:
        raise ValueError(f"{name} must be a pair (low, high), but is {ends!r}")
    low, high = (jnp.asarray(as_arrays(end), entry.value.dtype) for end in ends)
    for end in (low, high):
        _check_end(end, entry, name)
    if is_concrete(low, high) and np.any(np.asarray(low) > np.asarray(high)):
        raise ValueError(f"{name} must be a pair (low, high), but {low} is above {high}")
    return low, high


def _check_end(end: Array, entry: Entry, name: str) -> None:
    """Raises ValueError for an end of another shape, or outside of the open interval."""
    if end.shape not in ((), entry.value.shape):
        raise ValueError(
            f"{name} must hold numbers, or arrays of the shape {entry.value.shape} of "
            f"{entry.path}, but one has shape {end.shape}"
        )
    # At a closed end, such as a scale of zero, the unconstrained value is infinite.
    _check_inside(end, Interval(entry.interval.low, entry.interval.high), name)


def _between(low: Array, high: Array, share: Array, interval: Interval) -> Array:
    """That share of the way from low to high, of unconstrained values."""
    start = interval.unconstrain(low)
    end = interval.unconstrain(high)
    value = interval.constrain(start + share * (end - start))
    return jnp.clip(value, low, high)  # rounding may go beyond
