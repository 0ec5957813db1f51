"""Kernel ridge regression and its closed-form leave-one-out errors."""

import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import as_scalar, as_targets, as_weights, count, dtype_of
from kernax.core.conjugate_gradient import ConjugateGradient
from kernax.core.density import factor_of, weighted_inverse
from kernax.core.expansion import KernelExpansion
from kernax.core.features import feature_operator, has_few_features
from kernax.core.gram import checked_block, gram, gram_operator
from kernax.core.kernel import AbstractKernel
from kernax.core.linalg import WeightedSystem, accurate_residual, unit_of, weighted_solve
from kernax.core.memory import check_memory
from kernax.core.numerics import product, stopped
from kernax.core.powers import times_power_of_two
from kernax.core.preparation import prepare
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, Suspect, finish, void_unless_known, warn_of_rounding
from kernax.core.solvers import JitteredCholesky
from kernax.core.support import NONNEGATIVE


def kernel_ridge(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = False,
    solver: lx.AbstractLinearSolver | None = None,
    block_size: int | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Minimises `1/2 sum_i w_i (y_i - f(x_i))^2 + ridge/2 |f|^2` over the functions of a kernel.

    The minimiser is `f(x) = sum_i a_i k(x, x_i) + b` with `(W K + ridge I) a = W (y - b)`, `W = diag(weights)` (Saunders,
    Gammerman & Vovk 1998; Schoelkopf & Smola 2002, section 4.3); b = 0, or with `bias=True` unpenalised, which is
    `sum_i a_i = 0`. scikit-learn's `alpha` and a Gaussian process's noise variance are this `ridge`; a penalty `ridge' |f|^2`
    on the *mean* square is `ridge = n ridge'`.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: stack of n points.
        y: targets (n,) or (n, outputs).
        ridge: >= 0, in squared units of y over units of k. Zero asks for the interpolant; where K is singular that is
            found with jitter, reported and warned about.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed, both exactly and with the right derivative.
        solver: default `JitteredCholesky()`, or `ConjugateGradient()` when `block_size` is given. Any lineax solver for
            positive semidefinite operators works. Of a `FeatureMap` of fewer features than points the default solves a
            system as large as the features are many, and never holds K.
        block_size: rows of K computed at a time by a matrix-free solver, which never holds K: memory O(block_size n),
            in the backward pass as well.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`, differentiable in the kernel, X, y, ridge and weights, to any
        order. Stats: `residual` (true, relative), and `jitter`, `steps`, or `features` where it was solved in those.

    Raises:
        ValueError: bad shapes or values, Cholesky asked for together with blocks.
        NotPSDError, NonFiniteError, MaxStepsError, BreakdownError: the solve failed.
        MemoryBudgetError: the dense matrix would not fit.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    y, weights = as_targets(y, n, dtype), as_weights(weights, n, dtype)
    ridge = as_scalar(ridge, dtype, "ridge", NONNEGATIVE)
    block_size = checked_block(block_size)
    if not isinstance(solver, lx.AbstractLinearSolver | None):
        raise ValueError(f"solver must be a linear solver, such as JitteredCholesky(), but is {solver!r}")
    primal = solver is None and block_size is None and has_few_features(kernel, X, ridge)
    if block_size is None and not primal:
        check_memory(X, verb="kernel_ridge")
    elif block_size is not None and isinstance(solver, (JitteredCholesky, lx.Cholesky)):
        raise ValueError("Cholesky needs the whole matrix: leave out block_size, or use solver=ConjugateGradient()")
    if solver is None:
        solver = JitteredCholesky() if block_size is None else ConjugateGradient()
    solution = _kernel_ridge(kernel, X, y, ridge, weights, bool(bias), solver, block_size, primal)
    hint = f"kernel_ridge with {type(kernel).__name__}: a larger ridge or rescaled inputs may help."
    return finish(solution, throw, hint, suspect=Suspect("K", n, lambda: gram(kernel, X)))


@compiled
def _kernel_ridge(kernel, X, y, ridge, weights, bias, solver, block_size, primal):
    operator = feature_operator(kernel, X) if primal else gram_operator(kernel, X, block_size=block_size)
    targets = y.reshape(len(y), -1)
    w = jnp.ones_like(y, shape=len(y)) if weights is None else weights
    rhs = jnp.concatenate([targets, jnp.ones_like(targets[:, :1])], 1) if bias else targets
    a, result, stats = weighted_solve(operator, weights, ridge, w[:, None] * rhs, solver)
    b = jnp.zeros_like(targets[:1])
    if bias:  # a is linear in the right-hand side, and the b that makes its columns sum to zero is wanted
        of_y, of_one = a[:, :-1], a[:, -1:]
        size = jnp.max(jnp.abs(of_one))  # of a tiny ridge: the sums below would overflow, and b = y / inf be zero
        b = jnp.sum(of_y / size, 0, keepdims=True) / jnp.sum(of_one / size)
        a = of_y - b * of_one
        result = RESULTS.where((result == RESULTS.successful) & ~jnp.all(jnp.isfinite(b)), RESULTS.nonfinite, result)
        system = WeightedSystem(operator, weights, ridge + stats.get("jitter", 0))
        relative = _residual_with_bias(*stopped((system, a, b, w[:, None] * targets, w)))
        accurate = relative <= 2 * accurate_residual(solver, a.dtype)  # two columns
        result = RESULTS.where((result == RESULTS.successful) & ~accurate, RESULTS.inaccurate, result)
        stats = stats | {"residual": relative}
    a, b = void_unless_known((a, b), result)
    expansion = KernelExpansion(kernel, X, a.reshape(y.shape), b.reshape(y.shape[1:]))
    return Solution(expansion, result, stats)


def _residual_with_bias(
    system: WeightedSystem, a: Float[Array, "n p"], b: Float[Array, "1 p"], rhs: Float[Array, "n p"], w: Float[Array, " n"]
) -> Float[Array, ""]:
    """The relative residual of both conditions, `(W K + ridge) a = W (y - b)` and `sum W (y - b - K a) = 0`.

    Both columns that were solved for may be accurate, and what is left of them after the bias is eliminated be none of it.
    """
    off, size = system.misfit(a, rhs, w[:, None] * b)
    unit = unit_of(rhs)
    in_units = lambda columns: times_power_of_two(columns, -unit)
    slope = jnp.sum(off + system.shift[:, None] * in_units(a), 0)
    most = jnp.sum(abs(in_units(rhs)), 0)
    return jnp.max(jnp.maximum(jnp.linalg.norm(off, axis=0) / size, abs(slope) / jnp.where(most > 0, most, 1)))


def leave_one_out(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = False,
) -> Float[Array, "n *outputs"]:
    """Residuals `y_i - f_i(x_i)`, f_i being `kernel_ridge` fitted without point i; shape of y. One factorisation, no refits.

    With `P = (W K + ridge I)^-1` they are `(P^T y)_i / P_ii`; with a bias, `u = P^T 1`, `v = P^T y` and `b = w.v / w.u`,
    `(v_i - b u_i) / (P_ii - u_i (P w)_i / w.u)` (Cawley & Talbot 2004, with weights). A point's own weight has no effect on
    its own residual, so points of weight zero give held-out errors. Differentiable like the fit. NaN if the solve
    fails, or where no other point has a weight and there is a bias; and a warning if it took jitter, or where K + ridge is so
    nearly singular that fewer than four digits (two in float32) are left, which it counts.

    Raises ValueError as `kernel_ridge` does, and for a bias with fewer than two points.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    y, weights = as_targets(y, n, dtype), as_weights(weights, n, dtype)
    if bias and n < 2:
        raise ValueError("leave_one_out with a bias needs at least two points, but X holds one")
    check_memory(X, verb="leave_one_out")
    ridge = as_scalar(ridge, dtype, "ridge", NONNEGATIVE)
    solution = _leave_one_out(kernel, X, y, ridge, weights, bool(bias))
    hint = "leave_one_out: a larger ridge makes the residuals exact."
    warn_of_rounding(solution, float(jnp.finfo(dtype).eps) ** (1 / 4), "the residuals", hint)
    return finish(solution, throw=False, hint=hint).value


@compiled
def _leave_one_out(kernel, X, y, ridge, weights, bias):
    n, columns, operator = len(y), y.reshape(len(y), -1), gram_operator(kernel, X)
    unit = unit_of(columns)  # what is linear in y has its units, and P may have far larger ones, or smaller
    targets = times_power_of_two(columns, -unit)
    factor, result, stats = factor_of(operator, weights, ridge)
    P = weighted_inverse(operator, weights, ridge, factor)
    v, leverage = product(P.T, targets), jnp.diagonal(P)[:, None]
    if bias:
        w = jnp.ones((n, 1), y.dtype) if weights is None else weights[:, None]
        u = jnp.sum(P, 0)[:, None]
        total = jnp.sum(w * u)
        v = v - u * (jnp.sum(w * v, 0, keepdims=True) / total)
        others = jnp.sum(w) - w > 0  # without them there is nothing to take a bias from
        leverage = jnp.where(others, leverage - u * (product(P, w) / total), 1)  # P^2 may leave the range of floats
        v = jnp.where(others, v, jnp.nan)
    residuals = times_power_of_two(v / leverage, unit)
    return Solution(residuals.reshape(y.shape), result, stats)
