"""Damaged tables: read as they are written, or refused in one short line, soon."""

import io
import re
import time
import tracemalloc

import numpy as np
import pytest
from conftest import needs_x64
from rich.console import Console

from kernax.cli.compared_columns import compared_columns, learned_inputs
from kernax.cli.console import print_inputs
from kernax.cli.table import read_columns, read_table
from kernax.cli.target import numbers
from kernax.preparation.cells import Column
from kernax.preparation.encoders import Tokens
from kernax.preparation.inputs import Inputs

pytestmark = needs_x64  # once: no precision touches it

LINE_ENDS = re.compile("\r\n|\r|\n")
DELIMITERS = (",", ";", "\t")
STRANGE = (
    *(
        "1e999",
        "-1e999",
        "nan",
        "inf",
        "0x10",
        "1_000",
        "1.2.3",
        "--1",
        "1,5",
        "1.234,5",
        "1e",
        "+",
    ),
    *("\0", '"', '""', '"a', 'a"b', '"a\nb"', "\r", "\n\n", "", " ", "\x1b[31m", "=1+1", "NA", "?"),
    *("\N{FULLWIDTH DIGIT ONE}", "\N{MINUS SIGN}1", "\N{ZERO WIDTH SPACE}", "\ufeff", "\u2028"),
    "9" * 400,
    "z" * 140_000,
)


def sound(rng):
    """A table of numbers, with a header, as text."""
    delimiter = DELIMITERS[int(rng.integers(3))]
    rows = rng.normal(size=(int(rng.integers(4, 12)), 3)).round(3)
    lines = [delimiter.join(map(str, row)) for row in rows]
    return "\n".join([delimiter.join("xzy"), *lines, ""])


def with_strange_cell(text, rng):
    places = [found.start() for found in re.finditer("[,;\t\n]", text)]
    place = places[int(rng.integers(len(places)))]
    return text[:place] + STRANGE[int(rng.integers(len(STRANGE)))] + text[place + rng.integers(2) :]


def with_ragged_row(text, rng):
    lines = text.split("\n")
    row = int(rng.integers(len(lines)))
    lines[row] += DELIMITERS[int(rng.integers(3))] * int(rng.integers(1, 4))
    return "\n".join(lines)


def with_moved_line(text, rng):
    lines = text.split("\n")
    lines.insert(int(rng.integers(len(lines))), lines.pop(int(rng.integers(len(lines)))))
    return "\n".join(lines)


def with_many_columns(text, rng):
    count = int(rng.integers(1000, 5000))
    names = [f"c{i}" for i in range(count)]
    return text.replace("x", ",".join(names), 1) if rng.random() < 0.5 else ",".join([*names, "y"])


def with_other_line_ends(text, rng):
    return text.replace("\n", ("\r", "\r\n", "\n\r", "\u2028")[int(rng.integers(4))])


def with_long_names(text, rng):
    name = ("n\n" * 40, "'\\" * 200, "m" * 130_000)[int(rng.integers(3))]
    return text.replace("y", f'"{name}"', 1)


def cut_short(text, rng):
    return text[: int(rng.integers(len(text)))]


IN_TEXT = (
    *(with_strange_cell, with_ragged_row, with_moved_line, with_many_columns),
    *(with_other_line_ends, with_long_names, cut_short),
)


def with_flipped_bits(data, rng):
    data = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(data)


def with_random_bytes(data, rng):
    place = int(rng.integers(len(data)))
    return data[:place] + rng.bytes(int(rng.integers(1, 9))) + data[place:]


def in_another_encoding(data, rng):
    encoding = ("utf-16", "utf-32", "utf-8-sig", "cp500")[int(rng.integers(4))]
    return data.decode().encode(encoding)


IN_BYTES = (with_flipped_bits, with_random_bytes, in_another_encoding)


