"""What was measured of each question, kept question by question, and the table of it in README.md.

`results/bars.json` has for each question its date, device, versions and cases; a run of some
questions replaces theirs alone. The table stands between two markers of README.md.
"""

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks import of_sets
from benchmarks.harness import MB

FILE = Path(__file__).parent / "results" / "bars.json"
README = Path(__file__).parent / "README.md"
BEGIN = "<!-- The table of bars: written by `python -m benchmarks --record`. -->"
END = "<!-- End of the table of bars. -->"
_COLUMNS = (
    "case",
    "kernax, ms",
    "compile, ms",
    "memory, MB",
    "beside",
    "ms",
    "compile, ms",
    "memory, MB",
    "difference",
    "ratio",
    "bar",
)
# Of a question whose cells have a bar in the median as well: how their names begin, and the bar.
_MEDIANS = {"svm": ("SVM, n=", 0.7)}
# Contenders by the first word of their names, and the packages whose versions are told.
_PACKAGES = {
    "tinygp": "tinygp",
    "gpjax": "gpjax",
    "scikit-learn": "scikit-learn",
    "gpytorch": "gpytorch",
    "keops": "pykeops",
    "strkernels": "strkernels",
    "NumPy": "numpy",
}


def read(file: Path = FILE) -> dict[str, Any]:
    """What is known of each question, by its name."""
    return json.loads(file.read_text())["questions"] if file.exists() else {}


def update(name: str, found: dict[str, Any], file: Path = FILE) -> None:
    """Writes down one question in place of what was known of it."""
    questions = read(file) | {name: found}
    file.write_text(json.dumps({"questions": questions}, indent=1) + "\n")


def write_page(names: Iterable[str], page: Path = README, file: Path = FILE) -> None:
    """The table of these questions, in their order, between the markers."""
    before, rest = page.read_text().split(BEGIN)
    _, after = rest.split(END)
    known = read(file)
    text = written({name: known.get(name) for name in names})
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{of_sets.written()}\n{END}{after}")


def written(questions: dict[str, Any]) -> str:
    """All tables, and first of all how many bars are met, and which are not."""
    parts = [_summary(questions)]
    for name, question in questions.items():
        if question is None:
            parts.append(f"### {name}\n\nNot measured yet.\n")
            continue
        lines = [line for case in question["cases"] for line in _lines(case, question["versions"])]
        parts.append(
            f"### {name}\n\n{question['asks']} ({question['date']}, {_where(question)})\n\n"
            f"{_row(_COLUMNS)}\n{_row(['---'] * len(_COLUMNS))}\n" + "\n".join(lines) + "\n"
        )
        parts += _median(name, question["cases"])
    return "\n".join(parts)


def _median(name: str, cases: list[dict[str, Any]]) -> list[str]:
    """A sentence about the median over the cells of a question, if there is a bar on it."""
    start, limit = _MEDIANS.get(name, (None, 0.0))
    if start is None:
        return []
    cells = [
        bar["value"] for case in cases if case["case"].startswith(start) for bar in case["bars"]
    ]
    known = [value for value in cells if value is not None]
    if not known:
        return []
    value = statistics.median(known)
    word = "met" if value <= limit else "**MISSED**"
    return [f"Median of {len(known)} cells: {value:.3g}, bar {limit:g}: {word}.\n"]


def _where(question: dict[str, Any]) -> str:
    """The device, and how long all of the question took."""
    threads = question["blas_threads"].get("openblas")
    blas = f", {threads} BLAS threads" if threads else ""
    seconds = f", {question['seconds']:.0f} s in all" if question.get("seconds") else ""
    return f"{question['device'].split(':')[0]}, {question['cpus']} cores{blas}{seconds}"


