"""The parameters of a model, the intervals of their values, and their unconstrained form.

A field of a module declares its role once, where it is defined:

    class RBF(AbstractStationary):
        lengthscale: Float[Array, "*d"] = positive(default=1.0)

`unconstrain` converts a whole model, however nested, to a flat dictionary of unconstrained arrays
and back.
"""

import dataclasses
import functools
import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from kernax.core.base.compiled import is_staging
from kernax.core.base.intervals import NONNEGATIVE, POSITIVE, REAL, Interval, flushed
from kernax.core.base.numerics import as_array, is_concrete, strongly_typed
from kernax.core.base.printing import described
from kernax.core.base.solution import warn
from kernax.errors import UndeclaredFieldWarning

DATA = "data"  # the role of arrays that are not parameters


def positive(**kwargs) -> Any:
    """A field for parameters in (0, inf).

    Examples:
        >>> class Width(kernax.AbstractStationary):
        ...     width: jax.Array = kernax.fields.positive(default=1.0)
        ...     lengthscale: jax.Array = kernax.fields.positive(default=1.0)
        ...     def of_squared_distance(self, s):
        ...         return 1 / (self.width + s)
        ...
        >>> print(kernax.describe(Width(2.0)))
        parameter    value  interval  state
        width        2      (0, inf)  free
        lengthscale  1      (0, inf)  free
    """
    return _parameter(POSITIVE, **kwargs)


def nonnegative(**kwargs) -> Any:
    """A field for parameters in [0, inf). A parameter that is exactly zero cannot be learned:
    freeze it.

    Examples:
        >>> import equinox as eqx
        >>> class Trend(eqx.Module):
        ...     slope: jax.Array = kernax.fields.nonnegative(default=1.0)
        ...
        >>> print(kernax.describe(Trend(2.0)))
        parameter  value  interval  state
        slope      2      [0, inf)  free
    """
    return _parameter(NONNEGATIVE, **kwargs)


def interval(
    low: float, high: float, *, closed: tuple[bool, bool] = (False, False), **kwargs
) -> Any:
    """A field for parameters between two finite ends; `closed` says whether each end is allowed.

    Examples:
        >>> import equinox as eqx
        >>> class Mixture(eqx.Module):
        ...     share: jax.Array = kernax.fields.interval(0.0, 1.0, default=0.5)
        ...
        >>> print(kernax.describe(Mixture()))
        parameter  value  interval  state
        share      0.5    (0, 1)    free
    """
    if not -math.inf < low < high < math.inf:
        raise ValueError(
            f"interval({low}, {high}) needs two finite ends, the lower one first: see positive(), "
            "nonnegative() and real()"
        )
    return _parameter(Interval(low, high, closed), **kwargs)


def above(low: float, **kwargs) -> Any:
    """A field for parameters in (low, inf).

    Examples:
        >>> import equinox as eqx
        >>> class Tail(eqx.Module):
        ...     degrees: jax.Array = kernax.fields.above(2.0, default=4.0)
        ...
        >>> print(kernax.describe(Tail()))
        parameter  value  interval  state
        degrees    4      (2, inf)  free
    """
    if not math.isfinite(low):
        raise ValueError(f"above({low}) needs a finite end: see real()")
    return _parameter(Interval(low=float(low)), **kwargs)


def real(**kwargs) -> Any:
    """A field for parameters anywhere on the line.

    Examples:
        >>> import equinox as eqx
        >>> class Line(eqx.Module):
        ...     slope: jax.Array = kernax.fields.real()
        ...
        >>> theta, rebuild = kernax.unconstrain(Line(2.0))
        >>> theta
        {'slope': Array(2., dtype=float64)}
    """
    return _parameter(REAL, **kwargs)


def data(**kwargs) -> Any:
    """A field for arrays that are never learned: points, coefficients, factors, statistics.

    Examples:
        >>> import equinox as eqx
        >>> class Scaled(eqx.Module):
        ...     scale: jax.Array = kernax.fields.positive()
        ...     points: jax.Array = kernax.fields.data()
        ...
        >>> theta, rebuild = kernax.unconstrain(Scaled(2.0, jnp.zeros((3, 1))))
        >>> list(theta)
        ['scale']
    """
    return eqx.field(metadata={"role": DATA}, **kwargs)


