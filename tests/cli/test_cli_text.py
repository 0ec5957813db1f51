"""Columns of text from the command line: string kernels alone and beside numbers, what is written,
what is refused.
"""

import csv
import io
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import run, write
from conftest import TOLERANCE, assert_refused, needs_x32

import kernax as kx
from kernax.cli.compared_columns import compared_columns, kernel_of_inputs, learned_inputs
from kernax.cli.fixed_texts import with_fixed_texts, with_texts
from kernax.cli.table import read_table
from kernax.core.base.solution import RESULTS, Solution
from kernax.files import load_predictor
from kernax.preparation import Standards
from kernax.preparation.cells import Column
from kernax.preparation.encoders import Number, Text, Tokens
from kernax.preparation.inputs import Inputs
from kernax.selection.recipes import data_starts
from kernax.selection.recipes import regression_recipe as regression

pytestmark = (
    needs_x32  # once, in a process as users have it: the command line sets its own precision
)

DNA = "normalised(spectrum(3))"


def predicted(result):
    assert result.exit_code == 0, result.stderr
    return list(csv.DictReader(io.StringIO(result.stdout)))


def sequences(rng, n=60):
    """Letters at random, and a motif in every other string."""
    texts = ["".join(rng.choice(list("ACGT"), rng.integers(17, 24))) for _ in range(n)]
    return [text[:5] + "GATTACA" + text[12:] if i % 2 else text for i, text in enumerate(texts)]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["svm", "logistic"])
def test_a_motif_is_found_and_unseen_letters_are_gaps(tmp_path, rng, model):
    texts = sequences(rng)
    texts[0] = ""
    rows = [(text, i, "site" if i % 2 else "none") for i, text in enumerate(texts)]
    data, file, picture = (
        write(tmp_path / "dna.csv", ["dna", "id", "kind"], rows),
        tmp_path / "model",
        tmp_path / "dna.svg",
    )
    options = (
        "--target",
        "kind",
        "--model",
        model,
        "--kernel",
        DNA,
        "--out",
        file,
        "--plot",
        picture,
    )
    result = run("fit", data, *options)
    assert result.exit_code == 0, result.stderr
    assert "60 rows, the letters of 'dna'; learning from 44 rows, 16 held out" in result.stdout
    assert "the kernel only compares text, and does not use 'id'" in result.stdout
    assert "fewer than 20 rows" not in result.stdout
    assert float(re.search(rf"{model} learned\D*([\d.]+)", result.stdout)[1]) >= 0.8
    assert "<svg" in picture.read_text()
    described = run("describe", file).stdout
    assert "for 'kind', from the letters of 'dna'" in described
    assert "kernel normalised(spectrum(k=3))" in described
    new = write(
        tmp_path / "new.csv",
        ["more", "dna"],
        [("", texts[1]), ("", texts[1][:-1] + "N"), ("", texts[1][:-1] + "\u00df")],
    )
    result = run("predict", file, new)
    known, unknown, other = predicted(result)
    assert result.stderr == ""
    assert known["kind"] == "site"
    assert unknown == other != known
    assert_refused(
        run("predict", file, write(tmp_path / "short.csv", ["id"], [[1]])),
        "lacks 'dna': the model was fitted to the",
    )


