"""The fixed points of k-means in the space of a kernel, by products with its Gram matrix.

A partition is a matrix R (n, clusters) of memberships, with rows of sum one: `mu_c = sum_i w_i R_ic
phi(x_i) / sum_i w_i R_ic`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from kernax.core.base.derivatives import implicit
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, stop_gradient
from kernax.core.linalg.solves import solve_by_products
from kernax.core.operators.operators import AbstractGram


class Cloud(eqx.Module):
    """A set of points, given by their Gram matrix K, with weights w, the largest about one."""

    gram: AbstractGram
    weights: Float[Array, " n"]

    def shares(self, R: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """The coefficients of the means; zero for a cluster without weight."""
        inside = self.weights[:, None] * R
        return inside / positive_or_one(jnp.sum(inside, 0))[None, :]

    def values(self, R: Float[Array, "n c"]) -> tuple[Float[Array, "n c"], Float[Array, " c"]]:
        """`mu_c(x_i)` and `|mu_c|^2`."""
        # mu_c = sum_i P_ic phi(x_i): mu_c(x_i) = (K P)_ic and |mu_c|^2 = sum_i P_ic mu_c(x_i).
        P = self.shares(R)
        at_points = self.gram.mv(P)
        return at_points, jnp.sum(P * at_points, 0)

    def distances(self, R: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """`|phi(x_i) - mu_c|^2`; inf for a cluster without weight."""
        # |phi(x_i) - mu_c|^2 = k(x_i, x_i) - 2 mu_c(x_i) + |mu_c|^2.
        at_points, squares = self.values(R)
        apart = self.gram.diagonal()[:, None] - 2 * at_points + squares[None, :]
        return jnp.where(self.present(R)[None, :], jnp.maximum(apart, 0), jnp.inf)

    def present(self, R: Float[Array, "n c"]) -> Bool[Array, " c"]:
        """Which clusters have positive weight."""
        return jnp.sum(self.weights[:, None] * R, 0) > 0

    def distances_to(self, i: Int[Array, ""]) -> Float[Array, " n"]:
        """`|phi(x_j) - phi(x_i)|^2`, zero where it is zero up to rounding."""
        diagonal = self.gram.diagonal()
        row = self.gram.rows(i[None])[0]
        # |phi(x_j) - phi(x_i)|^2 = k(x_j, x_j) + k(x_i, x_i) - 2 k(x_i, x_j).
        apart = diagonal + diagonal[i] - 2 * row
        return jnp.where(apart > self.noise(), apart, 0)

    def beyond(self) -> Float[Array, ""]:
        """A number larger than all squared distances."""
        # |phi(x) - phi(z)|^2 <= (|phi(x)| + |phi(z)|)^2 <= 4 max_i k(x_i, x_i).
        return 1 + 4 * jnp.max(jnp.abs(self.gram.diagonal()))

    def noise(self) -> Float[Array, ""]:
        """The rounding error of a squared distance."""
        counted = jnp.where(self.weights > 0, jnp.abs(self.gram.diagonal()), 0)
        largest = jnp.max(counted)
        return 64 * eps_of(self.weights) * largest


class HardState(eqx.Module):
    """The state of k-means after some steps.

    Attributes:
        labels: the cluster of each point.
        objective: the sum of weights times squared distances to the mean of its own cluster.
        unfinished: whether labels changed in the last step.
        steps: the number of steps so far.
    """

    labels: Int[Array, " n"]
    objective: Float[Array, ""]
    unfinished: Bool[Array, ""]
    steps: Int[Array, ""]


def best_partition(
    cloud: Cloud, clusters: int, starts: int, max_steps: Array, key: PRNGKeyArray
) -> HardState:
    """The best of several runs of Lloyd's algorithm with different starts; its clusters are
    numbered in the order of their first points.
    """
    cloud = stop_gradient(cloud)

    def run(key: PRNGKeyArray) -> HardState:
        # k-means++ (Arthur & Vassilvitskii 2007): each next point is drawn with a probability
        # proportional to its weight times its squared distance to the nearest one before.
        keys = jax.random.split(key, clusters)

        def add(c: Array, now: _Spreading) -> _Spreading:
            return now.with_another(c, cloud, keys[c])

        start = _Spreading(
            chosen=jnp.zeros(clusters, jnp.int32),
            nearest=jnp.full_like(cloud.weights, cloud.beyond()),
        )
        chosen = lax.fori_loop(0, clusters, add, start).chosen
        # The labels of all points by the nearest of the chosen points.
        # |phi(x_i) - phi(z_c)|^2 - k(x_i, x_i); the last term is the same for every c.
        diagonal = cloud.gram.diagonal()
        rows = cloud.gram.rows(chosen).T
        labels = jnp.argmin(diagonal[chosen][None, :] - 2 * rows, 1).astype(jnp.int32)
        return lloyd(cloud, labels, clusters, max_steps)

    ends = jax.vmap(run)(jax.random.split(key, starts))
    objectives = jnp.nan_to_num(ends.objective, nan=jnp.inf)
    end = member(ends, jnp.argmin(objectives))
    return eqx.tree_at(lambda end: end.labels, end, in_order(end.labels, clusters))


def member(batch: PyTree, index: Int[Array, ""]) -> PyTree:
    """One of several results that one `vmap` has computed."""
    return jax.tree.map(lambda leaf: leaf[index], batch)


def in_order(labels: Int[Array, " n"], clusters: int) -> Int[Array, " n"]:
    """The same partition, its clusters numbered in the order of their first points."""
    n = len(labels)
    indices = jnp.arange(n, dtype=labels.dtype)
    first = jnp.full((clusters,), n, labels.dtype).at[labels].min(indices)
    # The argsort of a permutation is its inverse: here the rank of each cluster.
    ranks = jnp.argsort(jnp.argsort(first)).astype(labels.dtype)
    return ranks[labels]


class _Spreading(eqx.Module):
    """The state of k-means++ after some draws.

    Attributes:
        chosen: the points drawn so far.
        nearest: the squared distance of each point to the nearest of them.
    """

    chosen: Int[Array, " c"]
    nearest: Float[Array, " n"]

    def with_another(self, c: Array, cloud: Cloud, key: PRNGKeyArray) -> "_Spreading":
        """The state after the c-th draw."""
        # P(i) ~ w_i min_c |phi(x_i) - phi(z_c)|^2.
        mass = cloud.weights * self.nearest
        # Where all points coincide with drawn ones, any point will do.
        mass = jnp.where(jnp.sum(mass) > 0, mass, cloud.weights)
        i = jax.random.categorical(key, jnp.log(mass)).astype(jnp.int32)
        return _Spreading(
            chosen=self.chosen.at[c].set(i),
            nearest=jnp.minimum(self.nearest, cloud.distances_to(i)),
        )


def lloyd(cloud: Cloud, labels: Int[Array, " n"], clusters: int, max_steps: Array) -> HardState:
    """Lloyd's algorithm: assigns points to the nearest mean and recomputes the means, until no
    label changes.

    A point stays where it is nearest up to rounding, and no cluster is left empty, so that the
    objective never rises.
    """

    def go_on(now: HardState) -> Array:
        return now.unfinished & (now.steps < max_steps)

    def step(now: HardState) -> HardState:
        R = one_hot(now.labels, clusters, cloud.weights.dtype)
        D = cloud.distances(R)
        # J = sum_i w_i D_ic(i), D_ic = |phi(x_i) - mu_c|^2 and c(i) the cluster of point i.
        own = jnp.take_along_axis(D, now.labels[:, None], 1)[:, 0]
        # Each point takes its nearest mean. It moves if that is nearer than its own by more than
        # rounding; no cluster is left empty.
        least = jnp.min(D, 1)
        nearest = jnp.argmin(D, 1).astype(jnp.int32)
        closer = least < own - cloud.noise()
        wanted = jnp.where(closer, nearest, now.labels)
        labels = filled(cloud, wanted, clusters, least)
        changed = (labels != now.labels) & (cloud.weights > 0)
        return HardState(
            labels=labels,
            objective=jnp.sum(cloud.weights * own),
            unfinished=jnp.any(changed),
            steps=now.steps + 1,
        )

    start = HardState(
        labels=filled(cloud, labels, clusters, jnp.zeros_like(cloud.weights)),
        objective=jnp.asarray(jnp.inf, cloud.weights.dtype),
        unfinished=jnp.array(True),
        steps=jnp.zeros((), jnp.int32),
    )
    return lax.while_loop(go_on, step, start)


def one_hot(labels: Int[Array, " n"], clusters: int, dtype: jnp.dtype) -> Float[Array, "n c"]:
    """The memberships of a partition: 1 in the column of the label, 0 elsewhere."""
    return jax.nn.one_hot(labels, clusters, dtype=dtype)


def filled(
    cloud: Cloud, labels: Int[Array, " n"], clusters: int, apart: Float[Array, " n"]
) -> Int[Array, " n"]:
    """The labels after each empty cluster has taken a point from a cluster with several points.

    It takes the point that is farthest from its mean, which lowers the objective, or leaves it
    where all such points lie at their means.
    """
    present = cloud.weights > 0
    ones = present.astype(jnp.int32)

    def fill(c: Array, labels: Array) -> Array:
        counts = jnp.bincount(labels, ones, length=clusters)
        may_leave = present & (counts[labels] > 1)
        i = jnp.argmax(jnp.where(may_leave, apart, -1))
        needed = (counts[c] == 0) & jnp.any(may_leave)
        label = jnp.where(needed, c.astype(jnp.int32), labels[i])
        return labels.at[i].set(label)

    return lax.fori_loop(0, clusters, fill, labels)


class SoftKMeans(eqx.Module):
    """Soft memberships `R_ic ~ exp(-|phi(x_i) - mu_c|^2 / temperature)`, from a start."""

    cloud: Cloud
    temperature: Float[Array, ""]
    start: Float[Array, "n c"]

    def renewed(self, R: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """The memberships for the means that these memberships give."""
        # R_ic = exp(-D_ic / T) / sum_d exp(-D_id / T).
        return jax.nn.softmax(-self.cloud.distances(R) / self.temperature, 1)

    def after(self, now: "SoftState") -> "SoftState":
        """The state after one more step."""
        R = self.renewed(now.memberships)
        change = jnp.max(jnp.abs(R - now.memberships))
        return SoftState(R, change, now.steps + 1)


class SoftState(eqx.Module):
    """The state of soft memberships after some steps, with the largest change in the last one."""

    memberships: Float[Array, "n c"]
    change: Float[Array, ""]
    steps: Int[Array, ""]


def soft_memberships(problem: SoftKMeans, max_steps: Array) -> SoftState:
    """The fixed point, with the change of the last step and the number of steps.

    The fixed point is differentiable in the Gram matrix, weights and temperature by its linear
    system, which lineax's GMRES solves; it does not run inside `jax.shard_map`.
    """

    def solve(arguments: tuple[SoftKMeans, Array]) -> SoftState:
        problem, max_steps = arguments

        def go_on(now: SoftState) -> Array:
            far = now.change > accurate_change(now.change.dtype)
            return far & (now.steps < max_steps)

        start = SoftState(
            memberships=problem.start,
            change=jnp.asarray(jnp.inf, problem.start.dtype),
            steps=jnp.zeros((), jnp.int32),
        )
        return lax.while_loop(go_on, lambda now: problem.after(now), start)

    def one_newton_step(root: SoftState, arguments: tuple[SoftKMeans, Array]) -> SoftState:
        problem, _ = arguments
        R = root.memberships
        left = _LeftToRenew(stop_gradient(problem), R)
        # R + (I - F'(R))^-1 (F(R) - R), F the renewal of memberships.
        off = problem.renewed(R) - R
        tol = accurate_change(R.dtype)
        step = solve_by_products(left, off, tol, restart=50, max_steps=500)
        return SoftState(R + step, root.change, root.steps)

    return implicit(solve, one_newton_step, (problem, max_steps))


def accurate_change(dtype: jnp.dtype) -> float:
    """The change of a membership below which it counts as unchanged."""
    return 1e-10 if dtype == jnp.float64 else 1e-5


class _LeftToRenew(eqx.Module):
    """`V - F'(R) V`."""

    problem: SoftKMeans
    R: Float[Array, "n c"]

    def __call__(self, V: Float[Array, "n c"]) -> Float[Array, "n c"]:
        _, change = jax.jvp(self.problem.renewed, (self.R,), (V,))
        return V - change


def coinciding(cloud: Cloud, R: Float[Array, "n c"]) -> Int[Array, ""]:
    """How many clusters have no weight, or have the mean of an earlier cluster up to rounding."""
    at_points, squares = cloud.values(R)
    # <mu_c, mu_d> = (P^T K P)_cd.
    products = matmul(cloud.shares(R).T, at_points)
    # |mu_c - mu_d|^2 = |mu_c|^2 + |mu_d|^2 - 2 <mu_c, mu_d>.
    apart = squares[:, None] + squares[None, :] - 2 * products
    same = jnp.tril(apart <= cloud.noise(), -1)
    return jnp.sum(jnp.any(same, 1) | ~cloud.present(R))
