"""Kernel canonical correlation analysis."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.batching import sequential_vmap
from kernax.core.base.boundary import as_stack, cast, count
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed, translated
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, safe_sqrt, stop_gradient
from kernax.core.base.parameters import check_count, data
from kernax.core.base.printing import Printed
from kernax.core.base.solution import (
    RESULTS,
    Digits,
    Solution,
    finish,
    void_unless_known,
    warn_of_rounding,
)
from kernax.core.base.weights import AbstractWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import LearnerProblem, check_problem
from kernax.core.linalg.density import factor_of
from kernax.core.linalg.eigenproblem import (
    AbstractProblem,
    EigenPairs,
    EigenReport,
    leading_pairs,
    status_of,
)
from kernax.core.linalg.factorisation import AbstractFactor, WeightedSystem
from kernax.core.linalg.linear_solvers import JitteredCholesky
from kernax.core.linalg.weighted_solve import weighted_solve
from kernax.core.operators.memory import Footprint
from kernax.core.operators.operators import DenseGram, is_finite
from kernax.unsupervised.centring import CentredGram

_FOOTPRINT = Footprint("kernel_cca", 10.1)

_MOST_ROUNDING = 0.01  # of the squares of correlations


class CanonicalPairs(Printed):
    """The most correlated pairs of functions, one of each view.

    Attributes:
        first, second: the functions f_j and g_j as the outputs of two expansions, with mean zero
            over the points.
        correlations: `sum_i w_i f_j(x_i) g_j(y_i)`, descending, between 0 and 1.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> Y = jnp.cos(6.0 * X)
        >>> k = kernax.RBF(0.3)
        >>> pairs = kernax.kernel_cca(k, k, X, Y, n_components=1, ridge=0.1).value
        >>> pairs.first.values(X).shape, pairs.second.values(Y).shape
        ((5, 1), (5, 1))
    """

    first: KernelExpansion
    second: KernelExpansion
    correlations: Float[Array, " c"] = data()


_OLD_ORDER = ("kernel_x", "X", "kernel_z", "Z", "components", "ridge")
_NEW_NAMES = {"kernel_z": "kernel_y", "Z": "Y", "components": "n_components"}


def _in_new_order(*args, **kwargs):
    """The arguments of a call in the order of 0.2, in today's order; None for any other call."""
    is_old = len(args) > 2 and isinstance(args[2], AbstractKernel)
    if not is_old and not {"kernel_z", "Z"}.intersection(kwargs):
        return None
    given = dict(zip(_OLD_ORDER, args)) | kwargs
    renamed_arguments = {_NEW_NAMES.get(name, name): value for name, value in given.items()}
    text = (
        "kernel_cca(kernel_x, X, kernel_z, Z, components, ridge) is kernel_cca(kernel_x, kernel_y, "
        "X, Y, n_components, ridge) now"
    )
    return (), renamed_arguments, text


