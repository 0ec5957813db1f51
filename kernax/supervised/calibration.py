"""Probabilities from decision values: Platt's sigmoid, isotonic regression, and values that no point had a part in."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, ArrayLike, Float, PyTree

from kernax.core.boundary import as_scalar, as_stack, as_targets, as_weights, count, dtype_of
from kernax.core.kernel import AbstractKernel
from kernax.core.labels import as_signs
from kernax.core.memory import check_memory
from kernax.core.newton import AbstractConvexProblem, Iterate, Misfit, minimum
from kernax.core.numerics import is_concrete, stopped
from kernax.core.parameters import data
from kernax.core.preparation import prepare_stacks
from kernax.core.sharding import compiled
from kernax.core.solution import RESULTS, Solution, finish, void_unless_known
from kernax.supervised.dual import AbstractDualSolver
from kernax.supervised.svm import PENALTY, svm


class Platt(eqx.Module):
    """`p(+1 | f) = 1 / (1 + exp(-slope f - intercept))`, kept as `slope (f - centre) + level`: where decision values are large
    beside their differences, the intercept holds none of the digits of the latter.
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


def platt(f: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None, throw: bool = True) -> Solution[Platt]:
    """Platt's sigmoid for decision values f (n,) of points of classes y, -1 and +1 (Platt 2000; Lin, Lin & Weng 2007).

    Maximises the likelihood with targets `(n_+ + 1) / (n_+ + 2)` and `1 / (n_- + 2)` in place of one and zero, so that it is
    finite for separated values. Values that differ by no more than their rounding get slope zero. The values must be of points
    that were not learned from: held out, or `svm_leave_one_out`. Differentiable in f and weights.
    """
    f, y, weights = _checked(f, y, weights)
    return finish(_platt(f, y, weights), throw, "platt: are the decision values of a sensible size?")


@compiled
def _platt(f, y, weights):
    plus, minus = jnp.sum(jnp.where(y > 0, weights, 0)), jnp.sum(jnp.where(y < 0, weights, 0))
    likely = jnp.where(y > 0, (plus + 1) / (plus + 2), 1 / (minus + 2))
    centre, size = stopped(_location_and_size(f, weights))
    problem = _Sigmoid(jnp.where(size > 0, (f - centre) / jnp.where(size > 0, size, 1), 0), likely, weights)
    x, result, stats = minimum(problem)
    slope = jnp.where(size > 0, x[0] / jnp.where(size > 0, size, 1), 0)
    result = RESULTS.where(jnp.isfinite(slope + jnp.sum(y)), result, RESULTS.nonfinite)
    return Solution(Platt(*void_unless_known((slope, x[1], centre), result)), result, stats)


