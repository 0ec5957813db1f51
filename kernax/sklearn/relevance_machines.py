"""Relevance vector machines."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernax.core.losses.loss_functions import Bernoulli
from kernax.core.losses.observation_likelihoods import Categorical
from kernax.sklearn.targets import KernelClassifier, KernelRegressor, of_both
from kernax.sparse.relevance import relevance_vector_machine


class _RelevanceMachine:
    """The base class of both relevance vector machines."""

    def _fit_vectors(self, rows, X, targets, **options):
        solution = rows.fit(
            relevance_vector_machine,
            rows.column(targets),
            bias=self.fit_intercept,
            max_vectors=self.max_vectors,
            **options,
        )
        self.relevance_ = solution.value.indices
        self.machine_ = rows.restored(solution.value)
        self.function_ = self.machine_.function
        self.relevance_vectors_ = None if self._of_texts else X[self.relevance_]
        self.log_evidence_ = np.asarray(self.machine_.log_evidence)


@dataclass(eq=False, repr=False)
class RelevanceVectorRegressor(_RelevanceMachine, KernelRegressor):
    """The relevance vector machine for regression: `kernax.relevance_vector_machine` of numbers.

    Arguments:
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, or "precomputed".
        gamma, degree, coef0: parameters of kernels given by name, as in scikit-learn.
        noise: the variance of the noise; None learns it.
        fit_intercept: whether the constant is one of the functions.
        max_vectors: the largest number of functions.
        missing: "raise" raises ValueError for targets that are NaN; "drop" gives their rows weight
            zero.

    Attributes: `relevance_` (rows), `relevance_vectors_`, `machine_` (`RelevanceVectors`),
    `function_`, `noise_`, `log_evidence_`, `kernel_`.
    """

    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str | None = "scale"
    degree: int = 3
    coef0: float = 1
    noise: float | None = None
    fit_intercept: bool = True
    max_vectors: int | None = None
    missing: str = "raise"

    def _fit_rows(self, rows, X, y):
        self._fit_vectors(rows, X, y, noise=self.noise)
        self.noise_ = float(self.machine_.noise)

    def predict(self, X, return_std=False):
        """Means (m,), and with `return_std` standard deviations of targets, noise included."""
        if not return_std:
            return self._values(X)
        check_is_fitted(self)
        mean, variance = self._vectorised(X, self.machine_, "predict")
        return mean, np.sqrt(variance)


@dataclass(eq=False, repr=False)
class RelevanceVectorClassifier(_RelevanceMachine, KernelClassifier):
    """The relevance vector machine for classes: `kernax.relevance_vector_machine` of labels, with
    one model for all classes.

    Arguments are those of `RelevanceVectorRegressor`, without `noise` and `missing`.

    Attributes: `relevance_` (rows), `relevance_vectors_`, `machine_` (`RelevanceVectors`),
    `function_`, `log_evidence_`, `classes_`, `kernel_`.
    """

    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str | None = "scale"
    degree: int = 3
    coef0: float = 1
    fit_intercept: bool = True
    max_vectors: int | None = None

    def _fit_rows(self, rows, X, class_indices):
        likelihood = Bernoulli() if len(self.classes_) == 2 else Categorical()
        self._fit_vectors(rows, X, self._signs_or_columns(class_indices), likelihood=likelihood)

    def decision_function(self, X):
        """Log odds of `predict_proba` (m,), or the log probabilities of each class (m, classes)."""
        probabilities = self.predict_proba(X)
        logarithms = np.log(np.maximum(probabilities, np.finfo(self._dtype).tiny))
        return logarithms[:, 1] - logarithms[:, 0] if len(self.classes_) == 2 else logarithms

    def predict_proba(self, X):
        """Probabilities (m, classes), integrated over the weights of the vectors."""
        check_is_fitted(self)
        return of_both(self._vectorised(X, self.machine_, "probability"))