@translated(_in_new_order)
@renamed(components="n_components")
def kernel_cca(
    kernel_x: AbstractKernel,
    kernel_y: AbstractKernel,
    X: PyTree,
    Y: PyTree,
    n_components: int,
    ridge: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    throw: bool = True,
) -> Solution[CanonicalPairs]:
    """Kernel canonical correlation analysis: maximises `sum_i w_i f(x_i) g(y_i)` over functions f
    and g of two kernels, of mean zero over the points, with `sum_i w_i f(x_i)^2 + ridge |f|^2 = 1`
    and likewise for g.

    Each further pair maximises the same sum among the pairs uncorrelated with those before. With
    the centred Gram matrices K and L and `H_K = K (W K + ridge)^-1` the values are `f = H_K W g /
    rho`, `g = H_L W f / rho`, and rho are the square roots of the eigenvalues of `W H_L W H_K`
    (Bach & Jordan 2002, section 3; the penalty is the squared norm of Fukumizu, Bach & Gretton
    2007, eq. 9, with `ridge = n epsilon`). Without a ridge, kernels of full rank correlate anything
    perfectly: choose the ridge by the correlations on other data.

    Arguments:
        kernel_x, kernel_y: any kernels.
        X, Y: batches of n points each, in pairs.
        n_components: the number of pairs of functions, from 1 to n.
        ridge: > 0, in units of k, the same for both.
        weights: (n,) >= 0 of the pairs. Two is the pair repeated, zero the pair removed.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is `CanonicalPairs`, once differentiable in the kernels, X, Y,
        ridge and weights; where correlations coincide, only quantities that depend on their common
        space are differentiable. Functions with a correlation of zero up to rounding are zero.
        Stats: `rank`, `residual`, `jitter`, and `rounding`, `eps |K| / ridge`, which bounds the
        error of squared correlations: above `eps^(1/3)` a ConditionWarning is issued, above 0.01
        the solve fails.

    Raises:
        ValueError: bad shapes or values, X and Y of different n.
        NonFiniteError, NotPSDError, BreakdownError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> Y = jnp.cos(6.0 * X)
        >>> k = kernax.RBF(0.3)
        >>> pairs = kernax.kernel_cca(k, k, X, Y, n_components=1, ridge=0.1).value
        >>> bool(pairs.correlations[0] > 0.8)
        True
    """
    Y = as_stack(Y, "Y")  # checked apart from the problem, so that messages do not name X
    first = check_problem(
        "kernel_cca", kernel_x, X, None, weights, throw=throw, footprint=_FOOTPRINT
    )
    m = count(Y)
    if first.n != m:
        raise ValueError(f"X and Y must hold n points each, in pairs, but hold {first.n} and {m}")
    second = check_problem(
        "kernel_cca", kernel_y, Y, None, weights, throw=throw, footprint=_FOOTPRINT
    )
    n_components = check_count(n_components, "n_components")
    if n_components > first.n:
        raise ValueError(
            f"n_components must be at most {first.n}, the number of pairs, but is {n_components}"
        )
    # Both problems are solved in the higher precision of the two.
    dtype = jnp.promote_types(first.dtype, second.dtype)
    first = cast(first, dtype)
    second = cast(second, dtype)
    ridge = first.scalar(ridge, "ridge", POSITIVE, throw=throw)
    solution = _kernel_cca(first, second, ridge, n_components)
    hint = "kernel_cca: a larger ridge or rescaled inputs may help."
    solution = finish(solution, throw, hint)
    digits = Digits("the correlations", eps_of(ridge) ** (1 / 3))
    cause = "the ridge is small: rounding"
    warn_of_rounding(solution, digits, "A larger ridge keeps more.", cause)
    return solution


