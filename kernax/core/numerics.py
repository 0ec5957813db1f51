"""Squared distances, safe roots and the half-integer Matern functions: the numerics that every kernel stands on.

A squared distance is where kernel libraries lose their digits, their memory or their Hessians. Everything that guards
against that is in this file, so that a kernel can be its formula and nothing else.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, ArrayLike, PyTree

_UNROLLED = 8  # up to here the coordinates are summed one by one: exact, and as fast as a matrix product


def dot(a: PyTree, b: PyTree) -> Array:
    """`a . b` over every leaf, in full precision on every device (TF32 or bfloat16 products ruin a distance)."""
    products = jax.tree.map(lambda u, v: jnp.vdot(u, v, precision=lax.Precision.HIGHEST), a, b)
    return jnp.asarray(sum(jax.tree.leaves(products)))


def product(A: ArrayLike, B: ArrayLike) -> Array:
    """The matrix product in full precision on every device."""
    return jnp.matmul(A, B, precision=lax.Precision.HIGHEST)


def vectors(x: Any, z: Any, *parameters: Array) -> tuple[Array, Array]:
    """x and z as vectors of floats. ValueError unless they have one length d and every parameter is a scalar or of length d."""
    for point in (x, z):
        if not hasattr(point, "shape"):
            raise ValueError(
                f"this kernel compares vectors, but a point is a {type(point).__name__}: "
                "pick one part of a mixed point with On(kernel, where)"
            )
        if point.ndim == 0:
            raise ValueError(
                "this kernel compares vectors, but a point has shape (): a stack X of n numbers must have shape (n, 1); "
                "pass X[:, None]"
            )
    if x.ndim != 1 or z.ndim != 1 or x.shape != z.shape:
        raise ValueError(
            f"points must be vectors of one length, but x has shape {x.shape} and z has shape {z.shape}: "
            "pass stacks X (n, d) and Z (m, d) with the same d"
        )
    for parameter in parameters:
        if jnp.ndim(parameter) > 1 or jnp.shape(parameter) not in ((), x.shape):
            raise ValueError(
                f"a parameter has shape {jnp.shape(parameter)}, but points have shape {x.shape}: "
                f"pass a scalar or one value per dimension, shape {x.shape}"
            )
    return _as_floats(x), _as_floats(z)


def _as_floats(x: Any) -> Array:
    dtype = x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.result_type(float)
    return jnp.asarray(x).astype(dtype) + 0  # + 0: jit, vmap and custom_jvp together fail on constants of NumPy


def floored(lengthscale: Array) -> Array:
    """The lengthscale, no smaller than cbrt(tiny) (2e-13 in float32, 3e-103 in float64), NaN unless positive.

    Below that, `1 / lengthscale^2` overflows and the derivative of a kernel that is exactly zero would be 0 * inf.
    """
    smallest = float(jnp.finfo(lengthscale.dtype).tiny) ** (1 / 3)
    return jnp.where(lengthscale > 0, jnp.maximum(lengthscale, smallest), jnp.nan)


@custom_vmap
def _origin(x: Array, z: Array) -> Array:
    """Where a squared distance is measured from.

    One pair, or pairs batched together, are measured from z: the difference form, exact. Two stacks batched one inside the
    other are measured from the mean of the inner one, which is not batched, so that one matrix product remains.
    """
    return z


@_origin.def_vmap
def _origin_of_batch(size, batched, x, z):
    x_batched, z_batched = batched
    if z_batched:
        return (z, True) if x_batched else (jnp.mean(z, 0), False)
    return _origin(x[0], z), False  # a stack of x: one of them stands for it, should an outer level batch both


@jax.custom_jvp
def _sum_of_squares(x, z, lengthscale, origin):
    """`|(x - z) / lengthscale|^2` from the differences themselves, exact in value."""
    inverse = jnp.broadcast_to(1 / lengthscale, x.shape)  # a product for each pair, not a quotient
    if len(x) > _UNROLLED:
        return jnp.sum(((x - z) * inverse) ** 2)
    squares = [((a - b) * scale) ** 2 for a, b, scale in zip(jnp.unstack(x), jnp.unstack(z), jnp.unstack(inverse))]
    return jnp.asarray(sum(squares[1:], squares[0]))


@_sum_of_squares.defjvp
def _sum_of_squares_jvp(primals, tangents):
    # ds = 2 (u - v).(du - dv) with u = (x - origin) / l, v = (z - origin) / l, multiplied out: every factor belongs to one
    # point, so that two stacks need n^2 floats in the backward pass instead of n^2 d.
    (x, z, lengthscale, origin), (dx, dz, dl, _) = primals, tangents
    u, v = (x - origin) / lengthscale, (z - origin) / lengthscale
    du, dv = (dx - u * dl) / lengthscale, (dz - v * dl) / lengthscale
    return _sum_of_squares(*primals), dot(2 * u, du) + dot(-2 * u, dv) + dot(-2 * v, du) + dot(2 * v, dv)


def squared_distance(x: Any, z: Any, lengthscale: Array, *, rough: bool = False) -> Array:
    """`s = |(x - z) / lengthscale|^2` of two vectors (d,), lengthscale a scalar or one per dimension (d,).

    Up to d = 8, and for kernels that are not smooth at s = 0 (`rough`), where a root magnifies an error in s, the value is
    the sum of squared differences. Otherwise it is `x.x + z.z - 2 x.z`, for two stacks (under `vmap`) one matrix product,
    centred at the mean of the inner stack *before* dividing by the lengthscale, its value clamped at zero but not its
    derivative, so that Hessians at x = z are exact. The derivative is in the expanded, centred form in every case.

    In float32 the matrix product leaves an error of about `3e-7 reach^2` in s, reach = max |x - origin| / lengthscale: a Gram
    matrix is right to 1e-6 at a reach of 2, to 6e-5 at 10 and to 4e-4 at 30, worst between near neighbours far from the mean.
    Up to d = 8 it is right to 1e-6 everywhere.

    Raises ValueError for anything that is not two vectors of one length.
    """
    (x, z), lengthscale = vectors(x, z, lengthscale), floored(lengthscale)
    origin = _origin(lax.stop_gradient(x), lax.stop_gradient(z))
    if rough or len(x) <= _UNROLLED:
        return _sum_of_squares(x, z, lengthscale, origin)
    u, v = (x - origin) / lengthscale, (z - origin) / lengthscale
    s = dot(u, u) + dot(v, v) + dot(-2 * u, v)  # not -2 * dot(u, v): one n^2 cotangent serves all three terms
    return jnp.where(s < 0, s - lax.stop_gradient(s), s)


@jax.custom_jvp
def safe_sqrt(s: Array) -> Array:
    """`sqrt(s)` for s >= 0, with derivative zero instead of infinity at s = 0."""
    return jnp.sqrt(s)


@safe_sqrt.defjvp
def _safe_sqrt_jvp(primals, tangents):
    root = safe_sqrt(primals[0])
    return root, tangents[0] * jnp.where(root > 0, 1 / (2 * jnp.where(root > 0, root, 1)), 0)


@jax.custom_jvp
def safe_power(s: Array, p: Array) -> Array:
    """`s^p` for s >= 0 and p > 0. At s = 0 its slope is 1 for p = 1 and zero otherwise, never infinite."""
    return jnp.where(s > 0, jnp.exp(p * jnp.log(jnp.where(s > 0, s, 1))), 0)


@safe_power.defjvp
def _safe_power_jvp(primals, tangents):
    (s, p), (ds, dp) = primals, tangents
    log_s = jnp.log(jnp.where(s > 0, s, 1))
    power = safe_power(s, p)
    slope = jnp.where(s > 0, p * jnp.exp((p - 1) * log_s), jnp.where(p == 1, 1, 0).astype(power.dtype))
    return power, slope * ds + power * log_s * dp


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def matern(p: int, q: Array) -> Array:
    """The Matern function of order nu = p + 1/2, p in {0, 1, 2}, of `q = 2 nu s` (Rasmussen & Williams, eq. 4.16).

    As a function of the square it satisfies `dM_p/dq = -M_{p-1} / (2 (2p - 1))`, which stays exact at q = 0, where `sqrt`
    gives NaN second derivatives and a guarded `sqrt` wrong ones. For p = 0 the slope at q = 0 is infinite: zero is returned.
    """
    r = safe_sqrt(q)
    polynomial = (1, 1 + r, 1 + r + r * r / 3)[p]
    return polynomial * jnp.exp(-r)


@matern.defjvp
def _matern_jvp(p, primals, tangents):
    (q,), (dq,) = primals, tangents
    if p == 0:
        r = safe_sqrt(q)
        slope = jnp.where(r > 0, -jnp.exp(-r) / (2 * jnp.where(r > 0, r, 1)), 0)
    else:
        slope = -matern(p - 1, q) / (2 * (2 * p - 1))
    return matern(p, q), slope * dq


@jax.checkpoint  # 192 nodes per pair: recomputed in the backward pass rather than stored
def matern_of_any_order(nu: Array, q: Array) -> Array:
    """The Matern function `2^(1 - nu) / Gamma(nu) r^nu K_nu(r)`, `r = sqrt(q)`, smooth in nu as well as in q.

    It is the scale mixture `E[exp(-q / 4u)]` over u ~ Gamma(nu, 1). With u = exp(t) the integrand decays at least
    exponentially on both sides of its peak, so the trapezoid rule converges geometrically. About the peak,
    `exp(t) = (nu + kappa) / 2` with `kappa = sqrt(nu^2 + q)`, its logarithm falls by
    `kappa (cosh t - 1) + nu (sinh t - t)`, which bounds the window in closed form. Relative error below 1e-10 in
    float64 for nu >= 1/2, and about 1e-5 in float32 up to nu = 30.
    """
    dtype = q.dtype
    q = jnp.where((q > 0) | (nu > 1), q, 0)  # for nu <= 1 the slope at q = 0 is infinite: zero is returned
    digits, count = (38, 192) if dtype == jnp.float64 else (18, 64)
    kappa = jnp.sqrt(nu**2 + q)
    peak = jnp.log((nu + kappa) / 2)
    excess = q / (kappa + nu)  # kappa - nu, without cancellation

    def window(nu, kappa, excess):
        tiny = jnp.finfo(dtype).tiny
        right = jnp.arccosh(1 + digits / kappa)
        left = jnp.minimum(digits / nu + 1, jnp.arccosh(1 + digits / jnp.maximum(excess, tiny ** (1 / 4))))
        return -left, (left + right) / (count - 1)

    start, step = lax.stop_gradient(window(nu, kappa, excess))
    t = start + step * jnp.arange(count, dtype=dtype)
    exponent = nu * (peak + t) - jnp.exp(peak + t) - q / 4 * jnp.exp(-peak - t)
    value = step * jnp.sum(jnp.exp(exponent - lax.lgamma(nu)))
    slope = jnp.where(nu > 1, 1 / (4 * jnp.where(nu > 1, nu - 1, 1)), 0)  # -dM/dq at q = 0, where the tail outgrows the window
    return jnp.where(q == 0, 1 - slope * q, value)


def split_by_tangent(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The primals that have a tangent, and the others."""
    return eqx.partition(primals, jax.tree.map(lambda t: t is not None, tangents, is_leaf=lambda t: t is None))


def is_concrete(*trees: PyTree) -> bool:
    """Whether no array in the trees is being traced."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def stopped(tree: PyTree) -> Any:
    """`lax.stop_gradient` for any pytree, functions among its leaves included."""
    return jax.tree.map(lambda leaf: lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, tree)
