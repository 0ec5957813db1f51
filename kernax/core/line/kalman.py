"""The factor of a Gram matrix along a line: a Kalman filter, one step for each point.

Everything here is of sorted points, of weights w and not of their square roots, and smooth in a
weight at zero. With P h the covariance of the states with the value at a point, and F what the
points before it explain of the covariance of the states, the filter is (in the form of Foreman-
Mackey et al. 2017, "Fast and scalable Gaussian process modeling", which is Cholesky's factor `L D
L^T` of `W K + diag(d)` in O(n))

    F = A F A^T,  q = P h - F h,  s = w h.q + d,  F = F + q q^T w / s,

and data y leave the innovations `v = y - h.x` with `x = A x`, then `x = x + q v w / s`. The usual
form, with `Q = P - A P A^T` added in each step, loses its digits where points are close.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import eps_of, matmul, positive_or_one, stopped
from kernax.core.base.parameters import check_count
from kernax.core.kernel.state_space import Chain
from kernax.core.linalg.factors import AbstractDirectFactor, factorise, with_jitter
from kernax.core.linalg.solvers import AbstractFactorSolver, refuse_options
from kernax.core.line.line import LineForm, OrderAlongLine, line_for
from kernax.core.line.recursions import AbstractRecursions, Gains, around, outer
from kernax.core.operators.operators import mean_diagonal


class KalmanFilter(eqx.Module):
    """The filter of `W K + diag(d)` at n sorted points, of m states.

    Attributes:
        observation: h, (m,).
        seen: `A^T h` of each point: its value is the product with the states at the point before,
            (n, m).
        kept: `(I - q h^T w / s) A` of each point, (n, m, m): x there is `kept x + q w y / s` of the
            x at the point before.
        gains: q of each point, (n, m).
        shares: w / s of each point, (n,).
        variances: s of each point, (n,).
        recursions: how the recursions from point to point are computed.
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
        """The filter of known gains."""
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
        """For each point, the means x of the states at the point before it, given the data up to
        there; zero for the first one.
        """
        return self.recursions.vectors(self.kept, self.gains, self._shared(Y))

    def explained(self) -> Float[Array, "n m m"]:
        """For each point, F at the point before it, that point's own share included; zero for the
        first one.
        """
        transitions = self.kept + jax.vmap(outer)(self._shared(self.gains), self.seen)
        return self.recursions.covariances(transitions, self.gains, self.shares)

    def innovations(self, Y: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`v`, of each column."""
        return Y - self.recursions.readings(self.kept, self.gains, self._shared(Y), self.seen)

    def later(self, innovations: Float[Array, "n p"]) -> Float[Array, "n m p"]:
        """r of each point, by which the data after it correct the states there, (n, m, p): one step
        back is `r = A^T (r + h w b)`, `b = (v - q.r) / s`.
        """
        shared = self._shared(innovations)
        return self.recursions.vectors(self.kept, self.seen, shared, back=True)

    def smoothed(self, innovations: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`b = (K W + diag(d))^-1 Y`, from the innovations of Y."""
        shared = self._shared(innovations)
        later = self.recursions.readings(self.kept, self.seen, shared, self.gains, back=True)
        return (innovations - later) / self.variances[:, None]

    def information(self) -> Float[Array, "n m m"]:
        """N of each point, the information of the points after it on the states there, which does
        not depend on the data.
        """
        return self.recursions.covariances(self.kept, self.seen, self.shares, back=True)

    def beside(self, i: Int[Array, ""]) -> tuple[Float[Array, "m m"], Float[Array, "m m"]]:
        """F at the last of the first i points, which those explain, and N at the next point, the
        information of all others on the states there. Each is zero where there are no such points.
        """
        last = jnp.maximum(i - 1, 0)
        q = self.gains[last]
        carried = self.kept[last] + outer(self.shares[last] * q, self.seen[last])
        before = around(carried, self.explained()[last]) + outer(self.shares[last] * q, q)
        first = jnp.minimum(i, len(self.shares) - 1)
        h = self.observation
        share = self.shares[first]
        left = jnp.eye(len(h), dtype=h.dtype) - outer(share * self.gains[first], h)
        after = around(left.T, self.information()[first]) + outer(share * h, h)
        return jnp.where(i > 0, before, 0), jnp.where(i < len(self.shares), after, 0)

    def diagonals(
        self, information: Float[Array, "n m m"], shift: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The diagonals of `P = (W K + diag(d))^-1` and of `K P`. The latter is the variance of the
        value at each point given the data, over d, where d may be zero.
        """
        size = jnp.sum(at_points(self.gains, information) * self.gains, 1)
        own = matmul(self.gains, self.observation)
        of_posterior = (own - shift / self.variances * size) / self.variances
        return (1 + self.shares * size) / self.variances, of_posterior

    def _shared(self, columns: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Columns times w / s."""
        return self.shares[:, None] * columns


def at_points(a: Float[Array, "n m"], B: Float[Array, "n m p"]) -> Float[Array, "n p"]:
    """`a_i^T B_i` of each point."""
    return matmul(a[:, None, :], B)[:, 0]


class KalmanFactor(AbstractDirectFactor):
    """`S K S + diag(d)`, S the square roots of weights w, by the filter of `W K + diag(d)`.

    Attributes:
        line: the order of the points.
        roots: the diagonal of S, of the sorted points.
    """

    filter: KalmanFilter
    line: OrderAlongLine
    roots: Float[Array, " n"]
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]

    def solve(self, B):
        # `M^-1 B = S (K W + d)^-1 S^-1 B` where weights are positive, elsewhere `B / d`: points of
        # weight zero change no state, so that any number may stand there in what is filtered.
        columns = self._sorted(B.reshape(len(B), -1))
        roots = self.roots[:, None]
        kalman = self.filter
        inside = roots * kalman.smoothed(kalman.innovations(columns / positive_or_one(roots)))
        alone = columns / kalman.variances[:, None]
        return self.line.unsorted(jnp.where(roots > 0, inside, alone)).reshape(B.shape)

    def solve_and_report(self, B):
        states = jnp.asarray(len(self.filter.observation))
        return self.solve(B), (self.result, {"jitter": self.jitter, "states": states})

    def whitened(self, B):
        columns = self._sorted(B)
        roots = self.roots[:, None]
        innovations = self.filter.innovations(columns / positive_or_one(roots))
        white = jnp.where(roots > 0, roots * innovations, columns)
        return white / jnp.sqrt(self.filter.variances)[:, None]

    def inverse(self):
        return self.solve(jnp.diag(jnp.ones_like(self.roots)))

    def inverse_diagonal(self):
        kalman = self.filter
        diagonal, _ = kalman.diagonals(kalman.information(), jnp.zeros_like(kalman.variances))
        return self.line.unsorted(self._known(diagonal))

    def log_determinant(self):
        return jnp.sum(jnp.log(self._known(self.filter.variances)))

    def rounding(self, diagonal):
        # To first order an error dF in what is explained of the states at a point moves log |M| by
        # -tr(N dF), N the information of the points after it, and one in M_ii by P_ii dM_ii. Errors
        # of 2 eps in each entry are independent from point to point.
        kalman = self.filter
        information = kalman.information()
        of_states = information[:-1] * kalman.explained()[1:]
        inverse, _ = kalman.diagonals(information, jnp.zeros_like(kalman.variances))
        squares = jnp.sum(of_states**2) + jnp.sum((inverse * diagonal[self.line.order]) ** 2)
        return self._known(2 * eps_of(diagonal) * jnp.sqrt(squares))

    def rounding_of_inverse(self, diagonal):
        return self.rounding(diagonal)

    def _sorted(self, B: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """The rows in the order of the line, NaN where there is no factor."""
        return self._known(B[self.line.order])

    def _known(self, B: Array) -> Array:
        return jnp.where(self.exists, B, jnp.nan)


class _Attempt(eqx.Module):
    """A filter with some jitter, and whether all variances are above rounding."""

    found: Gains
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]


class _Matrix(eqx.Module):
    """`S K S + diag(shift)` of sorted points, and its diagonal."""

    chain: Chain
    weights: Float[Array, " n"]
    shift: Float[Array, " n"]
    diagonal: Float[Array, " n"]
    recursions: AbstractRecursions

    def attempt(self, jitter: Float[Array, ""]) -> _Attempt:
        """The filter with some jitter. As for Cholesky's factor, a pivot within rounding of zero is
        a failure.
        """
        found = self.recursions.gains(self.chain, self.weights, self.shift + jitter)
        least = eps_of(self.diagonal) * self.diagonal
        return _Attempt(found, jitter, jnp.all(found.variances > least))  # false for NaN


@factorise.register
def _(operator: LineForm, scale: Float[Array, ""] | None = None) -> KalmanFactor:
    operator = stopped(operator)
    order = operator.gram.order
    weights = operator.weights.values[order]
    diagonal = operator.diagonal()[order]
    recursions = operator.gram.line.recursions
    matrix = lax.optimization_barrier(
        _Matrix(operator.gram.chain(), weights, operator.shift[order], diagonal, recursions)
    )
    scale = mean_diagonal(operator) if scale is None else scale
    end = with_jitter(matrix.attempt, lambda attempt: attempt.exists, scale)
    return KalmanFactor(
        filter=KalmanFilter.of(matrix.chain, weights, end.found, recursions),
        line=operator.gram.line,
        roots=operator.weights.times_roots(jnp.ones_like(weights))[order],
        jitter=end.jitter,
        exists=end.exists,
    )


class StateSpace(AbstractFactorSolver):
    """Points along one line and a kernel that has a state-space model, in O(n).

    The kernels are Matern12, Matern32 and Matern52, Cosine, Periodic and ZeroMeanPeriodic, whose
    Fourier series is cut off, constants, and sums, products, powers and scales of these. Points may
    be in any order, and several of them may be the same. A series needs two states for each of its
    `harmonics`, a sum those of all its terms, and a product the product of their numbers; m states
    take O(n m^3) operations. Where the part of a series that is cut off exceeds eps^(2/3) of the
    variance, as for a short lengthscale of a periodic kernel, the solve fails with `nonfinite`:
    take more harmonics.

    The evidence and its derivatives lose digits where the variance of the process is large against
    the noise, no more than those of the whole matrix do. `rounding`, among the stats of
    `condition`, says how many: derivatives in the logarithms of parameters are off by at most ten
    times as much, for targets that are likely under the process (in float64, at a variance of 1e5
    times the noise, some 1e-10; at 1e9 times some 1e-6).

    Attributes:
        harmonics: how many frequencies represent a periodic kernel.
        parallel: True computes the recursions from point to point by blocks of points side by side
            (Sarkka & Garcia-Fernandez 2021), in some hundred steps and two to three times the
            operations; False takes one point after the other. Both are as exact as `rounding` says;
            where K is nearly singular, one may take jitter where the other does not. On a CPU
            blocks take as long for one state, and three to ten times as long for more. By default
            (None) a CPU takes one point after the other, and any other device blocks, which has
            not been measured on one.

    Raises ValueError for kernels without a state-space model, for points that are not along one
    line, and where learners other than Gaussian processes take it.
    """

    harmonics: int = eqx.field(static=True, default=16)
    parallel: bool | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_count(self.harmonics, "harmonics")

    @property
    def needs_whole_matrix(self):
        return True

    @property
    def knows_determinant(self):
        return True

    def advice(self):
        return (
            " A periodic kernel of a short lengthscale needs more terms of its Fourier series, as "
            f"by StateSpace(harmonics={2 * self.harmonics})."
        )

    def structure_for(self, kernel, X, weights):
        return line_for(kernel, X, self.harmonics, self.parallel)

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> KalmanFactor:
        refuse_options(self, options)
        if not isinstance(operator, LineForm):
            raise ValueError(
                "StateSpace solves for points along a line in condition and "
                "log_marginal_likelihood; elsewhere use JitteredCholesky()"
            )
        factor = factorise(operator)
        assert isinstance(factor, KalmanFactor)
        return factor
