"""Checks of the fields of a module: types, shapes and intervals, and the checks of the class."""

import dataclasses
import types
import typing
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
from jaxtyping import Shaped

from kernax.core.base.intervals import Interval
from kernax.core.base.parameters import DATA, check_intervals

_ARRAYS = (jax.Array, np.ndarray, np.generic)
_MOST_STACKED = 2  # axes that `vmap` may have added in front of every array of a module


def check_fields(module: eqx.Module) -> None:
    """Raises ValueError for fields of a wrong type or outside their interval.

    It also raises where a converter or the `__check_init__` of the class does.
    """
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        where = f"{type(module).__name__}.{field.name}"
        role = field.metadata.get("role")
        # A data field that is declared as a pytree has leaves, all of them arrays; other
        # declarations are more specific.
        is_tree_of_data = role == DATA and field.type is jaxtyping.PyTree
        leaves = jax.tree.leaves(value) if is_tree_of_data else []
        is_of_arrays = bool(leaves) and all(isinstance(leaf, _ARRAYS) for leaf in leaves)
        if not fits(value, field.type) or (is_tree_of_data and not is_of_arrays):
            shown = getattr(field.type, "__name__", None) or str(field.type)
            raise ValueError(f"{where} must be of type {shown}, but is {str(value)[:60]!r}")
        is_number = isinstance(value, (int, float))
        if isinstance(role, Interval) and is_number and not role.contains(value):
            raise ValueError(f"{where} must be {role.demand}, but is {value}")
        convert = field.metadata.get("converter")
        if field.metadata.get("static") and convert is not None:
            kept = convert(value)  # raises as the constructor would
            if type(kept) is not type(value) or kept != value:
                raise ValueError(f"{where} must be {kept!r}, but is {str(value)[:60]!r}")
    check_intervals(module)
    _check_whole(module)


def _check_whole(module: eqx.Module) -> None:
    """Runs the `__check_init__` of a module, or of the first of a batch of modules."""
    refusals = []
    for axes in range(_MOST_STACKED + 1):
        # The first of the modules that `vmap` has stacked along so many axes.
        of_first = lambda leaf, axes=axes: (
            leaf[(0,) * min(axes, leaf.ndim)] if eqx.is_array(leaf) else leaf
        )
        try:
            _check_init(jax.tree.map(of_first, module) if axes else module)
        except (ValueError, TypeError, AttributeError, IndexError) as problem:
            refusals.append(problem)
        else:
            return
    raise ValueError(str(refusals[0])) from refusals[0]


def _check_init(module: eqx.Module) -> None:
    """Calls the converter of every field, which must not change the stored value, and every
    `__check_init__` of the class and its bases, as equinox does.
    """
    for field in dataclasses.fields(module):
        convert = field.metadata.get("converter")
        value = getattr(module, field.name)
        if convert is None or field.metadata.get("static"):
            continue
        if jax.tree.structure(convert(value)) != jax.tree.structure(value):
            where = f"{type(module).__name__}.{field.name}"
            raise ValueError(f"{where} must be as its class stores it, but is {str(value)[:60]!r}")
    for cls in type(module).__mro__:
        check = vars(cls).get("__check_init__")
        if check is not None:
            check(module)


def check_shapes(node: Any) -> None:
    """Raises ValueError if the shapes of arrays of any module in a model contradict the
    declarations of its class; batches of modules have additional leading axes.
    """
    if isinstance(node, eqx.Module):
        # The shapes of its own arrays, against the declarations of its class.
        shapes = {}
        for declared in dataclasses.fields(node):
            value = getattr(node, declared.name)
            hint: Any = declared.type
            members = typing.get_args(hint) if _is_union(hint) else (hint,)
            hints = [member for member in members if hasattr(member, "dim_str")]
            if isinstance(value, _ARRAYS) and hints:
                shapes[declared.name] = (value.shape, hints[0].dim_str)
        if not any(_shapes_agree(shapes, axes) for axes in range(_MOST_STACKED + 1)):
            words = [f"{name} {shape} ({dims.strip()})" for name, (shape, dims) in shapes.items()]
            raise ValueError(
                f"the shapes of {type(node).__name__} do not fit each other: {', '.join(words)}"
            )
        parts = [getattr(node, field.name) for field in dataclasses.fields(node)]
    elif isinstance(node, dict):
        parts = list(node.values())
    else:
        parts = list(node) if isinstance(node, (tuple, list)) else []
    for part in parts:
        check_shapes(part)


def _shapes_agree(shapes: dict[str, tuple[tuple[int, ...], str]], axes: int) -> bool:
    """Whether shapes, without their common leading axes, agree with jaxtyping's declarations, in
    which a name stands for one size.
    """
    if len({shape[:axes] for shape, _ in shapes.values()}) > 1:
        return False
    with jaxtyping.jaxtyped("context"):
        # The checks are here because jaxtyping keeps the sizes of names for one function.
        for shape, dims in shapes.values():
            declared: Any = Shaped[np.ndarray, dims]
            if not isinstance(np.broadcast_to(0.0, shape[axes:]), declared):
                return False
    return True


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type; shapes of arrays are ignored, as they may be stacked.

    Any value fits a type hint of an unknown kind.
    """
    origin = typing.get_origin(hint)
    parts = typing.get_args(hint)
    if _is_union(hint):
        return any(fits(value, part) for part in parts)
    if origin is typing.Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        # `(T, ...)` means any number of T.
        each = parts[:1] * len(value) if parts[1:] == (...,) else parts
        return len(value) == len(each) and all(map(fits, value, each))
    if hint is None:
        return value is None
    if hint is jaxtyping.PyTree:
        leaves = jax.tree.leaves(value)
        return all(isinstance(leaf, _ARRAYS) or _is_number(leaf) for leaf in leaves)
    return fits_class(value, origin or hint)


def is_for_numpy(hint: Any) -> bool:
    """Whether a field is declared to hold arrays of NumPy, possibly among other types."""
    parts = typing.get_args(hint) or (hint,)
    return any(getattr(part, "array_type", None) is np.ndarray for part in parts)


def fits_class(value: Any, cls: Any) -> bool:
    """Whether a value is allowed in a field that is declared with a class.

    Any value is allowed if the declaration is not a class.
    """
    if cls is Any or not isinstance(cls, type):
        return True
    if hasattr(cls, "dtypes"):  # a declaration of jaxtyping
        if _is_number(value):
            # A Python number may stand for an array where the declaration allows no axes.
            with jaxtyping.jaxtyped("context"):
                declared: Any = Shaped[np.ndarray, cls.dim_str]
                return isinstance(np.zeros(()), declared)
        # Without a list of names any dtype is allowed.
        allows_any = not isinstance(cls.dtypes, (tuple, list))
        is_array = isinstance(value, _ARRAYS)
        return is_array and (allows_any or jnp.dtype(value.dtype).name in cls.dtypes)
    if cls is jax.Array:
        return isinstance(value, _ARRAYS)
    if cls is float:
        return _is_number(value)
    if cls is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, cls)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
