"""Cross-validation: how well a learner predicts rows that it has not seen."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.boundary import as_stack, as_weights, count, dtype_of
from kernax.core.base.functions import accepts, with_call
from kernax.core.base.numerics import is_concrete
from kernax.core.base.printing import Printed, described
from kernax.core.base.solution import Solution
from kernax.core.base.stacks import points_at
from kernax.selection.choose.folds import Folds


class CrossValidation(Printed):
    """The scores of each fold.

    Attributes:
        scores: the results of `score`, with a first axis of k folds.

    Examples:
        >>> result = kernax.types.CrossValidation(scores=jnp.array([1.0, 2.0, 3.0]))
        >>> float(result.mean)
        2.0
    """

    scores: PyTree[Array]

    @property
    def mean(self) -> PyTree[Array]:
        """The mean score over the folds."""
        return jax.tree.map(lambda of_folds: jnp.mean(of_folds, 0), self.scores)

    @property
    def standard_error(self) -> PyTree[Array]:
        """The standard error of the mean, as if folds were independent: `sqrt(sum_i (s_i - mean)^2
        / (k (k - 1)))`.

        As folds share training rows, it tends to be too small (Bengio & Grandvalet 2004). It is NaN
        for a single fold.
        """

        def of_folds(scores: Array) -> Array:
            # sqrt(sum_i (s_i - mean)^2 / (k - 1)) / sqrt(k).
            deviation = jnp.std(scores, 0, ddof=1)
            return deviation / np.sqrt(len(scores)).astype(deviation.dtype)

        return jax.tree.map(of_folds, self.scores)


@with_call("kernax.cross_validate(fit, score, X, y, folds), with functions fit and score")
def cross_validate(
    fit: Callable[[PyTree, Array, Array], Any],
    score: Callable[[Any, PyTree, Array, Array], PyTree[Array]],
    X: PyTree,
    y: ArrayLike,
    folds: Folds,
    *,
    weights: ArrayLike | None = None,
) -> CrossValidation:
    """Cross-validation: for each fold, fits the training rows, and scores the fit on the held-out
    rows.

    Arguments:
        fit: `fit(X, y, weights)`, which returns the first argument of `score`, such as `lambda X,
            y, w: kernax.kernel_ridge(kernel, X, y, 0.1, weights=w).value`. It must ignore rows of
            weight zero, as all learners of kernax do.
        score: `score(fitted, X, y, weights)`, a number or a pytree of numbers, such as `lambda f,
            X, y, w: kernax.metrics.root_mean_square_error(y, f.values(X), weights=w)`.
        X: a batch of n points of any kind.
        y: (n,) or (n, outputs).
        folds: from `k_folds` or `time_folds`.
        weights: (n,) >= 0, the weights of rows in fits and scores.

    Returns:
        A `CrossValidation`, differentiable in X, y, weights and everything that `fit` and `score`
        depend on. All folds are one program; a CPU computes one fold after another, other devices
        all folds in one `vmap`. `jax.jit` of a function that calls it makes one program of all. A
        fit that fails raises for all folds; with `throw=False` its value is NaN, and so are the
        scores of its own fold, while one that only reached its `max_steps` is scored as it is.

    Raises:
        ValueError: bad shapes, folds of another number of rows.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 6)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> def fit(X, y, weights):
        ...     return kernax.kernel_ridge(kernax.RBF(0.3), X, y, ridge=0.01, weights=weights).value
        ...
        >>> def error(f, X, y, weights):
        ...     return kernax.metrics.root_mean_square_error(y, f.values(X), weights=weights)
        ...
        >>> result = kernax.cross_validate(fit, error, X, y, kernax.k_folds(6, 3))
        >>> result.scores.shape
        (3,)
    """
    if not accepts(fit, X, y, weights):
        raise ValueError(f"fit must be a function fit(X, y, weights), but is {described(fit)}")
    if not accepts(score, None, X, y, weights):
        raise ValueError(
            f"score must be a function score(fitted, X, y, weights), but is {described(score)}"
        )
    X = as_stack(X, "X")
    n = count(X)
    y = jnp.asarray(y)
    if not y.ndim or len(y) != n:
        raise ValueError(f"y must have n = {n} rows, as X has, but has shape {y.shape}")
    check_folds(folds)
    if is_concrete(folds.learn, folds.score):
        of_folds = 1 + max(np.max(np.asarray(folds.learn)), np.max(np.asarray(folds.score)))
        if of_folds != n:
            raise ValueError(f"folds are of {of_folds} rows, but X has {n}: make them with n = {n}")
    checked = as_weights(weights, n, dtype_of(X))
    kept = checked.kept()
    if kept is not None and is_concrete(y) and jnp.issubdtype(y.dtype, jnp.inexact):
        finite = np.isfinite(np.asarray(y)).reshape(len(y), -1).all(1)
        wrong = np.flatnonzero(kept & ~finite)
        if len(wrong):
            raise ValueError(f"y must be finite, but row {wrong[0]} is {y[wrong[0]]}")
    of_rows = checked.values

    # score_i = score(fit(rows of fold i that learn), rows of fold i that score).
    def scored(fold: Folds) -> PyTree[Array]:
        learn = _Part.of(X, y, of_rows, fold.learn, fold.learn_weights)
        left_out = _Part.of(X, y, of_rows, fold.score, fold.score_weights)
        fitted = fit(learn.X, learn.y, learn.weights)
        if isinstance(fitted, Solution):
            raise ValueError("fit must return the object to score: the .value of its Solution")
        return score(fitted, left_out.X, left_out.y, left_out.weights)

    # One fold after another on a CPU, so that no iteration waits for that of another fold;
    # elsewhere all together. Not by `each`, which traces the function for both: a fit may take
    # seconds to trace.
    if jax.default_backend() == "cpu":
        return CrossValidation(lax.map(scored, folds))
    return CrossValidation(jax.vmap(scored)(folds))


class _Part(eqx.Module):
    X: PyTree
    y: Array
    weights: Array

    @staticmethod
    def of(X: PyTree, y: Array, weights: Array, rows: Array, known: Array) -> "_Part":
        """The rows of these indices, with these weights."""
        return _Part(points_at(X, rows), y[rows], weights[rows] * known.astype(weights.dtype))


def check_folds(folds: Any) -> None:
    """Raises ValueError for anything but folds with a first axis."""
    if not isinstance(folds, Folds):
        raise ValueError(
            "folds must come from k_folds or time_folds, such as k_folds(n, 5), but are of type "
            f"{type(folds).__name__}"
        )
    if folds.learn.ndim != 2:
        raise ValueError("folds must have a first axis: those of k_folds and time_folds do")


class CrossValidatedLoss(Printed):
    """The cross-validated loss of a model, `loss(model, X, y, folds, weights=None)`: the mean over
    folds.

    The same loss serves all three ways of choosing parameters, of any learner:

        def fit(model, X, y, weights):
            return kernax.kernel_ridge(model.kernel, X, y, model.ridge, weights=weights,
                                       throw=False).value

        loss = kernax.selection.CrossValidatedLoss(fit, error)
        values = {"lengthscale": scales, "ridge": ridges}
        kernax.grid_search(loss, start, values, args=(X, y, folds))
        kernax.selection.random_search(loss, start, ranges, 200, key=key, args=(X, y, folds))
        kernax.minimise(loss, start, optimiser, 30, args=(X, y, folds))

    The lowest loss is optimistic, since the parameters were chosen by it. Nested cross-validation
    measures the error of the whole procedure: each outer fold chooses on inner folds of its own.
    The weights leave out rows that only pad the outer fold:

        def choose(X, y, weights):
            args = (X, y, kernax.k_folds(len(y), 3), weights)
            model = kernax.minimise(loss, start, optimiser, 30, args=args, throw=False).value
            return fit(model, X, y, weights)

        kernax.cross_validate(choose, error, X, y, folds)

    These inner folds are in the order of the rows: shuffle the rows first, or pass a key.

    Attributes:
        fit: `fit(model, X, y, weights)`, which returns the first argument of `score`. With
            `throw=False` a failed fit gives a loss of NaN.
        score: `score(fitted, X, y, weights)`, a number that is smaller for better predictions; for
            `minimise` a smooth one, such as a mean squared error or a log loss.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 6)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> def fit(kernel, X, y, weights):
        ...     return kernax.kernel_ridge(kernel, X, y, 0.01, weights=weights, throw=False).value
        ...
        >>> def error(f, X, y, weights):
        ...     return kernax.metrics.root_mean_square_error(y, f.values(X), weights=weights)
        ...
        >>> loss = kernax.selection.CrossValidatedLoss(fit, error)
        >>> folds = kernax.k_folds(6, 3)
        >>> bool(loss(kernax.RBF(0.3), X, y, folds) < loss(kernax.RBF(0.01), X, y, folds))
        True
    """

    fit: Callable[[Any, PyTree, Array, Array], Any]
    score: Callable[[Any, PyTree, Array, Array], Array]

    def __call__(
        self,
        model: Any,
        X: PyTree,
        y: ArrayLike,
        folds: Folds,
        weights: ArrayLike | None = None,
    ) -> Array:
        # L(theta) = 1/k sum_i score(fit_theta(learn_i), score_i). Its derivative in theta is that
        # of the fits, by the implicit function theorem in each of them.
        fit = lambda X, y, weights: self.fit(model, X, y, weights)
        return cross_validate(fit, self.score, X, y, folds, weights=weights).mean
