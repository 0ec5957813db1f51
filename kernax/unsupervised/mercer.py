"""Features from data: Mercer's eigenfunctions, and the finite-dimensional features of a Gram
matrix.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from kernax.core.batching import one_by_one
from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel
from kernax.core.numerics import is_concrete, matmul
from kernax.core.parameters import check_count
from kernax.core.sharding import compiled
from kernax.core.spectral_densities import Eigenpairs
from kernax.core.task import Task, check_task
from kernax.errors import NotPSDError


def eigenpairs(kernel: AbstractKernel, X: PyTree, count: int) -> Eigenpairs:
    """The largest eigenvalues of f -> `integral k(., z) f(z) dp(z)`, from points X drawn from p,
    and their eigenfunctions.

    With the eigenpairs (l_j, u_j) of K, values are `l_j / n` and functions `sqrt(n) / l_j sum_i
    u_ij k(x, x_i)`, the Nystrom extension (Williams & Seeger 2001; GPML eqs. 4.43-4.44):
    uncorrelated and of mean square 1 on X. By Mercer's theorem `k(x, z) = sum_j values_j f_j(x)
    f_j(z)`, exact on X if every eigenvalue that is not zero is included. Of each u_j the entry
    largest in size, the first one if there are several, is positive.

    Arguments:
        kernel, X: any kernel, a stack of n points.
        count: how many, from 1 to the rank of K. An eigenvalue below `8 n eps` of the largest is
            zero.

    Returns:
        A named tuple: `values` (count,), and `functions`, a `KernelExpansion` with `count` outputs.
        Once differentiable in the kernel and X. Of eigenvalues that coincide only the common space
        of their functions has a derivative.

    Raises:
        ValueError: count is no positive integer, or more than the rank. Where that is being traced,
            NaN instead.
        NotPSDError: K has a negative eigenvalue. NonFiniteError, MemoryBudgetError.
    """
    task = check_task("eigenpairs", kernel, X, None)
    n = task.n
    if check_count(count, "count") > n:
        raise ValueError(f"count must be at most {n}, the number of points, but is {count!r}")
    values, coefficients, rank, sound = _eigenpairs(task.gram().as_matrix(), int(count))
    _check_psd(task, sound)
    if is_concrete(rank) and np.max(np.asarray(n - rank)) > n - count:
        raise ValueError(
            f"count is {count}, but K has only {rank} eigenvalues above rounding: ask for no more"
        )
    functions = KernelExpansion(task.kernel, task.X, coefficients, jnp.zeros_like(values))
    return Eigenpairs(values, functions)


def empirical_features(kernel: AbstractKernel, X: PyTree) -> KernelExpansion:
    """`phi(x) = K^(-1/2) k(X, x)`, n features of a point whose products on X are K (Schoelkopf &
    Smola 2002, section 2.2.6).

    `K^(-1/2)` is the root of the pseudo-inverse: eigenvalues below `8 n eps` of the largest count
    as zero, so that K may be singular. `FeatureMap(phi)` is the Nystrom approximation of k from X,
    and k itself between X and any point.

    Arguments:
        kernel, X: any kernel, a stack of n points.

    Returns:
        A `KernelExpansion` with n outputs, once differentiable in the kernel and X along changes
        that keep the rank of K.

    Raises:
        NotPSDError: K has a negative eigenvalue; where that is being traced, NaN instead.
            NonFiniteError, MemoryBudgetError.
    """
    task = check_task("empirical_features", kernel, X, None)
    root, sound = _empirical_features(task.gram().as_matrix())
    _check_psd(task, sound)
    return KernelExpansion(task.kernel, task.X, root, jnp.zeros_like(root[0]))


def _check_psd(task: Task, sound: Array) -> None:
    if is_concrete(sound) and not np.all(sound):
        raise NotPSDError(
            f"the Gram matrix of {task.kernel_name} on these points has a negative eigenvalue"
        )


@compiled
def _eigenpairs(K, count):
    every, vectors = _leading(count, K)
    values = every[:count]
    sound = _is_psd(every)
    kept = values > _threshold(every)
    coefficients = (
        vectors * (jnp.sqrt(jnp.asarray(len(K), K.dtype)) / jnp.where(kept, values, 1))[None, :]
    )
    good = kept & sound
    coefficients = jnp.where(good[None, :], coefficients, jnp.nan)
    return (
        jnp.where(good, values, jnp.nan) / len(K),
        coefficients,
        jnp.sum(every > _threshold(every)),
        sound,
    )


@compiled
def _empirical_features(K):
    root, values = _inverse_root(K)
    sound = _is_psd(values)
    return jnp.where(sound, root, jnp.nan), sound


def _threshold(values: Array) -> Array:
    """What counts as zero among eigenvalues, in descending order."""
    return (
        8 * len(values) * jnp.finfo(values.dtype).eps * jnp.maximum(lax.stop_gradient(values[0]), 0)
    )


def _is_psd(values: Array) -> Array:
    """Whether no eigenvalue is negative."""
    return values[-1] >= -_threshold(values)


@jax.custom_jvp
def _eigensystem(K: Array) -> tuple[Array, Array]:
    """All eigenvalues, descending, and eigenvectors as columns, the first of the entries largest in
    size positive.
    """

    def decomposed(K: Array) -> Any:
        values, vectors = jnp.linalg.eigh(K)
        values = values[::-1]
        vectors = vectors[:, ::-1]
        size = jnp.abs(vectors)
        ties = size >= (1 - jnp.sqrt(jnp.finfo(K.dtype).eps)) * jnp.max(size, 0, keepdims=True)
        largest = jnp.take_along_axis(vectors, jnp.argmax(ties, 0)[None, :], 0)
        return values, vectors * jnp.where(largest < 0, -1, 1).astype(K.dtype)

    return one_by_one(decomposed, K)


@_eigensystem.defjvp
def _eigensystem_jvp(primals, tangents):
    raise ValueError("eigenpairs and empirical_features have no second derivatives")


def _rotated(K: Array, dK: Array) -> tuple[Array, Array, Array]:
    values, vectors = _eigensystem(K)
    return values, vectors, matmul(vectors.T, matmul((dK + dK.T) / 2, vectors))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _leading(count: int, K: Array) -> tuple[Array, Array]:
    """All eigenvalues, descending, and the vectors of the first `count`, (n, count)."""
    values, vectors = _eigensystem(K)
    return values, vectors[:, :count]


@_leading.defjvp
def _leading_jvp(count, primals, tangents):
    # d l_j = u_j.dK u_j and d u_j = sum_i u_i (u_i.dK u_j) / (l_j - l_i) over the i with l_i !=
    # l_j. eigh's own rule divides by zero for every pair of equal eigenvalues, also of those that
    # were not asked for: the zeros of a singular K.
    values, vectors, P = _rotated(primals[0], tangents[0])
    gap = values[None, :count] - values[:, None]
    apart = jnp.abs(gap) > _threshold(values)
    turned = matmul(vectors, jnp.where(apart, P[:, :count] / jnp.where(apart, gap, 1), 0))
    return (values, vectors[:, :count]), (jnp.diagonal(P), turned)


@jax.custom_jvp
def _inverse_root(K: Array) -> tuple[Array, Array]:
    """The root of the pseudo-inverse of K, and all eigenvalues of K, descending."""
    values, vectors = _eigensystem(K)
    return matmul(vectors * _inverse_roots(values)[None, :], vectors.T), values


def _inverse_roots(values: Array) -> Array:
    kept = values > _threshold(values)
    return jnp.where(kept, 1 / jnp.sqrt(jnp.where(kept, values, 1)), 0)


@_inverse_root.defjvp
def _inverse_root_jvp(primals, tangents):
    # In the basis of eigenvectors dR_ij = dK_ij (r_i - r_j) / (l_i - l_j) (Daleckii & Krein), r =
    # l^(-1/2): without the cancellation -r_i^2 r_j^2 / (r_i + r_j), and r_i^3 where l_j is zero.
    # Among the zeros the change of K is taken as zero.
    values, vectors, P = _rotated(primals[0], tangents[0])
    r = _inverse_roots(values)
    a = r[:, None]
    b = r[None, :]
    slope = -((a * b) ** 2) / jnp.where(a + b > 0, a + b, 1)
    slope = jnp.where((a > 0) & (b > 0), slope, a**3 + b**3)
    root = matmul(vectors * r[None, :], vectors.T)
    turned = matmul(vectors, matmul(slope * P, vectors.T))
    return (root, values), (turned, jnp.diagonal(P))
