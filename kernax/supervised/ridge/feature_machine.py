"""Recursive feature machines: kernel ridge regression in a metric learned from its own fit."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack, as_weights, cast, count, dtype_of
from kernax.core.base.compiled import compiled, compiled_call
from kernax.core.base.intervals import NONNEGATIVE
from kernax.core.base.numerics import matmul, positive_or_one, stop_gradient, tree_where
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import typed
from kernax.core.base.solution import RESULTS, Solution, finish
from kernax.core.kernel.kernel import AbstractKernel, with_slopes_by_products
from kernax.core.kernel.mahalanobis import Mahalanobis
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem
from kernax.core.linalg.linear_solvers import JitteredCholesky
from kernax.core.linalg.solves import square_root
from kernax.core.operators.memory import Footprint
from kernax.supervised.ridge.ridge import influence_on, ridge_of_problem, targets_in_unit

_FOOTPRINT = Footprint("recursive_feature_machine", 6.2)


def recursive_feature_machine(
    kernel: AbstractKernel,
    X: ArrayLike,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    max_rounds: int = 6,
    rtol: ArrayLike = 0.01,
    weights: ArrayLike | None = None,
    bias: bool = False,
    diagonal: bool = False,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Kernel ridge regression in a metric that is learned from the gradients of its own fit.

    Each round fits f by `kernel_ridge` with the kernel `k(A x, A z)` of the metric `M = A^T A`.
    The next metric is the average outer product of the gradients of f, summed over its outputs,

    `M = sum_i w_i grad f(x_i) grad f(x_i)^T / sum_i w_i`

    (Radhakrishnan, Beaglehole, Pandit & Belkin 2024, Science 383, algorithm 1). Directions along
    which the fit changes are stretched, the others shrink. The first metric is the identity. Each
    metric is scaled so that the mean squared distance between points remains what it is in X, and
    the lengthscale of k keeps its meaning. The fit with the least mean squared leave-one-out
    residual is returned. As the metric has seen every point, these residuals are optimistic:
    compare with other models on held-out rows.

    Standardise the columns first. `Matern12` is the Laplace kernel of the paper. For classes pass
    one-hot targets (`kernax.one_hot(labels)[0]`), and predict the class of the largest output.

    Arguments:
        kernel: a kernel of vectors; its parameters are cast to the dtype of X.
        X: n points (n, d).
        y: targets (n,) or (n, outputs).
        ridge: >= 0, in units of k, as in `kernel_ridge`.
        max_rounds: the largest number of fits, the first of which is `kernel_ridge` itself.
        rtol: the rounds end where the mean squared leave-one-out residual falls by less than this
            fraction of itself. Zero runs until it rises.
        weights: (n,) >= 0. Zero is the point removed, and in every fit two is the point repeated;
            leave-one-out leaves out a point with all of its weight.
        bias: an unpenalised constant.
        diagonal: learn a diagonal metric, that is one scale for each column.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion` in a `Mahalanobis` kernel:
        `solution.value.kernel.metric` is M (d, d). It is differentiable in the kernel, X, y, ridge
        and weights, with the choice of the round held fixed. Stats: `residual` and `jitter` of the
        returned fit, as in `kernel_ridge`; `leave_one_out`, the mean squared leave-one-out residual
        of each round, summed over outputs, shape (max_rounds,), NaN for rounds that were not
        needed; and `round`, the index of the best.

    Raises:
        ValueError: bad shapes or values, points that are not vectors, fewer than one round.
        NotPSDError, NonFiniteError, BreakdownError: the solve failed.
        MemoryBudgetError: the dense matrices would not fit.

    Examples:
        >>> X = jax.random.normal(jax.random.key(0), (40, 3))
        >>> y = jnp.sin(2.0 * X[:, 0])  # depends on the first column alone
        >>> solution = kernax.recursive_feature_machine(kernax.Matern12(2.0), X, y, ridge=0.01)
        >>> M = solution.value.kernel.metric
        >>> bool(M[0, 0] > 20 * M[1, 1])
        True
    """
    n_rounds = check_count(max_rounds, "max_rounds")
    problem = check_problem(
        "recursive_feature_machine",
        kernel,
        X,
        y,
        weights,
        throw=throw,
        footprint=_FOOTPRINT,
    )
    _check_vectors(problem.X)
    ridge = problem.scalar(ridge, "ridge", NONNEGATIVE, throw=throw)
    rtol = problem.scalar(rtol, "rtol", NONNEGATIVE, throw=throw)
    solution = _recursive_feature_machine(
        problem, ridge, rtol, bool(bias), n_rounds, bool(diagonal)
    )
    hint = (
        f"recursive_feature_machine with {problem.kernel_name}: a larger ridge or rescaled inputs "
        "may help."
    )
    return finish(solution, throw, hint, suspect=problem.suspect)


