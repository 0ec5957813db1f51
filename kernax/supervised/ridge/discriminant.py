"""Kernel Fisher discriminants."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_targets
from kernax.core.base.compiled import compiled
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.labels import as_one_hot, as_signs
from kernax.core.base.numerics import (
    is_concrete,
    matmul,
    place_of_largest,
    positive_or_one,
    safe_sqrt,
    stop_gradient,
)
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution, finish, void_unless_known
from kernax.core.base.weights import AbstractWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem
from kernax.core.linalg.eigenproblem import AbstractProblem, leading_pairs, status_of
from kernax.core.linalg.solves import solve_by_lu
from kernax.core.operators.memory import Footprint
from kernax.core.operators.operators import is_finite

_FOOTPRINT = Footprint("kernel_discriminant", 4.1)
_MOST_HIDDEN = 0.01  # of the separations, by rounding, relative to the largest or to one


class Discriminant(Printed):
    """Kernel Fisher discriminants: functions on which the classes are far apart and the points of
    each class close together.

    Attributes:
        function: f, a `KernelExpansion` with one output fewer than there are classes and mean zero
            over the points.
        class_means: the mean of f over the points of each class; inf for a class without weight.
        separations: for each output, descending, the maximum of the objective, `sum_c w_c (m_c -
            m)^2` over `sum_i w_i (f(x_i) - m_c(i))^2 + ridge |f|^2`; zero if no function is left,
            or if it is below the rounding error of the largest.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> discriminant = kernax.kernel_discriminant(kernax.RBF(0.3), X, y, ridge=0.1).value
        >>> discriminant.separations.shape
        (1,)
    """

    function: KernelExpansion
    class_means: Float[Array, "classes c"] = data()
    separations: Float[Array, " c"] = data()

    def __call__(self, x: PyTree) -> Float[Array, " c"]:
        """f at one point."""
        return self.function(x)

    def values(self, X: PyTree) -> Float[Array, "m c"]:
        """f at a batch of m points, (m, c)."""
        return self.function.values(X)

    def classify(self, x: PyTree) -> Int[Array, ""]:
        """The index of the class with the mean nearest to `f(x)`, for one point; -1 where f(x) is
        NaN.
        """
        # argmin_c |f(x) - m_c|^2.
        return place_of_largest(-jnp.sum((self(x)[None, :] - self.class_means) ** 2, 1))


def kernel_discriminant(
    kernel: AbstractKernel,
    X: PyTree,
    Y: ArrayLike,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    throw: bool = True,
) -> Solution[Discriminant]:
    """Kernel Fisher discriminant analysis: maximises `sum_c w_c (m_c - m)^2` over functions f with
    `sum_i w_i (f(x_i) - m_c(i))^2 + ridge |f|^2 = 1`.

    Here m_c is the mean of f over class c, m the mean over all points, and w_c the weight of the
    class. Each further function maximises the same sum among those uncorrelated with the functions
    before it. With the matrices B of the first sum and N of the second, coefficients solve `B K a =
    l (N K + ridge) a`, which gives one function fewer than classes (Mika et al. 1999; Baudat &
    Anouar 2000). In the features of the kernel this is linear discriminant analysis with a ridge.

    Arguments:
        kernel, X: any kernel, and a batch of n points.
        Y: labels -1 and +1 (n,), with columns -1 and +1 in that order, or one-hot (n, classes),
            from `kernax.one_hot`.
        ridge: > 0, in units of k.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `Discriminant`, once differentiable in the kernel, X, ridge
        and weights. Stats: `rank`, the number of functions with a nonzero separation, and
        `residual`. The fit fails where rounding hides separations above 0.01, as in float32 with a
        tiny ridge.

    Raises:
        ValueError: bad shapes or values, fewer than two classes among the points of positive
            weight.
        NonFiniteError, BreakdownError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> discriminant = kernax.kernel_discriminant(kernax.RBF(0.3), X, y, ridge=0.1).value
        >>> discriminant.function.values(X).shape
        (5, 1)
        >>> discriminant.class_means.shape  # two classes, one function
        (2, 1)
    """
    problem = check_problem(
        "kernel_discriminant",
        kernel,
        X,
        Y,
        weights,
        targets=_as_classes,
        throw=throw,
        footprint=_FOOTPRINT,
    )
    ridge = problem.scalar(ridge, "ridge", POSITIVE, throw=throw)
    solution = _kernel_discriminant(problem, ridge)
    return finish(solution, throw, "kernel_discriminant: a larger ridge may help.")


def _as_classes(Y: ArrayLike, n: int, dtype: jnp.dtype, weights: AbstractWeights) -> Array:
    """A column of zeros and ones for each class."""
    Y = as_targets(Y, n, dtype, "Y")
    if Y.ndim > 1:
        return as_one_hot(Y, n, dtype, weights, every=False)
    if is_concrete(Y) and len(np.unique(Y)) > 2:
        raise ValueError(
            f"Y must hold -1 and +1, or a column for each class, but holds {len(np.unique(Y))} "
            "different numbers: Y, classes = one_hot(labels)"
        )
    y = as_signs(Y, n, dtype, weights)
    return jnp.stack([(1 - y) / 2, (1 + y) / 2], 1)


class _Classes(eqx.Module):
    """The weights of points in each class.

    Attributes:
        members: (n, classes), one where the point belongs to the class.
        shares: the share of each point in the weight of its class.
        totals: the weight of each class.
    """

    members: Float[Array, "n classes"]
    shares: Float[Array, "n classes"]
    totals: Float[Array, " classes"]

    @staticmethod
    def of(Y: Float[Array, "n classes"], weights: AbstractWeights) -> "_Classes":
        # share_ic = w_i / w_c for the points i of class c, w_c the sum of their weights.
        inside = weights.times(Y)
        totals = jnp.sum(inside, 0)
        return _Classes(Y, inside / positive_or_one(totals)[None, :], totals)

    def means(self, F: Float[Array, "n p"]) -> Float[Array, "classes p"]:
        """The means of the columns of F over each class."""
        return matmul(self.shares.T, F)

    def of_own(self, M: Float[Array, "classes p"]) -> Float[Array, "n p"]:
        """The row of M for the class of each point."""
        return matmul(self.members, M)

    def heaviest_points(self) -> Float[Array, "n classes"]:
        """One at the point of largest weight in each class, zero elsewhere; all zero for a class
        without weight.
        """
        heaviest = jax.nn.one_hot(
            jnp.argmax(self.shares, 0), len(self.shares), axis=0, dtype=self.shares.dtype
        )
        return jnp.where(stop_gradient(self.totals) > 0, heaviest, 0)

    def relative_to_heaviest(self) -> "_Differences":
        """The means of the classes minus that of the class of largest weight."""
        # Delta_c = shares_c - shares_h, h the heaviest class: (Delta^T f)_c = m_c - m_h.
        is_heaviest = jnp.arange(len(self.totals)) == jnp.argmax(self.totals)
        share_of_heaviest = jnp.max(self.totals) / jnp.sum(self.totals)
        of_heaviest = jnp.sum(jnp.where(is_heaviest, self.shares, 0), 1)
        shares = jnp.where(is_heaviest, 0, self.shares - of_heaviest[:, None])
        totals = jnp.where(is_heaviest, 0, self.totals)
        return _Differences(shares, totals, totals / jnp.sum(self.totals), share_of_heaviest)


class _Differences(eqx.Module):
    """`B = Delta (D - D 1 1^T D / w) Delta^T`, where the columns of Delta times f are the mean of f
    over each class minus that over the heaviest class, and D holds the weights w_c of the classes,
    zero for the heaviest; w is the sum of all weights.

    In this form nothing cancels where one class has nearly all of the weight.
    """

    shares: Float[Array, "n classes"]
    totals: Float[Array, " classes"]
    fractions: Float[Array, " classes"]
    share_of_heaviest: Float[Array, ""]

    def apply(self, F: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`B F`."""
        # B F = Delta D (u - 1 fractions.u) with u = Delta^T F.
        u = matmul(self.shares.T, F)
        return matmul(self.shares, self.totals[:, None] * (u - matmul(self.fractions, u)[None, :]))

    def root(self, U: Float[Array, "classes p"]) -> Float[Array, "n p"]:
        """`S U` with `S S^T = B`."""
        # S = Delta D^1/2 (I - q q^T)^1/2, q_c = sqrt(w_c / w).
        return matmul(self.shares, safe_sqrt(self.totals)[:, None] * self._without_mean(U))

    def root_transposed(self, F: Float[Array, "n p"]) -> Float[Array, "classes p"]:
        """`S^T F`."""
        # S^T = (I - q q^T)^1/2 D^1/2 Delta^T.
        return self._without_mean(safe_sqrt(self.totals)[:, None] * matmul(self.shares.T, F))

    def _without_mean(self, U: Float[Array, "classes p"]) -> Float[Array, "classes p"]:
        # (I - q q^T)^(1/2) = I - q q^T / (1 + sqrt(1 - q.q)), where 1 - q.q is the share of the
        # heaviest class.
        q = safe_sqrt(self.fractions)
        part = 1 / (1 + jnp.sqrt(self.share_of_heaviest))
        return U - part * q[:, None] * matmul(q, U)[None, :]


