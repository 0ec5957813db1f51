"""Kernel ridge regression."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.base import MultiOutputMixin
from sklearn.utils import _safe_indexing

from kernax.core.kernel.model import Model
from kernax.core.learner.expansion import KernelExpansion
from kernax.preparation.standards import standards_of
from kernax.sklearn.base import check_one_or_each, check_penalty
from kernax.sklearn.centres import check_centres, drawn_centres, fitted_over_centres
from kernax.sklearn.targets import KernelRegressor
from kernax.supervised.ridge.ridge import kernel_ridge


@dataclass(eq=False, repr=False)
class KernelRidge(MultiOutputMixin, KernelRegressor):
    """Kernel ridge regression: `kernax.kernel_ridge` with the arguments of
    `sklearn.kernel_ridge.KernelRidge`.

    Arguments:
        alpha: the ridge, a number, or one for each output.
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, "precomputed", or a function of two rows.
        gamma, degree, coef0: parameters of kernels given by name, as in scikit-learn.
        kernel_params: a dictionary of further arguments of a function as kernel.
        learn: "leave_one_out" learns the kernel's parameters and alpha by the leave-one-out error,
            starting from the given ones; None keeps the given ones.
        n_centres: the number of rows used as centres (`kernax.falkon`), so that memory grows with
            the square of this number and not with that of all rows; None for all rows.
        random_state: the seed for these rows.
        missing: "raise" raises ValueError for targets that are NaN; "drop" gives their rows weight
            zero, also if only one of several outputs is NaN.

    Attributes: `dual_coef_`, `X_fit_` (the rows that are centres), `function_` (a
    `KernelExpansion`), `kernel_`, `alpha_`.
    """

    alpha: Any = 1
    _: KW_ONLY
    kernel: Any = "linear"
    gamma: float | str | None = None
    degree: int = 3
    coef0: float = 1
    kernel_params: Any = None
    learn: str | None = None
    n_centres: int | None = None
    random_state: Any = None
    missing: str = "raise"

    _learns_by = "leave_one_out"
    _instead = "n_centres=1000 for a fit of all rows over a thousand of them"

    def _fit_rows(self, rows, X, y):
        if self.n_centres is None:
            self.function_ = rows.restored(self._fitted(rows, y))
            self.X_fit_ = X
        else:
            # Here, because only centres need it.
            from kernax.core.losses.loss_functions import Squared

            centres = drawn_centres(rows, self.n_centres, self.random_state)
            solution = fitted_over_centres(rows, y, self.alpha_, centres, Squared())
            self.function_ = rows.restored(solution.value)
            self.X_fit_ = _safe_indexing(X, centres)
        self.dual_coef_ = np.asarray(self.function_.coefficients)

    def _kernel_to_fit(self, kernel, points, y, weights):
        """The kernel; with `learn=` the one with the smallest leave-one-out error. Sets
        `alpha_`.
        """
        check_centres(self)
        check_penalty(self.alpha, allows_zero=self.n_centres is None and not self._is_learned)
        self.alpha_ = self.alpha
        if not self._is_learned:
            return kernel
        if y.ndim != 1:
            raise ValueError("learn='leave_one_out' takes one column of targets")
        start = Model(kernel, self.alpha)
        # Here, because only learning needs it, and it imports most of kernax.
        from kernax.selection.recipes.regression_recipe import learn_ridge

        # In its own unit, but not centred: the fit has no bias.
        y = y / np.asarray(standards_of(y, weights).scale, y.dtype)
        free = self._free(start)
        model = learn_ridge(start, points, y, weights=weights, trainable=free).value
        self._warn_beyond_bounds(model.kernel)
        self.alpha_ = float(model.ridge)
        return model.kernel

    def _fitted(self, rows, y):
        """The function; if alpha is one number for each output, a fit for each."""
        check_one_or_each(self.alpha_, 1 if y.ndim == 1 else y.shape[1], "outputs")

        def of_one(ridge, y):
            y = rows.column(y)
            return rows.fit(kernel_ridge, y, ridge).value

        if np.ndim(self.alpha_) == 0 or y.ndim == 1:
            return of_one(np.ravel(self.alpha_)[0], y)
        functions = [of_one(ridge, column) for ridge, column in zip(self.alpha_, y.T)]
        coefficients = jnp.stack([function.coefficients for function in functions], 1)
        bias = jnp.stack([function.bias for function in functions])
        return KernelExpansion(rows.given_kernel, rows.given, coefficients, bias)
