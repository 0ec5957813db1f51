"""Losses `L(y, f)` of a target and a value, element by element. All are convex in f, except
likelihoods with `convex = False`.

A smooth loss has a derivative and a curvature, for Newton's method. A piecewise linear loss has no
curvature, but a dual over a box: `c L(y, f) = max over low <= b <= high of b (t - f) - epsilon |b|`
for some t, low, high and epsilon.
"""

import abc
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike, ParameterArray
from kernax.core.base.boundary import as_targets
from kernax.core.base.deprecation import renamed
from kernax.core.base.labels import as_ordered, as_signs, as_signs_of_any_class
from kernax.core.base.numerics import is_concrete, values_of
from kernax.core.base.parameters import check_intervals, interval, nonnegative, positive
from kernax.core.base.printing import Printed
from kernax.core.base.special_functions import softplus
from kernax.core.base.weights import AbstractWeights
from kernax.core.losses import quadrature
from kernax.core.losses.quadrature import Values


class AbstractLoss(Printed):
    """A loss `L(y, f)` of a target y and a value f, with the prediction of y from f.

    `targets` is the kind of y: "numbers", "counts", "signs" (-1 and +1), "classes" (one-hot rows),
    or "ordered" (0, 1, ..., `n_classes - 1`). `of_difference` is True if L depends only on
    `y - f`: a large bias is then subtracted from y instead of added to f, and costs no digits.
    """

    targets: ClassVar[Literal["numbers", "counts", "signs", "classes", "ordered"]] = "numbers"
    of_difference: ClassVar[bool] = False

    def __check_init__(self):
        check_intervals(self)

    @property
    def convex(self) -> bool:
        """Whether L is convex in f for every y, so that a risk has one minimum."""
        return True

    @property
    def n_classes(self) -> int:
        """The number of classes if targets are "ordered", otherwise 0."""
        return 0

    @abc.abstractmethod
    def __call__(self, y: Values, f: Values) -> Values:
        """The loss."""

    @abc.abstractmethod
    def derivative(self, y: Values, f: Values) -> Values:
        """The derivative in f; at a kink, one of its subgradients."""

    @abc.abstractmethod
    def response(self, f: Values) -> Values:
        """The inverse link, which converts f to a prediction: a mean, a probability of +1, a
        quantile, or a sign.
        """


class AbstractSmoothLoss(AbstractLoss):
    """A loss with a derivative everywhere and a curvature almost everywhere."""

    @abc.abstractmethod
    def curvature(self, y: Values, f: Values) -> Values:
        """The second derivative in f, >= 0 if the loss is convex."""


class AbstractLikelihood(AbstractSmoothLoss):
    """A negative log likelihood `L(y, f) = -log p(y | f)`, with the moments of y given f.

    L is convex if p is log-concave in f for every y; otherwise `convex` must be False.
    """

    @abc.abstractmethod
    def moments(self, f: Values) -> tuple[Values, Values]:
        """The mean and the variance of y given f."""

    # Integrals over f ~ N(mean, variance) use `nodes` of the trapezoid rule (by default 192 in
    # float64, 96 in float32), unless a likelihood overrides them.

    @renamed(nodes="n_nodes")
    def expected_loss(
        self, y: Values, mean: Values, variance: Values, n_nodes: int | None = None
    ) -> Values:
        """`E[-log p(y | f)]` for `f ~ N(mean, variance)`."""
        return quadrature.expected_loss(self, y, mean, variance, n_nodes)

    @renamed(nodes="n_nodes")
    def log_normaliser(
        self, y: Values, mean: Values, variance: Values, n_nodes: int | None = None
    ) -> Values:
        """`log E p(y | f)` for `f ~ N(mean, variance)`: the predicted log density of y."""
        return quadrature.log_normaliser(self, y, mean, variance, n_nodes)

    @renamed(nodes="n_nodes")
    def predicted_moments(
        self, mean: Values, variance: Values, n_nodes: int | None = None
    ) -> tuple[Values, Values]:
        """The mean and the variance of y for `f ~ N(mean, variance)`."""
        return quadrature.predicted_moments(self, mean, variance, n_nodes)

    def bounded_loss(self, y: Values, mean: Values, variance: Values) -> Values:
        """An upper bound of `E[-log p(y | f)]` for `f ~ N(mean, variance)`, exact if the likelihood
        is log-concave; it increases with the variance. Raises ValueError if no bound is known.
        """
        if not self.convex:
            raise ValueError(
                f"{type(self).__name__} is not log-concave, and no bound of its expected loss is "
                "known: use a log-concave likelihood"
            )
        return self.expected_loss(y, mean, variance)

    # The location of the nodes of the trapezoid rule.

    def turn(
        self, y: Values, mean: Values, unit: Values, ends: tuple[Values, Values]
    ) -> tuple[Values, Values]:
        """The location and the width of the turn of the loss between two ends, from the mean."""
        return quadrature.turn(self, y, mean, unit, ends)

    def window(self, y: Values, mean: Values, variance: Values) -> tuple[Values, Values]:
        """The ends, as distances from the mean, beyond which `p(y | f) N(f | mean, variance)` is
        negligible compared with its mode.
        """
        return quadrature.window(self, y, mean, variance)


