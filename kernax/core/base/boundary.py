"""Checks and conversions of arguments: lists become arrays, and integers become floats.

Public functions check their arguments before anything is compiled. An invalid argument raises an
error that names it. Shapes are always checked, values only where they are concrete (not while
tracing).
"""

import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, AxisType
from jaxtyping import Array, Float, PyTree

from kernax._advice import OVER_A_MESH
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.guards import guarded_parameter
from kernax.core.base.intervals import NONNEGATIVE, Interval, flushed
from kernax.core.base.numerics import as_array, is_concrete, strongly_typed, values_of
from kernax.core.base.parameters import as_floats
from kernax.core.base.printing import misplaced, typed
from kernax.core.base.solution import warn
from kernax.core.base.weights import AbstractWeights, PointWeights, UnitWeights
from kernax.errors import PrecisionWarning

_HALF = (jnp.float16, jnp.bfloat16)
_LEAST_TEXT = 3  # letters; shorter words are interpreted as names of groups

# Advice on how to encode words as points, computed only for error messages.
Encoding = Callable[[], str]


@cache
def _warn_about_precision() -> None:
    """Warns, once in a process, of float64 data that is computed in float32."""
    warn(
        "float64 data is computed in float32, because JAX's 64-bit mode is off: "
        "call jax.config.update('jax_enable_x64', True) at the start of the program, or pass "
        "float32 data",
        PrecisionWarning,
    )


def _as_array(
    value: Any, name: str, encoding: Encoding | None = None, *, index_ndim: int | None = None
) -> Array:
    """An argument as an array of floats. Raises ValueError unless it holds real numbers.

    Arguments:
        value: the argument.
        name: its name, for messages.
        encoding: advice on how to encode words as points, for messages.
        index_ndim: integers in an array of this number of axes are indices, which stay integers: 0
            for a point that is one number, 1 for a batch of them.
    """
    is_float = isinstance(value, jax.Array) and value.dtype in (np.float32, np.float64)
    if is_float and jax.typeof(value).sharding.mesh.empty:
        return value
    value = _real_array(value, name, encoding)
    is_integer = jnp.issubdtype(jnp.result_type(value), jnp.integer)
    are_indices = is_integer and np.ndim(value) == index_ndim
    return as_array(value) if are_indices else _as_floats(value)


def as_arrays(tree: PyTree) -> PyTree:
    """Any pytree with NumPy arrays and Python floats as JAX arrays, and other leaves unchanged.

    It is for arguments of user-defined functions; the library functions that these call check
    points and targets. No array has a weak type, which would make `jit` compile again.
    """

    def as_jax_array(leaf: Any) -> Any:
        check_precision(leaf)
        if isinstance(leaf, float):
            return as_floats(leaf)
        if isinstance(leaf, (np.ndarray, np.generic)):
            leaf = as_array(leaf)
        if getattr(leaf, "weak_type", False):
            return lax.convert_element_type(leaf, leaf.dtype)
        return leaf

    return jax.tree.map(as_jax_array, tree)


def check_precision(value: Any) -> None:
    """Warns of float64 where JAX would compute in float32."""
    in_double = isinstance(value, np.ndarray) and value.dtype == np.float64
    if in_double and not jax.config.jax_enable_x64:  # pyright: ignore
        _warn_about_precision()


def _real_array(value: Any, name: str, encoding: Encoding | None = None) -> Any:
    """An array of JAX or NumPy, or a number. Raises ValueError unless its numbers are real."""
    check_precision(value)
    if isinstance(value, list):
        # A list as an array: numbers in JAX's default precision, or words.
        try:
            if is_concrete(value):
                array = np.asarray(value)
            else:
                array = jnp.stack([jnp.asarray(part) for part in value])
        except ValueError as problem:
            are_encoded = any(map(is_encoded, value))
            of_kernel = "" if encoding is None or are_encoded else encoding()
            if of_kernel:
                came = f"is a list of parts of different shapes: {of_kernel}"
            else:
                came = (
                    f"is a list that cannot be made into an array ({problem}): the points of a "
                    "batch have one shape, and mixed points are a tuple of batches, such as "
                    "(vectors, strings)"
                )
            raise ValueError(f"{name} {came}") from None
        value = array.astype(jnp.result_type(float)) if array.dtype == np.float64 else array
    source = value
    if hasattr(value, "__array__") and not eqx.is_array_like(value):
        value = np.asarray(value)  # a column or table of pandas
    if not eqx.is_array_like(value) or not _is_real(value):
        several = "arrays of real numbers, but one is"
        what = several if name == "points" else "an array of real numbers, but is"
        if hasattr(value, "toarray"):
            raise ValueError(
                f"{name} must be {what} a sparse {type(value).__name__}: .toarray() makes an array"
            )
        advice = _advice_for_columns(source) or _advice(value, name, encoding)
        came = f"of type {value.dtype}{advice}" if hasattr(value, "dtype") else typed(value, advice)
        raise ValueError(f"{name} must be {what} {came}")
    check_axes(value, name)
    return value


