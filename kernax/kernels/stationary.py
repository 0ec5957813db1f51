"""Stationary kernels of R^d: they do not change when both points move together.

Throughout, `s = |(x - z) / lengthscale|^2` with a lengthscale that is a scalar or has one entry per
dimension (ARD), in the units of x. Every kernel here is 1 at x = z, except `SpectralMixture`.
Spectral densities S are over cycles per unit of x: `k(x, z) = integral S(w) exp(2 pi i w.(x - z))
dw`. GPML is Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006.
"""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import i0e
from jaxtyping import Array, Float

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.derivatives import custom_jvp, with_zeros
from kernax.core.base.numerics import (
    dot,
    exponential_or_constant,
    floored,
    squared_distance,
    stretched_exponential,
    sum_over_coordinates,
    turns,
    vectors,
)
from kernax.core.base.parameters import interval, positive, real
from kernax.core.base.special_functions import log_rising, polynomial, scaled_log1p
from kernax.core.kernel.gamma_quantiles import gamma_quantiles
from kernax.core.kernel.kernel import AbstractKernel, AbstractStationary, Invariance, warn_if_short
from kernax.core.kernel.spectra import SpectralPart, fixed_part
from kernax.core.kernel.spectral_densities import AbstractScaleMixture, AbstractSpectral
from kernax.core.kernel.state_space import ConstantState, SumOfStates
from kernax.kernels.fourier_series import (
    fourier_series,
    harmonic_parts,
    if_complete,
    of_each_column,
    series_in_cycles,
)
from kernax.kernels.matern import gamma_mean, matern, matern_of_any_order
from kernax.kernels.state_spaces import (
    DampedOscillations,
    MaternStates,
    Oscillators,
    damped_oscillation,
)


class RBF(AbstractScaleMixture):
    """`exp(-s / 2)`: the Gaussian, squared-exponential or radial basis function kernel.

    This is GPML eq. 4.9. Other conventions write `exp(-beta |x - z|^2)`. With l the lengthscale,
    `beta = gamma = 1 / (2 l^2)`, so that `l = 1 / sqrt(2 gamma)`; sigma of `exp(-|x - z|^2 / (2
    sigma^2))` is l itself; c of `exp(-|x - z|^2 / c)` is `2 l^2`; theta_1 of `exp(-theta_1 / 2 |x -
    z|^2)` (Bishop 6.63) is `1 / l^2`.

    Examples:
        >>> k = kernax.RBF(lengthscale=2.0)
        >>> round(float(k(jnp.array([0.0, 1.0]), jnp.array([2.0, 1.0]))), 3)  # exp(-1/2)
        0.607
        >>> X = jnp.array([[0.0, 1.0], [2.0, 1.0], [3.0, 3.0]])
        >>> kernax.gram(kernax.RBF([2.0, 0.5]), X).shape  # a lengthscale for each column (ARD)
        (3, 3)
    """

    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)

    separates: ClassVar[bool] = True

    def of_squared_distance(self, s):
        return jnp.exp(-0.5 * s)

    def unit_density(self, f, dim):
        # S(w) = (2 pi)^(d/2) exp(-2 pi^2 |w|^2).
        return (2 * jnp.pi) ** (dim / 2) * jnp.exp(-2 * jnp.pi**2 * f)

    @property
    def n_normals(self):
        return 0

    def precisions(self, normal):
        return jnp.ones(len(normal), self.lengthscale.dtype)


