"""Numbers that options may not have, refused before anything is read."""

from kernax.cli.table import LEAST_ROWS


def check_options(
    seed: int, restarts: int, threads: int | None, rows: int | None, centres: int | None
) -> None:
    """Raises ValueError for numbers out of range."""
    check_seed(seed)
    if not 1 <= restarts <= 1000:
        raise ValueError(f"--restarts must be between 1 and 1000, but is {restarts}")
    if rows is not None and rows < LEAST_ROWS:
        raise ValueError(f"--rows must be at least {LEAST_ROWS}, but is {rows}")
    check_threads(threads)
    if centres is not None and centres < 2:
        raise ValueError(f"--centres must be at least 2, but is {centres}")


def check_seed(seed: int) -> None:
    """Raises ValueError for a negative seed."""
    if seed < 0:
        raise ValueError(f"--seed must not be negative, but is {seed}")


def check_threads(threads: int | None) -> None:
    """Raises ValueError for fewer threads than one."""
    if threads is not None and threads < 1:
        raise ValueError(f"--threads must be at least 1, but is {threads}")
