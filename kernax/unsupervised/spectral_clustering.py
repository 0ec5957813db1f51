"""Spectral clustering: partitions from the leading eigenvectors of a Gram matrix."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PRNGKeyArray, PyTree

from kernax.core.batching import one_by_one
from kernax.core.boundary import check_key
from kernax.core.eigenproblem import MOST_DENSE, WeightedGram, ending_of, leading_pairs
from kernax.core.expansion import KernelExpansion
from kernax.core.intervals import POSITIVE
from kernax.core.kernel import AbstractKernel
from kernax.core.numerics import eps_of, is_concrete, matmul, positive_or_one, safe_sqrt, stopped
from kernax.core.operators import AbstractGram, LowRankGram, is_finite
from kernax.core.parameters import check_count, data
from kernax.core.sharding import compiled, while_loop
from kernax.core.solution import (
    RESULTS,
    Solution,
    finish,
    first_that_holds,
    void_unless_known,
    warn,
)
from kernax.core.task import Task, check_task
from kernax.core.weights import PointWeights
from kernax.errors import ClusterWarning
from kernax.unsupervised.kernel_kmeans import Memberships, check_clusters, memberships_of
from kernax.unsupervised.means_of_clusters import Cloud, one_hot

ROUNDINGS = ("kmeans", "discrete")


class SpectralClusters(eqx.Module):
    """Clusters around means in the space of leading eigenvectors.

    Attributes:
        function: the eigenfunctions, as the outputs of a `KernelExpansion`; those of the normalised
            cut are to be divided by the degree.
        degree: `d(x) = sum_i w_i k(x, x_i)`, or None for the trace.
        memberships: of the points in each cluster: zeros and ones, or probabilities.
        embedding: the points in the space of the eigenvectors, a row each.
        means: of the clusters there.
        values: the eigenvalues, descending.
    """

    function: KernelExpansion
    degree: KernelExpansion | None
    memberships: Float[Array, "n c"] = data()
    embedding: Float[Array, "n c"] = data()
    means: Float[Array, "c c"] = data()
    values: Float[Array, " c"] = data()

    @property
    def labels(self) -> Int[Array, " n"]:
        """The cluster of each point."""
        return jnp.argmax(self.memberships, 1)

    def embed(self, x: PyTree) -> Float[Array, " c"]:
        """One point, new or not, in the space of the eigenvectors (the Nystrom extension)."""
        values = self.function(x)
        return values if self.degree is None else values / positive_or_one(self.degree(x))

    def assign(self, x: PyTree) -> Int[Array, ""]:
        """The cluster whose mean is nearest to one point there."""
        apart = jnp.sum((self.embed(x)[None, :] - self.means) ** 2, 1)
        return jnp.argmin(apart)


def spectral_clustering(
    kernel: AbstractKernel,
    X: PyTree,
    clusters: int,
    *,
    key: PRNGKeyArray,
    weights: ArrayLike | None = None,
    normalised: bool = True,
    rounding: str = "kmeans",
    temperature: ArrayLike | None = None,
    starts: int = 10,
    max_steps: int = 300,
    throw: bool = True,
) -> Solution[SpectralClusters]:
    """Partitions the points by the leading eigenvectors e of `K W e = l D e`, `D = diag(K w)`: a
    relaxation of the normalised cut of the graph whose edges are k(x_i, x_j) (Shi & Malik 2000).

    With `normalised=False` D is the identity: the relaxation `max tr Z^T K Z` over all Z with
    orthonormal columns, of which partitions are those with columns `1_c / sqrt(n_c)`, the
    objective of `kernel_kmeans` up to a constant (Zha et al. 2001). No partition has a larger
    objective than the sum of the leading eigenvalues.

    The rows of the eigenvectors are rounded to a partition by k-means, or with
    `rounding="discrete"` by the rotation that brings them closest to one (Yu & Shi 2003).
    scikit-learn's `SpectralClustering(affinity="precomputed")` has the same embedding.

    Arguments:
        kernel: with values >= 0, such as `RBF` or `Precomputed` of a graph; X: a stack of n points.
        clusters: how many, and how many eigenvectors.
        key: of the starts of the rounding.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed.
        temperature: > 0, for soft memberships, as in `kernel_kmeans`, of rows of the eigenvectors;
            in units of their squared distances. Differentiable, as long as the eigenvalues
            that are left out are less than those that are not.
        starts, max_steps: of the rounding.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is `SpectralClusters`. Stats: `components`, into how many parts
        the graph falls; `relaxation`, the sum of the eigenvalues, and `objective`, what the
        partition attains of it; `rank`, `residual`, `steps`. A warning is given where the graph
        falls into parts: eigenvectors then tell the parts apart, and not what is in them.

    Raises:
        ValueError: bad shapes or values. MaxStepsError, NonFiniteError, BreakdownError,
            MemoryBudgetError.
    """
    check_key(key)
    task = check_task("spectral_clustering", kernel, X, None, weights)
    clusters = check_clusters(clusters, task)
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding must be one of {', '.join(ROUNDINGS)}, but is {rounding!r}")
    if temperature is not None:
        temperature = task.scalar(temperature, "temperature", POSITIVE)
        if rounding != "kmeans":
            raise ValueError("temperature is for rounding='kmeans'")
    how = _Rounding(
        key=key,
        temperature=temperature,
        clusters=clusters,
        starts=check_count(starts, "starts"),
        max_steps=check_count(max_steps, "max_steps"),
        discrete=rounding == "discrete",
    )
    solution = _spectral_clustering(task, how, bool(normalised))
    _warn_of_parts(solution.stats["components"], clusters)
    return finish(solution, throw, "spectral_clustering: another kernel or more max_steps.")


def _warn_of_parts(components: Array, clusters: int) -> None:
    """A ClusterWarning where the graph is not connected."""
    if is_concrete(components) and np.max(np.asarray(components)) > 1:
        warn(
            f"spectral_clustering: the graph falls into {np.max(np.asarray(components))} parts "
            f"without an edge between them, and {clusters} clusters were asked for: a kernel with "
            "a larger lengthscale connects them",
            ClusterWarning,
        )


class _Graph(eqx.Module):
    """Points with weights, and edges of weight k(x_i, x_j).

    Attributes:
        degrees: `d_i = sum_j w_j k(x_i, x_j)`.
        scale: D, the degrees, or ones for the trace.
        inverse: of D, zero for a point without an edge.
    """

    gram: AbstractGram
    weights: Float[Array, " n"]
    degrees: Float[Array, " n"]
    scale: Float[Array, " n"]
    inverse: Float[Array, " n"]

    @staticmethod
    def of(gram: AbstractGram, weights: Float[Array, " n"], normalised: bool) -> "_Graph":
        degrees = gram.mv(weights)
        scale = degrees if normalised else jnp.ones_like(degrees)
        joined = scale > 0
        inverse = jnp.where(joined, 1 / positive_or_one(scale), 0)
        return _Graph(gram, weights, degrees, scale, inverse)

    def problem(self) -> WeightedGram:
        """`W D^-1 K a = l a`, `a = W e`."""
        weights = self.weights * self.inverse
        largest = jnp.max(jnp.abs(self.gram.diagonal() * weights))
        return WeightedGram(self.gram, PointWeights(weights), stopped(largest))

    def rows(self, B: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """`D^-1 K B`, the points in the space of the eigenvectors."""
        return self.inverse[:, None] * self.gram.mv(B)

    def objective(self, R: Float[Array, "n c"]) -> Float[Array, ""]:
        """`sum_c 1_c^T W K W 1_c / (1_c^T W D 1_c)` of the partition by the largest memberships."""
        labels = jnp.argmax(R, 1)
        inside = self.weights[:, None] * one_hot(labels, R.shape[1], R.dtype)
        links = jnp.sum(inside * self.gram.mv(inside), 0)
        return jnp.sum(links / positive_or_one(matmul(self.scale, inside)))

    def figures(self, value: SpectralClusters) -> dict[str, Array]:
        """For the stats."""
        return {
            "components": connected_parts(self.gram, self.degrees, self.weights > 0),
            "relaxation": jnp.sum(value.values),
            "objective": self.objective(value.memberships),
        }


class _Rounding(eqx.Module):
    """How rows of eigenvectors become clusters."""

    key: PRNGKeyArray
    temperature: Array | None
    clusters: int = eqx.field(static=True)
    starts: int = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    discrete: bool = eqx.field(static=True)

    def of(self, embedding: Float[Array, "n c"], cloud: Cloud) -> Memberships:
        """The memberships of the rows."""
        if self.discrete:
            return _closest_partition(embedding, self.key, self.starts, self.max_steps)
        return memberships_of(
            cloud,
            self.key,
            self.temperature,
            self.clusters,
            self.starts,
            self.max_steps,
        )


@compiled
def _spectral_clustering(task, rounding, normalised):
    """The clusters, with how their computation ended."""
    clusters = rounding.clusters
    w = task.weights.values
    graph = _Graph.of(task.gram(), w, normalised)
    problem = graph.problem()
    truncated = task.n > MOST_DENSE and 5 * clusters < task.n
    pairs, report = leading_pairs(problem, clusters, truncated=truncated)
    finite = is_finite(graph.gram)
    ending = _of_eigenvectors(ending_of(problem, report, pairs, finite, truncated=truncated))
    B, values = void_unless_known((pairs.of_unit_square(), pairs.values), ending)
    embedding = graph.rows(B)
    cloud = Cloud(LowRankGram(embedding, jnp.zeros_like(w)), w)
    found = rounding.of(embedding, cloud)
    result = first_that_holds(((ending != RESULTS.successful, ending),), found.result)
    R = void_unless_known(found.memberships, result)
    value = SpectralClusters(
        function=KernelExpansion(task.kernel, task.X, B, jnp.zeros_like(values)),
        degree=_degree(task, w) if normalised else None,
        memberships=R,
        embedding=embedding,
        means=matmul(cloud.shares(R).T, embedding),
        values=values,
    )
    figures = report.figures() | stopped(graph).figures(value)
    return Solution(value, result, figures | {"steps": found.stats["steps"]})


def _degree(task: Task, w: Float[Array, " n"]) -> KernelExpansion:
    """`d(x) = sum_i w_i k(x, x_i)`."""
    return KernelExpansion(task.kernel, task.X, w, jnp.zeros((), w.dtype))


def _of_eigenvectors(result: Any) -> Any:
    """The result, in which a graph may have negative eigenvalues: its leading ones are sound."""
    return RESULTS.where(result == RESULTS.not_psd, RESULTS.successful, result)


def connected_parts(
    gram: AbstractGram, degrees: Float[Array, " n"], present: Bool[Array, " n"]
) -> Int[Array, ""]:
    """How many parts of the points that are present have no edge between them, up to rounding.

    Each point takes the least number among its neighbours until none changes.
    """
    n = len(degrees)
    roots = safe_sqrt(jnp.maximum(degrees, 0))
    least = eps_of(roots) * roots[:, None] * roots[None, :]
    joined = gram.as_matrix() > least
    joined = joined & present[:, None] & present[None, :]
    joined = joined | joined.T | jnp.eye(n, dtype=bool)

    def spread(now: _Numbers) -> _Numbers:
        of_neighbours = jnp.where(joined, now.least[None, :], n)
        least = jnp.min(of_neighbours, 1)
        return _Numbers(least, jnp.any(least != now.least))

    numbers = jnp.arange(n, dtype=jnp.int32)
    start = _Numbers(numbers, jnp.array(True))
    end = while_loop(lambda now: now.changed, spread, start)
    return jnp.sum((end.least == numbers) & present)


class _Numbers(eqx.Module):
    """The least number that has reached each point, and whether one fell in the last step."""

    least: Int[Array, " n"]
    changed: Bool[Array, ""]


class _Rotation(eqx.Module):
    """Yu & Shi's iteration between two steps.

    Attributes:
        rotation: R, orthogonal.
        labels: the largest entries of the rows of `E R`.
        closeness: the sum of the singular values of `E^T Z`, Z the partition.
        unfinished: whether it rose in the last step.
        steps: taken so far.
    """

    rotation: Float[Array, "c c"]
    labels: Int[Array, " n"]
    closeness: Float[Array, ""]
    unfinished: Bool[Array, ""]
    steps: Int[Array, ""]


def _closest_partition(
    embedding: Float[Array, "n c"], key: PRNGKeyArray, starts: int, max_steps: int
) -> Memberships:
    """The partition that is closest to a rotation of the rows, brought to length one; the best of
    several starts.
    """
    E = stopped(embedding)
    lengths = jnp.linalg.norm(E, axis=1)
    E = E / positive_or_one(lengths)[:, None]

    def run(key: PRNGKeyArray) -> _Rotation:
        return _rotated(E, key, max_steps)

    ends = jax.vmap(run)(jax.random.split(key, starts))
    best = jnp.argmax(ends.closeness)
    end = jax.tree.map(lambda leaf: leaf[best], ends)
    endings = (
        (~jnp.isfinite(end.closeness), RESULTS.nonfinite),
        (end.unfinished, RESULTS.max_steps_reached),
    )
    return Memberships(
        memberships=one_hot(end.labels, E.shape[1], E.dtype),
        result=first_that_holds(endings, RESULTS.successful),
        stats={"steps": end.steps},
    )


def _rotated(E: Float[Array, "n c"], key: PRNGKeyArray, max_steps: int) -> _Rotation:
    """The iteration, from rows that are far from parallel."""

    def go_on(now: _Rotation) -> Array:
        return now.unfinished & (now.steps < max_steps)

    def step(now: _Rotation) -> _Rotation:
        values = matmul(E, now.rotation)
        labels = jnp.argmax(values, 1).astype(jnp.int32)
        Z = one_hot(labels, E.shape[1], E.dtype)
        U, sizes, V = one_by_one(jnp.linalg.svd, matmul(Z.T, E))
        closeness = jnp.sum(sizes)
        rounding = 8 * eps_of(E) * len(E)
        return _Rotation(
            rotation=matmul(V.T, U.T),
            labels=labels,
            closeness=closeness,
            unfinished=closeness > now.closeness + rounding,
            steps=now.steps + 1,
        )

    start = _Rotation(
        rotation=_unlike_rows(E, key),
        labels=jnp.zeros(len(E), jnp.int32),
        closeness=jnp.asarray(-jnp.inf, E.dtype),
        unfinished=jnp.array(True),
        steps=jnp.zeros((), jnp.int32),
    )
    return while_loop(go_on, step, start)


class _Rows(eqx.Module):
    """Rows that were chosen, as columns, and how parallel each row is to them."""

    chosen: Float[Array, "c c"]
    parallel: Float[Array, " n"]


def _unlike_rows(E: Float[Array, "n c"], key: PRNGKeyArray) -> Float[Array, "c c"]:
    """Rows of E as columns: a random one, then each time the one least parallel to those before."""
    n, clusters = E.shape

    def add(c: Array, now: _Rows) -> _Rows:
        last = now.chosen[:, c - 1]
        parallel = now.parallel + jnp.abs(matmul(E, last))
        next_row = E[jnp.argmin(parallel)]
        return _Rows(now.chosen.at[:, c].set(next_row), parallel)

    first = E[jax.random.randint(key, (), 0, n)]
    nothing = jnp.zeros((clusters, clusters), E.dtype)
    start = _Rows(nothing.at[:, 0].set(first), jnp.zeros(n, E.dtype))
    return jax.lax.fori_loop(1, clusters, add, start).chosen
