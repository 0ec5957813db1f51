"""Clustering."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import equinox as eqx
import numpy as np
from scipy.sparse import issparse
from sklearn.base import ClusterMixin
from sklearn.neighbors import NearestNeighbors, kneighbors_graph

from kernax.core.base.parameters import check_count
from kernax.core.base.stacks import points_at
from kernax.core.operators.gram import gram
from kernax.kernels.integers import Precomputed
from kernax.sklearn.base import NO_TARGETS, key_of
from kernax.sklearn.kernels import PRECOMPUTED
from kernax.sklearn.sparse_tables import dense
from kernax.sklearn.targets import KernelOfRows
from kernax.unsupervised.kernel_kmeans import kernel_kmeans
from kernax.unsupervised.spectral_clustering import spectral_clustering

_OF_NEIGHBOURS = "nearest_neighbors"
_OF_DISTANCES = "precomputed_nearest_neighbors"
_ROUNDINGS = {"kmeans": "kmeans", "discretize": "discrete", "cluster_qr": "qr"}


class _Clusters(ClusterMixin, KernelOfRows):
    """The checks of both clustering estimators."""

    def _check_counts(self, n):
        check_count(self.n_clusters, "n_clusters")
        check_count(self.n_init, "n_init")
        if self.n_clusters > n:
            raise ValueError(f"n_samples={n} should be >= n_clusters={self.n_clusters}.")


@dataclass(eq=False, repr=False)
class KernelKMeans(_Clusters):
    """Kernel k-means: `kernax.kernel_kmeans` with the arguments of `sklearn.cluster.KMeans` and a
    kernel.

    Arguments:
        n_clusters: the number of clusters.
        kernel: a name (scikit-learn's, and "matern12", "matern32", "matern52"), a kernel of kernax
            or of `sklearn.gaussian_process.kernels`, or "precomputed".
        gamma, degree, coef0: parameters of kernels given by name, as in scikit-learn.
        n_init: the number of random starts, of which the best is kept.
        max_iter: the largest number of steps of each start.
        random_state: the seed of the starts.

    Attributes: `labels_`, `inertia_`, `n_iter_`, `function_` (a `KernelExpansion`; its largest
    output belongs to the nearest cluster), `kernel_`.
    """

    n_clusters: int = 8
    _: KW_ONLY
    kernel: Any = "rbf"
    gamma: float | str | None = "scale"
    degree: int = 3
    coef0: float = 1
    n_init: int = 10
    max_iter: int = 1000
    random_state: Any = None

    def _fit_rows(self, rows, X, targets):
        self._check_counts(rows.n)
        check_count(self.max_iter, "max_iter")
        solution = rows.fit(
            kernel_kmeans,
            self.n_clusters,
            key=key_of(self.random_state),
            n_starts=self.n_init,
            max_steps=self.max_iter,
        )
        self.function_ = rows.restored(solution.value.function)
        self.labels_ = _labels(solution, rows)
        self.inertia_ = float(solution.stats["objective"])
        self.n_iter_ = max(1, int(solution.stats["steps"]))

    def predict(self, X):
        """The nearest cluster of each row (m,); -1 where a value is NaN."""
        return _places(self._values(X))


@dataclass(eq=False, repr=False)
class SpectralClustering(_Clusters):
    """Spectral clustering: `kernax.spectral_clustering` with the arguments of
    `sklearn.cluster.SpectralClustering`.

    The diagonal of the affinities is kept; scikit-learn leaves it out.

    Arguments:
        n_clusters: the number of clusters.
        affinity: a kernel, as `kernel=` of other estimators, with values >= 0; "precomputed";
            "nearest_neighbors", the graph of the `n_neighbors` nearest rows of each row, itself
            included, with half an edge for each direction; or "precomputed_nearest_neighbors", the
            same from a sparse matrix of distances.
        gamma, degree, coef0: parameters of kernels given by name, as in scikit-learn.
        n_neighbors: the number of neighbours in these graphs.
        kernel_params: a dictionary of further arguments of a function as affinity.
        assign_labels: "kmeans", "discretize" or "cluster_qr".
        n_components: the number of eigenvectors, by default that of the clusters; other numbers
            require assign_labels="kmeans".
        verbose: whether to print how labels are assigned, and the objective of the partition.
        n_init: the number of random starts of k-means.
        random_state: the seed of the starts.
        eigen_solver, eigen_tol, n_jobs: accepted, without effect.

    Attributes: `labels_`, `affinity_matrix_` (n, n), `clusters_` (`SpectralClusters`), `kernel_`.
    """

    n_clusters: int = 8
    _: KW_ONLY
    eigen_solver: Any = None
    n_components: int | None = None
    random_state: Any = None
    n_init: int = 10
    gamma: float | str | None = 1.0
    affinity: Any = "rbf"
    n_neighbors: int = 10
    eigen_tol: Any = "auto"
    assign_labels: str = "kmeans"
    degree: int = 3
    coef0: float = 1
    kernel_params: Any = None
    n_jobs: int | None = None
    verbose: bool = False

    @property
    def _given_kernel(self):
        return self.affinity

    @property
    def _is_precomputed(self):
        return isinstance(self.affinity, str) and self.affinity in (PRECOMPUTED, _OF_DISTANCES)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _checked(self, X, y=NO_TARGETS, sample_weight=None, **checks):
        if isinstance(self.affinity, str) and self.affinity == _OF_DISTANCES:
            # Handled here, because absent entries of a sparse matrix of distances are far, not
            # near.
            nearest = NearestNeighbors(n_neighbors=self.n_neighbors, metric=PRECOMPUTED).fit(X)
            X = _both_directions(nearest.kneighbors_graph(X, mode="connectivity"))
        elif self._is_precomputed and issparse(X):
            X = dense(X, X.dtype)  # absent affinities are zero
        return super()._checked(X, y, sample_weight, **checks)

    def _points(self, X, whole=None):
        if not (isinstance(self.affinity, str) and self.affinity == _OF_NEIGHBOURS):
            return super()._points(X, whole)
        check_count(self.n_neighbors, "n_neighbors")
        edges = _both_directions(kneighbors_graph(X, self.n_neighbors, include_self=True))
        with self._computing():
            self.kernel_ = Precomputed(edges.astype(self._dtype))
        self._noise = 0.0
        return np.arange(len(edges))

    def _fit_rows(self, rows, X, targets):
        self._check_counts(rows.n)
        if self.assign_labels not in _ROUNDINGS:
            raise ValueError(
                f"assign_labels must be one of {tuple(_ROUNDINGS)}, but is {self.assign_labels!r}"
            )
        if self.verbose:
            print(f"Computing label assignment using {self.assign_labels}")
        solution = rows.fit(
            spectral_clustering,
            self.n_clusters,
            key=key_of(self.random_state),
            n_eigenvectors=self._eigenvectors(),
            rounding=_ROUNDINGS[self.assign_labels],
            n_starts=self.n_init,
        )
        if self.verbose:
            objective = float(solution.stats["objective"])
            bound = float(solution.stats["relaxation"])
            print(f"{int(solution.stats['steps'])} steps, objective {objective:.6g} of {bound:.6g}")
        first = points_at(rows.given, slice(rows.n))
        self.affinity_matrix_ = np.asarray(gram(rows.given_kernel, first))
        # Rows after the first n are padding without weight.
        clusters = rows.restored(solution.value)
        self.clusters_ = eqx.tree_at(
            lambda found: (found.memberships, found.embedding),
            clusters,
            (clusters.memberships[: rows.n], clusters.embedding[: rows.n]),
        )
        self.labels_ = _labels(solution, rows)

    def _eigenvectors(self):
        """The number of eigenvectors. Raises ValueError for a number that the assignment of labels
        does not take.
        """
        if self.n_components is None:
            return self.n_clusters
        check_count(self.n_components, "n_components")
        if self.n_components != self.n_clusters and self.assign_labels != "kmeans":
            raise ValueError(
                f"n_components={self.n_components} must be n_clusters={self.n_clusters} for "
                f"assign_labels={self.assign_labels!r}: 'kmeans' takes any number"
            )
        return self.n_components


def _both_directions(edges):
    """A dense symmetric matrix from a sparse directed graph, with half an edge for each
    direction.
    """
    return np.asarray(((edges + edges.T) / 2).todense())


def _labels(solution, rows):
    """The cluster of each row (n,)."""
    return _places(np.asarray(solution.value.memberships))[: rows.n]


def _places(values):
    """The index of the largest value in each row; -1 where a value is NaN."""
    unknown = np.isnan(values).any(axis=1)
    return np.where(unknown, -1, np.argmax(values, axis=1)).astype(np.int32)
