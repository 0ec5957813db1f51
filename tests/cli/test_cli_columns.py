"""Columns that are not all numbers, from the command line: what is said of them, and that new rows
are prepared as those that were learned from.
"""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from commands import run, write
from conftest import assert_refused, needs_x32

import kernax as kx
from kernax.cli.app import fit
from kernax.cli.compared_columns import compared_columns, kernel_of_inputs, learned_inputs
from kernax.cli.notation import parameter_names
from kernax.cli.table import read_table
from kernax.core.base.solution import RESULTS, Solution
from kernax.preparation.encoders import Tokens
from kernax.selection.recipes import data_starts

pytestmark = (
    needs_x32  # once, in a process as users have it: the command line sets its own precision
)


@pytest.fixture
def unlearned(monkeypatch):
    """Learning takes seconds to compile: the model stays as it was."""
    as_it_was = lambda loss, model, *_, **__: Solution(model, RESULTS.successful, {})
    monkeypatch.setattr(data_starts, "minimise", as_it_was)


@pytest.fixture
def shop(tmp_path, rng):
    """Weeks of sales: dates, a category, sizes with holes, notes, and the price."""
    weeks = np.datetime64("2021-01-01") + 7 * np.arange(120)
    colours = rng.permutation(["red", "green", "blue"] * 40)
    sizes = rng.integers(1, 4, 120)
    price = 10 + 2 * (colours == "red") + np.sin(2 * np.pi * np.arange(120) / 52.2) + sizes
    holes = rng.permutation(120) < 10
    rows = zip(weeks, colours, np.where(holes, "NA", sizes.astype(str)), price.round(3))
    return write(tmp_path / "shop.csv", ["when", "colour", "size", "price"], rows)


@pytest.mark.slow
def test_each_decision_is_said_once_and_kept_for_new_rows(shop, tmp_path, unlearned):
    file = tmp_path / "model"
    result = run("fit", shop, "--target", "price", "--model", "ridge", "--out", file)
    assert result.exit_code == 0, result.stderr
    said = result.stdout.splitlines()
    assert said[0].endswith("3 input columns as 8 numbers; learning from 90 rows, 30 held out")
    assert re.fullmatch(
        r"dates of 'when', parsed as year-month-day, became days since 2021-01-\d\d, and sine and "
        r"cosine of the year",
        said[1],
    )
    assert said[2] == "3 categories of 'colour' became columns: blue, green, red"
    assert said[3] == (
        "10 empty cells of 'size' were filled with its median 2, and 'size missing' says which"
    )
    described = " ".join(run("describe", file).stdout.split())
    assert "for 'price', from 'when', 'colour', 'size'" in described
    assert "'colour': a column for each of blue, green, red; all are 0 for any other" in described
    assert "'size': empty cells are filled with 2, and 'size missing' says which" in described
    new = write(
        tmp_path / "new.csv",
        ["size", "colour", "when"],
        [("", "red", "2022-05-06"), (2, "red", "2022-05-06"), (2, "violet", "2022-05-06")],
    )
    result = run("predict", file, new)
    filled, known, strange = (
        float(row["price"]) for row in csv.DictReader(io.StringIO(result.stdout))
    )
    assert len({filled, known, strange}) == 3
    assert result.stderr == (
        "note: 1 of 3 cells of 'colour' holds a category that the training rows do not have, such "
        "as 'violet': all columns of 'colour' are 0 there\n"
    )
    wrong = write(tmp_path / "wrong.csv", ["size", "colour", "when"], [(2, "red", "6.5.2022")])
    assert_refused(
        run("predict", file, wrong),
        "line 2, column 'when': '6.5.2022' is not a date written as year-month-day",
    )
    words = write(tmp_path / "words.csv", ["size", "colour", "when"], [("L", "red", "2022-05-06")])
    assert_refused(run("predict", file, words), "line 2, column 'size': 'L' is not a number")


@pytest.mark.slow
def test_rows_without_a_target_are_left_out_and_counted(tmp_path, unlearned):
    """A batch of words, then numbers, where NA is as empty as it is among inputs."""
    rows = [(i, "uv"[i % 2], i % 3) for i in range(12)]
    holes = [(12, "", ""), (13, "", "NA"), (14, " ", "?")]
    data = write(tmp_path / "holes.csv", ["x", "kind", "size"], rows + holes)
    numbers = ("--target", "size", "--model", "ridge", "--ignore", "kind")
    result = run("fit", data, *numbers)
    assert result.exit_code == 0, result.stderr
    said = result.stdout.splitlines()
    assert said[0].endswith("12 rows, 1 input column; learning from 9 rows, 3 held out")
    assert said[1] == "3 rows have an empty 'size' and were left out"
    assert [*read_table(data, "kind").target.cells] == [row[1] for row in rows]
    one = write(tmp_path / "one.csv", ["x", "kind", "size"], rows + holes[:1])
    assert "1 row has an empty 'size' and was left out\n" in run("fit", one, *numbers).stdout


