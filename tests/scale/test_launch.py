"""Jobs of several processes: they find what one finds, and end together, whoever dies."""

import contextlib
import os
import random
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import DTYPE, QUICK_FLAGS, assert_close, needs_x64, untyped

import kernax
from kernax.scale import launch as kernax_launch
from kernax.scale.cluster import processes

pytestmark = needs_x64  # once: what starts and ends processes knows no precision

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "tests" / "jobs"
EXAMPLES = ROOT / "examples" / "cluster"
KILLS = int(os.environ.get("KERNAX_KILLS", "3"))
PROC = Path("/proc")
on_linux = pytest.mark.skipif(not PROC.exists(), reason="looks for processes in /proc")


class Job:
    """A command whose processes, and theirs, carry a mark by which they are found; after so many
    seconds, and where a test ends, all of them are killed.
    """

    started = []

    def __init__(self, folder, command, seconds=120, **environment):
        self.mark = f"KERNAX_TEST_JOB={uuid.uuid4()}"
        name, value = self.mark.split("=")
        settings = {"PYTHONPATH": str(ROOT), "XLA_FLAGS": QUICK_FLAGS, name: value}
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=folder,
            env=os.environ | settings | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.limit = threading.Timer(seconds, self.kill)
        self.limit.start()
        self.started.append(self)

    def ended(self):
        """Status, output and errors."""
        output, errors = self.process.communicate()
        return self.process.returncode, output, errors

    def kill(self):
        for process in self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def running(self):
        """The numbers of its processes."""
        found = []
        for path in PROC.glob("[0-9]*/environ"):
            try:
                if self.mark.encode() in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:  # ended meanwhile, or of another user
                continue
        return found

    def leaves_nothing(self, seconds=10):
        """Whether all its processes have ended, at the latest after so many seconds."""
        until = time.monotonic() + seconds
        while self.running():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    for job in Job.started:
        job.limit.cancel()
        job.kill()
    Job.started.clear()


def launch(folder, script, *arguments, count=2, options=(), **environment):
    command = ["-m", "kernax.scale.launch", "--processes", count, *options, script, *arguments]
    return Job(folder, command, **environment)


def script_of(folder, *lines):
    path = folder / "script.py"
    path.write_text("\n".join(lines))
    return path


SLEEPERS = (
    "import os, signal, subprocess, sys, time",
    "me = os.environ['KERNAX_PROCESS']",
    "print('started', *sys.argv[1:], flush=True)",
    "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])",
)


@on_linux
def test_a_job_ends_with_the_first_process_that_fails_and_says_how(tmp_path):
    last_words = "if me == '1': print('lost', file=sys.stderr); os.kill(os.getpid(), 9)"
    script = script_of(tmp_path, *SLEEPERS, last_words, "time.sleep(60)")
    job = launch(tmp_path, script, "--rows", "5", count=3)
    began = time.monotonic()
    status, output, errors = job.ended()
    assert time.monotonic() - began < 30
    assert status == 128 + signal.SIGKILL
    assert "[1] started --rows 5" in output.splitlines()
    assert re.search(r"process 1 of 3 \(pid \d+\) was killed by SIGKILL", errors)
    assert errors.endswith("  started --rows 5\n  lost\n")
    assert errors.count("kernax.scale.launch:") == 1
    assert job.leaves_nothing()


@on_linux
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_runs_on_where_the_launcher_is_ended(number, tmp_path):
    script = script_of(tmp_path, *SLEEPERS, "time.sleep(60)")
    job = launch(tmp_path, script)
    for _ in range(2):
        assert "started" in job.process.stdout.readline()
    job.process.send_signal(number)
    job.process.wait(10)
    assert job.leaves_nothing()
    assert job.ended()[0] in (-signal.SIGKILL, 128 + signal.SIGTERM)


# JAX as far as the launcher looks at it.
STAND_IN = (
    "import atexit, os, sys, time, types",
    "jax = sys.modules['jax'] = types.ModuleType('jax')",
    "jax.distributed = types.SimpleNamespace(is_initialized=lambda: {connected})",
    "jax.process_count = lambda: 1",
    "print('[Gloo] Rank 0 is connected to 1 peer ranks. Expected number of connected peers is: 1')",
    "print('here', __name__, os.path.basename(__file__), *sys.argv[1:], flush=True)",
)


def run_here(script, *arguments):
    """Runs a script in two processes, by a launcher in this one."""
    job = kernax_launch.Job(kernax_launch.command_of(str(script), arguments), 2)
    return kernax_launch.launch(job, [])