@pytest.mark.slow
def test_numbers_and_text_are_learned_together_from_several_starts_and_found_in_any_order(
    tmp_path, rng
):
    texts, x = sequences(rng, 40), rng.normal(size=40)
    y = np.sin(2 * x) + np.arange(40) % 2 + 0.05 * rng.normal(size=40)
    data, file = (
        write(tmp_path / "both.csv", ["x", "dna", "y"], zip(x, texts, y)),
        tmp_path / "model",
    )
    kernel, picture = f"rbf + {DNA}", tmp_path / "both.svg"
    options = (
        "--target",
        "y",
        "--kernel",
        kernel,
        "--restarts",
        2,
        "--out",
        file,
        "--plot",
        picture,
    )
    result = run("fit", data, *options)
    assert result.exit_code == 0, result.stderr
    assert (
        "40 rows, 1 input column and the letters of 'dna'; learning from 30 rows, 10 held out"
        in result.stdout
    )
    assert "2 starts, 0 failed" in result.stdout
    mean, learned = (
        float(re.search(rf"{name}\D*([\d.]+)", result.stdout)[1])
        for name in ("mean of the target", "gp learned")
    )
    assert learned < 0.6 * mean
    assert "predicted y" in picture.read_text()
    described = run("describe", file).stdout
    assert "Gaussian process for 'y', from 'x' and the letters of 'dna'" in described
    assert "lengthscale[x]" in described
    there = predicted(run("predict", file, data))
    other = write(tmp_path / "other.csv", ["dna", "x"], zip(texts, x))
    assert predicted(run("predict", file, other)) == there
    assert np.sqrt(np.mean((np.array([float(row["y"]) for row in there]) - y) ** 2)) < 0.6 * y.std()
    assert_refused(
        run("predict", file, write(tmp_path / "bad.csv", ["dna", "x"], [["A", "A"]])),
        "column 'x': 'A' is not a number",
    )


def counting_comparisons(monkeypatch):
    """A list that grows by one where `Spectrum` is traced."""
    traced = []
    compare = kx.Spectrum.__call__

    def counted(self, x, z):
        traced.append(self)
        return compare(self, x, z)

    monkeypatch.setattr(kx.Spectrum, "__call__", counted)
    return traced


@pytest.mark.slow
def test_texts_are_compared_once_where_their_kernel_has_no_parameter(rng, monkeypatch):
    texts, Z = kx.strings.encode(sequences(rng, 6)), rng.normal(size=(6, 2))
    spectrum = kx.Normalised(kx.Spectrum(2))
    problems = [
        (2.0 * spectrum + kx.kernels.GaussianOf(kx.Spectrum(1)), texts),
        (
            kx.On(kx.RBF(), 0) * kx.On(spectrum, 1) + kx.Normalised(kx.On(0.5 * spectrum, 1)),
            (Z, texts),
        ),
    ]
    for kernel, X in problems:
        model = kx.Model(kernel)
        K = kx.gram(kernel, X)
        fixed, rows = with_fixed_texts(model, X)
        with monkeypatch.context() as patch:
            traced = counting_comparisons(patch)
            found = kx.gram(fixed.kernel, rows)
        assert traced == []
        np.testing.assert_allclose(found, K, rtol=10 * TOLERANCE["value"])
        longer = eqx.tree_at(lambda model: model.ridge, fixed, jnp.asarray(0.3))
        expected = eqx.tree_at(lambda model: model.ridge, model, jnp.asarray(0.3))
        assert eqx.tree_equal(with_texts(longer, model), expected)
    learned = kx.Model(spectrum + kx.kernels.BlendedSpectrum(2))
    assert with_fixed_texts(learned, texts) == (learned, texts)


