"""The representer theorem for any convex loss: Newton's method where it has a curvature, the box dual where it has not."""

from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import as_scalar, as_targets, as_weights, cast, count, dtype_of
from kernax.core.expansion import KernelExpansion
from kernax.core.gram import gram_operator
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_signs
from kernax.core.linalg import weighted_solve
from kernax.core.losses import AbstractLoss, AbstractPiecewiseLinearLoss, AbstractSmoothLoss
from kernax.core.memory import check_memory
from kernax.core.newton import newton_root
from kernax.core.numerics import is_concrete, product, stopped
from kernax.core.preparation import prepare
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, finish
from kernax.core.solvers import JitteredCholesky
from kernax.core.support import NONNEGATIVE
from kernax.supervised.dual import AbstractDualSolver, as_dual_solver
from kernax.supervised.machine import machine, of_loss, spread
from kernax.supervised.smo import SMO


def regularised_risk(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    loss: AbstractLoss,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = False,
    solver: AbstractDualSolver | None = None,
    rtol: float | None = None,
    max_steps: int = 100,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """Minimises `sum_i w_i L(y_i, f(x_i) + b) + ridge/2 |f|^2` for any convex loss (Schoelkopf, Herbrich & Smola 2001).

    By the representer theorem f is a `KernelExpansion` on X. For a smooth loss it is found by damped Newton steps, each a ridge
    solve with the curvatures as weights; for a piecewise linear one by the solver of the dual (`svm`). A penalty that is any
    other strictly increasing function of the norm has the same minimisers, for some other ridge.

    Arguments:
        kernel, X, weights, throw: as for `kernel_ridge`.
        y: targets (n,): -1 and +1 for losses of a margin, counts for `Poisson`.
        loss: one of `kernax.core.losses`, or your own; its parameters may be learned.
        ridge: >= 0; > 0 for a piecewise linear loss.
        bias: an unpenalised b.
        solver: of the dual, for piecewise linear losses; default `SMO()`.
        rtol: of smooth losses, relative size of the last Newton step; default sqrt(eps), which leaves an error of about eps.
        max_steps: Newton steps, at most.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`, differentiable in the kernel, X, y, the loss's parameters, ridge and
        weights. Stats: `steps` and `objective`, or those of `svm`, whose primal and dual are 1/ridge times the above.

    Raises:
        ValueError: bad shapes or values. MaxStepsError, DivergedError, NonFiniteError: the solve failed.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights, y = as_weights(weights, n, dtype), as_targets(y, n, dtype)
    if y.ndim != 1:
        raise ValueError(f"y must have shape ({n},), but has shape {y.shape}: one fit for each column, or jax.vmap over them")
    if not isinstance(loss, (AbstractSmoothLoss, AbstractPiecewiseLinearLoss)):
        raise ValueError(f"loss must be smooth or piecewise linear, such as kernax.Huber(), but is {loss!r}")
    check_memory(X, verb="regularised_risk")
    ridge = as_scalar(ridge, dtype, "ridge", NONNEGATIVE)
    y = _checked_targets(y, loss, ridge, weights)
    smooth = isinstance(loss, AbstractSmoothLoss)
    if (solver if smooth else rtol) is not None:
        name, kind = ("solver", "smooth") if smooth else ("rtol", "piecewise linear")
        raise ValueError(f"{name} has no part in the fit of a {kind} loss such as {type(loss).__name__}: leave it away")
    fit, how = (_smooth, (rtol, max_steps)) if smooth else (_piecewise_linear, (as_dual_solver(solver, SMO()),))
    solution = fit(kernel, X, y, cast(loss, dtype), ridge, weights, bool(bias), *how)
    return finish(
        solution, throw, f"regularised_risk with {type(kernel).__name__}: a larger ridge or rescaled inputs may help."
    )


def _checked_targets(y: Array, loss: AbstractLoss, ridge: Array, weights: Array | None) -> Array:
    if loss.targets == "counts" and is_concrete(y) and np.any(np.asarray(y) < 0):
        raise ValueError(f"y must hold counts >= 0 for {type(loss).__name__}, but holds {np.min(y):g}")
    if isinstance(loss, AbstractPiecewiseLinearLoss) and is_concrete(ridge) and not ridge > 0:
        raise ValueError(f"ridge must be positive for {type(loss).__name__}, but is {float(ridge):g}")
    return as_signs(y, len(y), y.dtype, weights) if loss.targets == "signs" else y


@compiled
def _smooth(kernel, X, y, loss, ridge, weights, bias, rtol, max_steps):
    coefficients, b, result, stats = newton_fit(gram_operator(kernel, X), y, loss, ridge, weights, bias, rtol, max_steps)
    return Solution(KernelExpansion(kernel, X, coefficients, b), result, stats)


@compiled
def _piecewise_linear(kernel, X, y, loss, ridge, weights, bias, solver):
    c = jnp.broadcast_to(1 / ridge, y.shape) if weights is None else weights / ridge
    scale = jnp.ones((), y.dtype) if loss.targets == "signs" else spread(y, bias)
    problem = of_loss(gram_operator(kernel, X), loss, y, c, bias, scale)
    coefficients, b, result, stats = machine(problem, solver)
    return Solution(KernelExpansion(kernel, X, coefficients, b), result, stats)


def newton_fit(operator, y, loss, ridge, weights, bias, rtol, max_steps):
    """Coefficients, bias, result and stats of the minimiser for a smooth loss, differentiable in the arrays among these.

    With `f = K a + b`, gradients `g = w L'(y, f)` and curvatures `h = w L''(y, f)`, a Newton step solves
    `(H K + ridge I) a = h f - g - h b`, and `sum a = 0` where there is a bias: IRLS, with nothing divided by h.
    """
    weights = jnp.ones_like(y) if weights is None else weights
    eps = float(jnp.finfo(y.dtype).eps)
    rtol = eps**0.5 if rtol is None else rtol

    def start(args):
        _, y, loss, _, weights = args
        level = jnp.sum(weights * y) / jnp.sum(weights) if bias and loss.targets == "numbers" else 0
        return jnp.zeros_like(y, shape=len(y) + 1).at[-1].set(level)  # far from numbers, Huber's curvatures are zero

    args, step = (operator, y, loss, ridge, weights), partial(_step, bias=bias)
    x, result, stats = newton_root(step, _objective, start, args, rtol=rtol, max_steps=max_steps)
    stats["residual"] = _residual(stopped(x), stopped(args), bias)
    stalled = (result == RESULTS.successful) & (stats["residual"] > eps ** (1 / 3))
    result = RESULTS.where(stalled, RESULTS.inaccurate, result)
    result = RESULTS.where(jnp.isfinite(ridge + jnp.sum(weights) + jnp.sum(y)), result, RESULTS.nonfinite)
    x = jnp.where(result == RESULTS.nonfinite, jnp.nan, x)
    return x[:-1], x[-1], result, stats


def _step(x: Float[Array, " m"], args, bias: bool) -> Float[Array, " m"]:
    operator, y, loss, ridge, weights = args
    f = operator.mv(x[:-1]) + x[-1]
    g, h = weights * loss.derivative(y, f), weights * loss.curvature(y, f)
    rhs = jnp.stack([h * f - g, h] if bias else [h * f - g], 1)
    a, _, _ = weighted_solve(operator, h, ridge, rhs, JitteredCholesky())
    if not bias:
        return jnp.append(a[:, 0], jnp.zeros_like(x[-1]))
    pull = jnp.sum(a[:, 1])
    downhill = x[-1] - jnp.sum(g) / jnp.sum(weights)
    b = jnp.where(pull > 0, jnp.sum(a[:, 0]) / jnp.where(pull > 0, pull, 1), downhill)
    return jnp.append(a[:, 0] - b * a[:, 1], b)


def _residual(x: Float[Array, " m"], args, bias: bool) -> Float[Array, ""]:
    """What is left of `ridge a + g = 0` and `sum g = 0`, relative to g at f = 0 and to `ridge a`."""
    operator, y, loss, ridge, weights = args
    g = weights * loss.derivative(y, operator.mv(x[:-1]) + x[-1])
    off = jnp.linalg.norm(ridge * x[:-1] + g) + (abs(jnp.sum(g)) if bias else 0)
    size = jnp.linalg.norm(weights * loss.derivative(y, jnp.zeros_like(y))) + jnp.linalg.norm(ridge * x[:-1])
    return off / jnp.where(size > 0, size, 1)


def _objective(x: Float[Array, " m"], args) -> Float[Array, ""]:
    operator, y, loss, ridge, weights = args
    of_f = operator.mv(x[:-1])
    return jnp.sum(weights * loss(y, of_f + x[-1])) + ridge / 2 * product(x[:-1], of_f)
