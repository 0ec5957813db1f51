"""Whether the dense matrices of a function fit into memory, checked before anything is compiled."""

import math
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from kernax.core.base.boundary import count, dtype_of
from kernax.core.base.numerics import is_concrete
from kernax.errors import MemoryBudgetError


class Footprint(NamedTuple):
    """What a public function holds at one time, and what to do where that does not fit: stated
    beside the function, which hands it down.

    Attributes:
        verb: its name, for messages.
        matrices: how many matrices, of n x n numbers unless the function says so, its compiled
            program holds as temporaries and results.
        instead: what does the same without such a matrix; None where there is nothing but fewer
            points. `m` is a number of centres, and `key` a random key.
        of_each_column: matrices for each column of targets, or whatever else is counted.
        more_in_float32: matrices.
        fewer: what to take fewer of where `instead` is None.
        closing: the end of the message.
    """

    verb: str
    matrices: float = 1.0
    instead: str | None = None
    of_each_column: float = 0.0
    more_in_float32: float = 0.0
    fewer: str = "fewer points"
    closing: str = ""

    def matrices_in(self, dtype: Any, columns: int = 1) -> float:
        """How many matrices there are in a precision, for some columns."""
        more = 0 if dtype == jnp.float64 else self.more_in_float32
        return self.matrices + more + self.of_each_column * columns

    def advice(self, in_single: bool) -> str:
        """What to do if the matrices do not fit, and whether they would in single precision."""
        fewer = f"take {self.fewer}" + (", or float32" if in_single else "")
        return fewer if self.instead is None else f"use {self.instead}, or {fewer}{self.closing}"


GRAM = Footprint(
    "gram",
    1.0,
    'kernax.gram_operator(kernel, X, block_size="auto") for products that hold none of it',
)
_SMALL = 2**30  # bytes that any machine has: for less, the check is left out
MOST_HELD = 8192  # points whose matrix is held where it need not be: half a GiB in float64


def check_memory(
    X: PyTree,
    Z: PyTree | None = None,
    *,
    footprint: Footprint = GRAM,
    columns: int = 1,
    dtype: Any = None,
    first: Callable[[], Any] | None = None,
) -> None:
    """Raises MemoryBudgetError if the dense matrices of a function would not fit into memory.

    This counts what the function itself computes, for one member of a `vmap`, without derivatives
    and predictions. Less than 1 GiB is not checked, nor are traced points. `dtype` is that of the
    matrices, by default that of X. Where they do not fit, `first` is called before that is said: it
    traces the program, so that shapes that do not go together are named instead.
    """
    n = count(X)
    m = n if Z is None else count(Z)
    dtype = np.dtype(dtype_of(X) if dtype is None else dtype)
    matrices = footprint.matrices_in(dtype, columns)
    needed = matrices * n * m * dtype.itemsize
    if needed < _SMALL or not is_concrete(X, Z):
        return
    available = available_memory(jax.tree.leaves(X)[0].devices())
    if needed > available:
        if first is not None:
            first()
        in_single = dtype == jnp.float64 and needed / 2 <= available
        raise MemoryBudgetError(
            f"{in_gib(needed)} needed by {footprint.verb} for {_named(matrices, n, m)} in {dtype}, "
            f"{in_gib(available)} available; {footprint.advice(in_single)}"
        )


def check_numbers(
    numbers: int,
    dtype: Any,
    *,
    verb: str,
    what: str,
    instead: str,
    for_each: tuple[float, float] = (1.0, 1.0),
    devices: Any = None,
) -> None:
    """Raises MemoryBudgetError if so many numbers of a dtype, of which `what` takes most, would not
    fit into memory: of a function that holds no n x n matrices.

    Arguments:
        numbers: as they are returned or kept.
        for_each: how many the program holds for each of them, in float64 and in float32.
        instead: what to do, for the message.
        devices: where they would be; by default JAX's first.
    """
    dtype = np.dtype(dtype)
    needed = for_each[0 if dtype == jnp.float64 else 1] * numbers * dtype.itemsize
    if needed < _SMALL:
        return
    available = available_memory(jax.local_devices()[:1] if devices is None else devices)
    if needed > available:
        raise MemoryBudgetError(
            f"{in_gib(needed)} needed by {verb} for {what} in {dtype}, {in_gib(available)} "
            f"available: {instead}"
        )


def check_held_by_each(n: int, footprint: Footprint, devices: int) -> None:
    """Raises ValueError for more rows over a mesh than `MOST_HELD`, for a function that needs dense
    matrices whole, on each device.
    """
    if n <= MOST_HELD:
        return
    instead = footprint.instead or footprint.fewer
    raise ValueError(
        f"{footprint.verb} needs dense ({n}, {n}) matrices whole, but X is on a mesh, its rows "
        f"over {devices} devices, and each holds only those of up to {MOST_HELD} points: use "
        f"{instead}, or X on one device"
    )


def in_gib(size: float | int) -> str:
    """A number of bytes in GiB, below a hundred with a digit after the point."""
    gib = size / 2**30
    return f"{gib:.1f} GiB" if gib < 100 else f"{gib:.0f} GiB"


def _named(matrices: float, n: int, m: int) -> str:
    """How many dense matrices there are, in words."""
    if matrices == 1:
        return f"a dense ({n}, {m}) matrix"
    return f"{matrices:g} dense ({n}, {m}) matrices"


def available_memory(devices: Iterable[Any]) -> int:
    """Bytes free on all of the devices; on a CPU, in the machine, or in the container that this
    process runs in. Devices of other processes are assumed to have as much free as its own.
    """
    devices = list(devices)
    own = [device for device in devices if device.process_index == jax.process_index()]
    own = own or jax.local_devices()[:1]
    total = 0
    for device in own:
        figures = device.memory_stats() or {}
        if "bytes_limit" in figures:
            total += figures["bytes_limit"] - figures.get("bytes_in_use", 0)
        else:
            in_groups = [_free_in_group(*names) for names in _GROUPS]
            return int(max(0, min(_free_host_memory(), *in_groups)))
    return total * len(devices) // len(own)


def _free_host_memory() -> int:
    """Bytes free in the machine; all of its memory where the system says no more than that, and
    without a bound where it says nothing, as on Windows.
    """
    try:
        with open("/proc/meminfo") as lines:
            return next(
                int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
            )
    except (OSError, StopIteration):
        pages = getattr(os, "sysconf_names", {}).get("SC_PHYS_PAGES")
        return sys.maxsize if pages is None else os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)


# Where Linux says how much memory a container may use, how much it does, and, among other figures,
# how much of that holds copies of files: control groups of version 2, and of version 1.
_ROOT = Path("/sys/fs/cgroup")
_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def _free_in_group(limit: str, used: str, figures: str, of_files: str) -> float:
    """Bytes that the container of this process may still take; infinite where there is no limit."""
    try:
        most = int((_ROOT / limit).read_text())  # no number, but "max", without a limit
        taken = int((_ROOT / used).read_text())
        named = dict(line.split() for line in (_ROOT / figures).read_text().splitlines())
        # Copies of files are given up when memory is short.
        return float(most - taken + int(named.get(of_files, 0)))
    except (OSError, ValueError):
        return math.inf
