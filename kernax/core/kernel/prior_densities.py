"""Prior densities of parameters, and the log prior of a model."""

import abc
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax.scipy import stats
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ArrayLike, ParameterArray
from kernax.core.base.boundary import cast
from kernax.core.base.intervals import NONNEGATIVE, POSITIVE, REAL, Interval
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import (
    ParameterEntry,
    check_intervals,
    ends_like,
    listed,
    parameters,
    positive,
    real,
    shown,
)
from kernax.core.base.printing import Printed


class AbstractPrior(Printed):
    """A density of one number; the elements of an array are independent.

    Its parameters are scalars, or arrays of the shape of the parameter it applies to. A subclass
    defines `support` and `log_density`.
    """

    support: ClassVar[Interval]

    def __check_init__(self):
        check_intervals(self)

    @abc.abstractmethod
    def log_density(self, value: ArrayLike) -> Float[Array, "*shape"]:
        """The logarithm of the density, element by element; -inf outside the support."""


class Normal(AbstractPrior):
    """`N(mean, deviation^2)`, in units of the parameter.

    For a positive parameter it is the density of a truncated normal variable, up to a constant.

    Examples:
        >>> prior = kernax.priors.Normal(mean=0.0, deviation=2.0)
        >>> round(float(prior.log_density(jnp.array(0.0))), 3)
        -1.612
    """

    mean: Float[ParameterArray, "*shape"] = real(default=0.0)
    deviation: Float[ParameterArray, "*shape"] = positive(default=1.0)

    support: ClassVar[Interval] = REAL

    def log_density(self, value):
        return stats.norm.logpdf(value, self.mean, self.deviation)


class LogNormal(AbstractPrior):
    """The density of a number with the logarithm `N(mean, deviation^2)`.

    Its median is `exp(mean)`; 95 % of the values are within a factor of `exp(2 deviation)` of it.

    Examples:
        >>> prior = kernax.priors.LogNormal(mean=0.0, deviation=1.0)
        >>> round(float(prior.log_density(jnp.array(1.0))), 3)
        -0.919
    """

    mean: Float[ParameterArray, "*shape"] = real(default=0.0)
    deviation: Float[ParameterArray, "*shape"] = positive(default=1.0)

    support: ClassVar[Interval] = POSITIVE

    def log_density(self, value):
        # log N(log v | mean, deviation^2) - log v.
        inside, value = _within(value)
        log = jnp.log(value)
        return jnp.where(inside, stats.norm.logpdf(log, self.mean, self.deviation) - log, -jnp.inf)


class Gamma(AbstractPrior):
    """`rate^shape v^(shape - 1) exp(-rate v) / Gamma(shape)`: the mean is shape / rate.

    Examples:
        >>> prior = kernax.priors.Gamma(shape=2.0, rate=1.0)
        >>> round(float(prior.log_density(jnp.array(1.0))), 3)
        -1.0
    """

    shape: Float[ParameterArray, "*shape"] = positive(default=1.0)
    rate: Float[ParameterArray, "*shape"] = positive(default=1.0)

    support: ClassVar[Interval] = POSITIVE

    def log_density(self, value):
        # rate v ~ Gamma(shape, 1), and log p(v) = log p(rate v) + log rate.
        inside, value = _within(value)
        log_density = stats.gamma.logpdf(value * self.rate, self.shape) + jnp.log(self.rate)
        return jnp.where(inside, log_density, -jnp.inf)


