"""`kernax cluster`: groups of rows, their summary, their file and their picture."""

import csv

import numpy as np
import pytest
from conftest import assert_refused, needs_x32
from sklearn.datasets import make_moons
from typer.testing import CliRunner

from kernax.cli.app import app

pytestmark = needs_x32  # once, in a process as users have it

runner = CliRunner()


def run(*arguments):
    return runner.invoke(app, ["cluster", *map(str, arguments), "--no-cache"])


def write(path, header, rows):
    path.write_text("\n".join([",".join(map(str, row)) for row in [header, *rows]]) + "\n")
    return path


@pytest.fixture
def blobs(tmp_path):
    """Three groups along the second column; the first says nothing; the third numbers the rows."""
    rng = np.random.default_rng(0)
    group = np.arange(45) % 3
    noise = rng.normal(size=45).round(4)
    height = (4.0 * group + 0.2 * rng.normal(size=45)).round(4)
    rows = zip(noise, height, range(45))
    return write(tmp_path / "blobs.csv", ["noise", "height", "id"], rows), group


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_groups_are_found_summarised_and_written(blobs, tmp_path):
    path, group = blobs
    out = tmp_path / "clusters.csv"
    arguments = (path, "--clusters", 3, "--ignore", "id", "--kernel", "rbf(lengthscale=[9, 0.5])")
    result = run(*arguments, "--keep", "id", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert "45 rows compared by 'noise', 'height'" in result.stdout
    header = next(line for line in result.stdout.splitlines() if "rows ┃" in line)
    assert header.index("mean height") < header.index("mean noise")  # what tells them apart first
    assert "% of the variance in the space of the kernel" in result.stdout
    rows = read(out)
    assert [row["id"] for row in rows] == [str(i) for i in range(45)]
    labels = np.array([int(row["cluster"]) for row in rows])
    assert set(labels) == {1, 2, 3}
    assert [len(set(labels[group == g])) for g in range(3)] == [1, 1, 1]


@pytest.mark.slow
def test_moons_need_the_graph_and_are_drawn(tmp_path):
    X, truth = make_moons(120, noise=0.04, random_state=0)
    path = write(tmp_path / "moons.csv", ["a", "b"], np.asarray(X).round(5))
    out, picture = tmp_path / "clusters.csv", tmp_path / "moons.png"
    arguments = ("--clusters", 2, "--method", "spectral", "--kernel", "rbf(lengthscale=0.2)")
    result = run(path, *arguments, "--out", out, "--plot", picture)
    assert result.exit_code == 0, result.stderr
    labels = np.array([int(row["cluster"]) for row in read(out)]) - 1
    assert np.mean(labels == truth) in (0.0, 1.0)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "bound of the relaxed normalised cut" in result.stdout


@pytest.mark.slow
def test_texts_are_grouped_by_a_string_kernel_with_a_typical_one_of_each(tmp_path):
    rng = np.random.default_rng(0)
    letters = lambda count: "".join(rng.choice(list("acgt"), count))
    motifs = ["gattacagatt", "ccgcgccgcgc"]
    rows = [[letters(5) + motifs[i % 2] + letters(5)] for i in range(20)]
    path = write(tmp_path / "dna.csv", ["seq"], rows)
    out, picture = tmp_path / "clusters.csv", tmp_path / "dna.png"
    arguments = ("--clusters", 2, "--kernel", "normalised(spectrum(4))")
    result = run(path, *arguments, "--out", out, "--plot", picture)
    assert result.exit_code == 0, result.stderr
    labels = [row["cluster"] for row in read(out)]
    assert labels == ["1", "2"] * 10
    assert "typical seq" in result.stdout
    assert picture.exists()


@pytest.mark.slow
def test_more_groups_than_colours_are_drawn(blobs, tmp_path):
    """The picture was refused when all was computed, and nothing was written."""
    path, _ = blobs
    out, picture = tmp_path / "clusters.csv", tmp_path / "many.png"
    result = run(path, "--clusters", 12, "--ignore", "noise", "--out", out, "--plot", picture)
    assert result.exit_code == 0, result.stderr
    assert len({row["cluster"] for row in read(out)}) == 12
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_grouped_is_refused_in_one_line(blobs, tmp_path):
    path, _ = blobs
    assert_refused(run(path, "--clusters", 99), "clusters must be at most 45")
    assert_refused(run(path, "--clusters", 0), "clusters must be a positive integer")
    assert_refused(run(path, "--clusters", 2, "--ignore", "ids"), "did you mean 'id'?")
    assert_refused(run(path, "--clusters", 2, "--seed", -1), "--seed must not be negative")
    words = write(tmp_path / "words.csv", ["word"], [["a"], ["b"], ["c"]])
    assert_refused(run(words, "--clusters", 2), "is not a number")
    all_left_out = run(words, "--clusters", 2, "--ignore", "word")
    assert_refused(all_left_out, "--ignore leaves out all columns")
    bare = write(tmp_path / "bare.csv", ["a", "b"], [])
    assert_refused(run(bare, "--clusters", 2), "has no rows below its header")
    clash = write(tmp_path / "clash.csv", ["cluster", "a"], [[1, 2], [3, 4]])
    assert_refused(run(clash, "--clusters", 2, "--keep", "cluster"), "--keep cluster")
    assert_refused(run(path, "--clusters", 2, "--out", path), "would overwrite")


@pytest.mark.slow
def test_rows_that_coincide_are_said_to_explain_nothing(tmp_path):
    path = write(tmp_path / "same.csv", ["a", "b"], [(1.5, 2.5)] * 6)
    result = run(path, "--clusters", 2, "--kernel", "rbf(lengthscale=1)")
    assert result.exit_code == 0, result.stderr
    assert "only 1 of 2 clusters differ" in result.stderr
    assert "the clusters do not differ, up to rounding: they explain nothing" in result.stdout
