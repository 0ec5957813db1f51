"""Learning in stages, each of which frees more parameters.

A stage is kept only if it predicts unseen rows better.

A few hundred rows cannot determine a lengthscale for each of thirty columns: the training criterion
falls, and the loss of new rows rises (Cawley & Talbot 2010). Every stage is therefore learned once
more without each of four folds, and scored on the fold: nested cross-validation, which validates
the learning as well.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from kernax.core.base.intervals import POSITIVE
from kernax.core.base.parameters import Trainable, interior, parameters
from kernax.core.base.solution import RESULTS, Solution
from kernax.core.base.stacks import points_at
from kernax.selection.choose.folds import Folds, count_off, leaving_out
from kernax.selection.optimise.minimise import minimise
from kernax.selection.optimise.weak_priors import WeakPriors, weak_priors_around

OUTER = 4  # folds to judge a stage by
INNER = 3  # folds that it learns from, among the rows outside each of the former
MOST_ROWS = 600  # more do not choose a kernel much better, and a fit costs their cube
LEAST_OF_A_CLASS = 3  # so that each class is among the rows to learn from, inside and outside
_OPTIMISER = optax.adam(0.2)
_STEPS = 25
_OF_EACH = 1.0  # deviation of the log of a lengthscale from the common one


class Together(eqx.Module):
    """Which elements of vectors, such as a lengthscale for each column, share a common factor.

    It is an argument of the loss rather than another model, so that all stages run in one compiled
    program.

    Attributes:
        groups: for each vector, by its path, a number for each element: elements of equal numbers
            move together.
        centres: for each vector the logarithms from which its elements move.
    """

    groups: dict[str, Int[Array, "..."]]
    centres: dict[str, Array]

    def __call__(self, model: Any) -> Any:
        """The model in which the elements of each group have moved together."""
        leaves, structure = jax.tree.flatten(model)
        for entry in parameters(model):
            if entry.path in self.groups:
                # The exponentials of the centre, those of a group times the geometric mean of its
                # changes.
                groups = self.groups[entry.path]
                centre = self.centres[entry.path]
                moved = jnp.log(entry.value) - centre
                totals = jax.ops.segment_sum(
                    moved.ravel(), groups.ravel(), num_segments=groups.size
                )
                counts = jax.ops.segment_sum(
                    jnp.ones(groups.size, moved.dtype), groups.ravel(), groups.size
                )
                means = totals / jnp.maximum(counts, 1)  # 0 / 1 for numbers that no element has
                leaves[entry.leaf_index] = jnp.exp(centre + means[groups])
        return jax.tree.unflatten(structure, leaves)


# loss(model, X, Y, folds, priors, together), a scalar.
Loss = Callable[[Any, Any, Array, Folds, WeakPriors, Together], Array]
# values(model, X, Y, fold), of the rows that a fold scores.
Values = Callable[[Any, Any, Array, Folds], Array]


@dataclasses.dataclass(frozen=True)
class Stage:
    """A stage: what is learned, in words, the model, and the loss of every row.

    Each loss comes from the model that was learned without the row. For numbers there are squared
    errors in addition to log densities; `stats` are those of the run that learned the model.
    """

    name: str
    model: Any
    losses: Float[np.ndarray, " n"]
    errors: Float[np.ndarray, " n"] | None = None
    stats: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """By how much a stage is better than the best one before it.

    `gain` is the difference of their mean losses, `error` its standard error over rows. If there
    are squared errors in addition to losses, `of_squares` compares them.
    """

    gain: float
    error: float
    of_squares: "Comparison | None" = None

    @property
    def keeps(self) -> bool:
        """Whether the loss on unseen rows improved: it gains more than a standard error; with two
        measures in one of them, without losing as much in the other.
        """
        if self.of_squares is None:
            return self._gains
        one_gains = self._gains or self.of_squares._gains
        return one_gains and not (self._loses or self.of_squares._loses)

    @property
    def _gains(self) -> bool:
        return self.gain > self.error

    @property
    def _loses(self) -> bool:
        return self.gain < -self.error

    @property
    def words(self) -> str:
        """By how much it is better or worse."""
        sense = "better" if self.gain > 0 else "worse"
        words = f"{sense} by {abs(self.gain):.4f}, standard error {self.error:.4f}"
        return words if self.of_squares is None else f"{words}; squares {self.of_squares.words}"

    def __str__(self) -> str:
        return f"{self.words}: {'kept' if self.keeps else 'not kept'}"


@dataclasses.dataclass(frozen=True)
class StageChoice:
    """The stage that is kept, all stages, and what they were compared by.

    The first stage is the user's model.
    """

    kept: Stage
    stages: tuple[Stage, ...]
    comparisons: tuple[Comparison, ...]

    def account(self, measure: str) -> tuple[str, ...]:
        """A table of the gain of each stage, and of which one is kept."""
        count = len(self.kept.losses)
        title = (
            f"{measure} of {count} rows in {OUTER} folds, each predicted by the model learned "
            "without its fold"
        )
        verdicts = ("", *(f": {comparison}" for comparison in self.comparisons))
        lines = [
            f"  {stage.losses.mean():.4f}  {stage.name}{verdict}"
            for stage, verdict in zip(self.stages, verdicts)
        ]
        return (f"{title}:", *lines, f"saved: {self.kept.name}")


def last_that_pays(stages: Sequence[Stage]) -> StageChoice:
    """Keeps the last stage that improves by more than a standard error.

    It is compared with the one kept before it.
    """
    kept = stages[0]
    comparisons = []
    for stage in stages[1:]:
        # A stage that can be computed is better than one that cannot.
        if not np.isfinite(stage.losses).all():
            comparison = Comparison(-np.inf, 0.0)
        elif not np.isfinite(kept.losses).all():
            comparison = Comparison(np.inf, 0.0)
        else:
            comparison = _of_rows(kept.losses, stage.losses)
            if kept.errors is not None and stage.errors is not None:
                of_squares = _of_rows(kept.errors, stage.errors)
                comparison = dataclasses.replace(comparison, of_squares=of_squares)
        comparisons.append(comparison)
        kept = stage if comparison.keeps else kept
    return StageChoice(kept, tuple(stages), tuple(comparisons))


def _of_rows(before: Float[np.ndarray, " n"], after: Float[np.ndarray, " n"]) -> Comparison:
    """The mean gain and its standard error."""
    # Row by row, so that rows which are hard for both stages do not count as noise.
    gains = before - after
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
    learning: "Learning | None" = None,
    trainable: Trainable | None = None,
    progress: Callable[[Sequence[Folds]], Iterable[Folds]] = iter,
) -> StageChoice:
    """Learns all stages, each starting from the end of the last, and selects the one to keep.

    Arguments:
        start: the user's model.
        X, Y: points, and targets of any shape (n, ...), such as one-hot classes.
        labels: names (n,), such as those of classes, to balance folds.
        loss: the loss for `minimise`.
        values: a function for the values at the rows that a fold scores, given a model and its
            training rows.
        losses_of: a function from the values of all rows to their losses (n,), or to two columns
            (n, 2) of losses and squared errors.
        shared: what the first stage learns in addition to a common lengthscale, in words.
        learning: how each stage is learned; None takes a few steps of Adam, with weak priors.
        trainable: says what is learned, as for `minimise`; None is everything that is not at the
            end of its interval.
        progress: goes through a list of jobs of about the same length, such as
            `rich.progress.track`.
    """
    learning = Learning() if learning is None else learning
    # The last stage is for kernels whose columns have lengthscales of their own.
    names = ["as written", f"{shared} and a common lengthscale"]
    vectors = _groups_of_vectors(start, 2, learning.groups)
    if any(len(np.unique(one)) > 1 for one in vectors.values()):
        names.append("a lengthscale for each column")
    # Nested folds: run i learns all stages without outer fold i, on inner folds of the other
    # rows, and is judged on fold i; the last run learns from all rows.
    outer = count_off(labels, OUTER)
    jobs = [_folds_among(labels, outer != fold) for fold in range(OUTER)]
    jobs.append(_folds_among(labels, outer >= 0))
    free = interior(start) if trainable is None else trainable

    def learned(folds: Folds) -> list[Solution]:
        # The model of each stage; the first is the user's.
        solutions = [Solution(start, RESULTS.successful, {})]
        for place in range(1, len(names)):
            model = solutions[-1].value
            priors, together = learning.setting(model, place)
            args = (X, Y, folds, priors, together)
            solutions.append(learning.learn(loss, model, args, free))
        return solutions

    *runs, final = [learned(folds) for folds in progress(jobs)]
    stages = []
    for place, name in enumerate(names):
        models = [run[place].value for run in runs]
        scored = np.asarray(losses_of(_values_of_all(models, X, Y, outer, values), Y))
        losses, errors = (scored, None) if scored.ndim == 1 else scored.T
        stages.append(Stage(name, final[place].value, losses, errors, final[place].stats))
    return last_that_pays(stages)


def everyone(n: int) -> Folds:
    """Folds that score all of n rows."""
    return _folds_among(np.zeros(n, int), np.ones(n, bool))


def weights_of(folds: Folds, y: Array) -> Float[Array, " n"]:
    """1 for the rows in any of the folds and 0 for others, so that one program learns from all rows
    and from some.
    """
    weights = jnp.zeros(len(y), y.dtype)
    return weights.at[folds.score.reshape(-1)].add(folds.score_weights.reshape(-1))


def _groups_of_vectors(
    model: Any, place: int, groups: np.ndarray | None
) -> dict[str, Int[np.ndarray, "..."]]:
    """The groups of `Together` in a stage: in the first learned stage all elements of a vector
    share one factor; later each group has its own if the vector has an element for each column. A
    matrix counts as a vector of columns for each of its rows.
    """
    found = {}
    for entry in parameters(model):
        shape = np.shape(entry.value)
        if entry.interval != POSITIVE or len(shape) == 0:
            continue
        if place == 1:
            found[entry.path] = np.zeros(shape, int)
            continue
        size = shape[-1]
        apart = groups if groups is not None and len(groups) == size else np.arange(size)
        # In a matrix, such as a row of scales for each term of a mixture, each row by itself.
        rows = np.arange(math.prod(shape[:-1]))[:, None]
        found[entry.path] = (rows * (1 + np.max(apart, initial=0)) + apart).reshape(shape)
    return found


def _values_of_all(
    models: Sequence[Any], X: Any, Y: Array, outer: np.ndarray, values: Values
) -> Array:
    """The values at every row under the model that was learned without its fold."""
    folds = leaving_out(outer, OUTER)
    places = []
    scored = []
    for fold, model in enumerate(models):
        rows = np.flatnonzero(outer == fold)
        of_fold = np.asarray(values(model, X, Y, points_at(folds, fold)))
        places.append(rows)
        scored.append(of_fold[: len(rows)])  # the other rows pad it
    order = np.argsort(np.concatenate(places))
    return jnp.asarray(np.concatenate(scored)[order])


def _folds_among(labels: np.ndarray, among: np.ndarray) -> Folds:
    """Folds of some of the rows, in the shape of folds of all."""
    folds = np.full(len(labels), -1)
    folds[among] = count_off(labels[among], INNER)
    return leaving_out(folds, INNER)


def _by_adam(loss: Loss, model: Any, args: tuple, free: Trainable) -> Solution:
    """A few steps of Adam, all of which are accepted."""
    return minimise(loss, model, _OPTIMISER, _STEPS, args=args, trainable=free, throw=False)


@dataclasses.dataclass(frozen=True)
class Learning:
    """How a stage is learned from where the one before it has ended.

    Attributes:
        learn: `learn(loss, model, args, trainable)`, a `Solution` of a model.
        groups: (d,) a number for each column of points: lengthscales of equal numbers move
            together, such as those of the one-hot columns of a category. None for one each.
        with_priors: whether weak priors keep each stage near its start.
        of_each: the deviation of the log of a separate lengthscale from the common one.
        floored: paths of parameters that the priors keep away from zero.
    """

    learn: Callable[[Loss, Any, tuple, Trainable], Solution] = _by_adam
    groups: Int[np.ndarray, " d"] | None = None
    with_priors: bool = True
    of_each: float = _OF_EACH
    floored: tuple[str, ...] = ()

    def setting(self, model: Any, place: int) -> tuple[WeakPriors, Together]:
        """The priors of a stage, around the model of the last stage, and the elements that move
        together.
        """
        groups = _groups_of_vectors(model, place, self.groups)
        arrays = {path: jnp.asarray(one) for path, one in groups.items()}
        if not self.with_priors:
            priors = weak_priors_around(model, deviation=np.inf)
            return priors, Together(arrays, priors.centres)
        of_each = self.of_each if place > 1 else None
        priors = weak_priors_around(model, floored=self.floored, of_each=of_each)
        if place > 1:
            deviations = dict(priors.deviations)
            for path, of_each in groups.items():
                # Elements of a group have deviations such that it counts as one parameter.
                counts = np.bincount(of_each.ravel())[of_each]
                own = deviations[path]
                # sum_(i < m) (theta - c)^2 / (m s^2) = (theta - c)^2 / s^2.
                deviations[path] = own * jnp.sqrt(jnp.asarray(counts, own.dtype))
            priors = WeakPriors(priors.centres, deviations, priors.floored)
        return priors, Together(arrays, priors.centres)