def damaged(rng):
    """A table with one or two damages to its text, and perhaps one to its bytes."""
    text = sound(rng)
    for _ in range(int(rng.integers(1, 3))):
        text = IN_TEXT[int(rng.integers(len(IN_TEXT)))](text, rng) or "\n"
    data = text.encode()
    return IN_BYTES[int(rng.integers(3))](data, rng) if rng.random() < 0.4 else data


def cells_of(path):
    """The names and the cells of a table without quotes, by splitting its lines."""
    contents = path.read_bytes()
    wide = contents.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = contents.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        text = contents.decode("latin-1")
    rows = [line for line in LINE_ENDS.split(text) if line.strip()]
    delimiter = max(DELIMITERS, key=lambda mark: len(rows[0].split(mark)))
    cells = [[cell.strip() for cell in row.split(delimiter)] for row in rows]
    return delimiter, cells[0], [row for row in cells[1:] if any(row) or len(row) > 1]


def check_against_text(path, table):
    """Every row of the file is in the table, in order, but for those without a target."""
    if b'"' in path.read_bytes():
        return
    delimiter, names, rows = cells_of(path)
    assert table.count + table.left_out == len(rows)
    place = names.index("y")
    commas = delimiter != ","
    known = table.target.as_written.cells if commas else table.target.cells
    written = [row[place] for row in rows]
    assert [cell for cell in written if cell in known] == list(known)
    for value, cell in zip(numbers(table), table.target.cells):
        assert value == float(cell)


def check_message(path, problem):
    message = str(problem)
    assert message.isprintable(), message[:300]  # in one line, and without escapes of a terminal
    assert len(message) < 2000
    assert re.search(f"{re.escape(str(path))}|target column 'y'|rows? of numbers", message)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*(all cells of the first line are numbers|read as Latin-1)")
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_table_is_read_as_it_is_written_or_refused_in_one_line(tmp_path, seed):
    """Three hundred tables, a hundred in each run."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "damaged.csv"
    refused = 0
    tracemalloc.start()
    for _ in range(100):
        path.write_bytes(damaged(rng))
        tracemalloc.reset_peak()
        start = time.process_time()
        try:
            table = read_table(path, "y")
            numbers(table)
            read_columns(path, table.columns)
        except ValueError as problem:
            refused += 1
            check_message(path, problem)
        else:
            check_against_text(path, table)
        assert time.process_time() - start < 5
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    tracemalloc.stop()
    assert 30 < refused < 95


@pytest.mark.slow
def test_the_time_of_many_columns_grows_with_their_number(tmp_path):
    """Where it grew with the square, fifty thousand took half a minute; now they take a second."""
    path = tmp_path / "wide.csv"
    count = 50_000
    rows = [",".join([str(row)] * (count + 1)) for row in range(4)]
    names = ",".join(f"c{i}" for i in range(count))
    path.write_text("\n".join([f"{names},y", *rows]))
    start = time.process_time()
    table = read_table(path, "y")
    read_columns(path, table.columns)
    assert len(table.columns) == count
    assert time.process_time() - start < 10


def test_columns_are_chosen_without_a_comparison_of_all_pairs(tmp_path, monkeypatch):
    """Four thousand took two minutes of a fit to six rows, for what now takes seconds."""
    path = tmp_path / "wide.csv"
    rows = [",".join([str(row)] * 9) for row in range(6)]
    path.write_text("\n".join(["a,b,c,d,e,f,g,h,y", *rows]))
    table = read_table(path, "y")
    monkeypatch.setattr(Column, "__eq__", lambda *_: pytest.fail("cells were compared"))
    compared = compared_columns(table, "rbf", None)
    inputs = learned_inputs(compared, np.arange(4), Tokens.LETTERS)
    found = []
    names = lambda self: found.append(self) or table.columns
    monkeypatch.setattr(Inputs, "names", property(names))
    print_inputs(Console(file=io.StringIO()), compared, inputs)
    assert len(found) == 1
