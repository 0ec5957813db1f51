"""Multiplicative updates of weights, for data where few of many features matter.

Weights are stored as exponents, so that no weight underflows to zero, from where it could not grow
again. A balanced learner has a negative weight for each positive one: it learns from all features
and their negatives.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.boundary import dtype_of
from kernax.core.base.numerics import dot, stop_gradient
from kernax.core.base.parameters import data
from kernax.core.base.solution import RESULTS
from kernax.core.learner.linear import LinearFunction
from kernax.online.learner import AbstractOnlineState

Number = Float[Array, ""]


class Identity(eqx.Module):
    """The features `phi(x) = x` of a vector."""

    def __call__(self, x: PyTree) -> Float[Array, " d"]:
        if not eqx.is_array_like(x) or jnp.ndim(x) != 1:
            raise ValueError(
                "this learner has a weight for each component of a vector, but a point is not a "
                "vector (d,): pass features=, a function of a point that returns one"
            )
        return x


def features_at(features: Callable, x: PyTree) -> Float[Array, " d"]:
    """The features at a point as floats. Raises ValueError unless they are a vector."""
    phi = jnp.asarray(features(x))
    if phi.ndim != 1:
        raise ValueError(
            f"features must return a vector (d,) at a point, but return shape {phi.shape}"
        )
    return phi if jnp.issubdtype(phi.dtype, jnp.inexact) else phi.astype(dtype_of(x))


class MultiplicativeState(AbstractOnlineState):
    """The state of a multiplicative learner.

    Attributes:
        features: the features of the learner, which the weights multiply.
        exponents: (1, d); for balanced learners (2, d), for the features and for their negatives.
        base: the base of the weights `base^exponents`; None for e. If features are 0 or 1, the
            exponents of Winnow are integers, without rounding.
        bias: the constant added to the sum.
        updates: the number of points that changed the weights.

    Examples:
        >>> state = kernax.online.Winnow().init(jnp.zeros(3))
        >>> state.weights
        Array([1., 1., 1.], dtype=float64)
    """

    features: Callable
    exponents: Float[Array, "signs d"] = data()
    base: Number | None = data()
    bias: Float[Array, ""] = data()
    updates: Int[Array, ""]

    @property
    def weights(self) -> Float[Array, " d"]:
        """The weight of each feature: for balanced learners, the difference of its two weights."""
        exponents = self.exponents
        # w_i = b^e+_i - b^e-_i, the second term for balanced learners only.
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
        """The weights multiplied by `base^(step phi)`, and those of the negatives by `base^(-step
        phi)`, where phi are the features at a point.
        """
        # e+_i <- e+_i + step phi_i, and e-_i <- e-_i - step phi_i.
        change = _signs(self.exponents) * (step * phi)[None]
        return MultiplicativeState(
            features=features,
            exponents=self.exponents + change,
            base=self.base,
            bias=self.bias,
            updates=self.updates + (step != 0).astype(jnp.int32),
        )

    def with_total(self, total: Array) -> "MultiplicativeState":
        """The same weights rescaled to sum to the total, for base e."""
        # Subtract the largest exponent first: otherwise its digits hide those of the logarithm.
        exponents = self.exponents - stop_gradient(jnp.max(self.exponents))
        # Weights exp(e_i) sum to the total where log sum_i exp(e_i) = log(total).
        excess = jax.nn.logsumexp(exponents) - jnp.log(total)
        return eqx.tree_at(lambda state: state.exponents, self, exponents - excess)


def _signs(exponents: Float[Array, "signs d"]) -> Float[Array, "signs 1"]:
    """+1 for the features, and -1 for their negatives."""
    return jnp.asarray([[1.0], [-1.0]], exponents.dtype)[: len(exponents)]


def weights_of_one(
    features: Any, point: PyTree, *, balanced: bool, base: Any = None, bias: Any = 0.0
) -> MultiplicativeState:
    """The state with all weights one, including those of the negatives."""
    # b^0 = 1 for each weight.
    phi = eqx.filter_eval_shape(features_at, features, point)
    return MultiplicativeState(
        features=features,
        exponents=jnp.zeros((2 if balanced else 1, *phi.shape), phi.dtype),
        base=None if base is None else jnp.asarray(base, phi.dtype),
        bias=jnp.asarray(bias, phi.dtype),
        updates=jnp.zeros((), jnp.int32),
    )


def sign_of_mistake(f: Number, y: Number) -> Number:
    """y if f has another sign or is zero; otherwise zero."""
    return jnp.where(y * f <= 0, y, 0)
