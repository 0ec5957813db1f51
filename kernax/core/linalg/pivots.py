"""Partial Cholesky factors by greedy or random pivots, and the choice of inducing points."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import sequential_vmap
from kernax.core.base.boundary import as_scalar, check_key, dtype_of
from kernax.core.base.boundary import count as size_of
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import NONNEGATIVE
from kernax.core.base.numerics import eps_of, is_concrete, matmul, positive_or_one, stop_gradient
from kernax.core.base.parameters import check_count
from kernax.core.base.solution import RESULTS, Solution, finish
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel, name_of
from kernax.core.kernel.preparation import diagonal_of, prepare
from kernax.core.operators.gram import gram_of_prepared
from kernax.core.operators.memory import Footprint, check_memory

_FOOTPRINT = Footprint("inducing_points", 1.05)  # matrices of size n x count


class PartialCholesky(eqx.Module):
    """An approximation `F^T F` of a positive semidefinite matrix K, from some of its rows.

    Attributes:
        indices: the indices of the chosen rows, the pivots, in order.
        rows: F, zero beyond the chosen rows.
        left: the diagonal of `K - F^T F`, zero at the pivots.
        free: whether each row was not chosen.
        number: the number of chosen rows.
    """

    indices: Int[Array, " count"]
    rows: Float[Array, "count n"]
    left: Float[Array, " n"]
    free: Bool[Array, " n"]
    number: Int[Array, ""]

    def filled(self) -> Int[Array, " count"]:
        """The pivots, then the indices of other rows in order of their remaining diagonal."""
        count = len(self.indices)
        rest = lax.top_k(jnp.where(self.free, self.left, -jnp.inf), count)[1]
        order = jnp.arange(count, dtype=jnp.int32)
        return jnp.where(order < self.number, self.indices, rest[order - self.number])


def partial_cholesky(
    rows_at: Callable[[Int[Array, " block"]], Float[Array, "block n"]],
    diagonal: Float[Array, " n"],
    count: int,
    least: ArrayLike,
    *,
    key: PRNGKeyArray | None = None,
    block: int = 1,
    at_least: int = 0,
) -> PartialCholesky:
    """The partial Cholesky factor of a positive semidefinite K, from `count` of its rows.

    Arguments:
        rows_at: the rows of K at some indices.
        diagonal: the diagonal of K.
        count: the largest number of rows.
        least: it stops when the trace of the remainder is at most this.
        key: pivots are drawn with probabilities proportional to the remaining diagonal (Chen,
            Epperly, Tropp & Webber 2024, algorithm 2.1); without a key the largest entry is chosen.
        block: the largest number of pivots drawn together (algorithm 2.2); all blocks have one
            size. It is one without a key.
        at_least: the number of rows that are chosen whatever the remainder.
    """
    n = len(diagonal)
    rounds = -(-count // block)
    block = -(-count // rounds)
    keys = None if key is None else jax.random.split(key, rounds)

    def go_on(now: PartialCholesky) -> Bool[Array, ""]:
        more = jnp.sum(now.left) > least
        return (now.number < count) & (more | (now.number < at_least))

    def step(now: PartialCholesky) -> PartialCholesky:
        F = now.rows
        if keys is None:
            pivots = jnp.argmax(jnp.where(now.free, now.left, -jnp.inf))[None].astype(jnp.int32)
        else:
            # Distinct indices, drawn without replacement with these probabilities.
            # The largest log probabilities with Gumbel noise are such a draw (Vieira 2014).
            possible = now.left > 0
            logarithms = jnp.where(possible, jnp.log(positive_or_one(now.left)), -jnp.inf)
            noise = jax.random.gumbel(keys[now.number // block], now.left.shape, now.left.dtype)
            pivots = lax.top_k(logarithms + noise, block)[1]
        # K_P - F_P^T F, the rows of the residual matrix at the pivots P.
        residual = rows_at(pivots) - matmul(F[:, pivots].T, F)
        if block == 1:
            # R_p / sqrt(R_pp) of the residual matrix R, a step of the Cholesky factorisation.
            rows = residual / jnp.sqrt(positive_or_one(now.left[pivots]))[:, None]
        else:
            # B^T R_P, where B B^T = R_PP^-1, because pivots of one block may be nearly dependent.
            rows = matmul(inverse_root(residual[:, pivots]).T, residual)
            is_within = now.number + jnp.arange(block, dtype=jnp.int32) < count
            rows = jnp.where(is_within[:, None], rows, 0)
        start = (now.number, jnp.zeros_like(now.number))
        # R_ii minus the squares of the new rows. Clip negative rounding, and set the pivots to
        # zero.
        left = jnp.maximum(now.left - jnp.sum(rows**2, 0), 0)
        return PartialCholesky(
            indices=lax.dynamic_update_slice(now.indices, pivots, start[:1]),
            rows=lax.dynamic_update_slice(F, rows, start),
            left=left.at[pivots].set(0),
            free=now.free.at[pivots].set(False),
            number=now.number + block,
        )

    nothing = PartialCholesky(
        indices=jnp.zeros(rounds * block, jnp.int32),
        rows=jnp.zeros((rounds * block, n), diagonal.dtype),
        left=diagonal,
        free=jnp.ones(n, bool),
        number=jnp.zeros((), jnp.int32),
    )
    end = lax.while_loop(go_on, step, nothing)
    number = jnp.minimum(end.number, count)
    return PartialCholesky(end.indices[:count], end.rows[:count], end.left, end.free, number)


def inverse_root(A: Float[Array, "r r"]) -> Float[Array, "r r"]:
    """B with `B B^T = A^-1` on the span of the eigenvectors of A with eigenvalues above rounding,
    and zero outside; the column of the largest eigenvalue comes first.
    """
    values, vectors = sequential_vmap(jnp.linalg.eigh, (A + A.T) / 2)
    sound = values > len(A) * eps_of(A) * values[-1]
    # A = V diag(l) V^T and B = V diag(l)^(-1/2), with the largest l first.
    roots = jnp.where(sound, 1 / jnp.sqrt(positive_or_one(values)), 0)
    return (vectors * roots[None, :])[:, ::-1]


@renamed(count="n_points")
def inducing_points(
    kernel: AbstractKernel,
    X: PyTree,
    n_points: int,
    *,
    rtol: ArrayLike | None = None,
    key: PRNGKeyArray | None = None,
) -> Solution[PyTree]:
    """Chooses points of X greedily, each with the largest conditional variance given the previous
    points: `argmax_i K_ii - Q_ii`, `Q = K_XZ K_ZZ^-1 K_ZX`.

    This is pivoted Cholesky, or greedy conditional variance selection (Burt, Rasmussen & van der
    Wilk 2020, section 4.4.1). With a key each point is drawn with probability proportional to the
    conditional variance `K_ii - Q_ii`: randomly pivoted Cholesky (Chen, Epperly, Tropp & Webber
    2024, algorithm 2.1). Its `tr(K - Q)` is near that of the best approximation with about as many
    columns, even if many points are outliers, which a greedy choice selects first.

    It stops at `n_points` points, or when the residual trace `t = tr(K - Q)` is at most
    `rtol tr(K)`. The divergence of the approximate posterior of `sgpr` from the exact one is at
    most `KL <= t (1 + |y|^2 / (noise + t)) / (2 noise)` (Burt et al. 2020, lemma 3), so that with
    an `rtol` well below `2 noise / tr(K)` no more points are needed.

    Arguments:
        kernel: any kernel.
        X: a batch of n points of any kind.
        n_points: the largest number of points, at most n.
        rtol: the fraction of the variance that may remain. The default is sqrt(eps) in float64 and
            10 eps in float32; for smaller values `k(Z, Z)` would be singular to working precision.
        key: the key for random points; without a key the choice is greedy.

    Returns:
        A `Solution` whose `value` is a batch of at most `n_points` points, differentiable in X, as
        copies of its points. Under a transformation, where their number cannot depend on values,
        there are always `n_points` points: after the stop, those with the largest remaining
        variance. Stats: `places`, the indices of the points in X; `number`, their number up to the
        stop; and `trace`, the remaining trace relative to tr(K). It takes O(n n_points^2)
        operations and O(n n_points) memory.

    Raises:
        ValueError: bad points or numbers.
        NonFiniteError: the kernel is not finite on these points.
        MemoryBudgetError: n x n_points numbers do not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> solution = kernax.inducing_points(kernax.RBF(0.3), X, 3)
        >>> solution.value
        Array([[0. ],
               [1. ],
               [0.5]], dtype=float64)
    """
    kernel, X = prepare(kernel, X)
    n = size_of(X)
    n_points = check_count(n_points, "n_points")
    if n_points > n:
        raise ValueError(f"n_points must be at most the number of points, {n}, but is {n_points}")
    if key is not None:
        check_key(key)
    dtype = dtype_of(X)
    # The fraction of the variance below which the remainder is mostly rounding.
    default = eps_of(dtype) ** 0.5 if dtype == jnp.float64 else 10 * eps_of(dtype)
    tolerance = as_scalar(default if rtol is None else rtol, dtype, "rtol", NONNEGATIVE)
    arguments = *stop_gradient((kernel, X)), tolerance, n_points, key
    first = lambda: eqx.filter_eval_shape(_pivots, *arguments)
    check_memory(X, points_at(X, slice(n_points)), footprint=_FOOTPRINT, first=first)
    solution = _pivots(*arguments)
    hint = f"inducing_points with {name_of(kernel)}: rescaled inputs may help."
    solution = finish(solution, True, hint)
    places = solution.value
    if is_concrete(places):
        places = places[: int(solution.stats["number"])]
    return Solution(points_at(X, places), solution.result, solution.stats | {"places": places})


@compiled
def _pivots(kernel, X, tolerance, count, key):
    """The indices of the chosen points, followed by those with the largest remaining variance."""
    variances = diagonal_of(kernel, X)
    whole = jnp.sum(variances)
    end = partial_cholesky(
        lambda pivots: gram_of_prepared(kernel, points_at(X, pivots), X),
        variances,
        count,
        tolerance * whole,
        key=key,
        at_least=1,
    )
    left = jnp.sum(end.left)
    # NaN anywhere makes both NaN.
    result = RESULTS.where(jnp.isfinite(left + whole), RESULTS.successful, RESULTS.nonfinite)
    stats = {"number": end.number, "trace": left / positive_or_one(whole)}
    return Solution(end.filled(), result, stats)
