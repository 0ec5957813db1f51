"""Standardises columns and targets by mean and deviation, and inverts that."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_weights
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed


def _as_array(value: Any) -> Any:
    """Numbers of Python and NumPy as NumPy arrays; JAX arrays stay unchanged."""
    return np.asarray(value) if isinstance(value, (int, float, np.generic)) else value


class Standards(Printed):
    """The standardisation `x -> (x - centre) / scale` of d columns (d,) or of a target ().

    NumPy arrays are standardised by NumPy, in float64, even if JAX's 64-bit mode is off: large
    numbers that differ little would lose their digits if they were cast to float32 first. JAX
    arrays, traced ones included, are standardised in their own dtype.

    Examples:
        >>> standards = kernax.preparation.Standards(jnp.array(20.0), jnp.array(10.0))
        >>> float(standards.standardised(jnp.array(35.0)))
        1.5
        >>> float(standards.restored(jnp.array(1.5)))
        35.0
    """

    centre: Float[Array, "*d"] | Float[np.ndarray, "*d"] = data(converter=_as_array)
    scale: Float[Array, "*d"] | Float[np.ndarray, "*d"] = data(converter=_as_array)

    def standardised(self, X: Any) -> Any:
        """Rows (n, *d), or one row, in standardised units."""
        X, centre, scale = self._alike(X)
        return _in_dtype((X - centre) / scale, X)

    def restored(self, Z: Any) -> Any:
        """Rows (n, *d), or one row, in their own units: the inverse of `standardised`."""
        Z, centre, scale = self._alike(Z)
        return _in_dtype(centre + scale * Z, Z)

    def _alike(self, X: Any) -> tuple[Any, Any, Any]:
        """X, centre and scale as arrays of one kind and rank: NumPy's, unless X is a JAX array."""
        if not isinstance(X, jax.Array) and is_concrete(self):
            X = np.asarray(X)
            return X, np.asarray(self.centre), np.asarray(self.scale)
        X = jnp.asarray(X, None if eqx.is_inexact_array(X) else float)
        rows = tuple(range(X.ndim - self.centre.ndim)) if self.centre.ndim else ()
        centre = jnp.expand_dims(jnp.asarray(self.centre, X.dtype), rows)
        scale = jnp.expand_dims(jnp.asarray(self.scale, X.dtype), rows)
        return X, centre, scale


def _in_dtype(values: Any, X: Any) -> Any:
    return values.astype(X.dtype) if X.dtype.kind == "f" else values


def standards_of(values: ArrayLike, weights: ArrayLike | None = None) -> Standards:
    """The standards of values (n,) or (n, d): the weighted mean and deviation of each column.

    `centre = sum_i w_i x_i / sum_i w_i`, `scale^2 = sum_i w_i (x_i - centre)^2 / sum_i w_i`; the
    scale is one if all rows of positive weight are equal. Rows of weight zero have no effect. The
    sums are over differences from the first row, so that large values that differ little keep their
    digits. The function is differentiable in the values and the weights, and runs under `jit` and
    `vmap`.

    Raises ValueError for other shapes, bad weights, values that are not finite, and for a deviation
    that over- or underflows; under tracing such standards are NaN.

    Examples:
        >>> X = jnp.array([[1.0, 10.0], [3.0, 30.0]])
        >>> standards = kernax.preparation.standards_of(X)
        >>> standards.centre, standards.scale
        (Array([ 2., 20.], dtype=float64), Array([ 1., 10.], dtype=float64))
        >>> standards.standardised(X)
        Array([[-1., -1.],
               [ 1.,  1.]], dtype=float64)
    """
    shape = np.shape(values)
    if len(shape) not in (1, 2) or not shape[0]:
        raise ValueError(f"values must have shape (n,) or (n, d), n >= 1, but have shape {shape}")
    columns = [f"column {number} of the values" for number in range(shape[-1])]
    return _standards(values, weights, ["values"] if len(shape) == 1 else columns)


def _standards(values: ArrayLike, weights: ArrayLike | None, names: Sequence[str]) -> Standards:
    """The standards of values (n,) or (n, d); the names, in messages, are those of the columns."""
    # Arrays of NumPy are computed with in float64, those of JAX in their own precision.
    xp: Any = jnp if isinstance(values, jax.Array) or isinstance(weights, jax.Array) else np
    is_float = xp is jnp and eqx.is_inexact_array(values)
    array = xp.asarray(values, None if is_float else float)
    if weights is None:
        w = xp.ones(len(array), array.dtype)
    else:
        checked = as_weights(weights, len(array), jnp.result_type(float)).values
        w = np.asarray(weights, float) if xp is np else checked.astype(array.dtype)
    w = w.reshape(-1, *[1] * (array.ndim - 1))
    # The mean and the deviation of each column, for weights of as many axes as the values.
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        present = w > 0
        first = array[xp.argmax(present)]
        share = w / xp.sum(w)
        rest = array - first[None]
        # A row of weight zero has derivatives in its weight if its fourth power, which the second
        # derivative contains, is a float.
        reach = 1e-3 * float(jnp.finfo(array.dtype).max) ** 0.25
        counts = present | (abs(rest) < reach)
        rest = xp.where(counts, rest, 0)
        shift = xp.sum(share * rest, 0)
        of_mean = xp.where(counts, rest - shift[None], 0)
        variance = xp.sum(share * of_mean**2, 0)
        constant = xp.all(xp.where(present, rest, 0) == 0, 0)
        # The root has no derivative at zero, and zero is not the scale either.
        scale = xp.where(constant, 1, xp.sqrt(xp.where(constant, 1, variance)))
        centre = xp.asarray(first + shift)
        scale = xp.asarray(scale)
    known = (scale > 0) & (scale < np.inf) & xp.isfinite(centre)
    if is_concrete(known):
        each = np.atleast_1d(np.asarray(known))
        if not each.all():
            raise ValueError(
                f"{names[int(each.argmin())]} cannot be standardised: the numbers are not finite, "
                "too large, or too close together"
            )
    return Standards(centre, xp.where(known, scale, np.nan))


def standards_of_columns(X: Float[np.ndarray, "n d"], names: Sequence[str]) -> Standards:
    """`standards_of` columns, with their names for messages."""
    return _standards(X, None, [f"column {name!r}" for name in names])


def standards_of_target(y: Float[np.ndarray, " n"], name: str) -> Standards:
    """`standards_of` a target, with its name for messages. Raises ValueError for a constant target
    as well.
    """
    if np.all(y == y[0]):
        raise ValueError(
            f"column {name!r} cannot be standardised: it is constant, with nothing to predict"
        )
    return _standards(y, None, [f"column {name!r}"])
