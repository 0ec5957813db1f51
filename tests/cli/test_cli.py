"""The command line: a fit from a file to a table and a picture, and one line on stderr for
everything that is wrong.
"""

import gzip
import os
import re
import struct
import subprocess
import sys
import warnings

import numpy as np
import pytest
from conftest import needs_x32
from matplotlib.figure import Figure
from typer.testing import CliRunner

import kernax
from kernax.cli import console, fitting
from kernax.cli.app import app
from kernax.cli.table import read_table
from kernax.cli.target import numbers
from kernax.plot import predicted_against_true

pytestmark = (
    needs_x32  # once, in a process as users have it: the command line sets its own precision
)

runner = CliRunner()
WORDS = {
    "gp": "Gaussian process",
    "ridge": "kernel ridge regression",
    "rvm": "relevance vector machine",
}


def write(path, header, rows, delimiter=","):
    path.write_text(
        "\n".join(delimiter.join(map(str, row)) for row in [header, *rows]) + "\n", encoding="utf-8"
    )
    return path


@pytest.fixture
def smooth(tmp_path, rng):
    """A smooth function of the first of two columns, with a little noise."""
    X = rng.uniform(-2, 2, (60, 2))
    y = 10 + 3 * np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)
    return write(tmp_path / "smooth.csv", ["a", "b", "height"], np.column_stack([X, y]).round(6))


def run(*arguments):
    """`kernax fit` with ridge, unless a model is named."""
    model = [] if "--model" in arguments else ["--model", "ridge"]
    return runner.invoke(app, ["fit", *model, *map(str, arguments)])


def errors_of(output, model):
    names = ("mean of the target", f"{model} as written", f"{model} learned")
    return [float(re.search(rf"{name}\D*([\d.]+)", output)[1]) for name in names]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ridge", "gp"])
def test_a_smooth_function_is_learned_and_drawn(smooth, tmp_path, model):
    picture = tmp_path / "fit.png"
    result = run(
        smooth, "--target", "height", "--kernel", "rbf", "--plot", picture, "--model", model
    )
    assert result.exit_code == 0, result.stderr
    assert "60 rows, 2 input columns; learning from 45 rows, 15 held out" in result.stdout
    mean, as_written, learned = errors_of(result.stdout, model)
    assert learned < as_written < mean
    assert ("NLPD" in result.stdout) == (model == "gp")
    assert "note" not in result.stderr or "eight powers of ten" in result.stderr
    assert learned < 0.5  # the target's deviation is 2.1, the noise 0.1
    assert f"picture: {picture}" in result.stdout
    header = picture.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", header[16:])
    assert 400 <= width <= 2000
    assert 400 <= height <= 2000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.png", "smooth.csv"]


@pytest.mark.slow
def test_the_irrelevant_column_gets_the_longer_lengthscale(smooth):
    output = run(smooth, "--target", "height", "--kernel", "rbf").stdout
    relevant, irrelevant = (
        float(re.search(rf"lengthscale\[{name}\]\D*([\d.]+)", output)[1]) for name in "ab"
    )
    assert irrelevant > 3 * relevant


def test_the_same_seed_gives_the_same_output_and_another_does_not(smooth):
    first, again, other = (
        run(smooth, "--target", "height", "--kernel", "rbf", "--seed", seed).stdout
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_what_takes_long_is_said_on_stderr_with_its_time_and_not_among_the_results(
    smooth, monkeypatch
):
    """A kernel of text learned for minutes without a word."""
    quick = run(smooth, "--target", "height", "--kernel", "rbf")
    assert quick.stderr == ""
    monkeypatch.setattr(console, "_LONG", -1.0)
    result = run(smooth, "--target", "height", "--kernel", "rbf")
    said = ["fitting the kernel as written"]
    said += [f"learning on folds: {i} of 5" for i in range(1, 6)]
    said += ["done"]
    lines = result.stderr.splitlines()
    assert [line.rsplit(", after ", 1)[0] for line in lines] == said
    assert all(re.fullmatch(r".*, after \d+ s", line) for line in lines)
    assert "learning " not in result.stdout.replace("learning from", "")


@pytest.mark.slow
def test_a_parameter_at_the_end_of_its_support_stays_there(smooth):
    result = run(smooth, "--target", "height", "--kernel", "polynomial(3, 0) + rbf(1)")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"offset\W+0 .*frozen", result.stdout)


