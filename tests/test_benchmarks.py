"""The comparison with another commit, here with HEAD itself: what it says of a row, and when it
exits with 1; and the sizes of programs.
"""

import json
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from conftest import needs_x64
from jax import lax

import kernax as kx

pytestmark = needs_x64  # once: the rows say their own precision
run = pytest.importorskip("benchmarks.against.run")
measure = pytest.importorskip("benchmarks.against.measure")
rows = pytest.importorskip("benchmarks.against.rows")
versions = pytest.importorskip("benchmarks.against.versions")
sizes = pytest.importorskip("benchmarks.program_sizes")
main = pytest.importorskip("benchmarks.__main__").main
Program = pytest.importorskip("benchmarks.harness").Program


@pytest.fixture(scope="module")
def head():
    try:
        return versions.short_name("HEAD")
    except versions.NoSuchCommit as error:
        pytest.skip(f"no history to compare with: {error}")


def is_other(kernax):
    return not Path(kernax.__file__).is_relative_to(versions.HERE)


def value(kernax, n):
    return Program(lambda x: kernax.RBF(1.0)(x, 2 * x), rows.points(1, n)[0])


def wrong_here(kernax, n):
    size = 1.0 if is_other(kernax) else 1.0 + 1e-3
    return Program(lambda x: size * kernax.RBF(1.0)(x, 2 * x), rows.points(1, n)[0])


def missing_there(kernax, n):
    name = "NoSuchLoss" if is_other(kernax) else "Huber"
    loss = rows.public(kernax, f"losses.{name}")
    return Program(lambda y: loss()(y, 0 * y), rows.numbers(1.0))


def an_argument_missing_there(kernax, n):
    given = {"no_such_argument": 1} if is_other(kernax) else {}
    return Program(lambda x: kernax.RBF(1.0, **given)(x, 2 * x), rows.points(1, n)[0])


def failing(kernax, n):
    raise ValueError("this row is broken")


def tiny(program):
    return rows.Row(program.__name__, program, 20, 10, 1e-5, "float32")


@pytest.fixture(scope="module")
def both(head):
    """The modules that these tests have imported, and those of HEAD."""
    modules = {name: module for name, module in sys.modules.items() if name.startswith("kernax")}
    this = versions.Version("here", versions.HERE, modules)
    with run.without_cache(), versions.checked_out(head) as directory:
        yield this, versions.imported(head, directory)


@pytest.fixture(scope="module")
def compare(both, tmp_path_factory):
    """The exit code of a row, what is written down, and what is printed."""
    file = tmp_path_factory.mktemp("records") / "record.json"

    def compare(*programs):
        code = run.answered(map(tiny, programs), *both, True, file)
        return code, json.loads(file.read_text())["rows"]

    return compare


@pytest.mark.nightly
def test_a_row_that_agrees_is_timed_five_times_in_both_versions(compare):
    code, (record,) = compare(value)
    assert code == 0
    assert record["difference"] <= 1e-6
    assert len(record["this"]["seconds"]) == len(record["other"]["seconds"]) == 5
    assert record["ratio"] == record["this"]["median"] / record["other"]["median"]
    assert record["memory_ratio"] == 1
    assert min(record["this"]["compile"], record["other"]["trace"]) > 0


@pytest.mark.nightly
def test_a_wrong_answer_exits_1_and_no_time_is_taken(compare, capsys):
    code, (record,) = compare(wrong_here)
    assert code == 1
    assert record["verdicts"] == ["MISMATCH"]
    assert 9e-4 < record["difference"] < 1.1e-3
    assert record["this"]["seconds"] == []
    assert "MISMATCH: 1: wrong_here" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("program", [missing_there, an_argument_missing_there])
def test_a_call_that_the_other_commit_does_not_have_is_new_and_no_error(compare, program):
    code, (record,) = compare(program)
    assert code == 0
    assert record["verdicts"] == ["new"]
    assert record["other"] is None


