"""The tables of docs/speed.md, between two markers: `python -m benchmarks.speed_page` writes them
from results/bars.json, as does `python -m benchmarks --record`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import bars
from benchmarks.harness import MB

PAGE = Path(__file__).parent.parent / "docs" / "speed.md"
BEGIN = "<!-- Figures: written by `python -m benchmarks.speed_page`. -->"
END = "<!-- End of the figures. -->"
_LIBRARIES = {"gpjax": "GPJax", "gpytorch": "GPyTorch", "keops": "KeOps", "numpy": "NumPy"}
SLOWER = 1.05  # times as long as another library, from where on the page says so


class Line(NamedTuple):
    """A line of the table: cases of one question, and the other contenders that are shown.

    `figure` is "seconds", or "memory" for what a program or a process needs at most. Without
    `others`, all contenders are shown whose names do not begin with "kernax".
    """

    title: str
    question: str
    cases: tuple[str, ...]
    others: tuple[str, ...] | None = None
    figure: str = "seconds"


def _svms(n: int, precision: str) -> tuple[str, ...]:
    return tuple(f"SVM, n={n}, C={C}, {precision}" for C in (1, 10, 100))


def _gradients_of_squares() -> tuple[str, ...]:
    title = "gradient of sum(K^2) in lengthscales and X, {}, n=2000, d=64, float32"
    return tuple(title.format(kernel) for kernel in ("RBF", "Matern52", "Matern12"))


def _by_size(title: str, sizes: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(title.format(n) for n in sizes)


_OF_GRADIENTS = "of the gradient of its squares in 64 lengthscales and X, n = 2000"
LINES = (
    Line(
        "dense RBF Gram matrix, n = 1500, d = 64, float32, compiled",
        "gram_dense",
        ("RBF Gram, n=1500, d=64, float32",),
    ),
    Line(
        f"memory {_OF_GRADIENTS}: RBF, Matern 5/2, Matern 1/2",
        "gradient_memory",
        _gradients_of_squares(),
        figure="memory",
    ),
    Line("time of these gradients", "gradient_memory", _gradients_of_squares()),
    Line(
        "ridge fit, n = 3000, d = 10: float64, float32",
        "ridge",
        ("ridge fit, n=3000, d=10, float64", "ridge fit, n=3000, d=10, float32"),
    ),
    Line(
        "500 ridge fits of n = 100, float64, `batched` over two cores",
        "batch",
        ("500 ridge fits, n=100, d=5, float64",),
    ),
    Line(
        "5 folds of n = 500 for 400 pairs of a ridge and a lengthscale: ridge paths",
        "selection",
        ("ridge: 5 folds x 400 (ridge, lengthscale), n=500",),
    ),
    Line(
        "the same for 400 pairs of C and a lengthscale of an SVM: paths of C",
        "selection",
        ("SVM: 5 folds x 400 (C, lengthscale), n=500",),
    ),
    Line(
        "log evidence of a GP with its gradient, 8 lengthscales, float64: n = 1000, 2000, 4000",
        "evidence",
        _by_size("evidence and gradient, n={}, d=8, float64", (1000, 2000, 4000)),
    ),
    Line(
        "the same along a line, n = 100000: Matern 3/2, 5/2",
        "line",
        tuple(
            f"evidence and gradient along a line, Matern {order}, n=100000, float64"
            for order in ("3/2", "5/2")
        ),
    ),
    Line(
        "the same without the gradient",
        "line",
        tuple(
            f"evidence along a line, Matern {order}, n=100000, float64" for order in ("3/2", "5/2")
        ),
    ),
    Line(
        "the same for a grid of 256 x 256 pixels, with the gradient",
        "grid",
        ("evidence and gradient, 256 x 256 pixels, float64",),
    ),
    Line(
        "200 GPs of n = 100, 100 steps of Adam each, `batched` over two cores",
        "processes",
        ("200 processes of n=100, 100 steps of Adam",),
    ),
    Line(
        "GP means and variances at 2000 points, n = 2000, float64",
        "processes",
        ("mean and variance at 2000 points, n=2000, d=4",),
    ),
    Line(
        "Laplace's evidence of 1000 signs with its gradient, float64",
        "classification",
        ("Laplace evidence and gradient, n=1000, d=5, float64",),
    ),
    Line(
        "the same by expectation propagation, by variational inference",
        "classification",
        tuple(
            f"{method} evidence and gradient, n=1000, d=5, float64"
            for method in ("expectation_propagation", "variational")
        ),
    ),
    Line(
        "50 Laplace classifiers of n = 200, `batched` over two cores",
        "classification",
        ("50 Laplace classifiers, n=200, d=5, float64",),
    ),
    Line(
        "bound of 200 inducing points with its gradient, n = 10000, d = 8, float64",
        "inducing",
        ("collapsed bound and gradient, n=10000, m=200, d=8, float64",),
    ),
    Line(
        "ridge regression over 2000 centres, n = 100000, d = 18: float64, float32",
        "falkon",
        tuple(
            f"ridge over centres, n=100000, d=18, m=2000, {precision}"
            for precision in ("float64", "float32")
        ),
    ),
    Line(
        "matrix-free product, n = 20000, d = 10, float32",
        "matrix_free",
        ("K v, n=20000, d=10, float32",),
    ),
    Line(
        "Tanimoto kernel of 2048 bits times a vector, matrix-free, n = 16384, float32",
        "matrix_free",
        ("K v of Tanimoto, n=16384, 2048 bits, float32",),
    ),
    Line(
        "weights of 14940 points of elevators by preconditioned conjugate gradients, noise 0.001, "
        "float32",
        "large",
        ("weights of a process by conjugate gradients, noise 0.001, n=14940, d=18, float32",),
    ),
    Line("SVM, n = 2000, float64: C = 1, 10, 100", "svm", _svms(2000, "float64")),
    Line("SVM, n = 2000, float32: C = 1, 10, 100", "svm", _svms(2000, "float32")),
    Line("SVM, n = 5000, float64: C = 1, 10, 100", "svm", _svms(5000, "float64")),
    Line("SVM, n = 5000, float32: C = 1, 10, 100", "svm", _svms(5000, "float32")),
    Line("SVM, n = 10000, float64: C = 1, 10, 100", "svm", _svms(10000, "float64")),
    Line("SVM, n = 10000, float32: C = 1, 10, 100", "svm", _svms(10000, "float32")),
    Line(
        "200 SVMs of n = 200, float64, `batched` over two cores",
        "svm",
        ("200 SVMs, n=200, C=1, float64",),
    ),
    Line("logistic regression, n = 3000, float64", "svm", ("logistic, n=3000, float64",)),
    Line(
        "400 strings of 57 letters: substrings of up to 3, subsequences of 4",
        "strings",
        (
            "spectrum, k <= 3, n=400, 57 letters, float64",
            "subsequences of length 4, n=400, 57 letters, float64",
        ),
    ),
    Line(
        "2000 strings of 100 letters: spectrum of 3, of 6, of 9",
        "strings",
        tuple(f"spectrum k={k}, n=2000, 100 letters, float32" for k in (3, 6, 9)),
    ),
    Line(
        "400 time series of 60 vectors by global alignment, normalised, float64",
        "strings",
        ("global alignment, normalised, n=400, 60 vectors of 3 numbers, float64",),
    ),
    Line(
        "ten kernel principal components, n = 4000, d = 10, float64",
        "components",
        ("10 components by leading ones, n=4000, d=10",),
    ),
    Line(
        "ten kernel principal components of n = 500, from all eigenvectors",
        "components",
        ("10 components by all eigenvectors, n=500, d=10",),
    ),
    Line(
        "a stream of 100000 points, d = 20, float32, a budget of 200: remove the oldest, merge, "
        "project",
        "streaming",
        tuple(
            f"stream, n=100000, d=20, {budget}, 200 points"
            for budget in ("remove oldest", "merge", "project")
        ),
    ),
    Line(
        "2000 points of this stream, each predicted before it is learned",
        "streaming",
        ("stream next to peers, n=2000, d=20, 200 points or features",),
        ("scikit-learn SGD, features beforehand",),
    ),
    Line(
        "500 of 5000 points by herding, float64",
        "samples",
        ("herding, n=5000, 500 chosen, float64",),
    ),
    Line(
        "512 of 4096 points by thinning, float64",
        "samples",
        ("thinning, n=4096, 3 halvings, float64",),
    ),
    Line(
        "a process that imports and fits a ridge, n = 100, float32",
        "startup",
        ("a process: ridge, n=100, float32",),
    ),
    Line(
        "a process that imports and takes a gradient of the evidence, n = 100, float32",
        "startup",
        ("a process: evidence gradient, n=100, float32",),
    ),
    Line(
        "the first call after the import: ridge, gradient of the evidence, SVM, gradient of an "
        "SVM, n = 100, float32",
        "startup",
        tuple(
            f"first call: {name}, n=100, float32"
            for name in ("ridge", "evidence gradient", "svm", "svm gradient")
        ),
    ),
)


def with_table(text: str, questions: dict[str, Any]) -> str:
    """The text of the page with the tables of these records."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    head = "| computation | kernax | other libraries | measured |\n|---|---|---|---|"
    lines = [_line(line, questions) for line in _recorded(questions)]
    table = "\n".join([head, *lines])
    return f"{before}{BEGIN}\n\n{table}\n\n{_slower(questions)}\n\n{END}{after}"