class InverseGamma(AbstractPrior):
    """`scale^shape v^(-shape - 1) exp(-scale / v) / Gamma(shape)`: 1 / v has the density
    `Gamma(shape, scale)`.

    The density vanishes so fast at zero that it keeps a noise or a lengthscale away from zero.

    Examples:
        >>> prior = kernax.priors.InverseGamma(shape=2.0, scale=1.0)
        >>> round(float(prior.log_density(jnp.array(1.0))), 3)
        -1.0
    """

    shape: Float[ParameterArray, "*shape"] = positive(default=1.0)
    scale: Float[ParameterArray, "*shape"] = positive(default=1.0)

    support: ClassVar[Interval] = POSITIVE

    def log_density(self, value):
        # With u = 1 / v: log p(u) - 2 log v, as |du / dv| = 1 / v^2.
        inside, value = _within(value)
        of_inverse = stats.gamma.logpdf(self.scale / value, self.shape) + jnp.log(self.scale)
        return jnp.where(inside, of_inverse - 2 * jnp.log(value), -jnp.inf)


class HalfNormal(AbstractPrior):
    """The density of |v|, v of `N(0, scale^2)`.

    Examples:
        >>> prior = kernax.priors.HalfNormal(scale=1.0)
        >>> round(float(prior.log_density(jnp.array(0.5))), 3)
        -0.351
    """

    scale: Float[ParameterArray, "*shape"] = positive(default=1.0)

    support: ClassVar[Interval] = NONNEGATIVE

    def log_density(self, value):
        return _folded(stats.norm.logpdf(value, 0, self.scale), value)


class HalfCauchy(AbstractPrior):
    """`2 / (pi scale (1 + v^2 / scale^2))`: half of the values are above the scale, and some are
    far above it.

    Examples:
        >>> prior = kernax.priors.HalfCauchy(scale=1.0)
        >>> round(float(prior.log_density(jnp.array(1.0))), 3)  # -log pi
        -1.145
    """

    scale: Float[ParameterArray, "*shape"] = positive(default=1.0)

    support: ClassVar[Interval] = NONNEGATIVE

    def log_density(self, value):
        return _folded(stats.cauchy.logpdf(value, 0, self.scale), value)


class Beta(AbstractPrior):
    """`v^(a - 1) (1 - v)^(b - 1) / B(a, b)`, for parameters between 0 and 1.

    Examples:
        >>> prior = kernax.priors.Beta(a=2.0, b=2.0)
        >>> round(float(prior.log_density(jnp.array(0.5))), 3)  # log 1.5
        0.405
    """

    a: Float[ParameterArray, "*shape"] = positive(default=1.0)
    b: Float[ParameterArray, "*shape"] = positive(default=1.0)

    support: ClassVar[Interval] = Interval(0.0, 1.0)

    def log_density(self, value):
        # (a - 1) log v + (b - 1) log(1 - v) - log B(a, b).
        value = jnp.asarray(value)
        inside = (value > 0) & (value < 1)
        log_density = stats.beta.logpdf(jnp.where(inside, value, 0.5), self.a, self.b)
        return jnp.where(inside, log_density, -jnp.inf)


def _folded(log_density: Array, value: ArrayLike) -> Array:
    """The density of the absolute value of a number with an even density."""
    # |v| has the density p(v) + p(-v) = 2 p(v).
    return jnp.where(jnp.asarray(value) >= 0, log_density + math.log(2), -jnp.inf)


def _within(value: ArrayLike) -> tuple[Array, Array]:
    """Which elements are positive, and all elements with 1 in place of the others."""
    value = jnp.asarray(value)
    inside = value > 0
    return inside, jnp.where(inside, value, 1)


Priors = Mapping[str, AbstractPrior] | Callable[[str, Array], AbstractPrior | None]