def integer(name: str, least: int = 1, hint: str = "", **kwargs) -> Any:
    """A static field for an integer, `least` or larger.

    The message of its ValueError contains `name` and ends with the hint.

    Examples:
        >>> import equinox as eqx
        >>> class Steps(eqx.Module):
        ...     count: int = kernax.fields.integer("count")
        ...
        >>> Steps(3).count
        3
        >>> kernax.unconstrain(Steps(3))[0]  # it is not learned
        {}
    """
    return eqx.field(
        static=True, converter=lambda value: check_count(value, name, least, hint), **kwargs
    )


def _parameter(interval: Interval, **kwargs):
    # A field knows its name once its class is made.
    converter = lambda value: as_floats(value, field.name)
    field = eqx.field(converter=converter, metadata={"role": interval}, **kwargs)
    return field


def as_floats(value: Any, name: str = "a parameter") -> Array:
    """A strongly typed array of the value's own float dtype, or of JAX's default float.

    Raises ValueError for anything but real numbers.
    """
    if isinstance(value, (bool, int, float)) and not is_staging():
        return as_array(np.asarray(value, float))
    is_list = isinstance(value, (list, tuple))
    if isinstance(value, (bool, int, float)) or (is_list and not is_concrete(value)):
        return jnp.asarray(value, dtype=float)
    array: Any = value
    if not isinstance(value, (np.ndarray, jax.Array)) and (is_list or hasattr(value, "__array__")):
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different lengths
            array = None
    kind = getattr(array, "dtype", None)
    if kind is None or not (kind == np.bool_ or jnp.issubdtype(kind, np.number)):
        raise ValueError(
            f"{name} must be a number or an array of numbers, but is {value!r}: pass a float, or "
            "an array such as jnp.array([1.0, 2.0])"
        )
    if jnp.issubdtype(kind, jnp.complexfloating):
        raise ValueError(f"{name} must be real, but is of type {kind}")
    array = as_array(array)
    is_float = jnp.issubdtype(array.dtype, jnp.inexact) and not is_list
    dtype = array.dtype if is_float else jnp.result_type(float)
    return strongly_typed(array, dtype)


@dataclasses.dataclass(frozen=True)
class ParameterEntry:
    """One parameter of a model."""

    path: str  # such as `terms[0].kernel.lengthscale`
    interval: Interval
    leaf_index: int  # among the leaves of the model
    value: Any


def parameters(model: PyTree) -> list[ParameterEntry]:
    """All parameters of a model. Arrays of floats that no field declares count as real.

    Such arrays are the weights of a network. Raises ValueError for a bare Python float in a tuple,
    list or dict, which would silently not be learned.
    """
    entries = []
    for keys, entry in _leaves(model):
        in_field = bool(keys) and isinstance(keys[-1], jax.tree_util.GetAttrKey)
        if _is_python_float(entry.value) and not in_field:
            raise ValueError(
                f"{entry.path} is a Python float: pass an array, or declare a field "
                "kernax.fields.positive() in a module, to learn it"
            )
        if eqx.is_inexact_array(entry.value):
            entries.append(entry)
    return entries


def _is_python_float(leaf: Any) -> bool:
    """Whether a leaf is a Python float; NumPy floats are arrays."""
    return isinstance(leaf, float) and not eqx.is_inexact_array(leaf)


def ends_like(path: str, end: str) -> bool:
    """Whether a path is `end`, or ends with a point and `end`."""
    return path == end or path.endswith(f".{end}")


def listed(entries: list[ParameterEntry]) -> str:
    """The paths of the parameters, for the end of a message."""
    return "the model's parameters are " + (", ".join(entry.path for entry in entries) or "none")


def entry_ending(model: PyTree, end: str) -> ParameterEntry:
    """The parameter with the path `end`, or else the only one with a path that ends in it.

    Raises ValueError if there is no such parameter, or several (see `ends_like`).
    """
    entries = parameters(model)
    found = [entry for entry in entries if ends_like(entry.path, end)]
    found = [entry for entry in found if entry.path == end] or found
    if not found:
        raise ValueError(f"no parameter ends in {end!r}: {listed(entries)}")
    if len(found) > 1:
        paths = ", ".join(entry.path for entry in found)
        raise ValueError(f"several parameters end in {end!r}: write a longer end of one of {paths}")
    return found[0]


def fixed_parameters(model: PyTree) -> list[ParameterEntry]:
    """The parameters of modules in fields of `data`, such as the kernel that a posterior covariance
    was made from, which are never learned.
    """
    return [entry for _, entry in _leaves(model, of_data=True) if eqx.is_inexact_array(entry.value)]