def _check_vectors(X: Any) -> None:
    """Raises ValueError unless points are vectors."""
    if not eqx.is_array(X):
        raise ValueError(f"X must be an array of shape (n, d), but is a {type(X).__name__}")
    if X.ndim == 1:
        raise ValueError(f"X has shape {X.shape}, but must have shape (n, 1); pass X[:, None]")
    if X.ndim != 2:
        raise ValueError(f"X must have shape (n, d), but has shape {X.shape}")


@compiled
def _recursive_feature_machine(problem, ridge, rtol, bias, n_rounds, diagonal):
    """The fit of the round that has the least leave-one-out error."""
    weights = problem.weights.values
    shares = weights / jnp.sum(weights)
    centred = problem.X - matmul(shares, problem.X)[None, :]
    # Translations do not change a stationary kernel, and products with A keep more digits of points
    # about their mean.
    X = centred if problem.kernel.is_stationary else problem.X

    targets, unit = targets_in_unit(problem)

    def transformed(factor):
        """The problem of the base kernel at `A x`."""
        return dataclasses.replace(problem, X=matmul(X, factor.T))

    def learned(factor, coefficients):
        """The factor of the next metric."""
        Z = matmul(X, factor.T)
        no_bias = jnp.zeros_like(coefficients[0])
        # A common factor of all gradients has no effect.
        largest = positive_or_one(jnp.max(abs(stop_gradient(coefficients))))
        f = KernelExpansion(problem.kernel, Z, coefficients / largest, no_bias)
        # grad f(x) = A^T grad_z f(z) at z = A x.
        M = matmul(factor.T, matmul(_outer_products(f, Z, shares), factor))
        if diagonal:
            M = jnp.diag(jnp.diag(M))
        # c M with sum_i w_i x_i^T c M x_i = sum_i w_i |x_i|^2, for points x_i about their mean.
        wanted = jnp.sum(shares[:, None] * centred**2)
        present = jnp.sum(shares[:, None] * centred * matmul(centred, M))
        is_known = (present > 0) & jnp.isfinite(present)
        scaled = M * (wanted / jnp.where(is_known, present, 1))
        # A = (c M)^1/2, symmetric; the one before where a constant fit has no gradients.
        root = square_root(tree_where(is_known, scaled, jnp.eye(len(M), dtype=M.dtype)))
        return jnp.where(is_known, root, factor)

    def fit(factor):
        """The mean squared leave-one-out residual, and the coefficients `W v` of the fit."""
        # A round that fails is not the best one, and must not make derivatives NaN.
        influence, result, _ = influence_on(
            targets, transformed(factor), ridge, bias, constant_if_failed=True
        )
        left_out = jnp.where(weights[:, None] > 0, influence.left_out(), 0)
        # sum_i w_i |y_i - f_i(x_i)|^2 / sum_i w_i.
        error = jnp.sum(shares[:, None] * left_out**2)
        # a = W v with v = P^T (y - b): W (K W + ridge)^-1 = (W K + ridge)^-1 W.
        v, _ = influence.without_bias()
        is_known = result == RESULTS.successful
        return error, jnp.where(is_known, weights[:, None] * v, 0)

    def of_round(state, is_last):
        error, coefficients = fit(state.factor)
        falls = error < (1 - rtol) * state.error
        following = lax.cond(
            falls & ~is_last, learned, lambda factor, _: factor, state.factor, coefficients
        )
        return _MetricRound(following, error, ~falls), error

    def unless_ended(state, is_last):
        skipped = lambda state, _: (state, jnp.full_like(state.error, jnp.nan))
        following, error = lax.cond(state.has_ended, skipped, of_round, state, is_last)
        return following, (state.factor, error)

    identity = jnp.eye(X.shape[1], dtype=X.dtype)
    first = _MetricRound(identity, jnp.full((), jnp.inf, X.dtype), jnp.array(False))
    is_last = jnp.arange(n_rounds) == n_rounds - 1
    _, (factors, errors) = lax.scan(unless_ended, first, is_last)
    best = jnp.argmin(jnp.where(jnp.isnan(errors), jnp.inf, errors))
    factor = factors[best]
    solution = ridge_of_problem(transformed(factor), ridge, bias, JitteredCholesky(), None)
    f = solution.value
    value = KernelExpansion(Mahalanobis(problem.kernel, factor), problem.X, f.coefficients, f.bias)
    errors = errors * unit * unit
    stats = solution.stats | {"leave_one_out": errors, "round": best}
    return Solution(value, solution.result, stats)


