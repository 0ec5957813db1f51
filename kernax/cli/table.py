"""Reads a table of numbers and text from a CSV file; errors name the place in the file."""

import codecs
import csv
import dataclasses
import gzip
import io
import itertools
import os
import re
import warnings
import zlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from kernax.preparation.cells import (
    Column,
    announcement_of_commas,
    as_number,
    bare,
    check_cells,
    did_you_mean,
    is_missing,
    likewise,
    listed,
    plural,
    quoted,
    shortened,
    with_decimal_commas,
)

LEAST_ROWS = 4  # three to learn from, one to hold out
CLUSTER = "cluster"  # the column that `kernax cluster` writes


@dataclasses.dataclass(frozen=True)
class InputTable:
    """A table: the columns that are inputs, and the one to predict.

    `texts` are the names of the inputs that string kernels compare; `left_out` is how many rows of
    the file have an empty target, and are not in the table.
    """

    inputs: tuple[Column, ...]
    target: Column
    texts: tuple[str, ...] = ()
    left_out: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(column.name for column in self.inputs)

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.inputs[0].cells)

    @property
    def announcements(self) -> tuple[str, ...]:
        """Lines on the decisions about the rows and the cells of the target."""
        lines = (self.announcement_of_rows, announcement_of_commas(self.target))
        return tuple(line for line in lines if line is not None)

    @property
    def announcement_of_rows(self) -> str | None:
        """A line on how many rows were left out; None if all were kept."""
        if not self.left_out:
            return None
        rows = plural(self.left_out, "row")
        verbs = ("has", "was") if self.left_out == 1 else ("have", "were")
        return f"{rows} {verbs[0]} an empty {quoted(self.target.name)} and {verbs[1]} left out"


def read_table(path: Path, target: str, ignore: Sequence[str] = ()) -> InputTable:
    """Reads a CSV file with a header; comma, semicolon or tab.

    Every column but the target and the ignored ones is an input. Rows whose target is empty are
    left out. If commas do not separate the cells, they may be decimal commas.

    Raises:
        ValueError: one sentence with the line of the file in which the error is: lines are counted
            as an editor counts them.
    """
    file = _opened(path)
    header = _header(file)
    _check_name(path, target, header, "--target")
    for ignored in ignore:
        _check_name(path, ignored, header, "--ignore")
    if target in ignore:
        raise ValueError(f"--ignore {target}: that is the column to predict")
    if set(header) <= {target, *ignore}:
        what = " and what is ignored" if ignore else ""
        raise ValueError(
            f"{path} has no columns but the target {quoted(target)}{what}: there is nothing to "
            "predict it from"
        )
    rows = _rows(file, header)
    if not rows:
        raise ValueError(f"{path} has 0 rows of numbers, but at least {LEAST_ROWS} are needed")
    names = [name for name in header if name != target and name not in ignore]
    (y,) = _columns(file, rows, header, [target])
    return _with_targets(InputTable(_columns(file, rows, header, names), y))


def _with_targets(table: InputTable) -> InputTable:
    """The rows with a target that is not empty.

    NA, ? and the like count as empty among numbers, as in other columns, but may name a class.
    """
    target = table.target
    are_numbers = target.known.first_text is None
    empty = [is_missing(cell) if are_numbers else not cell for cell in target.cells]
    if all(empty):
        raise ValueError(
            f"{target.file}: all cells of the target {quoted(target.name)} are empty: there is "
            "nothing to learn"
        )
    kept = np.flatnonzero(np.logical_not(empty))
    inputs = tuple(column.rows(kept) for column in table.inputs)
    return InputTable(inputs, target.rows(kept), left_out=sum(empty))


