"""Scores of classifiers: accuracy, log loss and area under the ROC curve."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_targets, as_weights
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import is_concrete
from kernax.core.base.solution import warn
from kernax.core.base.special_functions import softplus
from kernax.core.base.weights import AbstractWeights
from kernax.metrics.arguments import (
    Score,
    common_dtype,
    finite_or_nan,
    known_targets,
    mean_of_rows,
    row_count,
)


def accuracy(y: ArrayLike, values: ArrayLike, *, weights: ArrayLike | None = None) -> Score:
    """The share of rows whose class is predicted correctly.

    A single value predicts a class by its sign, several values by the largest of them.

    Arguments:
        y: classes, -1 and +1 (n,) or one-hot (n, c).
        values: predictions in the shape of y. For a probability p of +1 pass `p - 1/2` or the log
            odds. Among equal values the first class is predicted, which is -1 for two classes.
        weights: (n,), nonnegative; default, one each.

    The accuracy is piecewise constant, so its gradient is zero. Warns of single values that look
    like probabilities. Raises ValueError for other shapes, for y that are not classes, values that
    are not finite, and weights that are negative or all zero.

    Examples:
        >>> y, values = jnp.array([1.0, -1.0, 1.0, 1.0]), jnp.array([0.3, -2.0, -0.1, 5.0])
        >>> float(kernax.metrics.accuracy(y, values))
        0.75
    """
    y, values, w = _classes(y, values, weights)
    if y.ndim == 1:
        _warn_of_probabilities(y, values, "p - 1/2")
    return _accuracy(y, values, w)


@compiled
def _accuracy(y, values, weights):
    known = jnp.isfinite(y) & jnp.isfinite(values)  # all of them, except while tracing
    if y.ndim == 1:
        right = (values > 0) == (y > 0)
    else:
        known = jnp.all(known, 1)
        right = jnp.argmax(values, 1) == jnp.argmax(y, 1)
    return mean_of_rows(jnp.where(known, right.astype(y.dtype), jnp.nan), weights)


def log_loss(y: ArrayLike, values: ArrayLike, *, weights: ArrayLike | None = None) -> Score:
    """The mean of `-log p(class of row i)`, in nats.

    It is the mean of `log(1 + exp(-y_i f_i))` for log odds f of two classes, and that of
    `log(sum_c exp f_ic) - f_ik` for the values of several classes, where k is the class of row i.

    Arguments:
        y: classes, -1 and +1 (n,) or one-hot (n, c).
        values: predictions of logistic or softmax regression, in the shape of y. For probabilities
            p pass `log(p / (1 - p))` for two classes, and `log p` for several.
        weights: (n,), nonnegative; default, one each.

    Warns of values that look like probabilities. Raises ValueError for other shapes, for y that are
    not classes, values that are not finite, and weights that are negative or all zero.

    Examples:
        >>> y, log_odds = jnp.array([1.0, -1.0]), jnp.array([0.0, 0.0])
        >>> round(float(kernax.metrics.log_loss(y, log_odds)), 3)  # log 2
        0.693
    """
    y, values, w = _classes(y, values, weights)
    _warn_of_probabilities(y, values, "log(p / (1 - p))" if y.ndim == 1 else "log(p)")
    return _log_loss(y, values, w)


@compiled
def _log_loss(y, values, weights):
    if y.ndim == 1:
        return mean_of_rows(softplus(-y * values), weights)
    return mean_of_rows(-jnp.sum(y * jax.nn.log_softmax(values), 1), weights)


def area_under_curve(y: ArrayLike, values: ArrayLike, *, weights: ArrayLike | None = None) -> Score:
    """The probability that a row of class +1 has a larger value than one of class -1.

    It is the area under the ROC curve, of the true over the false positive rate. Equal values count
    one half.

    Arguments:
        y: classes, -1 and +1 (n,), with rows of positive weight in both.
        values: (n,), on any scale: only their order counts.
        weights: (n,), nonnegative; default, one each.

    It takes `n log n` operations. It is piecewise constant, so its gradient is zero. Raises
    ValueError for other shapes, for y that are not two classes, values that are not finite, and
    weights that are negative or all zero.

    Examples:
        >>> y, values = jnp.array([1.0, -1.0, 1.0, -1.0]), jnp.array([0.9, 0.1, 0.4, 0.6])
        >>> float(kernax.metrics.area_under_curve(y, values))  # 3 of 4 pairs are in order
        0.75
    """
    y, values, w = _classes(y, values, weights)
    if y.ndim != 1:
        raise ValueError(
            f"y must have shape (n,), two classes, but has shape {y.shape}: take one column of "
            "2 * Y - 1, and of the values, for each class against the rest"
        )
    known = known_targets(y, w)
    if known is not None and np.all(known == known[0]):
        raise ValueError(f"y holds one class only, {known[0]:+g}: two are needed")
    return _area(y, values, w)


@compiled
def _area(y, values, weights):
    # While tracing, y is NaN where it is not a class, and values are unchecked.
    w = jnp.where(jnp.isfinite(y) & jnp.isfinite(values), weights.values, jnp.nan)
    # The weights of each class are zero in rows of the other class.
    negative = jnp.where(y < 0, w, 0)
    positive = jnp.where(y < 0, 0, w)
    values, negative, positive = lax.sort((values, negative, positive), num_keys=1)
    total = jnp.cumsum(negative)
    # Rows with equal values count together: each gets the sum of the negative weights before the
    # first of them, and the sum up to the last.
    differs = values[1:] != values[:-1]
    is_first = jnp.concatenate([jnp.ones_like(differs, shape=1), differs])
    is_last = jnp.concatenate([differs, jnp.ones_like(differs, shape=1)])
    below = lax.cummax(jnp.where(is_first, total - negative, 0))
    up_to = lax.cummin(jnp.where(is_last, total, jnp.inf), reverse=True)
    # area = sum_i positive_i (below_i + up_to_i) / 2 / (sum positive * sum negative)
    return jnp.sum(positive * (below + up_to) / 2) / (jnp.sum(positive) * total[-1])


def _classes(
    y: ArrayLike, values: ArrayLike, weights: ArrayLike | None
) -> tuple[Float[Array, "n *c"], Float[Array, "n *c"], AbstractWeights]:
    """Classes, NaN for a traced row that is not one, values of the same shape, and weights, all of
    one dtype.
    """
    dtype = common_dtype(y, values)
    n = row_count(y, "y")
    y = as_targets(y, n, dtype)
    values = finite_or_nan(as_targets(values, n, dtype, "values"))
    if y.shape != values.shape:
        raise ValueError(
            f"y and values must have one shape, (n,) for two classes or (n, c) for several, but "
            f"have shapes {y.shape} and {values.shape}"
        )
    if y.ndim == 2 and y.shape[1] == 1:
        raise ValueError(
            f"y and values must have shape (n,) for two classes, but have shape {y.shape}: pass "
            "y[:, 0] and values[:, 0]"
        )
    checked_weights = as_weights(weights, n, dtype)
    if not is_concrete(y):
        return jnp.where(_are_classes(y), y, jnp.nan), values, checked_weights
    known = np.asarray(y)
    good = np.broadcast_to(_are_classes(known), known.shape).reshape(n, -1)[:, 0]
    if not good.all():
        first = int(np.argmin(good))
        raise ValueError(
            f"y must hold -1 and +1, or one 1 and zeros in each row, but row {first} is "
            f"{known[first]}: see kernax.signs and kernax.one_hot"
        )
    return y, values, checked_weights


def _are_classes(y: Any) -> Any:
    """Whether each row is a sign (n,), or holds one 1 and zeros (n, 1)."""
    if y.ndim == 1:
        return abs(y) == 1
    return ((y == 0) | (y == 1)).all(1, keepdims=True) & (y.sum(1, keepdims=True) == 1)


def _warn_of_probabilities(y: Array, values: Array, instead: str) -> None:
    """Warns if concrete values look like probabilities: one of each class, all of them in [0, 1]
    and on both sides of 1/2, or rows of several that sum to one.
    """
    if not is_concrete(y) or not is_concrete(values):
        return
    known = np.asarray(values)
    if known.min() < 0 or known.max() > 1:
        return
    if y.ndim == 2:
        alike = np.allclose(known.sum(1), 1, atol=1e-3)
    else:
        alike = known.min() < 0.5 < known.max() and len(np.unique(np.asarray(y))) == 2
    if alike:
        warn(
            f"values look like probabilities, because all of them are in [0, 1]: pass {instead} "
            "in place of probabilities p",
            UserWarning,
        )