class AbstractMatern(AbstractScaleMixture):
    """A Matern kernel of smoothness nu, see `Matern`.

    Its spectral density is a Student t with 2 nu degrees of freedom (GPML eq. 4.15).
    """

    nu: ClassVar[Any]  # a class attribute, except in `Matern`, where it is a parameter

    def unit_density(self, f, dim):
        # The constant Gamma(nu + d/2) / Gamma(nu) (2 pi / nu)^(d/2), times the power
        # (1 + q / nu)^-(nu + d/2) of q = 2 pi^2 f.
        b = 1 / jnp.asarray(self.nu, f.dtype)
        q = 2 * jnp.pi**2 * f
        constant = log_rising(jnp.full_like(b, dim / 2), b) + dim / 2 * math.log(2 * math.pi)
        return jnp.exp(constant - scaled_log1p(q, b) - dim / 2 * jnp.log1p(b * q))

    @property
    def n_normals(self):
        return round(2 * self.nu) if isinstance(self.nu, float) else 1

    def precisions(self, normal):
        # tau has the distribution that makes frequencies Student t: nu / tau ~ Gamma(nu, 1).
        if isinstance(self.nu, float):  # half-integers: nu / tau is half a sum of 2 nu squares
            squares = jnp.sum(normal**2, 1)
            return 2 * self.nu / jnp.maximum(squares, jnp.finfo(squares.dtype).tiny)
        return 1 / gamma_quantiles(self.nu, normal[:, 0])

    def state_space(self, harmonics):
        if self.lengthscale.size > 1 or not isinstance(self.nu, float):
            return None
        # Half-integers nu = p + 1/2 have p + 1 states; the rate is r / (x - z).
        rate = math.sqrt(2 * self.nu) / self.lengthscale.reshape(())
        return MaternStates(rate, int(self.nu))


class Matern12(AbstractMatern):
    """`exp(-r)`, r = sqrt(s): the exponential or Ornstein-Uhlenbeck kernel.

    See GPML section 4.2.1; the rate of the Ornstein-Uhlenbeck process is theta = 1 / lengthscale.
    It is not differentiable in x at x = z, where the derivative returned is zero.

    Examples:
        >>> k = kernax.Matern12(lengthscale=2.0)
        >>> round(float(k(jnp.array([0.0]), jnp.array([2.0]))), 3)  # exp(-1)
        0.368
    """

    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)

    nu: ClassVar[float] = 0.5
    rough: ClassVar[bool] = True

    def of_squared_distance(self, s):
        return matern(0, s)


class Matern32(AbstractMatern):
    """`(1 + r) exp(-r)`, r = sqrt(3 s): once differentiable sample paths (GPML eq. 4.17).

    Examples:
        >>> k = kernax.Matern32(lengthscale=2.0)
        >>> round(float(k(jnp.array([0.0]), jnp.array([2.0]))), 3)
        0.483
    """

    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)

    nu: ClassVar[float] = 1.5

    def of_squared_distance(self, s):
        return matern(1, 3 * s)


class Matern52(AbstractMatern):
    """`(1 + r + r^2 / 3) exp(-r)`, r = sqrt(5 s): twice differentiable paths (GPML eq. 4.17).

    Examples:
        >>> k = kernax.Matern52(lengthscale=2.0)
        >>> round(float(k(jnp.array([0.0]), jnp.array([2.0]))), 3)
        0.524
    """

    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)

    nu: ClassVar[float] = 2.5

    def of_squared_distance(self, s):
        return matern(2, 5 * s)


class Matern(AbstractMatern):
    """`2^(1 - nu) / Gamma(nu) r^nu K_nu(r)`, r = sqrt(2 nu s), for any smoothness nu > 0.

    nu is a parameter that can be learned (GPML eq. 4.14). The kernel is computed by quadrature,
    with 192 nodes per pair in float64, and costs about a hundred times as much as `Matern12`,
    `Matern32` and `Matern52`, which are nu = 1/2, 3/2, 5/2. From nu = 30 on (8 in float32) it is
    computed by an expansion around its limit, `RBF`. It is accurate to 1e-10 (float64) and about
    1e-5 (float32) for all nu >= 1/2. Second derivatives at x = z need nu > 1.

    Examples:
        >>> x, z = jnp.array([0.0]), jnp.array([2.0])
        >>> round(float(kernax.Matern(nu=1.5, lengthscale=2.0)(x, z)), 3)
        0.483
        >>> round(float(kernax.Matern32(lengthscale=2.0)(x, z)), 3)  # the same kernel, much faster
        0.483
    """

    nu: Float[ParameterArray, ""] = positive(default=1.5)  # pyright: ignore
    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)

    rough: ClassVar[bool] = True

    def of_squared_distance(self, s):
        return matern_of_any_order(self.nu, s)

    @property
    def has_derivatives(self):
        return self.nu > 1


