"""Choices of centres: drawn uniformly, by leverage scores, or by greedy or random pivots."""

import abc
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_scalar, as_stack, cast, check_key, dtype_of
from kernax.core.base.boundary import count as size_of
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import eps_of, is_concrete, stop_gradient
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import Printed
from kernax.core.base.solution import warn
from kernax.core.base.stacks import points_at
from kernax.core.base.weights import AbstractWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import diagonal_of, prepare
from kernax.core.linalg.cholesky import cholesky_factor
from kernax.core.linalg.pivots import inducing_points
from kernax.core.linalg.solves import solve_lower
from kernax.core.operators.gram import gram_of_prepared
from kernax.core.operators.operators import DenseGram
from kernax.errors import ConditionWarning


class AbstractChoice(Printed):
    """A way to choose centres among points; a subclass returns their indices from `places`."""

    @abc.abstractmethod
    def places(self, kernel: AbstractKernel, X: PyTree, number: int, key: PRNGKeyArray) -> Any:
        """The indices of at most `number` different points of X."""


class Uniform(AbstractChoice):
    """Draws centres uniformly, without replacement.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> by = kernax.scale.Uniform()
        >>> kernax.choose_centres(kernax.RBF(0.3), X, 3, key=jax.random.key(0), by=by).shape
        (3, 1)
    """

    def places(self, kernel, X, number, key):
        return jax.random.permutation(key, size_of(X))[:number]


_UNIFORM = Uniform()


class GreedyPivots(AbstractChoice):
    """Chooses centres greedily by conditional variance: see `inducing_points`.

    It takes O(n number^2) operations and O(n number) memory. The key is not used.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> by = kernax.scale.GreedyPivots()
        >>> kernax.choose_centres(kernax.RBF(0.3), X, 3, key=jax.random.key(0), by=by)
        Array([[0. ],
               [1. ],
               [0.5]], dtype=float64)
    """

    def places(self, kernel, X, number, key):
        return inducing_points(kernel, X, number).stats["places"]


class RandomPivots(AbstractChoice):
    """Draws each centre with probability proportional to the conditional variance given those
    before it (randomly pivoted Cholesky): see `inducing_points` with a key.

    It takes O(n number^2) operations and O(n number) memory.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> by = kernax.scale.RandomPivots()
        >>> kernax.choose_centres(kernax.RBF(0.3), X, 3, key=jax.random.key(0), by=by).shape
        (3, 1)
    """

    def places(self, kernel, X, number, key):
        return inducing_points(kernel, X, number, key=key).stats["places"]


class LeverageScores(AbstractChoice):
    """Draws centres with probabilities that grow with the ridge leverage scores `l_i = (K (K +
    ridge I)^-1)_ii` (BLESS).

    The worse the other points represent a point, the more likely it is drawn (Rudi, Calandriello,
    Carratino & Rosasco 2018, algorithm 1). For a very large ridge all scores are equal. Starting
    there, each level divides the ridge by four: it draws candidates uniformly, more of them the
    smaller the ridge, and estimates their scores with the points drawn at the level before. It
    takes about `min(n, 4 n k(x, x) / ridge) number^2` operations, which is a pass over all points
    if the ridge is at most 4 k(x, x), and memory for `number^2` numbers.

    Attributes:
        ridge: > 0, the ridge of the fit, in units of k.

    Choosing raises ValueError for any other ridge, under `jit`, and where some k(x, x) is not
    finite.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> by = kernax.scale.LeverageScores(ridge=0.01)
        >>> kernax.choose_centres(kernax.RBF(0.3), X, 3, key=jax.random.key(0), by=by).shape
        (3, 1)
    """

    ridge: ArrayLike

    def places(self, kernel, X, number, key):
        ridge = as_scalar(self.ridge, dtype_of(X), "ridge", POSITIVE)
        if not is_concrete(kernel, X, ridge):
            raise ValueError(
                "LeverageScores draws a number of candidates that depends on the scores, which "
                "must be known: choose centres outside of jit and vmap, or pass by=Uniform()"
            )
        kernel, X = stop_gradient((kernel, X))
        return _by_scores(kernel, X, float(ridge), number, key).indices


@renamed(number="n_centres")
def choose_centres(
    kernel: AbstractKernel,
    X: PyTree,
    n_centres: int,
    *,
    key: PRNGKeyArray,
    by: AbstractChoice = _UNIFORM,
) -> PyTree:
    """Chooses `n_centres` different points of X as centres for `nystrom`, `falkon` or `sgpr`.

    Arguments:
        kernel: any kernel.
        X: a batch of n points of any kind.
        n_centres: the number of centres, at most n.
        key: a random key, for the draws.
        by: `Uniform()`, `LeverageScores(ridge)`, `GreedyPivots()` or `RandomPivots()`, which may
            stop at fewer, or an `AbstractChoice` of your own.

    Raises ValueError for bad points or numbers.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> kernax.choose_centres(kernax.RBF(0.3), X, 3, key=jax.random.key(0)).shape
        (3, 1)
    """
    check_key(key)
    kernel, X = prepare(kernel, X)
    n_centres = check_count(n_centres, "n_centres")
    if n_centres > size_of(X):
        raise ValueError(
            f"n_centres must be at most {size_of(X)}, the number of points, but is {n_centres}"
        )
    if not isinstance(by, AbstractChoice):
        raise ValueError(f"by must be a choice such as Uniform(), but is {by!r}")
    indices = by.places(kernel, X, n_centres, key)
    return points_at(X, indices)


