"""The representer theorem for any convex loss: Newton's method where it has a curvature, the box dual where it has not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from kernax.core.boundary import as_scalar, as_targets, as_weights, cast, count, dtype_of
from kernax.core.expansion import KernelExpansion
from kernax.core.gram import gram_operator
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_signs
from kernax.core.linalg import weighted_solve
from kernax.core.losses import AbstractLoss, AbstractPiecewiseLinearLoss, AbstractSmoothLoss, slopes_far_out
from kernax.core.memory import check_memory
from kernax.core.newton import AbstractConvexProblem, Iterate, minimum
from kernax.core.numerics import is_concrete, product, stopped
from kernax.core.preparation import guarded, prepare
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, finish, void_unless_known
from kernax.core.solvers import JitteredCholesky
from kernax.core.support import NONNEGATIVE, POSITIVE
from kernax.supervised.dual import AbstractDualSolver, as_dual_solver
from kernax.supervised.machine import machine, of_loss, spread
from kernax.supervised.misfit import is_finite, misfit_of, unseen, values_of
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

    By the representer theorem f is a `KernelExpansion` on X. For a smooth loss it is found by damped Newton steps, each a
    ridge solve with the curvatures as weights; for a piecewise linear one by the solver of the dual (`svm`). A penalty that is
    any other strictly increasing function of the norm has the same minimisers, for some other ridge.

    Arguments:
        kernel, X, weights, throw: as for `kernel_ridge`.
        y: targets (n,): -1 and +1 for losses of a margin, counts for `Poisson`.
        loss: one of `kernax.core.losses`, or your own; its parameters may be learned.
        ridge: >= 0; > 0 for a piecewise linear loss, and for one that falls for ever, such as `Logistic`. Without it the
            losses are fitted exactly, each at its least, which takes a K of full rank.
        bias: an unpenalised b.
        solver: of the dual, for piecewise linear losses; default `SMO()`.
        rtol: of smooth losses, what may be left of `ridge a = -w L'(y, f)`, relative to its terms, beside the rounding of f.
            By default it is 8 eps, and sqrt(eps) counts as a success where no step gets closer.
        max_steps: Newton steps, at most.

    Returns:
        A `Solution` whose `value` is a `KernelExpansion`, differentiable in the kernel, X, y, the loss's parameters, ridge
        and weights. Stats: `steps`, `objective` and the relative `residual`, or those of `svm`, whose primal and dual are
        1/ridge times the above.

    Raises:
        ValueError: bad shapes or values. MaxStepsError, NonFiniteError, BreakdownError: the solve failed. DivergedError:
            there is no minimum, as of `Poisson` with a bias where all counts are zero, or of `Logistic` without a ridge.
    """
    kernel, X = prepare(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights, y = as_weights(weights, n, dtype), as_targets(y, n, dtype)
    if y.ndim != 1:
        raise ValueError(f"y must have shape ({n},), but has shape {y.shape}: one fit for each column, or jax.vmap over them")
    if not isinstance(loss, (AbstractSmoothLoss, AbstractPiecewiseLinearLoss)):
        raise ValueError(f"loss must be smooth or piecewise linear, such as kernax.Huber(), but is {loss!r}")
    smooth = isinstance(loss, AbstractSmoothLoss)
    check_memory(X, verb="regularised_risk" if smooth else "regularised_risk of a piecewise linear loss")
    ridge = as_scalar(ridge, dtype, "ridge", NONNEGATIVE if smooth else POSITIVE)
    y = _checked_targets(y, loss, weights)
    if (solver if smooth else rtol) is not None:
        name, kind = ("solver", "smooth") if smooth else ("rtol", "piecewise linear")
        raise ValueError(f"{name} has no part in the fit of a {kind} loss such as {type(loss).__name__}: leave it away")
    fit, how = (_smooth, (rtol, max_steps)) if smooth else (_piecewise_linear, (as_dual_solver(solver, SMO()),))
    solution = fit(kernel, X, y, guarded(cast(loss, dtype)), ridge, weights, bool(bias), *how)
    return finish(
        solution, throw, f"regularised_risk with {type(kernel).__name__}: a larger ridge or rescaled inputs may help."
    )


def _checked_targets(y: Array, loss: AbstractLoss, weights: Array | None) -> Array:
    if loss.targets == "signs":
        return as_signs(y, len(y), y.dtype, weights)
    if loss.targets == "numbers":
        return y
    if is_concrete(y) and np.any(np.asarray(y) < 0):
        raise ValueError(f"y must hold counts >= 0 for {type(loss).__name__}, but holds {np.min(y):g}")
    return jnp.where(y >= 0, y, jnp.nan)


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
    """Coefficients, bias, result and stats of the minimiser for a smooth loss, differentiable in the arrays among these."""
    weights = jnp.ones_like(y) if weights is None else weights
    x, result, stats = minimum(_SmoothRisk(operator, y, loss, ridge, weights, bias), rtol=rtol, max_steps=max_steps)
    result = RESULTS.where(_falls_for_ever(y, loss, ridge, weights, bias), RESULTS.diverged, result)
    parameters = sum(map(jnp.sum, jax.tree.leaves(loss)), jnp.zeros_like(ridge))
    known = jnp.isfinite(ridge + jnp.sum(weights) + jnp.sum(y) + parameters) & is_finite(operator)
    result = RESULTS.where(known, result, RESULTS.nonfinite)
    x = void_unless_known(x, result)
    return x[:-1], x[-1], result, stats


def _falls_for_ever(y, loss, ridge, weights, bias) -> Bool[Array, ""]:
    """Whether there is no minimum: the slope of what falls for ever would become zero by underflow alone.

    The losses together may fall along the bias, which nothing holds; without a ridge, in which success asks that every loss be
    least, one alone.
    """
    present = weights > 0
    falls = lambda down, up: ~((down <= 0) & (up >= 0))
    alone = (ridge == 0) & jnp.any(present & falls(*slopes_far_out(loss, y)))
    if not bias:
        return alone
    total = lambda slopes: jnp.sum(jnp.where(present, weights * slopes, 0))
    return alone | falls(*map(total, slopes_far_out(loss, y, jnp.max(abs(y)))))


class _SmoothRisk(AbstractConvexProblem):
    """`sum_i w_i L(y_i, f_i) + ridge/2 a.K a`, `f = K a + b`, as a function of x = (a, b).

    With `g = w L'(y, f)` and `h = w L''(y, f)`, its minimum is where `ridge a + g = 0` and, with a bias, `sum g = 0`, which
    together make `sum a = 0`.
    """

    operator: lx.AbstractLinearOperator
    y: Float[Array, " n"]
    loss: AbstractSmoothLoss
    ridge: Float[Array, ""]
    weights: Float[Array, " n"]
    bias: bool = eqx.field(static=True)

    def start(self):
        bias = jnp.zeros_like(self.y[0])
        if self.bias and self.loss.targets == "numbers":
            bias = _median(self.y, self.weights)  # far from all numbers Huber's curvatures would be zero
        nothing = jnp.zeros_like(self.y)
        return Iterate(jnp.append(nothing, bias), nothing)

    def values(self, x):
        return values_of(self.operator, x[:-1])

    def correction(self, point):
        # (H K + ridge) d = -(ridge a + g) - h d_b, and sum (a + d) = 0 where there is a bias: IRLS as a correction, so that
        # an error of the solve, jitter included, costs a step and no digits. Nothing is divided by h.
        x = point.x
        a = x[:-1]
        y, f = self._compared(point)
        g, h = self._gradient(y, f), self.weights * self.loss.curvature(y, f)
        columns = jnp.stack([-(self.ridge * a + g), h] if self.bias else [-(self.ridge * a + g)], 1)
        d = _solved(self.operator, h, self.ridge, columns)
        if not self.bias:
            return jnp.append(d[:, 0], jnp.zeros_like(x[-1]))
        pull = jnp.sum(d[:, 1])
        downhill = -jnp.sum(g) / jnp.sum(self.weights)
        d_b = jnp.where(pull > 0, jnp.sum(a + d[:, 0]) / jnp.where(pull > 0, pull, 1), downhill)
        return jnp.append(d[:, 0] - d_b * d[:, 1], d_b)

    def correction_to_differentiate(self, point):
        return self.correction(point)

    def slope_along(self, point, direction):
        a, d, d_b = point.x[:-1], direction[:-1], direction[-1]
        y, f = self._compared(point)
        Kd = self.operator.mv(d)
        unit = jnp.max(abs(Kd)) + abs(d_b)  # products of what is tiny, or huge, would leave the range of floats
        unit = jnp.where(unit > 0, unit, 1)
        Kd, v, d_b = Kd / unit, Kd + d_b, d_b / unit

        def slope(t):
            g = self._gradient(y, f + t * v)
            return jnp.sum((self.ridge * (a + t * d) + g) * Kd) + (jnp.sum(g) * d_b if self.bias else 0)

        return slope

    def misfit(self, point):
        # Rounding of f_i is at most about eps (sqrt(K_ii) sum_j sqrt(K_jj) |a_j| + |b|), since |K_ij| <= sqrt(K_ii K_jj).
        # What it makes of g_i is tried as well as h_i times it, for losses whose curvature jumps.
        x = point.x
        a = x[:-1]
        y, f = self._compared(point)
        g, h = self._gradient(y, f), self.weights * self.loss.curvature(y, f)
        root = jnp.sqrt(abs(lx.diagonal(self.operator)))
        of_f = float(jnp.finfo(x.dtype).eps) * (root * jnp.sum(root * abs(a)) + abs(x[-1]))
        tried = [abs(self._gradient(y, f + off) - g) for off in (of_f, -of_f)]
        of_g = jnp.maximum(h * of_f, jnp.maximum(*tried))
        at_zero = abs(self._gradient(self.y, jnp.zeros_like(f)))
        return misfit_of(root, self.ridge * a, g, of_g, at_zero, self.bias, unseen(self.operator, x.dtype))

    def settled(self, point):
        # The coefficients that the condition asks for. Where K is singular to rounding, f hardly tells them from others.
        x, known = point.x, self.ridge > 0
        a = -self._gradient(*self._compared(point)) / jnp.where(known, self.ridge, 1)
        return jnp.append(jnp.where(known, a, x[:-1]), x[-1])

    def objective(self, point):
        losses = self.loss(self.y, point.values + point.x[-1])
        return jnp.sum(self.weights * losses) + self.ridge / 2 * product(point.x[:-1], point.values)

    def _compared(self, point):
        """What the loss compares: y and f, or both without the bias, where it depends on their difference alone."""
        bias = point.x[-1]
        return (self.y - bias, point.values) if self.loss.of_difference else (self.y, point.values + bias)

    def _gradient(self, y, f):
        return self.weights * self.loss.derivative(y, f)


def _solved(operator, h, ridge, columns):
    """`(H K + ridge)^-1 columns`. Each row is divided by its diagonal entry and each column by its largest: to the solver all
    scales of K, of h and of the targets are one.
    """
    entry = stopped(h * lx.diagonal(operator) + ridge)
    entry = jnp.where(entry > 0, entry, 1)
    columns = columns / entry[:, None]
    largest = stopped(jnp.max(abs(columns), 0, keepdims=True))
    largest = jnp.where(largest > 0, largest, 1)
    solved, _, _ = weighted_solve(operator, h / entry, ridge / entry, columns / largest, JitteredCholesky())
    return solved * largest


def _median(y: Float[Array, " n"], weights: Float[Array, " n"]) -> Float[Array, ""]:
    """A number that has at least half of the weight on either side of it, itself included."""
    order = jnp.argsort(y)
    below = jnp.cumsum(weights[order])
    return y[order][jnp.searchsorted(below, below[-1] / 2)]
