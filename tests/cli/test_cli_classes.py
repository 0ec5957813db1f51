"""Classes from the command line: words and numbers, two and three, what is written, what is
refused.
"""

import csv
import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import ring, run, write_points
from conftest import assert_refused, needs_x32

import kernax
from kernax.cli.table import read_table
from kernax.cli.target import labels
from kernax.files import save_predictor
from kernax.preparation import Standards
from kernax.preparation.encoders import Number
from kernax.preparation.inputs import Inputs
from kernax.preparation.predictors import SVM, ClassPredictor

pytestmark = (
    needs_x32  # once, in a process as users have it: the command line sets its own precision
)


def accuracies(output, model):
    names = ("most frequent class", f"{model} as written", f"{model} learned")
    return [float(re.search(rf"{name}\D*([\d.]+)", output)[1]) for name in names]


@pytest.mark.slow
def test_words_are_learned_by_logistic_regression_unasked_and_predicted_with_probabilities(
    tmp_path, rng
):
    X, inside = ring(rng)
    data = write_points(tmp_path / "ring.csv", X, np.where(inside, "core", "shell"))
    model, picture = tmp_path / "model", tmp_path / "ring.svg"
    result = run(
        "fit", data, "--target", "kind", "--kernel", "rbf", "--out", model, "--plot", picture
    )
    assert result.exit_code == 0, result.stderr
    assert "kind is a column of classes (" in result.stdout
    assert (
        "line 2, column 'kind': 'core' is not a number): the model is logistic regression"
        in result.stdout
    )
    for measure in ("accuracy", "log loss", "AUC", "36 rows, 12 held out"):
        assert measure in result.stdout
    assert accuracies(result.stdout, "logistic")[2] >= 0.9
    assert "core" in picture.read_text()
    done = run("predict", model, data)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    p = np.array([[float(row["p(core)"]), float(row["p(shell)"])] for row in rows])
    np.testing.assert_allclose(p.sum(1), 1, rtol=2e-10)  # as many digits are written
    predicted = np.array([row["kind"] for row in rows])
    np.testing.assert_array_equal(predicted, np.where(p[:, 0] > 0.5, "core", "shell"))
    assert np.mean(predicted == np.where(inside, "core", "shell")) > 0.9
    said = run("describe", model).stdout
    assert (
        "kernel logistic regression for 'kind', from 'a', 'b'\nclasses 'core', 'shell'\nridge "
        in said
    )


@pytest.mark.slow
def test_numbers_are_classes_if_a_machine_is_asked_for_and_support_vectors_are_counted_and_ringed(
    tmp_path, rng
):
    X, inside = ring(rng)
    data = write_points(tmp_path / "ring.csv", X, np.where(inside, "1.0", "-1"))
    model, picture = tmp_path / "model", tmp_path / "ring.svg"
    result = run(
        "fit",
        data,
        "--target",
        "kind",
        "--kernel",
        "rbf",
        "--model",
        "svm",
        "--out",
        model,
        "--plot",
        picture,
    )
    assert result.exit_code == 0, result.stderr
    assert "log loss" not in result.stdout.split("learned, for")[0]
    assert "log loss, through Platt's sigmoid, of 36 rows in 4 folds" in result.stdout
    assert accuracies(result.stdout, "svm")[2] >= 0.9
    count = re.search(r"(\d+) of 36 rows are support vectors", result.stdout)
    assert 2 <= int(count[1]) < 36
    assert count[0] in run("describe", model).stdout
    assert "support vector" in picture.read_text()
    rows = list(csv.DictReader(io.StringIO(run("predict", model, data).stdout)))
    values = np.array([float(row["f(1)"]) for row in rows])
    np.testing.assert_array_equal([row["kind"] for row in rows], np.where(values > 0, "1", "-1"))
    assert np.mean((values > 0) == inside) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("model", ["logistic", "svm", "ivm", "rvm"])
def test_three_classes_are_told_apart_and_have_a_column_each(tmp_path, rng, model):
    names = np.repeat(["x", "y, or so", "z"], 16)
    X = rng.normal(size=(48, 2)) * 0.5 + np.repeat([[0, 0], [3, 0], [0, 3]], 16, 0)
    data, file = (
        write_points(tmp_path / "three.csv", X, [f'"{name}"' for name in names]),
        tmp_path / "model",
    )
    options = ("--target", "kind", "--kernel", "rbf(1)", "--model", model)
    result = run("fit", data, *options, "--out", file, "--plot", tmp_path / "three.png")
    assert result.exit_code == 0, result.stderr
    assert "AUC" not in result.stdout
    assert accuracies(result.stdout, model)[2] >= 0.9
    rows = list(csv.DictReader(io.StringIO(run("predict", file, data).stdout)))
    sign = "f" if model == "svm" else "p"
    figures = np.array(
        [[float(row[f"{sign}({name})"]) for name in ("x", "y, or so", "z")] for row in rows]
    )
    predicted = np.array([row["kind"] for row in rows])
    np.testing.assert_array_equal(predicted, np.array(["x", "y, or so", "z"])[figures.argmax(1)])
    assert np.mean(predicted == names) > 0.9