def test_a_solve_that_overflows_is_one_line_and_exit_code_1(smooth, tmp_path):
    result = run(
        smooth,
        "--target",
        "height",
        "--kernel",
        "1e300*polynomial(500)",
        "--plot",
        tmp_path / "fit.png",
    )
    assert result.exit_code == 1
    assert_one_line(result.stderr, "NaN or inf")
    assert not (tmp_path / "fit.png").exists()


def test_control_c_ends_with_130_and_no_traceback(smooth, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "learn", interrupted)
    result = run(smooth, "--target", "height")
    assert result.exit_code == 130
    assert "Traceback" not in result.output


def test_nothing_half_written_is_left_when_drawing_fails(smooth, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    result = run(smooth, "--target", "height", "--kernel", "rbf", "--plot", tmp_path / "fit.png")
    assert result.exit_code == 2
    assert "No space left" in result.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["smooth.csv"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_tables_are_read_with_any_delimiter_mark_or_line_end(
    tmp_path, delimiter, encoding, newline
):
    text = "größe,y,z|1,2,3|4,5e-1,-6||7,8,9|1,1,1|".replace(",", delimiter).replace("|", newline)
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    table = read_table(path, "y")
    assert table.columns == ("größe", "z")
    assert [column.cells for column in table.inputs] == [tuple("1471"), ("3", "-6", "9", "1")]
    np.testing.assert_array_equal(numbers(table), [2, 0.5, 8, 1])


def assert_one_line(stderr, words):
    assert stderr.startswith("error: ")
    assert stderr.count("\n") == 1
    assert "Traceback" not in stderr
    assert words in stderr


FOUR = "1,2\n2,3\n3,5\n4,4\n"
BAD_TABLES = [
    ("", "is empty"),
    (" \n\n", "is empty"),
    ("x,y\n", "0 rows of numbers"),
    ("x,y\n1,2\n", "1 row of numbers, but at least 4"),
    ("x,y\n1,2\n2,3\n3,4\n", "3 rows of numbers, but at least 4"),
    ("x,z\n" + FOUR, "no column 'y': its columns are x, z"),
    ("x,yy\n" + FOUR, "did you mean 'yy'?"),
    ("y\n1\n2\n3\n4\n", "no columns but the target 'y'"),
    ("x,x,y\n1,1,2\n", "two columns called 'x'"),
    ("x,y,y\n1,1,2\n", "two columns called 'y'"),
    (",y\n0,1\n1,2\n", "column 1 of"),
    ("x,y\n" + FOUR + "5,six\n", "line 6, column 'y': 'six' is not a number\n"),
    (
        "x,y\n" + FOUR + "5,six\n6,7\n7,oh\n8,\n",
        "line 6, column 'y': 'six' is not a number; likewise in line 8 ('oh')\n",
    ),
    (
        "x,y\n" + FOUR + "".join(f"{x},b{x}\n" for x in range(9)),
        "'b0' is not a number; likewise in line 7 ('b1'), line 8 ('b2'), line 9 ('b3'), "
        "line 10 ('b4') and 4 more lines",
    ),
    ("x,y\n" + FOUR + "5,1_0\n", "'1_0' is not a number"),
    (
        'x,y\n1,2\n"2,5",3\n"1,234",3\n4,1\n',
        "line 3, column 'x': '2,5' is not a number: write a point before decimals, and nothing "
        "between thousands; likewise in line 4 ('1,234') (correct",
    ),
    (
        "x;y\n1.5;2\n2,5;3\n3;4\n4;1\n",
        "line 3, column 'x': '2,5' is not a number: write a point before decimals",
    ),
    ("x;y\n1,5;2\n1.234,5;3\n2,5;2\n4;1\n", "line 3, column 'x': '1.234,5' is not a number: "),
    ('x,"a\nb",y\n1,2,3\n1,2,oh\n', "line 4, column 'y': 'oh'"),
    ('x,z,y\n1,2,3\n"\n1\n",2,oh\n', "line 5, column 'y': 'oh'"),
    ("x,y\n\n" + FOUR + "\n\n5,six\n", "line 9, column 'y'"),
    ("x,y\r\n1,2\r\n2,six\r\n", "line 3, column 'y'"),
    ('x,y\n1,"a\nb"\n', r"line 2, column 'y': 'a\nb' is not a number"),
    ("x,y\n1," + "z" * 500 + "\n", "zzz...' is not a number"),
    ("x,y\n" + FOUR + "1,2,3\n", "line 6: there are 3 cells, but the header has 2"),
    ("x,y\n1,2\n2\n3,4\n", "line 3: there are 1 cell, but the header has 2"),
    ("x,y\n1,2\n2\n3,4\n4,5,6\n", "the header has 2; likewise in line 5 (3 cells)\n"),
    (
        "x,y\n1,2\n2,\n3,4\n,\n",
        "2 rows of numbers, but at least 4 are needed: 2 rows have an empty 'y' and were left out",
    ),
    ("x,y\n1,\n2,NA\n", "all cells of the target 'y' are empty"),
    ("x,y\n,1\nnan,2\nNA,3\n?,4\n", "all cells of column 'x' are empty (leave the column out: "),
    ("x,y\n1,2\ninf,3\n", "line 3, column 'x': 'inf' is not a finite number"),
    ("x,y\n1,2\n1,-inf\n", "line 3, column 'y': '-inf' is not a finite number"),
    ("x,y\n1,7\n2,7\n3,7\n4,7\n", "'y' is constant: it is 7 in every row"),
    ("x,y\n1,7\n2,7\n3,8\n4,7\n5,7\n", "'y' is constant in the training rows"),
    ("x,y\n1e200,1\n-1e200,2\n3,3\n4,4\n", "'x' cannot be standardised"),
    ("x,y\n1,1e200\n2,-1e200\n3,3\n4,4\n", "'y' cannot be standardised"),
    ('x,y\n1,"2\n3,4\n', "line 2"),
    ('x,y\n1,"2"3\n', "line 2"),
    ("x,y\n1,2\0\n", "line"),
    (
        b"x,y\n1,2\xff\n",
        "not text in UTF-8: byte 7, in line 2, cannot be decoded: save it in UTF-8",
    ),
    (gzip.compress(b"x,y\n1,2\n", mtime=0)[:-9], "is compressed by gzip, and cut short"),
    (b"PK\x03\x04\xff", "is a zip archive or a spreadsheet: unpack it, or save it as CSV"),
    ("x,y\n1,2\n".encode("utf-32"), "is text in UTF-32: save it in UTF-8"),
    ("x|y\n1|2\n", "its columns are x|y; if | divides the cells, write commas, semicolons or tabs"),
    ("x y\n1 2\n", "if spaces divide the cells, write commas, semicolons or tabs in place of them"),
    ("1,2\n" + FOUR, "all cells of the first line are numbers, and were read as the names"),
    ("1,1\n" + FOUR, "names must differ; all cells of the first line are numbers"),
    (
        "x,y\n12.5%,1\n13%,2\n14%,3\n15%,4\n",
        "'12.5%' is not a number (write it without the percent sign, for one unit in the whole "
        "column), and 'x' holds 4 different texts in as many rows, which tell rows apart and not "
        "groups of them (correct such cells, or leave",
    ),
    (
        'x,y\n1,"1,730.28"\n2,"1,200"\n3,"2,500"\n4,"3,100.5"\n',
        "'1,730.28' is not a number: write a point before decimals, and nothing between thousands",
    ),
    (
        "x,y\n1 730.5,2\n1 200,3\n2 500,4\n3 100,5\n",
        "'1 730.5' is not a number (write a point before decimals, and nothing between thousands)",
    ),
    (
        "x,y\n1,2\n2,3\n-,4\n4,5\n",
        "line 4, column 'x': '-' is not a number: leave the cell empty if the value is missing",
    ),
    ("x,y\n" + "1" * 200_000 + ",2\n", "field larger than field limit"),
    ('x,y\n"' + "0,1\n" * 40_000, "line 2: field larger than field limit"),
]


_PLAIN = "größe,y\n1.5,0.25\n2.5,0.5\n"
WRITTEN_OTHERWISE = {
    "compressed": (gzip.compress(_PLAIN.encode(), mtime=0), None),
    "UTF-16": (_PLAIN.encode("utf-16"), None),
    "Latin-1": (_PLAIN.encode("latin-1"), "not in UTF-8, read as Latin-1: line 1 is 'größe,y'"),
    "a delimiter at the end of lines": (_PLAIN.replace("\n", ",\n").encode(), None),
    "comments above": (f"# 2020\n#\n{_PLAIN}".encode(), "2 lines of comments above the header"),
    "Fortran": (_PLAIN.replace("0.5", ".5D+00").replace("0.25", "2.5d-01").encode(), None),
}


@pytest.mark.parametrize("name", WRITTEN_OTHERWISE)
def test_a_table_written_in_another_way_is_the_same_table(tmp_path, name):
    contents, note = WRITTEN_OTHERWISE[name]
    path = tmp_path / "table.csv"
    path.write_bytes(contents)
    with warnings.catch_warnings(record=True, action="always") as notes:
        table = read_table(path, "y")
    assert table.columns == ("größe",)
    assert table.inputs[0].cells == ("1.5", "2.5")
    assert list(map(float, table.target.cells)) == [0.25, 0.5]
    first = 4 if "comments" in name else 2
    assert table.target.places == (f"line {first}", f"line {first + 1}")
    assert [note in str(seen.message) for seen in notes] == ([True] if note else [])


def test_a_header_that_begins_with_a_hash_is_no_comment(tmp_path):
    """As numpy.savetxt writes it."""
    path = tmp_path / "table.csv"
    path.write_text("# from a run\n# x,y\n1.5,0.25\n2.5,0.5\n")
    with pytest.warns(UserWarning, match="1 line of comments above the header left out"):
        assert read_table(path, "y").columns == ("# x",)


def test_a_first_line_of_numbers_alone_is_used_as_names_with_a_note(tmp_path):
    """A table without a header would lose its first row in silence."""
    table = tmp_path / "headless.csv"
    table.write_text("1.5;2.5;3,5\n" + "1;2;1\n2;3;2\n4;1;4\n3;3;1\n")
    result = run(table, "--target", "3,5", "--model", "ridge")
    assert result.exit_code == 0, result.stderr
    assert "all cells of the first line are numbers, and were read as the names" in result.stderr
    table.write_text("1.5,y\n" + FOUR)
    assert "first line" not in run(table, "--target", "y", "--model", "ridge").stderr


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links and devices of POSIX")
def test_a_loop_of_links_and_a_link_to_an_endless_device_are_one_line(tmp_path):
    loop = tmp_path / "loop.csv"
    loop.symlink_to(loop)
    endless = tmp_path / "endless.csv"
    endless.symlink_to("/dev/zero")
    table = tmp_path / "table.csv"
    table.write_text("x,y\n" + FOUR)
    picture = tmp_path / "loop.png"
    picture.symlink_to(picture)
    for words, *arguments in (
        ("loop.csv cannot be read", loop, "--plot", tmp_path / "fit.png"),
        ("loop.csv: cannot write a file there", table, "--out", loop),
        ("loop.png: cannot write a file there", table, "--plot", picture),
        ("endless.csv is a device, not a CSV file", endless),
    ):
        result = run(*arguments, "--target", "y")
        assert result.exit_code == 2
        assert_one_line(result.stderr, words)


@pytest.mark.parametrize(("content", "words"), BAD_TABLES)
def test_a_bad_table_is_one_line_that_says_where(tmp_path, content, words):
    path = tmp_path / "bad.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    result = run(path, "--target", "y", "--plot", tmp_path / "fit.png")
    assert result.exit_code == 2
    assert_one_line(result.stderr, words)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seed", "-1"], "--seed must not be negative"),
        (["--kernel", "rfb"], "no kernel called rfb: did you mean rbf"),
        (["--kernel", ""], "kernel expression is empty"),
        (["--kernel", "rbf - linear"], "a difference of kernels is not a kernel"),
        (["--kernel", "-2*rbf"], "Scaled.scale must be in [0, inf)"),
        (["--kernel", "rbf([1, 2, 3])"], "a list of 3 numbers, but must have 2, one per column"),
        (["--plot", "nowhere/fit.png"], "there is no folder nowhere"),
        (["--plot", "fit.docx"], "must end in .png, .pdf or .svg"),
        (["--plot", "fit"], "must end in .png, .pdf or .svg"),
        (["--out", "nowhere/model"], "--out nowhere/model: there is no folder nowhere"),
        (["--restarts", "0"], "--restarts must be between 1 and 1000"),
    ],
)
def test_a_bad_option_is_one_line_before_anything_is_learned(smooth, monkeypatch, arguments, words):
    monkeypatch.setattr(fitting, "learn", lambda *_: pytest.fail("learning had begun"))
    before = set(smooth.parent.iterdir())
    result = run(smooth, "--target", "height", *arguments)
    assert result.exit_code == 2
    assert_one_line(result.stderr, words)
    assert set(smooth.parent.iterdir()) == before


