"""Row after row in a process that is stopped when a row outlasts its budget; the file is written
after each of them.
"""

import json
import multiprocessing
import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.device import suite
from benchmarks.device.rows import COMPILE_BAR, PEERS, ROWS, Row
from benchmarks.device.worker import agreement, serve

_PLATFORMS = {"gpu": "cuda,cpu", "cpu": "cpu"}  # the CPU is there as well, for comparison
_FOR_THE_SUITE, _FOR_PEERS = 170.0, 60.0  # seconds kept for them
_START = 90.0  # seconds until a process must have said where it is
_PATIENCE = 300.0  # seconds for a row of a quick run: the machine may have other work
_LEAST = 5.0  # with less time than this a row is not begun


@dataclass
class Process:
    """A process that measures, and what it said of the device and the versions."""

    platforms: str
    quick: bool
    environment: dict[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        os.environ["JAX_PLATFORMS"] = self.platforms
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.9")
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.quick), daemon=True)
        self.process.start()
        theirs.close()
        if not self.connection.poll(_START):
            self.stop()
            raise RuntimeError(f"no device of {self.platforms} answered within {_START:g} seconds")
        self.environment = self.connection.recv()  # EOFError if it ended, having printed why

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()

    def asked(self, row: Row, precision: str, seconds: float) -> dict[str, Any]:
        """The record of a row; if time is over or the process died, what was known by then, and the
        process is started anew.
        """
        deadline, record = time.monotonic() + seconds, {}
        self.connection.send((row.name, precision))
        try:
            while self.connection.poll(max(0.0, deadline - time.monotonic())):
                record = self.connection.recv()
                if record.pop("done", False):
                    return record
            reason = f"over its {seconds:.0f} s while {record.get('step', 'starting')}"
        except (EOFError, ConnectionError):
            reason = f"the process ended while {record.get('step', 'starting')}"
        self.stop()
        self.start()
        return record | {"not_measured": reason}


def main(device: str, names: list[str], quick: bool, seconds: float, file: Path | None) -> int:
    """Everything, within so many seconds; 1 if any answers disagree, a learner failed or a test
    did.
    """
    end = time.monotonic() + seconds
    with_suite = not names or "suite" in names
    report = {"seconds": seconds, "quick": quick, "card": _card(), "rows": [], "suite": []}
    _write(report, file)  # a folder that does not exist is noticed now
    wanted = [row for row in ROWS + PEERS if not names or any(name in row.name for name in names)]
    _measure_all(
        device, wanted, end - (_FOR_THE_SUITE if with_suite and not quick else 0.0), report, file
    )
    if with_suite:
        platform = _PLATFORMS[device].split(",")[0]
        report["suite"] = suite.outcomes(platform, quick, end - time.monotonic() - 2 * suite.GRACE)
        for outcome in report["suite"]:
            print(
                "suite:",
                {name: value for name, value in outcome.items() if name not in ("end", "versions")},
                flush=True,
            )
    report["complete"] = True
    _write(report, file)
    return int(
        any(is_wrong(record) for record in report["rows"])
        or any(part["failed"] for part in report["suite"])
    )


def _measure_all(
    device: str, rows: list[Row], end: float, report: dict[str, Any], file: Path | None
) -> None:
    """The rows in JAX, those that take long at the end, then those of other libraries in a process
    of their own, where JAX leaves the device alone.
    """
    quick = report["quick"]
    is_in_jax = lambda row: row.peer is None or row.in_jax
    ours = sorted((row for row in rows if is_in_jax(row)), key=lambda row: row.budget)
    peers = [row for row in rows if not is_in_jax(row)]
    if ours:
        _measure(
            ours,
            Process(_PLATFORMS[device], quick),
            end - (_FOR_PEERS if peers and not quick else 0.0),
            report,
            file,
        )
    if peers:
        _measure(peers, Process("cpu", quick), end, report, file)


def _card() -> str | None:
    """Name, driver and memory of the card, if there is one."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.strip()


def _measure(
    rows: list[Row], process: Process, end: float, report: dict[str, Any], file: Path | None
) -> None:
    process.start()
    # The first process is the one on the device.
    report.setdefault("environment", process.environment)
    try:
        for row in rows:
            for precision in row.precisions[-1:] if process.quick else row.precisions:
                seconds = min(_PATIENCE if process.quick else row.budget, end - time.monotonic())
                enough = seconds >= _LEAST
                record = (
                    process.asked(row, precision, seconds)
                    if enough
                    else {"not_measured": "no time was left"}
                )
                if row.peer is not None:
                    record |= _against(report["rows"], row, precision, record, process.quick)
                report["rows"].append({"row": row.name, "precision": precision} | record)
                print(sentence(report["rows"][-1]), flush=True)
                _write(report, file)
    finally:
        process.stop()


def _against(
    records: list[dict[str, Any]],
    row: Row,
    precision: str,
    record: dict[str, Any],
    quick: bool,
) -> dict[str, Any]:
    """How far another library's answer is from kernax's, where both are written down, and what
    share of its time kernax takes.
    """
    ours = next(
        (one for one in records if (one["row"], one["precision"]) == (row.peer, precision)), {}
    )
    if "seconds" not in record or "seconds" not in ours or record["size"] != ours["size"]:
        return {}
    ratio = ours["seconds"] / record["seconds"]
    figures: dict[str, Any] = {"kernax_ratio": ratio}
    if row.ratio_bar is not None and not quick:
        figures |= {"ratio_bar": row.ratio_bar, "ratio_met": ratio <= row.ratio_bar}
    if "answer" in record and "answer" in ours:
        figures |= agreement([record["answer"]], [ours["answer"]], row.tolerance(precision))
    return figures


def is_wrong(record: dict[str, Any]) -> bool:
    """Answers that disagree or are not finite, or a learner that says it failed; what was not
    measured is not wrong.
    """
    return not (
        record.get("agrees", True)
        and record.get("finite", True)
        and record.get("facts", {}).get("successful", True)
    )


def sentence(record: dict[str, Any]) -> str:
    """A record as a line."""
    facts = [f"{name} {value}" for name, value in record.get("facts", {}).items()]
    wrong = ["WRONG"] if is_wrong(record) else []
    words = [
        f"{record['row']}, {record.get('size', '')}, {record['precision']}:",
        *_figures(record),
        *facts,
        *wrong,
    ]
    return "  ".join(words)


def _figures(record: dict[str, Any]) -> list[str]:
    """Those that are there, in words."""
    form = {
        "seconds": lambda value: f"{value * 1e3:.2f} ms",
        "compile_seconds": lambda value: f"compile {value:.1f} s",
        "temporary_bytes": lambda value: f"temporary {value / 2**20:.0f} MB",
        "difference": lambda value: f"difference {value:.1e}",
        "cpu_seconds": lambda value: f"CPU {value * 1e3:.2f} ms at {record['compared_at']}",
        "kernax_ratio": lambda value: f"kernax takes {value:.2f} of it",
        "met": lambda value: f"bar {record['bar']:g} s {_verdict(value)}",
        "compile_met": lambda value: f"compile bar {COMPILE_BAR:g} s {_verdict(value)}",
        "ratio_met": lambda value: f"ratio bar {record['ratio_bar']:g} {_verdict(value)}",
        "not_measured": lambda value: f"not measured: {value}",
    }
    return [words(record[name]) for name, words in form.items() if record.get(name) is not None]


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def _write(report: dict[str, Any], file: Path | None) -> None:
    if file is not None:
        file.write_text(json.dumps(report, indent=1) + "\n")
