"""Kernels on integers: those read from a matrix, and those that do not change when both integers move together.

A point is one integer, a stack an array of integers of shape (n,). Such a kernel computes in JAX's default float.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from kernax.core.boundary import check_finite
from kernax.core.kernel import AbstractKernel, Invariance
from kernax.core.numerics import is_concrete
from kernax.core.parameters import as_floats, data, nonnegative


def _index(x: Any) -> Array:
    """A point as one signed integer."""
    if not eqx.is_array_like(x) or jnp.ndim(x) or not jnp.issubdtype(jnp.result_type(x), jnp.integer):
        came = f"of shape {jnp.shape(x)} and type {jnp.result_type(x)}" if eqx.is_array_like(x) else type(x).__name__
        raise ValueError(f"this kernel compares integers, in a stack of shape (n,), but a point is {came}")
    return jnp.asarray(x).astype(jnp.result_type(int))


def _matrix(value: Any) -> Any:
    return None if value is None else as_floats(value)


class Precomputed(AbstractKernel):
    """`K[x, z]` for integers x and z: a kernel given by its Gram matrix. An index that is not there gives NaN.

    With the blocks `cross` and `new`, for which see `from_blocks`, it also knows points that are not in K. K must be square,
    symmetric and finite; whether it is positive semidefinite is not checked (solvers report it). Of a matrix that is
    symmetric but for rounding, or that is being traced, the symmetric part is used.
    """

    K: Float[Array, "n n"] = data(converter=_matrix)
    cross: Float[Array, "n m"] | None = data(converter=_matrix, default=None)
    new: Float[Array, "m *m"] | None = data(converter=_matrix, default=None)

    def __check_init__(self):
        _check_symmetric(self.K, "K")
        if self.new is not None and self.cross is None:
            raise ValueError("new is the block of new points, but cross, the block between K's points and them, is missing")
        if self.cross is None:
            return
        if self.cross.ndim != 2 or len(self.cross) != len(self.K) or not self.cross.size:
            raise ValueError(f"cross must have shape ({len(self.K)}, m), one row for each row of K, but has {self.cross.shape}")
        check_finite(self.cross, "cross")
        if self.new is not None:
            m = self.cross.shape[1]
            if self.new.shape not in ((m,), (m, m)):
                raise ValueError(f"new must have shape ({m}, {m}), or ({m},), its diagonal, but has shape {self.new.shape}")
            if self.new.ndim == 2:
                _check_symmetric(self.new, "new")
            else:
                check_finite(self.new, "new")

    @staticmethod
    def from_blocks(K: ArrayLike, cross: ArrayLike, new: ArrayLike | None = None) -> "Precomputed":
        """One kernel over n old points, the integers 0, ..., n - 1, and m new ones, n, ..., n + m - 1.

        Fit on the old ones, predict at the new ones. What is not given is NaN, and no NaN may be given.

        Arguments:
            K: (n, n), among the old points.
            cross: (n, m), `k(old_i, new_j)`: enough to evaluate a function fitted on the old points.
            new: (m, m), among the new points; or (m,), its diagonal: enough for variances, and for `gram(kernel, old, new)`,
                which looks at the diagonals; or None.
        """
        blocks = [as_floats(block) for block in (K, cross, new) if block is not None]
        dtype = np.result_type(*(block.dtype for block in blocks))
        return Precomputed(*(block.astype(dtype) for block in blocks))

    def __call__(self, x, z):
        i, j, n = _index(x), _index(z), len(self.K)
        value = _symmetric_entry(self.K, i, j)
        if self.cross is None:
            return value
        first, second = jnp.minimum(i, j), jnp.maximum(i, j) - n
        value = jnp.where(second < 0, value, _entry(self.cross, first, second))
        return jnp.where(first < n, value, self._among_new(first - n, second))

    def _among_new(self, i: Array, j: Array) -> Array:
        if self.new is None:
            return jnp.full((), jnp.nan, self.K.dtype)
        return jnp.where(i == j, _entry(self.new, i), jnp.nan) if self.new.ndim == 1 else _symmetric_entry(self.new, i, j)


def _entry(array: Array, *places: Array) -> Array:
    """`array[places]`, NaN for a place that is not there, a negative one included."""
    return array.at[places].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


def _symmetric_entry(matrix: Array, i: Array, j: Array) -> Array:
    return (_entry(matrix, i, j) + _entry(matrix, j, i)) / 2


def _check_symmetric(K: Array, name: str) -> None:
    if K.ndim != 2 or K.shape[0] != K.shape[1] or not K.size:
        raise ValueError(f"{name} must be a square matrix, but has shape {K.shape}")
    check_finite(K, name)
    if is_concrete(K):
        values = np.asarray(K)
        apart, largest = np.abs(values - values.T).max(), np.abs(values).max()
        if apart > (1e-12 if values.dtype == np.float64 else 1e-5) * largest:
            raise ValueError(
                f"{name} must be symmetric, k(x, z) = k(z, x), but {name} and {name}.T differ by up to {apart:.3g}: "
                f"its symmetric part is ({name} + {name}.T) / 2"
            )


class Herglotz(AbstractKernel):
    """`sum_j masses_j cos(2 pi j (m - n) / N)` of two integers m and n, j = 0, ..., N - 1, N = len(masses), masses >= 0.

    By Herglotz's theorem the kernels on the integers that depend on m - n alone are the Fourier transforms of non-negative
    measures on the circle (Herglotz 1911); here the measure has its masses at N equal steps, and k has the period N. k(m, m)
    is the sum of the masses. The Gram matrix on 0, ..., N - 1 is circulant, with the eigenvalues
    `N (masses_j + masses_{N-j}) / 2`, indices modulo N, the discrete Fourier transform of its first row.
    """

    masses: Float[Array, " N"] = nonnegative()

    keeps: ClassVar[Invariance] = Invariance.STATIONARY

    def __check_init__(self):
        if self.masses.ndim != 1 or not len(self.masses):
            raise ValueError(f"masses must have shape (N,), N >= 1, but have shape {self.masses.shape}")

    def __call__(self, m, n):
        N = len(self.masses)
        lag = (_index(m) % N - _index(n) % N) % N
        return jnp.real(jnp.fft.rfft(self.masses))[jnp.minimum(lag, N - lag)]
