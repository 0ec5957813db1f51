"""The kernel Stein discrepancy: how far a sample is from a density known up to a constant, and a
test of it.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_scalar, as_weights, check_key, count, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import INSIDE_ONE
from kernax.core.base.numerics import is_concrete, matmul
from kernax.core.base.parameters import check_count
from kernax.core.functionals.stein import SteinKernel, with_scores
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare
from kernax.core.operators.gram import gram_of_prepared
from kernax.unsupervised.mean_embedding import PermutationTest, check_memory_of_test, outcome


def stein_discrepancy(
    kernel: AbstractKernel,
    X: PyTree,
    log_density: Callable,
    *,
    weights: ArrayLike | None = None,
) -> Float[Array, ""]:
    """The unbiased estimate of the squared kernel Stein discrepancy between a sample and a density;
    it can be negative.

        sum_{i != j} k_0(x_i, x_j) / (n (n - 1)),    k_0 = SteinKernel(kernel, log_density)

    (Liu, Lee & Jordan 2016, section 4). Its mean is zero for a sample from the density. The biased
    statistic, `sum_ij w_i w_j k_0(x_i, x_j) / (sum_i w_i)^2`, also for importance weights, is the
    square of `mean_embedding(SteinKernel(kernel, log_density), X, weights=w).norm`. The units are
    those of k over those of X squared; memory is O(n^2).

    Arguments:
        kernel: a differentiable kernel of vectors; see `SteinKernel` for the choice.
        X: (n, d), n >= 2.
        log_density: a function of one vector, up to a constant. It is differentiable in the
            parameters of a module, in X and in the kernel.
        weights: (n,) >= 0. Two is the point repeated, which adds its pair with itself; zero is the
            point removed. They must add up to more than one, or the value is NaN.

    Raises ValueError for a kernel without derivatives, points that are not vectors, fewer than two
    of them, or a log density that is not a scalar; NonFiniteError where k_0 is not finite.

    Examples:
        >>> X = jnp.linspace(-2.0, 2.0, 5)[:, None]
        >>> def log_density(x):
        ...     return -0.5 * x @ x
        ...
        >>> near = kernax.samples.stein_discrepancy(kernax.RBF(1.0), X, log_density)
        >>> far = kernax.samples.stein_discrepancy(kernax.RBF(1.0), X + 3.0, log_density)
        >>> bool(near < far)
        True
    """
    stein, X = _prepared(kernel, X, log_density)
    w = as_weights(weights, count(X), dtype_of(X)).values
    if is_concrete(w) and np.sum(np.asarray(w)) <= 1:
        raise ValueError(
            f"weights must add up to more than one, as numbers of points, but add up to "
            f"{np.sum(np.asarray(w)):g}: for weights that sum to one use the norm of mean_embedding"
        )
    K = gram_of_prepared(*with_scores(stein, X))
    return _stein_discrepancy(K, w)


@renamed(bootstraps="n_resamples")
def goodness_of_fit_test(
    kernel: AbstractKernel,
    X: PyTree,
    log_density: Callable,
    *,
    n_resamples: int = 1000,
    flip: ArrayLike = 0.5,
    key: PRNGKeyArray,
) -> PermutationTest:
    """Tests whether X comes from a density: compares `stein_discrepancy` with its values under
    random signs, `sum_{i != j} s_i s_j k_0(x_i, x_j) / (n (n - 1))`.

    This is the wild bootstrap (Chwialkowski, Strathmann & Gretton 2016); its level becomes exact as
    n grows. The signs of neighbours differ with probability `flip`: 1/2 for independent points,
    less for a Markov chain in its order. Signs are then correlated over about `1 / (2 flip)` steps:
    choose flip so that this exceeds the correlation length of the chain, or thin the chain. The
    terms i = j are the same for all signs, so that the biased statistic gives the same p-value.

    The density must be known beforehand: if its parameters are fitted to X, the test rejects too
    rarely. Memory is O(n^2 + n_resamples n).

    Arguments:
        kernel, X, log_density: as in `stein_discrepancy`.
        n_resamples: the number of draws of signs.
        flip: in (0, 1).
        key: a random key, for the signs.

    Raises ValueError as `stein_discrepancy` does, for n_resamples < 1, a flip outside of (0, 1), or
    anything but a single random key.

    Examples:
        >>> X = jnp.linspace(2.0, 4.0, 8)[:, None]
        >>> def log_density(x):
        ...     return -0.5 * x @ x
        ...
        >>> k = kernax.RBF(1.0)
        >>> test = kernax.samples.goodness_of_fit_test(k, X, log_density, key=jax.random.key(0))
        >>> bool(test.p_value < 0.1)
        True
    """
    check_key(key)
    n_resamples = check_count(n_resamples, "n_resamples")
    stein, X = _prepared(kernel, X, log_density)
    flip = as_scalar(flip, dtype_of(X), "flip", INSIDE_ONE)
    check_memory_of_test("goodness_of_fit_test", n_resamples, X)
    scored, points = with_scores(stein, X)
    K = gram_of_prepared(scored, points)
    return _goodness_of_fit_test(K, flip, key, n_resamples)


def _prepared(
    kernel: AbstractKernel, X: PyTree, log_density: Callable
) -> tuple[AbstractKernel, PyTree]:
    """The Stein kernel with its points, of which there must be at least two."""
    stein, X = prepare(SteinKernel(kernel, log_density), X)
    if count(X) < 2:
        raise ValueError("X must hold at least two points, but holds 1")
    return stein, X


@compiled
def _stein_discrepancy(K, w):
    # (sum_{i != j} w_i w_j k_0(x_i, x_j) + sum_i w_i (w_i - 1) k_0(x_i, x_i)) / (n (n - 1)),
    # n = sum_i w_i.
    pairs = jnp.sum(w * matmul(_without_diagonal(K), w))
    # A point of weight w counts as w points, which form w (w - 1) pairs among themselves.
    total = pairs + jnp.sum(w * (w - 1) * jnp.diagonal(K))
    size = jnp.sum(w)
    return jnp.where(size > 1, total / (size * (size - 1)), jnp.nan)


@compiled
def _goodness_of_fit_test(K, flip, key, bootstraps):
    n = len(K)
    # Rows of signs; each differs from the one before with the probability `flip`:
    # s_i = (-1)^(number of changes up to i).
    changes = jax.random.uniform(key, (bootstraps, n), flip.dtype) < flip
    signs = 1 - 2 * (jnp.cumsum(changes, 1) % 2).astype(flip.dtype)
    # A traced flip outside of (0, 1) is NaN.
    signs = jnp.where(jnp.isnan(flip), jnp.nan, signs)
    rows = jnp.concatenate([jnp.ones_like(signs[:1]), signs])
    # sum_{i != j} s_i s_j k_0(x_i, x_j); the first row, of ones, gives the statistic of the data.
    totals = jnp.sum(matmul(rows, _without_diagonal(K)) * rows, 1)
    return outcome(totals / (n * (n - 1)), jnp.max(jnp.abs(K)))


def _without_diagonal(K: Float[Array, "n n"]) -> Float[Array, "n n"]:
    return jnp.where(jnp.eye(len(K), dtype=bool), 0, K)
