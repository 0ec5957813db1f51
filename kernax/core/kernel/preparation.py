"""Checks and conversion of a kernel and its points, with a warning of missing features."""

import dataclasses
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.boundary import as_stack, cast, check_no_broadcast, dtype_of, is_encoded
from kernax.core.base.compiled import check_not_forked, compiled
from kernax.core.base.guards import Parameter, guarded_parameters
from kernax.core.base.numerics import is_concrete, stop_gradient, values_of
from kernax.core.base.parameters import parameters
from kernax.core.base.solution import warn
from kernax.core.kernel.kernel import (
    AbstractCombinator,
    AbstractKernel,
    as_kernel,
    encoding_of,
    name_of,
    parts_of,
)
from kernax.errors import FeaturelessWarning

Module = TypeVar("Module", bound=eqx.Module)


def prepare(
    kernel: AbstractKernel, X: PyTree, *, thrown_by: str | None = None
) -> tuple[AbstractKernel, PyTree]:
    """A kernel and its points for a learner: checked, in the dtype of the points.

    `thrown_by` names the function that raises an error at run time for traced parameters of the
    kernel outside of their intervals; with None they only become NaN.

    Warns of points without features, for normalised kernels and for strings and trees. That takes a
    separate program with n evaluations of the kernel. There is no warning under `jit`.
    """
    kernel, X, _ = prepare_stacks(kernel, X, thrown_by=thrown_by)
    if _may_lack_features(kernel, X):
        known = stop_gradient((kernel, X))
        if is_concrete(known):
            warn_of_featureless_points(kernel, X, diagonal_of(*known))
    return kernel, X


def prepare_stacks(
    kernel: AbstractKernel, X: PyTree, Z: PyTree | None = None, *, thrown_by: str | None = None
) -> tuple[AbstractKernel, PyTree, PyTree | None]:
    """`prepare` for one or two batches of points, without the warning.

    It is for functions that compute the diagonal of K anyway, or do not need it.
    """
    check_not_forked()
    kernel = as_kernel(kernel)
    encoding = partial(encoding_of, kernel)
    X = as_stack(X, "X", encoding=encoding)
    Z = None if Z is None else as_stack(Z, "Z", encoding=encoding)
    dtype = dtype_of(X) if Z is None else dtype_of(X, Z)
    _check_scalars(kernel)
    # Looked up in the class, as equinox would make a module of a method of a kernel in every call.
    check_points = partial(type(kernel).check_points, kernel)
    check_points(X)
    if Z is not None:
        check_points(Z)
        _check_one_shape(X, Z)
    return guarded(cast(kernel, dtype), thrown_by), cast(X, dtype), cast(Z, dtype)


def prepare_new(
    kernel: AbstractKernel, X: PyTree, points: PyTree, dtype: Any
) -> tuple[AbstractKernel, PyTree]:
    """`prepare_stacks` for new points X of a function with a kernel and points that a learner has
    already checked, so that only X is checked.
    """
    X = as_stack(X, "X", encoding=partial(encoding_of, kernel))
    type(kernel).check_points(kernel, X)
    _check_one_shape(X, points, "pass a batch X (m, d) with the same d, or call f(x) for one point")
    return guarded(cast(kernel, dtype)), cast(X, dtype)


def _check_one_shape(X: PyTree, Z: PyTree, *advice: str) -> None:
    """Raises ValueError if two batches of arrays have points that would be broadcast."""
    if eqx.is_array_like(X) and eqx.is_array_like(Z):
        of_x = jnp.shape(X)[1:]
        of_z = jnp.shape(Z)[1:]
        if of_x != of_z:
            check_no_broadcast(of_x, of_z, *advice)


def check_point(kernel: AbstractKernel, x: PyTree) -> None:
    """Raises ValueError for a concrete point that the kernel does not accept as a batch of one."""
    if is_concrete(x):
        kernel.check_points(jax.tree.map(lambda leaf: np.asarray(leaf)[None], x))


@compiled
def diagonal_of(kernel: AbstractKernel, X: PyTree) -> Float[Array, " n"]:
    """`k(x_i, x_i)`, for a kernel and points from `prepare`."""
    return jax.vmap(lambda x: kernel(x, x))(X)


def warn_of_featureless_points(
    kernel: AbstractKernel, X: PyTree, diagonal: Float[Array, " n"]
) -> None:
    """Warns if `k(x, x)` is concrete, zero, and this is unexpected."""
    if not is_concrete(diagonal):
        return
    rows = np.flatnonzero(values_of(diagonal) == 0)
    if not (len(rows) and _may_lack_features(kernel, X)):
        return
    n = len(diagonal)
    name = name_of(kernel)
    if len(rows) == n:
        message = (
            f"no point has features under {name}: k(x, z) is always zero (strings shorter than k?)"
        )
    elif len(rows) and _normalises(kernel):
        message = (
            f"{len(rows)} of {n} points have no features under {name}, the first of them point "
            f"{rows[0]}: k(x, z) is zero there for every z"
        )
    else:
        return
    warn(message, FeaturelessWarning)


def _may_lack_features(kernel: AbstractKernel, X: PyTree) -> bool:
    """Whether `k(x, x) = 0` is unexpected: if the kernel normalises, or points are encoded."""
    if eqx.is_array(X):
        return _normalises(kernel)
    return _normalises(kernel) or any(map(is_encoded, jax.tree.leaves(X, is_leaf=is_encoded)))


def _normalises(kernel: AbstractKernel) -> bool:
    """Whether a kernel, or one inside it, normalises."""
    return kernel.normalises or any(map(_normalises, parts_of(kernel)))


def _check_scalars(kernel: AbstractKernel) -> None:
    """Raises ValueError for an array where a kernel declares a scalar, that is, for a batch of
    kernels.

    This includes the kernels inside sums, products and similar combinations, which call them
    directly; other kernels may map over theirs.
    """
    for field in dataclasses.fields(kernel):
        is_scalar = getattr(field.type, "dims", None) == ()
        shape = jnp.shape(getattr(kernel, field.name)) if is_scalar else ()
        if shape:
            raise ValueError(
                f"{name_of(kernel)}.{field.name} must be a scalar, but has shape {shape}: "
                "batch over several kernels with jax.vmap"
            )
    if isinstance(kernel, AbstractCombinator):
        for part in parts_of(kernel):
            _check_scalars(part)


def guarded(module: Module, thrown_by: str | None = None) -> Module:
    """The module with NaN for traced parameters outside of their intervals, or a runtime error of
    the function that throws.

    Concrete parameters were checked when it was created.
    """
    if is_concrete(module):
        return module
    leaves, structure = jax.tree.flatten(module)
    traced = [entry for entry in parameters(module) if not is_concrete(entry.value)]
    name = type(module).__name__
    given = [Parameter(f"{name}.{entry.path}", entry.interval, entry.value) for entry in traced]
    for entry, value in zip(traced, guarded_parameters(given, thrown_by)):
        leaves[entry.leaf_index] = value
    return jax.tree.unflatten(structure, leaves)