class RationalQuadratic(AbstractScaleMixture):
    """`(1 + s / (2 alpha))^-alpha`: RBFs mixed over Gamma-distributed precisions (GPML eq. 4.19).

    Examples:
        >>> k = kernax.RationalQuadratic(lengthscale=2.0, alpha=1.0)
        >>> round(float(k(jnp.array([0.0]), jnp.array([2.0]))), 3)  # 1 / (1 + 1/2)
        0.667
    """

    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)
    alpha: Float[ParameterArray, ""] = positive(default=1.0)

    has_cheap_numbers: ClassVar[bool] = True

    def of_squared_distance(self, s):
        # The limit alpha -> inf, the RBF, is exact, and derivatives in alpha keep their digits.
        return jnp.exp(-scaled_log1p(s, 1 / (2 * floored(self.alpha))) / 2)

    def unit_density(self, f, dim):
        # The mean density of an RBF over precisions tau; inf at f = 0 for alpha <= dim / 2.
        mean = gamma_mean(self.alpha, dim / 2, 2 * jnp.pi**2 * f)
        return (2 * jnp.pi) ** (dim / 2) * mean

    @property
    def n_normals(self):
        return 1

    def precisions(self, normal):
        return gamma_quantiles(self.alpha, normal[:, 0])


class GammaExponential(AbstractStationary):
    """`exp(-s^(gamma / 2))`, 0 < gamma <= 2 (GPML eq. 4.18).

    gamma = 1 is Matern 1/2. gamma = 2 is an RBF of lengthscale `lengthscale / sqrt(2)`, the only
    case that is smooth at x = z.

    Examples:
        >>> k = kernax.kernels.GammaExponential(lengthscale=2.0, gamma=1.5)
        >>> round(float(k(jnp.array([0.0]), jnp.array([2.0]))), 3)
        0.368
    """

    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)
    gamma: Float[ParameterArray, ""] = interval(0.0, 2.0, closed=(False, True), default=1.0)

    rough: ClassVar[bool] = True
    has_cheap_numbers: ClassVar[bool] = True

    def of_squared_distance(self, s):
        return stretched_exponential(s, self.gamma / 2)


class LpLaplace(AbstractKernel):
    """`exp(-(sum_j |x_j - z_j|^p / lengthscale_j^p)^power)`, 0 < p <= 2 and 0 < power <= 1.

    With the defaults p = power = 1 it is the product of a Laplace kernel for each column. A kernel
    of the p-norm, `exp(-|x - z|_p^q)` with q <= p, has power = q / p; p = 2 is `GammaExponential`
    of gamma = 2 power (Schoenberg 1938; Beaglehole et al. 2025, xRFM, section 2). Unlike a kernel
    of the Euclidean distance it is not invariant under rotations, which suits columns that act one
    by one, as those of most tables do. Its derivative at x = z is zero where it has none.

    Examples:
        >>> k = kernax.kernels.LpLaplace(lengthscale=2.0)
        >>> x, z = jnp.array([0.0, 0.0]), jnp.array([1.0, 3.0])
        >>> round(float(k(x, z)), 3)  # exp(-(1 + 3) / 2)
        0.135
    """

    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)
    p: Float[ParameterArray, ""] = interval(0.0, 2.0, closed=(False, True), default=1.0)
    power: Float[ParameterArray, ""] = interval(0.0, 1.0, closed=(False, True), default=1.0)

    keeps: ClassVar[Invariance] = Invariance.STATIONARY
    rough: ClassVar[bool] = True
    mirrors: ClassVar[bool] = True

    def __call__(self, x, z):
        x, z = vectors(x, z, self.lengthscale)
        inverse = jnp.broadcast_to(1 / floored(self.lengthscale), x.shape)
        p = jnp.broadcast_to(self.p, x.shape)
        zero = jnp.zeros_like(x[0] - z[0])
        distance = sum_over_coordinates(_power_of_difference, zero, (x, z, inverse, p))
        return stretched_exponential(distance, self.power)


