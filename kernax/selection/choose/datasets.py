"""Data sets of different lengths as one batch."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import as_stack, as_targets, as_weights, count, dtype_of, is_encoded
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import Printed
from kernax.core.base.stacks import joined, points_at


class Datasets(Printed):
    """A batch of b data sets, padded to n rows each.

    Attributes:
        X: points, whose arrays have shape (b, n, ...).
        y: targets (b, n) or (b, n, outputs).
        weights: (b, n). A set is padded with copies of its first row, of weight zero.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> sets = kernax.selection.stack_datasets([(X, X[:, 0]), (X[:3], X[:3, 0])])
        >>> sets.X.shape, sets.y.shape, sets.weights.shape
        ((2, 5, 1), (2, 5), (2, 5))
    """

    X: PyTree
    y: Array
    weights: Float[Array, "b n"]


def stack_datasets(datasets: Sequence[Any], *, length: int | None = None) -> Datasets:
    """Pads data sets of different lengths into one batch, for `batched` or `vmap` over its members.

        sets = kernax.selection.stack_datasets([(X_1, y_1), (X_2, y_2)])
        fit = lambda X, y, w: kernax.kernel_ridge(kernel, X, y, 0.1, weights=w, throw=False)
        solutions = kernax.batched(fit)(sets.X, sets.y, sets.weights)

    Every learner of kernax leaves rows of weight zero out exactly, so that each member equals the
    fit of its data set alone. The failed members, such as a data set with NaN, are
    `np.flatnonzero(solutions.result != kernax.RESULTS.successful)`.

    Arguments:
        datasets: pairs (X, y) or triples (X, y, weights), all with the same kind of points and of
            targets: X a batch of n_i points, y (n_i,) or (n_i, outputs), weights (n_i,) >= 0.
        length: the number of rows of each member, at least that of the longest data set, which is
            the default. Batches of the same few lengths share their compiled programs.

    Raises ValueError for anything but such a list, naming the data set by its index.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> sets = kernax.selection.stack_datasets([(X, y), (X[:3], y[:3])])
        >>> sets.X.shape
        (2, 5, 1)
        >>> sets.weights
        Array([[1., 1., 1., 1., 1.],
               [1., 1., 1., 0., 0.]], dtype=float64)
    """
    if not isinstance(datasets, Sequence) or not datasets:
        raise ValueError("datasets must be a list of at least one pair (X, y)")
    parts = [_checked(dataset, f"datasets[{place}]") for place, dataset in enumerate(datasets)]
    first = parts[0]
    expected = _shapes_of_rows(first)
    for place, part in enumerate(parts):
        name = f"datasets[{place}]"
        if jax.tree.structure(part.X) != jax.tree.structure(first.X):
            raise ValueError(
                f"the X of {name} holds another kind of points than that of datasets[0]"
            )
        found = _shapes_of_rows(part)
        if found != expected:
            raise ValueError(
                f"{name} has rows of {found}, but datasets[0] has rows of {expected}: give all the "
                "same shape and dtype"
            )
    # The indices of the rows of each set among all rows (b, n), and which of them the set has.
    lengths = [len(part.weights) for part in parts]
    longest = max(lengths)
    if length is not None:
        check_count(length, "length", longest, ": the longest data set has that many rows")
    columns = np.arange(longest if length is None else length)
    sizes = np.asarray(lengths)[:, None]
    present = columns < sizes
    # Row j of set i is row n_0 + ... + n_(i-1) + j of all rows; padding repeats its first row.
    starts = np.cumsum(sizes) - sizes[:, 0]
    places = starts[:, None] + np.where(present, columns, 0)
    together = _Dataset(*(joined(of_all) for of_all in zip(*map(_parts_of, parts))))
    X, y, weights = _parts_of(points_at(together, places))
    return Datasets(X, y, weights * present.astype(weights.dtype))


class _Dataset(eqx.Module):
    X: PyTree
    y: Array
    weights: Float[Array, "*b n"]


def _parts_of(dataset: _Dataset) -> tuple[PyTree, Array, Array]:
    return dataset.X, dataset.y, dataset.weights


def _checked(dataset: Any, name: str) -> _Dataset:
    """A data set as arrays. Raises ValueError, with its name, for anything else."""
    if not isinstance(dataset, (tuple, list)) or len(dataset) not in (2, 3):
        raise ValueError(
            f"{name} must be a pair (X, y), or (X, y, weights), but is of type "
            f"{type(dataset).__name__}"
        )
    X = as_stack(dataset[0], f"the X of {name}", finite=False)
    n = count(X)
    dtype = dtype_of(X)
    y = as_targets(dataset[1], n, dtype, f"the y of {name}", finite=False)
    if len(dataset) == 2 or dataset[2] is None:
        ones = jnp.asarray(np.ones(n, dtype))  # without a program for each n
        return _Dataset(X, y, ones)
    return _Dataset(X, y, as_weights(dataset[2], n, dtype, f"the weights of {name}").values)


def _shapes_of_rows(dataset: _Dataset) -> str:
    """The shape of one point and one target; encoded points, which are padded to one length, are
    left out.
    """
    of_points = jax.tree.leaves(dataset.X, is_leaf=is_encoded)
    shapes = [f"{leaf.dtype}{list(leaf.shape[1:])}" for leaf in of_points if eqx.is_array(leaf)]
    target = f"{dataset.y.dtype}{list(dataset.y.shape[1:])}"
    return f"points {', '.join(shapes) or 'encoded'} and targets {target}"
