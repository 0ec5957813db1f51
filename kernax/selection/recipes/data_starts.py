"""Learning from starts that are drawn from the range of the data."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree

from kernax.core.base.parameters import (
    ParameterEntry,
    Trainable,
    ends_like,
    parameters,
    unconstrain,
)
from kernax.core.base.solution import Solution
from kernax.selection.optimise.minimise import minimise
from kernax.selection.optimise.multi_start import multi_start, random_starts

Model = TypeVar("Model")

LBFGS = optax.lbfgs()  # made once: another object would compile again
_MOST = 1000  # points whose distances are looked at
_OF_SCALE = (1e-2, 1e2)  # times the mean square of the targets
_OF_NOISE = (1e-4, 1.0)


def learned_from_data(
    loss: Callable[..., Array],
    start: Model,
    n_steps: int,
    args: tuple,
    y: Array,
    *,
    starts: int,
    key: Key[Array, ""],
    trainable: Trainable,
    progress: bool = False,
    throw: bool = True,
) -> Solution[Model]:
    """`minimise` by L-BFGS, or `multi_start` for several starts: this one, and random ones.

    Arguments:
        args: of the loss, the points first.
        y, starts, key: of `data_starts`.
    """
    options: dict[str, Any] = {
        "args": args,
        "trainable": trainable,
        "progress": progress,
        "throw": throw,
    }
    if starts == 1:
        return minimise(loss, start, LBFGS, n_steps, **options)
    models = data_starts(start, args[0], y, starts, key=key, trainable=trainable)
    return multi_start(loss, models, LBFGS, n_steps, **options)


def data_starts(
    model: Model,
    X: PyTree,
    y: Array,
    count: int,
    *,
    key: Key[Array, ""],
    trainable: Trainable | None = None,
) -> list[Model]:
    """The model itself, and `count - 1` copies with free parameters drawn from the range of the
    data.

    If a lengthscale is far from all distances between points, the kernel does not depend on it, and
    the gradient of a loss is zero: starts near it do not help. The following are drawn
    log-uniformly:

    - lengthscales and periods, from the smallest to the largest distance of two different points,
      and those of each column from its differences;
    - scales between 1/100 and 100 times the mean square of the targets, a noise or a ridge between
      1/10000 of it and all of it.

    Other parameters get the noise of `random_starts`, as do all parameters if points are not
    vectors.

    Arguments:
        model: the first start.
        X: points.
        y: targets (n,) or (n, outputs).
        count, key, trainable: as for `random_starts`.
    """
    key_of_noise, key_of_draws = jax.random.split(key)
    models = random_starts(model, count, key=key_of_noise, trainable=trainable)
    is_array = isinstance(X, (np.ndarray, jax.Array))
    are_vectors = is_array and X.ndim == 2 and len(X) > 1 and X.shape[1] > 0
    if count == 1 or not are_vectors:
        return models
    mean_square = float(np.mean(np.asarray(y, float) ** 2))
    size = mean_square if mean_square > 0 else 1.0
    of_points, of_columns = distance_ranges(np.asarray(X, float))
    # The smallest and the largest value of every positive parameter that the data bound.
    ranges = {}
    for entry in parameters(model):
        found = _range_of(entry, of_points, of_columns, size)
        if found is not None and entry.interval.low == 0 and np.isinf(entry.interval.high):
            ends = found.reshape(2, *found.shape[1:], *(1,) * (entry.value.ndim + 1 - found.ndim))
            ranges[entry.path] = np.broadcast_to(ends, (2, *entry.value.shape))
    keys = jax.random.split(key_of_draws, count)[1:]
    return [model, *(_drawn(each, ranges, k, trainable) for each, k in zip(models[1:], keys))]


def _drawn(
    model: Model,
    ranges: dict[str, Float[np.ndarray, "2 *shape"]],
    key: Key[Array, ""],
    trainable: Trainable | None,
) -> Model:
    """A copy whose free parameters with a range are drawn from it, log-uniformly."""
    theta, rebuild = unconstrain(model, trainable)
    keys = jax.random.split(key, max(len(theta), 1))
    for key_of_one, path in zip(keys, theta):
        if path not in ranges:
            continue
        # For a partly frozen parameter theta holds the free elements.
        free = rebuild.free[path]
        chosen = slice(None) if free is None else np.asarray(free)
        ends = np.log(ranges[path]).reshape(2, -1)[:, chosen].reshape(2, *theta[path].shape)
        low, high = jnp.asarray(ends, theta[path].dtype)
        # The unconstrained value of a positive parameter is its logarithm.
        # log value ~ U(log low, log high).
        share = jax.random.uniform(key_of_one, theta[path].shape, theta[path].dtype)
        theta[path] = low + share * (high - low)
    return rebuild(theta)


def _range_of(
    entry: ParameterEntry, of_points: np.ndarray, of_columns: np.ndarray, size: float
) -> np.ndarray | None:
    """Both ends, for a parameter or for each of its elements; None if the data imply none."""
    shape = np.shape(entry.value)
    if ends_like(entry.path, "lengthscale") or ends_like(entry.path, "period"):
        if shape == of_columns.shape[1:]:
            return of_columns
        return of_points
    if ends_like(entry.path, "scale") and shape == ():
        return size * np.array(_OF_SCALE)
    if entry.path in ("noise", "ridge") and shape == ():
        return size * np.array(_OF_NOISE)
    return None


def distance_ranges(
    X: Float[np.ndarray, "n d"],
) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2 d"]]:
    """The smallest and the largest distance between two different points, and the same for the
    differences in each column.

    Differences within rounding of the largest do not count: they come from equal values that were
    computed in two ways. If all points are equal, both ends are 1. If there are more than 1000
    points, 1000 of them are used.
    """
    places = np.linspace(0, len(X) - 1, min(len(X), _MOST)).astype(int)
    rows = X[places]
    upper = np.triu_indices(len(rows), 1)
    squares = np.zeros(len(upper[0]))
    of_columns = np.ones((2, X.shape[1]))
    for j, column in enumerate(rows.T):
        gaps = np.abs(column[:, None] - column)[upper]
        squares += gaps**2
        of_columns[:, j] = _ends(gaps)
    return _ends(np.sqrt(squares)), of_columns


_ROUNDING = 1e-6  # of float32 columns as well


def _ends(gaps: np.ndarray) -> np.ndarray:
    """The smallest and the largest of gaps that are not within rounding of zero."""
    largest = np.max(gaps, initial=0.0)
    apart = gaps[gaps > _ROUNDING * largest]
    return np.array([apart.min(), largest]) if len(apart) else np.ones(2)
