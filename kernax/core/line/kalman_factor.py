"""The Kalman filter as the factor of a Gram matrix along a line, its inverse, and the covariance
reduction, each in O(n).
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import dot, eps_of, matmul, positive_or_one, stop_gradient
from kernax.core.base.parameters import check_count
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.state_space import Chain
from kernax.core.linalg.factorisation import (
    AbstractCovarianceReduction,
    AbstractDirectFactor,
    AbstractSolvedInverse,
    WeightedSystem,
    row_at,
)
from kernax.core.linalg.jitter import with_jitter
from kernax.core.linalg.linear_solvers import AbstractDirectSolver, factorise, refuse_options
from kernax.core.line.kalman import KalmanFilter
from kernax.core.line.line import LineForm, LineGram, OrderAlongLine, line_for
from kernax.core.line.recursions import AbstractRecursions, Gains
from kernax.core.line.smoothing import Along, filter_of, line_gram, slopes
from kernax.core.operators.operators import mean_diagonal


class KalmanFactor(AbstractDirectFactor):
    """The factor of `S K S + diag(d)`, with S the square roots of weights w, by the filter of `W K
    + diag(d)`.

    Attributes:
        line: the order of the points.
        roots: the diagonal of S for the sorted points.
    """

    filter: KalmanFilter
    line: OrderAlongLine
    roots: Float[Array, " n"]
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]

    def solve(self, B):
        # `M^-1 B = S (K W + d)^-1 S^-1 B` where weights are positive, elsewhere `B / d`. Points of
        # weight zero do not change the states, so the filtered data may have any number there.
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
        # b.M^-1 b = sum_i w_i v_i^2 / s_i for a column b, with the innovations v of S^-1 b. Where
        # w_i = 0, s_i is d_i and the term is b_i^2 / d_i.
        innovations = self.filter.innovations(columns / positive_or_one(roots))
        white = jnp.where(roots > 0, roots * innovations, columns)
        return white / jnp.sqrt(self.filter.variances)[:, None]

    def inverse(self):
        return self.solve(jnp.diag(jnp.ones_like(self.roots)))

    def inverse_diagonal(self):
        kalman = self.filter
        # M^-1 has the diagonal of (W K + diag(d))^-1 = S M^-1 S^-1.
        diagonal, _ = kalman.diagonals(kalman.information(), jnp.zeros_like(kalman.variances))
        return self.line.unsorted(self._known(diagonal))

    def log_determinant(self):
        # log |M| = sum_i log s_i, from L D L^T with the s_i in D.
        return jnp.sum(jnp.log(self._known(self.filter.variances)))

    def inverse_of(self, system):
        return LineInverse(system, stop_gradient(self))

    def terms_of_density(self, system, y):
        found = slopes(Along.of(system.with_jitter(self)), y[self.line.order])
        known = jnp.where(self.exists, 1, jnp.nan)

        def terms(system: WeightedSystem, y: Array) -> tuple[Array, Array]:
            # The second term contains all of it.
            of_density = found.inner_product(system.with_jitter(self), y)
            return jnp.zeros_like(of_density), -2 * known.astype(y.dtype) * of_density

        return terms

    def covariance_reduction(self, system):
        system = system.with_jitter(self)
        return LineReduction(
            gram=line_gram(system),
            weights=system.weights.given,
            shift=system.shift,
            filter=filter_of(Along.of(system)),
        )

    def rounding(self, diagonal):
        # To first order an error dF at a point changes log |M| by -tr(N dF), where N is the
        # information of later points, and an error in M_ii changes it by P_ii dM_ii. Errors of 2
        # eps in each entry are independent from point to point.
        kalman = self.filter
        information = kalman.information()
        of_states = information[:-1] * kalman.reductions()[1:]
        inverse, _ = kalman.diagonals(information, jnp.zeros_like(kalman.variances))
        squares = jnp.sum(of_states**2) + jnp.sum((inverse * diagonal[self.line.order]) ** 2)
        return self._known(2 * eps_of(diagonal) * jnp.sqrt(squares))

    def rounding_of_inverse(self, diagonal):
        return self.rounding(diagonal)

    def _sorted(self, B: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """The rows in the order of the line; NaN if there is no factor."""
        return self._known(B[self.line.order])

    def _known(self, B: Array) -> Array:
        return jnp.where(self.exists, B, jnp.nan)


class _JitteredFilter(eqx.Module):
    """A filter with some jitter, and whether all variances are above rounding."""

    found: Gains
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]


class _Matrix(eqx.Module):
    """`S K S + diag(shift)` for sorted points, and its diagonal."""

    chain: Chain
    weights: Float[Array, " n"]
    shift: Float[Array, " n"]
    diagonal: Float[Array, " n"]
    recursions: AbstractRecursions

    def attempt(self, jitter: Float[Array, ""]) -> _JitteredFilter:
        """The filter with some jitter. As for a Cholesky factor, a pivot within rounding of zero is
        a failure.
        """
        found = self.recursions.gains(self.chain, self.weights, self.shift + jitter)
        least = eps_of(self.diagonal) * self.diagonal
        return _JitteredFilter(found, jitter, jnp.all(found.variances > least))  # false for NaN


@factorise.register
def _(operator: LineForm, scale: Float[Array, ""] | None = None) -> KalmanFactor:
    operator = stop_gradient(operator)
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


class LineInverse(AbstractSolvedInverse):
    """`P = T^-1` for a system along a line.

    Attributes:
        system: T, without jitter.
        factor: the factor of T with jitter, a constant for derivatives.
    """

    system: WeightedSystem
    factor: KalmanFactor

    @property
    def along(self) -> Along:
        """T with jitter, along the line."""
        return Along.of(self.system.with_jitter(self.factor))

    def diagonal(self):
        return self._diagonals()[0]

    def diagonal_of_product(self, system):
        return self._diagonals()[1]

    def trace_with(self, system):
        # To first order around T, the system that this inverts. There tr(P T) = n, and -1/2 tr(P
        # dT) is the inner product of dT with the slopes for y = 0.
        own = self.system.with_jitter(self.factor)
        nothing = jnp.zeros_like(own.shift)[:, None]
        found = slopes(Along.of(own), nothing)
        return len(own.shift) - 2 * (
            found.inner_product(system, nothing) - found.inner_product(own, nothing)
        )

    def _diagonals(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The diagonals of P and of `K P`."""
        along = self.along
        kalman = filter_of(along)
        found = jnp.stack(kalman.diagonals(kalman.information(), along.shift))
        found = jnp.where(self.factor.exists, found, jnp.nan)
        inverse, of_product = self.factor.line.unsorted(found.T).T
        return inverse, of_product


