"""The interface of online learners: an initial state, and the change of the state by one more
point.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.base.intervals import Interval
from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import as_floats, check_intervals
from kernax.core.base.printing import Printed


class AbstractOnlineState(Printed):
    """The state of a learner between two points: arrays whose shapes never change.

    A kernel in the state is the learner's kernel, which `function` uses. No update may change it,
    and a run that continues with another learner replaces it by the kernel of that learner.

    Attributes:
        updates: the number of points at which the learner changed the function.
    """

    updates: eqx.AbstractVar[Int[Array, ""]]

    @property
    @abc.abstractmethod
    def function(self) -> Callable:
        """The function learned so far, of one point; `function.values(X)` evaluates a batch of
        points.
        """

    @property
    @abc.abstractmethod
    def result(self) -> Any:
        """The status, a member of `RESULTS`: whether the state is what the learner promises.

        `run` itself checks that it is finite.
        """


class AbstractOnlineLearner(Printed):
    """An online learner: it predicts at one point after another, receives the target, and learns
    from it.

    Attributes:
        loss: one of `kernax.losses`, the loss of a prediction. `loss.targets` says what the targets
            are.
    """

    loss: eqx.AbstractVar[Any]

    def __check_init__(self):
        check_intervals(self)

    @abc.abstractmethod
    def init(self, point: PyTree) -> AbstractOnlineState:
        """The state before the first point, for points of the shapes and dtypes of this one."""

    @abc.abstractmethod
    def update(
        self, state: Any, x: PyTree, y: Float[Array, ""]
    ) -> tuple[AbstractOnlineState, Float[Array, ""]]:
        """The state after one more point, and the prediction `f(x)` before y was seen."""

    def is_mistake(self, prediction: Float[Array, ""], y: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether the prediction has the wrong sign, or is zero: `y f(x) <= 0`.

        If targets are numbers or counts: whether the loss is positive, as most losses are unless
        the prediction is exact.
        """
        # With f(x) = 0 neither sign is predicted, which counts as wrong.
        if self.loss.targets == "signs":
            return y * prediction <= 0
        return self.loss(y, prediction) > 0

    def hint_of_capacity(self) -> str:
        """Advice for the case that the capacity was too small."""
        return "a larger capacity is needed."


@functools.singledispatch
def check_stream(learner: AbstractOnlineLearner, X: PyTree) -> None:
    """Raises ValueError for points that a learner cannot use; by default it accepts all.

    For your own learner, register a check: `check_stream.register(MyLearner)(function)`.

    Examples:
        >>> rule, budget = kernax.online.Perceptron(), kernax.online.NoBudget(capacity=5)
        >>> learner = kernax.online.DualLearner(rule, kernax.RBF(0.3), budget)
        >>> kernax.online.check_stream(learner, jnp.zeros((5, 1)))
    """


def as_number_if_given(number: Any, interval: Interval, words: str) -> Any:
    """None, or a number in an interval; one outside of it that is traced becomes NaN.

    Raises ValueError, with the words for what is accepted, for any other known value.
    """
    if number is None:
        return None
    try:
        given: Any = np.nan if isinstance(number, bool) else as_floats(number)
    except ValueError:
        given = np.nan
    if not is_concrete(given):
        return interval.guarded(given)
    if not interval.contains(given):
        raise ValueError(f"{words}, but is {number!r}")
    return given


def kind_in_words(value: Any) -> str:
    """A value as messages name it: numbers and strings as they are, classes by name, anything else
    by its type.
    """
    if isinstance(value, type):
        return f"the class {value.__name__}, not called"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    kind = type(value)
    return f"of type {kind.__module__}.{kind.__qualname__}"


def as_part(value: Any, kind: type, name: str, known: str) -> Any:
    """A part of a learner, unchanged. Raises ValueError if it is not of the right kind.

    The message names the argument, and gives `known` as examples that are accepted.
    """
    if isinstance(value, kind):
        return value
    raise ValueError(f"{name} must be {known}, but is {kind_in_words(value)}")
