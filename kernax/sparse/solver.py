"""The interface of solvers that find the relevant functions: their problem and their result."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import eps_of, matmul
from kernax.core.base.printing import Printed
from kernax.sparse.basis import ActiveFunctions, Basis
from kernax.sparse.observations import AbstractObservations, Posterior, posterior


class Noise(eqx.Module):
    """The variance of the noise, given or learned.

    Attributes:
        variance: the given value, or the starting point.
        least: the bound at which learning stops; 0 for a given noise.
        learned: whether the noise is learned.
    """

    variance: Float[Array, ""]
    least: Float[Array, ""]
    learned: bool = eqx.field(static=True)

    @staticmethod
    def given(variance: Float[Array, ""]) -> "Noise":
        """A fixed noise."""
        return Noise(variance, jnp.zeros_like(variance), learned=False)

    @staticmethod
    def to_learn(y: Float[Array, " n"], weights: Float[Array, " n"]) -> "Noise":
        """A noise that is learned, starting at a tenth of the variance of the targets (Tipping &
        Faul 2003, section 4), down to the level at which targets are reproduced up to rounding.
        """
        mean = matmul(weights, y) / jnp.sum(weights)
        variance = matmul(weights, (y - mean) ** 2) / jnp.sum(weights)
        eps = eps_of(y)
        least = jnp.maximum(eps ** (2 / 3) * variance, eps**1.5 * mean**2)
        least = jnp.maximum(least, jnp.finfo(y.dtype).tiny ** 0.5)
        return Noise(jnp.maximum(variance / 10, least), least, learned=True)

    def renewed(
        self,
        observations: AbstractObservations,
        f: Float[Array, "n c"],
        noise: Float[Array, ""],
        determined: Float[Array, ""],
    ) -> Float[Array, ""]:
        """`sum w (y - f)^2 / (sum w - sum gamma)` (Tipping 2001, eq. 18)."""
        if not self.learned:
            return noise
        squares = matmul(observations.weights, (observations.y - f)[:, 0] ** 2)
        # Where as many weights are determined as there are targets, the difference is rounding.
        free = jnp.maximum(observations.count - determined, eps_of(f) * observations.count)
        return jnp.maximum(squares / free, self.least)


class RelevanceProblem(eqx.Module):
    """The problem that a solver gets, without derivatives.

    Attributes:
        basis, observations, noise: see their classes.
        shape, rates: the Gamma hyperprior of the precisions, with rates in the units of each
            function.
        capacity: the largest number of active functions.
    """

    basis: Basis
    observations: AbstractObservations
    noise: Noise
    shape: Float[Array, ""]
    rates: Float[Array, " m"]
    capacity: int = eqx.field(static=True)

    def design(self, active: ActiveFunctions) -> Float[Array, "n c M"]:
        """The derivative of all values in the weights of the active functions."""
        return active.design(self.basis, self.observations.outputs)

    def posterior(self, active: ActiveFunctions, noise: Float[Array, ""]) -> Posterior:
        """The distribution of the whitened weights of the active functions."""
        whitened = self.design(active) * active.deviations[None, None, :]
        start = active.weights * jnp.sqrt(active.precisions)
        return posterior(self.observations, whitened, start, noise)


class RelevanceChoice(eqx.Module):
    """The result of a solver.

    Attributes:
        active: the functions in the model, with their precisions, in `capacity` slots.
        noise: the variance of the noise.
        steps: the number of steps taken.
        finished: whether the evidence no longer rises.
        left_out: by at least how many nats the evidence would rise if there were more slots.
        hidden: by at least how many nats the evidence would rise if rounding hid no function; 0 if
            that is unknown.
    """

    active: ActiveFunctions
    noise: Float[Array, ""]
    steps: Int[Array, ""]
    finished: Bool[Array, ""]
    left_out: Float[Array, ""]
    hidden: Float[Array, ""] | float = 0.0


class AbstractRelevanceSolver(Printed):
    """A method that maximises the evidence over the precisions of all functions and the noise.

    `relevance_vector_machine` passes it to a compiled function with its floats and its `max_steps`
    as arrays, unless their fields are static.
    """

    @abc.abstractmethod
    def solve(self, problem: RelevanceProblem) -> RelevanceChoice:
        """Finds the relevant functions."""

    @abc.abstractmethod
    def hyperprior(self, dtype: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The shape and the rate of the Gamma hyperprior of each precision."""
