"""Describes the terms of a sum of products in plain words and in the units of the data.

A product is described by its periodic or its widest factor, which the others modify (Lloyd et al.,
"Automatic construction and natural-language description of nonparametric regression models", 2014).
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from kernax.core.kernel.kernel import AbstractKernel, Constant, Product, Scaled
from kernax.gp.posterior_parts import component
from kernax.gp.process import GaussianProcess
from kernax.gp.regression import condition
from kernax.kernels import On, Periodic, RationalQuadratic, ShiftedLinear, ZeroMeanPeriodic

_TREND = 0.25  # of the range of a column: longer lengthscales are trends
_SHORT = 3.0  # median spacings: shorter lengthscales are of short range
_AT_THE_END = 0.1  # of the range: a line that is zero there grows or shrinks over all of it


@dataclasses.dataclass(frozen=True)
class DataUnits:
    """The units of the data, `centre + scale x`, for converting the numbers of a search.

    Attributes:
        centres, scales: those of each column.
        level, of_target: centre and scale of the target.
    """

    centres: tuple[float, ...]
    scales: tuple[float, ...]
    level: float
    of_target: float

    @staticmethod
    def unchanged(columns: int) -> "DataUnits":
        return DataUnits((0.0,) * columns, (1.0,) * columns, 0.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Component:
    """A term of a kernel, or the noise, in words.

    Attributes:
        sentence: such as `a periodic component of period 1.00`.
        share: the variance of its posterior mean over the rows, or that of the noise, over the
            variance of the targets. Shares need not add up to one, as components are correlated.
    """

    sentence: str
    share: float

    def __str__(self) -> str:
        percent = 100 * self.share
        amount = "less than 0.1" if percent < 0.1 else f"{percent:.1f}"
        return f"{self.sentence} ({amount} % of the variance)"


def components_of(
    kernel: AbstractKernel,
    noise: float,
    X: Float[Array | np.ndarray, "n d"],
    y: Float[Array | np.ndarray, " n"],
    units: DataUnits,
    names: Sequence[str],
) -> list[Component]:
    """Every term of a kernel that a search returned, in order, and the noise.

    X and y are the data of the kernel, y without its mean; the sentences are in the given units,
    with the names of the columns if there are several.
    """
    solution = condition(GaussianProcess(kernel), X, y, noise, throw=False)
    variance = float(np.var(np.asarray(y, float)))
    terms = kernel.summands or (kernel,)
    # The range and the spacing of each column, in the given units.
    columns = []
    for column, x in enumerate(np.asarray(X, float).T):
        centre = units.centres[column]
        scale = units.scales[column]
        in_units = np.unique(x) * scale + centre
        first = float(in_units[0])
        last = float(in_units[-1])
        spacing = float(np.median(np.diff(in_units))) if len(in_units) > 1 else 0.0
        name = names[column] if len(names) > 1 else ""
        columns.append(_Range(name, first, last, spacing, centre, scale))
    found = []
    for place, term in enumerate(terms):
        process = component(solution.value, place) if len(terms) > 1 else solution.value
        values = np.asarray(jax.vmap(process.mean)(jnp.asarray(X)), float)
        # The share of a term is var(E[f_t(x_i) | y]) / var(y).
        share = float(np.var(values)) / variance
        found.append(Component(sentence(term, columns), share))
    deviation = units.of_target * np.sqrt(noise)
    text = f"uncorrelated noise of deviation {number(deviation)}"
    return [*found, Component(text, noise / variance)]


@dataclasses.dataclass(frozen=True)
class _Range:
    """A column of the data in its own units, with its name, which is empty for the only column."""

    name: str
    low: float
    high: float
    spacing: float
    centre: float
    scale: float

    @property
    def span(self) -> float:
        return self.high - self.low

    @property
    def called(self) -> str:
        return f" of {self.name}" if self.name else ""


def sentence(term: AbstractKernel, columns: Sequence[_Range]) -> str:
    """One term of a sum in words, without a capital and without a full stop."""
    by_column: dict[int, list[AbstractKernel]] = {}
    for factor in _factors(term):
        if not isinstance(factor, Constant):
            where = factor.where if isinstance(factor, On) else 0
            inner = factor.kernel if isinstance(factor, On) else factor
            by_column.setdefault(where, []).append(inner)
    phrases = [_phrase(by_column[place], columns[place]) for place in sorted(by_column)]
    return ", multiplied by ".join(phrases) if phrases else "a constant level"


def _factors(term: AbstractKernel) -> tuple[AbstractKernel, ...]:
    """The factors of a product, scaled or of scaled factors."""
    if isinstance(term, Scaled):
        return _factors(term.kernel)
    if isinstance(term, Product):
        return tuple(factor for part in term.terms for factor in _factors(part))
    return (term,)


def _phrase(factors: Sequence[AbstractKernel], column: _Range) -> str:
    periodic = [factor for factor in factors if isinstance(factor, (Periodic, ZeroMeanPeriodic))]
    lines = [factor for factor in factors if isinstance(factor, ShiftedLinear)]
    local = [factor for factor in factors if factor not in (*periodic, *lines)]
    changes = [_growth(line, column) for line in lines]
    if periodic:
        period = number(float(periodic[0].period) * column.scale)
        shapes = [
            f"whose shape changes over {number(_lengthscale(factor, column))}" for factor in local
        ]
        subject = f"a periodic component{column.called} of period {period}"
        return ", ".join([subject, *_joined([*shapes, *changes])])
    if local:
        return ", ".join([_variation(local[0], column), *_joined(changes)])
    kind = {1: "linear", 2: "quadratic"}.get(len(lines), "polynomial")
    return f"a {kind} trend{column.called}"


def _joined(clauses: list[str]) -> list[str]:
    """Clauses as one, or none."""
    return [" and ".join(clauses)] if clauses else []


def _lengthscale(factor: AbstractKernel, column: _Range) -> float:
    return float(factor.lengthscale) * column.scale  # pyright: ignore[reportAttributeAccessIssue]


def _variation(factor: AbstractKernel, column: _Range) -> str:
    length = _lengthscale(factor, column)
    over = number(length)
    if isinstance(factor, RationalQuadratic):
        return f"variation{column.called} at many ranges around {over}"
    if length >= _TREND * column.span:
        return f"a smooth trend{column.called} that varies over {over}"
    if length <= _SHORT * column.spacing:
        return f"variation{column.called} at short range over {over}"
    return f"smooth variation{column.called} over {over}"


def _growth(line: ShiftedLinear, column: _Range) -> str:
    """A phrase for the effect of a linear factor on the others."""
    zero = column.centre + column.scale * float(line.location)
    near = _AT_THE_END * column.span
    if zero <= column.low + near:
        return "whose size grows linearly"
    if zero >= column.high - near:
        return "whose size shrinks linearly"
    return f"whose size grows linearly away from {number(zero)}"


def number(value: float) -> str:
    """Three significant digits, or all digits of a larger whole part."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:#.3g}".rstrip(".")
