"""Kernel ridge regression for many ridges, with one factorisation of K."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.derivatives import custom_jvp, split_by_tangent
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import stop_gradient
from kernax.core.base.solution import RESULTS, Solution, finish, first_that_holds, void_unless_known
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem, nan_where_unknown
from kernax.core.linalg.cholesky import rounding_of_entries
from kernax.core.linalg.factorisation import WeightedSystem, direct_accuracy
from kernax.core.linalg.weighted_solve import without_border
from kernax.core.operators.memory import Footprint
from kernax.core.operators.operators import is_finite
from kernax.supervised.ridge.ridge import (
    Influence,
    leave_one_out_of_problem,
    residual_of_fit,
    targets_in_unit,
    value_with_warning,
)
from kernax.supervised.ridge.tridiagonal import RidgeSystems, solutions_of_weighted

_PATH = Footprint("ridge_path", 3.6)
_LEAVE_ONE_OUT = Footprint("leave_one_out_path", 5.0)


def ridge_path(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridges: ArrayLike | Sequence[int | float],
    *,
    weights: ArrayLike | None = None,
    bias: bool = False,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Kernel ridge regression for each of several ridges, with one factorisation of K.

    With `S K S = Q T Q^T`, S = sqrt(W) and T tridiagonal, each ridge is a system with `T + ridge I`
    (Elden 1977): for n = 400 points a path takes about as long as three calls of `kernel_ridge`.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: a batch of n points.
        y: targets (n,) or (n, outputs).
        ridges: (r,), > 0, in any order. For a ridge of zero use `kernel_ridge`.
        weights: (n,) >= 0, as in `kernel_ridge`.
        bias: an unpenalised constant for each ridge.
        throw: raise where any ridge fails; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is one `KernelExpansion` with the ridges as its last output:
        coefficients (n, r) or (n, outputs, r), and `values(X_new)` (m, r) or (m, outputs, r) by one
        product. It is differentiable in the kernel, X, y, ridges and weights, to any order.
        `result` and the stats have one entry for each ridge: the true relative `residual`, and the
        `jitter`, which a ridge needs where K is singular to working precision, with a warning. The
        solution for a ridge that fails is NaN and does not affect the others.

    Raises:
        ValueError: bad shapes or values.
        NotPSDError, NonFiniteError, BreakdownError: a solve failed.
        MemoryBudgetError: K, which is always dense here, would not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> path = kernax.selection.ridge_path(kernax.RBF(0.3), X, y, jnp.array([0.01, 0.1, 1.0]))
        >>> path.value.values(X).shape  # a column for each ridge
        (5, 3)
        >>> jnp.round(path.value.norm, 2)
        Array([2.21, 1.64, 0.63], dtype=float64)
    """
    problem = check_problem("ridge_path", kernel, X, y, weights, throw=throw, footprint=_PATH)
    ridges = problem.numbers(ridges, "ridges", POSITIVE, throw=throw)
    hint = f"ridge_path with {problem.kernel_name}: larger ridges or rescaled inputs may help."
    return finish(_ridge_path(problem, ridges, bool(bias)), throw, hint, suspect=problem.suspect)


@compiled
def _ridge_path(problem, ridges, bias):
    """The expansion whose last output is the ridge."""
    systems = RidgeSystems(problem.gram(), problem.weights, ridges)
    # The coefficients and the bias for each column and ridge.
    if not bias:
        a, factors = solutions_of_weighted(systems, problem.columns)
        b = jnp.zeros_like(a[0])
    else:
        # T_j^-1 W y, and from a column of ones T_j^-1 w, which determines b_j such that sum a = 0.
        with_constant = jnp.append(problem.columns, jnp.ones_like(problem.columns[:, :1]), 1)
        solved, factors = solutions_of_weighted(systems, with_constant)
        a, b = jax.vmap(without_border, -1, -1)(solved[:, :-1], solved[:, -1])
    # The relative residual of T_j a_j = W (y - b_j), T_j = W K + ridge_j I, computed with K itself.
    fixed, fixed_a, fixed_b, columns = stop_gradient(
        (systems.with_jitter(factors.jitter), a, b, problem.columns)
    )
    rhs = fixed.weights.times(columns)

    def residual_of(ridge, a, b):
        system = WeightedSystem.of(fixed.gram, fixed.weights, ridge)
        return residual_of_fit(system, a, b, rhs, bias)

    residuals = jax.vmap(residual_of, (0, -1, -1))(fixed.ridges, fixed_a, fixed_b)
    # The status of each ridge.
    finite = jnp.all(jnp.isfinite(a), (0, 1)) & jnp.all(jnp.isfinite(b), 0)
    accurate = residuals <= direct_accuracy(a.dtype)
    given = jnp.isfinite(systems.ridges) & is_finite(systems.gram)
    # Weights that are negative or all zero are NaN while tracing.
    given = given & jnp.all(problem.weights.values >= 0)
    result = jax.vmap(_result)(given, factors.exists, finite, accurate)
    a, b = jax.vmap(void_unless_known, (-1, 0), -1)((a, b), result)
    shape = (*problem.y.shape, len(ridges))
    value = KernelExpansion(problem.kernel, problem.X, a.reshape(shape), b.reshape(shape[1:]))
    return Solution(value, result, {"residual": residuals, "jitter": factors.jitter})


