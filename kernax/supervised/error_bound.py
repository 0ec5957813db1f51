"""A bound on the distance of any fitted function from the exact minimiser."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_point, cast, count
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import eps_of, is_concrete, positive_or_one, stop_gradient, values_of
from kernax.core.base.parameters import check_count
from kernax.core.base.powers import in_own_unit, lengths
from kernax.core.base.printing import Printed, described
from kernax.core.base.stacks import joined
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import LearnerProblem, check_problem
from kernax.core.losses.loss_functions import (
    AbstractLoss,
    AbstractPiecewiseLinearLoss,
    AbstractSmoothLoss,
    Squared,
    as_targets_of,
    check_convex,
)
from kernax.core.operators.gram import Layout, checked_block, gram_diagonal, operator_of_prepared
from kernax.core.operators.operators import AbstractGram

_SQUARED = Squared()


class ErrorBound(Printed):
    """A bound on `|f(x) - f*(x)|`, the error of a function f without its bias, at any point x.

    Attributes:
        correction: an expansion g such that f + g is nearer to the exact f* than f.
        remainder: a bound on `|f + g - f*|` in the norm of the kernel's Hilbert space, of shape ()
            or (outputs,).
        norm: a bound on `|f - f*|`, the norm of the error: that of g plus the remainder.

    The bound at x is `|g(x)| + sqrt(k(x, x)) remainder`, by the Cauchy-Schwarz inequality.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> f = kernax.falkon(kernax.RBF(0.3), X, y, 0.1, X[::2]).value
        >>> bound = kernax.solvers.error_bound(f, X, y, 0.1)
        >>> bound(X[1]).shape, bound.values(X).shape
        ((), (5,))
    """

    correction: KernelExpansion
    remainder: Float[Array, "*outputs"]
    norm: Float[Array, "*outputs"]

    def __call__(self, x: PyTree) -> Float[Array, "*outputs"]:
        """The bound at one point, shape (*outputs)."""
        x = cast(as_point(x), self.remainder.dtype)
        return abs(self.correction(x)) + jnp.sqrt(self.correction.kernel(x, x)) * self.remainder

    def values(self, X: PyTree) -> Float[Array, "m *outputs"]:
        """The bounds at a batch of m points, shape (m, *outputs)."""
        root = jnp.sqrt(gram_diagonal(self.correction.kernel, X))
        return abs(self.correction.values(X)) + jnp.tensordot(root, self.remainder, 0)


def error_bound(
    f: KernelExpansion,
    X: PyTree,
    y: ArrayLike,
    ridge: ArrayLike,
    *,
    loss: AbstractLoss = _SQUARED,
    weights: ArrayLike | None = None,
    bias: bool = False,
    max_steps: int = 30,
    throw: bool = True,
) -> ErrorBound:
    """Bounds the distance of f from the minimiser f* of `J(f) = sum_i w_i L(y_i, f(x_i) + b) +
    ridge/2 |f|^2`, without computing f*.

    f may be any function of the kernel: the result of conjugate gradients that were stopped early,
    of `kernax.falkon`, which has fewer centres than points, or an expansion that was pruned or
    rounded.

    J is strongly convex, so that `|f - f*| <= |grad J(f)| / ridge`. The gradient in the kernel's
    Hilbert space is `ridge f + sum_i w_i L'(y_i, f(x_i)) k(x_i, .)`. For the squared loss and an f
    with the points X, `|f - f*| <= |S^-1 r| / (2 sqrt(ridge))` as well, with the residual `r = W (y
    - b) - (W K + ridge I) a` of its coefficients a, and `S = sqrt(W)`, because `mu / (mu + ridge)^2
    <= 1 / (4 ridge)` for every eigenvalue mu. The smaller of the two holds for f + g as well, where
    a few steps of conjugate gradients from f lead to the correction g, and `|f - f*| <= |g| + |f +
    g - f*|`. The bound includes rounding errors, as in Higham & Mary (2019), for entries of K that
    are right to 8 eps.

    Arguments:
        f: a function of `kernel_ridge`, `kernel_logistic`, `regularised_risk`, `falkon`, or any
            `KernelExpansion`. Its kernel is the kernel of the problem.
        X, y, ridge, weights, bias: those of the problem; ridge > 0. With `bias` there is an
            unpenalised b, and the bound is for f without b.
        loss: a smooth convex loss. For a piecewise linear loss the solution of `svm` or
            `regularised_risk` reports its duality gap, and `|f - f*| <= sqrt(2 gap)`.
        max_steps: the largest number of steps to the correction, of one product with K each. They
            end earlier where the correction is ten times the remainder. Zero for the bounds of f
            itself, which need two products.
        throw: raise an error at run time for traced arguments that are out of range; otherwise the
            bound is NaN.

    Returns:
        An `ErrorBound`, a function of a point, with the attribute `norm`. It is a constant for
        derivatives, and NaN where f is NaN.

    Raises:
        ValueError: bad shapes or values, or a loss that is not smooth and convex.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> kernel = kernax.RBF(0.3)
        >>> f = kernax.falkon(kernel, X, y, 0.1, X[::2]).value  # over three centres
        >>> bound = kernax.solvers.error_bound(f, X, y, 0.1)
        >>> exact = kernax.kernel_ridge(kernel, X, y, 0.1).value
        >>> bool(exact.distance(f) <= bound.norm < 1.1 * exact.distance(f))
        True
    """
    if not isinstance(f, KernelExpansion):
        raise ValueError(
            "f must be a KernelExpansion, such as the value of kernel_ridge(...), but is "
            f"{described(f)}"
        )
    if isinstance(loss, AbstractPiecewiseLinearLoss):
        raise ValueError(
            f"loss must be smooth, but is {type(loss).__name__}: the gap in the stats of svm or "
            "regularised_risk bounds the error, |f - f*| <= sqrt(2 gap)"
        )
    if not isinstance(loss, AbstractSmoothLoss):
        raise ValueError(f"loss must be one of kernax.losses, but is {described(loss)}")
    check_convex("error_bound", loss)
    targets = partial(as_targets_of, loss, both_signs=False)
    problem = check_problem(
        "error_bound", f.kernel, X, y, weights, targets=targets, holds_gram=False, throw=throw
    )
    f = cast(f, problem.dtype)
    if f.bias.shape != problem.y.shape[1:]:
        raise ValueError(
            f"y must have a column for each output of f, {f.bias.shape}, but has shape "
            f"{problem.y.shape}"
        )
    if not bias and is_concrete(f.bias) and np.any(values_of(f.bias) != 0):
        raise ValueError("f has a bias: pass bias=True, so that the problem has one too")
    ridge = problem.scalar(ridge, "ridge", POSITIVE, throw=throw)
    loss = problem.module(loss, throw=throw)
    max_steps = check_count(max_steps, "max_steps", least=0)
    same = _same_points(f, problem)
    return _bound(problem, f, loss, ridge, bool(bias), same, max_steps)


def _same_points(f: KernelExpansion, problem: LearnerProblem) -> bool | None:
    """Whether the points of f are those of the problem; None where only the values can tell."""
    kind = lambda points: (jax.tree.structure(points), [*map(jnp.shape, jax.tree.leaves(points))])
    if kind(f.points) != kind(problem.X):
        return False
    if not is_concrete((f.points, problem.X)):
        return None
    return all(map(np.array_equal, jax.tree.leaves(f.points), jax.tree.leaves(problem.X)))


@compiled
def _bound(problem, f, loss, ridge, bias, same, max_steps):
    problem, f, loss, ridge = stop_gradient((problem, f, loss, ridge))
    c = f.coefficients.reshape(len(f.coefficients), -1)
    points = problem.X
    # One Gram matrix of all points: the last n are those of the problem.
    if not same:
        points = joined([f.points, problem.X])
        nothing = jnp.zeros_like(problem.columns)
        of_f = jnp.concatenate([c, nothing])
        if same is None:
            leaves = map(jnp.array_equal, jax.tree.leaves(f.points), jax.tree.leaves(problem.X))
            same = jnp.all(jnp.stack(list(leaves)))
            of_f = jnp.where(same, jnp.concatenate([nothing, c]), of_f)
        c = of_f
    layout = Layout(checked_block("auto", count(points)), spread=problem.layout.spread)
    gram = operator_of_prepared(problem.kernel, points, layout)
    risk = _WeightedRisk(gram, problem.columns, problem.weights.values, loss, ridge, bias, same)
    alone = risk.distance(c)
    e = risk.correction(c, max_steps)
    # The correction is computed with a rounding error too.
    corrected = risk.distance(c + e) + risk.relative * jnp.sum(risk.root * abs(e), 0)
    helps = corrected < alone
    remainder = jnp.where(helps, corrected, alone)
    if not bias:
        # A function with a bias is not in the space of the kernel.
        remainder = jnp.where(f.bias.reshape(-1) == 0, remainder, jnp.inf)
    e = jnp.where(helps[None, :], e, 0)
    norm = jnp.where(helps, risk.norm(e), 0) + remainder
    correction = KernelExpansion(
        problem.kernel, points, e.reshape(-1, *f.bias.shape), jnp.zeros_like(f.bias)
    )
    return ErrorBound(correction, remainder.reshape(f.bias.shape), norm.reshape(f.bias.shape))


class _WeightedRisk(eqx.Module):
    """`sum_i w_i L(y_i, f_i + b) + ridge/2 |f|^2` over expansions on m points, of which the last n
    are those of the problem.

    Attributes:
        same: whether there are no other points, or only some without a coefficient.
    """

    gram: AbstractGram
    y: Float[Array, "n p"]
    weights: Float[Array, " n"]
    loss: AbstractSmoothLoss
    ridge: Float[Array, ""]
    bias: bool = eqx.field(static=True)
    same: Any

    @property
    def root(self) -> Float[Array, "m 1"]:
        """`sqrt(K_ii)`."""
        return jnp.sqrt(self.gram.diagonal())[:, None]

    @property
    def relative(self) -> float:
        """The relative error of a product with K, in units of its largest possible terms."""
        return (8 + np.sqrt(self.gram.in_size())) * eps_of(self.y)

    @property
    def w(self) -> Float[Array, "n p"]:
        """The weights, as columns."""
        return jnp.broadcast_to(self.weights[:, None], self.y.shape)

    def at_points(self, A: Float[Array, "m p"]) -> Float[Array, "n p"]:
        """The rows of the points of the problem."""
        return A[-len(self.y) :]

    def with_best_bias(self, values: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`f_i + b`, where `sum_i w_i L'(y_i, f_i + b) = 0`."""
        if not self.bias:
            return values
        if isinstance(self.loss, Squared):
            return values + _mean(self.y - values, self.w)

        def halve(_, interval):
            low, high = interval
            b = (low + high) / 2
            slopes = self.w * self.loss.derivative(self.y, values + b)
            is_above = jnp.sum(slopes, 0, keepdims=True) > 0
            return jnp.where(is_above, low, b), jnp.where(is_above, b, high)

        # L' increases, so that bisection finds the zero of the sum.
        most = 16 * (1 + jnp.max(abs(self.y)) + jnp.max(abs(values), 0, keepdims=True))
        low, high = lax.fori_loop(0, jnp.finfo(most.dtype).nmant + 12, halve, (-most, most))
        return values + (low + high) / 2

    def distance(self, c: Float[Array, "m p"]) -> Float[Array, " p"]:
        """The bound on `|f - f*|` of the function with coefficients c."""
        values = self.at_points(self.gram.mv(c))
        # The rounding error of f(x_i), as |K_ij| <= sqrt(K_ii K_jj).
        terms = self.at_points(self.root) * jnp.sum(self.root * abs(c), 0, keepdims=True)
        rounding = self.relative * (terms + abs(values))
        values = self.with_best_bias(values)
        # grad J(f) / ridge = f + sum_i w_i L'_i k(x_i, .) / ridge = sum_i g_i k(p_i, .).
        of_loss = self.w * self.loss.derivative(self.y, values) / self.ridge
        g = c.at[-len(self.y) :].add(of_loss)
        # L' increases: rounding of f(x_i) moves it no further than to the ends of the interval.
        ends = [self.loss.derivative(self.y, values + sign * rounding) for sign in (1, -1)]
        of_values = self.w * (ends[0] - ends[1]) / self.ridge
        error = of_values + 4 * eps_of(c) * (abs(of_loss) + abs(self.at_points(c)))
        distance = self.norm(g) + _sum_of_errors(self.at_points(self.root) * error)
        if self.same is False or not isinstance(self.loss, Squared):
            return distance
        return jnp.minimum(distance, self.distance_by_residual(c, self.at_points(g), error))

    def norm(self, g: Float[Array, "m p"]) -> Float[Array, " p"]:
        """`|sum_i g_i k(p_i, .)| = sqrt(g.K g)`, with the largest rounding error added."""
        g, unit = in_own_unit(g, 0)
        square = jnp.maximum(jnp.sum(g * self.gram.mv(g), 0), 0)
        # (K g)_i has the error e_i = relative sqrt(K_ii) sum_j sqrt(K_jj) |g_j|, and g.K g that of
        # sum_i g_i e_i. Products below `tiny` are zero.
        sizes = self.root * abs(g)
        rounding = jnp.sqrt(self.relative * jnp.sum(sizes, 0) * _sum_of_errors(sizes))
        underflow = len(g) * jnp.sqrt(jnp.finfo(g.dtype).tiny)
        return (jnp.sqrt(square) + rounding + underflow) * unit[0]

    def distance_by_residual(
        self, c: Float[Array, "m p"], g: Float[Array, "n p"], error: Float[Array, "n p"]
    ) -> Float[Array, " p"]:
        """`|S^-1 r| / (2 sqrt(ridge))` with `r = -ridge g`, for the squared loss; inf where f has
        other points, or a coefficient at a point of weight zero.
        """
        present = self.w > 0
        inverse_roots = jnp.where(present, 1 / jnp.sqrt(jnp.where(present, self.w, 1)), 0)
        length = lengths(inverse_roots * g) + lengths(inverse_roots * error)
        distance = jnp.sqrt(self.ridge) / 2 * length
        if self.bias:
            # With a bias the coefficients of f* sum to zero. Those of f do after a multiple of the
            # weights is subtracted, which moves f and its residual.
            total = abs(jnp.sum(c, 0))
            largest = jnp.max(self.root)
            root = jnp.sqrt(jnp.sum(self.weights))
            of_residual = (largest**2 * root + self.ridge / root) / (2 * jnp.sqrt(self.ridge))
            distance = distance + total * (largest + of_residual)
        is_removed = jnp.any(~present & (g != 0), 0)
        return jnp.where(jnp.asarray(self.same) & ~is_removed, distance, jnp.inf)

    def correction(self, c: Float[Array, "m p"], max_steps: int) -> Float[Array, "m p"]:
        """Coefficients of a step from f towards f*, by conjugate gradients for Newton's equation
        `e + sum_i h_i e(x_i) k(x_i, .) / ridge = -grad J(f) / ridge`, `h_i = w_i L''(y_i, f_i)`.
        """
        values = self.with_best_bias(self.at_points(self.gram.mv(c)))
        of_loss = self.w * self.loss.derivative(self.y, values) / self.ridge
        h = self.w * self.loss.curvature(self.y, values)

        def newton(d):
            v = self.at_points(d.values)
            v = v - _mean(v, h) if self.bias else v
            Ad = d.coefficients.at[-len(self.y) :].add(h * v / self.ridge)
            return _Functions(Ad, self.gram.mv(Ad))

        def step(state):
            e = state.step
            r = state.residual
            d = state.direction
            Ad = newton(d)
            # Along d the quadratic is least at t = <r, r> / <d, A d>.
            square = r.dot(r)
            t = jnp.where(state.is_far(), square / positive_or_one(d.dot(Ad)), 0)
            e = e.plus(t, d)
            r = r.plus(-t, Ad)
            d = r.plus(r.dot(r) / positive_or_one(square), d)
            return _Correction(e, r, d, state.count + 1)

        def goes_on(state):
            return (state.count < max_steps) & jnp.any(state.is_far())

        r, unit = in_own_unit(-c.at[-len(self.y) :].add(of_loss), 0)
        r = _Functions(r, self.gram.mv(r))
        nothing = jax.tree.map(jnp.zeros_like, r)
        end = lax.while_loop(goes_on, step, _Correction(nothing, r, r, 0))
        return end.step.coefficients * unit


