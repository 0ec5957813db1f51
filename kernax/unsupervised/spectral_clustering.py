"""Spectral clustering: partitions from the leading eigenvectors of a Gram matrix."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import check_key
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import (
    is_concrete,
    matmul,
    place_of_largest,
    positive_or_one,
    stop_gradient,
)
from kernax.core.base.parameters import as_steps, check_count, data
from kernax.core.base.powers import exponent_of, times_power_of_two
from kernax.core.base.printing import Printed
from kernax.core.base.solution import (
    RESULTS,
    Solution,
    finish,
    first_that_holds,
    void_unless_known,
    warn,
)
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.learner_problem import LearnerProblem, check_problem
from kernax.core.operators.memory import Footprint
from kernax.core.operators.operators import LowRankGram
from kernax.errors import ClusterWarning
from kernax.unsupervised.closest_partition import closest_partition, pivoted_partition
from kernax.unsupervised.graphs import Graph
from kernax.unsupervised.kernel_kmeans import (
    Memberships,
    check_clusters,
    memberships_of,
    warn_of_copies,
)
from kernax.unsupervised.means_of_clusters import Cloud

_FOOTPRINT = Footprint("spectral_clustering", 3.3)

ROUNDINGS = ("kmeans", "discrete", "qr")


class SpectralClusters(Printed):
    """Clusters with means in the space of the leading eigenvectors.

    Attributes:
        function: the eigenfunctions, as the outputs of a `KernelExpansion`; for the normalised cut
            they must be divided by the degree.
        degree: `d(x) = sum_i w_i k(x, x_i)`, or None for the trace.
        memberships: (n, clusters), zeros and ones, or probabilities.
        embedding: the points in the space of the eigenvectors, a row each.
        means: the means of the clusters in that space; inf for a cluster without points.
        values: the eigenvalues, descending.

    Examples:
        >>> X = jnp.array([[0.0], [0.5], [1.0], [4.0], [4.5]])
        >>> solution = kernax.spectral_clustering(kernax.RBF(1.0), X, 2, key=jax.random.key(0))
        >>> solution.value.embedding.shape, solution.value.memberships.shape
        ((5, 2), (5, 2))
    """

    function: KernelExpansion
    degree: KernelExpansion | None
    memberships: Float[Array, "n c"] = data()
    embedding: Float[Array, "n e"] = data()
    means: Float[Array, "c e"] = data()
    values: Float[Array, " e"] = data()

    @property
    def labels(self) -> Int[Array, " n"]:
        """The cluster of each point; -1 where memberships are NaN, as after a failed fit."""
        return place_of_largest(self.memberships)

    def embed(self, x: PyTree) -> Float[Array, " e"]:
        """One point, new or not, in the space of the eigenvectors (the Nystrom extension)."""
        values = self.function(x)
        # e(x) = f(x) / d(x), as e = D^-1 f at the points; D is the identity for the trace.
        if self.degree is None:
            return values
        # By weights over the largest: products of the smallest floats would be zero.
        largest = positive_or_one(jnp.max(self.degree.coefficients))
        shares = self.degree.coefficients / largest
        degree = eqx.tree_at(lambda degree: degree.coefficients, self.degree, shares)
        return values / positive_or_one(degree(x)) / largest

    def assign(self, x: PyTree) -> Int[Array, ""]:
        """The cluster with the mean nearest to one point in that space; -1 where the distances are
        NaN.
        """
        # Relative to the means, which are as large as weights are small: squares stay finite.
        size = jnp.max(jnp.where(jnp.isfinite(self.means), jnp.abs(self.means), 0))
        apart = (self.embed(x)[None, :] - self.means) / positive_or_one(size)
        return place_of_largest(-jnp.sum(apart**2, 1))


@renamed(clusters="n_clusters", starts="n_starts", eigenvectors="n_eigenvectors")
def spectral_clustering(
    kernel: AbstractKernel,
    X: PyTree,
    n_clusters: int,
    *,
    key: PRNGKeyArray,
    weights: ArrayLike | None = None,
    normalised: bool = True,
    n_eigenvectors: int | None = None,
    rounding: str = "kmeans",
    temperature: ArrayLike | None = None,
    n_starts: int = 10,
    max_steps: int = 1000,
    throw: bool = True,
) -> Solution[SpectralClusters]:
    """Spectral clustering: partitions the points by the leading eigenvectors e of `K W e = l D e`,
    `D = diag(K w)`, a relaxation of the normalised cut of the graph with edges k(x_i, x_j) (Shi &
    Malik 2000).

    With `normalised=False` D is the identity. This relaxes `kernel_kmeans` to `max tr Z^T K Z` over
    all Z with orthonormal columns (Zha et al. 2001): for a partition the columns are `1_c /
    sqrt(n_c)`, and the objective is that of `kernel_kmeans` up to a constant. No partition has a
    larger objective than the sum of the leading eigenvalues.

    The rows of the eigenvectors are rounded to a partition by k-means, or with
    `rounding="discrete"` by the rotation that brings them closest to a partition (Yu & Shi 2003),
    or with "qr" by the rotation from a pivoted QR decomposition, without random starts (Damle,
    Minden & Ying 2019). scikit-learn's `SpectralClustering` sets the diagonal of K to zero:
    `Precomputed` of such a K has the same embedding.

    Arguments:
        kernel, X: a kernel such as `RBF`, or `Precomputed` for a graph, with values >= 0 unless
            `normalised=False`; and a batch of n points.
        n_clusters: the number of clusters.
        key: a random key, for the starts of the rounding.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed.
        n_eigenvectors: the number of eigenvectors, by default that of the clusters; other numbers
            require rounding="kmeans".
        temperature: > 0, for soft memberships of the rows of the eigenvectors, as in
            `kernel_kmeans`, in units of their squared distances. They are differentiable as long as
            the omitted eigenvalues are smaller than the others.
        n_starts, max_steps: as in `kernel_kmeans`, for the rounding.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is `SpectralClusters`. Stats: `components`, the number of
        connected components; `relaxation`, the sum of as many eigenvalues as clusters (if there are
        fewer, the last one counts for the others), an upper bound of `objective`, that of the
        partition; `least`, the smallest edge; `distinct`, how many clusters differ; `rank`,
        `residual`, `steps`. A warning is issued if the graph is disconnected, since the
        eigenvectors then only separate its components, and if clusters coincide.

    Raises:
        ValueError: bad shapes or values.
        MaxStepsError, NonFiniteError, BreakdownError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.array([[0.0], [0.5], [1.0], [4.0], [4.5]])
        >>> solution = kernax.spectral_clustering(kernax.RBF(1.0), X, 2, key=jax.random.key(0))
        >>> labels = solution.value.labels
        >>> bool(labels[0] == labels[2]), bool(labels[0] == labels[4])
        (True, False)
    """
    check_key(key)
    problem = check_problem(
        "spectral_clustering", kernel, X, None, weights, throw=throw, footprint=_FOOTPRINT
    )
    n_clusters = check_clusters(n_clusters, problem)
    count = n_clusters if n_eigenvectors is None else check_count(n_eigenvectors, "n_eigenvectors")
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, but is {rounding!r}")
    if temperature is not None and rounding != "kmeans":
        raise ValueError(
            f"temperature is for rounding='kmeans', but rounding is {rounding!r}: leave one of "
            "them out"
        )
    problem.check_at_most_points(count, "n_eigenvectors", ": ask for fewer")
    if count != n_clusters and rounding != "kmeans":
        raise ValueError(
            f"n_eigenvectors must be as many as n_clusters, {n_clusters}, for "
            f"rounding={rounding!r}, but is {count}: rounding='kmeans' takes any number"
        )
    if temperature is not None:
        temperature = problem.scalar(temperature, "temperature", POSITIVE, throw=throw)
    options = _Rounding(
        key=key,
        temperature=temperature,
        clusters=n_clusters,
        eigenvectors=count,
        starts=check_count(n_starts, "n_starts"),
        max_steps=as_steps(max_steps),
        rounding=rounding,
    )
    solution = _spectral_clustering(problem, options, bool(normalised))
    if normalised:
        least = solution.stats["least"]
        if is_concrete(least) and np.min(np.asarray(least)) < 0:
            raise ValueError(
                "kernel must have values >= 0, the edges of a graph, but those of "
                f"{problem.kernel_name} go down to {np.min(np.asarray(least)):.3g}: take another, "
                "such as RBF, or normalised=False"
            )
    warn_of_copies("spectral_clustering", solution.stats["distinct"], n_clusters)
    components = solution.stats["components"]
    if is_concrete(components) and np.max(np.asarray(components)) > 1:
        warn(
            "spectral_clustering: the graph is not fully connected: it falls into "
            f"{np.max(np.asarray(components))} parts without an edge between them, and "
            f"{n_clusters} clusters were asked for: a kernel with a larger lengthscale connects "
            "them",
            ClusterWarning,
        )
    hint = "spectral_clustering: another kernel or more max_steps may help."
    return finish(solution, throw, hint)


class _Rounding(eqx.Module):
    """The options for turning rows of eigenvectors into clusters."""

    key: PRNGKeyArray
    temperature: Array | None
    clusters: int = eqx.field(static=True)
    starts: int = eqx.field(static=True)
    max_steps: Array
    eigenvectors: int = eqx.field(static=True)
    rounding: str = eqx.field(static=True)

    def of(self, embedding: Float[Array, "n e"], cloud: Cloud, unit: Int[Array, ""]) -> Memberships:
        """The memberships of rows that are multiplied by `2^unit`."""
        if self.rounding == "qr":
            return pivoted_partition(embedding, cloud.weights)
        if self.rounding == "discrete":
            return closest_partition(
                embedding, cloud.weights, self.key, self.starts, self.max_steps
            )
        return memberships_of(
            cloud,
            self.key,
            None if self.temperature is None else times_power_of_two(self.temperature, 2 * unit),
            self.clusters,
            self.starts,
            self.max_steps,
        )


@compiled
def _spectral_clustering(problem, rounding, normalised):
    # Products of very small weights would underflow, and sums of very large ones overflow: divide
    # them by a power of two near the largest that has a root.
    w = problem.weights.values
    unit = 2 * (exponent_of(jnp.max(w)) // 2)
    weights = times_power_of_two(w, -unit)
    graph = Graph.of(problem.gram(), weights, normalised)
    known = graph.eigenvectors(rounding.eigenvectors)
    rows = graph.rows(known.coefficients)
    # sum_i w_i D_i e_i^2 = 1, where D is in the unit of the weights if normalised, otherwise one.
    # If w is divided by 2^unit, e is multiplied by 2^unit, or by 2^(unit / 2).
    of_rows = unit if normalised else unit // 2
    cloud = Cloud(LowRankGram(rows, jnp.zeros_like(weights)), weights)
    found = rounding.of(rows, cloud, of_rows)
    fixed = stop_gradient(graph)
    # No unknown eigenvalue is larger than the last known one.
    missing = max(rounding.clusters - len(known.values), 0)
    relaxation = jnp.sum(known.values[: rounding.clusters]) + missing * known.values[-1]
    # Back to the units of the weights, on which the eigenvalues of the trace depend.
    embedding = times_power_of_two(rows, -of_rows)
    coefficients = known.coefficients
    sums = known.values, relaxation, fixed.objective(found.memberships)
    if not normalised:
        coefficients = times_power_of_two(coefficients, -of_rows)
        sums = times_power_of_two(sums, unit)
    values, relaxation, objective = sums
    figures = known.report.figures() | {
        "components": fixed.components(),
        "relaxation": relaxation,
        "objective": objective,
        "least": fixed.least_edge(),
        "distinct": found.stats["distinct"],
        "steps": found.stats["steps"],
    }
    # Negative edges end in a breakdown.
    statuses = (
        (known.result != RESULTS.successful, known.result),
        (normalised & (figures["least"] < 0), RESULTS.breakdown),
    )
    result = first_that_holds(statuses, found.result)
    R = void_unless_known(found.memberships, result)
    # The mean sum_i w_i R_ic e_i / sum_i w_i R_ic of each cluster.
    means = matmul(cloud.shares(R).T, embedding)
    value = SpectralClusters(
        function=_without_bias(problem, coefficients),
        degree=_without_bias(problem, w) if normalised else None,
        memberships=R,
        embedding=embedding,
        means=jnp.where(cloud.present(R)[:, None], means, jnp.inf),
        values=values,
    )
    return Solution(value, result, figures)


def _without_bias(problem: LearnerProblem, A: Float[Array, "n *c"]) -> KernelExpansion:
    """`sum_i A_i k(x, x_i)`."""
    return KernelExpansion(problem.kernel, problem.X, A, jnp.zeros_like(A[0]))
