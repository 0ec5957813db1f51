"""The minimum of the softmax loss plus half a squared norm, by Newton's method with the full
Hessian over all classes.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.powers import times_power_of_two
from kernax.core.base.solution import RESULTS, void_unless_known
from kernax.core.base.weights import in_common_unit
from kernax.core.losses.newton import AbstractImplicitProblem, Iterate, minimum
from kernax.core.losses.softmax_hessian import SoftmaxSystem, balanced, sum_of_others
from kernax.core.losses.stationarity import (
    rounding_of_coefficients,
    rounding_of_values,
    slope_of_risk,
    stationarity_of,
    unseen,
    values_at_points,
)
from kernax.core.operators.operators import AbstractGram, DenseGram, LowRankGram, is_finite


class ClassMode(NamedTuple):
    """The minimiser of a softmax risk."""

    coefficients: Float[Array, "n c"]
    bias: Float[Array, " c"]
    result: Any
    stats: dict[str, Array]


def softmax_fit(
    gram: AbstractGram,
    Y: Float[Array, "n c"],
    offset: Float[Array, "n c"],
    ridge: Float[Array, ""],
    weights: Float[Array, " n"],
    bias: bool,
    *,
    rtol: ArrayLike | None = None,
    max_steps: ArrayLike = 500,
) -> ClassMode:
    """The minimiser of `-sum_i w_i Y_i.log softmax(f_i) + ridge/2 sum_c a_c.K a_c`, `f = offset +
    K a + b`.

    Without a bias b is 0. The result is differentiable in all arrays, to any order. With ridge 1 it
    is the mode of the posterior of Gaussian processes, one for each class.
    """
    weights, ridge, unit = in_common_unit(weights, ridge)
    risk = _SoftmaxRisk(gram, Y, offset, ridge, weights, bias)
    x, result, stats = minimum(risk, rtol=rtol, max_steps=max_steps)
    stats = stats | {"objective": times_power_of_two(stats["objective"], unit)}
    # Whether all numbers of a problem are finite.
    total = risk.ridge + jnp.sum(risk.weights) + jnp.sum(risk.Y) + jnp.sum(risk.offset)
    is_known = jnp.isfinite(total) & is_finite(risk.gram)
    result = RESULTS.where(is_known, result, RESULTS.nonfinite)
    x = void_unless_known(x, result)
    return ClassMode(x[:-1], x[-1], result, stats)


class _SoftmaxRisk(AbstractImplicitProblem):
    """The objective of `softmax_fit`, as a function of x, the coefficients a above the biases b."""

    gram: AbstractGram
    Y: Float[Array, "n c"]
    offset: Float[Array, "n c"]
    ridge: Float[Array, ""]
    weights: Float[Array, " n"]
    bias: bool = eqx.field(static=True)

    def start(self):
        nothing = jnp.zeros_like(self.Y)
        return Iterate(jnp.append(nothing, nothing[:1], 0), nothing)

    def values(self, x):
        return values_at_points(self.gram, x[:-1])

    def at(self, x):
        # Remove the rounding of many steps before evaluation; for a large K this rounds the values
        # again.
        return super().at(balanced(x))

    def correction(self, point):
        return self._system(point).solved(-self.equations(point))[0]

    def equations(self, point):
        # ridge a + g = 0, and sums of ridge a over the points of zero with a bias, or b = 0.
        a = point.x[:-1]
        of_points = self.ridge * a + self._gradient(self._function(point))
        of_bias = self.ridge * jnp.sum(a, 0, keepdims=True) if self.bias else point.x[-1:]
        return jnp.append(of_points, of_bias, 0)

    def solve(self, point, rhs):
        return self._system(point).solve(rhs)

    def _system(self, point):
        P = jax.nn.softmax(self._function(point))
        has_features = isinstance(self.gram, LowRankGram)
        gram = self.gram if has_features else DenseGram(self.gram.as_matrix())
        return SoftmaxSystem(gram, P, self.ridge, self.weights, self.bias)

    def slope_along(self, point, direction):
        d = direction[:-1]
        Kd = self.gram.mv(d)
        f = self._function(point)
        return slope_of_risk(self._gradient, f, self.ridge, point.x[:-1], d, Kd, direction[-1:])

    def stationarity(self, point):
        a = point.x[:-1]
        f = self._function(point)
        P = jax.nn.softmax(f)
        root = jnp.sqrt(abs(self.gram.diagonal()))[:, None]
        added = abs(self.offset) + abs(point.x[-1:])
        of_f = jnp.max(rounding_of_values(root, a, added), 1, keepdims=True)
        # The derivative of g_c in f_c is w P_c (1 - P_c).
        of_g = self.weights[:, None] * P * sum_of_others(P) * of_f
        of_g = of_g + rounding_of_coefficients(self.ridge)
        at_zero = abs(self._gradient(jnp.zeros_like(f)))
        g = self._gradient(f)
        share = unseen(self.gram, f.dtype)
        return stationarity_of(root, self.ridge * a, g, of_g, at_zero, self.bias, share)

    def settled(self, point):
        # ridge a + g = 0.
        a = -self._gradient(self._function(point)) / self.ridge
        return jnp.append(a, point.x[-1:], 0)

    def objective(self, point):
        logs = jax.nn.log_softmax(self._function(point))
        square = jnp.sum(point.x[:-1] * point.values)
        return -jnp.sum(self.weights[:, None] * self.Y * logs) + self.ridge / 2 * square

    def _function(self, point):
        return self.offset + point.values + point.x[-1:]

    def _gradient(self, f):
        P = jax.nn.softmax(f)
        # w (P - Y). For the class of a point P - 1 is minus the sum of the other P, without
        # cancellation.
        return self.weights[:, None] * jnp.where(
            self.Y > 0, -jnp.sum((1 - self.Y) * P, 1, keepdims=True), P
        )