@on_linux
def test_a_process_that_exits_with_a_failure_ends_the_job_and_waits_for_nobody(tmp_path, capsys):
    """As JAX does when Python ends, and so would the message name one that has lost the other."""
    lines = [line.format(connected=True) for line in STAND_IN]
    last = "sys.exit(3) if os.environ['KERNAX_PROCESS'] == '1' else time.sleep(60)"
    began = time.monotonic()
    assert run_here(script_of(tmp_path, *lines, "atexit.register(time.sleep, 60)", last), "a") == 3
    assert time.monotonic() - began < 30
    output, errors = capsys.readouterr()
    assert "process 1 of 2" in errors
    assert "[1] here __main__ script.py a\n" in output
    assert "Gloo" not in output + errors


@on_linux
def test_a_script_that_never_connects_its_processes_is_told_so(tmp_path, capsys):
    lines = [line.format(connected=False) for line in STAND_IN]
    assert run_here(script_of(tmp_path, *lines)) == 0
    output, _ = capsys.readouterr()
    for number in (0, 1):
        assert f"[{number}] kernax.scale.launch: this is one of 2 processes, but" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: --processes, script\n"),
        (["--processes", "2", "."], ". is a folder"),
        (["--processes", "2", "nowhere.py"], "there is no file nowhere.py"),
        (["--processes", "0", __file__], "--processes must be at least 1, but is 0"),
        (["--processes", "1", "--devices", "0", __file__], "--devices must be at least 1"),
    ],
)
def test_what_cannot_be_started_is_refused(arguments, words, capsys):
    with pytest.raises(SystemExit):
        kernax_launch.main(arguments)
    assert words in capsys.readouterr().err


def test_each_process_is_told_which_one_it_is_and_which_accelerators_are_its_own(monkeypatch):
    for name, value in kernax_launch.Job([], 3, 2).environment(1, 1234).items():
        monkeypatch.setenv(name, value)
    place = processes._told_by_environment()
    assert place == ("127.0.0.1:1234", 3, 1)
    assert os.environ["JAX_LOCAL_DEVICE_IDS"] == "2,3"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"KERNAX_PROCESSES": "2", "KERNAX_PROCESS": "0"}, "are '', '2' and '0'"),
        (
            {"KERNAX_COORDINATOR": "a:1", "KERNAX_PROCESSES": "2", "KERNAX_PROCESS": "2"},
            "are 'a:1', '2' and '2'",
        ),
        (
            {"KERNAX_COORDINATOR": "a:1", "KERNAX_PROCESSES": "x", "KERNAX_PROCESS": "0"},
            "are 'a:1', 'x' and '0'",
        ),
    ],
)
def test_variables_that_do_not_fit_together_are_refused(variables, words, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=re.escape(words)):
        kernax.scale.connect()


def test_what_comes_too_late_or_not_at_all_is_told_so(monkeypatch):
    """Devices are known in this process."""
    names = ("KERNAX_COORDINATOR", "KERNAX_PROCESSES", "KERNAX_PROCESS")
    for name, value in zip(names, ("127.0.0.1:1", "2", "0")):
        monkeypatch.setenv(name, value)
    jax.devices()
    mesh = jax.make_mesh((1,), ("rows",))
    for call in (
        lambda: kernax.scale.rows_over(mesh, np.ones((3, 1))),
        lambda: next(kernax.scale.Checkpoints("nowhere").steps(jnp.sin, 0.0, 1)),
    ):
        with pytest.raises(RuntimeError, match=r"process 0 of 2, .* call kernax\.scale\.connect"):
            call()
    with pytest.raises(RuntimeError, match=r"came too late: .* Call it right after the imports"):
        kernax.scale.connect()


def test_one_process_is_left_alone(monkeypatch):
    monkeypatch.setenv("KERNAX_PROCESSES", "1")
    kernax.scale.connect()
    assert sys.excepthook is not processes._end_at_once
    assert not jax.distributed.is_initialized()


