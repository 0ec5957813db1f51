"""A kernel of time series, and series of different lengths as points."""

import functools
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from kernax.core.base.numerics import tree_where
from kernax.core.base.parameters import as_floats, check_count
from kernax.core.base.powers import exponent_of, normal_power_of_two
from kernax.core.kernel.kernel import AbstractKernel, AbstractWideRange, as_kernel


class GlobalAlignment(AbstractWideRange):
    """The global alignment kernel of two time series: the sum, over all alignments, of the product
    of `kappa(x_i, z_j)` over the aligned pairs, `kappa = k / (2 - k)`.

    An alignment goes from the first pair of vectors to the last, in steps that advance in x, in z
    or in both (as in dynamic time warping, which keeps the best alignment alone). k is a kernel of
    vectors with values in (0, 1], such as RBF: then kappa, and this kernel, are positive definite
    (Cuturi 2011, "Fast global alignment kernels", section 3.2). Values grow by up to 5.8 for each
    vector of a series; `Normalised(GlobalAlignment(...))` is the usual form and does not overflow.
    `kernax.selection.median_lengthscale` gives the lengthscale that Cuturi suggests. A value costs
    the product of the two lengths.

    Points are series of vectors: a batch (n, L, d), or series of different lengths by
    `GlobalAlignment.pad`. A pair of vectors at which k underflows counts as four times the smallest
    float, and has no gradient.

    Raises ValueError for points that are not series. The value is NaN where k is negative or at
    least 2, and for a length that is not between 1 and L.

    Examples:
        >>> slow, fast = [0.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0]
        >>> X = kernax.kernels.GlobalAlignment.pad([slow, fast, [1.0, 0.0, 1.0]])
        >>> k = kernax.Normalised(kernax.kernels.GlobalAlignment(kernax.RBF(0.5)))
        >>> jnp.round(kernax.gram(k, X), 2)
        Array([[1.  , 0.62, 0.01],
               [0.62, 1.  , 0.01],
               [0.01, 0.01, 1.  ]], dtype=float64)
    """

    kernel: AbstractKernel = eqx.field(converter=as_kernel)

    encoding: ClassVar[str] = (
        "kernax.kernels.GlobalAlignment.pad converts time series of different lengths to points"
    )

    @staticmethod
    def pad(
        series: Iterable, length: int | None = None
    ) -> tuple[Float[Array, "n L d"], Int[Array, " n"]]:
        """Time series of different lengths as a batch of points: values (n, L, d), padded by zeros,
        and lengths (n,).

        Arguments:
            series: n arrays of shape (L_i, d), or (L_i,) for series of numbers.
            length: L, at least and by default the length of the longest. Batches to be compared may
                have different ones.

        Raises ValueError for no series, an empty one, different numbers of columns, and a length
        that is too short.

        Examples:
            >>> values, lengths = kernax.kernels.GlobalAlignment.pad([[1.0, 2.0, 3.0], [4.0]])
            >>> values.shape, lengths
            ((2, 3, 1), Array([3, 1], dtype=int32))
        """
        given = list(series)
        arrays = [np.asarray(one) for one in given]
        arrays = [one[:, None] if one.ndim == 1 else one for one in arrays]
        if not arrays:
            raise ValueError("series must hold at least one time series, but is empty")
        for i, one in enumerate(arrays):
            if one.ndim != 2 or one.size == 0 or one.shape[1] != arrays[0].shape[1]:
                raise ValueError(
                    f"series must be arrays of shape (L, {arrays[0].shape[-1]}), L >= 1, as the "
                    f"first is, but series[{i}] has shape {np.shape(given[i])}"
                )
        longest = max(map(len, arrays))
        length = longest if length is None else check_count(length, "length")
        if length < longest:
            raise ValueError(
                f"length must be at least {longest}, that of the longest series, but is {length}"
            )
        values = np.zeros((len(arrays), length, arrays[0].shape[1]), np.result_type(*arrays))
        for row, one in zip(values, arrays):
            row[: len(one)] = one
        return as_floats(values), jnp.asarray([len(one) for one in arrays], jnp.int32)

    def scaled(self, x, z):
        # By the cells (i, t - i) of one antidiagonal t of the table after another:
        # M(i, j) = kappa(x_i, z_j) (M(i-1, j) + M(i, j-1) + M(i-1, j-1)), where only the first cell
        # begins with an empty sum of one. Each cell has an exponent of its own, as neighbours may
        # differ by more than the range of floats.
        x, length_x = _values_and_length(x)
        z, length_z = _values_and_length(z)
        i = jnp.arange(len(x), dtype=jnp.int32)
        # z_(t - i) for i = 0, 1, ... is a stretch of z turned around, with room on both sides.
        turned = jnp.pad(z[::-1], ((len(x), len(x)), (0, 0)))
        last = length_x + length_z - 2
        known = (length_x >= 1) & (length_x <= len(x)) & (length_z >= 1) & (length_z <= len(z))

        def others(t: Array | int) -> Float[Array, "L d"]:
            return lax.dynamic_slice_in_dim(turned, len(x) + len(z) - 1 - t, len(x))

        @jax.checkpoint
        def diagonal(now: _Diagonal, t: Array) -> tuple[_Diagonal, None]:
            kappa = _kappa(jax.vmap(self.kernel)(x, now.others))
            there = (t - i >= 0) & (t - i < len(z))
            above = _one_later(now.cells)
            sums = _sum_of_scaled(above, now.cells, now.corner)
            # kappa 2^-e comes first: cotangents of a cell near the smallest float would leave the
            # range of floats.
            own = exponent_of(jnp.where(there, sums[0] * kappa, 0))
            scaled = kappa * normal_power_of_two(-own, kappa.dtype)
            mantissa = jnp.where(there, sums[0] * scaled, 0)
            cells = mantissa, jnp.where(mantissa == 0, _LOWEST, sums[1] + own)
            ends = jax.tree.map(lambda new: new[length_x - 1], cells)
            # The cells above those of this antidiagonal are the corners of the next one.
            return _Diagonal(
                cells, above, tree_where(t == last, ends, now.total), others(t + 1)
            ), None

        nothing = jnp.zeros(len(x), x.dtype), jnp.full(len(x), _LOWEST, jnp.int32)
        # One, above and beside the first cell.
        corner = jnp.where(i == 0, 1, nothing[0]), jnp.where(i == 0, 0, nothing[1])
        start = _Diagonal(nothing, corner, (nothing[0][0], nothing[1][0]), others(0))
        diagonals = jnp.arange(len(x) + len(z) - 1, dtype=jnp.int32)
        mantissa, exponent = lax.scan(diagonal, start, diagonals)[0].total
        return jnp.where(known, mantissa, jnp.nan), exponent.astype(x.dtype)


