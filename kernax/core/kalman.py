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
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Bool, Float

from kernax.core.factors import (
    AbstractDirectFactor,
    factorise,
    range_of_jitter,
)
from kernax.core.line import LineForm, OrderAlongLine, line_for
from kernax.core.numerics import eps_of, matmul, positive_or_one, stopped
from kernax.core.parameters import check_count
from kernax.core.sharding import scan, while_loop
from kernax.core.solvers import (
    AbstractFactorSolver,
    knows_determinant,
    needs_whole_matrix,
    refuse_options,
)
from kernax.core.state_space import Chain
from kernax.core.structure import structure_for


class Gains(eqx.Module):
    """What the filter knows of the matrix, whatever the data.

    Attributes:
        gains: q of each point, (n, m).
        variances: s of each point, (n,).
    """

    gains: Float[Array, "*n m"]
    variances: Float[Array, "*n"]

    @staticmethod
    def of(chain: Chain, weights: Float[Array, " n"], shift: Float[Array, " n"]) -> "Gains":
        """Those of `W K + diag(shift)`."""
        start = chain.start
        h = chain.observation

        def step(explained, at):
            A, w, d = at
            explained = around(A, explained)
            q = start - jnp.sum(explained * h[None, :], 1)
            s = w * jnp.sum(h * q) + d
            return explained + outer(q, w / s * q), Gains(q, s)

        nothing = jnp.zeros_like(chain.stationary)
        return scan(step, nothing, (chain.transitions, weights, shift))[1]


