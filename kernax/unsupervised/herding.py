"""Kernel herding and Stein thinning: points chosen one after another, so that their mean approaches
that of a sample or of a density.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax._advice import IN_BLOCKS
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import stop_gradient
from kernax.core.base.parameters import check_count
from kernax.core.base.solution import Solution, finish
from kernax.core.functionals.stein import SteinKernel, with_scores
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.learner_problem import LearnerProblem, check_problem
from kernax.core.operators.gram import operator_of_prepared
from kernax.core.operators.memory import Footprint
from kernax.unsupervised.subsample import AboutMean, Subsample, subsample_of

_HERDING = Footprint("herding", 1.05, IN_BLOCKS)
# Includes derivatives of the kernel, measured for vectors of length 2 to 4, where XLA needs most.
_STEIN_THIN = Footprint("stein_thin", 13.1, IN_BLOCKS)


@renamed(count="n_points")
def herding(
    kernel: AbstractKernel,
    X: PyTree,
    n_points: int,
    *,
    weights: ArrayLike | None = None,
    replace: bool = True,
    block_size: int | None = None,
    throw: bool = True,
) -> Solution[Subsample]:
    """Kernel herding: chooses x_1, x_2, ... from X in turn, each such that the distance `|1/t
    sum_{s <= t} phi(x_s) - mu|` from the mean `mu = sum_i w_i phi(x_i) / sum_i w_i` is as small as
    possible given the choices before.

        x_{t+1} = argmin_x  sum_{s <= t} k(x, x_s) + k(x, x) / 2 - (t + 1) mu(x)

    The method is that of Chen, Welling & Smola (2010), with equal weights `1 / t`; they leave out
    the term k(x, x) / 2, which is a constant for normalised kernels such as theirs. The error of
    the mean of a function over the first t points is at most that distance times the norm of the
    function: O(1 / t) if the space has finite dimension, where t random points give O(1 / sqrt(t)).
    Herding is deterministic; it chooses the first among equal points.

    Arguments:
        kernel, X: any kernel, and a batch of n points to choose from.
        n_points: the number of points to choose.
        weights: (n,) >= 0. Two is the point repeated; zero is the point removed, which is never
            chosen.
        replace: whether a point may be chosen again, as in the paper. Otherwise it is chosen at
            most once, whatever its weight.
        block_size: rows of K computed at a time; K is then never stored.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `Subsample`, differentiable in the kernel, X and weights
        with the choices held fixed. Stats: `discrepancies` (n_points,), the squared distance after
        each step.

    Raises:
        ValueError: bad shapes or values, and, without replacement, an n_points above the number of
            points of positive weight.
        NonFiniteError, BreakdownError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> chosen = kernax.samples.herding(kernax.RBF(0.3), X, 3).value
        >>> int(chosen.indices[0])  # the middle one stands for all best
        2
    """
    problem = check_problem(
        "herding",
        kernel,
        X,
        None,
        weights,
        block_size=block_size,
        in_features=True,
        throw=throw,
        footprint=_HERDING,
    )
    n_points = _checked_count(n_points, problem, bool(replace))
    solution = _herding(problem, n_points, bool(replace))
    return finish(solution, throw, "herding: centre or rescale the points, or rescale the kernel.")


@renamed(count="n_points")
def stein_thin(
    kernel: AbstractKernel,
    X: PyTree,
    log_density: Callable,
    n_points: int,
    *,
    replace: bool = True,
    block_size: int | None = None,
    throw: bool = True,
) -> Solution[Subsample]:
    """Stein thinning: chooses `n_points` points from X in turn, each such that the mean embedding
    of the first t in the space of `SteinKernel(kernel, log_density)` has the smallest norm given
    the choices before.

        x_{t+1} = argmin_x  sum_{s <= t} k_0(x, x_s) + k_0(x, x) / 2

    The chosen points of a Markov chain, or of any other sample, represent the density itself
    (Riabiz et al. 2022). The first ones are its highest modes, points of a burn-in are left out,
    and a bias of the sample is removed as far as its points allow. No integral is needed, because
    the mean of the density in that space is zero.

    Arguments:
        kernel: a differentiable kernel of vectors; see `SteinKernel` for the choice.
        X: (n, d).
        log_density: a function of one vector, up to a constant.
        n_points, replace, block_size, throw: as in `herding`.

    Returns:
        A `Solution` whose `value` is a `Subsample`; its `discrepancy` is the squared norm, `1 / t^2
        sum_ij k_0(x_i, x_j)`, differentiable with the choices held fixed. Stats: `discrepancies`
        (n_points,), the discrepancy after each step.

    Raises:
        ValueError: as in `herding`; also for a kernel without derivatives, points that are not
            vectors, or a log density that is not a scalar.
        NonFiniteError: as in `herding`; also for a score that is not finite.

    Examples:
        >>> X = jnp.linspace(-2.0, 2.0, 5)[:, None]
        >>> def log_density(x):
        ...     return -0.5 * x @ x
        ...
        >>> chosen = kernax.samples.stein_thin(kernax.RBF(1.0), X, log_density, 3).value
        >>> int(chosen.indices[0])  # the mode
        2
    """
    kernel = SteinKernel(kernel, log_density)
    problem = check_problem(
        "stein_thin", kernel, X, None, block_size=block_size, throw=throw, footprint=_STEIN_THIN
    )
    n_points = _checked_count(n_points, problem, bool(replace))
    solution = _stein_thin(problem, n_points, bool(replace))
    hint = "stein_thin: is the score finite at every point?"
    return finish(solution, throw, hint)


def _checked_count(count: Any, problem: LearnerProblem, replace: bool) -> int:
    """The number of points to choose. Raises ValueError if there are fewer points to choose
    from.
    """
    count = check_count(count, "n_points")
    if not replace:
        problem.check_at_most_points(count, "n_points", ": choose fewer, or replace=True")
    return count


@compiled
def _herding(problem, count, replace):
    # mu = sum_i w_i phi(x_i) / sum_i w_i.
    w = problem.weights.values
    centred = AboutMean.at(problem.gram(), w / jnp.sum(w))
    return _greedy_subsample(
        centred, w > 0, count, replace, accurate=centred.is_accurate(problem.X)
    )


@compiled
def _stein_thin(problem, count, replace):
    scored, points = with_scores(problem.kernel, problem.X)
    gram = operator_of_prepared(scored, points, problem.layout)
    # The mean of the density is zero in this space, so that mu = 0.
    nothing = jnp.zeros(problem.n, problem.dtype)
    free = jnp.ones(problem.n, bool)
    return _greedy_subsample(AboutMean.at(gram, nothing), free, count, replace)


def _greedy_subsample(
    centred: AboutMean,
    free: Bool[Array, " n"],
    count: int,
    replace: bool,
    accurate: ArrayLike = True,
) -> Solution[Subsample]:
    """The subsample, with the discrepancy after each step."""
    fixed = stop_gradient(centred)

    def with_next(t: Int[Array, ""], now: _Choices) -> _Choices:
        # |s + phi(x) - mu|^2 = |s|^2 + 2 growth, growth = <s, phi(x) - mu> + |phi(x) - mu|^2 / 2.
        index, growth = fixed.best_addition(now.sums, now.free)
        square = now.square + 2 * growth
        return _Choices(
            sums=now.sums + fixed.row(index),
            square=square,
            free=now.free if replace else now.free.at[index].set(False),
            indices=now.indices.at[t].set(index),
            squares=now.squares.at[t].set(square),
        )

    # Each step adds the point that leaves the sum with the smallest norm.
    start = _Choices(
        sums=jnp.zeros_like(fixed.means),
        square=jnp.zeros_like(fixed.square),
        free=free,
        indices=jnp.zeros(count, jnp.int32),
        squares=jnp.zeros(count, fixed.means.dtype),
    )
    end = lax.fori_loop(0, count, with_next, start)
    # |1/t sum_{s <= t} phi(x_s) - mu|^2 = |sum_{s <= t} (phi(x_s) - mu)|^2 / t^2.
    counts = jnp.arange(1, count + 1, dtype=end.squares.dtype)
    stats = {"discrepancies": jnp.maximum(end.squares, 0) / counts**2}
    return subsample_of(centred, end.indices, stats, accurate=accurate)


class _Choices(eqx.Module):
    """The state after some choices.

    Attributes:
        sums: `<s, phi(x) - mu>` at every point, s the sum of `phi(x_s) - mu` over those chosen.
        square: `|s|^2`.
        free: which points may be chosen.
        indices, squares: the point of each step, and the square after it.
    """

    sums: Float[Array, " n"]
    square: Float[Array, ""]
    free: Bool[Array, " n"]
    indices: Int[Array, " count"]
    squares: Float[Array, " count"]
