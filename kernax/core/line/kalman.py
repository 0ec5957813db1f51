"""The factor of a Gram matrix along a line: a Kalman filter, one step for each point.

All functions are for sorted points, and use weights w and not their square roots, so that they are
smooth in a weight at zero. Let P h be the covariance of the states with the value at a point, and F
the reduction of the covariance of the states by the previous points. The filter (in the form of
Foreman-Mackey et al. 2017, "Fast and scalable Gaussian process modeling", which is the Cholesky
factorisation `L D L^T` of `W K + diag(d)` in O(n)) is

    F = A F A^T,  q = P h - F h,  s = w h.q + d,  F = F + q q^T w / s,

and data y have the innovations `v = y - h.x` with `x = A x`, then `x = x + q v w / s`. The usual
form, which adds `Q = P - A P A^T` in each step, loses digits if points are close.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import matmul
from kernax.core.kernel.state_space import Chain
from kernax.core.line.recursions import AbstractRecursions, Gains, congruence, outer


class KalmanFilter(eqx.Module):
    """The filter of `W K + diag(d)` at n sorted points, with m states.

    Attributes:
        observation: h, (m,).
        seen: `A^T h` for each point, (n, m); the value of the point is the product with the states
            at the previous point.
        kept: `(I - q h^T w / s) A` for each point, (n, m, m); x there is `kept x + q w y / s` with
            x at the previous point.
        gains: q for each point, (n, m).
        shares: w / s for each point, (n,).
        variances: s for each point, (n,).
        recursions: the method for recursions from point to point.
    """

    observation: Float[Array, " m"]
    seen: Float[Array, "n m"]
    kept: Float[Array, "n m m"]
    gains: Float[Array, "n m"]
    shares: Float[Array, " n"]
    variances: Float[Array, " n"]
    recursions: AbstractRecursions

    @staticmethod
    def of(
        chain: Chain, weights: Float[Array, " n"], found: Gains, recursions: AbstractRecursions
    ) -> "KalmanFilter":
        """The filter with known gains."""
        # x = A x + q w (y - h.A x) / s = kept x + q w y / s.
        seen = matmul(chain.observation, chain.transitions)
        shares = weights / found.variances
        return KalmanFilter(
            observation=chain.observation,
            seen=seen,
            kept=chain.transitions - jax.vmap(outer)(shares[:, None] * found.gains, seen),
            gains=found.gains,
            shares=shares,
            variances=found.variances,
            recursions=recursions,
        )

    def states(self, Y: Float[Array, "n p"]) -> Float[Array, "n m p"]:
        """For each point, the means x of the states at the previous point, given the data up to
        there; zero for the first point.
        """
        return self.recursions.vectors(self.kept, self.gains, self._shared(Y))

    def reductions(self) -> Float[Array, "n m m"]:
        """For each point, F at the previous point, including that point; zero for the first."""
        # A = kept + q (A^T h)^T w / s.
        transitions = self.kept + jax.vmap(outer)(self._shared(self.gains), self.seen)
        return self.recursions.covariances(transitions, self.gains, self.shares)

    def innovations(self, Y: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """The innovations `v` for each column."""
        return Y - self.recursions.readings(self.kept, self.gains, self._shared(Y), self.seen)

    def later(self, innovations: Float[Array, "n p"]) -> Float[Array, "n m p"]:
        """r for each point, the correction of the states there by later data, (n, m, p). One step
        back is `r = A^T (r + h w b)`, `b = (v - q.r) / s`.
        """
        shared = self._shared(innovations)
        return self.recursions.vectors(self.kept, self.seen, shared, back=True)

    def smoothed(self, innovations: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`b = (K W + diag(d))^-1 Y` from the innovations of Y."""
        shared = self._shared(innovations)
        later = self.recursions.readings(self.kept, self.seen, shared, self.gains, back=True)
        return (innovations - later) / self.variances[:, None]

    def information(self) -> Float[Array, "n m m"]:
        """N for each point, the information of later points about the states there, which does not
        depend on the data.
        """
        return self.recursions.covariances(self.kept, self.seen, self.shares, back=True)

    def at_neighbours(self, i: Int[Array, ""]) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
        """F at the last of the first i points, given these, and N at the next point, the
        information of all others about the states there. Each is zero if there are no such points.
        """
        last = jnp.maximum(i - 1, 0)
        q = self.gains[last]
        # F = A F A^T + q q^T w / s at the last point, with A = kept + q (A^T h)^T w / s.
        carried = self.kept[last] + outer(self.shares[last] * q, self.seen[last])
        before = congruence(carried, self.reductions()[last]) + outer(self.shares[last] * q, q)
        first = jnp.minimum(i, len(self.shares) - 1)
        h = self.observation
        share = self.shares[first]
        # N = (I - q h^T w / s)^T N (I - q h^T w / s) + h h^T w / s, with its own observation.
        left = jnp.eye(len(h), dtype=h.dtype) - outer(share * self.gains[first], h)
        after = congruence(left.T, self.information()[first]) + outer(share * h, h)
        return jnp.where(i > 0, before, 0), jnp.where(i < len(self.shares), after, 0)

    def diagonals(
        self, information: Float[Array, "n m m"], shift: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The diagonals of `P = (W K + diag(d))^-1` and of `K P`. The latter is the posterior
        variance of the value at each point divided by d, where d may be zero.
        """
        # P_ii = (1 + w q.N q / s) / s, and (K P)_ii = (1 - d P_ii) / w = (h.q - d q.N q / s) / s,
        # as s = w h.q + d. The last form is smooth in w at zero.
        size = jnp.sum(at_points(self.gains, information) * self.gains, 1)
        own = matmul(self.gains, self.observation)
        of_posterior = (own - shift / self.variances * size) / self.variances
        return (1 + self.shares * size) / self.variances, of_posterior

    def _shared(self, columns: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Columns times w / s."""
        return self.shares[:, None] * columns


def at_points(a: Float[Array, "n m"], B: Float[Array, "n m p"]) -> Float[Array, "n p"]:
    """`a_i^T B_i` for each point."""
    return matmul(a[:, None, :], B)[:, 0]
