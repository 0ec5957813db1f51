"""Smooth risks over centres, for more points than a matrix of all of them allows (FALKON)."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, PyTree

from kernax.core.boundary import cast, count
from kernax.core.centres import factor_of_gram, wide
from kernax.core.expansion import KernelExpansion
from kernax.core.gram import gram_of_prepared
from kernax.core.implicit import implicit
from kernax.core.intervals import POSITIVE
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_targets_of
from kernax.core.losses import AbstractSmoothLoss, Squared, check_convex
from kernax.core.memory import check_memory
from kernax.core.numerics import eps_of, stopped
from kernax.core.powers import exponent_of, times_power_of_two
from kernax.core.preparation import guarded
from kernax.core.sharding import compiled, while_loop
from kernax.core.solution import RESULTS, Solution, finish, first_that_holds, void_unless_known
from kernax.core.task import check_task
from kernax.scale.choice import checked_centres
from kernax.scale.normal_equations import solve_normal_equations
from kernax.scale.preconditioner import places_of_sample, size_of_sample
from kernax.scale.risk import Minimum, Risk, minimise
from kernax.scale.rows import ArrayRows, rows_of_tile

_SQUARED = Squared()


def falkon(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    centres: PyTree | int,
    *,
    loss: AbstractSmoothLoss = _SQUARED,
    weights: ArrayLike | None = None,
    key: PRNGKeyArray | None = None,
    rtol: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Minimises `sum_i w_i L(y_i, f(x_i)) + ridge/2 |f|^2` over the functions `f = sum_j a_j k(.,
    z_j)` of m centres z.

    For squares, `(K_nm^T W K_nm + ridge K_mm) a = K_nm^T W y` (Rudi, Carratino & Rosasco 2017),
    the `kernel_ridge` of the kernel that `nystrom` makes of these centres; other smooth losses by
    Newton's method with a line search (Marteau-Ferey, Bach & Rudi 2019 for losses like `Logistic`).
    K_nm, n x m, is never held: conjugate gradients take products over its rows, computed anew a
    tile at a time. They are preconditioned by the Hessian of all rows, or of a sample of them
    whatever the centres are: O(n m) memory is never needed, O(m^2) is. A bias is a `Constant` added
    to the kernel.

    Arguments:
        kernel: any kernel; its parameters are cast to the dtype of X.
        X: a stack of n points.
        y: targets (n,); for squares also (n, outputs), which share every product.
        ridge: > 0, as in `kernel_ridge`: no factor n is hidden in it.
        centres: a stack of m points, such as those of `choose_centres`; or their number, of points
            of X that are drawn by `key`.
        loss: smooth and convex; its parameters may be learned.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed, both exactly.
        key: for a number of centres.
        rtol: the largest residual that is accepted. By default the iteration stops at sqrt(eps) /
            16, and accepts sqrt(eps) where no step lowers it further.
        max_steps: of conjugate gradients in all, products with K_nm and its transpose.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion` over the centres, differentiable in the
        kernel, X, the centres, y, the loss's parameters, ridge and weights, to any order, in memory
        as above. Stats: Newton `steps`, `products`, `jitter` of K_mm, the `objective`, and
        `residual`: the length of the step of Newton's method that is left, in the norm `sum_i w_i
        L''_i d(x_i)^2 + ridge |d|^2` (that of the sample, where there is one), relative to that of
        the targets, `sum_i w_i y_i^2` for squares. It is computed anew from the solution; in
        float32, of a float64 system where that is on.

    Raises:
        ValueError: bad shapes or values, a loss that is not smooth or not convex.
        NotPSDError, NonFiniteError, MaxStepsError, BreakdownError: the solve failed; the last one
            where a ridge is too small for the precision.
        MemoryBudgetError: m x m numbers do not fit.
    """
    _check_loss(loss)
    quadratic = isinstance(loss, Squared)
    task = check_task(
        "falkon",
        kernel,
        X,
        y,
        weights,
        targets=partial(as_targets_of, loss),
        one_column=None if quadratic else "one fit for each column, or jax.vmap over them",
        holds_gram=False,
    )
    Z = checked_centres(task.kernel, task.X, centres, key)
    check_memory(Z, verb="falkon")
    ridge = task.scalar(ridge, "ridge", POSITIVE)
    guarded_loss = guarded(cast(loss, task.dtype))
    plan = Plan(
        tile=rows_of_tile(count(Z)),
        sample=size_of_sample(task.n, count(Z), quadratic, task.dtype),
        rtol=rtol,
        max_steps=max_steps,
    )
    problem = _Problem(
        task.kernel, Z, task.X, task.columns, task.weights.values, guarded_loss, ridge
    )
    solution = _falkon(problem, plan, task.y.ndim == 1)
    hint = f"falkon with {task.kernel_name}: a larger ridge, or centres further apart, may help."
    return finish(solution, throw, hint)


