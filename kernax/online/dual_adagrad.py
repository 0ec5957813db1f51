"""Adagrad for the coefficients of points."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import matmul
from kernax.core.base.parameters import data, nonnegative, positive
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.losses.loss_functions import AbstractLoss, check_loss_of_number
from kernax.online.budgets import AbstractBudget, Kept, as_budget, hint_of_budget
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState
from kernax.online.penalties import adaptive_step, grown_root
from kernax.online.support import Newcomer, Support, kernel_for

Number = Float[Array, ""]


class DualAdagradState(AbstractOnlineState):
    """The state of `DualAdagrad`.

    Attributes:
        kernel: the kernel of the learner in the dtype of the points, which `function` uses.
        kept: the points of the function, as their budget keeps them.
        roots: sqrt(G), where G is the sum of the squared gradients, for each coefficient.
        steps: the number of points seen.
        updates: the number of points whose loss had a slope.

    Examples:
        >>> budget = kernax.online.NoBudget(capacity=5)
        >>> learner = kernax.online.DualAdagrad(kernax.losses.Hinge(), kernax.RBF(0.3), budget)
        >>> learner.init(jnp.zeros(1)).roots.shape
        (5,)
    """

    kernel: AbstractKernel
    kept: Kept
    roots: Float[Array, " m"] = data()
    steps: Int[Array, ""] = data()
    updates: Int[Array, ""] = data()

    @property
    def support(self) -> Support:
        """The points and their coefficients."""
        return self.kept.support

    @property
    def function(self):
        return self.kept.function(self.kernel)

    @property
    def result(self):
        return self.kept.result


class _Parts(eqx.Module):
    """The parts of a `DualAdagradState` that a new point changes."""

    kept: Kept
    roots: Float[Array, " m"]


class DualAdagrad(AbstractOnlineLearner):
    """Adagrad for the coefficients c of points: `f = sum_i c_i k(x_i, .)`, for points of any kind.

    At a point x with `s = L'(y, f(x))`:

    1. For each kept point, `g_i = s k(x_i, x)`, then `G_i <- G_i + g_i^2`, and then `c_i <- c_i -
    rate g_i / sqrt(G_i)`, where 0 / 0 is 0; with penalties `c_i <- soft(h_i c_i - g_i, l1) /
       (h_i + ridge)`, `h_i = sqrt(G_i) / rate`, as in `Adagrad`.
    2. x is added with the result of the same step from c = 0 and G = 0: `g = s k(x, x)`, `G = g^2`,
    and without penalties `c = -rate sign(s)`. It is not added if c is zero. The budget says which
    point it replaces.

    This is Adagrad on the features `k(x_1, x), ..., k(x_m, x)`, to which each point adds one. It is
    not a dual form of `Adagrad`, which depends on the features chosen for a kernel; this learner
    depends on the kernel and the points. Where s is zero only the penalties act. All coefficients
    move at each step, O(m) operations and kernel values.

    Attributes:
        loss: any of `kernax.losses`, smooth or piecewise linear.
        kernel: any kernel, of any kind of points.
        budget: the budget, such as `RemoveOldest(200)`; `NoBudget(n)` keeps all points. `Merge` and
            `Project` change coefficients after the step.
        rate: > 0, the length of the first step of each coefficient.
        ridge, l1: >= 0, the penalties `ridge/2 |c|^2` and `l1 |c|_1` of each step.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> budget = kernax.online.NoBudget(capacity=5)
        >>> learner = kernax.online.DualAdagrad(kernax.losses.Hinge(), kernax.RBF(0.3), budget)
        >>> kernax.online.run(learner, X, y).value.predictions.shape
        (5,)
    """

    loss: AbstractLoss
    kernel: AbstractKernel = eqx.field(converter=as_kernel)
    budget: AbstractBudget = eqx.field(converter=as_budget)
    rate: Number = positive(default=0.1)
    ridge: Number = nonnegative(default=0.0)
    l1: Number = nonnegative(default=0.0)

    def __check_init__(self):
        check_loss_of_number(self.loss)

    def init(self, point):
        kept = Kept.none(self.budget, point)
        return DualAdagradState(
            kernel=kernel_for(self.kernel, point),
            kept=kept,
            roots=jnp.zeros_like(kept.support.coefficients),
            steps=jnp.zeros((), jnp.int32),
            updates=jnp.zeros((), jnp.int32),
        )

    def update(self, state, x, y):
        kernel = kernel_for(self.kernel, x)
        new = state.support.seen_by(kernel, x, state.steps + 1)
        # f(x) = sum_i c_i k(x_i, x), s = L'(y, f(x)) and g_i = s k(x_i, x).
        f = matmul(new.row, state.support.coefficients)
        slope = self.loss.derivative(y, f)
        # The kept points after a step; free slots do not change.
        gradient = slope * new.row
        support = state.support
        gradient = jnp.where(support.places < support.size, gradient, 0)
        # G_i <- G_i + g_i^2 and h_i = sqrt(G_i) / rate, then
        # c_i <- soft(h_i c_i - g_i, l1) / (h_i + ridge).
        roots = grown_root(state.roots, gradient)
        coefficients = self._step(support.coefficients, gradient, roots)
        parts = self._joined(
            _Parts(state.kept.with_coefficients(coefficients), roots), new, slope, kernel
        )
        after = DualAdagradState(
            kernel=kernel,
            kept=parts.kept,
            roots=parts.roots,
            steps=new.step,
            updates=state.updates + (slope != 0).astype(jnp.int32),
        )
        return after, f

    def _step(self, c: Array, gradient: Array, root: Array) -> Array:
        return adaptive_step(c, gradient, root, self.rate, self.ridge, self.l1)

    def _joined(
        self, parts: _Parts, new: Newcomer, slope: Number, kernel: AbstractKernel
    ) -> _Parts:
        """The points with a new point, or without it if its coefficient is zero."""
        # The coefficient of x itself starts from c = 0 and G = 0: g = s k(x, x), sqrt(G) = |g|, and
        # c = soft(-g, l1) / (|g| / rate + ridge).
        gradient = slope * new.square
        coefficient = self._step(jnp.zeros_like(gradient), gradient, abs(gradient))

        def joined(parts: _Parts) -> _Parts:
            kept, place = parts.kept.with_point(self.budget, kernel, new, coefficient)
            roots = parts.roots.at[place].set(abs(gradient), mode="drop")
            return _Parts(kept, roots)

        return lax.cond(coefficient != 0, joined, lambda parts: parts, parts)

    def hint_of_capacity(self):
        return hint_of_budget(self.budget)
