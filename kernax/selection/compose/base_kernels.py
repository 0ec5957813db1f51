"""The base kernels of a composition, each on one column: their parameters, starts and units."""

import abc
import dataclasses
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from kernax.core.kernel.kernel import AbstractKernel
from kernax.kernels import RBF, Matern52, RationalQuadratic, ShiftedLinear, ZeroMeanPeriodic

MOST_PARAMETERS = 2


@dataclasses.dataclass(frozen=True)
class ColumnScale:
    """The scale of a standardised column: the median spacing of its values and their range.

    Also its least and largest value, and periods that the targets may have along it.
    """

    spacing: float
    span: float
    low: float
    high: float
    periods: tuple[float, ...] = ()


class AbstractBase(abc.ABC):
    """A kernel on one column, with unconstrained parameters theta (`MOST_PARAMETERS`,).

    Attributes:
        word: its name in expressions.
        kind: its class.
        family: a product of two kernels of one family belongs to that family again.
        most: how many of the family a product may contain for one column.
        parameters: how many elements of theta it uses.
        centres, deviations: those of the normal prior of theta.
        wobbles: by how much a start may differ from parameters that fitted already.
    """

    word: ClassVar[str]
    kind: ClassVar[type[AbstractKernel]]
    family: ClassVar[str]
    most: ClassVar[int] = 1
    parameters: ClassVar[int]
    centres: ClassVar[tuple[float, ...]]
    deviations: ClassVar[tuple[float, ...]]
    wobbles: ClassVar[tuple[float, ...]]

    @abc.abstractmethod
    def kernel(self, theta: Any, centre: Any = 0.0, scale: Any = 1.0) -> AbstractKernel:
        """The kernel of x, where theta is about `(x - centre) / scale`, up to `size`."""

    def size(self, scale: float) -> float:
        """The factor that turns the kernel of x into that of `(x - centre) / scale`."""
        return 1.0

    @abc.abstractmethod
    def draw(
        self, rng: np.random.Generator, column: ColumnScale, multiplies: bool
    ) -> Float[np.ndarray, " p"]:
        """Parameters to start from; `multiplies` says that other factors fit already."""

    def moved(
        self, theta: Float[np.ndarray, " p"], rng: np.random.Generator, column: ColumnScale
    ) -> Float[np.ndarray, " p"]:
        """Other parameters near some that fitted already."""
        # theta + s e, e ~ N(0, I), with a deviation s for each parameter.
        return theta + padded(self.wobbles) * rng.normal(size=theta.shape)

    def mean_square(self, theta: Float[np.ndarray, " p"]) -> float:
        """The approximate size of k(x, x) over a standardised column."""
        return 1.0


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """The logarithm of a number between low and high, uniformly distributed."""
    return float(rng.uniform(math.log(low), math.log(max(high, low))))


def _log_length(rng: np.random.Generator, column: ColumnScale, multiplies: bool) -> float:
    """The logarithm of a lengthscale between the spacing and the range; longer ones leave a product
    as it is.
    """
    if multiplies:
        return _log_uniform(rng, column.span / 4, 4 * column.span)
    return _log_uniform(rng, column.spacing, column.span)


class _Local(AbstractBase):
    """A stationary kernel whose first parameter is the logarithm of its lengthscale."""

    family = "local"

    def moved(self, theta, rng, column):
        """Parameters near the present ones, in four of ten cases with a longer lengthscale, which
        leaves variation to the new kernel.
        """
        moved = super().moved(theta, rng, column)
        if rng.uniform() < 0.4:
            moved[0] = _log_uniform(rng, math.exp(moved[0]), column.span)
        return moved


class _OfLengthscale(_Local):
    """A kernel with a lengthscale as its only parameter."""

    parameters = 1
    centres = (0.0,)
    deviations = (2.0,)
    wobbles = (0.3,)

    def kernel(self, theta, centre=0.0, scale=1.0):
        return self.kind(scale * jnp.exp(theta[0]))  # pyright: ignore[reportCallIssue]

    def draw(self, rng, column, multiplies):
        return np.array([_log_length(rng, column, multiplies)])


class OfRBF(_OfLengthscale):
    """RBF: the logarithm of its lengthscale."""

    word = "rbf"
    kind = RBF


