"""Fourier series of periodic kernels along one column, and the parts of their spectra."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.numerics import eps_of
from kernax.core.kernel.spectra import Parts, fixed_part

# Enough for lengthscales from 0.3 on in float64, and from 0.2 on in float32.
_HARMONICS = 24

Series = tuple[Float[Array, ""], Float[Array, " j"], Float[Array, " j"]]


def fourier_series(
    lengthscale: Float[Array, "*d"], period: Float[Array, "*e"], harmonics: int
) -> Series | None:
    """Returns `(varying, a, w)` of `exp(b (cos(2 pi t / period) - 1)) = (1 - varying) + sum_j a_j
    cos(w_j t)`, `b = 1 / lengthscale^2`: `a_j = 2 exp(-b) I_j(b)`, `varying = sum_j a_j` and `w_j =
    2 pi j / period`, j = 1, 2, ... None in several dimensions, or without any harmonics.
    """
    if lengthscale.size > 1 or period.size > 1 or not harmonics:
        return None
    lengthscale = lengthscale.reshape(())
    period = period.reshape(())
    dtype = lengthscale.dtype
    # The trapezoid rule has the error of the coefficients beyond twice the last one. Minus one, the
    # kernel keeps its digits where it is nearly constant, as at long lengthscales.
    angles = jnp.arange(3 * harmonics + 1, dtype=dtype) * (2 * math.pi / (3 * harmonics + 1))
    # With e_n = exp(b (cos(angle_n) - 1)): varying = 1 - mean_n e_n and
    # a_j = 2 mean_n cos(j angle_n) e_n, to which subtracting one from e_n adds nothing.
    values = jnp.expm1((jnp.cos(angles) - 1) / lengthscale**2)
    j = jnp.arange(1, harmonics + 1, dtype=dtype)
    variances = 2 * jnp.mean(jnp.cos(j[:, None] * angles[None, :]) * values[None, :], 1)
    return -jnp.mean(values), variances, 2 * jnp.pi / period * j


def if_complete(variances: Float[Array, " j"], rest: Float[Array, ""]) -> Float[Array, " j"]:
    """The coefficients of a series, NaN where truncating it costs more than rounding."""
    return jnp.where(rest < eps_of(variances) ** (2 / 3), variances, jnp.nan)


def series_in_cycles(
    lengthscale: Float[Array, "*d"], period: Float[Array, "*e"], dim: int, name: str
) -> Series:
    """The result of `fourier_series`, with frequencies in cycles, for points (dim,). Raises
    ValueError for several dimensions, naming the kernel, and for parameters with another number of
    dimensions.
    """
    for parameter in (lengthscale, period):
        of_each_column(parameter, dim)
    series = fourier_series(lengthscale, period, _HARMONICS) if dim == 1 else None
    if series is None:
        raise ValueError(
            f"{name} has a spectrum along one column here, but points have {dim}: pass a product "
            f"of On({name}(...), column)"
        )
    varying, variances, frequencies = series
    return varying, variances, frequencies / (2 * jnp.pi)


def of_each_column(parameter: Float[Array, "*d"], dim: int) -> Float[Array, " dim"]:
    """A parameter broadcast to (dim,). Raises ValueError unless its shape is () or (dim,)."""
    if parameter.shape not in ((), (dim,)):
        raise ValueError(
            f"a parameter has shape {parameter.shape}, but points have shape ({dim},): pass a "
            f"scalar or one value per dimension, shape ({dim},)"
        )
    return jnp.broadcast_to(parameter, (dim,))


def harmonic_parts(variances: Float[Array, " j"], frequencies: Float[Array, " j"]) -> Parts:
    """One part for each harmonic. In products with other kernels the first harmonics receive more
    of the frequencies, because they mostly have the larger weights.
    """
    variances = jnp.maximum(variances, 0)  # the last ones are rounding errors
    return tuple(
        fixed_part(variances[i], (0,), frequencies[i : i + 1], share=1 / (1 + i))
        for i in range(len(variances))
    )
