"""Classes and counts by a Gaussian process from the command line: scores, predictions, files, bad
input.
"""

import csv
import io
import re

import jax
import numpy as np
import pytest
from commands import ring, run, write_points
from conftest import assert_refused, needs_x32
from scipy.stats import poisson
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import roc_auc_score

import kernax
from kernax.cli import fitting
from kernax.cli import latent_fits as latent
from kernax.files import load_predictor
from kernax.selection.recipes.stages import Stage, StageChoice

pytestmark = (
    needs_x32  # once, in a process as users have it: the command line sets its own precision
)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def scores(output, name):
    line = next(line for line in output.splitlines() if name in line)
    return [float(figure) for figure in re.findall(r"-?\d+\.?\d*", line.split(name)[1])]


@pytest.fixture
def unlearned(monkeypatch):
    """Learning takes long to compile: the model stays as it was."""

    def not_learned(start, X, y, labels, **_):
        stage = Stage("as written", start, np.zeros(len(y)))
        return StageChoice(stage, (stage,), ())

    monkeypatch.setattr(latent, "learn_latent", not_learned)


@pytest.mark.slow
def test_classes_are_scored_predicted_and_described_as_another_program_would(
    tmp_path, rng, unlearned
):
    """The evidence is scikit-learn's, to the digits printed; its probabilities are approximate, by
    the sum of five error functions. Measured: they differ by 0.002 at most.
    """
    X, inside = ring(rng)
    names = np.where(inside, "core", "shell")
    data = write_points(tmp_path / "ring.csv", X, names)
    model = tmp_path / "model"
    options = ("--target", "kind", "--model", "gp", "--kernel", "2*rbf(1.5)")
    result = run("fit", data, *options, "--out", model)
    assert result.exit_code == 0, result.stderr
    assert "is not a number): the likelihood is one of classes" in result.stdout
    order = np.random.default_rng(0).permutation(48)
    first = lambda name: [row for row in order if names[row] == name][:6]
    held_out = np.array([*first("core"), *first("shell")])
    kept = np.setdiff1d(order, held_out)
    X = X.round(6)
    Z = (X - X[kept].mean(0)) / X[kept].std(0)
    peer = GaussianProcessClassifier(ConstantKernel(2.0) * RBF(1.5), optimizer=None)
    peer.fit(Z[kept], names[kept])
    p = peer.predict_proba(Z)[:, 1]
    evidence = float(re.search(r"of 36 rows: (\S+) as written", result.stdout)[1])
    np.testing.assert_allclose(evidence, peer.log_marginal_likelihood_value_, atol=1e-3)
    true = names[held_out] == "shell"
    log_loss = -np.log(np.where(true, p[held_out], 1 - p[held_out])).mean()
    expected = (np.mean((p[held_out] > 0.5) == true), log_loss, roc_auc_score(true, p[held_out]))
    np.testing.assert_allclose(scores(result.stdout, "gp learned"), expected, atol=5e-3)
    rows = rows_of(run("predict", model, data).stdout)
    found = np.array([[float(row["p(core)"]), float(row["p(shell)"])] for row in rows])
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(found[:, 1], p, atol=5e-3)
    decided = np.where(found[:, 1] > 0.5, "shell", "core")
    np.testing.assert_array_equal([row["kind"] for row in rows], decided)
    said = run("describe", model).stdout
    assert "Gaussian process for 'kind', from 'a', 'b'\nclasses 'core', 'shell'\n" in said
    assert "likelihood bernoulli, constant mean 0, posterior by Laplace's" in said
    assert_refused(run("predict", model, data, "--interval", "0.9"), "predicts classes")


@pytest.mark.slow
def test_several_classes_are_the_softmax_of_a_process_for_each(tmp_path, rng, unlearned):
    """Against the library on the same standardised rows."""
    X, inside = ring(rng)
    names = np.where(inside, "core", np.where(X[:, 0] > 0, "right", "left"))
    data = write_points(tmp_path / "ring.csv", X, names)
    model = tmp_path / "model"
    options = ("--target", "kind", "--model", "gp", "--kernel", "2*rbf(1.5)", "--out", model)
    result = run("fit", data, *options)
    assert result.exit_code == 0, result.stderr
    assert "log evidence, by Laplace's approximation," in result.stdout
    rows = rows_of(run("predict", model, data).stdout)
    found = np.array([[float(row[f"p({name})"]) for name in sorted(set(names))] for row in rows])
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-9)
    assert np.mean([row["kind"] for row in rows] == names) > 0.9
    said = run("describe", model).stdout
    assert "likelihood categorical, the softmax of a process for each class, constant mean" in said
    for option in (("--inference", "ep"), ("--likelihood", "probit")):
        assert_refused(run("fit", data, *options, *option), "holds 3 classes")


