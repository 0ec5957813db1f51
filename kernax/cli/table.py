"""Reads a table of numbers and text from a CSV file; errors name the place in the file."""

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
CLUSTER = "cluster"  # the column that `kernax cluster` writes


@dataclasses.dataclass(frozen=True)
class Column:
    """The cells of a column as they are written, and the place of each, for messages."""

    name: str
    cells: tuple[str, ...]
    places: tuple[str, ...]

    @functools.cached_property
    def first_text(self) -> str | None:
        """The place and text of the first cell that is no number; None if all are, or are empty."""
        for cell, place in zip(self.cells, self.places):
            if _is_text(cell):
                return f"{place}: {quoted(cell)} is not a number"
        return None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table: inputs that are numbers, inputs of text, and the target.

    `X` (n, d) are the inputs that are numbers, with names `columns`; `texts` are the inputs with
    cells that are no numbers; `target` is the column to predict.
    """

    columns: tuple[str, ...]
    X: Float[np.ndarray, "n d"]
    texts: tuple[Column, ...]
    target: Column


def read_table(path: Path, target: str, ignore: Sequence[str] = ()) -> Table:
    """Reads a CSV file with a header; comma, semicolon or tab, UTF-8.

    Every column but the target and the ignored ones is an input.

    Raises:
        ValueError: one sentence with the line of the file in which the error is: lines are counted
            as an editor counts them.
    """
    with _open(path) as records:
        header = _header(path, records)
        _check_columns(path, target, ignore, header)
        rows = [_row(path, header, line, cells) for line, cells in records]
    if not rows:
        raise ValueError(f"{path} has 0 rows of numbers, but at least {LEAST_ROWS} are needed")
    names = [name for name in header if name != target and name not in ignore]
    return _table(rows, header, names, _column(rows, header.index(target)))


def _table(rows: list[list["_Cell"]], header: list[str], names: list[str], target: Column) -> Table:
    """The columns of these names as inputs, those with cells that are no numbers as text."""
    inputs = [_column(rows, header.index(name)) for name in names]
    texts = tuple(column for column in inputs if column.first_text)
    numeric = tuple(column.name for column in inputs if not column.first_text)
    return Table(numeric, _numbers(rows, header, numeric), texts, target)


def read_inputs(
    path: Path, ignore: Sequence[str] = (), keep: Sequence[str] = ()
) -> tuple[Table, dict[str, tuple[str, ...]]]:
    """A table without a target, every column an input but the ignored ones; and columns to repeat.

    Raises ValueError as `read_table` does.
    """
    with _open(path) as records:
        header = _header(path, records)
        for option, names in (("--ignore", ignore), ("--keep", keep)):
            for name in names:
                _check_name(path, name, header, option)
        rows = [_row(path, header, line, cells) for line, cells in records]
    names = [name for name in header if name not in ignore]
    if not rows or not names:
        raise ValueError(f"{path} has no rows, or no columns that are not ignored")
    kept = {name: _cells_as_written(rows, header.index(name)) for name in keep}
    return _table(rows, header, names, Column(CLUSTER, (), ())), kept


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows to predict: numbers `X` (n, d), `cells` of text, and columns to repeat.

    `cells` is empty where the model compares no text; `kept` are the columns to repeat.
    """

    X: Float[np.ndarray, "n d"]
    cells: tuple[str, ...]
    kept: dict[str, tuple[str, ...]]


