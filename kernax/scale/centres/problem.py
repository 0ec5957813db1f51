"""All that a fit over centres depends on, and its minimum."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.numerics import eps_of, stop_gradient
from kernax.core.base.solution import RESULTS, Solution, first_that_holds, void_unless_known
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.linear import LinearFunction
from kernax.core.linalg.centre_factor import factor_of_gram, wide
from kernax.core.operators.mesh import RowsOverMesh
from kernax.scale.centres.kept_minimum import KeptFit, kept_minimum
from kernax.scale.centres.loss_in_units import LossInUnits
from kernax.scale.centres.minimum import Minimum, minimise
from kernax.scale.centres.preconditioner import sampled
from kernax.scale.centres.risk import Risk
from kernax.scale.centres.row_sums import AbstractRows, ArrayRows
from kernax.scale.centres.span import AbstractSpan

# The penalty of a bias b is `ridge/2 _OF_BIAS b^2 / v`, v the mean variance over the centres: so
# little that it only shows if the ridge far exceeds the sum of weights, and enough for a minimum
# where no curvature is left.
_OF_BIAS = 1e-4


class FitPlan(NamedTuple):
    """The decisions made before anything is compiled.

    Attributes:
        tile: how many rows of K_nm are computed at a time.
        sample: how many rows make the Hessian's factor; None for all.
        rtol, max_steps: when to stop.
        bias: whether there is a bias.
        spread: the mesh over which the rows lie; None for one device.
    """

    tile: int
    sample: int | None
    rtol: Array | None
    max_steps: Array
    bias: bool
    spread: RowsOverMesh | None = None


class RiskOverCentres(NamedTuple):
    """A risk, the status of the factorisation of the centres' Gram matrix, and its jitter."""

    risk: Risk
    result: Any
    jitter: Array

    @staticmethod
    def of(
        rows: AbstractRows,
        within: ArrayRows,
        sample: ArrayRows | None,
        loss: LossInUnits,
        ridge: Float[Array, ""],
    ) -> "RiskOverCentres":
        """The risk of rows; `within` holds some rows in memory, with the functions to sum."""
        precision = within.y.dtype
        dtype = wide(precision)
        K = within.span.products(dtype)
        # The largest sum of squares of L^-1 for which the rounding of the Hessian of all rows stays
        # below the ridge. An entry of K_nm^T W K_nm is at most about sum_i w_i v^2, v the mean
        # variance; 4 eps of it times the sum of squares is to be at most the ridge.
        most = None
        if sample is None:
            entry = rows.weight.astype(dtype) * jnp.mean(jnp.diagonal(K)) ** 2
            most = ridge.astype(dtype) / (4 * eps_of(K) * entry)
        at = factor_of_gram(K, cross_dtype=precision, most=most)
        gram = K + at.jitter * jnp.eye(len(K), dtype=dtype)
        lower = at.lower
        penalties = jnp.ones(len(K), dtype)
        if within.bias:
            # M = L D L^T also for the bias: L = 1 / sqrt(v) and D = _OF_BIAS.
            inverse = 1 / jnp.mean(jnp.diagonal(K))
            gram = _bordered(gram, _OF_BIAS * inverse)
            lower = _bordered(lower, jnp.sqrt(inverse))
            penalties = jnp.append(penalties, jnp.full(1, _OF_BIAS, dtype))
        matrices = gram, stop_gradient(lower), stop_gradient(penalties)
        risk = Risk(rows, sample, loss, ridge.astype(dtype), *matrices, precision)
        return RiskOverCentres(risk, at.result, at.jitter)

    def minimum(self, outputs: int, plan: FitPlan, kept: KeptFit | None = None) -> Minimum:
        """Its minimum, without success if K_mm has no factor."""
        shape = len(self.risk.gram), outputs
        if kept is None:
            end = minimise(self.risk, shape, plan.rtol, plan.max_steps)
        else:
            end = kept_minimum(self.risk, shape, plan.rtol, plan.max_steps, kept)
        failed = ((self.result != RESULTS.successful, self.result),)
        result = first_that_holds(failed, end.result)
        stats = end.stats | {"jitter": self.jitter, "jitter_penalty": self._penalty(end.a)}
        return Minimum(end.a, end.P, result, stats)

    def _penalty(self, a: Float[Array, "m p"]) -> Float[Array, " p"]:
        """`ridge/2 jitter |a|^2`, the part of the objective that only the jitter causes.

        The minimum is a concave function of the jitter, as a minimum of functions linear in it, and
        this is the jitter times its slope. Without jitter the minimum is therefore lower by at
        least as much.
        """
        of_centres = (self.risk.penalties == 1)[:, None]  # all but a bias
        return self.risk.ridge / 2 * self.jitter * jnp.sum(jnp.where(of_centres, a, 0) ** 2, 0)


def _bordered(A: Float[Array, "m m"], corner: Float[Array, ""]) -> Float[Array, "k k"]:
    """A with one more row and column, zero but for the last entry."""
    m = len(A)
    return jnp.pad(A, (0, 1)) + jnp.pad(corner.reshape(1, 1), (m, 0))


class CentresProblem(eqx.Module):
    """All that the minimiser depends on, in memory."""

    span: AbstractSpan
    X: PyTree
    weights: Float[Array, " n"]
    y: Float[Array, "n p"]
    loss: LossInUnits
    ridge: Float[Array, ""]

    def over_centres(self, plan: FitPlan) -> RiskOverCentres:
        """The risk."""
        known = self.span, self.X, self.y, self.weights
        rows = ArrayRows(*known, tile=plan.tile, bias=plan.bias, spread=plan.spread)
        sample = None if plan.sample is None else sampled(rows, plan.sample)
        return RiskOverCentres.of(rows, rows, sample, self.loss, self.ridge)


def solution_of(
    end: tuple, span: AbstractSpan, loss: LossInUnits, dtype: Any, plan: FitPlan, one_column: bool
) -> Solution[KernelExpansion | LinearFunction]:
    """The function, with coefficients in the units of the targets."""
    a, result, stats = end
    a = void_unless_known(loss.values(a).astype(dtype), result)
    a = a[:, 0] if one_column else a
    none = void_unless_known(jnp.zeros_like(a, shape=a.shape[1:]), result)
    a, bias = (a[:-1], a[-1]) if plan.bias else (a, none)
    total = lambda of_columns: jnp.sum(loss.objectives(of_columns))
    stats = stats | {name: total(stats[name]) for name in ("objective", "jitter_penalty")}
    return Solution(span.function(a, bias), result, stats)