def checked_centres(
    kernel: AbstractKernel,
    X: PyTree,
    centres: Any,
    key: PRNGKeyArray | None,
    weights: AbstractWeights | None = None,
) -> PyTree:
    """Centres in the dtype of X: the given ones, or as many points of X of positive weight as asked
    for, drawn uniformly.

    Warns of more centres than points, which represent no more functions than the points do.
    """
    n = size_of(X)
    kept = None if weights is None else weights.kept()
    points = n if kept is None else int(np.sum(kept))
    number = number_of_centres(centres, key)
    if number is None:
        Z = as_stack(centres, "centres")
        kernel.check_points(Z)
        warn_of_many(size_of(Z), n)
        return cast(Z, dtype_of(X))
    warn_of_many(number, points)
    assert key is not None
    indices = _UNIFORM.places(kernel, X, n, key)
    if weights is not None and weights.removes:
        # Removed points come last; the others keep the order of the draw.
        indices = indices[jnp.argsort(weights.values[indices] == 0, stable=True)]
    return points_at(X, indices[: min(number, points)])


def number_of_centres(centres: Any, key: Any) -> int | None:
    """The number of centres to draw; None if the centres are given. Raises ValueError without a
    key.
    """
    if not isinstance(centres, (int, np.integer)) or isinstance(centres, bool):
        return None
    if key is None:
        raise ValueError(
            f"centres is a number, {centres}, of points to draw: pass key=jax.random.key(0), or "
            "pass points as centres"
        )
    check_key(key)
    return check_count(centres, "centres")


def warn_of_many(number: int, n: int) -> None:
    """Warns of more centres than points."""
    if number > n:
        warn(
            f"there are {number} centres for {n} points, and more centres than points are of no "
            "use: pass fewer centres",
            ConditionWarning,
        )


_LEAST = 16  # points at first
_FALL = 4.0  # of the ridge, from one level to the next
_CANDIDATES = 4.0  # a candidate is drawn for each quarter of `variance / ridge`
_DRAWN = 2.0  # points for each of the effective dimension


def _by_scores(
    kernel: AbstractKernel, X: PyTree, ridge: float, number: int, key: PRNGKeyArray
) -> "_Drawn":
    """The points that BLESS draws: `number` of its last candidates."""
    n = size_of(X)
    whole = n * float(jnp.max(diagonal_of(kernel, X)))
    if not math.isfinite(whole):
        raise ValueError(
            "LeverageScores needs k(x, x) to be finite at every point of X, but one is inf or NaN: "
            "rescale X"
        )
    key, first = jax.random.split(key)
    indices = jax.random.permutation(first, n)[: min(n, _LEAST)]
    drawn = _Drawn(indices, jnp.full(len(indices), len(indices) / n, dtype_of(X)))
    # For so large a ridge every point has the same score.
    now = max(whole / _LEAST, _FALL * ridge)
    while now > ridge:
        # The points drawn for a smaller ridge, by their scores given the points drawn before.
        now = max(now / _FALL, ridge)
        key, of_level = jax.random.split(key)
        for_candidates, for_draws = jax.random.split(of_level)
        at_least = number if now <= ridge else 0
        count = _bucket(_CANDIDATES * max(whole / now, at_least), n)
        candidates = jax.random.permutation(for_candidates, n)[:count]
        before, shares = drawn
        at = jnp.asarray(now, shares.dtype)
        scores = _scores(kernel, points_at(X, before), shares, points_at(X, candidates), at)
        # The effective dimension sum_i l_i of all n points is about n times the mean over
        # candidates.
        size = _bucket(_DRAWN * n * float(jnp.mean(scores)), min(len(candidates), number))
        # The largest of these are indices drawn one after another by their scores, without
        # replacement (Efraimidis & Spirakis 2006).
        perturbed = jnp.log(scores) + jax.random.gumbel(for_draws, scores.shape, scores.dtype)
        _, chosen = lax.top_k(perturbed, max(size, at_least))
        # The probabilities with which they were drawn, as candidates and then among these.
        among = jnp.minimum(1, len(chosen) * scores[chosen] / jnp.sum(scores))
        drawn = _Drawn(candidates[chosen], among * (len(candidates) / n))
    return drawn


class _Drawn(NamedTuple):
    """The points drawn, and the probability with which each was drawn."""

    indices: Int[Array, " m"]
    shares: Float[Array, " m"]


def _bucket(wanted: float, most: int) -> int:
    """The smallest power of two >= wanted, between 16 and `most`, so that few programs are
    compiled.
    """
    return min(most, 2 ** max(4, math.ceil(math.log2(max(wanted, 1)))))


_CANDIDATES_OF_TILE = 4096


@compiled
def _scores(kernel, points, shares, candidates, ridge):
    """`(k(x, x) - k(x, J) (K_JJ + ridge A)^-1 k(J, x)) / ridge`, for points J of which each was
    drawn with the probability A_jj (Rudi et al. 2018, equation 3); a tile of candidates at a time.
    """
    K = gram_of_prepared(kernel, points) + ridge * jnp.diag(shares)
    factor = cholesky_factor(DenseGram(K))
    n = size_of(candidates)
    tiles = -(-n // _CANDIDATES_OF_TILE)
    # The last tile is padded with the first candidates.
    indices = jnp.arange(tiles * -(-n // tiles)).reshape(tiles, -1) % n

    def of_tile(_, indices):
        tile = points_at(candidates, indices)
        # k(x, J) (L L^T)^-1 k(J, x) = |L^-1 k(J, x)|^2, with L L^T = K_JJ + ridge A.
        explained = solve_lower(factor.lower, gram_of_prepared(kernel, points, tile))
        left = diagonal_of(kernel, tile) - jnp.sum(explained**2, 0)
        # A score is at most one, and rounding if the other points represent the point entirely.
        return None, jnp.clip(left / ridge, eps_of(left), 1)

    return lax.scan(of_tile, None, indices)[1].reshape(-1)[:n]