class _View(eqx.Module):
    """One kernel and its centred points, with `T = W K + ridge` and the factor of T."""

    centred: CentredGram
    system: WeightedSystem
    factor: AbstractFactor

    @staticmethod
    def of(problem: LearnerProblem, weights: AbstractWeights, ridge: Array) -> "_View":
        centred = CentredGram.of(problem.gram(), weights)
        system = WeightedSystem.of(DenseGram(centred.as_matrix()), weights, ridge)
        return _View(centred, system, factor_of(system)[0])

    def coefficients(self, rhs: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`T^-1 rhs`; NaN where T has no factor."""
        return weighted_solve(self.system, rhs, JitteredCholesky(), factor=self.factor)[0]

    def rounding(self, ridge: Float[Array, ""]) -> Float[Array, ""]:
        """A bound on the error of H besides the rounding of K before centring: a change dK changes
        `H = K (K + ridge)^-1` by at most `|dK| / ridge`.
        """
        size = self.centred.largest() * jnp.sum(self.system.weights.values)
        return eps_of(size) * size / ridge

    def values(self, A: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`K A`."""
        return self.system.gram.mv(A)

    def residual(
        self, A: Float[Array, "n p"], partner: Float[Array, "n p"], correlations: Float[Array, " p"]
    ) -> Float[Array, ""]:
        """The largest relative residual over all columns of `rho (W K + ridge) a = W g`, where g
        are the values of the partner.
        """
        rho = correlations[None, :]
        weights = self.system.weights
        # |W g - rho W K a - rho ridge a|, relative to the sum of the lengths of the three terms.
        wanted = weights.times(partner)
        own = rho * weights.times(self.values(A))
        shift = self.system.with_jitter(self.factor).shift
        penalty = rho * shift[:, None] * A
        terms = [jnp.linalg.norm(term, axis=0) for term in (wanted, own, penalty)]
        left = jnp.linalg.norm(wanted - own - penalty, axis=0)
        return jnp.max(left / positive_or_one(sum(terms[1:], terms[0])))

    def smoothed(self, rhs: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """`H rhs`, `H = K T^-1`, a symmetric matrix."""
        return self.values(self.coefficients(rhs))


class _Correlation(AbstractProblem):
    """`(W H_L W) H_K z = rho^2 z`.

    Attributes:
        first, second: K and L.
        basis: the eigenvectors of `S L S (S L S + ridge)^-1`, `S = sqrt(W)`, times the roots of its
            eigenvalues.
        size: a bound on the squared correlations, from the sizes of K and L.
    """

    first: _View
    second: _View
    basis: Float[Array, "n n"]
    size: Float[Array, ""]

    @property
    def weights(self) -> AbstractWeights:
        return self.first.system.weights

    def inner(self, A):
        return self.first.smoothed(A)

    def outer(self, F):
        return self.weights.times(self.second.smoothed(self.weights.times(F)))

    def root(self, U):
        # W H_L W = S (S L S) (S L S + ridge)^-1 S = (S B) (S B)^T, B the basis.
        return self.weights.times_roots(matmul(self.basis, U))

    def root_transposed(self, F):
        return matmul(self.basis.T, self.weights.times_roots(F))

    def symmetric(self):
        # (S B)^T H_K (S B) has the eigenvalues of (S B) (S B)^T H_K = (W H_L W) H_K.
        S = self.root(jnp.eye(len(self.basis), dtype=self.basis.dtype))
        M = self.root_transposed(self.inner(S))
        return (M + M.T) / 2

    def scale(self):
        return self.size


class _Coefficients(eqx.Module):
    """The coefficients of the functions of both views, a column for each pair.

    Attributes:
        first, second: A and B.
        correlations: those of the pairs.
    """

    first: Float[Array, "n c"]
    second: Float[Array, "n c"]
    correlations: Float[Array, " c"]

    @staticmethod
    def of(problem: _Correlation, pairs: EigenPairs) -> "_Coefficients":
        """`A = T_K^-1 z`, and `B = T_L^-1 W H_K z / rho` from the values of the first functions."""
        # z^T H_K z = 1. The first functions have A = T_K^-1 z and the values f = K A = H_K z; the
        # second ones have B = T_L^-1 W f / rho.
        correlations = safe_sqrt(pairs.values)
        of_first = problem.weights.times(problem.first.smoothed(pairs.coefficients))
        B = problem.second.coefficients(of_first / positive_or_one(correlations)[None, :])
        return _Coefficients(
            first=problem.first.coefficients(pairs.coefficients),
            second=B,
            correlations=correlations,
        )

    def residual(self, problem: _Correlation) -> Float[Array, ""]:
        """The larger residual of both views."""
        of_first = problem.first.values(self.first)
        of_second = problem.second.values(self.second)
        return jnp.maximum(
            problem.first.residual(self.first, of_second, self.correlations),
            problem.second.residual(self.second, of_first, self.correlations),
        )


@compiled
def _kernel_cca(first, second, ridge, components):
    view = _View.of(first, first.weights, ridge)
    other = _View.of(second, first.weights, ridge)
    # A root B of `S L S (S L S + ridge)^-1 = B B^T`, without derivatives.
    # S L S = U diag(l) U^T gives B = U diag(sqrt(l / (l + ridge))).
    symmetric = other.system.weights.congruence(other.system.gram.as_matrix())
    values, vectors = sequential_vmap(jnp.linalg.eigh, symmetric)
    values = jnp.maximum(values, 0)
    shrunk = values / (values + ridge)
    basis = vectors * jnp.sqrt(shrunk)[None, :]
    # |S H_K S| <= min(1, |S K S| / ridge), and likewise for L. With a large ridge all squared
    # correlations are far below 1, and so is their rounding.
    roundings = stop_gradient((view.rounding(ridge), other.rounding(ridge)))
    sizes = [jnp.minimum(1, rounding / eps_of(rounding)) for rounding in roundings]
    problem = _Correlation(view, other, stop_gradient(basis), sizes[0] * sizes[1])
    pairs, report = leading_pairs(problem, components)
    coefficients = _Coefficients.of(problem, pairs)
    report = report.with_residual(stop_gradient(coefficients.residual(problem)))
    rounding = jnp.maximum(*roundings)
    # Negative eigenvalues and residuals within the rounding of both views are no failure, but
    # rounding that leaves less than two digits is one.
    finite = is_finite(view.system.gram) & is_finite(other.system.gram)
    finite = finite & ~jnp.isnan(rounding)  # as it is for a ridge that is out of range
    beyond = EigenReport(
        residual=jnp.where(report.residual <= rounding, 0, report.residual),
        rank=report.rank,
        least=report.least,
        negative=jnp.where(report.least >= -rounding, 0, report.negative),
        steps=report.steps,
        noise=report.noise,
    )
    result = status_of(problem, beyond, pairs, finite, truncated=False)
    too_much = ~(rounding <= _MOST_ROUNDING)
    result = RESULTS.where(too_much & finite, RESULTS.inaccurate, result)
    coefficients = void_unless_known(coefficients, result)
    value = CanonicalPairs(
        first=view.centred.expansion(first, coefficients.first),
        second=other.centred.expansion(second, coefficients.second),
        correlations=coefficients.correlations,
    )
    jitter = jnp.maximum(view.factor.jitter, other.factor.jitter)
    return Solution(value, result, report.figures() | {"jitter": jitter, "rounding": rounding})
