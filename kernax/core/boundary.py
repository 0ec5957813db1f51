"""Where a user's data enter: lists become arrays, integers floats, and what no solver could use is refused by name.

Every verb calls these on its arguments before anything is compiled. Shapes are checked always, values where they are
known (not while tracing).
"""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, PyTree

from kernax.core.numerics import is_concrete
from kernax.core.solution import warn
from kernax.core.support import NONNEGATIVE, Support
from kernax.errors import PrecisionWarning

_HALF = (jnp.float16, jnp.bfloat16)
_LEAST_TEXT = 3  # letters that a string kernel finds something in


@cache
def _warn_about_precision() -> None:
    warn(
        "float64 data is computed in float32, because JAX's 64-bit mode is off: "
        "call jax.config.update('jax_enable_x64', True) at the start of the program, or pass float32 data",
        PrecisionWarning,
    )


def _as_array(value: Any, index_ndim: int, name: str = "points") -> Any:
    """One leaf as a float array; integers of `index_ndim` axes are indices and stay as they are."""
    if isinstance(value, np.ndarray) and value.dtype == np.float64 and not jax.config.jax_enable_x64:  # pyright: ignore
        _warn_about_precision()
    if isinstance(value, list):
        value = _joined(value, name) if is_concrete(value) else jnp.stack([jnp.asarray(part) for part in value])
        value = value.astype(jnp.result_type(float)) if value.dtype == np.float64 else value
    if hasattr(value, "__array__") and not eqx.is_array_like(value):
        value = np.asarray(value)  # a column or table of pandas
    if not eqx.is_array_like(value) or not _is_real(value):
        came = getattr(value, "dtype", type(value).__name__)
        what = "arrays of real numbers, but one is" if name == "points" else "an array of real numbers, but is"
        raise ValueError(f"{name} must be {what} of type {came}{_advice(value, name)}")
    kind = jnp.result_type(value)
    if not jnp.issubdtype(kind, jnp.inexact) and (np.ndim(value) != index_ndim or jnp.issubdtype(kind, jnp.bool_)):
        value = np.asarray(value, float) if is_concrete(value) else value  # before JAX truncates 64-bit integers
        return jnp.asarray(value).astype(jnp.result_type(float))
    value = jnp.asarray(value)
    return value.astype(jnp.float32) if value.dtype in _HALF else value


def _advice(value: Any, name: str) -> str:
    """What to make of an array that is none of numbers: words are classes, points, or columns of points."""
    words = [word for word in np.ravel(value)[:1000] if isinstance(word, str)] if hasattr(value, "dtype") else []
    if not words:
        return ": make numbers of it, or drop that part with On" if name == "points" else ""
    if name in ("y", "Y"):
        return ": see kernax.one_hot" if name == "Y" else ": see kernax.signs and kernax.one_hot"
    if name != "points":
        return ""
    if any(word.lstrip().startswith("(") for word in words):
        return ": kernax.trees.encode makes points of trees in brackets"
    if np.ndim(value) > 1:
        return ": kernax.one_hot makes columns of 0 and 1 of a column of words; numbers that came as text want .astype(float)"
    if max(map(len, words)) < _LEAST_TEXT:
        return ": words for groups become columns of 0 and 1 by kernax.one_hot"
    return ": kernax.strings.encode makes points of texts, for string kernels; kernax.one_hot makes columns of words for groups"


def _joined(parts: list, name: str) -> np.ndarray:
    try:
        return np.asarray(parts)
    except ValueError as problem:
        advice = "the points of a stack have one shape, and mixed points are a tuple of stacks, such as (vectors, strings)"
        raise ValueError(f"{name} came as a list that makes no array ({problem}): {advice}") from None


def _is_real(value: Any) -> bool:
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return dtype.kind in "biuf" or dtype in _HALF


def _is_atom(value: Any) -> bool:
    return isinstance(value, list) or is_encoded(value)


def is_encoded(points: Any) -> bool:
    """Whether points, or a part of them, are a module: strings, trees."""
    return isinstance(points, eqx.Module)


def as_point(x: PyTree) -> PyTree:
    """A point as kernels want it: arrays for lists, floats for integers; modules (an encoded string) as they are."""
    return jax.tree.map(lambda leaf: leaf if is_encoded(leaf) else _as_array(leaf, 0), x, is_leaf=_is_atom)


def as_stack(X: PyTree, name: str) -> PyTree:
    """A stack of points: as `as_point`, with one leading axis n >= 1 on every leaf and finite values throughout."""
    X = jax.tree.map(lambda leaf: leaf if is_encoded(leaf) else _as_array(leaf, 1), X, is_leaf=_is_atom)
    leaves = jax.tree.leaves(X)
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in leaves}
    if len(lengths) != 1 or None in lengths or 0 in lengths:
        shapes = ", ".join(str(leaf.shape) for leaf in leaves) or "nothing"
        raise ValueError(
            f"{name} must be a stack of n >= 1 points, with the same leading axis n on every array, but holds {shapes}"
        )
    if any(0 in leaf.shape for leaf in leaves):
        shapes = ", ".join(str(leaf.shape) for leaf in leaves)
        raise ValueError(f"{name} must hold points of at least one dimension, but has shape {shapes}")
    check_finite(X, name)
    return X


