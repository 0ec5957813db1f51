"""Grid search and random search over the parameters of a model, all candidates in one program."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from kernax.core.base.boundary import as_arrays, check_key
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import Interval
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import (
    ParameterEntry,
    check_count,
    ends_like,
    entry_ending,
    parameters,
)
from kernax.core.base.solution import RESULTS, Solution, finish
from kernax.selection.choose.results_table import Table
from kernax.selection.optimise.batches import Devices, batched
from kernax.selection.optimise.minimise import check_loss

Model = TypeVar("Model")


def grid_search(
    loss: Callable[..., Array],
    model: Model,
    values: Mapping[str, Any],
    *,
    args: tuple = (),
    devices: Devices | None = None,
    progress: bool = False,
    throw: bool = True,
) -> Solution[Model]:
    """Grid search: the model with the lowest `loss(model, *args)` over all combinations of values.

        loss = kernax.selection.CrossValidatedLoss(fit, error)
        lengthscales, ridges = jnp.geomspace(0.1, 10.0, 20), jnp.geomspace(1e-3, 10.0, 20)
        found = kernax.grid_search(
            loss, start, {"lengthscale": lengthscales, "ridge": ridges}, args=(X, y, folds)
        )

    Arguments:
        loss: as for `minimise`, which can start from the result of a grid.
        model: the model to start from; parameters that are not searched keep their values.
        values: for each parameter to search, the values to try: (k,), each for all elements of an
            array, or (k, *shape). A parameter is named by its path, as `describe(model)` shows it,
            or by an end of its path that begins after a point, such as `lengthscale` for
            `kernel.lengthscale`. An index, as in `lengthscale[2]`, names one element.
        args: the arguments of `loss` after the model.
        devices, progress: as for `batched`.
        throw: raise NonFiniteError where no loss is finite; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is the model with the lowest finite loss, the first among equal
        ones. Stats: its `loss`; the `losses` of all combinations (k_1, k_2, ...), in the order of
        `values`, NaN or inf where a fit failed, which `kernax.plot.loss_surface` draws for two
        parameters; `table`, a `Table` with a row for each combination.

    Raises ValueError for a name that matches no parameter or several, and for values that a
    parameter cannot have.

    Examples:
        >>> def loss(kernel):
        ...     return (kernel.lengthscale - 2.0) ** 2
        ...
        >>> values = {"lengthscale": jnp.array([1.0, 1.9, 3.0])}
        >>> solution = kernax.grid_search(loss, kernax.RBF(), values)
        >>> float(solution.value.lengthscale)
        1.9
        >>> jnp.round(solution.stats["losses"], 2)
        Array([1.  , 0.01, 1.  ], dtype=float64)
    """
    check_loss(loss, args)
    # The values of each parameter by its path, (k, *shape).
    axes = {}
    for end, spot in _spots(model, values, "values", "arrays of values").items():
        along = jnp.atleast_1d(jnp.asarray(as_arrays(values[end]), spot.entry.value.dtype))
        name = f"values[{end!r}]"
        _check_inside(along, spot.entry.interval, name)
        # Values (k,) or (k, *shape), as (k, *shape).
        if along.ndim == 1:
            along = along.reshape(-1, *(1 for _ in spot.shape))
            along = jnp.broadcast_to(along, (len(along), *spot.shape))
        elif along.shape[1:] != spot.shape:
            of_shape = ", ".join(map(str, ("k", *spot.shape)))
            raise ValueError(
                f"{name} must have shape (k,) or ({of_shape}), one value of {spot.path} after the "
                f"other, but has shape {along.shape}"
            )
        axes[spot.path] = along
    shape = tuple(len(axis) for axis in axes.values())
    # All combinations of the values of the axes, the last axis varying fastest.
    places = [place.ravel() for place in np.indices(shape)]
    candidates = {path: axis[place] for (path, axis), place in zip(axes.items(), places)}
    search = batched(_Candidate(loss), in_axes=(0, None, None), devices=devices, progress=progress)
    losses = search(candidates, model, args)
    return _best(model, candidates, losses, shape, throw, "grid_search")


@renamed(count="n_candidates")
def random_search(
    loss: Callable[..., Array],
    model: Model,
    ranges: Mapping[str, Any],
    n_candidates: int,
    *,
    key: Key[Array, ""],
    args: tuple = (),
    devices: Devices | None = None,
    progress: bool = False,
    throw: bool = True,
) -> Solution[Model]:
    """Random search: the model with the lowest `loss(model, *args)` among random candidates.

    If few of many parameters matter, it finds a better model than a grid with as many candidates
    (Bergstra & Bengio 2012). Arguments and results are those of `grid_search`, except:

    Arguments:
        ranges: for each parameter that is searched, named as in `grid_search`, a pair (low, high)
            of numbers or arrays of the parameter's shape. Every element is drawn independently,
            uniformly in its unconstrained value (`unconstrain`), for a positive parameter its
            logarithm.
        n_candidates: the number of candidates.
        key: a random key, for the draws.

    Returns:
        A `Solution` as `grid_search` does, with `losses` (n_candidates,).

    Examples:
        >>> def loss(kernel):
        ...     return (kernel.lengthscale - 2.0) ** 2
        ...
        >>> ranges = {"lengthscale": (0.1, 10.0)}
        >>> key = jax.random.key(0)
        >>> solution = kernax.selection.random_search(loss, kernax.RBF(), ranges, 50, key=key)
        >>> bool(solution.stats["loss"] < 0.5)
        True
    """
    check_loss(loss, args)
    check_count(n_candidates, "n_candidates")
    check_key(key)
    # Values of each parameter by its path, (n_candidates, *shape).
    spots = _spots(model, ranges, "ranges", "pairs (low, high)")
    candidates = {}
    for (end, spot), of_one in zip(spots.items(), jax.random.split(key, len(spots))):
        low, high = _checked_range(ranges[end], spot, f"ranges[{end!r}]")
        shape = (n_candidates, *spot.shape)
        share = jax.random.uniform(of_one, shape, low.dtype)
        # t(value) = t(low) + share (t(high) - t(low)), t the map to unconstrained values.
        low = jnp.broadcast_to(low, shape)
        high = jnp.broadcast_to(high, shape)
        interval = spot.entry.interval
        from_low = interval.unconstrain(low)
        to_high = interval.unconstrain(high)
        value = interval.constrain(from_low + share * (to_high - from_low))
        candidates[spot.path] = jnp.clip(value, low, high)  # rounding may exceed the end
    search = batched(_Candidate(loss), in_axes=(0, None, None), devices=devices, progress=progress)
    losses = search(candidates, model, args)
    return _best(model, candidates, losses, (n_candidates,), throw, "random_search")


class _Spot(eqx.Module):
    """A parameter, or one element of it, that is searched.

    Attributes:
        path: its name in candidates and tables.
        entry: the parameter.
        element: the index of the element in the order of `ravel`, None for all of them.
    """

    path: str
    entry: ParameterEntry
    element: int | None

    @staticmethod
    def of(model: PyTree, end: str) -> "_Spot":
        """The parameter with a path that ends like that, or its element if an index follows.

        Raises ValueError if there is no such parameter or element.
        """
        indexed = re.fullmatch(r"(.+)\[(\d+)\]", end)
        if indexed is None or any(ends_like(entry.path, end) for entry in parameters(model)):
            entry = entry_ending(model, end)
            return _Spot(entry.path, entry, None)
        entry = entry_ending(model, indexed[1])
        element = int(indexed[2])
        if element >= entry.value.size:
            raise ValueError(
                f"{end!r} names an element that does not exist: {entry.path} has "
                f"{entry.value.size} elements, counted from 0"
            )
        return _Spot(f"{entry.path}[{element}]", entry, element)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.entry.value.shape if self.element is None else ()

    def overlaps(self, other: "_Spot") -> bool:
        """Whether both change the same element."""
        whole = self.element is None or other.element is None
        same_leaf = self.entry.leaf_index == other.entry.leaf_index
        return same_leaf and (whole or self.element == other.element)

    def set(self, leaf: Array, value: Array) -> Array:
        """The parameter with another value here."""
        if self.element is None:
            return value
        return leaf.ravel().at[self.element].set(value).reshape(leaf.shape)


def _spots(model: PyTree, named: Any, name: str, what: str) -> dict[str, _Spot]:
    """The parameters to search, by the user's names for them.

    Raises ValueError for anything but a dictionary of at least one parameter, or one that names a
    parameter twice.
    """
    if not isinstance(named, Mapping) or not named:
        raise ValueError(f"{name} must be a dictionary from parameters to {what}, but is {named!r}")
    spots: dict[str, _Spot] = {}
    for end in named:
        spot = _Spot.of(model, end)
        for other in spots.values():
            if spot.overlaps(other):
                raise ValueError(f"{name} names {spot.path} and {other.path}, which overlap")
        spots[end] = spot
    return spots


class _Candidate(eqx.Module):
    """The loss of a model with other values of some parameters."""

    loss: Callable[..., Array]

    def __call__(self, values: dict[str, Array], model: PyTree, args: tuple) -> Array:
        loss = self.loss(_with_values(model, values), *args)
        if jnp.shape(loss) != ():
            raise ValueError(f"loss must return a scalar, but returns shape {jnp.shape(loss)}")
        return loss


def _with_values(model: Model, values: Mapping[str, Array]) -> Model:
    """The model with other values, by their paths."""
    leaves, structure = jax.tree.flatten(model)
    for path, value in values.items():
        spot = _Spot.of(model, path)
        leaves[spot.entry.leaf_index] = spot.set(leaves[spot.entry.leaf_index], value)
    return jax.tree.unflatten(structure, leaves)


def _best(
    model: Model,
    candidates: dict[str, Array],
    losses: Array,
    shape: tuple[int, ...],
    throw: bool,
    function_name: str,
) -> Solution[Model]:
    finite = jnp.isfinite(losses)
    # argmin_c L(candidate_c) over the candidates with a finite loss.
    best = jnp.argmin(jnp.where(finite, losses, jnp.inf))
    chosen = _with_values(model, {path: value[best] for path, value in candidates.items()})
    result = RESULTS.where(jnp.any(finite), RESULTS.successful, RESULTS.nonfinite)
    stats = {
        "loss": jnp.where(jnp.any(finite), losses[best], jnp.nan),
        "losses": losses.reshape(shape),
        "table": Table({**candidates, "loss": losses}),
    }
    advice = "Look for NaN in args, and at fits that fail."
    hint = f"{function_name}: no candidate has a finite loss. {advice}"
    return finish(Solution(chosen, result, stats), throw, hint)


def _check_inside(axis: Array, interval: Interval, name: str) -> None:
    """Raises ValueError if there is no value, and for known values outside the interval of the
    parameter.
    """
    if not axis.size:
        raise ValueError(f"{name} must hold at least one value")
    if is_concrete(axis) and not interval.contains(axis):
        raise ValueError(f"{name} must be {interval.demand}, but is {axis}")


def _checked_range(ends: Any, spot: _Spot, name: str) -> tuple[Array, Array]:
    """The ends of a range. Raises ValueError for anything else."""
    if not isinstance(ends, (tuple, list)) or len(ends) != 2:
        raise ValueError(f"{name} must be a pair (low, high), but is {ends!r}")
    low, high = (jnp.asarray(as_arrays(end), spot.entry.value.dtype) for end in ends)
    for end in (low, high):
        if end.shape not in ((), spot.shape):
            raise ValueError(
                f"{name} must hold numbers, or arrays of the shape {spot.shape} of {spot.path}, "
                f"but one has shape {end.shape}"
            )
        # At a closed end, such as a scale of zero, the unconstrained value is infinite.
        _check_inside(end, Interval(spot.entry.interval.low, spot.entry.interval.high), name)
    if is_concrete(low, high) and np.any(np.asarray(low) > np.asarray(high)):
        raise ValueError(f"{name} must be a pair (low, high), but {low} is above {high}")
    return low, high
