"""Joint draws of processes along a line, in O(n + m) for n observations and m points."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from kernax.core.base.stacks import joined
from kernax.core.base.weights import PointWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.linalg.factorisation import AbstractCovarianceReduction
from kernax.core.linalg.linear_solvers import factorise
from kernax.core.line.kalman_factor import KalmanFactor, LineReduction
from kernax.core.line.line import LineForm, LineGram, OrderAlongLine, line_of_many_points
from kernax.core.line.parallel_recursions import ParallelRecursions
from kernax.core.line.smoothing import Along, filter_of
from kernax.core.operators.memory import Footprint, check_memory

# Matrices of size n x p, for n points and observations along a line and p draws.
_FOOTPRINT = Footprint("sample along a line", 5.2, "fewer draws at a time")


class LineDraws(eqx.Module):
    """Draws with mean zero and the covariance of a process.

    Attributes:
        values: (m, p), p draws at m points.
        jitter: the variance that was added to that of the prior at every point.
        exists: whether the prior covariance has a factor.
        is_finite: whether the prior covariance is finite.
    """

    values: Float[Array, "m p"]
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]
    is_finite: Bool[Array, ""]


class LineSampler(eqx.Module):
    """A process at points along a line: a prior, or a process given observations.

    Attributes:
        gram: K of the prior at the m points, followed by the observed points.
        reduction: the covariance reduction by the observations; None for a prior.
        m: the number of points.
    """

    gram: LineGram
    reduction: AbstractCovarianceReduction | None
    m: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        """The number of points and observations."""
        return len(self.gram.points)

    def draws(self, p: int, key: Key[Array, ""]) -> LineDraws:
        """p draws."""
        of_prior, of_noise = jax.random.split(key)
        dtype = self.gram.points.dtype
        normal = jax.random.normal(of_prior, (self.size, p), dtype)
        noise = jax.random.normal(of_noise, (self.size - self.m, p), dtype)
        return self.draws_of(normal, noise)

    def draws_of(self, normal: Float[Array, "size p"], noise: Float[Array, "n p"]) -> LineDraws:
        """Draws from standard normal numbers, of which they are linear functions, for prior and
        noise.

        Draws given observations are draws of the prior at all points, minus their prediction from
        the values at the observed points with noise (Matheron's rule; Durbin & Koopman 2002, "A
        simple and efficient simulation smoother").
        """
        # `L sqrt(D) z` for standard normal numbers z, by the filter of `K + jitter I = L D L^T`.
        # A value is its prediction from the previous points, plus `sqrt(s) z`; then the states
        # change by `q z / sqrt(s)`.
        line = self.gram.line
        coordinates = self.gram.points[self.gram.order, line.column]
        # A copy of the previous point adds nothing: it has weight zero and an arbitrary variance.
        is_new = jnp.concatenate([jnp.ones(1, bool), jnp.diff(coordinates) > 0])
        weights = is_new.astype(normal.dtype)
        shift = 1 - weights
        factor = factorise(
            LineForm(self.gram, PointWeights(line.unsorted(weights)), line.unsorted(shift))
        )
        assert isinstance(factor, KalmanFactor)
        chain = self.gram.chain()
        # Compute it again, with derivatives.
        kalman = filter_of(Along(chain, weights, shift + factor.jitter, line.recursions))
        exists = factor.exists & jnp.all(kalman.variances > 0)
        deviations = jnp.sqrt(jnp.where(exists, kalman.variances, 1))[:, None]
        z = weights[:, None] * normal[self.gram.order]
        # x = A x + q z / sqrt(s); a value is (A^T h).x before the step, plus sqrt(s) z.
        readings = line.recursions.readings
        moved = readings(chain.transitions, kalman.gains, z / deviations, kalman.seen)
        is_finite = jnp.all(jnp.isfinite(chain.transitions)) & jnp.all(jnp.isfinite(chain.start))
        values = line.unsorted(moved + deviations * z)
        prior = LineDraws(values, factor.jitter, exists, is_finite)
        if self.reduction is None:
            return prior
        coefficients = self.reduction.lacking(prior.values[self.m :], noise)
        nothing = jnp.zeros_like(prior.values[: self.m])
        explained = self.gram.mv(jnp.concatenate([nothing, coefficients]))[: self.m]
        return eqx.tree_at(lambda d: d.values, prior, prior.values[: self.m] - explained)

    def check_memory(self, p: int) -> None:
        """Raises MemoryBudgetError if p draws would not fit into memory."""
        columns = np.broadcast_to(np.zeros((), self.gram.points.dtype), (p,))
        check_memory(self.gram.points, columns, footprint=_FOOTPRINT)


def sampler_of_prior(kernel: AbstractKernel, X: PyTree) -> LineSampler | None:
    """A sampler of a prior along a line; None if the points are not along a line, or so few that
    the dense matrix serves as well.
    """
    line = line_of_many_points(kernel, X)
    return None if line is None else LineSampler(LineGram(kernel, X, line), None, len(X))


def sampler_of_posterior(reduction: AbstractCovarianceReduction, X: PyTree) -> LineSampler | None:
    """A sampler of a process given observations along a line, or None."""
    if not isinstance(reduction, LineReduction):
        return None
    own = reduction.gram
    # Raises ValueError for points of another dimension.
    eqx.filter_eval_shape(own.kernel, X[0], own.points[0])
    points = joined([X, own.points])
    in_parallel = isinstance(own.line.recursions, ParallelRecursions)
    line = OrderAlongLine.of(points, own.line.column, own.line.harmonics, in_parallel)
    return LineSampler(LineGram(own.kernel, points, line), reduction, len(X))
