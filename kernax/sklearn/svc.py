"""Support vector classification, by C and by nu."""

import itertools
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _ovr_decision_function
from sklearn.utils.validation import check_is_fitted

from kernax.core.learner.expansion import KernelExpansion
from kernax.core.learner.padding import repeated
from kernax.selection.recipes.classification import SVMModel
from kernax.sklearn.machines import SupportVectors, has_ended_early, solver_of, value_of
from kernax.sklearn.rows import padded_size
from kernax.sklearn.targets import KernelClassifier, exponents_of
from kernax.supervised.machines.coupling import pairwise_coupling
from kernax.supervised.machines.decision_calibration import platt, svm_leave_one_out
from kernax.supervised.machines.svm import nu_svm, svm

_SHAPES = ("ovr", "ovo")


def _has_probabilities(estimator) -> bool:
    if estimator.probability:
        return True
    raise AttributeError("predict_proba is not available when probability=False")


def _check_has_sigmoids(estimator) -> None:
    """Raises NotFittedError if `probability=True` was set after the fit."""
    check_is_fitted(estimator)
    if not hasattr(estimator, "sigmoids_"):
        raise NotFittedError("predict_proba is not available when fitted with probability=False")


def _of_pair(class_indices, pair):
    return np.flatnonzero(np.isin(class_indices, pair))


