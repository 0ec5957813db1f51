"""A rule in the space of a kernel: the function is a sum over points that are kept."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel, as_kernel
from kernax.core.numerics import matmul
from kernax.core.parameters import data
from kernax.core.solution import RESULTS, first_that_holds
from kernax.online.averages import as_averaging, moved_average
from kernax.online.budgets import AbstractBudget, as_budget, hint_of_budget
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState, hint_of_capacity
from kernax.online.rules import AbstractRule, Move, as_rule
from kernax.online.support import Newcomer, Support, empty_support, kernel_for


class DualState(AbstractOnlineState):
    """What a `DualLearner` keeps.

    Attributes:
        kernel: the learner's, in the dtype of the points, for `function`.
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

    rule: AbstractRule = eqx.field(converter=as_rule)
    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    budget: AbstractBudget = eqx.field(converter=as_budget)
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
            kernel=kernel_for(self.kernel, point),
            support=support,
            average=None if self.averaging is None else support.coefficients,
            memory=self.budget.memory(support),
            steps=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
            lost=jnp.asarray(False),
        )

    def update(self, state, x, y):
        steps = state.steps + 1
        kernel = kernel_for(self.kernel, x)
        new = state.support.seen_by(kernel, x, steps)
        f = matmul(new.row, state.support.coefficients)
        move = self.rule.move(steps.astype(f.dtype), f, y, new.square)
        parts = self._moved(kernel, state, new, move)
        now = parts.support.coefficients
        after = DualState(
            kernel=kernel,
            support=parts.support,
            average=moved_average(state.average, now, steps, self.averaging),
            memory=parts.memory,
            steps=steps,
            updates=state.updates + (move.coefficient != 0).astype(jnp.int32),
            lost=parts.lost,
        )
        return after, f

    def _moved(self, kernel: AbstractKernel, state: DualState, new: Newcomer, move: Move) -> _Parts:
        """What a move makes of a state; a newcomer of coefficient zero leaves the points alone."""

        def added(parts: _Parts) -> _Parts:
            return self._with_point(new, move.coefficient, kernel, parts)

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


@hint_of_capacity.register
def _(learner: DualLearner) -> str:
    return hint_of_budget(learner.budget)
