"""Translates `kernel=` of an estimator, a name, a kernel of kernax or one of scikit-learn's, into a
kernel of kernax.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.sparse import issparse
from sklearn.gaussian_process.kernels import Kernel as TheirKernel

from kernax import kernels
from kernax.core.kernel.kernel import AbstractKernel, as_kernel, name_of, parts_of
from kernax.sklearn.sparse_tables import variance_of
from kernax.sklearn.translation import Parts, translated

PRECOMPUTED = "precomputed"


class KernelNumbers(NamedTuple):
    """The parameters of scikit-learn's kernels given by name; gamma > 0 is a number by now."""

    gamma: float
    degree: Any
    coef0: float


def _laplacian(gamma: Array, x: Array, z: Array) -> Array:
    """`exp(-gamma |x - z|_1)`."""
    return jnp.exp(-gamma * jnp.sum(jnp.abs(x - z)))


def _chi2(gamma: Array, x: Array, z: Array) -> Array:
    """`exp(-gamma sum_j (x_j - z_j)^2 / (x_j + z_j))`, x, z >= 0; columns of zeros add nothing."""
    total = x + z
    there = total > 0
    return jnp.exp(-gamma * jnp.sum(jnp.where(there, (x - z) ** 2 / jnp.where(there, total, 1), 0)))


def _lengthscale(numbers: KernelNumbers) -> float:
    """The lengthscale for which `exp(-gamma s)` is `exp(-s / (2 lengthscale^2))`."""
    return float(1 / np.sqrt(2 * numbers.gamma))


def _polynomial(numbers: KernelNumbers) -> AbstractKernel:
    degree = numbers.degree
    if degree != int(degree):
        raise ValueError(
            f"degree must be a whole number, but is {degree}: other powers of a kernel need not "
            "be kernels"
        )
    # (gamma x.z + coef0)^degree
    scaled = numbers.gamma * kernels.Linear()
    affine = scaled + numbers.coef0 if numbers.coef0 else scaled
    return affine ** int(degree)


_NAMES: dict[str, Callable[[KernelNumbers], AbstractKernel]] = {
    "linear": lambda numbers: kernels.Linear(),
    "rbf": lambda numbers: kernels.RBF(_lengthscale(numbers)),
    "poly": _polynomial,
    "polynomial": _polynomial,
    "sigmoid": lambda numbers: kernels.Tanh(numbers.gamma, numbers.coef0, indefinite=True),
    "laplacian": lambda numbers: kernels.Custom(_laplacian, jnp.asarray(numbers.gamma, float)),
    "chi2": lambda numbers: kernels.Custom(_chi2, jnp.asarray(numbers.gamma, float)),
    "cosine": lambda numbers: kernels.Normalised(kernels.Linear()),
    "matern12": lambda numbers: kernels.Matern12(_lengthscale(numbers)),
    "matern32": lambda numbers: kernels.Matern32(_lengthscale(numbers)),
    "matern52": lambda numbers: kernels.Matern52(_lengthscale(numbers)),
}


def check_signs(kernel: Any, X: Any) -> None:
    """Raises ValueError for numbers below zero with a kernel of histograms."""
    if isinstance(kernel, str) and kernel == "chi2" and X.min() < 0:
        raise ValueError(f"X contains negative values, which kernel={kernel!r} does not take")


def resolved(kernel: Any, numbers: KernelNumbers, columns: int, dtype: Any) -> Parts:
    """The kernel of an estimator, with its parameters in the precision of the data.

    Arguments:
        kernel: a name, a kernel of kernax or one of scikit-learn.
        numbers: the parameters of kernels given by name.
        columns: the number of columns of X.
        dtype: the dtype of X, which must be JAX's current precision.

    Raises ValueError for an unknown name, or anything but a kernel.
    """
    if isinstance(kernel, TheirKernel):
        parts = translated(kernel, columns)
    elif isinstance(kernel, str):
        if kernel not in _NAMES:
            known = ", ".join(sorted([*_NAMES, PRECOMPUTED]))
            raise ValueError(
                "the kernel must be one of kernax or of scikit-learn, or one of the names "
                f"{known}, but is {kernel!r}"
            )
        parts = Parts(_NAMES[kernel](numbers))
    else:
        parts = Parts(as_kernel(kernel))
    return parts._replace(kernel=of_dtype(parts.kernel, dtype))


def word_of(kernel: Any) -> str:
    """The user's word for the kernel of an estimator, for messages."""
    if isinstance(kernel, (str, TheirKernel)):
        return f"kernel={kernel!r}" if isinstance(kernel, str) else str(kernel)
    if isinstance(kernel, AbstractKernel):
        return name_of(kernel)
    return getattr(kernel, "__name__", "the kernel")


@functools.cache
def _kernels_of_texts() -> tuple[type[AbstractKernel], ...]:
    # Here, because only kernels of kernax need it, and it imports them all.
    from kernax.kernels.entry import Points

    return tuple(entry.kind for entry in kernels.KERNELS if entry.points == Points.STRINGS)


def compares_texts(kernel: AbstractKernel) -> bool:
    """Whether a kernel is a string kernel, or contains one."""
    inner = parts_of(kernel)
    return any(map(compares_texts, inner)) if inner else isinstance(kernel, _kernels_of_texts())


def of_dtype(module: Any, dtype: Any) -> Any:
    """A module with its arrays of floats in a dtype, which must be JAX's current precision."""

    def cast(leaf: Any) -> Any:
        if not eqx.is_inexact_array_like(leaf) or isinstance(leaf, (float, complex)):
            return leaf
        return jnp.asarray(np.asarray(leaf).astype(dtype))

    return jax.tree.map(cast, module)


def gamma_of(gamma: Any, X: Any, kernel: Any) -> float:
    """The value of scikit-learn's gamma: a number; None and "auto" are `1 / d`, "scale" is `1 / (d
    Var X)`. For kernel="chi2" None is 1.

    The variance is that of all entries of X, whatever the weights of rows are. Texts, in a list,
    count as one column, and have no variance: 1.
    """
    are_numbers = isinstance(X, np.ndarray) or issparse(X)
    columns = X.shape[1] if are_numbers else 1
    if gamma is None and isinstance(kernel, str) and kernel == "chi2":
        return 1.0
    if gamma is None or gamma == "auto":
        return 1 / columns
    if isinstance(gamma, str) and gamma != "scale":
        raise ValueError(f"gamma must be a number > 0, 'scale' or 'auto', but is {gamma!r}")
    if gamma != "scale":
        if not gamma > 0:
            raise ValueError(f"gamma must be > 0, but is {gamma}")
        return float(gamma)
    variance = variance_of(X) if are_numbers else 0
    return 1 / (columns * variance) if variance > 0 else 1.0
