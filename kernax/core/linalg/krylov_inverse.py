"""The derivative of the log density, and the covariance that observations explain, by products
alone.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.numerics import dot, stopped
from kernax.core.linalg.inverse import (
    AbstractExplanation,
    explanation_of,
    row_at,
    solve_transposed,
    terms_of_density,
)
from kernax.core.linalg.iteration import Iteration
from kernax.core.linalg.krylov_factor import KrylovFactor
from kernax.core.linalg.linalg import WeightedSystem
from kernax.core.linalg.preconditioners import Preconditioner
from kernax.core.operators.operators import AbstractGram


@terms_of_density.register
def _(factor: KrylovFactor, system: WeightedSystem, y: Float[Array, "n p"]):
    # As for any inverse P = T^-1, but that tr(P dT) is the mean of (P^T L z).dT L^-T z over the
    # vectors z by which the determinant was estimated. All columns are solved for together.
    factor = stopped(factor)
    _, right = factor.probing()
    p = y.shape[1]
    solved = solve_transposed(system, factor, factor.columns_of_density(y))
    b = solved[:, :p]
    u = solved[:, p:]
    a = system.weights.times(b)

    def terms(system: WeightedSystem, y: Array) -> tuple[Array, Array]:
        images = system.apply(jnp.concatenate([a, right], 1))
        of_system = jnp.sum(b * (system.weights.times(y) - images[:, :p]))
        trace = jnp.sum(u * images[:, p:]) / u.shape[1]
        return trace, of_system + jnp.sum(a * y)

    return terms


class KrylovExplanation(AbstractExplanation):
    """`k(x, X) W P^T k(X, z)`, by a solve for each point.

    Attributes:
        gram: K.
        weights: w, None where they are one.
        shift: (n,).
        preconditioner: a constant to derivatives.
        iteration: when the solves stop.
    """

    gram: AbstractGram
    weights: Float[Array, " n"] | None
    shift: Float[Array, " n"]
    preconditioner: Preconditioner | None
    iteration: Iteration

    def own_factor(self):
        form = stopped(self.system.symmetric_form())
        return KrylovFactor.of(form, self.preconditioner, self.iteration)

    def explained(self, kernel, X, x, z):
        row = row_at(kernel, X, x)
        other = row if z is x else row_at(kernel, X, z)
        solved = solve_transposed(self.system, self.own_factor(), other[:, None])
        return dot(row, self.system.weights.times(solved)[:, 0])


@explanation_of.register
def _(factor: KrylovFactor, system: WeightedSystem) -> KrylovExplanation:
    return KrylovExplanation(
        gram=system.gram,
        weights=system.weights.given,
        shift=system.shift,
        preconditioner=stopped(factor.preconditioner),
        iteration=factor.iteration.no_coarser(system.shift.dtype),
    )
