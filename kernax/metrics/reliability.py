"""Predicted probabilities against observed frequencies."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import UP_TO_ONE
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import check_count
from kernax.core.base.printing import Printed
from kernax.metrics.arguments import Score, as_inside, as_one_per_row, as_targets_and_weights


class CalibrationCurve(Printed):
    """The frequency of events for each bin of predicted probabilities.

    All arrays have shape (bins,). Bins without a row have weight zero, and NaN in the other arrays.

    Attributes:
        probability: the mean of the predicted probabilities.
        frequency: the share of the events that occurred.
        weight: the number of rows, or the sum of their weights.

    Examples:
        >>> outcomes = jnp.array([0.0, 1.0, 1.0])
        >>> curve = kernax.metrics.calibration_curve(outcomes, jnp.array([0.2, 0.6, 0.8]), n_bins=2)
        >>> curve.weight
        Array([1., 2.], dtype=float64)
    """

    probability: Float[Array, "*k bins"]
    frequency: Float[Array, "*k bins"]
    weight: Float[Array, "*k bins"]

    @property
    def error(self) -> Float[Array, "*k"]:
        """The expected calibration error: `sum_b w_b |probability_b - frequency_b| / sum_b w_b`."""
        distance = jnp.where(self.weight > 0, abs(self.probability - self.frequency), 0)
        return jnp.sum(self.weight * distance, -1) / jnp.sum(self.weight, -1)


@renamed(bins="n_bins")
def calibration_curve(
    outcomes: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 10,
    weights: ArrayLike | None = None,
) -> CalibrationCurve:
    """Mean predicted probabilities and observed frequencies, in bins
    `[b / n_bins, (b + 1) / n_bins)`.

    The last bin holds 1 as well.

    Arguments:
        outcomes: (n,), 1 or True where the event occurred, otherwise 0. For several classes pass
            whether the likeliest class was correct.
        probabilities: (n,), between 0 and 1. For several classes pass the probability of the
            likeliest one.
        n_bins: the number of bins.
        weights: (n,), nonnegative; default, one each.

    Raises ValueError for other shapes and values, and weights that are negative or all zero.

    Examples:
        >>> outcomes = jnp.array([0.0, 1.0, 1.0])
        >>> curve = kernax.metrics.calibration_curve(outcomes, jnp.array([0.2, 0.6, 0.8]), n_bins=2)
        >>> jnp.round(curve.probability, 2), curve.frequency
        (Array([0.2, 0.7], dtype=float64), Array([0., 1.], dtype=float64))
    """
    n_bins = check_count(n_bins, "n_bins")
    outcomes, w, dtype = as_targets_and_weights(
        outcomes, probabilities, weights=weights, name="outcomes"
    )
    # Zeros and ones.
    if not is_concrete(outcomes):
        good = (outcomes == 0) | (outcomes == 1)
        outcomes = jnp.where(good, outcomes, jnp.nan)
    else:
        known = np.asarray(outcomes)
        good = np.isin(known, (0, 1))
        if not good.all():
            first = int(np.argmin(good))
            raise ValueError(f"outcomes must be 0 or 1, but outcomes[{first}] is {known[first]:g}")
    probabilities = as_one_per_row(probabilities, "probabilities", len(outcomes), dtype)
    probabilities = as_inside(probabilities, "probabilities", UP_TO_ONE)
    return _calibration_curve(outcomes, probabilities, w, n_bins)


@compiled
def _calibration_curve(outcomes, probabilities, weights, bins):
    # Compare with the ends of the bins themselves, because 100 * 0.29 is less than 29 in float64.
    ends = jnp.asarray(np.arange(1, bins) / bins, probabilities.dtype)
    place = jnp.searchsorted(ends, probabilities, side="right")
    weights = weights.values
    in_bins = lambda rows: jnp.zeros_like(outcomes, shape=bins).at[place].add(rows)
    weight = in_bins(weights)
    has_rows = weight > 0
    # Divided by one in a bin without weight, because derivatives of 0 / 0 are NaN in all its rows.
    divisor = jnp.where(has_rows, weight, 1)
    mean = lambda rows: jnp.where(has_rows, in_bins(weights * rows) / divisor, jnp.nan)
    return CalibrationCurve(mean(probabilities), mean(outcomes), weight)


@renamed(bins="n_bins")
def calibration_error(
    outcomes: ArrayLike,
    probabilities: ArrayLike,
    *,
    n_bins: int = 10,
    weights: ArrayLike | None = None,
) -> Score:
    """`sum_b w_b |probability_b - frequency_b| / sum_b w_b`: the expected calibration error.

    It is the mean over rows of the distance between mean probability and frequency in the row's bin
    (Naeini, Cooper & Hauskrecht 2015). See `calibration_curve` for the arguments and errors. The
    error depends on the number of bins, and is about `sqrt(n_bins / n)` even for perfect
    probabilities.

    Examples:
        >>> outcomes = jnp.array([0.0, 1.0, 1.0])
        >>> error = kernax.metrics.calibration_error(outcomes, jnp.array([0.2, 0.6, 0.8]), n_bins=2)
        >>> round(float(error), 3)  # (0.2 + 2 * 0.3) / 3
        0.267
    """
    return calibration_curve(outcomes, probabilities, n_bins=n_bins, weights=weights).error
