"""The predictive distribution of counts under a latent process, and its quantiles."""

import importlib
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from kernax.core.losses.loss_functions import AbstractLikelihood, Poisson
from kernax.core.losses.observation_likelihoods import NegativeBinomial

_NODES = 192
_REACH = 8.6  # deviations, beyond which a normal distribution has nothing in float64
_ROWS_AT_ONCE = 1000  # so that memory does not grow with the table


def distribution_of_counts(
    likelihood: AbstractLikelihood,
    counts: Float[np.ndarray, " n"],
    mean: Float[np.ndarray, " n"],
    variance: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """The distribution function of counts, `P(y <= k) = E[P(y <= k | f)]` for `f ~ N(mean,
    variance)`, with the rate exp(f).

    `P(y <= k | f) = P(g > f)`, where g is the logarithm of a Gamma(k + 1) variable for `Poisson`,
    and of its ratio to a Gamma(1 / dispersion) variable, divided by the dispersion, for
    `NegativeBinomial`. If the deviation of g is at least the distance of the nodes, the trapezoid
    rule computes the expectation. If it is less, which is eleven times less than that of f, g is
    treated as normal. Measured errors are at most 3e-5 for dispersions up to 1/2 and variances up
    to 900, mostly 1e-8. The value is zero for k < 0.
    """
    deviation = np.sqrt(variance)
    # The mean and the deviation of g.
    special = _special()
    shape = np.maximum(counts, 0) + 1
    centre = special.digamma(shape)
    of_logarithm = special.polygamma(1, shape)
    if isinstance(likelihood, Poisson):
        spread = np.sqrt(of_logarithm)
    else:
        size = _size(likelihood)
        centre = centre - special.digamma(size) + math.log(size)
        spread = np.sqrt(of_logarithm + special.polygamma(1, size))
    # by_nodes = sum_j w_j P(y <= k | f_j) / sum_j w_j, the expectation by the trapezoid rule
    places = np.linspace(-_REACH, _REACH, _NODES)
    weights = np.exp(-(places**2) / 2)
    f = mean[:, None] + deviation[:, None] * places
    k = np.maximum(counts, 0)[:, None]
    by_nodes = _given(likelihood, k, f) @ (weights / weights.sum())
    # as_normal = P(g > f) for a normal g
    as_normal = _special().ndtr((centre - mean) / np.hypot(deviation, spread))
    step = 2 * _REACH / (_NODES - 1) * deviation
    return np.where(counts < 0, 0, np.where(step <= spread, by_nodes, as_normal))


def _given(
    likelihood: AbstractLikelihood, counts: np.ndarray, f: np.ndarray
) -> Float[np.ndarray, "n m"]:
    """`P(y <= k | f)`."""
    rate = np.exp(np.minimum(f, 700.0))
    if isinstance(likelihood, Poisson):
        return _special().gammaincc(counts + 1, rate)
    size = _size(likelihood)
    return _special().betainc(size, counts + 1, size / (size + rate))


def _size(likelihood: AbstractLikelihood) -> float:
    """1 / dispersion. Raises ValueError if the likelihood is not one of counts."""
    if not isinstance(likelihood, NegativeBinomial):
        raise ValueError(f"{type(likelihood).__name__} is not a likelihood of counts")
    return 1 / float(likelihood.dispersion)


def quantile_of_counts(
    likelihood: AbstractLikelihood,
    share: float,
    mean: Float[np.ndarray, " n"],
    variance: Float[np.ndarray, " n"],
    moments: tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]],
) -> Float[np.ndarray, " n"]:
    """Quantiles of counts: the smallest counts k with `P(y <= k) >= share`, 0 < share < 1.

    Arguments:
        mean, variance: those of f, one for each row.
        moments: the mean and the variance of y. By Cantelli's inequality a quantile is at most
            `sqrt(share / (1 - share))` deviations above the mean, and `sqrt((1 - share) / share)`
            below.
    """
    found = [np.zeros(0)]
    for begin in range(0, len(mean), _ROWS_AT_ONCE):
        rows = slice(begin, begin + _ROWS_AT_ONCE)
        few = (moments[0][rows], moments[1][rows])
        found.append(_quantile(likelihood, share, mean[rows], variance[rows], few))
    return np.concatenate(found)


def _quantile(
    likelihood: AbstractLikelihood,
    share: float,
    mean: np.ndarray,
    variance: np.ndarray,
    moments: tuple[np.ndarray, np.ndarray],
) -> Float[np.ndarray, " n"]:
    """`quantile_of_counts` for all rows at once, by bisection."""
    known = np.isfinite(moments[0] + moments[1])
    centre = np.where(known, moments[0], 0)
    spread = np.sqrt(np.where(known, moments[1], 0))
    below = np.floor(centre - spread * math.sqrt((1 - share) / share)) - 1
    low = np.maximum(below, -1.0)  # P(y <= low) < share
    high = np.ceil(centre + spread * math.sqrt(share / (1 - share)))
    # Beyond 2^53 there are no two neighbouring integers.
    while np.any(high - low > np.maximum(1, 1e-15 * high)):
        middle = np.floor((low + high) / 2)
        enough = distribution_of_counts(likelihood, middle, mean, variance) >= share
        low = np.where(enough, low, middle)
        high = np.where(enough, middle, high)
    return np.where(known, high, np.nan)


def _special() -> Any:
    return importlib.import_module("scipy.special")
