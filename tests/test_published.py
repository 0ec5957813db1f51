"""The generated tables: what papers report beside kernax, and the bars of the benchmarks."""

import json
import types
from pathlib import Path

import numpy as np
import pytest
from conftest import needs_x64

pytestmark = needs_x64  # once: no precision touches it

contents = pytest.importorskip("benchmarks.published.contents")
command = pytest.importorskip("benchmarks.published.__main__")
page = pytest.importorskip("benchmarks.published.page")
record = pytest.importorskip("benchmarks.published.record")
rows = pytest.importorskip("benchmarks.published.rows")
bars = pytest.importorskip("benchmarks.bars")
harness = pytest.importorskip("benchmarks.harness")
report = pytest.importorskip("benchmarks.report")
questions = pytest.importorskip("benchmarks.__main__")
speed_page = pytest.importorskip("benchmarks.speed_page")

BY_NAME = {row.name: row for row in contents.ROWS}


def test_the_published_page_is_the_one_that_the_figures_give():
    assert page.PAGE.read_text() == page.written(contents.ROWS, record.read())


def test_the_table_of_bars_is_the_one_that_the_figures_give(tmp_path):
    copy = tmp_path / "README.md"
    copy.write_text(bars.README.read_text())
    bars.write_page(questions.NAMES, copy)
    assert copy.read_text() == bars.README.read_text()


def test_the_page_on_speed_is_the_one_that_the_figures_give():
    text = speed_page.PAGE.read_text()
    assert text == speed_page.with_table(text, bars.read())


def test_the_page_on_speed_names_what_another_library_does_faster():
    line = speed_page.LINES[0]
    ours = {"contender": "kernax, jitted", "seconds": 0.006, "temporary": 3, "held": None}
    peer = ours | {"contender": "peer", "seconds": 0.004}
    case = {"case": line.cases[0], "rows": [ours, peer]}
    only = {line.question: {"date": "2031-02-03", "cases": [case]}}
    questions = bars.read() | only
    written = speed_page.with_table(speed_page.PAGE.read_text(), questions)
    assert f"| {line.title} | 6.0 ms | peer 4.0 ms | 2031-02-03 |" in written
    assert f"- {line.cases[0]}: 1.5 times as long as peer\n" in written


def test_the_page_on_speed_leaves_out_what_is_not_recorded_or_failed():
    first, second = speed_page.LINES[:2]
    failed = {"contender": "kernax", "seconds": None, "temporary": 3, "held": None}
    cases = [{"case": name, "rows": [failed]} for name in first.cases]
    questions = {first.question: {"date": "2031-02-03", "cases": cases}}
    written = speed_page.with_table(speed_page.PAGE.read_text(), questions)
    assert f"| {first.title} | - |  | 2031-02-03 |" in written
    assert second.title not in written


def test_what_is_worse_than_published_is_explained_beside_it():
    found = record.read()
    assert len(BY_NAME) == len(contents.ROWS)
    assert set(found) <= set(BY_NAME)
    for row in contents.ROWS:
        words = page.verdicts(row, found.get(row.name))
        off = {"WORSE", "DIFFERENT"} & set(words)
        assert not (off or not row.alike) or row.explanation, row.name


def test_a_better_figure_of_another_protocol_is_not_called_better():
    row = BY_NAME["inducing kin40k collapsed"]
    assert not row.alike
    low, high = {"RMSE": 0.1, "NLPD": 0.0}, {"RMSE": 0.4, "NLPD": 1.0}
    assert page.verdicts(row, {"figures": low}) == ["not like for like"] * 2
    assert page.verdicts(row, {"figures": high}) == ["WORSE"] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["subsequence cat car", "promoter spectrum k=3", "gp elevators 2000"]
)
def test_the_small_form_of_a_row_gives_all_of_its_figures(name):
    row = BY_NAME[name]
    if row.missing():
        pytest.skip(row.missing())
    found = record.measured(row, quick=True)
    assert set(found["figures"]) >= {figure.name for figure in row.figures}
    assert np.all(np.isfinite(list(found["figures"].values())))
    if name != "gp elevators 2000":  # of a tenth of its points
        assert set(page.verdicts(row, found)) == {"equal"}


def test_a_row_without_its_data_is_skipped_with_the_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rows, "DATA", tmp_path)
    wanted = [BY_NAME["promoter left out"], BY_NAME["thundersvm"]]
    assert command.run(wanted, quick=True) == []
    out = capsys.readouterr().out
    assert "promoter left out: skipped, no data: promoter" in out
    assert "thundersvm: skipped, the sets are not among the shared data" in out


