"""How many threads the linear algebra takes: BLAS and LAPACK, which JAX calls on a CPU."""

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

_ONE_THREAD = 1000  # rows up to which a second thread waits longer than it computes


@contextlib.contextmanager
def linear_algebra_threads(rows: int = 0, threads: int | None = None) -> Iterator[None]:
    """Limits the threads of BLAS and LAPACK where `threadpoolctl` is installed.

    The default is one thread up to 1000 rows, and the library's own number for more. OpenBLAS's
    threads wait for each other by spinning. Where another process uses their cores, a factorisation
    of 300 rows waits longer than it computes: twenty steps of learning took 18 s of processor time
    instead of 0.1.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        yield
        return
    # Loads the library that jaxlib calls, because limits apply to loaded libraries only.
    importlib.import_module("scipy.linalg.cython_lapack")
    if threads is None and rows <= _ONE_THREAD:
        threads = 1
    with threadpool_limits(threads, user_api="blas"):
        yield


def threads_of_devices(devices: Sequence[Any]) -> AbstractContextManager[None]:
    """Limits BLAS and LAPACK to one thread where several devices of a CPU compute at a time.

    OpenBLAS has one set of threads, for which they would wait in turn: a batch of 200 Gaussian
    processes over two cores took 7.5 s instead of 1.6.
    """
    at_a_time = len(devices) > 1 and devices[0].platform == "cpu"
    return linear_algebra_threads(threads=1) if at_a_time else contextlib.nullcontext()