class KalmanFilter(eqx.Module):
    """The filter of `W K + diag(d)` at n sorted points, of m states.

    Attributes:
        seen: `A^T h` of each point, what it sees of the states at the point before, (n, m).
        kept: `(I - q h^T w / s) A` of each point, by which what is not seen goes on, (n, m, m).
        gains: q of each point, (n, m).
        shares: w / s of each point, (n,).
        variances: s of each point, (n,).
    """

    observation: Float[Array, " m"]
    seen: Float[Array, "n m"]
    kept: Float[Array, "n m m"]
    gains: Float[Array, "n m"]
    shares: Float[Array, " n"]
    variances: Float[Array, " n"]

    @staticmethod
    def of(chain: Chain, weights: Float[Array, " n"], found: Gains) -> "KalmanFilter":
        """That of gains which are known."""
        seen = matmul(chain.observation, chain.transitions)
        shares = weights / found.variances
        scaled = shares[:, None] * found.gains
        kept = chain.transitions - scaled[:, :, None] * seen[:, None, :]
        return KalmanFilter(chain.observation, seen, kept, found.gains, shares, found.variances)

    def states(self, Y: Float[Array, "n p"]) -> Float[Array, "n m p"]:
        """The means x of the states at each point, given the data up to the point before, there:
        the first ones zero.
        """

        def step(states, at):
            kept, q, share, y = at
            return matmul(kept, states) + outer(q, share * y), states

        nothing = jnp.zeros((len(self.observation), Y.shape[1]), Y.dtype)
        return scan(step, nothing, (self.kept, self.gains, self.shares, Y))[1]

    def explained(self) -> Float[Array, "n m m"]:
        """F of the point before each, with what that point adds: the first one zero. In a loop of
        its own, as XLA takes ten times as long for a step that returns much.
        """

        def step(explained, at):
            A, q, share = at
            return around(A, explained) + outer(q, share * q), explained

        scaled = self.shares[:, None] * self.gains
        transitions = self.kept + scaled[:, :, None] * self.seen[:, None, :]
        nothing = jnp.zeros_like(self.kept[0])
        return scan(step, nothing, (transitions, self.gains, self.shares))[1]

    def innovations(self, Y: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`v`, of each column."""

        def step(states, at):
            kept, seen, q, share, y = at
            return matmul(kept, states) + outer(q, share * y), y - matmul(seen, states)

        nothing = jnp.zeros((len(self.observation), Y.shape[1]), Y.dtype)
        of_points = (self.kept, self.seen, self.gains, self.shares, Y)
        return scan(step, nothing, of_points)[1]

    def later(self, innovations: Float[Array, "n p"]) -> Float[Array, "n m p"]:
        """What the data after each point say of the states there, (n, m, p): one step back is `r =
        A^T (r + h w b)`, `b = (v - q.r) / s`.
        """

        def step(later, at):
            kept, seen, share, v = at
            return matmul(kept.T, later) + outer(seen, share * v), later

        nothing = jnp.zeros((len(self.observation), innovations.shape[1]), innovations.dtype)
        of_points = (self.kept, self.seen, self.shares, innovations)
        return scan(step, nothing, of_points, reverse=True)[1]

    def smoothed(self, innovations: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`b = (K W + diag(d))^-1 Y`, of the data that left the innovations."""

        def step(later, at):
            kept, seen, share, q, v = at
            return matmul(kept.T, later) + outer(seen, share * v), v - matmul(q, later)

        nothing = jnp.zeros((len(self.observation), innovations.shape[1]), innovations.dtype)
        of_points = (self.kept, self.seen, self.shares, self.gains, innovations)
        return scan(step, nothing, of_points, reverse=True)[1] / self.variances[:, None]

    def information(self) -> Float[Array, "n m m"]:
        """N of each point, how much those after it say of the states there, whatever the data."""

        def step(later, at):
            kept, seen, share = at
            return around(kept.T, later) + outer(seen, share * seen), later

        nothing = jnp.zeros_like(self.kept[0])
        return scan(step, nothing, (self.kept, self.seen, self.shares), reverse=True)[1]

    def diagonals(
        self, information: Float[Array, "n m m"], shift: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """Those of `P = (W K + diag(d))^-1` and of `K P`, which is the variance of the value at
        each point, given the data, over d, where d may be zero.
        """
        size = jnp.sum(at_points(self.gains, information) * self.gains, 1)
        own = matmul(self.gains, self.observation)
        of_posterior = (own - shift / self.variances * size) / self.variances
        return (1 + self.shares * size) / self.variances, of_posterior


def at_points(a: Float[Array, "n m"], B: Float[Array, "n m p"]) -> Float[Array, "n p"]:
    """`a_i^T B_i` of each point."""
    return matmul(a[:, None, :], B)[:, 0]


# Up to so many states all of a product of three small matrices is one sum.
_FEW_STATES = 4


def around(A: Float[Array, "m m"], F: Float[Array, "m m"]) -> Float[Array, "m m"]:
    """`A F A^T`. Of a few states as one sum: XLA then keeps the body of a loop over points in one
    function of a CPU, where each step takes 30 to 50 ns, and not 500.
    """
    if len(A) > _FEW_STATES:
        return matmul(matmul(A, F), A.T)
    return jnp.sum(A[:, None, :, None] * F[None, None, :, :] * A[None, :, None, :], (2, 3))


def outer(a: Float[Array, " m"], b: Float[Array, " p"]) -> Float[Array, "m p"]:
    """`a b^T`."""
    return a[:, None] * b[None, :]


class KalmanFactor(AbstractDirectFactor):
    """`S K S + diag(d)`, S the square roots of weights w, by the filter of `W K + diag(d)`.

    Attributes:
        line: where the points stand.
        roots: the diagonal of S, of the sorted points.
    """

    filter: KalmanFilter
    line: OrderAlongLine
    roots: Float[Array, " n"]
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]

    def solve(self, B):
        # `M^-1 B = S (K W + d)^-1 S^-1 B` where weights are positive, elsewhere `B / d`: there the
        # filter sees nothing, and what it is given only says how far off it was.
        columns = self._sorted(B.reshape(len(B), -1))
        roots = self.roots[:, None]
        of = self.filter
        inside = roots * of.smoothed(of.innovations(columns / positive_or_one(roots)))
        alone = columns / of.variances[:, None]
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
        of = self.filter
        diagonal, _ = of.diagonals(of.information(), jnp.zeros_like(of.variances))
        return self.line.unsorted(self._known(diagonal))

    def log_determinant(self):
        return jnp.sum(jnp.log(self._known(self.filter.variances)))

    def rounding(self, diagonal):
        # To first order an error dF in what is explained of the states at a point moves log |M| by
        # -tr(N dF), N the information of the points after it, and one in M_ii by P_ii dM_ii. Errors
        # of 2 eps in each entry are independent from point to point.
        of = self.filter
        information = of.information()
        of_states = information[:-1] * of.explained()[1:]
        inverse, _ = of.diagonals(information, jnp.zeros_like(of.variances))
        squares = jnp.sum(of_states**2) + jnp.sum((inverse * diagonal[self.line.order]) ** 2)
        return self._known(2 * eps_of(diagonal) * jnp.sqrt(squares))

    def rounding_of_inverse(self, diagonal):
        return self.rounding(diagonal)

    def updated(self, v, sign=1.0):
        raise ValueError(
            "a factor along a line has no update by any vector: factorise by JitteredCholesky()"
        )

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

    def attempt(self, jitter: Float[Array, ""]) -> _Attempt:
        """What the filter finds, by Cholesky's rule: a pivot within rounding of zero is none."""
        found = Gains.of(self.chain, self.weights, self.shift + jitter)
        least = eps_of(self.diagonal) * self.diagonal
        return _Attempt(found, jitter, jnp.all(found.variances > least))  # false for NaN


@factorise.register
def _(operator: LineForm, scale: Float[Array, ""] | None = None) -> KalmanFactor:
    operator = stopped(operator)
    order = operator.gram.order
    weights = operator.weights.values[order]
    diagonal = operator.diagonal()[order]
    matrix = lax.optimization_barrier(
        _Matrix(operator.gram.chain(), weights, operator.shift[order], diagonal)
    )
    end = _with_jitter(matrix, jnp.mean(diagonal) if scale is None else scale)
    return KalmanFactor(
        filter=KalmanFilter.of(matrix.chain, weights, end.found),
        line=operator.gram.line,
        roots=operator.weights.times_roots(jnp.ones_like(weights))[order],
        jitter=end.jitter,
        exists=end.exists,
    )


def _with_jitter(matrix: _Matrix, scale: Float[Array, ""]) -> _Attempt:
    """The first attempt that succeeds, as `factorise` says."""
    first, most = range_of_jitter(scale)
    can_grow = jnp.isfinite(scale) & (first > 0)

    def go_on(now: _Attempt) -> Array:
        return ~now.exists & (now.jitter < most) & can_grow

    def again(now: _Attempt) -> _Attempt:
        larger = jnp.minimum(10 * now.jitter, most)
        return matrix.attempt(jnp.where(now.jitter > 0, larger, first))

    return while_loop(go_on, again, matrix.attempt(jnp.zeros_like(scale)))


class StateSpace(AbstractFactorSolver):
    """Points along one line and a kernel that has a state-space model, in O(n).

    The kernels are Matern12, Matern32 and Matern52, Cosine, Periodic and ZeroMeanPeriodic, whose
    Fourier series is cut off, constants, and sums, products, powers and scales of these; points may
    have any order, and copies. A series needs two states for each of its `harmonics`, and a sum
    those of its terms; a product of models has the product of their numbers. m states take O(n m^3)
    operations. Where the part of a series that is cut off exceeds eps^(2/3) of the variance, as for
    a short lengthscale of a periodic kernel, the solve fails with `nonfinite`: take more harmonics.

    Attributes:
        harmonics: how many frequencies stand for a periodic kernel.
    """

    harmonics: int = eqx.field(static=True, default=16)

    def __check_init__(self):
        check_count(self.harmonics, "harmonics")

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


@needs_whole_matrix.register
@knows_determinant.register
def _(solver: StateSpace) -> bool:
    return True


@structure_for.register
def _(solver: StateSpace, kernel, X, weights) -> OrderAlongLine:
    return line_for(kernel, X, solver.harmonics)
