"""The factor of a matrix on a grid, from the factor of the complete grid and the elimination of
some cells; its inverse, and its covariance reduction.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.deprecation import renamed
from kernax.core.base.derivatives import custom_jvp, split_by_tangent
from kernax.core.base.numerics import dot, matmul, stop_gradient
from kernax.core.base.parameters import check_count
from kernax.core.base.solution import RESULTS
from kernax.core.grid.cell_values import placed
from kernax.core.grid.elimination import Eliminated
from kernax.core.grid.grid import GridForm, GridGram, ProductGrid
from kernax.core.grid.gridding import grid_for
from kernax.core.grid.kronecker import KroneckerFactor
from kernax.core.grid.toeplitz import ToeplitzFactor
from kernax.core.linalg.factorisation import (
    AbstractCovarianceReduction,
    AbstractFactor,
    AbstractSolvedInverse,
    WeightedSystem,
    direct_accuracy,
    row_at,
)
from kernax.core.linalg.jitter import with_jitter
from kernax.core.linalg.linear_solvers import (
    AbstractDirectSolver,
    JitteredCholesky,
    factorise,
    refuse_options,
)
from kernax.core.linalg.solves import solve_lower
from kernax.core.linalg.weighted_solve import weighted_solve
from kernax.core.operators.operators import mean_diagonal

WholeFactor = KroneckerFactor | ToeplitzFactor  # the factor of A, on all cells


class GridFactor(AbstractFactor):
    """The factor of `S K S + diag(d)` for points on a grid.

    Attributes:
        grid: the locations of the points.
        whole: the factor of A.
        eliminated: the elimination of missing or weighted cells; None if there are none.
    """

    grid: ProductGrid
    whole: WholeFactor
    eliminated: Eliminated | None
    jitter: Float[Array, ""]
    exists: Bool[Array, ""]

    @property
    def is_direct(self):
        return self.whole.is_direct

    @property
    def status_without_factor(self):
        return RESULTS.where(self.whole.exists, RESULTS.not_psd, self.whole.status_without_factor)

    def accurate_residual(self, dtype):
        return direct_accuracy(dtype)

    @property
    def status_if_inaccurate(self):
        return RESULTS.inaccurate

    @property
    def special(self) -> Array:
        """The cells that are missing or weighted."""
        return self.grid.special

    def solve(self, B):
        columns = B.reshape(len(B), -1)
        inside = self.grid.in_cells(self._known(columns))
        found = self.whole.solve(inside) if self.eliminated is None else self._eliminating(inside)
        return self.grid.of_points(found).reshape(B.shape)

    def _predict_special(self, inside: Float[Array, "N p"]) -> tuple[Array, Array, Array]:
        """The data with zero at s, the prediction at s from the other data, and the innovation, the
        residual of the data at s.
        """
        assert self.eliminated is not None
        # A^-1 (b_o + U p) vanishes at s for p = -C^-1 U^T A^-1 b_o, and is therefore A_oo^-1 b_o at
        # o; p equals K_so A_oo^-1 b_o.
        there = inside[self.special]
        without = inside.at[self.special].set(0)
        predicted = -self.eliminated.by_inner(self.whole.solve(without)[self.special])
        innovation = there - self.eliminated.roots[:, None] * predicted
        return without, predicted, innovation

    def _eliminating(self, inside: Float[Array, "N p"]) -> Float[Array, "N p"]:
        """`M^-1 b` where some cells s are missing or weighted: x_s from the Schur complement R,
        then x_o.
        """
        without, predicted, innovation = self._predict_special(inside)
        assert self.eliminated is not None
        # x_s = R^-1 (b_s - S p), and x_o = A_oo^-1 (b_o - K_os S x_s): A^-1 U C^-1 S x_s is S x_s
        # at s, and therefore -A_oo^-1 K_os S x_s at o.
        solved = self.eliminated.by_outer(innovation)
        back = self.eliminated.by_inner(self.eliminated.roots[:, None] * solved)
        found = self.whole.solve(without + self._placed(predicted + back))
        return found.at[self.special].set(solved)

    def solve_and_report(self, B):
        return self.solve(B), (self.result, {"jitter": self.jitter} | self.whole.figures())

    def whitened(self, B):
        inside = self.grid.in_cells(self._known(B))
        if self.eliminated is None:
            return self.whole.whitened(inside)
        # With the predicted values at s, the quadratic form of all data is that of the data at o.
        without, predicted, innovation = self._predict_special(inside)
        white = self.whole.whitened(without + self._placed(predicted))
        return jnp.concatenate([white, solve_lower(self.eliminated.outer, innovation)])

    def inverse(self):
        return self.solve(jnp.eye(len(self.grid.cells), dtype=self.jitter.dtype))

    def inverse_diagonal(self):
        diagonal = self.whole.inverse_diagonal()
        if self.eliminated is not None:
            # M^-1 has the diagonal of A^-1 - A^-1 U G U^T A^-1 at o, and that of R^-1 at s.
            inverse = self.eliminated.by_outer(jnp.eye(len(self.special), dtype=diagonal.dtype))
            removed, _ = self.whole.between_columns(self.special, self.eliminated.correction())
            diagonal = diagonal - removed
            diagonal = diagonal.at[self.special].set(jnp.diagonal(inverse))
        return self._known(self.grid.of_points(diagonal))

    def _placed(self, values: Float[Array, "m p"]) -> Float[Array, "N p"]:
        return placed(self.special, values, self.grid.size)

    def inverse_of(self, system):
        return GridInverse(system, stop_gradient(self))

    def covariance_reduction(self, system):
        gram = grid_gram(system)
        return GridReduction(gram, system.weights.given, system.shift, stop_gradient(self))

    def log_determinant(self):
        found = self.whole.log_determinant()
        if self.eliminated is not None:
            found = found + self.eliminated.log_determinant()
        return self._known(found)

    def rounding(self, diagonal):
        found = self.whole.rounding()
        if self.eliminated is not None:
            found = found + self.eliminated.rounding()
        return self._known(found)

    def rounding_of_inverse(self, diagonal):
        return self.rounding(diagonal)

    def _known(self, B: Array) -> Array:
        return jnp.where(self.exists, B, jnp.nan)


@factorise.register
def _(operator: GridForm, scale: Float[Array, ""] | None = None) -> GridFactor:
    scale = mean_diagonal(operator) if scale is None else scale
    whole, eliminated, jitter, exists = sequential_vmap(_parts_of_factor, operator, scale)
    return GridFactor(
        grid=operator.gram.grid,
        whole=whole,
        eliminated=eliminated,
        jitter=jitter,
        exists=exists,
    )


def _parts_of_factor(
    operator: GridForm, scale: Float[Array, ""]
) -> tuple[WholeFactor, Eliminated | None, Array, Array]:
    operator = stop_gradient(operator)
    # The noise of the points of weight one, and whether all of them have the same.
    ordinary = operator.gram.grid.ordinary
    noise = jnp.max(jnp.where(ordinary, operator.shift, -jnp.inf))
    is_same = jnp.all(jnp.where(ordinary, operator.shift == noise, True))
    prepared = operator.gram.whole().prepared()

    def attempt(jitter: Float[Array, ""]) -> _JitteredFactor:
        whole = prepared.factorised(noise + jitter)
        if not len(operator.gram.grid.special):
            return _JitteredFactor(whole, None, jitter, whole.is_positive)
        grid = operator.gram.grid
        special = grid.special
        # The roots of the weights w and the diagonal d; missing cells have w = 0 and d = 1.
        roots = operator.weights.times_roots(jnp.ones_like(operator.shift))[grid.weighted]
        roots = jnp.concatenate([jnp.zeros_like(roots, shape=grid.missing.shape), roots])
        missing = jnp.ones_like(noise, shape=grid.missing.shape)
        shift = jnp.concatenate([missing, operator.shift[grid.weighted] + jitter])
        C = whole.inverse_at(special)
        eliminated = Eliminated.of((C + C.T) / 2, noise + jitter, roots, shift)
        # An incomplete predictor says nothing about the cells, with any jitter.
        is_positive = whole.is_positive & (eliminated.exists | ~whole.exists)
        return _JitteredFactor(whole, eliminated, jitter, is_positive)

    end = with_jitter(attempt, lambda now: now.is_positive, scale, prepared.is_sound)
    return end.whole, end.eliminated, end.jitter, end.whole.exists & end.is_positive & is_same


class _JitteredFactor(eqx.Module):
    """An attempted factorisation with some jitter.

    Attributes:
        is_positive: whether no more jitter is needed.
    """

    whole: WholeFactor
    eliminated: Eliminated | None
    jitter: Float[Array, ""]
    is_positive: Bool[Array, ""]


def grid_gram(system: WeightedSystem) -> GridGram:
    """The Gram matrix of a system with a factor on a grid."""
    return system.gram_of_class(GridGram)


class GridInverse(AbstractSolvedInverse):
    """`P = T^-1` for a system on a grid. Its diagonals and its trace with other systems have no
    derivative in the system itself: differentiating them raises ValueError.

    Attributes:
        system: T, without jitter.
        factor: the factor of T with jitter, a constant for derivatives.
    """

    system: WeightedSystem
    factor: GridFactor

    def diagonal(self):
        return self._diagonals()[0]

    def diagonal_of_product(self, system):
        return self._diagonals()[1]

    def trace_with(self, system):
        # `tr(P W L) + tr(P diag(shift))`, where `P W = A^-1 - A^-1 U G U^T A^-1` on all cells.
        factor = _held_fixed(self.factor, self.system)
        matrix: Any = grid_gram(system).whole()  # of the same kind as the factor
        trace = factor.whole.trace_with(matrix)
        diagonal = factor.whole.inverse_diagonal()
        eliminated = factor.eliminated
        if eliminated is not None:
            G = eliminated.correction()
            removed, correction = factor.whole.between_columns(factor.special, G, matrix)
            trace = trace - correction
            inverse = eliminated.by_outer(jnp.eye(len(G), dtype=G.dtype))
            diagonal = (diagonal - removed).at[factor.special].set(jnp.diagonal(inverse))
        found = trace + dot(factor.grid.of_points(diagonal), system.shift)
        return jnp.where(factor.exists, found, jnp.nan)

    def _diagonals(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The diagonals of P and of `K P`."""
        system = stop_gradient(self.system)
        factor = _held_fixed(self.factor, self.system)
        inverse = factor.inverse_diagonal()
        shift = system.with_jitter(factor).shift
        of_product = 1 - shift * inverse
        eliminated = factor.eliminated
        if eliminated is not None:
            # (K P)_ii is the posterior variance divided by d_i. At s the covariance given the data
            # is V - V S R^-1 S V; elsewhere w = 1 and (K P)_ii = 1 - d P_ii.
            grid = factor.grid
            V = eliminated.covariance
            scaled = eliminated.roots[:, None] * V
            posterior = jnp.diagonal(V) - jnp.sum(scaled * eliminated.by_outer(scaled), 0)
            of_weighted = posterior[len(grid.missing) :] / shift[grid.weighted]
            of_product = of_product.at[grid.weighted].set(of_weighted)
        return inverse, jnp.where(factor.exists, of_product, jnp.nan)


