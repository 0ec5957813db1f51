"""Kernels on integers: kernels given by a matrix, stationary ones, and kernels of categories.

A point is one integer, and a batch of points is an array of integers of shape (n,). These kernels
compute in JAX's default float.
"""

from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike, ParameterArray
from kernax.core.base.boundary import check_finite
from kernax.core.base.numerics import dot, is_concrete, matmul
from kernax.core.base.parameters import as_floats, data, interval, nonnegative, real
from kernax.core.kernel.kernel import AbstractKernel, Invariance
from kernax.kernels.matrices import as_matrix, check_symmetric, matrix_or_none


def _index(x: Any) -> Array:
    """A point as one signed integer. Raises ValueError for anything else."""
    came = type(x).__name__
    if eqx.is_array_like(x):
        kind = jnp.result_type(x)
        if jnp.ndim(x) == 0 and jnp.issubdtype(kind, jnp.integer):
            return jnp.asarray(x).astype(jnp.result_type(int))
        came = f"of shape {jnp.shape(x)} and type {kind}"
    raise ValueError(
        f"this kernel compares integers, X of shape (n,), but a point is {came}: names become "
        "integers by np.unique(names, return_inverse=True)[1], and numbers and integers are points "
        "as a tuple of batches (numbers, integers), with On(kernel, 1) for the integers"
    )


def _symmetric_block(K: Any, name: str) -> Any:
    """The symmetric part of a block. Raises ValueError unless it is square, finite and symmetric up
    to rounding, as far as is known.
    """
    K = as_matrix(K, name)
    if K.ndim != 2 or K.shape[0] != K.shape[1] or not K.size:
        raise ValueError(f"{name} must be a square matrix, but has shape {K.shape}")
    check_finite(K, name)
    if is_concrete(K):
        values = np.asarray(K)
        check_symmetric(values, name, 1e-12 if values.dtype == np.float64 else 1e-5)
    return (K + K.T) / 2


def _block_or_diagonal(new: Any) -> Any:
    """The symmetric part of a block, its diagonal as it is, or None. Raises ValueError."""
    new = matrix_or_none(new, "new")
    if new is None:
        return None
    if new.ndim != 1:
        return _symmetric_block(new, "new")
    check_finite(new, "new")
    return new


class Precomputed(AbstractKernel):
    """`K[x, z]` for integers x and z: a kernel given by its Gram matrix.

    An index out of range gives NaN. The blocks `cross` and `new`, see `from_blocks`, hold the
    values of points that are not in K. K must be square, symmetric and finite. It is not checked
    for positive semidefiniteness; solvers report an indefinite K. If the matrix is symmetric only
    up to rounding, or traced, its symmetric part is stored.

    Examples:
        >>> k = kernax.Precomputed([[2.0, 0.5], [0.5, 1.0]])
        >>> X = jnp.array([0, 1, 1])  # points are places in the matrix
        >>> kernax.gram(k, X)
        Array([[2. , 0.5, 0.5],
               [0.5, 1. , 1. ],
               [0.5, 1. , 1. ]], dtype=float64)
    """

    K: Float[Array, "n n"] = data(converter=partial(_symmetric_block, name="K"))
    cross: Float[Array, "n m"] | None = data(
        converter=partial(matrix_or_none, name="cross"), default=None
    )
    new: Float[Array, "m *m"] | None = data(converter=_block_or_diagonal, default=None)

    mirrors: ClassVar[bool] = True

    def __check_init__(self):
        if self.new is not None and self.cross is None:
            raise ValueError(
                "new is the block of new points, but cross, the block between K's points and them, "
                "is missing"
            )
        if self.cross is not None:
            n = len(self.K)
            if self.cross.ndim != 2 or len(self.cross) != n or not self.cross.size:
                raise ValueError(
                    f"cross must have shape ({n}, m), one row for each row of K, but has "
                    f"{self.cross.shape}"
                )
            check_finite(self.cross, "cross")
            if self.new is not None:
                m = self.cross.shape[1]
                if len(self.new) != m:
                    raise ValueError(
                        f"new must have shape ({m}, {m}), or ({m},), its diagonal, but has shape "
                        f"{self.new.shape}"
                    )

    @staticmethod
    def from_blocks(K: ArrayLike, cross: ArrayLike, new: ArrayLike | None = None) -> "Precomputed":
        """One kernel over n old points, for fitting, and m new points, for predictions.

        Old points are the integers 0, ..., n - 1, new ones n, ..., n + m - 1. Values that are not
        given are NaN; the blocks themselves must be finite.

        Arguments:
            K: (n, n), among the old points.
            cross: (n, m), `k(old_i, new_j)`: enough to evaluate a function fitted on the old
                points.
            new: (m, m), among the new points; or (m,), its diagonal: enough for variances, and for
                `gram(kernel, old, new)`, which computes the diagonals; or None.
        """
        given = {"K": K, "cross": cross, "new": new}
        if new is None:
            given.pop("new")
        blocks = [as_floats(block, name) for name, block in given.items()]
        dtype = np.result_type(*(block.dtype for block in blocks))
        return Precomputed(*(block.astype(dtype) for block in blocks))

    def __call__(self, x, z):
        i = _index(x)
        j = _index(z)
        n = len(self.K)
        among_old = _entry(self.K, i, j)
        if self.cross is None:
            return among_old
        first = jnp.minimum(i, j)
        second = jnp.maximum(i, j) - n
        across = _entry(self.cross, first, second)
        among_new = self._among_new(first - n, second)
        of_old = jnp.where(second < 0, among_old, across)
        return jnp.where(first < n, of_old, among_new)

    def _among_new(self, i: Array, j: Array) -> Array:
        """`k(new_i, new_j)`, NaN where it is not known."""
        if self.new is None:
            return jnp.full((), jnp.nan, self.K.dtype)
        if self.new.ndim == 1:
            return jnp.where(i == j, _entry(self.new, i), jnp.nan)
        return _entry(self.new, i, j)


