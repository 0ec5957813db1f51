"""The likelihood of ordered classes: a latent normal distribution, cut by thresholds."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from jaxtyping import Array, Bool, Float

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.derivatives import custom_jvp, with_zeros
from kernax.core.base.parameters import positive, real
from kernax.core.losses.loss_functions import AbstractLikelihood, Values, check_one_number
from kernax.core.losses.observation_likelihoods import hazard_and_excess

_NODES, _MASSES = np.polynomial.legendre.leggauss(8)


class Ordinal(AbstractLikelihood):
    """Ordered classes y = 0, ..., c - 1 by `-log(Phi((t_y - f) / scale) - Phi((t_(y-1) - f) /
    scale))`, with c - 1 thresholds t and the normal distribution function Phi: the cumulative
    probit model (Chu & Ghahramani 2005).

    The class is how many thresholds are below `f + scale e`, `e ~ N(0, 1)`. The thresholds are
    `first` and `first` plus the sums of the positive `increments`, so that they stay in order while
    they are learned. They, the scale, and the mean and the deviation of the process are only
    determined up to a unit and a constant: learn the thresholds with a process of mean zero, and
    fix either the scale or the variance of the kernel. Thresholds `t` to start from are quantiles
    of a normal distribution at the shares of the classes: `Ordinal(t[0], jnp.diff(t))`.

    With two classes, `first=0.0` and no increments it is `Probit`.

    Raises ValueError for a first threshold or a scale that is not one number, and for increments
    that are not a vector of positive numbers.

    Examples:
        >>> likelihood = kernax.likelihoods.Ordinal(first=-1.0, increments=[2.0])
        >>> likelihood.thresholds.tolist()
        [-1.0, 1.0]
        >>> y, f = jnp.array([0.0, 1.0, 2.0]), jnp.zeros(3)
        >>> jnp.round(jnp.exp(-likelihood(y, f)), 2)  # the probability of each class
        Array([0.16, 0.68, 0.16], dtype=float64)
    """

    targets = "ordered"
    first: Float[ParameterArray, ""] = real()
    increments: Float[ParameterArray, " inner"] = positive()
    scale: Float[ParameterArray, ""] = positive(default=1.0)

    def __check_init__(self):
        check_one_number(self.first, "first", "further thresholds follow from increments")
        check_one_number(self.scale, "scale", "one for each point would not be known at new points")
        shape = jnp.shape(self.increments)
        if len(shape) != 1:
            raise ValueError(
                "increments must have shape (classes - 2,), the distances between thresholds, but "
                f"has shape {shape}"
            )

    @property
    def n_classes(self):
        return len(self.increments) + 2

    @property
    def thresholds(self) -> Float[Array, " thresholds"]:
        """The thresholds, increasing, one fewer than there are classes."""
        return self.first + jnp.append(0 * self.first, jnp.cumsum(self.increments))

    def __call__(self, y, f):
        return self._of_scale(y, f, self.scale)

    def derivative(self, y, f):
        known, middle, width, is_end, sign = self._interval(y, f, self.scale)
        pull = _truncated_normal(middle, width, is_end).pull
        return jnp.where(known, sign * pull / self.scale, jnp.nan)

    def curvature(self, y, f):
        known, middle, width, is_end, _ = self._interval(y, f, self.scale)
        bend = _truncated_normal(middle, width, is_end).bend
        return jnp.where(known, bend / self.scale**2, jnp.nan)

    def response(self, f):
        return self.moments(f)[0]

    def moments(self, f):
        return self._moments(f, self.scale)

    def log_normaliser(self, y, mean, variance, n_nodes=None):
        return -self._of_scale(y, mean, jnp.sqrt(self.scale**2 + variance))

    def predicted_moments(self, mean, variance, n_nodes=None):
        return self._moments(mean, jnp.sqrt(self.scale**2 + variance))

    def _of_scale(self, y: Values, f: Values, scale: Float[Array, "*m"]) -> Values:
        """The loss with that scale; for f ~ N(m, v) it is that at m of `sqrt(scale^2 + v)`."""
        known, middle, width, is_end, _ = self._interval(y, f, scale)
        return jnp.where(known, -_log_probability(middle, width, is_end), jnp.nan)

    def _moments(self, f: Values, scale: Float[Array, "*m"]) -> tuple[Values, Values]:
        """The mean and the variance of y, the index of a class."""
        classes = jnp.arange(self.n_classes, dtype=self.first.dtype)
        of_class = lambda y: jnp.exp(-self._of_scale(jnp.full_like(f, y), f, scale))
        probabilities = jax.vmap(of_class)(classes)
        # E y = sum_c c p_c and Var y = sum_c (c - E y)^2 p_c.
        mean = jnp.tensordot(classes, probabilities, 1, precision=jax.lax.Precision.HIGHEST)
        squares = jax.vmap(lambda y: (y - mean) ** 2)(classes)
        return mean, jnp.sum(squares * probabilities, 0)

    def _interval(self, y: Values, f: Values, scale: Float[Array, "*m"]) -> tuple[Array, ...]:
        """Whether y is a class, and the middle, the width, whether it is an end, and the sign of
        its interval, or of the mirror image that is in the lower tail and has the sign -1.
        """
        last = self.n_classes - 1
        known = (y >= 0) & (y <= last) & (y == jnp.round(y))
        place = jnp.where(known, y, 0).astype(jnp.int32)
        # The middle and the width of each interval; of the first and the last its only end. The
        # width is not a difference of thresholds, so that a narrow interval keeps its digits.
        t = self.thresholds
        middles = jnp.concatenate([t[:1], t[:-1] + self.increments / 2, t[-1:]])
        widths = jnp.pad(self.increments, 1, constant_values=1)
        off = (middles[place] - f) / scale
        is_first = place == 0
        is_end = is_first | (place == last)
        is_mirrored = jnp.where(is_end, ~is_first, off > 0)
        sign = jnp.where(is_mirrored, -jnp.ones_like(off), 1)
        return known, sign * off, widths[place] / scale, is_end, sign


@custom_jvp
def _log_probability(middle: Values, width: Values, is_end: Bool[Array, "*n"]) -> Values:
    """`log(Phi(middle + width / 2) - Phi(middle - width / 2))`, or `log Phi(middle)` of an end."""
    return _truncated_normal(middle, width, is_end).log_probability


@_log_probability.def_jvp
def _log_probability_jvp(primals, tangents):
    # d log p = pull d middle + edge d width, without the derivatives of continued fractions.
    normal = _truncated_normal(*primals)
    (in_middle, in_width, _) = with_zeros(primals, tangents)
    change = normal.pull * in_middle + normal.edge * in_width
    return normal.log_probability, change


class _TruncatedNormal(NamedTuple):
    """The standard normal distribution inside an interval `(b, a)`.

    Attributes:
        log_probability: `log p`.
        pull: minus the mean of the distribution truncated to the interval, `(phi(a) - phi(b)) / p`.
        bend: one minus its variance.
        edge: `(phi(a) + phi(b)) / (2 p)`, and 0 for an end.
    """

    log_probability: Values
    pull: Values
    bend: Values
    edge: Values


def _truncated_normal(middle: Values, width: Values, is_end: Bool[Array, "*n"]) -> _TruncatedNormal:
    """The interval `(b, a)` with that middle, which is not positive, and width; of an end it is
    `(-inf, middle)`.

    No step subtracts nearly equal numbers: relative errors are at most 3e-13 in float64, for
    intervals up to a thousand deviations away and as narrow as 1e-6.
    """
    is_narrow = ~is_end & (width * (1 - middle) < 1)

    # A narrow interval by a rule of Gauss and Legendre, with symmetric nodes. With x = middle + u,
    # the half width s, and I[g] the integral of exp(-u^2 / 2) g(u) from -s to s,
    # p = phi(middle) I[cosh(middle u)], and the mean of u is -I[u sinh(middle u)] over that.
    centre = jnp.where(is_narrow, middle, 0)
    half = jnp.where(is_narrow, width / 2, 1)

    def at_node(node: Array, mass: Array) -> tuple[Values, Values, Values]:
        u = half * node
        density = mass * jnp.exp(-(u**2) / 2)
        even = density * jnp.cosh(centre * u)
        return even, -u * density * jnp.sinh(centre * u), u**2 * even

    nodes = jnp.asarray(_NODES, half.dtype)
    masses = jnp.asarray(_MASSES, half.dtype)
    total, first, second = (jnp.sum(part, 0) for part in jax.vmap(at_node)(nodes, masses))
    mean = first / total
    variance = second / total - mean**2
    log_probability = norm.logpdf(centre) + jnp.log(half * total)
    edge = jnp.cosh(centre * half) * jnp.exp(-(half**2) / 2) / (half * total)
    of_narrow = log_probability, -(centre + mean), 1 - variance, edge

    # Otherwise from the hazards h = phi / Phi and their excesses h(x) + x, the mean of x - t over
    # t < x: with q = phi(b) / phi(a) and r = Phi(b) / Phi(a),
    # p = Phi(a) (1 - r), pull = h(a) (1 - q) / (1 - r), and the mean of a - t over the interval is
    # (excess(a) - r (excess(b) + width)) / (1 - r). For an end q = r = 0.
    a = jnp.where(is_narrow, 0, jnp.where(is_end, middle, middle + width / 2))
    width = jnp.where(is_narrow | is_end, 1, width)
    b = jnp.where(is_narrow | is_end, -1, a - width)  # never positive, where h may be zero
    (of_a, of_b), (excess_of_a, excess_of_b) = hazard_and_excess(jnp.stack([a, b]))
    # log q = (a^2 - b^2) / 2 = width middle.
    log_q = jnp.where(is_narrow | is_end, -1, width * middle)
    q = jnp.where(is_end, 0, jnp.exp(log_q))
    r = q * of_a / of_b
    # `log Phi(a)`, accurate in both tails; `norm.logcdf` has relative errors of 1e-11 at a = -20
    # and of 4e-2 at a = 8.
    is_far = a < -5
    is_low = a < 0
    of_far = norm.logpdf(jnp.where(is_far, a, -5)) - jnp.log(jnp.where(is_far, of_a, 1))
    of_low = jnp.log(norm.cdf(jnp.where(is_low, a, 0)))
    of_high = jnp.log1p(-norm.cdf(jnp.where(is_low, 0, -a)))
    log_cdf = jnp.where(is_far, of_far, jnp.where(is_low, of_low, of_high))
    log_probability = log_cdf + jnp.log1p(-r)
    pull = of_a * jnp.where(is_end, 1, -jnp.expm1(log_q)) / (1 - r)
    below_a = (excess_of_a - r * (excess_of_b + width)) / (1 - r)
    # 1 - variance = pull^2 + (a phi(a) - b phi(b)) / p = pull (a + pull) + width phi(b) / p.
    bend = pull * below_a + width * q * of_a / (1 - r)
    edge = jnp.where(is_end, 0, of_a * (1 + q) / (1 - r) / 2)
    of_wide = log_probability, pull, bend, edge
    return _TruncatedNormal(*(jnp.where(is_narrow, *parts) for parts in zip(of_narrow, of_wide)))
