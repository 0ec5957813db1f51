"""The starts of the parameters of a candidate: from those of its parent, and drawn according to the
data.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from kernax.selection.compose.base_kernels import BY_WORD, ColumnScale, padded
from kernax.selection.compose.grammar import Candidate, InheritedFactor, InheritedTerm
from kernax.selection.compose.periods import leading_periods
from kernax.selection.compose.sum_of_products import Values

_WOBBLE_OF_SCALE = 0.3
_PERIODS = 3  # of the targets, and of their residuals


@dataclasses.dataclass(frozen=True)
class Draws:
    """A source of starts: the scales of the columns, and a generator of numbers."""

    columns: tuple[ColumnScale, ...]
    rng: np.random.Generator

    def starts(self, candidate: Candidate, parent: Values, count: int) -> list[Values]:
        """Parameters of a candidate.

        The first start has the parameters of the parent unchanged, the others move them a little;
        new parameters are drawn for each start.
        """
        return [self._start(candidate, parent, moved=place > 0) for place in range(count)]

    def _start(self, candidate: Candidate, parent: Values, moved: bool) -> Values:
        log_scales = np.zeros_like(parent.log_scales)
        theta = np.zeros_like(parent.theta)
        for t, term in enumerate(candidate.terms):
            log_scales[t] = self._log_scale(term, parent, moved)
            for f, inherited in enumerate(term.factors):
                theta[t, f] = self._theta(
                    inherited, parent, moved, multiplies=term.origin is not None
                )
                if inherited.origin is None:
                    # A new factor does not change the size of its term: exp(log_scale) E k(x, x)
                    # stays the same.
                    mean_square = BY_WORD[inherited.factor.word].mean_square(theta[t, f])
                    log_scales[t] -= math.log(mean_square)
        noise = parent.log_noise + moved * self.rng.normal(0, _WOBBLE_OF_SCALE)
        return Values(log_scales, theta, noise)

    def _log_scale(self, term: InheritedTerm, parent: Values, moved: bool) -> float:
        """The scale of the parent; for a new term, one between its noise and the variance of
        all.
        """
        if term.origin is None:
            # log s ~ U(log noise, 0): the variance of the targets is 1.
            return float(self.rng.uniform(min(parent.log_noise, -1.0), 0.0))
        wobble = moved * self.rng.normal(0, _WOBBLE_OF_SCALE)
        return float(parent.log_scales[term.origin]) + wobble

    def _theta(
        self, inherited: InheritedFactor, parent: Values, moved: bool, multiplies: bool
    ) -> Float[np.ndarray, " p"]:
        """The parameters of the parent, or of a new factor."""
        base = BY_WORD[inherited.factor.word]
        column = self.columns[inherited.factor.column]
        if inherited.origin is None:
            return padded(base.draw(self.rng, column, multiplies))
        theta = parent.theta[inherited.origin]
        return base.moved(theta, self.rng, column) if moved else theta


def columns_of(
    X: Float[np.ndarray, "n d"], *targets: Float[np.ndarray, " n"]
) -> tuple[ColumnScale, ...]:
    """The scale of each column, with the leading periods that each of the targets has there; a
    constant column has a range of zero.
    """
    scales = []
    for x in X.T:
        values = np.unique(x)
        low = float(values[0])
        high = float(values[-1])
        spacing = float(np.median(np.diff(values))) if len(values) > 1 else 0.0
        peaks = [leading_periods(x, target, _PERIODS) for target in targets]
        # The highest peak of each target first.
        ranked = [each[rank] for rank in range(_PERIODS) for each in peaks if rank < len(each)]
        scales.append(ColumnScale(spacing, high - low, low, high, tuple(ranked)))
    return tuple(scales)
