"""The factor of a matrix on a grid of which some cells are missing or weighted, made of the factor
of the whole grid and of a small matrix for those cells.

Let `A = K + noise I` on all N cells, s the m cells that are missing or have weights other than one,
o the others, and U the columns of the identity at s. With `C = U^T A^-1 U`, the cells s are removed
by `A_oo^-1 = (A^-1 - A^-1 U C^-1 U^T A^-1)_oo`, and `V = C^-1 - noise I` is the covariance of the
values at s given the observations at o (Golub & Van Loan 2013, section 2.1.4). So the Schur
complement of M, the matrix with weights w and noise d of each point, is

    R = S V S + diag(d),  S = sqrt(w),  log |M| = log |A| + log |C| + log |R|,

where w = 0 and d = 1 at missing cells. Nothing is divided by a weight.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import lineax as lx
from jaxtyping import Array, Bool, Float

from kernax.core.base.batching import one_by_one
from kernax.core.base.numerics import eps_of, matmul, stopped
from kernax.core.base.parameters import check_count
from kernax.core.base.solution import RESULTS
from kernax.core.grid.cells import placed
from kernax.core.grid.grid import GridForm, ProductGrid
from kernax.core.grid.gridding import grid_for
from kernax.core.grid.kronecker import KroneckerEigenpairs, KroneckerFactor
from kernax.core.grid.toeplitz import ToeplitzFactor, ToeplitzMatrix
from kernax.core.linalg.factors import AbstractFactor, direct_accuracy, factorise, with_jitter
from kernax.core.linalg.solvers import AbstractFactorSolver, refuse_options
from kernax.core.linalg.solves import solve_lower, solve_lower_transposed
from kernax.core.operators.operators import mean_diagonal

WholeFactor = KroneckerFactor | ToeplitzFactor  # of A, on all cells


class Eliminated(eqx.Module):
    """The elimination of the m cells that are missing or weighted.

    Attributes:
        inner: the lower factor of C, (m, m).
        outer: that of R, (m, m).
        roots: the diagonal of S, (m,).
        shift: d, (m,).
        covariance: V, (m, m).
    """

    inner: Float[Array, "m m"]
    outer: Float[Array, "m m"]
    roots: Float[Array, " m"]
    shift: Float[Array, " m"]
    covariance: Float[Array, "m m"]

    @staticmethod
    def of(
        C: Float[Array, "m m"], noise: Array, roots: Float[Array, " m"], shift: Float[Array, " m"]
    ) -> "Eliminated":
        inner = jnp.linalg.cholesky(C, symmetrize_input=False)
        identity = jnp.eye(len(C), dtype=C.dtype)
        V = solve_lower_transposed(inner, solve_lower(inner, identity)) - noise * identity
        R = roots[:, None] * V * roots[None, :] + jnp.diag(shift)
        outer = jnp.linalg.cholesky((R + R.T) / 2, symmetrize_input=False)
        return Eliminated(inner, outer, roots, shift, V)

    @property
    def exists(self) -> Bool[Array, ""]:
        """Whether both factors do, with pivots that are more than rounding."""
        return _is_regular(self.inner) & _is_regular(self.outer)

    def by_inner(self, B: Float[Array, "m *p"]) -> Float[Array, "m *p"]:
        """`C^-1 B`."""
        return solve_lower_transposed(self.inner, solve_lower(self.inner, B))

    def by_outer(self, B: Float[Array, "m *p"]) -> Float[Array, "m *p"]:
        """`R^-1 B`."""
        return solve_lower_transposed(self.outer, solve_lower(self.outer, B))

    def correction(self) -> Float[Array, "m m"]:
        """The G of `(K + diag(d / w))^-1 = A^-1 - A^-1 U G U^T A^-1`, smooth in w at zero."""
        identity = jnp.eye(len(self.roots), dtype=self.roots.dtype)
        removed = self.by_inner(identity)
        back = solve_lower(self.outer, self.roots[:, None] * removed)
        return removed - matmul(back.T, back)

    def log_determinant(self) -> Float[Array, ""]:
        """`log |C| + log |R|`."""
        diagonals = jnp.concatenate([jnp.diagonal(L) for L in (self.inner, self.outer)])
        return 2 * jnp.sum(jnp.log(diagonals))

    def rounding(self) -> Float[Array, ""]:
        """How far rounding moves `log |C| + log |R|`, in nats."""
        # An error dC moves it by tr(G dC), with V in R; entries are off by eps of the diagonal,
        # independently.
        sizes = jnp.linalg.norm(self.inner, axis=1)
        G = self.correction()
        return 2 * eps_of(G) * jnp.linalg.norm(sizes[:, None] * G * sizes[None, :])


def _is_regular(L: Float[Array, "m m"]) -> Bool[Array, ""]:
    """Whether a lower factor has no pivot within rounding of zero, nor NaN."""
    return jnp.all(jnp.diagonal(L) ** 2 > eps_of(L) * jnp.sum(L**2, 1))


class GridFactor(AbstractFactor):
    """`S K S + diag(d)` of points on a grid.

    Attributes:
        grid: where the points are.
        whole: the factor of A.
        eliminated: the elimination of cells that are missing or weighted; None where there are
            none.
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
    def word_for_none(self):
        return RESULTS.where(self.whole.exists, RESULTS.not_psd, self.whole.word_for_none)

    def accurate_residual(self, dtype):
        return direct_accuracy(dtype)

    @property
    def word_for_inaccuracy(self):
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

    def _parts(self, inside: Float[Array, "N p"]) -> tuple[Array, Array, Array]:
        """The data with zero at s, the prediction at s from the other data, and how far the data at
        s are from it.
        """
        assert self.eliminated is not None
        there = inside[self.special]
        without = inside.at[self.special].set(0)
        predicted = -self.eliminated.by_inner(self.whole.solve(without)[self.special])
        off = there - self.eliminated.roots[:, None] * predicted
        return without, predicted, off

    def _eliminating(self, inside: Float[Array, "N p"]) -> Float[Array, "N p"]:
        without, predicted, off = self._parts(inside)
        assert self.eliminated is not None
        solved = self.eliminated.by_outer(off)
        back = self.eliminated.by_inner(self.eliminated.roots[:, None] * solved)
        found = self.whole.solve(without + self._placed(predicted + back))
        return found.at[self.special].set(solved)

    def solve_and_report(self, B):
        return self.solve(B), (self.result, {"jitter": self.jitter} | self.whole.figures())

    def whitened(self, B):
        inside = self.grid.in_cells(self._known(B))
        if self.eliminated is None:
            return self.whole.whitened(inside)
        # With the predicted values at s, the square of all data is that of the data at o.
        without, predicted, off = self._parts(inside)
        white = self.whole.whitened(without + self._placed(predicted))
        return jnp.concatenate([white, solve_lower(self.eliminated.outer, off)])

    def inverse(self):
        return self.solve(jnp.eye(len(self.grid.cells), dtype=self.jitter.dtype))

    def inverse_diagonal(self):
        diagonal = self.whole.inverse_diagonal()
        if self.eliminated is not None:
            inverse = self.eliminated.by_outer(jnp.eye(len(self.special), dtype=diagonal.dtype))
            removed, _ = self.whole.between_columns(self.special, self.eliminated.correction())
            diagonal = diagonal - removed
            diagonal = diagonal.at[self.special].set(jnp.diagonal(inverse))
        return self._known(self.grid.of_points(diagonal))

    def _placed(self, values: Float[Array, "m p"]) -> Float[Array, "N p"]:
        return placed(self.special, values, self.grid.size)

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
    whole, eliminated, jitter, exists = one_by_one(_parts_of_factor, operator, scale)
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
    operator = stopped(operator)
    noise, is_same = _noise_of(operator)
    prepared = operator.gram.whole().prepared()

    def attempt(jitter: Float[Array, ""]) -> _Attempt:
        return _attempt(operator, prepared, noise, jitter)

    end = with_jitter(attempt, lambda now: now.is_positive, scale, prepared.is_sound)
    return end.whole, end.eliminated, end.jitter, end.whole.exists & end.is_positive & is_same


