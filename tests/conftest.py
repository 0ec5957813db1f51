"""One process tests one precision: `JAX_ENABLE_X64=1 pytest` and `JAX_ENABLE_X64=0 pytest`.

Nothing here imports JAX or kernax: the process that only hands out the tests loads this file too.
What tests share is in `support`, and can be imported from here.
"""

import gc
import importlib
import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax")
)
# The processes share the smallest programs as well.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
# Lines of source cost a twelfth of the time.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault("MPLBACKEND", "Agg")
# Two processes at a time: several threads of each would wait for each other, spinning.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
if WORKER and hasattr(os, "sched_setaffinity"):
    CORES = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {CORES[int(WORKER.removeprefix("gw")) % len(CORES)]})
# Thousands of small programs: these flags, of this version, take a third of their compilation.
QUICK_FLAGS = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1"
)
if not version("jaxlib").startswith("0.10."):
    QUICK_FLAGS = ""
os.environ.setdefault("XLA_FLAGS", QUICK_FLAGS)
# Jaxprs are many small objects: a tenth of the time went to collections.
gc.set_threshold(200_000, 20, 100)

import numpy as np
import pytest
from budgets import (  # noqa: F401
    pytest_addoption,
    pytest_runtest_call,
    pytest_terminal_summary,
)

if TYPE_CHECKING:
    from support import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """What is in `support`."""
    if name.startswith(("pytest", "__")):
        raise AttributeError(name)
    return getattr(importlib.import_module("support"), name)


@pytest.fixture(scope="module", autouse=True)
def no_more_programs_than_a_process_may_hold():
    """Linux grants a process 65530 maps of memory, XLA takes several for each program, and crashes
    without.
    """
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 50_000:
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


# What takes minutes begins first, so that no worker is left alone with it at the end.
FIRST = (
    "test_notebooks.py",
    "test_readme.py",
    "test_rows_over_mesh.py",
    "test_sharding.py",
    "test_mesh.py",
    "test_processes.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: item.path.name not in FIRST)
    if hasattr(config, "workerinput"):
        # To hand out five thousand tests that are skipped in float32 takes 15 s.
        from support import needs_x32, needs_x64

        skipped = [needs.mark for needs in (needs_x32, needs_x64) if needs.args[0]]
        gone = {item for item in items if any(mark in skipped for mark in item.iter_markers())}
        if len(gone) < len(items):  # otherwise pytest would find no test at all
            items[:] = [item for item in items if item not in gone]
            config.hook.pytest_deselected(items=list(gone))


def pytest_collection_finish():
    """What is imported stays: collections need not look at it."""
    gc.collect()
    gc.freeze()


def pytest_configure(config):
    is_worker = hasattr(config, "workerinput")
    hands_out_tests = config.getoption("numprocesses", None) and not is_worker
    if not hands_out_tests:
        importlib.import_module("support")  # before any test imports kernax unchecked
    # tests write their data in float64; that this is said once in a process is a test of its own
    # (P01)
    if os.environ["JAX_ENABLE_X64"].lower() in ("0", "false"):
        config.addinivalue_line("filterwarnings", "ignore:float64 data is computed in float32")
