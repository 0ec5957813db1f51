"""Kernels of R^d that change when both points move together, and are not functions of inner products alone.

GPML is Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.functions import as_module
from kernax.core.kernel import AbstractKernel, as_kernel
from kernax.core.numerics import dot, floored, safe_sqrt, squared_distance, vectors
from kernax.core.parameters import check_count, data, integer, positive, real
from kernax.core.spectral import Eigenpairs


def _numbers(x: Any, z: Any) -> tuple[Array, Array]:
    """Two points of shape (1,) as scalars."""
    x, z = vectors(x, z)
    if len(x) != 1:
        raise ValueError(f"this kernel compares numbers, but points have shape {x.shape}: pick one with On(kernel, dimension)")
    return x[0], z[0]


class SineBasis(eqx.Module):
    """`sqrt(2) sin(frequencies x)` of a point of shape (1,) in [0, 1], shape (count,); NaN outside."""

    frequencies: Float[Array, " count"] = data()

    def __call__(self, x: Array) -> Array:
        t, _ = _numbers(x, x)
        inside = (t >= 0) & (t <= 1)
        return jnp.where(inside, 2**0.5 * jnp.sin(self.frequencies.astype(t.dtype) * t), jnp.nan)


class Brownian(AbstractKernel):
    """`min(x, z)` for x, z >= 0, of shape (1,), and NaN below: the covariance of Brownian motion, in units of x.

    Its functions have f(0) = 0 and `|f|^2 = integral f'(t)^2 dt` (Wahba 1990, section 1.2). The derivative returned at x = z is
    the mean of those to the left and to the right.
    """

    def __call__(self, x, z):
        x, z = _numbers(x, z)
        smaller = jnp.minimum(x, z)
        return jnp.where(smaller >= 0, smaller, jnp.nan)

    def eigenpairs(self, count: int) -> Eigenpairs:
        """The `count` largest eigenvalues of f -> `integral_0^1 k(., t) f(t) dt`, and their functions, orthonormal on [0, 1].

        `4 / ((2j - 1)^2 pi^2)` and `sqrt(2) sin((2j - 1) pi x / 2)`, j = 1, 2, ...: values (count,), and a function from a
        point to (count,). By Mercer's theorem `k(x, z) = sum_j values_j f_j(x) f_j(z)` on [0, 1].
        """
        frequencies = (jnp.arange(check_count(count, "count"), dtype=float) + 0.5) * jnp.pi
        return Eigenpairs(1 / frequencies**2, SineBasis(frequencies))


class BrownianBridge(AbstractKernel):
    """`min(x, z) - x z` for x, z in [0, 1], of shape (1,), and NaN outside: Brownian motion that ends at f(1) = 0.

    Its functions have f(0) = f(1) = 0 and `|f|^2 = integral_0^1 f'(t)^2 dt`. The derivative returned at x = z is the mean of
    those to the left and to the right.
    """

    def __call__(self, x, z):
        x, z = _numbers(x, z)
        smaller, larger = jnp.minimum(x, z), jnp.maximum(x, z)
        return jnp.where((smaller >= 0) & (larger <= 1), smaller * (1 - larger), jnp.nan)

    def eigenpairs(self, count: int) -> Eigenpairs:
        """As `Brownian.eigenpairs`: `1 / (j pi)^2` and `sqrt(2) sin(j pi x)`, j = 1, 2, ..."""
        frequencies = (jnp.arange(check_count(count, "count"), dtype=float) + 1) * jnp.pi
        return Eigenpairs(1 / frequencies**2, SineBasis(frequencies))


class IntegratedBrownian(AbstractKernel):
    """`m^2 (3 M - m) / 6`, m = min(x, z), M = max(x, z), for x, z >= 0, of shape (1,), and NaN below (GPML eq. 6.28).

    The covariance of the integral of Brownian motion, in cubed units of x. Its functions have f(0) = f'(0) = 0 and
    `|f|^2 = integral f''(t)^2 dt`; with a large multiple of `Linear() + 1.0` added, ridge regression is the smoothing spline.
    """

    def __call__(self, x, z):
        x, z = _numbers(x, z)
        cubic = lambda m, M: m * m * (2 * M + (M - m)) / 6  # 3 M - m would round otherwise where a processor fuses it
        value = jnp.where(x <= z, cubic(x, z), cubic(z, x))  # not of minimum and maximum: their Hessians at x = z are wrong
        return jnp.where(jnp.minimum(x, z) >= 0, value, jnp.nan)


def _lengthscale_function(lengthscale: Any) -> Any:
    if not callable(lengthscale):
        raise ValueError(
            f"lengthscale must be a function of a point, but is {lengthscale!r}: a lengthscale that is the same everywhere "
            "is that of RBF"
        )
    return as_module(lengthscale)


class Gibbs(AbstractKernel):
    """`prod_d sqrt(2 l_d l'_d / (l_d^2 + l'_d^2)) exp(-sum_d (x_d - z_d)^2 / (l_d^2 + l'_d^2))`, l = lengthscale(x),
    l' = lengthscale(z): an RBF whose lengthscale changes from place to place (Gibbs 1997; GPML eq. 4.32).

    `lengthscale` is a function of a point, or a module with parameters of its own, and gives a positive number or one for
    each dimension (d,), in units of x; where it is not positive the kernel is NaN. A constant one is `RBF(lengthscale)`.
    """

    lengthscale: Callable = eqx.field(converter=_lengthscale_function)

    def __call__(self, x, z):
        x, z = vectors(x, z)
        a, b = self._at(x), self._at(z)
        total = a * a + b * b
        overlap = jnp.broadcast_to(2 * (a * b) / total, x.shape)
        return jnp.prod(safe_sqrt(overlap)) * jnp.exp(-jnp.sum((x - z) ** 2 / total))

    def _at(self, x: Array) -> Array:
        lengthscale = jnp.asarray(self.lengthscale(x))
        if lengthscale.shape not in ((), x.shape):
            raise ValueError(
                f"lengthscale(x) must be a scalar or have shape {x.shape}, one for each dimension, but has shape "
                f"{lengthscale.shape}"
            )
        return floored(lengthscale.astype(x.dtype))


class ChangePoint(AbstractKernel):
    """`(1 - s(x)) before(x, z) (1 - s(z)) + s(x) after(x, z) s(z)`, `s(x) = sigmoid((x_dimension - location) / width)`.

    One kernel gives way to another: far below `location` it is `before`, far above it `after` (Saatci, Turner & Rasmussen
    2010, there with a sudden change, which is width -> 0). `location` and `width` > 0 are in units of that dimension of x.
    """

    before: AbstractKernel = eqx.field(converter=as_kernel)
    after: AbstractKernel = eqx.field(converter=as_kernel)
    location: Float[Array, ""] = real()
    width: Float[Array, ""] = positive(default=1.0)
    dimension: int = integer("dimension", least=0, default=0)

    def __call__(self, x, z):
        u, v = (self._time(point) for point in vectors(x, z))
        early = jax.nn.sigmoid(-u) * jax.nn.sigmoid(-v)
        return early * self.before(x, z) + jax.nn.sigmoid(u) * jax.nn.sigmoid(v) * self.after(x, z)

    def _time(self, x: Array) -> Array:
        if self.dimension >= len(x):
            raise ValueError(f"ChangePoint switches along dimension {self.dimension}, but points have shape {x.shape}")
        return (x[self.dimension] - self.location) / self.width


class ArcCosine(AbstractKernel):
    r"""`(|x| |z|)^order J(theta) / pi`, theta the angle between x and z, `J` for orders 0, 1, 2 (Cho & Saul 2009, section 2)

        pi - theta,    sin theta + (pi - theta) cos theta,    3 sin theta cos theta + (pi - theta) (1 + 2 cos^2 theta):

    twice the mean of `h(w.x) h(w.z)` over normal w, h a step, a ramp `max(0, t)` or its square: an infinitely wide layer of a
    network. k(x, x) is 1, `|x|^2`, `3 |x|^4`. A bias is one more dimension, constant.

    Exact to rounding for parallel and opposite points. A point of norm zero gives 0, and for order 0, the step at zero counted
    half, 1/2. Order 0 has no derivative where theta is 0 or pi (zero is returned), nor at norm zero.
    """

    order: int = integer("order", least=0, default=1)

    def __check_init__(self):
        if self.order > 2:
            raise ValueError(f"order must be 0, 1 or 2, but is {self.order}")

    def __call__(self, x, z):
        # J = pi/2 (1, c, 1 + 2 c^2) + A with c = cos theta. The first part is a polynomial in x and z, smooth at zero too.
        x, z = vectors(x, z)
        (x_size, u), (z_size, v) = _polar(x), _polar(z)
        one, xz = jnp.ones((), x.dtype), dot(x, z)
        smooth = (one / 2, xz / 2, dot(x, x) * dot(z, z) / 2 + xz**2)[self.order]
        return smooth + (x_size * z_size) ** self.order * (_latitude(self.order, dot(u, v), _angle(u, v)) / jnp.pi)


def _polar(x: Array) -> tuple[Array, Array]:
    """|x| and x / |x|, which is zero where x is; no square overflows."""
    size = lax.stop_gradient(jnp.max(jnp.abs(x)))
    size = jnp.where(size > 0, size, 1)  # a constant: the derivatives of both do not depend on it
    length = safe_sqrt(dot(x / size, x / size))
    return size * length, jnp.where(length > 0, x / size / jnp.where(length > 0, length, 1), 0)


def _angle(u: Array, v: Array) -> Array:
    """The angle between two unit vectors, exact near 0 and pi, where arccos loses half its digits (Kahan); pi/2 for zeros."""
    u, v, one = lax.stop_gradient(u), lax.stop_gradient(v), jnp.ones((), u.dtype)
    apart, together = squared_distance(u, v, one, rough=True), squared_distance(u, -v, one, rough=True)
    angle = 2 * jnp.arctan2(jnp.sqrt(apart), jnp.sqrt(together))
    return jnp.where(apart + together > 0, angle, jnp.pi / 2)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _latitude(order: int, c: Array, theta: Array) -> Array:
    """`A_0 = pi/2 - theta`, `A_1 = sin theta + A_0 c`, `A_2 = 3 c sin theta + A_0 (1 + 2 c^2)` with c = cos theta.

    Values come from theta, which is exact where c is not, and derivatives go through c: `dA_0/dc = 1 / sin theta`, here of
    order -1, `dA_1/dc = A_0`, `dA_2/dc = 4 A_1`. Where sin theta is zero its inverse is replaced by zero.
    """
    sin, cos, latitude = jnp.sin(theta), jnp.cos(theta), jnp.pi / 2 - theta
    if order < 0:
        steep = sin > 8 * jnp.finfo(theta.dtype).eps
        return jnp.where(steep, 1 / jnp.where(steep, sin, 1), 0)
    return (latitude, sin + latitude * cos, 3 * sin * cos + latitude * (1 + 2 * cos**2))[order]


@_latitude.defjvp
def _latitude_jvp(order, primals, tangents):
    c, theta = primals
    slope = c * _latitude(-1, c, theta) ** 3 if order < 0 else (1, 1, 4)[order] * _latitude(order - 1, c, theta)
    return _latitude(order, c, theta), slope * tangents[0]