class _Attempt(eqx.Module):
    """A factor with some jitter.

    Attributes:
        is_positive: whether no more jitter is needed.
    """

    whole: WholeFactor
    eliminated: Eliminated | None
    jitter: Float[Array, ""]
    is_positive: Bool[Array, ""]


def _attempt(
    operator: GridForm,
    prepared: KroneckerEigenpairs | ToeplitzMatrix,
    noise: Array,
    jitter: Float[Array, ""],
) -> _Attempt:
    whole = prepared.factorised(noise + jitter)
    if not len(operator.gram.grid.special):
        return _Attempt(whole, None, jitter, whole.is_positive)
    eliminated = _eliminated(operator, whole, noise, jitter)
    # Of a predictor that is left incomplete nothing is known of the cells, whatever the jitter.
    is_positive = whole.is_positive & (eliminated.exists | ~whole.exists)
    return _Attempt(whole, eliminated, jitter, is_positive)


def _noise_of(operator: GridForm) -> tuple[Float[Array, ""], Bool[Array, ""]]:
    """The noise of the points of weight one, and whether it is the same for all of them."""
    ordinary = operator.gram.grid.ordinary
    noise = jnp.max(jnp.where(ordinary, operator.shift, -jnp.inf))
    return noise, jnp.all(jnp.where(ordinary, operator.shift == noise, True))


