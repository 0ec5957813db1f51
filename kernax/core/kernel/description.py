"""Tables of the parameters of a model."""

import dataclasses
import textwrap
from collections.abc import Sequence

import numpy as np
from jaxtyping import PyTree

from kernax.core.base.numerics import is_concrete
from kernax.core.base.parameters import (
    Trainable,
    check_trainable,
    fixed_parameters,
    parameters,
    shown,
)

FIXED = "fixed"  # the state of a parameter inside a field of data
_WIDEST = 60  # characters of a value on one line


@dataclasses.dataclass(frozen=True)
class Description:
    """The result of `describe`: rows of (parameter, value, interval, state), printed as a table."""

    rows: tuple[tuple[str, str, str, str], ...]

    header = ("parameter", "value", "interval", "state")

    def __str__(self) -> str:
        if not self.rows:
            return "no parameters"
        table = [line for row in (self.header, *self.rows) for line in _lines(row)]
        widths = [max(map(len, column)) for column in zip(*table)]
        aligned = [[cell.ljust(width) for cell, width in zip(row, widths)] for row in table]
        return "\n".join("  ".join(cells).rstrip() for cells in aligned)

    __repr__ = __str__


def describe(
    model: PyTree, trainable: Trainable | None = None, columns: Sequence[str] = ()
) -> Description:
    """A table of a model's parameters: path, value, interval, and whether free or frozen.

    `trainable` selects the free parameters as in `unconstrain`. With the names of d columns, a
    parameter of shape (d,), such as a lengthscale for each column, has a row for each:
    `lengthscale[age]`. Any other array is one row, with several lines if it is long.

    Parameters that are part of data are `fixed`, as those of the kernel inside the covariance of a
    conditioned process: they are never learned.

    Raises ValueError for a bare Python float in a tuple, list or dict, which is not a parameter.

    Examples:
        >>> print(kernax.describe(2.0 * kernax.RBF(0.3)))
        parameter           value  interval  state
        kernel.lengthscale  0.3    (0, inf)  free
        scale               2      [0, inf)  free
    """
    check_trainable(trainable)
    rows = []
    learned = {entry.leaf_index: entry for entry in parameters(model)}
    fixed = {entry.leaf_index: entry for entry in fixed_parameters(model)}
    for leaf_index, entry in sorted((learned | fixed).items()):
        # Which elements are free; None if the parameter is never learned.
        mask = None
        if leaf_index in learned:
            mask = np.asarray(True if trainable is None else trainable(entry.path, entry.value))
        interval = str(entry.interval)
        if not is_concrete(entry.value):
            rows.append((entry.path, f"traced {entry.value.shape}", interval, _state(mask)))
            continue
        values = np.asarray(entry.value)
        if columns and values.shape == (len(columns),):
            of_columns = [mask] * len(columns)
            if mask is not None:
                of_columns = map(np.asarray, np.broadcast_to(mask, values.shape))
            rows += [
                (f"{entry.path}[{name}]", f"{value:.4g}", interval, _state(is_free))
                for name, value, is_free in zip(columns, values, of_columns)
            ]
        else:
            rows.append((entry.path, shown(values), interval, _state(mask)))
    return Description(tuple(rows))


def _state(mask: np.ndarray | None) -> str:
    """Whether a parameter is free, frozen, partly free or fixed, as text."""
    if mask is None:
        return FIXED
    if mask.all():
        return "free"
    return f"{int(mask.sum())} of {mask.size} free" if mask.any() else "frozen"


def _lines(row: tuple[str, ...]) -> list[tuple[str, ...]]:
    """A row of the table, with its value on as many lines as necessary."""
    path, value, *rest = row
    first, *others = [
        part
        for line in value.splitlines()
        for part in textwrap.wrap(line, _WIDEST, subsequent_indent=" ")
    ]
    return [(path, first, *rest), *(("", part, "", "") for part in others)]