BAD = [
    ("svm", ["u"] * 8, "holds one class only, 'u'"),
    ("logistic", ["3"] * 8, "holds one class only, '3'"),
    ("svm", ["u", "v"] * 4 + ["w"], "line 10, column 'kind': class 'w' has a single row"),
    ("svm", ["u", "v"] * 4 + ["w", "z"], "hold out are needed; likewise in line 11 ('z')\n"),
    ("svm", [f"c{i}" for i in range(8)], "holds 8 classes in 8 rows: is this a regression?"),
    (None, [*map(str, range(7)), "oh"], "is this a regression?; "),
    (
        None,
        [*(f"{i}.5" for i in range(7)), "oh", "7.5", "no"],
        "line 9, column 'kind': 'oh' is not a number; likewise in line 11 ('no')\n",
    ),
    (
        "logistic",
        [*["1", "2"] * 4, "0.5"],
        "line 10, column 'kind': '0.5' is a fraction, no class: is this a regression?",
    ),
    (
        "svm",
        ["u", "v", "", "u"],
        "3 rows of classes, but at least 4 are needed: 1 row has an empty 'kind' and was left out",
    ),
    ("svm", ["1", "2", "inf", "1"], "line 4, column 'kind': 'inf' is not a finite number"),
    ("svm", ["u", "v", "u"], "3 rows of classes, but at least 4"),
    (
        "gp",
        ["0.1", "oh", "0.2", "0.3"],
        "line 3, column 'kind': 'oh' is not a number\n",
    ),  # numbers with a mistake, no classes
    (
        "ridge",
        ["u", "v", "u", "v"],
        "'u' is not a number; likewise in line 3 ('v'), line 4 ('u') and line 5 ('v') (--model "
        "logistic or svm takes classes)",
    ),
]


@pytest.mark.parametrize(("model", "names", "words"), BAD)
def test_targets_that_are_no_classes_or_no_numbers_are_refused_in_one_line(
    tmp_path, rng, model, names, words
):
    data = write_points(tmp_path / "bad.csv", rng.normal(size=(len(names), 2)), names)
    result = run("fit", data, "--target", "kind", *(["--model", model] if model else []))
    assert_refused(result, words)
    assert result.stdout == ""


def test_more_than_one_start_and_inputs_that_are_words_are_refused(tmp_path, rng):
    data = write_points(tmp_path / "two.csv", rng.normal(size=(8, 2)), ["u", "v"] * 4)
    assert_refused(
        run("fit", data, "--target", "kind", "--restarts", "2"), "logistic learns from one start"
    )
    assert_refused(
        run("fit", data, "--target", "b", "--model", "svm", "--kernel", "spectrum(2)*rbf"),
        "is a fraction, no class",
    )
    names = write_points(tmp_path / "names.csv", rng.normal(size=(8, 2)), list("abcdefgh"))
    assert_refused(run("fit", names, "--target", "a"), "column 'kind': 'a' is not a number, and")


def test_numbers_that_are_written_in_several_ways_are_one_class_and_stand_in_their_order(
    tmp_path, rng
):
    data = write_points(
        tmp_path / "ways.csv", rng.normal(size=(6, 2)), ["10", "1e1", "9", "9.0", "-0", "0"]
    )
    names, classes = labels(read_table(data, "kind"))
    assert classes == ("0", "9", "10")
    np.testing.assert_array_equal(names, ["10", "10", "9", "9", "0", "0"])


def test_a_class_of_a_value_that_overflows_is_refused_by_the_place_of_its_row(tmp_path):
    """Catches a message that does not say which row, as of the decision by itself."""
    inputs = Inputs((Number("a"),), "kind", Standards(np.zeros(1), np.ones(1)))
    with jax.enable_x64(True):
        function = kernax.KernelExpansion(
            kernax.Polynomial(3), jnp.array([[1.0], [2.0]]), jnp.array([1.0, -1.0]), jnp.array(0.0)
        )
        save_predictor(tmp_path / "model", ClassPredictor(inputs, SVM, function, 1.0, ("u", "v")))
    (tmp_path / "far.csv").write_text("a\n1\n1e300\n", encoding="utf-8")
    result = run("predict", tmp_path / "model", tmp_path / "far.csv")
    assert_refused(result, "far.csv, line 3: the row is too far")
