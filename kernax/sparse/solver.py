"""The interface of what finds the relevant functions, and what it is given and returns."""

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
        variance: what is given, or where to start.
        least: where learning stops; 0 for one that is given.
        learned: whether it is.
    """

    variance: Float[Array, ""]
    least: Float[Array, ""]
    learned: bool = eqx.field(static=True)

    @staticmethod
    def given(variance: Float[Array, ""]) -> "Noise":
        """One that stays."""
        return Noise(variance, jnp.zeros_like(variance), learned=False)

    @staticmethod
    def to_learn(y: Float[Array, " n"], weights: Float[Array, " n"]) -> "Noise":
        """One that starts at a tenth of the variance of the targets (Tipping & Faul 2003, section
        4), and stops where the targets are reproduced up to what rounding allows to be told.
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
    """What a solver is given; without derivatives.

    Attributes:
        basis, observations, noise: see their classes.
        shape, rates: of the Gamma hyperprior of precisions, the rate in the units of each function.
        capacity: how many functions may be taken, at most.
    """

    basis: Basis
    observations: AbstractObservations
    noise: Noise
    shape: Float[Array, ""]
    rates: Float[Array, " m"]
    capacity: int = eqx.field(static=True)

    def design(self, active: ActiveFunctions) -> Float[Array, "n c M"]:
        """The derivative of all values in the weights of the functions taken."""
        return active.design(self.basis, self.observations.outputs)

    def posterior(self, active: ActiveFunctions, noise: Float[Array, ""]) -> Posterior:
        """The distribution of the whitened weights of the functions taken."""
        whitened = self.design(active) * active.deviations[None, None, :]
        start = active.weights * jnp.sqrt(active.precisions)
        return posterior(self.observations, whitened, start, noise)


class RelevanceChoice(eqx.Module):
    """What a solver returns.

    Attributes:
        active: the functions in the model, with their precisions, in `capacity` places.
        noise: its variance.
        steps: taken.
        finished: whether the evidence rises no more.
        left_out: by how many nats the evidence would rise at least if there were more places.
    """

    active: ActiveFunctions
    noise: Float[Array, ""]
    steps: Int[Array, ""]
    finished: Bool[Array, ""]
    left_out: Float[Array, ""]


class AbstractRelevanceSolver(Printed):
    """A way to maximise the evidence in the precisions of all functions and in the noise.

    `relevance_vector_machine` passes it to a compiled function with its floats and its `max_steps`
    as arrays, unless their fields are static.
    """

    @abc.abstractmethod
    def solve(self, problem: RelevanceProblem) -> RelevanceChoice:
        """Finds the relevant functions."""

    @abc.abstractmethod
    def hyperprior(self, dtype: Any) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The shape and the rate of the Gamma distribution that is the prior of each precision."""
