"""This process as one of several that compute together."""

import os
import sys
import time
import types
from typing import Any, NamedTuple

import jax

# By which whoever starts processes tells them which one each is.
COORDINATOR = "KERNAX_COORDINATOR"
PROCESSES = "KERNAX_PROCESSES"
PROCESS = "KERNAX_PROCESS"
_MOMENT = 0.5  # seconds
_TOO_LATE = (
    "kernax.scale.connect() came too late: JAX has looked for its devices already, as it does for "
    "any array, and so for the parameters of a kernel. Call it right after the imports"
)


def connect(
    *,
    seconds_to_start: int = 300,
    seconds_of_silence: int = 60,
    seconds_to_end: int = 300,
) -> None:
    """Connects this process with the others of its job, by `jax.distributed`.

    Call it first in a script, before any array is made, those in kernels included. Afterwards
    `jax.devices()` are those of all processes, and `jax.process_index()` is the number of this one.
    The other processes are known by the first of these that applies:

    - The variables `KERNAX_COORDINATOR` (host:port of process 0), `KERNAX_PROCESSES` (how many) and
      `KERNAX_PROCESS` (the number of this one, from 0) of the environment. With
      `KERNAX_PROCESSES=1` nothing is done.
    - What JAX detects by itself: Slurm, Open MPI, Kubernetes jobs, Cloud TPUs.
    - Otherwise this process computes alone, and nothing is done.

    In a job of several processes an exception that is not caught ends this process at once, so that
    whatever started the job sees the failure: by default Python would first wait for the others,
    which wait for this one. `sys.exit` waits for the others, for at most `seconds_to_end`; only
    `os._exit` does not.

    The processes of a job should run on machines of one kind: see `docs/design.md`.

    Arguments:
        seconds_to_start: how long to wait for the others to start.
        seconds_of_silence: after how long without a heartbeat a process counts as dead; all others
            are ended then.
        seconds_to_end: how long a process that has ended waits for the others to end.

    Raises:
        ValueError: variables of the environment that do not fit together.
        RuntimeError: an array was made before, or the others have not started in time.
    """
    place = _told_by_environment()
    if place is not None and place.processes == 1:
        return
    try:
        jax.distributed.initialize(
            **({} if place is None else place.settings()),
            initialization_timeout=seconds_to_start,
            heartbeat_timeout_seconds=seconds_of_silence,
            shutdown_timeout_seconds=seconds_to_end,
        )
    except ValueError as problem:
        if place is None and "coordinator_address" in str(problem):
            return  # JAX detects no cluster
        raise
    except RuntimeError as problem:
        if "must be called before" in str(problem):
            raise RuntimeError(_TOO_LATE) from None
        raise
    sys.excepthook = _end_at_once


def check_connected() -> None:
    """Raises RuntimeError in one of several processes that is not connected with the others."""
    place = _told_by_environment()
    if place is not None and place.processes > 1 and jax.process_count() == 1:
        raise RuntimeError(
            f"this is process {place.process} of {place.processes}, as {PROCESSES} says, but it is "
            "not connected with the others and would compute everything by itself: call "
            f"kernax.scale.connect() right after the imports, or set {PROCESSES}=1"
        )


class _Place(NamedTuple):
    """The number of this process, how many there are, and the address of process 0."""

    coordinator: str
    processes: int
    process: int

    def settings(self) -> dict[str, Any]:
        """For `jax.distributed.initialize`."""
        return {
            "coordinator_address": self.coordinator,
            "num_processes": self.processes,
            "process_id": self.process,
            "cluster_detection_method": "deactivate",
        }


def _told_by_environment() -> _Place | None:
    """What the variables say; None where there are none.

    Raises ValueError where some of them are missing, or say what cannot be.
    """
    coordinator = os.environ.get(COORDINATOR, "")
    processes = os.environ.get(PROCESSES, "")
    process = os.environ.get(PROCESS, "")
    if processes == "1":
        return _Place(coordinator, 1, 0)
    if not (coordinator or processes or process):
        return None
    numbers = processes.isdigit() and process.isdigit()
    if coordinator and numbers and int(process) < int(processes):
        return _Place(coordinator, int(processes), int(process))
    raise ValueError(
        f"{COORDINATOR} must be host:port of process 0, {PROCESSES} how many processes there are, "
        f"and {PROCESS} the number of this one, from 0, but they are {coordinator!r}, "
        f"{processes!r} and {process!r}"
    )


def _end_at_once(
    kind: type[BaseException], problem: BaseException, trace: types.TracebackType | None
) -> None:
    """Prints an exception and ends the process, without waiting for the others."""
    sys.__excepthook__(kind, problem, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    # Where a process dies, the others fail as well, within milliseconds: whoever watches is to see
    # first the one that died first.
    time.sleep(_MOMENT)
    os._exit(1)
