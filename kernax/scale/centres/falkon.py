"""FALKON: smooth risks over centres, for more points than a matrix of all of them allows."""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PRNGKeyArray, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.derivatives import implicit
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import is_concrete, stop_gradient
from kernax.core.base.parameters import as_stopping
from kernax.core.base.solution import Solution, finish
from kernax.core.checkpoint.checkpoint import Checkpoint, as_checkpoint
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.learner_problem import check_problem
from kernax.core.linalg.centre_factor import wide
from kernax.core.losses.loss_functions import (
    AbstractSmoothLoss,
    Squared,
    as_targets_of,
    check_convex,
)
from kernax.core.operators.memory import check_memory
from kernax.core.operators.mesh import RowsOverMesh, whole_on_each
from kernax.scale.centres.choice import checked_centres
from kernax.scale.centres.fit_of_chunks import falkon_of_chunks
from kernax.scale.centres.kept_minimum import KeptFit, check_kept, facts_of_fit
from kernax.scale.centres.loss_in_units import LossInUnits
from kernax.scale.centres.normal_equations import solve_normal_equations
from kernax.scale.centres.preconditioner import size_of_sample
from kernax.scale.centres.problem import CentresProblem, FitPlan, solution_of
from kernax.scale.centres.row_sums import rows_of_tile
from kernax.scale.centres.span import FALKON, OfCentres, OfFeatures
from kernax.scale.data.chunks import Chunks

_SQUARED = Squared()


