"""Probabilities from decision values (Platt's sigmoid, isotonic regression), and leave-one-out
decision values.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack, as_targets, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.labels import as_signs
from kernax.core.base.numerics import eps_of, is_concrete, positive_or_one, stop_gradient
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution, finish, first_that_holds, void_unless_known
from kernax.core.base.special_functions import softplus
from kernax.core.base.stacks import points_at
from kernax.core.base.weights import PointWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.learner_problem import LearnerProblem, check_problem, check_targets
from kernax.core.losses.newton import AbstractImplicitProblem, Iterate, Stationarity, minimum
from kernax.core.operators.memory import Footprint, check_memory
from kernax.supervised.machines.dual_solver import AbstractDualSolver, as_dual_solver
from kernax.supervised.machines.smo import SMO
from kernax.supervised.machines.svm import PENALTY, svm_of_problem

_LEAVE_ONE_OUT = Footprint("svm_leave_one_out", 3.0)
_ISOTONIC = Footprint("isotonic", 3.2)  # matrices of sums between two values


class Platt(Printed):
    """`p(+1 | f) = 1 / (1 + exp(-slope f - intercept))`: Platt's sigmoid of a decision value f.

    The log odds are stored as `slope (f - centre) + level`: where decision values are large
    compared with their differences, `slope f + intercept` would cancel.

    Examples:
        >>> sigmoid = kernax.calibration.Platt(jnp.array(2.0), jnp.array(0.0), jnp.array(1.0))
        >>> float(sigmoid(jnp.array(1.0)))
        0.5
    """

    slope: Float[Array, ""] = data()
    level: Float[Array, ""] = data()
    centre: Float[Array, ""] = data()

    @property
    def intercept(self) -> Float[Array, ""]:
        """`level - slope centre`."""
        return self.level - self.slope * self.centre

    def log_odds(self, f: ArrayLike) -> Float[Array, "*n"]:
        """`slope f + intercept` of decision values."""
        return self.slope * (jnp.asarray(f) - self.centre) + self.level

    def __call__(self, f: ArrayLike) -> Float[Array, "*n"]:
        """Probabilities of decision values."""
        return jax.nn.sigmoid(self.log_odds(f))


def platt(
    f: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None, throw: bool = True
) -> Solution[Platt]:
    """Fits Platt's sigmoid `p(+1 | f) = 1 / (1 + exp(-slope f - intercept))` to decision values f
    (n,) of points with classes y, -1 and +1.

    Maximises the likelihood with targets `(n_+ + 1) / (n_+ + 2)` and `1 / (n_- + 2)` in place of
    one and zero, so that the slope is finite for separated values (Platt 2000; Lin, Lin & Weng
    2007). Values that differ by no more than their rounding get slope zero. The decision values
    must come from points that were not used for training: held-out points, or `svm_leave_one_out`.
    The fit is differentiable in f and weights.

    Examples:
        >>> f = jnp.array([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0])  # decision values of held-out points
        >>> y = jnp.array([-1.0, -1.0, 1.0, -1.0, 1.0, 1.0])
        >>> sigmoid = kernax.calibration.platt(f, y).value
        >>> bool(sigmoid(jnp.array(2.0)) > 0.5)
        True
    """
    f, y, weights = _checked(f, y, weights)
    hint = "platt: scaled decision values or less extreme weights may help."
    return finish(_platt(f, y, weights), throw, hint)


# In the tails each step of Newton's method moves the log odds by about one, and weights near the
# largest float have a logarithm of 709.
_MOST_STEPS = 2000


@compiled
def _platt(f, y, weights):
    """The sigmoid with the largest likelihood."""
    # In the unit of the values, about their mean; values that are all the same get slope zero.
    centre, size = stop_gradient(_location_and_size(f, weights))
    apart = size > 0
    unit = jnp.where(apart, size, 1)
    u = jnp.where(apart, (f - centre) / unit, 0)
    # The target t is `(n_+ + 1) / (n_+ + 2)` for points of class +1, and `1 / (n_- + 2)` for those
    # of class -1; `1 - t` is computed to full relative precision too.
    of_plus = jnp.sum(jnp.where(y > 0, weights, 0))
    of_minus = jnp.sum(jnp.where(y < 0, weights, 0))
    total = jnp.where(y > 0, of_plus, of_minus)
    wrong = 1 / (total + 2)
    right = (total + 1) * wrong
    t = jnp.where(y > 0, right, wrong)
    one_minus_t = jnp.where(y > 0, wrong, right)
    sigmoid = _Sigmoid(u, t, one_minus_t, weights)
    x, result, stats = minimum(sigmoid, max_steps=_MOST_STEPS)
    # x_0 u + x_1 = (x_0 / unit) (f - centre) + x_1.
    slope = jnp.where(apart, x[0] / unit, 0)

    known = jnp.isfinite(slope + jnp.sum(y)) & jnp.isfinite(centre)
    result = first_that_holds([(~known, RESULTS.nonfinite)], otherwise=result)
    return Solution(Platt(*void_unless_known((slope, x[1], centre), result)), result, stats)


def _largest_of_present(
    values: Float[Array, " n"], weights: Float[Array, " n"]
) -> Float[Array, ""]:
    return jnp.max(jnp.where(weights > 0, abs(values), 0))


def _location_and_size(
    f: Float[Array, " n"], weights: Float[Array, " n"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean of the points that have a weight, and the largest distance from it.

    The distance is zero where it is no more than rounding.
    """
    # For values far from zero, differences are exact and their sum is not.
    first = f[jnp.argmax(weights > 0)]
    centre = first + jnp.sum(weights * (f - first)) / jnp.sum(weights)
    size = _largest_of_present(f - centre, weights)
    rounding = 8 * eps_of(f) * _largest_of_present(f, weights)
    return centre, jnp.where(size > rounding, size, 0)


