"""The status of a solve of a support vector machine: the table of statuses, and their
conditions.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.solution import RESULTS, first_that_holds
from kernax.supervised.machines.box_problem import BoxProblem, DualPoint
from kernax.supervised.machines.certificate import objective_size, survives_rounding
from kernax.supervised.machines.units import AfterRescaling


def ending(
    point: DualPoint,
    problem: BoxProblem,
    stats: dict[str, Array],
    finite: Bool[Array, ""],
    rescaled: AfterRescaling,
    tol: ArrayLike,
) -> Any:
    """The status in `RESULTS` of a point that has the certificate `stats`.

    Success requires a small gap, no rounding errors that could hide a larger one, and a solution
    that is representable in the user's units.
    """
    closed = stats["relative_gap"] <= tol
    accurate = survives_rounding(point, problem, objective_size(stats), tol) & rescaled.kept
    cut_short = missed_its_goal(point, problem, tol)
    # With a hard margin the dual is unbounded where the points are not separable, which explains a
    # failure if everything else is finite.
    no_bound_above = jnp.isinf(problem.high)
    no_bound_below = jnp.isinf(problem.low)
    unknown = ~(jnp.isfinite(problem.diagonal()) & jnp.isfinite(problem.targets))
    # Some point is then as far on the wrong side of the hard margin as at f = 0.
    off = problem.off(point)
    far = problem.epsilon + 0.999 * problem.scale
    far_off = (no_bound_above & (off >= far)) | (no_bound_below & (off <= -far))
    of_points = jnp.stack([no_bound_above | no_bound_below, unknown, far_off], 1)
    hard, some_unknown, no_better_than_zero = jnp.any(of_points, 0)
    may_be_unbounded = hard & ~some_unknown
    return first_that_holds(
        [
            (~finite & may_be_unbounded, RESULTS.diverged),
            (~finite, RESULTS.nonfinite),
            (~closed & cut_short & no_better_than_zero, RESULTS.diverged),
            (rescaled.overflown, RESULTS.nonfinite),
            (closed & accurate, RESULTS.successful),
            (closed, RESULTS.inaccurate),
            (cut_short, RESULTS.max_steps_reached),
        ],
        otherwise=RESULTS.inaccurate,
    )


def is_finite(point: DualPoint, stats: dict[str, Array]) -> Bool[Array, ""]:
    """Whether a point and its certificate are finite."""
    figures = jnp.stack([stats["relative_gap"], stats["primal"], stats["dual"]])
    figures = jnp.append(figures, point.bias)
    return jnp.all(jnp.isfinite(figures)) & jnp.all(jnp.isfinite(point.beta))


def missed_its_goal(point: DualPoint, problem: BoxProblem, tol: ArrayLike) -> Bool[Array, ""]:
    """Whether the violation is above a tolerance relative to the targets, as when the steps ran
    out.

    A solver with steps left ends below the tolerance; the factor 2 is for the rounding of its own
    violation.
    """
    return point.violation > 2 * tol * problem.scale + point.rounding
