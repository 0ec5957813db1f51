"""Data that is read chunk by chunk, as often as needed, and never stored as a whole."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernax.core.base.deprecation import renamed
from kernax.core.base.parameters import check_count
from kernax.scale.data.parquet import check_columns, numbers_of_column, pyarrow_parquet

Chunk = tuple  # (X, y) or (X, y, weights)


class Chunks:
    """Rows in chunks `(X, y)` or `(X, y, weights)`, which can be read several times.

    Each process reads all chunks. To share the rows of one fit among processes, let each have its
    part in memory instead: `rows_over(mesh, ParquetRows(...), ParquetRows(...))`.

    Arguments:
        source: a list of chunks, anything else that can be iterated several times, or a function
            without arguments that returns a new iterator of the same chunks at each call. A fit
            reads every chunk in each pass: see `falkon`. Chunks smaller than the largest, such as
            the last one, are padded with rows of weight zero, so that one compiled program serves
            all.

    Raises ValueError for an iterator or a generator, which can be read only once.

    Examples:
        >>> X = jnp.linspace(0.0, 1.0, 6)[:, None]
        >>> y = jnp.sin(6.0 * X[:, 0])
        >>> chunks = kernax.scale.Chunks([(X[:3], y[:3]), (X[3:], y[3:])])
        >>> solution = kernax.falkon(kernax.RBF(0.3), chunks, None, 0.01, centres=X[::2])
        >>> int(solution.stats["points"])
        6
    """

    def __init__(self, source: Any):
        if isinstance(source, Iterator):
            name = type(source).__name__
            raise ValueError(
                f"source must be readable several times, but a {name} can be read only once: pass "
                "the function that makes it, Chunks(lambda: ...), or a list"
            )
        if not callable(source) and not isinstance(source, Iterable):
            raise ValueError(
                f"source must be an iterable of chunks (X, y), or a function that returns one, but "
                f"is {source!r}"
            )
        self._source: Any = source

    def __iter__(self) -> Iterator[Chunk]:
        source: Any = self._source() if callable(self._source) else self._source
        return iter(source)

    @renamed(rows="chunk_size")
    @staticmethod
    def of_arrays(X: Any, y: Any, weights: Any = None, *, chunk_size: int = 2**16) -> "Chunks":
        """Chunks of arrays such as NumPy memory maps, `chunk_size` rows at a time.

        Raises ValueError for arrays of different lengths, or without rows.
        """
        chunk_size = check_count(chunk_size, "chunk_size")
        arrays = [X, y] if weights is None else [X, y, weights]
        lengths = [len(array) for array in arrays]
        if len(set(lengths)) != 1 or not lengths[0]:
            came = ", ".join(map(str, lengths))
            raise ValueError(f"X, y and weights must have one length >= 1, but have {came}")

        def read() -> Iterator[Chunk]:
            for start in range(0, lengths[0], chunk_size):
                yield tuple(np.asarray(array[start : start + chunk_size]) for array in arrays)

        return Chunks(read)

    @renamed(rows="chunk_size")
    @staticmethod
    def of_parquet(
        path: str | Path | Sequence[str | Path],
        inputs: str | Sequence[str],
        target: str | Sequence[str],
        weights: str | None = None,
        *,
        chunk_size: int = 2**16,
        dtype: Any = np.float64,
    ) -> "Chunks":
        """Chunks of the columns of one or several Parquet files, `chunk_size` rows at a time.

        Arguments:
            path: the path of a file, or a list of paths.
            inputs: the names of the d columns of X, or the name of one, for X (n, 1).
            target: the name of the column of y, or several names, for y (n, outputs).
            weights: the name of a column, or None.
            chunk_size: the largest number of rows in a chunk.
            dtype: the dtype of the chunks, whatever that of the files.

        Needs pyarrow (`pip install "kernax-toolkit[stream]"`).

        Raises ValueError for columns that do not exist, and on reading columns that are not
        numbers; ModuleNotFoundError without pyarrow.
        """
        parquet = pyarrow_parquet()
        chunk_size = check_count(chunk_size, "chunk_size")
        paths = [path] if isinstance(path, str | Path) else list(path)
        inputs = [inputs] if isinstance(inputs, str) else list(inputs)
        targets = [target] if isinstance(target, str) else list(target)
        columns = [*inputs, *targets, *([weights] if weights else [])]
        for each in paths:
            check_columns(parquet, each, columns)

        def chunk_of(batch: Any) -> Chunk:
            def numbers(name: str) -> np.ndarray:
                column = batch[name].to_numpy(zero_copy_only=False)
                return numbers_of_column(column, name, dtype)

            X = np.stack([numbers(name) for name in inputs], 1)
            y = np.stack([numbers(name) for name in targets], 1)
            y = y[:, 0] if isinstance(target, str) else y
            return (X, y, numbers(weights)) if weights else (X, y)

        def read() -> Iterator[Chunk]:
            for each in paths:
                with parquet.ParquetFile(each) as file:
                    for batch in file.iter_batches(batch_size=chunk_size, columns=columns):
                        yield chunk_of(batch)

        return Chunks(read)
