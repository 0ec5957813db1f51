"""The one call that measures on an accelerator, here on a CPU with small sizes: every row runs,
nothing outlasts its time.
"""

import json

import numpy as np
import pytest
from conftest import needs_x64

page = pytest.importorskip("benchmarks.device.page")
run = pytest.importorskip("benchmarks.device.run")
suite = pytest.importorskip("benchmarks.device.suite")
worker = pytest.importorskip("benchmarks.device.worker")

VERSIONS = {"jax", "jaxlib", "equinox", "lineax", "optax"}


@needs_x64
@pytest.mark.nightly
def test_every_row_runs_on_a_cpu_and_the_file_says_where(tmp_path, capsys):
    """A row that no longer compiles, a learner in it that fails, or a file without device, date and
    versions.
    """
    file = tmp_path / "record.json"
    code = run.main("cpu", [], True, 3000.0, file)
    report = json.loads(file.read_text())
    peers = {row.name for row in run.PEERS}
    rows = [record for record in report["rows"] if record["row"] not in peers]
    assert {record["row"] for record in rows} == {row.name for row in run.ROWS}
    ratios = {record["row"]: record.get("kernax_ratio") for record in report["rows"]}
    assert ratios["joblib: batch of SVMs, n=200"] > 0
    for record in rows:
        assert "not_measured" not in record, record
        assert record["finite"], record
        assert record["facts"].get("successful", True), record
        assert record["seconds"] > 0, record
    assert set(report["environment"]) >= {"device", "driver", "date", "python"}
    assert set(report["environment"]["versions"]) >= VERSIONS
    assert {one.row for one in page.figures_of(report)} >= {record["row"] for record in rows}
    (tests,) = report["suite"]
    assert tests["in_time"], tests
    assert tests["passed"] > 0, tests
    assert not tests["failed"], tests
    assert report["complete"]
    assert code == 0, capsys.readouterr().out


@needs_x64
@pytest.mark.nightly
def test_a_row_that_outlasts_its_budget_is_stopped_and_the_next_one_is_measured():
    process = run.Process("cpu", quick=True)
    process.start()
    try:
        record = process.asked(run.ROWS[0], "float64", 0.0)
        assert record["not_measured"].startswith("over its 0 s")
        assert "seconds" in process.asked(run.ROWS[0], "float64", 300.0)
    finally:
        process.stop()


@pytest.mark.slow
@needs_x64
def test_no_row_begins_when_the_time_is_over(tmp_path):
    file = tmp_path / "record.json"
    assert run.main("cpu", ["gram, d=64"], True, 0.0, file) == 0
    report = json.loads(file.read_text())
    assert {record["not_measured"] for record in report["rows"]} == {"no time was left"}
    assert page.figures_of(report) == []


@needs_x64
def test_the_answers_of_two_devices_are_compared_at_the_checked_size():
    """A comparison that leaves out a leaf, or calls NaN an agreement."""
    (gram,) = (row for row in run.ROWS if row.name == "gram, d=64")
    figures = worker._compared(gram, "float64", 20, np.ones((20, 20)))
    assert figures["compared_at"] == 20
    assert not figures["agrees"]
    assert worker._compared(gram, "float64", 20, None)["agrees"]
    assert not worker.agreement([np.ones(2), np.full(2, np.nan)], [np.ones(2), np.ones(2)], 1.0)[
        "agrees"
    ]


@needs_x64
def test_what_pytest_wrote_is_counted_with_and_without_processes():
    """Counting a failure twice, because the summary names it again, or losing the failures of a run
    that was stopped.
    """
    text = """
tests/test_a.py::test_one PASSED                                      [ 25%]
tests/test_a.py::test_two[x y] SKIPPED (a statement about float64)    [ 50%]
[gw1] [ 75%] FAILED tests/test_a.py::test_three
[gw0] [100%] PASSED tests/test_a.py::test_four
FAILED tests/test_a.py::test_three - assert 1 == 2
"""
    found = suite.parsed(text)
    assert (found["passed"], found["skipped"], found["failed"]) == (
        2,
        1,
        ["tests/test_a.py::test_three"],
    )
    assert "assert 1 == 2" in found["end"]


@needs_x64
def test_a_failed_learner_is_wrong_and_what_was_not_measured_is_not():
    assert run.is_wrong({"finite": True, "facts": {"successful": False}})
    assert run.is_wrong({"agrees": False, "facts": {}})
    assert not run.is_wrong({"not_measured": "no time was left"})


@needs_x64
def test_bars_on_time_compilation_and_the_time_of_a_peer_are_judged():
    """A bar that no line of the table shows, or that a quick run judges."""
    (row,) = (row for row in run.ROWS if row.name == "SVM, SMO, large")
    slow = worker._judged(row, {"seconds": 1.57, "compile_seconds": 20.0})
    assert slow == {"bar": 1.2, "met": False, "compile_met": False}
    assert worker._judged(row, {"seconds": 1.0, "compile_seconds": 5.0})["compile_met"]
    ours = {"row": "evidence and gradient", "precision": "float64", "size": 10, "seconds": 0.05}
    (peer,) = (row for row in run.PEERS if row.name == f"GPyTorch: {ours['row']}")
    theirs = {"size": 10, "seconds": 0.11}
    figures = run._against([ours], peer, "float64", theirs, quick=False)
    assert (figures["ratio_bar"], figures["ratio_met"]) == (0.4, False)
    assert "ratio_met" not in run._against([ours], peer, "float64", theirs, quick=True)
    # The bar on compilation is one of kernax alone.
    assert worker._judged(peer, {"seconds": 1.0, "compile_seconds": 20.0}) == {}
    line = run.sentence(ours | theirs | slow | figures)
    assert "bar 1.2 s MISSED" in line
    assert "compile bar 6 s MISSED" in line
    assert "ratio bar 0.4 MISSED" in line


@needs_x64
def test_other_libraries_in_jax_run_on_the_device_and_long_rows_last(monkeypatch):
    """A library in JAX that is timed on the CPU, or a row of minutes before the others."""
    calls = []
    monkeypatch.setattr(
        run, "_measure", lambda rows, process, *_: calls.append((process.platforms, rows))
    )
    run._measure_all("gpu", [*run.ROWS, *run.PEERS], 0.0, {"quick": True}, None)
    (on_device, rows), (elsewhere, peers) = calls
    assert (on_device, elsewhere) == ("cuda,cpu", "cpu")
    assert "tinygp: evidence and gradient" in {row.name for row in rows}
    budgets = [row.budget for row in rows]
    assert budgets == sorted(budgets)
    assert rows[0] is run.ROWS[0]
    assert {row.name.split(":")[0] for row in peers} == {"GPyTorch", "joblib", "KeOps"}


@needs_x64
def test_figures_of_a_page_have_the_date_of_their_record():
    measured = {"row": "gram, d=64", "precision": "float32", "size": 9, "seconds": 0.5}
    rows = [measured | {"compile_seconds": 2.0}, {"row": "a", "not_measured": "no time was left"}]
    record = {"environment": {"date": "2031-02-03"}, "rows": rows}
    wanted = page.Figure("2031-02-03", "gram, d=64", 9, "float32", 0.5, 2.0)
    assert page.figures_of(record) == [wanted]
    assert page.figures_of(record | {"date": "2030-01-01"})[0].date == "2030-01-01"


@needs_x64
def test_the_table_of_the_page_on_gpus_is_the_one_that_the_figures_give():
    assert page.PAGE.read_text() == page.with_table(page.PAGE.read_text())
