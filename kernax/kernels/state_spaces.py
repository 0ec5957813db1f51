"""Stationary kernels of one coordinate as state-space models.

The states of a Matern kernel are the process and its derivatives in units of `r / (x - z)`, see
Hartikainen & Sarkka, "Kalman filtering and smoothing solutions to temporal Gaussian process
regression models", 2010; those of a periodic kernel are the terms of its Fourier series, see Solin
& Sarkka, "Explicit link between periodic covariance functions and state space models", 2014.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.numerics import eps_of, matmul
from kernax.core.kernel.state_space import (
    AbstractStateSpace,
    ConstantState,
    SumOfStates,
    state_space_of,
)
from kernax.kernels.stationary import (
    Cosine,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    ZeroMeanPeriodic,
)

# A(s) is exp(-tau) times polynomials in tau = rate s, here their coefficients of 1, tau, tau^2.
_TRANSITIONS = (
    [[[1]]],
    [[[1, 1], [0, 1]], [[0, -1], [1, -1]]],
    [
        [[1, 1, 0.5], [0, 1, 1], [0, 0, 0.5]],
        [[0, 0, -0.5], [1, 1, -1], [0, 1, -0.5]],
        [[0, -1, 0.5], [0, -3, 1], [1, -2, 0.5]],
    ],
)
_COVARIANCES = (
    [[1]],
    [[1, 0], [0, 1]],
    [[1, 0, -1 / 3], [0, 1 / 3, 0], [-1 / 3, 0, 1]],
)
_FAR = 1000.0  # times the rate: exp(-tau) is zero, and tau^2 a number


class MaternStates(AbstractStateSpace):
    """`(d / dt + rate)^(p + 1) f = white noise`, of states f, f' / rate, f'' / rate^2; p < 3."""

    rate: Float[Array, ""]
    p: int = eqx.field(static=True)

    def observation(self):
        return jnp.zeros_like(self.rate, shape=self.p + 1).at[0].set(1)

    def stationary(self):
        return jnp.asarray(_COVARIANCES[self.p], self.rate.dtype)

    def transition(self, step):
        tau = jnp.minimum(self.rate * step, _FAR)
        powers = jnp.stack([jnp.ones_like(tau), tau, tau**2][: self.p + 1])
        polynomials = jnp.asarray(_TRANSITIONS[self.p], tau.dtype)
        return jnp.exp(-tau) * matmul(polynomials, powers)


class Oscillators(AbstractStateSpace):
    """`sum_j variances_j cos(frequencies_j t)`: a cosine and a sine of each frequency."""

    frequencies: Float[Array, " j"]
    variances: Float[Array, " j"]

    def observation(self):
        both = jnp.stack([jnp.ones_like(self.variances), jnp.zeros_like(self.variances)], 1)
        return both.reshape(-1)

    def stationary(self):
        return jnp.diag(jnp.repeat(self.variances, 2))

    def transition(self, step):
        angles = self.frequencies * step
        m = 2 * len(angles)
        diagonal = jnp.repeat(jnp.cos(angles), 2)
        sines = jnp.sin(angles)
        even = jnp.arange(0, m, 2)
        return jnp.diag(diagonal).at[even, even + 1].set(-sines).at[even + 1, even].set(sines)


def _number(parameter: Float[Array, "*d"]) -> Float[Array, ""] | None:
    """A parameter of one dimension as a number; None for one of several."""
    return parameter.reshape(()) if parameter.size == 1 else None


def _of_matern(p: int) -> Callable[..., AbstractStateSpace | None]:
    """The model of the Matern kernel of smoothness `nu = p + 1/2`."""

    def model(kernel: Matern12 | Matern32 | Matern52, harmonics: int) -> AbstractStateSpace | None:
        lengthscale = _number(kernel.lengthscale)
        if lengthscale is None:
            return None
        return MaternStates(math.sqrt(2 * p + 1) / lengthscale, p)

    return model


state_space_of.register(Matern12)(_of_matern(0))
state_space_of.register(Matern32)(_of_matern(1))
state_space_of.register(Matern52)(_of_matern(2))


@state_space_of.register
def _(kernel: Cosine, harmonics: int) -> AbstractStateSpace | None:
    period = _number(kernel.period)
    if period is None:
        return None
    frequency = 2 * jnp.pi / period
    return Oscillators(frequency[None], jnp.ones_like(frequency)[None])


@state_space_of.register
def _(kernel: Periodic, harmonics: int) -> AbstractStateSpace | None:
    series = fourier_series(kernel, harmonics)
    if series is None:
        return None
    varying, variances, frequencies = series
    rest = jnp.abs(varying - jnp.sum(variances))
    states = (ConstantState(1 - varying), Oscillators(frequencies, if_complete(variances, rest)))
    return SumOfStates(states)


@state_space_of.register
def _(kernel: ZeroMeanPeriodic, harmonics: int) -> AbstractStateSpace | None:
    series = fourier_series(kernel, harmonics)
    if series is None:
        return None
    varying, variances, frequencies = series
    variances = variances / varying
    return Oscillators(frequencies, if_complete(variances, jnp.abs(1 - jnp.sum(variances))))


def fourier_series(
    kernel: Periodic | ZeroMeanPeriodic, harmonics: int
) -> tuple[Float[Array, ""], Float[Array, " j"], Float[Array, " j"]] | None:
    """One less the mean of `exp(b (cos(2 pi t / period) - 1))`, `b = 1 / lengthscale^2`, over a
    period; its coefficients of cosines, `2 exp(-b) I_j(b)`, j = 1, 2, ..., whose sum that is; and
    their frequencies. None in several dimensions, or without any harmonics.
    """
    lengthscale = _number(kernel.lengthscale)
    period = _number(kernel.period)
    if lengthscale is None or period is None or not harmonics:
        return None
    dtype = lengthscale.dtype
    # By the trapezoid rule, whose error is the coefficients beyond twice the last one. The kernel
    # less one keeps its digits where it is nearly constant, as at long lengthscales.
    angles = jnp.arange(3 * harmonics + 1, dtype=dtype) * (2 * math.pi / (3 * harmonics + 1))
    values = jnp.expm1((jnp.cos(angles) - 1) / lengthscale**2)
    j = jnp.arange(1, harmonics + 1, dtype=dtype)
    variances = 2 * jnp.mean(jnp.cos(j[:, None] * angles[None, :]) * values[None, :], 1)
    return -jnp.mean(values), variances, 2 * jnp.pi / period * j


def if_complete(variances: Float[Array, " j"], rest: Float[Array, ""]) -> Float[Array, " j"]:
    """The coefficients of a series, NaN where what is cut off is more than rounding."""
    return jnp.where(rest < eps_of(variances) ** (2 / 3), variances, jnp.nan)
