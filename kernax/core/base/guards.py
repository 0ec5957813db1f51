"""Traced parameters outside of their intervals: NaN, and an error at run time that names them.

Known values are checked before anything is compiled, where they came. A traced one is NaN where it
is outside, so that the solve ends as `nonfinite`. Where a function throws, the program looks at it
as well, and raises an error that says which parameter it was, and its value.
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

from kernax.core.base.intervals import Interval, flushed
from kernax.core.base.numerics import is_concrete


class Parameter(NamedTuple):
    """A traced number or array, what messages call it, and where it has to lie."""

    name: str
    interval: Interval
    value: Array


def guarded_parameter(
    value: Array, name: str, interval: Interval, thrown_by: str | None = None
) -> Array:
    """`guarded_parameters` of one."""
    return guarded_parameters([Parameter(name, interval, value)], thrown_by)[0]


def guarded_parameters(
    parameters: Sequence[Parameter], thrown_by: str | None = None
) -> list[Array]:
    """The values, NaN where they are outside of their intervals.

    Arguments:
        parameters: all of a call that are at hand: one check is made of them.
        thrown_by: the function that raises an error at run time for values outside; None for NaN
        alone.
            On a machine of several devices it is NaN alone: of a program over them, those that do
            not raise would wait for the one that does.
    """
    are_inside = [each.interval.inside(each.value) for each in parameters]
    if thrown_by is not None and parameters and jax.device_count() == 1:
        sound = _raising_check(parameters, are_inside, thrown_by)
        # Tied to the check, so that XLA computes nothing from the values without it.
        are_inside = [is_inside & sound for is_inside in are_inside]
    # By a product, so that the derivative is NaN as well (see `Interval.guarded`).
    return [
        each.value * jnp.where(is_inside, jnp.ones_like(each.value), jnp.nan)
        for each, is_inside in zip(parameters, are_inside)
    ]


def _raising_check(
    parameters: Sequence[Parameter], are_inside: list[Bool[Array, "..."]], thrown_by: str
) -> Bool[Array, ""] | bool:
    """True, or an error where a value is outside of its interval."""
    values = [lax.stop_gradient(each.value) for each in parameters]
    all_inside = functools.reduce(operator.and_, map(_of_all, are_inside))
    # Whether any member of a `vmap` is at fault, so that the callback costs nothing until one is.
    is_any_outside = eqxi.unvmap_any(~all_inside)
    if is_concrete(is_any_outside) and not is_any_outside:
        return True

    def refuse(values: list[Any]) -> np.ndarray:
        # By NumPy: what JAX computes in a callback may wait for the program that calls it.
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
        refuse(values)  # under `jax.grad` alone, before anything is computed
    raising = lambda values: jax.pure_callback(
        refuse, jax.ShapeDtypeStruct((), bool), values, vmap_method="broadcast_all"
    )
    return lax.cond(is_any_outside, raising, lambda values: jnp.array(True), values)


def _of_all(mask: Bool[Array, "..."]) -> Bool[Array, ""]:
    """Whether all of an array hold; a scalar as it is, without an operation."""
    return mask if mask.ndim == 0 else jnp.all(mask)
