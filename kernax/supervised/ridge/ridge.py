"""Kernel ridge regression, and estimates of its errors at new points."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Float, PyTree

from kernax._advice import COMPARED, IN_FEATURES, over_centres
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled, compiled_call
from kernax.core.base.intervals import NONNEGATIVE, POSITIVE
from kernax.core.base.numerics import eps_of, positive_or_one, stop_gradient, tree_where
from kernax.core.base.parameters import with_arrays
from kernax.core.base.powers import own_unit
from kernax.core.base.solution import (
    RESULTS,
    Digits,
    Solution,
    finish,
    first_that_holds,
    void_unless_known,
)
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import (
    LearnerProblem,
    check_problem,
    nan_where_unknown,
    solver_that_ran,
)
from kernax.core.linalg.density import factor_of
from kernax.core.linalg.factorisation import WeightedSystem
from kernax.core.linalg.linear_solvers import (
    AUTO,
    Auto,
    JitteredCholesky,
    accurate_residual,
    advice_on,
    check_is_solver,
    needs_whole_matrix,
)
from kernax.core.linalg.weighted_solve import weighted_solve, without_border
from kernax.core.operators.memory import Footprint

_RIDGE = Footprint(
    "kernel_ridge",
    3.6,
    'block_size=... (a number of rows, or "auto") for a matrix-free solve, or ' + over_centres(),
    closing=COMPARED,
)
_LEAVE_ONE_OUT = Footprint("leave_one_out", 4.5, IN_FEATURES)
_CROSS_VALIDATION = Footprint("generalised_cross_validation", 4.5, IN_FEATURES)


def kernel_ridge(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = False,
    solver: lx.AbstractLinearSolver | None = AUTO,
    options: dict[str, Any] | None = None,
    block_size: int | str | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Kernel ridge regression: minimises `1/2 sum_i w_i (y_i - f(x_i))^2 + ridge/2 |f|^2` over the
    functions f of a kernel.

    The minimiser is `f(x) = sum_i a_i k(x, x_i) + b` with `(W K + ridge I) a = W (y - b)` and
    `W = diag(weights)` (Saunders, Gammerman & Vovk 1998; Schoelkopf & Smola 2002, section 4.3).
    The bias b is zero, or unpenalised with `bias=True`, which implies `sum_i a_i = 0`.
    scikit-learn's `alpha` and a Gaussian process's noise variance are this `ridge`; a penalty
    `ridge' |f|^2` on the *mean* square is `ridge = n ridge'`.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: a batch of n points.
        y: targets (n,) or (n, outputs).
        ridge: >= 0, in units of k. Zero gives the interpolant; where K is singular it is computed
            with jitter, which is reported in the stats and in a warning.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed, both exactly and with
            the right derivative. A common factor of weights and ridge has no effect from 1e-290 to
            1e290 (in float32 from 1e-30 to 1e30); beyond, digits are lost.
        solver: one of `kernax.solvers`, or any lineax solver for positive semidefinite operators.
            The default, `Auto()`, uses `JitteredCholesky()`, or `ConjugateGradient()` if
            `block_size` is given. Where conjugate gradients take hundreds of steps,
            `SketchAndProject(key)` may take tens of sweeps. For a kernel with fewer explicit
            features than points, such as a `FeatureMap`, the default solves a system in the
            features, without K.
        options: the dictionary of options of a lineax solver, such as a preconditioner.
        block_size: rows of K that a matrix-free solver computes at a time, or "auto", as in
            `gram_operator`. Memory is O(block_size n), in the backward pass as well.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`, differentiable in the kernel, X, y, ridge
        and weights, to any order. Stats: the true relative `residual`; `jitter`, `steps`, or the
        number of `features` if the system was solved in explicit features; and `solver`, which says
        which solver ran, and why.

    Raises:
        ValueError: bad shapes or values, or a Cholesky solver together with `block_size`.
        NotPSDError, NonFiniteError, MaxStepsError, BreakdownError: the solve failed.
        MemoryBudgetError: the dense matrix would not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> solution = kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.01)
        >>> f = solution.value
        >>> round(float(f(jnp.array([0.4]))), 2)
        0.69
        >>> f.values(X).shape
        (5,)
        >>> def norm(ridge):
        ...     return kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge).value.norm
        ...
        >>> round(float(jax.grad(norm)(0.01)), 1)
        -9.1
    """
    named = None if isinstance(solver, Auto) else solver
    if named is not None:
        check_is_solver(named)
    problem = check_problem(
        "kernel_ridge",
        kernel,
        X,
        y,
        weights,
        block_size=block_size,
        in_features=named is None,
        diagonal=ridge,
        throw=throw,
        footprint=_RIDGE,
    )
    ridge = problem.scalar(ridge, "ridge", NONNEGATIVE, throw=throw)
    in_blocks = problem.layout.block_size is not None
    if named is not None and in_blocks and needs_whole_matrix(named):
        raise ValueError(
            f"{type(named).__name__} needs the whole matrix: leave out block_size, or use "
            "solver=kernax.solvers.ConjugateGradient()"
        )
    if named is not None:
        solver = with_arrays(named)
    elif in_blocks:
        # Here, because dense fits do not need it.
        from kernax.core.linalg.conjugate_gradient import ConjugateGradient

        solver = with_arrays(ConjugateGradient())
    else:
        solver = JitteredCholesky()
    solution = ridge_of_problem(problem, ridge, bool(bias), solver, options)
    ran = solver_that_ran(problem, solver, named)
    solution = Solution(solution.value, solution.result, solution.stats | {"solver": ran})
    advice = lambda: (
        f"kernel_ridge with {problem.kernel_name}: a larger ridge or rescaled inputs may help."
        f"{advice_on(solver)}"
    )
    return finish(solution, throw, advice, suspect=problem.suspect)


