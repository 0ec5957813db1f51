"""Kronecker products of matrices, one for each axis of a grid: `K = K_1 (x) ... (x) K_d`.

With `K_a = Q_a diag(l_a) Q_a^T`, `K + noise I` is `Q (L + noise I) Q^T`, Q the Kronecker product of
the eigenvectors and L the diagonal of all products of eigenvalues (Saatci 2011, "Scalable inference
for structured Gaussian process models", chapter 5): products and solutions take `O(N sum n_a)`.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from kernax.core.base.numerics import dot, eps_of, matmul
from kernax.core.base.solution import RESULTS
from kernax.core.grid.cell_values import Rows, blocks_of_columns, placed


def outer_product(vectors: Rows) -> Float[Array, " N"]:
    """The products of all entries of several vectors, with the last varying fastest."""
    return functools.reduce(lambda a, b: (a[:, None] * b[None, :]).reshape(-1), vectors)


def along_axes(matrices: tuple[Array, ...], V: Float[Array, "N p"]) -> Float[Array, "N p"]:
    """`(A_1 (x) ... (x) A_d) V`."""
    p = V.shape[1]
    for A in matrices:
        # Each product multiplies the first axis and moves it behind the others, before the columns,
        # so that the order is restored in the end.
        n = A.shape[1]
        turned = V.reshape(n, -1, p)
        V = jnp.einsum("ij,jkp->kip", A, turned, precision=lax.Precision.HIGHEST)
        V = V.reshape(-1, p)
    return V


def _products_of_rows(A: Float[Array, "m a"], B: Float[Array, "m b"]) -> Float[Array, "m ab"]:
    """The Kronecker products of each row of A with the same row of B."""
    return (A[:, :, None] * B[:, None, :]).reshape(len(A), -1)


def contracted(tensor: Float[Array, " N"], vectors: Rows) -> Float[Array, ""]:
    """The sum over all cells of a tensor times a product of vectors, one per axis."""
    for vector in reversed(vectors):
        tensor = matmul(tensor.reshape(-1, len(vector)), vector)
    return tensor[0]


class KroneckerMatrix(eqx.Module):
    """The Gram matrix K (N, N) of all cells as a Kronecker product over the axes, with the last
    axis varying fastest.

    Attributes:
        matrices: one for each axis.
    """

    matrices: tuple[Float[Array, "_ _"], ...]

    def mv(self, V: Float[Array, "N p"]) -> Float[Array, "N p"]:
        """`K V`."""
        return along_axes(self.matrices, V)

    def squared(self) -> "KroneckerMatrix":
        """The matrix of the squared entries."""
        return KroneckerMatrix(tuple(K**2 for K in self.matrices))

    def prepared(self) -> "KroneckerEigenpairs":
        """The eigenpairs, which `K + noise I` shares for any noise; without a derivative."""
        pairs = [jnp.linalg.eigh(K, symmetrize_input=False) for K in self.matrices]
        return KroneckerEigenpairs(
            vectors=tuple(vectors for _, vectors in pairs),
            values=tuple(values for values, _ in pairs),
        )


class KroneckerEigenpairs(eqx.Module):
    """The eigendecomposition `Q L Q^T`.

    Attributes:
        vectors: the eigenvectors of each axis, as columns.
        values: the eigenvalues of each axis in ascending order; rounding may make them negative.
    """

    vectors: tuple[Float[Array, "_ _"], ...]
    values: tuple[Float[Array, " _"], ...]

    @property
    def is_sound(self) -> Bool[Array, ""]:
        """Whether a factor may exist for some noise."""
        # Each of m eigenvalues l_1 <= ... <= l_m has an error of up to 10 m eps l_m.
        sound = [
            values[0] >= -10 * eps_of(values) * len(values) * values[-1]  # false for NaN
            for values in self.values
        ]
        return jnp.all(jnp.array(sound))

    def factorised(self, noise: Float[Array, ""]) -> "KroneckerFactor":
        """The factor of `K + noise I`."""
        values = tuple(jnp.maximum(of_axis, 0) for of_axis in self.values)
        spectrum = outer_product(values) + noise
        # The mean of the eigenvalues is the mean of the diagonal, tr(A) / N.
        least = eps_of(noise) * jnp.mean(spectrum)
        return KroneckerFactor(
            vectors=self.vectors,
            values=values,
            noise=noise,
            is_positive=self.is_sound & (jnp.min(spectrum) > least),
        )


class KroneckerFactor(eqx.Module):
    """The factor `A = Q (L + noise I) Q^T` for all cells of a grid.

    `ToeplitzFactor` has the same methods.

    Attributes:
        vectors: the eigenvectors of each axis, as columns.
        values: the eigenvalues of each axis.
        is_positive: whether A is positive definite to working precision.
    """

    vectors: tuple[Float[Array, "_ _"], ...]
    values: tuple[Float[Array, " _"], ...]
    noise: Float[Array, ""]
    is_positive: Bool[Array, ""]

    @property
    def exists(self) -> Bool[Array, ""]:
        """Whether A is positive definite, so that this is its factor."""
        return self.is_positive

    @property
    def is_direct(self) -> bool:
        """Whether a finite solution can be trusted without checking its residual."""
        return True

    @property
    def status_without_factor(self) -> Any:
        """The status if there is no factor."""
        return RESULTS.not_psd

    def figures(self) -> dict[str, Array]:
        """Statistics of the factor."""
        return {}

    @property
    def spectrum(self) -> Float[Array, " N"]:
        """The eigenvalues of A, NaN if there is no factor."""
        return jnp.where(self.exists, outer_product(self.values) + self.noise, jnp.nan)

    @property
    def _sizes(self) -> list[int]:
        """The number of coordinates along each axis."""
        return [len(values) for values in self.values]

    @property
    def _turned(self) -> tuple[Array, ...]:
        """The transposes of the eigenvectors of each axis."""
        return tuple(Q.T for Q in self.vectors)

    def solve(self, B: Float[Array, "N p"]) -> Float[Array, "N p"]:
        """`A^-1 B`."""
        return along_axes(self.vectors, self._in_basis(B))

    def whitened(self, B: Float[Array, "N p"]) -> Float[Array, "N p"]:
        """A matrix V with `V^T V = B^T A^-1 B`."""
        return along_axes(self._turned, B) / jnp.sqrt(self.spectrum)[:, None]

    def log_determinant(self) -> Float[Array, ""]:
        """`log |A|`."""
        return jnp.sum(jnp.log(self.spectrum))

    def inverse_diagonal(self) -> Float[Array, " N"]:
        """The diagonal of `A^-1`."""
        # (Q D Q^T)_ii = sum_j Q_ij^2 D_jj, D = (L + noise I)^-1.
        squares = tuple(Q**2 for Q in self.vectors)
        return along_axes(squares, 1 / self.spectrum[:, None])[:, 0]

    def trace_with(self, matrix: KroneckerMatrix) -> Float[Array, ""]:
        """`tr(A^-1 L)` of another matrix L of the same kind, differentiable in L."""
        # tr(Q D Q^T L) with L the product of L_a depends only on the diagonal of Q^T L Q.
        pairs = zip(self.vectors, matrix.matrices)
        return contracted(1 / self.spectrum, tuple(jnp.sum(Q * matmul(L, Q), 0) for Q, L in pairs))

    def _rows(self, cells: Int[Array, " m"]) -> tuple[Float[Array, "m _"], ...]:
        """The rows of the eigenvectors of each axis at some cells."""
        places = jnp.unravel_index(cells, self._sizes)
        return tuple(Q[at] for Q, at in zip(self.vectors, places))

    def inverse_at(self, cells: Int[Array, " m"]) -> Float[Array, "m m"]:
        """`U^T A^-1 U`, U the columns of the identity at some cells."""
        # Q D Q^T at the cells is a sum over the coordinates of the longest axis, so that the
        # products of rows along the other axes are as small as possible.
        others = list(self._rows(cells))
        sizes = self._sizes
        axis = sizes.index(max(sizes))
        longest = others.pop(axis)
        rest = functools.reduce(_products_of_rows, others, jnp.ones_like(longest[:, :1]))

        def step(total, at):
            column, slice_of_D = at
            inside = matmul(rest * slice_of_D[None, :], rest.T)
            return total + column[:, None] * inside * column[None, :], None

        nothing = jnp.zeros_like(longest, shape=(len(cells), len(cells)))
        D = jnp.moveaxis((1 / self.spectrum).reshape(sizes), axis, 0)
        return lax.scan(step, nothing, (longest.T, D.reshape(sizes[axis], -1)))[0]

    def between_columns(
        self, cells: Int[Array, " m"], G: Float[Array, "m m"], matrix: KroneckerMatrix | None = None
    ) -> tuple[Float[Array, " N"], Float[Array, ""]]:
        """The diagonal of `B = A^-1 U G U^T A^-1`, G symmetric, and `tr(B L)` of another matrix L
        of the same kind, differentiable in L; zero for None.
        """
        N = len(self.spectrum)
        turned = () if matrix is None else self._turned_around(matrix)

        @jax.checkpoint
        def step(sums, blocks):
            diagonal, trace = sums
            # For some columns c, with l = A^-1 U e_c and r = A^-1 U G e_c, B_ii is the sum of l_i
            # r_i, and tr(B L) is the sum of r.L l = (Q^T r).(Q^T L Q) (Q^T l).
            halves = [self._in_basis(placed(cells, columns, N)) for columns in blocks]
            left, right = (along_axes(self.vectors, half) for half in halves)
            if turned:
                trace = trace + dot(halves[1], along_axes(turned, halves[0]))
            return (diagonal + jnp.sum(left * right, 1), trace), None

        identity = jnp.eye(len(cells), dtype=G.dtype)
        start = jnp.zeros(N, G.dtype), jnp.zeros((), G.dtype)
        return lax.scan(step, start, (blocks_of_columns(identity, N), blocks_of_columns(G, N)))[0]

    def _turned_around(self, matrix: KroneckerMatrix) -> tuple[Array, ...]:
        """Another matrix in the basis of the eigenvectors."""
        return tuple(matmul(Q.T, matmul(L, Q)) for Q, L in zip(self.vectors, matrix.matrices))

    def _in_basis(self, B: Float[Array, "N p"]) -> Float[Array, "N p"]:
        """`A^-1 B` in the basis of the eigenvectors."""
        return along_axes(self._turned, B) / self.spectrum[:, None]

    def prepared_row(self, rows: Rows) -> Rows:
        """The argument of `inner_product` and `solve_row` for a vector r of all cells that is a
        product of vectors along the axes.
        """
        return tuple(matmul(row, Q) for row, Q in zip(rows, self.vectors))

    def inner_product(self, left: Rows, right: Rows) -> Float[Array, ""]:
        """`r . A^-1 s` for r and s as returned by `prepared_row`."""
        return contracted(1 / self.spectrum, tuple(u * v for u, v in zip(left, right)))

    def solve_row(self, row: Rows) -> Float[Array, " N"]:
        """`A^-1 r` for r as returned by `prepared_row`."""
        inside = outer_product(row) / self.spectrum
        return along_axes(self.vectors, inside[:, None])[:, 0]

    def rounding(self) -> Float[Array, ""]:
        """The rounding error of the log density of data drawn from N(0, A), in nats."""
        # Eigenvalues of an axis have independent errors of eps of the largest one there. Each
        # changes log |A| by its error times the sum of D times the other eigenvalues over its
        # slice.
        D = (1 / self.spectrum).reshape(self._sizes)
        moved = [values[-1] * self._slopes(D, axis) for axis, values in enumerate(self.values)]
        return 2 * eps_of(D) * jnp.linalg.norm(jnp.concatenate(moved))

    def _slopes(self, D: Array, axis: int) -> Array:
        """The derivative of `log |A|` in the eigenvalues of an axis."""
        # d log |A| / d l_k is the sum, over the cells of the slice k of the axis, of D times the
        # eigenvalues of the other axes.
        others = [values for place, values in enumerate(self.values) if place != axis]
        return matmul(
            jnp.moveaxis(D, axis, 0).reshape(D.shape[axis], -1),
            outer_product((jnp.ones_like(self.noise)[None], *others)),
        )
