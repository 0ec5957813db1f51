"""State-space models of kernels on one coordinate, and their combinations.

Along a line such a process is a vector of states that changes linearly from one point to the next.
Each point depends on the previous ones only through the states, so solves, determinants and the
evidence take O(n). Sarkka & Solin, Applied Stochastic Differential Equations, 2019, chapter 12.
"""

import abc
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float

from kernax.core.base.numerics import matmul


class AbstractStateSpace(eqx.Module):
    """`k(t, t') = h.A(|t - t'|) P h`: the kernel of h.x(t), for a stationary process x of m states.

    `A(s) A(s') = A(s + s')`, and P is the covariance of x at any t.
    """

    @abc.abstractmethod
    def observation(self) -> Float[Array, " m"]:
        """h."""

    @abc.abstractmethod
    def stationary(self) -> Float[Array, "m m"]:
        """P."""

    @abc.abstractmethod
    def transition(self, step: Float[Array, ""]) -> Float[Array, "m m"]:
        """`A(step)`, step >= 0: `E[x(t + step) | x(t)] = A(step) x(t)`."""


class ConstantState(AbstractStateSpace):
    """One state that does not change."""

    value: Float[Array, ""]

    # k = value: h = 1, P = value and A = 1.

    def observation(self):
        return jnp.ones_like(self.value)[None]

    def stationary(self):
        return self.value[None, None]

    def transition(self, step):
        return jnp.ones_like(self.value)[None, None]


class ScaledStates(AbstractStateSpace):
    """A model with its covariance multiplied by a scale."""

    model: AbstractStateSpace
    scale: Float[Array, ""]

    # scale h.A P h = h.A (scale P) h.

    def observation(self):
        return self.model.observation()

    def stationary(self):
        return self.scale * self.model.stationary()

    def transition(self, step):
        return self.model.transition(step)


class SumOfStates(AbstractStateSpace):
    """A sum of independent models: their states together, and the sum of their observations."""

    models: tuple[AbstractStateSpace, ...]

    # k_1 + k_2 has h = [h_1, h_2], and P and A with blocks P_1, P_2 and A_1, A_2.

    def observation(self):
        return jnp.concatenate([model.observation() for model in self.models])

    def stationary(self):
        return block_diag(*(model.stationary() for model in self.models))

    def transition(self, step):
        return block_diag(*(model.transition(step) for model in self.models))


class ProductOfStates(AbstractStateSpace):
    """A product of models, with Kronecker products of their states and matrices."""

    models: tuple[AbstractStateSpace, ...]

    # (a.B c) (d.E f) = (a x d).(B x E) (c x f), x the Kronecker product.

    def observation(self):
        return functools.reduce(jnp.kron, [model.observation() for model in self.models])

    def stationary(self):
        return functools.reduce(jnp.kron, [model.stationary() for model in self.models])

    def transition(self, step):
        return functools.reduce(jnp.kron, [model.transition(step) for model in self.models])


def of_all(
    compose: type[SumOfStates | ProductOfStates], models: list[AbstractStateSpace | None]
) -> AbstractStateSpace | None:
    """Several models combined into one; None if one of them is None."""
    known = tuple(model for model in models if model is not None)
    return compose(known) if len(known) == len(models) else None


class Chain(eqx.Module):
    """A model at n ordered points: `A_i` leads from point i - 1 to point i; the first is the
    identity.

    Attributes:
        transitions: (n, m, m).
        stationary: P, (m, m).
        observation: h, (m,).
    """

    transitions: Float[Array, "n m m"]
    stationary: Float[Array, "m m"]
    observation: Float[Array, " m"]

    @staticmethod
    def of(model: AbstractStateSpace, coordinates: Float[Array, " n"]) -> "Chain":
        """The chain of a model at ascending coordinates."""
        # A_i = A(t_i - t_{i-1}), and A_0 = A(0).
        steps = jnp.diff(coordinates, prepend=coordinates[:1])
        transitions = jax.vmap(model.transition)(steps)
        return Chain(transitions, model.stationary(), model.observation())

    @property
    def start(self) -> Float[Array, " m"]:
        """`P h`, the covariance of the states with the observed value."""
        return matmul(self.stationary, self.observation)
