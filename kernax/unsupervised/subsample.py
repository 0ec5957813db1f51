"""Subsamples, a few points that represent many: the parts that all functions that choose them
share.

With mu the mean embedding to approximate, each function adds points to a sum of `phi(x) - mu` so
that its norm stays small. Inner products of these are values of the kernel centred at mu.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack, count
from kernax.core.base.numerics import is_concrete, stop_gradient, values_of
from kernax.core.base.parameters import data
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution, first_that_holds, void_unless_known
from kernax.core.operators.operators import AbstractGram
from kernax.unsupervised.centring import loses_digits


class Subsample(Printed):
    """Points chosen from a sample.

    Attributes:
        indices: the indices of the chosen points, in the order of choice; -1 where the status is
            `nonfinite`.
        discrepancy: the squared distance between their mean embedding and the one that they
            approximate, (), in units of the kernel; differentiable with the indices held fixed.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> chosen = kernax.samples.herding(kernax.RBF(0.3), X, 3).value
        >>> X[chosen.indices].shape
        (3, 1)
        >>> bool(chosen.discrepancy < 0.1)
        True
    """

    indices: Int[Array, " count"]
    discrepancy: Float[Array, ""] = data()

    def of(self, X: PyTree) -> PyTree:
        """The chosen points of X; NaN where the status is `nonfinite`.

        Raises ValueError for an index beyond the end of X.
        """
        X = as_stack(X, "X")
        n = count(X)
        # JAX would clamp an index beyond the end.
        last = np.max(values_of(self.indices)) if is_concrete(self.indices) else -1
        if last >= n:
            raise ValueError(
                f"X holds {n} points, but point {last} was chosen: pass the points that the "
                "subsample was chosen from"
            )

        def chosen(leaf: Array) -> Array:
            rows = leaf[self.indices]
            if not jnp.issubdtype(rows.dtype, jnp.inexact):
                return rows
            known = (self.indices >= 0).reshape(-1, *[1] * (rows.ndim - 1))
            return jnp.where(known, rows, jnp.nan)

        return jax.tree.map(chosen, X)


class AboutMean(eqx.Module):
    """The centred Gram matrix `<phi_i - mu, phi_j - mu> = K_ij - mu(x_i) - mu(x_j) + |mu|^2`, which
    stores K alone.

    Attributes:
        gram: K.
        shares: p, with `mu = sum_i p_i phi_i`.
        means: mu at the points; not finite where K is not.
        square: `|mu|^2`.
        diagonal: `|phi_i - mu|^2`.
    """

    gram: AbstractGram
    shares: Float[Array, " n"]
    means: Float[Array, " n"]
    square: Float[Array, ""]
    diagonal: Float[Array, " n"]

    @staticmethod
    def at(gram: AbstractGram, shares: Float[Array, " n"]) -> "AboutMean":
        """The Gram matrix centred at the mean with these shares of the points; at zero if all
        shares are zero.
        """
        # mu(x_i) = (K p)_i, |mu|^2 = p.K p and |phi_i - mu|^2 = K_ii - 2 mu(x_i) + |mu|^2.
        means = gram.mv(shares)
        square = jnp.sum(shares * means)
        diagonal = gram.diagonal() - 2 * means + square
        return AboutMean(gram, shares, means, square, diagonal)

    def row(self, index: Int[Array, ""]) -> Float[Array, " n"]:
        """The row of one point."""
        # K_ij - mu(x_i) - mu(x_j) + |mu|^2.
        row = self.gram.rows(index[None])[0]
        return row - self.means - (self.means[index] - self.square)

    def is_accurate(self, X: PyTree) -> Bool[Array, ""]:
        """Whether rounding leaves enough digits of the differences computed here, at these
        points.
        """
        return ~loses_digits(X, stop_gradient(self.gram), stop_gradient(self.shares))

    def discrepancies(self, parts: Int[Array, "c count"]) -> Float[Array, " c"]:
        """`|mean of phi over a part - mu|^2` for each part, given by the indices of its points.

        It is computed as a product of K with the difference of two vectors of shares, and so is
        differentiable.
        """
        (c, size) = parts.shape
        columns = jnp.arange(c, dtype=parts.dtype)[:, None]
        # |sum_i q_i phi_i - sum_i p_i phi_i|^2 = (q - p).K (q - p), q the shares of the points in
        # the part.
        times = jnp.zeros((len(self.means), c), self.means.dtype).at[parts, columns].add(1)
        apart = times / size - self.shares[:, None]
        return jnp.maximum(jnp.sum(apart * self.gram.mv(apart), 0), 0)

    def best_addition(
        self, sums: Float[Array, " n"], free: Bool[Array, " n"]
    ) -> tuple[Int[Array, ""], Float[Array, ""]]:
        """The free point x that minimises `|s + phi(x) - mu|`, the first among equal ones, and by
        how much half of its square grows: infinitely if no point is free.

        Arguments:
            sums: `<s, phi(x) - mu>` at every point.
            free: which points may be chosen.
        """
        # |s + phi(x) - mu|^2 = |s|^2 + 2 (<s, phi(x) - mu> + |phi(x) - mu|^2 / 2).
        of_every_point = sums + self.diagonal / 2
        growth = jnp.where(free, of_every_point, jnp.inf)
        least = jnp.min(growth)
        # XLA's argmin of floats is slow on a CPU.
        index = jnp.argmax(growth == least).astype(jnp.int32)
        return index, least


def subsample_of(
    centred: AboutMean,
    indices: Int[Array, " count"],
    stats: dict[str, Array],
    sound: ArrayLike = True,
    accurate: ArrayLike = True,
) -> Solution[Subsample]:
    """The subsample and its status: `nonfinite` with NaN values unless it is sound and every figure
    is finite, and `inaccurate` unless the figures are accurate.
    """
    discrepancy = centred.discrepancies(indices[None])[0]
    figures = (stop_gradient(centred.means), stop_gradient(discrepancy), *stats.values())
    finite = [jnp.all(jnp.isfinite(figure)) for figure in figures]
    sound = jnp.all(jnp.stack(finite)) & sound
    statuses = ((~sound, RESULTS.nonfinite), (~jnp.asarray(accurate), RESULTS.inaccurate))
    result = first_that_holds(statuses, RESULTS.successful)
    value = Subsample(
        indices=jnp.where(sound, indices, -1),
        discrepancy=void_unless_known(discrepancy, result),
    )
    return Solution(value, result, stats)