@pytest.mark.slow
def test_a_row_that_fails_exits_1_and_the_next_one_is_measured(compare):
    code, (failed, measured) = compare(failing, value)
    assert code == 1
    assert failed["failure"] == "ValueError: this row is broken"
    assert measured["ratio"] > 0


@pytest.mark.slow
def test_both_versions_are_their_own_and_neither_takes_the_place_of_the_other(both):
    this, other = both
    assert sys.modules["kernax"] is kx is this.kernax
    assert is_other(other.kernax)
    assert other.kernax.RBF is not kx.RBF
    with versions.at_work(other):
        assert sys.modules["kernax"] is other.kernax
        module = "kernax.core.operators.gram"
        assert sys.modules[module] is not this.modules[module]
    assert sys.modules["kernax"] is kx


def test_the_checkout_is_removed_whatever_happens(head):
    def interrupted():
        with versions.checked_out(head) as directory:
            kept.append(directory)
            assert (directory / "kernax" / "__init__.py").exists()
            raise KeyboardInterrupt

    kept = []
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not kept[0].exists()


@pytest.mark.nightly
def test_the_command_compares_this_checkout_with_head(head, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["benchmarks", "gram, d=5", "--quick", "--against", head])
    assert main() == 0
    assert not list(tmp_path.iterdir()), "the checkout is still there"
    assert sys.modules["kernax"] is kx
    assert "2 rows" in capsys.readouterr().out


def test_what_git_does_not_know_is_refused(head):
    with pytest.raises(versions.NoSuchCommit):
        versions.short_name("no-such-commit")


def attempt(seconds, size=100):
    return measure.Attempt(None, bytes=size, seconds=[seconds] * 5)


@pytest.mark.parametrize(
    ("this", "verdicts"),
    [
        (attempt(1.09), ["level"]),
        (attempt(1.11), ["SLOWER"]),
        (attempt(0.90), ["faster"]),
        (attempt(1.0, 106), ["HEAVIER"]),
        (attempt(1.0, 95), ["lighter"]),
        (attempt(2.0, 200), ["SLOWER", "HEAVIER", "OVER 1.5 s"]),
    ],
)
def test_losses_are_said_as_plainly_as_wins(this, verdicts):
    row = rows.Row("a row", value, 10, 10, bar=1.5)
    found = measure.Comparison(row, 10, this, attempt(1.0))
    assert found.verdicts == verdicts
    assert run.line(found, quick=False).endswith(", ".join(verdicts))
    assert run.line(found, quick=True).endswith("not judged")


def test_names_that_have_moved_are_found_in_either_place():
    flat = type("flat", (), {"Huber": 1})
    rooms = type("rooms", (), {"losses": type("losses", (), {"Huber": 2})})
    assert rows.public(flat, "losses.Huber") == 1
    assert rows.public(rooms, "losses.Huber") == 2
    with pytest.raises(rows.Missing, match=r"kernax\.losses\.Hinge"):
        rows.public(rooms, "losses.Hinge")


def test_every_row_has_a_name_of_its_own():
    names = [row.name for row in run.ROWS]
    assert len(set(names)) == len(names)


def test_operations_of_a_program_are_counted_with_those_inside_loops():
    def loop(x):
        return lax.fori_loop(0, 3, lambda i, y: jnp.sin(y) * x, x)

    # The loop, a sine, a product, and what counts its steps.
    inside = sizes.operations(jax.make_jaxpr(lambda x: jnp.sin(x) * x)(1.0).jaxpr)
    assert inside == 2
    assert sizes.operations(jax.make_jaxpr(loop)(1.0).jaxpr) > inside + 1


def test_the_table_of_programs_has_a_function_and_a_learner():
    (functions, learners) = sizes.rows(["gram", "isotonic"])
    [(name, value, gradient)] = functions
    assert (name, value < gradient) == ("gram", True)
    [(name, value, gradient)] = learners
    assert (name, value > 0, gradient) == ("isotonic", True, None)
    assert "| isotonic |" in sizes.written(functions, learners)
    page = sizes.PAGE.read_text()
    assert all(f"| {name} | " in page for name in (*sizes.FUNCTIONS, *sizes.learners()))
