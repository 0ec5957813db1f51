"""Several processes that compute together find what one finds, and go on where they were killed."""

import os
import random
import re
import runpy
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, assert_close, needs_x64, untyped

import kernax

pytestmark = needs_x64  # once: what starts and ends processes knows no precision

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "tests" / "jobs"
EXAMPLES = ROOT / "examples" / "cluster"
SETTINGS = {"PYTHONPATH": str(ROOT)}
KILLS = int(os.environ.get("KERNAX_KILLS", "3"))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Job:
    """A script in several processes of this machine, which are killed where the test ends.

    Each is told the address of process 0, how many there are, and its own number.
    """

    started = []

    def __init__(self, folder, script, count=2):
        address = f"127.0.0.1:{free_port()}"
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(script), address, str(count), str(number)],
                cwd=folder,
                env=os.environ | SETTINGS,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for number in range(count)
        ]
        self.started.append(self)

    def ended(self, number, seconds=120):
        """Status and output of a process."""
        process = self.processes[number]
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output

    def kill(self, first=0):
        """One of the processes, and then, as whoever starts a job does, the others."""
        for process in self.processes[first:] + self.processes[:first]:
            with process:  # which waits, and closes what is read of it
                process.kill()


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    for job in Job.started:
        job.kill()
    Job.started.clear()


