"""Checks of traced parameters: outside of its interval a parameter becomes NaN, or raises an error.

Concrete values are checked before anything is compiled. A traced value outside of its interval
becomes NaN, so that the solve ends with the status `nonfinite`. With `throw=True` the program also
checks it at run time, and raises an error with the name of the parameter and its value.
"""

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool

from kernax.core.base.intervals import Interval, flushed, nan_outside
from kernax.core.base.numerics import is_concrete, known_value


class Parameter(NamedTuple):
    """A traced number or array, its name in messages, and its interval."""

    name: str
    interval: Interval
    value: Array


def guarded_parameter(
    value: Array, name: str, interval: Interval, thrown_by: str | None = None
) -> Array:
    """`guarded_parameters` for one parameter."""
    return guarded_parameters([Parameter(name, interval, value)], thrown_by)[0]


def guarded_parameters(
    parameters: Sequence[Parameter], thrown_by: str | None = None
) -> list[Array]:
    """The values, with NaN where they are outside of their intervals.

    Arguments:
        parameters: the parameters of a call, which are checked together.
        thrown_by: the function that raises an error at run time for values outside; None for NaN
            only. On several devices values only become NaN, because the devices that do not raise
            would wait for the one that does.
    """
    # Under `jax.grad` alone the values are known. NumPy checks them without a program for each
    # operation, and nothing changes if all are inside.
    if all(map(_is_known_to_be_inside, parameters)):
        return [each.value for each in parameters]
    are_inside = [each.interval.inside(each.value) for each in parameters]
    if thrown_by is not None and parameters and jax.device_count() == 1:
        sound = _raising_check(parameters, are_inside, thrown_by)
        # The values depend on the check, so that XLA computes nothing from them without it.
        are_inside = [is_inside & sound for is_inside in are_inside]
    return [nan_outside(each.value, inside) for each, inside in zip(parameters, are_inside)]


def _is_known_to_be_inside(parameter: Parameter) -> bool:
    """Whether a value is known, on this process, and inside."""
    value = known_value(parameter.value)
    is_here = value is not None and getattr(value, "is_fully_addressable", True)
    return is_here and parameter.interval.contains(value)


def _raising_check(
    parameters: Sequence[Parameter], are_inside: list[Bool[Array, "..."]], thrown_by: str
) -> Bool[Array, ""] | bool:
    """True; raises an error at run time if a value is outside of its interval."""
    values = [lax.stop_gradient(each.value) for each in parameters]
    # A scalar is one truth value already, without an operation.
    each_inside = [mask if mask.ndim == 0 else jnp.all(mask) for mask in are_inside]
    all_inside = functools.reduce(operator.and_, each_inside)
    # Test whether any member of a `vmap` is outside, so that the callback costs nothing otherwise.
    is_any_outside = eqxi.unvmap_any(~all_inside)
    if is_concrete(is_any_outside) and not is_any_outside:
        return True

    def refuse(values: list[Any]) -> np.ndarray:
        # NumPy computes this, because JAX in a callback may wait for the program that calls it.
        arrays = [flushed(np.asarray(value)) for value in values]
        for each, array in zip(parameters, arrays):
            outside = array[~each.interval.inside(array)]
            if outside.size:
                came = "is" if jnp.ndim(each.value) == 0 else "holds"
                raise ValueError(
                    f"{each.name} must be {each.interval.demand}, but {came} {outside[0]:g} in "
                    f"{thrown_by}"
                )
        batch = arrays[0].shape[: arrays[0].ndim - jnp.ndim(parameters[0].value)]
        return np.full(batch, True)

    if is_concrete(values):
        refuse(values)  # only under `jax.grad`, before anything is computed
    raising = lambda values: jax.pure_callback(
        refuse, jax.ShapeDtypeStruct((), bool), values, vmap_method="broadcast_all"
    )
    return lax.cond(is_any_outside, raising, lambda values: jnp.array(True), values)
