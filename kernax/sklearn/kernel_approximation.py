"""Explicit features that approximate a kernel."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples, check_is_fitted

from kernax.core.base.parameters import check_count
from kernax.core.base.stacks import points_at
from kernax.scale.features.random_features import random_fourier_features
from kernax.sklearn.base import KernelEstimator, RowsEstimator, are_texts, key_of
from kernax.unsupervised.mercer import empirical_features


class KernelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """Transforms rows into the outputs of a function, in the precision of the data."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(eq=False, repr=False)
class Nystroem(KernelFeatures, RowsEstimator):
    """Nystrom features: `kernax.bases.empirical_features` of random rows, with the arguments of
    `sklearn.kernel_approximation.Nystroem`.

    Arguments:
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, "precomputed", or a function of two rows.
        gamma, coef0, degree: parameters of kernels given by name, as in scikit-learn.
        kernel_params: a dictionary of further arguments of a function as kernel.
        n_components: the number of rows to draw; all rows if there are fewer.
        random_state: the seed for the rows, which are the same as in scikit-learn.
        n_jobs: accepted, without effect.

    Attributes: `components_` (the rows), `component_indices_`, `normalization_`, `function_` (a
    `KernelExpansion` with an output for each feature), `kernel_`.
    """

    kernel: Any = "rbf"
    _: KW_ONLY
    gamma: float | str | None = None
    coef0: float | None = None
    degree: int | None = None
    kernel_params: Any = None
    n_components: int = 100
    random_state: Any = None
    n_jobs: int | None = None

    _instead = "fewer n_components"

    def fit(self, X, y=None):
        """Chooses rows of X; y is ignored."""
        check_count(self.n_components, "n_components")
        numbers = (self.gamma, self.coef0, self.degree)
        if self._is_matrix and any(number is not None for number in numbers):
            raise ValueError(
                "Don't pass gamma, coef0 or degree to Nystroem if using a function or a "
                "precomputed kernel"
            )
        X, _, _ = self._checked(X)
        order = check_random_state(self.random_state).permutation(_num_samples(X))
        chosen = order[: self.n_components]
        if self._is_function or issparse(X):
            # The values of a function are computed one by one, only between the chosen rows; and
            # only the chosen rows of a sparse table are made dense.
            self._fit(X[chosen], None, None, whole=X)
            self.component_indices_ = chosen
            return self
        return self._fit(X, chosen, None)

    def _fit_rows(self, rows, X, chosen):
        chosen = np.arange(rows.n) if chosen is None else chosen
        few = rows.some(chosen)
        given = points_at(few.given, slice(few.n))
        function = empirical_features(few.given_kernel, given)
        self.function_ = rows.restored(function)
        self.component_indices_ = chosen
        self.components_ = None if self._of_texts else X[chosen]
        self.normalization_ = np.asarray(self.function_.coefficients)

    def transform(self, X):
        """The features of rows (m, features)."""
        return self._values(X)

    @property
    def _n_features_out(self):
        return len(self.component_indices_)


@dataclass(eq=False, repr=False)
class RandomFourierFeatures(KernelFeatures):
    """Random Fourier features: `kernax.random_fourier_features`, cosines and sines, in place of
    scikit-learn's `RBFSampler`.

    Arguments:
        kernel: a kernel with a spectral density: "rbf", "matern12", "matern32", "matern52", or such
            a kernel of kernax or of scikit-learn.
        gamma: the parameter of kernels given by name.
        n_components: the number of features: a cosine and a sine for each frequency; an odd number
            leaves out the last sine.
        random_state: the seed of the frequencies.
        draw: the joint distribution of the frequencies: "independent", "orthogonal" or
            "quasi_random", as for `kernax.random_fourier_features`.

    The features are those of rows minus their mean. Attributes: `frequencies_` (n_components / 2,
    columns), in cycles per unit of X, `map_` (a `FeatureMap`, itself a kernel), `kernel_`.
    """

    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str | None = 1.0
    n_components: int = 100
    random_state: Any = None
    draw: str = "independent"

    _not_precomputed = "has no spectral density"

    def fit(self, X, y=None):
        """Draws frequencies for the columns of X; y is ignored."""
        check_count(self.n_components, "n_components")
        if are_texts(X):
            raise ValueError("X must hold numbers, but holds texts: Nystroem accepts texts")
        X, _, _ = self._checked(X)
        self._resolve(X)
        with self._computing():
            # The mean of the rows is taken in float64, also for a sparse table.
            mean = np.asarray(X.mean(axis=0, dtype=float)).ravel()
            self.map_ = random_fourier_features(
                self.kernel_,
                -(-self.n_components // 2),
                X.shape[1],
                key=key_of(self.random_state),
                draw=self.draw,
                origin=mean.astype(X.dtype),
            )
        self.frequencies_ = np.asarray(self.map_.phi.frequencies)
        return self

    def transform(self, X):
        """The features of rows (m, n_components)."""
        check_is_fitted(self)
        return self._vectorised(X, self.map_, "phi")[:, : self.n_components]

    @property
    def _n_features_out(self):
        return self.n_components
