"""The units in which a support vector machine is solved: powers of two, in which no square over- or
underflows.

A product with a power of two is exact, so that a fit in other units is the same fit. Numbers may
leave the range of floats only when converted back into the user's units, which `after_rescaling`
detects.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.numerics import eps_of, stop_gradient, sums_and_maxima
from kernax.core.base.powers import exponent_of, times_power_of_two
from kernax.core.base.solution import RESULTS, first_that_holds
from kernax.core.operators.operators import ScaledGram
from kernax.supervised.machines.box_problem import BoxProblem


class ProblemUnits(eqx.Module):
    """The sizes of f and of K, as exponents of two.

    The unit of coefficients is that of f over that of K. Where it would exceed the largest finite
    bound, coefficients of the size of that bound would be rounded to zero: the unit of K is then
    raised.
    """

    of_f: Int[Array, ""]
    of_K: Int[Array, ""]

    @staticmethod
    def of(problem: BoxProblem) -> "ProblemUnits":
        """The units of a problem."""
        of_f = exponent_of(problem.scale)
        low, high = (jnp.where(jnp.isfinite(v), abs(v), 0) for v in (problem.low, problem.high))
        _, (variance, *ends) = sums_and_maxima([], [abs(problem.diagonal()), low, high])
        largest = jnp.maximum(*ends)
        of_K = exponent_of(variance)
        of_K_at_largest = jnp.maximum(of_K, of_f - exponent_of(largest))
        return ProblemUnits(of_f, jnp.where(largest > 0, of_K_at_largest, of_K))

    @property
    def of_beta(self) -> Int[Array, ""]:
        """The exponent of the unit of coefficients."""
        return self.of_f - self.of_K

    @property
    def of_objective(self) -> Int[Array, ""]:
        """The exponent of the unit of `b.K b`."""
        return self.of_f + self.of_beta

    def coefficients(self, beta: PyTree[Float[Array, "..."]]) -> Any:
        """The user's coefficients, or several arrays of them, in these units."""
        return times_power_of_two(beta, -self.of_beta)

    def values(self, f: PyTree[Float[Array, "..."]]) -> Any:
        """The user's targets, bias, or values of f, or several arrays of them, in these units."""
        return times_power_of_two(f, -self.of_f)

    def solution(
        self, beta: Float[Array, " n"], bias: Float[Array, "*groups"]
    ) -> tuple[Float[Array, " n"], Float[Array, "*groups"]]:
        """The user's coefficients and bias, in these units."""
        return self.coefficients(beta), self.values(bias)

    def users(
        self, beta: Float[Array, " n"], bias: Float[Array, "*groups"]
    ) -> tuple[Float[Array, " n"], Float[Array, "*groups"]]:
        """Coefficients and a bias, converted from these units into the user's."""
        return times_power_of_two(beta, self.of_beta), times_power_of_two(bias, self.of_f)

    def problem(self, problem: BoxProblem) -> BoxProblem:
        """The user's problem, in these units."""
        # K / 2^of_K times b / 2^of_beta is K b / 2^of_f.
        gain = times_power_of_two(jnp.ones_like(problem.scale), -self.of_K)
        targets, epsilon, scale = self.values((problem.targets, problem.epsilon, problem.scale))
        low, high, total = self.coefficients((problem.low, problem.high, problem.total))
        return BoxProblem(
            operator=ScaledGram(problem.operator, gain),
            targets=targets,
            low=low,
            high=high,
            epsilon=epsilon,
            total=total,
            scale=scale,
            second=problem.second,
            inside=problem.inside,
        )


def rescaled_objectives(stats: dict[str, Array], exponent: Int[Array, ""]) -> dict[str, Array]:
    """The objectives and the gap among the stats, times two to the exponent."""
    objectives = {name: stats[name] for name in ("primal", "dual", "gap")}
    return times_power_of_two(objectives, exponent)


def after_rescaling(
    result: Any,
    solved: tuple[Float[Array, " n"], Float[Array, "*groups"]],
    back: tuple[Float[Array, " n"], Float[Array, "*groups"]],
) -> Any:
    """The status of a solve with these coefficients and bias, which were converted into the user's
    units and `back`: `nonfinite` where they overflow, and no success where they are not the same up
    to rounding.
    """
    (beta, bias), (beta_back, bias_back) = stop_gradient((solved, back))
    sizes = [abs(beta), abs(beta_back), abs(beta_back - beta)]
    _, (largest, largest_back, difference) = sums_and_maxima([], sizes)
    is_kept = difference <= 8 * eps_of(beta) * largest
    # Values of f are of order one, so that the bias is compared with one as well.
    is_kept = is_kept & jnp.all(abs(bias_back - bias) <= 8 * eps_of(bias) * (1 + abs(bias)))
    is_finite = jnp.isfinite(largest_back) & jnp.all(jnp.isfinite(bias_back))
    overflown = jnp.isfinite(largest) & ~is_finite & (result != RESULTS.diverged)
    return first_that_holds(
        [
            (overflown, RESULTS.nonfinite),
            (~is_kept & (result == RESULTS.successful), RESULTS.inaccurate),
        ],
        otherwise=result,
    )
