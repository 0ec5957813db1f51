"""Estimators by their targets: numbers, labels, or none."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import check_array, get_tags
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from kernax.sklearn.base import KernelEstimator, RowsEstimator

_MISSING = ("raise", "drop")


class NumberEstimator(RegressorMixin, RowsEstimator):
    """An estimator with a kernel and numbers as targets, some of which may be missing."""

    missing: str = "raise"

    def _checked_numbers(self, X: Any, y: Any, sample_weight: Any) -> tuple:
        """X, y in its precision, and weights: zero for rows without a target, which is NaN."""
        if self.missing not in _MISSING:
            raise ValueError(f"missing must be one of {_MISSING}, but is {self.missing!r}")
        several = get_tags(self).target_tags.multi_output
        present = np.ones(1, bool)
        if self.missing == "drop" and y is not None:
            y = check_array(
                y, ensure_2d=False, dtype=float, ensure_all_finite="allow-nan", input_name="y"
            )
            present = ~np.isnan(y).reshape(len(y), -1).any(axis=1)
            y = np.nan_to_num(y)
        X, y, weights = self._checked(X, y, sample_weight, multi_output=several, y_numeric=True)
        y = y.astype(self._dtype)
        if np.all(present):
            return X, y, weights
        weights = present.astype(self._dtype) * (1 if weights is None else weights)
        if not np.any(weights):
            raise ValueError(
                "missing='drop' leaves no row: every row has a target of NaN or weight zero"
            )
        return X, y, weights


class KernelRegressor(NumberEstimator):
    """A regressor with a kernel."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits numbers y (n,), or (n, outputs) where several are allowed."""
        X, y, weights = self._checked_numbers(X, y, sample_weight)
        return self._fit(X, y, weights)

    def predict(self, X: Any) -> Any:
        """Numbers, (m,) or (m, outputs)."""
        return self._values(X)


class KernelOfRows(RowsEstimator):
    """An estimator with a kernel and no targets."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Fits the rows of X; y is ignored."""
        X, _, weights = self._checked(X, sample_weight=sample_weight)
        return self._fit(X, None, weights)


class LabelEstimator(ClassifierMixin, KernelEstimator):
    """An estimator with a kernel and labels of any kind as targets."""

    classes_: np.ndarray

    @property
    def _needs_every_class(self) -> bool:
        """Whether each class must have a row of positive weight."""
        return False

    def _checked_labels(self, X: Any, y: Any, sample_weight: Any) -> tuple:
        """X, the index of each label in `classes_`, and weights."""
        X, y, sample_weight = self._checked(X, y, sample_weight)
        if y.dtype == object:
            missing = [row for row, label in enumerate(y) if label is None]
            if missing:
                raise ValueError(
                    f"y holds no label in row {missing[0]} (None), one of {len(missing)}: leave "
                    "such rows out"
                )
        check_classification_targets(y)
        self.classes_, class_indices = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but y holds one class: "
                f"{str(self.classes_[0])!r}"
            )
        if sample_weight is not None:
            self._check_weighted(class_indices[np.asarray(sample_weight) > 0])
        return X, class_indices, sample_weight

    def _check_weighted(self, class_indices: np.ndarray) -> None:
        present = np.unique(class_indices)
        if len(present) == 1:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but all rows of positive "
                f"sample_weight are of class {str(self.classes_[present[0]])!r}"
            )
        missing = np.setdiff1d(np.arange(len(self.classes_)), present)
        if self._needs_every_class and len(missing):
            raise ValueError(
                f"{type(self).__name__} needs rows of positive weight of every class, but class "
                f"{str(self.classes_[missing[0]])!r} has none: leave out its rows"
            )

    def predict(self, X: Any) -> np.ndarray:
        """Labels (m,): of the class with the largest value."""
        return self._labels(self.decision_function(X))

    def _columns(self, class_indices: np.ndarray) -> np.ndarray:
        """One-hot columns (n, classes)."""
        return (class_indices[:, None] == np.arange(len(self.classes_))).astype(self._dtype)

    def _signs(self, class_indices: np.ndarray) -> np.ndarray:
        """-1 and +1 for two classes, (n,)."""
        return np.where(class_indices == 1, 1, -1).astype(self._dtype)

    def _signs_or_columns(self, class_indices: np.ndarray) -> np.ndarray:
        return (
            self._signs(class_indices) if len(self.classes_) == 2 else self._columns(class_indices)
        )

    def _columns_of_signs(self, class_indices: np.ndarray) -> list[np.ndarray]:
        """Signs (n,) for two classes, and for each of several against the rest."""
        if len(self.classes_) == 2:
            return [self._signs(class_indices)]
        return list(2 * self._columns(class_indices).T - 1)

    def _labels(self, values: np.ndarray) -> np.ndarray:
        """The labels that values predict: by their sign (m,), or by the largest (m, classes).

        Raises ValueError for NaN.
        """
        if np.any(np.isnan(values)):
            raise ValueError("a value is NaN, from which no class can be predicted")
        class_indices = (values > 0).astype(int) if values.ndim == 1 else np.argmax(values, axis=1)
        return self.classes_[class_indices]


class KernelClassifier(LabelEstimator, RowsEstimator):
    """A classifier with a kernel."""

    class_weight: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Fits labels y (n,); weights of rows are multiplied by those of their classes."""
        X, class_indices, weights = self._checked_labels(X, y, sample_weight)
        self.class_weight_ = np.ones(len(self.classes_))
        if self.class_weight is None:
            return self._fit(X, class_indices, weights)
        labels = self.classes_[class_indices]
        of_classes = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        self.class_weight_ = of_classes
        factors = of_classes[class_indices].astype(self._dtype)
        self._check_weighted(class_indices[(factors if weights is None else factors * weights) > 0])
        return self._fit(X, class_indices, weights, factors)

    def _learned(self, start: Any, points: PyTree, class_indices: np.ndarray) -> Any:
        """The model of the smallest log loss on folds, from `start` on."""
        # Here, because only learning needs it, and it imports most of kernax.
        from kernax.selection.recipes.classification import learn_classifier

        columns = jnp.asarray(self._columns(class_indices))
        free = self._free(start)
        choice = learn_classifier(start, points, columns, class_indices, trainable=free)
        model = choice.kept.model
        self._warn_beyond_bounds(model.kernel)
        return model


def of_both(plus: np.ndarray) -> np.ndarray:
    """Probabilities (m, classes) that sum to one; for two classes from those of the second (m,)."""
    if plus.ndim == 2:
        return plus / plus.sum(axis=1, keepdims=True)
    return np.stack([1 - plus, plus], axis=1)


def exponents_of(values: np.ndarray) -> np.ndarray:
    """A value for each class (m, classes); the softmax of these are the probabilities.

    For two classes they come from the log odds of the second (m,).
    """
    return np.stack([np.zeros_like(values), values], axis=1) if values.ndim == 1 else values
