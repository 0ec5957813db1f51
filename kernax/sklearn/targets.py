"""Labels as numbers, and values as labels."""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from kernax.sklearn.base import KernelEstimator
from kernax.sklearn.rows import Rows


class KernelClassifier(ClassifierMixin, KernelEstimator):
    """A classifier with a kernel; labels may be of any kind."""

    class_weight: Any = None
    classes_: np.ndarray

    def _checked_labels(self, X: Any, y: Any, sample_weight: Any) -> tuple:
        """X, the place of each label in `classes_`, and weights."""
        X, y, sample_weight = self._checked(X, y, sample_weight)
        check_classification_targets(y)
        self.classes_, places = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but y holds one class: "
                f"{str(self.classes_[0])!r}"
            )
        if sample_weight is not None:
            self._check_weighted(places[np.asarray(sample_weight) > 0])
        return X, places, sample_weight

    def _check_weighted(self, places: np.ndarray) -> None:
        """Raises ValueError where the rows of positive weight are all of one class."""
        present = np.unique(places)
        if len(present) == 1:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes, but all rows of positive "
                f"sample_weight are of class {str(self.classes_[present[0]])!r}"
            )

    def _rows_of_classes(self, X: Any, weights: Any, places: np.ndarray, learn: Any) -> Rows:
        """Rows to fit, their weights multiplied by those of their classes; sets `class_weight_`."""
        self.class_weight_ = np.ones(len(self.classes_))
        if self.class_weight is None:
            return self._rows(X, weights, learn)
        labels = self.classes_[places]
        of_classes = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
        self.class_weight_ = of_classes
        return self._rows(X, weights, learn, self.class_weight_[places].astype(self._dtype))

    def _columns(self, places: np.ndarray) -> np.ndarray:
        """One-hot, (n, classes)."""
        return (places[:, None] == np.arange(len(self.classes_))).astype(self._dtype)

    def _signs(self, places: np.ndarray) -> np.ndarray:
        """-1 and +1 for two classes, (n,)."""
        return np.where(places == 1, 1, -1).astype(self._dtype)

    def _signs_or_columns(self, places: np.ndarray) -> np.ndarray:
        """Signs of two classes, one-hot columns of several."""
        return self._signs(places) if len(self.classes_) == 2 else self._columns(places)

    def _labels(self, values: np.ndarray) -> np.ndarray:
        """The labels of values: of their sign (m,), or of the largest (m, classes)."""
        places = (values > 0).astype(int) if values.ndim == 1 else np.argmax(values, axis=1)
        return self.classes_[places]


def of_both(plus: np.ndarray) -> np.ndarray:
    """Probabilities (m, classes), of sum one; of two classes from those of the second (m,)."""
    if plus.ndim == 2:
        return plus / plus.sum(axis=1, keepdims=True)
    return np.stack([1 - plus, plus], axis=1)
