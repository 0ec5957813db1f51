"""Kernel principal component analysis."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from kernax._advice import IN_FEATURES
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import count
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.numerics import matmul, positive_or_one, stop_gradient
from kernax.core.base.parameters import as_steps, check_count, data
from kernax.core.base.powers import in_own_unit
from kernax.core.base.printing import Printed
from kernax.core.base.solution import Solution, finish, void_unless_known
from kernax.core.base.weights import PointWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import check_problem
from kernax.core.linalg.eigenproblem import MOST_DENSE, WeightedGram, leading_pairs, status_of
from kernax.core.linalg.leading_eigenvectors import can_be_truncated
from kernax.core.operators.memory import Footprint
from kernax.unsupervised.centring import CentredGram, shares

_FOOTPRINT = Footprint(
    "kernel_pca",
    3.1,
    IN_FEATURES,
)


class PrincipalComponents(Printed):
    """The principal components of points in the space of a kernel: the directions of largest
    variance.

    Attributes:
        function: the projections of a point onto them, a `KernelExpansion` with one output for each
            component, with mean zero over the points.
        variances: the variances of the points along the components, descending, in units of k;
            zero, like the projection, if the points span fewer directions.
        total_variance: the sum of the variances along all directions.
        shares: the weights of the points, scaled to sum one.
        whitened: whether projections are divided by their standard deviation.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> pca = kernax.kernel_pca(kernax.RBF(0.3), X, n_components=2).value
        >>> pca(jnp.array([0.4])).shape
        (2,)
        >>> round(float(pca.total_variance), 2)
        0.51
    """

    function: KernelExpansion
    variances: Float[Array, " c"] = data()
    total_variance: Float[Array, ""] = data()
    shares: Float[Array, " n"] = data()
    whitened: bool = eqx.field(static=True, kw_only=True)

    def __call__(self, x: PyTree) -> Float[Array, " c"]:
        """The projections of one point."""
        return self.function(x)

    def values(self, X: PyTree) -> Float[Array, "m c"]:
        """The projections of a batch of m points, (m, c)."""
        return self.function.values(X)

    @property
    def explained(self) -> Float[Array, " c"]:
        """The share of the total variance along each component (the explained variance ratio)."""
        return self.variances / positive_or_one(self.total_variance)

    def reconstruction(self, projections: ArrayLike) -> KernelExpansion:
        """`mean + sum_j y_j v_j` from the projections y of a point: the function nearest to its
        `k(x, .)` in the space of the components; `pre_image` turns it into a point.

        Raises ValueError unless there is one projection for each component.
        """
        y = jnp.asarray(projections, self.variances.dtype)
        if y.shape != self.variances.shape:
            raise ValueError(
                f"projections must have shape {self.variances.shape}, those of one point, but "
                f"have shape {y.shape}: use jax.vmap for a batch of points"
            )
        # With s_j^2 the variances, the coefficients of whitened functions are a_j / s_j, and y_j is
        # a projection over s_j: (a_j / s_j) (y_j s_j^2) is a_j times the projection.
        if self.whitened:
            y = y * self.variances
        f = self.function
        # mean + sum_j y_j v_j = sum_i (p_i + sum_j C_ij y_j) phi(x_i), v_j = sum_i C_ij phi(x_i).
        coefficients = matmul(f.coefficients, y) + self.shares
        return KernelExpansion(f.kernel, f.points, coefficients, jnp.zeros_like(y[0]))


@renamed(components="n_components")
def kernel_pca(
    kernel: AbstractKernel,
    X: PyTree,
    n_components: int,
    *,
    weights: ArrayLike | None = None,
    whiten: bool = False,
    block_size: int | None = None,
    truncated: bool | None = None,
    max_steps: int = 500,
    indefinite: bool = False,
    throw: bool = True,
) -> Solution[PrincipalComponents]:
    """Kernel principal component analysis: the orthogonal functions v of norm 1 with the largest
    variance `sum_i w_i (v(x_i) - mean)^2 / sum w`.

    With K centred at the weighted mean of the points they are `v_j = sum_i a_ij k(x_i, .)` with `W
    K a_j = l_j a_j` and `a_j^T K a_j = 1`, of variance `l_j / sum w` (Schoelkopf, Smola & Mueller
    1998). The sign of each a_j makes its entry of largest absolute value positive, the first such
    entry if there are several. scikit-learn's `KernelPCA` has the projections of the points
    themselves, `f(x_i)`, up to their sign, and `n` times the variances as its eigenvalues.

    Arguments:
        kernel, X: any kernel, and a batch of n points.
        n_components: the number of components, from 1 to n.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed.
        whiten: divide each projection by its standard deviation.
        block_size: rows of K computed at a time; K is then never stored.
        truncated: compute the leading components only, by block Lanczos, instead of all by LAPACK;
            this needs `3 (n_components + 4) < n`, and is the default for more than 3000 points, or
            with a `block_size`. Products then use explicit features instead of K if there are fewer
            features than points, as for a `FeatureMap`.
        max_steps: the largest number of products of K with `n_components + 4` columns, if
            truncated.
        indefinite: accept a K with negative eigenvalues, from a similarity that is not a kernel, as
            long as none of the requested components has one.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is `PrincipalComponents`, once differentiable in the kernel, X
        and the weights. Where variances coincide, or nearly so, only quantities that depend on the
        space of their components have a derivative, such as products of projections and the sum of
        the variances; a single component has none. Stats: the `rank` of the centred matrix, at most
        the number of computed components, the largest relative `residual`, and `steps`.

    Raises:
        ValueError: bad shapes or values.
        NotPSDError: K has a negative eigenvalue; with `indefinite`, a requested component has one.
        NonFiniteError, MaxStepsError, BreakdownError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> pca = kernax.kernel_pca(kernax.RBF(0.3), X, n_components=2).value
        >>> pca.function.values(X).shape  # the projections
        (5, 2)
        >>> jnp.round(pca.variances / pca.total_variance, 2)
        Array([0.61, 0.3 ], dtype=float64)
    """
    problem = check_problem(
        "kernel_pca",
        kernel,
        X,
        None,
        weights,
        block_size=block_size,
        in_features=truncated is not False,
        throw=throw,
        footprint=_FOOTPRINT,
    )
    n_components = check_count(n_components, "n_components")
    n = count(problem.X)
    if n_components > n:
        raise ValueError(
            f"n_components must be at most {n}, the number of points, but is {n_components}"
        )
    # Whether only leading components are computed.
    possible = can_be_truncated(n_components, n)
    if truncated is None:
        truncated = possible and (n > MOST_DENSE or block_size is not None)
    else:
        if truncated and not possible:
            raise ValueError(
                f"truncated=True needs 3 (components + 4) < n, but components is {n_components} "
                f"and n is {n}: leave it out"
            )
        truncated = bool(truncated)
    most_steps = as_steps(max_steps)
    solution = _kernel_pca(
        problem, n_components, bool(whiten), truncated, most_steps, bool(indefinite)
    )
    hint = "kernel_pca: another kernel, fewer components or more max_steps may help."
    return finish(solution, throw, hint, suspect=problem.suspect)


@compiled
def _kernel_pca(problem, components, whiten, truncated, max_steps, indefinite):
    gram = problem.gram()
    weights = problem.weights
    if weights.given is not None:
        # A common factor of all weights changes nothing, but squares and sums of weights near the
        # largest float would be inf.
        weights = PointWeights(in_own_unit(weights.values)[0])
    centred = CentredGram.of(gram, weights, dense=not truncated)
    size = stop_gradient(centred.largest() * jnp.max(weights.values))
    eigenproblem = WeightedGram(centred, weights, size)
    pairs, report = leading_pairs(
        eigenproblem, components, truncated=truncated, max_steps=max_steps
    )
    allowed = 0
    if indefinite and not truncated:
        # A point without weight adds a zero to the eigenvalues, which is not a component.
        present = jnp.sum(weights.values > 0)
        allowed = jnp.maximum(present - components, 0)
    finite = centred.is_finite()
    result = status_of(eigenproblem, report, pairs, finite, truncated=truncated, allowed=allowed)
    total = jnp.sum(weights.values)
    # sum_i w_i f_j(x_i)^2 = l_j for the f_j of norm 1. Whitened, the sum is that of the weights.
    scaled = pairs.of_unit_square() * jnp.sqrt(total) if whiten else pairs.coefficients
    known = (scaled, pairs.values / total, centred.total_variance())
    scaled, variances, total_variance = void_unless_known(known, result)
    value = PrincipalComponents(
        function=centred.expansion(problem, scaled),
        variances=variances,
        total_variance=total_variance,
        shares=shares(weights),
        whitened=whiten,
    )
    return Solution(value, result, report.figures() | {"steps": report.steps})
