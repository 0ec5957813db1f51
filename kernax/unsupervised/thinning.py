"""Kernel thinning: halves a sample repeatedly by a random walk that keeps its mean."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import check_key
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import INSIDE_ONE
from kernax.core.base.numerics import positive_or_one, stop_gradient
from kernax.core.base.parameters import check_count
from kernax.core.base.solution import Solution, finish
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import prepare
from kernax.core.learner.learner_problem import check_problem
from kernax.core.operators.gram import gram_of_prepared
from kernax.core.operators.memory import Footprint
from kernax.core.operators.operators import DenseGram, is_finite
from kernax.unsupervised.subsample import AboutMean, Subsample, subsample_of

_FOOTPRINT = Footprint("thin", 1.6)


@renamed(halvings="n_halvings")
def thin(
    kernel: AbstractKernel,
    X: PyTree,
    n_halvings: int,
    *,
    key: PRNGKeyArray,
    split_kernel: AbstractKernel | None = None,
    delta: ArrayLike = 0.5,
    throw: bool = True,
) -> Solution[Subsample]:
    """Kernel thinning: chooses `m = n / 2^n_halvings` of n points such that the mean of any one
    function over them has the error `O(sqrt(log n)) / m`, where m random points have `O(1 /
    sqrt(m))`.

    This is algorithm 1 of Dwivedi & Mackey (2021). KT-SPLIT halves the sample repeatedly: it
    assigns the points of each pair to the two halves at random, with probabilities that balance the
    imbalance of the pairs before (a self-balancing walk). KT-SWAP starts from the best among the
    `2^n_halvings` parts and standard thinning (every `2^n_halvings`-th point of X), and replaces
    each of its points by the point of X that brings the mean closest; a point may be chosen twice.
    The discrepancy is therefore never above that of standard thinning.

    Arguments:
        kernel, X: any kernel, and a batch of n points, such as a Markov chain in its order. All
            count alike; `herding` accepts weights.
        n_halvings: how often to halve; n must be a multiple of `2^n_halvings`.
        key: a random key, for the walk.
        split_kernel: the kernel that the walk balances: `kernel` itself by default (Dwivedi &
            Mackey 2022, target KT, whose error of any one function of the space does not depend on
            the dimension); the 2021 paper uses a square root of it, in the sense of convolution.
        delta: the probability, in (0, 1), that a bound of the walk fails: `delta_i = delta / n`.
            The smaller it is, the larger the imbalance may become before an assignment is
            deterministic.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `Subsample`, differentiable with the choices held fixed.
        Stats: the discrepancies of the best part before its refinement, `split`, and of standard
        thinning, `standard`. It takes O(n^2) operations and memory.

    Raises:
        ValueError: bad shapes or values, n that is not a multiple of `2^n_halvings`, anything but a
            single random key.
        NonFiniteError, BreakdownError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 8)[:, None]
        >>> chosen = kernax.samples.thin(kernax.RBF(0.3), X, 1, key=jax.random.key(0)).value
        >>> chosen.indices.shape
        (4,)
    """
    check_key(key)
    problem = check_problem("thin", kernel, X, None, throw=throw, footprint=_FOOTPRINT)
    n_halvings = check_count(n_halvings, "n_halvings")
    if 2**n_halvings > problem.n:
        raise ValueError(
            f"n_halvings of {problem.n} points must leave at least one, but is {n_halvings}: halve "
            "less often"
        )
    if problem.n % 2**n_halvings:
        raise ValueError(
            f"X must hold a multiple of 2^n_halvings = {2**n_halvings} points, but holds "
            f"{problem.n}: leave out {problem.n % 2**n_halvings} of them, or halve less often"
        )
    delta = problem.scalar(delta, "delta", INSIDE_ONE, throw=throw)
    if split_kernel is not None:
        split_kernel, _ = prepare(split_kernel, problem.X, thrown_by="thin" if throw else None)
    solution = _thin(problem, split_kernel, key, delta, n_halvings)
    return finish(solution, throw, "thin: centre or rescale the points, or rescale the kernel.")


@compiled
def _thin(problem, split_kernel, key, delta, halvings):
    n = problem.n
    gram = problem.gram()
    # mu = 1/n sum_i phi(x_i).
    centred = AboutMean.at(gram, jnp.full(n, 1 / n, problem.dtype))
    split = gram if split_kernel is None else DenseGram(gram_of_prepared(split_kernel, problem.X))
    sound = is_finite(split) & jnp.isfinite(delta)
    standard = jnp.arange(2**halvings - 1, n, 2**halvings, dtype=jnp.int32)
    # KT-SPLIT: `2^n_halvings` parts, halved level by level, all parts of a level together.
    # The decisions are those of the paper, which processes one point after another.
    K = stop_gradient(split.as_matrix())
    parts = jnp.arange(n, dtype=jnp.int32)[None]
    for level, level_key in enumerate(jax.random.split(key, halvings)):
        uniforms = jax.random.uniform(level_key, (len(parts), parts.shape[1] // 2), K.dtype)
        # delta_i 2^(j - 1) / m for level j of m.
        failure = delta * (2**level / (n * halvings))
        halves = jax.vmap(_halved, (None, 0, 0, None))(K, parts, uniforms, failure)
        parts = halves.reshape(2 * len(parts), -1)
    parts = jnp.append(standard[None], parts, 0)
    fixed = stop_gradient(centred)
    of_each = fixed.discrepancies(parts)
    # KT-SWAP: replaces each point in turn by the point of X that leaves the smallest discrepancy.
    best = parts[jnp.argmin(of_each)]
    count = len(best)
    free = jnp.ones(len(fixed.means), bool)

    def step(i: Int[Array, ""], now: _Exchanges) -> _Exchanges:
        # <s - (phi(x_i) - mu), phi(x) - mu> at every point x; the best x replaces x_i.
        without = now.sums - fixed.row(now.indices[i])
        index, _ = fixed.best_addition(without, free)
        return _Exchanges(now.indices.at[i].set(index), without + fixed.row(index))

    def added(i: Int[Array, ""], sums: Float[Array, " n"]) -> Float[Array, " n"]:
        return sums + fixed.row(best[i])

    sums = lax.fori_loop(0, count, added, jnp.zeros_like(fixed.means))
    indices = lax.fori_loop(0, count, step, _Exchanges(best, sums)).indices
    stats = {"split": jnp.min(of_each[1:]), "standard": of_each[0]}
    return subsample_of(centred, indices, stats, sound, centred.is_accurate(problem.X))


def _halved(
    K: Float[Array, "n n"],
    part: Int[Array, " m"],
    uniforms: Float[Array, " h"],
    failure: Float[Array, ""],
) -> Int[Array, "2 h"]:
    """A part as two, each with one point of every pair."""
    pairs = part.reshape(-1, 2).T
    (first, second) = pairs
    # The inner products of the f_p = phi(x) - phi(x') of all pairs.
    # <f_p, f_q> = k(x_p, x_q) - k(x'_p, x_q) - k(x_p, x'_q) + k(x'_p, x'_q).
    rows = K[first] - K[second]
    # Signs for which `sum_p signs_p f_p` stays short, D the inner products of the f_p.
    D = rows[:, first] - rows[:, second]

    def step(p: Int[Array, ""], now: _Walk) -> _Walk:
        square = jnp.maximum(D[p, p], 0)
        # a of the paper is the inner product at which a decision is certain; it is set to 1 for two
        # equal points, where it is zero.
        # a = max(b sigma sqrt(2 ln(2 / delta)), b^2) with b = |f_p|.
        stray = jnp.sqrt(now.variance) * jnp.sqrt(square) * jnp.sqrt(2 * jnp.log(2 / failure))
        reach = positive_or_one(jnp.maximum(stray, square))
        # alpha of the paper is the inner product of f_p with minus the walk.
        alpha = -jnp.sum(D[p] * now.signs)
        # P(sign = 1) = (1 + alpha / a) / 2, clipped to [0, 1].
        sign = jnp.where(uniforms[p] < (1 - alpha / reach) / 2, -1, 1)
        # sigma^2 grows by b^2 (1 + (b^2 - 2 a) sigma^2 / a^2)_+, b^2 the square and a the reach: by
        # quotients of numbers of one size, as their products may leave the range of floats.
        shrink = 1 + (square / reach - 2) * (now.variance / reach)
        variance = now.variance + square * jnp.maximum(shrink, 0)
        return _Walk(now.signs.at[p].set(sign), variance)

    start = _Walk(jnp.zeros_like(uniforms), jnp.zeros_like(failure))
    signs = lax.fori_loop(0, len(D), step, start).signs
    return jnp.where(signs[None] > 0, pairs, pairs[::-1])


class _Walk(eqx.Module):
    """A random walk in the space of the kernel, a step for each pair.

    Attributes:
        signs: 1 for a pair in its order, -1 for an exchanged pair, 0 for a pair that is still to
            come.
        variance: the sub-Gaussian constant of the walk `sum_p signs_p f_p`, sigma^2.
    """

    signs: Float[Array, " h"]
    variance: Float[Array, ""]


class _Exchanges(eqx.Module):
    """The state of a subsample while its points are replaced.

    Attributes:
        indices: its points.
        sums: `<s, phi(x) - mu>` at every point, s the sum of `phi(x_i) - mu` over the subsample.
    """

    indices: Int[Array, " count"]
    sums: Float[Array, " n"]