class _Separation(AbstractProblem):
    """`B K (N K + ridge)^-1 a = l a`.

    Attributes:
        K: the Gram matrix.
        within: `N K + ridge`, the row of the heaviest point in each class replaced by the sum of
            the rows of its class.
        classes: the weights of the classes, which define N.
        between: B.
    """

    K: Float[Array, "n n"]
    within: Float[Array, "n n"]
    classes: _Classes
    between: _Differences

    @staticmethod
    def of(
        K: Float[Array, "n n"], weights: AbstractWeights, classes: _Classes, ridge: Array
    ) -> "_Separation":
        # N K: row i is w_i (K_i - the mean of the rows of K over the class of i).
        inside = weights.times(K - classes.of_own(classes.means(K)))
        penalty = ridge * jnp.eye(len(K), dtype=K.dtype)
        # The rows of N K sum to zero over each class. With the sum in place of its row, the largest
        # weight of a class multiplies no difference, so that no rounding hides small weights and
        # the ridge.
        sums = ridge * classes.of_own(classes.members.T)
        replaced = jnp.sum(classes.heaviest_points(), 1, keepdims=True) > 0
        within = jnp.where(replaced, sums, inside + penalty)
        return _Separation(K, within, classes, classes.relative_to_heaviest())

    def coefficients(self, A: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`(N K + ridge)^-1 A`."""
        # The sum over a class stands in place of the row of its heaviest point, as in `within`.
        heaviest = self.classes.heaviest_points()
        sums = matmul(heaviest, matmul(self.classes.members.T, A))
        rhs = jnp.where(jnp.sum(heaviest, 1, keepdims=True) > 0, sums, A)
        # Each row in its own unit.
        size = stop_gradient(jnp.max(abs(self.within), 1, keepdims=True))
        size = positive_or_one(size)
        return solve_by_lu(self.within / size, rhs / size)

    def inner(self, A):
        return matmul(self.K, self.coefficients(A))

    def outer(self, F):
        return self.between.apply(F)

    def root(self, U):
        return self.between.root(U)

    def root_transposed(self, F):
        return self.between.root_transposed(F)

    def symmetric(self):
        # With B = S S^T the matrix S^T K (N K + ridge)^-1 S has the nonzero eigenvalues l. It is
        # symmetric except for rounding, as K (N K + ridge)^-1 = (N + ridge K^-1)^-1.
        S = self.root(jnp.eye(len(self.classes.totals), dtype=self.K.dtype))
        M = self.root_transposed(self.inner(S))
        return (M + M.T) / 2

    def scale(self):
        # The diagonal of `D^1/2 Delta^T K A^-1 Delta D^1/2`, of absolute values.
        Delta = abs(self.between.shares)
        solved = abs(self.coefficients(self.between.shares))
        terms = jnp.sum(Delta * matmul(abs(self.K), solved), 0)
        return stop_gradient(jnp.max(self.between.totals * terms))


@compiled
def _kernel_discriminant(problem, ridge):
    """The functions that separate the classes, and the status of their computation."""
    gram = problem.gram()
    classes = _Classes.of(problem.y, problem.weights)
    separation = _Separation.of(gram.as_matrix(), problem.weights, classes, ridge)
    pairs, report = leading_pairs(separation, problem.y.shape[1] - 1)
    result = status_of(separation, report, pairs, is_finite(gram), truncated=False)
    # A separation below the rounding error counts as zero, which is no answer where that error is
    # large. Of c classes with points there are c - 1 functions.
    n_functions = jnp.sum(classes.totals > 0) - 1
    largest = stop_gradient(pairs.values[0])
    is_lost = (report.rank < n_functions) & (report.noise > _MOST_HIDDEN * jnp.maximum(1, largest))
    result = RESULTS.where(is_lost & (result == RESULTS.successful), RESULTS.inaccurate, result)
    # With B K (N K + ridge)^-1 z = l z the coefficients are a = (N K + ridge)^-1 z, and z^T K a = 1
    # is the condition a^T (K N K + ridge K) a = 1.
    known = (separation.coefficients(pairs.coefficients), pairs.values)
    C, separations = void_unless_known(known, result)
    means = classes.means(matmul(separation.K, C))
    # m = sum_c w_c m_c / w, and f - m has mean zero over the points.
    mean = matmul(classes.totals, means) / jnp.sum(classes.totals)
    present = classes.totals > 0
    value = Discriminant(
        function=KernelExpansion(problem.kernel, problem.X, C, -mean),
        class_means=jnp.where(present[:, None], means - mean[None, :], jnp.inf),
        separations=separations,
    )
    return Solution(value, result, report.figures())