def test_no_command_overwrites_what_it_reads_or_writes_besides(smooth, monkeypatch):
    monkeypatch.setattr(fitting, "learn", lambda *_: pytest.fail("learning had begun"))
    monkeypatch.setattr(
        "kernax.files.load_predictor", lambda *_: pytest.fail("predicting had begun")
    )
    table, before = smooth.read_text(), set(smooth.parent.iterdir())
    again, model, picture = (
        smooth.parent / ".." / smooth.parent.name / smooth.name,
        smooth.parent / "m",
        smooth.parent / "p.png",
    )
    for command in (
        ["fit", smooth, "--target", "height", "--out", again],
        ["fit", smooth, "--target", "height", "--out", picture, "--plot", picture],
        ["predict", model, smooth, "--out", again],
        ["predict", model, smooth, "--out", model],
    ):
        result = runner.invoke(app, [str(word) for word in command])
        assert result.exit_code == 2
        assert_one_line(result.stderr, "would overwrite")
        assert result.stdout == ""
    assert (smooth.read_text(), set(smooth.parent.iterdir())) == (table, before)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path, words in [
        (tmp_path / "none.csv", "there is no file"),
        (tmp_path, "is a folder, not a CSV file"),
    ]:
        result = run(path, "--target", "y")
        assert result.exit_code == 2
        assert_one_line(result.stderr, words)