@custom_jvp
def _held_fixed(factor, system):
    """The factor of a system, without a derivative rule. A second derivative, which would need one,
    raises an exception instead of returning a wrong number.
    """
    return factor


@_held_fixed.def_jvp
def _held_fixed_jvp(primals, tangents):
    raise ValueError(
        "on a grid the evidence has first derivatives only: use solver=JitteredCholesky() for "
        "second ones"
    )


class GridReduction(AbstractCovarianceReduction):
    """The covariance reduction by the factor of the complete grid, where k(X, x) is a product along
    the axes, minus a correction for missing or weighted cells.

    Attributes:
        gram: K.
        weights: w; None if all are one.
        shift: d, (n,), without jitter.
        factor: the factor of M.
    """

    gram: GridGram
    weights: Float[Array, " n"] | None
    shift: Float[Array, " n"]
    factor: GridFactor

    def own_factor(self):
        return self.factor

    def at(self, kernel, X, x, z):
        if jax.tree.structure(kernel) == jax.tree.structure(self.gram.kernel):
            return _reduction(self.system, self.factor, x, z, same=z is x)
        # A covariance with the values of f at the points, such as that of one term of a sum.
        left = row_at(kernel, X, x)
        right = left if z is x else row_at(kernel, X, z)
        return _between_rows(self.system, self.factor, left, right)


