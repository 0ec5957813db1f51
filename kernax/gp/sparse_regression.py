"""Gaussian-process regression by inducing points, in O(n m^2) operations and O(n m) memory."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import as_noise, cast
from kernax.core.density import cholesky
from kernax.core.factors import CholeskyFactor, cholesky_factor, direct_accuracy
from kernax.core.kernel import AbstractKernel
from kernax.core.low_rank import factor_beside_identity
from kernax.core.memory import check_memory
from kernax.core.numerics import eps_of, is_concrete, matmul, positive_or_one, safe_sqrt, stopped
from kernax.core.operators import DenseGram
from kernax.core.sharding import compiled
from kernax.core.solution import (
    RESULTS,
    Solution,
    finish,
    first_that_holds,
    void_unless_known,
    warn_of_rounding,
)
from kernax.core.solves import inverse_of_lower, solve_lower, solve_lower_transposed
from kernax.core.task import Task, check_task
from kernax.gp.inducing import (
    NormalAtInducing,
    Projection,
    check_inducing_points,
    process_of,
    projected,
)
from kernax.gp.means import mean_beside, means_at
from kernax.gp.process import GaussianProcess, check_process

_MOST_ROUNDING = 0.01  # nats of the bound


def sgpr(
    process: GaussianProcess,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    Z: PyTree,
    *,
    weights: ArrayLike | None = None,
    throw: bool = True,
) -> Solution[GaussianProcess]:
    """The process given noisy values, through m inducing points Z: another process.

    Of all distributions that agree with the prior given the values at Z, it is the one closest to
    the posterior (Titsias 2009). With `U = L^-1 k(Z, X)`, `L L^T = k(Z, Z)` and `B = I + U U^T /
    noise` its mean is `m(x) + u(x).B^-1 U (y - m(X)) / noise` and its covariance `k(x, z) -
    u(x).u(z) + u(x).B^-1 u(z)`, `u(x) = L^-1 k(Z, x)`. With Z = X it is that of `condition`. It
    takes O(n m^2) operations and O(n m) memory.

    Arguments:
        process: a prior, or a process that has been conditioned already.
        X: stack of n points.
        y: targets (n,), or (n, outputs) for independent outputs that share the kernel.
        noise: variance > 0 of the noise, a number or one for each point (n,).
        Z: stack of m inducing points, which need not be among X: `inducing_points` chooses some of
            X, `minimise` of `sgpr_bound` moves them.
        weights: (n,) >= 0, powers of the likelihood: two is the observation repeated, zero the
            observation removed.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `GaussianProcess`; its mean is a `KernelExpansion` at Z if
        the prior mean is a fixed number. Differentiable in everything, Z included. Stats: `bound`
        (`sgpr_bound`); `trace`, the variance that Z leaves, `sum_i k(x_i, x_i) - |u(x_i)|^2`;
        `jitter`, which was added to k(Z, Z) where it is singular (inducing values with noise of
        that variance: the bound still is one, and somewhat lower); the relative `residual` of the
        solve; and `rounding`, an estimate of the rounding error of the bound, in nats. Above 0.01
        there is a ConditionWarning.

    Raises:
        ValueError: bad shapes or values.
        NotPSDError, NonFiniteError, BreakdownError: the solve failed.
        MemoryBudgetError: the matrices of n x m would not fit.
    """
    check_process(process)
    task, noise, Z = _checked("sgpr", process.covariance, X, y, noise, Z, weights)
    solution = _sgpr(task, cast(process.mean, task.dtype), noise, Z)
    hint = f"sgpr with {task.kernel_name}: more noise or rescaled inputs may help."
    warn_of_rounding(solution, _MOST_ROUNDING, "the bound", hint)
    return finish(solution, throw, hint, quiet=True)


def sgpr_bound(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    Z: PyTree,
    *,
    weights: ArrayLike | None = None,
    mean: Callable | ArrayLike = 0.0,
) -> Float[Array, ""]:
    """`log N(y | m(X), Q + noise I) - tr(K - Q) / (2 noise)`, `Q = K_XZ K_ZZ^-1 K_ZX`: a lower
    bound of `log_marginal_likelihood`, which it is where Z = X (Titsias 2009, eq. 9).

    Maximise it to learn hyperparameters, and Z where that is a field of the model that is learned.
    Arguments are those of `sgpr`; `mean` is a number or a function of a point. With weights w the
    trace is that of `W (K - Q) / (2 noise)`, and the density as in `log_marginal_likelihood`.
    Several outputs are summed.

    Value and gradient take O(n m^2) operations. NaN where k(Z, Z) has no Cholesky factor, not even
    with the jitter that `sgpr(...).stats` reports, or where the noise is so small that B has none.

    Raises ValueError for bad shapes or values.
    """
    task, noise, Z = _checked("sgpr_bound", kernel, X, y, noise, Z, weights)
    solution = _sgpr_bound(task, cast(mean_beside(kernel, mean), task.dtype), noise, Z)
    hint = "sgpr_bound: more noise makes it exact."
    warn_of_rounding(solution, _MOST_ROUNDING, "the bound", hint)
    return finish(solution, throw=False, hint=hint, quiet=True).value


def _checked(
    verb: str,
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    Z: PyTree,
    weights: ArrayLike | None,
) -> tuple[Task, Float[Array, "*n"], PyTree]:
    """Task, noise and inducing points of a verb. Raises ValueError for what does not fit."""
    task = check_task(verb, kernel, X, y, weights, holds_gram=False)
    noise = as_noise(noise, task.n, task.dtype)
    if is_concrete(noise) and np.any(np.asarray(noise) == 0):
        raise ValueError(
            "noise must be positive with inducing points, which explain no target exactly, but is "
            "0: see condition"
        )
    Z = check_inducing_points(task, Z)
    check_memory(task.X, Z, verb=verb)
    return task, noise, Z


class _Observations(eqx.Module):
    """What is observed: r = y - m(X), one column per output, and the weight and noise of each."""

    targets: Float[Array, "n p"]
    weights: Float[Array, " n"]
    noise: Float[Array, " n"]

    @property
    def gains(self) -> Float[Array, " n"]:
        """`w / noise`."""
        return self.weights / self.noise


class _Values(eqx.Module):
    """The best normal distribution of the whitened values at Z, `N(mean, B^-1)`.

    Attributes:
        mean: `B^-1 U diag(gains) r`, one column per output.
        inside: the Cholesky factor of B.
        residual: of the system for the mean, relatively.
        rounding: how far rounding moves `log |B|`.
        jitter: what had to be added to the diagonal of B, which makes it another model's.
    """

    mean: Float[Array, "m p"]
    inside: Float[Array, "m m"]
    residual: Float[Array, ""]
    rounding: Float[Array, ""]
    jitter: Float[Array, ""]


def _best_values(U: Float[Array, "m n"], seen: _Observations) -> _Values:
    """With `B = I + U diag(gains) U^T`; NaN where it has no factor."""
    gains = seen.gains
    B = _weighted_square(U, gains) + jnp.eye(len(U), dtype=U.dtype)
    factor, rounding = _factor_of(stopped(B), stopped((U, gains)))
    inside = jnp.where(factor.exists, cholesky(B, factor), jnp.nan)
    mean, residual = _solved(B, inside, matmul(U, gains[:, None] * seen.targets))
    return _Values(mean, inside, residual, rounding, jnp.asarray(factor.jitter))


def _solved(
    B: Float[Array, "m m"], inside: Float[Array, "m m"], rhs: Float[Array, "m p"]
) -> tuple[Float[Array, "m p"], Float[Array, ""]]:
    """The solution of a system with B, by its factor, and its relative residual."""
    solution = solve_lower_transposed(inside, solve_lower(inside, rhs))
    left = jnp.linalg.norm(rhs - matmul(B, solution))
    return solution, left / positive_or_one(jnp.linalg.norm(rhs))


def _bound_of(of: Projection, seen: _Observations, best: _Values) -> Float[Array, ""]:
    """The log density under `Q + noise`, less the trace of what is left."""
    gains = seen.gains
    errors = seen.targets - matmul(of.features.T, best.mean)
    # At the minimum of this sum, which is the square in the log density, nothing cancels.
    square = jnp.sum(gains[:, None] * errors**2) + jnp.sum(best.mean**2)
    constant = jnp.sum(seen.weights * jnp.log(2 * math.pi * seen.noise))
    determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(best.inside)))
    of_each_column = constant + determinant + jnp.sum(gains * of.left)
    return -(square + seen.targets.shape[1] * of_each_column) / 2


class _Collapsed(eqx.Module):
    """The projection on Z, the best distribution there, how that ended, and figures, the bound
    among them.
    """

    of: Projection
    best: _Values
    result: Any
    figures: dict[str, Array]


def _collapsed(task: Task, mean: Callable, noise: Float[Array, "*n"], Z: PyTree) -> _Collapsed:
    """All that both verbs return."""
    of = projected(task.kernel, Z, task.X)
    targets = task.columns - means_at(mean, task)
    seen = _Observations(targets, task.weights.values, jnp.broadcast_to(noise, targets.shape[:1]))
    best = _best_values(of.features, seen)
    bound = _bound_of(of, seen, best)
    accurate = (best.jitter == 0) & (best.residual <= direct_accuracy(bound.dtype))
    endings = (
        (of.at.result != RESULTS.successful, of.at.result),
        (~jnp.isfinite(bound), RESULTS.nonfinite),
        (~accurate, RESULTS.inaccurate),
    )
    result = first_that_holds(endings, RESULTS.successful)
    figures = {
        "bound": jnp.where(accurate, void_unless_known(bound, result), jnp.nan),
        "trace": jnp.sum(of.left),
        "jitter": of.at.jitter,
        "rounding": jnp.hypot(best.rounding, _rounding_of_trace(of, seen)),
        "residual": best.residual,
    }
    return _Collapsed(of, best, result, figures)


def _rounding_of_trace(of: Projection, seen: _Observations) -> Float[Array, ""]:
    """How far rounding moves the trace in the bound, whose terms `k(x, x) - |u(x)|^2` cancel."""
    terms = seen.gains * (of.left + 2 * jnp.sum(of.features**2, 0))
    unit = positive_or_one(jnp.max(terms))  # their squares may overflow
    return eps_of(terms) * unit * jnp.linalg.norm(terms / unit) / 2


@jax.custom_jvp
def _weighted_square(U: Array, gains: Array) -> Array:
    """`U diag(gains) U^T`."""
    return matmul(U * gains[None, :], U.T)


@_weighted_square.defjvp
def _weighted_square_jvp(primals, tangents):
    # One product and its transpose: in the backward pass one product of n m^2, not two.
    U, gains = primals
    dU, d_gains = tangents
    half = matmul(dU * gains[None, :] + U * (d_gains[None, :] / 2), U.T)
    return _weighted_square(U, gains), half + half.T


def _factor_of(
    B: Float[Array, "m m"], parts: tuple[Float[Array, "m n"], Float[Array, " n"]]
) -> tuple[CholeskyFactor, Float[Array, ""]]:
    """The Cholesky factor of `B = I + U diag(gains) U^T`, and how far rounding moves log |B|.

    In float32 the identity is lost in that sum beside a large U, and the factor comes from a QR of
    U, which takes longer.
    """
    if B.dtype == jnp.float64:
        factor = cholesky_factor(DenseGram(B))
        return factor, factor.rounding(jnp.diagonal(B))
    U, gains = parts
    factor = factor_beside_identity(U * safe_sqrt(gains)[None, :])
    return factor, eps_of(B) * jnp.linalg.norm(jnp.sqrt(1 + gains * jnp.sum(U**2, 0)))


@compiled
def _sgpr(task, mean, noise, Z):
    """The posterior process, with the bound among its stats."""
    found = _collapsed(task, mean, noise, Z)
    root = inverse_of_lower(found.best.inside).T
    values = NormalAtInducing(Z, found.of.at.lower, found.best.mean, root)
    return Solution(process_of(task, mean, values, found.result), found.result, found.figures)


@compiled
def _sgpr_bound(task, mean, noise, Z):
    """The bound alone."""
    found = _collapsed(task, mean, noise, Z)
    return Solution(found.figures["bound"], found.result, found.figures)
