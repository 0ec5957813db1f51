"""Kernel logistic regression, and the import vector machine, its sparse form."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax

from kernax.core.base.parameters import check_count
from kernax.core.kernel.model import Model
from kernax.core.losses.loss_functions import Logistic
from kernax.sklearn.base import check_penalty
from kernax.sklearn.centres import check_centres, drawn_centres, fitted_over_centres
from kernax.sklearn.targets import KernelClassifier, exponents_of
from kernax.sparse.import_vectors import import_vector_machine
from kernax.supervised.smooth.logistic import kernel_logistic
from kernax.supervised.smooth.softmax import kernel_softmax


class LogOddsClassifier(KernelClassifier):
    """A classifier with log odds of two classes, or softmax values of several."""

    @property
    def _needs_every_class(self):
        return self.fit_intercept  # the bias of a class without rows would be -inf

    def decision_function(self, X):
        """Log odds of the second of two classes (m,), or a value for each class (m, classes)."""
        return self._values(X)

    def predict_proba(self, X):
        """Probabilities (m, classes)."""
        return softmax(exponents_of(self._values(X)), axis=1)

    def predict_log_proba(self, X):
        """Logarithms of `predict_proba`, which keep their digits where those are zero or one."""
        return log_softmax(exponents_of(self._values(X)), axis=1)


@dataclass(eq=False, repr=False)
class KernelLogisticClassifier(LogOddsClassifier):
    """Kernel logistic regression: `kernax.kernel_logistic` for two classes, `kernax.kernel_softmax`
    for several.

    Arguments:
        alpha: the ridge, > 0.
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, or "precomputed".
        gamma, degree, coef0: parameters of kernels given by name, as in scikit-learn.
        fit_intercept: whether to add an unpenalised bias.
        class_weight: as in scikit-learn.
        max_iter: the largest number of Newton steps.
        learn: "cross_validation" learns the kernel's parameters and alpha by the log loss on folds,
            starting from the given ones; None keeps the given ones.
        n_centres: for two classes, the number of rows used as centres (`kernax.falkon`), so that
            memory grows with the square of this number and not with that of all rows; None for all
            rows.
        random_state: the seed for these rows.

    Attributes: `function_` (a `KernelExpansion`), `dual_coef_`, `intercept_`, `classes_`,
    `kernel_`, `alpha_`, `n_iter_`.
    """

    alpha: Any = 1.0
    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str | None = "scale"
    degree: int = 3
    coef0: float = 1
    fit_intercept: bool = True
    class_weight: Any = None
    max_iter: int = 100
    learn: str | None = None
    n_centres: int | None = None
    random_state: Any = None

    _learns_by = "cross_validation"
    _instead = (
        "n_centres=1000 for a fit of two classes over a thousand rows, or of several "
        "make_pipeline(kernax.sklearn.Nystroem(kernel, n_components=1000), "
        "KernelLogisticClassifier(kernel='linear'))"
    )

    def _fit_rows(self, rows, X, class_indices):
        targets = self._signs_or_columns(class_indices)
        if self.n_centres is None:
            learner = kernel_logistic if len(self.classes_) == 2 else kernel_softmax
            given = {"bias": self.fit_intercept, "max_steps": self.max_iter}
            solution = rows.fit(learner, rows.column(targets), self.alpha_, **given)
        else:
            centres = drawn_centres(rows, self.n_centres, self.random_state)
            given = {"loss": Logistic(), "bias": self.fit_intercept}
            solution = fitted_over_centres(rows, targets, self.alpha_, centres, **given)
        self.function_ = rows.restored(solution.value)
        self.n_iter_ = max(1, int(solution.stats["steps"]))
        self.dual_coef_ = np.asarray(self.function_.coefficients)
        self.intercept_ = np.asarray(self.function_.bias)

    def _kernel_to_fit(self, kernel, points, class_indices, weights):
        """The kernel; with `learn=` the one with the smallest log loss on folds. Sets `alpha_`."""
        check_centres(self)
        if self.n_centres is not None and len(self.classes_) > 2:
            raise ValueError(
                f"n_centres takes two classes, but y holds {len(self.classes_)}: see Nystroem"
            )
        check_penalty(self.alpha)
        check_count(self.max_iter, "max_iter")
        self.alpha_ = self.alpha
        if not self._is_learned:
            return kernel
        model = self._learned(Model(kernel, self.alpha), points, class_indices)
        self.alpha_ = float(model.ridge)
        return model.kernel


@dataclass(eq=False, repr=False)
class ImportVectorClassifier(LogOddsClassifier):
    """The import vector machine, `kernax.import_vector_machine`: sparse kernel logistic regression.

    Arguments:
        alpha: the ridge, > 0.
        kernel, gamma, degree, coef0, class_weight, fit_intercept: as for
            `KernelLogisticClassifier`.
        tol: the relative change of the objective below which no more vectors are added.
        max_vectors: the largest number of import vectors.

    Attributes: `import_` (their rows, in the order in which they were chosen), `import_vectors_`,
    `machine_` (`ImportVectors`), `function_`, `classes_`, `kernel_`.
    """

    alpha: Any = 1.0
    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str | None = "scale"
    degree: int = 3
    coef0: float = 1
    fit_intercept: bool = True
    class_weight: Any = None
    tol: float = 1e-3
    max_vectors: int = 100

    def _fit_rows(self, rows, X, class_indices):
        check_penalty(self.alpha)
        solution = rows.fit(
            import_vector_machine,
            rows.column(self._signs_or_columns(class_indices)),
            self.alpha,
            bias=self.fit_intercept,
            max_vectors=self.max_vectors,
            rtol=self.tol,
        )
        self.import_ = solution.value.indices
        self.machine_ = rows.restored(solution.value)
        self.function_ = self.machine_.function
        self.import_vectors_ = None if self._of_texts else X[self.import_]
