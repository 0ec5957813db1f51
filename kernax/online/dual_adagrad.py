"""Adagrad over the coefficients of points."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.expansion import KernelExpansion
from kernax.core.kernel import AbstractKernel, as_kernel
from kernax.core.losses import AbstractLoss, check_loss_of_number
from kernax.core.numerics import matmul
from kernax.core.parameters import check_intervals, data, nonnegative, positive
from kernax.core.solution import RESULTS, first_that_holds
from kernax.online.budgets import AbstractBudget, as_budget, hint_of_budget
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState, hint_of_capacity
from kernax.online.penalties import adaptive_step, grown_root
from kernax.online.support import Newcomer, Support, empty_support, kernel_for

Number = Float[Array, ""]


class DualAdagradState(AbstractOnlineState):
    """What `DualAdagrad` keeps.

    Attributes:
        kernel: the learner's, in the dtype of the points, for `function`.
        support: the points that the function stands on.
        roots: sqrt(G), G the sum of the squared gradients, of each coefficient.
        memory: of the budget.
        steps: points seen.
        updates: points whose loss had a slope.
        lost: whether a budget that promises to keep every point has left one out.
    """

    kernel: AbstractKernel
    support: Support
    roots: Float[Array, " m"] = data()
    memory: Any = data()
    steps: Int[Array, ""] = data()
    updates: Int[Array, ""] = data()
    lost: Bool[Array, ""] = data()

    @property
    def function(self):
        coefficients = self.support.coefficients
        bias = jnp.zeros_like(coefficients[0])
        return KernelExpansion(self.kernel, self.support.points, coefficients, bias)

    @property
    def result(self):
        return first_that_holds(((self.lost, RESULTS.over_capacity),), RESULTS.successful)


class _Parts(eqx.Module):
    """What of a `DualAdagradState` a newcomer changes."""

    support: Support
    roots: Float[Array, " m"]
    memory: Any
    lost: Bool[Array, ""]


class DualAdagrad(AbstractOnlineLearner):
    """Adagrad over the coefficients c of points: `f = sum_i c_i k(x_i, .)`, any kind of points.

    At a point x with `s = L'(y, f(x))`:

    1. For each point that is kept, `g_i = s k(x_i, x)`, then `G_i <- G_i + g_i^2`, and then `c_i <-
       c_i - rate g_i / sqrt(G_i)`, 0 / 0 being 0; with penalties `c_i <- soft(h_i c_i - g_i, l1) /
       (h_i + ridge)`, `h_i = sqrt(G_i) / rate`, as in `Adagrad`.
    2. x joins with what the same step makes of c = 0 and G = 0: `g = s k(x, x)`, `G = g^2`, and
       without penalties `c = -rate sign(s)`. It does not join where that is zero. The budget says
       which point makes room for it.

    This is Adagrad on the features `k(x_1, x), ..., k(x_m, x)`, to which each point adds one. It
    is an algorithm of its own and no dual form of `Adagrad`, which depends on the features that
    are chosen for a kernel; this one depends on the kernel and the points. Where s is zero only
    the penalties act. All coefficients move at each step, O(m) operations and kernel values.

    Attributes:
        loss: any of `kernax.losses`, smooth or piecewise linear.
        kernel: any kernel, of any kind of points.
        budget: such as `RemoveOldest(200)`; `NoBudget(n)` keeps all. What it adds to coefficients,
            as `Merge` and `Project` do, comes after the step.
        rate: > 0, the length of the first step of each coefficient.
        ridge, l1: >= 0, the penalties `ridge/2 |c|^2` and `l1 |c|_1` of each step.
    """

    loss: AbstractLoss
    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    budget: AbstractBudget = eqx.field(converter=as_budget)
    rate: Number = positive(default=0.1)
    ridge: Number = nonnegative(default=0.0)
    l1: Number = nonnegative(default=0.0)

    def __check_init__(self):
        check_loss_of_number(self.loss)
        check_intervals(self)

    def init(self, point):
        support = empty_support(point, self.budget.capacity)
        return DualAdagradState(
            kernel=kernel_for(self.kernel, point),
            support=support,
            roots=jnp.zeros_like(support.coefficients),
            memory=self.budget.memory(support),
            steps=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
            lost=jnp.asarray(False),
        )

    def update(self, state, x, y):
        kernel = kernel_for(self.kernel, x)
        new = state.support.seen_by(kernel, x, state.steps + 1)
        f = matmul(new.row, state.support.coefficients)
        slope = self.loss.derivative(y, f)
        parts = self._joined(self._descended(state, slope * new.row), new, slope, kernel)
        after = DualAdagradState(
            kernel=kernel,
            support=parts.support,
            roots=parts.roots,
            memory=parts.memory,
            steps=new.step,
            updates=state.updates + (slope != 0).astype(jnp.int32),
            lost=parts.lost,
        )
        return after, f

    def _descended(self, state: DualAdagradState, gradient: Float[Array, " m"]) -> _Parts:
        """What a step makes of the points that are kept; of free places, nothing."""
        support = state.support
        gradient = jnp.where(support.places < support.size, gradient, 0)
        roots = grown_root(state.roots, gradient)
        coefficients = self._step(support.coefficients, gradient, roots)
        support = eqx.tree_at(lambda s: s.coefficients, support, coefficients)
        return _Parts(support, roots, state.memory, state.lost)

    def _step(self, c: Array, gradient: Array, root: Array) -> Array:
        """Coefficients after a step."""
        return adaptive_step(c, gradient, root, self.rate, self.ridge, self.l1)

    def _joined(
        self, parts: _Parts, new: Newcomer, slope: Number, kernel: AbstractKernel
    ) -> _Parts:
        """What a newcomer makes of a state; without a coefficient, it leaves that alone."""
        gradient = slope * new.square
        coefficient = self._step(jnp.zeros_like(gradient), gradient, abs(gradient))

        def joined(parts: _Parts) -> _Parts:
            return self._with_point(new, coefficient, abs(gradient), kernel, parts)

        return lax.cond(coefficient != 0, joined, lambda parts: parts, parts)

    def _with_point(
        self,
        new: Newcomer,
        coefficient: Number,
        root: Number,
        kernel: AbstractKernel,
        parts: _Parts,
    ) -> _Parts:
        """What a newcomer with that coefficient and root of G makes of a state."""
        support = parts.support
        placed = self.budget.place(parts.memory, kernel, support, new, coefficient)
        changed = support.coefficients + placed.change
        support = eqx.tree_at(lambda s: s.coefficients, support, changed)
        return _Parts(
            support=support.with_point(placed.place, new, coefficient),
            roots=parts.roots.at[placed.place].set(root, mode="drop"),
            memory=placed.memory,
            lost=parts.lost | placed.lost,
        )


@hint_of_capacity.register
def _(learner: DualAdagrad) -> str:
    return hint_of_budget(learner.budget)