def _leaves(model: PyTree, *, of_data: bool = False) -> list[tuple[tuple, ParameterEntry]]:
    """Every leaf that is not declared as data, with its path of keys; with `of_data` every leaf
    with a declared interval inside a field that is.
    """
    entries = []
    for leaf_index, (keys, leaf) in enumerate(jax.tree_util.tree_flatten_with_path(model)[0]):
        # The role declared by the innermost field around a leaf, or real; `data` takes
        # precedence.
        role = REAL
        in_data = False
        node = model
        for key in keys:
            if isinstance(key, jax.tree_util.GetAttrKey):
                role = _declared_role(node, key.name) or role
                in_data = in_data or role == DATA
            node = _child(node, key)
        if isinstance(role, Interval) and in_data == of_data:
            path = jax.tree_util.keystr(keys).lstrip(".") or "value"
            entries.append((keys, ParameterEntry(path, role, leaf_index, leaf)))
    return entries


def undeclared_fields(model: PyTree) -> dict[str, tuple[type, str]]:
    """The paths of parameters that no field declares, with the class and the name of the innermost
    field that contains each.

    Parameters outside of modules, such as a dictionary of arrays, are omitted.
    """
    found = {}
    for keys, entry in _leaves(model):
        declared = False
        holder = None
        node = model
        for key in keys:
            if isinstance(key, jax.tree_util.GetAttrKey):
                declared = declared or _declared_role(node, key.name) is not None
                holder = (type(node), key.name) if dataclasses.is_dataclass(node) else holder
            node = _child(node, key)
        if holder is not None and not declared and eqx.is_inexact_array(entry.value):
            found[entry.path] = holder
    return found


def _child(node: Any, key: Any) -> Any:
    """The child of a node of a pytree under a key."""
    if isinstance(key, jax.tree_util.GetAttrKey):
        return getattr(node, key.name)
    if isinstance(key, jax.tree_util.FlattenedIndexKey):
        # By number for a class that JAX knows without keys, such as `jax.tree_util.Partial`.
        return jax.tree.leaves(node, is_leaf=lambda part: part is not node)[key.key]
    return node[key.idx if isinstance(key, jax.tree_util.SequenceKey) else key.key]


def _declared_role(node: Any, name: str) -> Any:
    """The role of a field in its module, or None."""
    fields = dataclasses.fields(node) if dataclasses.is_dataclass(node) else ()
    return next((field.metadata.get("role") for field in fields if field.name == name), None)


def check_count(value: Any, name: str, least: int = 1, hint: str = "") -> int:
    """The value as a Python integer. Raises ValueError unless it is an integer, or an integer array
    of shape (), that is at least `least`.
    """
    if not _is_integer(value) or int(value) < least:
        kind = "a positive integer" if least == 1 else f"an integer >= {least}"
        raise ValueError(f"{name} must be {kind}, but is {described(value)}{hint}")
    return int(value)


def _is_integer(value: Any) -> bool:
    """Whether a value is a concrete integer and not a boolean."""
    if isinstance(value, (np.ndarray, jax.Array)):
        is_scalar = is_concrete(value) and value.shape == ()
        return is_scalar and jnp.issubdtype(value.dtype, jnp.integer)
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def check_steps(value: Any) -> None:
    """Raises ValueError unless the value is a positive integer, or traced."""
    is_traced_integer = not is_concrete(value) and jnp.issubdtype(value.dtype, jnp.integer)
    if not is_traced_integer:
        check_count(value, "max_steps")


def check_positive(value: Any, name: str) -> None:
    """Raises ValueError unless the value is traced, or positive and not flushed to zero in a
    compiled program.
    """
    if not is_concrete(value):
        return
    if not (_is_real_number(value) and value > 0):
        raise ValueError(f"{name} must be positive, but is {value!r}")
    _check_not_flushed(value, name, "positive")


def _is_real_number(value: Any) -> bool:
    """Whether a concrete value is a single real number."""
    return eqx.is_array_like(value) and np.ndim(value) == 0 and not np.iscomplexobj(value)


def check_share(value: Any, name: str) -> None:
    """Raises ValueError unless the value, such as a relative tolerance, is traced, or between 0 and
    1 and not flushed to zero in a compiled program.
    """
    if not is_concrete(value):
        return
    if not (_is_real_number(value) and 0 < float(value) < 1):
        raise ValueError(f"{name} must be between 0 and 1, but is {value!r}")
    _check_not_flushed(value, name, "between 0 and 1")