def _check_loss(loss: Any) -> None:
    """Raises ValueError unless it is a convex smooth loss of a number."""
    if not isinstance(loss, AbstractSmoothLoss) or loss.targets == "classes":
        raise ValueError(f"loss must be smooth, such as kernax.losses.Logistic(), but is {loss!r}")
    check_convex("falkon", loss)


class Plan(NamedTuple):
    """What is decided before anything is compiled.

    Attributes:
        tile: rows of K_nm at a time.
        sample: rows that the preconditioner is made of; None for all.
        rtol, max_steps: when to stop.
    """

    tile: int
    sample: int | None
    rtol: float | None
    max_steps: int


class _Problem(eqx.Module):
    """All that the minimiser depends on."""

    kernel: AbstractKernel
    Z: PyTree
    X: PyTree
    y: Float[Array, "n p"]
    weights: Float[Array, " n"]
    loss: AbstractSmoothLoss
    ridge: Float[Array, ""]

    def risk(self, plan: Plan) -> tuple[Risk, Any, Array]:
        """F, how the factor of K_mm ended, and its jitter."""
        rows = ArrayRows(self.kernel, self.Z, self.X, self.y, self.weights, tile=plan.tile)
        places = None
        if plan.sample is not None:
            places = places_of_sample(len(self.y), plan.sample)
        sample = None if places is None else rows.at(places)
        dtype = wide(self.y.dtype)
        K = gram_of_prepared(cast(self.kernel, dtype), cast(self.Z, dtype))
        at = factor_of_gram(K, beside=self.y.dtype)
        jittered = K + at.jitter * jnp.eye(len(K), dtype=dtype)
        ridge = self.ridge.astype(dtype)
        lower = stopped(at.lower)
        eps = eps_of(self.y)
        risk = Risk(rows, sample, self.loss, ridge, jittered, lower, eps=eps)
        return risk, at.result, at.jitter


@compiled
def _falkon(problem, plan, one_column):
    """The expansion that minimises the risk."""
    unit = jnp.zeros((1, problem.y.shape[1]), jnp.int32)
    if isinstance(problem.loss, Squared):
        # In units of the targets no square leaves the range of floats.
        unit = exponent_of(jnp.max(abs(problem.y), 0, keepdims=True))
        y = times_power_of_two(problem.y, -unit)
        problem = eqx.tree_at(lambda problem: problem.y, problem, y)
    a, result, stats, _ = implicit(
        partial(_solved, plan=plan), partial(_one_step, plan=plan), problem
    )
    a = times_power_of_two(a, unit).astype(problem.y.dtype)
    a = void_unless_known(a, result)
    a = a[:, 0] if one_column else a
    bias = jnp.zeros_like(a, shape=a.shape[1:])
    return Solution(KernelExpansion(problem.kernel, problem.Z, a, bias), result, stats)


def _solved(problem: _Problem, plan: Plan) -> tuple:
    """The minimum, and what it was solved with."""
    risk, result, jitter = problem.risk(plan)
    end = minimise(risk, (len(risk.gram), problem.y.shape[1]), plan.rtol, plan.max_steps)
    return end.a, _ending(result, end), end.stats | {"jitter": jitter}, end.P


def _ending(of_factor: Any, end: Minimum) -> Any:
    """The result, given that of the factor of K_mm."""
    return first_that_holds(((of_factor != RESULTS.successful, of_factor),), end.result)


def _one_step(end: tuple, problem: _Problem, plan: Plan) -> tuple:
    """The minimum after one more of Newton's steps, whose derivative is that of the minimum."""
    a, result, stats, P = end
    risk, _, _ = problem.risk(plan)
    gradient, _ = risk.gradient(a)
    fixed = stopped(P)

    def solve(multiply, b):
        tolerance = jnp.asarray(jnp.finfo(b.dtype).eps ** (2 / 3), b.dtype)
        d, _ = solve_normal_equations(multiply, fixed, b, tolerance, plan.max_steps, while_loop)
        return d

    multiply = lambda V: risk.product(a, V)
    d = lax.custom_linear_solve(multiply, gradient, solve, symmetric=True)
    return a - d, result, stats, P
