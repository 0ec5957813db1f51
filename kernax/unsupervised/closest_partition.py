"""Rounds eigenvectors to a partition that is close to a rotation of them."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from kernax.core.base.batching import sequential_vmap
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, stop_gradient
from kernax.core.base.solution import RESULTS, first_that_holds
from kernax.unsupervised.kernel_kmeans import Memberships
from kernax.unsupervised.means_of_clusters import in_order, member, one_hot


class _Rotation(eqx.Module):
    """The state of Yu & Shi's iteration.

    Attributes:
        rotation: R, orthogonal.
        labels: the largest entries of the rows of `E R`.
        closeness: the sum of the singular values of `E^T W Z`, Z the partition, W the weights.
        unfinished: whether the closeness rose in the last step.
        steps: the number of steps so far.
    """

    rotation: Float[Array, "c c"]
    labels: Int[Array, " n"]
    closeness: Float[Array, ""]
    unfinished: Bool[Array, ""]
    steps: Int[Array, ""]


def closest_partition(
    embedding: Float[Array, "n c"],
    weights: Float[Array, " n"],
    key: PRNGKeyArray,
    starts: int,
    max_steps: Array,
) -> Memberships:
    """The partition that is closest to a rotation of the rows, which are scaled to length one and
    weighted; the best of several starts (Yu & Shi 2003).
    """
    # Rows divided by their lengths; rows of length zero stay the same.
    E = stop_gradient(embedding)
    E = E / positive_or_one(jnp.linalg.norm(E, axis=1))[:, None]
    weights = stop_gradient(weights)

    def run(key: PRNGKeyArray) -> _Rotation:
        # The iteration, starting from a rotation made of rows that are far from parallel.

        def go_on(now: _Rotation) -> Array:
            return now.unfinished & (now.steps < max_steps)

        def step(now: _Rotation) -> _Rotation:
            # The partition that is closest to the rotated rows, and the rotation that is closest to
            # it.
            labels = jnp.argmax(matmul(E, now.rotation), 1).astype(jnp.int32)
            Z = one_hot(labels, E.shape[1], E.dtype)
            inside = weights[:, None] * Z
            # With Z^T W E = U S V^T the largest tr(Z^T W E R) over rotations R is sum S, for R = V
            # U^T; LAPACK returns V^T.
            U, sizes, V = sequential_vmap(jnp.linalg.svd, matmul(inside.T, E))
            closeness = jnp.sum(sizes)
            rises = closeness > now.closeness + 8 * eps_of(E) * jnp.sum(weights)
            return _Rotation(
                rotation=matmul(V.T, U.T),
                labels=labels,
                closeness=closeness,
                unfinished=rises,
                steps=now.steps + 1,
            )

        # Rows of positive weight as columns: a random one, then each time the one that is least
        # parallel to those before.
        clusters = E.shape[1]
        first = E[jax.random.categorical(key, jnp.log(weights))]
        columns = jnp.zeros((clusters, clusters), E.dtype).at[:, 0].set(first)
        unlike = _Rows(columns, jnp.where(weights > 0, 0, jnp.inf).astype(E.dtype))
        unlike = lax.fori_loop(1, clusters, lambda c, now: now.with_another(c, E), unlike)
        start = _Rotation(
            rotation=unlike.chosen,
            labels=jnp.zeros(len(E), jnp.int32),
            closeness=jnp.asarray(-jnp.inf, E.dtype),
            unfinished=jnp.array(True),
            steps=jnp.zeros((), jnp.int32),
        )
        return lax.while_loop(go_on, step, start)

    ends = jax.vmap(run)(jax.random.split(key, starts))
    end = member(ends, jnp.argmax(ends.closeness))
    labels = in_order(end.labels, E.shape[1])
    statuses = (
        (~jnp.isfinite(end.closeness), RESULTS.nonfinite),
        (end.unfinished, RESULTS.max_steps_reached),
    )
    return Memberships(
        memberships=one_hot(labels, E.shape[1], E.dtype),
        result=first_that_holds(statuses, RESULTS.successful),
        stats={"steps": end.steps, "distinct": _distinct(labels, weights, E.shape[1])},
    )


def pivoted_partition(embedding: Float[Array, "n c"], weights: Float[Array, " n"]) -> Memberships:
    """The partition by the largest entries, in absolute value, of rows rotated such that one row
    per cluster comes close to an axis (Damle, Minden & Ying 2019).

    These rows are the pivots of a QR decomposition of `E^T` with column pivoting, among rows of
    positive weight.
    """
    E = stop_gradient(embedding)
    weights = stop_gradient(weights)
    # With C the pivots as columns and `C = U S V^T`, `U V^T` is the rotation closest to C.
    # Rows of positive weight as columns: each time the one with the longest part orthogonal to
    # those before.

    def step(c: Array, now: _Pivots) -> _Pivots:
        squares = jnp.where(weights > 0, jnp.sum(now.rest**2, 1), -1)
        pivot = jnp.argmax(squares)
        # r - (r.q) q, with q the orthogonal part of the pivot, scaled to length one
        q = now.rest[pivot] / positive_or_one(jnp.sqrt(jnp.maximum(squares[pivot], 0)))
        rest = now.rest - matmul(now.rest, q)[:, None] * q[None, :]
        return _Pivots(now.chosen.at[c].set(E[pivot]), rest)

    clusters = E.shape[1]
    start = _Pivots(jnp.zeros((clusters, clusters), E.dtype), E)
    U, _, V = sequential_vmap(
        lambda C: jnp.linalg.svd(C, full_matrices=False),
        lax.fori_loop(0, clusters, step, start).chosen.T,
    )
    rotated = matmul(E, matmul(U, V))
    labels = in_order(jnp.argmax(jnp.abs(rotated), 1).astype(jnp.int32), E.shape[1])
    statuses = ((~jnp.all(jnp.isfinite(rotated)), RESULTS.nonfinite),)
    return Memberships(
        memberships=one_hot(labels, E.shape[1], E.dtype),
        result=first_that_holds(statuses, RESULTS.successful),
        stats={
            "steps": jnp.asarray(E.shape[1], jnp.int32),
            "distinct": _distinct(labels, weights, E.shape[1]),
        },
    )


class _Pivots(eqx.Module):
    """The chosen rows, and the parts of all rows orthogonal to them."""

    chosen: Float[Array, "c c"]
    rest: Float[Array, "n c"]


def _distinct(
    labels: Int[Array, " n"], weights: Float[Array, " n"], clusters: int
) -> Int[Array, ""]:
    """The number of clusters that have points of positive weight."""
    return jnp.sum(jnp.bincount(labels, weights, length=clusters) > 0)


class _Rows(eqx.Module):
    """The chosen rows, as columns, and how parallel each row is to them."""

    chosen: Float[Array, "c c"]
    parallel: Float[Array, " n"]

    def with_another(self, c: Array, E: Float[Array, "n c"]) -> "_Rows":
        """Adds the row that is least parallel to the chosen ones, as the c-th."""
        last = self.chosen[:, c - 1]
        # s <- s + |E r|, r the last row; the next one is the row with the least s (Yu & Shi 2003).
        parallel = self.parallel + jnp.abs(matmul(E, last))
        next_row = E[jnp.argmin(parallel)]
        return _Rows(self.chosen.at[:, c].set(next_row), parallel)
