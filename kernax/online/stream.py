"""Runs a learner over a stream of points, in one compiled loop."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack, cast, count, dtype_of
from kernax.core.base.compiled import compiled
from kernax.core.base.numerics import is_concrete, positive_or_one, tree_where
from kernax.core.base.parameters import parameters
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution, finish, first_that_holds
from kernax.core.base.stacks import points_at
from kernax.core.base.weights import UnitWeights
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.preparation import guarded, prepare_stacks
from kernax.core.losses.loss_functions import as_targets_of
from kernax.core.operators.memory import check_numbers
from kernax.online.learner import (
    AbstractOnlineLearner,
    AbstractOnlineState,
    check_stream,
    kind_in_words,
)
from kernax.online.rules import AbstractRule

# Numbers held in memory for each number of the state, in float64 and float32.
HELD_FOR_EACH = (2.0, 2.0)


class Progress(Printed):
    """The course of an online learner over n points.

    Attributes:
        state: the state of the learner after the last point; `run(..., state=state)` continues from
            it.
        predictions: f(x_i), (n,), each before y_i was seen.
        losses: the losses of these predictions, (n,); zero at points that were skipped.
        mistakes: which predictions were wrong, (n,). If targets are signs, those with the other
            sign, or zero. If targets are numbers or counts, those with a positive loss, which for
            most losses are all except exact ones: use `losses` instead. False at points that were
            skipped. If the status is `nonfinite`, True at all others.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> rule, budget = kernax.online.Perceptron(), kernax.online.NoBudget(capacity=5)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> progress = kernax.online.run(learner, X, y).value
        >>> progress.predictions.shape, int(progress.mistakes.sum()) <= 5
        ((5,), True)
        >>> again = kernax.online.run(learner, X, y, state=progress.state)  # a second pass
    """

    state: Any
    predictions: Float[Array, " n"]
    losses: Float[Array, " n"]
    mistakes: Bool[Array, " n"]

    @property
    def function(self) -> Any:
        """The function learned, of one point: a `KernelExpansion`, or the function of a primal
        learner.
        """
        return self.state.function


def run(
    learner: AbstractOnlineLearner,
    X: PyTree,
    y: ArrayLike,
    *,
    state: AbstractOnlineState | None = None,
    present: ArrayLike | None = None,
    throw: bool = True,
) -> Solution[Progress]:
    """Runs an online learner over points in their order: `state, f(x_i) = update(state, x_i, y_i)`.

    It is one compiled loop, whatever the number of points. Besides the points and their record, it
    needs the memory of one state. Forward derivatives in the learner's parameters (`jax.jvp`) need
    no more; reverse ones (`jax.grad`) store the state of every step. Derivatives hold the decisions
    of the recursion fixed, such as which points are mistakes.

    Arguments:
        learner: one of `kernax.online`, or any other `AbstractOnlineLearner`.
        X: a batch of n points, in order; for several streams use `jax.vmap`.
        y: (n,): -1 and +1, or numbers, as `learner.loss.targets` says. All may belong to one class.
        state: the state of an earlier run, to continue it; None starts anew. A learner with other
            parameters continues with the same points and coefficients, or weights, in its own
            kernel. Numbers computed earlier stay as they are: the squares `k(x, x)` of kept points,
            and the bases and fits of `Project` and `KernelRecursiveLeastSquares`. So do arguments
            that are only used at the start: `ridge` of the latter, and `promotion` and `threshold`
            of Winnow.
        present: (n,) booleans, or ones and zeros. Where it is False the point is predicted but
            skipped: like a point of weight zero it changes nothing, and adds neither a loss nor a
            mistake.
        throw: raise on failure; otherwise look at `result`.

    Returns:
        A `Solution` whose `value` is a `Progress`. Stats of this run: the number of `mistakes`,
        which says little if targets are numbers (see `Progress`), the number of `updates`, at which
        the learner changed the function, and the mean `loss` of the predictions.

    Raises:
        ValueError: bad shapes or values, a state of another learner.
        NonFiniteError: NaN or inf.
        CapacityError: more points were needed than the learner can keep.
        BreakdownError: rounding has spoiled a `KernelRecursiveLeastSquares`.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 5)[:, None]
        >>> y = jnp.array([-1.0, -1.0, 1.0, 1.0, 1.0])
        >>> rule, budget = kernax.online.Perceptron(), kernax.online.NoBudget(capacity=5)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> progress = kernax.online.run(learner, X, y).value
        >>> int(progress.mistakes.sum())
        2
        >>> progress.state.function(jnp.array([0.9])).shape
        ()
    """
    if not isinstance(learner, AbstractOnlineLearner):
        came = kind_in_words(learner)
        if isinstance(learner, AbstractRule):
            came = f"{came}, a rule: DualLearner(rule, kernel, budget) is a learner"
        raise ValueError(f"learner must be a learner of kernax.online, but is {came}")
    if eqx.is_array_like(y) and jnp.ndim(y) == 0:
        raise ValueError(
            "X and y must be batches of points and targets, but y is a single number: pass "
            "X[None], y[None] for one point"
        )
    X = as_stack(X, "X")
    n = count(X)
    dtype = dtype_of(X)
    # Each kernel of the learner checks the points.
    leaves = jax.tree.leaves(learner, is_leaf=_is_kernel)
    for kernel in filter(_is_kernel, leaves):
        _, X, _ = prepare_stacks(kernel, X)
    learner = guarded(cast(learner, dtype), "online.run" if throw else None)
    check_stream(learner, X)
    unit = UnitWeights(n, np.dtype(dtype))
    y = as_targets_of(learner.loss, y, n, dtype, unit, both_signs=False)
    if y.ndim != 1:
        raise ValueError(
            f"y must have shape ({n},), but has shape {y.shape}: batch over its columns with "
            "jax.vmap"
        )
    present = None if present is None else _as_present(present, n)
    if state is not None:
        fresh = eqx.filter_eval_shape(learner.init, points_at(X, 0))
        if _shapes(state) != _shapes(fresh):
            raise ValueError(
                f"state does not belong to this {type(learner).__name__} and such points: pass "
                "the value.state of a run of the same learner on the same kind of points, or None"
            )
    of_one = eqx.filter_eval_shape(lambda learner, X: learner.init(points_at(X, 0)), learner, X)
    check_numbers(
        sum(leaf.size for leaf in jax.tree.leaves(of_one) if hasattr(leaf, "size")),
        dtype_of(X),
        function_name="online.run",
        for_each=HELD_FOR_EACH,
        what=f"the state of {type(learner).__name__}",
        instead="use a smaller capacity, or fewer features",
    )
    solution = _run(learner, X, y, present, state)
    return finish(solution, throw, _hint(learner, solution.result))


def _hint(learner: AbstractOnlineLearner, result: Any) -> str:
    name = type(learner).__name__
    known = is_concrete(result)
    if known and jnp.any(result == RESULTS.over_capacity):
        return f"run of {name}: {learner.hint_of_capacity()}"
    if known and jnp.any(result == RESULTS.inaccurate):
        return f"run of {name}: a larger ridge or float64 may help."
    return f"run of {name}: rescaled inputs or a smaller rate may help."


def _as_present(present: ArrayLike, n: int) -> Bool[Array, " n"]:
    array = jnp.asarray(present)
    if array.shape != (n,):
        raise ValueError(
            f"present must have shape ({n},), one per point, but has shape {array.shape}"
        )
    known = np.asarray(array) if is_concrete(array) else np.zeros(1)
    if np.any((known != 0) & (known != 1)):
        raise ValueError(
            "present must hold booleans, or zeros and ones, but holds "
            f"{known[(known != 0) & (known != 1)][0]:g}: points of a stream have no other weights"
        )
    return array.astype(bool)


def _shapes(state: AbstractOnlineState) -> tuple[Any, list[Any]]:
    """The structure, shapes and dtypes of a state, which two states of one learner have in
    common.
    """
    leaves, structure = jax.tree.flatten(state)
    is_array = lambda leaf: hasattr(leaf, "shape")
    return structure, [(leaf.shape, leaf.dtype) if is_array(leaf) else leaf for leaf in leaves]


@compiled
def _run(learner, X, y, present, state):
    fresh = learner.init(points_at(X, 0))
    if state is None:
        state = fresh
    else:  # with the kernels of this learner
        state = eqx.combine(_split(state)[0], _split(fresh)[1])
    # The state after the last point, and the predictions.
    arrays, fixed = _split(state)

    def step(arrays: Any, seen: Any) -> tuple[Any, Array]:
        x, target, is_present = seen
        state = eqx.combine(arrays, fixed)
        after, prediction = learner.update(state, x, target)
        new, rest = _split(after)
        _check_kernels_stay(learner, fixed, rest)
        if is_present is not None:
            new = tree_where(is_present, new, arrays)
        return new, prediction

    # state_i, f_(i-1)(x_i) = update(state_(i-1), x_i, y_i): the prediction is that of the function
    # before y_i.
    arrays, predictions = lax.scan(step, arrays, (X, y, present))
    end = eqx.combine(arrays, fixed)
    seen = jnp.ones(len(y), bool) if present is None else present
    progress = Progress(
        state=end,
        predictions=predictions,
        losses=jnp.where(seen, learner.loss(y, predictions), 0),
        mistakes=seen & jax.vmap(learner.is_mistake)(predictions, y),
    )
    # Everything must be finite, because NaN makes no mistakes. A traced parameter outside its
    # interval is NaN, which leaves no trace if the parameter only takes part in comparisons. The
    # function may overflow although the state is finite.
    given = [entry.value for entry in parameters(learner)]
    numbers = (given, progress, progress.state.function)
    inexact = jax.tree.leaves(eqx.filter(numbers, eqx.is_inexact_array))
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(array)) for array in inexact]))
    statuses = ((~finite, RESULTS.nonfinite),)
    result = first_that_holds(statuses, progress.state.result)
    # The progress, with NaN for every number and a mistake at every point that was seen, where
    # the run failed.
    unknown = result == RESULTS.nonfinite
    inexact_parts, others = eqx.partition(progress, eqx.is_inexact_array)
    inexact_parts = jax.tree.map(lambda leaf: jnp.where(unknown, jnp.nan, leaf), inexact_parts)
    progress = eqx.combine(inexact_parts, others)
    mistakes = progress.mistakes | (unknown & seen)
    progress = eqx.tree_at(lambda progress: progress.mistakes, progress, mistakes)
    losses = progress.losses
    stats = {
        "mistakes": jnp.sum(progress.mistakes, dtype=jnp.int32),
        "updates": end.updates - state.updates,
        "loss": jnp.sum(losses) / positive_or_one(jnp.sum(seen.astype(losses.dtype))),
    }
    return Solution(progress, result, stats)


def _is_kernel(node: Any) -> bool:
    return isinstance(node, AbstractKernel)


def _split(state: AbstractOnlineState) -> tuple[Any, Any]:
    """The arrays of a state that points change, and the rest of the state, which contains the
    kernels.

    Features of a kernel may be large arrays, which no step should copy.
    """
    return eqx.partition(state, eqx.is_array, is_leaf=_is_kernel)


def _check_kernels_stay(learner: AbstractOnlineLearner, before: Any, after: Any) -> None:
    """Raises ValueError where an update has changed the kernel of a state."""
    old = jax.tree.leaves(eqx.filter(before, eqx.is_array))
    new = jax.tree.leaves(eqx.filter(after, eqx.is_array))
    if not all(a is b for a, b in zip(old, new, strict=True)):
        raise ValueError(
            f"update of {type(learner).__name__} returns a state with another kernel: keep "
            "parameters of a kernel that are learned as arrays of the state"
        )