class _OfPairs(SupportVectors, KernelClassifier):
    """A classifier with one SVM for each pair of classes.

    A subclass has `_fit_signs(rows, signs)`, which returns the function of two classes, and the C
    of the equivalent `svm`.
    """

    @property
    def _needs_every_class(self):
        return True  # some pairs of classes would contain a single class

    def _fit_rows(self, rows, X, class_indices):
        if self.decision_function_shape not in _SHAPES:
            raise ValueError(
                f"decision_function_shape must be one of {_SHAPES}, but is "
                f"{self.decision_function_shape!r}"
            )
        self.n_iter_ = np.empty(0, np.int32)
        self.fit_status_ = 0
        two = len(self.classes_) == 2
        problems = (
            [(rows, self._signs(class_indices))] if two else self._problems(rows, class_indices)
        )
        fits = [self._fit_signs(few, signs) for few, signs in problems]
        functions = [f for f, _ in fits]
        function = functions[0] if two else self._joined(functions, rows, class_indices)
        self.function_ = rows.restored(function)
        # Those of an earlier fit belong to another function.
        vars(self).pop("sigmoids_", None)
        if self.probability:
            self.sigmoids_ = tuple(
                self._sigmoid(few, signs, C) for (few, signs), (_, C) in zip(problems, fits)
            )
        self._set_attributes(X, class_indices)

    def _solved(self, solution):
        """The function of two classes; counts the steps."""
        self.n_iter_ = np.append(self.n_iter_, max(1, int(solution.stats["steps"])))
        self.fit_status_ = max(self.fit_status_, int(has_ended_early(self, solution)))
        return value_of(self, solution)

    def _pairs(self):
        """The indices in `classes_` of every two classes."""
        return list(itertools.combinations(range(len(self.classes_)), 2))

    def _problems(self, rows, class_indices):
        """For each pair the rows of its two classes, and +1 for the first of them."""
        chosen = [_of_pair(class_indices, pair) for pair in self._pairs()]
        signs = [
            np.where(class_indices[some] == first, 1, -1).astype(self._dtype)
            for some, (first, _) in zip(chosen, self._pairs())
        ]
        return [(rows.some(some), sign) for some, sign in zip(chosen, signs)]

    def _joined(self, functions, rows, class_indices):
        """One function with an output for each pair, positive for the first of its classes."""
        coefficients = np.zeros((rows.size, len(functions)), self._dtype)
        for number, (f, pair) in enumerate(zip(functions, self._pairs())):
            chosen = _of_pair(class_indices, pair)
            coefficients[chosen, number] = np.asarray(f.coefficients)[: len(chosen)]
        biases = jnp.stack([f.bias for f in functions])
        return KernelExpansion(rows.given_kernel, rows.given, jnp.asarray(coefficients), biases)

    def _sigmoid(self, rows, signs, C):
        """The sigmoid that turns decision values into probabilities, fitted to leave-one-out
        values.
        """
        signs = rows.column(signs)
        values = rows.fit(svm_leave_one_out, signs, C, solver=solver_of(self, capped=False))
        return platt(values, signs, weights=rows.weights).value

    def _set_attributes(self, X, class_indices):
        """Sets the attributes of scikit-learn's SVC, in its order: by class, then by row."""
        coefficients = np.asarray(self.function_.coefficients).reshape(len(class_indices), -1)
        rows = np.flatnonzero(coefficients.any(axis=1))
        self._set_support(X, rows[np.argsort(class_indices[rows], kind="stable")])
        of_support = class_indices[self.support_]
        self.n_support_ = np.bincount(of_support, minlength=len(self.classes_)).astype(np.int32)
        self.intercept_ = np.atleast_1d(np.asarray(self.function_.bias))
        self.dual_coef_ = self._as_rows(self._dual_coef(coefficients, class_indices))

    def _dual_coef(self, coefficients, class_indices):
        """(classes - 1, vectors): the coefficients of each vector against every other class."""
        if len(self.classes_) == 2:
            return coefficients[self.support_].T
        count = len(self.classes_)
        dual = np.zeros((count - 1, len(self.support_)), self._dtype)
        for number, (first, second) in enumerate(self._pairs()):
            values = coefficients[self.support_, number]
            of_support = class_indices[self.support_]
            dual[second - 1, of_support == first] = values[of_support == first]
            dual[first, of_support == second] = values[of_support == second]
        return dual

    def decision_function(self, X):
        """Decision values: for two classes (m,), positive for the second.

        For several classes a column for each class ("ovr"), or for each pair ("ovo").
        """
        values = self._values(X)
        if len(self.classes_) == 2 or self.decision_function_shape == "ovo":
            return values
        return self._of_classes(values)

    def _of_classes(self, values):
        return _ovr_decision_function(values < 0, -values, len(self.classes_))

    def predict(self, X):
        """Labels (m,); for several classes the label with the most votes."""
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        values = self._values(X)
        if len(self.classes_) == 2:
            return self._labels(values)
        if self.break_ties:
            return self._labels(self._of_classes(values))
        # The number of pairs that vote for each class; NaN where a value is.
        votes = np.zeros((len(values), len(self.classes_)))
        for (first, second), value in zip(self._pairs(), values.T):
            votes[:, first] += value > 0
            votes[:, second] += value <= 0
        votes[np.isnan(values).any(axis=1)] = np.nan
        return self._labels(votes)

    @available_if(_has_probabilities)
    def predict_proba(self, X):
        """Probabilities (m, classes), if `probability=True`."""
        _check_has_sigmoids(self)
        if len(self.classes_) == 2:
            return softmax(self._exponents(X), axis=1)
        columns = self._values(X).T
        with self._computing():
            found = zip(self.sigmoids_, columns)
            # Probabilities of all classes, coupled from those of all pairs.
            of_pairs = [np.asarray(sigmoid(column)) for sigmoid, column in found]
            m = len(of_pairs[0])
            r = np.zeros((m, len(self.classes_), len(self.classes_)), self._dtype)
            for (first, second), value in zip(self._pairs(), of_pairs):
                r[:, first, second] = value
                r[:, second, first] = 1 - value
            r = jnp.asarray(repeated(r, padded_size(m)))
            return np.asarray(jax.vmap(pairwise_coupling)(r))[:m]

    def _exponents(self, X):
        """Zero and the log odds of the second class, (m, 2), for two classes."""
        values = self._values(X)
        with self._computing():
            return exponents_of(np.asarray(self.sigmoids_[0].log_odds(values)))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X):
        """Logarithms of `predict_proba`."""
        _check_has_sigmoids(self)
        if len(self.classes_) == 2:
            return log_softmax(self._exponents(X), axis=1)
        return np.log(self.predict_proba(X))


