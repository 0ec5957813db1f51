"""`kernax fit` for many rows: which way it takes, what it says of it, and what comes of it."""

import csv
import io
import os
import re
from typing import Any

import numpy as np
import pytest
from commands import run, write
from conftest import assert_refused, needs_x32
from threadpoolctl import threadpool_info, threadpool_limits

from kernax.cli import route
from kernax.cli.job import FitReport

pytestmark = needs_x32  # once: the command line sets its own precision


@pytest.fixture
def few_are_many(monkeypatch):
    """More than 100 rows are many, and 60 few."""
    monkeypatch.setattr(route, "MOST_WHOLE", 100)
    monkeypatch.setattr(route, "_OF_NUMBERS", 60)
    monkeypatch.setattr(route, "MOST_ROWS", 60)
    monkeypatch.setattr(route, "FEW_ROWS", 60)


@pytest.fixture
def waves(tmp_path, rng):
    """A smooth function of two columns, and a class that is its sign."""
    X = rng.uniform(-2, 2, (400, 2))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    y = 10 + 3 * f + 0.3 * rng.normal(size=400)
    numbers = write(tmp_path / "waves.csv", ["a", "b", "height"], np.column_stack([X, y]).round(5))
    signs = [(*x.round(5), "up" if value > 0 else "down") for x, value in zip(X, f)]
    return numbers, write(tmp_path / "signs.csv", ["a", "b", "kind"], signs), X, y


def scores(output):
    """The first score of each row of the table."""
    rows = re.findall(r"│ ([a-z][^│]*?) +│ +([\d.]+) ", output)
    return {name: float(score) for name, score in rows}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gp", "ridge"])
def test_numbers_of_many_rows_are_fitted_over_centres_and_it_says_so(
    waves, tmp_path, few_are_many, model
):
    data, _, _, y = waves
    saved = tmp_path / "model"
    chosen = ("--model", model, "--kernel", "rbf", "--centres", 40, "--out", saved)
    result = run("fit", data, "--target", "height", *chosen)
    assert result.exit_code == 0, result.stderr
    assert "learning from 300 rows, 100 held out" in result.stdout
    said = "300 rows: the kernel is learned from 60 of them, drawn at random, in about "
    assert said in result.stdout
    assert "all are fitted over 40 of them as centres, in about " in result.stdout
    found = scores(result.stdout)
    some = found[f"{model} learned, 60 rows"]
    whole = found[f"{model}, 300 rows, 40 centres"]
    assert whole < some < found["mean of the target"]
    assert whole < 0.36  # the noise is 0.3
    assert f"expect RMSE {whole:g}" in result.stdout
    assert (", NLPD " in result.stdout) == (model == "gp")
    assert " of rows like those held out; a larger --centres M shows" in result.stdout
    predicted = run("predict", saved, data)
    assert predicted.exit_code == 0, predicted.stderr
    rows = list(csv.DictReader(io.StringIO(predicted.stdout)))
    mean = np.array([float(row["height"]) for row in rows])
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.36
    if model == "gp":
        low, high = (
            np.array([float(row[f"height {end}"]) for row in rows]) for end in ("low", "high")
        )
        assert 0.9 < np.mean((low < y) & (y < high)) < 0.99
    assert "rbf.lengthscale[a]" in run("describe", saved).stdout


@pytest.mark.slow
def test_two_classes_of_many_rows_are_told_apart_over_centres(waves, tmp_path, few_are_many):
    _, data, X, _ = waves
    saved = tmp_path / "model"
    result = run("fit", data, "--target", "kind", "--kernel", "rbf", "--out", saved)
    assert result.exit_code == 0, result.stderr
    assert "300 rows: the kernel is learned from 60 of them" in result.stdout
    assert "fitted over 150 of them as centres" in result.stdout
    assert re.search(r"expect accuracy [\d.]+, log loss 0.\d+, AUC [\d.]+ of rows", result.stdout)
    found = scores(result.stdout)
    assert found["logistic, 300 rows, 150 centres"] > 0.9
    rows = list(csv.DictReader(io.StringIO(run("predict", saved, data).stdout)))
    up = np.array([row["kind"] == "up" for row in rows])
    assert np.mean(up == (np.sin(2 * X[:, 0]) + X[:, 1] > 0)) > 0.93
    p = np.array([[float(row["p(down)"]), float(row["p(up)"])] for row in rows])
    np.testing.assert_allclose(p.sum(1), 1, rtol=2e-10)  # as many digits are written


