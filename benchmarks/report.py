"""What was measured, as aligned tables and as JSON records."""

import dataclasses
import datetime
import os
import platform
from importlib import metadata
from typing import Any

import jax
from threadpoolctl import threadpool_info

from benchmarks.harness import MB, Case, Row, Verdict

_OURS = ("kernax-toolkit", "jax", "jaxlib", "equinox", "lineax", "optax", "numpy")
_PEERS = (
    *("scikit-learn", "scipy", "tinygp", "gpjax", "pykeops", "strkernels"),
    *("torch", "gpytorch", "xrfm", "cvxpylayers"),
)
_HEADER = (
    "contender",
    "difference",
    "median ms",
    "spread",
    "kernax/it",
    "compile ms",
    "memory MB",
)


def environment() -> dict[str, Any]:
    """Where and with what the figures were made; no names or paths of the machine."""
    device = jax.devices()[0]
    return {
        "date": datetime.date.today().isoformat(),
        "device": f"{device.platform}: {device.device_kind}, {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "blas_threads": {
            pool["internal_api"]: pool["num_threads"]
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        },
        "load": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of kernax's dependencies and of its peers."""
    return {name: _version(name) for name in _OURS + _PEERS}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def record(question: str, case: Case, rows: list[Row], verdicts: list[Verdict]) -> dict[str, Any]:
    """A measured case for JSON; `load` is the machine's, at the end of the case."""
    return {
        "question": question,
        "case": case.name,
        "rounds": 1 if case.once else case.rounds,
        "load": round(os.getloadavg()[0], 2),
        "rows": [dataclasses.asdict(row) for row in rows],
        "bars": [
            dataclasses.asdict(verdict.bar) | {"value": verdict.value, "met": verdict.met}
            for verdict in verdicts
        ],
    }


def table(case: Case, rows: list[Row], verdicts: list[Verdict], quick: bool) -> str:
    """A case as text: a row per contender, a line per bar, and any mismatch in capitals."""
    cells = [_HEADER, *(_cells(row) for row in rows)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(_HEADER))]
    aligned = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:])),
            ]
        )
        for row in cells
    ]
    notes = [f"{line}  {row.note}" for line, row in zip(aligned[1:], rows)]
    mismatches = [
        f"!!! MISMATCH: {row.contender} differs from kernax by {row.difference:.2g}, tolerance "
        f"{case.tolerance:.2g}"
        for row in rows
        if not row.agrees and row.difference is not None
    ]
    lines = [
        case.name,
        aligned[0],
        *notes,
        *(_sentence(verdict, quick) for verdict in verdicts),
        *mismatches,
    ]
    return "\n".join(line.rstrip() for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    figures = (
        (row.difference, 1, ".1e"),
        (row.seconds, 1e3, ".2f"),
        (row.spread, 1, ".0%"),
        (row.ratio, 1, ".3f"),
        (row.compile, 1e3, ".0f"),
        (row.held if row.temporary is None else row.temporary, 1 / MB, ".2f"),
    )
    return (
        row.contender,
        *("" if figure is None else format(figure * unit, form) for figure, unit, form in figures),
    )


def _sentence(verdict: Verdict, quick: bool) -> str:
    bar, value = verdict.bar, verdict.value
    unit, suffix = (1 / MB, " MB") if bar.figure in ("temporary", "held") else (1, " s")
    unit, suffix = (1, f" x {bar.against}") if bar.against else (unit, suffix)
    outcome = {True: "met", False: "MISSED", None: "not measured"}[verdict.met]
    if quick:
        outcome = "not judged in a quick run"
    shown = "" if value is None else f"{value * unit:.3g}, "
    least = f"{bar.least * unit:.3g} <= " if bar.least else ""
    explained = f" ({bar.explanation})" if bar.explanation and outcome == "MISSED" else ""
    return f"bar: {least}{bar.figure} <= {bar.limit * unit:g}{suffix}: {shown}{outcome}{explained}"