@jax.checkpoint
def _power_of_difference(x, z, inverse, p):
    """`|(x - z) / lengthscale|^p`, with derivative zero at x = z."""
    # Bounded, because the derivative log(size) in p must be finite.
    size = jnp.minimum(abs(x - z) * inverse, jnp.finfo(x.dtype).max)
    # `size > 0` would count NaN as zero.
    is_zero = size == 0
    power = exponential_or_constant(p * jnp.log(jnp.where(is_zero, 1, size)))
    return jnp.where(is_zero, 0, power)


class Periodic(AbstractKernel):
    """`exp(-2 sum_d sin^2(pi (x_d - z_d) / period_d) / lengthscale_d^2)`: periodic functions.

    See MacKay 1998; GPML eq. 4.31. `period`, in units of x, and `lengthscale`, which has no unit,
    are scalars or one per dimension. In one dimension this is scikit-learn's ExpSineSquared, which
    depends on |x - z| and is not positive semidefinite in several dimensions.

    Examples:
        >>> k = kernax.Periodic(lengthscale=1.0, period=7.0)
        >>> round(float(k(jnp.array([0.0]), jnp.array([7.0]))), 3)  # a whole period apart
        1.0
        >>> round(float(k(jnp.array([0.0]), jnp.array([3.5]))), 3)  # half a period: exp(-2)
        0.135
    """

    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)
    period: Float[ParameterArray, "*d"] = positive(default=1.0)

    keeps: ClassVar[Invariance] = Invariance.STATIONARY
    separates: ClassVar[bool] = True

    def __check_init__(self):
        warn_if_short(self.period, "Periodic.period")

    def __call__(self, x, z):
        x, z = vectors(x, z, self.lengthscale, self.period)
        sines = jnp.sin(jnp.pi * turns(x, z, self.period))
        return jnp.prod(_periodic(sines, floored(self.lengthscale)))

    def spectral_parts(self, dim):
        # k = (1 - sum_j a_j) + sum_j a_j cos(2 pi w_j t), t = x - z.
        varying, variances, frequencies = series_in_cycles(
            self.lengthscale, self.period, dim, "Periodic"
        )
        variances = if_complete(variances, jnp.abs(varying - jnp.sum(variances)))
        constant = fixed_part(1 - varying, (), frequencies[:0])
        return (constant, *harmonic_parts(variances, frequencies))

    def state_space(self, harmonics):
        series = fourier_series(self.lengthscale, self.period, harmonics)
        if series is None:
            return None
        # The constant is a state that does not change, each harmonic an oscillator.
        varying, variances, frequencies = series
        variances = if_complete(variances, jnp.abs(varying - jnp.sum(variances)))
        return SumOfStates((ConstantState(1 - varying), Oscillators(frequencies, variances)))


def _periodic(sines: Float[Array, " d"], lengthscale: Float[Array, "*d"]) -> Float[Array, " d"]:
    """`exp(-2 sines^2 / lengthscale^2)`, with derivatives of zero where it is zero: the powers of a
    small lengthscale in the derivatives overflow.
    """
    lengthscale = jnp.broadcast_to(lengthscale, sines.shape)
    least = math.log(float(jnp.finfo(sines.dtype).tiny)) - 10
    is_zero = lax.stop_gradient(-2 * (sines / lengthscale) ** 2) < least
    near = jnp.where(is_zero, 0, sines)
    # exp(-2 s), s = (sine / lengthscale)^2. Squared distances from zero in units of the lengthscale
    # have derivatives that divide by the lengthscale once, not by its cube.
    s = jax.vmap(
        lambda a, scale: squared_distance(a[None], jnp.zeros_like(a)[None], scale, rough=True)
    )
    return jnp.where(is_zero, 0, jnp.exp(-2 * s(near, lengthscale)))