def test_models_without_centres_learn_from_some_rows_and_say_so(waves, few_are_many, monkeypatch):
    """Also a search for a kernel. Stopped where learning would begin."""
    numbers, signs, *_ = waves
    monkeypatch.setattr("kernax.cli.fitting.learn", refuse_to_learn)
    for data, target, given in (
        (signs, "kind", ("--model", "svm")),
        (signs, "kind", ("--model", "gp")),
        (numbers, "height", ("--model", "rvm")),
    ):
        result = run("fit", data, "--target", target, *given)
        assert "60 of 300 rows, drawn at random, are learned from" in result.stdout
        assert "learning from 60 of 300 rows" in result.stdout
        assert result.stderr == "error: about to learn\n"


def refuse_to_learn(*_):
    raise ValueError("about to learn")


@pytest.mark.slow
def test_what_is_asked_for_is_taken_or_refused_by_name(waves, few_are_many, monkeypatch):
    numbers, signs, *_ = waves
    monkeypatch.setattr("kernax.cli.fitting.learn", refuse_to_learn)
    whole = run("fit", numbers, "--target", "height", "--route", "whole")
    assert "centres" not in whole.stdout
    some = run("fit", numbers, "--target", "height", "--route", "rows")
    assert "60 of 300 rows, drawn at random, are learned from; --rows N" in some.stdout
    for rows in (40, 120):  # fewer than are taken unasked, and more
        given = run("fit", numbers, "--target", "height", "--route", "rows", "--rows", rows)
        assert f"learning from {rows} of 300 rows" in given.stdout
        assert "drawn at random, are learned from" not in given.stdout
    given = run("fit", signs, "--target", "kind", "--model", "svm", "--rows", 120)
    assert "learning from 120 of 300 rows" in given.stdout
    options = ("--target", "kind", "--model", "svm")
    assert_refused(
        run("fit", signs, *options, "--route", "centres"),
        "--route centres: svm is not fitted over centres: gp and ridge of numbers and logistic are",
    )
    assert_refused(
        run("fit", numbers, "--target", "height", "--route", "whole", "--centres", 9),
        "--centres 9 goes with --route centres, not with whole",
    )
    assert_refused(
        run("fit", numbers, "--target", "height", "--centres", 1), "--centres must be at least 2"
    )


def test_a_line_is_learned_from_whole(tmp_path, few_are_many, monkeypatch, rng):
    """Catches rows along a line that are sent over centres."""
    monkeypatch.setattr("kernax.cli.fitting.learn", refuse_to_learn)
    monkeypatch.setattr("kernax.core.operators.structure.MANY_POINTS", 100)
    t = np.sort(rng.uniform(0, 40, 400)).round(4)
    data = write(tmp_path / "line.csv", ["t", "y"], np.column_stack([t, np.sin(t).round(5)]))
    result = run("fit", data, "--target", "y", "--kernel", "matern52")
    assert "fitted along the line, exactly" in result.stdout
    assert "centres" not in result.stdout


def test_below_the_limit_nothing_is_said_of_ways(waves, monkeypatch):
    monkeypatch.setattr("kernax.cli.fitting.learn", refuse_to_learn)
    result = run("fit", waves[0], "--target", "height")
    assert "centres" not in result.stdout
    assert "drawn at random" not in result.stdout


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one thread is all there are")
def test_a_kernel_is_learned_from_few_rows_on_one_thread_however_many_there_are(
    tmp_path, monkeypatch, rng
):
    """Folds of a few hundred rows on two threads of OpenBLAS take many times as long, and never
    end on a busy machine.
    """
    threads = {}

    def seen(name, what):
        def call(*_):
            threads[name] = {
                pool["num_threads"]
                for pool in threadpool_info()
                if "scipy.libs" in pool["filepath"]
            }
            if name == "fit":
                raise ValueError("about to fit")
            return what

        return call

    monkeypatch.setattr("kernax.cli.fitting.learn", seen("learn", FitReport("", {}, (), Any)))
    monkeypatch.setattr("kernax.cli.fitting._fitted", seen("fit", None))
    rows = [(*x, "up" if x[0] > 0 else "down") for x in rng.normal(size=(2000, 2)).round(4)]
    data = write(tmp_path / "many.csv", ["a", "b", "kind"], rows)
    with threadpool_limits(2, user_api="blas"):
        result = run("fit", data, "--target", "kind", "--centres", 50)
    assert result.stderr.endswith("error: about to fit\n")  # after the bar
    if threads["learn"] == set():
        pytest.skip("the BLAS of this SciPy is not an OpenBLAS of its own")
    assert threads == {"learn": {1}, "fit": {2}}
