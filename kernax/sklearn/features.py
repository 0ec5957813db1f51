"""Explicit features that approximate a kernel."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state

from kernax.scale.random_features import random_fourier_features
from kernax.sklearn.base import KernelEstimator
from kernax.unsupervised.mercer import empirical_features


class _Features(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """A transformer in the precision of its data."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Nystroem(_Features):
    """`kernax.empirical_features` of random rows, with the arguments of scikit-learn's class.

    Arguments:
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, or "precomputed".
        gamma, coef0, degree: of kernels by name, as in scikit-learn.
        n_components: how many rows; of fewer rows all.
        random_state: draws the rows, the same ones as scikit-learn.
        n_jobs: taken, and without effect.

    Attributes: `components_` (the rows), `component_indices_`, `normalization_`, `function_` (a
    `KernelExpansion` with an output for each feature), `kernel_`.
    """

    def __init__(
        self,
        kernel="rbf",
        *,
        gamma=None,
        coef0=None,
        degree=None,
        n_components=100,
        random_state=None,
        n_jobs=None,
    ):
        self.kernel = kernel
        self.gamma = gamma
        self.coef0 = coef0
        self.degree = degree
        self.n_components = n_components
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X, y=None):
        """Chooses rows of X; y is not looked at."""
        X, _, _ = self._checked(X)
        rows = self._rows(X)
        chosen = check_random_state(self.random_state).permutation(rows.n)[: self.n_components]
        with self._computing():
            few = rows.some(chosen)
            given = jax.tree.map(lambda leaf: leaf[: few.n], few.given)
            function = empirical_features(few.given_kernel, given)
            self.function_ = rows.restored(function)
        self.component_indices_ = chosen
        self.components_ = None if self._of_texts else X[chosen]
        self.normalization_ = np.asarray(self.function_.coefficients)
        return self

    def transform(self, X):
        """The features of rows (m, features)."""
        return self._values(X)

    @property
    def _n_features_out(self):
        return len(self.component_indices_)


class RandomFourierFeatures(_Features):
    """`kernax.random_fourier_features`: cosines and sines, as scikit-learn's `RBFSampler`.

    Arguments:
        kernel: one with a spectral density: "rbf", "matern12", "matern32", "matern52", or such a
            kernel of kernax or of scikit-learn.
        gamma: of kernels by name.
        n_components: the number of features: a cosine and a sine for each frequency, of which
            an odd number leaves the last one out.
        random_state: draws the frequencies.

    Attributes: `frequencies_` (n_components / 2, columns), in cycles per unit of X, `map_` (a
    `FeatureMap`, itself a kernel), `kernel_`.
    """

    def __init__(self, *, kernel="rbf", gamma=1.0, n_components=100, random_state=None):
        self.kernel = kernel
        self.gamma = gamma
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X, y=None):
        """Draws frequencies for the columns of X; y is not looked at."""
        X, _, _ = self._checked(X)
        self._points(X)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        with self._computing():
            self.map_ = random_fourier_features(
                self.kernel_, -(-self.n_components // 2), X.shape[1], key=jax.random.key(seed)
            )
        self.frequencies_ = np.asarray(self.map_.phi.frequencies)
        return self

    def transform(self, X):
        """The features of rows (m, n_components)."""
        points, n, _ = self._new_points(X)
        with self._computing():
            return np.asarray(jax.vmap(self.map_.phi)(jnp.asarray(points)))[:n, : self.n_components]

    @property
    def _n_features_out(self):
        return self.n_components
