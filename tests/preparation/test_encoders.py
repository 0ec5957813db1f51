"""Columns of cells as numbers and text: what each kind of column becomes, what is refused, and that
nothing is learned from rows that are held out.
"""

import json

import numpy as np
import pytest
from conftest import needs_x64
from hypothesis import given
from hypothesis import strategies as st

import kernax as kx
from kernax import save
from kernax.errors import FeaturelessWarning, KernaxFileError
from kernax.files import load_predictor, save_predictor
from kernax.preparation import Standards
from kernax.preparation.cells import Column, announcement_of_commas, with_decimal_commas
from kernax.preparation.dates import Date, date_in
from kernax.preparation.encoders import Category, FilledNumber, Number, Text, Tokens
from kernax.preparation.inputs import Inputs, inputs_from_notes, learned_inputs
from kernax.preparation.kinds import kind_of
from kernax.preparation.predictors import RIDGE, Regressor

pytestmark = needs_x64  # once: cells are read by NumPy, in float64 whatever the mode


def column(*cells, name="c"):
    places = tuple(f"line {row + 2}, column {name!r}" for row in range(len(cells)))
    return Column(name, tuple(map(str, cells)), places)


def learned(cells, rows=None):
    """The encoder of a column, and what it makes of all of its cells."""
    inputs = learned_inputs([cells], "y", np.arange(len(cells.cells)) if rows is None else rows)
    (encoder,) = inputs.encoders
    return encoder, inputs.numbers([cells])


def test_numbers_stay_as_they_are():
    encoder, X = learned(column("1", "-2.5", "3e2"))
    assert encoder == Number("c")
    assert encoder.announcement(column("1")) is None
    np.testing.assert_array_equal(X, [[1], [-2.5], [300]])


@pytest.mark.parametrize("missing", ["", "NA", "n/a", "NaN", "null", "?"])
def test_missing_numbers_are_the_median_of_the_rows_to_learn_from_and_a_column_says_which(missing):
    cells = column("1", missing, "3", "5", "100")
    encoder, X = learned(cells, np.array([0, 1, 2, 3]))
    assert encoder == FilledNumber("c", 3.0)
    assert encoder.columns == ("c", "c missing")
    np.testing.assert_array_equal(X, [[1, 0], [3, 1], [3, 0], [5, 0], [100, 0]])
    assert encoder.announcement(cells) == (
        "1 empty cell of 'c' was filled with its median 3, and 'c missing' says which"
    )


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ("3,14 -2,5 1,5e3 ,5 7 NA", "3.14 -2.5 1.5e3 .5 7 NA"),
        ("1,5 2.5", None),  # a comma or a point may be between thousands
        ("1,234,567 1,234", "1,234,567 1.234"),  # of which the first is refused
        ("1 2", None),
        ("u v 1,5", None),
    ],
)
def test_commas_are_read_before_decimals_where_nothing_else_can_be_meant(cells, expected):
    before = column(*cells.split())
    after = with_decimal_commas(before)
    assert after.cells == tuple((expected or cells).split())
    assert after.as_written == before
    assert (announcement_of_commas(after) is None) == (expected is None)


def test_commas_that_may_be_between_thousands_are_asked_about():
    assert announcement_of_commas(with_decimal_commas(column("1,234", "12,345"))) == (
        "decimal commas of 'c' were converted: 1,234 is 1.234 (if such commas are between "
        "thousands, leave them out)"
    )


def test_text_is_compared_as_it_is_written():
    cells = with_decimal_commas(column("1,5", "2,5"))
    inputs = learned_inputs([cells], "y", np.arange(2), texts=["c"])
    assert inputs.texts[0].alphabet == tuple(",125")
    assert inputs.announcements([cells]) == ()


def test_the_few_numbers_with_a_point_are_named_among_decimal_commas():
    """Catches a message that blames the many cells with a comma."""
    cells = with_decimal_commas(column("82,0", "61.3", "7,5", "3,5", "1.5", "4"))
    with pytest.raises(ValueError) as problem:
        kind_of(cells)
    assert str(problem.value) == (
        "line 3, column 'c': '61.3' has a point, but 3 numbers of the column have commas before "
        "decimals; likewise in line 6, column 'c' ('1.5')"
    )
    for others in (["1,5", "2.5"], ["1,5", "2.5", "3.5"]):
        assert with_decimal_commas(column(*others)).written is None


