"""Learning in stages, of which each frees more parameters, and is kept only if rows it never saw say that it helps.

A few hundred rows cannot choose a lengthscale for each of thirty columns: whatever these are chosen by falls, and the loss of
new rows rises (Cawley & Talbot 2010). So every stage is learned once more without each of four folds, and scored on the fold:
nested cross-validation, in which learning itself is a part of what is validated.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float
from rich.console import Console
from rich.progress import track

from kernax.cli.priors import Priors, priors_around
from kernax.core.parameters import interior, parameters
from kernax.core.support import POSITIVE
from kernax.selection.folds import Folds, count_off, leaving_out
from kernax.selection.minimise import minimise

OUTER, INNER = 4, 3  # folds to judge a stage by, and within each those that it learns from
MOST_ROWS = 600  # more do not choose a kernel much better, and a fit costs their cube
LEAST_OF_A_CLASS = 3  # so that each class is among the rows to learn from, inside and outside
_OPTIMISER, _STEPS = optax.adam(0.2), 25
_OF_EACH = 1.0  # deviation of the log of a lengthscale from what all of them had in common


class Together(eqx.Module):
    """A switch: whether the elements of a vector, such as a lengthscale for each column, move by one common factor.

    It is an argument of the loss rather than another model, so that both stages run in one compiled program.
    """

    on: Bool[Array, ""]
    centres: dict[str, Array]

    def __call__(self, model: Any) -> Any:
        """The model in which they have moved together, or the model as it is."""
        leaves, structure = jax.tree.flatten(model)
        for entry in parameters(model):
            if entry.support == POSITIVE and entry.value.ndim > 0:
                centre = self.centres[entry.path]
                factor = jnp.exp(jnp.mean(jnp.log(entry.value) - centre))
                leaves[entry.place] = jnp.where(self.on, jnp.exp(centre) * factor, entry.value)
        return jax.tree.unflatten(structure, leaves)


# loss(model, X, Y, folds, priors, together), a scalar, and values(model, X, Y, fold), of the rows of a fold to score
Loss = Callable[[Any, Any, Array, Folds, Priors, Together], Array]
Values = Callable[[Any, Any, Array, Folds], Array]


@dataclasses.dataclass(frozen=True)
class Stage:
    """What is learned, in words, the model, and the loss of every row under what was learned without it."""

    name: str
    model: Any
    losses: Float[np.ndarray, " n"]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """How much lower a stage's mean loss is than that of the best stage before it, and the standard error of that over rows."""

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
    """The stage that is kept, and all of them, the first of which is as written, with what the others were compared by."""

    kept: Stage
    stages: tuple[Stage, ...]
    comparisons: tuple[Comparison, ...]

    def account(self, measure: str) -> tuple[str, ...]:
        """What each stage earned, and which is saved, line by line."""
        count = len(self.kept.losses)
        title = f"{measure} of {count} rows in {OUTER} folds, each under what was learned without its fold"
        verdicts = ("", *(f": {comparison}" for comparison in self.comparisons))
        lines = [f"  {stage.losses.mean():.4f}  {stage.name}{verdict}" for stage, verdict in zip(self.stages, verdicts)]
        return (f"{title}:", *lines, f"saved: {self.kept.name}")


def last_that_pays(stages: Sequence[Stage]) -> Choice:
    """Keeps the last stage whose mean loss is lower than that of the one kept before it by more than a standard error."""
    kept, comparisons = stages[0], []
    for stage in stages[1:]:
        differences = kept.losses - stage.losses
        comparison = Comparison(float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences))))
        comparisons.append(comparison)
        kept = stage if comparison.keeps else kept
    return Choice(kept, tuple(stages), tuple(comparisons))


def choose(
    start: Any, X: Any, Y: Array, labels: np.ndarray, loss: Loss, values: Values, losses_of: Callable[[Array, Array], Array]
) -> Choice:
    """Learns all stages, each from where the last one ended, and says which is kept.

    Arguments:
        start: the model as written.
        X, Y, labels: points, one-hot classes, and the same as names, by which folds are balanced.
        loss: what `minimise` minimises.
        values: of the rows that a fold scores, under a model and the rows that it learned from.
        losses_of: of the values of all rows, each from the fold that scored it, (n,).
    """
    names = ["as written", "penalty, scales and a common lengthscale"]
    names += ["a lengthscale for each column"] * any(np.ndim(entry.value) > 0 for entry in parameters(start))
    outer = count_off(labels, OUTER)
    jobs = [_folds_among(labels, outer != fold) for fold in range(OUTER)] + [_folds_among(labels, outer >= 0)]
    bar = track(jobs, "learning on folds", console=Console(stderr=True), transient=True)
    *runs, final = [_learned_in_stages(start, len(names), X, Y, folds, loss) for folds in bar]
    stages = []
    for place, name in enumerate(names):
        scored = _values_of_all([run[place] for run in runs], X, Y, outer, values)
        stages.append(Stage(name, final[place], np.asarray(losses_of(scored, Y))))
    return last_that_pays(stages)


def _values_of_all(models: Sequence[Any], X: Any, Y: Array, outer: np.ndarray, values: Values) -> Array:
    """The values of every row under the model that was learned without its fold."""
    scored = np.zeros(Y.shape if Y.shape[1] > 2 else len(Y))
    left_out = leaving_out(outer, OUTER)
    for fold, model in enumerate(models):
        rows = np.flatnonzero(outer == fold)
        of_fold = jax.tree.map(lambda leaf, fold=fold: leaf[fold], left_out)
        scored[rows] = np.asarray(values(model, X, Y, of_fold))[: len(rows)]
    return jnp.asarray(scored)


def _folds_among(labels: np.ndarray, among: np.ndarray) -> Folds:
    """Folds of some of the rows, in the shape of folds of all."""
    folds = np.full(len(labels), -1)
    folds[among] = count_off(labels[among], INNER)
    return leaving_out(folds, INNER)


def _learned_in_stages(start: Any, count: int, X: Any, Y: Array, folds: Folds, loss: Loss) -> list[Any]:
    """The model of each stage. In the first that learns, vectors move by one factor, in the next around what that has found."""
    models = [start]
    for place in range(1, count):
        priors = priors_around(models[-1], of_each=_OF_EACH if place > 1 else None)
        together = Together(jnp.asarray(place == 1), priors.centres)
        args = (X, Y, folds, priors, together)
        solution = minimise(loss, models[-1], _OPTIMISER, _STEPS, args=args, trainable=interior(start), throw=False)
        models.append(solution.value)
    return models