class _MetricRound(eqx.Module):
    """The state at the start of a round.

    Attributes:
        factor: A of the metric `A^T A`.
        error: the mean squared leave-one-out residual of the previous round.
        has_ended: whether the error of the previous round fell by less than `rtol`.
    """

    factor: Float[Array, "d d"]
    error: Float[Array, ""]
    has_ended: Bool[Array, ""]


def average_gradient_outer_product(
    f: Callable[[Array], Array], X: ArrayLike, *, weights: ArrayLike | None = None
) -> Float[Array, "d d"]:
    """`sum_i w_i grad f(x_i) grad f(x_i)^T / sum_i w_i`, summed over the outputs of f.

    Its eigenvectors of large eigenvalues are the directions along which f changes, and its diagonal
    says how much f depends on each column.

    Arguments:
        f: a function of one point (d,) with outputs () or (outputs,), such as the value of a
            solution of `kernel_ridge` or `falkon`, or a network.
        X: n points (n, d) at which the gradients are taken.
        weights: (n,) >= 0, ones by default.

    Raises ValueError for an f that is not a function, points that are not vectors, and bad weights.

    Examples:
        >>> X = jnp.array([[1.0, 0.0], [2.0, 5.0]])
        >>> kernax.average_gradient_outer_product(lambda x: x[0] ** 2, X)  # (2^2 + 4^2) / 2
        Array([[10.,  0.],
               [ 0.,  0.]], dtype=float64)
    """
    if not callable(f):
        raise ValueError(
            f"f must be a function of a point, such as solution.value, but is {typed(f)}"
        )
    points = as_stack(X, "X")
    _check_vectors(points)
    points = cast(points, dtype_of(points))
    checked = as_weights(weights, count(points), points.dtype).values
    # A plain function may read what changes between two calls, and is not compiled.
    shares = checked / jnp.sum(checked)
    if isinstance(f, eqx.Module):
        return compiled_call(_outer_products, f, points, shares)
    return _outer_products(f, points, shares)


def _outer_products(
    f: Callable[[Array], Array], X: Float[Array, "n d"], shares: Float[Array, " n"]
) -> Float[Array, "d d"]:
    """`sum_io w_i grad f_o(x_i) grad f_o(x_i)^T`."""
    values = jax.vmap(f)
    if isinstance(f, KernelExpansion):
        # With S_ij = d k(x_i, z_j) / d s and coefficients a, the gradients of f in units of the
        # lengthscale are 2 (diag(S a) X - S diag(a) Z).
        kernel = with_slopes_by_products(f.kernel) if X.shape[1] > 1 else f.kernel
        values = KernelExpansion(kernel, f.points, f.coefficients, f.bias).values
    outputs, pullback = jax.vjp(lambda X: values(X).reshape(len(X), -1), X)

    # Row i of the outputs depends on x_i alone: a column of ones gives the gradients at all points.
    def gradients(chosen: Float[Array, " outputs"]) -> Float[Array, "n d"]:
        (slopes,) = pullback(jnp.broadcast_to(chosen[None, :], outputs.shape))
        return slopes

    # One output after the other, because each takes a matrix for all pairs of points.
    G = lax.map(gradients, jnp.eye(outputs.shape[1], dtype=outputs.dtype))
    return jnp.einsum("i,oij,oik->jk", shares, G, G, precision=lax.Precision.HIGHEST)