class OfMatern52(_OfLengthscale):
    """Matern52: the logarithm of its lengthscale."""

    word = "matern52"
    kind = Matern52


class OfRationalQuadratic(_Local):
    """RationalQuadratic: the logarithms of its lengthscale and of alpha."""

    word = "rational_quadratic"
    kind = RationalQuadratic
    parameters = 2
    centres = (0.0, 0.0)
    deviations = (2.0, 1.5)
    wobbles = (0.3, 0.3)

    def kernel(self, theta, centre=0.0, scale=1.0):
        return RationalQuadratic(scale * jnp.exp(theta[0]), jnp.exp(theta[1]))

    def draw(self, rng, column, multiplies):
        return np.array([_log_length(rng, column, multiplies), rng.normal(0, 0.5)])


class OfZeroMeanPeriodic(AbstractBase):
    """ZeroMeanPeriodic: the logarithms of its lengthscale, which has no unit, and of its period.

    The kernel has mean zero: the constant in `Periodic` would mix the trend into the season,
    because a product with it varies without any period.
    """

    word = "zero_mean_periodic"
    kind = ZeroMeanPeriodic
    family = "periodic"
    parameters = 2
    centres = (0.0, -1.0)
    deviations = (1.0, 3.0)
    # The evidence has a narrow maximum in the period, and others at its multiples.
    wobbles = (0.3, 0.0)

    def kernel(self, theta, centre=0.0, scale=1.0):
        return ZeroMeanPeriodic(jnp.exp(theta[0]), scale * jnp.exp(theta[1]))

    def draw(self, rng, column, multiplies):
        return np.array([rng.normal(0, 0.5), self._log_period(rng, column)])

    def moved(self, theta, rng, column):
        """Parameters near the present ones; in half of the cases with half the period, or that of
        another peak.
        """
        moved = super().moved(theta, rng, column)
        which = rng.uniform()
        if which < 0.25:
            # A maximum of the evidence at twice the period is common: log(period / 2).
            moved[1] -= math.log(2)
        elif which < 0.5:
            moved[1] = self._log_period(rng, column)
        return moved

    def _log_period(self, rng: np.random.Generator, column: ColumnScale) -> float:
        """The logarithm of a period, mostly that of a peak of the periodogram, the highest ones
        most often.
        """
        if column.periods and rng.uniform() < 0.8:
            # Peak r with probability 0.4 0.6^(r - 1), the highest one first.
            place = min(rng.geometric(0.4), len(column.periods)) - 1
            return math.log(column.periods[place])
        return _log_uniform(rng, 3 * column.spacing, column.span / 2)


class OfShiftedLinear(AbstractBase):
    """ShiftedLinear: its location."""

    word = "shifted_linear"
    kind = ShiftedLinear
    family = "linear"
    most = 2
    parameters = 1
    centres = (0.0,)
    deviations = (2.0,)
    wobbles = (0.3,)

    def kernel(self, theta, centre=0.0, scale=1.0):
        # (x - l)(z - l) with l = c + w theta; in units u = (x - c) / w it is w^2 (u - theta)(v -
        # theta).
        return ShiftedLinear(centre + scale * theta[0])

    def size(self, scale):
        return 1 / scale**2

    def draw(self, rng, column, multiplies):
        if multiplies:
            # From a zero at one end on, the other factors grow or shrink.
            end = column.low if rng.uniform() < 0.5 else column.high
            return np.array([end + rng.normal(0, 0.3)])
        return np.array([rng.normal(0, 1.0)])

    def mean_square(self, theta):
        # E (u - theta)^2 = 1 + theta^2 for a column of mean 0 and variance 1.
        return 1.0 + float(theta[0]) ** 2


BASES: tuple[AbstractBase, ...] = (
    OfRBF(),
    OfZeroMeanPeriodic(),
    OfShiftedLinear(),
    OfRationalQuadratic(),
    OfMatern52(),
)
BY_WORD = {base.word: base for base in BASES}
BY_KIND = {base.kind: base for base in BASES}


def padded(values: Any) -> Float[np.ndarray, " p"]:
    """Parameters, filled up with zeros."""
    row = np.zeros(MOST_PARAMETERS)
    row[: len(values)] = values
    return row
