"""Names, arguments and attributes that code written for scikit-learn relies on."""

from typing import Any

import numpy as np
import pytest
import sklearn.cluster
import sklearn.decomposition
import sklearn.gaussian_process
import sklearn.kernel_approximation
import sklearn.kernel_ridge
import sklearn.svm
from conftest import needs_x64
from sklearn.cluster._spectral import cluster_qr
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process import kernels as theirs
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.pairwise import chi2_kernel

import kernax
import kernax.sklearn as ours

pytestmark = needs_x64  # estimators choose their precision by the data

# Without the types of their attributes, which are wider than what the tests look at.
REGRESSOR: Any = sklearn.gaussian_process.GaussianProcessRegressor
CLUSTERS: Any = sklearn.cluster.SpectralClustering
MACHINE: Any = ours.SVC

KERNEL: Any = theirs.ConstantKernel(2.0) * theirs.RBF([0.8, 1.5, 3.0]) + theirs.WhiteKernel(0.05)
SMOOTH: Any = theirs.ConstantKernel(2.0) * theirs.RBF(1.2)
# A graph that is no kernel matrix, of eigenvalues 52.7, 7.7, 7.7, 5.0, 0, 0, -6.1 and -15.1.
INDEFINITE = np.array(
    [
        [4.48, -1.0, 8.07, 2.33, 2.33, 2.33, -5.76, -12.78],
        [-1.0, -6.48, 4.5, -1.24, -1.24, -1.24, -0.81, 7.49],
        [8.07, 4.5, 15.48, 2.09, 2.09, 2.09, -11.1, -23.23],
        [2.33, -1.24, 2.09, 4.0, -3.65, -3.65, 1.02, -0.9],
        [2.33, -1.24, 2.09, -3.65, 4.0, -3.65, 1.02, -0.9],
        [2.33, -1.24, 2.09, -3.65, -3.65, 4.0, 1.02, -0.9],
        [-5.76, -0.81, -11.1, 1.02, 1.02, 1.02, 4.86, 9.75],
        [-12.78, 7.49, -23.23, -0.9, -0.9, -0.9, 9.75, 21.46],
    ]
)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=40)
    return X, y, rng.normal(size=(7, 3))


def histogram(x, z):
    return np.minimum(x, z).sum()


def scaled_histogram(x, z, scale):
    return scale * np.minimum(x, z).sum()


def product(X, Z):
    return np.dot(X, np.transpose(Z))


def assert_close(a, b, rtol=1e-8):
    np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9)


def test_a_matrix_that_is_not_positive_definite_is_an_error_of_numpy_and_of_python():
    assert issubclass(kernax.errors.NotPSDError, np.linalg.LinAlgError)
    assert issubclass(kernax.errors.NotPSDError, ValueError)
    assert issubclass(kernax.errors.NotPSDError, kernax.errors.SolveError)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_linear_classifier_has_the_weights_of_its_columns(table, classes):
    X, y, _ = table
    labels = np.digitize(y, np.linspace(-0.4, 0.4, classes - 1))
    a = ours.SVC(kernel="linear").fit(X, labels)
    b = sklearn.svm.SVC(kernel="linear", tol=1e-10).fit(X, labels)
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-5, atol=1e-6)
    assert a.shape_fit_ == b.shape_fit_
    assert a.fit_status_ == b.fit_status_ == 0


