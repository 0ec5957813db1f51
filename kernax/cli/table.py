"""Reading a table of numbers and text from a CSV file, with a place in the file for everything that is wrong with it."""

import contextlib
import csv
import dataclasses
import difflib
import functools
import io
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

LEAST_ROWS = 4  # three to learn from, one to hold out
_SHOWN = 30  # column names in a message


@dataclasses.dataclass(frozen=True)
class Column:
    """The cells under a name as they are written, and where each of them stands, for messages."""

    name: str
    cells: tuple[str, ...]
    places: tuple[str, ...]

    @functools.cached_property
    def first_text(self) -> str | None:
        """Where the first cell stands that is no number, and what it says; None where all are numbers, or empty."""
        cells = zip(self.cells, self.places)
        return next((f"{place}: {quoted(cell)} is not a number" for cell, place in cells if _is_text(cell)), None)


@dataclasses.dataclass(frozen=True)
class Table:
    """Inputs `X` (n, d) under the names in `columns`, inputs in which not all cells are numbers, and the column to predict."""

    columns: tuple[str, ...]
    X: Float[np.ndarray, "n d"]
    texts: tuple[Column, ...]
    target: Column


def read_table(path: Path, target: str, ignore: Sequence[str] = ()) -> Table:
    """Reads a CSV file with a header; comma, semicolon or tab, UTF-8. Every column but the target and the ignored is an input.

    Raises:
        ValueError: one sentence with the line of the file where it is wrong: lines are counted as an editor counts them.
    """
    with _open(path) as records:
        header = _header(path, records)
        _check_columns(path, target, ignore, header)
        rows = [_row(path, header, line, cells) for line, cells in records]
    if not rows:
        raise ValueError(f"{path} has 0 rows of numbers, but at least {LEAST_ROWS} are needed")
    columns = {name: _column(rows, place) for place, name in enumerate(header) if name not in ignore}
    texts = tuple(column for name, column in columns.items() if name != target and column.first_text)
    numeric = tuple(name for name, column in columns.items() if name != target and not column.first_text)
    X = np.array([_numbers(row, frozenset(numeric)) for row in rows]).reshape(len(rows), len(numeric))
    return Table(numeric, X, texts, columns[target])


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows to predict: numbers `X` (n, d), the cells of the column of text, none if there is none, and columns to repeat."""

    X: Float[np.ndarray, "n d"]
    cells: tuple[str, ...]
    kept: dict[str, tuple[str, ...]]


def read_columns(path: Path, columns: tuple[str, ...], text: str | None, keep: Sequence[str] = ()) -> Rows:
    """The numbers under these names, in this order, the cells of the column of text, and those to keep, as they are written.

    Whatever else the file holds is not looked at. Raises ValueError as `read_table` does, and for every column that is missing.
    """
    wanted = columns if text is None else (*columns, text)
    with _open(path) as records:
        header = _header(path, records)
        _check_model_columns(path, wanted, header)
        for name in keep:
            _check_name(path, name, header, "--keep")
        rows = [_row(path, header, line, cells) for line, cells in records]
    if not rows:
        raise ValueError(f"{path} has no rows of numbers below its header")
    places = {name: place for place, name in enumerate(name for name in header if name in set(columns))}
    X = np.array([_numbers(row, frozenset(columns)) for row in rows]).reshape(len(rows), len(columns))
    cells = () if text is None else _column(rows, header.index(text)).cells
    kept = {name: tuple(row[header.index(name)].text for row in rows) for name in keep}
    return Rows(X[:, [places[name] for name in columns]], cells, kept)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """The records of a file; whatever keeps it from being read is a ValueError."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a CSV file")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield _records(path, file.read())
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except UnicodeDecodeError as problem:
        raise ValueError(f"{path} is not text in UTF-8: byte {problem.start} cannot be decoded") from None