@compiled
def ridge_of_problem(problem, ridge, bias, solver, options):
    """The expansion that minimises the penalised least squares."""
    # (W K + ridge I) a = W (y - b), and with a bias sum a = 0.
    system = WeightedSystem.of(problem.gram(), problem.weights, ridge)
    rhs = problem.weights.times(problem.columns)
    if bias:
        # A and b of `T A + w b = W y`, `sum A = 0`, the status, and stats; rhs is `W y`.
        # A = T^-1 W y - T^-1 w b, where T = W K + ridge I, and sum A = 0 gives
        # b = sum T^-1 W y / sum T^-1 w: one solve for both right sides.
        border = system.weights.values[:, None]
        columns = jnp.append(rhs, border, 1)
        solved, result, stats = weighted_solve(system, columns, solver, options=options)
        a, b = without_border(solved[:, :-1], solved[:, -1])
        solved_system = system.shifted_by(stats.get("jitter", 0))
        residual = residual_of_fit(*stop_gradient((solved_system, a, b, rhs)), bias=True)
        # The residuals of both columns add up in the difference.
        most = 2 * accurate_residual(solver, a.dtype)
        # The result of a solve after the bias was eliminated; a success if the residual is small.
        statuses = (
            (result != RESULTS.successful, result),
            (~jnp.all(jnp.isfinite(b)), RESULTS.nonfinite),
            (~(residual <= most), RESULTS.inaccurate),
        )
        result = first_that_holds(statuses, RESULTS.successful)
        stats = stats | {"residual": residual}
    else:
        a, result, stats = weighted_solve(system, rhs, solver, options=options)
        b = jnp.zeros_like(rhs[0])
    a, b = void_unless_known((a, b), result)
    shape = problem.y.shape
    f = KernelExpansion(problem.kernel, problem.X, a.reshape(shape), b.reshape(shape[1:]))
    return Solution(f, result, stats)


def residual_of_fit(
    system: WeightedSystem,
    a: Float[Array, "n p"],
    b: Float[Array, " p"],
    rhs: Float[Array, "n p"],
    bias: bool,
) -> Float[Array, ""]:
    """The relative residual of `T a = W (y - b)`, and with a bias of `sum W (y - b - K a) = 0`.

    The difference of two accurate solutions, which eliminates the bias, may itself be inaccurate.
    """
    # In units of the columns of W y, which are those of the residuals, too.
    unit = own_unit(rhs, 0)
    rhs = rhs / unit
    a = a / unit
    b = b[None, :] / unit
    # off = W y - w b - (W K + ridge I) a.
    off, size = system.residual_and_size(a, rhs, system.weights.values[:, None] * b)
    of_points = jnp.linalg.norm(off, axis=0) / size
    if not bias:
        return jnp.max(of_points)
    # The derivative of the squares in b, relatively: `|sum W (y - b - K a)| / sum |W y|`.
    # off + ridge a = W (y - b - K a).
    slope = jnp.sum(off + system.shift[:, None] * a, 0)
    relative_slope = abs(slope) / positive_or_one(jnp.sum(abs(rhs), 0))
    return jnp.max(jnp.maximum(of_points, relative_slope))


