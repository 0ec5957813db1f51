"""Recursions along ordered points, with a few numbers each, and their sequential form."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.numerics import matmul
from kernax.core.kernel.state_space import Chain


class Gains(eqx.Module):
    """The quantities of a Kalman filter that do not depend on the data.

    Attributes:
        gains: q for each point, (n, m).
        variances: s for each point, (n,).
    """

    gains: Float[Array, "*n m"]
    variances: Float[Array, "*n"]


class AbstractRecursions(eqx.Module):
    """Recursions along n points, all of which start from zero.

    With `back` they run from the last point to the first one, with A_i^T in place of A_i. The
    results are the states before the step of each point.
    """

    @abc.abstractmethod
    def vectors(
        self,
        A: Float[Array, "n m m"],
        a: Float[Array, "n m"],
        V: Float[Array, "n p"],
        *,
        back: bool = False,
    ) -> Float[Array, "n m p"]:
        """The x before each step `x = A_i x + a_i v_i^T`."""

    @abc.abstractmethod
    def readings(
        self,
        A: Float[Array, "n m m"],
        a: Float[Array, "n m"],
        V: Float[Array, "n p"],
        readers: Float[Array, "n m"],
        *,
        back: bool = False,
    ) -> Float[Array, "n p"]:
        """`readers_i . x` for the x of `vectors`."""

    @abc.abstractmethod
    def covariances(
        self,
        A: Float[Array, "n m m"],
        a: Float[Array, "n m"],
        scales: Float[Array, " n"],
        *,
        back: bool = False,
    ) -> Float[Array, "n m m"]:
        """The F before each step `F = A_i F A_i^T + scale_i a_i a_i^T`."""

    @abc.abstractmethod
    def gains(self, chain: Chain, weights: Float[Array, " n"], shift: Float[Array, " n"]) -> Gains:
        """Gains and variances of the filter of `W K + diag(shift)`, where d is the shift of a
        point:

        F = A F A^T,  q = P h - F h,  s = w h.q + d,  F = F + q q^T w / s.
        """


class SequentialRecursions(AbstractRecursions):
    """Recursions point by point, in O(n m^3) operations."""

    def vectors(self, A, a, V, *, back=False):
        return vectors_from(jnp.zeros((a.shape[1], V.shape[1]), V.dtype), A, a, V, back=back)

    def readings(self, A, a, V, readers, *, back=False):
        nothing = jnp.zeros((a.shape[1], V.shape[1]), V.dtype)
        return readings_from(nothing, A, a, V, readers, back=back)

    def covariances(self, A, a, scales, *, back=False):
        return covariances_from(jnp.zeros_like(A[0]), A, a, scales, back=back)

    def gains(self, chain, weights, shift):
        nothing = jnp.zeros_like(chain.stationary)
        return gains_from(nothing, chain.transitions, weights, shift, chain)


# Each is a separate short loop, because XLA takes ten times as long for steps with many outputs.


def vectors_from(
    x: Float[Array, "m p"],
    A: Float[Array, "n m m"],
    a: Float[Array, "n m"],
    V: Float[Array, "n p"],
    back: bool = False,
) -> Float[Array, "n m p"]:
    """`AbstractRecursions.vectors` starting from a given x instead of zero."""

    def step(x, at):
        A, a, v = at
        return small_product(_directed(A, back), x) + outer(a, v), x

    return lax.scan(step, x, (A, a, V), reverse=back)[1]


def readings_from(
    x: Float[Array, "m p"],
    A: Float[Array, "n m m"],
    a: Float[Array, "n m"],
    V: Float[Array, "n p"],
    readers: Float[Array, "n m"],
    back: bool = False,
) -> Float[Array, "n p"]:
    """`AbstractRecursions.readings` starting from a given x instead of zero."""

    def step(x, at):
        A, a, v, reader = at
        after = small_product(_directed(A, back), x) + outer(a, v)
        return after, small_product(reader[None, :], x)[0]

    return lax.scan(step, x, (A, a, V, readers), reverse=back)[1]


def covariances_from(
    F: Float[Array, "m m"],
    A: Float[Array, "n m m"],
    a: Float[Array, "n m"],
    scales: Float[Array, " n"],
    back: bool = False,
) -> Float[Array, "n m m"]:
    """`AbstractRecursions.covariances` starting from a given F instead of zero."""

    def step(F, at):
        A, a, scale = at
        return congruence(_directed(A, back), F) + outer(a, scale * a), F

    return lax.scan(step, F, (A, a, scales), reverse=back)[1]


def gains_from(
    F: Float[Array, "m m"],
    A: Float[Array, "n m m"],
    weights: Float[Array, " n"],
    shift: Float[Array, " n"],
    chain: Chain,
) -> Gains:
    """`AbstractRecursions.gains` starting from a given F, at some of the points of a chain."""
    start = chain.start
    h = chain.observation

    def step(F, at):
        A, w, d = at
        F = congruence(A, F)
        q, s = gain_at(F, w, d, start, h)
        return F + outer(q, w / s * q), Gains(q, s)

    return lax.scan(step, F, (A, weights, shift))[1]


def gain_at(
    F: Float[Array, "m m"],
    w: Float[Array, ""],
    d: Float[Array, ""],
    start: Float[Array, " m"],
    h: Float[Array, " m"],
) -> tuple[Float[Array, " m"], Float[Array, ""]]:
    """q and s for a point."""
    # q = P h - F h, s = w h.q + d.
    q = start - jnp.sum(F * h[None, :], 1)
    return q, w * jnp.sum(h * q) + d


def _directed(A: Float[Array, "m m"], back: bool) -> Float[Array, "m m"]:
    """The matrix of a step in this direction."""
    return A.T if back else A


# Up to this many states a product of small matrices is written as one sum. XLA then keeps the body
# of a loop over points in one function on a CPU, and a step takes 30 to 50 ns instead of 500 ns.
_FEW_STATES = 4


def small_product(A: Float[Array, "l m"], B: Float[Array, "m p"]) -> Float[Array, "l p"]:
    """`A B`."""
    if len(B) > _FEW_STATES:
        return matmul(A, B)
    return jnp.sum(A[:, :, None] * B[None, :, :], 1)


def congruence(A: Float[Array, "m m"], F: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """`A F A^T`."""
    if len(A) > _FEW_STATES:
        return matmul(matmul(A, F), A.T)
    return jnp.sum(A[:, None, :, None] * F[None, None, :, :] * A[None, :, None, :], (2, 3))


def outer(a: Float[Array, " m"], b: Float[Array, " p"]) -> Float[Array, "m p"]:
    """`a b^T`."""
    return a[:, None] * b[None, :]
