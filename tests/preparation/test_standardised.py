"""Standardising as a module around a fitted function, and classes and probabilities from decision
values.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, X64, needs_x32, needs_x64
from scipy.special import expit, softmax

import kernax as kx
from kernax.calibration import isotonic, platt
from kernax.likelihoods import Bernoulli, Categorical
from kernax.preparation import (
    Classifier,
    Standardised,
    Standards,
    fit_classes,
    standardised_fit,
    standards_of,
)

n = 24
KERNEL = kx.RBF(1.5)


def ridge(X, y, weights):
    return kx.kernel_ridge(KERNEL, X, y, 0.1, weights=weights).value


def logistic(X, y, weights):
    function = kx.kernel_logistic if y.ndim == 1 else kx.kernel_softmax
    return function(KERNEL, X, y, 0.1, weights=weights).value


@pytest.fixture
def X(rng):
    return np.stack([3 + rng.normal(size=n), 100 * rng.normal(size=n)], 1).astype(DTYPE)


@pytest.fixture
def y(X):
    return (50 + 7 * np.sin(X[:, 0])).astype(DTYPE)


def test_standards_are_weighted_means_and_deviations_by_numpy_and_by_jax(X, rng):
    w = rng.integers(0, 3, n).astype(DTYPE)
    w[0] = 0
    repeated = np.repeat(np.asarray(X, float), w.astype(int), axis=0)
    for values in (X, jnp.asarray(X)):
        standards = standards_of(values, w)
        assert isinstance(standards.centre, type(values))
        np.testing.assert_allclose(standards.centre, repeated.mean(0), rtol=TOLERANCE["value"])
        np.testing.assert_allclose(standards.scale, repeated.std(0), rtol=TOLERANCE["value"])
        np.testing.assert_allclose(
            standards.restored(standards.standardised(values)), X, rtol=TOLERANCE["value"]
        )
    of_one = standards_of(X[:, 0])
    assert np.shape(of_one.centre) == ()
    np.testing.assert_allclose(of_one.scale, X[:, 0].astype(float).std(), rtol=1e-5)


def test_rows_of_weight_zero_leave_no_trace_in_standards_however_large_they_are(X):
    spoilt = X.copy()
    spoilt[:2] = np.finfo(DTYPE).max
    w = np.ones(n, DTYPE)
    w[:2] = 0
    for values in (spoilt, jnp.asarray(spoilt)):
        found = standards_of(values, w)
        wanted = standards_of(values[2:])
        np.testing.assert_allclose(found.centre, wanted.centre, rtol=TOLERANCE["value"])
        np.testing.assert_allclose(found.scale, wanted.scale, rtol=TOLERANCE["value"])


@pytest.mark.parametrize("far", [2.0, 1e6, 1e12, np.finfo(DTYPE).max])
def test_standards_have_second_derivatives_however_far_a_row_of_weight_zero_is(X, far):
    def second(values, w, direction):
        scales = lambda w: jnp.sum(standards_of(values, w).scale)
        return jax.jit(lambda w: jax.jvp(jax.grad(scales), (w,), (direction,))[1])(w)

    w = jnp.asarray([1, 2, 1, 0], DTYPE)
    spoilt = jnp.asarray(X[:4]).at[3, 0].set(far)
    assert jnp.all(jnp.isfinite(second(spoilt, w, jnp.ones_like(w))))
    # Where the weight of that row does not move, those of the others have theirs.
    found = second(spoilt, w, jnp.sign(w))
    wanted = second(spoilt[:3], w[:3], jnp.ones(3, DTYPE))
    tolerance = 1e4 * np.finfo(DTYPE).eps
    np.testing.assert_allclose(found[:3], wanted, rtol=tolerance, atol=tolerance)


def test_large_numbers_that_differ_little_keep_their_digits(rng):
    """The deviation of float32 numbers near 2^20, which are multiples of 1/8, is exact to rounding;
    so is that of NumPy's float64 numbers near 1e9, in a process without 64-bit mode as well.
    """
    steps = rng.integers(0, 9, n)
    near = (2.0**20 + steps / 8).astype(np.float32)
    np.testing.assert_allclose(standards_of(jnp.asarray(near)).scale, (steps / 8).std(), rtol=1e-6)
    noise = rng.normal(size=(n, 1))
    far = 1e9 + noise
    standardised = standards_of(far).standardised(far)
    np.testing.assert_allclose(standardised, (noise - noise.mean()) / noise.std(), atol=1e-6)
    y = np.sin(noise[:, 0])
    f = standardised_fit(ridge, far, y)
    g = standardised_fit(ridge, noise, y)
    # float64 near 1e9 is a multiple of 1.2e-7; measured off by 1.3e-7, in float32 by 6e-7.
    np.testing.assert_allclose(f.values(far), g.values(noise), atol=1e-6 if X64 else 1e-5)
    np.testing.assert_allclose(f(far[0]), g(noise[0]), atol=1e-6 if X64 else 1e-5)


def test_constant_columns_keep_their_unit_and_what_cannot_be_standardised_is_refused(X):
    constant = np.stack([X[:, 0], np.full(n, 7, DTYPE)], 1)
    assert standards_of(constant).scale[1] == 1
    f = standardised_fit(ridge, constant, np.full(n, 3, DTYPE))
    np.testing.assert_allclose(f(constant[0]), 3, rtol=TOLERANCE["value"])
    with pytest.raises(ValueError, match="column 1 of the values cannot be standardised"):
        standards_of(np.array([[1.0, 1e308], [2.0, -1e308], [3.0, 0.0]]))
    with pytest.raises(ValueError, match="values cannot be standardised"):
        standards_of(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match=r"shape \(n,\) or \(n, d\), n >= 1"):
        standards_of(np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match=r"weights must have shape \(24,\)"):
        standards_of(X, np.ones(3))
    with pytest.raises(ValueError, match="weights must not be negative"):
        standards_of(X, -np.ones(n))


@eqx.filter_jit
def scales(values, weights):
    return jax.vmap(lambda w: standards_of(values, w).scale)(weights)


@needs_x64
def test_a_batch_member_that_cannot_be_standardised_is_nan_alone(X):
    values = jnp.asarray(X).at[0, 1].set(jnp.nan)
    w = jnp.ones((2, n), DTYPE).at[1, 0].set(0)
    found = np.asarray(scales(values, w))
    np.testing.assert_array_equal(np.isnan(found), [[False, True], [False, False]])


def test_a_function_of_raw_points_is_the_one_of_standardised_points_in_the_targets_units(X, y):
    inputs = Standards(X.mean(0), X.std(0))
    target = Standards(y.mean(), y.std())
    Z = jnp.asarray(inputs.standardised(X))
    z = jnp.asarray(target.standardised(y))
    process = kx.condition(kx.GaussianProcess(KERNEL), Z, z, 0.1).value
    f = Standardised(process, inputs, target)
    tolerance = TOLERANCE["value"]
    np.testing.assert_allclose(f(X[0]), y.mean() + y.std() * process.mean(Z[0]), rtol=tolerance)
    np.testing.assert_allclose(f.mean(X[0]), f(X[0]))
    np.testing.assert_allclose(
        f.variance(X[0]), y.std() ** 2 * process.variance(Z[0]), rtol=tolerance
    )
    np.testing.assert_allclose(f.values(X)[0], f(X[0]), rtol=tolerance)
    np.testing.assert_allclose(jax.vmap(f.mean)(jnp.asarray(X))[0], f(X[0]), rtol=10 * tolerance)
    plain = Standardised(lambda x: jnp.sum(x), inputs)
    np.testing.assert_allclose(plain(X[0]), np.sum(Z[0]), rtol=tolerance)
    columns = standardised_fit(ridge, X, np.stack([y, -2 * y], 1))
    np.testing.assert_allclose(columns(X[1])[1], -2 * columns(X[1])[0], rtol=TOLERANCE["solve"])
    with pytest.raises(
        ValueError, match="variance: the function inside is of type KernelExpansion"
    ):
        columns.variance(X[0])


@pytest.mark.nightly
@needs_x64
def test_predictions_with_their_noise_come_in_units_and_squared_units(X, y):
    fit = lambda X, y, w: kx.relevance_vector_machine(KERNEL, X, y, noise=0.1).value
    f = standardised_fit(fit, X, y)
    mean, variance = f.predict(X[0])
    np.testing.assert_allclose(mean, f(X[0]))
    np.testing.assert_allclose(variance, f.variance(X[0]) + 0.1 * y.std() ** 2)


@needs_x64
def test_points_that_are_no_vectors_stay_as_they_are():
    texts = kx.strings.encode(["ACG", "CCA", "GTT", "ACC"])
    fit = lambda X, y, w: kx.kernel_ridge(kx.Spectrum(2), X, y, 1e-3).value
    y = np.array([1e6, 1e6 + 2, 1e6, 1e6 + 1])
    f = standardised_fit(fit, texts, y)
    assert f.inputs is None
    np.testing.assert_allclose(f.values(texts), y, atol=0.1)
    np.testing.assert_allclose(f(texts[1]), y[1], atol=0.1)
    with pytest.raises(ValueError, match=r"got a Solution: its \.value is the function"):
        standardised_fit(lambda X, y, w: kx.kernel_ridge(kx.Spectrum(2), X, y, 1e-3), texts, y)


def error(f, X, y, weights):
    return kx.metrics.root_mean_square_error(y, f.values(X), weights=weights)


@pytest.mark.slow
@needs_x64
def test_folds_standardise_by_their_own_rows_as_a_loop_that_removes_the_others_does(X, y):
    folds = kx.k_folds(n, 3, key=jax.random.key(0))
    fit = partial(standardised_fit, ridge)
    found = jax.jit(lambda X, y: kx.cross_validate(fit, error, X, y, folds).scores)(X, y)
    for fold in range(3):
        learned = np.asarray(folds.learn[fold])[np.asarray(folds.learn_weights[fold]) > 0]
        left_out = np.setdiff1d(np.arange(n), learned)
        f = standardised_fit(ridge, X[learned], y[learned])
        alone = np.sqrt(np.mean((f.values(X[left_out]) - y[left_out]) ** 2))
        np.testing.assert_allclose(found[fold], alone, rtol=1e-9)


@pytest.mark.parametrize("far", [False, pytest.param(True, marks=needs_x32)])
def test_a_standardised_function_comes_back_bitwise_from_its_file(tmp_path, X, y, far):
    """NumPy's float64 standards as well, in a process whose JAX has no float64."""
    data = X.astype(float) + 1e9 if far else X
    f = standardised_fit(ridge, data, y)
    kx.save(tmp_path / "f", f)
    again = kx.load(tmp_path / "f")
    assert again.inputs.centre.dtype == f.inputs.centre.dtype
    np.testing.assert_array_equal(again.values(data), f.values(data))