def _location_and_size(f: Float[Array, " n"], weights: Float[Array, " n"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean, and the largest distance from it, zero where that is rounding; of the points that have a weight."""
    first = f[jnp.argmax(weights > 0)]  # of values far from zero the differences are exact, their sum is not
    centre = first + jnp.sum(weights * (f - first)) / jnp.sum(weights)
    size = jnp.max(jnp.where(weights > 0, abs(f - centre), 0))
    rounding = 8 * float(jnp.finfo(f.dtype).eps) * jnp.max(jnp.where(weights > 0, abs(f), 0))
    return centre, jnp.where(size > rounding, size, 0)


class _Sigmoid(AbstractConvexProblem):
    """Minus the log likelihood of targets in (0, 1) under `p = 1 / (1 + exp(-x_0 u - x_1))`, u of mean zero or all zero."""

    u: Float[Array, " n"]
    likely: Float[Array, " n"]
    weights: Float[Array, " n"]

    def start(self):
        return Iterate(jnp.zeros_like(self.u, shape=2), jnp.zeros_like(self.u))

    def values(self, x):
        return x[0] * self.u + x[1]

    def correction(self, point):
        # Elimination by hand: about the mean m of u under the curvatures c the Hessian is diagonal.
        g, c = self._gradient(point.values), self._curvature(point.values)
        mean = jnp.sum(c * self.u) / jnp.sum(c)
        off = self.u - mean
        spread = jnp.sum(c * off * off)
        d = jnp.where(spread > 0, -jnp.sum(g * off) / jnp.where(spread > 0, spread, 1), 0)
        return jnp.stack([d, -jnp.sum(g) / jnp.sum(c) - mean * d])

    def correction_to_differentiate(self, point):
        return self.correction(point)

    def slope_along(self, point, direction):
        v = direction[0] * self.u + direction[1]
        return lambda t: jnp.sum(self._gradient(point.values + t * v) * v)

    def misfit(self, point):
        g = self._gradient(point.values)
        terms = jnp.stack([g * self.u, g])
        of_margin = float(jnp.finfo(g.dtype).eps) * jnp.sum(abs(point.x))
        of_g = self._curvature(point.values) * of_margin
        rounding = jnp.stack([of_g * abs(self.u), of_g])
        return Misfit(abs(jnp.sum(terms, 1)), jnp.sum(abs(terms), 1), jnp.sum(rounding, 1))

    def settled(self, point):
        return point.x

    def objective(self, point):
        margin = point.values
        losses = self.likely * jax.nn.softplus(-margin) + (1 - self.likely) * jax.nn.softplus(margin)
        return jnp.sum(self.weights * losses)

    def _gradient(self, margin):
        return self.weights * (jax.nn.sigmoid(margin) - self.likely)

    def _curvature(self, margin):
        return self.weights * jax.nn.sigmoid(margin) * jax.nn.sigmoid(-margin)


class Isotonic(eqx.Module):
    """A rising function, linear between the values it was fitted at and constant beyond."""

    values: Float[Array, " n"] = data()
    probabilities: Float[Array, " n"] = data()

    def __call__(self, f: ArrayLike) -> Float[Array, "*n"]:
        """Probabilities of decision values."""
        f = jnp.asarray(f)  # not jnp.interp, to which values closer than 1e-16 are the same
        left = jnp.clip(jnp.searchsorted(self.values, f, side="right") - 1, 0)
        right = jnp.minimum(left + 1, len(self.values) - 1)
        gap = self.values[right] - self.values[left]
        part = jnp.clip((f - self.values[left]) / jnp.where(gap > 0, gap, 1), 0, 1)
        return self.probabilities[left] + part * (self.probabilities[right] - self.probabilities[left])


def isotonic(f: ArrayLike, y: ArrayLike, *, weights: ArrayLike | None = None) -> Isotonic:
    """The rising function of decision values f (n,) that is closest, in weighted squares, to the frequency of y = +1.

    `p_i = max_{j <= i} min_{k >= i} mean(y_j, ..., y_k)` over the sorted values (Robertson, Wright & Dykstra 1988,
    section 1.4); equal values share one. Time and memory O(n^2). The values must be of points that were not learned from.

    Raises ValueError for bad shapes or values, MemoryBudgetError.
    """
    f, y, weights = _checked(f, y, weights)
    check_memory(f, verb="isotonic")
    return _isotonic(f, y, weights)


@compiled
def _isotonic(f, y, weights):
    order = jnp.argsort(f)
    values, w = f[order], weights[order]
    first = jnp.searchsorted(values, values, side="left")  # blocks begin and end between different values
    last = jnp.searchsorted(values, values, side="right") - 1
    between = _sums_between(w)[first][:, last]
    means = _sums_between(jnp.where(y[order] > 0, w, 0))[first][:, last] / jnp.where(between > 0, between, 1)
    rows = jnp.arange(len(f))
    over = jnp.where(between > 0, means, jnp.where(rows[None, :] >= rows[:, None], jnp.inf, 0))
    smallest = lax.cummin(over, axis=1, reverse=True)
    largest = lax.cummax(jnp.where(rows[:, None] <= rows[None, :], smallest, -jnp.inf), axis=0)
    probabilities = jnp.clip(jnp.diagonal(largest), 0, 1)
    kept = jnp.maximum(lax.cummax(jnp.where(w > 0, rows, -1)), jnp.argmax(w > 0))  # the last point of weight up to each one
    return Isotonic(values[kept], jnp.where(jnp.isfinite(jnp.sum(y)), probabilities[kept], jnp.nan))


def _sums_between(w: Float[Array, " n"]) -> Float[Array, "n n"]:
    """`w_i + ... + w_j` for i <= j, zero otherwise, each added up by itself: a difference of cumulative sums would lose small
    weights beside large ones that came before.
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
    """The decision value at each point of the machine that was fitted without it, (n,).

    A point that is no support vector changes nothing by leaving. For the others the machine is fitted again with weight zero
    there, from where the full one stands. Arguments are those of `svm`; NaN where a fit failed.

    Raises ValueError as `svm` does, and where leaving one point out would leave one class; as `svm` where the full fit fails,
    unless `throw=False`: then all values are NaN.
    """
    kernel, X, _ = prepare_stacks(kernel, X)
    n, dtype = count(X), dtype_of(X)
    weights, C = as_weights(weights, n, dtype), as_scalar(C, dtype, "C", PENALTY)
    if np.ndim(y) != 1:
        raise ValueError(f"y must have shape ({n},), but has shape {np.shape(y)}: leave out for each column")
    solution = svm(kernel, X, y, C, weights=weights, bias=bias, solver=solver, throw=throw)
    full = solution.value
    y = as_signs(y, len(full.coefficients), full.coefficients.dtype, weights)
    w = jnp.ones_like(y) if weights is None else weights
    for sign in (-1, 1):
        if is_concrete(y, w) and np.sum((np.asarray(y) == sign) & (np.asarray(w) > 0)) < 2:
            raise ValueError(f"each class needs two points of positive weight, but {sign:+d} has fewer")
    inside = jax.vmap(full)(full.points)
    values = jnp.where(full.coefficients == 0, inside, _left_out(full, y, C, w, bias, solver))
    return jnp.where(solution.result == RESULTS.successful, values, jnp.nan)


@compiled
def _left_out(full, y, C, weights, bias, solver):
    def value(i, point):
        rest = weights.at[i].set(0)
        solution = svm(full.kernel, full.points, y, C, weights=rest, bias=bias, solver=solver, start=full, throw=False)
        return jnp.where(solution.result == RESULTS.successful, solution.value(point), jnp.nan)

    def some(matters, i, point):
        return lax.cond(matters, value, lambda i, point: jnp.zeros_like(y, shape=()), i, point)

    supports = full.coefficients != 0
    # Support vectors first.
    order = lax.top_k(supports.astype(y.dtype), len(y))[1]  # not argsort, which shard_map takes for the same everywhere
    points = jax.tree.map(lambda leaf: leaf[order], full.points)
    return jnp.zeros_like(y).at[order].set(lax.map(lambda place: some(*place), (supports[order], order, points)))


def _checked(f: ArrayLike, y: ArrayLike, weights: ArrayLike | None):
    shape = np.shape(f)
    if len(shape) != 1 or not shape[0]:
        raise ValueError(f"f must hold decision values, shape (n,), but has shape {shape}")
    f = as_targets(f, shape[0], dtype_of(as_stack(f, "f")), "f")
    weights = as_weights(weights, len(f), f.dtype)
    y = as_signs(y, len(f), f.dtype, weights)
    if y.ndim != 1:
        raise ValueError(f"y must have shape ({len(f)},), but has shape {y.shape}: make one fit for each column")
    return f, y, jnp.ones_like(y) if weights is None else weights
