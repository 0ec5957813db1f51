"""The bars on errors and on what learning reaches: a line for each set of each question that has a
table of its own, from the newest of its records.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Question:
    """A module with a record of sets, each with `met`, and what is said of one set."""

    module: str
    record: str
    bar: str
    said: Callable[[dict[str, Any]], str]


def _posteriors(found: dict[str, Any]) -> str:
    laplace, propagation, variational = (row["log loss"] for row in found["rows"])
    return f"{propagation:.3f} against {laplace:.3f} (variational {variational:.3f})"


def _learning(found: dict[str, Any]) -> str:
    return f"{found['learned']:.3f} against {found['as_written']:.3f}"


def _composition(found: dict[str, Any]) -> str:
    densities = {name: row["nlpd"] for name, row in found["rows"].items()}
    learned, written = densities["learned"], densities["as written"]
    return f"{densities['search']:.3f} against {learned:.3f} (as written {written:.3f})"


def _gradients(found: dict[str, Any]) -> str:
    unseen = f"{found['unseen_gradients']:.3f} against {found['unseen_search']:.3f}"
    return f"{found['ratio']:.3f} of the time; on rows not seen {unseen}"


def _features(found: dict[str, Any]) -> str:
    errors = f"error {found['error']:.4f} against {found['error_of_xrfm']:.4f}"
    return f"{errors}, {found['time_ratio']:.2f} of the time"


def _episodes(found: dict[str, Any]) -> str:
    peer = "cvxpylayers" if "seconds_of_cvxpylayers" in found else "a loop"
    ratio = f"{1000 * found['seconds']:.0f} ms, {found['time_ratio']:.3f} of the time of {peer}"
    return f"{ratio}; {found['processor_seconds_of_compile']:.1f} s of compilation"


QUESTIONS = (
    Question(
        "posteriors",
        "posteriors",
        "expectation propagation succeeds, log loss at most Laplace's + 0.01",
        _posteriors,
    ),
    Question(
        "learning",
        "learning",
        "log loss of `kernax fit` at most that of the kernel as written + 0.005",
        _learning,
    ),
    Question(
        "composition",
        "composition",
        "negative log density of a searched kernel at most that of one by hand, learned",
        _composition,
    ),
    Question(
        "gradient_selection",
        "gradient-selection",
        "the best loss of a random search of 200 points in 0.25 of its time",
        _gradients,
    ),
    Question(
        "feature_machines",
        "feature-machines",
        "an error of at most 1.01 of that of xRFM, in half of its time",
        _features,
    ),
    Question(
        "episodes",
        "episodes",
        "an SVM head in a tenth of the time of cvxpylayers; 3 s to compile each head",
        _episodes,
    ),
)


def written() -> str:
    """The table in Markdown."""
    head = "| question | bar | set | figures | | when |\n|---|---|---|---|---|---|"
    lines = [line for question in QUESTIONS for line in _lines(question)]
    title = "### Errors, and what learning reaches\n\n`python -m benchmarks.QUESTION` for each."
    return f"{title}\n\n{head}\n" + "\n".join(lines) + "\n"


def _lines(question: Question) -> Iterator[str]:
    files = sorted(RESULTS.glob(f"*-{question.record}.json"))
    if not files:
        yield f"| {question.module} | {question.bar} | | | not measured | |"
        return
    record = json.loads(files[-1].read_text())
    for found in record["sets"]:
        word = "met" if found["met"] else "**MISSED**"
        cells = (question.module, question.bar, found["set"], question.said(found), word)
        yield f"| {' | '.join(cells)} | {record['date']} |"
