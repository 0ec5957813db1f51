"""The weights of points as a diagonal matrix W, the identity if none are given.

Learners call its methods without knowing whether there are weights.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import expand_to, is_concrete, values_of
from kernax.core.base.powers import exponent_of, times_power_of_two


class AbstractWeights(eqx.Module):
    """`W = diag(w)`, w >= 0 the weights of n points: 2 repeats a point, 0 removes it.

    The square root of a weight has no derivative at zero, but the weight itself has. Systems are
    therefore written with W, and only `solve` and `solve_transposed` use S = sqrt(W).
    """

    removes: ClassVar[bool]  # whether a weight may be zero

    @property
    @abc.abstractmethod
    def values(self) -> Float[Array, " n"]:
        """The vector w."""

    @property
    @abc.abstractmethod
    def given(self) -> Float[Array, " n"] | None:
        """w, or None for the identity: the argument of `weights_of` for these weights."""

    @abc.abstractmethod
    def times(self, A: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
        """`W A`."""

    @abc.abstractmethod
    def times_roots(self, A: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
        """`S A`."""

    @abc.abstractmethod
    def over_roots(self, A: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
        """`S^-1 A`, zero where a weight is zero."""

    @abc.abstractmethod
    def congruence(self, K: Float[Array, "n n"]) -> Float[Array, "n n"]:
        """`S K S`."""

    @abc.abstractmethod
    def shift_of(self, ridge: Float[Array, "*n"]) -> Float[Array, " n"]:
        """The ridge of each point, 1 where both it and the weight are zero.

        The row of a removed point is `shift_i a_i = 0`, where any positive shift serves.
        """

    @abc.abstractmethod
    def mean(self, values: Float[Array, " n"]) -> Float[Array, ""]:
        """The mean of values over the points of positive weight, each counted once, so that
        statistics of K are those of these points. If no point has a positive weight, the mean is
        over all.
        """

    @abc.abstractmethod
    def kept(self) -> Bool[np.ndarray, " n"] | None:
        """Which points have a positive weight; None while tracing."""

    @abc.abstractmethod
    def solve(
        self,
        inner: Callable[[Array], tuple[Array, Any]],
        multiply: Callable[[Array], Array],
        shift: Float[Array, "n *p"],
        B: Float[Array, "n p"],
    ) -> tuple[Float[Array, "n p"], Any]:
        """`(W K + diag(shift))^-1 B` and the report of `inner`; each column of B may have its own
        shift.

        `inner` solves with `S K S + diag(shift)`; `multiply` is the product with K.
        """

    @abc.abstractmethod
    def solve_transposed(
        self,
        inner: Callable[[Array], tuple[Array, Any]],
        multiply: Callable[[Array], Array],
        shift: Float[Array, "n *p"],
        B: Float[Array, "n p"],
    ) -> tuple[Float[Array, "n p"], Any]:
        """`(K W + diag(shift))^-1 B` and the report of `inner`, as in `solve`."""

    @abc.abstractmethod
    def inverse(
        self,
        inverse: Float[Array, "n n"],
        multiply: Callable[[Array], Array],
        shift: Float[Array, " n"],
    ) -> Float[Array, "n n"]:
        """`(W K + diag(shift))^-1`, given the inverse of `S K S + diag(shift)`."""


class UnitWeights(AbstractWeights):
    """Weights of one: W is the identity."""

    size: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    removes: ClassVar[bool] = False

    @property
    def values(self):
        return jnp.ones(self.size, self.dtype)

    @property
    def given(self):
        return None

    def times(self, A):
        return A

    def times_roots(self, A):
        return A

    def over_roots(self, A):
        return A

    def congruence(self, K):
        return K

    def shift_of(self, ridge):
        return jnp.broadcast_to(ridge, (self.size,))

    def mean(self, values):
        return jnp.mean(values)

    def kept(self):
        return np.ones(self.size, bool)

    def solve(self, inner, multiply, shift, B):
        return inner(B)

    def solve_transposed(self, inner, multiply, shift, B):
        return inner(B)

    def inverse(self, inverse, multiply, shift):
        return inverse


class PointWeights(AbstractWeights):
    """A weight for each point.

    With `M = S K S + diag(shift)` and `T = W K + diag(shift)`, `T^-1 B = S M^-1 S^-1 B` if all
    weights are positive. Where a weight is zero the row of T is `shift a = b`, which is eliminated
    first, without division by that weight.
    """

    weights: Float[Array, " n"]

    removes: ClassVar[bool] = True

    @property
    def values(self):
        return self.weights

    @property
    def given(self):
        return self.weights

    def times(self, A):
        return expand_to(self.weights, A) * A

    def times_roots(self, A):
        return expand_to(self.roots, A) * A

    def over_roots(self, A):
        return expand_to(self.inverse_roots, A) * A

    def congruence(self, K):
        return self.roots[:, None] * K * self.roots[None, :]

    @property
    def roots(self) -> Float[Array, " n"]:
        """S. Its derivative at weight zero is infinite; zero is returned."""
        present = self.weights > 0
        return jnp.where(present, jnp.sqrt(jnp.where(present, self.weights, 1)), 0)

    @property
    def inverse_roots(self) -> Float[Array, " n"]:
        """The inverse of S, zero where a root is zero."""
        present = self.weights > 0
        return jnp.where(present, 1 / jnp.sqrt(jnp.where(present, self.weights, 1)), 0)

    def shift_of(self, ridge):
        return jnp.where((self.weights > 0) | (ridge > 0), ridge, 1)

    def mean(self, values):
        # sum_i [w_i > 0] v_i / sum_i [w_i > 0].
        present = self.weights > 0
        counted = present | ~jnp.any(present)
        count = jnp.sum(counted, dtype=values.dtype)
        return jnp.sum(jnp.where(counted, values, 0)) / count

    def kept(self):
        return values_of(self.weights) > 0 if is_concrete(self.weights) else None

    def solve(self, inner, multiply, shift, B):
        # The rows of weight zero are shift a = b. Their a adds W K a to the other rows, for which
        # T^-1 = S M^-1 S^-1.
        removed = self._without_kept(shift, B)
        explained = self.times(multiply(removed))
        x, report = inner(self.over_roots(B - explained))
        return self.roots[:, None] * x + removed, report

    def solve_transposed(self, inner, multiply, shift, B):
        # K W + diag(shift) = S^-1 M S where weights are positive. The rows of weight zero are shift
        # a = b - K W a, where W a involves only the other rows.
        x, report = inner(self.roots[:, None] * B)
        kept = self.over_roots(x)
        left = B - multiply(self.times(kept))
        return kept + self._without_kept(shift, left), report

    def inverse(self, inverse, multiply, shift):
        # S M^-1 S^-1; columns of points of weight zero are those of D^-1 - S M^-1 S K D^-1, as
        # `solve` computes them from the columns of the identity, with D = diag(shift).
        def of_present(inverse):
            return self.roots[:, None] * inverse * self.inverse_roots[None, :]

        def with_removed(inverse):
            explained = multiply(self.congruence(inverse)).T
            removed = self._of_removed(shift)
            return of_present(inverse) - explained * removed[None, :] + jnp.diag(removed)

        removes = jnp.any(self.weights == 0)
        return lax.cond(removes, with_removed, of_present, inverse)

    def _without_kept(
        self, shift: Float[Array, "n *p"], B: Float[Array, "n p"]
    ) -> Float[Array, "n p"]:
        """`B / shift` where a weight is zero, zero elsewhere."""
        removed = self._of_removed(shift)
        return (removed if removed.ndim == B.ndim else removed[:, None]) * B

    def _of_removed(self, shift: Float[Array, "n *p"]) -> Float[Array, "n *p"]:
        """The inverse of the shift where a weight is zero, zero elsewhere."""
        present = expand_to(self.weights, shift) > 0
        return jnp.where(present, 0, 1 / jnp.where(present, 1, shift))


def weights_of(given: Float[Array, " n"] | None, n: int, dtype: Any) -> AbstractWeights:
    """The weights of n points; ones if none are given."""
    return UnitWeights(n, dtype) if given is None else PointWeights(given)


def in_common_unit(
    weights: Float[Array, " n"], ridge: Float[Array, ""]
) -> tuple[Float[Array, " n"], Float[Array, ""], Int[Array, ""]]:
    """`2^-e w`, `2^-e ridge` and e, such that the product of the ridge and the largest weight is
    about one.

    `sum_i w_i L_i + ridge/2 |f|^2` has the same minimum in any unit. For weights near the smallest
    or the largest float, terms of its gradient would be zero or inf.
    """
    exponents = exponent_of(jnp.max(weights)) + exponent_of(ridge)
    # max(w) ridge is about 2^exponents, and (2^-e max(w)) (2^-e ridge) is 2^(-2 e) times that.
    unit = lax.div(exponents, jnp.full_like(exponents, 2))
    scaled_weights, scaled_ridge = times_power_of_two((weights, ridge), -unit)
    return scaled_weights, scaled_ridge, unit
