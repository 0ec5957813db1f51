"""A rule in the space of a kernel: the function is a sum over kept points."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import matmul
from kernax.core.base.parameters import data
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.online.averages import as_averaging, moved_average
from kernax.online.budgets import AbstractBudget, Kept, as_budget, hint_of_budget
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState
from kernax.online.rules import AbstractRule, Move, as_rule
from kernax.online.support import Newcomer, Support, kernel_for


class DualState(AbstractOnlineState):
    """The state of a `DualLearner`.

    Attributes:
        kernel: the kernel of the learner in the dtype of the points, which `function` uses.
        kept: the points of the function, as their budget keeps them.
        average: the mean of the coefficients after every step; None without averaging.
        steps: the number of points seen.
        updates: the number of points at which the rule added a multiple of `k(x, .)`, whether the
            budget kept the point or not.

    Examples:
        >>> rule, budget = kernax.online.Perceptron(), kernax.online.NoBudget(capacity=5)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> state = learner.init(jnp.zeros(1))
        >>> float(state.function(jnp.array([0.4])))  # nothing was learned yet
        0.0
    """

    kernel: AbstractKernel
    kept: Kept
    average: Float[Array, " m"] | None = data()
    steps: Int[Array, ""] = data()
    updates: Int[Array, ""] = data()

    @property
    def support(self) -> Support:
        """The points and their coefficients after the last step."""
        return self.kept.support

    @property
    def function(self):
        return self.kept.function(self.kernel, self.average)

    @property
    def result(self):
        return self.kept.result


class DualLearner(AbstractOnlineLearner):
    """Applies an online rule in the space of a kernel: `f = sum_i c_i k(x_i, .)` over at most
    `capacity` points.

    Predictions come from the function after the last step, whether or not it is averaged.

    Attributes:
        rule: the rule, such as `Perceptron()`.
        kernel: any kernel, of any kind of points.
        budget: the budget, such as `RemoveOldest(200)`; `NoBudget(n)` keeps all points.
        averaging: None for the last function; a number a >= 0 for a mean of the functions after
            every step, `mean <- mean + (a + 1) / (t + a) (f - mean)` after step t: 0 is the plain
            mean; with larger numbers the first functions count less (Shamir & Zhang 2013). It
            requires a budget that keeps its points, `NoBudget` or `Project`, because the mean needs
            all of them.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> rule, budget = kernax.online.Perceptron(), kernax.online.RemoveOldest(capacity=3)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> state = learner.init(X[0])
        >>> state, prediction = learner.update(state, X[0], y[0])
        >>> float(prediction)  # before y was seen
        0.0
    """

    rule: AbstractRule = eqx.field(converter=as_rule)
    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    budget: AbstractBudget = eqx.field(converter=as_budget)
    averaging: Float[Array, ""] | None = eqx.field(converter=as_averaging, default=None)

    def __check_init__(self):
        if self.averaging is not None and not self.budget.keeps_points:
            name = type(self.budget).__name__
            raise ValueError(
                f"averaging needs a budget that keeps its points, but {name} removes some: use "
                "NoBudget or Project, or averaging=None"
            )

    @property
    def loss(self):
        return self.rule.loss

    def init(self, point):
        kept = Kept.none(self.budget, point)
        return DualState(
            kernel=kernel_for(self.kernel, point),
            kept=kept,
            average=None if self.averaging is None else kept.support.coefficients,
            steps=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
        )

    def update(self, state, x, y):
        steps = state.steps + 1
        kernel = kernel_for(self.kernel, x)
        new = state.support.seen_by(kernel, x, steps)
        # f(x) = sum_i c_i k(x_i, x).
        f = matmul(new.row, state.support.coefficients)
        move = self.rule.move(steps.astype(f.dtype), f, y, new.square)
        kept = self._moved(kernel, state.kept, new, move)
        after = DualState(
            kernel=kernel,
            kept=kept,
            average=moved_average(state.average, kept.support.coefficients, steps, self.averaging),
            steps=steps,
            updates=state.updates + (move.coefficient != 0).astype(jnp.int32),
        )
        return after, f

    def _moved(self, kernel: AbstractKernel, kept: Kept, new: Newcomer, move: Move) -> Kept:
        """The points after a move; a move with coefficient zero adds no point."""

        def added(kept: Kept) -> Kept:
            return kept.with_point(self.budget, kernel, new, move.coefficient)[0]

        # f <- shrink f + coefficient k(x, .).
        shrunk = kept.with_coefficients(move.shrink * kept.support.coefficients)
        return lax.cond(move.coefficient != 0, added, lambda kept: kept, shrunk)

    def hint_of_capacity(self):
        return hint_of_budget(self.budget)
