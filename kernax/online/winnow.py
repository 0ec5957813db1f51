"""Winnow in its plain, balanced and normalised forms, and exponentiated gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.functions import function_field
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import above, data, positive, real
from kernax.core.losses.loss_functions import AbstractLoss, Hinge, Squared, check_loss_of_number
from kernax.online.learner import AbstractOnlineLearner, as_number_if_given, check_stream
from kernax.online.multiplicative import Identity, features_at, sign_of_mistake, weights_of_one

Number = Float[Array, ""]


def _as_threshold(threshold: Any) -> Any:
    words = "threshold must be None, for n, or a number > 0"
    return as_number_if_given(threshold, POSITIVE, words)


class Winnow(AbstractOnlineLearner):
    """Winnow: multiplies weights, `w_i <- w_i a^(y phi_i(x))`, on a mistake, `y (w . phi(x) -
    theta) <= 0`, starting from `w_i = 1`.

    If few of many features matter it makes far fewer mistakes than a perceptron. If targets are +1
    where one of k relevant features among n is 1, it makes at most `2 + 3 k (1 + log2 n)` mistakes
    with a = 2 and theta = n: see `disjunction_bound`. Weights are positive, so that no feature is
    evidence for -1, unlike in `BalancedWinnow`. The loss is the hinge.

    Attributes:
        promotion: a > 1.
        threshold: theta > 0; None for n, the number of features.
        features: a function of a point, (n,) numbers between 0 and 1; default, the point itself.

    `run` raises ValueError for features below 0 or above 1; if they are traced, its status is
    `RESULTS.nonfinite`. Source: Littlestone 1988 (Winnow2).

    Examples:
        >>> X = jnp.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> y = jnp.array([1.0, -1.0, 1.0, -1.0])  # the first of three features
        >>> progress = kernax.online.run(kernax.online.Winnow(), X, y).value
        >>> progress.state.weights
        Array([4., 2., 2.], dtype=float64)
    """

    promotion: Number = above(1.0, default=2.0)
    threshold: Number | None = data(converter=_as_threshold, default=None)
    features: Callable = function_field(default=Identity())

    @property
    def loss(self):
        return Hinge()

    def init(self, point):
        n = eqx.filter_eval_shape(features_at, self.features, point).size
        theta = float(n) if self.threshold is None else self.threshold
        return weights_of_one(
            self.features, point, balanced=False, base=self.promotion, bias=-theta
        )

    def update(self, state, x, y):
        phi = features_at(self.features, x)
        phi = jnp.where((phi >= 0) & (phi <= 1), phi, jnp.nan)
        f = state.at(phi)
        # w_i <- w_i a^(y phi_i(x)) if y f(x) <= 0.
        return state.multiplied(self.features, phi, sign_of_mistake(f, y)), f


@check_stream.register
def _(learner: Winnow, X: PyTree) -> None:
    """Raises ValueError for features that are known to lie outside of 0 to 1."""
    if not is_concrete(learner.features, X):
        return
    phi = np.asarray(jax.vmap(partial(features_at, learner.features))(X))
    outside = np.flatnonzero((phi < 0) | (phi > 1))
    if outside.size:
        row = int(outside[0]) // phi.shape[1]
        raise ValueError(
            f"Winnow takes features between 0 and 1, but those of point {row} hold "
            f"{phi.ravel()[outside[0]]:g}: divide by the largest, or use BalancedWinnow if some "
            "are negative"
        )


class BalancedWinnow(AbstractOnlineLearner):
    """Balanced Winnow: `w+_i <- w+_i a^(y phi_i(x))` and `w-_i <- w-_i a^(-y phi_i(x))` on a
    mistake.

    The function is `f(x) = (w+ - w-) . phi(x) - theta`, all weights are one at first, and a mistake
    is `y f(x) <= 0`. Features may have both signs, and be evidence for either class. Weights grow
    exponentially in the features: scale these to about 1. The loss is the hinge.

    Attributes:
        promotion: a > 1.
        threshold: theta.
        features: a function of a point, (n,) numbers; default, the point itself.

    Source: Littlestone 1988, 1989.

    Examples:
        >>> X = jnp.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> y = jnp.array([1.0, -1.0, 1.0, -1.0])
        >>> progress = kernax.online.run(kernax.online.BalancedWinnow(), X, y).value
        >>> progress.mistakes.shape
        (4,)
    """

    promotion: Number = above(1.0, default=2.0)
    threshold: Number = real(default=0.0)
    features: Callable = function_field(default=Identity())

    @property
    def loss(self):
        return Hinge()

    def init(self, point):
        return weights_of_one(
            self.features, point, balanced=True, base=self.promotion, bias=-self.threshold
        )

    def update(self, state, x, y):
        phi = features_at(self.features, x)
        f = state.at(phi)
        # w+_i <- w+_i a^(y phi_i(x)), w-_i <- w-_i a^(-y phi_i(x)) if y f(x) <= 0.
        return state.multiplied(self.features, phi, sign_of_mistake(f, y)), f


class NormalisedWinnow(AbstractOnlineLearner):
    """Normalised Winnow: `w_i <- w_i exp(eta y phi_i(x)) / Z` on a mistake, `y w . phi(x) <= 0`,
    with weights that sum to one.

    With the rate `delta / (|u|_1 X^2)` it makes at most `2 ln(n) |u|_1^2 X^2 / delta^2` mistakes,
    if weights u >= 0 have `y u . phi(x) >= delta` and X is the largest `|phi_i(x)|`: see
    `winnow_bound`. The balanced form, with the features and their negatives, allows u of both
    signs, with ln(2 n). This is the exponentiated gradient for the loss of the perceptron; the loss
    of this class is the hinge.

    Attributes:
        rate: eta > 0.
        balanced: whether there is a negative weight for each positive one.
        features: a function of a point, (n,) numbers of any sign; default, the point itself.

    Source: Littlestone 1989; Grove, Littlestone & Schuurmans 2001.

    Examples:
        >>> X = jnp.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> y = jnp.array([1.0, -1.0, 1.0, -1.0])
        >>> progress = kernax.online.run(kernax.online.NormalisedWinnow(rate=0.5), X, y).value
        >>> round(float(progress.state.weights.sum()), 3)
        1.0
    """

    rate: Number = positive(default=0.1)
    balanced: bool = eqx.field(static=True, default=False)
    features: Callable = function_field(default=Identity())

    @property
    def loss(self):
        return Hinge()

    def init(self, point):
        state = weights_of_one(self.features, point, balanced=self.balanced)
        return state.with_total(jnp.ones_like(state.bias))

    def update(self, state, x, y):
        phi = features_at(self.features, x)
        f = state.at(phi)
        # w_i <- w_i exp(eta y phi_i(x)) / Z if y f(x) <= 0, Z such that sum_i w_i = 1.
        moved = state.multiplied(self.features, phi, self.rate * sign_of_mistake(f, y))
        return moved.with_total(jnp.ones_like(f)), f


class ExponentiatedGradient(AbstractOnlineLearner):
    """Exponentiated gradients: `w_i <- U w_i exp(-eta L'(y, f) phi_i(x)) / Z`, `f = w . phi(x)`,
    with weights that sum to U.

    Each step is a step of mirror descent: it minimises the linearised loss plus the relative
    entropy to the previous weights, divided by eta. The balanced form (EG+-) has weights `w+ - w-`
    of norm `|w|_1 <= U`; the other form has positive weights, and predicts averages of the
    features, times U. For `(y - f)^2` Kivinen & Warmuth write `2 eta (f - y)`: their rate is half
    of this one.

    Attributes:
        loss: any of `kernax.losses`.
        rate: eta > 0.
        total: U > 0.
        balanced: whether there is a negative weight for each positive one.
        features: a function of a point, (n,) numbers of any sign; default, the point itself.

    Source: Kivinen & Warmuth 1997, figures 2 and 3.

    Examples:
        >>> X = jnp.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> y = X[:, 0]
        >>> progress = kernax.online.run(kernax.online.ExponentiatedGradient(rate=0.5), X, y).value
        >>> int(progress.state.weights.argmax())
        0
    """

    loss: AbstractLoss = Squared()
    rate: Number = positive(default=0.1)
    total: Number = positive(default=1.0)
    balanced: bool = eqx.field(static=True, default=False)
    features: Callable = function_field(default=Identity())

    def __check_init__(self):
        check_loss_of_number(self.loss)

    def init(self, point):
        state = weights_of_one(self.features, point, balanced=self.balanced)
        return state.with_total(self.total)

    def update(self, state, x, y):
        phi = features_at(self.features, x)
        f = state.at(phi)
        # w_i <- U w_i exp(-eta L'(y, f) phi_i(x)) / Z, Z such that sum_i w_i = U.
        moved = state.multiplied(self.features, phi, -self.rate * self.loss.derivative(y, f))
        return moved.with_total(self.total), f
