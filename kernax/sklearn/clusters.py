"""Clusters."""

import jax
import numpy as np
from sklearn.base import ClusterMixin
from sklearn.utils import check_random_state

from kernax.sklearn.base import KernelEstimator
from kernax.unsupervised.kernel_kmeans import kernel_kmeans
from kernax.unsupervised.spectral_clustering import spectral_clustering

_ROUNDINGS = {"kmeans": "kmeans", "discretize": "discrete"}


class _Clusters(ClusterMixin, KernelEstimator):
    """What both kinds of clusters check."""

    def _check_number(self, n):
        if self.n_clusters > n:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}.")

    def _key(self):
        return jax.random.key(check_random_state(self.random_state).randint(2**31 - 1))


class KernelKMeans(_Clusters):
    """`kernax.kernel_kmeans`, with the arguments of `sklearn.cluster.KMeans` and a kernel.

    Arguments:
        n_clusters: how many.
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, or "precomputed".
        gamma, degree, coef0: of kernels by name, as in scikit-learn.
        n_init: random starts, of which the best is kept.
        max_iter: steps of each, at most.
        random_state: draws the starts.

    Attributes: `labels_`, `inertia_`, `n_iter_`, `function_` (a `KernelExpansion`, whose largest
    output is that of the nearest cluster), `kernel_`.
    """

    def __init__(
        self,
        n_clusters=8,
        *,
        kernel="rbf",
        gamma="scale",
        degree=3,
        coef0=1,
        n_init=10,
        max_iter=1000,
        random_state=None,
    ):
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_init = n_init
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X, y=None, sample_weight=None):
        """Finds clusters of the rows of X; y is not looked at."""
        X, _, weights = self._checked(X, sample_weight=sample_weight)
        self._check_number(len(X))
        rows = self._rows(X, weights)
        with self._computing():
            solution = kernel_kmeans(
                rows.given_kernel,
                rows.given,
                self.n_clusters,
                key=self._key(),
                weights=rows.weights,
                starts=self.n_init,
                max_steps=self.max_iter,
            )
            self.function_ = rows.restored(solution.value.function)
        self.labels_ = np.argmax(np.asarray(solution.value.memberships), 1)[: rows.n].astype(
            np.int32
        )
        self.inertia_ = float(solution.stats["objective"])
        self.n_iter_ = max(1, int(solution.stats["steps"]))
        return self

    def predict(self, X):
        """The nearest cluster of each row (m,)."""
        return np.argmax(self._values(X), axis=1).astype(np.int32)


class SpectralClustering(_Clusters):
    """`kernax.spectral_clustering` with the arguments of `sklearn.cluster.SpectralClustering`.

    The diagonal of the affinities is kept, where scikit-learn leaves it out.

    Arguments:
        n_clusters: how many.
        affinity: a kernel, as `kernel=` of other estimators, with values >= 0; or "precomputed".
        gamma, degree, coef0: of kernels by name, as in scikit-learn.
        assign_labels: "kmeans" or "discretize".
        n_init: random starts of k-means.
        random_state: draws them.
        eigen_solver, n_components, eigen_tol, n_jobs, verbose: taken, and without effect.

    Attributes: `labels_`, `clusters_` (`SpectralClusters`), `kernel_`.
    """

    def __init__(
        self,
        n_clusters=8,
        *,
        eigen_solver=None,
        n_components=None,
        random_state=None,
        n_init=10,
        gamma=1.0,
        affinity="rbf",
        eigen_tol="auto",
        assign_labels="kmeans",
        degree=3,
        coef0=1,
        n_jobs=None,
        verbose=False,
    ):
        self.n_clusters = n_clusters
        self.eigen_solver = eigen_solver
        self.n_components = n_components
        self.random_state = random_state
        self.n_init = n_init
        self.gamma = gamma
        self.affinity = affinity
        self.eigen_tol = eigen_tol
        self.assign_labels = assign_labels
        self.degree = degree
        self.coef0 = coef0
        self.n_jobs = n_jobs
        self.verbose = verbose

    @property
    def _given_kernel(self):
        return self.affinity

    def fit(self, X, y=None, sample_weight=None):
        """Finds clusters of the rows of X; y is not looked at."""
        if self.assign_labels not in _ROUNDINGS:
            raise ValueError(
                f"assign_labels must be one of {tuple(_ROUNDINGS)}, but is {self.assign_labels!r}"
            )
        X, _, weights = self._checked(X, sample_weight=sample_weight)
        self._check_number(len(X))
        rows = self._rows(X, weights)
        with self._computing():
            solution = spectral_clustering(
                rows.given_kernel,
                rows.given,
                self.n_clusters,
                key=self._key(),
                weights=rows.weights,
                rounding=_ROUNDINGS[self.assign_labels],
                starts=self.n_init,
            )
            self.clusters_ = rows.restored(solution.value)
        memberships = np.asarray(solution.value.memberships)
        self.labels_ = np.argmax(memberships, axis=1)[: rows.n].astype(np.int32)
        return self