CLASSES = [("u", "v"), (3, 10), (False, True), ("a", "b", "c")]


@pytest.mark.slow
@pytest.mark.parametrize("classes", CLASSES, ids=str)
def test_labels_of_any_kind_are_predicted_with_the_probabilities_of_log_odds(X, classes):
    order = np.argsort(np.argsort(X[:, 0])) * len(classes) // n
    labels = [classes[place] for place in order]
    fit = partial(standardised_fit, logistic, target=False)
    classifier = fit_classes(fit, X, labels, log_odds=True)
    assert classifier.classes == classes
    assert type(classifier.predict(X[0])) is type(classes[0])
    assert np.mean(classifier.labels(X) == np.array(labels)) > 0.9
    value = np.asarray(classifier(X[0]), float)
    p = classifier.probability(X[0])
    wanted = softmax(value) if value.ndim else [expit(-value), expit(value)]
    np.testing.assert_allclose(p, wanted, rtol=1e-5)
    assert classifier.predict(X[0]) == classes[int(np.argmax(p))] == classifier.labels(X[:1])[0]


def signs_of(y):
    return np.where(y > np.median(y), "high", "low")


def machine(X, y, weights):
    return kx.svm(KERNEL, X, y, 1.0, weights=weights).value


@pytest.mark.slow
def test_a_machine_has_no_probabilities_unless_its_values_are_calibrated(X, y):
    Z = standards_of(X).standardised(X)
    classifier = fit_classes(machine, Z, signs_of(y))
    with pytest.raises(
        ValueError, match="are not known to be log odds, and have no probability: pass"
    ):
        classifier.probability(Z[0])
    signs = np.where(signs_of(y) == classifier.classes[1], 1.0, -1.0).astype(DTYPE)
    values = classifier.function.values(Z)
    sigmoid = platt(values, signs).value
    curve = isotonic(values, signs)
    for calibration in (sigmoid, curve):
        calibrated = Classifier(classifier.function, classifier.classes, calibration)
        p = calibrated.probability(Z[0])
        np.testing.assert_allclose(p[1], calibration(values[0]), rtol=1e-5)
        np.testing.assert_allclose(np.sum(p), 1, rtol=1e-6)
        assert calibrated.predict(Z[0]) == classifier.classes[int(np.argmax(p))]
    shifted = Classifier(lambda x: x[0], (0, 1), lambda f: jnp.clip(f - 1, 0, 1))
    assert shifted.predict(jnp.ones(1) * 1.2) == 0  # the value is positive, and class 0 likelier