def _summary(questions: dict[str, Any]) -> str:
    known = {name: question for name, question in questions.items() if question is not None}
    bars = [
        (name, case, bar)
        for name, question in known.items()
        for case in question["cases"]
        for bar in case["bars"]
    ]
    missed = [entry for entry in bars if entry[2]["met"] is False]
    absent = [entry for entry in bars if entry[2]["met"] is None]
    dates = sorted(question["date"] for question in known.values())
    span = f"{dates[0]} to {dates[-1]}" if dates else "never"
    lines = [
        f"{len(bars)} bars, measured {span}: {len(bars) - len(missed) - len(absent)} met, "
        f"{len(missed)} missed, {len(absent)} not measured.{_unasked(questions)}",
        "",
        *(_loss(*entry) for entry in missed),
    ]
    return "\n".join(lines) + "\n"


def _unasked(questions: dict[str, Any]) -> str:
    """Which questions nobody has asked yet."""
    names = [f"`{name}`" for name, question in questions.items() if question is None]
    return f" Not asked yet: {', '.join(names)}." if names else ""


def _loss(name: str, case: dict[str, Any], bar: dict[str, Any]) -> str:
    said = f"- **missed**: `{name}`, {case['case']}: {_judged(bar)}."
    return f"{said} {bar['explanation']}" if bar.get("explanation") else said


def _judged(bar: dict[str, Any]) -> str:
    """A bar with its figure."""
    scale, suffix = _unit_of(bar)
    least = f"{bar['least']:.3g} to " if bar["least"] else ""
    figure = "" if bar["figure"] == "seconds" else f"{bar['figure']} "
    value = "not measured" if bar["value"] is None else f"{bar['value'] * scale:.3g}"
    return f"{figure}{value}, bar {least}{bar['limit'] * scale:.3g}{suffix}"


def _unit_of(bar: dict[str, Any]) -> tuple[float, str]:
    """What the figure of a bar is multiplied by, and the unit behind it."""
    if bar["against"]:
        return 1.0, f" x {bar['against']}"
    if bar["figure"] in ("temporary", "held"):
        return 1 / MB, " MB"
    return 1.0, " s"


def _lines(case: dict[str, Any], versions: dict[str, str]) -> list[str]:
    """A line for each bar of a case and each other contender."""
    ours, *others = case["rows"]
    alone = [bar for bar in case["bars"] if bar["against"] is None]
    lines = [("", None, bar) for bar in alone]
    for other in others:
        of_other = [bar for bar in case["bars"] if bar["against"] == other["contender"]]
        lines += [(_with_version(other["contender"], versions), other, bar) for bar in of_other]
        if not of_other:
            lines.append((_with_version(other["contender"], versions), other, None))
    lines = lines or [("", None, None)]
    first = (case["case"], *_times(ours))
    return [
        _row((*(first if k == 0 else ("",) * len(first)), beside, *_other(other), _verdict(bar)))
        for k, (beside, other, bar) in enumerate(lines)
    ]


def _with_version(contender: str, versions: dict[str, str]) -> str:
    package = _PACKAGES.get(contender.split(",")[0])
    return f"{contender} ({versions[package]})" if package in versions else contender


def _times(row: dict[str, Any]) -> tuple[str, str, str]:
    """Median and spread, compilation, memory."""
    held = row["temporary"] if row["temporary"] is not None else row.get("held")
    spread = f" ± {row['spread']:.0%}" if row["spread"] is not None else ""
    median = "" if row["seconds"] is None else f"{_three(1e3 * row['seconds'])}{spread}"
    median = median or row["note"]
    compile_ = "" if row["compile"] is None else f"{1e3 * row['compile']:.0f}"
    return median, compile_, "" if held is None else _three(held / MB)


def _other(row: dict[str, Any] | None) -> tuple[str, ...]:
    if row is None:
        return ("",) * 5
    if row["note"]:
        return (row["note"], "", "", "", "")
    difference = "" if row["difference"] is None else f"{row['difference']:.0e}"
    difference += "" if row["agrees"] else " MISMATCH"
    return *_times(row), difference, "" if row["ratio"] is None else f"{row['ratio']:.3f}"


def _verdict(bar: dict[str, Any] | None) -> str:
    if bar is None:
        return ""
    words = {True: "met", False: "**MISSED**", None: "not measured"}
    return f"{_judged(bar)}: {words[bar['met']]}"


def _three(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
