"""Stochastic gradients in explicit features, with a penalty that makes weights exactly zero."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.parameters import nonnegative
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.online.averages import as_averaging
from kernax.online.learner import AbstractOnlineLearner, as_part
from kernax.online.penalties import soft_threshold
from kernax.online.primal import check_features, moved_by_rule, weights_of_zero
from kernax.online.rules import StochasticGradient

Number = Float[Array, ""]


def _as_gradient(rule: Any) -> Any:
    """The rule, unchanged. Raises ValueError unless it is a `StochasticGradient`."""
    return as_part(rule, StochasticGradient, "rule", "a StochasticGradient(loss, ridge, rate)")


class SparseGradient(AbstractOnlineLearner):
    """Stochastic gradient descent with an L1 penalty, in explicit features: `w <- soft((1 - rate
    ridge) w - rate L'(y, f) phi(x), rate l1)`, `f = w . phi(x)`.

    Each step is a gradient step of a `StochasticGradient`, followed by the soft threshold `sign(a)
    max(|a| - rate l1, 0)`. It descends `L(y, f) + ridge/2 |w|^2 + l1 |w|_1` and makes weights
    exactly zero. With l1 = 0 it is the `PrimalLearner` of the same rule. |w|_1 depends on the
    features that are chosen for a kernel, so that no `DualLearner` makes the same predictions.

    Attributes:
        rule: a `StochasticGradient`, with its loss, ridge and rate.
        kernel: a kernel with explicit features, such as a `FeatureMap`.
        l1: >= 0.
        averaging: None for the last function, or a number >= 0, as in a `DualLearner`. A mean
            weight is zero only where the weight was zero after every step.

    Source: Duchi & Singer 2009 (FOBOS), section 3.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> kernel = kernax.FeatureMap(lambda x: jnp.array([1.0, x[0]]))
        >>> rule = kernax.online.StochasticGradient(kernax.losses.Hinge(), rate=0.5)
        >>> learner = kernax.online.SparseGradient(rule, kernel, l1=0.01)
        >>> kernax.online.run(learner, X, y).value.predictions.shape
        (5,)
    """

    rule: StochasticGradient = eqx.field(converter=_as_gradient)
    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    l1: Number = nonnegative(default=0.0)
    averaging: Number | None = eqx.field(converter=as_averaging, default=None)

    def __check_init__(self):
        check_features(self.kernel)

    @property
    def loss(self):
        return self.rule.loss

    def init(self, point):
        return weights_of_zero(self.kernel, point, self.averaging is not None)

    def update(self, state, x, y):
        return moved_by_rule(self, state, x, y, self._made_sparse)

    def _made_sparse(self, weights: Float[Array, " D"], step: Number) -> Float[Array, " D"]:
        rate = jnp.asarray(self.rule.rate(step), step.dtype)
        # w_i <- sign(w_i) max(|w_i| - rate l1, 0).
        return soft_threshold(weights, rate * self.l1)
