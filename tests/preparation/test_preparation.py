"""Columns and classes prepared for learners, and predictors that answer in the user's units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, TOLERANCE, needs_x64
from scipy.special import gammaincc
from scipy.stats import nbinom, norm

import kernax as kx
from kernax import load, save
from kernax.errors import FeaturelessWarning, KernaxFileError
from kernax.files import load_predictor, save_predictor
from kernax.likelihoods import NegativeBinomial, Poisson
from kernax.preparation import Standards, predictors
from kernax.preparation.cells import Column
from kernax.preparation.counts import distribution_of_counts, quantile_of_counts
from kernax.preparation.encoders import Number, Text, Tokens, learned_text
from kernax.preparation.inputs import Inputs
from kernax.preparation.one_hot import columns_of_classes
from kernax.preparation.predictors import GP, LOGISTIC, RIDGE, SVM, ClassPredictor, Regressor
from kernax.preparation.standards import standards_of_columns, standards_of_target

n = 30


@pytest.fixture
def X(rng):
    return np.stack([1e6 + rng.normal(size=n), 5 * rng.normal(size=n)], 1)


@pytest.fixture
def inputs(X):
    return Inputs((Number("a"), Number("b")), "y", standards_of_columns(X, ("a", "b")))


def table(X, texts=None):
    """The columns a and b of numbers, and one of text if there is one."""
    columns = [Column.of_numbers(name, values) for name, values in zip("ab", X.T)]
    return columns + ([] if texts is None else [words("dna", texts)])


def words(name, cells):
    return Column(name, tuple(cells), tuple(f"row {i}" for i in range(len(cells))))


def regressor(inputs, X, kind):
    y = 10 + 4 * inputs.standards.standardised(X)[:, 0]
    target = standards_of_target(y, "y")
    points = jnp.asarray(inputs.points(table(X)), DTYPE)
    z = jnp.asarray(target.standardised(y), DTYPE)
    if kind == RIDGE:
        model = kx.kernel_ridge(kx.RBF(2.0), points, z, 0.01).value
    else:
        model = kx.condition(kx.GaussianProcess(kx.RBF(2.0)), points, z, 0.01).value
    return Regressor(inputs, kind, model, 0.01, target), y


def classifier(inputs, X, kind, classes):
    names = np.asarray(classes)[np.arange(n) % len(classes)]
    Y = jnp.asarray(columns_of_classes(names, classes), DTYPE)
    points = jnp.asarray(inputs.points(table(X)), DTYPE)
    if kind == SVM:
        model = kx.svm(kx.RBF(), points, 2 * Y[:, 1] - 1, 1.0).value
    elif len(classes) == 2:
        model = kx.kernel_logistic(kx.RBF(), points, 2 * Y[:, 1] - 1, 0.1).value
    else:
        model = kx.kernel_softmax(kx.RBF(), points, Y, 0.1).value
    return ClassPredictor(inputs, kind, model, 0.1, tuple(classes)), names


def test_columns_are_standardised_by_mean_and_deviation_and_come_back(X, inputs):
    Z = inputs.standards.standardised(X)
    np.testing.assert_allclose(Z.mean(0), 0, atol=1e-8)
    np.testing.assert_allclose(Z.std(0), 1, rtol=1e-8)
    np.testing.assert_allclose(inputs.standards.restored(Z), X, rtol=1e-14)
    np.testing.assert_array_equal(inputs.standards.standardised(X[3]), Z[3])


def test_a_constant_column_keeps_its_scale_and_one_that_over_or_underflows_is_named():
    constant = np.stack([np.full(3, 7.0), np.arange(3.0)], 1)
    np.testing.assert_array_equal(standards_of_columns(constant, ("a", "b")).scale[0], 1)
    for values in ([1e308, -1e308, 0.0], [0.0, 1e-320, 0.0]):
        with pytest.raises(ValueError, match="column 'b' cannot be standardised"):
            standards_of_columns(np.stack([np.arange(3.0), values], 1), ("a", "b"))
        with pytest.raises(ValueError, match="column 'y' cannot be standardised"):
            standards_of_target(np.array(values), "y")
    with pytest.raises(ValueError, match="column 'y' cannot be standardised"):
        standards_of_target(np.ones(3), "y")
    rounded = np.full(40, 0.007)
    assert rounded.std() > 0
    with pytest.raises(ValueError, match="column 'y' cannot be standardised"):
        standards_of_target(rounded, "y")


def test_columns_of_classes_are_in_the_order_that_is_given_and_a_stranger_is_named():
    labels = np.array(["v", "u", "v"])
    np.testing.assert_array_equal(
        columns_of_classes(labels, "vuw"), [[1, 0, 0], [0, 1, 0], [1, 0, 0]]
    )
    with pytest.raises(ValueError, match="labels hold 'u', which is not among the classes v, w"):
        columns_of_classes(labels, "vw")


def test_points_are_numbers_or_strings_or_pairs_of_both_and_say_what_they_are(X, inputs):
    texts = [f"{letter}CA" for letter in "AGT" * 10]
    text = learned_text("dna", texts, Tokens.LETTERS)
    assert text == Text("dna", Tokens.LETTERS, ("A", "C", "G", "T"))
    both = Inputs((*inputs.encoders, text), "y", inputs.standards)
    numbers, strings = both.points(table(X, texts))
    np.testing.assert_array_equal(numbers, inputs.points(table(X)))
    assert kx.gram(kx.Spectrum(2), strings).shape == (n, n)
    alone = Inputs((text,), "y", Standards(np.zeros(0), np.ones(0)))
    assert jax.tree.structure(alone.points(table(X, texts))) == jax.tree.structure(strings)
    assert str(inputs) == "'a', 'b'"
    assert str(both) == "'a', 'b' and the letters of 'dna'"
    assert str(alone) == "the letters of 'dna'"


@needs_x64
def test_cells_without_a_token_that_was_learned_from_are_counted():
    text = learned_text("note", ["good", "so bad"], Tokens.WORDS)
    assert text.alphabet == ("bad", "good", "so")
    inputs = Inputs((text,), "y", Standards(np.zeros(0), np.ones(0)))
    inputs.warn_of_strangers([words("note", ["good day"])])
    with pytest.warns(FeaturelessWarning, match="2 of 3 cells of 'note' hold none of the 3 words"):
        inputs.warn_of_strangers([words("note", ["", "day", "so so"])])


def test_numbers_are_predicted_in_the_units_of_the_target_with_the_noise_in_the_deviation(
    X, inputs
):
    ridge, y = regressor(inputs, X, RIDGE)
    process, _ = regressor(inputs, X, GP)
    mean, nothing = ridge.at(inputs.points(table(X)))
    same, deviation = process.at(inputs.points(table(X)))
    assert nothing is None
    np.testing.assert_allclose(mean, y, atol=0.5)
    np.testing.assert_allclose(same, mean, rtol=TOLERANCE["solve"])
    points = jnp.asarray(inputs.points(table(X)), DTYPE)
    variance = jax.vmap(process.model.variance)(points) + 0.01
    np.testing.assert_allclose(deviation, y.std() * np.sqrt(variance), rtol=1e-4)


@pytest.mark.nightly
def test_classes_are_decided_by_sign_or_largest_value_and_probabilities_agree(X, inputs):
    for classes in (("u", "v"), ("u", "v", "w")):
        predictor, names = classifier(inputs, X, LOGISTIC, classes)
        values = predictor.values(inputs.points(table(X)))
        p = np.exp(predictor.log_probabilities(values))
        np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
        np.testing.assert_array_equal(predictor.decide(values), np.asarray(classes)[p.argmax(1)])
        assert np.mean(predictor.decide(values) == names) > 0.6
        with pytest.raises(ValueError, match="a value is NaN"):
            predictor.decide(np.full_like(values, np.nan))
        with pytest.raises(ValueError, match="there is no column"):
            inputs.points(table(X)[1:])
    machine, _ = classifier(inputs, X, SVM, ("u", "v"))
    assert isinstance(machine.model, kx.KernelExpansion)
    assert machine.support.shape == (n,)
    np.testing.assert_array_equal(machine.support, np.asarray(machine.model.coefficients) != 0)


@needs_x64
def test_a_model_of_another_kind_or_of_other_classes_is_refused(X, inputs):
    ridge, _ = regressor(inputs, X, RIDGE)
    logistic, _ = classifier(inputs, X, LOGISTIC, ("u", "v"))
    with pytest.raises(ValueError, match="a KernelExpansion is not a gp"):
        Regressor(inputs, GP, ridge.model, 0.1, ridge.target)
    with pytest.raises(ValueError, match="'svm' is none of ridge, gp"):
        Regressor(inputs, SVM, ridge.model, 0.1, ridge.target)
    with pytest.raises(ValueError, match=r"shape \(\) cannot tell 3 classes apart"):
        ClassPredictor(inputs, LOGISTIC, logistic.model, 0.1, ("u", "v", "w"))


@pytest.mark.parametrize("kind", [RIDGE, GP, LOGISTIC, SVM])
def test_a_predictor_comes_back_from_its_file_and_predicts_the_same_bits(tmp_path, X, inputs, kind):
    if kind in (RIDGE, GP):
        predictor, _ = regressor(inputs, X, kind)
        answers = lambda predictor: predictor.at(predictor.inputs.points(table(X)))
    else:
        predictor, _ = classifier(inputs, X, kind, ("u", "v"))
        answers = lambda predictor: predictor.values(predictor.inputs.points(table(X)))
    save_predictor(tmp_path / "model", predictor)
    again = load_predictor(tmp_path / "model")
    assert type(again) is type(predictor)
    assert again.notes() == predictor.notes()
    for one, other in zip(jax.tree.leaves(answers(again)), jax.tree.leaves(answers(predictor))):
        np.testing.assert_array_equal(one, other)
    assert type(load(tmp_path / "model")) is type(predictor.model)


@needs_x64
@pytest.mark.parametrize("dispersion", [None, 0.5, 1e-3])
def test_the_distribution_of_counts_is_an_integral_over_the_rate_and_quantiles_invert_it(
    dispersion,
):
    """On a fine grid of f. Measured over variances up to 900: off by 9e-7 at most where nodes are
    close enough, and by 3e-5 where they are not, as for counts near 20000 of a rate of deviation 1.
    """
    likelihood = Poisson() if dispersion is None else NegativeBinomial(jnp.asarray(dispersion))
    mean = np.array([0.5, -1.0, 3.0, 2.0, 9.0, 4.0])
    variance = np.array([0.3, 4.0, 0.0, 1e-4, 1.0, 9.0])
    counts = np.array([1.0, 0.0, 18.0, 9.0, 20000.0, 60.0])
    z = np.linspace(-9, 9, 200_001)
    weights = norm.pdf(z) / norm.pdf(z).sum()
    rates = np.exp(mean[:, None] + np.sqrt(variance)[:, None] * z)
    if dispersion is None:
        given = gammaincc(counts[:, None] + 1, rates)
    else:
        given = nbinom.cdf(counts[:, None], 1 / dispersion, 1 / (1 + dispersion * rates))
    found = distribution_of_counts(likelihood, counts, mean, variance)
    np.testing.assert_array_less(abs(found - given @ weights), [1e-6] * 4 + [1e-4] * 2)
    centre = np.exp(mean + variance / 2)
    moments = (centre, (1 + (dispersion or 0) * centre) * centre + centre**2 * np.expm1(variance))
    for share in (0.025, 0.5, 0.975):
        q = quantile_of_counts(likelihood, share, mean, variance, moments)
        np.testing.assert_array_equal(q, np.round(q))
        assert np.all(distribution_of_counts(likelihood, q, mean, variance) >= share)
        assert np.all(distribution_of_counts(likelihood, q - 1, mean, variance) < share)


def test_text_comes_back_from_the_file_of_a_predictor(tmp_path):
    texts = ["good", "so bad", "so so"]
    text = learned_text("note", texts, Tokens.WORDS)
    inputs = Inputs((text,), "y", Standards(np.zeros(0), np.ones(0)))
    points = inputs.points([words("note", texts)])
    model = kx.kernel_ridge(kx.Spectrum(1), points, np.arange(3.0), 0.1).value
    target = Standards(np.asarray(0.0), np.asarray(1.0))
    save_predictor(tmp_path / "model", Regressor(inputs, RIDGE, model, 0.1, target))
    assert load_predictor(tmp_path / "model").inputs.texts == (text,)


@needs_x64
def test_a_file_of_something_else_is_no_predictor(tmp_path, X, inputs):
    predictor, _ = regressor(inputs, X, RIDGE)
    save(tmp_path / "bare", predictor.model)
    with pytest.raises(KernaxFileError, match=r"load it with kernax\.load"):
        load_predictor(tmp_path / "bare")
    for changes in ({"kind": "gp"}, {"kind": "tree"}, {"noise": "much"}, {"inputs": {}}):
        save(tmp_path / "other", predictor.model, notes=predictor.notes() | changes)
        with pytest.raises(KernaxFileError, match="is not what 'kernax fit --out' writes"):
            load_predictor(tmp_path / "other")


def test_predictions_of_a_table_again_compile_nothing(X, inputs, monkeypatch):
    """Each call compiled the loop over points and its remainder."""
    monkeypatch.setattr(predictors, "_VECTORS_AT_ONCE", 7)
    process, _ = regressor(inputs, X, GP)
    points = inputs.points(table(X))
    process.at(points)
    programs = []
    listen = lambda event, _, **__: programs.append(event) if "compile" in event else None
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        process.at(points)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert not [event for event in programs if "backend_compile" in event]
