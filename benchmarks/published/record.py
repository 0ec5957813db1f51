"""What was measured, kept row by row, so that a long one need not be run again for the table."""

import json
import math
import time
from pathlib import Path
from typing import Any

from benchmarks.published.rows import Row
from benchmarks.report import environment

FILE = Path(__file__).parent.parent / "results" / "published.json"
_KEPT = ("kernax-toolkit", "jax", "jaxlib", "equinox", "lineax", "optax", "numpy", "scikit-learn")


def measured(row: Row, quick: bool) -> dict[str, Any]:
    """The figures of a row, when and where they were made, and how long it took."""
    where = environment()
    versions = {name: where["versions"][name] for name in _KEPT}
    before = time.perf_counter()
    assert row.measure is not None
    figures = row.measure(quick)
    return {
        "date": where["date"],
        "device": where["device"],
        "cpus": where["cpus"],
        "blas_threads": where["blas_threads"],
        "versions": versions,
        "seconds": round(time.perf_counter() - before, 1),
        "figures": {name: _digits(value) for name, value in figures.items()},
    }


def _digits(value: float) -> float | None:
    """Ten digits, and None for what JSON does not know."""
    return float(f"{value:.10g}") if math.isfinite(value) else None


def read(file: Path = FILE) -> dict[str, Any]:
    """What is known of each row, by its name."""
    return json.loads(file.read_text())["rows"] if file.exists() else {}


def update(name: str, found: dict[str, Any], file: Path = FILE) -> None:
    """Writes down one row beside those that are there."""
    rows = read(file) | {name: found}
    ordered = {name: rows[name] for name in sorted(rows)}
    file.write_text(json.dumps({"rows": ordered}, indent=1) + "\n")
