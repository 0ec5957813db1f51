"""k-means in the space of a kernel."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from kernax._advice import IN_FEATURES
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import check_key
from kernax.core.base.compiled import compiled
from kernax.core.base.deprecation import renamed
from kernax.core.base.intervals import POSITIVE
from kernax.core.base.numerics import is_concrete, place_of_largest, stop_gradient
from kernax.core.base.parameters import as_steps, check_count, data
from kernax.core.base.powers import in_own_unit
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
from kernax.core.operators.operators import is_finite
from kernax.errors import ClusterWarning
from kernax.unsupervised.centring import loses_digits, shares
from kernax.unsupervised.means_of_clusters import (
    Cloud,
    SoftKMeans,
    accurate_change,
    best_partition,
    coinciding,
    one_hot,
    soft_memberships,
)

_FOOTPRINT = Footprint(
    "kernel_kmeans",
    1.3,
    IN_FEATURES,
)


class KernelClusters(Printed):
    """Clusters with means in the space of a kernel.

    Attributes:
        function: `mu_c(x) - |mu_c|^2 / 2` for each cluster c, as the outputs of a
            `KernelExpansion`: the largest belongs to the nearest mean.
        memberships: (n, clusters), zeros and ones, or probabilities.
        temperature: the temperature of soft memberships; 0 for hard ones.

    Examples:
        >>> X = jnp.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
        >>> clusters = kernax.kernel_kmeans(kernax.RBF(1.0), X, 2, key=jax.random.key(0)).value
        >>> clusters.memberships.sum(axis=1)
        Array([1., 1., 1., 1., 1.], dtype=float64)
        >>> bool(clusters.assign(jnp.array([4.0])) == clusters.labels[4])
        True
    """

    function: KernelExpansion
    memberships: Float[Array, "n c"] = data()
    temperature: Float[Array, ""] = data()

    @property
    def labels(self) -> Int[Array, " n"]:
        """The cluster of each point; -1 where memberships are NaN, as after a failed fit."""
        return place_of_largest(self.memberships)

    def assign(self, x: PyTree) -> Int[Array, ""]:
        """The cluster with the mean nearest to one point, new or not; -1 where the distances are
        NaN, as for an index out of range.
        """
        return place_of_largest(self.function(x))

    def membership(self, x: PyTree) -> Float[Array, " c"]:
        """The membership of one point in each cluster."""
        values = self.function(x)
        soft = self.temperature > 0
        # -|phi(x) - mu_c|^2 = 2 mu_c(x) - |mu_c|^2 - k(x, x), and a softmax over c does not depend
        # on k(x, x).
        scaled = 2 * values / jnp.where(soft, self.temperature, 1)
        # Zeros and ones, but NaN where values are.
        nearest = jax.nn.one_hot(jnp.argmax(values), len(values), dtype=values.dtype)
        nearest = jnp.where(jnp.any(jnp.isnan(values)), jnp.nan, nearest)
        return jnp.where(soft, jax.nn.softmax(scaled), nearest)


@renamed(clusters="n_clusters", starts="n_starts")
def kernel_kmeans(
    kernel: AbstractKernel,
    X: PyTree,
    n_clusters: int,
    *,
    key: PRNGKeyArray,
    weights: ArrayLike | None = None,
    temperature: ArrayLike | None = None,
    n_starts: int = 10,
    block_size: int | None = None,
    max_steps: int = 1000,
    throw: bool = True,
) -> Solution[KernelClusters]:
    """k-means in the space of a kernel: minimises `sum_i w_i |phi(x_i) - mu_c(i)|^2` over
    partitions of the points, where mu_c is the weighted mean of cluster c.

    It runs Lloyd's algorithm in that space (Dhillon, Guan & Kulis 2004) from several k-means++
    starts and keeps the best result: a local minimum, in which no point is nearer to another mean,
    up to rounding. The objective never rises, and no cluster is empty. With `Linear()` this is
    ordinary k-means.

    With a temperature memberships are soft, `R_ic = exp(-d_ic^2 / temperature) / sum_c' ...`. They
    are a fixed point, as the means depend on them, and minimise `-temperature sum_i w_i log sum_c
    exp(-d_ic^2 / temperature)`; the iteration starts from the hard ones. They are differentiable: a
    kernel can be learned through them.

    Arguments:
        kernel, X: any kernel, and a batch of n points.
        n_clusters: the number of clusters.
        key: a random key, for the starts.
        weights: (n,) >= 0. Two is the point repeated, zero the point removed, which still gets a
            label.
        temperature: > 0, in units of k, or None for a partition.
        n_starts: the number of runs, all in one `vmap`, of which the best is kept.
        block_size: rows of K computed at a time; K is then never stored.
        max_steps: the largest number of steps of each run, and of the soft iteration.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is `KernelClusters`. Its means are differentiable in the kernel,
        X and weights: hard memberships are held fixed, soft ones are differentiated. Stats:
        `objective`, that of the partition; `distinct`, how many clusters differ; `steps`; and the
        `residual`, by how much one more step would change soft memberships. If there are fewer
        distinct points than clusters, some clusters coincide, and a warning is issued.

    Raises:
        ValueError: bad shapes or values, more clusters than points of positive weight.
        MaxStepsError, NonFiniteError, BreakdownError, MemoryBudgetError: see `kernax.errors`.

    Examples:
        >>> X = jnp.array([[0.0], [0.1], [0.2], [5.0], [5.1]])
        >>> clusters = kernax.kernel_kmeans(kernax.RBF(1.0), X, 2, key=jax.random.key(0)).value
        >>> labels = clusters.labels
        >>> bool(labels[0] == labels[2]), bool(labels[0] == labels[4])
        (True, False)
    """
    check_key(key)
    problem = check_problem(
        "kernel_kmeans",
        kernel,
        X,
        None,
        weights,
        block_size=block_size,
        in_features=True,
        throw=throw,
        footprint=_FOOTPRINT,
    )
    n_clusters = check_clusters(n_clusters, problem)
    most_steps = as_steps(max_steps)
    n_starts = check_count(n_starts, "n_starts")
    if temperature is not None:
        temperature = problem.scalar(temperature, "temperature", POSITIVE, throw=throw)
    solution = _kernel_kmeans(problem, key, temperature, n_clusters, n_starts, most_steps)
    warn_of_copies("kernel_kmeans", solution.stats["distinct"], n_clusters)
    others = "" if temperature is None else ", another temperature"
    hint = f"kernel_kmeans: more max_steps{others}, or centred points may help."
    return finish(solution, throw, hint)


def check_clusters(clusters: Any, problem: LearnerProblem) -> int:
    """The number of clusters. Raises ValueError if it exceeds the number of points of positive
    weight.
    """
    clusters = check_count(clusters, "n_clusters")
    problem.check_at_most_points(clusters, "n_clusters", ": ask for fewer")
    return clusters


def warn_of_copies(function_name: str, distinct: Array, clusters: int) -> None:
    """Warns with a ClusterWarning where clusters coincide."""
    if is_concrete(distinct) and np.min(np.asarray(distinct)) < clusters:
        number = np.min(np.asarray(distinct))
        warn(
            f"{function_name}: only {number} of {clusters} clusters differ, up to "
            "rounding: are there as many distinct points?",
            ClusterWarning,
        )


@compiled
def _kernel_kmeans(problem, key, temperature, clusters, starts, max_steps):
    # Products with very small weights would underflow, and sums of very large ones overflow: all
    # objectives would be equal, and the first run the best.
    weights, unit = in_own_unit(problem.weights.values)
    cloud = Cloud(problem.gram(), weights)
    found = memberships_of(cloud, key, temperature, clusters, starts, max_steps)
    lost = loses_digits(
        problem.X, stop_gradient(cloud.gram), stop_gradient(shares(problem.weights))
    )
    statuses = (
        (~is_finite(cloud.gram), RESULTS.nonfinite),
        ((found.result == RESULTS.successful) & lost, RESULTS.inaccurate),
    )
    result = first_that_holds(statuses, found.result)
    R = void_unless_known(found.memberships, result)
    # mu_c(x) - |mu_c|^2 / 2 with mu_c = sum_i P_ic phi(x_i).
    P = cloud.shares(R)
    _, squares = cloud.values(R)
    # A cluster without weight, which only a batch of weights may have, is nearest to no point.
    bias = jnp.where(cloud.present(R), -squares / 2, -jnp.inf)
    value = KernelClusters(
        function=KernelExpansion(problem.kernel, problem.X, P, bias),
        memberships=R,
        temperature=jnp.zeros((), problem.dtype) if temperature is None else temperature,
    )
    objective = found.stats["objective"] * unit
    stats = found.stats | {"objective": objective} | problem.figures(cloud.gram)
    return Solution(value, result, stats)


class Memberships(eqx.Module):
    """The memberships of points in clusters, and the status of their computation."""

    memberships: Float[Array, "n c"]
    result: Any
    stats: dict[str, Array]


def memberships_of(
    cloud: Cloud,
    key: PRNGKeyArray,
    temperature: Array | None,
    clusters: int,
    starts: int,
    max_steps: Array,
) -> Memberships:
    """Hard memberships, or soft ones computed from them."""
    end = best_partition(cloud, clusters, starts, max_steps, key)
    R = one_hot(end.labels, clusters, cloud.weights.dtype)
    stats = {
        "objective": end.objective,
        "steps": end.steps,
        "distinct": clusters - coinciding(cloud, R),
    }
    if temperature is None:
        return Memberships(R, _status(R, end.unfinished), stats)
    problem = SoftKMeans(cloud, temperature, R)
    soft = soft_memberships(problem, max_steps)
    R = soft.memberships
    residual = stop_gradient(jnp.max(jnp.abs(problem.renewed(R) - R)))
    unfinished = ~(residual <= accurate_change(R.dtype))
    stats = stats | {"residual": residual, "steps": soft.steps}
    return Memberships(R, _status(R, unfinished), stats)


def _status(R: Float[Array, "n c"], unfinished: Array) -> Any:
    statuses = (
        (~jnp.all(jnp.isfinite(R)), RESULTS.nonfinite),
        (unfinished, RESULTS.max_steps_reached),
    )
    return first_that_holds(statuses, RESULTS.successful)