@pytest.mark.parametrize(
    ("option", "package"), [("--plot", "matplotlib"), ("--out", "safetensors")]
)
def test_what_needs_a_missing_package_is_refused_before_the_fit(
    smooth, tmp_path, monkeypatch, option, package
):
    monkeypatch.setitem(sys.modules, package, None)
    result = run(smooth, "--target", "height", option, tmp_path / "fit.png")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert_one_line(result.stderr, "pip install 'kernax-toolkit[cli]'")


@pytest.mark.slow
def test_predictions_that_overflow_are_refused(smooth, tmp_path):
    assert (
        run(
            smooth, "--target", "height", "--kernel", "polynomial(3)", "--out", tmp_path / "m"
        ).exit_code
        == 0
    )
    far = tmp_path / "far.csv"
    far.write_text(
        smooth.read_text().splitlines()[0]
        + "\n"
        + ",".join(["1e300"] * len(smooth.read_text().splitlines()[0].split(",")))
        + "\n"
    )
    result = runner.invoke(app, ["predict", str(tmp_path / "m"), str(far)])
    assert result.exit_code == 2
    assert_one_line(result.stderr, "far.csv, line 2: the row is too far")


def test_column_names_are_never_read_as_markup_or_mathematics(tmp_path, rng):
    path = write(tmp_path / "odd.csv", ["[red]", "b", "$x_ [/m]"], rng.normal(size=(60, 3)))
    result = run(path, "--target", "$x_ [/m]", "--kernel", "rbf", "--plot", tmp_path / "fit.svg")
    assert result.exit_code == 0, result.stderr
    assert "lengthscale[[red]]" in result.stdout
    assert "units of $x_ [/m]" in result.stdout
    assert "<svg" in (tmp_path / "fit.svg").read_text()


