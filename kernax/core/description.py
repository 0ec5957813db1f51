"""The parameters of a model as a table to read."""

import dataclasses

import numpy as np
from jaxtyping import PyTree

from kernax.core.numerics import is_concrete
from kernax.core.parameters import Trainable, parameters, shown


@dataclasses.dataclass(frozen=True)
class Description:
    """What `describe` returns: rows of (parameter, value, support, state), printed as an aligned table."""

    rows: tuple[tuple[str, str, str, str], ...]

    header = ("parameter", "value", "support", "state")

    def __str__(self) -> str:
        if not self.rows:
            return "no parameters"
        table = [self.header, *self.rows]
        widths = [max(len(row[j]) for row in table) for j in range(4)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table)

    __repr__ = __str__


def describe(model: PyTree, trainable: Trainable | None = None) -> Description:
    """A table of a model's parameters: path, value, support, and whether `trainable` leaves them free or frozen."""
    rows = []
    for entry in parameters(model):
        mask = np.asarray(True if trainable is None else trainable(entry.path, entry.value))
        state = "free" if mask.all() else "frozen" if not mask.any() else f"{int(mask.sum())} of {mask.size} free"
        value = shown(np.asarray(entry.value)) if is_concrete(entry.value) else f"traced {entry.value.shape}"
        rows.append((entry.path, value, str(entry.support), state))
    return Description(tuple(rows))