def _check_not_flushed(value: Any, name: str, demand: str) -> None:
    """Raises ValueError for a positive number that is zero in JAX's default float."""
    dtype = jnp.result_type(float)
    with np.errstate(over="ignore"):
        rounded = flushed(np.asarray(value).astype(dtype))
    if rounded == 0:
        raise ValueError(f"{name} must be {demand}, but {value!r} is 0 in {dtype}")


def check_stopping(rtol: Any, max_steps: Any) -> None:
    """Raises ValueError for a tolerance that is not positive, or for less than one step.

    None means the default.
    """
    if rtol is not None:
        check_positive(rtol, "rtol")
    if max_steps is not None:
        check_steps(max_steps)


def as_stopping(rtol: Any, max_steps: Any) -> tuple[Any, Any]:
    """A tolerance and a number of steps as arrays, so that other values do not compile again; None
    stays None. Raises ValueError as `check_stopping` does.
    """
    check_stopping(rtol, max_steps)
    return _as_number(rtol), None if max_steps is None else _as_steps(max_steps)


def as_steps(value: Any, name: str = "max_steps") -> Array:
    """A number of steps as an array, so that another number does not compile again. Raises
    ValueError unless it is a positive integer.
    """
    return _as_steps(check_count(value, name))


def with_arrays(solver: Any) -> Any:
    """A solver with its floats and `max_steps` as arrays, so that other values do not compile
    again.
    """

    def as_array_leaf(keys: tuple, leaf: Any) -> Any:
        is_steps = keys[-1:] == (jax.tree_util.GetAttrKey("max_steps"),)
        if is_steps and (type(leaf) is int or eqx.is_array(leaf)):
            return _as_steps(leaf)
        return _as_number(leaf) if isinstance(leaf, float) else leaf

    return jax.tree_util.tree_map_with_path(as_array_leaf, solver)


def _as_number(value: Any) -> Any:
    """A Python or NumPy number as an array of weak type, which adopts the precision of the array
    with which it is compared; None and traced values are unchanged.
    """
    if value is None or not is_concrete(value):
        return value
    # `jnp.asarray` would be a program of its own outside of `jit`.
    number = float(value)
    return jnp.asarray(number) if is_staging() else jax.device_put(number)


def _as_steps(value: Any) -> Array:
    """A number of steps, possibly traced, limited to the range of the counter."""
    most = np.iinfo(np.int32).max
    if is_concrete(value) and np.ndim(value) == 0:
        return as_array(np.asarray(min(int(value), most), np.int32))
    most = min(most, np.iinfo(value.dtype).max)
    return jnp.minimum(value, most).astype(jnp.int32)


def check_intervals(model: PyTree) -> None:
    """Raises ValueError for the first concrete parameter that is not finite or not allowed."""
    for entry in parameters(model):
        if is_concrete(entry.value):
            value = np.asarray(entry.value)
            if not entry.interval.contains(value):
                where = f"{type(model).__name__}.{entry.path}"
                kind = "real" if entry.interval == REAL else f"in {entry.interval}"
                raise ValueError(f"{where} must be {kind} and finite, but is {shown(value)}")


def shown(value: np.ndarray) -> str:
    """A value on one line."""
    if value.size == 1:
        return f"{value.item():g}"
    return np.array2string(value, precision=4, threshold=100, max_line_width=10**6)


class Rebuild(eqx.Module):
    """`rebuild(theta)` is the model with its free parameters from `theta`, otherwise unchanged."""

    model: PyTree
    free: dict[str, Array | None]  # flat indices of the free elements, None if all are free
    entries: tuple[tuple[str, Interval, int], ...] = eqx.field(static=True)

    def __call__(self, theta: dict[str, Array]) -> Any:
        leaves, structure = jax.tree.flatten(self.model)
        for path, interval, leaf_index in self.entries:
            value = interval.constrain(theta[path])
            indices = self.free[path]
            if indices is not None:
                leaf = leaves[leaf_index]
                value = leaf.ravel().at[indices].set(value).reshape(leaf.shape)
            leaves[leaf_index] = value
        return jax.tree.unflatten(structure, leaves)

    def log_jacobian(self, theta: dict[str, Array]) -> Array:
        """`log |d parameters / d theta|`.

        Adding it to a log density of the parameters gives the log density of theta.
        """
        # Each parameter depends on its own theta alone: the Jacobian is diagonal.
        return sum(
            (jnp.sum(interval.log_slope(theta[path])) for path, interval, _ in self.entries),
            jnp.zeros(()),
        )


Trainable = Callable[[str, Array], bool | np.ndarray]


