"""Learning in stages, of which each frees more parameters.

A stage is kept only if it predicts rows better that it has not seen.

A few hundred rows cannot choose a lengthscale for each of thirty columns: whatever these are chosen
by falls, and the loss of new rows rises (Cawley & Talbot 2010). So every stage is learned once more
without each of four folds, and scored on the fold: nested cross-validation, in which learning
itself is a part of what is validated.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from kernax.core.intervals import POSITIVE
from kernax.core.parameters import Trainable, interior, parameters
from kernax.core.stacks import points_at
from kernax.selection.folds import Folds, count_off, leaving_out
from kernax.selection.minimise import minimise
from kernax.selection.weak_priors import WeakPriors, weak_priors_around

OUTER = 4  # folds to judge a stage by
INNER = 3  # folds that it learns from, among the rows outside each of the former
MOST_ROWS = 600  # more do not choose a kernel much better, and a fit costs their cube
LEAST_OF_A_CLASS = 3  # so that each class is among the rows to learn from, inside and outside
_OPTIMISER = optax.adam(0.2)
_STEPS = 25
_OF_EACH = 1.0  # deviation of the log of a lengthscale from what all of them had in common


class Together(eqx.Module):
    """A switch: whether the elements of a vector move by one common factor.

    Such as a lengthscale for each column.

    It is an argument of the loss rather than another model, so that both stages run in one compiled
    program.
    """

    on: Bool[Array, ""]
    centres: dict[str, Array]

    def __call__(self, model: Any) -> Any:
        """The model in which they have moved together, or the model as it is."""
        leaves, structure = jax.tree.flatten(model)
        for entry in parameters(model):
            if entry.interval == POSITIVE and entry.value.ndim > 0:
                together = self._moved_together(entry.value, self.centres[entry.path])
                leaves[entry.place] = jnp.where(self.on, together, entry.value)
        return jax.tree.unflatten(structure, leaves)

    def _moved_together(self, value: Array, centre: Array) -> Array:
        """The exponentials of the centre, all times the geometric mean of how far they moved."""
        factor = jnp.exp(jnp.mean(jnp.log(value) - centre))
        return jnp.exp(centre) * factor


# loss(model, X, Y, folds, priors, together), a scalar.
Loss = Callable[[Any, Any, Array, Folds, WeakPriors, Together], Array]
# values(model, X, Y, fold), of the rows that a fold scores.
Values = Callable[[Any, Any, Array, Folds], Array]


@dataclasses.dataclass(frozen=True)
class Stage:
    """What is learned, in words, the model, and the loss of every row.

    Each loss is that under what was learned without the row.
    """

    name: str
    model: Any
    losses: Float[np.ndarray, " n"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """By how much a stage is better than the best one before it.

    `gain` is the difference of their mean losses, `error` its standard error over rows.
    """

    gain: float
    error: float

    @property
    def keeps(self) -> bool:
        """Whether the stage has earned its parameters."""
        return self.gain > self.error

    def __str__(self) -> str:
        sense = "better" if self.gain > 0 else "worse"
        verdict = "kept" if self.keeps else "not kept"
        return f"{sense} by {abs(self.gain):.4f}, standard error {self.error:.4f}: {verdict}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """The stage that is kept, all stages, and what they were compared by.

    The first stage is the model as written.
    """

    kept: Stage
    stages: tuple[Stage, ...]
    comparisons: tuple[Comparison, ...]

    def account(self, measure: str) -> tuple[str, ...]:
        """What each stage earned, and which is saved, line by line."""
        count = len(self.kept.losses)
        title = (
            f"{measure} of {count} rows in {OUTER} folds, each under what was learned without its "
            "fold"
        )
        verdicts = ("", *(f": {comparison}" for comparison in self.comparisons))
        lines = [
            f"  {stage.losses.mean():.4f}  {stage.name}{verdict}"
            for stage, verdict in zip(self.stages, verdicts)
        ]
        return (f"{title}:", *lines, f"saved: {self.kept.name}")


def last_that_pays(stages: Sequence[Stage]) -> Choice:
    """Keeps the last stage that is better by more than a standard error.

    It is compared with the one kept before it.
    """
    kept = stages[0]
    comparisons = []
    for stage in stages[1:]:
        comparison = _compared(kept, stage)
        comparisons.append(comparison)
        kept = stage if comparison.keeps else kept
    return Choice(kept, tuple(stages), tuple(comparisons))


def _compared(kept: Stage, stage: Stage) -> Comparison:
    """What a stage gains. One that can be computed is better than one that cannot."""
    if not np.isfinite(stage.losses).all():
        return Comparison(-np.inf, 0.0)
    if not np.isfinite(kept.losses).all():
        return Comparison(np.inf, 0.0)
    # Row by row, so that rows which are hard for both stages do not count as noise.
    gains = kept.losses - stage.losses
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    return Comparison(float(gains.mean()), float(error))


def choose(
    start: Any,
    X: Any,
    Y: Array,
    labels: np.ndarray,
    loss: Loss,
    values: Values,
    losses_of: Callable[[Array, Array], Array],
    *,
    shared: str = "penalty, scales",
    with_priors: bool = True,
    trainable: Trainable | None = None,
    progress: Callable[[Sequence[Folds]], Iterable[Folds]] = iter,
) -> Choice:
    """Learns all stages, each from where the last one ended, and says which is kept.

    Arguments:
        start: the model as written.
        X, Y: points, and targets of any shape (n, ...), such as one-hot classes.
        labels: names by which folds are balanced (n,), such as those of classes.
        loss: what `minimise` minimises.
        values: of the rows that a fold scores, under a model and the rows that it learned from.
        losses_of: of the values of all rows, each from the fold that scored it, (n,).
        shared: what the first stage learns beside a common lengthscale, in words.
        with_priors: whether weak priors hold each stage near where it starts.
        trainable: says what is learned, as for `minimise`; None is everything that is not at the
            end of its interval.
        progress: goes through a list of jobs of about the same length, such as
            `rich.progress.track`.
    """
    names = _names_of_stages(start, shared)
    outer = count_off(labels, OUTER)
    jobs = [_folds_among(labels, outer != fold) for fold in range(OUTER)]
    jobs.append(_folds_among(labels, outer >= 0))
    free = interior(start) if trainable is None else trainable

    def learned(folds: Folds) -> list[Any]:
        return _learned_in_stages(start, len(names), X, Y, folds, loss, with_priors, free)

    *runs, final = [learned(folds) for folds in progress(jobs)]
    stages = []
    for place, name in enumerate(names):
        models = [run[place] for run in runs]
        scored = _values_of_all(models, X, Y, outer, values)
        stages.append(Stage(name, final[place], np.asarray(losses_of(scored, Y))))
    return last_that_pays(stages)


def _names_of_stages(start: Any, shared: str) -> list[str]:
    """The stages in words; the last is there where a model has a lengthscale for each column."""
    names = ["as written", f"{shared} and a common lengthscale"]
    if any(entry.interval == POSITIVE and np.ndim(entry.value) > 0 for entry in parameters(start)):
        names.append("a lengthscale for each column")
    return names


def _values_of_all(
    models: Sequence[Any], X: Any, Y: Array, outer: np.ndarray, values: Values
) -> Array:
    """The values of every row under the model that was learned without its fold."""
    folds = leaving_out(outer, OUTER)
    places = []
    scored = []
    for fold, model in enumerate(models):
        rows = np.flatnonzero(outer == fold)
        of_fold = np.asarray(values(model, X, Y, points_at(folds, fold)))
        places.append(rows)
        scored.append(of_fold[: len(rows)])  # the others pad it
    order = np.argsort(np.concatenate(places))
    return jnp.asarray(np.concatenate(scored)[order])


def _folds_among(labels: np.ndarray, among: np.ndarray) -> Folds:
    """Folds of some of the rows, in the shape of folds of all."""
    folds = np.full(len(labels), -1)
    folds[among] = count_off(labels[among], INNER)
    return leaving_out(folds, INNER)


def _priors_of_stage(model: Any, place: int, with_priors: bool) -> WeakPriors:
    """The priors around the model of the stage before."""
    if not with_priors:
        return weak_priors_around(model, deviation=np.inf)
    return weak_priors_around(model, of_each=_OF_EACH if place > 1 else None)


def _learned_in_stages(
    start: Any,
    count: int,
    X: Any,
    Y: Array,
    folds: Folds,
    loss: Loss,
    with_priors: bool,
    free: Trainable,
) -> list[Any]:
    """The model of each stage.

    In the first that learns, vectors move by one factor, in the next around what that has found.
    """
    models = [start]
    for place in range(1, count):
        priors = _priors_of_stage(models[-1], place, with_priors)
        together = Together(jnp.asarray(place == 1), priors.centres)
        args = (X, Y, folds, priors, together)
        solution = minimise(
            loss, models[-1], _OPTIMISER, _STEPS, args=args, trainable=free, throw=False
        )
        models.append(solution.value)
    return models