@pytest.mark.slow
def test_linear_machines_for_numbers_and_one_class_have_weights_too(table):
    X, y, _ = table
    a = ours.SVR(kernel="linear").fit(X, y)
    b = sklearn.svm.SVR(kernel="linear", tol=1e-10).fit(X, y)
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-5, atol=1e-6)
    assert a.fit_status_ == b.fit_status_
    assert a.shape_fit_ == b.shape_fit_
    far = X + 3  # among points around zero no plane is the furthest, and LIBSVM takes a minute
    a = ours.OneClassSVM(kernel="linear").fit(far)
    b = sklearn.svm.OneClassSVM(kernel="linear", tol=1e-10).fit(far)
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "kernel",
    [
        2.0 * kernax.Linear(),
        3.0 * (0.5 * kernax.Linear() + kernax.Constant(2.0)),
        theirs.ConstantKernel(2.0) * theirs.DotProduct(1.3),
    ],
    ids=["scaled", "scaled sum", "of scikit-learn"],
)
def test_a_linear_kernel_times_a_number_and_plus_a_constant_has_its_weights_of_columns(
    table, kernel
):
    """The decision function is `X @ coef_.T + intercept_`, as of kernel="linear"."""
    X, y, _ = table
    of_classes = MACHINE(kernel=kernel).fit(X, y > 0)
    of_numbers = ours.SVR(kernel=kernel).fit(X, y)
    for machine, values in (
        (of_classes, of_classes.decision_function(X)),
        (of_numbers, of_numbers.predict(X)),
    ):
        expected = X @ machine.coef_[0] + machine.intercept_
        np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9)


def test_a_constant_of_a_linear_kernel_that_is_not_in_the_intercept_leaves_no_weights(table):
    X = table[0]
    assert ours.OneClassSVM(kernel=2.0 * kernax.Linear()).fit(X).coef_.shape == (1, X.shape[1])
    lifted = ours.OneClassSVM(kernel=kernax.Linear() + kernax.Constant(1.0)).fit(X)
    assert not hasattr(lifted, "coef_")
    assert not hasattr(ours.SVR(kernel=kernax.Constant(1.0)).fit(X, X[:, 0]), "coef_")


def test_weights_of_columns_are_only_there_where_a_function_is_linear_and_cannot_be_set(table):
    X, y, _ = table
    machine = MACHINE(kernel="linear")
    assert not hasattr(machine, "coef_")
    machine.fit(X, y > 0)
    with pytest.raises(AttributeError):
        machine.coef_ = np.ones(3)
    with pytest.raises(ValueError, match="read-only"):
        machine.coef_[0, 0] = 0
    assert not hasattr(ours.SVC().fit(X, y > 0), "coef_")


@pytest.mark.parametrize("kernel", [KERNEL, SMOOTH], ids=["white", "smooth"])
def test_the_evidence_of_a_theta_and_its_gradient_are_those_of_scikit_learn(table, kernel):
    X, y, _ = table
    a = ours.GaussianProcessRegressor(kernel, alpha=0.1, learn=None).fit(X, y)
    b = REGRESSOR(kernel, alpha=0.1, optimizer=None)
    b.fit(X, y)
    theta = kernel.theta + np.linspace(-0.3, 0.4, len(kernel.theta))
    value, gradient = a.log_marginal_likelihood(theta, eval_gradient=True)
    expected, expected_gradient = b.log_marginal_likelihood(theta, eval_gradient=True)
    assert_close(value, expected)
    assert_close(gradient, expected_gradient, 1e-6)
    assert_close(a.log_marginal_likelihood(theta), expected)
    assert (a.kernel_.theta == kernel.theta).all()
    a.log_marginal_likelihood(theta, clone_kernel=False)
    assert_close(a.kernel_.theta, theta)
    with pytest.raises(ValueError, match="theta!=None"):
        a.log_marginal_likelihood(eval_gradient=True)


def test_the_evidence_of_a_theta_is_summed_over_outputs_and_each_row_has_its_own_noise(table):
    X, y, _ = table
    Y = np.stack([y, y**2], 1)
    alpha = np.linspace(0.05, 0.2, 40)
    a = ours.GaussianProcessRegressor(SMOOTH, alpha=alpha, learn=None).fit(X, Y)
    b = REGRESSOR(SMOOTH, alpha=alpha, optimizer=None)
    b.fit(X, Y)
    assert_close(a.log_marginal_likelihood([0.2, 0.1]), b.log_marginal_likelihood([0.2, 0.1]))
    learned = ours.GaussianProcessRegressor(SMOOTH, alpha=alpha).fit(X, Y)
    expected = REGRESSOR(SMOOTH, alpha=alpha).fit(X, Y)
    np.testing.assert_allclose(learned.kernel_.theta, expected.kernel_.theta, atol=1e-4)


