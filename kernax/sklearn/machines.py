"""Support vector machines for regression and for one class."""

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import OutlierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _num_samples, check_is_fitted

from kernax.core.base.parameters import check_count
from kernax.core.base.solution import RESULTS, finish
from kernax.core.kernel.kernel import Constant, Scaled, Sum
from kernax.kernels import Linear
from kernax.sklearn.sparse_tables import dense
from kernax.sklearn.targets import KernelOfRows, KernelRegressor
from kernax.supervised.machines.smo import SMO
from kernax.supervised.machines.svm import (
    nu_support_vector_regression,
    one_class_svm,
    support_vector_regression,
)

# In float64 SVMs are solved to a millionth of LIBSVM's tolerance, in about three times its steps,
# so that predictions do not depend on whether a row is repeated or has weight two.
_FINER = 1e-6
# A relative duality gap: LIBSVM's own solutions leave 1e-4 or more.
_SEEN = 1e-6


def solver_of(estimator, capped: bool = True) -> SMO:
    """The solver, with the tolerance of the estimator, and with or without its bound on steps."""
    finer = _FINER if estimator._dtype == np.float64 else 1
    most = None
    if capped and estimator.max_iter != -1:
        most = check_count(int(estimator.max_iter), "max_iter")
    return SMO(rtol=float(finer * estimator.tol), max_steps=most)


def has_ended_early(estimator, solution) -> bool:
    """Whether the solver stopped before its tolerance, at `max_iter` or with a relative duality gap
    above 1e-6, a hundredth of those of LIBSVM.
    """
    if not _misses_tolerance(solution):
        return False
    return estimator.max_iter != -1 or bool(np.max(solution.stats["relative_gap"]) > _SEEN)


def _misses_tolerance(solution) -> bool:
    """Whether the solver stopped before its tolerance."""
    words = [RESULTS.max_steps_reached, RESULTS.inaccurate, RESULTS.breakdown]
    return any(bool(np.any(solution.result == word)) for word in words)


def value_of(estimator, solution):
    """The fitted function; if the solver ended early, with a warning instead of an exception."""
    name = type(estimator).__name__
    if has_ended_early(estimator, solution):
        gap = float(np.max(solution.stats["relative_gap"]))
        warnings.warn(
            f"{name}: Solver terminated early (max_iter={estimator.max_iter}).  Consider "
            "pre-processing your data with StandardScaler or MinMaxScaler. The relative duality "
            f"gap is {gap:.1g}: a larger tol or max_iter may help.",
            ConvergenceWarning,
            stacklevel=3,
        )
    elif not _misses_tolerance(solution):
        smaller = "a smaller C or " if hasattr(estimator, "C") else ""
        finish(solution, True, f"{name}: {smaller}scaled columns may help.")
    return solution.value


class SupportVectors:
    """The attributes of an SVM that come from its function."""

    @property
    def _is_of_tables(self):
        return self._is_function

    def _values_of_function(self, X):
        """Raises ValueError for a function of tables that returns another shape."""
        K = dense(self._given_kernel(X, self._fitted_X), self._dtype)
        shape = _num_samples(X), _num_samples(self._fitted_X)
        if K.shape != shape:
            raise ValueError(
                f"kernel(X, Z) must return a matrix of shape {shape}, a value for each pair of "
                f"rows, but returned one of shape {K.shape}"
            )
        return K

    def _set_support(self, X, order):
        """`support_` and its vectors, in an order, from the rows of X."""
        self.support_ = np.asarray(order, np.int32)
        self.support_vectors_ = np.empty((0, 0))
        self.shape_fit_ = np.shape(X)
        if not (self._is_matrix or self._of_texts):
            self.support_vectors_ = X[order]

    def _as_rows(self, values):
        """Values in the form of the rows: in a sparse container if the rows were in one, as in
        scikit-learn.
        """
        if not issparse(self.support_vectors_):
            return values
        return type(self.support_vectors_)(values)

    def _new_points(self, X):
        check_is_fitted(self)
        if issparse(X) and not (self._is_matrix or issparse(self.support_vectors_)):
            raise ValueError(
                f"cannot use sparse input in {type(self).__name__!r} trained on dense data: "
                ".toarray() makes an array"
            )
        return super()._new_points(X)

    @property
    def coef_(self):
        """The weights of the columns, for a linear kernel: (1, columns), or (pairs, columns).

        Linear kernels are "linear", `kernax.Linear` and scikit-learn's `DotProduct`, also times a
        number, and plus a constant if the coefficients sum to zero, so that `intercept_` does not
        change.
        """
        slope, constant = _of_linear(getattr(self, "kernel_", None))
        if not slope or (constant and not self._sums_to_zero()):
            raise AttributeError("coef_ is only available when using a linear kernel")
        # f(x) = sum_i a_i slope x_i.x + (constant sum_i a_i = 0) + intercept
        coefficients = np.asarray(self.function_.coefficients)
        coefficients = coefficients.reshape(len(coefficients), -1)
        weights = (slope * coefficients).T @ np.asarray(self.function_.points)
        # A copy, which changes nothing here.
        weights.flags.writeable = False
        return self._as_rows(weights)

    def _sums_to_zero(self):
        """Whether the coefficients of each function do."""
        coefficients = np.asarray(self.function_.coefficients)
        rounding = np.sqrt(np.finfo(self._dtype).eps) * np.abs(coefficients).sum(axis=0)
        return np.all(np.abs(coefficients.sum(axis=0)) <= rounding)


