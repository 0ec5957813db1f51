"""Kernel principal components."""

import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError

from kernax.core.expansion import KernelExpansion
from kernax.sklearn.base import KernelEstimator
from kernax.sklearn.ridge import KernelRidge
from kernax.unsupervised.principal_components import kernel_pca


class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """`kernax.kernel_pca` with the arguments of `sklearn.decomposition.KernelPCA`.

    Arguments:
        n_components: how many; None for all along which the rows have a variance.
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, or "precomputed".
        gamma, degree, coef0: of kernels by name, as in scikit-learn.
        fit_inverse_transform: whether `inverse_transform` is learned, by ridge regression of X on
            the components, with the ridge `alpha`.
        remove_zero_eig: leave out components without variance also where n_components is given.
        eigen_solver, tol, max_iter, iterated_power, random_state, copy_X, n_jobs: taken, and
            without effect.

    Attributes: `eigenvalues_`, `eigenvectors_`, `function_` (a
    `KernelExpansion` with an output for each), `X_fit_`, `kernel_`.
    """

    def __init__(
        self,
        n_components=None,
        *,
        kernel="linear",
        gamma=None,
        degree=3,
        coef0=1,
        alpha=1.0,
        fit_inverse_transform=False,
        eigen_solver="auto",
        tol=0,
        max_iter=None,
        iterated_power="auto",
        remove_zero_eig=False,
        random_state=None,
        copy_X=True,
        n_jobs=None,
    ):
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.alpha = alpha
        self.fit_inverse_transform = fit_inverse_transform
        self.eigen_solver = eigen_solver
        self.tol = tol
        self.max_iter = max_iter
        self.iterated_power = iterated_power
        self.remove_zero_eig = remove_zero_eig
        self.random_state = random_state
        self.copy_X = copy_X
        self.n_jobs = n_jobs

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X, y=None, sample_weight=None):
        """Finds the components of the rows of X; y is not looked at."""
        if self.fit_inverse_transform and self._is_precomputed:
            raise ValueError("fit_inverse_transform=True needs X, not kernel='precomputed'")
        X, _, weights = self._checked(X, sample_weight=sample_weight)
        rows = self._rows(X, weights)
        every = self.n_components is None
        with self._computing():
            solution = kernel_pca(
                rows.given_kernel,
                rows.given,
                rows.size if every else min(self.n_components, rows.n),
                weights=rows.weights,
            )
            kept = self._kept(solution.value)
            function = rows.restored(solution.value.function)
            self.function_ = _some_outputs(function, kept, _signs(function, weights)[kept])
        total = rows.n if weights is None else weights.sum()
        self.eigenvalues_ = np.asarray(solution.value.variances)[kept] * total
        coefficients = np.asarray(self.function_.coefficients)
        self.eigenvectors_ = coefficients * np.sqrt(self.eigenvalues_)
        self.X_fit_ = X
        self._set_inverse(X, weights)
        return self

    def _kept(self, components):
        """Which components are kept."""
        variances = np.asarray(components.variances)
        if self.n_components is None or self.remove_zero_eig:
            return np.flatnonzero(variances > 0)
        return np.arange(len(variances))

    def _set_inverse(self, X, weights):
        """Learns X from the components, with the same kernel."""
        if not self.fit_inverse_transform:
            return
        kernel = self._given_kernel
        self.X_transformed_fit_ = self.transform(X)
        given = {"gamma": self.gamma_, "degree": self.degree, "coef0": self.coef0}
        self._inverse = KernelRidge(self.alpha, kernel=kernel, **given)
        self._inverse.fit(self.X_transformed_fit_, X, weights)
        self.dual_coef_ = self._inverse.dual_coef_

    def transform(self, X):
        """The projections of rows onto the components, (m, components)."""
        return self._values(X)

    def inverse_transform(self, X):
        """Rows whose projections are nearly those of X (m, components)."""
        if not self.fit_inverse_transform:
            raise NotFittedError("inverse_transform needs fit_inverse_transform=True")
        return self._inverse.predict(X)

    @property
    def _n_features_out(self):
        return len(self.eigenvalues_)


def _signs(function, weights):
    """+1 or -1 for each component, so that the largest projection of a row is positive.

    Projections of the rows are proportional to their coefficients over their weights. For weights
    of one it is scikit-learn's convention, and a row repeated counts as one.
    """
    coefficients = np.asarray(function.coefficients)
    if weights is not None:
        coefficients = coefficients / np.where(weights > 0, weights, np.inf)[:, None]
    largest = np.argmax(np.abs(coefficients), axis=0)
    return np.where(np.take_along_axis(coefficients, largest[None], 0)[0] < 0, -1.0, 1.0)


def _some_outputs(function, kept, signs):
    """The function with some of its outputs, times -1 or +1."""
    coefficients = jnp.asarray(np.asarray(function.coefficients)[:, kept] * signs)
    bias = jnp.asarray(np.asarray(function.bias)[kept] * signs)
    dtype = function.coefficients.dtype
    return KernelExpansion(
        function.kernel, function.points, coefficients.astype(dtype), bias.astype(dtype)
    )
