"""Sparse tables as the rows of estimators: what is fitted is what the same dense rows give."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sklearn.cluster
import sklearn.svm
from conftest import marked, needs_x64
from sklearn.neighbors import NearestNeighbors

import kernax
import kernax.sklearn as ours
from kernax.errors import MemoryBudgetError
from kernax.sklearn import sparse_tables

pytestmark = needs_x64  # estimators choose their precision by the data


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 8)) * (rng.uniform(size=(40, 8)) < 0.5)
    y = X[:, :3] @ [1.0, -1.0, 2.0] + 0.1 * rng.normal(size=40)
    Z = rng.normal(size=(12, 8)) * (rng.uniform(size=(12, 8)) < 0.5)
    return X, y, Z


def values_of(estimator, Z):
    for method in ("decision_function", "predict", "transform"):
        if hasattr(estimator, method):
            return getattr(estimator, method)(Z)
    return estimator.labels_


SETTINGS = {
    "KernelRidge": {"kernel": "rbf"},
    "SVC": {"probability": True},
    "GaussianProcessRegressor": {"alpha": 0.1, "kernel": kernax.RBF(), "learn": None},
    "GaussianProcessClassifier": {"learn": None},
    "RelevanceVectorClassifier": {"max_vectors": 32},
    "RelevanceVectorRegressor": {"max_vectors": 64},
    "KernelPerceptron": {"max_iter": 2},
    "KernelPCA": {"n_components": 3, "kernel": "rbf"},
    "Nystroem": {"n_components": 10, "random_state": 0},
    "RandomFourierFeatures": {"random_state": 0},
    "KernelKMeans": {"n_clusters": 2, "random_state": 0},
    "SpectralClustering": {"n_clusters": 2, "random_state": 0},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    marked(
        pytest.mark.nightly,
        ours.__all__,
        "KernelRidge",
        "SVC",
        "GaussianProcessRegressor",
        "Nystroem",
        others=True,
    ),
)
def test_a_sparse_table_gives_what_its_dense_rows_give(table, name):
    X, y, Z = table
    targets = y if name.endswith(("Ridge", "SVR", "Regressor")) else y > 0
    estimator = getattr(ours, name)(**SETTINGS.get(name, {}))
    of_dense = values_of(estimator.fit(X, targets), Z)
    of_sparse = values_of(
        estimator.fit(scipy.sparse.csc_array(X), targets), scipy.sparse.coo_array(Z)
    )
    assert isinstance(of_sparse, np.ndarray)
    np.testing.assert_allclose(of_sparse, of_dense, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("container", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_a_machine_of_sparse_rows_has_sparse_attributes_as_in_scikit_learn(table, container):
    X, y, Z = table
    labels = np.digitize(y, [-0.5, 0.5])
    a = ours.SVC(kernel="linear").fit(container(X), labels)
    b = sklearn.svm.SVC(kernel="linear", tol=1e-10).fit(container(X), labels)
    assert (a.support_ == b.support_).all()
    for name in ("support_vectors_", "dual_coef_", "coef_"):
        found = getattr(a, name)
        assert type(found) is container
        np.testing.assert_allclose(found.toarray(), getattr(b, name).toarray(), atol=1e-5)
    values = a.set_params(decision_function_shape="ovo").decision_function(container(Z))
    expected = b.set_params(decision_function_shape="ovo").decision_function(container(Z))
    np.testing.assert_allclose(values, expected, atol=1e-5)


@pytest.mark.slow
def test_other_estimators_keep_sparse_rows_as_they_came(table):
    X, y, _ = table
    rows = scipy.sparse.csr_array(X)
    ridge = ours.KernelRidge().fit(rows, y)
    assert scipy.sparse.issparse(ridge.X_fit_)
    few = ours.Nystroem(n_components=7, random_state=0).fit(rows)
    assert scipy.sparse.issparse(few.components_)
    chosen = ours.KernelRidge(n_centres=6, random_state=0).fit(rows, y)
    assert chosen.X_fit_.shape == (6, 8)
    process = ours.GaussianProcessRegressor(alpha=0.1, learn=None).fit(rows, y)
    np.testing.assert_array_equal(process.X_train_, X)


def test_gamma_scale_of_sparse_rows_is_that_of_all_their_entries(table):
    X, y, _ = table
    # Entries that are there more than once count as their sum.
    twice = scipy.sparse.csr_array(
        (
            np.full(2 * X.size, 0.5) * np.repeat(X.ravel(), 2),
            np.repeat(np.tile(np.arange(8), 40), 2),
            np.arange(41) * 16,
        ),
        shape=X.shape,
    )
    for rows in (scipy.sparse.csr_array(X), twice):
        np.testing.assert_allclose(ours.SVR().fit(rows, y).gamma_, 1 / (8 * X.var()))
    nystroem = ours.Nystroem(gamma="scale", n_components=3, random_state=0)
    np.testing.assert_allclose(nystroem.fit(twice).gamma_, 1 / (8 * X.var()))


@pytest.mark.slow
def test_sparse_rows_are_predicted_a_block_at_a_time(table, monkeypatch):
    X, y, Z = table
    monkeypatch.setattr(sparse_tables, "_BLOCK", 5 * 8 * 8)
    sizes = []

    def dense(X, dtype):
        sizes.append(X.shape[0])
        return sparse_tables.dense(X, dtype)

    monkeypatch.setattr("kernax.sklearn.base.dense", dense)
    rows = scipy.sparse.csr_array(X)
    ridge = ours.KernelRidge(kernel="rbf").fit(rows, y)
    classifier = ours.GaussianProcessClassifier(learn=None).fit(rows, y > 0)
    np.testing.assert_allclose(ridge.predict(scipy.sparse.csr_array(Z)), ridge.predict(Z))
    found = classifier.predict_proba(scipy.sparse.csr_array(Z))
    np.testing.assert_allclose(found, classifier.predict_proba(Z))
    assert sizes == [40, 40, 5, 5, 2, 12, 5, 5, 2, 12]


def test_a_sparse_table_too_large_as_an_array_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(sparse_tables, "available_memory", lambda devices: 2**30)
    rows = scipy.sparse.eye_array(10_000, format="csr")
    with pytest.raises(MemoryBudgetError, match=r"2.2 GiB needed to make the sparse X .*Nystroem"):
        ours.SVR().fit(rows, np.zeros(10_000))
    few = ours.Nystroem(n_components=2, random_state=0).fit(rows)
    # Of rows that are unit vectors all distances are the square root of two, or zero.
    features = few.transform(rows[few.component_indices_])
    near = np.exp(-2 / 10_000)
    np.testing.assert_allclose(features @ features.T, [[1, near], [near, 1]])


def test_wrong_sparse_tables_are_refused_in_words(table):
    X, y, _ = table
    rows = scipy.sparse.csr_array(X)
    machine = ours.SVC().fit(X, y > 0)
    with pytest.raises(ValueError, match="cannot use sparse input in 'SVC' trained on dense data"):
        machine.predict(rows)
    with pytest.raises(ValueError, match="4 features, but KernelRidge is expecting 8"):
        ours.KernelRidge().fit(rows, y).predict(rows[:, :4])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        ours.KernelRidge().fit(rows, y[1:])
    with pytest.raises(ValueError, match="NaN"):
        ours.KernelRidge().fit(rows * np.nan, y)
    for estimator in (ours.SVC(kernel="precomputed"), ours.KernelRidge(kernel="precomputed")):
        with pytest.raises(TypeError, match="Sparse precomputed kernels are not supported"):
            estimator.fit(scipy.sparse.csr_array(X @ X.T), y > 0)
    with pytest.raises(NotImplementedError, match="Inverse transform not implemented for sparse"):
        ours.KernelPCA(fit_inverse_transform=True).fit(rows)
    with pytest.raises(ValueError, match="list or a column of texts"):
        ours.SVC(kernel=kernax.Normalised(kernax.Spectrum(2))).fit(rows, y > 0)


def test_functions_as_kernels_are_given_sparse_rows(table):
    X, y, Z = table
    machine = ours.SVR(kernel=lambda A, B: A @ B.T).fit(scipy.sparse.lil_array(X), y)
    expected = ours.SVR(kernel="linear").fit(X, y).predict(Z)
    np.testing.assert_allclose(machine.predict(scipy.sparse.csr_array(Z)), expected, rtol=1e-7)


def test_what_a_sparse_matrix_of_distances_leaves_out_is_far_and_of_affinities_zero():
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(15, 2)), rng.normal(size=(15, 2)) + 2])
    near = NearestNeighbors(n_neighbors=8).fit(X).kneighbors_graph(X, mode="distance")
    given = {"n_clusters": 2, "random_state": 0}
    a = ours.SpectralClustering(affinity="precomputed_nearest_neighbors", n_neighbors=6, **given)
    b: Any = sklearn.cluster.SpectralClustering(**a.get_params())
    a.fit(near)
    b.fit(near)
    np.testing.assert_array_equal(a.affinity_matrix_, b.affinity_matrix_.toarray())
    edges = scipy.sparse.coo_array(near.toarray() > 0).astype(int)
    edges = edges + edges.T + scipy.sparse.eye_array(30)
    a = ours.SpectralClustering(affinity="precomputed", **given).fit(edges)
    np.testing.assert_array_equal(a.affinity_matrix_, edges.toarray())
