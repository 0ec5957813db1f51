"""The parameters of a model as a table to read."""

import dataclasses
import textwrap
from collections.abc import Sequence

import numpy as np
from jaxtyping import PyTree

from kernax.core.numerics import is_concrete
from kernax.core.parameters import Trainable, parameters, shown

_WIDEST = 60  # characters of a value on one line


@dataclasses.dataclass(frozen=True)
class Description:
    """What `describe` returns: rows of (parameter, value, support, state), printed as an aligned table."""

    rows: tuple[tuple[str, str, str, str], ...]

    header = ("parameter", "value", "support", "state")

    def __str__(self) -> str:
        if not self.rows:
            return "no parameters"
        table = [line for row in (self.header, *self.rows) for line in _lines(row)]
        widths = [max(len(row[j]) for row in table) for j in range(4)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table)

    __repr__ = __str__


def describe(model: PyTree, trainable: Trainable | None = None, columns: Sequence[str] = ()) -> Description:
    """A table of a model's parameters: path, value, support, and whether `trainable` leaves them free or frozen.

    With the names of d columns, a parameter of d numbers, such as a lengthscale for each, has a row for each of them:
    `lengthscale[age]`. Otherwise long arrays take several lines.
    """
    rows = []
    for entry in parameters(model):
        mask = np.asarray(True if trainable is None else trainable(entry.path, entry.value))
        support, known = str(entry.support), is_concrete(entry.value)
        if columns and known and entry.value.shape == (len(columns),):
            free = np.broadcast_to(mask, entry.value.shape)
            for name, value, one in zip(columns, np.asarray(entry.value), free):
                rows.append((f"{entry.path}[{name}]", f"{value:.4g}", support, _state(np.asarray(one))))
        else:
            value = shown(np.asarray(entry.value)) if known else f"traced {entry.value.shape}"
            rows.append((entry.path, value, support, _state(mask)))
    return Description(tuple(rows))


def _state(mask: np.ndarray) -> str:
    """How much of a parameter is free, in words."""
    if mask.all():
        return "free"
    return f"{int(mask.sum())} of {mask.size} free" if mask.any() else "frozen"


def _lines(row: tuple[str, ...]) -> list[tuple[str, ...]]:
    """A row of the table with its value on as many lines as it takes."""
    path, value, *rest = row
    first, *others = [part for line in value.splitlines() for part in textwrap.wrap(line, _WIDEST, subsequent_indent=" ")]
    return [(path, first, *rest), *(("", part, "", "") for part in others)]
