"""Processes that were forked after something was computed, where JAX would wait forever."""

import os

_computing_process: int | None = None


def check_not_forked() -> None:
    """Raises RuntimeError in a process that was forked from one in which kernax had computed.

    JAX computes on threads, which a forked process does not have: it would wait for them forever.
    """
    global _computing_process
    process = os.getpid()
    if _computing_process is None:
        _computing_process = process
    if _computing_process != process:
        raise RuntimeError(
            "this process was forked after JAX had started, and would wait forever for threads "
            "that it does not have: start processes with multiprocessing.get_context('spawn'), or "
            "fork before anything is computed"
        )