def _as_floats(value: Any) -> Array:
    """Real numbers in their own precision; halves as float32, integers as the default float."""
    if not jnp.issubdtype(jnp.result_type(value), jnp.inexact):
        # NumPy converts its own arrays, before JAX truncates 64-bit integers.
        value = value if isinstance(value, jax.Array) else np.asarray(value, float)
        return as_array(value).astype(jnp.result_type(float))
    value = as_array(value)
    return value.astype(jnp.float32) if value.dtype in _HALF else value


_MOST_COLUMNS = 5  # named in a message


def _advice_for_columns(table: Any) -> str:
    """Advice for a table, such as one of pandas, with columns that are not numbers; otherwise
    empty.
    """
    if not hasattr(table, "columns"):
        return ""
    kinds = {name: np.asarray(table[name]).dtype for name in table.columns}
    wrong = [f"{name!r} ({kind})" for name, kind in kinds.items() if kind.kind not in "biuf"]
    if not wrong:
        return ": .astype(float) converts its columns, which have several types, to numbers"
    more = ", ..." if len(wrong) > _MOST_COLUMNS else ""
    columns = "column" if len(wrong) == 1 else "columns"
    return (
        f": {columns} {', '.join(wrong[:_MOST_COLUMNS])}{more} must become numbers: "
        "kernax.one_hot converts a column of words to columns of 0 and 1, and .astype(float) "
        "converts numbers that are text"
    )


def _advice(value: Any, name: str, encoding: Encoding | None) -> str:
    """Advice for an argument that has no numbers, for the end of a message."""
    words = []
    of_kernel = "" if encoding is None else encoding()
    if hasattr(value, "dtype"):
        parts = np.ravel(value)[:1000]
        words = [word for word in parts if isinstance(word, str)]
        if of_kernel and any(np.ndim(part) > 0 for part in parts):
            return f": {of_kernel}"  # an array of arrays
    if name == "points" and words:
        # Advice on how to encode words as points: trees, columns of groups, or texts.
        ndim = np.ndim(value)
        if of_kernel and ndim == 1:
            return f": {of_kernel}"
        if any(word.lstrip().startswith("(") for word in words):
            return ": encode trees in brackets first, for kernels of trees"
        if ndim > 1:
            return (
                ": kernax.one_hot converts a column of words to columns of 0 and 1, and "
                ".astype(float) converts numbers that are text"
            )
        if max(map(len, words)) < _LEAST_TEXT:
            return ": kernax.one_hot converts names of groups to columns of 0 and 1"
        return (
            ": encode texts first, for kernels of strings; kernax.one_hot converts names of groups "
            "to columns of 0 and 1"
        )
    if name == "points":
        return ": convert it to numbers, or drop that part"
    if not words or name not in ("y", "Y"):
        return ""
    return ": see kernax.one_hot" if name == "Y" else ": see kernax.signs and kernax.one_hot"


def _is_real(value: Any) -> bool:
    """Whether an array or number has floats, integers or booleans."""
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    return dtype.kind in "biuf" or dtype in _HALF


def _is_atom(value: Any) -> bool:
    return isinstance(value, (list, eqx.Module))


def is_encoded(points: Any) -> bool:
    """Whether points, or a part of them, are a module such as encoded strings or trees."""
    return isinstance(points, eqx.Module)


def as_point(x: PyTree) -> PyTree:
    """A point for kernels: arrays instead of lists, floats instead of integers.

    Modules (an encoded string) and single integers are unchanged.
    """
    if came := misplaced(x):
        raise ValueError(f"a point must be an array, or encoded, but is {came}")
    return jax.tree.map(
        lambda leaf: leaf if is_encoded(leaf) else _as_array(leaf, "points", index_ndim=0),
        x,
        is_leaf=_is_atom,
    )