@pytest.mark.slow
def test_the_evidence_of_two_classes_at_a_theta_is_that_of_scikit_learn(table):
    X, y, Z = table
    a = ours.GaussianProcessClassifier(SMOOTH, learn=None).fit(X, y > 0)
    b = sklearn.gaussian_process.GaussianProcessClassifier(SMOOTH, optimizer=None).fit(X, y > 0)
    theta = SMOOTH.theta + 0.2
    value, gradient = a.log_marginal_likelihood(theta, eval_gradient=True)
    expected, expected_gradient = b.log_marginal_likelihood(theta, eval_gradient=True)
    # Its Newton iteration ends at a change of 1e-10 of the evidence.
    assert_close(value, expected, 1e-7)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-4, atol=1e-5)
    assert a.n_classes_ == b.n_classes_ == 2
    mean, variance = a.latent_mean_and_variance(Z)
    expected_mean, expected_variance = b.latent_mean_and_variance(Z)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-5)
    np.testing.assert_allclose(variance, expected_variance, rtol=1e-5)


@pytest.mark.slow
def test_the_latent_function_is_refused_for_three_classes_and_evidence_is_their_mean(table):
    X, y, Z = table
    labels = np.digitize(y, [-0.4, 0.4])
    process = ours.GaussianProcessClassifier(SMOOTH, learn=None).fit(X, labels)
    with pytest.raises(ValueError, match="only supported for binary classification"):
        process.latent_mean_and_variance(Z)
    assert_close(process.log_marginal_likelihood(SMOOTH.theta), process.log_marginal_likelihood())


@pytest.mark.parametrize("kernel", [None, KERNEL], ids=["default", "white"])
@pytest.mark.parametrize("outputs", [None, 1, 2])
def test_an_unfitted_process_predicts_by_its_prior(table, kernel, outputs):
    _, _, Z = table
    a = ours.GaussianProcessRegressor(kernel, n_targets=outputs)
    b = REGRESSOR(kernel, n_targets=outputs)
    for given in ({"return_std": True}, {"return_cov": True}):
        for found, expected in zip(a.predict(Z, **given), b.predict(Z, **given), strict=True):
            assert found.shape == expected.shape
            assert_close(found, expected)
    assert a.sample_y(Z, 3).shape == b.sample_y(Z, 3).shape
    assert not hasattr(a, "kernel_")


def test_the_prior_of_a_kernel_of_kernax_is_predicted_by_as_well(table):
    _, _, Z = table
    process = ours.GaussianProcessRegressor(2.0 * kernax.Matern32(1.5))
    mean, deviation = process.predict(Z, return_std=True)
    assert (mean == 0).all()
    np.testing.assert_allclose(deviation, np.sqrt(2))
    # Columns with names, without a warning that they have none.
    named = pytest.importorskip("pandas").DataFrame(Z).add_prefix("column ")
    np.testing.assert_array_equal(process.predict(named), mean)


def test_a_column_of_targets_is_squeezed_and_another_number_of_them_refused(table):
    X, y, Z = table
    flat = ours.GaussianProcessRegressor(SMOOTH, alpha=0.1, learn=None).fit(X, y)
    column = ours.GaussianProcessRegressor(SMOOTH, alpha=0.1, learn=None).fit(X, y[:, None])
    for found, expected in zip(column.predict(Z, True), flat.predict(Z, True), strict=True):
        assert found.shape == (7,)
        assert_close(found, expected)
    with pytest.raises(ValueError, match="The number of targets seen in `y`"):
        ours.GaussianProcessRegressor(SMOOTH, n_targets=1).fit(X, np.stack([y, y], 1))


