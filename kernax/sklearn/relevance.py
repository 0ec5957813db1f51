"""Relevance vector machines."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import RegressorMixin

from kernax.core.likelihoods import Categorical
from kernax.core.losses import Bernoulli
from kernax.sklearn.base import KernelEstimator
from kernax.sklearn.targets import KernelClassifier, of_both
from kernax.sparse.relevance import relevance_vector_machine


class _RelevanceMachine(KernelEstimator):
    """A relevance vector machine as an estimator."""

    def __init__(
        self,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=1,
        fit_intercept=True,
        max_vectors=None,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.fit_intercept = fit_intercept
        self.max_vectors = max_vectors

    def _fit_machine(self, rows, X, targets, **options):
        with self._computing():
            solution = relevance_vector_machine(
                rows.given_kernel,
                rows.given,
                rows.column(targets),
                weights=rows.weights,
                bias=self.fit_intercept,
                max_vectors=self.max_vectors,
                **options,
            )
            self.relevance_ = solution.value.indices
            self.machine_ = rows.restored(solution.value)
        self.function_ = self.machine_.function
        self.relevance_vectors_ = None if self._of_texts else X[self.relevance_]
        self.log_evidence_ = np.asarray(self.machine_.log_evidence)

    def _of_machine(self, X, method):
        """A method of the machine at rows of X, in NumPy."""
        points, n, X = self._new_points(X)
        with self._computing():
            points = jax.tree.map(jnp.asarray, points)
            values = jax.vmap(getattr(self._at(X, self.machine_), method))(points)
            return jax.tree.map(lambda value: np.asarray(value)[:n], values)


class RelevanceVectorRegressor(RegressorMixin, _RelevanceMachine):
    """`kernax.relevance_vector_machine` of numbers.

    Arguments:
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, or "precomputed".
        gamma, degree, coef0: of kernels by name, as in scikit-learn.
        noise: the variance of the noise; None learns it.
        fit_intercept: whether the constant is one of the functions.
        max_vectors: at most so many functions.

    Attributes: `relevance_` (rows), `relevance_vectors_`, `machine_` (`RelevanceVectors`),
    `function_`, `noise_`, `log_evidence_`, `kernel_`.
    """

    def __init__(
        self,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=1,
        noise=None,
        fit_intercept=True,
        max_vectors=None,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.noise = noise
        self.fit_intercept = fit_intercept
        self.max_vectors = max_vectors

    def fit(self, X, y, sample_weight=None):
        """Fits numbers y (n,)."""
        X, y, weights = self._checked(X, y, sample_weight, y_numeric=True)
        rows = self._rows(X, weights)
        self._fit_machine(rows, X, y.astype(self._dtype), noise=self.noise)
        self.noise_ = float(self.machine_.noise)
        return self

    def predict(self, X, return_std=False):
        """Means (m,), and with `return_std` standard deviations of targets, noise included."""
        if not return_std:
            return self._values(X)
        mean, variance = self._of_machine(X, "predict")
        return mean, np.sqrt(variance)


class RelevanceVectorClassifier(KernelClassifier, _RelevanceMachine):
    """`kernax.relevance_vector_machine` of labels: of several classes one machine of them all.

    Arguments are those of `RelevanceVectorRegressor`, without `noise`.

    Attributes: `relevance_` (rows), `relevance_vectors_`, `machine_` (`RelevanceVectors`),
    `function_`, `log_evidence_`, `classes_`, `kernel_`.
    """

    def fit(self, X, y, sample_weight=None):
        """Fits labels y (n,)."""
        X, places, weights = self._checked_labels(X, y, sample_weight)
        likelihood = Bernoulli() if len(self.classes_) == 2 else Categorical()
        rows = self._rows(X, weights)
        self._fit_machine(rows, X, self._signs_or_columns(places), likelihood=likelihood)
        return self

    def decision_function(self, X):
        """Log odds of `predict_proba` (m,), or its logarithms, for each class (m, classes)."""
        probabilities = self.predict_proba(X)
        logarithms = np.log(np.maximum(probabilities, np.finfo(self._dtype).tiny))
        return logarithms[:, 1] - logarithms[:, 0] if len(self.classes_) == 2 else logarithms

    def predict(self, X):
        """Labels (m,): of the largest probability."""
        return self._labels(self.decision_function(X))

    def predict_proba(self, X):
        """Probabilities (m, classes), integrated over the weights of the vectors."""
        return of_both(self._of_machine(X, "probability"))
