"""Whether a dense matrix fits into memory, asked before anything is compiled."""

import os

import jax
from jaxtyping import Array, PyTree

from kernax.core.boundary import count, dtype_of
from kernax.core.numerics import is_concrete
from kernax.errors import MemoryBudgetError


def check_memory(X: PyTree, Z: PyTree | None = None) -> None:
    """Raises MemoryBudgetError, before anything is compiled, if a dense Gram matrix would not fit into memory."""
    n, m, dtype = count(X), count(X if Z is None else Z), dtype_of(X)
    needed = n * m * dtype.itemsize
    if needed < 2**30 or not is_concrete(X, Z):
        return
    available = _available_memory(jax.tree.leaves(X)[0])
    if needed > available:
        raise MemoryBudgetError(
            f"{needed / 2**30:.0f} GiB needed for a dense ({n}, {m}) Gram matrix in {dtype}, "
            f"{available / 2**30:.1f} GiB available; use block_size=... (a number of rows) for a matrix-free solve"
        )


def _available_memory(array: Array) -> int:
    """Bytes free on the devices of an array; on a CPU, in the machine."""
    total = 0
    for device in array.devices():
        figures = device.memory_stats() or {}
        if "bytes_limit" in figures:
            total += figures["bytes_limit"] - figures.get("bytes_in_use", 0)
        else:
            return _free_host_memory()
    return total


def _free_host_memory() -> int:
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