def as_stack(
    X: PyTree, name: str, *, finite: bool = True, encoding: Encoding | None = None
) -> PyTree:
    """A batch of points, converted as by `as_point`, with one leading axis n >= 1 on every leaf
    and, on request, finite values.
    """
    if came := misplaced(X):
        raise ValueError(f"{name} must be a batch of n >= 1 points, but is {came}")
    leaves, structure = jax.tree.flatten(X, is_leaf=_is_atom)
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, eqx.Module):
            leaves[i] = _as_array(leaf, "points", encoding, index_ndim=1)
    X = jax.tree.unflatten(structure, leaves)
    arrays = jax.tree.leaves(X)
    length = arrays[0].shape[:1] if arrays else ()
    for array in arrays:
        if array.shape[:1] != length or 0 in array.shape:
            length = ()
    if not length:
        shapes = [array.shape for array in arrays]
        shown = ", ".join(map(str, shapes)) or "nothing"
        lengths = {shape[:1] for shape in shapes}
        if len(lengths) != 1 or lengths <= {(), (0,)}:
            raise ValueError(
                f"{name} must be a batch of n >= 1 points, with the same leading axis n on every "
                f"array, but holds {shown}"
            )
        raise ValueError(
            f"{name} must hold points of at least one dimension, but has shape {shown}"
        )
    if finite:
        check_finite(X, name)
    return X


def check_one_point(x: PyTree, points: PyTree, instead: str = "jax.vmap(f)(X)") -> None:
    """Raises ValueError if x has as many axes as a batch of points; `instead` is the function for
    batches.
    """
    # A kernel may compare a point with points of another kind, such as functionals.
    alike = jax.tree.structure(x) == jax.tree.structure(points)
    for leaf, stack in zip(jax.tree.leaves(x), jax.tree.leaves(points)):
        if jnp.ndim(leaf) >= jnp.ndim(stack):
            came = (
                f"x must be a single point of shape {stack.shape[1:]}, but has shape {leaf.shape}"
            )
            raise ValueError(f"{came}: use {instead} for a batch")
        if alike and 0 < jnp.ndim(leaf) == jnp.ndim(stack) - 2:
            # A model that `jax.vmap` made has one more axis than a point can have.
            raise ValueError(
                f"the model holds a batch of models, with points of shape {stack.shape}, but x has "
                f"shape {leaf.shape}: use jax.vmap(lambda model: model(x))(models)"
            )
    if eqx.is_array_like(x) and eqx.is_array_like(points):
        check_no_broadcast(jnp.shape(x), jnp.shape(points)[1:])


def check_no_broadcast(
    shape: tuple[int, ...],
    other: tuple[int, ...],
    advice: str = "pass batches X (n, d) and Z (m, d) with the same d",
) -> None:
    """Raises ValueError for points of two shapes, one of them a single number, which a user-defined
    kernel would broadcast along the other.
    """
    if shape != other and 1 in (math.prod(shape), math.prod(other)):
        raise ValueError(
            f"points must be vectors of one length, but a point has shape {shape} and another "
            f"{other}: {advice}"
        )


def check_finite(
    tree: PyTree, name: str, hint: str = "drop such rows or impute (a zero weight is not enough)"
) -> None:
    """Raises ValueError naming the first row of a concrete batch that has NaN or inf."""
    if not is_concrete(tree):
        return
    rows = []
    for leaf in jax.tree.leaves(tree):
        if eqx.is_inexact_array(leaf) and not all_finite(leaf):
            finite = np.isfinite(values_of(leaf)).reshape(len(leaf), -1).all(1)
            rows.append(np.flatnonzero(~finite)[0])
    if rows:
        raise ValueError(f"{name} holds NaN or inf, first in row {min(rows)}: {hint}")


def all_finite(known: Array | np.ndarray) -> bool:
    """Whether a concrete array has neither NaN nor inf, even while other arrays are traced."""
    if isinstance(known, np.ndarray) or (len(known.devices()) == 1 and known.platform() == "cpu"):
        # On a CPU this needs neither a copy nor a compiled program.
        return bool(np.isfinite(np.asarray(known)).all())
    with jax.ensure_compile_time_eval():  # concrete values are available while tracing, too
        return bool(jnp.isfinite(known).all())


def count(X: PyTree) -> int:
    """The number of points n in a batch."""
    return jax.tree.leaves(X)[0].shape[0]


def dtype_of(*stacks: PyTree) -> Any:
    """The dtype to compute in: that of the arrays, else of the modules, else JAX's default float.

    Modules are encoded strings and trees.
    """
    if len(stacks) == 1 and eqx.is_inexact_array(stacks[0]):
        return stacks[0].dtype
    dtypes = []
    of_modules = []
    for leaf in jax.tree.leaves(stacks, is_leaf=is_encoded):
        if eqx.is_inexact_array(leaf):
            dtypes.append(leaf.dtype)
        elif isinstance(leaf, eqx.Module):
            inside = filter(eqx.is_inexact_array, jax.tree.leaves(leaf))
            of_modules += [array.dtype for array in inside]
    dtypes = dtypes or of_modules
    return np.result_type(*dtypes) if dtypes else jnp.result_type(float)


