"""Weights that are multiplied instead of added to, which is how few of many features are found.

They are held as logarithms, so that none is ever lost to rounding. A balanced learner has a
negative weight beside each positive one: it is the learner of all features and their negatives.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.numerics import dot
from kernax.core.parameters import data
from kernax.core.solution import RESULTS
from kernax.online.learner import AbstractOnlineState
from kernax.online.linear import LinearFunction

Number = Float[Array, ""]


class Identity(eqx.Module):
    """`phi(x) = x`: the numbers of a vector as features."""

    def __call__(self, x: Array) -> Float[Array, " d"]:
        if not eqx.is_array_like(x) or jnp.ndim(x) != 1:
            raise ValueError(
                "this learner has a weight for each number of a vector (d,), and a point is none: "
                "pass features=, a function of a point"
            )
        return x


class MultiplicativeState(AbstractOnlineState):
    """What a multiplicative learner keeps.

    Attributes:
        features: what the weights multiply.
        log_weights: (1, d); for balanced learners (2, d), of the features and of their negatives.
        bias: added to the sum.
        updates: points that moved the weights.
    """

    features: Callable
    log_weights: Float[Array, "signs d"] = data()
    bias: Float[Array, ""] = data()
    updates: Int[Array, ""]

    @property
    def weights(self) -> Float[Array, " d"]:
        """Of each feature: for balanced learners, the difference of its two weights."""
        return jnp.sum(_signs(self.log_weights) * jnp.exp(self.log_weights), 0)

    @property
    def function(self):
        return LinearFunction(self.features, self.weights, self.bias)

    @property
    def result(self):
        return RESULTS.successful

    def at(self, phi: Float[Array, " d"]) -> Number:
        """The value of the function at a point with these features."""
        return dot(self.weights, phi) + self.bias

    def multiplied(self, phi: Float[Array, " d"], step: Number) -> "MultiplicativeState":
        """Weights multiplied by `exp(step phi)`, those of the negatives by `exp(-step phi)`."""
        change = _signs(self.log_weights) * (step * phi)[None]
        return MultiplicativeState(
            features=self.features,
            log_weights=self.log_weights + change,
            bias=self.bias,
            updates=self.updates + (step != 0).astype(jnp.int32),
        )

    def with_total(self, total: Array) -> "MultiplicativeState":
        """The same weights on another scale, where all of them sum to the total."""
        excess = jax.nn.logsumexp(self.log_weights) - jnp.log(total)
        return eqx.tree_at(lambda state: state.log_weights, self, self.log_weights - excess)


def _signs(log_weights: Float[Array, "signs d"]) -> Float[Array, "signs 1"]:
    """+1 for the features, and -1 for their negatives."""
    return jnp.asarray([[1.0], [-1.0]], log_weights.dtype)[: len(log_weights)]


def weights_of_one(
    features: Any, point: PyTree, *, balanced: bool, bias: Any = 0.0
) -> MultiplicativeState:
    """The state in which every weight is one."""
    phi = eqx.filter_eval_shape(features, point)
    return MultiplicativeState(
        features=features,
        log_weights=jnp.zeros((2 if balanced else 1, *phi.shape), phi.dtype),
        bias=jnp.asarray(bias, phi.dtype),
        updates=jnp.zeros((), jnp.int32),
    )


def step_on_mistake(f: Number, y: Number, rate: Number) -> Number:
    """`rate y` where f has not the sign of y, else zero."""
    return jnp.where(y * f <= 0, rate * y, 0)
