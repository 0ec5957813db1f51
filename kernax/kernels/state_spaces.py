"""State-space models of stationary kernels of one coordinate.

The states of a Matern kernel are the process and its derivatives in units of `r / (x - z)`
(Hartikainen & Sarkka, "Kalman filtering and smoothing solutions to temporal Gaussian process
regression models", 2010). The states of a periodic kernel are the terms of its Fourier series
(Solin & Sarkka, "Explicit link between periodic covariance functions and state space models",
2014).
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.derivatives import custom_jvp, with_zeros
from kernax.core.base.numerics import matmul
from kernax.core.base.special_functions import polynomial
from kernax.core.kernel.state_space import AbstractStateSpace

# A(s) = exp(F tau) with tau = rate s and F the companion matrix of (x + 1)^(p + 1). F + I is
# nilpotent, and A(s) is exp(-tau) times I + (F + I) tau + (F + I)^2 tau^2 / 2. These are the
# coefficients of 1, tau, tau^2.
_TRANSITIONS = (
    [[[1]]],
    [[[1, 1], [0, 1]], [[0, -1], [1, -1]]],
    [
        [[1, 1, 0.5], [0, 1, 1], [0, 0, 0.5]],
        [[0, 0, -0.5], [1, 1, -1], [0, 1, -0.5]],
        [[0, -1, 0.5], [0, -3, 1], [1, -2, 0.5]],
    ],
)
# The mean of f_i f_j, f_i the i-th derivative of f in tau: (-1)^j times the derivative of order
# i + j of the correlation at tau = 0.
_COVARIANCES = (
    [[1]],
    [[1, 0], [0, 1]],
    [[1, 0, -1 / 3], [0, 1 / 3, 0], [-1 / 3, 0, 1]],
)
_FAR = 1000.0  # times the rate: there exp(-tau) is zero, and tau^2 finite


class MaternStates(AbstractStateSpace):
    """`(d / dt + rate)^(p + 1) f = white noise`, with states f, f' / rate, f'' / rate^2; p < 3."""

    rate: Float[Array, ""]
    p: int = eqx.field(static=True)

    def observation(self):
        return jnp.zeros_like(self.rate, shape=self.p + 1).at[0].set(1)

    def stationary(self):
        return jnp.asarray(_COVARIANCES[self.p], self.rate.dtype)

    def transition(self, step):
        # A = exp(-tau) (A_0 + A_1 tau + A_2 tau^2).
        tau = jnp.minimum(self.rate * step, _FAR)
        powers = jnp.stack([jnp.ones_like(tau), tau, tau**2][: self.p + 1])
        polynomials = jnp.asarray(_TRANSITIONS[self.p], tau.dtype)
        return jnp.exp(-tau) * matmul(polynomials, powers)


class Oscillators(AbstractStateSpace):
    """`sum_j variances_j cos(frequencies_j t)`: two states, cosine and sine, per frequency."""

    frequencies: Float[Array, " j"]
    variances: Float[Array, " j"]

    def observation(self):
        # h = (1, 0, 1, 0, ...): the sum of the cosines.
        both = jnp.stack([jnp.ones_like(self.variances), jnp.zeros_like(self.variances)], 1)
        return both.reshape(-1)

    def stationary(self):
        return jnp.diag(jnp.repeat(self.variances, 2))

    def transition(self, step):
        # [[cos, -sin], [sin, cos]] of frequencies_j step for each pair of states.
        angles = self.frequencies * step
        m = 2 * len(angles)
        diagonal = jnp.repeat(jnp.cos(angles), 2)
        sines = jnp.sin(angles)
        even = jnp.arange(0, m, 2)
        return jnp.diag(diagonal).at[even, even + 1].set(-sines).at[even + 1, even].set(sines)


class DampedOscillations(AbstractStateSpace):
    """`f'' + (rate / quality) f' + rate^2 f = white noise`, with states f and f' / rate."""

    rate: Float[Array, ""]
    quality: Float[Array, ""]

    def observation(self):
        return jnp.zeros_like(self.rate, shape=2).at[0].set(1)

    def stationary(self):
        return jnp.eye(2, dtype=self.rate.dtype)

    def transition(self, step):
        # exp(F z) = [[k, r], [-r, k - r / Q]] with z = rate step, F = [[0, 1], [-1, -1 / Q]], and r
        # the response to an impulse, dk/dz = -r.
        z = self.rate * step
        k = damped_oscillation(z, self.quality)
        response = z * _response(z, self.quality)
        return jnp.stack([k, response, -response, k - response / self.quality]).reshape(2, 2)


@custom_jvp
def damped_oscillation(z: Float[Array, ""], quality: Float[Array, ""]) -> Float[Array, ""]:
    """`exp(-u) (cos(v) + u sin(v) / v)`, `u = |z| / (2 Q)`, `v = z sqrt(1 - 1 / (4 Q^2))`."""
    cosine, sine = _damped(z, quality)
    return cosine + abs(z) / (2 * quality) * sine


@damped_oscillation.def_jvp
def _damped_oscillation_jvp(primals, tangents):
    # The derivative in z is -z times the response to an impulse, which is smooth at z = 0.
    z, quality = primals
    of_quality = lambda quality: damped_oscillation.function(z, quality)
    value, slope = jax.jvp(of_quality, (quality,), (jnp.ones_like(quality),))
    dz, d_quality = with_zeros(primals, tangents)
    return value, slope * d_quality - z * _response(z, quality) * dz


def _response(z: Float[Array, ""], quality: Float[Array, ""]) -> Float[Array, ""]:
    """`exp(-u) sin(v) / v`."""
    return _damped(z, quality)[1]


_NEAR = 0.5  # |v^2| below which series are used, whose next terms are 1e-17
_COSINE = [(-1) ** j / math.factorial(2 * j) for j in range(8)]
_SINE = [(-1) ** j / math.factorial(2 * j + 1) for j in range(8)]


def _damped(
    z: Float[Array, ""], quality: Float[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`exp(-u) cos(v)` and `exp(-u) sin(v) / v`, which are functions of `v^2 = z^2 - u^2` of any
    sign.
    """
    u = abs(z) / (2 * quality)
    square = (abs(z) - u) * (abs(z) + u)
    oscillates = square > _NEAR
    decays = square < -_NEAR
    v = jnp.sqrt(jnp.where(oscillates, square, 1))
    decay = jnp.exp(-u)
    # Without oscillation, v^2 < 0:
    # exp(-u) cosh(w) = (exp(w - u) + exp(-w - u)) / 2 for v = i w, and w - u = -z^2 / (w + u).
    w = jnp.sqrt(jnp.where(decays, -square, 1))
    slow = jnp.exp(-z * (z / (w + jnp.where(decays, u, 1)))) / 2
    fast = jnp.exp(-w - u) / 2
    near = jnp.where(oscillates | decays, 0, square)
    cosine = jnp.where(oscillates, jnp.cos(v), polynomial(_COSINE, near))
    sine = jnp.where(oscillates, jnp.sin(v) / v, polynomial(_SINE, near))
    return (
        jnp.where(decays, slow + fast, decay * cosine),
        jnp.where(decays, (slow - fast) / w, decay * sine),
    )