def test_the_cholesky_factor_is_that_of_scikit_learn_and_counts_weights(table):
    X, y, _ = table
    a = ours.GaussianProcessRegressor(KERNEL, alpha=0.1, learn=None)
    b = REGRESSOR(KERNEL, alpha=0.1, optimizer=None)
    assert not hasattr(a, "L_")
    assert_close(a.fit(X, y).L_, b.fit(X, y).L_)
    weights = np.arange(40) % 3
    kept = weights > 0
    a.fit(X, y, weights)
    alpha = (0.1 + 0.05) / weights[kept] - 0.05
    b.set_params(alpha=alpha).fit(X[kept], y[kept])
    assert_close(a.L_, b.L_)


def test_an_optimiser_may_be_a_function_which_is_given_bounds_and_gradients(table):
    X, y, _ = table
    kernel = theirs.ConstantKernel(1.0, (0.1, 10)) * theirs.RBF(1.0, (0.5, 5))
    seen = []

    def optimiser(objective, theta, bounds):
        value, gradient = objective(theta)
        seen.append((theta, bounds, gradient))
        better = np.clip(theta - 0.01 * gradient, bounds[:, 0], bounds[:, 1])
        found = objective(better, eval_gradient=False)
        return (better, found) if found < value else (theta, value)

    found = ours.GaussianProcessRegressor(kernel, alpha=0.1, optimizer=optimiser).fit(X, y)
    other = REGRESSOR(kernel, alpha=0.1, optimizer=optimiser)
    other.fit(X, y)
    assert len(seen) == 2
    for one, two in zip(*seen, strict=True):
        assert_close(one, two, 1e-6)
    assert_close(found.kernel_.theta, other.kernel_.theta, 1e-6)
    with pytest.raises(ValueError, match="for kernels of scikit-learn"):
        ours.GaussianProcessRegressor(kernax.RBF(1.0), optimizer=optimiser).fit(X, y)


@pytest.mark.slow
def test_probabilities_asked_for_after_the_fit_are_not_fitted(table):
    X, y, Z = table
    machine = ours.SVC(probability=True).fit(X, y > 0)
    machine.set_params(probability=False).fit(X, y > 0)
    machine.probability = True
    for method in (machine.predict_proba, machine.predict_log_proba):
        with pytest.raises(NotFittedError, match="when fitted with probability=False"):
            method(Z)


@pytest.mark.parametrize("kind", ["SVC", "SVR"])
def test_a_function_of_tables_is_a_kernel_of_machines(table, kind):
    X, y, Z = table
    y = y > 0 if kind == "SVC" else y
    a = getattr(ours, kind)(kernel=product).fit(X, y)
    b = getattr(ours, kind)(kernel="linear").fit(X, y)
    assert_close(a.predict(Z), b.predict(Z))
    assert_close(a.dual_coef_, b.dual_coef_)
    with pytest.raises(ValueError, match=r"shape \(40, 40\), a value for each pair"):
        getattr(ours, kind)(kernel=lambda X, Z: X).fit(X, y)


def test_a_function_of_tables_may_take_rows_of_any_kind():
    words = ["A A", "A", "B", "B B", "A B"]
    counts = np.array([[word.count("A"), word.count("B")] for word in words], float)

    def kernel(X, Z):
        return np.array(
            [[x.count("A") * z.count("A") + x.count("B") * z.count("B") for z in Z] for x in X]
        )

    a = ours.SVC(kernel=kernel).fit(words, [1, 1, 2, 2, 1])
    b = ours.SVC(kernel="linear").fit(counts, [1, 1, 2, 2, 1])
    assert_close(a.decision_function(words), b.decision_function(counts))


def test_a_function_of_two_rows_with_further_arguments_is_a_kernel_as_in_scikit_learn(table):
    X, y, Z = table
    X, Z = abs(X), abs(Z)
    given = {"kernel": scaled_histogram, "kernel_params": {"scale": 0.7}}
    a = ours.KernelRidge(**given).fit(X, y)
    b = sklearn.kernel_ridge.KernelRidge(**given).fit(X, y)
    assert_close(a.predict(Z), b.predict(Z))
    a = ours.Nystroem(n_components=9, random_state=0, **given).fit(X)
    b = sklearn.kernel_approximation.Nystroem(n_components=9, random_state=0, **given).fit(X)
    assert (a.component_indices_ == b.component_indices_).all()
    expected = b.transform(Z) @ b.transform(X).T
    np.testing.assert_allclose(a.transform(Z) @ a.transform(X).T, expected, rtol=1e-6)
    a = ours.KernelPCA(3, **given).fit(X)
    b = sklearn.decomposition.KernelPCA(3, **given).fit(X)
    np.testing.assert_allclose(abs(a.transform(Z)), abs(b.transform(Z)), rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="Don't pass gamma"):
        ours.Nystroem(histogram, gamma=1.0).fit(X)