# Numbers `mantissa 2^exponent` of any size, entry by entry; zero has the lowest exponent.
_Scaled = tuple[Float[Array, "*L"], Int[Array, "*L"]]
_LOWEST = -(2**29)


class _Diagonal(NamedTuple):
    """The recursion before an antidiagonal."""

    cells: _Scaled  # M(i, t - 1 - i), those of the antidiagonal before
    corner: _Scaled  # M(i - 1, t - 1 - i)
    total: _Scaled
    # z_(t - i), stored by the step before: XLA does not vectorise the kernel of a slice whose start
    # it reads in the same loop, if the kernel uses its columns one by one, as `RBF` does.
    others: Float[Array, "L d"]


def _one_later(diagonal: _Scaled) -> _Scaled:
    """The entries moved by one place, the first one zero."""
    mantissa, exponent = diagonal
    zero = jnp.zeros((), mantissa.dtype)
    lowest = jnp.full((), _LOWEST, exponent.dtype)
    return lax.pad(mantissa, zero, [(1, -1, 0)]), lax.pad(exponent, lowest, [(1, -1, 0)])


def _sum_of_scaled(*terms: _Scaled) -> _Scaled:
    """The sum of numbers, with the largest of their exponents."""
    top = functools.reduce(jnp.maximum, (exponent for _, exponent in terms))
    parts = [
        mantissa * normal_power_of_two(exponent - top, mantissa.dtype)
        for mantissa, exponent in terms
    ]
    return sum(parts[1:], parts[0]), top


def _kappa(k: Float[Array, " L"]) -> Float[Array, " L"]:
    """`k / (2 - k)`, NaN for a negative k or one of at least 2."""
    least = 4 * jnp.finfo(k.dtype).tiny  # so that half of it, in a cell, is no subnormal float
    k = jnp.where((k >= 0) & (k < least), least, k)
    k = jnp.where((k >= 0) & (k < 2), k, jnp.nan)
    return k / (2 - k)


def _values_and_length(x: Any) -> tuple[Float[Array, "L d"], Int[Array, ""]]:
    """The vectors of a series and their number. Raises ValueError for anything else."""
    is_padded = isinstance(x, tuple) and len(x) == 2
    values: Any = x[0] if is_padded else x
    if not eqx.is_array_like(values) or jnp.ndim(values) != 2:
        came = f"of shape {jnp.shape(values)}" if eqx.is_array_like(values) else f"{values!r}"
        raise ValueError(
            f"GlobalAlignment compares time series of shape (L, d), but a point is {came}: pass a "
            "batch of shape (n, L, d), or series of different lengths by GlobalAlignment.pad"
        )
    values = jnp.asarray(values)
    length: Any = x[1] if is_padded else len(values)
    return values, jnp.asarray(length, jnp.int32)
