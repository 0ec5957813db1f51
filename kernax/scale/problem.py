"""All that a fit over centres depends on, and its minimum."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.boundary import cast
from kernax.core.centres import factor_of_gram, wide
from kernax.core.expansion import KernelExpansion
from kernax.core.gram import gram_of_prepared
from kernax.core.kernel import AbstractKernel
from kernax.core.losses import AbstractSmoothLoss, Squared
from kernax.core.numerics import eps_of, stopped
from kernax.core.powers import exponent_of, times_power_of_two
from kernax.core.solution import RESULTS, Solution, first_that_holds, void_unless_known
from kernax.scale.preconditioner import places_of_sample
from kernax.scale.risk import Minimum, Risk, minimise
from kernax.scale.rows import AbstractRows, ArrayRows


class Plan(NamedTuple):
    """What is decided before anything is compiled.

    Attributes:
        tile: rows of K_nm at a time.
        sample: rows that the preconditioner is made of; None for all.
        rtol, max_steps: when to stop.
    """

    tile: int
    sample: int | None
    rtol: float | None
    max_steps: int


class Centred(NamedTuple):
    """A risk over centres, how the factor of their Gram matrix ended, and its jitter."""

    risk: Risk
    result: Any
    jitter: Array

    @staticmethod
    def of(
        rows: AbstractRows,
        within: ArrayRows,
        sample: AbstractRows | None,
        loss: AbstractSmoothLoss,
        ridge: Float[Array, ""],
    ) -> "Centred":
        """That of rows; `within` are some rows in memory with their kernel and centres."""
        precision = within.y.dtype
        dtype = wide(precision)
        K = gram_of_prepared(cast(within.kernel, dtype), cast(within.Z, dtype))
        at = factor_of_gram(K, beside=precision)
        jittered = K + at.jitter * jnp.eye(len(K), dtype=dtype)
        lower = stopped(at.lower)
        eps = eps_of(precision)
        risk = Risk(rows, sample, loss, ridge.astype(dtype), jittered, lower, eps=eps)
        return Centred(risk, at.result, at.jitter)

    def minimum(self, outputs: int, plan: Plan) -> Minimum:
        """Its minimum; that of a factor that does not exist is none."""
        shape = len(self.risk.gram), outputs
        end = minimise(self.risk, shape, plan.rtol, plan.max_steps)
        failed = ((self.result != RESULTS.successful, self.result),)
        result = first_that_holds(failed, end.result)
        return Minimum(end.a, end.P, result, end.stats | {"jitter": self.jitter})


class Problem(eqx.Module):
    """All that the minimiser depends on, in memory."""

    kernel: AbstractKernel
    Z: PyTree
    X: PyTree
    y: Float[Array, "n p"]
    weights: Float[Array, " n"]
    loss: AbstractSmoothLoss
    ridge: Float[Array, ""]

    def centred(self, plan: Plan) -> Centred:
        """The risk."""
        rows = ArrayRows(self.kernel, self.Z, self.X, self.y, self.weights, tile=plan.tile)
        sample = None
        if plan.sample is not None:
            sample = rows.at(places_of_sample(len(self.y), plan.sample))
        return Centred.of(rows, rows, sample, self.loss, self.ridge)


def unit_of_targets(loss: AbstractSmoothLoss, largest: Float[Array, " p"]) -> Int[Array, "1 p"]:
    """The exponents of the largest targets of squares, in whose units no square leaves the range of
    floats; zero for losses that have units of their own.
    """
    exponents = exponent_of(largest)[None, :]
    return exponents if isinstance(loss, Squared) else jnp.zeros_like(exponents)


def solution_of(
    end: tuple, kernel: AbstractKernel, Z: PyTree, unit: Array, dtype: Any, one_column: bool
) -> Solution[KernelExpansion]:
    """The expansion over the centres, with coefficients in the units of the targets."""
    a, result, stats = end
    a = times_power_of_two(a, unit).astype(dtype)
    a = void_unless_known(a, result)
    a = a[:, 0] if one_column else a
    bias = jnp.zeros_like(a, shape=a.shape[1:])
    of_columns = times_power_of_two(stats["objective"], 2 * unit[0])
    stats = stats | {"objective": jnp.sum(of_columns)}
    return Solution(KernelExpansion(kernel, Z, a, bias), result, stats)