def _eliminated(operator: GridForm, whole: WholeFactor, noise: Array, jitter: Array) -> Eliminated:
    grid = operator.gram.grid
    special = grid.special
    roots = _roots_of_special(operator)
    missing = jnp.ones_like(noise, shape=grid.missing.shape)
    shift = jnp.concatenate([missing, operator.shift[grid.weighted] + jitter])
    C = whole.inverse_at(special)
    return Eliminated.of((C + C.T) / 2, noise + jitter, roots, shift)


def _roots_of_special(operator: GridForm) -> Float[Array, " k"]:
    """Square roots of the weights of special cells; zero of those that are missing."""
    grid = operator.gram.grid
    weights = operator.weights.times_roots(jnp.ones_like(operator.shift))[grid.weighted]
    missing = jnp.zeros_like(weights, shape=grid.missing.shape)
    return jnp.concatenate([missing, weights])


class Grid(AbstractFactorSolver):
    """Points on a grid and a kernel that is a product over its axes, in `O(n sum n_a)`, or points
    at equal distances along one column and a stationary kernel, in `O(n log n)`.

    The rows of X, in any order, are the combinations of the places along each axis. An axis is one
    column, or several that the kernel takes together, and where there are others it has at most
    10000 places. Equal numbers are one place, and numbers that differ in their last digit are two:
    round them first. RBF, Periodic and ZeroMeanPeriodic are products over columns, as are products,
    scales and powers of kernels On(kernel, columns), such as `On(Matern52(), 0) * On(RBF(), [1,
    2])`; a sum is one factor, of all columns of its terms. X and weights must be known: functions
    that are compiled or differentiated close over them. Rows that are missing or of weight zero are
    left out exactly. Weights may be any, if one of them is one: each of the m rows that are
    missing, or of another weight, costs a solution, and a row of an m x m matrix.

    Along one column, points may differ from equal steps by the rounding of their numbers, if that
    is at most `2 sqrt(eps)` of a step. Solutions are those for the points as they are, to first
    order in the differences; the evidence is that of equal steps, and `rounding` says how far it
    may be off.

    The factor along one column predicts each value from those before it, `order` of them at most.
    How many it takes is in `stats["order"]`; where `order` is too few, the solve fails with
    `max_steps_reached`. Kernels whose values hardly decay, and little noise, need many: the points
    within some 25 lengthscales of an RBF.

    Attributes:
        most: how many cells may be missing or have a weight other than one.
        order: the most terms of the predictor.

    Raises ValueError for points that are on no grid, for kernels, noise and weights that have no
    place on one, and for second derivatives of the evidence.
    """

    most: int = eqx.field(static=True, default=2000)
    order: int = eqx.field(static=True, default=2**15)

    def __check_init__(self):
        check_count(self.order, "order")
        check_count(self.most, "most", 0)

    @property
    def needs_whole_matrix(self):
        return True

    @property
    def knows_determinant(self):
        return True

    def structure_for(self, kernel, X, weights):
        return grid_for(kernel, X, weights, self.order, self.most)

    def init(self, operator: lx.AbstractLinearOperator, options: dict[str, Any]) -> GridFactor:
        refuse_options(self, options)
        if not isinstance(operator, GridForm):
            raise ValueError(
                "Grid solves for points on a grid in condition and log_marginal_likelihood; "
                "elsewhere use JitteredCholesky()"
            )
        factor = factorise(operator)
        assert isinstance(factor, GridFactor)
        return factor
