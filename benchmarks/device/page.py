"""The tables of docs/gpu.md, between two markers: `python -m benchmarks.device.page` writes them
from the records of GPUs in results/, the newest figure of each row.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.device.rows import BOTH, COMPILE_BAR, PEERS, ROWS

RESULTS = Path(__file__).parent.parent / "results"
PAGE = Path(__file__).parent.parent.parent / "docs" / "gpu.md"
BEGIN = "<!-- Figures: written by `python -m benchmarks.device.page`. -->"
END = "<!-- End of the figures. -->"


class Figure(NamedTuple):
    """What a record says of a row: seconds, and seconds of compilation if they are known."""

    date: str
    row: str
    size: int
    precision: str
    seconds: float
    compilation: float | None


def figures() -> list[Figure]:
    """All figures of all records, the oldest record first."""
    found = []
    for file in sorted(RESULTS.glob("*-gpu-h200*.json")):
        found += figures_of(json.loads(file.read_text()))
    return found


def figures_of(record: dict[str, Any]) -> list[Figure]:
    """The figures of what `python -m benchmarks --device gpu --json` writes, or of a first record,
    which has its date and more rows elsewhere.
    """
    date = record["date"] if "date" in record else record["environment"]["date"]
    rows = record["rows"] + record.get("beside_it", [])
    return [one for row in rows if (one := _figure(date, row)) is not None]


def _figure(date: str, row: dict[str, Any]) -> Figure | None:
    """A row of `python -m benchmarks --device gpu`, or of the first records, which have other
    keys; None if it has no figure that belongs into the table.
    """
    if row.get("item") == "falkon":
        name = f"falkon, {row['m']} centres"
        return Figure(date, name, row["n"], "float32", row["s"], None)
    if row.get("item") == "line evidence+gradient":
        return Figure(
            date, "evidence and gradient along a line", row["n"], "float64", row["s"], None
        )
    if row.get("item") == "tinygp evidence+gradient":
        return Figure(date, "tinygp: evidence and gradient", row["n"], row["dtype"], row["s"], None)
    if "item" in row:
        return None
    if "precision" in row and row.get("seconds") is not None:
        seconds, compilation = row["seconds"], row.get("compile_seconds")
        return Figure(date, row["row"], row["size"], row["precision"], seconds, compilation)
    if row["row"] in ("product", "gradient"):
        of = "" if row["row"] == "product" else "gradient of "
        kernel = "" if row["kernel"] == "RBF" else f", {row['kernel']}"
        name = f"{of}matrix-free K v, d={row['d']}{kernel}"
        return Figure(date, name, row["n"], row["dtype"], row["seconds"], None)
    return None


def with_table(text: str) -> str:
    """The text of the page with the tables of today's records."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{_targets()}\n\n{_table()}\n\n{END}{after}"


def _newest() -> dict[tuple[str, int, str], Figure]:
    """The last figure of each row, size and precision."""
    return {(one.row, one.size, one.precision): one for one in figures()}


def _targets() -> str:
    """Every bar beside the newest figure at its size, in float32 where the row has it."""
    newest = _newest()
    lines = ["| target | bar | measured |", "|---|---|---|"]
    for row in ROWS:
        if row.bar is not None:
            keys = [(row.name, row.size, precision) for precision in row.precisions]
            seconds = [newest[key].seconds for key in keys if key in newest]
            title = _titled(row.name, row.size)
            lines.append(f"| {title} | {row.bar:g} s | {_judged(seconds, row.bar)} |")
    for peer in PEERS:
        if peer.ratio_bar is None:
            continue
        keys = [
            ((peer.peer, peer.size, precision), (peer.name, peer.size, precision))
            for precision in BOTH
        ]
        ratios = [
            newest[ours].seconds / newest[theirs].seconds
            for ours, theirs in keys
            if ours in newest and theirs in newest
        ]
        library = peer.name.split(":")[0]
        title = f"{_titled(peer.peer, peer.size)}: share of the time of {library}"
        lines.append(f"| {title} | {peer.ratio_bar:g} | {_judged(ratios, peer.ratio_bar, '')} |")
    of_peers = {peer.name for peer in PEERS}
    seconds, row, precision = max(
        (one.compilation, one.row, one.precision)
        for one in newest.values()
        if one.compilation is not None and one.row not in of_peers
    )
    title = f"compilation of each program; slowest: {row}, {precision}"
    lines.append(f"| {title} | {COMPILE_BAR:g} s | {_judged([seconds], COMPILE_BAR)} |")
    return "\n".join(lines)


def _judged(values: list[float], bar: float, unit: str = " s") -> str:
    if not values:
        return "not measured"
    return f"{values[0]:.3g}{unit}: {'met' if values[0] <= bar else '**missed**'}"


def _table() -> str:
    """All rows, with both precisions."""
    newest = _newest()
    head = "| row | float32 | float64 | compilation, float32 / float64 | date |"
    lines = [head, "|---|---|---|---|---|"]
    for name, size in dict.fromkeys((one.row, one.size) for one in newest.values()):
        found = [newest.get((name, size, precision)) for precision in BOTH]
        times = ["" if one is None else _time(one.seconds) for one in found]
        compilations = [
            "" if one is None or one.compilation is None else f"{one.compilation:.1f} s"
            for one in found
        ]
        shown = " / ".join(text for text in compilations if text)
        date = max(one.date for one in found if one is not None)
        lines.append(f"| {_titled(name, size)} | {times[0]} | {times[1]} | {shown} | {date} |")
    return "\n".join(lines)


def _titled(name: str, size: int) -> str:
    return f"{name} ({size})"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
