"""Kernel principal component analysis."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from kernax.core.base.parameters import check_count
from kernax.core.learner.expansion import KernelExpansion
from kernax.errors import NotPSDError
from kernax.sklearn.base import NO_TARGETS, are_texts
from kernax.sklearn.kernel_approximation import KernelFeatures
from kernax.sklearn.kernel_ridge import KernelRidge
from kernax.sklearn.targets import KernelOfRows
from kernax.unsupervised.principal_components import kernel_pca


@dataclass(eq=False, repr=False)
class KernelPCA(KernelFeatures, KernelOfRows):
    """Kernel principal component analysis: `kernax.kernel_pca` with the arguments of
    `sklearn.decomposition.KernelPCA`.

    Arguments:
        n_components: the number of components; None for all with a nonzero variance.
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, "precomputed", or a function of two rows. It
            may be indefinite if the requested components have positive eigenvalues.
        gamma, degree, coef0: parameters of kernels given by name, as in scikit-learn.
        kernel_params: a dictionary of further arguments of a function as kernel.
        fit_inverse_transform: whether `inverse_transform` is learned, by ridge regression of X on
            the components, with the ridge `alpha`.
        remove_zero_eig: leave out components without variance even if n_components is given.
        eigen_solver, tol, max_iter, iterated_power, random_state, copy_X, n_jobs: accepted, without
            effect.

    Attributes: `eigenvalues_`, `eigenvectors_`, `function_` (a `KernelExpansion` with an output for
    each), `X_fit_`, `kernel_`; with `fit_inverse_transform` also `dual_coef_` and
    `X_transformed_fit_`.
    """

    n_components: int | None = None
    _: KW_ONLY
    kernel: Any = "linear"
    gamma: float | str | None = None
    degree: int = 3
    coef0: float = 1
    kernel_params: Any = None
    alpha: Any = 1.0
    fit_inverse_transform: bool = False
    eigen_solver: Any = "auto"
    tol: float = 0
    max_iter: int | None = None
    iterated_power: Any = "auto"
    remove_zero_eig: bool = False
    random_state: Any = None
    copy_X: bool = True
    n_jobs: int | None = None

    def _checked(self, X, y=NO_TARGETS, sample_weight=None, **checks):
        if self.fit_inverse_transform and (self._is_precomputed or are_texts(X)):
            given = "a precomputed kernel" if self._is_precomputed else "texts"
            raise ValueError(f"Cannot fit_inverse_transform with {given}: it needs numbers X")
        if self.fit_inverse_transform and issparse(X):
            raise NotImplementedError(
                "Inverse transform not implemented for sparse matrices: .toarray() makes an array"
            )
        return super()._checked(X, y, sample_weight, **checks)

    def _fit_rows(self, rows, X, targets):
        every = self.n_components is None
        if not every:
            check_count(self.n_components, "n_components")
        components = rows.size if every else min(self.n_components, rows.n)
        try:
            solution = rows.fit(kernel_pca, components, indefinite=True)
        except NotPSDError as problem:
            wanted = "all" if every else f"the n_components={self.n_components} largest"
            raise NotPSDError(
                f"There are significant negative eigenvalues among {wanted} of the centred K: "
                f"pass a smaller n_components. {problem}"
            ) from None
        variances = np.asarray(solution.value.variances)
        kept = np.arange(len(variances))
        if every or self.remove_zero_eig:
            kept = np.flatnonzero(variances > 0)
        function = rows.restored(solution.value.function)
        weights = rows.own_weights
        # +1 or -1 for each component, so that the projection of largest absolute value is
        # positive.
        # Projections of the rows are proportional to their coefficients over their weights; for
        # weights of one this is scikit-learn's convention, and a row repeated counts as one.
        projections = np.asarray(function.coefficients)
        projections = projections / np.where(weights > 0, weights, np.inf)[:, None]
        largest = np.argmax(np.abs(projections), axis=0)
        signs = np.where(np.take_along_axis(projections, largest[None], 0)[0] < 0, -1.0, 1.0)
        dtype = function.coefficients.dtype
        coefficients = (np.asarray(function.coefficients)[:, kept] * signs[kept]).astype(dtype)
        bias = (np.asarray(function.bias)[kept] * signs[kept]).astype(dtype)
        self.function_ = KernelExpansion(
            function.kernel, function.points, jnp.asarray(coefficients), jnp.asarray(bias)
        )
        self.eigenvalues_ = variances[kept] * weights.sum()
        self.eigenvectors_ = coefficients * np.sqrt(self.eigenvalues_)
        self.X_fit_ = X
        # Learn X from the components, with the same kernel.
        if self.fit_inverse_transform:
            kernel = self._given_kernel
            self.X_transformed_fit_ = self.transform(X)
            given = {
                "degree": self.degree,
                "coef0": self.coef0,
                "kernel_params": self.kernel_params,
            }
            if not self._is_function:
                given["gamma"] = self.gamma_
            self._inverse = KernelRidge(self.alpha, kernel=kernel, **given)
            self._inverse.fit(self.X_transformed_fit_, X, weights)
            self.dual_coef_ = self._inverse.dual_coef_

    def transform(self, X):
        """The projections of rows onto the components, (m, components)."""
        return self._values(X)

    def inverse_transform(self, X):
        """Rows that have approximately the projections X (m, components)."""
        check_is_fitted(self)
        if not self.fit_inverse_transform:
            raise NotFittedError("inverse_transform needs fit_inverse_transform=True")
        return self._inverse.predict(X)

    @property
    def _n_features_out(self):
        return len(self.eigenvalues_)
