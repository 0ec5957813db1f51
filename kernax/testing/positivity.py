"""Is it a kernel? Symmetry and positive semidefiniteness on given points, and the proof where one of them fails."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from kernax.core.boundary import count
from kernax.core.kernel import AbstractKernel
from kernax.core.preparation import prepare


@dataclasses.dataclass(frozen=True, eq=False)
class KernelReport:
    """What `check_kernel` found on n points. Printed, it says in a line or two what failed and why.

    Attributes:
        symmetric: whether k(x, z) = k(z, x) within the tolerance.
        asymmetry: the largest |k(x, z) - k(z, x)|.
        smallest_eigenvalue: of the symmetric part of the Gram matrix; NaN where the matrix is not finite.
        witness: a unit vector c with c^T K c < 0, the proof that k is not positive semidefinite, or None.
    """

    symmetric: bool
    asymmetry: float
    smallest_eigenvalue: float
    witness: np.ndarray | None

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against k on these points; other points may."""
        return self.symmetric and self.witness is None and bool(np.isfinite(self.smallest_eigenvalue))

    def __str__(self) -> str:
        if self.passed:
            return f"symmetric and positive semidefinite on these points: smallest eigenvalue {self.smallest_eigenvalue:.3g}"
        if not np.isfinite(self.smallest_eigenvalue):
            return "not finite: k(x, z) is NaN or inf for some of these points"
        lines = []
        if not self.symmetric:
            lines.append(f"not symmetric: k(x, z) and k(z, x) differ by up to {self.asymmetry:.3g}")
        if self.witness is not None:
            c = np.array2string(self.witness, precision=3, suppress_small=True, threshold=8)
            lines.append(f"not positive semidefinite: c^T K c = {self.smallest_eigenvalue:.3g} < 0 for the witness c = {c}")
        return "\n".join(lines)


def check_kernel(kernel: AbstractKernel, X: PyTree, *, tolerance: float | None = None) -> KernelReport:
    """Looks for a reason why k is not a kernel: `k(x, z) = k(z, x)` first, then `c^T K c >= 0` on the points X.

    A Gram matrix with positive entries only can fail: `[[1, 2], [2, 1]]` does, with the witness (1, -1). Passing on X is
    evidence, not proof: try several stacks, duplicates and larger dimensions included.

    Arguments:
        kernel: any kernel; a function becomes one by `Custom(function)`.
        X: a stack of n points.
        tolerance: how far below zero an eigenvalue may fall as a fraction of the largest in size, and how far k(x, z) may
            differ from k(z, x) as a fraction of the largest entry. None stands for `8 n eps` of the data's precision.

    Raises:
        ValueError: the kernel's values are not scalars, or the points are not a stack of finite numbers.
    """
    kernel, X = prepare(kernel, X)
    K, eps = pairs(kernel, X, X)
    largest = np.max(np.abs(K))
    if not np.isfinite(largest):
        return KernelReport(True, 0.0, float("nan"), None)
    tolerance = 8 * count(X) * eps if tolerance is None else tolerance
    asymmetry = np.max(np.abs(K - K.T))
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    negative = values[0] < -tolerance * np.max(np.abs(values))
    witness = vectors[:, 0] * np.sign(vectors[np.argmax(np.abs(vectors[:, 0])), 0]) if negative else None
    return KernelReport(bool(asymmetry <= tolerance * largest), float(asymmetry), float(values[0]), witness)


def pairs(kernel: AbstractKernel, X: PyTree, Z: PyTree) -> tuple[np.ndarray, float]:
    """The matrix of k(x_i, z_j) in float64, neither symmetrised nor with its diagonal rewritten, and the eps of its dtype."""
    K: Any = _pairs(kernel, X, Z)
    if np.shape(K) != (count(X), count(Z)):
        raise ValueError(f"k(x, z) must be a scalar, but {type(kernel).__name__} returned shape {np.shape(K)[2:]}")
    return np.asarray(K, dtype=np.float64), float(np.finfo(K.dtype).eps)


@eqx.filter_jit
def _pairs(kernel, X, Z):
    return jax.vmap(lambda x: jax.vmap(lambda z: kernel(x, z))(Z))(X)