def leave_one_out(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = False,
) -> Float[Array, "n *outputs"]:
    """Leave-one-out residuals `y_i - f_i(x_i)` of kernel ridge regression, where f_i is fitted
    without point i.

    They have the shape of y and come from one factorisation, without refits. With `P = (W K + ridge
    I)^-1` they are `(P^T y)_i / P_ii`; with a bias, `u = P^T 1`, `v = P^T y` and `b = w.v / w.u`,
    they are `(v_i - b u_i) / (P_ii - u_i (P w)_i / w.u)` (Cawley & Talbot 2004, with weights). A
    point's own weight has no effect on its own residual, so points of weight zero give held-out
    errors; where their targets are NaN, so are these, and no others. The residuals are
    differentiable like the fit.

    They are NaN if the solve fails, or where there is a bias and no other point has a weight. A
    warning is issued if the solve needed jitter, or if K + ridge is so nearly singular that fewer
    than four digits (two in float32) are right; it says how many.

    Raises ValueError as `kernel_ridge` does, and for a bias with fewer than two points.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> residuals = kernax.leave_one_out(kernax.RBF(0.3), X, y, ridge=0.01)
        >>> jnp.round(residuals, 2)
        Array([-0.64,  0.37,  0.04, -0.4 ,  0.54], dtype=float64)
    """
    problem = check_problem(
        "leave_one_out",
        kernel,
        X,
        y,
        weights,
        in_features=True,
        diagonal=ridge,
        footprint=_LEAVE_ONE_OUT,
    )
    if bias and problem.n < 2:
        raise ValueError("leave_one_out with a bias needs at least two points, but X holds one")
    ridge = problem.scalar(ridge, "ridge", NONNEGATIVE)
    solution = compiled_call(leave_one_out_of_problem, problem, ridge, bool(bias))
    residuals = value_with_warning(solution, "leave_one_out")
    return nan_where_unknown(residuals, y, problem)


def value_with_warning(solution: Solution[Array], function_name: str) -> Array:
    """The value, with a warning where rounding leaves few digits of it."""
    hint = f"{function_name}: a larger ridge makes the residuals exact."
    digits = Digits("the residuals", eps_of(solution.value) ** (1 / 4))
    return finish(solution, throw=False, hint=hint, digits=digits).value


def leave_one_out_of_problem(problem: LearnerProblem, ridge: Array, bias: bool) -> Solution[Array]:
    """`leave_one_out` of checked arguments, with the result and stats of the factorisation."""
    # P may be very large or small: products with it are computed in units of y, to stay in range.
    y, unit = targets_in_unit(problem, 0)
    parts, result, stats = influence_on(y, problem, ridge, bias)
    # The residual of a removed point is that of its own target, which may be larger than in y.
    residuals = parts.left_out() * unit + (problem.columns - y * unit)
    return Solution(residuals.reshape(problem.y.shape), result, stats)


def influence_on(
    columns: Float[Array, "n p"],
    problem: LearnerProblem,
    ridge: Array,
    bias: bool,
    *,
    constant_if_failed: bool = False,
) -> tuple["Influence", Any, dict[str, Array]]:
    """The parts of the leave-one-out residuals of columns of targets, in a unit near their largest,
    with the result and stats of the factorisation.

    They are NaN if it fails, and so are their derivatives, unless `constant_if_failed`.
    """
    system = WeightedSystem.of(problem.gram(), problem.weights, ridge)
    factor, result, stats = factor_of(system, for_inverse=True)
    if constant_if_failed:
        # A choice of equal numbers, which drops cotangents: zero times NaN is NaN.
        moving, rest = eqx.partition((system, columns), eqx.is_inexact_array)
        chosen = tree_where(result == RESULTS.successful, moving, stop_gradient(moving))
        system, columns = eqx.combine(chosen, rest)
    # v = P^T y and u = P^T 1, P = (W K + ridge I)^-1.
    if bias:
        columns = jnp.append(columns, jnp.ones_like(columns[:, :1]), 1)
    products, diagonal = factor.products_and_diagonal(system, columns)
    of_targets = products[:, :-1] if bias else products
    of_constant = products[:, -1] if bias else None
    weights = problem.weights.values
    shift = system.with_jitter(factor).shift
    return Influence(of_targets, of_constant, diagonal, weights, shift), result, stats


def targets_in_unit(
    problem: LearnerProblem, axis: int | None = None
) -> tuple[Float[Array, "n p"], Array]:
    """`y / unit` and the unit, that of the largest target of a point that has a weight, or for axis
    0 of each column, because squares of targets may leave the range of floats.

    Targets of removed points may have any size. Here they are at most the cube root of the largest
    float, so that their squares are finite.
    """
    kept = problem.weights.values[:, None] > 0
    unit = own_unit(jnp.where(kept, problem.columns, 0), axis)
    y = problem.columns / unit
    most = jnp.finfo(y.dtype).max ** (1 / 3)
    return jnp.where(kept, y, jnp.clip(y, -most, most)), unit