class ZeroMeanPeriodic(AbstractKernel):
    """`prod_d (p_d - m_d) / (1 - m_d)`: `Periodic` without its constant, periodic about zero.

    p_d is `Periodic` along dimension d, and `m = exp(-b) I_0(b)`, `b = 1 / lengthscale^2`, is its
    mean over a period, the zeroth coefficient of its Fourier series. No coefficient is negative, so
    the difference is positive semidefinite. It is 1 at x = z and integrates to zero over each
    period, so that in a sum other terms describe level and trend. For long lengthscales it tends to
    a product of cosines, for short ones to `Periodic`. See Lloyd et al., "Automatic construction
    and natural-language description of nonparametric regression models", 2014, section 2.

    Examples:
        >>> k = kernax.kernels.ZeroMeanPeriodic(lengthscale=1.0, period=7.0)
        >>> round(float(k(jnp.array([0.0]), jnp.array([7.0]))), 3)
        1.0
        >>> bool(k(jnp.array([0.0]), jnp.array([3.5])) < 0)  # half a period apart
        True
    """

    lengthscale: Float[ParameterArray, "*d"] = positive(default=1.0)
    period: Float[ParameterArray, "*d"] = positive(default=1.0)

    keeps: ClassVar[Invariance] = Invariance.STATIONARY
    separates: ClassVar[bool] = True

    def __check_init__(self):
        warn_if_short(self.period, "ZeroMeanPeriodic.period")

    def __call__(self, x, z):
        x, z = vectors(x, z, self.lengthscale, self.period)
        sines = jnp.sin(jnp.pi * turns(x, z, self.period))
        return jnp.prod(_zero_mean_periodic(sines, floored(self.lengthscale)))

    def spectral_parts(self, dim):
        # k = sum_j a_j cos(2 pi w_j t) / sum_j a_j, the series of `Periodic` without its constant.
        varying, variances, frequencies = series_in_cycles(
            self.lengthscale, self.period, dim, "ZeroMeanPeriodic"
        )
        variances = variances / varying
        complete = if_complete(variances, jnp.abs(1 - jnp.sum(variances)))
        return harmonic_parts(complete, frequencies)

    def state_space(self, harmonics):
        series = fourier_series(self.lengthscale, self.period, harmonics)
        if series is None:
            return None
        varying, variances, frequencies = series
        variances = variances / varying
        return Oscillators(frequencies, if_complete(variances, jnp.abs(1 - jnp.sum(variances))))


# From the first lengthscale on, series replace numerator and denominator, which both tend to zero.
# Below the second, the asymptotic series replaces i0e, because the derivative of i0e cancels
# (Abramowitz & Stegun 1964, eq. 9.7.1).
_LONG = 2**0.5
_SHORT = 0.1
_EXPM1 = [1 / math.factorial(j + 1) for j in range(15)]  # the coefficients of (exp(u) - 1) / u
_BESSEL = [1 / math.factorial(j + 1) ** 2 for j in range(8)]  # those of (I_0(2 sqrt(u)) - 1) / u
_TAIL = [math.prod(range(1, 2 * j, 2)) ** 2 / math.factorial(j) for j in range(10)]


@custom_jvp
def _zero_mean_periodic(
    sines: Float[Array, " d"], lengthscale: Float[Array, "*d"]
) -> Float[Array, " d"]:
    """`(exp(-2 b sines^2) - m) / (1 - m)` with `m = exp(-b) I_0(b)`, `b = 1 / lengthscale^2`."""
    # With F(c) = (exp(b c) - I_0(b)) / b and c = 1 - 2 sines^2 it is F(c) / F(1), where neither
    # cancels at small b.
    is_long = lengthscale > _LONG
    small = jnp.where(is_long, lengthscale, _LONG) ** -2
    by_series = _fluctuation(1 - 2 * sines**2, small) / _fluctuation(jnp.ones_like(small), small)
    safe = jnp.where(is_long, 1, lengthscale)
    # `exp(-b) I_0(b)`, `b = 1 / safe^2`.
    is_short = safe < _SHORT
    short = jnp.where(is_short, safe, _SHORT)
    asymptotic = short / math.sqrt(2 * math.pi) * polynomial(_TAIL, short**2 / 8)
    mean = jnp.where(is_short, asymptotic, i0e(jnp.where(is_short, 1, safe) ** -2))
    plain = (_periodic(sines, safe) - mean) / (1 - mean)
    return jnp.where(is_long, by_series, plain)


