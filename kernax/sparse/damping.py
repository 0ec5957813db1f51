"""Damped steps for labels: their curvatures change with the mode, so that a full step may
overshoot.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.sparse.precision_steps import Action, EvidenceState

_FAR = 8.0  # a factor of 3000 in a precision
_NEAR = 1e-4


class StepBounds(eqx.Module):
    """How far the precisions of the functions have just moved, and how far they may move next, in
    logarithms.

    The best precision of one function at the present curvatures may be far beyond the best one at
    the curvatures after the step, so that full steps could alternate for ever. A step that reverses
    the direction of the last one is therefore at most half as long, and a step in the same
    direction at most 1.2 times the last bound; a length of 1e-4 is always allowed. A function with
    such a bound is not deleted at once.

    Attributes:
        made: the last changes of the logarithms; 0 for a new function.
        reach: the largest next changes; inf without a bound.
    """

    made: Float[Array, " M"]
    reach: Float[Array, " M"]

    @staticmethod
    def none(like: Float[Array, " M"]) -> "StepBounds":
        """The bounds before any step."""
        return StepBounds(jnp.zeros_like(like), jnp.full_like(like, jnp.inf))

    def damped(self, now: EvidenceState, action: Action) -> tuple[Action, "StepBounds"]:
        """A step that changes the precision by no more than its bound, and the bounds after it."""
        i = action.slot
        before = now.active.precisions[i]
        # log(alpha_new / alpha), inf for a deletion, which a finite bound turns into a step.
        wanted = jnp.log(jnp.where(action.is_new, 1, action.precision / before))
        reach = self._reach_of(action, wanted)
        made = jnp.clip(wanted, -reach, reach)
        is_short = abs(wanted) > reach
        precision = jnp.where(is_short, before * jnp.exp(made), action.precision)
        action = eqx.tree_at(lambda action: action.precision, action, precision)
        return action, self._after(action, made, reach)

    def _reach_of(self, action: Action, wanted: Float[Array, ""]) -> Float[Array, ""]:
        """The largest change that is allowed for the precision of a step."""
        made = self.made[action.slot]
        turns = wanted * made < 0
        shorter = jnp.maximum(abs(made) / 2, _NEAR)  # a smaller bound would take long to grow again
        reach = jnp.where(turns, shorter, 1.2 * self.reach[action.slot])
        return jnp.where(action.is_new | (reach > _FAR), jnp.inf, reach)

    def _after(
        self, action: Action, made: Float[Array, ""], reach: Float[Array, ""]
    ) -> "StepBounds":
        """The bounds after a step; a deleted function has none."""
        made = jnp.where(jnp.isinf(made), 0, made)
        i = action.slot
        return StepBounds(self.made.at[i].set(made), self.reach.at[i].set(reach))