class Influence(eqx.Module):
    """How targets act on the residuals `r P^T y` of a fit; `P = (W K + r I)^-1`.

    Attributes:
        of_targets: `P^T y`.
        of_constant: `P^T 1`, if there is a bias.
        diagonal: `P_ii`.
        weights: w.
        shift: r.
    """

    of_targets: Float[Array, "n p"]
    of_constant: Float[Array, " n"] | None
    diagonal: Float[Array, " n"]
    weights: Float[Array, " n"]
    shift: Float[Array, " n"]

    def without_bias(self) -> tuple[Float[Array, "n p"], Float[Array, " n"]]:
        """`v - b u`, and `P_ii - u_i (P w)_i / w.u`, where `v = P^T y`, `u = P^T 1`, `P w = W u`;
        `v` and `P_ii` where there is no bias.
        """
        u = self.of_constant
        if u is None:
            return self.of_targets, self.diagonal
        # v - b u with w.(v - b u) = 0, that is b = w.v / w.u.
        unbiased, _ = without_border(self.of_targets, u, along=self.weights)
        # P^2 may leave the range of floats: the quotient comes first.
        weighted = self.weights * u
        return unbiased, self.diagonal - u * (weighted / jnp.sum(weighted))

    def left_out(self) -> Float[Array, "n p"]:
        """The leave-one-out residuals; NaN where a bias has no other point that has a weight."""
        # y_i - f_i(x_i) = v_i / P_ii, and with a bias (v_i - b u_i) / (P_ii - u_i^2 w_i / w.u).
        v, diagonal = self.without_bias()
        if self.of_constant is None:
            return v / diagonal[:, None]
        others = (jnp.sum(self.weights) - self.weights > 0)[:, None]
        return jnp.where(others, v, jnp.nan) / jnp.where(others, diagonal[:, None], 1)

    def generalised(self) -> Float[Array, " p"]:
        """The generalised cross-validation of each column."""
        v, diagonal = self.without_bias()
        # The fit leaves the residuals r v, and I - H has the diagonal r d, d that of
        # `without_bias`: N - tr H = sum_i w_i - sum_i (1 - r d_i).
        left = jnp.sum(self.weights - 1 + self.shift * diagonal)
        # N sum_i w_i (r v_i)^2 / (N - tr H)^2; the quotient comes first, to stay in range.
        residuals = self.shift[:, None] * v / left
        return jnp.sum(self.weights) * jnp.sum(self.weights[:, None] * residuals**2, 0)


def generalised_cross_validation(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = False,
) -> Float[Array, "*outputs"]:
    """The generalised cross-validation score of kernel ridge regression: `N sum_i w_i (y_i -
    f(x_i))^2 / (N - tr H)^2`, `N = sum_i w_i`.

    It is the mean squared error that leave-one-out would have if all points had the same leverage.
    `f = H y` is `kernel_ridge`, and `tr H` its degrees of freedom, with a bias one more. The score
    does not change when the targets are rotated, and for many points its minimiser in the ridge is
    that of the true error (Golub, Heath & Wahba 1979, equation 1.4). It assumes independent errors:
    repeated rows are in the training and in the held-out part at once.

    Arguments are those of `leave_one_out`, but the ridge must be positive, since the interpolant
    has no residuals. Weights count as repetitions. The result has one value for each output and is
    differentiable like the fit; NaN and warnings are as in `leave_one_out`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> score = kernax.selection.generalised_cross_validation(kernax.RBF(0.3), X, y, ridge=0.01)
        >>> round(float(score), 2)
        0.13
    """
    problem = check_problem(
        "generalised_cross_validation",
        kernel,
        X,
        y,
        weights,
        in_features=True,
        footprint=_CROSS_VALIDATION,
    )
    ridge = problem.scalar(ridge, "ridge", POSITIVE)
    solution = _generalised_cross_validation(problem, ridge, bool(bias))
    return value_with_warning(solution, "generalised_cross_validation")


@compiled
def _generalised_cross_validation(problem, ridge, bias):
    columns, unit = targets_in_unit(problem, 0)
    parts, result, stats = influence_on(columns, problem, ridge, bias)
    values = parts.generalised() * unit[0] * unit[0]
    return Solution(values.reshape(problem.y.shape[1:]), result, stats)
