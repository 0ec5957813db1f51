"""A few points that stand for many: what the verbs that choose them share.

With mu the mean embedding that is approximated, each adds points to a sum of `phi(x) - mu` so that
its norm stays small. Inner products of these are those of the kernel centred at mu.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.boundary import as_stack
from kernax.core.numerics import stopped
from kernax.core.operators import AbstractGram, is_finite
from kernax.core.parameters import data
from kernax.core.solution import RESULTS, Solution


class Subsample(eqx.Module):
    """Points chosen from a stack.

    Attributes:
        indices: their places in it, in the order in which they were chosen; -1 where the result is
            `nonfinite`.
        discrepancy: the squared distance between their mean embedding and the one they stand for,
            (), in units of the kernel; differentiable, the indices held fixed.
    """

    indices: Int[Array, " count"]
    discrepancy: Float[Array, ""] = data()

    def of(self, X: PyTree) -> PyTree:
        """The chosen points of the stack X, as a stack."""
        return jax.tree.map(lambda leaf: leaf[self.indices], as_stack(X, "X"))


class CentredGram(eqx.Module):
    """`<phi_i - mu, phi_j - mu> = K_ij - mu(x_i) - mu(x_j) + |mu|^2`, of which only K is held.

    Attributes:
        gram: K.
        shares: mu is their sum of the phi_j, which are not all counted in it if mu is zero.
        means: mu at the points.
        square: `|mu|^2`.
    """

    gram: AbstractGram
    shares: Float[Array, " n"]
    means: Float[Array, " n"]
    square: Float[Array, ""]

    @classmethod
    def at(cls, gram: AbstractGram, shares: Float[Array, " n"]) -> "CentredGram":
        """Centred at the mean that the shares of the points, which add up to one or zero, make."""
        means = gram.mv(shares)
        return cls(gram, shares, means, jnp.sum(shares * means))

    def row(self, place: Int[Array, ""]) -> Float[Array, " n"]:
        """The row of one point."""
        return self.gram.rows(place[None])[0] - self.means - (self.means[place] - self.square)

    def diagonal(self) -> Float[Array, " n"]:
        """`|phi_i - mu|^2`."""
        return self.gram.diagonal() - 2 * self.means + self.square

    def discrepancies(self, memberships: Float[Array, "n c"]) -> Float[Array, " c"]:
        """`|mean of a subsample - mu|^2` for each column, which says how often it has each point.

        A product with K of what the two means differ by, and so differentiable.
        """
        shares = memberships / jnp.sum(memberships, 0)[None, :] - self.shares[:, None]
        return jnp.maximum(jnp.sum(shares * self.gram.mv(shares), 0), 0)


def best_addition(
    sums: Float[Array, " n"], diagonal: Float[Array, " n"], free: Bool[Array, " n"]
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """The free point x that makes `|s + phi(x) - mu|` least, the first of equals, and by how much
    half of the square grows.

    Arguments:
        sums: `<s, phi(x) - mu>` at every point.
        diagonal: `|phi(x) - mu|^2`.
        free: which points may be taken. With none the growth is infinite.
    """
    growth = jnp.where(free, sums + diagonal / 2, jnp.inf)
    least = jnp.min(growth)
    # XLA's argmin of floats is slow on a CPU.
    return jnp.argmax(growth == least).astype(jnp.int32), least


def subsample_of(
    centred: CentredGram, indices: Int[Array, " count"], stats: dict[str, Array]
) -> Solution[Subsample]:
    """What was chosen, unless a figure is not finite."""
    memberships = jnp.zeros_like(centred.means).at[indices].add(1)
    discrepancy = centred.discrepancies(memberships[:, None])[0]
    sound = is_finite(centred.gram) & jnp.isfinite(stopped(discrepancy))
    for figure in stats.values():
        sound = sound & jnp.all(jnp.isfinite(figure))
    return Solution(
        Subsample(jnp.where(sound, indices, -1), jnp.where(sound, discrepancy, jnp.nan)),
        RESULTS.where(sound, RESULTS.successful, RESULTS.nonfinite),
        stats,
    )
