"""Regularised risk with any convex loss: Newton's method for smooth losses, the dual for others."""

from functools import partial

import jax.numpy as jnp
from jaxtyping import PyTree

from kernax._advice import IN_FEATURES, over_centres
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import translated
from kernax.core.base.intervals import NONNEGATIVE, POSITIVE
from kernax.core.base.parameters import as_stopping
from kernax.core.base.printing import described
from kernax.core.base.solution import Solution, finish
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem
from kernax.core.losses.loss_functions import (
    AbstractLoss,
    AbstractPiecewiseLinearLoss,
    AbstractSmoothLoss,
    as_targets_of,
    check_convex,
)
from kernax.core.losses.modes import newton_fit
from kernax.core.operators.memory import Footprint
from kernax.supervised.machines.box_problem import dual_of_loss, size_of_targets
from kernax.supervised.machines.dual_fit import fit_dual
from kernax.supervised.machines.dual_solver import AbstractDualSolver, as_dual_solver
from kernax.supervised.machines.smo import SMO

_SMOOTH = Footprint("regularised_risk", 3.6, over_centres(", loss=loss"))
_PIECEWISE = Footprint("regularised_risk of a piecewise linear loss", 2.3, IN_FEATURES)


def _in_new_order(*args, **kwargs):
    """The arguments of a call in the order of 0.2, in today's order; None for any other call."""
    is_old = len(args) > 4 or (len(args) == 4 and isinstance(args[3], AbstractLoss))
    if not is_old:
        return None
    text = "regularised_risk(kernel, X, y, loss, ridge) is (kernel, X, y, ridge, loss=loss) now"
    in_new_order = list(args)
    loss = in_new_order.pop(3)
    return tuple(in_new_order), {**kwargs, "loss": loss}, text


@translated(_in_new_order)
def regularised_risk(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    loss: AbstractLoss,
    weights: ArrayLike | None = None,
    bias: bool = False,
    solver: AbstractDualSolver | None = None,
    rtol: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Minimises `sum_i w_i L(y_i, f(x_i) + b) + ridge/2 |f|^2` for any convex loss L.

    By the representer theorem f is a `KernelExpansion` on X (Schoelkopf, Herbrich & Smola 2001).
    For a smooth loss it is computed by damped Newton steps, each a ridge solve with the curvatures
    as weights; for a piecewise linear one by the solver of the dual (`svm`). A penalty that is any
    other strictly increasing function of the norm has the same minimisers, for some other ridge.

    Arguments:
        kernel, X, weights, throw: as for `kernel_ridge`.
        y: targets (n,): -1 and +1 for losses of a margin, counts for `Poisson`.
        ridge: >= 0; > 0 for a piecewise linear loss, and for a loss without a minimum, such as
            `Logistic`. With zero the loss of every point is at its minimum, which requires a K of
            full rank.
        loss: one of `kernax.losses`, or your own; its parameters may be learned.
        bias: an unpenalised b.
        solver: solves the dual of piecewise linear losses; default `kernax.solvers.SMO()`.
        rtol: for smooth losses, the largest residual of `ridge a = -w L'(y, f)` that is accepted,
            relative to its terms and beyond the rounding of f. The default is 8 eps, and sqrt(eps)
            where no step lowers it further.
        max_steps: for smooth losses, the largest number of Newton steps.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`, differentiable in the kernel, X, y, the
        loss's parameters, ridge and weights. Stats of a smooth loss: `steps`, the relative
        `residual`, and `objective`, which is inf where one of its terms exceeds the largest float,
        as squares of targets of 1e19 do in float32 (the coefficients are right there too, because
        the residual alone decides about success). Stats of a piecewise linear loss: those of `svm`,
        whose primal and dual are 1/ridge times the objective above. For a kernel with fewer
        explicit features than points, for which K is never stored, also the number of `features`.

    Raises:
        ValueError: bad shapes or values.
        MaxStepsError, NonFiniteError, BreakdownError: the solve failed.
        DivergedError: there is no minimum, as for `Poisson` with a bias where all counts are zero,
            or for `Logistic` without a ridge.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> loss = kernax.losses.Huber(delta=0.1)
        >>> solution = kernax.regularised_risk(kernax.RBF(0.3), X, y, ridge=0.01, loss=loss)
        >>> jnp.round(solution.value.values(X), 2)
        Array([ 0.02,  0.97,  0.14, -0.95, -0.29], dtype=float64)
    """
    if not isinstance(loss, AbstractSmoothLoss | AbstractPiecewiseLinearLoss):
        raise ValueError(
            "loss must be smooth or piecewise linear, such as kernax.losses.Huber(), but is "
            f"{described(loss)}"
        )
    check_convex("regularised_risk", loss)
    stopping = as_stopping(rtol, max_steps)
    smooth = isinstance(loss, AbstractSmoothLoss)
    footprint = _SMOOTH if smooth else _PIECEWISE
    problem = check_problem(
        footprint.function_name,
        kernel,
        X,
        y,
        weights,
        footprint=footprint,
        targets=partial(as_targets_of, loss),
        one_column="one fit for each column, or jax.vmap over them",
        in_features=True,
        diagonal=ridge,
        throw=throw,
    )
    ridge = problem.scalar(ridge, "ridge", NONNEGATIVE if smooth else POSITIVE, throw=throw)
    guarded_loss = problem.module(loss, throw=throw)
    if smooth:
        _refuse("solver", solver, "smooth", loss)
        solution = _of_smooth_loss(problem, guarded_loss, ridge, bool(bias), *stopping)
    else:
        _refuse("rtol", rtol, "piecewise linear", loss)
        solver = as_dual_solver(solver, SMO())
        solution = _of_piecewise_linear_loss(problem, guarded_loss, ridge, bool(bias), solver)
    hint = (
        f"regularised_risk with {problem.kernel_name}: a larger ridge or rescaled inputs may help."
    )
    return finish(solution, throw, hint)


def _refuse(name: str, option: object, kind: str, loss: AbstractLoss) -> None:
    """Raises ValueError where an option is given that only the other kind of loss has."""
    if option is not None:
        raise ValueError(
            f"{name} is not used for a {kind} loss such as {type(loss).__name__}: leave it out"
        )


@compiled
def _of_smooth_loss(problem, loss, ridge, bias, rtol, max_steps):
    """The minimiser for a smooth loss, by Newton's method in the coefficients."""
    gram = problem.gram()
    mode = newton_fit(
        gram, problem.y, loss, ridge, problem.weights, bias, rtol=rtol, max_steps=max_steps
    )
    expansion = KernelExpansion(problem.kernel, problem.X, mode.coefficients, mode.bias)
    return Solution(expansion, mode.result, mode.stats | problem.figures(gram))


@compiled
def _of_piecewise_linear_loss(problem, loss, ridge, bias, solver):
    """The minimiser for a piecewise linear loss, by the dual of a support vector machine."""
    y = problem.y
    w = problem.weights.values
    scale = jnp.ones((), y.dtype) if loss.targets == "signs" else size_of_targets(y, w, bias)
    gram = problem.gram()
    # Divided by the ridge: sum_i (w_i / ridge) L(y_i, f(x_i) + b) + 1/2 |f|^2.
    dual = dual_of_loss(gram, loss, y, w / ridge, bias, scale)
    coefficients, b, result, stats = fit_dual(dual, solver)
    function = KernelExpansion(problem.kernel, problem.X, coefficients, b)
    return Solution(function, result, stats | problem.figures(gram))