def _of_linear(kernel: Any) -> tuple[Any, Any]:
    """The numbers s and c of a kernel `s x.z + c`; s is None for any other kernel."""
    if isinstance(kernel, Linear):
        return 1, 0
    if isinstance(kernel, Constant):
        return 0, np.asarray(kernel.value)
    if isinstance(kernel, Scaled):
        slope, constant = _of_linear(kernel.kernel)
        scale = np.asarray(kernel.scale)
        return (None, 0) if slope is None else (scale * slope, scale * constant)
    if isinstance(kernel, Sum):
        slopes, constants = zip(*map(_of_linear, kernel.terms))
        return (None, 0) if None in slopes else (sum(slopes), sum(constants))
    return None, 0


class _OneFunction(SupportVectors):
    """An SVM with a single function."""

    def _fit_by(self, learner, rows, X, *arguments):
        solution = rows.fit(learner, *arguments, solver=solver_of(self), throw=False)
        function = rows.restored(value_of(self, solution))
        self.function_ = function
        self.fit_status_ = int(has_ended_early(self, solution))
        self.n_iter_ = max(1, int(solution.stats["steps"]))
        coefficients = np.asarray(function.coefficients)
        self._set_support(X, np.flatnonzero(coefficients))
        self.n_support_ = np.array([len(self.support_)], np.int32)
        self.dual_coef_ = self._as_rows(coefficients[self.support_][None])
        self.intercept_ = np.asarray(function.bias)[None]


@dataclass(eq=False, repr=False)
class SVR(_OneFunction, KernelRegressor):
    """Support vector regression: `kernax.support_vector_regression` with the arguments of
    `sklearn.svm.SVR`.

    It is solved to a millionth of `tol`, LIBSVM's tolerance, in float64, and to `tol` in float32;
    `shrinking`, `cache_size` and `verbose` are accepted, without effect. `missing="raise"` raises
    ValueError for targets that are NaN; with "drop" their rows have weight zero.

    Attributes: `support_`, `support_vectors_`, `dual_coef_`, `intercept_`, `n_support_`, `n_iter_`,
    `fit_status_` (1 if the solver ended early), `shape_fit_`, `function_`, `kernel_`, and for a
    linear kernel `coef_`.
    """

    _: KW_ONLY
    kernel: Any = "rbf"
    degree: int = 3
    gamma: float | str | None = "scale"
    coef0: float = 0.0
    tol: float = 0.001
    C: float = 1.0
    epsilon: float = 0.1
    shrinking: bool = True
    cache_size: float = 200
    verbose: bool = False
    max_iter: int = -1
    missing: str = "raise"

    def _fit_rows(self, rows, X, y):
        self._fit_by(support_vector_regression, rows, X, rows.column(y), self.C, self.epsilon)


@dataclass(eq=False, repr=False)
class NuSVR(_OneFunction, KernelRegressor):
    """nu-SVR: `kernax.nu_support_vector_regression` with the arguments of `sklearn.svm.NuSVR`.

    It is solved to a millionth of `tol`, LIBSVM's tolerance, in float64, and to `tol` in float32;
    `shrinking`, `cache_size` and `verbose` are accepted, without effect; `missing` is as for `SVR`.

    Attributes: those of `SVR`.
    """

    _: KW_ONLY
    nu: float = 0.5
    C: float = 1.0
    kernel: Any = "rbf"
    degree: int = 3
    gamma: float | str | None = "scale"
    coef0: float = 0.0
    shrinking: bool = True
    tol: float = 0.001
    cache_size: float = 200
    verbose: bool = False
    max_iter: int = -1
    missing: str = "raise"

    def _fit_rows(self, rows, X, y):
        self._fit_by(nu_support_vector_regression, rows, X, rows.column(y), self.C, self.nu)


@dataclass(eq=False, repr=False)
class OneClassSVM(_OneFunction, OutlierMixin, KernelOfRows):
    """The one-class SVM: `kernax.one_class_svm` with the arguments of `sklearn.svm.OneClassSVM`.

    It is solved to a millionth of `tol`, LIBSVM's tolerance, in float64, and to `tol` in float32;
    `shrinking`, `cache_size` and `verbose` are accepted, without effect.

    Attributes: those of `SVR`, and `offset_`.
    """

    _: KW_ONLY
    kernel: Any = "rbf"
    degree: int = 3
    gamma: float | str | None = "scale"
    coef0: float = 0.0
    tol: float = 0.001
    nu: float = 0.5
    shrinking: bool = True
    cache_size: float = 200
    verbose: bool = False
    max_iter: int = -1

    def _fit_rows(self, rows, X, targets):
        self._fit_by(one_class_svm, rows, X, self.nu)
        self.offset_ = -self.intercept_

    def decision_function(self, X):
        """The decision function (m,), positive inside the region and negative outside.

        The free support vectors lie on the boundary up to rounding, and have the value zero.
        """
        values = self._values(X)
        rounding = np.sqrt(np.finfo(self._dtype).eps) * np.abs(self.offset_)
        return np.where(np.abs(values) <= rounding, 0, values)

    def score_samples(self, X):
        """The decision function without its offset, (m,)."""
        values = self.decision_function(X)
        return values + self.offset_

    def predict(self, X):
        """+1 inside and on the boundary, -1 outside, (m,)."""
        values = self.decision_function(X)
        unknown = np.flatnonzero(np.isnan(values))
        if len(unknown):
            raise ValueError(
                f"the value of row {unknown[0]} is NaN, which is neither inside nor outside: the "
                "fit failed, or the kernel grows too fast for this row"
            )
        return np.where(values >= 0, 1, -1)
