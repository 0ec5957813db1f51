"""Kernels of R^d that are neither stationary nor functions of inner products alone.

GPML is Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.deprecation import renamed
from kernax.core.base.derivatives import custom_jvp, with_zeros
from kernax.core.base.functions import as_module
from kernax.core.base.numerics import (
    dot,
    floored,
    positive_or_one,
    safe_sqrt,
    squared_distance,
    sum_over_coordinates,
    vectors,
)
from kernax.core.base.parameters import check_count, data, integer, positive, real
from kernax.core.kernel.kernel import AbstractKernel, as_kernel
from kernax.core.kernel.spectral_densities import Eigenpairs


def _numbers(x: Any, z: Any) -> tuple[Array, Array]:
    """Two points of shape (1,) as scalars."""
    x, z = vectors(x, z)
    if len(x) != 1:
        raise ValueError(
            f"this kernel compares numbers, but points have shape {x.shape}: select one "
            "with On(kernel, dimension)"
        )
    return x[0], z[0]


class SineBasis(eqx.Module):
    """`sqrt(2) sin(frequencies x)`, shape (n_pairs,), of x in [0, 1], shape (1,); else NaN."""

    frequencies: Float[Array, " count"] = data()

    def __call__(self, x: Array) -> Array:
        t, _ = _numbers(x, x)
        inside = (t >= 0) & (t <= 1)
        return jnp.where(inside, 2**0.5 * jnp.sin(self.frequencies.astype(t.dtype) * t), jnp.nan)


class Brownian(AbstractKernel):
    """`min(x, z)` for x, z >= 0, of shape (1,), else NaN: the covariance of Brownian motion.

    It is in units of x. Its functions have f(0) = 0 and `|f|^2 = integral f'(t)^2 dt` (Wahba 1990,
    section 1.2). The derivative returned at x = z is the mean of those to the left and to the
    right.

    Examples:
        >>> X = jnp.array([[1.0], [2.0], [3.0]])
        >>> kernax.gram(kernax.kernels.Brownian(), X)
        Array([[1., 1., 1.],
               [1., 2., 2.],
               [1., 2., 3.]], dtype=float64)
    """

    rough: ClassVar[bool] = True

    def __call__(self, x, z):
        x, z = _numbers(x, z)
        smaller = jnp.minimum(x, z)
        return jnp.where(smaller >= 0, smaller, jnp.nan)

    @renamed(count="n_pairs")
    def eigenpairs(self, n_pairs: int) -> Eigenpairs:
        """The `n_pairs` leading eigenpairs of the operator `f -> integral_0^1 k(., t) f(t) dt`.

        For j = 1, 2, ... they are `4 / ((2j - 1)^2 pi^2)` and `sqrt(2) sin((2j - 1) pi x / 2)`,
        orthonormal on [0, 1]. Returns the values (n_pairs,) and a function from a point to
        (n_pairs,). By Mercer's theorem `k(x, z) = sum_j values_j f_j(x) f_j(z)` on [0, 1].
        """
        frequencies = (jnp.arange(check_count(n_pairs, "n_pairs"), dtype=float) + 0.5) * jnp.pi
        return Eigenpairs(1 / frequencies**2, SineBasis(frequencies))


class BrownianBridge(AbstractKernel):
    """`min(x, z) - x z` for x, z in [0, 1], of shape (1,), and NaN outside.

    It is the covariance of Brownian motion that ends at f(1) = 0. Its functions have f(0) = f(1) =
    0 and `|f|^2 = integral_0^1 f'(t)^2 dt`. The derivative returned at x = z is the mean of those
    to the left and to the right.

    Examples:
        >>> k = kernax.kernels.BrownianBridge()
        >>> kernax.gram_diagonal(k, jnp.array([[0.0], [0.5], [1.0]]))
        Array([0.  , 0.25, 0.  ], dtype=float64)
    """

    rough: ClassVar[bool] = True

    def __call__(self, x, z):
        x, z = _numbers(x, z)
        smaller = jnp.minimum(x, z)
        larger = jnp.maximum(x, z)
        return jnp.where((smaller >= 0) & (larger <= 1), smaller * (1 - larger), jnp.nan)

    @renamed(count="n_pairs")
    def eigenpairs(self, n_pairs: int) -> Eigenpairs:
        """Like `Brownian.eigenpairs`: `1 / (j pi)^2` and `sqrt(2) sin(j pi x)`, j = 1, 2, ..."""
        frequencies = (jnp.arange(check_count(n_pairs, "n_pairs"), dtype=float) + 1) * jnp.pi
        return Eigenpairs(1 / frequencies**2, SineBasis(frequencies))


class IntegratedBrownian(AbstractKernel):
    """`m^2 (3 M - m) / 6`, m = min(x, z), M = max(x, z), for x, z >= 0, of shape (1,), else NaN.

    It is the covariance of the integral of Brownian motion (GPML eq. 6.28), in cubed units of x.
    Its functions have f(0) = f'(0) = 0 and `|f|^2 = integral f''(t)^2 dt`; with a large multiple of
    `Linear() + 1.0` added, ridge regression is the smoothing spline.

    Examples:
        >>> k = kernax.kernels.IntegratedBrownian()
        >>> round(float(k(jnp.array([1.0]), jnp.array([2.0]))), 3)  # (3 * 2 - 1) / 6
        0.833
    """

    def __call__(self, x, z):
        x, z = _numbers(x, z)
        # The rounding of 3 M - m would depend on whether the processor fuses it.
        cubic = lambda m, M: m * m * (2 * M + (M - m)) / 6
        # jnp.minimum and jnp.maximum would have wrong Hessians at x = z.
        value = jnp.where(x <= z, cubic(x, z), cubic(z, x))
        return jnp.where(jnp.minimum(x, z) >= 0, value, jnp.nan)


class LinearSpline(AbstractKernel):
    """`prod_d (1 + x z + x z m - (x + z) m^2 / 2 + m^3 / 3)` of `x_d` and `z_d`, `m = min(x, z)`.

    In one dimension it is `1 + x z` plus `IntegratedBrownian`, so that functions are splines of
    degree three with linear ends (Gunn 1998, section 3.1.4; Vapnik, Golowich & Smola 1997). It is
    positive semidefinite for x, z >= 0 only: relevance vector machines, which do not need that, use
    it on [-10, 10] (Tipping 2001, eq. 32); for other learners pass `x - min x`.

    Examples:
        >>> k = kernax.kernels.LinearSpline()
        >>> round(float(k(jnp.array([1.0]), jnp.array([2.0]))), 3)  # 1 + 2 + 5/6
        3.833
    """

    def __call__(self, x, z):
        x, z = vectors(x, z)
        spline = lambda m, M: 1 + m * M + m * m * (2 * M + (M - m)) / 6
        return jnp.prod(jnp.where(x <= z, spline(x, z), spline(z, x)))


def _lengthscale_function(lengthscale: Any) -> Any:
    """A function as a module. Raises ValueError for a number."""
    if not callable(lengthscale):
        raise ValueError(
            f"lengthscale must be a function of a point, but is {lengthscale!r}: for one that is "
            "the same everywhere use RBF(lengthscale)"
        )
    return as_module(lengthscale, "lengthscale")


class Gibbs(AbstractKernel):
    """`prod_d sqrt(2 l_d l'_d / (l_d^2 + l'_d^2)) exp(-sum_d (x_d - z_d)^2 / (l_d^2 + l'_d^2))`.

    It is an RBF whose lengthscale, l at x and l' at z, changes from place to place (Gibbs 1997;
    GPML eq. 4.32). `lengthscale` is a function of a point, or a module with parameters of its own,
    and gives a positive number or one for each dimension (d,), in units of x; where it is not
    positive the kernel is NaN. With a constant lengthscale the kernel is `RBF(lengthscale)`.

    Examples:
        >>> k = kernax.kernels.Gibbs(lambda x: 0.1 + x**2)  # longer far from zero
        >>> round(float(k(jnp.array([0.0]), jnp.array([0.5]))), 3)
        0.11
        >>> round(float(k(jnp.array([2.0]), jnp.array([2.5]))), 3)
        0.95
    """

    lengthscale: Callable = eqx.field(converter=_lengthscale_function)

    def __call__(self, x, z):
        x, z = vectors(x, z)
        a = self._at(x)
        b = self._at(z)
        # Dividing by the longer of the two, a constant in all derivatives, keeps squares from
        # underflowing.
        unit = lax.stop_gradient(jnp.maximum(a, b))
        a = a / unit
        b = b / unit
        # sqrt(2 a b / (a^2 + b^2)) and exp(-(x - z)^2 / (a^2 + b^2)), a and b in that unit.
        total = a * a + b * b
        overlap = jnp.broadcast_to(2 * (a * b) / total, x.shape)
        return jnp.prod(safe_sqrt(overlap)) * jnp.exp(-jnp.sum(((x - z) / unit) ** 2 / total))

    def _at(self, x: Float[Array, " d"]) -> Float[Array, "..."]:
        """The lengthscale at x, a scalar or one per dimension."""
        lengthscale = jnp.asarray(self.lengthscale(x))
        if lengthscale.shape not in ((), x.shape):
            raise ValueError(
                f"lengthscale(x) must be a scalar or have shape {x.shape}, one for each dimension, "
                f"but has shape {lengthscale.shape}"
            )
        return floored(lengthscale.astype(x.dtype))


class ChangePoint(AbstractKernel):
    """`(1 - s(x)) before(x, z) (1 - s(z)) + s(x) after(x, z) s(z)`, s a sigmoid in one dimension.

    `s(x) = sigmoid((x_dimension - location) / width)`: far below `location` the kernel is `before`,
    far above it `after` (Saatci, Turner & Rasmussen 2010, there with a sudden change, which is
    width -> 0). `location` and `width` > 0 are in units of that dimension of x.

    Examples:
        >>> k = kernax.ChangePoint(kernax.RBF(1.0), kernax.RBF(0.1), location=5.0, width=0.1)
        >>> round(float(k(jnp.array([1.0]), jnp.array([1.2]))), 3)  # smooth before
        0.98
        >>> round(float(k(jnp.array([9.0]), jnp.array([9.2]))), 3)  # rough after
        0.135
    """

    before: AbstractKernel = eqx.field(converter=as_kernel)
    after: AbstractKernel = eqx.field(converter=as_kernel)
    location: Float[ParameterArray, ""] = real()
    width: Float[ParameterArray, ""] = positive(default=1.0)
    dimension: int = integer("dimension", least=0, default=0)

    def __call__(self, x, z):
        u, v = (self._time(point) for point in vectors(x, z))
        early = jax.nn.sigmoid(-u) * jax.nn.sigmoid(-v)
        return early * self.before(x, z) + jax.nn.sigmoid(u) * jax.nn.sigmoid(v) * self.after(x, z)

    def _time(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """How far x is beyond the location, in widths."""
        if self.dimension >= len(x):
            raise ValueError(
                f"ChangePoint switches along dimension {self.dimension}, but points have shape "
                f"{x.shape}"
            )
        return (x[self.dimension] - self.location) / floored(self.width)


class ArcCosine(AbstractKernel):
    """`(|x| |z|)^order J(theta) / pi`, theta the angle between x and z, order 0, 1 or 2.

    It is the kernel of an infinitely wide layer of a network (Cho & Saul 2009, section 2): twice
    the mean of `h(w.x) h(w.z)` over normal w, where h is a step, a ramp `max(0, t)` or its square.
    For these orders J is

        pi - theta
        sin theta + (pi - theta) cos theta
        3 sin theta cos theta + (pi - theta) (1 + 2 cos^2 theta)

    and k(x, x) is 1, `|x|^2`, `3 |x|^4`. For a bias, append a constant dimension.

    It is exact to rounding for parallel and opposite points. A point of norm zero gives 0, but 1/2
    for order 0, which counts the step at zero half. Order 0 has no derivative where theta is 0 or
    pi (zero is returned), nor at norm zero.

    Examples:
        >>> k = kernax.kernels.ArcCosine(order=1)
        >>> round(float(k(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]))), 3)  # 1 / pi
        0.318
    """

    order: int = integer("order", least=0, default=1)

    def __check_init__(self):
        if self.order > 2:
            raise ValueError(f"order must be 0, 1 or 2, but is {self.order}")

    def __call__(self, x, z):
        # J = pi/2 (1, c, 1 + 2 c^2) + A with c = cos theta. The first part is a polynomial in x and
        # z, smooth at zero too.
        x, z = vectors(x, z)
        if self.order == 0:
            return 0.5 + _latitude_of_points(x, z) / jnp.pi
        (x_size, u) = _polar(x)
        (z_size, v) = _polar(z)
        rounding = jnp.asarray(_rounding_of_angles(u.dtype), u.dtype)
        of_angle = _latitude(self.order, dot(u, v), _angle(u, v), rounding) / jnp.pi
        return self._polynomial(x, z) + (x_size * z_size) ** self.order * of_angle

    def _polynomial(self, x: Float[Array, " d"], z: Float[Array, " d"]) -> Float[Array, ""]:
        """`(|x| |z|)^order (c, 1 + 2 c^2) / 2` of order 1 and 2."""
        xz = dot(x, z)
        return xz / 2 if self.order == 1 else dot(x, x) * dot(z, z) / 2 + xz**2

    @property
    def has_derivatives(self):
        return self.order > 0  # functions of order 0 are steps


def _polar(x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, " d"]]:
    """|x| and x / |x|, which is zero at x = 0, without overflow of squares."""
    size = lax.stop_gradient(jnp.max(jnp.abs(x)))
    size = positive_or_one(size)  # a constant, on which neither derivative depends
    length = safe_sqrt(dot(x / size, x / size))
    return size * length, jnp.where(length > 0, x / size / positive_or_one(length), 0)


def _latitude_of_points(x: Float[Array, " d"], z: Float[Array, " d"]) -> Float[Array, ""]:
    """`pi/2 - theta`, theta the angle between x and z.

    Its slope `1 / sin theta` magnifies the rounding of u and v where they are nearly equal. There
    theta, c and the derivative of c are computed from u - v as a function of x - z. Where the
    points are more opposite than parallel, -z replaces z and the sign of the result changes.
    """
    (x_size, u) = _polar(x)
    (_, v) = _polar(z)
    sign = lax.stop_gradient(jnp.where(dot(u, v) < 0, -1, 1).astype(u.dtype))
    inverse = 1 / positive_or_one(x_size)
    square = lambda x, z: ((x - sign * z) * inverse) ** 2
    gap = lax.stop_gradient(jnp.sqrt(sum_over_coordinates(square, jnp.zeros_like(sign), (x, z))))
    is_near = (x_size > 0) & (gap < 0.3)
    half = _half_squared_chord(x, z, sign)
    c = jnp.where(is_near, 1 - half, sign * dot(u, v))
    near = jnp.where(is_near, lax.stop_gradient(half), 0.5)
    far = _angle(u, v)
    theta = jnp.where(
        is_near, 2 * jnp.arcsin(jnp.sqrt(near / 2)), jnp.where(sign < 0, jnp.pi - far, far)
    )
    rounding = jnp.where(is_near, gap, 1) * _rounding_of_angles(u.dtype)
    return sign * _latitude(0, c, theta, rounding)


@custom_jvp
def _half_squared_chord(x: Array, z: Array, sign: Array) -> Float[Array, ""]:
    """`|u - v|^2 / 2` with v of `sign z`, accurate to all digits where x and sign z are nearly
    equal. The sum is over one coordinate after the other, as all differences would be n^2 d floats.
    """
    (_, v) = _polar(z)
    (inverse, radial) = _radial_part(x, z, sign)
    square = lambda x, z, v: ((x - sign * z) * inverse - sign * v * radial) ** 2 / 2
    return sum_over_coordinates(square, jnp.zeros_like(radial), (x, z, v))


def _radial_part(x: Array, z: Array, sign: Array) -> tuple[Array, Array]:
    """`1 / |x|`, and `r = (|x| - |z|) / |x|` as `(x - z).(x + z) / (|x| (|x| + |z|))`, of which
    `u - v = (x - z) / |x| - v r`, for `sign z` in place of z.
    """
    (x_size, _) = _polar(x)
    (z_size, _) = _polar(z)
    inverse = 1 / positive_or_one(x_size)
    product = lambda x, z: ((x - sign * z) * inverse) * ((x + sign * z) * inverse)
    total = sum_over_coordinates(product, jnp.zeros_like(sign), (x, z))
    return inverse, total / (1 + z_size * inverse)


@_half_squared_chord.def_jvp
def _half_squared_chord_jvp(primals, tangents):
    # With w = u - v and q = |w|^2 / 2 = w.u = -w.v: dq = (w - q u).dx / |x| - (w + q v).dz / |z|.
    (x, z, sign) = primals
    (dx, dz, _) = with_zeros(primals, tangents)
    (_, u) = _polar(x)
    (z_size, v) = _polar(z)
    (inverse, radial) = _radial_part(x, z, sign)
    half = _half_squared_chord(x, z, sign)

    @jax.checkpoint
    def in_x(x, z, u, v, dx):
        return ((x - sign * z) * inverse - sign * v * radial - half * u) * (inverse * dx)

    @jax.checkpoint
    def in_z(x, z, v, dz):
        w = (x - sign * z) * inverse - sign * v * radial
        return (w + half * sign * v) * (sign * dz / positive_or_one(z_size))

    change = sum_over_coordinates(in_x, jnp.zeros_like(half), (x, z, u, v, dx))
    return half, change - sum_over_coordinates(in_z, jnp.zeros_like(half), (x, z, v, dz))


def _rounding_of_angles(dtype: Any) -> float:
    """An angle between two unit vectors below this is only rounding."""
    return 8 * float(jnp.finfo(dtype).eps)


def _angle(u: Float[Array, " d"], v: Float[Array, " d"]) -> Float[Array, ""]:
    """The angle between two unit vectors; pi/2 where one is zero.

    By Kahan's formula, exact near 0 and pi, where arccos loses half its digits.
    """
    u = lax.stop_gradient(u)
    v = lax.stop_gradient(v)
    one = jnp.ones((), u.dtype)
    apart = squared_distance(u, v, one, rough=True)
    together = squared_distance(u, -v, one, rough=True)
    angle = 2 * jnp.arctan2(jnp.sqrt(apart), jnp.sqrt(together))
    return jnp.where(apart + together > 0, angle, jnp.pi / 2)


@custom_jvp
def _latitude(order: int, c: Array, theta: Array, rounding: Array) -> Array:
    """`A_0 = pi/2 - theta`, `A_1 = sin theta + A_0 c`, `A_2 = 3 c sin theta + A_0 (1 + 2 c^2)`.

    c is cos theta. Values are computed from theta, which is accurate where c is not, and
    derivatives from c: `dA_0/dc = 1 / sin theta`, here of order -1, `dA_1/dc = A_0`, `dA_2/dc = 4
    A_1`. Where sin theta is zero, or no larger than the rounding of theta, zero replaces its
    inverse.
    """
    sin = jnp.sin(theta)
    cos = jnp.cos(theta)
    latitude = jnp.pi / 2 - theta
    if order < 0:
        steep = sin > rounding
        return jnp.where(steep, 1 / jnp.where(steep, sin, 1), 0)
    return (latitude, sin + latitude * cos, 3 * sin * cos + latitude * (1 + 2 * cos**2))[order]


@_latitude.def_jvp
def _latitude_jvp(primals, tangents):
    order, c, theta, rounding = primals
    slope = (
        c * _latitude(-1, c, theta, rounding) ** 3
        if order < 0
        else (1, 1, 4)[order] * _latitude(order - 1, c, theta, rounding)
    )
    (_, dc, *_) = with_zeros(primals, tangents)
    return _latitude(order, c, theta, rounding), slope * dc