class _Functions(eqx.Module):
    """Functions `sum_i a_i k(p_i, .)`, one for each output, with their values `K a` at the
    points.
    """

    coefficients: Float[Array, "m p"]
    values: Float[Array, "m p"]

    def dot(self, other: "_Functions") -> Float[Array, "1 p"]:
        """The inner products in the kernel's space: `<f, g> = a.K b`."""
        return _dot(self.coefficients, other.values)

    def plus(self, t: Float[Array, "1 p"], other: "_Functions") -> "_Functions":
        """`f + t g`."""
        coefficients = self.coefficients + t * other.coefficients
        return _Functions(coefficients, self.values + t * other.values)


class _Correction(eqx.Module):
    """Conjugate gradients for the step from f towards f*.

    Attributes:
        step: the step, e.
        residual: of Newton's equation, r.
        direction: in which e moves next.
        count: the number of steps.
    """

    step: _Functions
    residual: _Functions
    direction: _Functions
    count: Any

    def is_far(self) -> Bool[Array, "1 p"]:
        """Where the residual is more than a tenth of the step."""
        return self.residual.dot(self.residual) > self.step.dot(self.step) / 100


def _sum_of_errors(errors: Float[Array, "n p"]) -> Float[Array, " p"]:
    """A bound on the sum of rounding errors of these sizes: the sum of the sizes, or four times the
    root of that of their squares, as errors add up like a random walk.
    """
    return jnp.minimum(jnp.sum(errors, 0), 4 * jnp.sqrt(jnp.sum(errors**2, 0)))


def _dot(A: Float[Array, "m p"], B: Float[Array, "m p"]) -> Float[Array, "1 p"]:
    return jnp.sum(A * B, 0, keepdims=True)


def _mean(A: Float[Array, "n p"], w: Float[Array, "n p"]) -> Float[Array, "1 p"]:
    return _dot(w, A) / positive_or_one(jnp.sum(w, 0, keepdims=True))