@custom_jvp
def _reduction(system, factor, x, z, *, same):
    """`k(x, X) P W k(X, z)` for rows that are products over the axes."""
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


@_reduction.def_jvp
def _reduction_jvp(primals, tangents, *, same):
    def of(system, x, z):
        gram = grid_gram(system)
        left, right = (row_at(gram.kernel, gram.points, point) for point in (x, z))
        return _by_solution(system, primals[1], left, right)

    return _reduction(*primals, same=same), _tangent(of, primals, tangents)


@custom_jvp
def _between_rows(system, factor, left, right):
    """`l . P W r` for any rows, by whitening them."""
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
    """`l . P W r`, differentiable to every order; cancellation may cost digits of its value."""
    rhs = system.weights.times(right)[:, None]
    return dot(left, weighted_solve(system, rhs, JitteredCholesky(), factor=factor)[0][:, 0])


def _tangent(of: Callable, primals: Any, tangents: Any) -> Array:
    """The tangent of `of(system, factor, ...)` in all primals except the factor."""
    primals, tangents = ((*of_all[:1], *of_all[2:]) for of_all in (primals, tangents))
    moving, known = split_by_tangent(primals, tangents)
    return eqx.filter_jvp(lambda moving: of(*eqx.combine(moving, known)), (moving,), (tangents,))[1]