@_zero_mean_periodic.def_jvp
def _zero_mean_periodic_jvp(primals, tangents):
    # With one product for each argument its adjoint is a single sum over pairs; the chain rule
    # would sum once for each occurrence of the lengthscale.
    sines, lengthscale = primals
    of_sines = lambda values: _zero_mean_periodic.function(values, lengthscale)
    of_lengthscale = lambda values: _zero_mean_periodic.function(sines, values)
    value, slope = jax.jvp(of_sines, (sines,), (jnp.ones_like(sines),))
    _, growth = jax.jvp(of_lengthscale, (lengthscale,), (jnp.ones_like(lengthscale),))
    of_sines, of_lengthscale = with_zeros(primals, tangents)
    return value, slope * of_sines + growth * of_lengthscale


def _fluctuation(cosine: Array, b: Array) -> Array:
    """`(exp(b cosine) - I_0(b)) / b`, which is the cosine at b = 0."""
    return cosine * polynomial(_EXPM1, b * cosine) - b / 4 * polynomial(_BESSEL, b * b / 4)


class Cosine(AbstractKernel):
    """`cos(2 pi sum_d (x_d - z_d) / period_d)`: a single frequency along one direction.

    See GPML section 4.2.1. `period`, in units of x, is a scalar or one per dimension. A cosine of
    |x - z| would not be a kernel for d > 1.

    Examples:
        >>> k = kernax.kernels.Cosine(period=4.0)
        >>> round(float(k(jnp.array([0.0]), jnp.array([2.0]))), 3)  # half a period apart
        -1.0
    """

    period: Float[ParameterArray, "*d"] = positive(default=1.0)

    keeps: ClassVar[Invariance] = Invariance.STATIONARY

    def __check_init__(self):
        warn_if_short(self.period, "Cosine.period")

    def __call__(self, x, z):
        x, z = vectors(x, z, self.period)
        return jnp.cos(2 * jnp.pi * jnp.sum(turns(x, z, self.period)))

    def spectral_parts(self, dim):
        # cos(2 pi w.(x - z)), w = 1 / period.
        frequency = 1 / of_each_column(self.period, dim)
        return (fixed_part(jnp.ones_like(self.period, shape=()), tuple(range(dim)), frequency),)

    def state_space(self, harmonics):
        if self.period.size > 1:
            return None
        # cos(w t) with the angular frequency w = 2 pi / period.
        frequency = 2 * jnp.pi / self.period.reshape(())
        return Oscillators(frequency[None], jnp.ones_like(frequency)[None])


class DampedOscillator(AbstractKernel):
    """A damped harmonic oscillator that is driven by white noise: `exp(-u) (cos(v) + u sin(v) / v)`
    with `u = z / (2 Q)`, `v = z sqrt(1 - 1 / (4 Q^2))` and `z = 2 pi |x - z| / period`.

    This is the SHO term of celerite (Foreman-Mackey et al. 2017, eq. 23) with variance 1, for
    points of shape (1,). The larger the quality Q, the longer its oscillations last: their
    amplitude decreases by 1 / e in `Q / pi` periods. At Q = 1/2 it is `Matern32(period sqrt(3) / (2
    pi))`, at `1 / sqrt(2)` a common model of granulation of stars, and below 1/2 it no longer
    oscillates (v is imaginary). celerite's rotation term is `s * DampedOscillator(p, Q1) + t *
    DampedOscillator(p / 2, Q2)`. Along a line `condition` and the evidence take O(n).

    Examples:
        >>> k = kernax.kernels.DampedOscillator(period=7.0, quality=10.0)
        >>> round(float(k(jnp.array([0.0]), jnp.array([7.0]))), 3)  # a whole period apart
        0.73
        >>> round(float(k(jnp.array([0.0]), jnp.array([3.5]))), 3)
        -0.854
    """

    period: Float[ParameterArray, ""] = positive(default=1.0)
    quality: Float[ParameterArray, ""] = positive(default=1.0)

    keeps: ClassVar[Invariance] = Invariance.STATIONARY

    def __check_init__(self):
        warn_if_short(self.period, "DampedOscillator.period")

    def __call__(self, x, z):
        x, z = vectors(x, z)
        if len(x) != 1:
            raise ValueError(
                f"DampedOscillator compares numbers, but points have shape {x.shape}: select one "
                "with On(kernel, dimension)"
            )
        angle = 2 * jnp.pi * (x[0] - z[0]) / floored(self.period)
        return damped_oscillation(angle, self.quality)

    def state_space(self, harmonics):
        return DampedOscillations(2 * jnp.pi / self.period, self.quality)