def write(page: Path = PAGE) -> None:
    """The page with the tables of today's records."""
    page.write_text(with_table(page.read_text(), bars.read()))


def _recorded(questions: dict[str, Any]) -> list[Line]:
    """The lines of which all cases are recorded."""

    def is_recorded(line: Line) -> bool:
        cases = questions.get(line.question, {}).get("cases", [])
        return {case["case"] for case in cases} >= set(line.cases)

    return [line for line in LINES if is_recorded(line)]


def _line(line: Line, questions: dict[str, Any]) -> str:
    rows = _rows(line, questions)
    names = dict.fromkeys(name for of_case in rows for name in of_case)
    ours, *others = (_figures([of_case.get(name) for of_case in rows], line) for name in names)
    shown = "; ".join(f"{name} {figures}" for name, figures in zip(list(names)[1:], others))
    return f"| {line.title} | {ours} | {shown} | {questions[line.question]['date']} |"


def _rows(line: Line, questions: dict[str, Any]) -> list[dict[str, dict[str, Any]]]:
    """The contenders of each case by the names that the page has for them, the first is kernax."""
    cases = {case["case"]: case["rows"] for case in questions[line.question]["cases"]}
    return [dict(_contenders(line, cases[name])) for name in line.cases]


def _contenders(line: Line, rows: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "kernax", rows[0]
    for row in rows[1:]:
        name = row["contender"]
        other = not name.startswith("kernax") if line.others is None else name in line.others
        if other and row["seconds"] is not None:
            library = name.split(",")[0]
            yield _LIBRARIES.get(library, library) + name.removeprefix(library), row


def _figures(rows: list[dict[str, Any] | None], line: Line) -> str:
    """The figures of a contender in all cases, in one unit."""
    values = [None if row is None else _figure(row, line.figure) for row in rows]
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    largest = max(known)
    if line.figure == "memory":
        scale, unit = 1 / MB, "MB"
    elif largest >= 1:
        scale, unit = 1.0, "s"
    else:
        scale, unit = 1e3, "ms"
    return f"{', '.join('-' if v is None else _two(v * scale) for v in values)} {unit}"


def _figure(row: dict[str, Any], figure: str) -> float | None:
    if figure == "memory":
        return row["temporary"] if row["temporary"] is not None else row["held"]
    return row["seconds"]


def _two(value: float) -> str:
    """Two digits, and no exponent."""
    return f"{value:#.2g}" if value < 9.95 else f"{float(f'{value:.2g}'):.0f}"


def _slower(questions: dict[str, Any]) -> str:
    """The cases of the table in which another library takes less time."""
    found = []
    for line in _recorded(questions):
        if line.figure != "seconds":
            continue
        for case, of_case in zip(line.cases, _rows(line, questions)):
            ours = of_case.pop("kernax")["seconds"]
            found += [
                f"- {case}: {_two(ours / row['seconds'])} times as long as {name}"
                for name, row in of_case.items()
                if ours is not None and ours > SLOWER * row["seconds"]
            ]
    if not found:
        return "kernax is slower than another library in none of these cases."
    return "\n".join(["kernax is slower than another library in these cases:", "", *found])


if __name__ == "__main__":
    write()