def cast(tree: PyTree, dtype: Any) -> PyTree:
    """The same tree with every inexact array of the given dtype."""
    leaves, structure = jax.tree.flatten(tree)
    for i, leaf in enumerate(leaves):
        if eqx.is_inexact_array(leaf) and leaf.dtype != dtype:
            leaves[i] = leaf.astype(dtype)
    return jax.tree.unflatten(structure, leaves)


def check_key(key: Any) -> None:
    """Raises ValueError for anything but one random key."""
    came = repr(key)
    if eqx.is_array(key):
        is_typed = key.ndim == 0 and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        is_old = key.ndim == 1 and key.dtype == jnp.uint32
        if is_typed or is_old:
            return
        came = f"an array of {key.dtype} of shape {key.shape}"
    raise ValueError(f"key must be one random key, such as jax.random.key(0), but is {came}")


def as_scalar(
    value: ArrayLike, dtype: Any, name: str, interval: Interval, thrown_by: str | None = None
) -> Array:
    """A scalar argument as an array of the data's dtype. Raises ValueError outside its interval.

    Here and in the functions below, `thrown_by` names the function that raises an error at run time
    if a traced value is outside; with None the value only becomes NaN.
    """
    # NumPy has no type for integers of more than 64 bits.
    is_whole = isinstance(value, int) and abs(value) <= sys.float_info.max
    is_number = is_whole or isinstance(value, float)
    if not is_number and not (eqx.is_array_like(value) and _is_real(value)):
        came = misplaced(value) or repr(value)
        raise ValueError(f"{name} must be a real number, but is {came}")
    if jnp.ndim(value) != 0:
        raise ValueError(
            f"{name} must be a scalar, but has shape {jnp.shape(value)}: batch over several with "
            "jax.vmap"
        )
    if is_concrete(value):
        # The number in the data's dtype, zero if it is subnormal there.
        number = np.asarray(value)
        with np.errstate(over="ignore"):
            rounded = flushed(number.astype(dtype))
        is_lost = rounded == 0 and number != 0
        if not is_lost and not interval.inside(flushed(number)):
            raise ValueError(f"{name} must be {interval.demand}, but is {number.item():g}")
        if not interval.inside(rounded):
            raise ValueError(
                f"{name} must be {interval.demand}, but {number.item():g} is {rounded.item():g} in "
                f"{rounded.dtype}, the precision of the data"
            )
        if not isinstance(value, jax.Array) or rounded == 0:
            return as_array(rounded)
    array = strongly_typed(as_array(value), dtype)
    return array if is_concrete(value) else guarded_parameter(array, name, interval, thrown_by)


def _without_subnormal(array: Array) -> Array:
    """A concrete array with subnormal numbers replaced by zero, so that NumPy checks the values
    with which the compiled program computes on every device.
    """
    values = values_of(array)
    if np.array_equal(flushed(values), values, equal_nan=True):
        return array
    with jax.ensure_compile_time_eval():
        return jnp.where(jnp.abs(array) < jnp.finfo(array.dtype).tiny, 0, array)


def as_numbers(
    value: Any, dtype: Any, name: str, interval: Interval, thrown_by: str | None = None
) -> Float[Array, " r"]:
    """A vector of numbers (r,) in the data's dtype. Raises ValueError outside the interval."""
    array = strongly_typed(_as_array(value, name), dtype)
    if array.ndim != 1 or not array.size:
        raise ValueError(
            f"{name} must be a vector of numbers (r,), at least one, but has shape {array.shape}"
        )
    if not is_concrete(array):
        return guarded_parameter(array, name, interval, thrown_by)
    for i, number in enumerate(np.asarray(array)):
        if not interval.contains(number):
            raise ValueError(f"{name} must be {interval.demand}, but {name}[{i}] is {number:g}")
    return _without_subnormal(array)