def check_trainable(trainable: Any) -> None:
    """Raises ValueError for anything but a function or None."""
    if trainable is not None and not callable(trainable):
        raise ValueError(
            "trainable must be a function of a path and a value, but is of type "
            f"{type(trainable).__name__}: trainable=lambda path, value: path.endswith(...)"
        )


def unconstrain(
    model: PyTree, trainable: Trainable | None = None
) -> tuple[dict[str, Array], Rebuild]:
    """Returns the free parameters of a model as unconstrained arrays, and a function to rebuild it.

    Arguments:
        model: any pytree of modules and arrays.
        trainable: `trainable(path, value)` says whether a parameter is free: True, False, or a
            boolean mask of the value's shape that frees single elements (one dimension of a
            lengthscale). None frees everything.

    Returns:
        `theta`, from paths to arrays (positive parameters as their logarithms, bounded ones as
        logits; a partly frozen parameter as the vector of its free elements), and `rebuild`, a
        module with `rebuild(theta) -> model`.

    Raises:
        ValueError: a value outside its interval; a mask of the wrong shape; a free parameter at the
            very end of its interval (a scale of exactly zero), where the unconstrained value would
            be infinite; or a Python float in a field that is neither static nor `data()` nor
            frozen, and would silently not be learned.

    Examples:
        >>> theta, rebuild = kernax.unconstrain(kernax.RBF(2.0))
        >>> theta["lengthscale"].round(3)  # its logarithm
        Array(0.693, dtype=float64)
        >>> float(rebuild({"lengthscale": jnp.array(0.0)}).lengthscale)
        1.0
    """
    check_trainable(trainable)
    check_intervals(model)
    for _, entry in _leaves(model):
        if not _is_python_float(entry.value):
            continue
        if trainable is None or np.any(trainable(entry.path, jnp.asarray(entry.value))):
            raise ValueError(
                f"{entry.path} is a Python float, which is not learned: declare its field "
                "kernax.fields.positive() or real() to learn it, "
                "kernax.fields.data() to keep it, or freeze it with trainable=..."
            )
    theta = {}
    free = {}
    entries = []
    for entry in parameters(model):
        # The free elements of a parameter, or whether all are free.
        mask = np.asarray(True if trainable is None else trainable(entry.path, entry.value))
        if mask.dtype != bool or mask.shape not in ((), entry.value.shape):
            raise ValueError(
                f"trainable({entry.path!r}, value) must return a bool or a boolean mask of shape "
                f"{entry.value.shape}, but returned {mask.dtype} of shape {mask.shape}"
            )
        if mask.any():
            indices = None if mask.all() else jnp.asarray(np.flatnonzero(mask))
            # A parameter, or the vector of some of its elements, on the whole line.
            chosen = entry.value if indices is None else entry.value.ravel()[indices]
            value = entry.interval.unconstrain(chosen)
            if is_concrete(value) and not np.all(np.isfinite(value)):
                raise ValueError(
                    f"{entry.path} is at the end of its interval {entry.interval}, where nothing "
                    "can be learned: start inside, or freeze it with trainable=..."
                )
            theta[entry.path] = value
            free[entry.path] = indices
            entries.append((entry.path, entry.interval, entry.leaf_index))
    return theta, Rebuild(model, free, tuple(entries))


def interior(model: PyTree) -> Trainable:
    """A `trainable` that frees everything except parameters at the very end of their interval."""
    theta = {entry.path: entry.interval.unconstrain(entry.value) for entry in parameters(model)}
    # A Python float is not among these, and is frozen.
    return lambda path, value: np.isfinite(np.asarray(theta.get(path, np.nan)))


# Modules of these packages have weights of networks, which may be any real numbers.
_KNOWN = ("equinox", "kernax")


def warn_of_undeclared_fields(model: PyTree, learned: Iterable[str]) -> None:
    """Warns, once per process and field, of arrays among the `learned` paths that are learned as
    unbounded numbers because no field declares them.
    """
    fields = undeclared_fields(model)
    for path in learned:
        if path in fields:
            kind, name = fields[path]
            if kind.__module__.partition(".")[0] not in _KNOWN:
                _warn_of_field(kind, name)


@functools.cache
def _warn_of_field(kind: type, name: str) -> None:
    warn(
        f"{kind.__name__}.{name} is learned as an unbounded number, because no field "
        f"declares its interval: write {name}: jax.Array = kernax.fields.positive() in the "
        "class, or nonnegative(), above() or interval(); real() does the same without this "
        "warning, and data() excludes it from learning",
        UndeclaredFieldWarning,
    )
