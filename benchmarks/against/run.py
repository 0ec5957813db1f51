"""The comparison as one call: every row printed as it is measured, and then what is to be said of
them all.
"""

import json
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from benchmarks import report
from benchmarks.against import ROWS
from benchmarks.against.measure import HEAVIER, SLOWER, Attempt, Comparison, compared
from benchmarks.against.rows import Row
from benchmarks.against.versions import (
    HERE,
    Version,
    checked_out,
    imported,
    short_name,
    this_checkout,
)
from benchmarks.harness import MB

# (heading, width): of two figures beside a slash, the first is this checkout's.
COLUMNS = (
    ("row", 46),
    ("median ms", 17),
    ("spread", 11),
    ("ratio", 6),
    ("trace s", 11),
    ("compile s", 11),
    ("memory MB", 15),
    ("ratio", 6),
    ("difference", 10),
    ("tolerance", 9),
)


def main(commit: str, parts: Sequence[str], quick: bool, file: Path | None) -> int:
    """Compares the rows whose names have one of these parts in them; the exit code."""
    chosen = [
        row
        for row in ROWS
        if not (quick and row.quick is None)
        and (not parts or any(part in row.name for part in parts))
    ]
    begun = time.perf_counter()
    here = this_checkout()
    there = short_name(commit)
    with without_cache(), checked_out(commit) as directory:
        this = imported(here, HERE)
        other = imported(there, directory)
        code = answered(chosen, this, other, quick, file)
    print(f"{time.perf_counter() - begun:.0f} s in all")
    return code


def answered(
    rows: Iterable[Row], this: Version, other: Version, quick: bool, file: Path | None = None
) -> int:
    """Prints every row as it is measured; 1 if any two answers disagree or a row fails."""
    found: list[Comparison] = []
    about = report.environment() | {"this": this.name, "against": other.name, "quick": quick}
    print(f"{this.name} / {other.name}; bars: {SLOWER} x the time, {HEAVIER} x the memory")
    print(aligned([heading for heading, _ in COLUMNS]), flush=True)
    for row in rows:
        found.append(compared(row, this, other, quick))
        print(line(found[-1], quick), flush=True)
        if file is not None:  # after every row: a run that is stopped keeps what it has
            records = [record(each) for each in found]
            file.write_text(json.dumps(about | {"rows": records}, indent=1) + "\n")
    print("\n" + summary(found, quick))
    return 1 if any({"FAILED", "MISMATCH"} & set(each.verdicts) for each in found) else 0


@contextmanager
def without_cache() -> Iterator[None]:
    """Nothing is read from the persistent compilation cache, and no warning is printed."""
    name = "jax_enable_compilation_cache"
    before = getattr(jax.config, name)
    jax.config.update(name, False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        jax.config.update(name, before)


def aligned(cells: Sequence[str]) -> str:
    """The first cell to the left, the others to the right, what has no column of its own after
    them.
    """
    name, *others = cells
    widths = [width for _, width in COLUMNS]
    padded = [cell.rjust(width) for cell, width in zip(others, widths[1:])]
    return "  ".join([name.ljust(widths[0]), *padded, *others[len(padded) :]]).rstrip()


def line(found: Comparison, quick: bool) -> str:
    """A row of the table."""
    cells = [
        found.row.name,
        beside(found, "median", 1e3, ".1f"),
        beside(found, "spread", 1, ".0%"),
        formatted(found.ratio, ".3f"),
        beside(found, "trace", 1, ".2f"),
        beside(found, "compile", 1, ".2f"),
        beside(found, "bytes", 1 / MB, ".1f"),
        formatted(found.memory_ratio, ".3f"),
        formatted(found.difference, ".1e"),
        formatted(found.row.tolerance, ".0e"),
    ]
    said = ", ".join(told(found, quick))
    return aligned([*cells, f"{said}: {found.failure}" if found.failure else said])


def told(found: Comparison, quick: bool) -> list[str]:
    """The verdicts; times and memory are not judged at small sizes."""
    hard = {"FAILED", "MISMATCH", "new"} & set(found.verdicts)
    return found.verdicts if hard or not quick else ["not judged"]


def beside(found: Comparison, figure: str, unit: float, form: str) -> str:
    """A figure of both versions, `-` where there is none; nothing where neither has it."""
    values = [_of(found.this, figure), _of(found.other, figure)]
    if values == [None, None]:
        return ""
    return " / ".join("-" if value is None else format(value * unit, form) for value in values)


def _of(attempt: Attempt | None, figure: str) -> float | None:
    return None if attempt is None else getattr(attempt, figure)


def formatted(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def summary(found: Sequence[Comparison], quick: bool) -> str:
    """How many rows there are of each verdict, which ones, and the means of the ratios."""
    by_verdict: dict[str, list[str]] = {}
    for each in found:
        for verdict in told(each, quick):
            by_verdict.setdefault(verdict, []).append(f"{each.row.name}{_ratios(each)}")
    lines = [f"{len(found)} rows"]
    for verdict, names in by_verdict.items():
        plain = verdict in ("level", "not judged")
        lines.append(f"{verdict}: {len(names)}" + ("" if plain else f": {'; '.join(names)}"))
    for name, figure in (("time", "ratio"), ("memory", "memory_ratio")):
        ratios = [getattr(each, figure) for each in found if getattr(each, figure) is not None]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(f"{name}: geometric mean of {len(ratios)} ratios {mean:.3f}")
    return "\n".join(lines)


def _ratios(found: Comparison) -> str:
    ratios = [
        f"{formatted(ratio, '.2f')} x {name}"
        for name, ratio in (("time", found.ratio), ("memory", found.memory_ratio))
        if ratio is not None
    ]
    return f" ({', '.join(ratios)})" if ratios else ""


def record(found: Comparison) -> dict[str, Any]:
    """A row for JSON."""
    row = found.row
    return {
        "row": row.name,
        "kind": row.kind.value,
        "size": found.size,
        "precision": row.precision,
        "tolerance": row.tolerance,
        "difference": found.difference,
        "bar": row.bar,
        "this": None if found.this is None else found.this.figures(),
        "other": None if found.other is None else found.other.figures(),
        "ratio": found.ratio,
        "memory_ratio": found.memory_ratio,
        "verdicts": found.verdicts,
        "failure": found.failure,
    }
