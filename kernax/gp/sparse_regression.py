"""Sparse Gaussian process regression, in O(n m^2) operations and O(n m) memory."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_noise, cast
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed, translated
from kernax.core.base.numerics import is_concrete
from kernax.core.base.solution import (
    OF_BOUND,
    RESULTS,
    Solution,
    finish,
    first_that_holds,
    void_unless_known,
)
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.learner_problem import LearnerProblem, check_problem
from kernax.core.linalg.factorisation import direct_accuracy
from kernax.core.linalg.solves import inverse_of_lower
from kernax.core.operators.memory import Footprint, check_memory
from kernax.gp.collapsed import (
    BestValues,
    NormalObservations,
    best_values,
    bound_of,
    rounding_of_bound,
)
from kernax.gp.inducing import (
    NormalAtInducing,
    Projection,
    check_inducing_points,
    process_of,
    projected,
)
from kernax.gp.means import means_at
from kernax.gp.process import GaussianProcess, as_process, with_the_mean_in_the_process

# Matrices of n x m; in float32 their factor comes from a QR.
_SGPR = Footprint("sgpr", 3.1, more_in_float32=1.0)
_BOUND = Footprint("sgpr_bound", 3.1, more_in_float32=1.0)


def sgpr(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    Z: PyTree,
    *,
    weights: ArrayLike | None = None,
    throw: bool = True,
) -> Solution[GaussianProcess]:
    """Sparse Gaussian process regression with m inducing points Z, by Titsias' collapsed bound.

    The result is the distribution closest to the posterior among those that agree with the prior
    given the values at Z (Titsias 2009). With `U = L^-1 k(Z, X)`, `L L^T = k(Z, Z)` and `B = I + U
    U^T / noise` its mean is `m(x) + u(x).B^-1 U (y - m(X)) / noise` and its covariance `k(x, z) -
    u(x).u(z) + u(x).B^-1 u(z)`, `u(x) = L^-1 k(Z, x)`. With Z = X it equals the result of
    `condition`. It takes O(n m^2) operations and O(n m) memory.

    Arguments:
        process: a prior, or a process that has already been conditioned. A kernel stands for the
            process of mean zero.
        X: a batch of n points.
        y: targets (n,), or (n, outputs) for independent outputs that share the kernel.
        noise: the variance of the noise, > 0, a number or one for each point (n,).
        Z: a batch of m inducing points, not necessarily among X. `inducing_points` chooses some of
            X; to optimise them, `minimise` the negative `sgpr_bound`.
        weights: (n,) >= 0, powers of the likelihood: two is the observation repeated, zero the
            observation removed.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `GaussianProcess`; its mean is a `KernelExpansion` at Z if
        the prior mean is a fixed number. It is differentiable in all arguments, Z included. Stats:
        `bound` (see `sgpr_bound`); `trace`, the variance that Z does not explain, `sum_i k(x_i,
        x_i) - |u(x_i)|^2`; `jitter`, which was added to k(Z, Z) if it is singular (as if inducing
        values had noise of that variance; the bound remains valid but is somewhat lower); the
        relative `residual` of the solve; and `rounding`, an estimate of the rounding error of the
        bound, in nats. If it is above 0.01 a ConditionWarning is issued.

    Raises:
        ValueError: bad shapes or values.
        NotPSDError, NonFiniteError, BreakdownError: the solve failed.
        MemoryBudgetError: the matrices of n x m would not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> prior, Z = kernax.GaussianProcess(kernax.RBF(0.5)), X[::2]
        >>> solution = kernax.sgpr(prior, X, y, 0.01, Z)
        >>> round(float(solution.value.mean(jnp.array([0.4]))), 2)
        0.25
        >>> round(float(solution.stats["bound"]), 1)
        -59.2
    """
    process = as_process(process)
    problem, noise, Z = _checked("sgpr", process.covariance, X, y, noise, Z, weights, throw=throw)
    arguments = problem, cast(process.mean, problem.dtype), noise, Z
    first = lambda: eqx.filter_eval_shape(_sgpr, *arguments)
    check_memory(problem.X, Z, footprint=_SGPR, first=first)
    solution = _sgpr(*arguments)
    hint = f"sgpr with {problem.kernel_name}: more noise or rescaled inputs may help."
    return finish(solution, throw, hint, quiet=True, digits=OF_BOUND)


@translated(with_the_mean_in_the_process("sgpr_bound"))
@renamed(kernel="process")
def sgpr_bound(
    process: GaussianProcess | AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    Z: PyTree,
    *,
    weights: ArrayLike | None = None,
) -> Float[Array, ""]:
    """`log N(y | m(X), Q + noise I) - tr(K - Q) / (2 noise)`, `Q = K_XZ K_ZZ^-1 K_ZX`: a lower
    bound of `log_marginal_likelihood`, exact for Z = X (Titsias 2009, eq. 9).

    Maximise it to learn hyperparameters, and Z if it is a field of the model. Arguments are those
    of `sgpr`; a kernel stands for the process of mean zero. With weights w the trace is that of `W
    (K - Q) / (2 noise)`, and the density is as in `log_marginal_likelihood`. Several outputs are
    summed.

    Value and gradient take O(n m^2) operations. The value is NaN if k(Z, Z) has no Cholesky factor,
    not even with the jitter that `sgpr(...).stats` reports, or if the noise is so small that B has
    none.

    Raises ValueError for bad shapes or values, and MemoryBudgetError if the matrices do not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> bound = kernax.sgpr_bound(kernax.RBF(0.3), X, y, 0.01, X[::2])
        >>> bool(bound <= kernax.log_marginal_likelihood(kernax.RBF(0.3), X, y, 0.01))
        True
    """
    process = as_process(process)
    problem, noise, Z = _checked("sgpr_bound", process.covariance, X, y, noise, Z, weights)
    arguments = problem, cast(process.mean, problem.dtype), noise, Z
    first = lambda: eqx.filter_eval_shape(_sgpr_bound, *arguments)
    check_memory(problem.X, Z, footprint=_BOUND, first=first)
    solution = _sgpr_bound(*arguments)
    hint = "sgpr_bound: more noise avoids this."
    return finish(solution, throw=False, hint=hint, quiet=True, digits=OF_BOUND).value


def _checked(
    function_name: str,
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    Z: PyTree,
    weights: ArrayLike | None,
    *,
    throw: bool = False,
) -> tuple[LearnerProblem, Float[Array, "*n"], PyTree]:
    """The problem, noise and inducing points of a fit. Raises ValueError for bad arguments."""
    problem = check_problem(function_name, kernel, X, y, weights, holds_gram=False, throw=throw)
    noise = as_noise(noise, problem.n, problem.dtype, function_name if throw else None)
    if is_concrete(noise) and np.any(np.asarray(noise) == 0):
        raise ValueError(
            "noise must be positive with inducing points, which explain no target exactly, but is "
            "0: condition accepts targets without noise"
        )
    Z = check_inducing_points(problem, Z)
    return problem, noise, Z


class _Collapsed(eqx.Module):
    """The projection onto Z, the optimal distribution there, the status, and statistics such as the
    bound.
    """

    of: Projection
    best: BestValues
    result: Any
    figures: dict[str, Array]


def _collapsed(
    problem: LearnerProblem, mean: Callable, noise: Float[Array, "*n"], Z: PyTree
) -> _Collapsed:
    """The common computation of both functions."""
    of = projected(problem.kernel, Z, problem.X)
    targets = problem.columns - means_at(mean, problem)
    seen = NormalObservations(
        targets, problem.weights.values, jnp.broadcast_to(noise, targets.shape[:1])
    )
    best = best_values(of.features, seen)
    bound = bound_of(of, seen, best)
    accurate = (best.jitter == 0) & (best.residual <= direct_accuracy(bound.dtype))
    statuses = (
        (of.at.result != RESULTS.successful, of.at.result),
        (~jnp.isfinite(bound), RESULTS.nonfinite),
        (~accurate, RESULTS.inaccurate),
    )
    result = first_that_holds(statuses, RESULTS.successful)
    figures = {
        "bound": jnp.where(accurate, void_unless_known(bound, result), jnp.nan),
        "trace": jnp.sum(of.left),
        "jitter": of.at.jitter,
        "rounding": rounding_of_bound(of, seen, best),
        "residual": best.residual,
    }
    return _Collapsed(of, best, result, figures)


@compiled
def _sgpr(problem, mean, noise, Z):
    """The posterior process, with the bound among its stats."""
    found = _collapsed(problem, mean, noise, Z)
    # The whitened values have the covariance B^-1 = root root^T, root = inside^-T.
    root = inverse_of_lower(found.best.inside).T
    values = NormalAtInducing(Z, found.of.at.lower, found.best.mean, root)
    return Solution(process_of(problem, mean, values, found.result), found.result, found.figures)


@compiled
def _sgpr_bound(problem, mean, noise, Z):
    """The bound alone."""
    found = _collapsed(problem, mean, noise, Z)
    return Solution(found.figures["bound"], found.result, found.figures)
