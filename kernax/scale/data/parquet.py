"""Columns of Parquet files, with rows that are read on access."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from numbers import Number
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np


class ParquetRows:
    """Columns of one or several Parquet files as an array (n, d), or (n,) for a single name.

    Nothing stays in memory: `rows[start:stop]` reads the row groups that contain these rows, and
    returns a NumPy array. In each process `rows_over` only reads the rows of its own devices:

        X = kernax.scale.ParquetRows("houses.parquet", ["age", "area"])
        y = kernax.scale.ParquetRows("houses.parquet", "price")
        X, y, weights = kernax.scale.rows_over(mesh, X, y)

    Arguments:
        path: the path of a file, or a list of paths, joined in order.
        columns: the names of d columns, or the name of one.
        dtype: the dtype of the array, whatever that of the files.

    Raises ValueError for columns that do not exist, and on reading columns that are not numbers;
    ModuleNotFoundError without pyarrow (`pip install "kernax-toolkit[stream]"`).
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        columns: str | Sequence[str],
        *,
        dtype: Any = np.float64,
    ):
        self._columns = [columns] if isinstance(columns, str) else list(columns)
        parquet = pyarrow_parquet()
        self._groups = []
        sizes = []
        for each in [path] if isinstance(path, (str, Path)) else path:
            check_columns(parquet, each, self._columns)
            metadata = parquet.read_metadata(each)
            for number in range(metadata.num_row_groups):
                self._groups.append((each, number))
                sizes.append(metadata.row_group(number).num_rows)
        # The first row of each row group, and the end of the last one.
        self._starts = [0, *accumulate(sizes)]
        n = self._starts[-1]
        self.shape = (n,) if isinstance(columns, str) else (n, len(self._columns))
        self.dtype = np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """One for the name of a single column, two for several."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """The rows of a slice without steps. Raises ValueError for anything else."""
        if not isinstance(rows, slice):
            raise ValueError(f"rows must be a slice, such as rows[0:10], but is {rows!r}")
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows must be a slice without steps, but is {rows}")
        parts = [np.empty((0, len(self._columns)), self.dtype)]
        place = bisect_right(self._starts, start) - 1
        while start < stop:
            first, end = self._starts[place : place + 2]
            parts.append(self._read(*self._groups[place])[start - first : stop - first])
            start = end
            place += 1
        return np.concatenate(parts).reshape(-1, *self.shape[1:])

    def _read(self, path: Any, group: int) -> np.ndarray:
        with pyarrow_parquet().ParquetFile(path) as file:
            table = file.read_row_group(group, columns=self._columns)
        columns = [
            numbers_of_column(table[name].to_numpy(), name, self.dtype) for name in self._columns
        ]
        return np.stack(columns, 1)


def pyarrow_parquet() -> Any:
    """pyarrow's module. Raises ModuleNotFoundError that says how to install it."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'Parquet files are read by pyarrow: pip install "kernax-toolkit[stream]"'
        ) from None
    return pyarrow.parquet


def numbers_of_column(values: np.ndarray, name: str, dtype: Any) -> np.ndarray:
    """The values of a column in a dtype. Raises ValueError, with the name of the column, for
    anything but numbers, such as texts of digits and dates, which NumPy would convert.
    """
    # Decimals, and columns with null, are arrays of objects.
    if values.dtype.kind == "O":
        others = [value for value in values if not isinstance(value, (Number, NoneType))]
    else:
        others = [] if values.dtype.kind in "biuf" else values[:1]
    if len(others):
        kind = type(others[0]).__name__
        raise ValueError(f"column {name} must hold numbers, but holds {others[0]!s:.40}, a {kind}")
    return values.astype(dtype)


def check_columns(parquet: Any, path: Any, columns: Sequence[str]) -> None:
    """Raises ValueError for columns that a file does not have."""
    known = parquet.read_schema(path).names
    missing = [name for name in columns if name not in known]
    if missing:
        raise ValueError(
            f"{Path(path).name} has no column {', '.join(missing)}: it has {', '.join(known)}"
        )