class _Sigmoid(AbstractImplicitProblem):
    """Minus the log likelihood of targets in (0, 1) under `p = 1 / (1 + exp(-x_0 u - x_1))`.

    u has mean zero, or is zero throughout.
    """

    u: Float[Array, " n"]
    likely: Float[Array, " n"]
    unlikely: Float[Array, " n"]
    weights: Float[Array, " n"]

    def start(self):
        return Iterate(jnp.zeros_like(self.u, shape=2), jnp.zeros_like(self.u))

    def values(self, x):
        return x[0] * self.u + x[1]

    def correction(self, point):
        return -self.solve(point, self.equations(point))

    def equations(self, point):
        # sum g (u - m) = 0 and sum g = 0, with m the mean of u weighted by the curvatures.
        g = self._gradient(point.values)
        _, mean = self._curvature_and_mean(point)
        return jnp.stack([jnp.sum(g * (self.u - mean)), jnp.sum(g)])

    def solve(self, point, rhs):
        # In u - m the Hessian is diagonal.
        c, mean = self._curvature_and_mean(point)
        spread = jnp.sum(c * (self.u - mean) ** 2)
        # The slope stays where the curvature along it is not positive.
        positive = spread > 0
        of_slope = jnp.where(positive, rhs[0] / jnp.where(positive, spread, 1), 0)
        # x_0 u + x_1 = x_0 (u - m) + (x_1 + m x_0): the step of x_1 is that of the constant, less m
        # times that of x_0.
        return jnp.stack([of_slope, rhs[1] / jnp.sum(c) - mean * of_slope])

    def _curvature_and_mean(self, point):
        """The curvatures of the losses, and the mean of u weighted by them."""
        c = self._curvature(point.values)
        return c, jnp.sum(c * self.u) / jnp.sum(c)

    def slope_along(self, point, direction):
        v = direction[0] * self.u + direction[1]
        return lambda t: jnp.sum(self._gradient(point.values + t * v) * v)

    def stationarity(self, point):
        # F'(x) = (sum_i g_i u_i, sum_i g_i), g_i = w_i (p_i - t_i).
        g = self._gradient(point.values)
        pull, push = self._pulls(point.values)
        left = jnp.stack([jnp.sum(g * self.u), jnp.sum(g)])
        size = jnp.stack([jnp.sum((pull + push) * abs(self.u)), jnp.sum(pull + push)])
        # The effect of a rounding error of the margin on the gradient.
        of_margin = eps_of(g) * jnp.sum(abs(point.x))
        of_g = self._curvature(point.values) * of_margin
        rounding = jnp.stack([jnp.sum(of_g * abs(self.u)), jnp.sum(of_g)])
        return Stationarity(abs(left), size, rounding)

    def settled(self, point):
        return point.x

    def objective(self, point):
        margin = point.values
        of_plus = self.likely * softplus(-margin)
        of_minus = self.unlikely * softplus(margin)
        return jnp.sum(self.weights * (of_plus + of_minus))

    def _pulls(self, margin):
        """`w (1 - t) p` and `w t (1 - p)` for the targets t and the probabilities p.

        Their difference is `w (p - t)`. Where t is next to zero or one, both are small.
        """
        pull = self.weights * self.unlikely * jax.nn.sigmoid(margin)
        push = self.weights * self.likely * jax.nn.sigmoid(-margin)
        return pull, push

    def _gradient(self, margin):
        pull, push = self._pulls(margin)
        return pull - push

    def _curvature(self, margin):
        return self.weights * jax.nn.sigmoid(margin) * jax.nn.sigmoid(-margin)


