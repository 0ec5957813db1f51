"""The resources that commands use: memory and time, and compiled programs."""

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from kernax.core.base.threads import linear_algebra_threads
from kernax.preparation.predictors import GP, LOGISTIC, RIDGE
from kernax.scale.recommendation import in_bytes

_LARGEST = 2**29  # bytes of compiled programs that are kept


# Products of two n x n matrices that take as long as learning. Each step of L-BFGS takes about 1.3
# evaluations, with gradients, of the evidence (1.2 products) or of the leave-one-out error (3.8).
# Logistic regression learns on folds of few rows, where overhead dominates.
_PRODUCTS = {GP: 60 * 1.3 * 1.2, RIDGE: 20 * 1.3 * 3.8, LOGISTIC: 2300.0}
MATRICES = 6  # of float64, in the gradient of the evidence
_WHOLE = (GP, RIDGE)  # which learn from all rows
_WORTH_SAYING = 3000  # rows


def expected_cost(model: str, rows: int) -> str | None:
    """A sentence on the approximate memory and time of learning; None if they are small."""
    if model not in _WHOLE or rows <= _WORTH_SAYING:
        return None
    return (
        f"an exact fit to {rows} rows takes about {in_bytes(8 * MATRICES * rows**2)} of memory and "
        f"{in_time(seconds_of_learning(model, rows))} a start; --rows {_WORTH_SAYING} learns from "
        "that many, drawn at random"
    )


def in_time(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 99.5:
        return f"{seconds:.2g} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def seconds_of_learning(model: str, rows: int) -> float:
    """Roughly how long learning from so many rows takes."""
    with linear_algebra_threads(rows):
        return _PRODUCTS[model] * rows**3 * _seconds_of_a_product() / _PRODUCT**3


_PRODUCT = 1000  # rows and columns of the matrices whose product is timed


def _seconds_of_a_product() -> float:
    """The shortest of three times for a product of two float64 matrices of 1000 x 1000."""
    square = jnp.ones((_PRODUCT, _PRODUCT))
    times = []
    for _ in range(4):  # the first one compiles
        begin = time.perf_counter()
        jax.block_until_ready(square @ square)
        times.append(time.perf_counter() - begin)
    return min(times[1:])


@contextlib.contextmanager
def compiled_programs(keep: bool) -> Iterator[None]:
    """Keeps JAX's compiled programs in the user's cache folder.

    A second fit of a table of the same shape then need not compile. A folder that JAX is configured
    to use (JAX_COMPILATION_CACHE_DIR) has precedence; where no folder can be written to, there is
    no cache.
    """
    settings: dict[str, Any] = {}
    if not keep:
        settings["jax_enable_compilation_cache"] = False
    elif not jax.config.jax_compilation_cache_dir:  # pyright: ignore
        folder = _cache_folder()
        if folder is not None:
            settings["jax_compilation_cache_dir"] = str(folder)
            settings["jax_persistent_cache_min_compile_time_secs"] = 0.0
            settings["jax_persistent_cache_min_entry_size_bytes"] = 0
    before = {name: getattr(jax.config, name) for name in settings}
    try:
        for name, value in settings.items():
            jax.config.update(name, value)
        with warnings.catch_warnings():
            # A full disk, or an entry that a killed command left behind, only costs a compilation.
            warnings.filterwarnings(
                "ignore", "Error (reading|writing) persistent compilation cache"
            )
            yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _cache_folder() -> Path | None:
    try:
        folder = _cache_home() / "kernax"
        # Programs are loaded from it, so that nobody else may write to it.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_oldest(folder)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder if os.access(folder, os.W_OK) else None


def _remove_oldest(folder: Path) -> None:
    """Removes the oldest files, until the others are small enough together."""
    files = {path: path.stat() for path in folder.iterdir()}
    total = sum(status.st_size for status in files.values())
    by_age = sorted(files.items(), key=lambda file: file[1].st_mtime)
    for path, status in by_age:
        if total <= _LARGEST:
            return
        path.unlink(missing_ok=True)
        total -= status.st_size


def _cache_home() -> Path:
    """The folder of this platform for files that can be recreated."""
    if os.path.isabs(home := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(home)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        given = os.environ.get("LOCALAPPDATA")
        return Path(given or Path.home() / "AppData" / "Local")
    return Path.home() / ".cache"
