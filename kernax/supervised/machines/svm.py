"""Differentiable support vector machines for two classes, for regression and for one class."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax._advice import IN_BLOCKS, IN_FEATURES
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import count
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import NONNEGATIVE, POSITIVE, Interval
from kernax.core.base.labels import as_signs
from kernax.core.base.numerics import (
    eps_of,
    is_concrete,
    positive_or_one,
    stop_gradient,
    sums_and_maxima,
)
from kernax.core.base.solution import (
    MOST_FOR_EIGENVALUES,
    RESULTS,
    Solution,
    finish,
    of_all,
    void_unless_known,
    warn,
)
from kernax.core.base.stacks import points_at
from kernax.core.base.weights import AbstractWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import LearnerProblem, check_problem
from kernax.core.learner.starts import coefficients_of
from kernax.core.losses.loss_functions import EpsilonInsensitive, Hinge
from kernax.core.operators.gram import gram_of_prepared
from kernax.core.operators.memory import Footprint
from kernax.core.operators.operators import AbstractGram
from kernax.errors import ConditionWarning
from kernax.supervised.machines.box_problem import BoxProblem, dual_of_loss, size_of_targets
from kernax.supervised.machines.certificate import seen_indefinite
from kernax.supervised.machines.doubled import DoubledGram
from kernax.supervised.machines.dual_fit import fit_dual
from kernax.supervised.machines.dual_solver import AbstractDualSolver, as_dual_solver
from kernax.supervised.machines.smo import SMO

# Matrices of n x n numbers, and what to do where they do not fit.
_INSTEAD = f"{IN_FEATURES}, or {IN_BLOCKS}"
_SVM = Footprint("svm", 2.2, _INSTEAD)
_SVR = Footprint("support_vector_regression", 2.2, _INSTEAD)
_ONE_CLASS = Footprint("one_class_svm", 2.2, _INSTEAD)
_NU_SVM = Footprint("nu_svm", 2.2, _INSTEAD)
_NU_SVR = Footprint("nu_support_vector_regression", 2.2, _INSTEAD)

PENALTY = Interval(low=0.0, closed=(False, True))  # infinity is the hard margin
_FRACTION = Interval(low=0.0, high=1.0, closed=(False, True))


def svm(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    C: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    solver: AbstractDualSolver | None = None,
    block_size: int | None = None,
    start: KernelExpansion | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Fits the soft-margin support vector machine: minimises `C sum_i w_i max(0, 1 - y_i (f(x_i) +
    b)) + 1/2 |f|^2`.

    The dual (Cortes & Vapnik 1995) maximises `sum_i a_i - 1/2 sum_ij a_i a_j y_i y_j K_ij` over `0
    <= a_i <= C w_i` and `sum_i a_i y_i = 0`; the coefficients are `a_i y_i`. The bias puts the free
    support vectors (`0 < a_i < C w_i`) on the margin; where none is free, it is the midpoint of the
    interval of optimal biases. A penalty `lambda |f|^2` on the mean loss is `C = 1 / (2 n lambda)`.

    The solution is differentiable in the kernel, X, C and weights: for a given active set it solves
    a linear system. Where it is differentiated, it is the exact solution of that system, whatever
    the solver's tolerance. The derivative is one-sided where the active set changes.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: a batch of n points.
        y: labels -1 and +1, (n,), or (n, outputs) for several SVMs, such as one against the rest
            for each class: `2 * one_hot(labels)[0] - 1`.
        C: > 0; `jnp.inf` is the hard margin.
        weights: (n,) >= 0, multiply the C of each point: for class weights, folds, or one class
            against another.
        bias: an unpenalised b; without it the dual has no constraint on the sum, only the box.
        solver: `kernax.solvers.SMO()`, the default, or `ProjectedGradient()`, for batches and
            accelerators.
        block_size: rows of K computed at a time; only the part of K for the solver's working set is
            then stored.
        start: an SVM for the same points to start from, such as the previous one on a path of C. It
            changes the steps, not the solution. An SVM that failed, with NaN coefficients, is
            ignored.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`; its sign is the class. Stats, of shape
        (outputs,) for several SVMs:

        - `primal`, `dual`, their `gap`, and the `relative_gap`, which is at most the solver's
            `rtol` if the solve succeeded. Where it would be larger, errors of f below 16 eps count
            as zero in the gap: multiplied by a large C they alone may exceed the objective.
        - the numbers of `support`, `bounded` and `free` vectors, and of `steps`;
        - the number of `features`, for a kernel with fewer explicit features than points, such as a
            `FeatureMap`: of K only the part for a working set is then stored;
        - `indefinite`: whether a dense K has `K_ij^2 > K_ii K_jj` for some pair. A ConditionWarning
            then names its smallest eigenvalue.

        The problem is solved in units of the targets and of K, in which nothing over- or
        underflows. In the user's units `primal`, `dual` and `gap` may over- or underflow.

    Raises:
        ValueError: bad shapes or values, labels other than -1 and +1, one class only.
        MaxStepsError: C is too large for the scale of the data.
        DivergedError: a hard margin does not exist, or is too narrow for the number of steps.
        BreakdownError: the tolerance is below the rounding errors of f, or of the terms of K b
            where they cancel (for a linear kernel, centre the points).
        NonFiniteError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> solution = kernax.svm(kernax.RBF(0.3), X, y, C=10.0)
        >>> jnp.sign(solution.value.values(X))
        Array([-1., -1.,  1.,  1.,  1.], dtype=float64)
        >>> int(solution.stats["support"])
        3
    """
    problem = check_problem(
        "svm",
        kernel,
        X,
        y,
        weights,
        targets=as_signs,
        block_size=block_size,
        in_features=True,
        throw=throw,
        footprint=_SVM,
    )
    C = problem.scalar(C, "C", PENALTY, throw=throw)
    solver = as_dual_solver(solver, SMO())
    near = coefficients_of(start, problem)
    return svm_of_problem(problem, C, bool(bias), solver, near, throw=throw)


