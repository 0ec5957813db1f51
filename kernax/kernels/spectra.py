"""Spectra of kernels that core does not know: discrete ones, and those of some columns."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.kernel.spectra import Parts, fixed_part, spectrum
from kernax.kernels.combinators import On
from kernax.kernels.state_spaces import fourier_series, if_complete
from kernax.kernels.stationary import Cosine, Periodic, ZeroMeanPeriodic

# Enough for lengthscales from 0.3 on in float64, and from 0.2 on in float32.
_HARMONICS = 24


@spectrum.register
def _(kernel: On, dim: int) -> Parts:
    places = kernel.part(np.arange(dim)).tolist()
    if len(set(places)) < len(places):
        raise ValueError(
            f"On(kernel, {kernel.where!r}) picks a column twice, and has no spectrum here: name "
            "each column once"
        )
    parts = spectrum(kernel.kernel, len(places))
    return tuple(
        part._replace(columns=tuple(places[column] for column in part.columns)) for part in parts
    )


@spectrum.register
def _(kernel: Cosine, dim: int) -> Parts:
    frequency = 1 / _of_each_column(kernel.period, dim)
    return (fixed_part(jnp.ones_like(kernel.period, shape=()), tuple(range(dim)), frequency),)


def _of_each_column(parameter: Float[Array, "*d"], dim: int) -> Float[Array, " dim"]:
    """One for each column. Raises ValueError for those of another dimension."""
    if parameter.shape not in ((), (dim,)):
        raise ValueError(
            f"a parameter has shape {parameter.shape}, but points have shape ({dim},): pass a "
            f"scalar or one value per dimension, shape ({dim},)"
        )
    return jnp.broadcast_to(parameter, (dim,))


@spectrum.register
def _(kernel: Periodic, dim: int) -> Parts:
    varying, variances, frequencies = _series(kernel, dim)
    variances = if_complete(variances, jnp.abs(varying - jnp.sum(variances)))
    return (fixed_part(1 - varying, (), frequencies[:0]), *_harmonics(variances, frequencies))


@spectrum.register
def _(kernel: ZeroMeanPeriodic, dim: int) -> Parts:
    varying, variances, frequencies = _series(kernel, dim)
    variances = variances / varying
    return _harmonics(if_complete(variances, jnp.abs(1 - jnp.sum(variances))), frequencies)


def _series(
    kernel: Periodic | ZeroMeanPeriodic, dim: int
) -> tuple[Float[Array, ""], Float[Array, " j"], Float[Array, " j"]]:
    """What `fourier_series` returns, with frequencies in cycles. Raises ValueError for several
    dimensions, and for parameters of another one.
    """
    for parameter in (kernel.lengthscale, kernel.period):
        _of_each_column(parameter, dim)
    series = fourier_series(kernel, _HARMONICS) if dim == 1 else None
    if series is None:
        name = type(kernel).__name__
        raise ValueError(
            f"{name} has a spectrum along one column here, but points have {dim}: pass a product "
            f"of On({name}(...), column)"
        )
    varying, variances, frequencies = series
    return varying, variances, frequencies / (2 * jnp.pi)


def _harmonics(variances: Float[Array, " j"], frequencies: Float[Array, " j"]) -> Parts:
    """One part for each harmonic. In products with others the first harmonics have a larger share
    of the frequencies, because they mostly have the larger weights.
    """
    variances = jnp.maximum(variances, 0)  # the last ones are rounding
    return tuple(
        fixed_part(variances[i], (0,), frequencies[i : i + 1], share=1 / (1 + i))
        for i in range(len(variances))
    )
