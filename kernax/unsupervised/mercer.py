"""Features from data: Mercer eigenfunctions, and the finite-dimensional features of a Gram
matrix.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.derivatives import custom_jvp
from kernax.core.base.numerics import is_concrete, matmul, stop_gradient
from kernax.core.base.parameters import check_count
from kernax.core.base.weights import UnitWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.spectral_densities import Eigenpairs
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import LearnerProblem, check_problem
from kernax.core.linalg.eigenproblem import WeightedGram, leading_pairs, zero_below
from kernax.core.operators.memory import Footprint
from kernax.errors import NotPSDError

_EIGENPAIRS = Footprint("eigenpairs", 2.1)
_FEATURES = Footprint("empirical_features", 3.1)


@renamed(count="n_pairs")
def eigenpairs(kernel: AbstractKernel, X: PyTree, n_pairs: int) -> Eigenpairs:
    """Mercer eigenvalues and eigenfunctions, estimated from points X drawn from p: the largest
    eigenvalues of the operator f -> `integral k(., z) f(z) dp(z)`.

    With the eigenpairs (l_j, u_j) of K, values are `l_j / n` and functions `sqrt(n) / l_j sum_i
    u_ij k(x, x_i)`, the Nystrom extension (Williams & Seeger 2001; GPML eqs. 4.43-4.44):
    uncorrelated and of mean square 1 on X. By Mercer's theorem `k(x, z) = sum_j values_j f_j(x)
    f_j(z)`, exact on X if every eigenvalue that is not zero is included. The sign of each u_j makes
    its entry of largest absolute value positive, the first such entry if there are several.

    Arguments:
        kernel, X: any kernel, and a batch of n points.
        n_pairs: the number of eigenpairs, from 1 to the rank of K. An eigenvalue below `8 n eps` of
            the largest counts as zero.

    Returns:
        A named tuple: `values` (n_pairs,), and `functions`, a `KernelExpansion` with `n_pairs`
        outputs. Both are once differentiable in the kernel and X. If eigenvalues coincide, only the
        common space of their functions has a derivative.

    Raises:
        ValueError: n_pairs is not a positive integer, or exceeds the rank. Under tracing the rank
            is not known, and values beyond it are NaN.
        NotPSDError: K has a negative eigenvalue.
        NonFiniteError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> values, functions = kernax.bases.eigenpairs(kernax.RBF(0.3), X, 2)
        >>> jnp.round(values, 2)
        Array([0.51, 0.31], dtype=float64)
        >>> functions(jnp.array([0.4])).shape
        (2,)
    """
    problem = check_problem("eigenpairs", kernel, X, None, footprint=_EIGENPAIRS)
    n = problem.n
    if check_count(n_pairs, "n_pairs") > n:
        raise ValueError(f"n_pairs must be at most {n}, the number of points, but is {n_pairs!r}")
    values, coefficients, rank, sound = _eigenpairs(problem.whole_gram(), int(n_pairs))
    _check_psd(problem, sound)
    if is_concrete(rank) and np.min(np.asarray(rank)) < n_pairs:
        raise ValueError(
            f"n_pairs is {n_pairs}, but K has only {rank} eigenvalues above rounding: ask for at "
            "most that many"
        )
    no_bias = jnp.zeros_like(values)
    functions = KernelExpansion(problem.kernel, problem.X, coefficients, no_bias)
    return Eigenpairs(values, functions)


def empirical_features(kernel: AbstractKernel, X: PyTree) -> KernelExpansion:
    """The empirical kernel map `phi(x) = K^(-1/2) k(X, x)`: n features of a point with the products
    K on X (Schoelkopf & Smola 2002, section 2.2.6).

    `K^(-1/2)` is the root of the pseudo-inverse: eigenvalues below `8 n eps` of the largest count
    as zero, so that K may be singular. `FeatureMap(phi)` is the Nystrom approximation of k from X,
    and k itself between X and any point.

    Arguments:
        kernel, X: any kernel, and a batch of n points.

    Returns:
        A `KernelExpansion` with n outputs, once differentiable in the kernel and X along changes
        that keep the rank of K.

    Raises:
        NotPSDError: K has a negative eigenvalue; under tracing the result is NaN instead.
        NonFiniteError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> phi = kernax.bases.empirical_features(kernax.RBF(0.3), X)
        >>> features = phi.values(X)
        >>> bool(jnp.allclose(features @ features.T, kernax.gram(kernax.RBF(0.3), X)))
        True
    """
    problem = check_problem("empirical_features", kernel, X, None, footprint=_FEATURES)
    root, sound = _empirical_features(problem.whole_gram().as_matrix())
    _check_psd(problem, sound)
    return KernelExpansion(problem.kernel, problem.X, root, jnp.zeros_like(root[0]))


def _check_psd(problem: LearnerProblem, sound: Array) -> None:
    """Raises NotPSDError where K has a negative eigenvalue, as far as values are known."""
    if is_concrete(sound) and not np.all(sound):
        raise NotPSDError(
            f"the Gram matrix of {problem.kernel_name} on these points has a negative eigenvalue"
        )


@compiled
def _eigenpairs(gram, count):
    n = gram.in_size()
    unit = UnitWeights(n, gram.in_structure().dtype)
    eigenproblem = WeightedGram(gram, unit, jnp.zeros((), unit.dtype))
    pairs, report = leading_pairs(eigenproblem, count)
    sound = report.least >= -zero_below(stop_gradient(pairs.values[0]), eigenproblem.scale(), n)
    good = pairs.kept & sound
    # a_j = u_j / sqrt(l_j), so that sqrt(n) a_j / sqrt(l_j) = sqrt(n) u_j / l_j.
    coefficients = pairs.of_unit_square() * jnp.sqrt(jnp.asarray(n, unit.dtype))
    coefficients = jnp.where(good[None, :], coefficients, jnp.nan)
    # K u_j = l_j u_j: l_j / n estimates the j-th eigenvalue of the operator.
    values = jnp.where(good, pairs.values, jnp.nan) / n
    return values, coefficients, report.rank, sound


@compiled
def _empirical_features(K):
    root, values = _inverse_root(K)
    # K is positive semidefinite: its least eigenvalue is not negative, up to rounding.
    sound = values[-1] >= -_threshold(values)
    return jnp.where(sound, root, jnp.nan), sound


def _threshold(values: Array) -> Array:
    """The eigenvalue below which eigenvalues count as zero, from their descending values."""
    largest = stop_gradient(values[0])
    return zero_below(largest, jnp.zeros_like(largest), len(values))


@custom_jvp
def _eigensystem(K: Array) -> tuple[Array, Array]:
    """All eigenvalues, descending, and eigenvectors as columns."""

    def decomposed(K: Array) -> Any:
        values, vectors = jnp.linalg.eigh(K)
        return values[::-1], vectors[:, ::-1]

    return sequential_vmap(decomposed, K)


@_eigensystem.def_jvp
def _eigensystem_jvp(primals, tangents):
    raise ValueError("empirical_features has no second derivatives")


@custom_jvp
def _inverse_root(K: Array) -> tuple[Array, Array]:
    """The root of the pseudo-inverse of K, and all eigenvalues of K, descending."""
    values, vectors = _eigensystem(K)
    # K^(-1/2) = U diag(l^(-1/2)) U^T for K = U diag(l) U^T.
    return matmul(vectors * _inverse_roots(values)[None, :], vectors.T), values


def _inverse_roots(values: Array) -> Array:
    """`1 / sqrt(values)`, zero where they count as zero."""
    kept = values > _threshold(values)
    return jnp.where(kept, 1 / jnp.sqrt(jnp.where(kept, values, 1)), 0)


@_inverse_root.def_jvp
def _inverse_root_jvp(primals, tangents):
    # In the basis of eigenvectors dR_ij = dK_ij (r_i - r_j) / (l_i - l_j) (Daleckii & Krein), r =
    # l^(-1/2): without the cancellation -r_i^2 r_j^2 / (r_i + r_j), and r_i^3 where l_j is zero.
    # Among zero eigenvalues the change of K counts as zero.
    (K,), (dK,) = primals, tangents
    values, vectors = _eigensystem(K)
    # P = U^T dK U; then dl_i = P_ii and dR = U slopes U^T.
    P = matmul(vectors.T, matmul((dK + dK.T) / 2, vectors))
    r = _inverse_roots(values)
    a = r[:, None]
    b = r[None, :]
    total = jnp.where(a + b > 0, a + b, 1)
    # Products of r and P are about one, where the powers of r may leave the range of floats.
    of_both = -(a / total * b) * (a * P * b)
    of_one = total * (total * (total * P))
    slopes = jnp.where((a > 0) & (b > 0), of_both, jnp.where((a > 0) | (b > 0), of_one, 0))
    root = matmul(vectors * r[None, :], vectors.T)
    turned = matmul(vectors, matmul(slopes, vectors.T))
    return (root, values), (turned, jnp.diagonal(P))
