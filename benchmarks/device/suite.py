"""A part of the tests on the device, in both precisions at once, stopped when its time is over."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.report import versions

FILES = (
    "pairwise",
    "powers",
    "gram",
    "linalg",
    "ridge",
    "expansion",
    "batching",
    "svm",
    "gp",
    "strings",
)
QUICK = ("powers",)  # small, and in both precisions
_OUTCOME = re.compile(
    r"\b(PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b (\S+)"
    r"|^(\S+::\S+.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b"
)
GRACE = 10.0  # seconds that a run has for its summary when it is interrupted


def outcomes(platform: str, quick: bool, seconds: float) -> list[dict[str, Any]]:
    """For each precision: how many tests passed and were skipped, which failed and how, whether all
    of them ran in time.
    """
    deadline = time.monotonic() + seconds
    runs = [
        _started(platform, precision, quick)
        for precision in (("float32",) if quick else ("float32", "float64"))
    ]
    return [_ended(*run, deadline) for run in runs]


def _started(platform: str, precision: str, quick: bool) -> tuple[str, subprocess.Popen, Any]:
    settings = {
        "JAX_PLATFORMS": platform,
        "JAX_ENABLE_X64": str(int(precision == "float64")),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # several processes share the device
    }
    if find_spec("beartype") is None:
        settings["JAXTYPING_DISABLE"] = "1"
    processes = 0 if quick else max(1, (os.cpu_count() or 2) // 2 - 1)
    files = [str(*Path("tests").rglob(f"test_{name}.py")) for name in (QUICK if quick else FILES)]
    options = [
        "-o",
        "addopts=",
        "-m",
        "not slow and not nightly",
        # pytest-benchmark warns beside xdist, and warnings are errors here.
        "-p",
        "no:benchmark",
        "-v",
        "--tb=line",
        "-n",
        str(processes),
        "--dist",
        "worksteal",
    ]
    log = tempfile.TemporaryFile("w+")  # noqa: SIM115  it lives as long as the process
    command = [sys.executable, "-m", "pytest", *options, *files]
    run = subprocess.Popen(
        command, env=os.environ | settings, stdout=log, stderr=log, start_new_session=True
    )
    return precision, run, log


def _ended(precision: str, run: subprocess.Popen, log: Any, deadline: float) -> dict[str, Any]:
    in_time = _waited(run, deadline - time.monotonic())
    if not in_time:
        run.send_signal(signal.SIGINT)
        if not _waited(run, GRACE):
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    with log:
        log.seek(0)
        text = log.read()
    return {
        "precision": precision,
        "in_time": in_time,
        "exit": run.returncode,
        "versions": versions(),
    } | parsed(text)


def _waited(run: subprocess.Popen, seconds: float) -> bool:
    try:
        run.wait(max(0.1, seconds))
    except subprocess.TimeoutExpired:
        return False
    return True


def parsed(text: str) -> dict[str, Any]:
    """Counts and names from what pytest wrote; the end of it, which says why tests failed."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        match = _OUTCOME.search(line)
        if match:
            found.setdefault(match[1] or match[4], set()).add(match[2] or match[3])
    failed = sorted(found.get("FAILED", set()) | found.get("ERROR", set()))
    counts = {name.lower(): len(found.get(name, ())) for name in ("PASSED", "SKIPPED")}
    return counts | {
        "failed": failed,
        "end": text[-6000:] if failed or not counts["passed"] else "",
    }
