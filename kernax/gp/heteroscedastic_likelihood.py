"""The likelihood of normal noise, the variance of which is a latent function as well."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from kernax.core.base.printing import Printed
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.losses.loss_functions import AbstractLikelihood, Values
from kernax.core.losses.quadrature import size
from kernax.gp.process import GaussianProcess

_N_PLACES = 192


class HeteroscedasticGaussian(Printed):
    """`y ~ N(f(x), exp(g(x)))`, where the log variance g of the noise is a Gaussian process of its
    own (Goldberg, Williams & Bishop 1998). Only `variational` accepts it.

    `log_noise` is the prior of g, with a kernel and a mean: `exp(mean)` is the median of the
    variance of the noise, in the units of `y^2`. Its parameters are learned with those of the
    process of f; with `mean=kernax.ConstantMean(...)` so is the mean. A kernel stands for a
    process of mean zero: the median of the variance is one.

    Raises ValueError if `log_noise` is neither a process nor a kernel.

    Examples:
        >>> log_noise = kernax.GaussianProcess(kernax.RBF(1.0), kernax.ConstantMean(-2.0))
        >>> likelihood = kernax.likelihoods.HeteroscedasticGaussian(log_noise)
        >>> sorted(kernax.unconstrain(likelihood)[0])  # what is learned
        ['log_noise.covariance.lengthscale', 'log_noise.mean.value']
    """

    log_noise: GaussianProcess

    def __init__(self, log_noise: GaussianProcess | AbstractKernel):
        if isinstance(log_noise, AbstractKernel):
            log_noise = GaussianProcess(log_noise)
        if not isinstance(log_noise, GaussianProcess):
            raise ValueError(
                "log_noise must be a GaussianProcess or a kernel, the prior of the log variance of "
                f"the noise, but is of type {type(log_noise).__name__}: "
                "GaussianProcess(kernel, mean=ConstantMean(-2.0))"
            )
        self.log_noise = log_noise


class ResidualOfLogNoise(AbstractLikelihood):
    """`(log(2 pi t) + r^2 / t) / 2` with `t = variance + exp(g)`: of a residual r = y - E f, given
    the log variance g of its noise.

    Attributes:
        variance: of f; None if f is known, in which case the loss is convex in g.
    """

    variance: Float[Array, "*n"] | None = None

    @property
    def convex(self):
        return self.variance is None

    def __call__(self, y, f):
        total = self._total(f)
        return (jnp.log(2 * math.pi * total) + y**2 / total) / 2

    def derivative(self, y, f):
        total = self._total(f)
        share = jnp.exp(f) / total
        return share * (1 - y**2 / total) / 2

    def curvature(self, y, f):
        total = self._total(f)
        share = jnp.exp(f) / total
        ratio = y**2 / total
        return share * ((1 - share) * (1 - ratio) + share * ratio) / 2

    def response(self, f):
        return jnp.zeros_like(f)

    def moments(self, f):
        return jnp.zeros_like(f), self._total(f)

    def turn(self, y, mean, unit, ends):
        # The window is centred at the mode.
        low, high = ends
        return (low + high) / 2, (high - low) / 16

    def window(self, y, mean, variance):
        powers, _ = size(mean.dtype)
        # To the left the density increases at most like exp(-g / 2), to the right at most up to
        # exp(g) = r^2 - variance: the product with the normal distribution is negligible outside.
        left = variance / 2 + jnp.sqrt(variance**2 / 4 + 2 * powers * variance)
        best = y**2 - (0 if self.variance is None else self.variance)
        is_right = best > jnp.exp(mean)
        peak = jnp.where(is_right, jnp.log(jnp.where(is_right, best, 1)) - mean, 0)
        rise = self(y, mean) - self(y, mean + peak)
        farthest = jnp.sqrt(2 * powers * variance)
        right = jnp.minimum(peak + farthest, jnp.sqrt(2 * variance * (powers + rise)))
        # The product may have two modes. The window has the highest of many places in its middle,
        # and contains all places where the product is not negligible.
        shares = jnp.linspace(0, 1, _N_PLACES, dtype=mean.dtype)
        places = jax.vmap(lambda share: share * right - (1 - share) * left)(shares)
        of_place = lambda off: -self(y, mean + off) - off**2 / (2 * variance)
        heights = jax.vmap(of_place)(places)
        highest = jnp.argmax(heights, 0, keepdims=True)
        mode = jnp.take_along_axis(places, highest, 0)
        is_high = heights > jnp.max(heights, 0, keepdims=True) - powers
        reach = jnp.max(jnp.where(is_high, abs(places - mode), 0), 0)
        reach = reach + (left + right) / (_N_PLACES - 1)
        return mode[0] - reach, mode[0] + reach

    def _total(self, f: Values) -> Values:
        """The variance of the residual, which does not underflow to zero."""
        noise = jnp.exp(f)
        total = noise if self.variance is None else self.variance + noise
        return jnp.maximum(total, jnp.finfo(total.dtype).tiny)
