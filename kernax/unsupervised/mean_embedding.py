"""Samples as points in the space of a kernel: mean embeddings, their distances, and tests of
homogeneity and independence.

The tests are permutation tests. They are exact at any sample size, because under the null
hypothesis all relabellings are equally likely.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack, as_weights, check_key, count, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import matmul
from kernax.core.base.parameters import check_count, data
from kernax.core.base.printing import Printed
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare, prepare_stacks
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.operators.gram import gram, gram_of_prepared
from kernax.core.operators.memory import check_numbers

# Numbers in memory for each point of each permutation or set of signs, in float64 and float32,
# random bits and orders included.
HELD_FOR_EACH = (2.0, 4.2)

_BUDGET = 2**22  # floats of permuted matrices held at one time


class PermutationTest(Printed):
    """The result of a permutation test, or of a test by random signs, such as
    `goodness_of_fit_test`.

    Attributes:
        statistic: the statistic of the data, (); differentiable.
        p_value: `(1 + #{null >= statistic}) / (1 + permutations)`, (). Under the null hypothesis
            `P(p_value <= level) <= level`, for random signs as n grows. Null statistics that differ
            from the statistic by rounding alone count as equal to it.
        null: the statistic after each permutation or draw of signs, (permutations,).

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> k = kernax.RBF(0.3)
        >>> test = kernax.samples.two_sample_test(k, X, X + 1.0, key=jax.random.key(0))
        >>> bool(test.statistic > jnp.median(test.null))
        True
    """

    statistic: Float[Array, ""] = data()
    p_value: Float[Array, ""] = data()
    null: Float[Array, " permutations"] = data()


def mean_embedding(
    kernel: AbstractKernel, X: PyTree, *, weights: ArrayLike | None = None
) -> KernelExpansion:
    """The mean embedding `f = sum_i w_i k(x_i, .) / sum_i w_i` of a sample: `<f, g>` is the
    weighted mean of g(x_i) for every function g of the space.

    Weights (n,) >= 0 are one each by default; the bias is 0. `mean_embedding(k, X) -
    mean_embedding(k, Z)` is the witness function of Gretton et al. (2012, section 2.3): positive
    where X is denser, negative where Z is. Raises ValueError for bad shapes or values.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> f = kernax.samples.mean_embedding(kernax.RBF(0.3), X)
        >>> round(float(f(jnp.array([0.5]))), 3)  # the mean of k(0.5, x_i)
        0.582
    """
    kernel, X = prepare(kernel, X)
    dtype = dtype_of(X)
    w = as_weights(weights, count(X), dtype).values
    return KernelExpansion(kernel, X, w / jnp.sum(w), jnp.zeros((), dtype))


def maximum_mean_discrepancy(kernel: AbstractKernel, X: PyTree, Z: PyTree) -> Float[Array, ""]:
    """The unbiased estimate of the squared maximum mean discrepancy (MMD), the squared distance
    between two mean embeddings; it can be negative.

        sum_{i != j} k(x_i, x_j) / (n (n - 1)) + sum_{i != j} k(z_i, z_j) / (m (m - 1)) - 2 sum_ij
        k(x_i, z_j) / (n m)

    (Gretton et al. 2012, eq. 3). The biased statistic, their eq. 5, is the square of
    `mean_embedding(k, X).distance(mean_embedding(k, Z))`. The units are those of k; memory is O((n
    + m)^2). Raises ValueError unless both samples have at least two points.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> near = kernax.samples.maximum_mean_discrepancy(kernax.RBF(0.3), X, X + 0.1)
        >>> far = kernax.samples.maximum_mean_discrepancy(kernax.RBF(0.3), X, X + 1.0)
        >>> bool(near < far)
        True
    """
    return _discrepancy(*_grams(*_checked_samples(kernel, X, Z)))


@renamed(permutations="n_permutations")
def two_sample_test(
    kernel: AbstractKernel, X: PyTree, Z: PyTree, *, n_permutations: int = 1000, key: PRNGKeyArray
) -> PermutationTest:
    """The kernel two-sample test, of whether X and Z come from one distribution: compares
    `maximum_mean_discrepancy` with its values for permuted labels.

    All permutations take one product with the Gram matrix of the pooled sample: memory is O((n +
    m)^2 + n_permutations (n + m)). Choose the kernel on other data, or without using the labels
    (such as by the median heuristic of the pooled sample): otherwise the level does not hold.

    Raises ValueError for fewer than two points in a sample, n_permutations < 1, or anything but a
    single random key.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> k = kernax.RBF(0.3)
        >>> test = kernax.samples.two_sample_test(k, X, X + 1.0, key=jax.random.key(0))
        >>> bool(test.p_value < 0.05)
        True
    """
    n_permutations = _checked(n_permutations, key)
    kernel, X, Z = _checked_samples(kernel, X, Z)
    check_memory_of_test("two_sample_test", n_permutations, X, Z)
    return _two_sample_test(*_grams(kernel, X, Z), n_permutations, key)


def hsic(
    kernel_x: AbstractKernel, kernel_y: AbstractKernel, X: PyTree, Y: PyTree
) -> Float[Array, ""]:
    """The Hilbert-Schmidt independence criterion of n pairs (x_i, y_i): `trace(K H L H) / n^2 >= 0`
    with H = I - 1/n.

    It is the squared norm of the empirical cross-covariance operator, which is the squared distance
    between the joint embedding and the product of the marginal ones. This is the V-statistic of
    Gretton et al. (2008, eq. 4), biased upwards by O(1/n); Gretton et al. (2005) divide by `(n -
    1)^2`. The units are those of k_x times those of k_y.

    Raises ValueError for fewer than two points, or X and Y of different n.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> k = kernax.RBF(0.3)
        >>> bool(kernax.samples.hsic(k, k, X, X**2) > 0.0)
        True
    """
    return _hsic(*_gram_of_each(kernel_x, kernel_y, *_checked_pairs(X, Y)))


@renamed(permutations="n_permutations")
def independence_test(
    kernel_x: AbstractKernel,
    kernel_y: AbstractKernel,
    X: PyTree,
    Y: PyTree,
    *,
    n_permutations: int = 1000,
    key: PRNGKeyArray,
) -> PermutationTest:
    """The HSIC test of independence of x and y: compares `hsic` with its values for permutations of
    the y_i.

    Time is O(n_permutations n^2), memory O(n^2 + n_permutations n).

    Raises ValueError for fewer than two points, X and Y of different n, n_permutations < 1, or
    anything but a single random key.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> k = kernax.RBF(0.3)
        >>> test = kernax.samples.independence_test(k, k, X, X**2, key=jax.random.key(0))
        >>> bool(test.p_value < 0.05)
        True
    """
    n_permutations = _checked(n_permutations, key)
    X, Y = _checked_pairs(X, Y)
    check_memory_of_test("independence_test", n_permutations, X)
    return _independence_test(*_gram_of_each(kernel_x, kernel_y, X, Y), n_permutations, key)


def _checked(n_permutations: Any, key: Any) -> int:
    check_key(key)
    return check_count(n_permutations, "n_permutations")


def _grams(kernel: AbstractKernel, X: PyTree, Z: PyTree) -> tuple[Array, Array, Array]:
    """The Gram matrices of X, of X and Z, and of Z. The batches are not joined: their strings may
    be padded to different lengths.
    """
    return gram_of_prepared(kernel, X), gram(kernel, X, Z), gram_of_prepared(kernel, Z)


def _checked_samples(
    kernel: AbstractKernel, X: PyTree, Z: PyTree
) -> tuple[AbstractKernel, PyTree, PyTree]:
    """The kernel and both samples, in one dtype. Raises ValueError for fewer than two points."""
    kernel, X, Z = prepare_stacks(kernel, X, Z)
    n = count(X)
    m = count(Z)
    if n < 2 or m < 2:
        raise ValueError(
            f"both samples must hold at least two points, but X holds {n} and Z holds {m}"
        )
    return kernel, X, Z


@compiled
def _discrepancy(first, across, second):
    n, m = across.shape
    return _discrepancies(first, across, second, jnp.arange(n + m)[None, :] < n)[0][0]


def _discrepancies(
    first: Array, across: Array, second: Array, labels: Array
) -> tuple[Array, Array]:
    """The statistic for each row of labels, True for the points of the first sample, and the size
    of its rounding errors.

    The statistic does not depend on the diagonal, nor does it change when u_i + u_j is added to
    every other K_ij. With the u that makes all rows sum to zero, the sums within the samples and
    across them are a, a and -a. The sum over the smaller sample is computed: it has fewer entries,
    and the division by `n (n - 1)` does not magnify its rounding errors.
    """
    (n, m) = across.shape
    N = sum(across.shape)
    K = jnp.block([[first, across], [across.T, second]])
    off_diagonal = ~jnp.eye(N, dtype=bool)
    # sum_{j != i} (K_ij - u_i - u_j) = 0 gives u_i = (rows_i - sum_j u_j) / (N - 2) and
    # sum_j u_j = sum_j rows_j / (2 (N - 1)).
    rows = jnp.sum(K, 1, where=off_diagonal)
    u = (rows - jnp.sum(rows) / (2 * (N - 1))) / (N - 2)
    centred = jnp.where(off_diagonal, K - u[:, None] - u[None, :], 0)
    # a = sum_{i != j} s_i s_j (K_ij - u_i - u_j), s_i = 1 in the smaller sample, otherwise 0.
    smaller = (labels if n <= m else ~labels).astype(K.dtype)
    # a / (n (n - 1)) + a / (m (m - 1)) - 2 (-a) / (n m) = size a.
    size = 1 / (n * (n - 1)) + 1 / (m * (m - 1)) + 2 / (n * m)
    return size * jnp.sum(matmul(smaller, centred) * smaller, 1), size * min(n, m) * jnp.max(
        jnp.abs(K)
    )


@compiled
def _two_sample_test(first, across, second, permutations, key):
    n, m = across.shape
    labels = _shuffled(jnp.arange(n + m) < n, permutations, key)
    return outcome(*_discrepancies(first, across, second, labels))


def check_memory_of_test(
    function_name: str, permutations: int, X: PyTree, Z: PyTree | None = None
) -> None:
    """Raises MemoryBudgetError if the rows of all permutations, or sets of signs, do not fit into
    memory.
    """
    points = count(X) if Z is None else count(X) + count(Z)
    check_numbers(
        permutations * points,
        dtype_of(X),
        function_name="a permutation test",
        for_each=HELD_FOR_EACH,
        what=f"{permutations} rows of {points} points in {function_name}",
        instead="use fewer of them, or fewer points",
    )


def _shuffled(row: Array, permutations: int, key: Array) -> Array:
    """A row, and below it permutations of it."""
    rows = jnp.broadcast_to(row, (permutations, len(row)))
    return jnp.concatenate([row[None], jax.random.permutation(key, rows, axis=1, independent=True)])


def outcome(statistics: Array, rounding: Array) -> PermutationTest:
    """The result of the test, from the statistic of the data followed by those of the permutations
    or signs.
    """
    statistic = statistics[0]
    null = statistics[1:]
    slack = 16 * jnp.finfo(null.dtype).eps * (jnp.abs(statistic) + rounding)
    # p = (1 + the number of statistics at least as large) / (1 + the number of permutations).
    above = jnp.sum(null >= statistic - slack).astype(null.dtype)
    p_value = (1 + above) / (1 + len(null))
    known = jnp.all(jnp.isfinite(statistics))
    return PermutationTest(statistic, jnp.where(known, p_value, jnp.nan), null)


def _gram_of_each(
    kernel_x: AbstractKernel, kernel_y: AbstractKernel, X: PyTree, Y: PyTree
) -> tuple[Array, Array]:
    """K and L in one dtype."""
    dtype = dtype_of(X, Y)
    return gram(kernel_x, X).astype(dtype), gram(kernel_y, Y).astype(dtype)


def _checked_pairs(X: PyTree, Y: PyTree) -> tuple[PyTree, PyTree]:
    """Both batches. Raises ValueError unless they have the same number of points, at least two."""
    X = as_stack(X, "X")
    Y = as_stack(Y, "Y")
    if count(X) != count(Y) or count(X) < 2:
        raise ValueError(
            f"X and Y must hold n >= 2 points each, in pairs, but X holds {count(X)} and Y holds "
            f"{count(Y)}"
        )
    return X, Y


def _centred(K: Array) -> Array:
    """`H K H`."""
    # (H K H)_ij = K_ij - mean_k K_kj - mean_k K_ik + mean_kl K_kl, for H = I - 1 1^T / n.
    return K - jnp.mean(K, 0)[None, :] - jnp.mean(K, 1)[:, None] + jnp.mean(K)


@compiled
def _hsic(K, L):
    # trace(K H L H) / n^2 = sum_ij (H K H)_ij (H L H)_ij / n^2, as H H = H.
    return jnp.mean(_centred(K) * _centred(L))


@compiled
def _independence_test(K, L, permutations, key):
    n = len(K)
    # Centring commutes with a permutation of the rows and columns: once serves all of them.
    K = _centred(K)
    L = _centred(L)
    orders = _shuffled(jnp.arange(n), permutations, key)
    # sum_ij (H K H)_ij (H L H)_s(i)s(j) / n^2 for each permutation s.
    value = lambda order: jnp.mean(K * L[order][:, order])
    statistics = lax.map(
        jax.checkpoint(value), orders, batch_size=max(1, min(permutations, _BUDGET // n**2))
    )
    return outcome(statistics, jnp.max(jnp.abs(K)) * jnp.max(jnp.abs(L)) / n)
