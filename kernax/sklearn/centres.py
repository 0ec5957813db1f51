"""Fits over some rows as centres, for tables too long for a matrix of all rows."""

from typing import Any

import numpy as np
from jaxtyping import Int
from sklearn.utils import check_random_state

from kernax.core.base.parameters import check_count
from kernax.core.base.solution import Solution
from kernax.core.base.stacks import points_at
from kernax.core.learner.expansion import KernelExpansion
from kernax.sklearn.rows import Rows


def check_centres(estimator: Any) -> None:
    """Raises ValueError for `n_centres` that is not a number, and for a kernel without points."""
    if estimator.n_centres is None:
        return
    check_count(estimator.n_centres, "n_centres")
    if estimator._is_matrix:
        given = "kernel='precomputed'" if estimator._is_precomputed else "a function as kernel"
        raise ValueError(f"n_centres needs points X, but {given} has none")
    if np.ndim(estimator.alpha):
        raise ValueError(
            f"alpha must be one number with n_centres, but has shape {np.shape(estimator.alpha)}"
        )


def drawn_centres(rows: Rows, number: int, random_state: Any) -> Int[np.ndarray, " m"]:
    """The rows that are centres, drawn uniformly from those of positive weight."""
    there = np.flatnonzero(rows.own_weights > 0)
    return there[check_random_state(random_state).permutation(len(there))[:number]]


def fitted_over_centres(
    rows: Rows,
    y: np.ndarray,
    ridge: Any,
    centres: Int[np.ndarray, " m"],
    loss: Any,
    **given: Any,
) -> Solution[KernelExpansion]:
    """The fit of `falkon` with a smooth loss to targets of all rows."""
    # Here, because most estimators are fitted without centres.
    from kernax.scale.centres.falkon import falkon

    Z = points_at(rows.given, centres)
    targets = rows.column(y)
    return falkon(
        rows.given_kernel, rows.given, targets, ridge, Z, loss=loss, weights=rows.weights, **given
    )
