"""What a command is asked to leave out, to repeat, to write and to say before it begins."""

import csv
import io
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
from commands import run, runner, write
from conftest import assert_refused, needs_x32

from kernax.cli import console, fitting, resources
from kernax.cli.app import app
from kernax.cli.job import split_classes, split_numbers
from kernax.cli.table import read_table
from kernax.core.base.solution import RESULTS, Solution
from kernax.core.base.whole_files import write_whole
from kernax.errors import MemoryBudgetError, RunawayWarning
from kernax.preparation.encoders import Tokens
from kernax.selection.recipes import data_starts

pytestmark = (
    needs_x32  # once, in a process as users have it: the command line sets its own precision
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def patients(tmp_path, rng):
    """Identifiers, two groups in letters, a number with a hole, a long text, a useful number, and
    what to predict.
    """
    sequence = lambda: "".join(rng.choice(list("ACGT"), 20))
    rows = [
        (
            f"P,{i}",
            "mf"[i % 2],
            "n/a" if i == 3 else i / 8,
            sequence(),
            x.round(3),
            (2 * x).round(3),
            int(x > 0),
        )
        for i, x in enumerate(rng.normal(size=24))
    ]
    return write(tmp_path / "patients.csv", ["id", "sex", "age", "dna", "a b", "y", "sick"], rows)


@pytest.fixture
def stopped(monkeypatch):
    """Where the command would learn, it stops: what it was about to learn from."""
    seen = []

    def note(parts, kernel, model, *_):
        seen.append((parts, kernel, model))
        raise ValueError("about to learn")

    monkeypatch.setattr(fitting, "learn", note)
    return seen


@pytest.fixture
def unlearned(monkeypatch):
    """Learning takes seconds to compile: the model stays as it was."""
    monkeypatch.setattr(
        data_starts,
        "minimise",
        lambda loss, model, *_, **__: Solution(model, RESULTS.successful, {}),
    )


ALL_TEXT = ["--ignore", "id", "--ignore", "sex", "--ignore", "dna", "--ignore", "age"]


def test_ignored_columns_are_not_even_read(patients, stopped):
    result = run("fit", patients, "--target", "y", *ALL_TEXT, "--ignore", "sick")
    assert_refused(result, "about to learn")
    assert "24 rows, 1 input column;" in result.stdout
    assert stopped[0][0].inputs.columns == ("a b",)


@pytest.mark.parametrize(
    ("ignored", "words"),
    [
        (["ages"], "--ignore: {} has no column 'ages': did you mean 'age'?"),
        (["y"], "--ignore y: that is the column to predict"),
        (
            ["id", "sex", "age", "dna", "a b", "sick"],
            "no columns but the target 'y' and what is ignored",
        ),
    ],
)
def test_what_cannot_be_ignored_is_said(patients, ignored, words):
    options = [word for name in ignored for word in ("--ignore", name)]
    assert_refused(run("fit", patients, "--target", "y", *options), words.format(patients))


def test_groups_and_numbers_with_a_hole_become_numbers_and_the_one_hint_about_others_is_right(
    patients, stopped
):
    """Identifiers and long texts tell rows apart: the options that leave them out are named."""
    result = run("fit", patients, "--target", "y")
    assert_refused(result, "column 'id': 'P,0' is not a number, and 'id' holds 24 different texts")
    hint = result.stderr[result.stderr.index("(") :]
    assert hint == (
        "(leave the column out: --ignore id; neither can 'dna' become numbers: --ignore dna)\n"
    )
    following = ["--ignore", "id", "--ignore", "dna"]
    result = run("fit", patients, "--target", "y", *following)
    assert_refused(result, "about to learn")
    assert "24 rows, 4 input columns as 6 numbers; learning from" in result.stdout
    assert "2 categories of 'sex' became columns: f, m\n" in result.stdout
    assert re.search(
        r"1 empty cell of 'age' was filled with its median [\d.]+, and 'age missing' says which\n",
        result.stdout,
    )
    columns = ("sex=f", "sex=m", "age", "age missing", "a b", "sick")
    assert stopped[0][0].inputs.columns == columns


def test_a_hint_to_string_kernels_names_the_column_and_keeps_the_others(tmp_path, stopped):
    rows = [("GATTACA" + "ACGT"[i % 4] * (1 + i), "mf"[i % 2], i) for i in range(8)]
    data = write(tmp_path / "two.csv", ["the dna", "the sex", "y"], rows)
    kernel = 'rbf + text("the dna", normalised(spectrum(3)))'
    hint = f"(--kernel '{kernel}' compares this text; or leave the column out: --ignore 'the dna')"
    assert_refused(run("fit", data, "--target", "y"), hint)
    for written in (kernel, "rbf + normalised(spectrum(3))"):
        result = run("fit", data, "--target", "y", "--kernel", written)
        assert_refused(result, "about to learn")
        assert "1 input column as 2 numbers and the letters of 'the dna'" in result.stdout
        assert stopped[-1][0].inputs.columns == ("the sex=f", "the sex=m")


@pytest.mark.parametrize(
    ("values", "model", "words"),
    [
        (
            "01",
            None,
            "y is a column of classes (0 or 1 in every row): the model is logistic regression; "
            "--likelihood gaussian treats it as numbers",
        ),
        (["-1", "1.0"], None, "y is a column of classes (-1 or 1 in every row)"),
        ("12", None, None),
        (["0", "0.5", "1"], None, None),
        ("01", "gp", "the likelihood is one of classes; --likelihood gaussian"),
        (
            "01",
            "rvm",
            "the likelihood is one of classes; --model gp --likelihood gaussian",
        ),
        ("12", "gp", None),
        ("01", "ridge", None),
        ("01", "svm", None),
    ],
)
def test_zero_and_one_are_classes_unless_a_model_says_otherwise(
    tmp_path, stopped, values, model, words
):
    data = write(
        tmp_path / "signs.csv", ["x", "y"], [(i, values[i % len(values)]) for i in range(12)]
    )
    result = run("fit", data, "--target", "y", *(["--model", model] if model else []))
    assert_refused(result, "about to learn")
    assert stopped[0][2].model == (model or ("logistic" if words else "gp"))
    assert stopped[0][2].likelihood.of_classes == bool(words or model == "svm")
    assert (words or "12 rows") in result.stdout
    assert ("is a column of classes" in result.stdout) == bool(words)


def test_rows_are_drawn_from_those_to_learn_from_and_the_held_out_stay(patients, stopped):
    options = ("--target", "y", *ALL_TEXT)
    for arguments in ([], ["--rows", "5"], ["--rows", "5"], ["--rows", "100"]):
        result = run("fit", patients, *options, *arguments)
        assert ("learning from 5 of 18 rows, 6 held out" in result.stdout) == ("5" in arguments)
    whole, few, again, more = (parts for parts, *_ in stopped)
    np.testing.assert_array_equal(few.y_held_out, whole.y_held_out)
    np.testing.assert_array_equal(few.y, again.y)
    assert set(few.y) <= set(whole.y)
    np.testing.assert_array_equal(more.y, whole.y)
    assert_refused(run("fit", patients, *options, "--rows", "3"), "--rows must be at least 4")


def test_few_rows_hold_every_class_in_its_proportion(tmp_path):
    names = ["u"] * 60 + ["v"] * 20 + ["w"] * 4
    table = read_table(write(tmp_path / "three.csv", ["x", "y"], list(enumerate(names))), "y")
    count = lambda most: {
        name: int(sum(split_classes(table, 0, Tokens.LETTERS, most).y == name)) for name in "uvw"
    }
    assert count(4) == {"u": 2, "v": 1, "w": 1}
    assert count(21) == {"u": 15, "v": 5, "w": 1}
    assert split_classes(table, 0, Tokens.LETTERS, 21).unused == 42
    assert split_classes(table, 0, Tokens.LETTERS).unused == 0
    many = read_table(
        write(tmp_path / "many.csv", ["x", "y"], [(i, f"c{i % 5}") for i in range(20)]), "y"
    )
    with pytest.raises(ValueError, match="--rows 4 is fewer than the 5 classes of 'y'"):
        split_classes(many, 0, Tokens.LETTERS, 4)


@pytest.mark.slow
def test_kept_columns_stand_before_the_predictions_as_they_were_written(
    patients, tmp_path, unlearned
):
    model = tmp_path / "model"
    options = (
        "--target",
        "y",
        "--model",
        "ridge",
        "--kernel",
        "linear",
        *ALL_TEXT,
        "--ignore",
        "sick",
        "--out",
        model,
    )
    assert run("fit", patients, *options).exit_code == 0
    result = run("predict", model, patients, "--keep", "sex", "--keep", "id", "--keep", "sex")
    assert result.exit_code == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert list(rows[0]) == ["sex", "id", "y"]
    assert [row["id"] for row in rows] == [f"P,{i}" for i in range(24)]
    assert [row["sex"] for row in rows[:2]] == ["m", "f"]
    assert_refused(
        run("predict", model, patients, "--keep", "y"),
        "--keep y: that is the name of the prediction",
    )
    assert_refused(
        run("predict", model, patients, "--keep", "idd"), "has no column 'idd': did you mean 'id'?"
    )


def test_large_fits_say_what_they_will_take_before_they_begin(tmp_path, stopped, monkeypatch):
    monkeypatch.setattr(resources, "_WORTH_SAYING", 10)
    data = write(tmp_path / "many.csv", ["x", "y"], [(i, i * i) for i in range(20)])
    result = run("fit", data, "--target", "y")
    assert "an exact fit to 15 rows takes about 1 MiB of memory and " in result.stdout
    assert " s a start; --rows 10 learns from that many, drawn at random" in result.stdout
    assert "an exact fit" not in run("fit", data, "--target", "y", "--rows", "10").stdout


def test_the_expected_cost_grows_with_the_square_and_the_cube(monkeypatch):
    monkeypatch.setattr(resources, "_seconds_of_a_product", lambda: 0.01)
    assert resources.expected_cost("gp", 3000) is None
    assert "about 17.9 GiB of memory and 2 h a start" in resources.expected_cost("gp", 20000)
    assert "about 4.5 GiB of memory and 16 min a start" in resources.expected_cost("gp", 10000)


def test_a_matrix_that_does_not_fit_is_answered_with_what_a_command_can_do(patients, monkeypatch):
    def too_large(*_):
        raise MemoryBudgetError("900 GiB needed")

    monkeypatch.setattr(fitting, "learn", too_large)
    result = run("fit", patients, "--target", "y", *ALL_TEXT)
    assert result.exit_code == 1
    assert result.stderr == "error: 900 GiB needed; --rows N learns from fewer of them\n"


def test_a_place_where_no_file_can_be_written_is_named_before_learning(patients, tmp_path, stopped):
    options = ("--target", "y", *ALL_TEXT)
    assert_refused(
        run("fit", patients, *options, "--out", tmp_path / ("m" * 300)), f"--out {tmp_path}/mmm"
    )
    assert_refused(
        run("fit", patients, *options, "--out", tmp_path / ("m" * 300)),
        "cannot write a file there: File name too",
    )
    assert_refused(
        run("fit", patients, *options, "--out", tmp_path),
        "that is a folder, not a place for a file",
    )
    assert_refused(
        run("fit", patients, *options, "--out", "."), "--out .: that is a folder, not a place"
    )
    assert_refused(
        run("fit", patients, *options, "--out", "/dev/null"), "--out /dev/null: that is a device"
    )
    assert (
        run("fit", patients, *options, "--out", tmp_path / ("m" * 250)).stderr
        == "error: about to learn\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["patients.csv"]


def test_a_disk_that_fills_up_is_said_with_the_name_that_was_given(
    patients, tmp_path, unlearned, monkeypatch
):
    def full(*_):
        raise OSError(28, "No space left on device", "elsewhere")

    monkeypatch.setattr(os, "fsync", full)
    model = tmp_path / "model"
    result = run(
        "fit",
        patients,
        "--target",
        "y",
        "--model",
        "ridge",
        "--kernel",
        "linear",
        *ALL_TEXT,
        "--out",
        model,
    )
    assert result.exit_code == 2
    assert result.stderr == f"error: {model}: No space left on device\n"
    with pytest.raises(OSError, match="model"):
        write_whole(model, full)


def test_notes_call_parameters_by_the_names_of_the_expression(patients, monkeypatch):
    def learn(*_):
        warnings.warn(
            "kernel.terms[1].kernel.lengthscale and noise moved", RunawayWarning, stacklevel=1
        )
        raise ValueError("kernel.terms[1].scale is odd")

    monkeypatch.setattr(fitting, "learn", learn)
    result = run("fit", patients, "--target", "y", *ALL_TEXT, "--kernel", "2*matern52 + 3*rbf")
    assert_refused(result, "error: rbf.scale is odd")
    monkeypatch.setattr(console, "print_report", lambda *_: None)
    monkeypatch.setattr(
        fitting,
        "learn",
        lambda *_: warnings.warn("kernel.terms[1].kernel.lengthscale moved", stacklevel=1),
    )
    assert run(
        "fit", patients, "--target", "y", *ALL_TEXT, "--kernel", "2*matern52 + 3*rbf"
    ).stderr == ("note: rbf.lengthscale moved\n")


def test_numbers_are_split_as_before_when_all_rows_are_learned_from(tmp_path):
    table = read_table(write(tmp_path / "t.csv", ["x", "y"], [(i, i) for i in range(8)]), "y")
    order = np.random.default_rng(3).permutation(8)
    np.testing.assert_array_equal(split_numbers(table, 3, Tokens.LETTERS).y, order[2:])


def test_the_version_is_that_of_the_package():
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert result.stdout.startswith(f"kernax {project['version']}, jax ")


def test_control_c_while_the_package_is_imported_is_quiet(tmp_path):
    """The import is held up in a module that stands for JAX."""
    table = write(tmp_path / "table.csv", ["x", "y"], [[i, i] for i in range(8)])
    (tmp_path / "jax.py").write_text("import time; print('importing', flush=True); time.sleep(60)")
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["kernax"]
    module, function = entry.split(":")
    # Where the suite runs in the background, interrupts are ignored, and children inherit it.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    program = f"{heard}from {module} import {function}; {function}()"
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, "-c", program, "fit", str(table), "--target", "y"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (130, "")
    assert time.monotonic() - begin < 30
