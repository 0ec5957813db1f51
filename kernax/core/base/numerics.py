"""Numerics that every kernel uses: squared distances, safe roots.

Naive squared distances lose digits, take much memory or have wrong Hessians. This file prevents
that, so that a kernel can consist of its formula alone.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from kernax._advice import WITH_BATCHES
from kernax.core.base.annotations import ArrayLike
from kernax.core.base.compiled import is_staging
from kernax.core.base.derivatives import custom_jvp, with_zeros

# Up to this many coordinates are summed one by one, which is exact and as fast as a matrix product.
_UNROLLED = 8
# Differences have no matrix product to fall back on. Over more coordinates, a loop is as fast.
_UNROLLED_DIFFERENCES = 32
# The algorithms of `jax.lax.DotAlgorithmPreset` that split factors in float32 into two or three
# shorter numbers, and lose at most one digit.
_SPLIT = ("TF32_TF32_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9")


def dot(a: PyTree, b: PyTree) -> Array:
    """`a . b` over every leaf, in full precision on every device.

    Products in TF32 or bfloat16 would ruin a distance.
    """
    products = jax.tree.leaves(jax.tree.map(_dot_of_leaves, a, b))
    return jnp.asarray(sum(products[1:], products[0]) if products else 0)


def _dot_of_leaves(u: Array, v: Array) -> Array:
    """`u . v` of two arrays, as one operation for two vectors."""
    if jnp.shape(u) == jnp.shape(v) == (jnp.size(u),) and jnp.result_type(u) == jnp.result_type(v):
        return lax.dot(u, v, precision=lax.Precision.HIGHEST)
    return jnp.vdot(u, v, precision=lax.Precision.HIGHEST)


def matmul(A: ArrayLike, B: ArrayLike) -> Array:
    """The matrix product in full precision on every device."""
    return jnp.matmul(A, B, precision=lax.Precision.HIGHEST)


def requested_precision(dtype: Any) -> lax.Precision | str:
    """The precision of a product with features, centres or coefficients: full precision, unless
    `jax.default_matmul_precision` names an algorithm that splits float32 on a GPU.
    """
    requested = jax.config.jax_default_matmul_precision  # pyright: ignore
    # XLA has such algorithms on a CPU only for some products, and they would not be faster there.
    is_split = dtype == jnp.float32 and requested in _SPLIT and jax.default_backend() == "gpu"
    return requested if is_split else lax.Precision.HIGHEST


def requested_matmul(A: Array, B: Array) -> Array:
    """The matrix product in the precision that the user requested, by default full precision."""
    return jnp.matmul(A, B, precision=requested_precision(jnp.result_type(A, B)))


def main_diagonal(A: Float[Array, "n n"]) -> Float[Array, " n"]:
    """`A_ii`: like `jnp.diagonal`, with a tenth of its operations and none on all of A."""
    # A slice of the flat matrix would keep one more matrix in memory.
    return lax.gather(
        A,
        lax.broadcasted_iota(jnp.int32, (len(A), 2), 0),  # (i, i)
        lax.GatherDimensionNumbers(
            offset_dims=(), collapsed_slice_dims=(0, 1), start_index_map=(0, 1)
        ),
        slice_sizes=(1, 1),
        indices_are_sorted=True,
        unique_indices=True,
        mode=lax.GatherScatterMode.PROMISE_IN_BOUNDS,
    )


def plus_diagonal(A: Float[Array, "n n"], diagonal: Float[Array, "*n"]) -> Float[Array, "n n"]:
    """`A + diag(diagonal)`, for a vector or a number."""
    # A_ij + d_i for all j, of which i = j is used: one selection in place of a scatter.
    everywhere = A + jnp.broadcast_to(diagonal, len(A))[:, None]
    i, j = rows_and_columns(len(A), diagonal)
    return lax.select(i == j, everywhere, A)


def rows_and_columns(
    n: int, of_loop: Array | None = None
) -> tuple[Int[Array, "n n"], Int[Array, "n n"]]:
    """The row i and the column j of each entry of a matrix.

    Inside of a loop, such as that over jitter, `of_loop` is an array that changes there. XLA then
    compares i and j where that is used; otherwise it would do so before the loop, and store n^2
    booleans, with two kernels more to compile.
    """
    i, j = (lax.broadcasted_iota(jnp.int32, (n, n), axis) for axis in (0, 1))
    if of_loop is None:
        return i, j
    zero, _ = lax.optimization_barrier((np.zeros((), np.int32), stop_gradient(of_loop)))
    return i, j + zero


def expand_to(vector: Array, columns: Array) -> Array:
    """A vector (n,) in a shape that multiplies several columns (n, p), or one column (n,)."""
    return vector.reshape(-1, *[1] * (columns.ndim - 1))


def vectors(x: Any, z: Any, *parameters: Array) -> tuple[Array, Array]:
    """x and z as vectors of floats, both of length d.

    Raises ValueError for other points, and unless every parameter is a scalar or of length d.
    """
    _check_array(x)
    _check_array(z)
    if x.ndim != 1 or z.ndim != 1 or x.shape != z.shape:
        advice = "pass batches X (n, d) and Z (m, d) with the same d"
        if x.ndim > 1 or z.ndim > 1:
            advice = WITH_BATCHES
        raise ValueError(
            f"points must be vectors of one length, but x has shape {x.shape} and z has shape "
            f"{z.shape}: {advice}"
        )
    for parameter in parameters:
        if jnp.shape(parameter) not in ((), x.shape):
            raise ValueError(
                f"a parameter has shape {jnp.shape(parameter)}, but points have shape {x.shape}: "
                f"pass a scalar or one value per dimension, shape {x.shape}"
            )
    floats = _as_floats(x)
    # A point with itself stays one array.
    return floats, floats if x is z else _as_floats(z)


def _check_array(point: Any) -> None:
    """Raises ValueError for a point that is not an array, or is a single number."""
    if not hasattr(point, "shape"):
        raise ValueError(
            f"this kernel compares vectors, but a point is a {type(point).__name__}: "
            "select one part of a mixed point with On(kernel, where)"
        )
    if point.ndim == 0:
        raise ValueError(
            "this kernel compares vectors, but a point has shape (): a batch X of n numbers must "
            "have shape (n, 1); pass X[:, None]"
        )


def _as_floats(x: Any) -> Array:
    """An array, converted to the default float if it has integers or booleans."""
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.result_type(float)
    # + 0: jit, vmap and custom_jvp together fail on constants of NumPy.
    return jnp.asarray(x).astype(dtype) + 0


def floored(lengthscale: Array) -> Array:
    """`max(lengthscale, cbrt(tiny))`, NaN unless the lengthscale is positive.

    For smaller values (below 2e-13 in float32, 3e-103 in float64), `1 / lengthscale^2` overflows,
    and the derivative of a kernel that is exactly zero would be 0 * inf.
    """
    smallest = least_lengthscale(lengthscale.dtype)
    raised = where_or(lengthscale > smallest, lengthscale, smallest)
    return where_or(lengthscale > 0, raised, jnp.nan)


def least_lengthscale(dtype: Any) -> float:
    """The smallest effective lengthscale; `floored` raises smaller ones to it."""
    return float(jnp.finfo(dtype).tiny) ** (1 / 3)


def turns(x: Array, z: Array, period: Array) -> Array:
    """`(x - z) / period`, a constant for derivatives where rounding has lost the phase.

    From `1 / (32 eps)` turns on, where the error is a fifth of a radian, the derivative in the
    period, `turns / period`, multiplies noise by a large number, and overflows.
    """
    period = floored(period)
    raw = (x - z) / period
    is_lost = lax.stop_gradient(jnp.abs(raw)) > 1 / (32 * eps_of(raw))
    exact = _ratio(x - z, jnp.where(is_lost, 1, period))
    return jnp.where(is_lost, lax.stop_gradient(raw), exact)


@custom_jvp
def _ratio(a: Array, b: Array) -> Array:
    """`a / b` with second derivatives that divide by b^2. A division by b^3, which overflows for
    small b, would make them NaN where a is zero.
    """
    return a / b


@_ratio.def_jvp
def _ratio_jvp(primals, tangents):
    (a, b) = primals
    (da, db) = with_zeros(primals, tangents)
    # d(a / b) = da / b - (a / b) db / b.
    inverse = 1 / b
    ratio = _ratio(a, b)
    return ratio, da * inverse - ratio * (inverse * db)


@custom_vmap
def origin_of_pairs(x: Array, z: Array) -> Array:
    """The origin from which a squared distance is measured.

    One pair, or pairs batched together, are measured from z, the exact difference form. Two nested
    batches are measured from the mean of the inner one, which is not batched, so that one matrix
    product remains.
    """
    return z


@origin_of_pairs.def_vmap
def _origin_of_batch(size, batched, x, z):
    x_batched, z_batched = batched
    if z_batched:
        return (z, True) if x_batched else (jnp.mean(z, 0), False)
    # Any x of a batch serves, because x only indicates an outer level of batching.
    return origin_of_pairs(x[0], z), False


def of_pair(parameter: Array, x: PyTree, z: PyTree) -> Array:
    """A number that all pairs of points share, as one of this pair: the same number, with a
    derivative that is spread over the points.
    """
    return parameter if is_concrete(parameter) else _of_pair(parameter, x, z)


@custom_jvp
def _of_pair(parameter, x, z):
    return parameter


@_of_pair.def_tangents
def _of_pair_tangents(parameter, primals, tangents):
    (_, x, z) = primals
    return None if tangents[0] is None else spread(tangents[0], x, z)


def spread(tangent: Array, *points: PyTree) -> Array:
    """The tangent of a number that all points share, as one copy for each point.

    It does not change, but its transpose, a sum over batches of the points, becomes a product with
    ones, which XLA fuses with its factors on a CPU. A sum over a matrix takes several times as long
    there, and stores the factors. Each point is spread over its innermost batch.
    """
    for point in points:
        if not is_concrete(point):
            one = _one_of(lax.stop_gradient(jax.tree.leaves(point)[0])).astype(tangent.dtype)
            tangent = lax.dot(one[None], tangent[None], precision=lax.Precision.HIGHEST)
    return tangent


@custom_vmap
def _one_of(leaf: Array) -> ArrayLike:
    """One, for each member of a batch."""
    return np.ones((), jnp.result_type(float))


@_one_of.def_vmap
def _one_of_each(size, batched, leaf):
    return jnp.ones(size), True


@custom_jvp
def _sum_of_squares(x, z, lengthscale):
    """`|(x - z) / lengthscale|^2` from the differences.

    The derivative in the lengthscale alone is exact. Others are expanded around an origin, which is
    as fast as a matrix product but loses `eps reach^2`.
    """
    return _squares_of_differences(x, z, lengthscale)


@_sum_of_squares.def_jvp
def _sum_of_squares_jvp(primals, tangents):
    (x, z, lengthscale) = primals
    (dx, dz, dl) = tangents
    s = _sum_of_squares(*primals)
    if dx is None and dz is None and dl is not None:
        return s, _in_lengthscale(s, x, z, lengthscale, dl)
    # ds = 2 (u - v).(du - dv) with u = (x - origin) / l, v = (z - origin) / l, expanded: every
    # factor belongs to one point, so that two batches need n^2 floats in the backward pass instead
    # of n^2 d.
    origin = origin_of_pairs(lax.stop_gradient(x), lax.stop_gradient(z))
    u = (x - origin) / lengthscale
    v = (z - origin) / lengthscale
    du = _of_scaled(u, lengthscale, dx, dl)
    dv = _of_scaled(v, lengthscale, dz, dl)
    ds = [dot(2 * u, du) + dot(-2 * v, du)] if du is not None else []
    ds += [dot(-2 * u, dv) + dot(2 * v, dv)] if dv is not None else []
    return s, sum(ds[1:], ds[0]) if ds else _start(None, s)


def _of_scaled(u, lengthscale, dx, dl):
    """The tangent of `u = (x - origin) / l`, None if x and l are constant."""
    # du = (dx - u dl) / l; the origin is a constant.
    if dl is None:
        return None if dx is None else dx / lengthscale
    return (-u * dl if dx is None else dx - u * dl) / lengthscale


def _squares_of_differences(x, z, lengthscale):
    """`|(x - z) / lengthscale|^2` from the differences, exact in value."""
    inverse = 1 / lengthscale  # one product for each pair, no quotient
    if len(x) > _UNROLLED_DIFFERENCES:
        return jnp.sum(((x - z) * inverse) ** 2)
    scales = jnp.unstack(inverse) if jnp.ndim(inverse) else [inverse] * len(x)
    squares = [
        ((a - b) * scale) ** 2 for a, b, scale in zip(jnp.unstack(x), jnp.unstack(z), scales)
    ]
    return jnp.asarray(sum(squares[1:], squares[0]))


@custom_jvp
def _exact_sum_of_squares(x, z, lengthscale):
    """`|(x - z) / lengthscale|^2` and its derivatives from the differences, all exact to rounding,
    however close the two points are.
    """
    return _squares_of_differences(x, z, lengthscale)


@_exact_sum_of_squares.def_jvp
def _exact_sum_of_squares_jvp(primals, tangents):
    # ds = 2 w.(dx - dz - w dl) / l with w = (x - z) / l. The differences of all pairs would be n^2
    # d floats, so the backward pass computes them again, one coordinate at a time, and once for
    # each argument, because XLA would store n^2 floats that two sums over pairs share.
    (x, z, lengthscale) = primals
    (dx, dz, dl) = tangents
    s = _exact_sum_of_squares(*primals)
    ds = None if dl is None else _in_lengthscale(s, x, z, lengthscale, dl)
    inverse = jnp.broadcast_to(1 / lengthscale, x.shape)
    if len(x) == 1 and dx is not None and dz is not None:
        in_both = _in_first_point(x[0], z[0], inverse[0], dx[0] - dz[0])
        return s, in_both if ds is None else ds + in_both
    if dx is not None:
        ds = sum_over_coordinates(_in_first_point, _start(ds, s), (x, z, inverse, dx))
    if dz is not None:
        ds = sum_over_coordinates(_in_first_point, _start(ds, s), (z, x, inverse, dz))
    return s, _start(ds, s)


def _in_lengthscale(s, x, z, lengthscale, dl):
    """`-2 sum_k w_k^2 dl_k / l_k` with w = (x - z) / l; for one lengthscale `-2 s dl / l`."""
    relative = dl / lengthscale
    if len(x) == 1 or jnp.ndim(lengthscale) == 0:
        return _zero_where_infinite(s) * spread(-2 * jnp.sum(relative), x, z)
    terms = (x, z, 1 / lengthscale, -2 * relative)
    return sum_over_coordinates(_in_one_lengthscale, _start(None, s), terms)


def _start(total: Array | None, s: Array) -> Array:
    """The initial value of a sum; without one it is zero, which varies over a mesh as s does."""
    return jnp.where(jnp.isnan(s), s, 0) if total is None else total


def sum_over_coordinates(term: Callable, start: Array, vectors: tuple[Array, ...]) -> Array:
    """`start + sum_k term(vectors at k)`; the backward pass stores only the vectors."""
    if len(vectors[0]) == 1:
        return start + term(*(vector[0] for vector in vectors))
    return lax.scan(lambda total, at: (total + term(*at), None), start, vectors)[0]


@jax.checkpoint
def _in_first_point(x, z, inverse, dx):
    """`2 w dx / l` for one coordinate, w = (x - z) / l."""
    return 2 * ((x - z) * inverse) * (inverse * dx)


@jax.checkpoint
def _in_one_lengthscale(x, z, inverse, scale):
    """`scale w^2` for one coordinate, w = (x - z) / l."""
    return _zero_where_infinite(((x - z) * inverse) ** 2) * spread(scale, x, z)


def _zero_where_infinite(s):
    """A factor s of a derivative, zero where s has overflowed: a kernel that is zero there has the
    derivative zero, but 0 * inf is NaN.
    """
    return lax.select(s == jnp.inf, jnp.zeros_like(s), s)


def squared_distance(x: Any, z: Any, lengthscale: Array, *, rough: bool = False) -> Array:
    """`s = |(x - z) / lengthscale|^2` of two vectors (d,), lengthscale a scalar or (d,).

    For d = 1, and for kernels that are not smooth at s = 0 (`rough`), which magnify errors in s
    without bound, value and derivatives are sums over differences, exact to rounding. Up to d = 8
    the value for smooth kernels is the sum of squared differences as well, and so is the derivative
    in the lengthscale if the points are constant. Otherwise it is `x.x + z.z - 2 x.z`, one matrix
    product for two batches (under `vmap`). It is centred at the mean of the inner batch *before*
    dividing by the lengthscale. Its value is clamped at zero, but not its derivative, so that
    Hessians at x = z are exact. Other derivatives for smooth kernels have this expanded, centred
    form for all d > 1, with an error of `eps reach^2`.

    In float32 the matrix product has an error of about `3e-7 reach^2` in s, with reach = max |x -
    origin| / lengthscale. A Gram matrix is accurate to 1e-6 at a reach of 2, to 6e-5 at 10 and to
    4e-4 at 30, with the largest errors between near neighbours far from the mean. Up to d = 8 it is
    accurate to 1e-6 everywhere.

    Raises ValueError for anything that is not two vectors of one length.
    """
    (x, z) = vectors(x, z, lengthscale)
    lengthscale = floored(lengthscale)
    if x is z:
        return _without_distance(x, lengthscale)
    if rough or len(x) == 1:
        return _exact_sum_of_squares(x, z, lengthscale)
    if len(x) <= _UNROLLED:
        return _sum_of_squares(x, z, lengthscale)
    origin = origin_of_pairs(lax.stop_gradient(x), lax.stop_gradient(z))
    u = (x - origin) / lengthscale
    v = (z - origin) / lengthscale
    # Written without -2 * dot(u, v), so that one n^2 cotangent serves all three terms.
    s = dot(u, u) + dot(v, v) + dot(-2 * u, v)
    # Clip negative rounding, but keep the derivative of s.
    return jnp.where(s < 0, s - lax.stop_gradient(s), s)


def squared_distance_by_products(x: Any, z: Any, lengthscale: Array) -> Array:
    """`squared_distance` of a rough kernel, with derivatives in the expanded, centred form.

    Between two batches (under `vmap`) derivatives are matrix products, which for d = 20 take a
    twentieth of the time of sums over differences. Their error is that of rounding the points:
    relatively `eps |x - origin| / |x - z|` for a pair. The value is exact to rounding.

    Raises ValueError for anything that is not two vectors of one length.
    """
    (x, z) = vectors(x, z, lengthscale)
    lengthscale = floored(lengthscale)
    return _without_distance(x, lengthscale) if x is z else _sum_of_squares(x, z, lengthscale)


def _without_distance(x, lengthscale):
    """The squared distance of a point from itself: zero, or NaN if an entry of the point is not
    finite or a lengthscale is NaN.
    """
    return jnp.sum((x - x) / lengthscale)


@custom_jvp
def safe_sqrt(s: Array) -> Array:
    """`sqrt(s)` for s >= 0, with derivative zero instead of infinity at s = 0."""
    return jnp.sqrt(s)


@safe_sqrt.def_jvp
def _safe_sqrt_jvp(primals, tangents):
    # d sqrt(s) = ds / (2 sqrt(s)).
    root = safe_sqrt(primals[0])
    return root, tangents[0] * jnp.where(root > 0, 1 / (2 * positive_or_one(root)), 0)


@custom_jvp
def stretched_exponential(s: Array, p: Array) -> Array:
    """`exp(-s^p)` for s >= 0 and p > 0, with slope 0 instead of infinity at s = 0 where p < 1, and
    constant where s has overflowed.
    """
    # For a small p the value at the largest float is far from exp(-inf^p) = 0.
    s = jnp.minimum(s, jnp.finfo(s.dtype).max)
    return jnp.exp(-jnp.exp(p * jnp.log(s)))


@stretched_exponential.def_jvp
def _stretched_exponential_jvp(primals, tangents):
    # The derivative in s is -p s^(p - 1) exp(-s^p), and in p -log(s) s^p exp(-s^p), each with one
    # exponential: with s^p and s^(p - 1) separate, the gradient of a sum over pairs would store one
    # more matrix.
    (s, p) = primals
    (ds, dp) = with_zeros(primals, tangents)
    # Bounded, because (p - 1) log(inf) is NaN for p = 1, and so is log(inf) exp(-inf).
    s = jnp.minimum(s, jnp.finfo(s.dtype).max)
    log_s = jnp.log(positive_or_one(s))
    power = jnp.exp(p * log_s)
    slope = jnp.where(
        s > 0, -p * jnp.exp((p - 1) * log_s - power), jnp.where(p == 1, -jnp.exp(-s), 0)
    )
    in_p = -log_s * jnp.exp(p * log_s - power)
    return stretched_exponential(*primals), slope * ds + in_p * dp


@custom_jvp
def exponential_or_constant(t: Array) -> Array:
    """`exp(t)`, with derivative zero where it overflows."""
    return jnp.exp(t)


@exponential_or_constant.def_jvp
def _exponential_or_constant_jvp(primals, tangents):
    # d exp(t) = exp(t) dt.
    (t,) = primals
    (dt,) = tangents
    value = exponential_or_constant(t)
    return value, _zero_where_infinite(value) * dt


def where_or(condition: Array, x: Array, otherwise: float) -> Array:
    """`jnp.where(condition, x, otherwise)` for floats x, a condition that is a scalar or has the
    shape of x, and a number, in one operation for a scalar x where `jnp.where` takes three.
    """
    return lax.select(condition, x, jnp.full_like(x, otherwise))


def where(condition: Array, yes: Any, no: Any) -> Array:
    """`jnp.where` of arrays, in one operation for arrays of one shape and dtype where `jnp.where`
    takes two.
    """
    shape = jnp.shape(yes)
    fit = jnp.shape(no) == shape and jnp.shape(condition) in ((), shape)
    if fit and jnp.result_type(yes) == jnp.result_type(no):
        return lax.select(condition, yes, no)
    return jnp.where(condition, yes, no)


def tree_where(condition: Array, yes: PyTree, no: PyTree) -> Any:
    """`jnp.where` for each pair of arrays of two trees of one structure."""
    return jax.tree.map(partial(where, condition), yes, no)


def positive_or_one(x: Array) -> Array:
    """x where it is positive, one elsewhere: a safe divisor of numbers that are zero where x is."""
    return where_or(x > 0, x, 1.0)


def place_of_largest(values: Float[Array, "*n c"]) -> Int[Array, "*n"]:
    """The index of the largest number along the last axis, or -1 if one of them is NaN."""
    is_unknown = jnp.any(jnp.isnan(values), -1)
    return jnp.where(is_unknown, -1, jnp.argmax(values, -1))


def eps_of(x: Any) -> float:
    """The rounding unit eps of an array, or of a dtype."""
    return float(jnp.finfo(jnp.result_type(x)).eps)


def is_concrete(*trees: PyTree) -> bool:
    """Whether no array in the trees is being traced."""
    for leaf in jax.tree.leaves(trees):  # noqa: SIM110, as every call asks this several times
        if isinstance(leaf, jax.core.Tracer):
            return False
    return True


def known_value(array: Any) -> Any:
    """An array that is not being traced, or is only being differentiated, without its derivative;
    None if its value is not known yet.
    """
    if is_concrete(array):
        return array
    value = None if is_staging() else lax.stop_gradient(array)
    if value is None or not is_concrete(value):  # a member of a batch
        return None
    return value if isinstance(value, jax.Array) else np.asarray(value)


def as_array(value: Any) -> Array:
    """`jnp.asarray(value)`, which would compile a program for each shape of arrays of NumPy, and
    under `jax.grad` for each shape of arrays of JAX.
    """
    if isinstance(value, jax.Array):
        return value
    is_of_numpy = isinstance(value, (np.ndarray, np.generic))
    if is_of_numpy and not isinstance(value, np.ma.MaskedArray) and not is_staging():
        # A copy, as JAX may keep the memory of the array that it is given.
        return jax.device_put(np.array(value))
    return jnp.asarray(value)


def strongly_typed(array: Array, dtype: Any) -> Array:
    """An array in a dtype, without a weak type, which would make `jit` compile again.

    Under `jax.grad` it would be a program of its own for an array that is so already.
    """
    if array.dtype == dtype and not array.weak_type:
        return array
    return lax.convert_element_type(array, dtype)


def values_of(array: Any) -> np.ndarray:
    """A concrete array as a NumPy array, even if other processes have parts of it; all processes
    must call this, and each gets the whole array.
    """
    if getattr(array, "is_fully_addressable", True):
        return np.asarray(array)
    whole = NamedSharding(array.sharding.mesh, PartitionSpec())
    with jax.ensure_compile_time_eval():
        return np.asarray(jax.jit(lambda array: array, out_shardings=whole)(array))


def stop_gradient(tree: PyTree) -> Any:
    """`lax.stop_gradient` for the arrays in any pytree; other leaves are unchanged."""
    return jax.tree.map(
        lambda leaf: lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, tree
    )


def sums_and_maxima(
    sums: Sequence[Array], maxima: Sequence[Array]
) -> tuple[list[Array], list[Array]]:
    """The sum of each vector of one list, and the largest entry of each vector of another, in one
    loop over the points.

    On a CPU XLA compiles three programs for each `jnp.sum` or `jnp.max`, and one for this. All
    vectors have the same length. A sum of floats is exact up to one rounding and eps^2 times the
    sum of the absolute values. Derivatives treat the results as constants.
    """
    sums, maxima = stop_gradient((list(sums), list(maxima)))
    zeros = [jnp.zeros_like(v) for v in sums]
    operands = (*sums, *zeros, *maxima)
    # The neutral element of the maximum: minus infinity, or False.
    lowest = [np.array(False if v.dtype == bool else -np.inf, v.dtype) for v in maxima]
    start = (*(np.zeros((), v.dtype) for v in (*sums, *zeros)), *lowest)
    k = len(sums)

    def combined(a, b):
        totals = [lax.add(p, q) for p, q in zip(a[:k], b[:k])]
        # The rounding error of t = p + q is (p - (t - (t - p))) + (q - (t - p)) (Knuth's two-sum).
        parts = [lax.sub(t, p) for t, p in zip(totals, a[:k])]
        errors = [
            lax.add(lax.sub(p, lax.sub(t, part)), lax.sub(q, part))
            for t, part, p, q in zip(totals, parts, a[:k], b[:k])
        ]
        lost = [lax.add(lax.add(p, q), e) for p, q, e in zip(a[k : 2 * k], b[k : 2 * k], errors)]
        return (*totals, *lost, *(lax.max(p, q) for p, q in zip(a[2 * k :], b[2 * k :])))

    reduced = lax.reduce(operands, start, combined, (0,))
    totals, lost = reduced[:k], reduced[k : 2 * k]
    # An infinite sum has an error of NaN.
    exact = [lax.select(jnp.isfinite(t), t + e, t) for t, e in zip(totals, lost)]
    return exact, list(reduced[2 * k :])


def sum_of_rows(A: Float[Array, "m n"]) -> Float[Array, " n"]:
    """The sum over the first axis as a product, in a third of the time of XLA's sum on a CPU."""
    return matmul(jnp.ones(len(A), A.dtype), A)