@pytest.fixture
def german(tmp_path, rng):
    """Decimal commas, in the target as well, with a hole; `b` has whole numbers alone."""
    a = rng.normal(size=40).round(3)
    b = rng.integers(0, 9, 40)
    y = (np.sin(a) + b + 0.01).round(3)
    comma = lambda number: str(number).replace(".", ",")
    lines = [f"{comma(p)};{q};{comma(r)}" for p, q, r in zip(a, b, y)]
    path = tmp_path / "german.csv"
    path.write_text("\n".join(["a;b;y", *lines, ";3;1,5"]) + "\n")
    return path


@pytest.mark.slow
def test_decimal_commas_are_read_as_the_same_table_with_points_is(german, tmp_path, unlearned):
    english = tmp_path / "english.csv"
    english.write_text(german.read_text().replace(",", ".").replace(";", ","))
    file = tmp_path / "model"
    options = ("--target", "y", "--model", "ridge", "--out", file)
    theirs = run("fit", english, *options)
    result = run("fit", german, *options)
    assert result.exit_code == 0, result.stderr
    said = result.stdout.splitlines()
    assert re.fullmatch(r"decimal commas of 'y' were converted: (\d+),(\d+) is \1\.\2", said[1])
    assert re.fullmatch(r"decimal commas of 'a' were converted: (-?\d+),(\d+) is \1\.\2", said[2])
    assert [said[0].replace("german", "english"), *said[3:]] == theirs.stdout.splitlines()
    assert "'a': numbers, written with decimal commas" in run("describe", file).stdout
    predictions = run("predict", file, german)
    assert predictions.stderr == ""
    assert run("predict", file, english).stdout == predictions.stdout


def test_new_rows_are_read_with_the_decimal_commas_that_were_learned_from(
    german, tmp_path, unlearned
):
    """What a comma or a point says is not guessed where it may be said in two ways."""
    file = tmp_path / "model"
    assert run("fit", german, "--target", "y", "--model", "ridge", "--out", file).exit_code == 0
    new = tmp_path / "new.csv"

    def predicted(text):
        new.write_text(text)
        return run("predict", file, new)

    usual = predicted("a;b\n1,234;2\n1;3\n")
    assert usual.exit_code == 0, usual.stderr
    assert predicted('a,b\n"1,234",2\n1,3\n').stdout == usual.stdout
    assert predicted("a,b\n1.234,2\n1,3\n").stdout == usual.stdout
    assert_refused(
        predicted("a;b\n1.234;2\n1;3\n2.5;3\n"),
        "line 2, column 'a': '1.234' has a point, but the model was fitted to numbers with decimal "
        "commas; likewise in line 4 ('2.5')",
    )
    noted = predicted("a;b\n1,234;2\n1;3,5\n")
    assert noted.stderr == "note: decimal commas of 'b' were converted: 3,5 is 3.5\n"


@pytest.mark.parametrize(
    ("name", "options"),
    [("a", []), ("y", []), ("y", ["--model", "ridge"]), ("y", ["--model", "logistic"])],
)
def test_one_point_among_decimal_commas_is_named_in_inputs_and_in_targets(
    german, name, options, tmp_path
):
    """Catches a message that blames the cells with a comma, or a target of many classes."""
    lines = [line.split(";") for line in german.read_text().splitlines()]
    place = lines[0].index(name)
    lines[11][place] = "61.3"
    data = tmp_path / "mixed.csv"
    data.write_text("\n".join(map(";".join, lines)) + "\n")
    commas = sum("," in line[place] for line in lines[1:])
    assert_refused(
        run("fit", data, "--target", "y", *options),
        f"line 12, column '{name}': '61.3' has a point, but {commas} numbers of the column have "
        "commas before decimals",
    )


