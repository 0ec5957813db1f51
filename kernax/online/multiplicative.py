"""Weights that are multiplied instead of added to, which is how few of many features are found.

They are held as exponents, so that none is ever lost to rounding. A balanced learner has a negative
weight beside each positive one: it is the learner of all features and their negatives.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.linear import LinearFunction
from kernax.core.numerics import dot, stopped
from kernax.core.parameters import data
from kernax.core.solution import RESULTS
from kernax.online.learner import AbstractOnlineState

Number = Float[Array, ""]


class Identity(eqx.Module):
    """`phi(x) = x`: the numbers of a vector as features."""

    def __call__(self, x: PyTree) -> Float[Array, " d"]:
        if not eqx.is_array_like(x) or jnp.ndim(x) != 1:
            raise ValueError(
                "this learner has a weight for each number of a vector (d,), and a point is none: "
                "pass features=, a function of a point"
            )
        return x


class MultiplicativeState(AbstractOnlineState):
    """What a multiplicative learner keeps.

    Attributes:
        features: the learner's, which the weights multiply.
        exponents: (1, d); for balanced learners (2, d), of the features and of their negatives.
        base: of the weights `base^exponents`; None for e. With 0 or 1 as features, the exponents of
            Winnow are whole numbers, and its weights as exact as powers are.
        bias: added to the sum.
        updates: points that moved the weights.
    """

    features: Callable
    exponents: Float[Array, "signs d"] = data()
    base: Number | None = data()
    bias: Float[Array, ""] = data()
    updates: Int[Array, ""]

    @property
    def weights(self) -> Float[Array, " d"]:
        """Of each feature: for balanced learners, the difference of its two weights."""
        exponents = self.exponents
        powers = jnp.exp(exponents) if self.base is None else self.base**exponents
        return jnp.sum(_signs(exponents) * powers, 0)

    @property
    def function(self):
        return LinearFunction(self.features, self.weights, self.bias)

    @property
    def result(self):
        return RESULTS.successful

    def at(self, phi: Float[Array, " d"]) -> Number:
        """The value of the function at a point with these features."""
        return dot(self.weights, phi) + self.bias

    def multiplied(
        self, features: Callable, phi: Float[Array, " d"], step: Number
    ) -> "MultiplicativeState":
        """Weights multiplied by `base^(step phi)`, those of the negatives by `base^(-step phi)`,
        phi being the features at a point.
        """
        change = _signs(self.exponents) * (step * phi)[None]
        return MultiplicativeState(
            features=features,
            exponents=self.exponents + change,
            base=self.base,
            bias=self.bias,
            updates=self.updates + (step != 0).astype(jnp.int32),
        )

    def with_total(self, total: Array) -> "MultiplicativeState":
        """The same weights on another scale, where all of them sum to the total; for base e."""
        # The largest is subtracted first: its digits would hide those of the logarithm.
        exponents = self.exponents - stopped(jnp.max(self.exponents))
        excess = jax.nn.logsumexp(exponents) - jnp.log(total)
        return eqx.tree_at(lambda state: state.exponents, self, exponents - excess)


def _signs(exponents: Float[Array, "signs d"]) -> Float[Array, "signs 1"]:
    """+1 for the features, and -1 for their negatives."""
    return jnp.asarray([[1.0], [-1.0]], exponents.dtype)[: len(exponents)]


def weights_of_one(
    features: Any, point: PyTree, *, balanced: bool, base: Any = None, bias: Any = 0.0
) -> MultiplicativeState:
    """The state in which every weight is one."""
    phi = eqx.filter_eval_shape(features, point)
    return MultiplicativeState(
        features=features,
        exponents=jnp.zeros((2 if balanced else 1, *phi.shape), phi.dtype),
        base=None if base is None else jnp.asarray(base, phi.dtype),
        bias=jnp.asarray(bias, phi.dtype),
        updates=jnp.zeros((), jnp.int32),
    )


def sign_of_mistake(f: Number, y: Number) -> Number:
    """y where f has not the sign of y, else zero."""
    return jnp.where(y * f <= 0, y, 0)
