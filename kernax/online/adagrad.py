"""Adagrad in explicit features: a rate for each weight."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kernax.core.boundary import cast, dtype_of
from kernax.core.kernel import AbstractKernel, as_kernel
from kernax.core.losses import AbstractLoss, check_is_loss
from kernax.core.numerics import matmul
from kernax.core.parameters import check_intervals, data, nonnegative, positive
from kernax.core.solution import RESULTS
from kernax.online.averages import as_averaging, moved_average
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState
from kernax.online.linear import FeaturesOf, LinearFunction
from kernax.online.penalties import adaptive_step

Number = Float[Array, ""]
Weights = Float[Array, " D"]


class AdagradState(AbstractOnlineState):
    """What `Adagrad` keeps.

    Attributes:
        features: those of its kernel, in the dtype of the points.
        weights: of the features, after the last step.
        squares: G, the sum of the squared gradients, of each weight.
        average: the mean of the weights over all steps, None where it is not asked for.
        steps: points seen.
        updates: points whose loss had a slope.
    """

    features: FeaturesOf
    weights: Weights = data()
    squares: Weights = data()
    average: Weights | None = data()
    steps: Int[Array, ""]
    updates: Int[Array, ""]

    @property
    def function(self):
        weights = self.weights if self.average is None else self.average
        return LinearFunction(self.features, weights, jnp.zeros_like(weights[0]))

    @property
    def result(self):
        return RESULTS.successful


class Adagrad(AbstractOnlineLearner):
    """`w <- w - rate g / sqrt(G)`, `g = L'(y, f) phi(x)`, and G the sum of all `g^2`, this one too.

    Each weight of the explicit features, `f = w . phi(x)`, has a rate of its own, larger where
    gradients were rare or small; nothing is added to the root, and 0 / 0 is 0. With penalties it
    is the minimiser over v of `g.v + l1 |v|_1 + ridge/2 |v|^2 + 1/(2 rate) (v - w).sqrt(G) (v -
    w)`: `v = soft(h w - g, l1) / (h + ridge)`, `h = sqrt(G) / rate`, with the soft threshold
    `sign(a) max(|a| - l1, 0)`. The penalties are no part of g and G, and l1 makes weights exactly
    zero.

    It is not invariant under rotations of the features: another `phi` of the same kernel learns
    another function, and there is no dual form of it. See `DualAdagrad` for what coefficients of
    points can do instead.

    Attributes:
        loss: any of `kernax.losses`, smooth or piecewise linear.
        kernel: one whose features are known, such as a `FeatureMap`.
        rate: > 0, the length of the first step of each weight.
        ridge, l1: >= 0, the penalties `ridge/2 |w|^2` and `l1 |w|_1` of each step.
        averaging: None for the last function, or a number >= 0, as in a `DualLearner`.

    Source: Duchi, Hazan & Singer 2011: figure 1, composite mirror descent with diagonal matrices
    and delta = 0.
    """

    loss: AbstractLoss
    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    rate: Number = positive(default=0.1)
    ridge: Number = nonnegative(default=0.0)
    l1: Number = nonnegative(default=0.0)
    averaging: Number | None = eqx.field(converter=as_averaging, default=None)

    def __check_init__(self):
        check_is_loss(self.loss)
        check_intervals(self)
        FeaturesOf(self.kernel)  # raises where there are none

    def init(self, point):
        dtype = dtype_of(point)
        features = FeaturesOf(cast(self.kernel, dtype))
        nothing = jnp.zeros(eqx.filter_eval_shape(features, point).shape, dtype)
        return AdagradState(
            features=features,
            weights=nothing,
            squares=nothing,
            average=None if self.averaging is None else nothing,
            steps=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
        )

    def update(self, state, x, y):
        phi = state.features(x)
        f = matmul(state.weights, phi)
        slope = self.loss.derivative(y, f)
        gradient = slope * phi
        squares = state.squares + gradient**2
        weights = adaptive_step(state.weights, gradient, squares, self.rate, self.ridge, self.l1)
        steps = state.steps + 1
        after = AdagradState(
            features=state.features,
            weights=weights,
            squares=squares,
            average=moved_average(state.average, weights, steps, self.averaging),
            steps=steps,
            updates=state.updates + (slope != 0).astype(jnp.int32),
        )
        return after, f