class LineReduction(AbstractCovarianceReduction):
    """The covariance reduction by the innovations of k(X, x): `sum_i w_i / s_i v_i(x) v_i(z)`,
    smooth in a weight at zero. Variances come from the filter at the neighbours of x; those of a
    batch of k points take O(n + k log n).

    Attributes:
        gram: K.
        weights: w; None if all are one.
        shift: (n,), the jitter included.
        filter: the filter of T, with its derivatives.
    """

    gram: LineGram
    weights: Float[Array, " n"] | None
    shift: Float[Array, " n"]
    filter: KalmanFilter

    def own_factor(self):
        roots = self.system.weights.times_roots(jnp.ones_like(self.shift))
        factor = KalmanFactor(
            filter=self.filter,
            line=self.gram.line,
            roots=roots[self.gram.order],
            jitter=jnp.zeros((), self.dtype),
            exists=jnp.asarray(True),
        )
        return stop_gradient(factor)

    def at(self, kernel, X, x, z):
        if z is x and eqx.is_array(x):  # x of a term of a sum is a module, not a coordinate
            return self._variance_reduction(x[self.gram.line.column])
        u = self._innovations(kernel, X, x)
        v = self._innovations(kernel, X, z)
        return dot(self.filter.shares * u, v)

    def _variance_reduction(self, coordinate: Float[Array, ""]) -> Float[Array, ""]:
        """`h.F h + s.N s`, `s = P h - F h`, with the reduction F of the covariance of the states by
        the previous points, and the information N of later points about the states.

        The recursions for F and N do not depend on the coordinate, so that `vmap` over coordinates
        runs them once.
        """
        line = self.gram.line
        model = self.gram.model
        h = model.observation()
        coordinates = self.gram.points[line.order, line.column]
        i = jnp.searchsorted(stop_gradient(coordinates), stop_gradient(coordinate), side="right")
        before, after = self.filter.at_neighbours(i)
        n = len(coordinates)
        # A maximum is not used, because its derivative would be halved at a point itself.
        since = jnp.where(i > 0, coordinate - coordinates[jnp.maximum(i - 1, 0)], 0)
        until = jnp.where(i < n, coordinates[jnp.minimum(i, n - 1)] - coordinate, 0)
        there = model.transition(since)
        on = model.transition(until)
        # With the transitions A from the previous point to the coordinate, and B from there to the
        # next point, F at the coordinate is A F A^T with F of the former, and N is B^T N B with N
        # of the latter.
        seen = matmul(h, there)
        known = matmul(before, seen)
        left = matmul(on, matmul(model.stationary(), h) - matmul(there, known))
        return dot(seen, known) + dot(left, matmul(after, left))

    def _innovations(self, kernel: AbstractKernel, X: PyTree, x: PyTree) -> Float[Array, " n"]:
        """The innovations v(x) of k(X, x)."""
        row = row_at(kernel, X, x)
        return self.filter.innovations(row[self.gram.order][:, None])[:, 0]


