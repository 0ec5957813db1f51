"""Split conformal prediction: intervals and sets with guaranteed coverage for any model.

The only assumption is that new points are exchangeable with the held-out points.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_targets
from kernax.core.base.intervals import NONNEGATIVE, UP_TO_ONE
from kernax.core.base.labels import as_one_hot_of_any_class
from kernax.core.base.ranks import rank_for, smallest
from kernax.core.base.weights import UnitWeights
from kernax.metrics.arguments import as_inside, as_one_per_row, common_dtype, row_count


def conformal_radius(residuals: ArrayLike, *, coverage: float = 0.9) -> Float[Array, ""]:
    """The `ceil(coverage (m + 1))`-th smallest of m residuals; inf if there are too few of them.

    This is split conformal prediction (Vovk, Gammerman & Shafer 2005; Lei et al. 2018). Let
    `residuals = |y - f(x)|` for m points that were not used to fit f. If a new point is
    exchangeable with them, `f(x) +- radius` covers its target with a probability of at least
    `coverage`, and at most `coverage + 1 / (m + 1)` if no two residuals are equal. For residuals
    divided by a predicted standard deviation, the radius is in units of that deviation.

    Raises ValueError for residuals that are negative or not finite (if they are traced, the radius
    is NaN), and for a coverage that is not between 0 and 1.

    Examples:
        >>> residuals = jnp.array([0.1, 0.2, 0.3, 0.4])  # sizes of the errors at held-out points
        >>> float(kernax.conformal.conformal_radius(residuals, coverage=0.8))
        0.4
    """
    scores = as_one_per_row(
        residuals, "residuals", row_count(residuals, "residuals"), common_dtype(residuals)
    )
    scores = as_inside(scores, "residuals", NONNEGATIVE)
    radius = smallest(scores[None], rank_for(coverage, len(scores)))[0]
    # While tracing, an invalid residual becomes NaN.
    return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, radius)


def conformal_set(
    probabilities: ArrayLike, Y: ArrayLike, new: ArrayLike, *, coverage: float = 0.9
) -> Bool[Array, "k c"]:
    """Prediction sets: the classes with a probability of at least a threshold, for new points.

    The threshold is one minus the `conformal_radius` of `1 - p` for the true classes of m points
    that the classifier has not seen (Sadinle, Lei & Wasserman 2019). If a new point is exchangeable
    with them, its true class is in its set with a probability of at least `coverage`, for any
    classifier. Sets are small where the classifier is certain; they may be empty.

    Arguments:
        probabilities: (m, classes), predicted probabilities of the held-out points.
        Y: their one-hot classes (m, classes), as `one_hot` makes them.
        new: (k, classes), predicted probabilities of the new points.
        coverage: between 0 and 1.

    Raises ValueError for other shapes or values.

    Examples:
        >>> probabilities = jnp.array([[0.9, 0.1], [0.3, 0.7], [0.6, 0.4], [0.2, 0.8]])
        >>> Y, _ = kernax.one_hot(["a", "b", "a", "b"])
        >>> new = jnp.array([[0.95, 0.05], [0.7, 0.3]])
        >>> kernax.conformal.conformal_set(probabilities, Y, new, coverage=0.8)
        Array([[ True, False],
               [ True, False]], dtype=bool)
    """
    known = _as_probabilities(probabilities, "probabilities")
    others = _as_probabilities(new, "new")
    classes = known.shape[1]
    if others.shape[1] != classes:
        raise ValueError(
            f"new must have {classes} columns, as probabilities has, but has shape {others.shape}"
        )
    m = len(known)
    truth = as_one_hot_of_any_class(Y, m, known.dtype, UnitWeights(m, known.dtype))
    if truth.shape != known.shape:
        raise ValueError(f"Y must have shape {known.shape}, but has shape {truth.shape}")
    of_truth = jnp.sum(truth * known, 1)
    radius = conformal_radius(1 - of_truth, coverage=coverage)
    return 1 - others <= radius


def _as_probabilities(values: ArrayLike, name: str) -> Float[Array, "m c"]:
    """Rows of probabilities. Raises ValueError for other shapes and invalid values."""
    array = as_targets(values, row_count(values, name), common_dtype(values), name, finite=False)
    if array.ndim != 2:
        raise ValueError(f"{name} must have shape (points, classes), but has shape {array.shape}")
    return as_inside(array, name, UP_TO_ONE)