def read_inputs(
    path: Path, ignore: Sequence[str] = (), keep: Sequence[str] = ()
) -> tuple[InputTable, dict[str, tuple[str, ...]]]:
    """A table without a target, every column an input but the ignored ones; and columns to repeat.

    Raises ValueError as `read_table` does.
    """
    file = _opened(path)
    header = _header(file)
    for option, names in (("--ignore", ignore), ("--keep", keep)):
        for name in names:
            _check_name(path, name, header, option)
    rows = _rows(file, header)
    names = [name for name in header if name not in ignore]
    if not names:
        raise ValueError(f"--ignore leaves out all columns of {path}: there is nothing to compare")
    if not rows:
        raise ValueError(f"{path} has no rows below its header")
    inputs = _columns(file, rows, header, names)
    return InputTable(inputs, Column(CLUSTER, (), ())), _as_written(rows, header, keep)


def read_columns(
    path: Path, wanted: tuple[str, ...], keep: Sequence[str] = (), commas: Collection[str] = ()
) -> tuple[tuple[Column, ...], dict[str, tuple[str, ...]]]:
    """The columns with these names, for rows to predict; and columns to repeat, as they are
    written.

    Arguments:
        commas: the names of columns that had decimal commas in training. They are parsed in this
            way whatever separates the cells.

    Raises ValueError as `read_table` does, and for every column that is missing.
    """
    file = _opened(path)
    header = _header(file)
    present = set(header)
    missing = [name for name in wanted if name not in present]
    if missing:
        raise ValueError(
            f"{path} lacks {listed(missing)}: the model was fitted to the columns "
            f"{shortened(list(map(bare, wanted)))}{_doubt(header)}"
        )
    for name in keep:
        _check_name(path, name, header, "--keep")
    rows = _rows(file, header)
    if not rows:
        raise ValueError(f"{path} has no rows of numbers below its header")
    columns = []
    for column in _columns(file, rows, header, wanted):
        learned_with_commas = column.name in commas
        columns.append(_as_learned(column, file) if learned_with_commas else column)
    return tuple(columns), _as_written(rows, header, keep)


def _as_learned(column: Column, file: "_File") -> Column:
    """A column that had decimal commas in training.

    If commas separate the cells, numbers may also have points. Elsewhere a point may be a thousands
    separator, and raises ValueError.
    """
    if file.delimiter != ",":
        point = "{cell} has a point, but the model was fitted to numbers with decimal commas"
        has_point = lambda cell: "." in cell and as_number(cell) is not None
        check_cells(column.as_written, lambda cell: point if has_point(cell) else None)
    return with_decimal_commas(column)


@dataclasses.dataclass(frozen=True)
class _File:
    """A file and its records.

    Attributes:
        records: the records that are not blank, each with the line of the file on which it starts.
    """

    path: Path
    delimiter: str
    records: Iterator[tuple[int, list[str]]]


def _opened(path: Path) -> _File:
    text = _without_comments(path, _text(path))
    delimiter = _delimiter(text)
    return _File(path, delimiter, _records(path, text, delimiter))


def _without_comments(path: Path, text: str) -> str:
    """The text, with empty lines in place of those above the header that begin with #.

    A line with as many cells as the one below is not a comment but the header; its first name
    begins with #.
    """
    lines = text.splitlines(keepends=True)
    above = len(list(itertools.takewhile(lambda line: line.startswith("#"), lines)))
    if above == 0 or above == len(lines):
        return text
    header = lines[above]
    delimiter = _delimiter(header)
    if lines[above - 1].count(delimiter) == header.count(delimiter):
        above -= 1
    if above:
        _warn(path, f"{plural(above, 'line')} of comments above the header left out")
    return "\n" * above + "".join(lines[above:])


def _warn(path: Path, what: str) -> None:
    warnings.warn(f"{path}: {what}", UserWarning, stacklevel=3)


