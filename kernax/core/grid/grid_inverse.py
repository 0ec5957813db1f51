"""The inverse of a system on a grid, the derivative of its log density, and the covariance that
observations there explain.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.numerics import dot, matmul, split_by_tangent, stopped
from kernax.core.grid.grid import GridGram
from kernax.core.grid.grid_factor import GridFactor
from kernax.core.linalg.inverse import (
    AbstractExplanation,
    AbstractSolvedInverse,
    explanation_of,
    inverse_of,
    row_at,
)
from kernax.core.linalg.linalg import WeightedSystem, weighted_solve
from kernax.core.linalg.solvers import JitteredCholesky


def grid_gram(system: WeightedSystem) -> GridGram:
    """The Gram matrix of a system whose factor is on a grid."""
    gram = system.gram
    assert isinstance(gram, GridGram)
    return gram


class GridInverse(AbstractSolvedInverse):
    """`P = T^-1` of a system on a grid. Its diagonals and its trace with other systems have no
    derivative in the system of which it is the inverse: to take one raises ValueError.

    Attributes:
        system: T, without jitter.
        factor: of T with jitter, a constant to derivatives.
    """

    system: WeightedSystem
    factor: GridFactor

    def diagonal(self):
        return self._diagonals()[0]

    def diagonal_of_product(self, system):
        return self._diagonals()[1]

    def trace_with(self, system):
        return _linear(_held_fixed(self.factor, self.system), system)

    def _diagonals(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        return _diagonals(stopped(self.system), _held_fixed(self.factor, self.system))


@inverse_of.register
def _(factor: GridFactor, system: WeightedSystem) -> GridInverse:
    return GridInverse(system, stopped(factor))


@eqx.filter_custom_jvp
def _held_fixed(factor, system):
    """The factor of a system, which has no derivative rule. For a second derivative, which would
    need one, there is an exception in place of a wrong number.
    """
    return factor


@_held_fixed.def_jvp
def _held_fixed_jvp(primals, tangents):
    raise ValueError(
        "on a grid the evidence has first derivatives only: take solver=JitteredCholesky() for "
        "second ones"
    )


def _diagonals(
    system: WeightedSystem, factor: GridFactor
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Those of P and of `K P`."""
    inverse = factor.inverse_diagonal()
    shift = system.with_jitter(factor).shift
    of_product = 1 - shift * inverse
    eliminated = factor.eliminated
    if eliminated is not None:
        # Where w = 0, K P is the covariance given the data, over d.
        grid = factor.grid
        V = eliminated.covariance
        scaled = eliminated.roots[:, None] * V
        posterior = jnp.diagonal(V) - jnp.sum(scaled * eliminated.by_outer(scaled), 0)
        of_weighted = posterior[len(grid.missing) :] / shift[grid.weighted]
        of_product = of_product.at[grid.weighted].set(of_weighted)
    return inverse, of_product


def _linear(factor: GridFactor, other: WeightedSystem) -> Float[Array, ""]:
    """`tr(P W L) + tr(P diag(shift))`, where `P W = A^-1 - A^-1 U G U^T A^-1` on all cells."""
    matrix: Any = grid_gram(other).whole()  # of the same kind as the factor
    trace = factor.whole.trace_with(matrix)
    diagonal = factor.whole.inverse_diagonal()
    eliminated = factor.eliminated
    if eliminated is not None:
        G = eliminated.correction()
        removed, correction = factor.whole.between_columns(factor.special, G, matrix)
        trace = trace - correction
        inverse = eliminated.by_outer(jnp.eye(len(G), dtype=G.dtype))
        diagonal = (diagonal - removed).at[factor.special].set(jnp.diagonal(inverse))
    found = trace + dot(factor.grid.of_points(diagonal), other.shift)
    return jnp.where(factor.exists, found, jnp.nan)


class GridExplanation(AbstractExplanation):
    """By the factor of the whole grid, along whose axes k(X, x) is a product, less a correction for
    cells that are missing or weighted.

    Attributes:
        gram: K.
        weights: w, None where they are one.
        shift: d, (n,), without jitter.
        factor: of M.
    """

    gram: GridGram
    weights: Float[Array, " n"] | None
    shift: Float[Array, " n"]
    factor: GridFactor

    def own_factor(self):
        return self.factor

    def explained(self, kernel, X, x, z):
        if jax.tree.structure(kernel) == jax.tree.structure(self.gram.kernel):
            return _explained(self.system, self.factor, x, z, same=z is x)
        # A covariance with the values of K, such as that of one term of a sum.
        left = row_at(kernel, X, x)
        right = left if z is x else row_at(kernel, X, z)
        return _between_rows(self.system, self.factor, left, right)


@explanation_of.register
def _(factor: GridFactor, system: WeightedSystem) -> GridExplanation:
    return GridExplanation(grid_gram(system), system.weights.given, system.shift, stopped(factor))


@eqx.filter_custom_jvp
def _explained(system, factor, x, z, *, same):
    """`k(x, X) P W k(X, z)`, of rows that are products over the axes."""
    gram = grid_gram(system)
    left = factor.whole.prepared_row(gram.rows_along_axes(x))
    right = left if same else factor.whole.prepared_row(gram.rows_along_axes(z))
    found = factor.whole.inner_product(left, right)
    eliminated = factor.eliminated
    if eliminated is not None:
        at_left = factor.whole.solve_row(left)[factor.special]
        at_right = at_left if same else factor.whole.solve_row(right)[factor.special]
        found = found - dot(at_left, matmul(eliminated.correction(), at_right))
    return jnp.where(factor.exists, found, jnp.nan)


@_explained.def_jvp
def _explained_jvp(primals, tangents, *, same):
    def of(system, x, z):
        gram = grid_gram(system)
        left, right = (row_at(gram.kernel, gram.points, point) for point in (x, z))
        return _by_solution(system, primals[1], left, right)

    return _explained(*primals, same=same), _tangent(of, primals, tangents)


@eqx.filter_custom_jvp
def _between_rows(system, factor, left, right):
    """`l . P W r` of any rows, by whitened ones."""
    rows = jnp.stack([left, right], 1)
    white = factor.whitened(system.weights.times_roots(rows))
    return dot(white[:, 0], white[:, 1])


@_between_rows.def_jvp
def _between_rows_jvp(primals, tangents):
    def of(system, left, right):
        return _by_solution(system, primals[1], left, right)

    return _between_rows(*primals), _tangent(of, primals, tangents)


def _by_solution(
    system: WeightedSystem, factor: GridFactor, left: Float[Array, " n"], right: Float[Array, " n"]
) -> Float[Array, ""]:
    """`l . P W r`, differentiable to every order; its value may lose digits to cancellation."""
    rhs = system.weights.times(right)[:, None]
    return dot(left, weighted_solve(system, rhs, JitteredCholesky(), factor=factor)[0][:, 0])


def _tangent(of: Callable, primals: Any, tangents: Any) -> Array:
    """The tangent of `of(system, ...)`, of all primals but the factor, which is the second one."""
    primals, tangents = ((*of_all[:1], *of_all[2:]) for of_all in (primals, tangents))
    moving, known = split_by_tangent(primals, tangents)
    return eqx.filter_jvp(lambda moving: of(*eqx.combine(moving, known)), (moving,), (tangents,))[1]