def test_an_empty_date_is_refused_as_the_help_says(tmp_path):
    days = [f"2020-01-{day:02}" for day in range(1, 9)]
    days[3] = ""
    data = write(tmp_path / "days.csv", ["day", "y"], [[day, i] for i, day in enumerate(days)])
    assert_refused(
        run("fit", data, "--target", "y"),
        "line 5, column 'day': the cell is empty, and dates are not filled in",
    )
    assert "a table with an empty date is refused" in " ".join(fit.__doc__.split())


@pytest.mark.slow
def test_string_kernels_take_the_columns_that_they_name_or_add_up_over_free_texts(tmp_path, rng):
    letters = lambda: "".join(rng.choice(list("ACGT"), 8))
    rows = [(letters(), letters(), "uv"[i % 2], i % 5, i) for i in range(12)]
    data = write(tmp_path / "two.csv", ["p", "q", "kind", "x", "y"], rows)
    whole = read_table(data, "y")

    def points_and_kernel(expression):
        table = compared_columns(whole, expression, None)
        inputs = learned_inputs(table, np.arange(12), Tokens.LETTERS)
        points = inputs.points(table.inputs)
        return inputs, points, kernel_of_inputs(inputs, expression, per_column=False)

    inputs, points, kernel = points_and_kernel(
        "rbf*text('q', spectrum(2)) + text('p', spectrum(3))"
    )
    Z, p, q = points
    assert inputs.columns == ("kind=u", "kind=v", "x")
    wanted = kx.gram(kx.RBF(np.sqrt(3.0)), Z) * kx.gram(kx.Spectrum(2), q)
    wanted = wanted + kx.gram(kx.Spectrum(3), p)
    np.testing.assert_allclose(kx.gram(kernel, points), wanted, rtol=1e-5)
    inputs, points, kernel = points_and_kernel("normalised(mismatch(2))")
    assert inputs.columns == ()
    wanted = sum(kx.gram(kx.Normalised(kx.kernels.Mismatch(2, 1)), part) for part in points)
    np.testing.assert_allclose(kx.gram(kernel, points), wanted, rtol=1e-5)
    assert len(set(parameter_names(kernel).values())) == len(parameter_names(kernel))
    inputs, points, kernel = points_and_kernel("text('kind', spectrum(1))")
    assert inputs.names == ("kind",)
    np.testing.assert_array_equal(kx.gram(kernel, points), kx.gram(kx.Spectrum(1), points))


@pytest.mark.slow
def test_groups_are_found_in_categories_and_filled_numbers(tmp_path):
    rows = [("uv"[i % 2], "" if i == 3 else 10 * (i % 2) + i / 10) for i in range(12)]
    data = write(tmp_path / "groups.csv", ["kind", "x"], rows)
    result = run("cluster", data, "--clusters", 2, "--kernel", "rbf(lengthscale=1)")
    assert result.exit_code == 0, result.stderr
    assert "12 rows compared by 'kind', 'x'\n" in result.stdout
    assert "2 categories of 'kind' became columns: u, v\n" in result.stdout
    assert "1 empty cell of 'x' was filled with its median" in result.stdout
    assert "mean kind=u" in result.stdout
    texts = ("--kernel", "normalised(spectrum(1))")
    result = run("cluster", data, "--clusters", 2, *texts)
    assert "the kernel only compares text, and does not use 'x'\n" in result.stdout


@pytest.mark.slow
def test_prices_of_cars_are_predicted_better_with_words_and_holes_than_without(tmp_path):
    """UCI's automobiles: of 25 columns 15 are words, or numbers with empty cells. Measured over six
    seeds: errors of 2693 without them on average, and 2189 with them, smaller in each.
    """
    statsmodels = pytest.importorskip("statsmodels", reason="the table of cars is of statsmodels")
    source = Path(statsmodels.__file__).parent / "gam/tests/results/autos.csv"
    if not source.exists():
        pytest.skip("this version of statsmodels does not come with the table of cars")
    with source.open(encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    rows = [row for row in rows if row[-1]]
    are_numbers = [all(re.fullmatch(r"-?[\d.]+", cell) for cell in cells) for cells in zip(*rows)]
    assert sum(are_numbers) <= 11
    errors = []
    for kept in ([True] * len(header), are_numbers):
        pick = lambda row, kept=kept: [cell for cell, keep in zip(row, kept) if keep]
        data = write(tmp_path / "cars.csv", pick(header), map(pick, rows))
        result = run("fit", data, "--target", "price", "--seed", 1)
        assert result.exit_code == 0, result.stderr
        errors.append(float(re.search(r"gp learned\D*([\d.]+)", result.stdout)[1]))
    encoded, without = errors
    assert encoded < 0.9 * without