def test_calibrations_of_several_classes_are_divided_by_their_sum():
    curves = (lambda f: 0.2 * f, lambda f: 0.4 * f, lambda f: 0.0 * f)
    classifier = Classifier(lambda x: x, ("a", "b", "c"), curves)
    np.testing.assert_allclose(classifier.probability(jnp.ones(3)), [1 / 3, 2 / 3, 0], rtol=1e-6)
    np.testing.assert_allclose(classifier.probability(jnp.zeros(3)), np.full(3, 1 / 3), rtol=1e-6)
    with pytest.raises(ValueError, match="calibration must be a tuple of 3"):
        Classifier(lambda x: x, ("a", "b", "c"), curves[:2])
    with pytest.raises(ValueError, match="must be one function, but is a tuple"):
        Classifier(lambda x: x[0], ("a", "b"), curves[:1])


def laplace(X, y, weights):
    process = kx.GaussianProcess(KERNEL)
    return kx.laplace(process, X, y, Bernoulli(), weights=weights).value


@pytest.mark.slow
@needs_x64
def test_a_posterior_gives_its_own_probability_where_points_are_standardised_inside(X, y):
    labels = signs_of(y)
    wrapped = fit_classes(partial(standardised_fit, laplace, target=False), X, labels)
    p = wrapped.function.function.probability(standards_of(X).standardised(X[3]))
    np.testing.assert_allclose(wrapped.probability(X[3]), [1 - p, p], rtol=1e-8)
    assert wrapped.predict(X[3]) == wrapped.classes[int(p > 0.5)]


