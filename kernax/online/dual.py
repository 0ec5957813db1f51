"""A rule in the space of a kernel: the function is a sum over points that are kept."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.boundary import cast, dtype_of
from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel, as_kernel
from kernax.core.numerics import matmul
from kernax.core.parameters import data
from kernax.core.solution import RESULTS, first_that_holds
from kernax.online.averages import as_averaging, moved_average
from kernax.online.budgets import AbstractBudget
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState
from kernax.online.rules import AbstractRule, Move
from kernax.online.support import Newcomer, Support, empty_support


class DualState(AbstractOnlineState):
    """What a `DualLearner` keeps.

    Attributes:
        kernel: in the dtype of the points.
        support: the points that the function stands on.
        average: the mean of the coefficients after every step, None where it is not asked for.
        memory: of the budget.
        steps: points seen.
        updates: points that were added to the function, or projected on it.
        lost: whether a budget that promises to keep every point has left one out.
    """

    kernel: AbstractKernel
    support: Support
    average: Float[Array, " m"] | None = data()
    memory: Any = data()
    steps: Int[Array, ""] = data()
    updates: Int[Array, ""] = data()
    lost: Bool[Array, ""] = data()

    @property
    def function(self):
        coefficients = self.support.coefficients if self.average is None else self.average
        bias = jnp.zeros_like(coefficients[0])
        return KernelExpansion(self.kernel, self.support.points, coefficients, bias)

    @property
    def result(self):
        return first_that_holds(((self.lost, RESULTS.over_capacity),), RESULTS.successful)


class _Parts(eqx.Module):
    """What of a `DualState` a newcomer changes."""

    support: Support
    memory: Any
    lost: Bool[Array, ""]


class DualLearner(AbstractOnlineLearner):
    """A rule in the space of a kernel: `f = sum_i c_i k(x_i, .)` over at most `capacity` points.

    Predictions are those of the function after the last step, whether or not it is averaged.

    Attributes:
        rule: such as `Perceptron()`.
        kernel: any kernel, of any kind of points.
        budget: such as `RemoveOldest(200)`; `NoBudget(n)` keeps all.
        averaging: None for the last function; a number a >= 0 for a mean of the functions after
            every step, the t-th of which enters with weight `(a + 1) / (t + a)` while the others
            shrink: 0 is the plain mean, larger numbers forget the first ones (Shamir & Zhang 2013).
            Only for budgets that keep their points, `NoBudget` and `Project`: the mean stands on
            points that others give up.
    """

    rule: AbstractRule
    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    budget: AbstractBudget
    averaging: Float[Array, ""] | None = eqx.field(converter=as_averaging, default=None)

    def __check_init__(self):
        if self.averaging is not None and not self.budget.keeps_points:
            name = type(self.budget).__name__
            raise ValueError(
                f"averaging needs points that stay, but {name} gives them up: use NoBudget or "
                "Project, or averaging=None"
            )

    @property
    def loss(self):
        return self.rule.loss

    def init(self, point):
        support = empty_support(point, self.budget.capacity)
        return DualState(
            kernel=cast(self.kernel, dtype_of(point)),
            support=support,
            average=None if self.averaging is None else support.coefficients,
            memory=self.budget.memory(support),
            steps=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
            lost=jnp.asarray(False),
        )

    def update(self, state, x, y):
        steps = state.steps + 1
        new = state.support.seen_by(state.kernel, x, steps)
        f = matmul(new.row, state.support.coefficients)
        move = self.rule.move(steps.astype(f.dtype), f, y, new.square)
        parts = self._moved(state, new, move)
        now = parts.support.coefficients
        after = DualState(
            kernel=state.kernel,
            support=parts.support,
            average=moved_average(state.average, now, steps, self.averaging),
            memory=parts.memory,
            steps=steps,
            updates=state.updates + (move.coefficient != 0).astype(jnp.int32),
            lost=parts.lost,
        )
        return after, f

    def _moved(self, state: DualState, new: Newcomer, move: Move) -> _Parts:
        """What a move makes of a state; a newcomer of coefficient zero leaves the points alone."""

        def added(parts: _Parts) -> _Parts:
            return self._with_point(new, move.coefficient, state.kernel, parts)

        shrunk = _Parts(state.support.scaled(move.shrink), state.memory, state.lost)
        return lax.cond(move.coefficient != 0, added, lambda parts: parts, shrunk)

    def _with_point(
        self, new: Newcomer, coefficient: Float[Array, ""], kernel: AbstractKernel, parts: _Parts
    ) -> _Parts:
        """What a newcomer with that coefficient makes of a state."""
        support = parts.support
        placed = self.budget.place(parts.memory, kernel, support, new, coefficient)
        changed = support.coefficients + placed.change
        support = eqx.tree_at(lambda s: s.coefficients, support, changed)
        support = support.with_point(placed.place, new, coefficient)
        return _Parts(support, placed.memory, parts.lost | placed.lost)
