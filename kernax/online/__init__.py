"""Learners of a stream of points, which they see one after another.

    learner = kernax.online.DualLearner(
        kernax.online.Perceptron(), kernax.RBF(), kernax.online.RemoveOldest(200)
    )
    progress = kernax.online.run(learner, X, y).value

A learner is a rule in a space: a `DualLearner` keeps points of any kind, within a budget, and a
`PrimalLearner` weights of explicit features. Both are pairs `init(point) -> state` and
`update(state, x, y) -> (state, prediction)`, as `run` calls them; `state.function` is what was
learned. A rule of one's own is a class derived from `AbstractRule`, a budget one derived from
`AbstractBudget`, and any other learner one derived from `AbstractOnlineLearner`.
"""

# May import: kernax._advice, kernax.core.

from kernax.core.learner.linear import LinearFunction
from kernax.online.adagrad import Adagrad, AdagradState
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
from kernax.online.dual import DualLearner, DualState
from kernax.online.dual_adagrad import DualAdagrad, DualAdagradState
from kernax.online.learner import AbstractOnlineLearner, AbstractOnlineState, check_stream
from kernax.online.multiplicative import MultiplicativeState
from kernax.online.primal import PrimalLearner, PrimalState
from kernax.online.recursive import KernelRecursiveLeastSquares, RecursiveState
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
    "DualState",
    "PrimalState",
    "RecursiveState",
    "AdagradState",
    "DualAdagradState",
    "MultiplicativeState",
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