def falkon(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike | None,
    ridge: ArrayLike,
    centres: PyTree | int | None = None,
    *,
    loss: AbstractSmoothLoss = _SQUARED,
    weights: ArrayLike | None = None,
    key: PRNGKeyArray | None = None,
    bias: bool = False,
    rtol: float | None = None,
    max_steps: int = 500,
    progress: bool = False,
    checkpoint: Checkpoint | str | os.PathLike | None = None,
    throw: bool = True,
) -> Solution[Any]:
    """FALKON: minimises `sum_i w_i L(y_i, f(x_i)) + ridge/2 |f|^2` over functions `f = sum_j a_j
    k(., z_j)` of m centres z, or `f = a.phi` of m explicit features; with `bias`, over f + b.

    For squares it solves `(K_nm^T W K_nm + ridge K_mm) a = K_nm^T W y` (Rudi, Carratino & Rosasco
    2017), which is the `kernel_ridge` of the kernel that `nystrom` makes of these centres; other
    smooth losses are minimised by Newton's method with a line search (Marteau-Ferey, Bach & Rudi
    2019 for losses like `Logistic`). K_nm, n x m, is never stored: conjugate gradients use products
    whose tiles of K_nm are recomputed each time. They are preconditioned by the Hessian of all
    rows, or of a sample in which rows of large weight come first; the centres may be any. Memory is
    O(m^2), not O(n m).

    If the rows lie over a mesh (`kernax.scale.rows_over`), each device sums over its own rows and
    communicates m x p or m x m numbers for each sum; every device stores and factorises the m x m
    matrices.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: a batch of n points, on one device or with its rows over a mesh; or
            `kernax.scale.Chunks`, which are read again in every pass, with `y=None` and no
            `weights`. With chunks there is no derivative, and kernel, ridge, centres and loss must
            be known numbers. If centres is a number, a first pass draws them; the next pass counts
            and checks the rows; each gradient, each product, each Hessian of all rows and, for
            losses other than squares, each line search takes one more pass. Squares over at most
            4000 centres in float64 usually take five to seven passes. Chunks that give another
            number of rows in a later pass raise ValueError.
        y: targets (n,); for squares also (n, outputs), which share every product.
        ridge: > 0, as in `kernel_ridge`, without a factor n.
        centres: m points, such as those of `choose_centres`; or their number, to draw points of X
            of positive weight by `key`; or None, to use the features of a kernel with explicit
            features, such as `random_fourier_features`, which may be more than `kernel_ridge` can
            store for n points.
        loss: smooth and convex; its parameters may be learned.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed, both exactly.
        key: a random key, if centres is a number.
        bias: whether to add a constant. Its penalty is 1e-4 of that of a constant function with the
            mean k(z, z) as its variance, which is negligible unless the ridge far exceeds the sum
            of weights.
        rtol: the largest residual that is accepted. By default the iteration stops at sqrt(eps) /
            4, and accepts sqrt(eps) where no step lowers it further.
        max_steps: the largest number of steps of conjugate gradients in all, each with a product
            with K_nm and one with its transpose; measuring the residual may take more.
        progress: draw a bar for each pass over chunks, on standard error; needs `rich`. Arrays have
            no bar.
        checkpoint: a `kernax.Checkpoint`, or the path of a folder, to save the state of the fit
            after every product, unless the checkpoint says otherwise. The same call, made again,
            continues from there to the same result; if the fit had finished, it returns at once.
            Each save writes m x m matrices, and no rows. The checkpoint's name, shapes and dtypes,
            the number of points (in arrays, of positive weight), kernel, centres, loss, ridge,
            bias, rtol and max_steps identify the call, but the values of rows do not: let the name
            identify them. There is no derivative then, and all arguments must be known numbers.
            Give each fit a folder of its own.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion` over the centres, or without centres a
        `kernax.online.LinearFunction` of the features, differentiable in the kernel, X, the
        centres, y, the loss's parameters, ridge and weights, to any order, in memory as above.
        Stats: Newton `steps`, `products`, the `jitter` of K_mm (where that is nearly singular, or
        would make the rounding of the Hessian exceed the ridge), the `objective` with that jitter,
        its part `ridge/2 jitter |a|^2` as `jitter_penalty`, for chunks the number of rows as
        `points`, and the `residual`. The residual is the length of the next Newton step, with the
        square `sum_i w_i L''_i d(x_i)^2 + ridge |d|^2`, relative to the length of the targets, with
        the square `sum_i w_i y_i^2` for squares, or to that of the function if that is larger. It
        is computed anew from the returned solution: to one digit if the Hessian is that of a
        sample, and in float64 for float32 data if 64-bit mode is on. A derivative is NaN where its
        system cannot be solved. Status, residual and derivatives are those of the problem with the
        jitter; the minimum without it is lower than `objective` by at least `jitter_penalty`, often
        by several times as much where centres nearly coincide.

    Raises:
        ValueError: bad shapes or values, a loss that is not smooth or not convex, an iterator as X,
            a checkpoint under a transformation.
        KernaxFileError: the folder of the checkpoint belongs to another call.
        NotPSDError, NonFiniteError, MaxStepsError, BreakdownError: the solve failed; with
            BreakdownError the ridge is too small for the precision.
        MemoryBudgetError: m x m numbers do not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> solution = kernax.falkon(kernax.RBF(0.3), X, y, 0.01, centres=X[1:])
        >>> round(float(solution.value(jnp.array([0.4]))), 2)
        0.72
    """
    if not isinstance(loss, AbstractSmoothLoss) or loss.targets == "classes":
        raise ValueError(f"loss must be smooth, such as kernax.losses.Logistic(), but is {loss!r}")
    check_convex("falkon", loss)
    tolerance, steps = as_stopping(rtol, max_steps)
    checkpoint = as_checkpoint(checkpoint)
    check_kept(checkpoint, kernel, X, y, ridge, centres, loss, weights)

    def plan_of(n: int, m: int, dtype: Any, spread: RowsOverMesh | None = None) -> FitPlan:
        return FitPlan(
            tile=rows_of_tile(m),
            sample=size_of_sample(n, m, isinstance(loss, Squared), dtype),
            rtol=tolerance,
            max_steps=steps,
            bias=bool(bias),
            spread=spread,
        )

    if isinstance(X, Chunks):
        if y is not None or weights is not None:
            name = "weights" if y is None else "y"
            raise ValueError(
                f"{name} must be None where X is kernax.scale.Chunks, whose chunks hold (X, y) or "
                "(X, y, weights)"
            )
        of_pass = bool(progress), checkpoint
        solution = falkon_of_chunks(kernel, X, ridge, centres, loss, key, plan_of, *of_pass)
    else:
        if isinstance(X, Iterator):
            raise ValueError(
                f"X must be an array of points, but is a {type(X).__name__}, which can be read "
                "only once: pass kernax.scale.Chunks(chunks), of a list of chunks (X, y) or of a "
                "function that makes the iterator, and y=None"
            )
        if progress:
            raise ValueError(
                "progress=True draws a bar of passes over chunks, but X holds arrays: leave it out"
            )
        # Squares take several columns of targets together.
        instead_of_columns = (
            None if isinstance(loss, Squared) else "one fit for each column, or jax.vmap over them"
        )
        problem = check_problem(
            "falkon",
            kernel,
            X,
            y,
            weights,
            targets=partial(as_targets_of, loss),
            one_column=instead_of_columns,
            holds_gram=False,
            throw=throw,
        )
        # The functions to sum, on every device that has some of the rows.
        spread = problem.layout.spread
        if centres is None:
            span = OfFeatures.of(problem.kernel, problem.X)
        else:
            Z = checked_centres(problem.kernel, problem.X, centres, key, problem.weights)
            span = OfCentres(problem.kernel, Z if spread is None else whole_on_each(Z, spread))
        ridge = problem.scalar(ridge, "ridge", POSITIVE, throw=throw)
        plan = plan_of(problem.n, span.size, problem.dtype, spread)
        guarded_loss = problem.module(loss, throw=throw)
        one_column = problem.y.ndim == 1
        of_risk = span, problem.X, problem.weights, (problem.columns, guarded_loss, ridge), plan
        first = lambda: eqx.filter_eval_shape(_risk, *of_risk)
        check_memory(jnp.empty(span.size), footprint=FALKON, dtype=wide(problem.dtype), first=first)
        if checkpoint is None:
            solution = _falkon(*of_risk, one_column)
        else:
            # The same steps in a Python loop, which saves its state.
            risk, points = _risk(*of_risk)
            kept = KeptFit(checkpoint, facts_of_fit(span, guarded_loss, ridge, points, plan))
            end = risk.minimum(problem.columns.shape[1], plan, kept)
            solution = _solution(end, span, risk.risk.loss, problem.columns.dtype, plan, one_column)
    hint = "falkon: a larger ridge, or centres further apart, may help."
    return finish(solution, throw, _cost_of_jitter(solution) + hint)