def read_columns(
    path: Path, columns: tuple[str, ...], text: str | None, keep: Sequence[str] = ()
) -> Rows:
    """The columns of these names as rows to predict; other columns are ignored.

    Numbers are in the order of their names, cells of text and those to keep as they are written.
    Raises ValueError as `read_table` does, and for every column that is missing.
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
    cells = () if text is None else _column(rows, header.index(text)).cells
    kept = {name: _cells_as_written(rows, header.index(name)) for name in keep}
    return Rows(_numbers(rows, header, columns), cells, kept)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """The records of a file. Raises ValueError where it cannot be read."""
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
        raise ValueError(
            f"{path} is not text in UTF-8: byte {problem.start} cannot be decoded"
        ) from None


def _records(path: Path, text: str) -> Iterator[tuple[int, list[str]]]:
    """The records that are not blank, each with the line of the file on which it starts.

    A record `""` is not blank: it has one cell, which is empty.
    """
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
    """The delimiter, of three, that divides the header into the most names.

    csv.Sniffer guesses from the data, and may be wrong.
    """

    def names(delimiter: str) -> int:
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return len(next(filter(None, records), []))

    return max(",;\t", key=names)


def _header(path: Path, records: Iterator[tuple[int, list[str]]]) -> list[str]:
    """The names in the first record."""
    first = next(records, None)
    if first is None:
        raise ValueError(f"{path} is empty: a header and rows of numbers are needed")
    names = [name.strip() for name in first[1]]
    _check_header(path, names)
    return names


def _check_header(path: Path, names: list[str]) -> None:
    """Raises ValueError for a column without a name, and for two of one name."""
    if "" in names:
        raise ValueError(
            f"column {names.index('') + 1} of {path} has no name in the header (from pandas, write "
            "with index=False)"
        )
    twice = next((name for position, name in enumerate(names) if name in names[:position]), None)
    if twice is not None:
        raise ValueError(f"{path} has two columns called {quoted(twice)}: names must differ")


def _check_columns(path: Path, target: str, ignore: Sequence[str], header: list[str]) -> None:
    """Raises ValueError for a target or an ignored column that is not there, or without inputs."""
    _check_name(path, target, header, "--target")
    for name in ignore:
        _check_name(path, name, header, "--ignore")
    if target in ignore:
        raise ValueError(f"--ignore {target}: that is the column to predict")
    if set(header) <= {target, *ignore}:
        ignored = " and what is ignored" if ignore else ""
        raise ValueError(
            f"{path} has no columns but the target {quoted(target)}{ignored}: there is nothing to "
            "predict it from"
        )


def _check_model_columns(path: Path, wanted: tuple[str, ...], header: list[str]) -> None:
    """Raises ValueError for columns of the model that the file lacks."""
    missing = [name for name in wanted if name not in header]
    if missing:
        raise ValueError(
            f"{path} lacks {listed(missing)}: the model was fitted to the columns "
            f"{', '.join(wanted[:_SHOWN])}"
        )


def _check_name(path: Path, name: str, header: list[str], option: str) -> None:
    """Raises ValueError, with the most similar name, for a column that is not there."""
    if name not in header:
        near = difflib.get_close_matches(name, header, n=1, cutoff=0.5)
        hint = f"did you mean {quoted(near[0])}? " if near else ""
        names = ", ".join(header[:_SHOWN])
        if len(header) > _SHOWN:
            names += ", ..."
        raise ValueError(
            f"{option}: {path} has no column {quoted(name)}: {hint}its columns are {names}"
        )


@dataclasses.dataclass(frozen=True)
class _Cell:
    """The text of a cell, the name of its column, and its place in the file."""

    text: str
    name: str
    place: str


def _row(path: Path, header: list[str], line: int, cells: list[str]) -> list[_Cell]:
    """The cells of a record that begins on a line, one for each name in the header."""
    if len(cells) != len(header):
        raise ValueError(
            f"{path}, line {line}: there are {plural(len(cells), 'cell')}, but the header has "
            f"{len(header)}"
        )
    row = []
    for name, cell in zip(header, cells):
        row.append(_Cell(cell, name, f"{path}, line {line}, column {quoted(name)}"))
        line += len(re.findall("\r\n|\r|\n", cell))  # a quoted cell may have several lines
    return row


def _cells_as_written(rows: list[list[_Cell]], place: int) -> tuple[str, ...]:
    """The cells of a column, with their spaces."""
    return tuple(row[place].text for row in rows)


def _column(rows: list[list[_Cell]], place: int) -> Column:
    """A column, its cells without spaces at either end."""
    cells = [row[place] for row in rows]
    texts = tuple(cell.text.strip() for cell in cells)
    return Column(cells[0].name, texts, tuple(cell.place for cell in cells))


def _numbers(
    rows: list[list[_Cell]], header: list[str], names: Sequence[str]
) -> Float[np.ndarray, "n d"]:
    """The columns of these names, in this order.

    The error names the first cell in the file that is no number.
    """
    places = sorted(map(header.index, names))
    numbers = [[number(row[place].text, row[place].place) for place in places] for row in rows]
    X = np.array(numbers).reshape(len(rows), len(names))
    return X[:, [places.index(header.index(name)) for name in names]]


def number(cell: str, place: str) -> float:
    """The number in a cell. Raises ValueError, with the place of the cell, where there is none."""
    if not cell.strip():
        raise ValueError(f"{place}: the cell is empty: remove such rows, or fill them in")
    value = as_number(cell)
    if value is None:
        raise ValueError(f"{place}: {quoted(cell)} is not a number{_hint_on_commas(cell)}")
    if not math.isfinite(value):
        raise ValueError(
            f"{place}: {quoted(cell)} is not a finite number: remove such rows, or fill them in"
        )
    return value


def _hint_on_commas(cell: str) -> str:
    """How to write a number that has a comma in it; nothing for other texts."""
    digits = cell.replace(",", "", 1).replace(".", "").strip().lstrip("+-")
    has_comma = "," in cell and digits.isdigit()
    return ": write a point before decimals, and nothing between thousands" if has_comma else ""


def _is_text(cell: str) -> bool:
    """Whether a cell is neither empty nor a number."""
    return bool(cell) and as_number(cell) is None


def as_number(cell: str) -> float | None:
    """A number as other programs read it; None for any other text."""
    try:
        # Python reads 1_000 as a thousand, other programs do not.
        return float(cell.replace("_", "?"))
    except ValueError:
        return None


def plural(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def listed(names: Sequence[str]) -> str:
    """Names in quotes, the first thirty of them."""
    shown = ", ".join(map(quoted, names[:_SHOWN]))
    return f"{shown}, ..." if len(names) > _SHOWN else shown


def quoted(text: str) -> str:
    """A text in quotes on one line, cut to 40 letters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
