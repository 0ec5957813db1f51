"""The table of published figures beside kernax's, in Markdown."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.published.rows import Figure, Row, Sense

PAGE = Path(__file__).parent.parent / "PUBLISHED.md"
_HEAD = """# Published figures, and those of kernax

Written by `python -m benchmarks.published`; the figures stand in
[results/published.json](results/published.json), and what is measured in [published/](published).
`python -m benchmarks.published NAME` runs the rows with this in their names and writes the table
anew.

Trust in a published figure: [V] read where it was published first; [S] read in another public
source; [C] computed from the same file by independent NumPy code; [M] recalled, and nothing more.
*Equal*: to the digits given. *Better*: than the published figure; *as published*: worse by no more
than the margin in brackets. *Not like for like*: no worse, by another model or protocol than the
published one, so that it proves nothing. WORSE and DIFFERENT are said in capitals. The last column
says why. A dash: nothing is published.

"""
_COLUMNS = "| what | protocol | | published | kernax | | when | remarks |\n|" + "---|" * 8


def written(rows: Iterable[Row], found: dict[str, Any]) -> str:
    """The whole page."""
    rows = list(rows)
    sections = dict.fromkeys(row.section for row in rows)
    parts = [_HEAD + _summary(rows, found)]
    for section in sections:
        lines = [_line(row, found.get(row.name)) for row in rows if row.section == section]
        parts.append(f"## {section}\n\n{_COLUMNS}\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def verdicts(row: Row, found: dict[str, Any] | None) -> list[str]:
    """What is said of each figure of a row."""
    return [_verdict(row, figure, found) for figure in row.figures]


def _verdict(row: Row, figure: Figure, found: dict[str, Any] | None) -> str:
    if found is None or figure.name not in found["figures"]:
        return "" if figure.sense is Sense.SHOWN else "not measured"
    word = figure.verdict(_value(figure, found))
    no_worse = word in ("better", "as published")
    return "not like for like" if no_worse and not row.alike else word


def _value(figure: Figure, found: dict[str, Any]) -> float:
    value = found["figures"][figure.name]
    return math.nan if value is None else value


def _summary(rows: list[Row], found: dict[str, Any]) -> str:
    every = [word for row in rows for word in verdicts(row, found.get(row.name)) if word]
    counts = {word: every.count(word) for word in sorted(set(every))}
    return "Of all figures: " + ", ".join(f"{n} {word}" for word, n in counts.items()) + ".\n"


def _line(row: Row, found: dict[str, Any] | None) -> str:
    cells = (
        f"**{row.what}**",
        f"{row.protocol}<br>*{row.source}*",
        _stacked(figure.name for figure in row.figures),
        _stacked(_published(figure) or "—" for figure in row.figures),
        _stacked(_shown(figure, found) for figure in row.figures),
        _stacked(word or "—" for word in verdicts(row, found)),
        _when(row, found),
        _remarks(row),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _stacked(lines: Iterable[str]) -> str:
    return "<br>".join(lines)


def _published(figure: Figure) -> str:
    if figure.published is None:
        return figure.others
    margin = f" (± {figure.within:g})" if figure.within else ""
    others = f"; {figure.others}" if figure.others else ""
    return f"{figure.published:.10g}{margin} [{figure.trust.value}]{others}"


def _shown(figure: Figure, found: dict[str, Any] | None) -> str:
    if found is None or figure.name not in found["figures"]:
        return ""
    return format(_value(figure, found), figure.form)


def _when(row: Row, found: dict[str, Any] | None) -> str:
    if found is None:
        return f"some {row.minutes:g} min" if row.measure else ""
    seconds = f", {found['seconds']:.0f} s" if "seconds" in found else ""
    return f"{found['date']}{seconds}"


def _remarks(row: Row) -> str:
    absent = f"Not run: {row.absent}." if row.absent else ""
    return " ".join(part for part in (row.explanation, absent) if part)
