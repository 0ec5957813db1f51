"""The support vector classifier."""

import itertools
from functools import partial

import jax.numpy as jnp
import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import _ovr_decision_function

from kernax.core.expansion import KernelExpansion
from kernax.selection.classification import MachineModel, learn_classifier
from kernax.sklearn.learning import CROSS_VALIDATION, check_learn
from kernax.sklearn.machines import SupportVectors, solver_of, value_of
from kernax.sklearn.targets import KernelClassifier, of_both
from kernax.supervised.calibration import platt, svm_leave_one_out
from kernax.supervised.svm import svm


def _has_probabilities(estimator) -> bool:
    if estimator.probability:
        return True
    raise AttributeError("predict_proba is not available when probability=False")


class SVC(SupportVectors, KernelClassifier):
    """`kernax.svm` with the arguments of `sklearn.svm.SVC`: one machine for each pair of classes.

    Arguments:
        C: the price of an error.
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, or "precomputed".
        gamma, degree, coef0: of kernels by name, as in scikit-learn.
        probability: of two classes: Platt's sigmoid of the leave-one-out decision values, by which
            `predict_proba` is exact about what it has not seen, and takes no cross-validation.
        learn: "cross_validation" learns the kernel's parameters and C by the log loss on folds,
            from those given; None takes them as they are.
        tol: machines are solved to a millionth of it.
        class_weight, max_iter, decision_function_shape, break_ties: as in scikit-learn.
        shrinking, cache_size, verbose, random_state: taken, and without effect.

    Attributes: `support_`, `support_vectors_`, `n_support_`, `dual_coef_`, `intercept_`,
    `classes_`, `class_weight_`, `function_` (a `KernelExpansion` with an output for each pair, or
    one for two classes), `kernel_`, `C_`.
    """

    def __init__(
        self,
        *,
        C=1.0,
        kernel="rbf",
        degree=3,
        gamma="scale",
        coef0=0.0,
        shrinking=True,
        probability=False,
        tol=0.001,
        cache_size=200,
        class_weight=None,
        verbose=False,
        max_iter=-1,
        decision_function_shape="ovr",
        break_ties=False,
        random_state=None,
        learn=None,
    ):
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.shrinking = shrinking
        self.probability = probability
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.random_state = random_state
        self.learn = learn

    def fit(self, X, y, sample_weight=None):
        """Fits labels y (n,)."""
        learns = check_learn(self, CROSS_VALIDATION, sample_weight)
        X, places, weights = self._checked_labels(X, y, sample_weight)
        self._check_probability()
        self.C_ = self.C
        learn = partial(self._learned, places=places) if learns else None
        rows = self._rows_of_classes(X, weights, places, learn)
        with self._computing():
            self.function_ = rows.restored(self._fitted(rows, places))
            if self.probability:
                self.sigmoid_ = self._sigmoid(rows, places)
        self._set_attributes(X, places)
        return self

    def _check_probability(self):
        if self.probability and len(self.classes_) > 2:
            raise ValueError(
                "probability=True is for two classes: KernelLogisticClassifier and "
                "GaussianProcessClassifier have probabilities of several"
            )

    def _learned(self, kernel, points, places):
        """The kernel of the smallest log loss on folds; sets `C_`."""
        start = MachineModel(kernel, self.C)
        choice = learn_classifier(start, points, jnp.asarray(self._columns(places)), places)
        model = choice.kept.model
        self.C_ = float(model.C)
        return model.kernel

    def _fitted(self, rows, places):
        """A function with an output for each pair, positive for the first of them.

        Of two classes it is one output, positive for the second.
        """
        self.n_iter_ = np.empty(0, np.int32)
        if len(self.classes_) == 2:
            return self._machine(rows, self._signs(places))
        return self._pairs(rows, places)

    def _machine(self, rows, signs):
        solution = svm(
            rows.given_kernel,
            rows.given,
            rows.column(signs),
            self.C_,
            weights=rows.weights,
            solver=solver_of(self),
            throw=False,
        )
        self.n_iter_ = np.append(self.n_iter_, max(1, int(solution.stats["steps"])))
        return value_of(self, solution, "SVC")

    def _pairs(self, rows, places):
        """Each machine is learned from the rows of its two classes."""
        pairs = list(itertools.combinations(range(len(self.classes_)), 2))
        coefficients = np.zeros((rows.size, len(pairs)), self._dtype)
        biases = np.zeros(len(pairs), self._dtype)
        for number, (first, second) in enumerate(pairs):
            chosen = np.flatnonzero((places == first) | (places == second))
            signs = np.where(places[chosen] == first, 1, -1).astype(self._dtype)
            machine = self._machine(rows.some(chosen), signs)
            coefficients[chosen, number] = np.asarray(machine.coefficients)[: len(chosen)]
            biases[number] = machine.bias
        columns = jnp.asarray(coefficients)
        return KernelExpansion(rows.given_kernel, rows.given, columns, jnp.asarray(biases))

    def _sigmoid(self, rows, places):
        """From decision values to probabilities, by those of rows left out."""
        signs = rows.column(self._signs(places))
        values = svm_leave_one_out(
            rows.given_kernel,
            rows.given,
            signs,
            self.C_,
            weights=rows.weights,
            solver=solver_of(self),
        )
        return platt(values, signs, weights=rows.weights).value

    def _set_attributes(self, X, places):
        """What scikit-learn's machine has, in its order: by class, then by row."""
        coefficients = np.asarray(self.function_.coefficients).reshape(len(places), -1)
        rows = np.flatnonzero(coefficients.any(axis=1))
        self._set_support(X, rows[np.argsort(places[rows], kind="stable")])
        of_support = places[self.support_]
        self.n_support_ = np.bincount(of_support, minlength=len(self.classes_)).astype(np.int32)
        self.intercept_ = np.atleast_1d(np.asarray(self.function_.bias))
        self.dual_coef_ = self._dual_coef(coefficients, places)
        self.fit_status_ = 0

    def _dual_coef(self, coefficients, places):
        """(classes - 1, vectors): the coefficients of each vector against every other class."""
        if len(self.classes_) == 2:
            return coefficients[self.support_].T
        count = len(self.classes_)
        dual = np.zeros((count - 1, len(self.support_)), self._dtype)
        for number, (first, second) in enumerate(itertools.combinations(range(count), 2)):
            values = coefficients[self.support_, number]
            of_support = places[self.support_]
            dual[second - 1, of_support == first] = values[of_support == first]
            dual[first, of_support == second] = values[of_support == second]
        return dual

    def decision_function(self, X):
        """Of two classes (m,), positive for the second.

        Of several a column for each class ("ovr"), or for each pair ("ovo").
        """
        values = self._values(X)
        if len(self.classes_) == 2 or self.decision_function_shape == "ovo":
            return values
        return self._of_classes(values)

    def _of_classes(self, values):
        return _ovr_decision_function(values < 0, -values, len(self.classes_))

    def predict(self, X):
        """Labels (m,): of several classes that of most votes."""
        values = self._values(X)
        if len(self.classes_) == 2:
            return self._labels(values)
        if self.break_ties:
            self._check_break_ties()
            return self._labels(self._of_classes(values))
        return self._labels(self._votes(values))

    def _check_break_ties(self):
        if self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")

    def _votes(self, values):
        """How many of the pairs are for each class."""
        votes = np.zeros((len(values), len(self.classes_)))
        pairs = itertools.combinations(range(len(self.classes_)), 2)
        for (first, second), value in zip(pairs, values.T):
            votes[:, first] += value > 0
            votes[:, second] += value <= 0
        return votes

    @available_if(_has_probabilities)
    def predict_proba(self, X):
        """Probabilities (m, 2), where `probability=True`."""
        values = self._values(X)
        with self._computing():
            return of_both(np.asarray(self.sigmoid_(values)))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X):
        """Logarithms of `predict_proba`."""
        return np.log(self.predict_proba(X))
