"""Online learners, which see a stream of points one after another.

    learner = kernax.online.DualLearner(
        kernax.online.Perceptron(), kernax.RBF(), kernax.online.RemoveOldest(200)
    )
    progress = kernax.online.run(learner, X, y).value

A learner applies a rule in a space: a `DualLearner` keeps points of any kind, within a budget, and
a `PrimalLearner` keeps weights of explicit features. Both have the methods `init(point) -> state`
and `update(state, x, y) -> (state, prediction)`, which `run` calls; `state.function` is the
function learned so far. To write a rule, derive from `AbstractRule`; to write a budget, derive from
`AbstractBudget`; for any other learner, derive from `AbstractOnlineLearner`.
"""

# May import: kernax._advice, kernax.core.

from kernax.core.base.deprecation import moved
from kernax.core.learner.linear import LinearFunction
from kernax.online.adagrad import Adagrad
from kernax.online.bounds import (
    Costs,
    costs,
    disjunction_bound,
    margin,
    perceptron_bound,
    winnow_bound,
)
from kernax.online.budgets import (
    AbstractBudget,
    Merge,
    NoBudget,
    Placement,
    Project,
    RemoveOldest,
    RemoveSmallest,
)
from kernax.online.dual import DualLearner
from kernax.online.dual_adagrad import DualAdagrad
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState, check_stream
from kernax.online.primal import PrimalLearner
from kernax.online.recursive import KernelRecursiveLeastSquares
from kernax.online.rules import (
    AbstractRule,
    ConstantRate,
    DecayingRate,
    LeastMeanSquares,
    MarginPerceptron,
    Move,
    PassiveAggressiveI,
    PassiveAggressiveII,
    Perceptron,
    StochasticGradient,
)
from kernax.online.sparse import SparseGradient
from kernax.online.stream import Progress, run
from kernax.online.support import Newcomer, Support
from kernax.online.winnow import BalancedWinnow, ExponentiatedGradient, NormalisedWinnow, Winnow

__all__ = [
    "run",
    "Progress",
    "DualLearner",
    "PrimalLearner",
    "KernelRecursiveLeastSquares",
    "SparseGradient",
    "Adagrad",
    "DualAdagrad",
    "Winnow",
    "BalancedWinnow",
    "NormalisedWinnow",
    "ExponentiatedGradient",
    "Perceptron",
    "MarginPerceptron",
    "PassiveAggressiveI",
    "PassiveAggressiveII",
    "LeastMeanSquares",
    "StochasticGradient",
    "ConstantRate",
    "DecayingRate",
    "NoBudget",
    "RemoveOldest",
    "RemoveSmallest",
    "Merge",
    "Project",
    "margin",
    "perceptron_bound",
    "winnow_bound",
    "disjunction_bound",
    "costs",
    "Costs",
    "LinearFunction",
    "AbstractOnlineLearner",
    "AbstractOnlineState",
    "check_stream",
    "AbstractRule",
    "Move",
    "AbstractBudget",
    "Newcomer",
    "Placement",
    "Support",
]

_STATES = (
    "AdagradState",
    "DualAdagradState",
    "DualState",
    "MultiplicativeState",
    "PrimalState",
    "RecursiveState",
)
__getattr__ = moved(__name__, {name: f"kernax.types.{name}" for name in _STATES})


def __dir__() -> list[str]:
    return __all__
