"""The risk of a function over centres: its gradient, its Hessian, and the size to compare residuals
with.

`F(a) = sum_i w_i L(y_i, f_i) + ridge/2 a.M a`, `f = C a`, where C is `K_nm` and M is `K_mm`; with a
bias, C has one more column, of ones, and M one more entry. Nothing of size n m is stored.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import eps_of, matmul, positive_or_one, requested_matmul
from kernax.core.linalg.solves import inverse_of_lower
from kernax.scale.centres.bands import upper_bands, whole_of_bands
from kernax.scale.centres.loss_in_units import LossInUnits
from kernax.scale.centres.preconditioner import HessianFactor
from kernax.scale.centres.row_sums import AbstractRows, ArrayRows, Tile

# Lengths that a step may be shortened to: very short where only the ridge has curvature left.
LENGTHS = 0.5 ** np.array([0, 1, 2, 4, 6, 9, 14, 20, 28, 38])
_ROWS_OF_SQUARE = 1024  # at a time, in matrix products


def _gradient_part(tile: Tile, known: Any) -> Any:
    """`C^T g` with `g = w L'(y, f)`."""
    loss, a = known
    return tile.pulled(tile.weighted(loss.derivative(tile.y, tile.values(a))))


def _point_part(tile: Tile, known: Any) -> Any:
    """`C^T g`, and the sums of `w L` and `w L'' f^2` of each column."""
    loss, a = known
    f = tile.values(a)
    pulled = tile.pulled(tile.weighted(loss.derivative(tile.y, f)))
    losses = jnp.sum(tile.weighted(loss(tile.y, f)), 0)
    squares = loss.curvature(tile.y, f) * f**2
    return pulled, losses, jnp.sum(tile.weighted(squares), 0)


def _product_part(tile: Tile, known: Any) -> Any:
    """`C^T H C V` with `H = w L''(y, f)`."""
    loss, a, V = known
    # L'' = 1: C^T W C V.
    if loss.quadratic:
        return tile.pulled(tile.weighted(tile.values(V)))
    p = a.shape[1]
    both = tile.values(jnp.concatenate([a, V], 1))
    h = tile.weighted(loss.curvature(tile.y, both[:, :p]))
    return tile.pulled(h * both[:, p:])


def _square_part(tile: Tile, known: Any) -> Any:
    """`C^T H C`, with H for the first column, in bands."""
    loss, a = known
    h = tile.weighted(loss.curvature(tile.y, tile.values(a)))[:, :1]
    return upper_bands((h * tile.cross).T, tile.cross)


def _whitened_square_part(tile: Tile, known: Any) -> Any:
    """`L^-1 C^T H C L^-T`, in bands."""
    loss, a, inverse = known
    h = tile.weighted(loss.curvature(tile.y, tile.values(a)))[:, :1]
    # L^-1 C^T H C L^-T = B B^T with B = L^-1 C^T sqrt(H).
    rows = (jnp.sqrt(h) * tile.cross).T
    # By matrix products, because triangular solves of so many columns use a single core.
    white = requested_matmul(inverse, rows.astype(inverse.dtype))
    return upper_bands(white, white.T)


@compiled
def _of_sample(
    sample: ArrayRows, loss: LossInUnits, a: Array, lower: Array, ridges: Array
) -> HessianFactor:
    """The Hessian of some rows."""
    known = loss, a, inverse_of_lower(lower)
    bands = sample.rough_total(_whitened_square_part, known, _ROWS_OF_SQUARE)
    return HessianFactor.of_whitened(whole_of_bands(bands), lower, ridges)


def _slope_part(tile: Tile, known: Any) -> Any:
    """`sum w L'(y, f + t v) v`, `v = C d`, for each length t of a step d."""
    loss, a, d, lengths = known
    f, v = jnp.split(tile.values(jnp.concatenate([a, d], 1)), 2, axis=1)
    slope = lambda t: jnp.sum(tile.weighted(loss.derivative(tile.y, f + t * v) * v))
    return jnp.stack([slope(t.astype(f.dtype)) for t in lengths])


def _size_part(tile: Tile, loss: LossInUnits) -> Any:
    """The sums of `w L'(y, 0)^2` of each column, and of `w L''(y, 0)`, their mean."""
    nothing = jnp.zeros_like(tile.y)
    squares = jnp.sum(tile.weighted(loss.derivative(tile.y, nothing) ** 2), 0)
    return squares, jnp.sum(jnp.mean(tile.weighted(loss.curvature(tile.y, nothing)), 1))


class Risk(eqx.Module):
    """F, as a function of a.

    Attributes:
        rows: all rows.
        sample: some of them, for the Hessian's factor; None for all.
        loss: L in units, of one column unless it is quadratic.
        gram: M, with its jitter.
        lower: L with `L D L^T = M`.
        penalties: the diagonal of D: ones, except for a bias.
        precision: the dtype of C.
    """

    rows: AbstractRows
    sample: ArrayRows | None
    loss: LossInUnits
    ridge: Float[Array, ""]
    gram: Float[Array, "m m"]
    lower: Float[Array, "m m"]
    penalties: Float[Array, " m"]
    precision: Any = eqx.field(static=True)

    @property
    def quadratic(self) -> bool:
        """Whether F is quadratic, so that one Newton step leads to its minimum."""
        return self.loss.quadratic

    @property
    def eps(self) -> float:
        """The rounding unit of C."""
        return eps_of(self.precision)

    def size(self) -> Float[Array, " p"]:
        """The size that residuals are relative to: `sqrt(sum_i w_i L'(y_i, 0)^2 / h)`, h the mean
        curvature at zero, for each column: for squares `sqrt(sum_i w_i y_i^2)`.
        """
        squares, curvatures = self.rows.total(_size_part, self.loss)
        # h = sum_i w_i L''(y_i, 0) / sum_i w_i.
        mean = curvatures / positive_or_one(self.rows.weight.astype(curvatures.dtype))
        return jnp.sqrt(squares / positive_or_one(mean))

    def gradient(self, a: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """F'(a)."""
        # F'(a) = C^T W L'(y, C a) + ridge M a.
        pulled = self.rows.total(_gradient_part, (self.loss, a))
        return pulled + self.ridge * matmul(self.gram, a)

    def at(self, a: Float[Array, "m p"]) -> tuple[Array, Array, Array]:
        """F'(a), and F(a) and `a.F''(a) a` of each column."""
        # F(a) = sum_i w_i L_i + ridge/2 a.M a, a.F''(a) a = sum_i w_i L''_i f_i^2 + ridge a.M a.
        pulled, losses, squares = self.rows.total(_point_part, (self.loss, a))
        image = matmul(self.gram, a)
        penalty = self.ridge * jnp.sum(a * image, 0)
        return pulled + self.ridge * image, losses + penalty / 2, squares + penalty

    def product(self, a: Float[Array, "m p"], V: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """`F''(a) V`."""
        # F''(a) V = C^T H C V + ridge M V, H = W L''(y, C a).
        pulled = self.rows.total(_product_part, (self.loss, a, V))
        return pulled + self.ridge * matmul(self.gram, V)

    def hessian(self, a: Float[Array, "m p"]) -> HessianFactor:
        """F''(a), or that of the sample."""
        # F''(a) = G + ridge L D L^T with G = C^T H C.
        ridges = self.ridge * self.penalties
        if self.sample is not None:
            return _of_sample(self.sample, self.loss, a, self.lower, ridges)
        bands = self.rows.rough_total(_square_part, (self.loss, a), _ROWS_OF_SQUARE)
        return HessianFactor.of_square(whole_of_bands(bands), self.lower, ridges)

    def slopes(self, a: Float[Array, "m 1"], d: Float[Array, "m 1"]) -> Float[Array, " lengths"]:
        """The slope of F at a, and at each of `LENGTHS` along d from there."""
        lengths = jnp.asarray(np.append(0, LENGTHS), d.dtype)
        slopes = self.rows.total(_slope_part, (self.loss, a, d, lengths))
        # The slope of ridge/2 (a + t d).M (a + t d) is ridge (a.M d + t d.M d).
        image = matmul(self.gram, d)
        return slopes + self.ridge * (jnp.sum(a * image) + lengths * jnp.sum(d * image))