def test_words_of_few_kinds_are_a_column_each_and_missing_ones_are_a_kind_of_their_own():
    cells = column("red", "blue", "NA", "red", "blue", "")
    encoder, X = learned(cells)
    assert encoder == Category("c", ("blue", "red", ""))
    assert encoder.columns == ("c=blue", "c=red", "c missing")
    np.testing.assert_array_equal(X @ [1, 2, 3], [2, 1, 3, 2, 1, 3])
    assert encoder.announcement(cells) == (
        "2 categories of 'c' became columns: blue, red; 2 empty cells of it became 'c missing'"
    )


def test_a_category_that_was_not_learned_from_is_zero_in_all_columns_and_is_counted():
    cells = column("u", "v", "u", "v", "u", "v", "w", "")
    inputs = learned_inputs([cells], "y", np.arange(6))
    assert inputs.encoders == (Category("c", ("u", "v")),)
    np.testing.assert_array_equal(inputs.numbers([cells])[6:], np.zeros((2, 2)))
    with pytest.warns(FeaturelessWarning) as notes:
        inputs.warn_of_strangers([cells])
    assert [str(note.message) for note in notes] == [
        "1 of 8 cells of 'c' holds a category that the training rows do not have, such as 'w': "
        "all columns of 'c' are 0 there",
        "1 of 8 cells of 'c' holds nothing, unlike every cell of the training rows: all columns of "
        "'c' are 0 there",
    ]


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["green"] * 4 + ["Green"] * 3, "is 'Green' meant to be 'green'?"),
        (["green"] * 4 + ["blue"] * 3 + ["gren"], "is 'gren' meant to be 'green'?"),
        (["York"] * 4 + ["Yrok"] + ["Leeds"] * 3, "is 'Yrok' meant to be 'York'?"),
        (["male", "female"] * 3, None),
    ],
)
def test_a_category_that_may_be_another_one_misspelt_is_asked_about(cells, words):
    cells = column(*cells)
    announcement = learned(cells)[0].announcement(cells)
    assert (words in announcement) if words else ("meant" not in announcement)