class Isotonic(Printed):
    """An increasing function of decision values: linear between the values it was fitted to,
    constant beyond them.

    Examples:
        >>> increasing = kernax.calibration.Isotonic(jnp.array([0.0, 1.0]), jnp.array([0.2, 0.8]))
        >>> round(float(increasing(jnp.array(0.5))), 3)
        0.5
    """

    values: Float[Array, " n"] = data()
    probabilities: Float[Array, " n"] = data()

    def __call__(self, f: ArrayLike) -> Float[Array, "*n"]:
        """Probabilities of decision values."""
        # Not jnp.interp, which takes values closer than 1e-16 to be equal.
        f = jnp.asarray(f)
        left = jnp.clip(jnp.searchsorted(self.values, f, side="right") - 1, 0)
        right = jnp.minimum(left + 1, len(self.values) - 1)
        gap = self.values[right] - self.values[left]
        part = jnp.clip((f - self.values[left]) / positive_or_one(gap), 0, 1)
        rise = self.probabilities[right] - self.probabilities[left]
        return self.probabilities[left] + part * rise


def isotonic(f: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None) -> Isotonic:
    """Isotonic regression of classes on sorted decision values f (n,): `p_i = max_{j <= i} min_{k
    >= i} mean(y_j, ..., y_k)`.

    y contains the classes -1 and +1, which count as zero and one here: p is the increasing function
    of the decision values that is closest to those numbers in weighted least squares (Robertson,
    Wright & Dykstra 1988, section 1.4). Equal values share one probability. Time and memory are
    O(n^2). The decision values must come from points that were not used for training.

    Raises ValueError for bad shapes or values, and MemoryBudgetError where the sums do not fit into
    memory.

    Examples:
        >>> f = jnp.array([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0])
        >>> y = jnp.array([-1.0, -1.0, 1.0, -1.0, 1.0, 1.0])
        >>> increasing = kernax.calibration.isotonic(f, y)
        >>> increasing.probabilities
        Array([0. , 0. , 0.5, 0.5, 1. , 1. ], dtype=float64)
    """
    f, y, weights = _checked(f, y, weights)
    check_memory(f, footprint=_ISOTONIC)
    return _isotonic(f, y, weights)


@compiled
def _isotonic(f, y, weights):
    """The increasing function that is closest in weighted least squares."""
    order = jnp.argsort(f)
    values = f[order]
    w = weights[order]
    w_plus = jnp.where(y[order] > 0, w, 0)
    # The mean over the points j to k is `sum(w_plus_j, ...) / sum(w_j, ...)` up to k. It is
    # infinite without weight, and zero unless j <= k. Blocks begin and end between different
    # values.
    rows = jnp.arange(len(values))
    ordered = rows[:, None] <= rows[None, :]
    first = jnp.searchsorted(values, values, side="left")
    last = jnp.searchsorted(values, values, side="right") - 1
    weight = _sums_between(w)[first][:, last]
    mean = _sums_between(w_plus)[first][:, last] / positive_or_one(weight)
    means = jnp.where(weight > 0, mean, jnp.where(ordered, jnp.inf, 0))
    # The probability at i is `max_{j <= i} min_{k >= i}` of these means.
    smallest = lax.cummin(means, axis=1, reverse=True)
    largest = lax.cummax(jnp.where(ordered, smallest, -jnp.inf), axis=0)
    # Between 0 and 1 without a clip: the sums of a mean are rounded in the same order, so that the
    # larger one stays the larger.
    probabilities = jnp.diagonal(largest)
    known = jnp.isfinite(jnp.sum(y)) & jnp.all(jnp.isfinite(f))
    # For each index the last index up to it that has a weight; the first such index where there is
    # none.
    places = jnp.where(w > 0, jnp.arange(len(w)), -1)
    kept = jnp.maximum(lax.cummax(places), jnp.argmax(w > 0))
    return Isotonic(values[kept], jnp.where(known, probabilities[kept], jnp.nan))


