"""Rules: how one more point changes a function, `f <- shrink f + coefficient k(x, .)`.

A rule gets the value f(x), the target y and k(x, x), but never the points. The same rule therefore
learns in any space, by coefficients of points or by weights of features, with the same predictions.
No rule learns a bias: add a constant to the kernel for that.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.functions import as_module
from kernax.core.base.numerics import eps_of, is_concrete, positive_or_one
from kernax.core.base.parameters import check_intervals, nonnegative, positive
from kernax.core.base.printing import Printed
from kernax.core.losses.loss_functions import (
    AbstractLoss,
    EpsilonInsensitive,
    Hinge,
    Squared,
    check_loss_of_number,
)
from kernax.online.learner import as_part

Number = Float[Array, ""]


class Move(Printed):
    """The change of a function at a point: `f <- shrink f + coefficient k(x, .)`.

    Examples:
        >>> move = kernax.online.Perceptron().move(*jnp.array([1.0, -0.2, 1.0, 1.0]))
        >>> float(move.shrink), float(move.coefficient)
        (1.0, 1.0)
    """

    shrink: Number
    coefficient: Number


class AbstractRule(Printed):
    """How a function changes at a point.

    Attributes:
        loss: one of `kernax.losses`, the loss of predictions.
    """

    loss: eqx.AbstractVar[Any]

    def __check_init__(self):
        check_intervals(self)

    @abc.abstractmethod
    def move(self, step: Number, f: Number, y: Number, square: Number) -> Move:
        """The change at a point.

        Arguments:
            step: the number of this point in the stream: 1, 2, ...
            f: the value of the function at the point.
            y: the target of the point.
            square: `k(x, x)`.
        """


def as_rule(rule: Any) -> Any:
    """The rule, unchanged. Raises ValueError for anything else."""
    known = "one of kernax.online's rules, such as Perceptron()"
    return as_part(rule, AbstractRule, "rule", known)


class Perceptron(AbstractRule):
    """The perceptron: adds `rate y k(x, .)` for a mistake, `y f(x) <= 0` (Rosenblatt 1958).

    If a function f* has `y_i f*(x_i) >= 1` at every point, there are at most
    `max_i k(x_i, x_i) |f*|^2` mistakes, whatever the rate and the order (Novikoff 1962). Its loss
    is the hinge.

    Examples:
        >>> rule = kernax.online.Perceptron(rate=0.5)
        >>> one = jnp.array(1.0)
        >>> float(rule.move(one, jnp.array(-0.2), one, one).coefficient)  # a mistake
        0.5
        >>> float(rule.move(one, jnp.array(0.2), one, one).coefficient)
        0.0
    """

    rate: Number = positive(default=1.0)

    @property
    def loss(self):
        return Hinge()

    def move(self, step, f, y, square):
        # A step along the subgradient of max(0, -y f(x)), where f(x) = 0 is a mistake.
        return Move(jnp.ones_like(f), jnp.where(y * f <= 0, self.rate * y, 0))


class MarginPerceptron(AbstractRule):
    """The perceptron with a margin: adds `rate y k(x, .)` where `y f(x) <= margin`.

    See Duda & Hart 1973, section 5.5. The loss is the hinge.

    Examples:
        >>> rule = kernax.online.MarginPerceptron(margin=1.0)
        >>> one = jnp.array(1.0)
        >>> float(rule.move(one, jnp.array(0.2), one, one).coefficient)  # right, within the margin
        1.0
    """

    margin: Number = nonnegative(default=1.0)
    rate: Number = positive(default=1.0)

    @property
    def loss(self):
        return Hinge()

    def move(self, step, f, y, square):
        # A step along the subgradient of max(0, margin - y f(x)), the kink included.
        return Move(jnp.ones_like(f), jnp.where(y * f <= self.margin, self.rate * y, 0))


def _check_has_unit_slopes(loss: AbstractLoss) -> None:
    if not isinstance(loss, Hinge | EpsilonInsensitive):
        raise ValueError(
            "a passive-aggressive rule takes Hinge() or EpsilonInsensitive(...), but loss is "
            f"{type(loss).__name__}: StochasticGradient takes any loss"
        )


class PassiveAggressiveI(AbstractRule):
    """The passive-aggressive rule PA-I: adds `-L' min(C, L / k(x, x)) k(x, .)`, where L is the loss
    of the prediction and L' its slope.

    Unless C bounds the step, it leads to the nearest function that has loss zero at the point
    (Crammer et al. 2006, PA-I: figures 1 and 3). The loss is the hinge, for y = -1 and +1, or
    `EpsilonInsensitive`, for numbers; a very large C gives the algorithm without that bound, PA.

    Examples:
        >>> rule = kernax.online.PassiveAggressiveI(C=1.0)
        >>> one = jnp.array(1.0)
        >>> float(rule.move(one, jnp.array(0.25), one, one).coefficient)  # the hinge loss
        0.75
    """

    C: Number = positive(default=1.0)
    loss: AbstractLoss = Hinge()

    def __check_init__(self):
        _check_has_unit_slopes(self.loss)

    def move(self, step, f, y, square):
        # A step changes f(x) by length k(x, x), and L, which has slope one, by as much: to zero at
        # the length L / k(x, x). If k(x, x) = 0, no step changes the loss.
        step_to_zero = jnp.where(square > 0, self.loss(y, f) / positive_or_one(square), 0)
        length = jnp.minimum(self.C, step_to_zero)
        return Move(jnp.ones_like(f), -self.loss.derivative(y, f) * length)


class PassiveAggressiveII(AbstractRule):
    """The passive-aggressive rule PA-II: adds `-L' L / (k(x, x) + 1 / (2 C)) k(x, .)`, where L is
    the loss and L' its slope.

    It leads to the minimiser g of `1/2 |g - f|^2 + C L(y, g(x))^2` (Crammer et al. 2006, PA-II).
    The loss is the hinge, for y = -1 and +1, or `EpsilonInsensitive`, for numbers.

    Examples:
        >>> rule = kernax.online.PassiveAggressiveII(C=1.0)
        >>> one = jnp.array(1.0)
        >>> float(rule.move(one, jnp.array(0.25), one, one).coefficient)  # 0.75 / (1 + 1/2)
        0.5
    """

    C: Number = positive(default=1.0)
    loss: AbstractLoss = Hinge()

    def __check_init__(self):
        _check_has_unit_slopes(self.loss)

    def move(self, step, f, y, square):
        # length^2 k(x, x) / 2 + C (L - length k(x, x))^2 is least at L / (k(x, x) + 1 / (2 C)).
        length = self.loss(y, f) / (square + 1 / (2 * self.C))
        return Move(jnp.ones_like(f), -self.loss.derivative(y, f) * length)


class LeastMeanSquares(AbstractRule):
    """Kernel least mean squares (LMS): adds `rate (y - f(x)) k(x, .)`; in explicit features,
    Adaline.

    See Widrow & Hoff 1960; Liu, Pokharel & Principe 2008. It converges in the mean for a rate below
    `2 / max k(x, x)`. The loss is `1/2 (y - f)^2`.

    Examples:
        >>> rule = kernax.online.LeastMeanSquares(rate=0.5)
        >>> one = jnp.array(1.0)
        >>> float(rule.move(one, jnp.array(0.5), one, one).coefficient)  # rate (y - f)
        0.25
    """

    rate: Number = positive(default=0.1)

    @property
    def loss(self):
        return Squared()

    def move(self, step, f, y, square):
        # The gradient of 1/2 (y - f(x))^2 in f is -(y - f(x)) k(x, .).
        return Move(jnp.ones_like(f), self.rate * (y - f))


class ConstantRate(Printed):
    """The same `rate` at every step.

    Examples:
        >>> rate = kernax.online.ConstantRate(0.5)
        >>> float(rate(jnp.array(4.0)))
        0.5
    """

    rate: Number = positive()

    def __check_init__(self):
        check_intervals(self)

    def __call__(self, step: Number) -> Number:
        return self.rate


class DecayingRate(Printed):
    """The rate `first / step^power` at step 1, 2, ...

    `DecayingRate(1 / ridge, 1.0)` is the rate of Pegasos (Shalev-Shwartz, Singer & Srebro 2007).

    Examples:
        >>> rate = kernax.online.DecayingRate(first=1.0, power=0.5)
        >>> float(rate(jnp.array(4.0)))
        0.5
    """

    first: Number = positive()
    power: Number = nonnegative(default=0.5)

    def __check_init__(self):
        check_intervals(self)

    def __call__(self, step: Number) -> Number:
        return self.first / step**self.power


def _as_rate(rate: Any) -> Any:
    return as_module(rate, "rate") if callable(rate) else ConstantRate(rate)


class StochasticGradient(AbstractRule):
    """Stochastic gradient descent: `f <- (1 - rate ridge) f - rate L'(y, f(x)) k(x, .)` at each
    point.

    The step descends `L(y, f(x)) + ridge/2 |f|^2` in the kernel's space. With the hinge this is
    NORMA (Kivinen, Smola & Williamson 2004) with a fixed margin and without a bias; with the rate
    `DecayingRate(1 / ridge, 1.0)` as well, it is Pegasos without its projection. Summed over n
    points, the objective is the risk of `regularised_risk` with n times this ridge.

    Attributes:
        loss: any of `kernax.losses`, smooth or piecewise linear; at a kink one of its slopes is
            used.
        ridge: >= 0.
        rate: a number, or a function of the step 1, 2, ..., such as a `DecayingRate`. A plain
            function is static: reuse the object, or `run` compiles again. `rate * ridge` must not
            exceed 1, beyond which f would change its sign: such a number raises ValueError, and a
            function with such a value makes f NaN.

    Examples:
        >>> loss, rate = kernax.losses.Squared(), kernax.online.ConstantRate(0.5)
        >>> rule = kernax.online.StochasticGradient(loss, ridge=0.1, rate=rate)
        >>> one = jnp.array(1.0)
        >>> move = rule.move(one, jnp.array(0.5), one, one)
        >>> float(move.shrink), float(move.coefficient)
        (0.95, 0.25)
    """

    loss: AbstractLoss
    ridge: Number = nonnegative(default=0.0)
    rate: Callable = eqx.field(converter=_as_rate, default=0.1)

    def __check_init__(self):
        check_loss_of_number(self.loss)
        if isinstance(self.rate, ConstantRate) and is_concrete(self.rate, self.ridge):
            product = self.rate.rate * self.ridge
            # The product with a reciprocal may be rounded to either side of one.
            if jnp.any(product > 1 + 8 * eps_of(product)):
                raise ValueError(
                    f"rate * ridge must not exceed 1, but is {float(jnp.max(product)):g}: f would "
                    "change its sign at each step; take a smaller rate"
                )

    def move(self, step, f, y, square):
        # The gradient of L(y, f(x)) + ridge/2 |f|^2 in f is L'(y, f(x)) k(x, .) + ridge f.
        rate = jnp.asarray(self.rate(step), f.dtype)
        shrink = 1 - rate * self.ridge
        # 1 - (1 / ridge) ridge may be rounded to either side of zero.
        may_be_zero = shrink > -8 * eps_of(f.dtype)
        shrink = jnp.where(may_be_zero, jnp.maximum(shrink, 0), jnp.nan)
        return Move(shrink, -rate * self.loss.derivative(y, f))