def svm_of_problem(
    problem: LearnerProblem,
    C: Array,
    bias: bool,
    solver: AbstractDualSolver,
    start: Array | None = None,
    *,
    throw: bool,
) -> Solution[KernelExpansion]:
    """`svm` of checked arguments; `start` contains coefficients."""
    return _finished(_svm(problem, C, bias, solver, start), throw, "svm", problem)


@compiled
def _svm(problem, C, bias, solver, start):
    """SVMs for two classes."""

    def dual_of(operator, y):
        scale = jnp.ones((), y.dtype)
        return dual_of_loss(operator, Hinge(), y, _bound(C, problem.weights), bias, scale)

    return _fit_columns(problem, dual_of, solver, start)


def support_vector_regression(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    C: ArrayLike,
    epsilon: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    solver: AbstractDualSolver | None = None,
    block_size: int | None = None,
    start: KernelExpansion | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Fits support vector regression: minimises `C sum_i w_i max(0, |y_i - f(x_i) - b| - epsilon) +
    1/2 |f|^2`.

    Arguments, stats and errors are those of `svm`, except that y contains numbers, (n,) or (n,
    outputs), and epsilon >= 0 is in their units. The coefficients lie between -C w_i and C w_i, and
    are zero for points strictly inside the tube (Drucker et al. 1997; Smola & Schoelkopf 2004). The
    solution is differentiable in y and epsilon as well.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> f = kernax.support_vector_regression(kernax.RBF(0.3), X, y, C=10.0, epsilon=0.1).value
        >>> bool(jnp.all(jnp.abs(y - f.values(X)) < 0.11))
        True
    """
    problem = check_problem(
        "support_vector_regression",
        kernel,
        X,
        y,
        weights,
        block_size=block_size,
        in_features=True,
        throw=throw,
        footprint=_SVR,
    )
    C = problem.scalar(C, "C", PENALTY, throw=throw)
    epsilon = problem.scalar(epsilon, "epsilon", NONNEGATIVE, throw=throw)
    solver = as_dual_solver(solver, SMO())
    near = coefficients_of(start, problem)
    solution = _support_vector_regression(problem, C, epsilon, bool(bias), solver, near)
    return _finished(solution, throw, "support_vector_regression", problem)


@compiled
def _support_vector_regression(problem, C, epsilon, bias, solver, start):
    """SVMs for regression."""

    def dual_of(operator, y):
        loss = EpsilonInsensitive(epsilon)
        scale = size_of_targets(y, problem.weights.values, bias)
        return dual_of_loss(operator, loss, y, _bound(C, problem.weights), bias, scale)

    return _fit_columns(problem, dual_of, solver, start)


def one_class_svm(
    kernel: AbstractKernel,
    X: PyTree,
    nu: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    solver: AbstractDualSolver | None = None,
    block_size: int | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Fits the one-class SVM: minimises `1/2 |f|^2 + sum_i w_i max(0, -f(x_i) - b) + nu sum_i w_i
    b`.

    The function `f + b` is positive in the region of the points: at most a fraction nu of them lies
    outside, and at least that fraction are support vectors (Schoelkopf et al. 2001). Coefficients
    lie between 0 and w_i and sum to `nu sum w`, as in LIBSVM; divide by that sum for those of the
    paper. Where nu is so small that no point may be outside, b is raised by a few eps of f, so that
    rounding puts no point outside.

    Arguments, stats and errors are those of `svm`; nu is in (0, 1].

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> f = kernax.one_class_svm(kernax.RBF(1.0), X, nu=0.2).value
        >>> bool(f(jnp.array([0.5])) > 0), bool(f(jnp.array([3.0])) > 0)
        (True, False)
    """
    problem = check_problem(
        "one_class_svm",
        kernel,
        X,
        None,
        weights,
        block_size=block_size,
        in_features=True,
        throw=throw,
        footprint=_ONE_CLASS,
    )
    nu = problem.scalar(nu, "nu", _FRACTION, throw=throw)
    solver = as_dual_solver(solver, SMO())
    return _finished(_one_class_svm(problem, nu, solver), throw, "one_class_svm", problem)


@compiled
def _one_class_svm(problem, nu, solver):
    def dual_of(operator, y):
        # The dual: minimise 1/2 b.K b over 0 <= b_i <= w_i with sum b = nu sum w.
        high = problem.weights.values
        total = nu * jnp.sum(high)
        return BoxProblem(
            operator=operator,
            targets=y,
            low=jnp.zeros_like(high),
            high=high,
            epsilon=jnp.zeros((), y.dtype),
            total=total,
            scale=_scale_without_targets(operator, high, total),
            inside=True,
        )

    return _fit_columns(problem, dual_of, solver, None)


def _scale_without_targets(
    operator: AbstractGram, weights: Float[Array, " n"], total: Float[Array, ""]
) -> Float[Array, ""]:
    """The size of f where coefficients are at most the weights and sum to a total: the mean k(x, x)
    over the points of positive weight, times the largest coefficient.
    """
    largest = jnp.minimum(total, jnp.max(weights))
    present = weights > 0
    diagonal = jnp.where(present, operator.diagonal(), 0)
    mean = jnp.sum(diagonal) / jnp.sum(present, dtype=weights.dtype)
    return positive_or_one(mean * largest)


def nu_svm(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    nu: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    solver: AbstractDualSolver | None = None,
    block_size: int | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Fits nu-SVC: the SVM for two classes with a fraction nu of margin errors in place of C.

    Minimises `1/2 |g|^2 - nu rho sum w + sum_i w_i max(0, rho - y_i (g(x_i) + b))` over g, b and
    the margin rho, and returns `(g + b) / rho`, which has margin one and equals the solution of
    `svm` for C = 1 / rho (Schoelkopf, Smola, Williams & Bartlett 2000; Chang & Lin 2001). At most a
    fraction nu of the points is within the margin or on the wrong side, and at least that fraction
    are support vectors, both counted by weight.

    The solution is differentiable in the kernel, X, nu and weights.

    Arguments, stats and errors are those of `svm`, except for

        nu: in (0, 1], and at most twice the smaller class's share of the weights. While tracing,
            a larger nu or labels of one class end with the status `nonfinite`, and the function,
            its objectives and rho are NaN.

    `primal`, `dual` and `gap` are those of the problem in g. Stats also hold `rho`.

    Raises:
        ValueError: also "specified nu is infeasible".

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> solution = kernax.nu_svm(kernax.RBF(0.3), X, y, nu=0.4)
        >>> jnp.sign(solution.value.values(X))
        Array([-1., -1.,  1.,  1.,  1.], dtype=float64)
    """
    problem = check_problem(
        "nu_svm",
        kernel,
        X,
        y,
        weights,
        targets=as_signs,
        block_size=block_size,
        in_features=True,
        throw=throw,
        footprint=_NU_SVM,
    )
    nu = problem.scalar(nu, "nu", _FRACTION, throw=throw)
    _check_feasible(problem, nu)
    solver = as_dual_solver(solver, SMO())
    return _finished(_nu_svm(problem, nu, solver), throw, "nu_svm", problem)


def _check_feasible(problem: LearnerProblem, nu: Array) -> None:
    """Raises ValueError where nu is larger than the smaller class allows, as far as values are
    known.
    """
    if not is_concrete(problem.y, problem.weights.values, nu):
        return
    w = np.asarray(problem.weights.values, float)
    columns = np.asarray(problem.y).reshape(len(w), -1)
    share = min(min(w[y > 0].sum(), w[y < 0].sum()) for y in columns.T) / w.sum()
    if float(nu) > 2 * share * (1 + 4 * eps_of(problem.dtype)):
        raise ValueError(
            f"specified nu is infeasible: it is {float(nu):.4g}, but at most {2 * share:.4g}, "
            "twice the smaller class's share of the weights, is possible"
        )


@compiled
def _nu_svm(problem, nu, solver):
    """SVMs for two classes, with coefficients that sum to the same on either side."""

    def dual_of(operator, y):
        # b_i = y_i alpha_i with 0 <= alpha_i <= w_i. Optimality in the bias asks for sum b = 0, and
        # in rho for sum alpha = nu sum w: the classes sum to +-nu sum w / 2.
        weights = problem.weights.values
        half = nu * jnp.sum(weights) / 2
        negative = y < 0
        # NaN where a class weighs less than nu sum w / 2. Labels of one class are NaN while
        # tracing, so that neither class has a weight.
        of_classes = [jnp.where(side, weights, 0) for side in (negative, y > 0)]
        (of_negative, of_positive), _ = sums_and_maxima(of_classes, [])
        smaller = jnp.minimum(of_negative, of_positive)
        largest = smaller * (1 + 8 * eps_of(y))
        feasible = (smaller > 0) & (nu * (of_negative + of_positive) / 2 <= largest)
        half = jnp.where(feasible, half, jnp.nan)
        weights = jnp.where(feasible, weights, jnp.nan)
        return BoxProblem(
            operator=operator,
            targets=jnp.zeros_like(y),
            low=jnp.where(negative, -weights, 0),
            high=jnp.where(negative, 0, weights),
            epsilon=jnp.zeros((), y.dtype),
            total=jnp.stack([half, -half]),
            scale=_scale_without_targets(operator, weights, half),
            second=negative,
            inside=True,
        )

    def with_unit_margin(beta, biases, result, stats):
        # y_i ((K b)_i + bias) = rho on the margin of either class: the bias of class +1 is that of
        # f minus rho, and that of class -1 is that of f plus rho.
        rho = (biases[1] - biases[0]) / 2
        bias = (biases[1] + biases[0]) / 2
        function = beta / rho, bias / rho
        # Where g is zero there is no margin: a kernel may tell no points of the classes apart.
        finite = jnp.isfinite(bias / rho) & jnp.all(jnp.isfinite(beta / rho))
        result = RESULTS.where(stop_gradient(finite), result, RESULTS.nonfinite)
        return *void_unless_known(function, result), result, stats | {"rho": rho}

    return _fit_columns(problem, dual_of, solver, None, with_unit_margin)


def nu_support_vector_regression(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    C: ArrayLike,
    nu: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    solver: AbstractDualSolver | None = None,
    block_size: int | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Fits nu-SVR: support vector regression with a fraction nu of points outside the tube in place
    of epsilon.

    Minimises `C (nu epsilon sum w + sum_i w_i max(0, |y_i - f(x_i) - b| - epsilon)) + 1/2 |f|^2`
    over f, b and epsilon >= 0 (Schoelkopf, Smola, Williams & Bartlett 2000; Chang & Lin 2001): at
    most a fraction nu of the points lies outside of the tube, and at least that fraction are
    support vectors, both counted by weight.

    The solution is differentiable in the kernel, X, y, C, nu and weights. Where epsilon is zero, a
    larger nu changes nothing.

    Arguments, stats and errors are those of `support_vector_regression`, except for

        C: in (0, inf).
        nu: in (0, 1].

    Stats also hold `epsilon`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> solution = kernax.nu_support_vector_regression(kernax.RBF(0.3), X, y, C=1.0, nu=0.2)
        >>> round(float(solution.stats["epsilon"]), 2)  # the half-width of the tube
        0.61
    """
    problem = check_problem(
        "nu_support_vector_regression",
        kernel,
        X,
        y,
        weights,
        block_size=block_size,
        in_features=True,
        throw=throw,
        footprint=_NU_SVR,
    )
    C = problem.scalar(C, "C", POSITIVE, throw=throw)
    nu = problem.scalar(nu, "nu", _FRACTION, throw=throw)
    solver = as_dual_solver(solver, SMO())
    solution = _nu_support_vector_regression(problem, C, nu, solver)
    return _finished(solution, throw, "nu_support_vector_regression", problem)


@compiled
def _nu_support_vector_regression(problem, C, nu, solver):
    """SVMs for regression, with coefficients that sum to the same above and below the tube."""
    bound = C * problem.weights.values
    # b = (alpha, -alpha') with 0 <= alpha, alpha' <= C w. Optimality in the bias asks for
    # sum alpha = sum alpha', and in epsilon > 0 for sum (alpha + alpha') = C nu sum w.
    half = nu * jnp.sum(bound) / 2

    def dual_of(operator, y):
        # Every point occurs twice, once for each side of the tube: both coefficients may be
        # positive where the tube has no width.
        n = len(y)
        nothing = jnp.zeros_like(bound)
        return BoxProblem(
            operator=DoubledGram(operator),
            targets=jnp.concatenate([y, y]),
            low=jnp.concatenate([nothing, -bound]),
            high=jnp.concatenate([bound, nothing]),
            epsilon=jnp.zeros((), y.dtype),
            total=jnp.stack([half, -half]),
            scale=size_of_targets(y, problem.weights.values, bias=True),
            second=jnp.arange(2 * n) >= n,
            inside=True,
        )

    def of_points(beta, biases, result, stats):
        # y_i - (K b)_i is the bias plus epsilon above the tube, and the bias minus epsilon below.
        n = len(bound)
        coefficients = beta[:n] + beta[n:]
        epsilon = jnp.maximum((biases[0] - biases[1]) / 2, 0)
        sizes = abs(stop_gradient(coefficients))
        support = sizes > 0
        bounded = support & (sizes >= bound)
        figures = {
            "support": jnp.sum(support),
            "bounded": jnp.sum(bounded),
            "free": jnp.sum(support & ~bounded),
            "epsilon": epsilon,
        }
        return coefficients, (biases[0] + biases[1]) / 2, result, stats | figures

    return _fit_columns(problem, dual_of, solver, None, of_points)


def _finished(solution: Solution, throw: bool, name: str, problem: LearnerProblem) -> Solution:
    """`finish`, with a warning where K is known not to be positive semidefinite.

    The dual may then have many local solutions.
    """
    seen = solution.stats["indefinite"]
    if is_concrete(seen) and np.asarray(seen).any():
        # The message names the smallest eigenvalue of K among the points of positive weight, of at
        # most as many as take about a second. The smallest eigenvalue of all points is no larger.
        points = problem.present()
        some = points_at(points, slice(MOST_FOR_EIGENVALUES))
        smallest = np.linalg.eigvalsh(np.asarray(gram_of_prepared(problem.kernel, some), float))[0]
        part = "" if count(some) == count(points) else f" for the first {count(some)} points"
        smallest_eigenvalue = f"the smallest eigenvalue{part} of K is {smallest:.3g}"
        warn(
            f"{problem.kernel_name} is not positive semidefinite on these points: "
            f"{smallest_eigenvalue}, and the solution of {name} may depend on where it "
            "started",
            ConditionWarning,
        )
    # What to do about a fit that failed.
    others = {
        "svm": ", take a smaller C, SMO(max_steps=...), or C=inf where the classes are apart",
        "support_vector_regression": " and targets, take a smaller C or SMO(max_steps=...)",
        "nu_svm": ", or take a larger nu: overlapping classes may have no margin at this nu",
        "nu_support_vector_regression": " and targets, take a smaller C or SMO(max_steps=...)",
    }
    hint = f"{name} with {problem.kernel_name}: rescale inputs{others.get(name, '')}."
    return finish(solution, throw, hint)


def _bound(C: Array, weights: AbstractWeights) -> Float[Array, " n"]:
    """C times the weight of each point; zero for a weight of zero, also with a hard margin."""
    w = weights.values
    hard = jnp.isinf(C)
    of_hard_margin = jnp.where(w > 0, jnp.inf, 0)
    return jnp.where(hard, of_hard_margin, jnp.where(hard, 1, C) * w)


def _fit_columns(
    problem: LearnerProblem,
    dual_of: Callable[[AbstractGram, Array], BoxProblem],
    solver: AbstractDualSolver,
    start: Float[Array, "n *outputs"] | None,
    function_of: Callable | None = None,
) -> Solution[KernelExpansion]:
    """One SVM, or one for each column of y, over one Gram matrix.

    `dual_of` makes the dual of a vector of targets; `start` contains coefficients to start from.
    `function_of(beta, bias, result, stats)` turns the dual's solution into the coefficients and
    bias of the function, its result and its stats, where these differ.
    """
    operator = problem.gram()

    def fit(y, start):
        of_columns = problem.y.ndim == 2
        dual = dual_of(operator, y)
        beta, bias, result, stats = fit_dual(dual, solver, start, of_columns=of_columns)
        if function_of is not None:
            beta, bias, result, stats = function_of(beta, bias, result, stats)
        return beta, bias, result, stats

    if problem.y.ndim == 1:
        beta, bias, result, stats = fit(problem.y, start)
    else:
        # Coefficients and biases of each column, and one status for all.
        beta, bias, results, stats = jax.vmap(fit, in_axes=1)(problem.y, start)
        result = of_all(results)
        beta, bias = void_unless_known((beta.T, bias), result)
    stats["indefinite"] = seen_indefinite(*stop_gradient((operator, problem.weights.values)))
    stats = stats | problem.figures(operator)
    return Solution(KernelExpansion(problem.kernel, problem.X, beta, bias), result, stats)
