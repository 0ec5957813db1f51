"""Tests of symmetry and positive semidefiniteness of a kernel on given points."""

import dataclasses

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from kernax.core.base.boundary import count
from kernax.core.base.deprecation import renamed
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare
from kernax.core.operators.pairs import all_pairs, check_scalar
from kernax.testing.assertions import largest


@dataclasses.dataclass(frozen=True, eq=False)
class KernelReport:
    """The result of `check_kernel` on n points. `print` shows what failed and why.

    Attributes:
        symmetric: whether k(x, z) = k(z, x) within the tolerance.
        asymmetry: the largest |k(x, z) - k(z, x)|.
        smallest_eigenvalue: the smallest eigenvalue of the symmetric part of the Gram matrix.
        witness: a unit vector c with c^T K c < 0, the proof that k is not positive semidefinite, or
            None.

    If the matrix is not finite, both numbers are NaN, and `symmetric` is False.

    Examples:
        >>> X = jnp.linspace(-1.0, 1.0, 5)[:, None]
        >>> report = kernax.testing.check_kernel(kernax.RBF(0.3), X)
        >>> report.passed, bool(report.symmetric)
        (True, True)
    """

    symmetric: bool
    asymmetry: float
    smallest_eigenvalue: float
    witness: np.ndarray | None

    @property
    def passed(self) -> bool:
        """Whether k is finite, symmetric and positive semidefinite on these points."""
        return (
            self.symmetric and self.witness is None and bool(np.isfinite(self.smallest_eigenvalue))
        )

    def __str__(self) -> str:
        if self.passed:
            return (
                "symmetric and positive semidefinite on these points: smallest eigenvalue "
                f"{self.smallest_eigenvalue:.3g}"
            )
        if not np.isfinite(self.smallest_eigenvalue):
            return "not finite: k(x, z) is NaN or inf for some of these points"
        lines = []
        if not self.symmetric:
            lines.append(f"not symmetric: k(x, z) and k(z, x) differ by up to {self.asymmetry:.3g}")
        if self.witness is not None:
            c = np.array2string(self.witness, precision=3, suppress_small=True, threshold=8)
            value = f"{self.smallest_eigenvalue:.3g}"
            lines.append(
                f"not positive semidefinite: c^T K c = {value} < 0 for the witness c = {c}"
            )
        return "\n".join(lines)


@renamed(tolerance="rtol")
def check_kernel(kernel: AbstractKernel, X: PyTree, *, rtol: float | None = None) -> KernelReport:
    """Tests `k(x, z) = k(z, x)` and `c^T K c >= 0` on the points X.

    A Gram matrix with only positive entries can fail: `[[1, 2], [2, 1]]` does, with the witness (1,
    -1). Passing on X is evidence, not proof, so try several sets of points, with duplicates and in
    higher dimensions.

    Arguments:
        kernel: any kernel; `Custom(function)` makes one from a function.
        X: a batch of n points.
        rtol: the tolerance for negative eigenvalues, as a fraction of the largest eigenvalue in
            size, and for differences between k(x, z) and k(z, x), as a fraction of the largest
            entry. None means `8 n eps` with eps of the data's dtype.

    Raises:
        ValueError: the kernel's values are not real scalars, or the points are not a batch of
            finite numbers.

    Examples:
        >>> X = jnp.linspace(-1.0, 1.0, 5)[:, None]
        >>> kernax.testing.check_kernel(kernax.RBF(0.3), X).passed
        True
        >>> distance = kernax.Custom(lambda _, x, z: jnp.sum((x - z) ** 2))  # no kernel
        >>> kernax.testing.check_kernel(distance, X).passed
        False
    """
    kernel, X = prepare(kernel, X)
    K, eps = pairs(kernel, X, X)
    if not np.all(np.isfinite(K)):
        return KernelReport(False, float("nan"), float("nan"), None)
    rtol = 8 * count(X) * eps if rtol is None else rtol
    asymmetry = largest(K - K.T)
    # For a unit eigenvector c, c^T K c is the eigenvalue. The largest entry of the witness is
    # positive.
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    smallest = float(values[0])
    witness = None
    if smallest < -rtol * largest(values):
        c = vectors[:, 0]
        witness = c * np.sign(c[np.argmax(np.abs(c))])
    return KernelReport(
        symmetric=asymmetry <= rtol * largest(K),
        asymmetry=asymmetry,
        smallest_eigenvalue=smallest,
        witness=witness,
    )


def pairs(kernel: AbstractKernel, X: PyTree, Z: PyTree) -> tuple[np.ndarray, float]:
    """The matrix of k(x_i, z_j) in float64, and the eps of the dtype it was computed in.

    Unlike in `gram`, it is not symmetrised, and its diagonal is not computed separately.
    """
    K = _pairs(kernel, X, Z)
    check_scalar(kernel, K)
    eps = float(np.finfo(K.dtype).eps)
    return np.asarray(K, dtype=np.float64), eps


@eqx.filter_jit
def _pairs(kernel, X, Z):
    return all_pairs(kernel, X, Z)
