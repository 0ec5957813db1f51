"""Weak priors of the parameters of a model.

In standardised columns and targets, sizes of order one are usual.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.intervals import REAL
from kernax.core.base.parameters import parameters

# The deviation of the logarithm: with a probability of 95 % a parameter is within a factor of fifty
# of the start.
DEVIATION = 2.0
# A share of the variance of the target: the data must support less noise than that.
FLOOR = 1e-4


class WeakPriors(eqx.Module):
    """Weak priors as a penalty: minus the log density of a model's parameters, up to a constant.

    It is `sum ((theta - centre) / deviation)^2 / 2`.

    theta are unconstrained values, so that a positive parameter is log-normal around its centre. A
    noise variance or a ridge v is not: its term is `FLOOR / v`, from an inverse gamma prior, which
    is flat in log v above the floor and keeps v away from zero. Without it, rows that are exact
    copies of one another imply that there is no noise, and the evidence grows without bound as v
    falls. Parameters anywhere on the line have no prior.
    """

    centres: dict[str, Array]
    deviations: dict[str, Array]
    floored: tuple[str, ...] = eqx.field(static=True, default=())

    def penalty(self, model: Any) -> Float[Array, ""]:
        """Minus the log density of a model of the same structure."""
        total: Any = 0.0
        for entry in parameters(model):
            if entry.path in self.floored:
                # Inverse gamma, flat in log v: FLOOR / v.
                total += jnp.sum(FLOOR / entry.value)
            elif entry.path in self.centres:
                # How far a parameter is from the centre of its prior, in standard deviations.
                centre = self.centres[entry.path]
                distance = entry.interval.unconstrain(entry.value) - centre
                # A parameter that starts at the end of its interval is not learned.
                moved = jnp.where(jnp.isfinite(centre), distance, 0)
                deviations = moved / self.deviations[entry.path]
                # Normal in theta: ((theta - centre) / deviation)^2 / 2.
                total += jnp.sum(deviations**2) / 2
        return total


def weak_priors_around(
    model: Any,
    *,
    floored: Sequence[str] = (),
    deviation: float = DEVIATION,
    of_each: float | None = None,
) -> WeakPriors:
    """Weak priors that are centred at a model.

    `of_each` is the deviation of the elements of vectors, if it is another.

    What stands at the very end of its interval is not learned, and has no prior.
    """
    centres = {}
    deviations = {}
    for entry in parameters(model):
        # A parameter that may be any real number has no usual size.
        if entry.interval == REAL or entry.path in floored:
            continue
        one_of_many = of_each is not None and np.ndim(entry.value) > 0
        centres[entry.path] = entry.interval.unconstrain(entry.value)
        size = of_each if one_of_many else deviation
        deviations[entry.path] = jnp.asarray(size, jnp.result_type(entry.value))
    return WeakPriors(centres, deviations, tuple(floored))
