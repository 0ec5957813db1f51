"""A rule in the explicit features of a kernel: the function is a vector of weights."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax._advice import OF_STATIONARY
from kernax.core.base.boundary import cast, dtype_of
from kernax.core.base.numerics import matmul
from kernax.core.base.parameters import data
from kernax.core.base.solution import RESULTS
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.learner.linear import SUCH_AS, FeaturesOf, LinearFunction, check_has_features
from kernax.online.averages import as_averaging, moved_average
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState
from kernax.online.rules import AbstractRule, as_rule


class PrimalState(AbstractOnlineState):
    """The state of a `PrimalLearner`.

    Attributes:
        features: the features of the learner's kernel, in the dtype of the points.
        weights: the weights of the features after the last step.
        average: their mean over the steps, by `averaging`; None without averaging.
        steps: the number of points seen.
        updates: the number of points that changed the weights.

    Examples:
        >>> kernel = kernax.FeatureMap(lambda x: jnp.array([1.0, x[0]]))
        >>> learner = kernax.online.PrimalLearner(kernax.online.Perceptron(), kernel)
        >>> learner.init(jnp.zeros(1)).weights
        Array([0., 0.], dtype=float64)
    """

    features: FeaturesOf
    weights: Float[Array, " D"] = data()
    average: Float[Array, " D"] | None = data()
    steps: Int[Array, ""] = data()
    updates: Int[Array, ""] = data()

    @property
    def function(self):
        weights = self.weights if self.average is None else self.average
        return LinearFunction(self.features, weights, jnp.zeros_like(weights[0]))

    @property
    def result(self):
        return RESULTS.successful

    def moved(
        self,
        features: FeaturesOf,
        weights: Float[Array, " D"],
        is_moved: Bool[Array, ""],
        averaging: Float[Array, ""] | None,
    ) -> "PrimalState":
        """The state after one more point, with the features and the averaging of the learner."""
        steps = self.steps + 1
        return PrimalState(
            features=features,
            weights=weights,
            average=moved_average(self.average, weights, steps, averaging),
            steps=steps,
            updates=self.updates + is_moved.astype(jnp.int32),
        )


def check_features(kernel: AbstractKernel) -> None:
    """Raises ValueError for a kernel without explicit features."""
    advice = f": use a DualLearner, for any kernel, or {SUCH_AS}, or {OF_STATIONARY}"
    check_has_features(kernel, advice)


def features_for(kernel: AbstractKernel, point: PyTree) -> FeaturesOf:
    """The features of a kernel, in the dtype of a point."""
    return FeaturesOf(cast(kernel, dtype_of(point)))


def weights_of_zero(kernel: AbstractKernel, point: PyTree, is_averaged: bool) -> PrimalState:
    """The state of the function zero, in the features of a kernel, for points like this one."""
    features = features_for(kernel, point)
    weights = jnp.zeros(eqx.filter_eval_shape(features, point).shape, dtype_of(point))
    return PrimalState(
        features=features,
        weights=weights,
        average=weights if is_averaged else None,
        steps=jnp.zeros((), jnp.int32),
        updates=jnp.zeros((), jnp.int32),
    )


def moved_by_rule(
    learner: Any,
    state: PrimalState,
    x: PyTree,
    y: Float[Array, ""],
    afterwards: Callable = lambda weights, step: weights,
) -> tuple[PrimalState, Float[Array, ""]]:
    """The state after one more point, by the rule of a learner with explicit features, and the
    prediction before it.

    Arguments:
        learner: a learner with a `rule`, a `kernel` and its `averaging`.
        afterwards: a function that takes the weights after the rule and the step, and returns the
            weights to keep.
    """
    features = features_for(learner.kernel, x)
    phi = features(x)
    f = matmul(state.weights, phi)
    step = (state.steps + 1).astype(f.dtype)
    # As in a kernel's space, with phi for k(x, .) and phi.phi = k(x, x): the inner products of all
    # functions are those of their weights.
    move = learner.rule.move(step, f, y, matmul(phi, phi))
    # w <- shrink w + coefficient phi(x), and then the penalty, if any.
    weights = afterwards(move.shrink * state.weights + move.coefficient * phi, step)
    return state.moved(features, weights, move.coefficient != 0, learner.averaging), f


class PrimalLearner(AbstractOnlineLearner):
    """Applies an online rule in the explicit features of a kernel: `f = w . phi(x)`, `k(x, z) =
    phi(x).phi(z)`.

    Its predictions equal those of a `DualLearner` without a budget, step by step. A step takes O(D)
    operations for D features, instead of kernel values at all kept points.

    Attributes:
        rule: the rule, such as `Perceptron()`.
        kernel: a kernel with explicit features, such as a `FeatureMap`, or the result of
            `random_fourier_features`.
        averaging: None for the last function, or a number >= 0, as in a `DualLearner`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> kernel = kernax.FeatureMap(lambda x: jnp.array([1.0, x[0]]))
        >>> learner = kernax.online.PrimalLearner(kernax.online.Perceptron(), kernel)
        >>> kernax.online.run(learner, X, y).value.state.weights.shape
        (2,)
    """

    rule: AbstractRule = eqx.field(converter=as_rule)
    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    averaging: Float[Array, ""] | None = eqx.field(converter=as_averaging, default=None)

    def __check_init__(self):
        check_features(self.kernel)

    @property
    def loss(self):
        return self.rule.loss

    def init(self, point):
        return weights_of_zero(self.kernel, point, self.averaging is not None)

    def update(self, state, x, y):
        return moved_by_rule(self, state, x, y)