@needs_x64
def test_the_value_of_a_standardised_posterior_is_the_mean_of_its_latent_function(X, y):
    f = standardised_fit(laplace, X, np.sign(y), target=False)
    latent = f.function.process.mean(standards_of(X).standardised(X[3]))
    np.testing.assert_allclose(f(X[3]), latent, rtol=1e-8)
    np.testing.assert_allclose(f.values(X[3:5])[0], latent, rtol=1e-8)


@needs_x64
@pytest.mark.nightly
def test_processes_of_several_classes_and_sparse_machines_give_their_own_probabilities(X, y):
    Z = standards_of(X).standardised(X)
    process = kx.GaussianProcess(KERNEL)
    labels = signs_of(y)
    relevant = lambda X, y, w: (
        kx.relevance_vector_machine(KERNEL, X, y, likelihood=Bernoulli()).value
    )
    sparse = lambda X, y, w: kx.import_vector_machine(KERNEL, X, y, 0.5).value
    for fit in (relevant, sparse):
        classifier = fit_classes(fit, Z, labels)
        p = classifier.function.probability(Z[3])
        np.testing.assert_allclose(classifier.probability(Z[3]), [1 - p, p], rtol=1e-9)
        assert classifier.predict(Z[3]) == classifier.classes[int(p > 0.5)]
    several = lambda X, Y, w: kx.laplace(process, X, Y, Categorical()).value
    three = fit_classes(several, Z, np.arange(n) % 3)
    np.testing.assert_allclose(three.probability(Z[3]), three.function.probability(Z[3]), rtol=1e-9)


