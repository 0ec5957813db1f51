"""Scores of predicted numbers, of distributions, of classes and of probabilities.

Every score is a mean over rows, or a function of such means. `weights` (n,) multiply the rows: a
weight of two repeats the row, a weight of zero leaves it out, as long as its values are finite.
Scores work under `jit` and `vmap`, so that one `vmap` over masks scores all folds, and under `grad`
where they are smooth. Bad values raise ValueError; if they are traced, the score is NaN.

For two classes, targets are -1 and +1 (n,), as `kernax.signs` makes them, with one value for each
row, positive for +1. For several classes, targets are one-hot columns (n, c), as `kernax.one_hot`
makes them, with a value for each class.
"""

# May import: kernax._advice, kernax.core.

from typing import TYPE_CHECKING, Any

from kernax._advice import no_attribute
from kernax.metrics.classifier_scores import accuracy, area_under_curve, log_loss
from kernax.metrics.numbers import (
    CoverageCurve,
    coverage_curve,
    interval_coverage,
    negative_log_predictive_density,
    root_mean_square_error,
    standardised_residuals,
)
from kernax.metrics.reliability import CalibrationCurve, calibration_curve, calibration_error

__all__ = [
    "CalibrationCurve",
    "CoverageCurve",
    "accuracy",
    "area_under_curve",
    "calibration_curve",
    "calibration_error",
    "coverage_curve",
    "interval_coverage",
    "log_loss",
    "negative_log_predictive_density",
    "root_mean_square_error",
    "standardised_residuals",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Raises AttributeError and names the counterpart of names of other libraries."""
        raise no_attribute(__name__, name)


def __dir__() -> list[str]:
    return __all__
