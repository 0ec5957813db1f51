"""Learning a kernel for classes, and a penalty, by gradients of the log loss on folds.

Gradients are taken through the fits to the rows outside each fold.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PyTree

from kernax.core.base.annotations import ParameterArray
from kernax.core.base.parameters import Trainable, positive
from kernax.core.base.printing import Printed
from kernax.core.base.solution import RESULTS, Solution
from kernax.core.base.special_functions import softplus
from kernax.core.base.stacks import points_at
from kernax.core.kernel.kernel import AbstractKernel
from kernax.core.kernel.model import Model
from kernax.core.learner.expansion import KernelExpansion
from kernax.selection.choose.folds import Folds
from kernax.selection.optimise.weak_priors import WeakPriors
from kernax.selection.recipes.stages import Learning, StageChoice, Together, choose
from kernax.supervised.machines.decision_calibration import platt
from kernax.supervised.machines.svm import svm
from kernax.supervised.smooth.logistic import kernel_logistic
from kernax.supervised.smooth.softmax import kernel_softmax


class SVMModel(Printed):
    """A kernel, the price C of an error, and a slope: the parameters of a support vector machine
    that are learned.

    The slope turns decision values into log odds during learning.
    """

    kernel: AbstractKernel
    C: Float[ParameterArray, ""] = positive(default=1.0)
    slope: Float[ParameterArray, ""] = positive(default=1.0)


def signs_of_columns(Y: Array | np.ndarray) -> Any:
    """One-hot columns (n, c) as -1 and +1.

    Two classes give one column, +1 for the second class, (n,); several give a column for each, (n,
    c).
    """
    return 2 * Y[:, 1] - 1 if Y.shape[1] == 2 else 2 * Y - 1


def fitted(
    model: Model | SVMModel,
    X: PyTree,
    Y: Array,
    weights: Array | None = None,
    throw: bool = True,
) -> Solution[KernelExpansion]:
    """The function that a model makes of points X and classes in one-hot columns Y.

    It has one value for two classes, and one for each of several.
    """
    if isinstance(model, Model) and Y.shape[1] > 2:
        return kernel_softmax(model.kernel, X, Y, model.ridge, weights=weights, throw=throw)
    signs = signs_of_columns(Y)
    if isinstance(model, Model):
        return kernel_logistic(model.kernel, X, signs, model.ridge, weights=weights, throw=throw)
    return svm(model.kernel, X, signs, model.C, weights=weights, throw=throw)


@eqx.filter_jit
def fold_values(model: Model | SVMModel, X: PyTree, Y: Array, fold: Folds) -> Array:
    """Values at the rows that a fold scores, from the function fitted to its other rows."""
    X_learn = points_at(X, fold.learn)
    Y_learn = Y[fold.learn]
    solution = fitted(model, X_learn, Y_learn, fold.learn_weights, throw=False)
    return solution.value.values(points_at(X, fold.score))


def fold_loss(
    model: Model | SVMModel,
    X: PyTree,
    Y: Array,
    folds: Folds,
    priors: WeakPriors,
    together: Together,
) -> Array:
    """The cross-validated log loss for each row, plus the share of the priors.

    It is smooth in the parameters, for both models.

    Decision values of an SVM are not log odds, and their size has no meaning: a slope, learned with
    the kernel, turns them into log odds (Platt 2000). Without it a larger C, which makes the values
    larger, would seem to be better.
    """
    model = together(model)

    def of_one(fold: Folds) -> Array:
        values = fold_values(model, X, Y, fold)
        log_odds = values * model.slope if isinstance(model, SVMModel) else values
        # -log p(class_i | slope f(x_i)), f the function fitted to the other rows.
        losses = log_losses(log_odds, Y[fold.score])
        return jnp.sum(fold.score_weights * losses)

    of_folds = lax.map(of_one, folds)
    total = jnp.sum(of_folds) + priors.penalty(model)
    return total / jnp.sum(folds.score_weights)


def log_losses(values: Array, Y: Array) -> Float[Array, " n"]:
    """Minus the log probability of each row's class (n,).

    Values are log odds for two classes (n,), or a value for each of several (n, c).
    """
    if values.ndim == 1:
        # -log p = log(1 + exp(-y f)), or for several classes -f_y + log sum_c exp(f_c).
        return softplus(-signs_of_columns(Y) * values)
    return -jnp.sum(Y * jax.nn.log_softmax(values), 1)


def calibrated_losses(values: Array, Y: Array) -> Float[Array, " n"]:
    """The same for decision values of SVMs, through Platt's sigmoid for each column.

    NaN where values are not finite, because the fit of a fold failed, or the fit of the sigmoid
    did.
    """
    signs = signs_of_columns(Y)
    columns = [(values, signs)] if values.ndim == 1 else zip(values.T, signs.T)
    losses = []
    for column, sign in columns:
        finite = jnp.all(jnp.isfinite(column))
        sigmoid = platt(jnp.where(finite, column, 0), sign, throw=False)
        # log(1 + exp(-y f)), f the log odds by the sigmoid
        of_column = softplus(-sign * sigmoid.value.log_odds(column))
        is_fitted = finite & (sigmoid.result == RESULTS.successful)
        losses.append(jnp.where(is_fitted, of_column, jnp.nan))
    return jnp.mean(jnp.stack(losses), 0)


def learn_classifier(
    start: Model | SVMModel,
    X: PyTree,
    Y: Array,
    labels: np.ndarray,
    *,
    groups: np.ndarray | None = None,
    trainable: Trainable | None = None,
    progress: Callable[[Sequence[Folds]], Iterable[Folds]] = iter,
) -> StageChoice:
    """Learns a kernel and a penalty from the log loss on folds, in stages.

    Each stage is kept only if it pays on rows that it has not seen.

    Arguments:
        start: the user's model.
        X: points.
        Y: their classes in one-hot columns (n, c).
        labels: the same as names or numbers (n,), to balance folds.
        groups: (d,) which columns of points share a lengthscale, as for `Learning`.
        trainable, progress: as for `choose`.
    """
    losses_of = calibrated_losses if isinstance(start, SVMModel) else log_losses
    return choose(
        start,
        X,
        Y,
        labels,
        fold_loss,
        fold_values,
        losses_of,
        learning=Learning(groups=groups),
        trainable=trainable,
        progress=progress,
    )
