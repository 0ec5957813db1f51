"""The number of threads of BLAS and LAPACK, which JAX calls on a CPU."""

import contextlib
import importlib
from collections.abc import Iterator

_ONE_THREAD = 1000  # rows; with fewer, a second thread costs more than it saves


@contextlib.contextmanager
def linear_algebra_threads(rows: int = 0, threads: int | None = None) -> Iterator[None]:
    """Limits the threads of BLAS and LAPACK if `threadpoolctl` is installed.

    The default is one thread up to 1000 rows, and the library's own number for more. Threads of
    OpenBLAS wait for each other by spinning. If another process uses their cores, a factorisation
    of 300 rows waits longer than it computes: twenty steps of learning took 18 s of processor time
    instead of 0.1 s.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        yield
        return
    # This loads the library that jaxlib calls, because limits only apply to loaded libraries.
    importlib.import_module("scipy.linalg.cython_lapack")
    if threads is None and rows <= _ONE_THREAD:
        threads = 1
    with threadpool_limits(threads, user_api="blas"):
        yield
