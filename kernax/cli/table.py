"""Reads a table of numbers and text from a CSV file; errors name the place in the file."""

import contextlib
import csv
import dataclasses
import difflib
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernax.preparation.cells import Column, listed, plural, quoted, shortened

LEAST_ROWS = 4  # three to learn from, one to hold out
CLUSTER = "cluster"  # the column that `kernax cluster` writes


@dataclasses.dataclass(frozen=True)
class Table:
    """A table: the columns that are inputs, and the one to predict.

    `texts` are the names of the inputs that string kernels compare.
    """

    inputs: tuple[Column, ...]
    target: Column
    texts: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(column.name for column in self.inputs)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.inputs[0].cells)


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
    return Table(_columns(rows, header, names), _column(rows, header.index(target)))


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
    return Table(_columns(rows, header, names), Column(CLUSTER, (), ())), kept


def read_columns(
    path: Path, wanted: tuple[str, ...], keep: Sequence[str] = ()
) -> tuple[tuple[Column, ...], dict[str, tuple[str, ...]]]:
    """The columns of these names, of rows to predict; and columns to repeat, as they are written.

    Raises ValueError as `read_table` does, and for every column that is missing.
    """
    with _open(path) as records:
        header = _header(path, records)
        _check_model_columns(path, wanted, header)
        for name in keep:
            _check_name(path, name, header, "--keep")
        rows = [_row(path, header, line, cells) for line, cells in records]
    if not rows:
        raise ValueError(f"{path} has no rows of numbers below its header")
    kept = {name: _cells_as_written(rows, header.index(name)) for name in keep}
    return _columns(rows, header, wanted), kept


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
            f"{shortened(wanted)}"
        )


def _check_name(path: Path, name: str, header: list[str], option: str) -> None:
    """Raises ValueError, with the most similar name, for a column that is not there."""
    if name not in header:
        near = difflib.get_close_matches(name, header, n=1, cutoff=0.5)
        hint = f"did you mean {quoted(near[0])}? " if near else ""
        raise ValueError(
            f"{option}: {path} has no column {quoted(name)}: {hint}its columns are "
            f"{shortened(header)}"
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


def _columns(
    rows: list[list[_Cell]], header: list[str], names: Sequence[str]
) -> tuple[Column, ...]:
    """The columns of these names, in this order."""
    return tuple(_column(rows, header.index(name)) for name in names)


def _column(rows: list[list[_Cell]], place: int) -> Column:
    """A column, its cells without spaces at either end."""
    cells = [row[place] for row in rows]
    texts = tuple(cell.text.strip() for cell in cells)
    return Column(cells[0].name, texts, tuple(cell.place for cell in cells))