class AbstractPiecewiseLinearLoss(AbstractLoss):
    """A piecewise linear loss, with a dual over a box."""

    @abc.abstractmethod
    def box(self, y: Values, c: Values) -> tuple[Values, Values, Values, Values]:
        """The parameters `(t, low, high, epsilon)` of the dual of `c L(y, f)`.

        `c L(y, f) = max over low <= b <= high of b (t - f) - epsilon |b|`.
        """


def check_one_number(value: Array, name: str, advice: str) -> None:
    """Raises ValueError for a parameter that is not one number."""
    shape = jnp.shape(value)
    if shape:
        raise ValueError(f"{name} must be one number, but has the shape {shape}: {advice}")


_ONE_FIT_EACH = "fit several with jax.vmap"


class Squared(AbstractSmoothLoss):
    """`1/2 (y - f)^2`.

    Examples:
        >>> loss = kernax.losses.Squared()
        >>> float(loss(jnp.array(3.0), jnp.array(1.0)))
        2.0
    """

    of_difference = True

    def __call__(self, y, f):
        return (y - f) ** 2 / 2

    def derivative(self, y, f):
        return f - y

    def curvature(self, y, f):
        return jnp.ones_like(f)

    def response(self, f):
        return f


class Huber(AbstractSmoothLoss):
    """`1/2 r^2` for `|r| <= delta`, `r = y - f`, else `delta (|r| - delta / 2)` (Huber 1964).

    Raises ValueError for a delta that is not one positive number.

    Examples:
        >>> loss = kernax.losses.Huber(delta=1.0)
        >>> float(loss(jnp.array(0.5), jnp.array(0.0))), float(loss(jnp.array(3.0), jnp.array(0.0)))
        (0.125, 2.5)
    """

    of_difference = True
    delta: Float[ParameterArray, ""] = positive(default=1.0)

    def __check_init__(self):
        check_one_number(self.delta, "delta", _ONE_FIT_EACH)

    def __call__(self, y, f):
        r = abs(y - f)
        return jnp.where(r <= self.delta, r * r / 2, self.delta * (r - self.delta / 2))

    def derivative(self, y, f):
        return jnp.clip(f - y, -self.delta, self.delta)

    def curvature(self, y, f):
        return jnp.where(abs(y - f) <= self.delta, jnp.ones_like(f), 0)

    def response(self, f):
        return f


class Logistic(AbstractLikelihood):
    """`log(1 + exp(-y f))`, y = -1 or +1: `-log p(y)` with `p(+1) = 1 / (1 + exp(-f))`.

    Examples:
        >>> loss = kernax.losses.Logistic()
        >>> round(float(loss(jnp.array(1.0), jnp.array(0.0))), 3)  # log 2
        0.693
        >>> round(float(jax.grad(loss, argnums=1)(jnp.array(1.0), jnp.array(0.0))), 3)
        -0.5
    """

    targets = "signs"

    def __call__(self, y, f):
        return softplus(-y * f)

    def derivative(self, y, f):
        return -y * jax.nn.sigmoid(-y * f)

    def curvature(self, y, f):
        return jax.nn.sigmoid(f) * jax.nn.sigmoid(-f)

    def response(self, f):
        return jax.nn.sigmoid(f)

    def moments(self, f):
        return jnp.tanh(f / 2), 4 * jax.nn.sigmoid(f) * jax.nn.sigmoid(-f)

    @renamed(nodes="n_nodes")
    def predicted_moments(self, mean, variance, n_nodes=None):
        one = jnp.ones_like(mean)
        # E y = p(+1) - p(-1), and Var y = 1 - (E y)^2 = 4 p(+1) p(-1).
        up = jnp.exp(self.log_normaliser(one, mean, variance, n_nodes))
        down = jnp.exp(self.log_normaliser(-one, mean, variance, n_nodes))
        return up - down, 4 * up * down


