"""Iterations that solve `A x = b` by products: their stopping rule and their status, which depend
on the true residual.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import eps_of


class Best(eqx.Module):
    """The iterate with the smallest true residual, for each column separately.

    Attributes:
        x: (n,) or (n, p).
        residual: the size of the residual, () or (1, p).
    """

    x: Float[Array, "n *p"]
    residual: Float[Array, "..."]

    def or_better(self, other: "Best") -> "Best":
        """The iterate with the smaller residual, for each column separately."""
        smaller = other.residual < self.residual
        x = jnp.where(smaller, other.x, self.x)
        return Best(x, jnp.where(smaller, other.residual, self.residual))


class AbstractIterate(eqx.Module):
    """The state of an iteration after some steps.

    Attributes:
        best: the best iterate with a known true residual.
        steps: the number of steps so far.
        stuck: whether further steps would not help, () or (1, p).
    """

    best: eqx.AbstractVar[Best]
    steps: eqx.AbstractVar[Int[Array, ""]]
    stuck: eqx.AbstractVar[Bool[Array, "..."]]


class AbstractMethod(eqx.Module):
    """A system `A x = b` and an iterative method for it.

    Attributes:
        goal: the size of the true residual at which to stop.
    """

    goal: eqx.AbstractVar[Float[Array, ""]]

    @abc.abstractmethod
    def size(self, now: Any) -> Float[Array, "..."]:
        """The size of the residual by recurrence, which may deviate from the true one, () or (1,
        p).
        """

    @abc.abstractmethod
    def first(self) -> AbstractIterate:
        """The state before the first step."""

    @abc.abstractmethod
    def step(self, now: Any) -> AbstractIterate:
        """The state after one more step."""

    @abc.abstractmethod
    def verified(self, now: Any) -> AbstractIterate:
        """The same iterate with its true residual."""


class Iteration(eqx.Module):
    """The stopping rule of an iteration: a relative residual, and a largest number of steps."""

    rtol: Float[Array, ""] | float | None
    max_steps: Int[Array, ""] | int

    def tolerance(self, dtype: Any) -> Float[Array, ""]:
        """The relative residual that counts as converged in a dtype."""
        rtol = _default_tolerance(dtype) if self.rtol is None else self.rtol
        return jnp.asarray(rtol).astype(dtype)

    def no_coarser(self, dtype: Any) -> "Iteration":
        """The iteration with the smaller of its tolerance and the default. It is for differences
        between a number and one computed from the solution, such as variances.
        """
        rtol = jnp.minimum(self.tolerance(dtype), _default_tolerance(dtype))
        return Iteration(rtol, self.max_steps)

    def accurate_residual(self, dtype: Any) -> Float[Array, ""]:
        """The largest relative residual of a valid solution: twice the tolerance, which `status`
        allows if further steps would not help.
        """
        return 2 * self.tolerance(dtype)

    def run(self, method: AbstractMethod, every: int) -> Any:
        """The last iterate. The true residual is computed every `every` steps and at the end."""

        def several_steps(start: AbstractIterate) -> AbstractIterate:
            def go_on(now: AbstractIterate) -> Array:
                below_cap = (now.steps < self.max_steps) & (now.steps < start.steps + every)
                is_open = (method.size(now) > method.goal) & ~now.stuck
                return jnp.any(is_open) & below_cap

            return method.verified(lax.while_loop(go_on, lambda now: method.step(now), start))

        def unfinished(now: AbstractIterate) -> Array:
            is_open = (now.best.residual > method.goal) & ~now.stuck
            return jnp.any(is_open) & (now.steps < self.max_steps)

        return lax.while_loop(unfinished, several_steps, method.first())

    def status(self, residual: Array, stuck: Array, goal: Array | float) -> Any:
        """The status in lineax of an iteration with the best residual `residual`."""
        ended = lx.RESULTS.where(stuck, lx.RESULTS.breakdown, lx.RESULTS.max_steps_reached)
        close = residual <= jnp.where(stuck, 2, 1) * goal
        return lx.RESULTS.where(close, lx.RESULTS.successful, ended)


def _default_tolerance(dtype: Any) -> float:
    return eps_of(dtype) ** (2 / 3)