def test_a_function_of_two_rows_is_called_for_the_chosen_rows_alone(table):
    X, _, _ = table
    calls = []

    def counted(x, z):
        calls.append(1)
        return np.minimum(x, z).sum()

    ours.Nystroem(counted, n_components=6).fit(abs(X))
    assert len(calls) == 21


@pytest.mark.parametrize("count", [2, 4])
def test_components_of_an_indefinite_matrix_are_those_of_scikit_learn(count):
    a = ours.KernelPCA(count, kernel="precomputed").fit(INDEFINITE)
    b = sklearn.decomposition.KernelPCA(count, kernel="precomputed").fit(INDEFINITE)
    assert_close(a.eigenvalues_, b.eigenvalues_)
    # Two of the eigenvalues coincide, up to rounding.
    found, expected = (one.transform(INDEFINITE) for one in (a, b))
    kept = slice(0, 1) if count == 2 else slice(None)
    assert_close(found[:, kept] @ found[:, kept].T, expected[:, kept] @ expected[:, kept].T)


def test_components_with_negative_eigenvalues_are_refused():
    for count in (7, None):
        with pytest.raises(ValueError, match="significant negative eigenvalues"):
            ours.KernelPCA(count, kernel="precomputed").fit(INDEFINITE)


def test_an_indefinite_matrix_is_taken_by_kernel_pca_only_where_it_is_asked_to():
    kernel = kernax.Precomputed(INDEFINITE)
    places = np.arange(8)
    with pytest.raises(kernax.errors.NotPSDError):
        kernax.kernel_pca(kernel, places, 2)
    centring = np.eye(8) - 1 / 8
    expected = np.linalg.eigvalsh(centring @ INDEFINITE @ centring)[::-1]
    found = kernax.kernel_pca(kernel, places, 6, indefinite=True).value
    assert_close(8 * found.variances, np.where(expected[:6] > 1e-9, expected[:6], 0))
    with pytest.raises(kernax.errors.NotPSDError):
        kernax.kernel_pca(kernel, places, 7, indefinite=True)


def test_points_without_weight_are_no_components_of_an_indefinite_matrix():
    larger = np.zeros((11, 11))
    larger[:8, :8] = INDEFINITE
    weights = np.arange(11) < 8
    kernel = kernax.Precomputed(larger)
    kernax.kernel_pca(kernel, np.arange(11), 6, weights=weights, indefinite=True)
    with pytest.raises(kernax.errors.NotPSDError):
        kernax.kernel_pca(kernel, np.arange(11), 7, weights=weights, indefinite=True)


def test_gamma_scale_is_that_of_all_rows_whatever_their_weights_as_in_scikit_learn(table):
    X, y, Z = table
    weights = np.linspace(0.2, 2, 40) ** 2
    a = ours.SVC().fit(X, y > 0, weights)
    b = sklearn.svm.SVC(tol=1e-10).fit(X, y > 0, weights)
    np.testing.assert_allclose(a.gamma_, 1 / (3 * X.var()))
    np.testing.assert_allclose(a.decision_function(Z), b.decision_function(Z), atol=1e-6)


@pytest.mark.parametrize("most", [1, 2, 5, 19])
def test_a_machine_takes_no_more_steps_than_it_may(table, most):
    X, y, _ = table
    with pytest.warns(ConvergenceWarning, match=rf"terminated early \(max_iter={most}\)"):
        machine = ours.SVC(max_iter=most, C=10.0).fit(X, y > 0)
    assert machine.n_iter_ == most
    assert machine.fit_status_ == 1