def _records(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The records that are not blank, each with the line of the file on which it starts. A lone `""` is an empty cell."""
    if not text.strip():
        raise ValueError(f"{path} is empty: a header and rows of numbers are needed")
    line = 1
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
        for cells in reader:
            if len(cells) > 1 or cells == [""] or any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as problem:
        raise ValueError(f"{path}, line {line}: {problem}") from None


def _delimiter(text: str) -> str:
    """Whichever of the three cuts the header into the most names; csv.Sniffer guesses from the data, and guesses wrong."""

    def names(delimiter: str) -> int:
        return len(next(filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)), []))

    return max(",;\t", key=names)


def _header(path: Path, records: Iterator[tuple[int, list[str]]]) -> list[str]:
    first = next(records, None)
    if first is None:
        raise ValueError(f"{path} is empty: a header and rows of numbers are needed")
    names = [name.strip() for name in first[1]]
    for position, name in enumerate(names, start=1):
        if not name:
            raise ValueError(f"column {position} of {path} has no name in the header (from pandas, write with index=False)")
    twice = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if twice is not None:
        raise ValueError(f"{path} has two columns called {quoted(twice)}: names must differ")
    return names


def _check_columns(path: Path, target: str, ignore: Sequence[str], header: list[str]) -> None:
    _check_name(path, target, header, "--target")
    for name in ignore:
        _check_name(path, name, header, "--ignore")
    if target in ignore:
        raise ValueError(f"--ignore {target}: that is the column to predict")
    if set(header) <= {target, *ignore}:
        ignored = " and what is ignored" if ignore else ""
        raise ValueError(f"{path} has no columns but the target {quoted(target)}{ignored}: there is nothing to predict it from")


def _check_model_columns(path: Path, wanted: tuple[str, ...], header: list[str]) -> None:
    missing = [name for name in wanted if name not in header]
    if missing:
        raise ValueError(f"{path} lacks {listed(missing)}: the model was fitted to the columns {', '.join(wanted[:_SHOWN])}")


def _check_name(path: Path, name: str, header: list[str], option: str) -> None:
    if name not in header:
        near = difflib.get_close_matches(name, header, n=1, cutoff=0.5)
        hint = f"did you mean {quoted(near[0])}? " if near else ""
        names = ", ".join(header[:_SHOWN] + ["..."] * (len(header) > _SHOWN))
        raise ValueError(f"{option}: {path} has no column {quoted(name)}: {hint}its columns are {names}")


@dataclasses.dataclass(frozen=True)
class _Cell:
    """The text of a cell, the name of its column, and where it stands."""

    text: str
    name: str
    place: str


def _row(path: Path, header: list[str], line: int, cells: list[str]) -> list[_Cell]:
    if len(cells) != len(header):
        raise ValueError(f"{path}, line {line}: there are {plural(len(cells), 'cell')}, but the header has {len(header)}")
    row = []
    for name, cell in zip(header, cells):
        row.append(_Cell(cell, name, f"{path}, line {line}, column {quoted(name)}"))
        line += len(re.findall("\r\n|\r|\n", cell))  # inside quotes
    return row


def _column(rows: list[list[_Cell]], place: int) -> Column:
    cells = [row[place] for row in rows]
    return Column(cells[0].name, tuple(cell.text.strip() for cell in cells), tuple(cell.place for cell in cells))


def _numbers(row: list[_Cell], only: frozenset[str]) -> list[float]:
    return [number(cell.text, cell.place) for cell in row if cell.name in only]


def number(cell: str, place: str) -> float:
    """What a cell says, or a ValueError that names its place."""
    if not cell.strip():
        raise ValueError(f"{place}: the cell is empty: remove such rows, or fill them in")
    value = as_number(cell)
    if value is None:
        comma = "," in cell and cell.replace(",", "", 1).replace(".", "").strip().lstrip("+-").isdigit()
        hint = ": write a point before decimals, and nothing between thousands" if comma else ""
        raise ValueError(f"{place}: {quoted(cell)} is not a number{hint}")
    if not math.isfinite(value):
        raise ValueError(f"{place}: {quoted(cell)} is not a finite number: remove such rows, or fill them in")
    return value


def _is_text(cell: str) -> bool:
    return bool(cell) and as_number(cell) is None


def as_number(cell: str) -> float | None:
    """A number as other programs read it; None for any other text."""
    try:
        return float(cell.replace("_", "?"))  # Python reads 1_000 as a thousand, no other program does
    except ValueError:
        return None


def plural(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def listed(names: Sequence[str]) -> str:
    """In quotes, and not too many."""
    return ", ".join(map(quoted, names[:_SHOWN])) + ", ..." * (len(names) > _SHOWN)


def quoted(text: str) -> str:
    """In quotes, on one line, and not too long."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
