"""Leading eigenvectors of a symmetric matrix by products with blocks of columns."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import eps_of, matmul, positive_or_one

_GUARDS = 4  # additional vectors, with which the last requested ones converge faster
_MOST_BLOCKS = 12  # in a basis, which is then restarted from its best vectors

Multiply = Callable[[Float[Array, "n b"]], Float[Array, "n b"]]


class Ritz(eqx.Module):
    """Approximate eigenpairs.

    Attributes:
        values: descending.
        vectors: orthonormal columns after the first step. If M has exact zeros, and no further
            directions remain for a block, some may be zero or copies of others.
        residuals: `|M u - l u|` for each pair.
        steps: the number of products with a block so far.
    """

    values: Float[Array, " b"]
    vectors: Float[Array, "n b"]
    residuals: Float[Array, " b"]
    steps: Int[Array, ""]


class _Basis(eqx.Module):
    """Orthonormal columns Q and their products `M Q`, both zero where not yet computed, and the
    columns that will be orthonormalised as the next block.
    """

    Q: Float[Array, "n m"]
    products: Float[Array, "n m"]
    coming: Float[Array, "n b"]

    def extended(self, i: Int[Array, ""], multiply: Multiply) -> "_Basis":
        """The basis with its i-th block."""
        block = _orthogonal(self.Q, self.coming)
        product = multiply(block)
        place = (0, i * block.shape[1])
        Q = lax.dynamic_update_slice(self.Q, block, place)
        products = lax.dynamic_update_slice(self.products, product, place)
        # M times the newest block extends the space next.
        return _Basis(Q, products, product)


def width_of_block(count: int) -> int:
    """The number of columns of a block, for so many eigenvectors."""
    return count + _GUARDS


def can_be_truncated(count: int, n: int) -> bool:
    """Whether a basis of three blocks is smaller than the space."""
    return 3 * width_of_block(count) < n


def leading_by_products(
    multiply: Multiply, start: Float[Array, "n b"], count: int, rtol: float, max_steps: int | Array
) -> Ritz:
    """The `count` leading eigenpairs of M, with residuals of at most `rtol` times the eigenvalue.

    This is the Rayleigh-Ritz method in the space of `U, M U, M^2 U, ...`, restarted with the best
    vectors (block Lanczos: Golub & Underwood 1977; Musco & Musco 2015). Each block is
    orthogonalised twice against all previous ones. A block of columns costs little more than one
    column, because the numbers of M are read only once.

    Arguments:
        multiply: the product with M.
        start: `width_of_block(count)` columns of full rank.
        max_steps: the number of products with a block after which no new basis is started.

    Returns:
        All vectors of the last block, including those beyond `count`.
    """
    n, width = start.shape
    blocks = min(_MOST_BLOCKS, n // width)

    def go_on(now: Ritz) -> Array:
        # Rounding of M u gives a residual of a few eps |M|, however good u is.
        noise = 8 * n * eps_of(now.values) * jnp.abs(now.values[0])
        wanted = rtol * jnp.abs(now.values[:count]) + noise
        close = now.residuals[:count] <= wanted
        return ~jnp.all(close) & (now.steps < max_steps)

    def step(now: Ritz) -> Ritz:
        # The basis of U, M U, ...
        nothing = jnp.zeros((n, blocks * width), start.dtype)
        basis = lax.fori_loop(
            0,
            blocks,
            lambda i, basis: basis.extended(i, multiply),
            _Basis(nothing, nothing, now.vectors),
        )
        # Q^T M Q = V L V^T: the Ritz vectors are U = Q V, and M U - U L needs no further product.
        square = matmul(basis.Q.T, basis.products)
        values, turns = jnp.linalg.eigh((square + square.T) / 2)
        # The largest eigenvalues, descending.
        values, turns = values[::-1][:width], turns[:, ::-1][:, :width]
        vectors = matmul(basis.Q, turns)
        off = matmul(basis.products, turns) - vectors * values[None, :]
        return Ritz(
            values=values,
            vectors=vectors,
            residuals=jnp.linalg.norm(off, axis=0),
            steps=now.steps + blocks,
        )

    far = jnp.full((width,), jnp.inf, start.dtype)
    first = Ritz(
        values=jnp.ones_like(far),
        vectors=start,
        residuals=far,
        steps=jnp.zeros((), jnp.int32),
    )
    return lax.while_loop(go_on, step, first)


def _orthogonal(Q: Float[Array, "n m"], block: Float[Array, "n b"]) -> Float[Array, "n b"]:
    """Orthonormal columns of a block, orthogonal to Q, by two passes, or three if one of them
    produces columns that are mostly rounding.

    If M has no further direction, only rounding remains. The second pass scales it to columns of
    length one, and the third makes them orthogonal to Q.
    """

    def go_on(now: _Orthonormalisation) -> Array:
        return (now.passes < 2) | (now.hidden & (now.passes < 3))

    return lax.while_loop(
        go_on, partial(_Orthonormalisation.next, Q=Q), _Orthonormalisation.first(block)
    ).block


class _Orthonormalisation(eqx.Module):
    """A block during orthonormalisation."""

    block: Float[Array, "n b"]
    hidden: Bool[Array, ""]  # whether rounding has dominated a column so far
    passes: Int[Array, ""]

    @staticmethod
    def first(block: Float[Array, "n b"]) -> "_Orthonormalisation":
        return _Orthonormalisation(block, jnp.array(False), jnp.zeros((), jnp.int32))

    def next(self, Q: Float[Array, "n m"]) -> "_Orthonormalisation":
        """The block after one more pass: its part B outside Q becomes `B V L^(-1/2)`, with the
        eigenvectors V and eigenvalues L of `B^T B` (Stathopoulos & Wu 2002). This takes only
        products, and a fraction of the time of Householder reflections.
        """
        largest = jnp.max(jnp.abs(self.block), 0, keepdims=True)
        unit = self.block / positive_or_one(largest)
        # B = (I - Q Q^T) U and B^T B = V L V^T, so that B V L^(-1/2) is orthonormal.
        left = unit - matmul(Q, matmul(Q.T, unit))
        values, turns = jnp.linalg.eigh(matmul(left.T, left))
        # Eigenvalues within rounding may be zero or negative: their columns stay short.
        least = left.shape[1] * eps_of(values) * values[-1]
        roots = jnp.sqrt(positive_or_one(jnp.maximum(values, least)))
        # If a column was nearly in the span of Q or of the others, B^T B has a tiny eigenvalue.
        hidden = values[0] < jnp.sqrt(eps_of(values)) * jnp.sum(unit**2)
        return _Orthonormalisation(
            matmul(left, turns / roots[None, :]), self.hidden | hidden, self.passes + 1
        )
