"""`kernax fit --kernel auto`: what it refuses, and what it prints, saves and reads again."""

import csv

import numpy as np
import pytest
from commands import run
from conftest import assert_refused, needs_x32

# Once, in a process as users have it: the command line sets its own precision.
pytestmark = needs_x32


def table(path, y):
    """Rows of a place, a text and a target."""
    rows = [(round(20 + i / 4, 4), "ab"[i % 2], value) for i, value in enumerate(y)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("place", "kind", "y"), *rows])
    return path


@pytest.fixture
def season(tmp_path):
    rng = np.random.default_rng(0)
    places = np.arange(60) / 4
    values = 3 * np.sin(2 * np.pi * places / 5) + 0.2 * rng.normal(size=60)
    return table(tmp_path / "season.csv", values.round(4))


@pytest.fixture
def classes(tmp_path):
    return table(tmp_path / "classes.csv", ["no", "yes"] * 20)


@pytest.mark.parametrize("model", ["ridge", "rvm"])
def test_another_model_of_numbers_is_refused_by_name(season, model):
    result = run(
        "fit", season, "--target", "y", "--ignore", "kind", "--kernel", "auto", "--model", model
    )
    assert_refused(result, f"the model here is {model}")


def test_classes_are_refused_for_the_default_model_and_for_a_process(classes):
    arguments = ("fit", classes, "--target", "y", "--ignore", "kind", "--kernel", "auto")
    assert_refused(run(*arguments), "the model here is logistic")
    assert_refused(run(*arguments, "--model", "gp"), "the likelihood here is bernoulli")


def test_a_column_of_text_is_refused_as_for_any_kernel_of_numbers(tmp_path):
    path = tmp_path / "notes.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [(i / 4, f"what was seen on day {i}", i % 7) for i in range(40)]
        csv.writer(file).writerows([("place", "note", "y"), *rows])
    assert_refused(run("fit", path, "--target", "y", "--kernel", "auto"), "'note'")


@pytest.mark.slow
def test_a_season_is_found_said_in_words_saved_and_its_expression_read_again(season, tmp_path):
    saved = tmp_path / "season.kernax"
    arguments = ("fit", season, "--target", "y", "--ignore", "kind", "--no-cache")
    result = run(*arguments, "--kernel", "auto", "--out", saved)
    assert result.exit_code == 0, result.stderr
    assert "a periodic component of period 5." in result.stdout
    assert "uncorrelated noise of deviation 0." in result.stdout
    (line,) = [text for text in result.stdout.splitlines() if text.startswith("--kernel '")]
    predictions = run("predict", saved, season)
    assert predictions.exit_code == 0, predictions.stderr
    assert len(predictions.stdout.splitlines()) == 61
    again = run(*arguments, "--kernel", line.removeprefix("--kernel '").removesuffix("'"))
    assert again.exit_code == 0, again.stderr
    # The report after the search is that of the expression.
    _, after = result.stdout.split(line + "\n")
    assert after.split("model: ")[0] in again.stdout