def _entry(array: Array, *places: Array) -> Array:
    """`array[places]`, NaN for an index out of range, including negative ones."""
    return array.at[places].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)


class Herglotz(AbstractKernel):
    """`sum_j masses_j cos(2 pi j (m - n) / N)` of two integers m and n, N = len(masses).

    The sum is over j = 0, ..., N - 1, and masses >= 0. By Herglotz's theorem the kernels on the
    integers that depend on m - n alone are the Fourier transforms of non-negative measures on the
    circle (Herglotz 1911); here the measure has its masses at N equal steps, and k has the period
    N. k(m, m) is the sum of the masses. The Gram matrix on 0, ..., N - 1 is circulant, with the
    eigenvalues `N (masses_j + masses_{N-j}) / 2`, indices modulo N, the discrete Fourier transform
    of its first row.

    Examples:
        >>> k = kernax.kernels.Herglotz(masses=[0.5, 0.25, 0.0, 0.25])
        >>> jnp.round(kernax.gram(k, jnp.arange(4))[0, :2], 3)
        Array([1. , 0.5], dtype=float64)
    """

    masses: Float[ParameterArray, " N"] = nonnegative()

    keeps: ClassVar[Invariance] = Invariance.STATIONARY

    def __check_init__(self):
        if self.masses.ndim != 1 or not len(self.masses):
            raise ValueError(
                f"masses must have shape (N,), N >= 1, but have shape {self.masses.shape}"
            )

    def __call__(self, m, n):
        N = len(self.masses)
        # Re sum_j masses_j exp(-2 pi i j lag / N) is the same for lag and N - lag, and rfft returns
        # lags up to N / 2.
        lag = (_index(m) % N - _index(n) % N) % N
        return jnp.real(jnp.fft.rfft(self.masses))[jnp.minimum(lag, N - lag)]


