"""Graphs with the points as nodes and the values of a kernel as edges."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import eps_of, matmul, positive_or_one, safe_sqrt, stop_gradient
from kernax.core.base.solution import void_unless_known
from kernax.core.base.weights import PointWeights
from kernax.core.linalg.eigenproblem import (
    MOST_DENSE,
    EigenReport,
    WeightedGram,
    leading_pairs,
    status_of,
)
from kernax.core.linalg.leading_eigenvectors import can_be_truncated
from kernax.core.operators.operators import AbstractGram, is_finite
from kernax.unsupervised.means_of_clusters import one_hot


class Eigenvectors(eqx.Module):
    """The leading eigenvectors of a graph, and the status of their computation."""

    coefficients: Float[Array, "n c"]
    values: Float[Array, " c"]
    report: EigenReport
    result: Any


class Graph(eqx.Module):
    """Points with weights, and edges of weight k(x_i, x_j).

    Attributes:
        degrees: `d_i = sum_j w_j k(x_i, x_j)`.
        scale: D, the degrees, or ones for the trace.
        inverse: the inverse of D; zero for a point without an edge.
    """

    gram: AbstractGram
    weights: Float[Array, " n"]
    degrees: Float[Array, " n"]
    scale: Float[Array, " n"]
    inverse: Float[Array, " n"]

    @staticmethod
    def of(gram: AbstractGram, weights: Float[Array, " n"], normalised: bool) -> "Graph":
        """The graph, whose D holds the degrees if it is normalised."""
        # d = K w, and D = diag(d) or I.
        degrees = gram.mv(weights)
        scale = degrees if normalised else jnp.ones_like(degrees)
        joined = scale > 0
        inverse = jnp.where(joined, 1 / positive_or_one(scale), 0)
        return Graph(gram, weights, degrees, scale, inverse)

    def eigenvectors(self, count: int) -> "Eigenvectors":
        """The leading eigenvectors of `W D^-1 K a = l a`, `a = W e`."""
        # W D^-1 K a = l a is the problem of K with the weights w_i / D_i.
        weights = self.weights * self.inverse
        largest = jnp.max(jnp.abs(self.gram.diagonal() * weights))
        problem = WeightedGram(self.gram, PointWeights(weights), stop_gradient(largest))
        n = len(weights)
        truncated = n > MOST_DENSE and can_be_truncated(count, n)
        pairs, report = leading_pairs(problem, count, truncated=truncated)
        finite = is_finite(self.gram)
        # A graph may have negative eigenvalues: the leading ones are accurate if their residual is
        # small.
        result = status_of(problem, report, pairs, finite, truncated=truncated, allowed=n)
        found = (pairs.of_unit_square(), pairs.values)
        coefficients, values = void_unless_known(found, result)
        return Eigenvectors(coefficients, values, report, result)

    def rows(self, B: Float[Array, "n c"]) -> Float[Array, "n c"]:
        """`D^-1 K B`, the points in the space of the eigenvectors."""
        # f = K B with sum_i w_i f_i^2 / D_i = 1 gives e = D^-1 f with sum_i w_i D_i e_i^2 = 1.
        return self.inverse[:, None] * self.gram.mv(B)

    def objective(self, R: Float[Array, "n c"]) -> Float[Array, ""]:
        """`sum_c 1_c^T W K W 1_c / (1_c^T W D 1_c)` of the partition by the largest memberships."""
        labels = jnp.argmax(R, 1)
        inside = self.weights[:, None] * one_hot(labels, R.shape[1], R.dtype)
        totals = jnp.sum(inside, 0)
        # Shares in the sums: squares of small weights would be zero.
        shares = inside / positive_or_one(totals)[None, :]
        # With s_c = W 1_c / totals_c each term is (s_c.K s_c) totals_c / (D.s_c).
        links = jnp.sum(shares * self.gram.mv(shares), 0)
        return jnp.sum(links * (totals / positive_or_one(matmul(self.scale, shares))))

    def least_edge(self) -> Float[Array, ""]:
        """The smallest `k(x_i, x_j)` between points of positive weight; 0 if it is 0 up to
        rounding.
        """
        K = self.gram.as_matrix()
        present = self.weights > 0
        joined = present[:, None] & present[None, :]
        least = jnp.min(K, where=joined, initial=jnp.inf)
        noise = 64 * eps_of(K) * jnp.max(jnp.where(present, jnp.abs(self.gram.diagonal()), 0))
        return jnp.where(jnp.abs(least) <= noise, 0, least)

    def components(self) -> Int[Array, ""]:
        """The number of connected components among the points of positive weight."""
        # In units of the largest weight: an edge is compared with degrees, and has no weight.
        degrees = self.degrees / positive_or_one(jnp.max(self.weights))
        # The number of connected components of the points that are present; edges that are zero
        # up to rounding do not count.
        # Each point takes the least number among its neighbours until none changes.
        present = self.weights > 0
        n = len(degrees)
        # Pairs of points that are present with an edge between them, or of a point with itself.
        roots = safe_sqrt(jnp.maximum(degrees, 0))
        least = eps_of(roots) * roots[:, None] * roots[None, :]
        edges = (self.gram.as_matrix() > least) & present[:, None] & present[None, :]
        joined = edges | edges.T | jnp.eye(n, dtype=bool)

        def spread(now: _Numbers) -> _Numbers:
            of_neighbours = jnp.where(joined, now.least[None, :], n)
            least = jnp.min(of_neighbours, 1)
            # Adopt that of the neighbour as well: a long chain then takes few steps.
            least = least[least]
            return _Numbers(least, jnp.any(least != now.least))

        numbers = jnp.arange(n, dtype=jnp.int32)
        start = _Numbers(numbers, jnp.array(True))
        end = lax.while_loop(lambda now: now.changed, spread, start)
        return jnp.sum((end.least == numbers) & present)


class _Numbers(eqx.Module):
    """The least number that has reached each point, and whether one fell in the last step."""

    least: Int[Array, " n"]
    changed: Bool[Array, ""]