def _cost_of_jitter(solution: Solution[Any]) -> str:
    """A sentence on how far the jitter keeps the objective above its minimum, if it does."""
    penalty = solution.stats["jitter_penalty"]
    objective = solution.stats["objective"]
    if not is_concrete(penalty, objective, solution.result):
        return ""
    # In a batch, the solve for which it matters most.
    penalty, objective = np.atleast_1d(penalty, objective)
    ratios = penalty / np.where(objective > 0, objective, np.inf)
    worst = np.nanargmax(np.append(ratios, 0))
    if worst == len(ratios) or not ratios[worst] > 0:
        return ""
    return (
        f"So the objective, {objective[worst]:.4g}, is at least {penalty[worst]:.2g} above its "
        "minimum over these centres. "
    )


_MOST_FOR_DERIVATIVE = 500  # steps of conjugate gradients


@compiled
def _falkon(span, X, weights, arguments, plan, one_column):
    problem = _problem(span, X, weights, arguments)

    def solve(args: tuple[CentresProblem, FitPlan]) -> tuple:
        # The minimum, and the settings of its solve.
        problem, plan = args
        end = problem.over_centres(plan).minimum(problem.y.shape[1], plan)
        return end.a, end.result, end.stats, end.P

    def one_step(end: tuple, args: tuple[CentresProblem, FitPlan]) -> tuple:
        # One more Newton step, which has the derivative of the minimum.
        problem, plan = args
        a, result, stats, P = end
        risk = problem.over_centres(plan).risk
        fixed = stop_gradient(P)
        tolerance = risk.eps ** (2 / 3)
        accurate = 4 * risk.eps ** (1 / 3)

        def inverse(multiply, b):
            d = solve_normal_equations(
                multiply, fixed, b, tolerance, _MOST_FOR_DERIVATIVE, lax.while_loop
            ).x
            # The residual of the recurrence drifts from the true one, which is computed here.
            left = fixed.length_of_step(b - multiply(d))
            sound = left <= accurate * fixed.length_of_step(b)
            return jnp.where(sound[None, :], d, jnp.nan)

        multiply = lambda V: risk.product(a, V)
        # The remaining gradient has no part in the derivative, and no solve is spent on it.
        gradient = risk.gradient(a)
        moved = gradient - lax.stop_gradient(gradient)
        # a - F''(a)^-1 F'(a).
        d = lax.custom_linear_solve(multiply, moved, inverse, symmetric=True)
        return a - d, result, stats, P

    *end, _ = implicit(solve, one_step, (problem, plan))
    dtype = problem.y.dtype
    return solution_of(tuple(end), problem.span, problem.loss, dtype, plan, one_column)


def _problem(span, X, weights, arguments) -> CentresProblem:
    """All that the minimiser depends on, with weights laid out like the rows."""
    y, loss, ridge = arguments
    loss = LossInUnits.of(loss, y, weights.values[:, None] > 0)
    return CentresProblem(span, X, weights.values, y, loss, ridge)


@compiled
def _risk(span, X, weights, arguments, plan):
    """The risk, and the number of points of positive weight."""
    problem = _problem(span, X, weights, arguments)
    return problem.over_centres(plan), jnp.count_nonzero(problem.weights)


@compiled
def _solution(end, span, loss, dtype, plan, one_column):
    of_end = end.a, end.result, end.stats
    return solution_of(of_end, span, loss, dtype, plan, one_column)