def check_table(path: Path) -> None:
    """Raises ValueError for a folder, a device or a file that is missing."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a CSV file")
    if path.is_char_device() or path.is_block_device():  # such as /dev/zero, which has no end
        raise ValueError(f"{path} is a device, not a CSV file")
    if not os.path.lexists(path):  # what a link leads to is found out by reading
        raise ValueError(f"there is no file {path}")


def _text(path: Path) -> str:
    check_table(path)
    try:
        contents = path.read_bytes()
        if contents.startswith(b"\x1f\x8b"):
            contents = gzip.decompress(contents)
        return _decoded(path, contents)
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except EOFError:
        raise ValueError(f"{path} is compressed by gzip, and cut short") from None
    except (OSError, zlib.error) as problem:
        what = getattr(problem, "strerror", None) or problem
        raise ValueError(f"{path} cannot be read: {what}") from None
    except UnicodeDecodeError as problem:
        for beginning, words in _BEGINNINGS.items():
            if problem.object.startswith(beginning):
                raise ValueError(f"{path} {words}") from None
        line = problem.object[: problem.start].count(b"\n") + 1
        raise ValueError(
            f"{path} is not text in UTF-8: byte {problem.start}, in line {line}, cannot be "
            "decoded: save it in UTF-8"
        ) from None


def _decoded(path: Path, contents: bytes) -> str:
    """Decodes UTF-8, UTF-16 with a byte order mark, and, with a warning, Latin-1.

    Latin-1 is assumed only if every byte beyond ASCII is a letter there, and none is next to a
    digit: anything else is more likely a damaged file. Raises UnicodeDecodeError otherwise.
    """
    is_wide = contents.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if is_wide and not contents.startswith(codecs.BOM_UTF32_LE):
        return contents.decode("utf-16")
    try:
        return contents.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        if contents.startswith(tuple(_BEGINNINGS)) or _NO_LETTER.search(contents):
            raise
        text = contents.decode("latin-1")
        line = contents[: problem.start].count(b"\n")
        first = quoted(text.split("\n")[line].strip())
        _warn(path, f"not in UTF-8, read as Latin-1: line {line + 1} is {first}")
        return text


# A byte that is not a letter of Latin-1, or is next to a digit.
_NO_LETTER = re.compile(
    rb"[\x00-\x08\x0e-\x1f\x7f-\xbf\xd7\xf7]|(?<=[0-9.+-])[\xc0-\xff]|[\xc0-\xff](?=[0-9.+-])"
)

# The first bytes of other kinds of files, and advice.
_BEGINNINGS = {
    codecs.BOM_UTF32_LE: "is text in UTF-32: save it in UTF-8",
    b"BZh": "is compressed by bzip2: unpack it, by bunzip2 -k",
    b"\xfd7zXZ": "is compressed by xz: unpack it, by unxz -k",
    b"\x28\xb5\x2f\xfd": "is compressed by Zstandard: unpack it, by unzstd",
    b"PK\x03\x04": "is a zip archive or a spreadsheet: unpack it, or save it as CSV in UTF-8",
    b"\xd0\xcf\x11\xe0": "is a spreadsheet: save it as CSV in UTF-8",
    b"PAR1": "is a Parquet file: write it as CSV, by pandas.read_parquet and to_csv",
}


def _records(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The records that are not blank, each with the line of the file on which it starts.

    A record `""` is not blank: it has one cell, which is empty. If the first record ends with a
    delimiter, the others may too: no cell follows it.
    """
    if not text.strip():
        raise ValueError(f"{path} is empty: a header and rows of numbers are needed")
    line = 1
    all_end: bool | None = None  # whether the records end with a delimiter, as the first does
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        for cells in reader:
            if len(cells) > 1 or cells == [""] or any(cell.strip() for cell in cells):
                ends = len(cells) > 1 and not cells[-1].strip()
                all_end = ends if all_end is None else all_end
                yield line, cells[:-1] if ends and all_end else cells
            line = reader.line_num + 1
    except csv.Error as problem:
        raise ValueError(f"{path}, line {line}: {problem}") from None


def _delimiter(text: str) -> str:
    """The delimiter, of three, that divides the header into the most names.

    csv.Sniffer guesses from the data, and may be wrong.
    """

    def names(delimiter: str) -> int:
        records = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            return len(next(filter(None, records), []))
        except csv.Error:  # an unterminated quote: reading the records raises the error
            return 0

    return max(",;\t", key=names)