def _result(given: Array, exists: Array, finite: Array, accurate: Array) -> Any:
    """The status of one ridge."""
    statuses = (
        (~given, RESULTS.nonfinite),
        (~exists, RESULTS.not_psd),
        (~finite, RESULTS.nonfinite),
        (~accurate, RESULTS.inaccurate),
    )
    return first_that_holds(statuses, RESULTS.successful)


def leave_one_out_path(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridges: ArrayLike | Sequence[int | float],
    *,
    weights: ArrayLike | None = None,
    bias: bool = False,
) -> Float[Array, "n *outputs r"]:
    """`leave_one_out` for each of several ridges, with one factorisation of K.

    The residuals have shape (n, r), or (n, outputs, r). Arguments are those of `ridge_path`. The
    residuals are differentiable like those of `leave_one_out`, at the same cost: a derivative takes
    one inverse for each ridge. NaN and warnings are as there; the warning about rounding concerns
    the smallest ridge.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> ridges = jnp.array([0.01, 0.1, 1.0])
        >>> residuals = kernax.selection.leave_one_out_path(kernax.RBF(0.3), X, y, ridges)
        >>> jnp.round(jnp.mean(residuals**2, axis=0), 2)
        Array([0.2 , 0.33, 0.4 ], dtype=float64)
    """
    problem = check_problem("leave_one_out_path", kernel, X, y, weights, footprint=_LEAVE_ONE_OUT)
    if bias and problem.n < 2:
        raise ValueError(
            "leave_one_out_path with a bias needs at least two points, but X holds one"
        )
    ridges = problem.numbers(ridges, "ridges", POSITIVE)
    solution = _leave_one_out_path(problem, ridges, bool(bias))
    residuals = value_with_warning(solution, "leave_one_out_path")
    return nan_where_unknown(residuals, y, problem)


@compiled
def _leave_one_out_path(problem, ridges, bias):
    """The residuals of each ridge, with the result and stats of the factorisation."""
    residuals, factors = _left_out(problem, ridges, bias=bias)
    systems = stop_gradient(RidgeSystems(problem.gram(), problem.weights, ridges))
    given = jnp.isfinite(ridges) & is_finite(systems.gram)
    fine = jnp.ones_like(given)
    result = jax.vmap(_result)(given, factors.exists, fine, fine)
    # How far rounding moves the inverse of the smallest ridge, relatively.
    which = jnp.argmin(systems.ridges)
    shift = systems.ridges[which] + factors.jitter[which]
    # The diagonal of S K S + (ridge + jitter) I.
    diagonal = systems.weights.times(systems.gram.diagonal()) + shift
    rounding = rounding_of_entries(lambda B: factors.solve_one(which, B), diagonal)
    stats = {"jitter": factors.jitter, "rounding": rounding}
    value = residuals.reshape(*problem.y.shape, len(ridges))
    return Solution(value, result, stats)


@custom_jvp
def _left_out(problem, ridges, *, bias):
    systems = RidgeSystems(problem.gram(), problem.weights, ridges)
    factors = systems.factors()
    systems = systems.with_jitter(factors.jitter)
    columns, unit = targets_in_unit(problem, 0)
    # v = P_j^T y and u = P_j^T 1 of `Influence`, P_j = (W K + ridge_j I)^-1.
    of_targets = systems.solve_transposed(factors, _for_each(columns, ridges))
    of_constant = None
    if bias:
        one = jnp.ones_like(problem.weights.values)[:, None]
        of_constant = systems.solve_transposed(factors, _for_each(one, ridges))[:, 0]
    # P_j = S (S K S + ridge_j I)^-1 S^-1, S = sqrt(W), has the diagonal of its middle factor.
    diagonals = jnp.where(factors.exists[None, :], factors.inverse_diagonal(), jnp.nan)

    def of_ridge(ridge, of_targets, of_constant, diagonal):
        shift = jnp.full_like(diagonal, ridge)
        weights = problem.weights.values
        return Influence(of_targets, of_constant, diagonal, weights, shift).left_out()

    each = (systems.ridges, of_targets, of_constant, diagonals)
    residuals = jax.vmap(of_ridge, (0, -1, -1, -1), -1)(*each)
    larger = problem.columns - columns * unit
    return residuals * unit[:, :, None] + larger[:, :, None], factors


def _for_each(columns: Float[Array, "n p"], ridges: Float[Array, " r"]) -> Float[Array, "n p r"]:
    return jnp.broadcast_to(columns[:, :, None], (*columns.shape, len(ridges)))


@_left_out.def_jvp
def _left_out_jvp(primals, tangents, *, bias):
    # The derivative of the diagonal of an inverse needs the whole inverse, where the common
    # factorisation saves nothing.
    outputs = _left_out(*primals, bias=bias)
    moving, known = split_by_tangent(primals, tangents)

    def ridge_by_ridge(moving):
        problem, ridges = eqx.combine(moving, known)
        of_ridge = lambda ridge: leave_one_out_of_problem(problem, ridge, bias).value
        residuals = jax.vmap(of_ridge, out_axes=-1)(ridges)
        return residuals.reshape(outputs[0].shape)

    _, tangent = eqx.filter_jvp(ridge_by_ridge, (moving,), (tangents,))
    return outputs, (tangent, jax.tree.map(lambda _: None, outputs[1]))
