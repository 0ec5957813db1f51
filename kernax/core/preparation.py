"""A kernel and its points as verbs want them: checked, in one dtype, with a word on points that the kernel cannot see."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.boundary import as_stack, cast, dtype_of, is_encoded
from kernax.core.kernel import AbstractKernel, as_kernel
from kernax.core.numerics import is_concrete
from kernax.core.parameters import parameters
from kernax.core.solution import warn
from kernax.errors import FeaturelessWarning


def prepare(kernel: AbstractKernel, X: PyTree) -> tuple[AbstractKernel, PyTree]:
    """A kernel and its points as every learner wants them: checked at the boundary, in the dtype of the points, with a warning
    of points without features.
    """
    kernel, X, _ = prepare_stacks(kernel, X)
    if _may_lack_features(kernel, X) and is_concrete(kernel, X):
        warn_of_featureless_points(kernel, X, diagonal_of(kernel, X))
    return kernel, X


def prepare_stacks(kernel: AbstractKernel, X: PyTree, Z: PyTree | None = None) -> tuple[AbstractKernel, PyTree, PyTree | None]:
    """A kernel and two stacks, or one, all in the dtype of the points; no warning."""
    kernel, X = as_kernel(kernel), as_stack(X, "X")
    Z = None if Z is None else as_stack(Z, "Z")
    dtype = dtype_of(X) if Z is None else dtype_of(X, Z)
    return _guarded(cast(kernel, dtype)), cast(X, dtype), cast(Z, dtype)


def _may_lack_features(kernel: AbstractKernel, X: PyTree) -> bool:
    """Whether `k(x, x) = 0` is news: a kernel that normalises, or points that are not mere numbers, such as strings."""
    return kernel.normalises or any(map(is_encoded, jax.tree.leaves(X, is_leaf=is_encoded)))


def warn_of_featureless_points(kernel: AbstractKernel, X: PyTree, diagonal: Array) -> None:
    """Warns where `k(x, x)` is zero and known, and that is news."""
    if not (_may_lack_features(kernel, X) and is_concrete(diagonal)):
        return
    rows, n = np.flatnonzero(np.asarray(diagonal) == 0), len(diagonal)
    if len(rows) == n:
        warn(f"no point has features under {type(kernel).__name__}: k(x, z) is zero throughout", FeaturelessWarning)
    elif len(rows) and kernel.normalises:
        more = f" and {len(rows) - 1} more have" if len(rows) > 1 else " has"
        warn(
            f"point {rows[0]}{more} no features under {type(kernel).__name__}: k(x, z) is zero there for every z, "
            "so that a function is its bias or mean there, and a variance is zero",
            FeaturelessWarning,
        )


def _guarded(kernel: AbstractKernel) -> AbstractKernel:
    """The kernel with traced parameters NaN where they are outside their supports; known ones were refused when it was made.

    Raises ValueError for a vector where a scalar is declared: a stack of kernels came where one belongs.
    """
    leaves, structure = jax.tree.flatten(kernel)
    for entry in parameters(kernel):
        if entry.is_scalar and entry.value.ndim:
            raise ValueError(
                f"{type(kernel).__name__}.{entry.path} must be a scalar, but has shape {entry.value.shape}: "
                "batch over several kernels with jax.vmap"
            )
        if not is_concrete(entry.value):
            leaves[entry.place] = entry.support.guarded(entry.value)
    return jax.tree.unflatten(structure, leaves)


@eqx.filter_jit
def diagonal_of(kernel: AbstractKernel, X: PyTree) -> Float[Array, " n"]:
    """`k(x_i, x_i)`, of what is prepared."""
    return jax.vmap(lambda x: kernel(x, x))(X)
