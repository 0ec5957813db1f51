"""How the commands use the machine: threads of its linear algebra, and compiled programs that a later command finds again."""

import contextlib
import importlib
import math
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
from threadpoolctl import threadpool_limits

from kernax.cli.predictor import GP, RIDGE
from kernax.cli.table import plural

_ONE_THREAD = 1000  # rows up to which a second thread waits more than it computes
_LARGEST = 2**29  # bytes of compiled programs that are kept


@contextlib.contextmanager
def linear_algebra_threads(rows: int, threads: int | None) -> Iterator[None]:
    """BLAS and LAPACK on so many threads: by default one for up to 1000 rows, for more as many as the library likes.

    OpenBLAS's threads wait for each other by spinning. Where another process has their cores, a factorisation of 300 rows
    waits longer than it computes: twenty steps of learning took 18 s of processor time instead of 0.1.
    """
    importlib.import_module("scipy.linalg.cython_lapack")  # loads the library that jaxlib calls: limits bind what is loaded
    if threads is None and rows <= _ONE_THREAD:
        threads = 1
    with threadpool_limits(threads, user_api="blas"):
        yield


# Matrices of n x n numbers that are held at once, and products of two of them that take as long as learning. Each step of
# L-BFGS evaluates about 1.3 times, with its gradient, the evidence (1.2 products) or the leave-one-out error (3.8).
_COSTS = {GP: (6, 60 * 1.3 * 1.2), RIDGE: (6, 20 * 1.3 * 3.8)}
_WORTH_SAYING = 3000  # rows


def expected_cost(model: str, rows: int) -> str | None:
    """What it will take to learn from so many rows, roughly, in a sentence; None where it is soon done."""
    if model not in _COSTS or rows <= _WORTH_SAYING:
        return None
    matrices, products = _COSTS[model]
    memory, seconds = 8 * matrices * rows**2, products * rows**3 * _seconds_of_a_product() / _PRODUCT**3
    return (
        f"an exact fit to {rows} rows takes about {memory / 2**30:.1f} GiB of memory and {_duration(seconds)} a start; "
        f"--rows {_WORTH_SAYING} learns from that many, drawn at random"
    )


_PRODUCT = 1000


def _seconds_of_a_product() -> float:
    """How long this machine multiplies two float64 matrices of 1000 x 1000, at best of three."""
    square = jnp.ones((_PRODUCT, _PRODUCT))
    times = []
    for _ in range(4):  # the first one compiles
        begin = time.perf_counter()
        jax.block_until_ready(square @ square)
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def _duration(seconds: float) -> str:
    if seconds < 3600:
        return plural(math.ceil(seconds / 60), "minute")
    return plural(round(seconds / 3600), "hour")


@contextlib.contextmanager
def compiled_programs(keep: bool) -> Iterator[None]:
    """JAX's compilation cache in the user's cache folder: a second fit of a table of the same shape need not compile.

    A cache that JAX was told to use elsewhere (JAX_COMPILATION_CACHE_DIR) stays; without a folder to write to there is none.
    """
    settings = {"jax_enable_compilation_cache": False}
    if keep:
        folder = None if jax.config.jax_compilation_cache_dir else _cache_folder()  # pyright: ignore
        settings = {} if folder is None else {"jax_compilation_cache_dir": str(folder)} | _KEEP_ALL
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        with warnings.catch_warnings():
            # A full disk, or an entry that a killed command left behind, costs a compilation: nothing to worry anyone with.
            warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
            yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


_KEEP_ALL = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": 0}


def _cache_folder() -> Path | None:
    """The folder, made if need be; None if nothing can be written there."""
    try:
        folder = _cache_home() / "kernax"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # programs are loaded from it: nobody else's business
        _remove_oldest(folder)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder if os.access(folder, os.W_OK) else None


def _remove_oldest(folder: Path) -> None:
    """Removes the files that were written first, until the rest is small enough."""
    files = {path: path.stat() for path in folder.iterdir()}
    total = sum(status.st_size for status in files.values())
    for path, status in sorted(files.items(), key=lambda file: file[1].st_mtime):
        if total <= _LARGEST:
            return
        path.unlink(missing_ok=True)
        total -= status.st_size


def _cache_home() -> Path:
    """Where this platform keeps what can be made again."""
    if os.path.isabs(home := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(home)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path.home() / ".cache"