class SpectralMixture(AbstractSpectral):
    """`sum_q weights_q prod_d exp(-2 pi^2 scales_qd^2 t_d^2) cos(2 pi means_qd t_d)`, t = x - z.

    The spectral density is a mixture of q Gaussians (Wilson & Adams 2013, eq. 12): `weights` (q,),
    `means` (q, d) and `scales` (q, d), the standard deviations, in cycles per unit of x. Its value
    at x = z is the sum of the weights.

    Examples:
        >>> means, scales = [[0.1], [0.7]], [[0.05], [0.1]]  # two components, one dimension
        >>> k = kernax.SpectralMixture([1.0, 0.5], means, scales)
        >>> round(float(k(jnp.array([0.0]), jnp.array([0.0]))), 3)  # the sum of the weights
        1.5
        >>> round(float(k(jnp.array([0.0]), jnp.array([2.0]))), 3)
        0.07
    """

    weights: Float[ParameterArray, " q"] = positive()
    means: Float[ParameterArray, "q d"] = real()
    scales: Float[ParameterArray, "q d"] = positive()

    keeps: ClassVar[Invariance] = Invariance.STATIONARY

    def __check_init__(self):
        q = self.weights.shape
        if (
            len(q) != 1
            or self.means.ndim != 2
            or self.means.shape[:1] != q
            or self.scales.shape != self.means.shape
            or not self.means.size
        ):
            raise ValueError(
                "SpectralMixture needs weights (q,), means (q, d) and scales (q, d), q >= 1, "
                f"but got shapes {q}, {self.means.shape} and {self.scales.shape}"
            )

    def __call__(self, x, z):
        x, z = vectors(x, z, self.means[0])
        t = (x - z)[None, :]
        # Keep frequencies below the largest with a finite square, as lengthscales above a minimum.
        largest = float(jnp.finfo(t.dtype).tiny) ** (-1 / 3)
        scales = jnp.minimum(self.scales, largest)
        means = jnp.clip(self.means, -largest, largest)
        # exp(-2 pi^2 sum_d scales_qd^2 t_d^2), and below prod_d cos(2 pi means_qd t_d).
        decay = jnp.exp(-2 * jnp.pi**2 * jnp.sum((scales * t) ** 2, 1))
        return dot(self.weights, decay * jnp.prod(jnp.cos(2 * jnp.pi * means * t), 1))

    def spectral_density(self, w):
        # sum_q weights_q prod_d (N(w_d | means_qd, scales_qd^2) + N(w_d | -means_qd, ...)) / 2.
        w, _ = vectors(w, w, self.means[0])
        bell = lambda centres: jax.scipy.stats.norm.pdf(w[None, :], centres, self.scales)
        return dot(self.weights, jnp.prod((bell(self.means) + bell(-self.means)) / 2, 1))

    def spectral_parts(self, dim):
        q, d = self.means.shape
        if dim != d:
            raise ValueError(
                f"a SpectralMixture with means of shape {q, d} needs dim = {d}, but got {dim}"
            )
        return tuple(self._part(i) for i in range(q))

    def _part(self, i: int) -> SpectralPart:
        """One Gaussian of the mixture, mirrored along every dimension."""
        mean = self.means[i]
        scale = self.scales[i]
        d = len(mean)

        # The centre is +mean or -mean in each dimension, with equal probability.
        def law(normal):
            signs = jnp.where(normal < 0, -1, 1).astype(mean.dtype)
            return signs * mean[None, :], jnp.broadcast_to(scale[None, :], normal.shape)

        return SpectralPart(self.weights[i], tuple(range(d)), d, law)
