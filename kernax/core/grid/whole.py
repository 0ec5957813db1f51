"""Gram matrices of whole grids, and the factors of such a matrix plus noise that is the same in
every cell.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Rows = tuple[Float[Array, " _"], ...]


class AbstractWhole(eqx.Module):
    """The Gram matrix K (N, N) of a kernel on all N cells of a grid, the last axis of which moves
    fastest.
    """

    @abc.abstractmethod
    def mv(self, V: Float[Array, "N p"]) -> Float[Array, "N p"]:
        """`K V`."""

    @abc.abstractmethod
    def squared(self) -> "AbstractWhole":
        """The matrix of the squares of the entries."""

    @abc.abstractmethod
    def prepared(self) -> "AbstractPrepared":
        """What factors of `K + noise I` of any noise share."""


class AbstractPrepared(eqx.Module):
    """What factors of `K + noise I` of any noise share, without a derivative."""

    @property
    @abc.abstractmethod
    def is_sound(self) -> Bool[Array, ""]:
        """Whether there may be a factor, for some noise."""

    @abc.abstractmethod
    def factorised(self, noise: Float[Array, ""]) -> "AbstractWholeFactor":
        """The factor of `K + noise I`."""


class AbstractWholeFactor(eqx.Module):
    """What solves with `A = K + noise I`, on all cells of a grid.

    Attributes:
        is_positive: whether A is positive definite to working precision.
    """

    is_positive: eqx.AbstractVar[Bool[Array, ""]]

    @property
    @abc.abstractmethod
    def exists(self) -> Bool[Array, ""]:
        """Whether A is positive definite, and this is its factor: one that was left incomplete is
        that of another matrix.
        """

    @property
    @abc.abstractmethod
    def is_direct(self) -> bool:
        """Whether a finite solution can be trusted without a look at its residual."""

    @property
    @abc.abstractmethod
    def word_for_none(self) -> Any:
        """Why there is no factor, where there is none."""

    @abc.abstractmethod
    def figures(self) -> dict[str, Array]:
        """For the stats."""

    @abc.abstractmethod
    def solve(self, B: Float[Array, "N p"]) -> Float[Array, "N p"]:
        """`A^-1 B`."""

    @abc.abstractmethod
    def whitened(self, B: Float[Array, "N p"]) -> Float[Array, "N p"]:
        """A V with `V^T V = B^T A^-1 B`."""

    @abc.abstractmethod
    def log_determinant(self) -> Float[Array, ""]:
        """`log |A|`."""

    @abc.abstractmethod
    def inverse_diagonal(self) -> Float[Array, " N"]:
        """That of `A^-1`."""

    @abc.abstractmethod
    def inverse_at(self, cells: Int[Array, " m"]) -> Float[Array, "m m"]:
        """`U^T A^-1 U`, U the columns of the identity at some cells."""

    @abc.abstractmethod
    def trace_with(self, matrix: Any) -> Float[Array, ""]:
        """`tr(A^-1 L)` of another matrix of the same kind, differentiable in that."""

    @abc.abstractmethod
    def between_columns(
        self, cells: Int[Array, " m"], G: Float[Array, "m m"], matrix: Any | None = None
    ) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        """The diagonal of `B = A^-1 U G U^T A^-1`, G symmetric, and `tr(B L)` of another matrix of
        the same kind, differentiable in that; zero for None.
        """

    @abc.abstractmethod
    def prepared_row(self, rows: Rows) -> Rows:
        """What `inner_product` and `solve_row` take of a vector r of all cells that is the product
        of vectors along the axes.
        """

    @abc.abstractmethod
    def inner_product(self, left: Rows, right: Rows) -> Float[Array, ""]:
        """`r . A^-1 s`, of r and s as `prepared_row` returns them."""

    @abc.abstractmethod
    def solve_row(self, row: Rows) -> Float[Array, " N"]:
        """`A^-1 r`, of r as `prepared_row` returns it."""

    @abc.abstractmethod
    def rounding(self) -> Float[Array, ""]:
        """How far rounding, and whatever else was left out, moves the log density of data drawn
        from N(0, A), in nats.
        """


_COLUMNS_AT_ONCE = 2**22  # numbers


def placed(cells: Int[Array, " m"], values: Float[Array, "m p"], size: int) -> Float[Array, "N p"]:
    """`U values`."""
    nothing = jnp.zeros_like(values, shape=(size, values.shape[1]))
    return nothing.at[cells].set(values)


def blocks_of_columns(G: Float[Array, "m k"], rows: int) -> Float[Array, "b m c"]:
    """The columns of a matrix in blocks of which a product with so many rows may be held; zero
    columns fill the last one.
    """
    m, k = G.shape
    at_once = max(1, min(k, _COLUMNS_AT_ONCE // rows))
    blocks = -(-k // at_once)
    filled = jnp.zeros((m, blocks * at_once), G.dtype).at[:, :k].set(G)
    return jnp.moveaxis(filled.reshape(m, blocks, at_once), 1, 0)
