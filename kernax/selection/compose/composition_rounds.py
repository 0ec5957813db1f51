"""The rounds of a search for a composition: candidates are fitted, and the best ones continue."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import optax
from jaxtyping import Array, Float

from kernax.selection.compose.composition_starts import Draws, columns_of
from kernax.selection.compose.grammar import (
    CONSTANT,
    Candidate,
    Grammar,
    Structure,
    inheriting,
    written,
)
from kernax.selection.compose.sum_of_products import (
    CompositionModel,
    Values,
    composition_loss,
    count_of_parameters,
    model_of,
    scored,
)
from kernax.selection.optimise.minimise import minimise
from kernax.selection.optimise.multi_start import multi_start

_OPTIMISER = optax.lbfgs()
_FIRST_STEPS = 12  # of every start; then the best start of a few candidates goes on
_FINISHED = 5  # candidates of a round that do
_FIRST_NOISE = math.log(0.5)
# A smaller gain in the criterion is "not worth more than a bare mention" (Kass & Raftery 1995).
LEAST_GAIN = 2.0


@dataclasses.dataclass(frozen=True)
class Fit:
    """A structure with its learned parameters.

    Attributes:
        values: the parameters.
        log_evidence, criterion: NaN and inf if the fit failed.
        residuals: the targets minus the posterior mean.
        steps: the number of steps of the optimiser, over all starts.
    """

    candidate: Candidate
    values: Values
    log_evidence: float
    criterion: float
    residuals: Float[np.ndarray, " n"]
    steps: int

    @property
    def structure(self) -> Structure:
        return self.candidate.structure


@dataclasses.dataclass(frozen=True)
class Round:
    """One round of a search, as a row of its table.

    Attributes:
        step: how the best candidate differs from its parent, such as `* periodic`.
        kernel: its structure.
        log_evidence, criterion: its log evidence, and its BIC, `-2 log evidence + k log n` for k
            parameters.
        candidates, failed: how many were fitted, and how many of them have no score.
        kept: whether it was better than all before it by the required gain.
    """

    step: str
    kernel: str
    log_evidence: float
    criterion: float
    candidates: int
    failed: int
    kept: bool


Shown = Callable[[Sequence[Candidate], str], Iterable[Candidate]]


@dataclasses.dataclass
class CompositionSearch:
    """The constants of a search, and everything that was fitted so far.

    X and y are standardised; the scores are those of the density of y in its own unit, `unit`.
    """

    X: Float[Array, "n d"]
    y: Float[Array, " n"]
    unit: float
    names: tuple[str, ...]
    grammar: Grammar
    starts: int
    steps: int
    rng: np.random.Generator
    shown: Shown
    fits: list[Fit] = dataclasses.field(default_factory=list)
    rounds: list[Round] = dataclasses.field(default_factory=list)

    def run(self, depth: int, beam: int) -> Fit:
        """The best of all fits, after at most `depth` rounds.

        Each round expands the `beam` best structures that were not expanded yet; a round that
        does not improve the criterion by `LEAST_GAIN` is the last.
        """
        # The first structure: a constant and noise.
        candidate = Candidate(inheriting((CONSTANT,)), "constant")
        zeros = Values.zeros(self.grammar.most_terms, self.grammar.most_factors)
        start = dataclasses.replace(zeros, log_noise=_FIRST_NOISE)
        model = self._model(candidate, start)
        best = self._finished(self._fit(candidate, model, 0))
        self._note([best], kept=True)
        expanded: set[Structure] = set()
        for number in range(1, depth + 1):
            # Fits without a score come last, and are no parents.
            ranked = sorted(self.fits, key=lambda fit: fit.criterion)
            sound = [fit for fit in ranked if math.isfinite(fit.criterion)]
            parents = [fit for fit in sound if fit.structure not in expanded][:beam]
            expanded |= {parent.structure for parent in parents}
            found = self._round(parents, f"round {number}")
            if found is None:
                break
            better = found.criterion < best.criterion - LEAST_GAIN
            self.rounds[-1] = dataclasses.replace(self.rounds[-1], kept=better)
            if not better:
                break
            best = found
        return best

    def _round(self, parents: Sequence[Fit], label: str) -> Fit | None:
        """The best neighbour of some structures; None if there is no new one."""
        jobs = self._jobs(parents)
        if not jobs:
            return None
        fits = []
        # Periods of new factors come from the targets and from the residuals of the parent.
        X = np.asarray(self.X)
        y = np.asarray(self.y)
        draws = {
            parent.structure: Draws(columns_of(X, parent.residuals, y), self.rng)
            for parent in parents
        }
        for candidate in self.shown(list(jobs), label):
            parent = jobs[candidate]
            fits.append(self._from_starts(candidate, parent.values, draws[parent.structure]))
        order = sorted(range(len(fits)), key=lambda place: fits[place].criterion)
        for place in order[:_FINISHED]:
            fits[place] = self._finished(fits[place])
        return self._note(fits, kept=False)

    def _jobs(self, parents: Sequence[Fit]) -> dict[Candidate, Fit]:
        """Each parent once more, and its new neighbours together with their parent."""
        seen = {fit.structure for fit in self.fits}
        jobs = {}
        for parent in parents:
            # From other starts as well: the first result may be a local maximum.
            jobs[dataclasses.replace(parent.candidate, step="other starts")] = parent
            for candidate in self.grammar.neighbours(parent.structure):
                if candidate.structure not in seen:
                    seen.add(candidate.structure)
                    jobs[candidate] = parent
        return jobs

    def _from_starts(self, candidate: Candidate, parent: Values, draws: Draws) -> Fit:
        """A candidate after the first steps from several starts."""
        starts = draws.starts(candidate, parent, self.starts)
        models = [self._model(candidate, values) for values in starts]
        solution = multi_start(
            composition_loss, models, _OPTIMISER, _FIRST_STEPS, args=(self.X, self.y), throw=False
        )
        steps = int(np.sum(solution.stats["start_steps"]))
        return self._fit(candidate, solution.value, steps)

    def _finished(self, fit: Fit) -> Fit:
        """The same after more steps from where it ended."""
        if not math.isfinite(fit.criterion):
            return fit
        model = self._model(fit.candidate, fit.values)
        solution = minimise(
            composition_loss, model, _OPTIMISER, self.steps, args=(self.X, self.y), throw=False
        )
        steps = fit.steps + int(solution.stats["steps"])
        after = self._fit(fit.candidate, solution.value, steps)
        # A model that needed jitter at the end was sound before.
        return after if after.criterion <= fit.criterion else fit

    def _model(self, candidate: Candidate, values: Values) -> CompositionModel:
        return model_of(candidate.structure, values, self.X.dtype)

    def _fit(self, candidate: Candidate, model: CompositionModel, steps: int) -> Fit:
        score = scored(model, self.X, self.y)
        # log p(y) = log p(y / u) - n log u, u the unit of y.
        evidence = float(score.log_evidence) - len(self.y) * math.log(self.unit)
        parameters = count_of_parameters(candidate.structure)
        # BIC = -2 log p(y) + k log n (Schwarz 1978): the smaller, the better.
        criterion = -2 * evidence + parameters * math.log(len(self.y))
        sound = math.isfinite(criterion)
        return Fit(
            candidate=Candidate(inheriting(candidate.structure), candidate.step),
            values=Values.of(model),
            log_evidence=evidence if sound else math.nan,
            criterion=criterion if sound else math.inf,
            residuals=np.asarray(score.residuals, float),
            steps=steps,
        )

    def _note(self, fits: list[Fit], kept: bool) -> Fit:
        """Records the fits of a round, and its row of the table; returns the best of them."""
        self.fits += fits
        best = min(fits, key=lambda fit: fit.criterion)
        failed = sum(not math.isfinite(fit.criterion) for fit in fits)
        kernel = written(best.structure, self.names)
        scores = (best.log_evidence, best.criterion)
        self.rounds.append(Round(best.candidate.step, kernel, *scores, len(fits), failed, kept))
        return best


def polished(
    fit: Fit, X: Float[Array, "n d"], y: Float[Array, " n"], steps: int
) -> CompositionModel:
    """The model of a fit after more steps on other rows."""
    model = model_of(fit.structure, fit.values, X.dtype)
    solution = minimise(composition_loss, model, _OPTIMISER, steps, args=(X, y), throw=False)
    return solution.value
