"""Results as a table: arrays by name, as text, and for pandas."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from kernax.core.base.printing import Printed

_SHOWN = 20  # rows of a table that is printed


class Table(Printed):
    """Columns of one length. `print` shows the first rows; `to_pandas()` needs pandas.

    Attributes:
        columns: arrays (rows, ...) by their names.
        names: the names of the rows, or None.

    Examples:
        >>> columns = {"lengthscale": jnp.array([0.1, 1.0]), "loss": jnp.array([0.5, 0.2])}
        >>> print(kernax.types.Table(columns).sorted_by("loss"))
        lengthscale  loss
                  1   0.2
                0.1   0.5
    """

    columns: Mapping[str, Array | np.ndarray]
    names: tuple[str, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        if not self.columns:
            raise ValueError("a table must have at least one column")
        for name, column in self.columns.items():
            if column.dtype.kind not in "biuf":
                raise ValueError(
                    f"columns must hold numbers, but {name!r} is of {column.dtype}: pass names of "
                    "rows as `names`"
                )
        lengths = {name: jnp.shape(column)[:1] for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns must have one length, but have {lengths}")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def sorted_by(self, name: str) -> "Table":
        """The rows in ascending order of a column of numbers, NaN last.

        Raises ValueError for another column.
        """
        if name not in self.columns or self.columns[name].ndim != 1:
            columns = ", ".join(self.columns)
            raise ValueError(f"there is no column {name!r} of single numbers among {columns}")
        order = np.argsort(np.asarray(self.columns[name]), kind="stable")
        columns = {key: column[order] for key, column in self.columns.items()}
        names = None if self.names is None else tuple(self.names[place] for place in order)
        return Table(columns, names)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, with a column for each element of a column of vectors."""
        import pandas

        return pandas.DataFrame(self._flat(), index=self.names)

    def _flat(self) -> dict[str, np.ndarray]:
        """Columns of single numbers; columns of vectors are split into their elements."""
        flat = {}
        for name, column in self.columns.items():
            of_rows = np.asarray(column)
            if of_rows.ndim == 1:
                flat[name] = of_rows
                continue
            for place in np.ndindex(of_rows.shape[1:]):
                flat[f"{name}[{', '.join(map(str, place))}]"] = of_rows[(slice(None), *place)]
        return flat

    def __str__(self) -> str:
        flat = self._flat()
        cells = [list(flat), *zip(*(map(_shown, column[:_SHOWN]) for column in flat.values()))]
        if self.names is not None:
            cells = [[name, *row] for name, row in zip(("", *self.names), cells)]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = ["  ".join(map(str.rjust, row, widths)) for row in cells]
        hidden = len(self) - _SHOWN
        if hidden > 0:
            lines.append(f"... and {hidden} more row{'' if hidden == 1 else 's'}")
        return "\n".join(lines)


def _shown(cell: Any) -> str:
    """A number with six digits, a truth value as a word."""
    if cell.dtype == bool:
        return "yes" if cell else "no"
    return f"{cell:.6g}"
