"""Scores of predicted numbers, and of the normal distributions that a process predicts."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_targets
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import safe_sqrt
from kernax.core.base.parameters import check_count
from kernax.core.base.powers import in_own_unit
from kernax.core.base.printing import Printed
from kernax.core.base.weights import AbstractWeights
from kernax.metrics.arguments import (
    Score,
    as_inside,
    as_one_per_row,
    as_targets_and_weights,
    mean_of_rows,
)


def root_mean_square_error(
    y: ArrayLike, mean: ArrayLike, *, weights: ArrayLike | None = None
) -> Score:
    """`sqrt(sum_i w_i (y_i - mean_i)^2 / sum_i w_i)`, in the units of y.

    Arguments:
        y: targets (n,).
        mean: predictions, (n,) or one number for all rows.
        weights: (n,), nonnegative; default, one each.

    The gradient is zero where every prediction is exact. Raises ValueError for other shapes, values
    that are not finite, and weights that are negative or all zero.

    Examples:
        >>> y, mean = jnp.array([0.0, 1.0, 2.0, 3.0]), jnp.array([0.0, 1.0, 2.0, 5.0])
        >>> float(kernax.metrics.root_mean_square_error(y, mean))
        1.0
    """
    y, w, dtype = as_targets_and_weights(y, mean, weights=weights)
    return _root_mean_square(y, as_one_per_row(mean, "mean", len(y), dtype), w)


@compiled
def _root_mean_square(y, mean, weights):
    # In units of the largest error, a power of two, squares do not overflow.
    errors = y - mean
    _, unit = in_own_unit(jnp.where(weights.values > 0, errors, 0))
    mean_square = mean_of_rows(_in_units(errors, unit, weights) ** 2, weights)
    return safe_sqrt(mean_square) * unit


def _in_units(errors: Array, units: Array, weights: AbstractWeights) -> Float[Array, " n"]:
    """The errors in these units; zero in rows of weight zero in which a square may overflow. Other
    rows of weight zero keep theirs, on which the derivative in the weight depends.
    """
    reach = float(jnp.finfo(errors.dtype).max) ** 0.25
    counts = (weights.values > 0) | (abs(errors / units) < reach)
    return jnp.where(counts, errors, 0) / units


def negative_log_predictive_density(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike, *, weights: ArrayLike | None = None
) -> Score:
    """The mean of `log(2 pi v_i) / 2 + (y_i - mean_i)^2 / (2 v_i)`, in nats.

    This is minus the log density of the targets under normal distributions of variances v
    (Rasmussen & Williams 2006, section 2.5). It depends on the unit of y: in units that are a times
    as large it is smaller by log a.

    Arguments:
        y: targets (n,).
        mean: predictions, (n,) or one number for all rows.
        variance: positive variances of the targets, (n,) or one number. They are not those of the
            latent function: for a Gaussian process pass `variance + noise`.
        weights: (n,), nonnegative; default, one each.

    Raises ValueError for other shapes, values that are not finite, variances that are not positive,
    and weights that are negative or all zero.

    Examples:
        >>> y, mean, variance = jnp.array([0.0, 1.0]), jnp.array([0.0, 1.5]), jnp.array([1.0, 0.25])
        >>> round(float(kernax.metrics.negative_log_predictive_density(y, mean, variance)), 3)
        0.822
    """
    return _negative_log_density(*_as_normals(y, mean, variance, weights))


def _as_normals(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike, weights: ArrayLike | None
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, " n"], AbstractWeights]:
    """Targets, means and variances of normal distributions, and weights, all in one dtype."""
    y, w, dtype = as_targets_and_weights(y, mean, variance, weights=weights)
    mean = as_one_per_row(mean, "mean", len(y), dtype)
    variance = as_inside(as_one_per_row(variance, "variance", len(y), dtype), "variance", POSITIVE)
    return y, mean, variance, w


@compiled
def _negative_log_density(y, mean, variance, weights):
    errors = _in_units(y - mean, jnp.sqrt(variance), weights)
    return mean_of_rows((jnp.log(2 * jnp.pi * variance) + errors**2) / 2, weights)


def interval_coverage(
    y: ArrayLike, low: ArrayLike, high: ArrayLike, *, weights: ArrayLike | None = None
) -> Score:
    """The share of rows with `low_i <= y_i <= high_i`: near 0.95, if intervals of 95 % are right.

    Arguments:
        y: targets (n,).
        low, high: the ends of the intervals, (n,) or one number each; they may be infinite.
        weights: (n,), nonnegative; default, one each.

    The coverage is piecewise constant, so its gradient is zero. Raises ValueError for other shapes,
    NaN, targets that are not finite, and weights that are negative or all zero.

    Examples:
        >>> y, low, high = jnp.array([0.0, 1.0, 3.0, 4.0]), jnp.full(4, -1.0), jnp.full(4, 3.5)
        >>> float(kernax.metrics.interval_coverage(y, low, high))
        0.75
    """
    y, w, dtype = as_targets_and_weights(y, low, high, weights=weights)
    low = _as_ends(low, "low", len(y), dtype)
    high = _as_ends(high, "high", len(y), dtype)
    return _coverage(y, low, high, w)


def _as_ends(value: ArrayLike, name: str, n: int, dtype: Any) -> Float[Array, " n"]:
    """The ends of intervals on one side; infinite ones become the largest number."""
    if isinstance(value, list) or np.ndim(value):
        value = as_targets(value, n, dtype, name, finite=False)
    if eqx.is_inexact_array(value) or isinstance(value, (float, np.floating)):
        largest = float(jnp.finfo(dtype).max)
        value = jnp.clip(jnp.asarray(value).astype(dtype), -largest, largest)
    return as_one_per_row(value, name, n, dtype)


@compiled
def _coverage(y, low, high, weights):
    inside = (low <= y) & (y <= high)
    unknown = jnp.isnan(y) | jnp.isnan(low) | jnp.isnan(high)  # none, except while tracing
    return mean_of_rows(jnp.where(unknown, jnp.nan, inside.astype(y.dtype)), weights)


def standardised_residuals(
    y: ArrayLike, mean: ArrayLike, variance: ArrayLike
) -> Float[Array, " n"]:
    """`(y_i - mean_i) / sqrt(variance_i)`: standard normal where the predictions are right.

    See `negative_log_predictive_density` for the arguments and errors.

    Examples:
        >>> y, mean, variance = jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0]), jnp.array([1.0, 4.0])
        >>> kernax.metrics.standardised_residuals(y, mean, variance)
        Array([-1. ,  0.5], dtype=float64)
    """
    y, mean, variance, _ = _as_normals(y, mean, variance, None)
    return (y - mean) / jnp.sqrt(variance)


class CoverageCurve(Printed):
    """The share of targets in central intervals of each probability. Both arrays have shape
    (levels,).

    Examples:
        >>> y, mean = jnp.array([0.0, 1.0, 3.0]), jnp.array([0.1, 0.8, 1.0])
        >>> curve = kernax.metrics.coverage_curve(y, mean, jnp.ones(3), n_levels=3)
        >>> curve.level
        Array([0.25, 0.5 , 0.75], dtype=float64)
    """

    level: Float[Array, "*k levels"]
    coverage: Float[Array, "*k levels"]

    @property
    def error(self) -> Float[Array, "*k"]:
        """The mean of `|coverage - level|`."""
        return jnp.mean(abs(self.coverage - self.level), -1)


@renamed(levels="n_levels")
def coverage_curve(
    y: ArrayLike,
    mean: ArrayLike,
    variance: ArrayLike,
    *,
    n_levels: int = 19,
    weights: ArrayLike | None = None,
) -> CoverageCurve:
    """The share of targets inside the central interval of probability `l / (n_levels + 1)` of their
    normal distributions, l = 1 to n_levels.

    It is near that probability if the variances are correct, and below it if they are too
    small (Kuleshov, Fenner & Ermon 2018). See `negative_log_predictive_density` for the other
    arguments and errors; `n_levels` is a positive integer.

    Examples:
        >>> y, mean = jnp.array([0.0, 1.0, 3.0]), jnp.array([0.1, 0.8, 1.0])
        >>> curve = kernax.metrics.coverage_curve(y, mean, jnp.ones(3), n_levels=3)
        >>> jnp.round(curve.coverage, 2)
        Array([0.67, 0.67, 0.67], dtype=float64)
    """
    n_levels = check_count(n_levels, "n_levels")
    return _coverage_curve(*_as_normals(y, mean, variance, weights), n_levels)


@compiled
def _coverage_curve(y, mean, variance, weights, levels):
    level = jnp.arange(1, levels + 1, dtype=y.dtype) / (levels + 1)
    # P(|z| <= reach) = level for a standard normal z.
    reach = ndtri((1 + level) / 2)
    distance = abs(y - mean) / jnp.sqrt(variance)

    def share(most):
        inside = (distance <= most).astype(y.dtype)
        # While tracing, invalid values become NaN.
        return mean_of_rows(jnp.where(jnp.isnan(distance), jnp.nan, inside), weights)

    return CoverageCurve(level, jax.vmap(share)(reach))