def check_one_point(x: PyTree, points: PyTree) -> None:
    """Raises ValueError if x has more axes than one of the points: a stack came where a point belongs."""
    for leaf, stack in zip(jax.tree.leaves(x), jax.tree.leaves(points)):
        if jnp.ndim(leaf) >= jnp.ndim(stack):
            came = f"x must be a single point of shape {stack.shape[1:]}, but has shape {leaf.shape}"
            raise ValueError(f"{came}: use jax.vmap(f)(X) for a stack")


def check_finite(tree: PyTree, name: str) -> None:
    """Raises ValueError naming the first row where a concrete stack holds NaN or inf."""
    if not is_concrete(tree) or all(map(_all_finite, _inexact(tree))):
        return
    rows = [np.flatnonzero(~np.isfinite(leaf).reshape(len(leaf), -1).all(1)) for leaf in map(np.asarray, _inexact(tree))]
    first = min(row[0] for row in rows if row.size)
    raise ValueError(f"{name} holds NaN or inf, first in row {first}: drop such rows or impute (a zero weight is not enough)")


def _inexact(tree: PyTree) -> list[Array | np.ndarray]:
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]


def _all_finite(known: Array | np.ndarray) -> bool:
    if isinstance(known, np.ndarray) or all(device.platform == "cpu" for device in known.devices()):
        return bool(np.isfinite(np.asarray(known)).all())  # there without a copy, and without a program to compile
    with jax.ensure_compile_time_eval():  # known values are looked at while tracing, too
        return bool(jnp.isfinite(known).all())


def count(X: PyTree) -> int:
    """The number of points n in a stack."""
    return jax.tree.leaves(X)[0].shape[0]


def dtype_of(*stacks: PyTree) -> Any:
    """The dtype to compute in: that of the arrays, else of the modules (encoded strings), else JAX's default float."""
    arrays = jax.tree.leaves(stacks, is_leaf=is_encoded)
    dtypes = [leaf.dtype for leaf in arrays if eqx.is_inexact_array(leaf)] or [leaf.dtype for leaf in _inexact(stacks)]
    return np.result_type(*dtypes) if dtypes else jnp.result_type(float)


def cast(tree: PyTree, dtype: Any) -> PyTree:
    """The same tree with every inexact array of the given dtype."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) and leaf.dtype != dtype else leaf, tree)


def check_key(key: Any) -> None:
    """Raises ValueError for anything but one random key."""
    if not eqx.is_array(key):
        raise ValueError(f"key must be one random key, such as jax.random.key(0), but is {key!r}")
    typed, old = jnp.issubdtype(key.dtype, jax.dtypes.prng_key), key.dtype == jnp.uint32
    if not ((typed and key.ndim == 0) or (old and key.ndim == 1)):
        came = f"an array of {key.dtype} of shape {key.shape}"
        raise ValueError(f"key must be one random key, such as jax.random.key(0), but is {came}")


def as_scalar(value: ArrayLike, dtype: Any, name: str, support: Support) -> Array:
    """A scalar argument as an array of the data's dtype, inside its support."""
    if not eqx.is_array_like(value) or not _is_real(value):
        raise ValueError(f"{name} must be a real number, but is {value!r}")
    if jnp.ndim(value) != 0:
        raise ValueError(f"{name} must be a scalar, but has shape {jnp.shape(value)}: batch over several with jax.vmap")
    if is_concrete(value) and not support.contains(np.asarray(value)):
        raise ValueError(f"{name} must be in {support}, but is {np.asarray(value).item():g}")
    array = lax.convert_element_type(value, dtype)  # strongly typed
    return array if is_concrete(value) else support.guarded(array)


def as_noise(noise: ArrayLike, n: int, dtype: Any) -> Array:
    """A noise variance >= 0: a number, or one for each point (n,)."""
    if not isinstance(noise, list) and np.ndim(noise) == 0:
        return as_scalar(noise, dtype, "noise", NONNEGATIVE)
    array = _as_array(noise, -1, "noise").astype(dtype)
    if array.shape != (n,):
        raise ValueError(f"noise must be a number or have shape ({n},), one per point, but has shape {array.shape}")
    check_finite(array, "noise")
    if not is_concrete(array):
        return NONNEGATIVE.guarded(array)
    if np.asarray(array).min() < 0:
        first = int(np.argmin(np.asarray(array)))
        raise ValueError(f"noise is a variance and must not be negative, but noise[{first}] is {float(array[first]):g}")
    return array


def as_targets(y: ArrayLike, n: int, dtype: Any, name: str = "y") -> Array:
    """Targets `(n,)` or `(n, outputs)` in the data's dtype, finite."""
    targets = _as_array(y, -1, name).astype(dtype)
    if targets.ndim not in (1, 2) or len(targets) != n:
        raise ValueError(
            f"{name} must have shape ({n},) or ({n}, outputs) to go with {n} points, but has shape {targets.shape}"
        )
    check_finite(targets, name)
    return targets


def as_weights(weights: ArrayLike | None, n: int, dtype: Any) -> Array | None:
    """Non-negative weights `(n,)`, not all zero, in the data's dtype; None stays None."""
    if weights is None:
        return None
    array = _as_array(weights, -1, "weights").astype(dtype)
    if array.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one per point, but have shape {array.shape}")
    if not is_concrete(array):
        return jnp.where(jnp.any(array != 0), NONNEGATIVE.guarded(array), jnp.nan)
    check_finite(array, "weights")
    values = np.asarray(array)
    if values.min() < 0:
        raise ValueError(f"weights must not be negative, but weights[{values.argmin()}] is {values.min():g}")
    if not values.any():
        raise ValueError("weights must not all be zero: no point is left to fit")
    return array
