"""Standardising columns and targets by mean and deviation, and the inverse."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclasses.dataclass(frozen=True, eq=False)
class Standards:
    """The map `x -> (x - centre) / scale`, of d columns (d,) or of a target ().

    Both arrays are NumPy's, in float64: large numbers that differ little would lose their digits
    if they were cast to float32 before they are standardised.
    """

    centre: Float[np.ndarray, "*d"]
    scale: Float[np.ndarray, "*d"]

    def standardised(self, X: Any) -> Any:
        """Rows (n, *d), or one row, in standardised units."""
        return (X - self.centre) / self.scale

    def restored(self, Z: Any) -> Any:
        """Rows (n, *d), or one row, in their own units: the inverse of `standardised`."""
        return self.centre + self.scale * Z


def standards_of_columns(X: Float[np.ndarray, "n d"], names: Sequence[str]) -> Standards:
    """The means and the deviations (with divisor n) of the columns; one for a constant column.

    Raises ValueError, with the name of the column, for a deviation that over- or underflows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        constant = X.min(0) == X.max(0)
        scale = np.where(constant, 1.0, X.std(0))
    for name, size in zip(names, scale):
        _check_size(name, size)
    return Standards(X.mean(0), scale)


def standards_of_target(y: Float[np.ndarray, " n"], name: str) -> Standards:
    """The mean and the deviation (with divisor n) of a target.

    Raises ValueError, with its name, where the deviation is zero, or over- or underflows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.asarray(y.std())
    _check_size(name, float(scale))
    return Standards(np.asarray(y.mean()), scale)


def _check_size(name: str, size: float) -> None:
    """Raises ValueError for a deviation by which nothing can be divided."""
    if not 0 < size < np.inf:
        raise ValueError(
            f"column {name!r} cannot be standardised: its numbers are too large, or too close "
            "together"
        )