@renamed(most="max_missing")
class Grid(AbstractDirectSolver):
    """Exact solves on a grid: `O(n sum n_a)` for a kernel that is a product over the axes, and `O(n
    log n)` for a stationary kernel and equally spaced points along one column.

    The rows of X, in any order, are the combinations of the coordinates along each axis. An axis is
    one column, or several columns on which one factor of the kernel depends; if there are several
    axes, each has at most 10000 coordinates. Numbers that differ in their last digit are different
    coordinates, so round them first. RBF, Periodic and ZeroMeanPeriodic are products over columns,
    as are products, scales and powers of kernels On(kernel, columns), such as `On(Matern52(), 0) *
    On(RBF(), [1, 2])`; a sum is one factor, of all columns of its terms. X and weights must be
    concrete: a function that is compiled or differentiated must close over them. Missing rows and
    rows of weight zero are excluded exactly. At least one weight must be one. Each of the m rows
    that are missing or have another weight costs one more solve and a row of an m x m matrix.

    Along one column, points may differ from equal steps by the rounding of their coordinates, if
    that is at most `2 sqrt(eps)` of a step. Solutions are corrected for the differences to first
    order; the evidence is that of equal steps, and `rounding` estimates its error.

    The factor along one column predicts each value from at most `order` values before it.
    `stats["order"]` is the number used; if `order` is too small, the solve fails with
    `max_steps_reached`. Slowly decaying kernels and little noise need many values: for an RBF the
    points within about 25 lengthscales.

    Attributes:
        max_missing: the largest number of cells that are missing or have a weight other than one.
        order: the largest number of terms of the predictor.

    Raises ValueError for points that are not on a grid, for kernels, noise and weights that it does
    not support, and for second derivatives of the evidence.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> prior = kernax.GaussianProcess(kernax.RBF(0.3))
        >>> solver = kernax.solvers.Grid()
        >>> posterior = kernax.condition(prior, X, y, noise=0.01, solver=solver).value
        >>> round(float(posterior.mean(jnp.array([0.4]))), 2)
        0.69
    """

    max_missing: int = eqx.field(static=True, default=2000)
    order: int = eqx.field(static=True, default=2**15)

    def __check_init__(self):
        check_count(self.order, "order")
        check_count(self.max_missing, "max_missing", 0)

    def structure_for(self, kernel, X, weights):
        return grid_for(kernel, X, weights, self.order, self.max_missing)

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> GridFactor:
        refuse_options(self, options)
        if not isinstance(operator, GridForm):
            raise ValueError(
                "Grid() is for functions of Gaussian processes, with points on a grid; elsewhere "
                "use JitteredCholesky()"
            )
        factor = factorise(operator)
        assert isinstance(factor, GridFactor)
        return factor
