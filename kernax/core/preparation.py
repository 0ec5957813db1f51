"""A kernel and its points as verbs want them: checked, in one dtype, with a word on points that the kernel cannot see."""

import dataclasses
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.boundary import as_stack, cast, dtype_of, is_encoded
from kernax.core.kernel import AbstractCombinator, AbstractKernel, as_kernel, parts_of
from kernax.core.numerics import is_concrete, stopped
from kernax.core.parameters import parameters
from kernax.core.sharding import compiled
from kernax.core.solution import warn
from kernax.errors import FeaturelessWarning

Module = TypeVar("Module", bound=eqx.Module)


def prepare(kernel: AbstractKernel, X: PyTree) -> tuple[AbstractKernel, PyTree]:
    """A kernel and its points as every learner wants them: checked at the boundary, in the dtype of the points, with a warning
    of points without features.

    Where these are news (a normalised kernel, strings) that takes a program of its own, of n evaluations of the kernel. Under
    `jit` nothing is said.
    """
    kernel, X, _ = prepare_stacks(kernel, X)
    known = stopped((kernel, X))
    if _may_lack_features(kernel, X) and is_concrete(known):
        warn_of_featureless_points(kernel, X, diagonal_of(*known))
    return kernel, X


def prepare_stacks(kernel: AbstractKernel, X: PyTree, Z: PyTree | None = None) -> tuple[AbstractKernel, PyTree, PyTree | None]:
    """The same for one stack or two, without a warning: for verbs that find the diagonal of K anyway, or need none."""
    kernel, X = as_kernel(kernel), as_stack(X, "X")
    Z = None if Z is None else as_stack(Z, "Z")
    dtype = dtype_of(X) if Z is None else dtype_of(X, Z)
    _check_scalars(kernel)
    return guarded(cast(kernel, dtype)), cast(X, dtype), cast(Z, dtype)


@compiled
def diagonal_of(kernel: AbstractKernel, X: PyTree) -> Float[Array, " n"]:
    """`k(x_i, x_i)`, of what is prepared."""
    return jax.vmap(lambda x: kernel(x, x))(X)


def warn_of_featureless_points(kernel: AbstractKernel, X: PyTree, diagonal: Float[Array, " n"]) -> None:
    """Warns where `k(x, x)` is zero and known, and that is news."""
    if not (_may_lack_features(kernel, X) and is_concrete(diagonal)):
        return
    rows, n, name = np.flatnonzero(np.asarray(diagonal) == 0), len(diagonal), type(kernel).__name__
    if len(rows) == n:
        warn(f"no point has features under {name}: k(x, z) is zero throughout (strings shorter than k?)", FeaturelessWarning)
    elif len(rows) and _normalises(kernel):
        some = f"{len(rows)} of {n} points have no features under {name}, the first of them point {rows[0]}"
        warn(f"{some}: k(x, z) is zero there for every z", FeaturelessWarning)


def _may_lack_features(kernel: AbstractKernel, X: PyTree) -> bool:
    """Whether `k(x, x) = 0` is news: under a kernel that normalises, or of points that are not mere numbers."""
    return _normalises(kernel) or any(map(is_encoded, jax.tree.leaves(X, is_leaf=is_encoded)))


def _normalises(kernel: AbstractKernel) -> bool:
    return kernel.normalises or any(map(_normalises, parts_of(kernel)))


def _check_scalars(kernel: AbstractKernel) -> None:
    """Raises ValueError for a vector that a kernel declares as a scalar: a stack of kernels came where one belongs.

    Looks into sums, products and the like, whose terms are called as they are; others may map over theirs.
    """
    for field in dataclasses.fields(kernel):
        shape = jnp.shape(getattr(kernel, field.name)) if getattr(field.type, "dims", None) == () else ()
        if shape:
            raise ValueError(
                f"{type(kernel).__name__}.{field.name} must be a scalar, but has shape {shape}: "
                "batch over several kernels with jax.vmap"
            )
    if isinstance(kernel, AbstractCombinator):
        for part in parts_of(kernel):
            _check_scalars(part)


def guarded(module: Module) -> Module:
    """The module with traced parameters NaN where they are outside their supports; known ones were refused when it was made."""
    leaves, structure = jax.tree.flatten(module)
    for entry in parameters(module):
        if not is_concrete(entry.value):
            leaves[entry.place] = entry.support.guarded(entry.value)
    return jax.tree.unflatten(structure, leaves)