@renamed(harmonics="n_harmonics")
class StateSpace(AbstractDirectSolver):
    """The Kalman filter: exact solves in O(n) for points along one line and a kernel with a
    state-space model.

    The kernels are Matern12, Matern32 and Matern52, Cosine, DampedOscillator, Periodic and
    ZeroMeanPeriodic (by a truncated Fourier series), constants, and sums, products, powers and
    scales of these. Points may be in any order and may coincide. A series needs two states for each
    of its `n_harmonics`, a sum has the states of all its terms, and in a product the numbers of
    states of the factors multiply; m states take O(n m^3) operations. If the truncated part of a
    series exceeds eps^(2/3) of the variance, as for a short lengthscale of a periodic kernel, the
    solve fails with `nonfinite`: use more harmonics.

    The evidence and its derivatives lose digits if the variance of the process is large compared
    with the noise, but not more than with the dense matrix. The stat `rounding` of `condition`
    estimates the error of the evidence; the error of derivatives in the logarithms of parameters is
    at most ten times as large, for targets that are likely under the process (in float64 about
    1e-10 for a variance of 1e5 times the noise, and 1e-6 for 1e9 times).

    Attributes:
        n_harmonics: the number of frequencies that represent a periodic kernel.
        parallel: True computes the recursions from point to point for blocks of points in parallel
            (Sarkka & Garcia-Fernandez 2021), in about a hundred steps with two to three times the
            operations; False computes them point by point. Both have the accuracy that `rounding`
            states; if K is nearly singular, one may need jitter where the other does not. On a CPU,
            blocks take as long for one state, and three to ten times as long for more. The default
            (None) is False on a CPU and True on any other device.

    Raises ValueError for kernels without a state-space model, for points that are not along one
    line, and in learners other than Gaussian processes.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> prior = kernax.GaussianProcess(kernax.Matern32(0.3))
        >>> solver = kernax.solvers.StateSpace()
        >>> posterior = kernax.condition(prior, X, y, noise=0.01, solver=solver).value
        >>> round(float(posterior.mean(jnp.array([0.4]))), 2)
        0.63
    """

    n_harmonics: int = eqx.field(static=True, default=16)
    parallel: bool | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_count(self.n_harmonics, "n_harmonics")

    def advice(self):
        return (
            " A periodic kernel with a short lengthscale needs more terms of its Fourier series: "
            f"StateSpace(n_harmonics={2 * self.n_harmonics})."
        )

    def structure_for(self, kernel, X, weights):
        return line_for(kernel, X, self.n_harmonics, self.parallel)

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> KalmanFactor:
        refuse_options(self, options)
        if not isinstance(operator, LineForm):
            raise ValueError(
                "StateSpace() is for functions of Gaussian processes, with points along a line; "
                "elsewhere use JitteredCholesky()"
            )
        factor = factorise(operator)
        assert isinstance(factor, KalmanFactor)
        return factor