Bernoulli = Logistic  # its name as a likelihood
NAMES_OF_LIKELIHOODS = {Logistic: "Bernoulli"}  # where they are not those of the classes


class SquaredHinge(AbstractSmoothLoss):
    """`max(0, 1 - y f)^2`, y = -1 or +1.

    Examples:
        >>> loss = kernax.losses.SquaredHinge()
        >>> float(loss(jnp.array(1.0), jnp.array(0.5)))
        0.25
    """

    targets = "signs"

    def __call__(self, y, f):
        return jnp.maximum(1 - y * f, 0) ** 2

    def derivative(self, y, f):
        return -2 * y * jnp.maximum(1 - y * f, 0)

    def curvature(self, y, f):
        return jnp.where(y * f < 1, 2 * jnp.ones_like(f), 0)

    def response(self, f):
        return jnp.sign(f)


class Poisson(AbstractLikelihood):
    """`exp(f) - y f + log y!` for counts y >= 0: `-log p(y)` for a mean of exp(f).

    Examples:
        >>> loss = kernax.losses.Poisson()
        >>> round(float(loss(jnp.array(2.0), jnp.log(3.0))), 3)  # -log of 3^2 exp(-3) / 2!
        1.496
    """

    targets = "counts"

    def __call__(self, y, f):
        return jnp.exp(f) - y * f + jax.lax.lgamma(y + 1)

    def derivative(self, y, f):
        return jnp.exp(f) - y

    def curvature(self, y, f):
        return jnp.exp(f)

    def response(self, f):
        return jnp.exp(f)

    def moments(self, f):
        return jnp.exp(f), jnp.exp(f)

    @renamed(nodes="n_nodes")
    def expected_loss(self, y, mean, variance, n_nodes=None):
        # E exp(f) = exp(mean + variance / 2).
        return jnp.exp(mean + variance / 2) - y * mean + jax.lax.lgamma(y + 1)

    @renamed(nodes="n_nodes")
    def predicted_moments(self, mean, variance, n_nodes=None):
        centre = jnp.exp(mean + variance / 2)
        # E y = E exp(f) and Var y = E exp(f) + Var exp(f), where Var exp(f) = (E exp(f))^2 (exp(v)
        # - 1).
        return centre, centre + centre**2 * jnp.expm1(variance)


class Hinge(AbstractPiecewiseLinearLoss):
    """`max(0, 1 - y f)`, y = -1 or +1: the loss of the support vector machine.

    Examples:
        >>> loss = kernax.losses.Hinge()
        >>> y, f = jnp.array(1.0), jnp.array([0.25, 2.0])
        >>> jax.vmap(loss, (None, 0))(y, f)
        Array([0.75, 0.  ], dtype=float64)
    """

    targets = "signs"

    def __call__(self, y, f):
        return jnp.maximum(1 - y * f, 0)

    def derivative(self, y, f):
        return jnp.where(y * f < 1, -y, 0)

    def box(self, y, c):
        # The largest b (y - f) for b between 0 and c y, since y (y - f) = 1 - y f.
        return y, jnp.where(y > 0, 0, -c), jnp.where(y > 0, c, 0), jnp.zeros((), y.dtype)

    def response(self, f):
        return jnp.sign(f)


class Absolute(AbstractPiecewiseLinearLoss):
    """`|y - f|`, for medians.

    Examples:
        >>> loss = kernax.losses.Absolute()
        >>> float(loss(jnp.array(3.0), jnp.array(1.0)))
        2.0
    """

    def __call__(self, y, f):
        return abs(y - f)

    def derivative(self, y, f):
        return jnp.sign(f - y)

    def box(self, y, c):
        return y, -c, c, jnp.zeros((), y.dtype)

    def response(self, f):
        return f