PROBE = """
import sys, kernax
print(sorted({"typer", "rich", "matplotlib", "sklearn"} & set(sys.modules)))
"""


def test_importing_kernax_imports_none_of_the_command_lines_packages():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


WITHOUT_JAX = """
import sys
sys.modules["jax"] = None
from kernax.__main__ import command
command()(sys.argv[1:], prog_name="kernax")
"""


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fit", "--help"], 0, "--kernel"),
        (["fit", "TABLE", "--target", "heigth"], 2, "did you mean 'height'?"),
        (["fit", "TABLE", "--target", "height", "--rows", "1"], 2, "--rows must be at least 4"),
        (["cluster", "missing.csv", "--clusters", "2"], 2, "there is no file missing.csv"),
        (["fit", "TABLE", "--target", "height", "--kernel", "rfb"], 2, "did you mean rbf?"),
        (["fit", "TABLE", "--target", "height", "--kernel", "rbf +"], 2, "cannot be parsed"),
        (["cluster", "TABLE", "--clusters", "2", "--kernel", "on(rfb, 1)"], 2, "did you mean rbf?"),
        (["predict", "missing.model", "TABLE"], 2, "there is no file missing.model"),
        (["predict", "TABLE", "TABLE"], 2, "is not a kernax model"),
        (["describe", "missing.model"], 2, "there is no file missing.model"),
    ],
)
def test_help_and_refused_files_and_words_need_no_jax(smooth, arguments, code, words):
    given = [str(smooth) if word == "TABLE" else word for word in arguments]
    command = [sys.executable, "-c", WITHOUT_JAX, *given]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == code
    assert words in done.stdout + done.stderr


