"""Columns of Parquet files, of which rows are read where they are asked for."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np


class ParquetRows:
    """Columns of one or several Parquet files as an array (n, d), or (n,) for the name of one.

    Nothing is held: `rows[start:stop]` reads the row groups in which these rows are, and returns
    an array of NumPy. `rows_over` asks, in each process, for the rows of its own devices alone:

        X = kernax.scale.ParquetRows("houses.parquet", ["age", "area"])
        y = kernax.scale.ParquetRows("houses.parquet", "price")
        X, y, weights = kernax.scale.rows_over(mesh, X, y)

    Arguments:
        path: of a file, or of several, one after the other.
        columns: the names of d columns, or the name of one.
        dtype: of the numbers, whatever those in the files are.

    Raises ValueError for columns that are not there, ModuleNotFoundError without pyarrow
    (`pip install "kernax-toolkit[stream]"`).
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        columns: str | Sequence[str],
        *,
        dtype: Any = np.float64,
    ):
        parquet = pyarrow_parquet()
        self._columns = [columns] if isinstance(columns, str) else list(columns)
        self._groups: list[tuple[Any, int]] = []  # each row group: of which file, and which there
        lengths = []
        for each in [path] if isinstance(path, (str, Path)) else path:
            check_columns(parquet, each, self._columns)
            metadata = parquet.read_metadata(each)
            for group in range(metadata.num_row_groups):
                self._groups.append((each, group))
                lengths.append(metadata.row_group(group).num_rows)
        self._starts = [0, *accumulate(lengths)]  # of each row group, and where the last one ends
        n = self._starts[-1]
        self.shape = (n,) if isinstance(columns, str) else (n, len(self._columns))
        self.dtype = np.dtype(dtype)

    @property
    def ndim(self) -> int:
        """One for the name of a column, two for several."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        """The rows of a slice without steps."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows must be a slice without steps, but is {rows}")
        parts = [np.empty((0, len(self._columns)), self.dtype)]
        place = bisect_right(self._starts, start) - 1
        while start < stop:
            first = self._starts[place]
            end = min(stop, self._starts[place + 1])
            parts.append(self._read(*self._groups[place])[start - first : end - first])
            start = end
            place += 1
        return np.concatenate(parts).reshape(-1, *self.shape[1:])

    def _read(self, path: Any, group: int) -> np.ndarray:
        """The columns of one row group."""
        with pyarrow_parquet().ParquetFile(path) as file:
            table = file.read_row_group(group, columns=self._columns)
        columns = [table[name].to_numpy().astype(self.dtype) for name in self._columns]
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


def check_columns(parquet: Any, path: Any, columns: Sequence[str]) -> None:
    """Raises ValueError for columns that a file does not have."""
    known = parquet.read_schema(path).names
    missing = [name for name in columns if name not in known]
    if missing:
        raise ValueError(
            f"{Path(path).name} has no column {', '.join(missing)}: it has {', '.join(known)}"
        )
