"""The choice of an encoder for a column, and why some columns have none."""

from kernax.preparation.cells import Column, check_cells, is_missing, numbers, plural
from kernax.preparation.dates import Date, no_date, unclear_dates
from kernax.preparation.encoders import (
    MOST_CATEGORIES,
    AbstractEncoder,
    Category,
    FilledNumber,
    Number,
    Text,
)

# In the order in which they are tried; text is compared by string kernels alone.
OF_NUMBERS: tuple[type[AbstractEncoder], ...] = (Number, FilledNumber, Date, Category)
KINDS = {kind.kind: kind for kind in (*OF_NUMBERS, Text)}


def kind_of(column: Column) -> type[AbstractEncoder]:
    """Decides the kind of a column from all of its cells.

    Raises ValueError for a column with only missing cells; with the place of a cell, for mistakes
    among numbers or dates, and for ambiguous dates; and for words that are too many to be
    categories.
    """
    if not column.present:
        raise ValueError(f"all cells of column {column.name!r} are empty")
    if is_mostly_numbers(column):
        numbers(column.known)
    else:
        unclear = unclear_dates(column)
        if unclear is not None:
            raise ValueError(unclear)
        # No cell of a column of dates may be missing.
        if Date.suits(column):
            check_cells(column, lambda cell: no_date("", "") if is_missing(cell) else None)
    suitable = next((kind for kind in OF_NUMBERS if kind.suits(column)), None)
    if suitable is not None:
        return suitable
    # Words that are too many to be categories.
    words = len(set(column.present))
    rows = len(column.present)
    different = plural(words, "different text")
    first = f"{column.known.first_text}, and {column.name!r} holds {different} in"
    if words == rows:
        raise ValueError(f"{first} as many rows, which tell rows apart and not groups of them")
    most = MOST_CATEGORIES if words > MOST_CATEGORIES else "half as many as rows"
    raise ValueError(f"{first} {plural(rows, 'row')}: at most {most} are read as categories")


def is_mostly_numbers(column: Column) -> bool:
    """Whether cells that are not numbers are mistakes, because most of the others are numbers."""
    return 2 * column.numeric >= len(column.present)