def as_noise(noise: ArrayLike, n: int, dtype: Any, thrown_by: str | None = None) -> Array:
    """A noise variance >= 0: a number, or one for each point (n,)."""
    if not isinstance(noise, list) and np.ndim(noise) == 0:
        return as_scalar(noise, dtype, "noise", NONNEGATIVE, thrown_by)
    array = strongly_typed(_as_array(noise, "noise"), dtype)
    if array.shape != (n,):
        raise ValueError(
            f"noise must be a number or have shape ({n},), one per point, but has shape "
            f"{array.shape}"
        )
    if not is_concrete(array):
        return guarded_parameter(array, "noise", NONNEGATIVE, thrown_by)
    check_finite(array, "noise")
    array = _without_subnormal(array)
    values = values_of(array)
    if values.min() < 0:
        raise ValueError(
            f"noise is a variance and must not be negative, but noise[{values.argmin()}] is "
            f"{values.min():g}"
        )
    return array


def as_targets(y: ArrayLike, n: int, dtype: Any, name: str = "y", *, finite: bool = True) -> Array:
    """Targets `(n,)` or `(n, outputs)` in the data's dtype and, on request, finite."""
    targets = strongly_typed(_as_array(y, name), dtype)
    if targets.ndim not in (1, 2) or len(targets) != n or targets.shape[1:] == (0,):
        raise ValueError(
            f"{name} must have shape ({n},) or ({n}, outputs) to go with {n} points, but has shape "
            f"{targets.shape}"
        )
    if finite:
        check_finite(targets, name, "drop such rows or impute")
    return targets


def as_weights(
    weights: ArrayLike | None,
    n: int,
    dtype: Any,
    name: str = "weights",
    thrown_by: str | None = None,
) -> AbstractWeights:
    """Non-negative weights `(n,)`, not all zero, in the data's dtype; ones for None."""
    if weights is None:
        return UnitWeights(n, np.dtype(dtype))
    array = strongly_typed(_as_array(weights, name), dtype)
    if array.shape != (n,):
        raise ValueError(
            f"{name} must have shape ({n},), one per point, but have shape {array.shape}"
        )
    if not is_concrete(array):
        some = jnp.any(array != 0)
        array = guarded_parameter(array, name, NONNEGATIVE, thrown_by)
        return PointWeights(jnp.where(some, array, jnp.nan))
    check_finite(array, name)
    values = values_of(array)
    if values.min() < 0:
        raise ValueError(
            f"{name} must not be negative, but {name}[{values.argmin()}] is {values.min():g}"
        )
    check_some_weight(values, name)
    return PointWeights(_without_subnormal(array))


def check_some_weight(values: np.ndarray, name: str) -> None:
    """Raises ValueError if all weights are zero; subnormal weights count as zero."""
    if not flushed(values).any():
        largest = values.max()
        least = np.finfo(values.dtype).tiny
        but = f", but {largest:g}, the largest, counts as zero: it is below {least:.2g}"
        came = f"{but}, the least positive number of {values.dtype}" if largest > 0 else ""
        raise ValueError(f"{name} must not all be zero{came}: no point is left to fit")


def check_axes(value: Any, name: str) -> None:
    """Raises ValueError for an array over explicit axes of a mesh, or on a mesh other than that of
    `jax.set_mesh`.
    """
    if not isinstance(value, jax.Array):
        return
    sharding = jax.typeof(value).sharding
    axes = [axis for axis in sharding.spec if axis is not None]
    if axes:
        number = len(sharding.mesh.axis_names)
        all_of_them = f" * {number}" if number > 1 else ""
        raise ValueError(
            f"{name} must be laid out over automatic axes of a mesh, but has explicit ones, "
            f"{axes[0]!r}: {OVER_A_MESH} of arrays of NumPy makes them automatic, and so does "
            f"jax.make_mesh(..., axis_types=(jax.sharding.AxisType.Auto,){all_of_them})"
        )
    check_mesh(sharding.mesh, name)


def check_mesh(mesh: AbstractMesh, name: str) -> None:
    """Raises ValueError if this mesh and that of `jax.set_mesh` both exist and differ."""
    known = jax.sharding.get_abstract_mesh()
    if known.empty or mesh.empty:
        return
    # Manual axes, as inside `shard_map`, match any kind.
    kinds = zip(known.axis_types, mesh.axis_types)
    are_alike = all(one == two or AxisType.Manual in (one, two) for one, two in kinds)
    if known.shape_tuple != mesh.shape_tuple or not are_alike:
        raise ValueError(
            f"{name} must be on the mesh of jax.set_mesh, {_of_axes(known)}, but is on one of "
            f"{_of_axes(mesh)}: call jax.set_mesh(X.sharding.mesh) for these X, such as "
            f"{OVER_A_MESH} returns, or not at all"
        )


def _of_axes(mesh: AbstractMesh) -> str:
    kinds = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types)
    return ", ".join(f"{kind.name} {name!r} of {size}" for name, size, kind in kinds)