@pytest.mark.slow
def test_counts_are_scored_beside_a_constant_rate_and_predicted_with_intervals(
    tmp_path, rng, unlearned
):
    X = rng.uniform(-2, 2, (48, 2))
    y = rng.poisson(np.exp(1 + np.sin(2 * X[:, 0])))
    data = write_points(tmp_path / "counts.csv", X, y, "visits")
    model = tmp_path / "model"
    options = ("--target", "visits", "--likelihood", "poisson", "--kernel", "rbf")
    result = run("fit", data, *options, "--out", model)
    assert result.exit_code == 0, result.stderr
    order = np.random.default_rng(0).permutation(48)
    kept, held_out = order[12:], order[:12]
    rate = y[kept].mean()
    error = np.sqrt(np.mean((y[held_out] - rate) ** 2))
    expected = error, -poisson.logpmf(y[held_out], rate).mean()
    np.testing.assert_allclose(scores(result.stdout, "constant rate"), expected, rtol=1e-4)
    rows = rows_of(run("predict", model, data, "--interval", "0.8").stdout)
    low, mean, high = (
        np.array([float(row[name]) for row in rows])
        for name in ("visits low", "visits", "visits high")
    )
    np.testing.assert_array_equal([low, high], np.round([low, high]))
    assert np.mean((low <= y) & (y <= high)) > 0.8
    error = np.sqrt(np.mean((y[held_out] - mean[held_out]) ** 2))
    np.testing.assert_allclose(scores(result.stdout, "gp learned")[0], error, rtol=1e-4)
    wide = rows_of(run("predict", model, data).stdout)
    assert np.all([float(row["visits high"]) for row in wide] >= high)
    assert np.mean([float(row["visits high"]) for row in wide] > high) > 0.5
    said = run("describe", model).stdout
    assert "likelihood poisson, constant mean" in said
    assert_refused(
        run("predict", model, data, "--interval", "95"), "--interval must be between 0 and 1"
    )
    assert_refused(  # whose half beside 1 is lost to rounding
        run("predict", model, data, "--interval", "0.9999999999999999"), "--interval must be"
    )
    with jax.enable_x64(True):
        predictor = load_predictor(model)
        notes = predictor.notes()
        kernax.save(model, predictor.model, notes=notes | {"classes": ["0", "1"]})
    assert notes["inference"] == "laplace"
    assert_refused(run("describe", model), "Poisson is not a likelihood of classes")


BAD = [
    (["--likelihood", "poisson"], ["1", "-2"], "line 3, column 'kind': '-2' is not a count: --l"),
    (["--likelihood", "negative-binomial"], ["1", "2.5"], "'2.5' is not a count: --likelihood ne"),
    (["--likelihood", "poisson"], ["1", "-2", "0.5"], "1, 2, ...; likewise in line 4 ('0.5')"),
    (["--likelihood", "poisson"], ["1", "many"], "line 3, column 'kind': 'many' is not a number"),
    (["--likelihood", "poisson"], ["3", "3"], "is constant"),
    (["--likelihood", "probit"], ["1", "0.5"], "'0.5' is a fraction, no class"),
    (["--likelihood", "gaussian"], ["u", "v"], " and 3 more lines (--model logistic or svm"),
    (
        ["--likelihood", "poisson", "--model", "ridge"],
        ["1", "2"],
        "--likelihood poisson is for --model gp, not for ridge",
    ),
    (["--inference", "ep"], ["1", "2"], "--inference ep is for classes and counts"),
    (
        ["--inference", "ep", "--model", "svm"],
        ["u", "v"],
        "--inference ep is for --model gp, not for svm",
    ),
    (
        ["--model", "gp", "--restarts", "2"],
        ["u", "v"],
        "--restarts 2: gp with classes or counts learns from one start; of numbers gp and ridge",
    ),
]


@pytest.mark.parametrize(("options", "names", "words"), BAD)
def test_options_and_targets_that_do_not_fit_are_refused_in_one_line_before_learning(
    tmp_path, rng, monkeypatch, options, names, words
):
    monkeypatch.setattr(fitting, "learn", None)
    data = write_points(tmp_path / "bad.csv", rng.normal(size=(8, 2)), names * 4)
    assert_refused(run("fit", data, "--target", "kind", *options), words)


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["laplace", "ep", "variational"])
def test_a_process_learns_rings_by_its_evidence_and_draws_them(tmp_path, rng, inference):
    X, inside = ring(rng)
    data = write_points(tmp_path / "ring.csv", X, inside.astype(int))
    picture = tmp_path / "ring.svg"
    options = ("--target", "kind", "--kernel", "rbf", "--inference", inference, "--plot", picture)
    result = run("fit", data, *options)
    assert result.exit_code == 0, result.stderr
    assert "--likelihood gaussian treats it as numbers" in result.stdout
    assert scores(result.stdout, "gp learned")[0] >= 0.9
    before, after = re.search(r"rows: (\S+) as written, (\S+) learned", result.stdout).groups()
    assert float(after) >= float(before)
    assert picture.stat().st_size > 0


@pytest.mark.slow
def test_counts_that_vary_more_than_their_rate_are_learned_with_their_dispersion(tmp_path, rng):
    X = rng.uniform(-2, 2, (80, 2))
    y = rng.poisson(np.exp(1.5 + np.sin(2 * X[:, 0])) * rng.gamma(2.0, 0.5, 80))
    data = write_points(tmp_path / "counts.csv", X, y, "visits")
    options = ("--target", "visits", "--likelihood", "negative-binomial", "--kernel", "rbf")
    result = run("fit", data, *options, "--plot", tmp_path / "counts.png")
    assert result.exit_code == 0, result.stderr
    learned, constant = scores(result.stdout, "gp learned"), scores(result.stdout, "constant rate")
    assert learned[1] < constant[1]
    dispersion = float(re.search(r"likelihood\.dispersion\W+([\d.e-]+)", result.stdout)[1])
    assert 0.1 < dispersion < 2