class Coregionalisation(AbstractKernel):
    """`B[s, t]` for tasks s and t in 0, ..., T - 1, `B = factor factor^T + diag(diagonal)`.

    factor (T, r), diagonal (T,) >= 0; B is positive semidefinite also while it is learned. Several
    outputs are one function of a point and a task: over points `(x, task)`, the intrinsic model of
    coregionalisation is `On(RBF(), 0) * On(Coregionalisation(factor, diagonal), 1)`, and a sum of
    such products is the linear one (Alvarez, Rosasco & Lawrence 2012, sections 4.2.1 and 4.2.2).
    With a factor of zero and a diagonal of one the tasks are independent. Use `Precomputed(B)` for
    a B that is not learned.

    For a task out of range `gram`, learners and predictions raise ValueError; where tasks are
    traced, as under `jax.vmap`, the value is NaN.

    Examples:
        >>> tasks = kernax.kernels.Coregionalisation(factor=[[1.0], [0.5]], diagonal=[0.1, 0.2])
        >>> tasks.matrix
        Array([[1.1 , 0.5 ],
               [0.5 , 0.45]], dtype=float64)
        >>> k = kernax.On(kernax.RBF(), 0) * kernax.On(tasks, 1)
        >>> x, z = (jnp.array([0.3]), jnp.array(0)), (jnp.array([0.3]), jnp.array(1))
        >>> float(k(x, z))  # the same input, two tasks
        0.5
    """

    factor: Float[ParameterArray, "T r"] = real()
    diagonal: Float[ParameterArray, " T"] = nonnegative()

    mirrors: ClassVar[bool] = True

    def __check_init__(self):
        if self.factor.ndim != 2 or self.diagonal.shape != self.factor.shape[:1]:
            raise ValueError(
                "Coregionalisation needs factor (T, r) and diagonal (T,), but got shapes "
                f"{self.factor.shape} and {self.diagonal.shape}"
            )

    def __call__(self, s, t):
        i = _index(s)
        j = _index(t)
        for task in (i, j):
            _check_tasks(task, len(self.factor))
        shared = dot(_entry(self.factor, i), _entry(self.factor, j))
        return shared + jnp.where(i == j, _entry(self.diagonal, i), 0)

    @property
    def matrix(self) -> Float[Array, "T T"]:
        """B, the covariances of the tasks."""
        return matmul(self.factor, self.factor.T) + jnp.diag(self.diagonal)

    def check_points(self, X):
        if eqx.is_array_like(X) and jnp.issubdtype(jnp.result_type(X), jnp.integer):
            _check_tasks(X, len(self.factor))


class Exchangeable(AbstractKernel):
    """1 if s = t, otherwise `correlation`, for categories s and t: any two different categories are
    equally similar.

    A category is an integer, in any order and of any number: one that is new in a prediction has
    the same correlation with those that were seen. The correlation is in [0, 1], and 0 makes the
    categories independent; the kernel is `B[s, t]` of `B = correlation 1 1^T + (1 - correlation)
    I`, compound symmetry. A negative correlation, which is positive semidefinite for few categories
    only, is left out. Use `Coregionalisation` where some categories are more similar than others,
    and a product of such kernels for several columns of categories (Qian, Wu & Wu 2008, "Gaussian
    process models for computer experiments with qualitative and quantitative factors").

    Raises ValueError for points that are not integers.

    Examples:
        >>> k = kernax.kernels.Exchangeable(correlation=0.3)
        >>> kernax.gram(k, jnp.array([0, 1, 1]))
        Array([[1. , 0.3, 0.3],
               [0.3, 1. , 1. ],
               [0.3, 1. , 1. ]], dtype=float64)
        >>> k = kernax.On(kernax.RBF(), 0) * kernax.On(k, 1)  # of (vectors, categories)
    """

    correlation: Float[ParameterArray, ""] = interval(0.0, 1.0, closed=(True, True), default=0.5)

    mirrors: ClassVar[bool] = True
    normalises: ClassVar[bool] = True

    def __call__(self, s, t):
        return jnp.where(_index(s) == _index(t), 1, self.correlation)


def _check_tasks(tasks: Any, count: int) -> None:
    """Raises ValueError for a task outside of 0, ..., count - 1, unless tasks are traced."""
    if not is_concrete(tasks):
        return
    strange = np.ravel(tasks)[(np.ravel(tasks) < 0) | (np.ravel(tasks) >= count)]
    if strange.size:
        raise ValueError(
            f"a task must be one of 0, ..., {count - 1}, the rows of factor, but one is "
            f"{strange[0]}"
        )