@pytest.mark.parametrize(
    ("sense", "value", "word"),
    [
        ("EQUAL", 10.4, "equal"),
        ("EQUAL", 9.4, "DIFFERENT"),
        ("LOWER_IS_BETTER", 9.9, "better"),
        ("LOWER_IS_BETTER", 10.5, "as published"),
        ("LOWER_IS_BETTER", 10.6, "WORSE"),
        ("LOWER_IS_BETTER", np.nan, "WORSE"),
        ("HIGHER_IS_BETTER", 9.4, "WORSE"),
        ("HIGHER_IS_BETTER", 10.1, "better"),
        ("SHOWN", 99.0, ""),
    ],
)
def test_a_figure_is_judged_by_its_margin(sense, value, word):
    figure = rows.Figure("a figure", 10.0, within=0.5, sense=rows.Sense[sense])
    assert figure.verdict(value) == word


def broken():
    raise RuntimeError("broken")


def test_a_case_that_fails_leaves_the_others_and_a_missed_bar_says_why():
    one = harness.Contender("kernax", lambda: lambda: np.ones(3))
    slow = harness.Bar(0.0, explanation="It is not a time.")
    cases = [
        harness.Case("failing", [harness.Contender("kernax", lambda: broken)], [slow], 1e-9, 1),
        harness.Case(
            "with a peer that fails", [one, harness.Contender("peer", lambda: broken)], [slow]
        ),
    ]
    module = types.SimpleNamespace(cases=lambda quick: iter(cases))
    measured = list(harness.results(module, quick=True))
    (_, (failed,), _), (_, (ours, peer), _) = measured
    assert not failed.agrees
    assert failed.note == peer.note == "failed (broken)"
    assert ours.seconds > 0
    assert ours.agrees
    records = [report.record("a question", *entry) for entry in measured]
    known = report.environment() | {"asks": "Why?", "seconds": 1.0, "cases": records}
    text = bars.written({"a question": known, "another": None})
    assert "2 bars" in text
    assert "1 missed, 1 not measured" in text
    assert "**missed**: `a question`, with a peer that fails" in text
    assert "It is not a time." in text
    assert "Not measured yet." in text


def test_a_process_says_what_it_held():
    process = harness.Process("x = bytearray(50_000_000)")
    assert process() > 0
    assert process.held > 50_000_000
    with pytest.raises(RuntimeError, match="no such thing"):
        harness.Process("raise ValueError('no such thing')")()


@pytest.mark.parametrize("failing", [None, "ridge"])
def test_every_question_has_a_process_of_its_own_whose_cases_and_failure_count(
    failing, tmp_path, monkeypatch
):
    asked = []

    class Asked:
        """A process that answers at once; one that fails has answered a case before."""

        def __init__(self, command):
            name = command[3]
            asked.append(name)
            self.code = int(name == failing)
            Path(command[-1]).write_text(json.dumps({"date": "today", "cases": [name]}))

        def wait(self):
            return self.code

    monkeypatch.setattr(questions.subprocess, "Popen", Asked)
    file = tmp_path / "all.json"
    code = questions.answer_each(("batch", "ridge", "line"), False, file, False)
    assert code == int(failing is not None)
    assert asked == json.loads(file.read_text())["cases"] == ["batch", "ridge", "line"]


def test_a_run_that_is_ended_ends_the_question_and_keeps_its_cases(tmp_path, monkeypatch):
    ended = []

    class Endless:
        """A process that waits until it is told to end."""

        def __init__(self, command):
            Path(command[-1]).write_text(json.dumps({"cases": ["first"]}))

        def wait(self):
            if not ended:
                raise SystemExit(143)

        def terminate(self):
            ended.append(True)

    monkeypatch.setattr(questions.subprocess, "Popen", Endless)
    file = tmp_path / "all.json"
    with pytest.raises(SystemExit):
        questions.answer_each(("batch", "ridge"), False, file, False)
    assert ended == [True]
    assert json.loads(file.read_text())["cases"] == ["first"]


def test_what_a_fit_saves_of_numbers_is_no_worse_than_what_is_written_in_kept_figures():
    """Over ten seeds of every regression set and of a made table, in RMSE and in log density."""
    folder = Path(harness.__file__).parent / "results"
    found = json.loads(sorted(folder.glob("*-learning-numbers.json"))[-1].read_text())
    assert {row["set"] for row in found["sets"]} >= {"yacht", "concrete", "bike", "mixed table"}
    for row in found["sets"]:
        assert len(row["runs"]) == 10, row["set"]
        for written, saved in zip(row["as_written"], row["saved"], strict=True):
            assert saved <= written + found["margin"] * abs(written), row["set"]