@pytest.mark.nightly
@needs_x64
def test_one_machine_against_the_rest_for_each_class_decides_by_the_largest_value(X):
    Z = standards_of(X).standardised(X)
    labels = np.argsort(np.argsort(X[:, 0])) * 3 // n
    classifier = fit_classes(machine, Z, labels, one_vs_rest=True)
    values = np.asarray(classifier.function.values(Z))
    np.testing.assert_array_equal(classifier.labels(Z), values.argmax(1))
    assert np.mean(classifier.labels(Z) == labels) > 0.8


@pytest.mark.nightly
@needs_x64
def test_a_batch_of_classifiers_is_one_vmap_and_labels_need_concrete_values(X, y):
    Z = jnp.asarray(standards_of(X).standardised(X))
    signs, classes = kx.signs(signs_of(y))

    def fitted(ridge):
        function = kx.kernel_logistic(KERNEL, Z, signs, ridge).value
        return Classifier(function, classes, log_odds=True)

    batch = eqx.filter_vmap(fitted)(jnp.array([0.1, 1.0]))
    p = eqx.filter_vmap(lambda c: jax.vmap(c.probability)(Z))(batch)
    places = eqx.filter_vmap(lambda c: jax.vmap(c.index)(Z))(batch)
    alone = fitted(1.0)
    np.testing.assert_allclose(p[1], jax.vmap(alone.probability)(Z), rtol=1e-8)
    np.testing.assert_array_equal(np.array(classes)[places[1]], alone.labels(Z))
    with pytest.raises(ValueError, match=r"not an array: under jit or vmap use classifier\.index"):
        jax.jit(lambda x: alone.predict(x))(Z[0])


def test_a_value_of_nan_predicts_no_class():
    classifier = Classifier(lambda x: x[0], ("u", "v"), log_odds=True)
    assert classifier.index(jnp.full(1, jnp.nan)) == -1
    with pytest.raises(ValueError, match="a value is NaN"):
        classifier.predict(jnp.full(1, jnp.nan))
    with pytest.raises(ValueError, match="a value is NaN"):
        classifier.labels(jnp.full((2, 1), jnp.nan))


@needs_x64
def test_classifiers_of_wrong_parts_are_refused(X, y):
    f = ridge(X, y, None)
    with pytest.raises(ValueError, match=r"shape \(\) cannot tell 3 classes apart"):
        Classifier(f, ("a", "b", "c"))
    for classes in (("a",), ("a", "a"), "ab"):
        with pytest.raises(ValueError, match="classes must be"):
            Classifier(f, classes)
    with pytest.raises(ValueError, match="returns numbers, not decision values of classes"):
        Classifier(standardised_fit(ridge, X, y), ("a", "b"))
    with pytest.raises(ValueError, match="got a Solution"):
        Classifier(kx.kernel_ridge(KERNEL, X, y, 0.1), ("a", "b"))
    with pytest.raises(ValueError, match="calibration is a Solution"):
        Classifier(f, ("a", "b"), platt(y, np.sign(y - 50)))
    with pytest.raises(ValueError, match="at least two classes are needed"):
        fit_classes(logistic, X, ["u"] * n)
    with pytest.raises(ValueError, match="is this a regression"):
        fit_classes(logistic, X, y)


@needs_x64
def test_a_classifier_comes_back_from_its_file_with_its_labels(tmp_path, X, y):
    values = X[:, 0] - X[:, 0].mean()
    calibration = platt(values, np.where(y > 50, 1, -1)).value
    fit = partial(standardised_fit, machine, target=False)
    classifier = fit_classes(fit, X, y > 50, calibration=calibration)
    kx.save(tmp_path / "model", classifier)
    again = kx.load(tmp_path / "model")
    assert again.classes == (False, True)
    np.testing.assert_array_equal(again.probability(X[0]), classifier.probability(X[0]))
    assert again.predict(X[0]) is classifier.predict(X[0])
