"""Damped steps for labels, whose curvatures change with the mode: a full step may overshoot."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.sparse.precision_steps import Action, EvidenceState

_FAR = 8.0  # a factor of 3000 in a precision
_NEAR = 1e-4


class StepBounds(eqx.Module):
    """What the last steps of the functions did to the logarithms of their precisions.

    The best precision of one function at the present curvatures may be far beyond that at the
    curvatures there, so that full steps could go back and forth for ever. A step that reverses the
    direction of the one before is therefore at most half as long, and one in the same direction at
    most 1.2 times as long as the bound before; either may always be 1e-4. A function with such a
    bound is not deleted at once.

    Attributes:
        made: by how much the logarithms changed; 0 for a new function.
        reach: by how much they may change next; inf without a bound.
    """

    made: Float[Array, " M"]
    reach: Float[Array, " M"]

    @staticmethod
    def none(like: Float[Array, " M"]) -> "StepBounds":
        """Before any step."""
        return StepBounds(jnp.zeros_like(like), jnp.full_like(like, jnp.inf))

    def damped(self, now: EvidenceState, action: Action) -> tuple[Action, "StepBounds"]:
        """A step that changes the precision by no more than its bound, and the trend after it."""
        i = action.place
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
        """By how much the precision of a step may change."""
        made = self.made[action.place]
        turns = wanted * made < 0
        shorter = jnp.maximum(abs(made) / 2, _NEAR)  # from less it would take long to grow again
        reach = jnp.where(turns, shorter, 1.2 * self.reach[action.place])
        return jnp.where(action.is_new | (reach > _FAR), jnp.inf, reach)

    def _after(
        self, action: Action, made: Float[Array, ""], reach: Float[Array, ""]
    ) -> "StepBounds":
        """The trend after a step; a function that is deleted has none."""
        made = jnp.where(jnp.isinf(made), 0, made)
        i = action.place
        return StepBounds(self.made.at[i].set(made), self.reach.at[i].set(reach))
