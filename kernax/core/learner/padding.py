"""Batches of points with more rows, which have no weight."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack, as_targets, as_weights, count, dtype_of
from kernax.core.base.numerics import as_array, is_concrete
from kernax.core.base.parameters import check_count


def repeated(stack: PyTree, size: int) -> PyTree:
    """A batch of points, or an array of as many rows, padded to `size` with copies of the first
    row: by NumPy, which compiles nothing for a new size, unless an array is traced.
    """

    def longer(leaf: Any) -> Any:
        module = np if is_concrete(leaf) else jnp
        array = module.asarray(leaf)
        copies = module.repeat(array[:1], size - len(array), axis=0)
        return module.concatenate([array, copies])

    return jax.tree.map(longer, stack)


def pad(
    X: PyTree, y: ArrayLike | None, weights: ArrayLike | None = None, *, to: int
) -> tuple[PyTree, Array | None, Float[Array, " to"]]:
    """Pads a data set to `to` rows with copies of its first row that have a weight of zero.

    A program is compiled for every number of rows. Data sets that are padded to the same few
    lengths share their programs, and every learner of kernax leaves rows of weight zero out
    exactly: the fit, its evidence and their derivatives are those of the data set alone.

        X_64, y_64, weights = kernax.pad(X, y, to=64)
        f = kernax.kernel_ridge(kernel, X_64, y_64, 0.1, weights=weights).value

    Functions without weights, such as `kernax.selection.median_lengthscale`, count the copies:
    call them before.

    Arguments:
        X: a batch of n points of any kind; encoded strings and trees as well. Arrays that are
            spread over a mesh of devices become arrays of one device: pad before `rows_over`.
        y: targets (n,) or (n, outputs); None where there are none.
        weights: (n,), non-negative; None for ones.
        to: the number of rows, at least n.

    Returns: X, y and weights with `to` rows, as JAX arrays in the precision of X.

    Raises ValueError if `to` is less than n, or y or weights do not have n rows.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 3)[:, None]
        >>> X_4, y_4, weights = kernax.pad(X, X[:, 0], to=4)
        >>> y_4
        Array([0. , 0.5, 1. , 0. ], dtype=float64)
        >>> weights
        Array([1., 1., 1., 0.], dtype=float64)
    """
    X = as_stack(X, "X", finite=False)
    n, dtype = count(X), dtype_of(X)
    size = check_count(to, "to", n, f": X has {n} rows")
    if y is not None:
        y = as_targets(y, n, dtype, finite=False)
    # Ones by NumPy compile nothing.
    of_rows: Any = np.ones(n, dtype) if weights is None else as_weights(weights, n, dtype).values
    longer_X, longer_y, longer_weights = repeated((X, y, of_rows), size)
    present = np.arange(size) < n
    longer_weights = longer_weights * present.astype(dtype)
    return jax.tree.map(as_array, (longer_X, longer_y, longer_weights))
