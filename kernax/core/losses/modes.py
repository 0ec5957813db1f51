"""The minimum of a smooth convex loss plus half a squared norm, by Newton's method."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import traced_once
from kernax.core.base.numerics import matmul, positive_or_one, stop_gradient, tree_where
from kernax.core.base.powers import times_power_of_two
from kernax.core.base.solution import RESULTS, first_that_holds, void_unless_known
from kernax.core.base.weights import AbstractWeights, PointWeights, in_common_unit
from kernax.core.linalg.factorisation import AbstractFactor, WeightedSystem
from kernax.core.linalg.linear_solvers import factorise
from kernax.core.linalg.weighted_solve import quotient, without_border
from kernax.core.losses.loss_functions import AbstractSmoothLoss, slopes_far_out
from kernax.core.losses.newton import AbstractImplicitProblem, Iterate, minimum
from kernax.core.losses.stationarity import (
    rounding_of_coefficients,
    rounding_of_values,
    slope_of_risk,
    stationarity_of,
    unseen,
    values_at_points,
)
from kernax.core.operators.operators import AbstractGram, is_finite


class Mode(NamedTuple):
    """The minimiser of a smooth risk."""

    coefficients: Float[Array, " n"]
    bias: Float[Array, ""]
    result: Any
    stats: dict[str, Array]


def newton_fit(
    gram: AbstractGram,
    y: Float[Array, " n"],
    loss: AbstractSmoothLoss,
    ridge: Float[Array, ""],
    weights: AbstractWeights,
    bias: bool,
    *,
    start: Float[Array, " m"] | None = None,
    rtol: ArrayLike | None = None,
    max_steps: ArrayLike = 500,
) -> Mode:
    """The minimiser of `sum_i w_i L(y_i, f_i) + ridge/2 a.K a`, `f = K a + b`.

    Without a bias b is 0. `start` holds coefficients and bias near the minimum, if they are known.
    The result is differentiable in all other arrays, to any order. With the loss `-log p(y | f)`
    and ridge 1 it is the mode of the posterior of a Gaussian process.
    """
    w = weights.values
    unit = None
    if weights.given is not None:
        w, ridge, unit = in_common_unit(w, ridge)
    risk = _SmoothRisk(gram, y, loss, ridge, w, bias, stop_gradient(start))
    x, result, stats = minimum(risk, rtol=rtol, max_steps=max_steps)
    if unit is not None:
        stats = stats | {"objective": times_power_of_two(stats["objective"], unit)}
    # Whether all numbers of a problem are finite.
    parameters = sum(map(jnp.sum, jax.tree.leaves(risk.loss)), jnp.zeros_like(risk.ridge))
    total = risk.ridge + jnp.sum(risk.weights) + jnp.sum(risk.y) + parameters
    is_known = jnp.isfinite(total) & is_finite(risk.gram)
    statuses = (
        (~is_known, RESULTS.nonfinite),
        (_has_no_minimum(y, loss, ridge, w, bias), RESULTS.diverged),
    )
    result = first_that_holds(statuses, result)
    x = void_unless_known(x, result)
    return Mode(x[:-1], x[-1], result, stats)


def _has_no_minimum(
    y: Float[Array, " n"],
    loss: AbstractSmoothLoss,
    ridge: Float[Array, ""],
    weights: Float[Array, " n"],
    bias: bool,
) -> Bool[Array, ""]:
    """Whether the risk decreases forever, so that its slope would only become zero by underflow.

    The sum of the losses may decrease along the bias, which has no penalty. Without a ridge a
    single loss may decrease.
    """
    present = weights > 0
    alone = (ridge == 0) & jnp.any(present & _falls(*slopes_far_out(loss, y)))
    if not bias:
        return alone
    slopes = slopes_far_out(loss, y, jnp.max(abs(y)))
    return alone | _falls(*(jnp.sum(jnp.where(present, weights * part, 0)) for part in slopes))


def _falls(down: Float[Array, "*n"], up: Float[Array, "*n"]) -> Bool[Array, "*n"]:
    """Whether a convex function with these slopes far to the left and right falls at an end."""
    return ~((down <= 0) & (up >= 0))


class _SmoothRisk(AbstractImplicitProblem):
    """`sum_i w_i L(y_i, f_i) + ridge/2 a.K a`, `f = K a + b`, as a function of x = (a, b).

    With `g = w L'(y, f)` and `h = w L''(y, f)`, its minimum is where `ridge a + g = 0` and, with a
    bias, `sum g = 0`, which together make `sum a = 0`.
    """

    gram: AbstractGram
    y: Float[Array, " n"]
    loss: AbstractSmoothLoss
    ridge: Float[Array, ""]
    weights: Float[Array, " n"]
    bias: bool = eqx.field(static=True)
    near: Float[Array, " m"] | None = None  # an x near the minimum, if one is known

    def start(self):
        far = self._without_a_guess()
        if self.near is None:
            return far
        near = self.at(self.near)
        # A start that is worse than the default, or NaN, is ignored.
        return tree_where(self.objective(near) < self.objective(far), near, far)

    def _without_a_guess(self) -> Iterate:
        bias = jnp.zeros_like(self.y[0])
        if self.bias and self.loss.targets == "numbers":
            # Far from all targets the curvatures of the Huber loss are zero.
            bias = _median(self.y, self.weights)
        nothing = jnp.zeros_like(self.y)
        return Iterate(jnp.append(nothing, bias), nothing)

    def values(self, x):
        return values_at_points(self.gram, x[:-1])

    def correction(self, point):
        # (H K + ridge) d = -(ridge a + g) - h d_b, and sum (a + d) = 0 with a bias. This is IRLS
        # written as a correction, so that an error of the solve, jitter included, costs a step but
        # no digits. There is no division by h.
        residuals = self.equations(point)
        # If all curvatures are zero, the bias follows the gradient sum g = sum (ridge a + g) -
        # ridge sum a.
        of_bias = jnp.sum(residuals[:-1]) - self.ridge * residuals[-1]
        downhill = -of_bias / jnp.sum(self.weights)
        return self._system(point).factored().solve(-residuals, downhill)

    def equations(self, point):
        # ridge a + g = 0, and sum a = 0 with a bias, otherwise b = 0.
        a = point.x[:-1]
        g = self._gradient(*self._compared(point))
        return jnp.append(self.ridge * a + g, jnp.sum(a) if self.bias else point.x[-1])

    def solve(self, point, rhs):
        system = self._system(point)
        fixed = stop_gradient(system).factored()
        return lax.custom_linear_solve(
            system.apply,
            rhs,
            lambda _, r: fixed.solve(r),
            lambda _, r: fixed.solve_transposed(r),
        )

    def _system(self, point: Iterate) -> "_NewtonSystem":
        h = self._curvature(*self._compared(point))
        return _NewtonSystem(WeightedSystem.of(self.gram, PointWeights(h), self.ridge), self.bias)

    def slope_along(self, point, direction):
        y, f = self._compared(point)
        d = direction[:-1]
        gradient = partial(self._gradient, y)
        Kd = self.gram.mv(d)
        return slope_of_risk(gradient, f, self.ridge, point.x[:-1], d, Kd, direction[-1])

    def stationarity(self, point):
        a = point.x[:-1]
        y, f = self._compared(point)
        root = jnp.sqrt(abs(self.gram.diagonal()))
        of_f = rounding_of_values(root, a, point.x[-1])
        # All gradients in one evaluation, so that the program contains the loss once.
        tried = jnp.stack([f, f + of_f, f - of_f, jnp.zeros_like(f)])
        g, above, below, at_zero = jax.vmap(self._gradient)(jnp.stack([y, y, y, self.y]), tried)
        # The possible error of g if f has the error of_f, to first order and by differences, as the
        # first order is not sufficient for losses with a discontinuous curvature.
        by_differences = jnp.maximum(abs(above - g), abs(below - g))
        of_g = jnp.maximum(self._curvature(y, f) * of_f, by_differences)
        of_g = of_g + rounding_of_coefficients(self.ridge)
        share = unseen(self.gram, f.dtype)
        return stationarity_of(root, self.ridge * a, g, of_g, abs(at_zero), self.bias, share)

    def settled(self, point):
        # The coefficients that satisfy ridge a + g = 0. If K is singular to rounding, f is the same
        # for these and for others.
        x = point.x
        known = self.ridge > 0
        a = -self._gradient(*self._compared(point)) / jnp.where(known, self.ridge, 1)
        return jnp.append(jnp.where(known, a, x[:-1]), x[-1])

    def objective(self, point):
        losses = self.loss(self.y, point.values + point.x[-1])
        weighted = jnp.where(self.weights > 0, self.weights * losses, 0)  # 0 times inf is NaN
        # Use units of the largest coefficient, because terms may overflow to inf and -inf.
        a = point.x[:-1]
        largest = positive_or_one(jnp.max(abs(a)))
        # a.K a = largest (a / largest).f.
        square = matmul(a / largest, point.values) * largest
        return jnp.sum(weighted) + self.ridge / 2 * square

    def _compared(self, point):
        """y and f; both without the bias if the loss depends only on their difference."""
        bias = point.x[-1]
        if self.loss.of_difference:
            return self.y - bias, point.values
        return self.y, point.values + bias

    def _gradient(self, y, f):
        """`g = w L'(y, f)`."""
        return self.weights * self.loss.derivative(y, f)

    def _curvature(self, y, f):
        """`h = w L''(y, f)`."""
        return self.weights * self.loss.curvature(y, f)


class _NewtonSystem(eqx.Module):
    """The matrix `[[H K + ridge, h], [1, 0]]` of the coefficients and the bias, h the curvatures
    and H = diag(h). Without a bias its border is that of the identity.
    """

    inner: WeightedSystem  # T = H K + ridge
    bias: bool = eqx.field(static=True)

    def apply(self, vector: Float[Array, " m"]) -> Float[Array, " m"]:
        """The matrix times a vector, m = n + 1."""
        a = vector[:-1]
        b = vector[-1]
        of_coefficients = self.inner.apply(a[:, None])[:, 0]
        if not self.bias:
            return jnp.append(of_coefficients, b)
        return jnp.append(of_coefficients + self.inner.weights.values * b, jnp.sum(a))

    @traced_once
    def factored(self) -> "_FactoredSystem":
        """The system with a factor of T."""
        # With E = diag(h K_ii + ridge) the symmetric form of E^-1 T has a diagonal of one.
        h = self.inner.weights.values
        entry = positive_or_one(h * self.inner.gram.diagonal() + self.inner.shift)
        scaled = WeightedSystem(self.inner.gram, PointWeights(h / entry), self.inner.shift / entry)
        factor = factorise(scaled.symmetric_form(), jnp.ones_like(entry[0]))
        return _FactoredSystem(h, entry, scaled.with_jitter(factor), factor, self.bias)


class _FactoredSystem(eqx.Module):
    """A `_NewtonSystem` by a factor of `E^-1 T`, where E is the diagonal of T."""

    h: Float[Array, " n"]
    entry: Float[Array, " n"]  # E
    scaled: WeightedSystem  # E^-1 T
    factor: AbstractFactor
    bias: bool = eqx.field(static=True)

    def solve(self, rhs: Float[Array, " m"], otherwise: ArrayLike = 0) -> Float[Array, " m"]:
        """The inverse times a vector; the bias is `otherwise` if all curvatures are zero, and any
        bias is a solution.
        """
        r = rhs[:-1]
        columns = jnp.stack([r, self.h], 1) if self.bias else r[:, None]
        # Columns are scaled by their largest entry, as those of a tiny curvature may overflow.
        columns = columns / self.entry[:, None]
        largest = positive_or_one(jnp.max(abs(columns), 0, keepdims=True))
        solved = self.scaled.solve(self.factor, columns / largest) * largest
        if not self.bias:
            return jnp.append(solved[:, 0], rhs[-1])
        # With u = T^-1 r and v = T^-1 h the solution is a = u - v b, and sum a = total gives b =
        # (sum u - total) / sum v.
        bias_of = partial(quotient, otherwise=otherwise)
        a, b = without_border(solved[:, 0], solved[:, 1], rhs[-1], bias_of=bias_of)
        return jnp.append(a, b)

    def solve_transposed(self, rhs: Float[Array, " m"]) -> Float[Array, " m"]:
        """The transposed inverse times a vector; the bias is zero if all curvatures are."""
        r = rhs[:-1]
        columns = jnp.stack([r, jnp.ones_like(r)], 1) if self.bias else r[:, None]
        solved = self.scaled.solve_transposed(self.factor, columns) / self.entry[:, None]
        if not self.bias:
            return jnp.append(solved[:, 0], rhs[-1])
        # T^T a + 1 b = r and h.a = total, in the same way, with h in its own unit.
        size = positive_or_one(jnp.max(self.h))
        a, b = without_border(solved[:, 0], solved[:, 1], rhs[-1] / size, along=self.h / size)
        return jnp.append(a, b)


def _median(y: Float[Array, " n"], weights: Float[Array, " n"]) -> Float[Array, ""]:
    """The weighted median: at least half of the weight is at y <= it, and half at y >= it."""
    order = jnp.argsort(y)
    below = jnp.cumsum(weights[order])
    return y[order][jnp.searchsorted(below, below[-1] / 2)]