def test_the_kernel_of_histograms_is_that_of_scikit_learn(table):
    X, _, Z = table
    X, Z = abs(X), abs(Z)
    X[:, 0] = Z[:, 0] = 0  # a bin that is empty everywhere
    for gamma in (None, 0.3):
        ridge = ours.KernelRidge(kernel="chi2", gamma=gamma).fit(X, X[:, 1])
        K = chi2_kernel(X, gamma=gamma or 1.0)
        expected = chi2_kernel(Z, X, gamma=gamma or 1.0) @ np.linalg.solve(K + np.eye(40), X[:, 1])
        assert_close(ridge.predict(Z), expected)
    with pytest.raises(ValueError, match="X contains negative values"):
        ridge.predict(-Z)
    with pytest.raises(ValueError, match="X contains negative values"):
        ridge.fit(-X, X[:, 1])


def test_the_affinities_are_those_of_scikit_learn(table):
    X, _, _ = table
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)
    cases = [
        (X, {"gamma": 0.5}),
        (X, {"affinity": "nearest_neighbors", "n_neighbors": 12}),
        (distances, {"affinity": "precomputed_nearest_neighbors", "n_neighbors": 12}),
        (abs(X), {"affinity": scaled_histogram, "kernel_params": {"scale": 0.7}}),
    ]
    for rows, given in cases:
        a = ours.SpectralClustering(2, random_state=0, **given).fit(rows)
        b = CLUSTERS(2, random_state=0, **given).fit(rows)
        expected = b.affinity_matrix_
        expected = expected if isinstance(expected, np.ndarray) else expected.toarray()
        assert_close(a.affinity_matrix_, expected)


@pytest.mark.slow
def test_clusters_are_assigned_by_pivots_and_by_as_many_eigenvectors_as_asked_for(table, capsys):
    X, _, _ = table
    given = {"n_clusters": 3, "random_state": 0, "gamma": 0.5}
    a = ours.SpectralClustering(assign_labels="cluster_qr", verbose=True, **given).fit(X)
    said = capsys.readouterr().out
    assert said.startswith("Computing label assignment using cluster_qr\n")
    assert "objective" in said
    expected = cluster_qr(np.asarray(a.clusters_.embedding))
    assert adjusted_rand_score(a.labels_, expected) == 1
    few = ours.SpectralClustering(n_components=2, **given).fit(X)
    assert few.clusters_.embedding.shape == (40, 2)
    assert capsys.readouterr().out == ""
    with pytest.raises(ValueError, match="n_components=2 must be n_clusters=3"):
        few.set_params(assign_labels="discretize").fit(X)


def test_columns_of_words_in_a_frame_are_named_and_labels_that_are_missing_too():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "town": ["u", "v", "w"], "n": ["1", "2", "3"]})
    with pytest.raises(ValueError, match=r"X holds words in column 'town': .*OneHotEncoder"):
        ours.KernelRidge().fit(frame, [1.0, 2.0, 3.0])
    numbers = frame[["a", "n"]]
    fitted = ours.KernelRidge().fit(numbers, [1.0, 2.0, 3.0])
    assert np.isfinite(fitted.predict(numbers)).all()
    with pytest.raises(ValueError, match="X holds words in column 'n'"):
        fitted.predict(pandas.DataFrame({"a": [1.0], "n": ["x"]}))
    with pytest.raises(ValueError, match=r"y holds no label in row 1 \(None\), one of 1"):
        ours.SVC().fit(np.arange(6.0).reshape(3, 2), ["a", None, "b"])


def test_a_row_whose_value_is_nan_is_neither_inside_nor_outside():
    X = np.random.default_rng(0).normal(size=(20, 2))
    machine: Any = ours.OneClassSVM().fit(X)
    machine.function_ = np.nan * machine.function_  # as of a fit that failed
    with pytest.raises(ValueError, match="the value of row 0 is NaN"):
        machine.predict(X)
