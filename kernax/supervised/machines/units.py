"""The units in which a support vector machine is solved: powers of two, in which no square over- or
underflows.

A product with a power of two is exact, so that a fit in other units is the same fit. Numbers may
leave the range of floats only when converted back into the user's units, which `after_rescaling`
detects.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.numerics import eps_of, stop_gradient, sums_and_maxima, where, where_or
from kernax.core.base.powers import PowersOfTwo, exponent_of
from kernax.core.base.solution import RESULTS, first_that_holds
from kernax.core.operators.operators import ScaledGram
from kernax.supervised.machines.box_problem import BoxProblem


class ProblemUnits(eqx.Module):
    """The units of f, of coefficients and of `b.K b`, and the reciprocals of the first two and of
    the unit of K.

    The unit of coefficients is that of f over that of K. Where it would exceed the largest finite
    bound, coefficients of the size of that bound would be rounded to zero: the unit of K is then
    raised.
    """

    f: PowersOfTwo
    beta: PowersOfTwo
    objective: PowersOfTwo
    per_f: PowersOfTwo
    per_beta: PowersOfTwo
    per_K: PowersOfTwo

    @staticmethod
    def of(problem: BoxProblem) -> "ProblemUnits":
        """The units of a problem."""
        low, high = (where_or(jnp.isfinite(v), abs(v), 0.0) for v in (problem.low, problem.high))
        _, (variance, *ends) = sums_and_maxima([], [abs(problem.diagonal()), low, high])
        largest = jnp.maximum(*ends)
        of_f, of_K, of_largest = map(exponent_of, (problem.scale, variance, largest))
        of_K = where(largest > 0, jnp.maximum(of_K, of_f - of_largest), of_K)
        of_beta = of_f - of_K
        # All six powers are computed together, as one small kernel each would take longer to
        # compile.
        exponents = jnp.stack([of_f, of_beta, of_f + of_beta, -of_f, -of_beta, -of_K])
        return ProblemUnits(*PowersOfTwo.of(exponents, largest.dtype).unstack())

    def solution(
        self, beta: Float[Array, " n"], bias: Float[Array, "*groups"]
    ) -> tuple[Float[Array, " n"], Float[Array, "*groups"]]:
        """The user's coefficients and bias, in these units."""
        return self.per_beta.times(beta), self.per_f.times(bias)

    def users(
        self, beta: Float[Array, " n"], bias: Float[Array, "*groups"]
    ) -> tuple[Float[Array, " n"], Float[Array, "*groups"]]:
        """Coefficients and a bias, converted from these units into the user's."""
        return self.beta.times(beta), self.f.times(bias)

    def problem(self, problem: BoxProblem) -> BoxProblem:
        """The user's problem, in these units."""
        # K / 2^of_K times b / 2^of_beta is K b / 2^of_f.
        gain = self.per_K.times(jnp.ones_like(problem.scale))
        targets, epsilon, scale = self.per_f.times(
            (problem.targets, problem.epsilon, problem.scale)
        )
        low, high, total = self.per_beta.times((problem.low, problem.high, problem.total))
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


def rescaled_objectives(stats: dict[str, Array], unit: PowersOfTwo) -> dict[str, Array]:
    """The objectives and the gap among the stats, times a unit."""
    return unit.times({name: stats[name] for name in ("primal", "dual", "gap")})


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