class Pinball(AbstractPiecewiseLinearLoss):
    """`tau (y - f)` for y >= f, else `(1 - tau) (f - y)`: the loss for the tau-quantile.

    See Koenker & Bassett 1978. Raises ValueError for a tau that is not one number between 0 and 1.

    Examples:
        >>> loss = kernax.losses.Pinball(tau=0.75)
        >>> float(loss(jnp.array(3.0), jnp.array(1.0))), float(loss(jnp.array(1.0), jnp.array(3.0)))
        (1.5, 0.5)
    """

    tau: Float[ParameterArray, ""] = interval(0.0, 1.0, default=0.5)

    def __check_init__(self):
        check_one_number(self.tau, "tau", _ONE_FIT_EACH)

    def __call__(self, y, f):
        return jnp.maximum(self.tau * (y - f), (self.tau - 1) * (y - f))

    def derivative(self, y, f):
        return jnp.where(y > f, -self.tau, 1 - self.tau)

    def box(self, y, c):
        # The largest b (y - f) for b between the slopes c (tau - 1) and c tau of the loss in y - f.
        return y, (self.tau - 1) * c, self.tau * c, jnp.zeros((), y.dtype)

    def response(self, f):
        return f


class EpsilonInsensitive(AbstractPiecewiseLinearLoss):
    """`max(0, |y - f| - epsilon)`: the loss of support vector regression.

    Raises ValueError for an epsilon that is not one number >= 0.

    Examples:
        >>> loss = kernax.losses.EpsilonInsensitive(epsilon=0.5)
        >>> y, f = jnp.array(3.0), jnp.array([1.0, 2.75])
        >>> jax.vmap(loss, (None, 0))(y, f)
        Array([1.5, 0. ], dtype=float64)
    """

    epsilon: Float[ParameterArray, ""] = nonnegative(default=0.1)

    def __check_init__(self):
        check_one_number(self.epsilon, "epsilon", _ONE_FIT_EACH)

    def __call__(self, y, f):
        return jnp.maximum(abs(y - f) - self.epsilon, 0)

    def derivative(self, y, f):
        return jnp.where(abs(y - f) > self.epsilon, jnp.sign(f - y), 0)

    def box(self, y, c):
        return y, -c, c, self.epsilon

    def response(self, f):
        return f


def slopes_far_out(
    loss: AbstractSmoothLoss, y: Values, size: Array | None = None
) -> tuple[Values, Values]:
    """The slopes `L'(y, f)` at `f = -16 (1 + size)` and `16 (1 + size)`, the size |y| by default.

    A loss has its minimum at a finite f if the first is not positive and the second not negative.
    If it decreases forever, its slope there is 1e-7 of that at zero: small, but without underflow
    to zero.
    """
    far = jnp.broadcast_to(16 * (1 + (abs(y) if size is None else size)), y.shape)
    down, up = jax.vmap(loss.derivative, (None, 0))(y, jnp.stack([-far, far]))
    return down, up


def check_convex(function_name: str, loss: AbstractLoss, instead: str = "") -> None:
    """Raises ValueError for a loss that may have several minima."""
    if not loss.convex:
        name = type(loss).__name__
        raise ValueError(
            f"{function_name} needs a convex loss, such as a log-concave likelihood, and {name} is "
            f"not one{instead}"
        )


def check_loss_of_number(loss: object) -> None:
    """Raises ValueError for anything but a loss of one value f."""
    if not isinstance(loss, AbstractLoss):
        advice = ""
        if isinstance(loss, type) and issubclass(loss, AbstractLoss):
            advice = f": call it, as in {loss.__name__}()"
        raise ValueError(f"loss must be one of kernax.losses, but is {loss!r}{advice}")
    if loss.targets == "classes":
        raise ValueError(
            f"loss must be one of a single number f, but is {type(loss).__name__}: learn a column "
            "of signs for each class, with jax.vmap"
        )


def as_targets_of(
    loss: AbstractLoss,
    y: ArrayLike,
    n: int,
    dtype: Any,
    weights: AbstractWeights,
    *,
    both_signs: bool = True,
) -> Array:
    """Targets of the kind that a loss needs. With `both_signs`, both signs must occur."""
    if loss.targets == "signs":
        return as_signs(y, n, dtype, weights) if both_signs else as_signs_of_any_class(y, n, dtype)
    if loss.targets == "ordered":
        return as_ordered(y, n, dtype, loss.n_classes)
    targets = as_targets(y, n, dtype)
    if loss.targets == "numbers":
        return targets
    if is_concrete(targets) and np.any(values_of(targets) < 0):
        raise ValueError(
            f"y must hold counts >= 0 for {type(loss).__name__}, but holds "
            f"{np.min(values_of(targets)):g}"
        )
    return jnp.where(targets >= 0, targets, jnp.nan)
