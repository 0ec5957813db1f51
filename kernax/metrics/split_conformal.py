"""Split conformal prediction: what covers a share of new targets, whatever the model.

It needs no more than that new points are exchangeable with those that were held out.
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
    """The `ceil(coverage (m + 1))`-th smallest of m numbers; inf where there are too few of them.

    Split conformal prediction (Vovk, Gammerman & Shafer 2005; Lei et al. 2018): with `residuals =
    |y - f(x)|` of m points that f has not seen, `f(x) +- radius` covers the target of a new point
    with a probability of at least `coverage`, and at most `coverage + 1 / (m + 1)` where no two are
    equal, if it is exchangeable with those m. Residuals divided by a predicted deviation give
    intervals of `radius` deviations.

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
    # While tracing, a residual that would be refused is NaN.
    return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, radius)


def conformal_set(
    probabilities: ArrayLike, Y: ArrayLike, new: ArrayLike, *, coverage: float = 0.9
) -> Bool[Array, "k c"]:
    """Prediction sets: the classes of new points whose probability is at least a threshold.

    The threshold is one minus the `conformal_radius` of `1 - p` of the true classes of m points
    that the classifier has not seen (Sadinle, Lei & Wasserman 2019). The true class of a new point
    that is exchangeable with them is in its set with a probability of at least `coverage`, whatever
    the classifier. Sets are small where the classifier is sure; they may be empty.

    Arguments:
        probabilities: (m, classes), of points that were held out.
        Y: their one-hot classes (m, classes), as of `one_hot`.
        new: (k, classes), probabilities of the new points.
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
    """Rows of probabilities. Raises ValueError for other shapes, and values that are none."""
    array = as_targets(values, row_count(values, name), common_dtype(values), name, finite=False)
    if array.ndim != 2:
        raise ValueError(f"{name} must have shape (points, classes), but has shape {array.shape}")
    return as_inside(array, name, UP_TO_ONE)