def test_the_module_runs_as_a_program_and_says_what_to_install(smooth):
    command = [sys.executable, "-m", "kernax", "fit", str(smooth), "--target", "heigth"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert_one_line(done.stderr, "did you mean 'height'?")
    without = (
        "import sys, runpy; sys.modules['typer'] = None; runpy.run_module('kernax', "
        "run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
    assert done.returncode == 2
    assert_one_line(done.stderr, "pip install 'kernax-toolkit[cli]'")


def test_the_picture_draws_on_the_axes_it_is_given_and_refuses_what_it_cannot_draw():
    ax = Figure().subplots()
    true = np.array([1.0, 2.0])
    assert predicted_against_true(true, true + 0.5, name="height", ax=ax) is ax
    assert ax.get_title(loc="left").endswith("RMSE 0.5")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("true height", "predicted height")
    assert ax.get_xlim() == ax.get_ylim()
    assert len(predicted_against_true(true[:1], true[:1]).collections) == 1
    with pytest.raises(ValueError, match="one shape"):
        predicted_against_true(true, true[:1])
    with pytest.raises(ValueError, match="finite"):
        predicted_against_true(true * np.nan, true)


@pytest.mark.parametrize(
    "model", ["ridge", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gp", "rvm"))]
)
def test_a_written_model_predicts_what_the_fit_predicted_for_columns_in_any_order(
    smooth, tmp_path, model
):
    file, out = tmp_path / "model", tmp_path / "predicted.csv"
    assert (
        run(
            smooth, "--target", "height", "--kernel", "rbf", "--model", model, "--out", file
        ).exit_code
        == 0
    )
    rows = np.genfromtxt(smooth, delimiter=",", names=True)
    other = write(
        tmp_path / "other.csv",
        ["note", "b", "height", "a"],
        [["x", r["b"], "", r["a"]] for r in rows],
    )
    first = runner.invoke(app, ["predict", str(file), str(smooth)])
    assert first.exit_code == 0, first.stderr
    second = runner.invoke(app, ["predict", str(file), str(other), "--out", str(out)])
    assert second.exit_code == 0, second.stderr
    assert second.stdout == ""
    assert out.read_text() == first.stdout
    table = np.genfromtxt(out, delimiter=",", names=True)
    predicted = table["height"]
    assert np.sqrt(np.mean((predicted - rows["height"]) ** 2)) < 0.3
    if model != "ridge":
        inside = (table["height_low"] < rows["height"]) & (rows["height"] < table["height_high"])
        assert 0.85 < inside.mean() <= 1
    described = runner.invoke(app, ["describe", str(file)])
    assert described.exit_code == 0
    assert WORDS[model] in described.stdout
    assert "'height', from 'a', 'b'" in described.stdout
    assert "lengthscale[a]" in described.stdout
    assert "kernel rbf(lengthscale=[" in described.stdout
    # Seventeen digits would be those of rounding.
    assert max(len(re.sub(r"[-.]|e.*", "", cell)) for cell in re.split("[,\n]", first.stdout)) <= 11


def test_predicting_says_what_is_missing_or_wrong(smooth, tmp_path):
    file = tmp_path / "model"
    assert run(smooth, "--target", "height", "--kernel", "rbf", "--out", file).exit_code == 0
    lacking = write(tmp_path / "lacking.csv", ["a", "c"], [[1, 2]])
    words = write(tmp_path / "words.csv", ["a", "b"], [[1, "two"]])
    empty = write(tmp_path / "empty.csv", ["a", "b"], [])
    for model, data, message in (
        (file, lacking, "lacks 'b': the model was fitted to the columns a, b"),
        (file, words, "line 2, column 'b': 'two' is not a number"),
        (file, empty, "has no rows of numbers"),
        (file, tmp_path / "none.csv", "there is no file"),
        (smooth, smooth, "is not a kernax model, or is cut short"),
        (tmp_path / "none", smooth, "there is no file"),
    ):
        result = runner.invoke(app, ["predict", str(model), str(data)])
        assert result.exit_code == 2
        assert_one_line(result.stderr, message)
    kernax.save(tmp_path / "kernel", kernax.RBF())
    result = runner.invoke(app, ["describe", str(tmp_path / "kernel")])
    assert result.exit_code == 2
    assert_one_line(result.stderr, "not one that 'kernax fit --out' wrote")


@pytest.mark.slow
def test_several_starts_are_reported_and_one_input_is_drawn_as_a_band(tmp_path, rng):
    x = np.sort(rng.uniform(0, 6, 50))
    path = write(
        tmp_path / "wave.csv",
        ["x", "y"],
        np.column_stack([x, np.sin(x) + 0.05 * rng.normal(size=50)]),
    )
    result = run(
        path, "--target", "y", "--model", "gp", "--restarts", "3", "--plot", tmp_path / "wave.svg"
    )
    assert result.exit_code == 0, result.stderr
    assert "3 starts, 0 failed" in result.stdout
    picture = (tmp_path / "wave.svg").read_text()
    assert picture.count("<svg") == 1
    mean, _, learned = errors_of(result.stdout, "gp")
    assert learned < 0.2 * mean


@pytest.mark.slow
def test_few_rows_a_column_share_one_lengthscale_and_say_so(tmp_path, rng):
    X = rng.normal(size=(30, 3))
    path = write(tmp_path / "few.csv", ["a", "b", "c", "y"], np.column_stack([X, np.sin(X[:, 0])]))
    output = run(path, "--target", "y", "--kernel", "rbf").stdout
    assert "fewer than 20 rows a column" in output
    assert "lengthscale[a]" not in output
