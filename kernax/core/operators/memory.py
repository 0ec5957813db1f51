"""Checks that the dense matrices of a function fit into memory, before anything is compiled."""

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
    """The memory of a public function, and advice if it does not fit. It is defined next to the
    function, which passes it on.

    Attributes:
        function_name: the name of the function, for messages.
        matrices: the number of matrices, n x n unless the function says otherwise, that its
            compiled program needs as temporaries and results.
        instead: an alternative without such a matrix; None if there is none except fewer points.
            `m` is a number of centres, and `key` a random key.
        of_each_column: the number of matrices for each column of targets, or for each item of
            another count.
        more_in_float32: the number of additional matrices in float32.
        fewer: what to use fewer of if `instead` is None.
        closing: the end of the message.
    """

    function_name: str
    matrices: float = 1.0
    instead: str | None = None
    of_each_column: float = 0.0
    more_in_float32: float = 0.0
    fewer: str = "fewer points"
    closing: str = ""

    def matrices_in(self, dtype: Any, columns: int = 1) -> float:
        """The number of matrices for a precision and a number of columns."""
        more = 0 if dtype == jnp.float64 else self.more_in_float32
        return self.matrices + more + self.of_each_column * columns

    def advice(self, in_single: bool) -> str:
        """Advice if the matrices do not fit, including float32 if they fit in single precision."""
        fewer = f"take {self.fewer}" + (", or float32" if in_single else "")
        return fewer if self.instead is None else f"use {self.instead}, or {fewer}{self.closing}"


GRAM = Footprint(
    "gram",
    1.0,
    'kernax.gram_operator(kernel, X, block_size="auto") for matrix-free products',
)
_SMALL = 2**30  # bytes that any machine has; for less, the check is omitted
MOST_HELD = 8192  # points with a matrix that is stored anyway: half a GiB in float64


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

    This counts the computation of the function itself, for one member of a `vmap`, without
    derivatives and predictions. Less than 1 GiB is not checked, nor are traced points. `dtype` is
    that of the matrices, by default that of X. If they do not fit, `first` is called before the
    error: it traces the program, so that an error about incompatible shapes takes precedence.
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
        shape = f"dense ({n}, {m})"
        what = f"a {shape} matrix" if matrices == 1 else f"{matrices:g} {shape} matrices"
        raise MemoryBudgetError(
            f"{in_gib(needed)} needed by {footprint.function_name} for {what} in {dtype}, "
            f"{in_gib(available)} available; {footprint.advice(in_single)}"
        )


def check_numbers(
    numbers: int,
    dtype: Any,
    *,
    function_name: str,
    what: str,
    instead: str,
    for_each: tuple[float, float] = (1.0, 1.0),
) -> None:
    """Raises MemoryBudgetError if a number of numbers of a dtype, mostly for `what`, would not fit
    into memory. It is for functions without n x n matrices.

    Arguments:
        numbers: the number of numbers that are returned or kept.
        for_each: the number of numbers that the program needs for each of them, in float64 and in
            float32.
        instead: the advice, for the message.
    """
    dtype = np.dtype(dtype)
    needed = for_each[0 if dtype == jnp.float64 else 1] * numbers * dtype.itemsize
    if needed < _SMALL:
        return
    available = available_memory(jax.local_devices()[:1])
    if needed > available:
        raise MemoryBudgetError(
            f"{in_gib(needed)} needed by {function_name} for {what} in {dtype}, "
            f"{in_gib(available)} available: {instead}"
        )


def check_dense_on_each(n: int, footprint: Footprint, devices: int) -> None:
    """Raises ValueError for more than `MOST_HELD` rows over a mesh, for a function that needs
    complete dense matrices on each device.
    """
    if n <= MOST_HELD:
        return
    instead = footprint.instead or footprint.fewer
    raise ValueError(
        f"{footprint.function_name} needs complete dense ({n}, {n}) matrices, but X is on a mesh "
        f"of {devices} devices, each of which stores those of at most {MOST_HELD} points: use "
        f"{instead}, or X on one device"
    )


def in_gib(size: float | int) -> str:
    """A number of bytes in GiB, with one decimal digit below a hundred."""
    gib = size / 2**30
    return f"{gib:.1f} GiB" if gib < 100 else f"{gib:.0f} GiB"


def available_memory(devices: Iterable[Any]) -> int:
    """The free bytes on all of the devices; on a CPU those of the machine, or of the container of
    this process. Devices of other processes are assumed to have as much free memory as its own.
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
    """The free bytes of the machine; all of its memory if the system does not report free memory,
    and infinity if it reports nothing, as on Windows.
    """
    try:
        with open("/proc/meminfo") as lines:
            return next(
                int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
            )
    except (OSError, StopIteration):
        pages = getattr(os, "sysconf_names", {}).get("SC_PHYS_PAGES")
        return sys.maxsize if pages is None else os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)


# The files in which Linux reports the memory limit of a container, its memory use and, among other
# statistics, the part that holds copies of files: control groups of version 2, and of version 1.
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
    """The bytes that the container of this process may still use; infinite if there is no limit."""
    try:
        most = int((_ROOT / limit).read_text())  # "max" instead of a number if there is no limit
        taken = int((_ROOT / used).read_text())
        named = dict(line.split() for line in (_ROOT / figures).read_text().splitlines())
        # Copies of files are dropped when memory is short.
        return float(most - taken + int(named.get(of_files, 0)))
    except (OSError, ValueError):
        return math.inf