def log_prior(model: PyTree, priors: Priors) -> Float[Array, ""]:
    """`sum_j log p_j(v_j)` over the parameters v_j of a model that have a prior, in natural units.

    Add it to the log evidence in a loss for `minimise`, to find the mode of the parameters'
    posterior density, or in the log density for `unconstrained_density`, which adds the Jacobian of
    the unconstrained values. It is differentiable in the model and in the parameters of the priors.

    Arguments:
        model: any pytree of modules, such as a `Model`; `describe(model)` shows its paths.
        priors: from the ends of paths to priors, such as `{"lengthscale": LogNormal(0.0, 1.0),
            "noise": HalfNormal(0.1)}`: an end is a whole path, or begins after a point of it, and
            the longest match counts. Alternatively a function `priors(path, value)`, like
            `trainable`, which returns a prior, or None for a parameter without one. Such a
            parameter has a flat density in its natural units.

    Raises:
        ValueError: no path ends with a key, no parameter has a prior, or a value is not a prior;
            the support of a prior does not contain the interval of the parameter, such as a `Gamma`
            for a mean that may be negative; the parameters of a prior have the wrong shape; or a
            value is at the end of its interval, where the prior has no density.

    Examples:
        >>> model = kernax.Model(kernax.RBF(2.0), 0.1)
        >>> priors = {"lengthscale": kernax.priors.LogNormal(0.0, 1.0)}
        >>> round(float(kernax.priors.log_prior(model, priors)), 3)
        -1.852
    """
    entries = parameters(model)
    # The parameters that have a prior.
    if callable(priors):
        pairs = [(entry, priors(entry.path, entry.value)) for entry in entries]
        chosen = [(entry, prior) for entry, prior in pairs if prior is not None]
    else:
        chosen = _of_ends(priors, entries)
    if not chosen:
        raise ValueError(f"priors has no prior for any parameter: {listed(entries)}")
    dtype = jnp.result_type(*(entry.value for entry, _ in chosen))
    # sum_j log p_j(v_j), over the elements of arrays as well.
    total = jnp.zeros((), dtype)
    for entry, prior in chosen:
        prior = cast(prior, entry.value.dtype)
        if not isinstance(prior, AbstractPrior):
            came = f"the class {prior.__name__}" if isinstance(prior, type) else repr(prior)
            raise ValueError(
                f"the prior of {entry.path} must be one of kernax.priors, such as LogNormal(0.0, "
                f"1.0), but is {came}"
            )
        name = type(prior).__name__
        for own in parameters(prior):
            if own.value.shape not in ((), entry.value.shape):
                raise ValueError(
                    f"{name}.{own.path}, of the prior of {entry.path}, must be a number or have "
                    f"its shape {entry.value.shape}, but has shape {own.value.shape}"
                )
        support = prior.support
        if support.low > entry.interval.low or support.high < entry.interval.high:
            raise ValueError(
                f"{entry.path} may be anywhere {_placed(entry.interval)}, but {name} is a density "
                f"of numbers {_placed(support)}: use a prior that has a density everywhere there"
            )
        if is_concrete(entry.value) and not support.contains(entry.value):
            raise ValueError(
                f"{entry.path} is {shown(np.asarray(entry.value))}, but {name} is a density of "
                f"numbers {_placed(support)}: start inside, or omit its prior"
            )
        log_density = prior.log_density(entry.value)
        total += jnp.sum(log_density).astype(dtype)
    return total


Chosen = list[tuple[ParameterEntry, Any]]  # the priors are checked later


def _of_ends(priors: Any, entries: list[ParameterEntry]) -> Chosen:
    """The parameters with paths that end like a key. Raises ValueError for keys without a match."""
    if not isinstance(priors, Mapping):
        raise ValueError(
            "priors must be a dictionary from the ends of paths to priors, or a function of a path "
            f"and a value, but are of type {type(priors).__name__}"
        )
    for end in priors:
        if not any(ends_like(entry.path, end) for entry in entries):
            raise ValueError(f"priors[{end!r}] matches no parameter: {listed(entries)}")
    chosen = []
    for entry in entries:
        fitting = [end for end in priors if ends_like(entry.path, end)]
        if fitting:
            chosen.append((entry, priors[max(fitting, key=len)]))
    return chosen


def _placed(interval: Interval) -> str:
    """The location of the numbers of an interval, for messages."""
    return "on the real line" if interval == REAL else f"in {interval}"
