"""Gaussian-process regression: conditioning on noisy values, and the evidence that hyperparameters are learned from."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import as_noise, as_targets, as_weights, cast, count, dtype_of
from kernax.core.density import cholesky, factor_of, log_density
from kernax.core.expansion import KernelExpansion
from kernax.core.gram import gram, gram_operator
from kernax.core.kernel import AbstractKernel
from kernax.core.linalg import WeightedSystem, weighted_solve
from kernax.core.memory import check_memory
from kernax.core.numerics import safe_sqrt
from kernax.core.preparation import prepare
from kernax.core.sharding import compiled
from kernax.core.solution import Solution, Suspect, finish, void_unless_known, warn_of_rounding
from kernax.core.solvers import JitteredCholesky, solve_lower
from kernax.gp.process import FixedMean, GaussianProcess, PosteriorKernel, ShiftedMean, as_mean

_MOST_ROUNDING = 0.01  # nats of the log evidence


def condition(
    process: GaussianProcess,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    throw: bool = True,
) -> Solution[GaussianProcess]:
    """The process given `y_i = f(x_i) + e_i`, `e_i ~ N(0, noise)`: another process (Rasmussen & Williams 2006, eqs. 2.25-2.26).

    With `C = K + noise I`, its mean is `m(x) + k(x, X) C^-1 (y - m(X))` and its covariance `k(x, z) - k(x, X) C^-1 k(X, z)`.
    Conditioning twice is conditioning on all the data at once.

    Arguments:
        process: a prior, or a process that has been conditioned already.
        X: stack of n points.
        y: targets (n,), or (n, outputs) for independent outputs that share the kernel.
        noise: variance >= 0 of the noise, a number or one for each point (n,). scikit-learn's `alpha`; `kernel_ridge`'s ridge.
            Without noise a positive weight changes nothing, and the evidence has a value for weights of zero and one only.
        weights: (n,) >= 0, powers of the likelihood: two is the observation repeated, zero the observation removed.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `GaussianProcess`. Its mean is a `KernelExpansion` if the prior mean is a fixed number.
        Differentiable in the process, X, y, noise and weights. Stats: `log_evidence` (`log_marginal_likelihood`), the
        `jitter` added to the noise, the relative `residual` of the solve, and `rounding`, an estimate of how many nats of
        the log evidence rounding has moved, of targets that are likely: above 0.01 there is a ConditionWarning, and near one
        the matrix that was factorised is not the one that was asked for, such as that of copies of points with hardly any
        noise.

    Raises:
        ValueError: bad shapes or values.
        NotPSDError, NonFiniteError, BreakdownError: the solve failed.
        MemoryBudgetError: the dense matrix would not fit.
    """
    if not isinstance(process, GaussianProcess):
        raise ValueError(f"process must be a GaussianProcess, but is of type {type(process).__name__}: GaussianProcess(kernel)")
    kernel, X = prepare(process.covariance, X)
    y, noise, weights = _checked(X, y, noise, weights, "condition")
    solution = _condition(kernel, cast(process.mean, y.dtype), X, y, noise, weights)
    advice = "more noise or rescaled inputs may help"
    if not isinstance(process.mean, FixedMean):
        advice += ", and the mean must be finite at every point"
    hint = f"condition with {type(kernel).__name__}: {advice}."
    warn_of_rounding(solution, _MOST_ROUNDING, "the evidence", hint)
    return finish(solution, throw, hint, suspect=Suspect("K", count(X), lambda: gram(kernel, X)))


@compiled
def _condition(kernel, mean, X, y, noise, weights):
    operator, targets = gram_operator(kernel, X), _without_mean(mean, X, y)
    factor, _, stats = factor_of(operator, weights, noise)
    rhs = targets if weights is None else weights[:, None] * targets
    a, result, solved = weighted_solve(operator, weights, noise, rhs, JitteredCholesky(), factor)
    evidence = log_density(operator, weights, noise, targets, factor)
    update = KernelExpansion(kernel, X, a.reshape(y.shape), jnp.zeros(y.shape[1:], y.dtype))
    if isinstance(mean, FixedMean):
        mean = eqx.tree_at(lambda f: f.bias, update, jnp.broadcast_to(mean.value, y.shape[1:]))
    else:
        mean = ShiftedMean(mean, update)
    posterior = GaussianProcess(_posterior(kernel, X, operator, weights, noise, factor, result), mean)
    return Solution(posterior, result, stats | solved | {"log_evidence": evidence})


def _posterior(kernel, X, operator, weights, noise, factor, result):
    system = WeightedSystem(operator, weights, noise).with_jitter(factor)
    lower = void_unless_known(cholesky(system.symmetric_form().as_matrix(), factor), result)
    if weights is None:
        return PosteriorKernel(kernel, X, lower)
    roots = safe_sqrt(weights)
    cross = solve_lower(lower, roots[:, None] * operator.as_matrix())
    removed = weights == 0  # their shift is positive, that of a point without noise is not
    gains = jnp.where(removed, weights, 0) / jnp.where(removed, system.shift, 1)
    return PosteriorKernel(kernel, X, lower, roots, gains, cross)


def log_marginal_likelihood(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    noise: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    mean: Callable | ArrayLike = 0.0,
) -> Float[Array, ""]:
    """`log N(y | m(X), C) = -1/2 (r.C^-1 r + log |C| + n log 2 pi)`, `C = K + noise I`, `r = y - m(X)`.

    The evidence of a kernel, a noise variance and a mean (Rasmussen & Williams 2006, eq. 2.30): maximise it to learn them.
    Arguments are those of `condition`; `mean` is a number or a function of a point. With weights it is
    `log N(S r | 0, S K S + noise I) + 1/2 sum (1 - w) log(2 pi noise)`, S = sqrt(weights). Several outputs are summed.

    Its derivative (eq. 5.9) costs about three factorisations, for any number of hyperparameters. NaN if there is no
    Cholesky factor. If it took jitter, or if rounding moves it by more than 0.01, there is a warning, though not inside `jit`,
    `grad` or `vmap`; there as everywhere the `jitter` and `rounding` in `condition(...).stats` tell it. Rounding acts like
    noise of variance eps * variance: in float32 a prior variance of 1e5 times the noise costs several per cent of the
    evidence. A `mean` that takes a large trend out avoids it.

    Raises ValueError for bad shapes or values.
    """
    kernel, X = prepare(kernel, X)
    y, noise, weights = _checked(X, y, noise, weights, "log_marginal_likelihood")
    solution = _evidence(kernel, cast(as_mean(mean), y.dtype), X, y, noise, weights)
    hint = "log_marginal_likelihood: more noise makes it exact."
    warn_of_rounding(solution, _MOST_ROUNDING, "the evidence", hint)
    return finish(solution, throw=False, hint=hint).value


@compiled
def _evidence(kernel, mean, X, y, noise, weights):
    operator = gram_operator(kernel, X)
    factor, result, stats = factor_of(operator, weights, noise)
    return Solution(log_density(operator, weights, noise, _without_mean(mean, X, y), factor), result, stats)


def _checked(X, y, noise, weights, verb):
    check_memory(X, verb=verb)
    n, dtype = count(X), dtype_of(X)
    return as_targets(y, n, dtype), as_noise(noise, n, dtype), as_weights(weights, n, dtype)


def _without_mean(mean, X, y):
    """`y - m(X)`, one column per output."""
    means = jax.vmap(mean)(X)
    if means.shape not in (y.shape[:1], y.shape):
        allowed = "a scalar" if y.ndim == 1 else f"a scalar or shape {y.shape[1:]}"
        raise ValueError(f"mean must return {allowed} to go with y of shape {y.shape}, but returns shape {means.shape[1:]}")
    return y.reshape(len(y), -1) - means.reshape(len(y), -1)