def _sums_between(w: Float[Array, " n"]) -> Float[Array, "n n"]:
    """`w_i + ... + w_j` for i <= j, zero otherwise.

    Each sum is computed by itself: differences of cumulative sums would lose small weights after
    large ones.
    """
    return jnp.cumsum(jnp.triu(jnp.broadcast_to(w, (len(w), len(w)))), 1)


def svm_leave_one_out(
    kernel: AbstractKernel,
    X: PyTree,
    y: ArrayLike,
    C: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    bias: bool = True,
    solver: AbstractDualSolver | None = None,
    throw: bool = True,
) -> Float[Array, " n"]:
    """Leave-one-out decision values (n,) of an SVM: at each point, that of the SVM fitted without
    it.

    Removing a point that is not a support vector changes nothing. For each support vector the SVM
    is fitted again with weight zero there, starting from the full solution. Arguments are those of
    `svm`. Values are NaN where a fit failed.

    Raises ValueError as `svm` does, and where removing one point would leave only one class: the
    value at such a point is NaN where targets or weights are traced. Raises as `svm` where the full
    fit fails, unless `throw=False`: then all values are NaN.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> held_out = kernax.calibration.svm_leave_one_out(kernax.RBF(0.3), X, y, C=10.0)
        >>> jnp.sign(held_out)
        Array([-1., -1.,  1.,  1.,  1.], dtype=float64)
    """
    problem = check_problem(
        "svm_leave_one_out",
        kernel,
        X,
        y,
        weights,
        targets=as_signs,
        one_column="leave out for each column",
        throw=throw,
        footprint=_LEAVE_ONE_OUT,
    )
    C = problem.scalar(C, "C", PENALTY, throw=throw)
    _check_two_of_each(problem.y, problem.weights.values)
    solver = as_dual_solver(solver, SMO())
    solution = svm_of_problem(problem, C, bool(bias), solver, throw=throw)
    full = solution.value
    inside = jax.vmap(full)(full.points)
    left_out = _left_out(problem, full, C, bool(bias), solver)
    values = jnp.where(full.coefficients == 0, inside, left_out)
    # Without each point both classes must still have points of positive weight.
    counted = problem.weights.values > 0
    another_positive = _has_another(counted & (problem.y > 0))
    another_negative = _has_another(counted & (problem.y < 0))
    both_are_left = another_positive & another_negative
    return jnp.where(both_are_left & (solution.result == RESULTS.successful), values, jnp.nan)


def _check_two_of_each(y: Array, weights: Array) -> None:
    """Raises ValueError where one class would be missing without one of its points."""
    if not is_concrete(y, weights):
        return
    for sign in (-1, 1):
        if np.sum((np.asarray(y) == sign) & (np.asarray(weights) > 0)) < 2:
            raise ValueError(
                f"each class needs two points of positive weight, but {sign:+d} has fewer"
            )


def _has_another(members: Bool[Array, " n"]) -> Bool[Array, " n"]:
    """Whether the class of each point has another member."""
    number = jnp.sum(members)
    return number > members.astype(number.dtype)


@compiled
def _left_out(problem, full, C, bias, solver):
    """The values of `svm_leave_one_out` at the support vectors, zero at other points."""
    y = problem.y

    def value(i, point):
        weights = PointWeights(problem.weights.values.at[i].set(0))
        rest = LearnerProblem(
            problem.kernel, problem.X, y, weights, problem.layout, problem.function_name
        )
        solution = svm_of_problem(rest, C, bias, solver, full.coefficients, throw=False)
        return jnp.where(solution.result == RESULTS.successful, solution.value(point), jnp.nan)

    def value_of_support(place):
        is_support, i, point = place
        return lax.cond(is_support, value, lambda i, point: jnp.zeros_like(y, shape=()), i, point)

    supports = full.coefficients != 0
    # Support vectors first. Not argsort, whose result shard_map takes for replicated.
    order = lax.top_k(supports.astype(y.dtype), len(y))[1]
    points = points_at(full.points, order)
    values = lax.map(value_of_support, (supports[order], order, points))
    return jnp.zeros_like(y).at[order].set(values)


def _checked(
    f: ArrayLike, y: ArrayLike, weights: ArrayLike | None
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, " n"]]:
    """Decision values, signs and weights of one dtype. Raises ValueError for any other shape."""
    shape = np.shape(f)
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"f must hold decision values, shape (n,), but has shape {shape}")
    f = as_targets(f, shape[0], dtype_of(as_stack(f, "f")), "f")
    y, checked_weights = check_targets(
        y,
        weights,
        len(f),
        f.dtype,
        targets=as_signs,
        one_column="make one fit for each column",
    )
    return f, y, checked_weights.values