@pytest.mark.slow
def test_words_are_told_by_spaces_and_an_empty_text_is_no_error(tmp_path, rng, monkeypatch):
    # Learning takes seconds to compile.
    as_it_was = lambda loss, model, *_, **__: Solution(model, RESULTS.successful, {})
    monkeypatch.setattr(data_starts, "minimise", as_it_was)
    traced = counting_comparisons(monkeypatch)
    in_learning = []

    def learned(*given, **options):
        before = len(traced)
        choice = regression.learn_in_stages(*given, **options)
        in_learning.append(len(traced) - before)
        return choice

    monkeypatch.setattr("kernax.cli.fit.learn_in_stages", learned)
    points = {"good": 1.0, "bad": -1.0, "so": 0.0, "and": 0.0}
    texts = ["", *(" ".join(rng.choice(list(points), rng.integers(1, 6))) for _ in range(31))]
    y = [sum(points[word] for word in text.split()) for text in texts]
    data, file = write(tmp_path / "words.csv", ["y", "review"], zip(y, texts)), tmp_path / "model"
    options = (
        "--target",
        "y",
        "--model",
        "ridge",
        "--kernel",
        "spectrum(1)",
        "--tokens",
        "words",
        "--out",
        file,
    )
    result = run("fit", data, *options)
    assert result.exit_code == 0, result.stderr
    assert "32 rows, the words of 'review'; learning from 24 rows" in result.stdout
    assert in_learning == [0]
    assert "from the words of 'review'" in run("describe", file).stdout
    new = write(
        tmp_path / "new.csv",
        ["review"],
        [[text] for text in ("", "good", "unheard-of", "good  good", "dog")],
    )
    result = run("predict", file, new)
    nothing, good, unheard, twice, dog = (float(row["y"]) for row in predicted(result))
    assert result.stderr == (
        "note: 3 of 5 cells of 'review' hold none of the 4 words of the training rows, which "
        "tells the model nothing\n"
    )
    assert good - nothing == pytest.approx(1, abs=0.1)
    assert twice - nothing == pytest.approx(2 * (good - nothing))
    assert nothing == unheard == dog
    with jax.enable_x64(True):
        assert load_predictor(file).inputs.texts == (
            Text("review", Tokens.WORDS, ("and", "bad", "good", "so")),
        )


