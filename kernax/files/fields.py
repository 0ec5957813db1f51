"""Whether the fields of a module hold what they were declared to hold: the type, the support, the class's own checks."""

import dataclasses
import types
import typing
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np

from kernax.core.parameters import check_supports
from kernax.core.support import Support

_ARRAYS = (jax.Array, np.ndarray, np.generic)
_MOST_STACKED = 2  # axes that `vmap` may have put in front of every array of a module


def check_fields(module: eqx.Module) -> None:
    """Raises ValueError for a field of the wrong type or outside its support, and where the class's own checks refuse."""
    for field in dataclasses.fields(module):
        value, where = getattr(module, field.name), f"{type(module).__name__}.{field.name}"
        if not fits(value, field.type):
            raise ValueError(f"{where} must be of type {_shown(field.type)}, but is {str(value)[:60]!r}")
        support = field.metadata.get("role")
        if isinstance(support, Support) and isinstance(value, (int, float)) and not support.contains(np.asarray(value)):
            raise ValueError(f"{where} must be in {support}, but is {value}")
        if field.metadata.get("static") and "converter" in field.metadata:
            field.metadata["converter"](value)  # raises, as it would if the module were made
    check_supports(module)
    _check_whole(module)


def _check_whole(module: eqx.Module) -> None:
    """Runs `__check_init__` as making the module would; that of a stack of modules, on the first of them."""
    refusals = []
    for axes in range(_MOST_STACKED + 1):
        try:
            _check_init(module if axes == 0 else _first_of_stack(module, axes))
        except (ValueError, TypeError, AttributeError, IndexError) as problem:
            refusals.append(problem)
        else:
            return
    raise ValueError(str(refusals[0])) from refusals[0]


def _first_of_stack(module: eqx.Module, axes: int) -> eqx.Module:
    return jax.tree.map(lambda leaf: leaf[(0,) * min(axes, leaf.ndim)] if eqx.is_array(leaf) else leaf, module)


def _check_init(module: eqx.Module) -> None:
    for cls in type(module).__mro__:
        check = vars(cls).get("__check_init__")
        if check is not None:
            check(module)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of the declared type, the shapes of arrays aside: they may be stacked. Unknown hints fit anything."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in parts)
    if origin is typing.Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is tuple:
        each = parts[:1] * len(value) if parts[1:] == (...,) and isinstance(value, tuple) else parts
        return isinstance(value, tuple) and len(value) == len(each) and all(map(fits, value, each))
    if hint is None:
        return value is None
    if hint is jaxtyping.PyTree:
        return all(isinstance(leaf, (*_ARRAYS, int, float)) for leaf in jax.tree.leaves(value))
    return fits_class(value, origin or hint)


def fits_class(value: Any, cls: Any) -> bool:
    """Whether a value may stand in a field declared with a class; what is no class allows everything."""
    if cls is Any or not isinstance(cls, type):
        return True
    if hasattr(cls, "dtypes"):  # one of jaxtyping's: a Python number will do for a scalar
        return _is_number(value) or (isinstance(value, _ARRAYS) and _is_of_dtypes(value, cls.dtypes))
    if cls is jax.Array:
        return isinstance(value, _ARRAYS)
    if cls is float:
        return _is_number(value)
    if cls is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, cls)


def _is_of_dtypes(value: Any, dtypes: Any) -> bool:
    return not isinstance(dtypes, (tuple, list)) or jnp.dtype(value.dtype).name in dtypes  # else any will do


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
