"""Comparison of learners: which one predicts unseen rows best, and which are as good."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from kernax.core.base.annotations import ArrayLike
from kernax.core.base.printing import Printed
from kernax.selection.choose.cross_validation import check_folds, cross_validate
from kernax.selection.choose.folds import Folds
from kernax.selection.choose.results_table import Table


class Selection(Printed):
    """The result of a comparison of candidates on the same folds.

    Attributes:
        names: the names of the c candidates.
        losses: (c, k), the loss of each candidate on each of k folds.
        inflation: `1/k + n_score / n_learn`, which turns the variance over folds into that of their
            mean, because folds share training rows (Nadeau & Bengio 2003).

    Examples:
        >>> losses = jnp.array([[0.1, 0.2, 0.1], [0.4, 0.3, 0.5]])
        >>> names = ("smooth", "linear")
        >>> selection = kernax.types.Selection(names, losses, inflation=jnp.array(0.8))
        >>> selection.chosen
        'smooth'
    """

    names: tuple[str, ...] = eqx.field(static=True)
    losses: Float[Array, "c k"]
    inflation: Float[Array, ""]

    @property
    def mean(self) -> Float[Array, " c"]:
        """The mean loss of each candidate over the folds; NaN where a fit failed."""
        return jnp.mean(self.losses, 1)

    @property
    def best(self) -> Int[Array, ""]:
        """The index of the candidate with the lowest finite mean loss."""
        return jnp.argmin(jnp.where(jnp.isfinite(self.mean), self.mean, jnp.inf))

    @property
    def chosen(self) -> str:
        """The name of the best candidate. Raises ValueError if all of them failed."""
        if not self._is_any_known:
            raise ValueError("no candidate has a finite mean loss: look at fits that fail")
        return self.names[int(self.best)]

    @property
    def _is_any_known(self) -> bool:
        """Whether at least one candidate did not fail."""
        return bool(jnp.any(jnp.isfinite(self.mean)))

    @property
    def difference(self) -> Float[Array, " c"]:
        """The mean loss of each candidate minus that of the best."""
        return self.mean - self.mean[self.best]

    @property
    def standard_error(self) -> Float[Array, " c"]:
        """The standard error of `difference`, from its values on each fold: zero for the best
        itself.
        """
        # sqrt((1/k + n_score / n_learn) s^2), s^2 the variance of the differences on each fold
        # (Nadeau & Bengio 2003).
        of_folds = self.losses - self.losses[self.best][None]
        return jnp.sqrt(self.inflation * jnp.var(of_folds, 1, ddof=1))

    @property
    def as_good(self) -> Bool[Array, " c"]:
        """Which candidates differ from the best by no more than one standard error."""
        # mean_c - mean_best <= se_c: the one-standard-error rule.
        return self.difference <= self.standard_error

    @property
    def table(self) -> Table:
        """A row for each candidate, the best first."""
        columns = {
            "loss": self.mean,
            "difference": self.difference,
            "standard error": self.standard_error,
            "as good as the best": self.as_good,
        }
        return Table(columns, self.names).sorted_by("loss")

    def __str__(self) -> str:
        if not self._is_any_known:
            return f"{self.table}\nno candidate has a finite mean loss"
        good = [name for name, is_good in zip(self.names, self.as_good) if is_good]
        others = [name for name in good if name != self.chosen]
        tie = f", and within one standard error of it {', '.join(others)}" if others else ""
        return f"{self.table}\nbest: {self.chosen}{tie}"


def select(
    candidates: Mapping[str, Callable[[PyTree, Array, Array], Any]],
    loss: Callable[[Any, PyTree, Array, Array], Array],
    X: PyTree,
    y: ArrayLike,
    folds: Folds,
    *,
    weights: ArrayLike | None = None,
) -> Selection:
    """Compares learners, or kernels, on the same folds, and gives the standard errors of the
    differences.

    Arguments:
        candidates: a dictionary from names to functions `fit(X, y, weights)` as for
            `cross_validate`. With `throw=False` in the fit, a candidate that fails has a loss of
            NaN, and is not chosen. A fit may itself learn parameters, for example by `minimise` on
            folds of its own: the comparison is then one of whole procedures, by nested
            cross-validation.
        loss: `loss(fitted, X, y, weights)`, a number that is smaller for better predictions.
        X, y, folds, weights: as for `cross_validate`; at least two folds.

    Returns:
        A `Selection`: losses on each fold, means, differences from the best with their standard
        errors, a table. Print it.

    Raises ValueError for no candidate, a single fold, or a loss that is not a number.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 6)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> def ridge(kernel):
        ...     def fit(X, y, w):
        ...         return kernax.kernel_ridge(kernel, X, y, 0.01, weights=w, throw=False).value
        ...     return fit
        ...
        >>> def error(f, X, y, weights):
        ...     return kernax.metrics.root_mean_square_error(y, f.values(X), weights=weights)
        ...
        >>> candidates = {"smooth": ridge(kernax.RBF(0.3)), "linear": ridge(kernax.Linear())}
        >>> kernax.selection.select(candidates, error, X, y, kernax.k_folds(6, 3)).chosen
        'smooth'
    """
    if not isinstance(candidates, Mapping) or not candidates:
        raise ValueError(
            "candidates must be a dictionary from names to functions fit(X, y, weights), but is "
            f"{candidates!r}"
        )
    check_folds(folds)
    k = len(folds.learn)
    if k < 2:
        raise ValueError("folds must be two at least, so that losses can differ, but there is one")
    # losses_ci = loss(fit_c(learn_i), score_i): the same folds for all candidates, whose
    # differences therefore vary less than the losses themselves.
    losses = [
        cross_validate(fit, loss, X, y, folds, weights=weights).scores
        for fit in candidates.values()
    ]
    for name, of_folds in zip(candidates, losses):
        if not eqx.is_array(of_folds) or of_folds.shape != (k,):
            raise ValueError(f"loss must return one number, but that of {name!r} does not")
    # `1/k + n_score / n_learn`, with the mean sizes of the folds.
    learned = jnp.sum(folds.learn_weights)
    scored = jnp.sum(folds.score_weights)
    inflation = (np.reciprocal(float(len(folds.learn))) + scored / learned).astype(losses[0].dtype)
    return Selection(tuple(candidates), jnp.stack(losses), inflation)