def test_categories_keep_their_unit_and_numbers_are_standardised():
    columns = [column("1", "", "3", "5", name="a"), column(*"uvuv", name="b")]
    inputs = learned_inputs(columns, "y", np.arange(4))
    Z = inputs.points(columns)
    np.testing.assert_allclose(Z.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(Z[:, 0].std(), 1)
    np.testing.assert_allclose(np.ptp(Z[:, 1:], axis=0), 1)
    np.testing.assert_allclose(np.sum((Z[0, 2:] - Z[1, 2:]) ** 2), 2)


DATES = {
    "year-month-day": ["2020-02-29", "2021-1-05T06:00", "2021-03-01 12:30:59.5"],
    "year/month/day": ["2020/02/29", "2021/01/05"],
    "day.month.year": ["29.02.2020", "5.1.2021"],
    "day/month/year": ["29/02/2020", "05/01/2021"],
    "month/day/year": ["02/29/2020", "01/05/2021"],
    "day month-name year": ["29 February 2020", "5-Jan-2021", "05 sept. 2021"],
    "month-name day year": ["Feb 29, 2020", "January 5 2021", "Mar-1-2021"],
    "year-month": ["2020-02", "2021-01"],
    "year and quarter": ["2020Q1", "2021-Q1"],
}


@pytest.mark.parametrize("form", DATES)
def test_dates_in_one_of_several_orders_are_days(form):
    encoder, X = learned(column(*DATES[form]))
    assert isinstance(encoder, Date)
    assert encoder.form == form
    days = np.array({"year-month": 335, "year and quarter": 366}.get(form, 311), float)
    days += 0.25 if form == "year-month-day" else 0
    np.testing.assert_allclose(X[:2, 0], [0, days], rtol=1e-12)


def test_fractions_of_a_second_are_fractions_of_a_day():
    """Rows a millisecond apart are not the same."""
    cells = [f"2021-03-01 12:30:59{fraction}" for fraction in ("", ".001", ".5", ".500000123")]
    _, X = learned(column(*cells))
    np.testing.assert_allclose(86400 * X[:, 0], [0, 1e-3, 0.5, 0.5], atol=1e-9)


@pytest.mark.parametrize(
    ("start", "step", "count", "cycles"),
    [
        ("2021-01-01", 1, 30, ("week",)),
        ("2018-01-06", 7, 160, ("year",)),
        ("2018-01-06", 1, 800, ("year", "week")),
        ("2020-01-01T00:00", 1 / 24, 60, ("day",)),
        ("2021-01-01", 365, 10, ()),
        ("2021-01-01", 1, 10, ()),
    ],
)
def test_cycles_are_there_where_rows_last_for_two_periods_and_show_their_thirds(
    start, step, count, cycles
):
    days = np.arange(count) * np.timedelta64(round(step * 86400), "s")
    cells = column(*np.datetime_as_string(np.datetime64(start, "s") + days))
    encoder, X = learned(cells)
    assert isinstance(encoder, Date)
    assert encoder.cycles == cycles
    np.testing.assert_allclose(X[:, 0], np.arange(count) * step, rtol=1e-5)
    for place, cycle in enumerate(cycles):
        sine, cosine = X[:, 1 + 2 * place], X[:, 2 + 2 * place]
        period = {"year": 365.25, "week": 7, "day": 1}[cycle]
        np.testing.assert_allclose(np.hypot(sine, cosine), 1)
        angle = np.unwrap(np.arctan2(sine, cosine))
        np.testing.assert_allclose(
            (angle - angle[0]) / (2 * np.pi), X[:, 0] / period, atol=2e-2 * (cycle == "year") + 1e-9
        )


REFUSED = [
    (["01/02/2020", "03/04/2020"], "line 2, column 'c': '01/02/2020' may be day/month/year or "),
    (["2020-01-01", "2020/01/02"] * 2, "'2020/01/02' is not a date written as year-month-day"),
    (["2020-01-01", "2020-01-32", "2020-01-02"], "line 3, column 'c': '2020-01-32' is not a date"),
    (
        ["31.01.21", "01.02.21"] * 4,
        "'31.01.21' looks like a date, but only these orders are parsed: year-",
    ),
    (["2020-01-01", "", "2020-01-03"], "line 3, column 'c': the cell is empty, and dates are not"),
    (["1", "2", "3", "x"], "line 5, column 'c': 'x' is not a number"),
    (["1", "2", "3", "x", "", "z"], "'x' is not a number; likewise in line 7, column 'c' ('z')"),
    (
        ["2020-01-01", "", "2020-01-03", "NA"],
        "fill them in; likewise in line 5, column 'c' ('NA')",
    ),
    (["1,5", "2,5"], "'1,5' is not a number: write a point before decimals"),
    (["1", "inf", ""], "line 3, column 'c': 'inf' is not a finite number"),
    (["", "NA"], "all cells of column 'c' are empty"),
    ([f"P{i}" for i in range(9)], "'c' holds 9 different texts in as many rows, which tell rows"),
    ([f"P{i % 8}" for i in range(9)], "8 different texts in 9 rows: at most half as many as rows"),
    ([f"P{i % 60}" for i in range(200)], "60 different texts in 200 rows: at most 50 are read"),
]


@pytest.mark.parametrize(("cells", "words"), REFUSED)
def test_columns_that_are_not_clear_are_refused_at_their_place(cells, words):
    with pytest.raises(ValueError) as problem:
        kind_of(column(*cells))
    assert words in str(problem.value)


def test_numbers_too_large_to_be_standardised_are_refused_where_some_are_missing_as_well():
    with pytest.raises(ValueError, match="column 'c' cannot be standardised"):
        learned_inputs([column("1.5e308", "1.6e308", "")], "y", np.arange(3))


def test_a_column_that_is_empty_in_all_rows_to_learn_from_is_refused():
    with pytest.raises(ValueError, match="all cells of 'c' are empty in the training rows"):
        learned_inputs([column("", "", "3")], "y", np.array([0, 1]))


def test_numbers_that_may_be_dates_are_taken_for_numbers_and_that_is_said():
    cells = column("19580329", "19580405")
    encoder, X = learned(cells)
    np.testing.assert_array_equal(X[:, 0], [19580329, 19580405])
    assert encoder.announcement(cells) == (
        "'c' was read as numbers such as 19580329: if they are dates, write 1958-03-29"
    )


def test_whole_numbers_that_may_be_names_of_rows_are_asked_about():
    for name, asked in (("patient_id", True), ("ID", True), ("hybrid", False), ("t", False)):
        cells = column("3", "1", "2", name=name)
        announcement = Number(name).announcement(cells)
        assert (announcement is not None) == asked
    assert Number("id").announcement(column("1", "1", name="id")) is None


def messy(rng, n=12):
    """A column of each kind, and one of text."""
    day = np.datetime64("2020-01-01")
    return [
        column(*rng.normal(size=n), name="a"),
        column(*(x if i % 4 else "" for i, x in enumerate(rng.integers(0, 9, n))), name="b"),
        column(*(day + rng.permutation(90)[:n]), name="d"),
        column(*rng.permutation(list("uvw") * (n // 3)), name="k"),
        column(*(f"text {word}" for word in rng.integers(0, 999, n)), name="t"),
    ]


def test_nothing_is_learned_from_rows_that_are_held_out(rng):
    """Other cells in other rows change neither medians nor categories, first days or alphabets."""
    columns, others = messy(rng), messy(rng)
    rows = np.array([0, 2, 3, 7, 8])
    mixed = []
    for one, other in zip(columns, others):
        cells = tuple(a if i in rows else b for i, (a, b) in enumerate(zip(one.cells, other.cells)))
        mixed.append(Column(one.name, cells, one.places))
    found, wanted = (learned_inputs(cells, "y", rows, texts=("t",)) for cells in (mixed, columns))
    assert found.notes() == wanted.notes()


def test_the_order_of_dates_is_read_from_all_rows():
    cells = column("01/02/2021", "02/02/2021", "02/14/2021")
    inputs = learned_inputs([cells], "y", np.array([0, 1]))
    np.testing.assert_array_equal(inputs.numbers([cells])[:, 0], [0, 31, 43])


def test_several_columns_of_text_are_parts_of_a_point(rng):
    columns = [*messy(rng), column(*["ab", "b"] * 6, name="s")]
    inputs = learned_inputs(columns, "y", np.arange(12), texts=("t", "s"), tokens=Tokens.WORDS)
    Z, of_t, of_s = inputs.points(columns[::-1])
    assert Z.shape == (12, len(inputs.columns))
    assert (inputs.place_of("t"), inputs.place_of("s")) == (1, 2)
    assert of_s.alphabet == ("ab", "b")
    assert len(of_t.codes) == 12
    assert str(inputs) == "'a', 'b', 'd', 'k' and the words of 't' and the words of 's'"
    texts = learned_inputs(columns[-2:], "y", np.arange(12), texts=("t", "s"))
    assert len(texts.points(columns)) == 2


CELLS = st.sampled_from(
    ["", "NA", "?", "1", "-2.5", "1e400", "1_0", "inf", "red", "Red", "blue", "2020-01-05", "x,y"]
    + ["2020-02-30", "01/02/2020", "13/02/2020", "Jan 5, 2020", "2020Q1", "\u00e9t\u00e9", "a\nb"]
) | st.text("a\u00e91.,-/: \x00", max_size=6)
MANY_ALIKE = st.sampled_from(
    [["1", "2", ""], ["u", "v", ""], ["2020-01-05", "2021-03-04"], ["05/06/2020", "13/01/2021"]]
).flatmap(lambda words: st.lists(st.sampled_from(words) | CELLS, min_size=4, max_size=9))


@pytest.mark.slow
@given(
    cells=st.lists(CELLS, min_size=4, max_size=9) | MANY_ALIKE,
    new=st.lists(CELLS, min_size=1, max_size=5),
    as_text=st.booleans(),
)
def test_any_cells_become_finite_numbers_that_notes_repeat_or_one_clear_error(cells, new, as_text):
    """Every refusal names the column or a place in it, and all that was learned is in the notes."""
    cells, new = (column(*(cell.strip() for cell in some)) for some in (cells, new))
    texts = ("c",) if as_text else ()
    inputs = refusal_or(lambda: learned_inputs([cells], "y", np.arange(3), texts=texts))
    if isinstance(inputs, str) or isinstance(refusal_or(lambda: inputs.numbers([cells])), str):
        return
    assert np.all(np.isfinite(inputs.numbers([cells])))
    for line in (*inputs.announcements([cells]), *inputs.remarks(), str(inputs)):
        assert "\n" not in line
    again = inputs_from_notes(json.loads(json.dumps(inputs.notes())))
    assert again.encoders == inputs.encoders
    np.testing.assert_array_equal(again.numbers([cells]), inputs.numbers([cells]))
    X = refusal_or(lambda: again.numbers([new]))
    if not isinstance(X, str):
        assert X.shape == (len(new.cells), len(inputs.columns))
        assert np.all(np.isfinite(X))


def refusal_or(function):
    """What a function returns, or the message of its error, which is one line about the column."""
    try:
        return function()
    except ValueError as problem:
        message = str(problem)
    assert "'c'" in message
    assert "\n" not in message
    return message


def regressor(inputs, columns, y):
    points = inputs.points(columns)
    model = kx.kernel_ridge(kx.RBF(2.0), points, y, 0.1).value
    return Regressor(inputs, RIDGE, model, 0.1, Standards(0.0, 1.0))


def test_a_predictor_keeps_its_encoders_in_its_file(tmp_path, rng):
    columns = messy(rng)[:4]
    inputs = learned_inputs(columns, "y", np.arange(12))
    predictor = regressor(inputs, columns, rng.normal(size=12))
    save_predictor(tmp_path / "model", predictor)
    again = load_predictor(tmp_path / "model")
    assert isinstance(again, Regressor)
    assert again.inputs.encoders == inputs.encoders
    np.testing.assert_array_equal(
        again.at(again.inputs.points(columns))[0], predictor.at(inputs.points(columns))[0]
    )


def test_notes_from_before_there_were_encoders_are_read():
    text = {"name": "dna", "tokens": "letters", "alphabet": ["A", "C"]}
    old = {"columns": ["a", "b"], "target": "y", "centre": [1.0, 2.0], "scale": [3.0, 4.0]}
    numbers = inputs_from_notes(old)
    assert numbers.encoders == (Number("a"), Number("b"))
    both = inputs_from_notes(old | {"text": text})
    assert both.texts == (Text("dna", Tokens.LETTERS, ("A", "C")),)
    columns = [column(4, name="a"), column(6, name="b"), column("AC", name="dna")]
    np.testing.assert_array_equal(both.points(columns)[0], [[1, 1]])


DAMAGES = [
    {"encoders": [{"kind": "tree", "name": "c"}]},
    {"encoders": [{"kind": "filled number", "name": "c", "median": "much"}]},
    {"encoders": [{"kind": "filled number", "name": "c", "median": float("nan")}]},
    {"encoders": [{"kind": "filled number", "name": "c"}]},
    {"encoders": [{"kind": "category", "name": "c", "words": "uv"}]},
    {"encoders": [{"kind": "category", "name": "c", "words": [1, 2]}]},
    {"encoders": [{"kind": "number", "name": 3}]},
    {"encoders": [{"kind": "text", "name": "c", "tokens": "syllables", "alphabet": []}]},
    {"encoders": [{"kind": "date", "name": "c", "form": "?", "first": "2020-01-01", "cycles": []}]},
    {"encoders": [{"kind": "date", "name": "c", "form": "year-month", "first": "x", "cycles": []}]},
    {"encoders": ["number"]},
    {"encoders": 3},
    {"centre": [0.0, 0.0]},
    {"scale": [0.0]},
    {"scale": [float("nan")]},
]


@pytest.mark.parametrize("damage", DAMAGES, ids=str)
def test_damaged_notes_are_refused(tmp_path, damage):
    inputs = Inputs((Number("c"),), "y", Standards(np.zeros(1), np.ones(1)))
    predictor = regressor(inputs, [column(1, 2, 3)], np.arange(3.0))
    notes = predictor.notes()
    save(tmp_path / "m", predictor.model, notes=notes | {"inputs": notes["inputs"] | damage})
    with pytest.raises(KernaxFileError, match="is not what 'kernax fit --out' writes"):
        load_predictor(tmp_path / "m")


@needs_x64
def test_quarters_begin_in_january_april_july_and_october():
    begun = [date_in(f"2021-Q{quarter}", "year and quarter") for quarter in (1, 2, 3, 4)]
    assert [(date.month, date.day) for date in begun if date] == [(1, 1), (4, 1), (7, 1), (10, 1)]