@pytest.mark.nightly
def test_functions_on_rows_of_two_processes_agree_with_one(tmp_path, monkeypatch):
    """Values to 1e-10; the row of a NaN is named; a checkpoint of two processes is read by one, and
    that of one by two; learning that was killed goes on; an exception in one of them ends both,
    though the other waits for it.
    """
    pytest.importorskip("orbax.checkpoint")
    monkeypatch.syspath_prepend(JOBS)
    import calls  # pyright: ignore[reportMissingImports]

    rng = np.random.default_rng(0)
    X = rng.normal(size=(23, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=23)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    filled = np.concatenate([X, X[-1:]])
    state = {"rows": jnp.asarray(filled), "key": jax.random.key(1), "count": 0}
    of_one = list(kernax.Checkpoint(tmp_path / "of one").steps(calls.advance, state, 3))[-1][1]
    job = Job(tmp_path, JOBS / "agree.py")
    status, output = job.ended(1)
    assert status != 0, output
    assert "KeyError: 'of process one'\n" in output
    status, output = job.ended(0)
    assert status != 0, output
    found = np.load(tmp_path / "found.npz")
    for name, call in calls.CALLS.items():
        assert_close(found[name], np.asarray(call(X, y, None)), 1e-10)
    assert "first in row 7" in str(found["message"])
    assert "but some are neither: convert these to global arrays" in str(found["refusal"])
    np.testing.assert_array_equal(found["rows of one"], of_one["rows"])
    assert_close(found["learned"], calls.learned(X, y, None).stats["losses"], 1e-10)

    step, kept = kernax.Checkpoint(tmp_path / "kept").latest(state)
    assert step == kept["count"] == 3
    assert kept["key"] == of_one["key"]
    np.testing.assert_array_equal(kept["rows"], of_one["rows"])


def here(folder, script, monkeypatch):
    """Runs a script in this process."""
    with monkeypatch.context() as patched:
        patched.chdir(folder)
        patched.setattr(sys, "argv", [str(script)])
        with jax.numpy_dtype_promotion("standard"):
            runpy.run_path(str(script))


def write_rows(folder, n):
    rng = np.random.default_rng(0)
    for name, shape in (("X", (n, 2)), ("y", n), ("new", (5, 2))):
        np.save(folder / f"{name}.npy", rng.normal(size=shape))


@pytest.mark.slow
def test_one_script_runs_on_one_device_on_eight_and_in_two_processes(tmp_path, monkeypatch):
    """The eight are those of a job of Slurm, which JAX finds by itself."""
    write_rows(tmp_path, 53)
    script = EXAMPLES / "fit.py"
    eight = {
        "JAX_NUM_CPU_DEVICES": "8",
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "1",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    here(tmp_path, script, monkeypatch)
    of_one = np.load(tmp_path / "predictions.npy")
    (tmp_path / "predictions.npy").unlink()
    command = [sys.executable, str(script), "cluster"]
    settings = os.environ | SETTINGS | eight
    subprocess.run(command, cwd=tmp_path, env=settings, check=True, timeout=120)
    assert_close(np.load(tmp_path / "predictions.npy"), of_one, 1e-8)

    (tmp_path / "predictions.npy").unlink()
    in_two = Job(tmp_path, script)
    for number in range(2):
        status, output = in_two.ended(number)
        assert status == 0, output
    assert_close(np.load(tmp_path / "predictions.npy"), of_one, 1e-8)


def test_the_template_of_kubernetes_tells_the_script_how_many_processes_there_are():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((EXAMPLES / "jobset.yaml").read_text())["spec"]["replicatedJobs"][0]
    of_job = job["template"]["spec"]
    container = of_job["template"]["spec"]["containers"][0]
    _, script, _, count, number = container["command"]
    assert (EXAMPLES / script).exists()
    assert int(count) == of_job["completions"]
    assert number == f"$({container['env'][0]['name']})"
    assert of_job["parallelism"] == of_job["completions"]


@pytest.mark.slow
def test_learning_that_is_killed_at_random_moments_ends_where_it_would_have(tmp_path, monkeypatch):
    """By kill -9 of one of two processes; the last run goes on in one process."""
    pytest.importorskip("orbax.checkpoint")
    script = EXAMPLES / "learn.py"
    chance = random.Random(0)
    undisturbed, killed = two_folders(tmp_path)
    here(undisturbed, script, monkeypatch)
    reached = [0]
    for _ in range(KILLS):
        job = Job(killed, script)
        steps = steps_of(job.processes[0].stdout)
        first = next(steps)
        reached.append(first)
        until = chance.randrange(first + 1, min(first + 400 // KILLS, 199))
        next(step for step in steps if step >= until)
        job.kill(chance.randrange(2))
        if until > 190:  # the next one might be over before it is killed
            break
    assert reached == sorted(reached)
    assert reached[-1] > 0, "no run went on from a checkpoint"
    here(killed, script, monkeypatch)
    assert_close(np.load(killed / "learned.npy"), np.load(undisturbed / "learned.npy"), 1e-8)


@pytest.mark.nightly
def test_a_fit_that_is_killed_at_random_moments_ends_where_it_would_have(tmp_path, monkeypatch):
    """By kill -9 of one of two processes; the last run goes on in one process."""
    pytest.importorskip("orbax.checkpoint")
    script = JOBS / "fit.py"
    chance = random.Random(0)
    undisturbed, killed = two_folders(tmp_path)
    here(undisturbed, script, monkeypatch)
    last = newest(undisturbed)
    for number in range(KILLS):
        reached = newest(killed)
        assert (reached > 0) == (number > 0), "no run went on from a checkpoint"
        if reached > last - 10:  # the next one might be over before it is killed
            break
        job = Job(killed, script)
        until = reached + chance.randint(1, (last - reached - 10) // (KILLS - number) + 1)
        while newest(killed) < until:
            assert job.processes[0].poll() is None, job.ended(0)
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.1))
        job.kill(chance.randrange(2))
    assert 0 < newest(killed) < last
    here(killed, script, monkeypatch)
    name = "coefficients.npy"
    assert_close(np.load(killed / name), np.load(undisturbed / name), 1e-8)


def two_folders(tmp_path):
    """With the same rows in both."""
    folders = tmp_path / "undisturbed", tmp_path / "killed"
    for folder in folders:
        folder.mkdir()
        write_rows(folder, 31)
    return folders


def newest(folder):
    """After how many steps the last checkpoint was kept."""
    return max([int(path.name) for path in (folder / "run").glob("*[0-9]")], default=0)


def steps_of(output):
    for line in output:
        if match := re.match(r"step (\d+)", line):
            yield int(match[1])


@pytest.fixture
def files(tmp_path):
    """Twenty-three rows in two Parquet files, in row groups of four."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = np.arange(69.0).reshape(23, 3)
    paths = []
    for name, rows in (("one", table[:10]), ("two", table[10:])):
        paths.append(tmp_path / f"{name}.parquet")
        columns = pyarrow.table({"a": rows[:, 0], "b": rows[:, 1], "y": rows[:, 2]})
        parquet.write_table(columns, paths[-1], row_group_size=4)
    return paths, table


def test_rows_of_parquet_files_are_read_where_they_are_asked_for(files, monkeypatch):
    paths, table = files
    rows = kernax.scale.ParquetRows(paths, ["b", "y"], dtype=DTYPE)
    read = []
    of_group = kernax.scale.ParquetRows._read
    monkeypatch.setattr(
        kernax.scale.ParquetRows,
        "_read",
        lambda self, *place: read.append(place) or of_group(self, *place),
    )
    assert (rows.shape, rows.ndim, rows.dtype) == ((23, 2), 2, DTYPE)
    np.testing.assert_array_equal(rows[9:15], table[9:15, 1:])
    assert [place[1] for place in read] == [2, 0, 1]
    for part in (slice(None), slice(-1, None), slice(5, 5), slice(22, 40)):
        np.testing.assert_array_equal(rows[part], table[part, 1:])
    target = kernax.scale.ParquetRows(paths[1], "a", dtype=DTYPE)
    np.testing.assert_array_equal(target[3:], table[13:, 0])
    with pytest.raises(ValueError, match="without steps"):
        rows[::2]
    with pytest.raises(ValueError, match=r"rows must be a slice, such as .*, but is 3"):
        untyped(kernax.scale.ParquetRows.__getitem__)(rows, 3)
    with pytest.raises(ValueError, match="no column c: it has a, b, y"):
        kernax.scale.ParquetRows(paths, ["c"])


def test_rows_of_parquet_files_are_laid_over_a_mesh(files):
    paths, table = files
    mesh = jax.make_mesh((1,), ("rows",))
    X = kernax.scale.ParquetRows(paths, ["a", "b"], dtype=DTYPE)
    y = kernax.scale.ParquetRows(paths, "y", dtype=DTYPE)
    X, y, weights = kernax.scale.rows_over(mesh, X, y)
    np.testing.assert_array_equal(X, table[:, :2])
    np.testing.assert_array_equal(y, table[:, 2])
    assert weights is None
