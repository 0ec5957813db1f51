"""Adagrad in explicit features, with a rate for each weight."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import matmul
from kernax.core.base.parameters import data, nonnegative, positive
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.losses.loss_functions import AbstractLoss, check_loss_of_number
from kernax.online.averages import as_averaging
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState
from kernax.online.penalties import adaptive_step, grown_root
from kernax.online.primal import PrimalState, check_features, features_for, weights_of_zero

Number = Float[Array, ""]


class AdagradState(AbstractOnlineState):
    """The state of `Adagrad`.

    Attributes:
        primal: the weights and their mean.
        roots: sqrt(G), where G is the sum of the squared gradients, for each weight.
        updates: the number of points whose loss had a slope.

    Examples:
        >>> kernel = kernax.FeatureMap(lambda x: jnp.array([1.0, x[0]]))
        >>> learner = kernax.online.Adagrad(kernax.losses.Hinge(), kernel)
        >>> learner.init(jnp.zeros(1)).roots
        Array([0., 0.], dtype=float64)
    """

    primal: PrimalState
    roots: Float[Array, " D"] = data()
    updates: Int[Array, ""] = data()

    @property
    def weights(self) -> Float[Array, " D"]:
        """The weights of the features after the last step."""
        return self.primal.weights

    @property
    def function(self):
        return self.primal.function

    @property
    def result(self):
        return self.primal.result


class Adagrad(AbstractOnlineLearner):
    """Adagrad in explicit features: `w <- w - rate g / sqrt(G)` with `g = L'(y, f) phi(x)` and G
    the sum of all `g^2`, the present one included.

    Each weight of the explicit features, `f = w . phi(x)`, has its own rate, which is larger where
    gradients were rare or small; nothing is added to the root, and 0 / 0 is 0. With penalties the
    new w is the minimiser over v of `g.v + l1 |v|_1 + ridge/2 |v|^2 + 1/(2 rate) (v - w).sqrt(G) (v
    - w)`: `v = soft(h w - g, l1) / (h + ridge)`, `h = sqrt(G) / rate`, with the soft threshold
        `sign(a) max(|a| - l1, 0)`. The penalties do not enter g and G, and l1 makes weights exactly
        zero.

    Adagrad is not invariant under rotations of the features: with another `phi` of the same kernel
    it learns another function, and it has no dual form. `DualAdagrad` applies Adagrad to the
    coefficients of points instead.

    Attributes:
        loss: any of `kernax.losses`, smooth or piecewise linear.
        kernel: a kernel with explicit features, such as a `FeatureMap`.
        rate: > 0, the length of the first step of each weight.
        ridge, l1: >= 0, the penalties `ridge/2 |w|^2` and `l1 |w|_1` of each step.
        averaging: None for the last function, or a number >= 0, as in a `DualLearner`.

    Source: Duchi, Hazan & Singer 2011: figure 1, composite mirror descent with diagonal matrices
    and delta = 0.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> kernel = kernax.FeatureMap(lambda x: jnp.array([1.0, x[0]]))
        >>> learner = kernax.online.Adagrad(kernax.losses.Hinge(), kernel, rate=0.5)
        >>> kernax.online.run(learner, X, y).value.state.weights.shape
        (2,)
    """

    loss: AbstractLoss
    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    rate: Number = positive(default=0.1)
    ridge: Number = nonnegative(default=0.0)
    l1: Number = nonnegative(default=0.0)
    averaging: Number | None = eqx.field(converter=as_averaging, default=None)

    def __check_init__(self):
        check_loss_of_number(self.loss)
        check_features(self.kernel)

    def init(self, point):
        primal = weights_of_zero(self.kernel, point, self.averaging is not None)
        roots = jnp.zeros_like(primal.weights)
        return AdagradState(primal=primal, roots=roots, updates=primal.updates)

    def update(self, state, x, y):
        features = features_for(self.kernel, x)
        phi = features(x)
        f = matmul(state.weights, phi)
        # g = L'(y, f) phi(x).
        slope = self.loss.derivative(y, f)
        gradient = slope * phi
        # sqrt(G + g^2), and with it v = soft(h w - g, l1) / (h + ridge), h = sqrt(G + g^2) / rate.
        roots = grown_root(state.roots, gradient)
        weights = adaptive_step(state.weights, gradient, roots, self.rate, self.ridge, self.l1)
        primal = state.primal.moved(features, weights, slope != 0, self.averaging)
        return AdagradState(primal=primal, roots=roots, updates=primal.updates), f