def _header(file: _File) -> list[str]:
    first = next(file.records, None)
    if first is None:
        raise ValueError(f"{file.path} is empty: a header and rows of numbers are needed")
    names = [name.strip() for name in first[1]]
    if "" in names:
        raise ValueError(
            f"column {names.index('') + 1} of {file.path} has no name in the header (from pandas, "
            "write with index=False)"
        )
    places = {name: place for place, name in enumerate(names)}
    twice = next((name for place, name in enumerate(names) if places[name] != place), None)
    if twice is not None:
        raise ValueError(
            f"{file.path} has two columns called {quoted(twice)}: names must differ{_doubt(names)}"
        )
    if _are_numbers(names):
        _warn(file.path, _NO_NAMES)
    return names


_NO_NAMES = (
    "all cells of the first line are numbers, and were read as the names of the columns: if "
    "they are a row of the table, write a line of names above them"
)


def _are_numbers(names: list[str]) -> bool:
    """Whether a header consists of numbers, with decimal points or commas."""
    return all(as_number(name.replace(",", ".")) is not None for name in names)


def _doubt(header: list[str]) -> str:
    """Why the expected names may not be found; empty for a usual header."""
    if _are_numbers(header):
        return f"; {_NO_NAMES}"
    (first, *others) = header
    mark = next((mark for mark in "|: " if mark in first), None)
    if others or mark is None:
        return ""
    divide, it = ("spaces divide", "them") if mark == " " else (f"{mark} divides", "it")
    return f"; if {divide} the cells, write commas, semicolons or tabs in place of {it}"


def _check_name(path: Path, name: str, header: list[str], option: str) -> None:
    if name not in header:
        raise ValueError(
            f"{option}: {path} has no column {quoted(name)}: {did_you_mean(name, header)}its "
            f"columns are {shortened(list(map(bare, header)))}{_doubt(header)}"
        )


@dataclasses.dataclass(frozen=True)
class _TableCell:
    """The text of a cell, and the line of the file in which it begins."""

    text: str
    line: int


def _rows(file: _File, header: list[str]) -> list[list[_TableCell]]:
    rows = []
    wrong = []
    for line, cells in file.records:
        if len(cells) != len(header):
            wrong.append((line, plural(len(cells), "cell")))
        row = []
        for cell in cells:
            row.append(_TableCell(cell, line))
            line += len(re.findall("\r\n|\r|\n", cell))  # a quoted cell may have several lines
        rows.append(row)
    if wrong:
        (first, count), *others = wrong
        more = likewise([f"line {line} ({cells})" for line, cells in others])
        raise ValueError(
            f"{file.path}, line {first}: there are {count}, but the header has {len(header)}{more}"
        )
    return rows


def _columns(
    file: _File, rows: list[list[_TableCell]], header: list[str], names: Sequence[str]
) -> tuple[Column, ...]:
    """The columns with these names, their cells without spaces at either end.

    A comma in a number is a decimal comma unless commas separate the cells: it may then be a
    thousands separator, and raises ValueError.
    """
    places = {name: place for place, name in enumerate(header)}
    columns = []
    for name in names:
        cells = [row[places[name]] for row in rows]
        texts = tuple(_stripped(cell.text) for cell in cells)
        lines = tuple(f"line {cell.line}" for cell in cells)
        column = Column(name, texts, lines, str(file.path))
        columns.append(column if file.delimiter == "," else with_decimal_commas(column))
    return tuple(columns)


def _as_written(
    rows: list[list[_TableCell]], header: list[str], names: Sequence[str]
) -> dict[str, tuple[str, ...]]:
    """The cells of the columns with these names, with their spaces."""
    places = {name: header.index(name) for name in names}
    return {name: tuple(row[place].text for row in rows) for name, place in places.items()}


# A number in double precision as Fortran writes it, 1.2573D-01.
_OF_FORTRAN = re.compile(r"([+-]?\d*\.\d*)[dD]([+-]\d{2,3})")


def _stripped(cell: str) -> str:
    """A cell without spaces at either end; a number of Fortran gets E in place of D."""
    text = cell.strip()
    if "d" not in text and "D" not in text:
        return text
    number = _OF_FORTRAN.fullmatch(text)
    return f"{number[1]}E{number[2]}" if number else text