@pytest.mark.slow
def test_verbs_on_rows_of_two_processes_agree_with_one(tmp_path, monkeypatch):
    """Values to 1e-10; the row of a NaN is named; a checkpoint of two processes is read by one; an
    exception in one of them ends the job, though the other waits for it. By itself Python would
    wait for minutes, and a message would name the one that waits.
    """
    pytest.importorskip("orbax.checkpoint")
    monkeypatch.syspath_prepend(JOBS)
    import verbs  # pyright: ignore[reportMissingImports]

    rng = np.random.default_rng(0)
    X = rng.normal(size=(23, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=23)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    status, output, errors = launch(tmp_path, JOBS / "agree.py", tmp_path).ended()
    assert status == 1, output + errors
    assert "process 1 of 2" in errors
    assert errors.endswith("KeyError: 'of process one'\n")
    found = np.load(tmp_path / "found.npz")
    for name, verb in verbs.VERBS.items():
        assert_close(found[name], np.asarray(verb(X, y, None)), 1e-10)
    assert "first in row 7" in str(found["message"])
    assert "but some are neither: make global arrays" in str(found["refusal"])

    filled = np.concatenate([X, X[-1:]])
    state = {"rows": jnp.asarray(filled), "key": jax.random.key(1), "count": 0}
    step, kept = kernax.scale.Checkpoints(tmp_path / "kept").latest(state)
    for _ in range(3):
        state = verbs.advance(state)
    assert step == kept["count"] == 3
    assert kept["key"] == state["key"]
    np.testing.assert_array_equal(kept["rows"], state["rows"])


def here(folder, script, monkeypatch):
    """Runs a script in this process."""
    with monkeypatch.context() as patched:
        patched.chdir(folder)
        patched.setenv("KERNAX_PROCESSES", "1")
        with jax.numpy_dtype_promotion("standard"):
            runpy.run_path(str(script))


def write_rows(folder, n):
    rng = np.random.default_rng(0)
    for name, shape in (("X", (n, 2)), ("y", n), ("new", (5, 2))):
        np.save(folder / f"{name}.npy", rng.normal(size=shape))


@pytest.mark.slow
def test_one_script_runs_on_one_device_on_eight_and_in_four_processes(tmp_path, monkeypatch):
    """The eight are those of a job of Slurm, which JAX finds by itself."""
    write_rows(tmp_path, 53)
    script = EXAMPLES / "fit.py"
    slurm = {
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_NTASKS": "1",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    here(tmp_path, script, monkeypatch)
    of_one = np.load(tmp_path / "predictions.npy")
    for job in (
        Job(tmp_path, [script], JAX_NUM_CPU_DEVICES="8", **slurm),
        launch(tmp_path, script, count=4),
    ):
        (tmp_path / "predictions.npy").unlink()
        status, output, errors = job.ended()
        assert status == 0, output + errors
        assert_close(np.load(tmp_path / "predictions.npy"), of_one, 1e-8)


def test_the_template_of_kubernetes_sets_what_connect_reads():
    yaml = pytest.importorskip("yaml")
    job = yaml.safe_load((EXAMPLES / "jobset.yaml").read_text())["spec"]["replicatedJobs"][0]
    of_job = job["template"]["spec"]
    container = of_job["template"]["spec"]["containers"][0]
    variables = {entry["name"]: entry for entry in container["env"]}
    names = {processes.COORDINATOR, processes.PROCESSES, processes.PROCESS}
    assert variables.keys() == names
    assert int(variables[processes.PROCESSES]["value"]) == of_job["completions"]
    assert of_job["parallelism"] == of_job["completions"]


@on_linux
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
        job = launch(killed, script)
        first = next(steps_of(job.process.stdout))
        reached.append(first)
        until = chance.randrange(first + 1, min(first + 400 // KILLS, 199))
        next(step for step in steps_of(job.process.stdout) if step >= until)
        assert_ends_with_one(job, chance)
        if until > 190:  # the next one might be over before it is killed
            break
    assert reached == sorted(reached)
    assert reached[-1] > 0, "no run went on from a checkpoint"
    here(killed, script, monkeypatch)
    assert_close(np.load(killed / "learned.npy"), np.load(undisturbed / "learned.npy"), 1e-8)


@on_linux
@pytest.mark.slow
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
        job = launch(killed, script)
        until = reached + chance.randint(1, (last - reached - 10) // (KILLS - number) + 1)
        while newest(killed) < until:
            assert job.process.poll() is None, job.ended()
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.1))
        assert_ends_with_one(job, chance)
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


def assert_ends_with_one(job, chance):
    """Kills one of two processes: within 30 s a message names it, and nothing runs on."""
    kill_one(job, chance)
    began = time.monotonic()
    status, output, errors = job.ended()
    assert time.monotonic() - began < 30
    assert status == 128 + signal.SIGKILL, output + errors
    assert re.search(r"process [01] of 2 \(pid \d+\) was killed by SIGKILL", errors)
    assert job.leaves_nothing()


def newest(folder):
    """After how many steps the last checkpoint was kept."""
    return max([int(path.name) for path in (folder / "run").glob("*[0-9]")], default=0)


def steps_of(output):
    for line in output:
        if match := re.match(r"\[0\] step (\d+)", line):
            yield int(match[1])


def kill_one(job, chance):
    """Ends one of the processes that run the script."""
    workers = sorted(
        process
        for process in job.running()
        if b"KERNAX_PROCESS=" in (PROC / str(process) / "environ").read_bytes()
    )
    os.kill(chance.choice(workers), signal.SIGKILL)


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