FOUR = [
    ("ACG", "x y", 1, 1, "u"),
    ("", "y", 2, 3, "v"),
    ("CCA", "z", 3, 2, "u"),
    ("GT", "x", 4, 4, "v"),
]
REFUSED = [
    (
        ["--kernel", "rbf"],
        "line 2, column 'dna': 'ACG' is not a number, and 'dna' holds 3 different texts in as many "
        "rows, which tell rows apart and not groups of them (leave the column out: --ignore dna; "
        "neither can 'note' become numbers: --ignore note)",
    ),
    (["--kernel", "rbf", "--tokens", "words"], "--tokens words is for string kernels, such as"),
    (["--kernel", "text('dan', spectrum(3))"], "no such input: did you mean 'dna'? inputs are "),
    (["--kernel", "text('dna', rbf)"], "and a string kernel, as in text('name', spectrum(3)), but"),
    (["--kernel", "text('dna', spectrum(3)) + spectrum(2)"], "name a column, and others do not"),
    (["--kernel", "rbf + text(dna, spectrum(3))"], "takes the name of a column in quotes and a"),
    (["--kernel", "text"], "takes the name of a column in quotes and a string kernel"),
    (["--kernel", "spectrum(3"], "never closed"),
    (["--kernel", "spectrum"], "spectrum lacks its k: write spectrum(3)"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_a_table_with_too_much_text_is_refused_in_one_line(tmp_path, arguments, words):
    data = write(tmp_path / "four.csv", ["dna", "note", "a", "y", "kind"], FOUR)
    assert_refused(run("fit", data, "--target", "y", *arguments), words)


def test_a_part_of_the_kernel_that_finds_no_column_is_refused_in_one_line(tmp_path):
    numbers = write(
        tmp_path / "numbers.csv", ["a", "b", "y"], [row[2:4] + row[2:3] for row in FOUR]
    )
    texts = write(tmp_path / "texts.csv", ["dna", "y"], [(row[0], row[2]) for row in FOUR])
    assert_refused(
        run("fit", numbers, "--target", "y", "--kernel", DNA),
        "but all input columns are numbers: 'a', 'b'",
    )
    assert_refused(
        run("fit", numbers, "--target", "y", "--tokens", "words"),
        "--tokens words is for string kernels",
    )
    assert_refused(
        run("fit", texts, "--target", "y", "--kernel", f"rbf*{DNA}"),
        "but the only input column, 'dna', is text",
    )
    unknown = run("fit", texts, "--target", "y", "--kernel", DNA, "--tokens", "syllables")
    assert unknown.exit_code == 2
    assert "'letters', 'words'" in unknown.stderr


def test_a_cell_that_is_empty_is_a_text_but_a_number_to_be_filled(tmp_path):
    data = write(
        tmp_path / "empty.csv",
        ["dna", "a", "y"],
        [("A", 1, 1), ("", "", 2), ("C", 3, 3), ("C", 8, 4)],
    )
    table = compared_columns(read_table(data, "y"), f"rbf + {DNA}", None)
    inputs = learned_inputs(table, np.arange(4), Tokens.LETTERS)
    np.testing.assert_array_equal(inputs.numbers(table.inputs), [[1, 0], [3, 1], [3, 0], [8, 0]])
    (text,) = inputs.texts
    np.testing.assert_array_equal(inputs.points(table.inputs)[1].weights[:, 0], [1, 0, 1, 1])
    assert text.alphabet == ("A", "C")


@pytest.mark.slow
def test_every_part_of_a_kernel_sees_its_columns_and_lengthscales_are_for_numbers_alone(rng):
    texts, X = sequences(rng, 5), rng.normal(size=(5, 2))
    text = Text("dna", Tokens.LETTERS, tuple("ACGT"))
    encoders = (Number("a"), Number("b"), text)
    inputs = Inputs(encoders, "y", Standards(np.zeros(2), np.ones(2)))
    columns = [*map(Column.of_numbers, "ab", X.T), Column("dna", tuple(texts), ("",) * 5)]
    expression = "2*rbf*normalised(mismatch(2)) + normalised(linear + spectrum(2)) + 0.5"
    written = kernel_of_inputs(inputs, expression, per_column=True)
    a, b, c = kx.RBF(np.full(2, np.sqrt(2))), kx.Normalised(kx.kernels.Mismatch(2, 1)), kx.Linear()
    by_hand = (
        2.0 * kx.On(a, 0) * kx.On(b, 1)
        + kx.Normalised(kx.On(c, 0) + kx.On(kx.Spectrum(2), 1))
        + 0.5
    )
    points = inputs.points(columns)
    np.testing.assert_allclose(
        kx.gram(written, points), kx.gram(by_hand, points), rtol=TOLERANCE["value"]
    )
    alone = Inputs((text,), "y", Standards(np.zeros(0), np.ones(0)))
    kernel = kernel_of_inputs(alone, "spectrum(2)", per_column=True)
    K = kx.gram(kernel, alone.points(columns))
    np.testing.assert_array_equal(K, kx.gram(kx.Spectrum(2), kx.strings.encode(texts, "ACGT")))


def test_an_alphabet_is_that_of_the_rows_to_learn_from(tmp_path):
    data = write(
        tmp_path / "letters.csv",
        ["dna", "a", "y"],
        [("CA", 1, 1), ("", 2, 2), ("A", 3, 3), ("XY", 3, 4)],
    )
    table = compared_columns(read_table(data, "y"), DNA, None)
    assert table.columns == ("dna",)
    inputs = learned_inputs(table, np.array([0, 1, 2]), Tokens.LETTERS)
    assert inputs.texts == (Text("dna", Tokens.LETTERS, ("A", "C")),)
    weights = inputs.points(table.inputs).weights
    np.testing.assert_array_equal(weights, [[1, 1], [0, 0], [1, 0], [0, 0]])


def test_more_columns_of_text_than_a_kernel_can_compare_are_refused_at_once(tmp_path):
    """4000 of them took minutes before anything was said."""
    names = [f"c{i}" for i in range(31)]
    rows = [[f"word {row} of {name}" for name in names] + [row] for row in range(6)]
    data = write(tmp_path / "wide.csv", [*names, "y"], rows)
    result = run("fit", data, "--target", "y", "--kernel", "normalised(spectrum(3))")
    assert_refused(result, "would compare 31 columns of text, and at most 30")
