"""Mistake bounds of online learners, and the costs of the primal and the dual form."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import (
    as_numbers,
    as_point,
    as_scalar,
    as_stack,
    cast,
    count,
    dtype_of,
)
from kernax.core.base.intervals import NONNEGATIVE, POSITIVE, REAL
from kernax.core.base.numerics import dot, is_concrete, matmul, positive_or_one
from kernax.core.base.parameters import check_count
from kernax.core.base.weights import UnitWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.linear import LinearFunction
from kernax.core.losses.loss_functions import Hinge, as_targets_of
from kernax.core.operators.feature_map import FeatureMap
from kernax.core.operators.gram import gram_diagonal
from kernax.online.learner import kind_in_words

Function = KernelExpansion | LinearFunction


def margin(f: Function, X: PyTree, y: ArrayLike) -> Float[Array, ""]:
    """The margin `min_i y_i f(x_i) / |f|`: the distance in feature space from `f = 0` to the
    nearest point.

    It is negative where f does not separate the classes, and then belongs to the point farthest on
    the wrong side.

    Arguments:
        f: a function with one output, a `KernelExpansion` or the function of a primal learner. Its
            bias counts in the values, not in the norm.
        X, y: n points, and a label -1 or +1 for each, (n,). All may belong to one class.

    The margin is differentiable, and NaN for the function zero. Raises ValueError for any other
    function, and for shapes and targets that do not fit. Source: Novikoff 1962.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> f = kernax.kernel_perceptron(kernax.RBF(0.3), X, y).value
        >>> bool(kernax.online.margin(f, X, y) > 0)
        True
    """
    _check_function(f)
    return jnp.min(_signed_values(f, X, y)) / f.norm


def perceptron_bound(f: Function, X: PyTree, y: ArrayLike) -> Float[Array, ""]:
    """Novikoff's bound on the mistakes of a perceptron: `max_i k(x_i, x_i) |f|^2 / delta^2` with
    `delta = min_i y_i f(x_i)`.

    This is `(R / gamma)^2` for the radius R of the points and the `margin` gamma of f, which may be
    any function that separates the classes. However often and in whichever order the points come, a
    perceptron with the same kernel and threshold zero makes no more mistakes (Novikoff 1962).

    Arguments:
        f: a function with one output, as for `margin`, without a bias; a constant in the kernel
            replaces the bias.
        X, y: a batch of n points, and a label -1 or +1 for each, (n,).

    The bound is inf if f has the wrong sign at a point, or is zero there. Raises ValueError for a
    bias, for any other function, and for shapes and targets that do not fit.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> solution = kernax.kernel_perceptron(kernax.RBF(0.3), X, y)
        >>> bound = kernax.online.perceptron_bound(solution.value, X, y)
        >>> int(solution.stats["mistakes"]) <= float(bound)
        True
    """
    _check_function(f)
    values = _signed_values(f, X, y)
    if is_concrete(f.bias) and np.asarray(f.bias) != 0:
        raise ValueError(
            f"perceptron_bound takes functions without a bias, but that of f is {float(f.bias):g}: "
            "add a constant to the kernel instead"
        )
    delta = jnp.min(values)
    square_of_radius = jnp.max(gram_diagonal(f.kernel, cast(as_stack(X, "X"), delta.dtype)))
    # With g = f / delta, y_i g(x_i) >= 1. After M mistakes of a perceptron h, each of which adds
    # y_i k(x_i, .), <h, g> >= M and |h|^2 <= M R^2, so that M <= |h| |g| <= sqrt(M) R |g|.
    # `norm^2 / delta^2` is inf unless f separates the points: delta is positive.
    separates = delta > 0
    over_square = jnp.where(separates, (f.norm / jnp.where(separates, delta, 1)) ** 2, jnp.inf)
    bound = square_of_radius * over_square
    return jnp.where(f.bias == 0, bound, jnp.nan)


def _check_function(f: Any) -> None:
    """Raises ValueError for anything but a function that a learner returns."""
    if not isinstance(f, Function):
        raise ValueError(
            "f must be a function that was learned, such as run(...).value.function, but is "
            f"{kind_in_words(f)}"
        )


def _signed_values(f: Function, X: PyTree, y: ArrayLike) -> Float[Array, " n"]:
    """`y_i f(x_i)` of checked points and targets."""
    if f.bias.ndim != 0:
        raise ValueError(f"f must have one output, but its bias has shape {f.bias.shape}")
    return _signs(y, count(as_stack(X, "X")), f.bias.dtype) * f.values(X)


def _signs(y: ArrayLike, n: int, dtype: Any) -> Float[Array, " n"]:
    """Targets -1 and +1, possibly all of one sign."""
    signs = as_targets_of(Hinge(), y, n, dtype, UnitWeights(n, np.dtype(dtype)), both_signs=False)
    if signs.ndim != 1:
        raise ValueError(f"y must have shape ({n},), but has shape {signs.shape}")
    return signs


def winnow_bound(
    u: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    *,
    balanced: bool = False,
    rate: ArrayLike | None = None,
) -> Float[Array, ""]:
    """A bound on the mistakes of `NormalisedWinnow`: `2 ln(d) |u|_1^2 X_inf^2 / delta^2`, with ln(2
    d) if balanced.

    Here `delta = min_i y_i u.x_i` for any weights u that separate the classes, and `X_inf` is the
    largest `|x_ij|`. The bound of the perceptron has Euclidean norms instead: it is larger if few
    of many features matter, and smaller if points are sparse and all features matter.

    Arguments:
        u: weights (d,), nonnegative unless balanced.
        X, y: points (n, d), and a label -1 or +1 for each, (n,).
        balanced: whether the learner has a negative weight for each positive one.
        rate: eta, the rate of the learner. The default is the best one, `delta / (|u|_1 X_inf^2)`;
            for any other the bound is `ln(d) / (eta gamma - eta^2 X_inf^2 / 2)`, `gamma = delta /
            |u|_1`.

    The result is inf if u is on the wrong side of a point, and if the rate is so large that there
    is no bound. Raises ValueError for bad shapes and targets, for a negative weight without
    `balanced`, and for a rate that is not positive. Source: Kivinen & Warmuth 1997; Grove,
    Littlestone & Schuurmans 2001, section 5. The relative entropy of `u / |u|_1` to the weights
    falls by at least `eta gamma - eta^2 X_inf^2 / 2` with every mistake, by Hoeffding's lemma, and
    starts at no more than `ln d`.

    Examples:
        >>> X = jnp.array([[1.0, 0.0, 1.0], [-1.0, 1.0, 0.0]])
        >>> y = jnp.array([1.0, -1.0])
        >>> round(float(kernax.online.winnow_bound(jnp.array([1.0, 0.0, 0.0]), X, y)), 3)  # 2 log 3
        2.197
    """
    points = as_stack(X, "X")
    if not eqx.is_array(points) or points.ndim != 2:
        came = f"has shape {points.shape}" if eqx.is_array(points) else "is not a single array"
        raise ValueError(f"X must be vectors (n, d), d the number of weights, but {came}")
    # Weights of the features of X, in its dtype, nonnegative unless balanced.
    d = points.shape[1]
    weights = as_numbers(u, points.dtype, "u", REAL)
    if len(weights) != d:
        raise ValueError(
            f"u must have shape ({d},), one weight for each column of X, but has shape "
            f"{weights.shape}"
        )
    if not balanced:
        if is_concrete(weights) and np.any(np.asarray(weights) < 0):
            raise ValueError(
                f"u must not be negative, but holds {np.min(weights):g}: balanced=True has weights "
                "of both signs"
            )
        weights = NONNEGATIVE.guarded(weights)
    signs = _signs(y, len(points), weights.dtype)
    # gamma = min_i y_i u.x_i / |u|_1, and X_inf^2 = (max_ij |x_ij|)^2.
    gamma = jnp.min(signs * matmul(points, weights)) / positive_or_one(jnp.sum(abs(weights)))
    square = jnp.max(abs(points)) ** 2
    # The progress eta gamma - eta^2 X_inf^2 / 2 is largest at eta = gamma / X_inf^2; 1 is a finite
    # stand-in for gamma where u does not separate the classes.
    best = jnp.where(gamma > 0, gamma, 1) / square
    eta = best if rate is None else as_scalar(rate, weights.dtype, "rate", POSITIVE)
    # The number of mistakes is at most entropy / progress. At the best rate the progress is
    # gamma^2 / (2 X_inf^2).
    progress = eta * gamma - eta**2 * square / 2
    # The relative entropy to uniform weights is at most ln d, or ln 2 d for both signs.
    entropy = math.log(len(weights) * (2 if balanced else 1))
    return jnp.where(progress > 0, entropy / positive_or_one(progress), jnp.inf)


def disjunction_bound(
    relevant: int, n: int, *, promotion: float = 2.0, threshold: float | None = None
) -> float:
    """A bound on the mistakes of `Winnow` on disjunctions: `p (1 + a) + n a / (theta (a - 1))` with
    `p = k (1 + log_a(theta))`.

    There are n features that are 0 or 1, and targets are +1 where at least one of k relevant
    features is 1. With the promotion a = 2 and the threshold theta = n the bound is `2 + 3 k (1 +
    log2 n)`.

    Arguments:
        relevant: k, at most n.
        n: the number of features.
        promotion, threshold: those of the learner, a > 1 and theta >= 1. The default threshold is
            n.

    Raises ValueError for other numbers. Source: Littlestone 1988. A promotion multiplies a relevant
    weight that was at most theta, so that there are at most p of them; each adds at most `(a - 1)
    theta` to the sum of all weights, which starts at n, and a demotion takes at least `(1 - 1 / a)
    theta` from it.

    Examples:
        >>> float(kernax.online.disjunction_bound(2, 16))  # 2 + 3 * 2 * (1 + 4)
        32.0
    """
    k = check_count(relevant, "relevant")
    theta = float(n if threshold is None else threshold)
    if k > check_count(n, "n"):
        raise ValueError(f"relevant must be at most n = {n}, but is {k}")
    if not promotion > 1:
        raise ValueError(f"promotion must be greater than 1, but is {promotion}")
    if not theta >= 1:
        raise ValueError(f"threshold must be at least 1, but is {theta:g}")
    # The sum of all weights stays positive: with p promotions and d demotions
    # 0 <= n + p (a - 1) theta - d (1 - 1 / a) theta, so that d <= n a / (theta (a - 1)) + p a. The
    # mistakes are p + d.
    promotions = k * (1 + math.log(theta) / math.log(promotion))
    return promotions * (1 + promotion) + n * promotion / (theta * (promotion - 1))


class Costs(NamedTuple):
    """The cost of one prediction in the dual and in the primal form, in a common unit: `costs`
    counts operations.

    Attributes:
        kernel: t1, the cost of one kernel evaluation `k(x, x_i)`.
        features: t2, the cost of the explicit features of x and their product with the weights; inf
            for a kernel without explicit features.

    Examples:
        >>> costs = kernax.online.Costs(kernel=10.0, features=100.0)
        >>> costs.prefers_dual(vectors=5), costs.break_even
        (True, 10.0)
    """

    kernel: float
    features: float

    def prefers_dual(self, vectors: int) -> bool:
        """Whether `t1 m < t2`, so that a sum over m vectors costs less than all features."""
        return self.kernel * vectors < self.features

    @property
    def break_even(self) -> float:
        """The number of vectors `t2 / t1` below which the dual form costs less."""
        return self.features / self.kernel


def costs(
    kernel: AbstractKernel, x: PyTree, features: Callable[[PyTree], Array] | None = None
) -> Costs:
    """The number of floating point operations of one prediction, in the dual and in the primal
    form, as XLA counts them.

    Arguments:
        kernel: the kernel that the dual form evaluates.
        x: a point, which gives shapes and dtypes.
        features: a function of a point, `k(x, z) = features(x) . features(z)`, that the primal form
            evaluates; default, the explicit features of the kernel, if it has any.

    A transcendental function counts as one operation, and the body of a loop counts once, so that
    kernels of strings cost more than this says. Memory traffic does not count.

    Examples:
        >>> kernel = kernax.FeatureMap(lambda x: jnp.array([1.0, x[0]]))
        >>> costs = kernax.online.costs(kernel, jnp.zeros(1))
        >>> costs.features > 0
        True
    """
    x = as_point(x)
    kernel = cast(kernel, dtype_of(x))
    phi = kernel.explicit_features() if features is None else FeatureMap(features).features
    of_kernel = _operations(kernel, x, x)
    if phi is None:
        return Costs(of_kernel, math.inf)

    def of_weights(point: PyTree, w: Array) -> Array:
        return dot(phi(point), w)

    return Costs(of_kernel, _operations(of_weights, x, eqx.filter_eval_shape(phi, x)))


def _operations(function: Any, *arguments: Any) -> float:
    counted = jax.jit(lambda *parts: function(*parts)).lower(*arguments).cost_analysis() or {}
    return max(1.0, counted.get("flops", 0.0) + counted.get("transcendentals", 0.0))