@dataclass(eq=False, repr=False)
class SVC(_OfPairs):
    """Support vector classification: `kernax.svm` with the arguments of `sklearn.svm.SVC`, one SVM
    for each pair of classes.

    Arguments:
        C: the weight of errors, the inverse of the regularisation.
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, "precomputed", or a function of two tables
            that returns K.
        gamma, degree, coef0: parameters of kernels given by name, as in scikit-learn.
        probability: whether to enable `predict_proba`: Platt's sigmoid of the leave-one-out
            decision values, which needs no cross-validation, and ignores `max_iter`; for several
            classes one sigmoid for each pair, coupled by `kernax.calibration.pairwise_coupling`.
        learn: "cross_validation" learns the kernel's parameters and C by the log loss on folds,
            starting from the given ones, and keeps what it has learned where that is better by
            more than a standard error on the rows left out. Otherwise, and with None, the given
            ones stay. `kernel_` and `C_` are those that are used.
        tol: the tolerance; in float64 SVMs are solved to a millionth of it.
        class_weight, max_iter, decision_function_shape, break_ties: as in scikit-learn.
        shrinking, cache_size, verbose, random_state: accepted, without effect.

    Attributes: `support_`, `support_vectors_`, `n_support_`, `dual_coef_`, `intercept_`,
    `classes_`, `class_weight_`, `n_iter_`, `fit_status_` (1 if the solver ended early),
    `shape_fit_`, `function_` (a `KernelExpansion` with an output for each pair, or one for two
    classes), `kernel_`, `C_`, and for a linear kernel `coef_`.
    """

    _: KW_ONLY
    C: float = 1.0
    kernel: Any = "rbf"
    degree: int = 3
    gamma: float | str | None = "scale"
    coef0: float = 0.0
    shrinking: bool = True
    probability: bool = False
    tol: float = 0.001
    cache_size: float = 200
    class_weight: Any = None
    verbose: bool = False
    max_iter: int = -1
    decision_function_shape: str = "ovr"
    break_ties: bool = False
    random_state: Any = None
    learn: str | None = None

    _learns_by = "cross_validation"

    def _kernel_to_fit(self, kernel, points, class_indices, weights):
        """The kernel; with `learn=` the one with the smallest log loss on folds. Sets `C_`."""
        self.C_ = self.C
        if not self._is_learned:
            return kernel
        model = self._learned(SVMModel(kernel, self.C), points, class_indices)
        self.C_ = float(model.C)
        return model.kernel

    def _fit_signs(self, rows, signs):
        solution = rows.fit(svm, rows.column(signs), self.C_, solver=solver_of(self), throw=False)
        return self._solved(solution), self.C_


@dataclass(eq=False, repr=False)
class NuSVC(_OfPairs):
    """nu-SVC: `kernax.nu_svm` with the arguments of `sklearn.svm.NuSVC`, one SVM for each pair of
    classes.

    Arguments:
        nu: in (0, 1], at most the fraction of rows within the margin or on the wrong side, and at
            least that of support vectors; at most twice the share of the smaller class of any pair.
        the others: as for `SVC`. With `probability=True` the leave-one-out values are those for the
            equivalent C.

    Attributes: those of `SVC`, except for `C_`.
    """

    _: KW_ONLY
    nu: float = 0.5
    kernel: Any = "rbf"
    degree: int = 3
    gamma: float | str | None = "scale"
    coef0: float = 0.0
    shrinking: bool = True
    probability: bool = False
    tol: float = 0.001
    cache_size: float = 200
    class_weight: Any = None
    verbose: bool = False
    max_iter: int = -1
    decision_function_shape: str = "ovr"
    break_ties: bool = False
    random_state: Any = None

    def _fit_signs(self, rows, signs):
        solution = rows.fit(
            nu_svm, rows.column(signs), self.nu, solver=solver_of(self), throw=False
        )
        return self._solved(solution), 1 / float(solution.stats["rho"])
